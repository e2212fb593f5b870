/* What the files of the reader of tokens share; nothing outside formats/ includes it. */
#ifndef FORMATS_TOKENS_INSIDE_H
#define FORMATS_TOKENS_INSIDE_H

#include "formats/tokens.h"

#include <stdio.h>

/* false: `why` becomes this line */
#define tokens_wrong(why, ...) (snprintf((why), TOKENS_WHY, __VA_ARGS__), false)

/* The first n bytes of an unsigned number, the lowest first. */
uint64_t tokens_little(const unsigned char *p, int n);
/* Exactly n bytes from `at`; false: `why` names `path`. */
bool tokens_bytes(int fd, const char *path, int64_t at, void *to, int64_t n, char why[TOKENS_WHY]);

/* tokens_header.c. Each takes the first n bytes of the file; `is` is set when it is such a file;
 * false: it is one that cannot be read. */
bool tokens_numpy(struct tokens_file *f, const unsigned char *head, size_t n, bool *is,
                  char why[TOKENS_WHY]);
bool tokens_llmc(struct tokens_file *f, const unsigned char *head, size_t n, bool *is,
                 char why[TOKENS_WHY]);
/* The index beside the .bin, which f->path names. */
bool tokens_megatron(struct tokens_file *f, bool *is, char why[TOKENS_WHY]);

/* json_lines.c. Reads the whole file once, and remembers places to begin at. */
bool json_lines_open(struct tokens_file *f, const struct tokens_wish *wish, char why[TOKENS_WHY]);
void json_lines_close(struct json_lines *lines);
bool json_lines_read(const struct tokens_file *f, int64_t at, int64_t n,
                     unsigned char buffer[TOKENS_BUFFER], int32_t *to, char why[TOKENS_WHY]);
/* The end of the line that token `at` is of. */
int64_t json_lines_end(const struct json_lines *lines, int64_t at);
/* The same of a document of Megatron's index. */
bool tokens_megatron_end(const struct tokens_file *f, int64_t at, int64_t *end,
                         char why[TOKENS_WHY]);

#endif
