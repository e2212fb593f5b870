/* Which samples every rank of a mesh reads, step by step, with the data reader alone: `order OUT`
 * plays all ranks one after the other over stream-*.bin (uint32; token i has id FIRST + i, so a
 * sample says which one it is) and writes for every place of the run, in global order, the sample
 * that stood there, and for every step the sum of the ranks' hashes.
 * Checked here: every sample once an epoch, whole, shifted by one; across meshes the files must be
 * equal. */
#define _GNU_SOURCE
#include "shared/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SEQUENCE = 7,
    GLOBAL = RANKS * ACCUMULATION * LOCAL,
    SAMPLES = 101,
    EPOCHS = 5,
    TOKENS = SAMPLES * SEQUENCE + 4
};
#define FIRST 70000

static const char *const trains[] = {TRAIN};
const struct program program = {
    .fsdp = RANKS,
    .dp = 1,
    .accumulation = ACCUMULATION,
    .local = LOCAL,
    .sequence = SEQUENCE,
    .global = GLOBAL,
    .tokens = LOCAL * SEQUENCE,
    .vocabulary = FIRST + TOKENS,
    .data_train = trains,
    .data_trains = sizeof trains / sizeof *trains,
    .data_format = FORMAT_UINT32,
    .data_order = ORDER,
    .data_seed = SEED,
};
struct world world = {.size = RANKS, .host_size = RANKS, .one_host = true};
bool position_claim(void) { return true; }
void position_moved(void) {}
/* what other ranks have is not asked here */
bool agree_files(const char *what, const struct agreed_file *file, int64_t n)
{
    (void)what, (void)file, (void)n;
    return true;
}
void output_spare(const char *what, const char *path) { (void)what, (void)path; }
int agree_shift(int64_t turn) { return (int)turn; }
void world_exchange(const double *mine, int64_t n, double *all) { (void)mine, (void)n, (void)all; }

static int finish(const char *why)
{
    printf("%s\n", why);
    return 1;
}

int main(int argc, char **argv)
{
    enum { STEPS = (EPOCHS * SAMPLES + GLOBAL - 1) / GLOBAL };
    static int64_t order[STEPS * GLOBAL];
    static int32_t tokens[LOCAL * SEQUENCE], targets[LOCAL * SEQUENCE];
    static uint64_t hash[STEPS];
    if (argc != 2 || !data_open()) return finish(argc != 2 ? "order OUT" : fail_noted());
    /* backwards: no step may depend on the one before it */
    for (int64_t step = STEPS; step-- > 0;)
        for (int rank = 0; rank < RANKS; rank++) {
            world.rank = rank;
            if (data_step(step, step * GLOBAL) != GLOBAL / RANKS * SEQUENCE)
                return finish("not all targets count");
            hash[step] += data_hash();
            for (int64_t j = 0; j < ACCUMULATION; j++) {
                data_batch(j, tokens, targets, NULL);
                for (int64_t i = 0; i < LOCAL; i++) {
                    int64_t first = tokens[i * SEQUENCE] - FIRST;
                    for (int64_t k = 0; k < SEQUENCE; k++)
                        if (tokens[i * SEQUENCE + k] != FIRST + first + k ||
                            targets[i * SEQUENCE + k] != FIRST + first + k + 1)
                            return finish("a sample is not a stretch of the stream");
                    if (first % SEQUENCE != 0)
                        return finish("a sample does not begin at a multiple of the sequence");
                    order[step * GLOBAL + (j * RANKS + rank) * LOCAL + i] = first / SEQUENCE;
                }
            }
        }
    for (int64_t epoch = 0; epoch < EPOCHS; epoch++) {
        char seen[SAMPLES] = {0};
        int64_t at_home = 0;
        for (int64_t i = 0; i < SAMPLES; i++) {
            int64_t sample = order[epoch * SAMPLES + i];
            if (sample >= SAMPLES || seen[sample]++)
                return finish("a sample comes twice in an epoch");
            at_home += sample == i;
        }
        if (ORDER == 0 ? at_home != SAMPLES : at_home > SAMPLES / 10)
            return finish("not the order that was asked for");
        if (ORDER != 0 && epoch > 0 &&
            memcmp(order, order + epoch * SAMPLES, SAMPLES * sizeof *order) == 0)
            return finish("two epochs have one order");
    }
    FILE *f = fopen(argv[1], "w");
    if (!f) return finish("cannot write");
    for (int64_t i = 0; i < EPOCHS * SAMPLES; i++) fprintf(f, "%lld\n", (long long)order[i]);
    for (int64_t step = 0; step < EPOCHS * SAMPLES / GLOBAL; step++)
        fprintf(f, "step %lld %016llx\n", (long long)step, (unsigned long long)hash[step]);
    return fclose(f) ? finish("cannot write") : 0;
}
