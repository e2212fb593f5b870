/* Files of tokens, as many trainers write them: raw ids, ids behind a header (NumPy, llm.c), ids
 * with an index beside them (Megatron), bytes of text, bytes of a field of JSON lines. What a file
 * is is told by its content; a plan may name it, and then both must agree. Compiler and trainer
 * read the same files and refuse the same ones. A file is a sequence of ids, numbered from 0.
 *
 * Errors: false, and `why` has one line that begins with the name of the file. Memory comes from
 * malloc; tokens_close frees it. tokens_read allocates nothing, and several threads may call it for
 * one file if each has a buffer of its own. */
#ifndef FORMATS_TOKENS_H
#define FORMATS_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TOKENS_WHY = 1024 };

/* What a plan calls a file. The first three are ids without a header, or behind one that says the
 * same. */
enum tokens_named {
    TOKENS_RECOGNISED, /* not named: the content decides */
    TOKENS_BYTES,
    TOKENS_UINT16,
    TOKENS_UINT32,
    TOKENS_MEGATRON,
    TOKENS_NUMPY,
    TOKENS_LLMC,
    TOKENS_JSON_LINES
};
struct tokens_wish {
    enum tokens_named named;
    const char *field;  /* of a JSON line: whose bytes are read; NULL: "text" */
    int64_t vocabulary; /* ids below it are valid; 0: not known */
    bool only_look;     /* reads the beginning alone: tokens of JSON lines stay uncounted */
};

enum tokens_layout { LAYOUT_RAW, LAYOUT_NUMPY, LAYOUT_LLMC, LAYOUT_MEGATRON, LAYOUT_JSON_LINES };

struct json_lines;
struct tokens_file {
    char *path, *index_path; /* index: Megatron's; NULL: none */
    int fd, index_fd;        /* -1: not open */
    enum tokens_layout layout;
    int id_bytes;   /* 1, 2, 4 or 8 */
    bool is_signed; /* a negative id is an error, not a large one */
    bool is_text;   /* ids are the bytes of text */
    int64_t file_bytes, index_bytes;
    int64_t header_bytes; /* before the first id */
    int64_t tokens;
    int64_t documents; /* -1: the file does not say */
    int64_t sequences; /* of Megatron's index */
    struct json_lines *lines;
    uint64_t device, inode;
};

/* Opens and checks all but the ids. `warning` is filled when the content is likely to be something
 * else, and "" otherwise; it does not begin with the name. A Megatron prefix (PATH without .bin) or
 * its .idx opens the .bin. tokens_close either way. */
bool tokens_open(struct tokens_file *f, const char *path, const struct tokens_wish *wish,
                 char warning[TOKENS_WHY], char why[TOKENS_WHY]);
void tokens_close(struct tokens_file *f);
/* The file that a name stands for: itself, or the .bin of a Megatron prefix or .idx. In `to`, of
 * `bytes`; NULL when there is none (errno). */
const char *tokens_path(const char *path, char *to, size_t bytes);
/* What the file is, for people: "uint16 ids", "NumPy file of uint32 ids". */
const char *tokens_text(const struct tokens_file *f, char text[64]);

/* Ids that are read with one call need this many bytes of a buffer. */
enum { TOKENS_BUFFER = 1 << 18 };
/* Ids [at, at + n), each at least 0 and below `vocabulary` (0: below 2^31); to: NULL when only the
 * check is wanted. */
bool tokens_read(const struct tokens_file *f, int64_t at, int64_t n, int64_t vocabulary,
                 unsigned char buffer[TOKENS_BUFFER], int32_t *to, char why[TOKENS_WHY]);

/* Boundaries. Part `part` of `parts` of the index is checked: sequences follow each other without
 * gap or overlap, documents rise. True for files without an index. */
bool tokens_check_index(const struct tokens_file *f, int64_t part, int64_t parts,
                        unsigned char buffer[TOKENS_BUFFER], char why[TOKENS_WHY]);
/* Whether the file marks where documents end. */
bool tokens_marks_documents(const struct tokens_file *f);
/* *end: where the document that token `at` is of ends, above `at`; the end of the file when it
 * marks none. */
bool tokens_document_end(const struct tokens_file *f, int64_t at, int64_t *end,
                         char why[TOKENS_WHY]);

#endif
