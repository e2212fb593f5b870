/* Token ids with structure, from a seed: what trainers are timed and compared on where no text may
 * be assumed. `tokens N VOCAB` writes N ids below VOCAB as uint16. An id follows from the one
 * before by one of four rules or is drawn anew, small ids far more often than large ones, as words
 * are, so a model has something to learn and an embedding's gradient meets rows that many tokens
 * share. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t state = 0x9e3779b97f4a7c15u;

static uint32_t next_random(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 32);
}

int main(int argc, char **argv)
{
    long n = argc > 1 ? atol(argv[1]) : 0, vocabulary = argc > 2 ? atol(argv[2]) : 0;
    if (n < 1 || vocabulary < 2 || vocabulary > 65536) {
        fprintf(stderr, "tokens: wants a count and a vocabulary of 2 to 65536\n");
        return 3;
    }
    const double octaves = log((double)vocabulary);
    long id = 0;
    for (long i = 0; i < n; i++) {
        uint32_t r = next_random();
        if (r % 4 == 0)
            id = (long)exp(octaves * ((double)next_random() / 4294967296.0)) - 1;
        else
            id = (id * (r % 4 == 1 ? 5 : 3) + (long)(r >> 8) % 4 + 1) % vocabulary;
        uint16_t out = (uint16_t)id;
        if (fwrite(&out, sizeof out, 1, stdout) != 1) return 4;
    }
    return fflush(stdout) ? 4 : 0;
}
