/* The library sentencepiece, found when it is needed: no other command depends on it. */
#ifndef PLANC_SENTENCEPIECE_H
#define PLANC_SENTENCEPIECE_H

#include <stddef.h>
#include <stdint.h>

struct sentencepiece {
    void *processor; /* of the library, and its vector of ids */
    int32_t *ids, *end, *room;
    int64_t vocabulary;
    int end_token; /* -1: the model has none */
};

/* Loads the library and a model. NULL, or why not, in one line. */
const char *sentencepiece_open(struct sentencepiece *s, const char *model);
/* The ids of a text: s->ids up to s->end, until the next call. NULL, or why not. */
const char *sentencepiece_encode(struct sentencepiece *s, const char *text, size_t n);

#endif
