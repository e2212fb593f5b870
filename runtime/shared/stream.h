/* One stream of tokens from files, as data.c reads its sources and the files of a validation. */
#ifndef PLANC_STREAM_H
#define PLANC_STREAM_H

#include "trainer.h"
#include "formats/tokens.h"

struct file {
    struct tokens_file f;
    int64_t first; /* number of its first token in the stream */
};
struct stream {
    struct file *file;
    int64_t files, tokens, samples; /* samples of an epoch */
    int64_t bytes;                  /* of all files */
    bool is_text;                   /* all files hold bytes of text */
};

/* What a thread reads with. */
struct reader {
    unsigned char *raw; /* TOKENS_BUFFER bytes */
    bool is_main;       /* the main thread's: the watchdog is told what it has read */
    char why[TOKENS_WHY];
    _Atomic int64_t pieces; /* that were read so far */
};

/* *s: zeroed. Opens what the n names or patterns stand for, as `key` of the plan. False: noted. */
bool stream_open(struct stream *s, const char *key, const char *const *name, int n,
                 struct reader *r);
/* Looks at this rank's part for ids beyond the vocabulary. False: noted. */
bool stream_scan(const struct stream *s, struct reader *r);
/* Tokens [at, at + n), checked; to: NULL when only the check is wanted. False: r->why. */
bool stream_read(const struct stream *s, int64_t at, int64_t n, struct reader *r, int32_t *to);
/* Of n tokens from token `at` on, which were read: of each the number, among them, of the first one
 * that is of the same document. A document ends behind data.end_token, where its file marks its
 * end, and with its file. False: r->why. */
bool stream_documents(const struct stream *s, int64_t at, int64_t n, const int32_t *token,
                      struct reader *r, int32_t *first);
/* Of the sizes and contents of n streams: all of them where they are few, samples of them where
 * they are many. Reads up to 64 MiB. */
uint64_t stream_fingerprint(const struct stream *s, int n, struct reader *r);
/* All ranks have the same files: agree_files, which says what true means. */
bool stream_agree(const struct stream *s, const char *name);
/* The file in which token `at` of the stream is, and its number there. */
const char *stream_place(const struct stream *s, int64_t at, int64_t *token);
/* What its files are, for people. */
const char *stream_format(const struct stream *s, char text[64]);

#endif
