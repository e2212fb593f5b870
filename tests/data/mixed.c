/* Which source each sample is of, by runtime/shared/mixture.c alone: exact shares in every period,
 * close to them everywhere, each source's samples one after the other, across stages, and counts
 * that agree with a count. */
#define _GNU_SOURCE
#include "shared/mixture.h"
#include "shared/trainer.h"

#include <math.h>
#include <stdio.h>

enum { GLOBAL = 6, SOURCES = 4, STAGES = 3, SAMPLES = 30000 };
/* 70 : 20 : 9 : 1, then without the first, then in equal parts */
static const int64_t share[SOURCES][STAGES] = {{70, 0, 1}, {20, 333, 1}, {9, 666, 1}, {1, 1, 1}};
static const int64_t step[STAGES] = {0, 1717, 3000};
static const struct data_source source[SOURCES] = {{"a", 0, 0, share[0]},
                                                   {"b", 0, 0, share[1]},
                                                   {"c", 0, 0, share[2]},
                                                   {"d", 0, 0, share[3]}};
const struct program program = {.global = GLOBAL,
                                .source = source,
                                .sources = SOURCES,
                                .stage_step = step,
                                .stages = STAGES};
struct world world = {.size = 1};
bool position_claim(void) { return true; }

int main(void)
{
    int64_t count[SOURCES] = {0}, begin[SOURCES] = {0}, stage_begin = 0;
    int stage = 0;
    mixture_open();
    for (int64_t n = 0; n < SAMPLES; n++) {
        int64_t of, period = 0;
        if (stage + 1 < STAGES && n == step[stage + 1] * GLOBAL) {
            stage++;
            stage_begin = n;
            for (int i = 0; i < SOURCES; i++) begin[i] = count[i];
        }
        for (int i = 0; i < SOURCES; i++) period += share[i][stage];
        if (mixture_period(n) != period) return printf("period at %lld\n", (long long)n);
        const int i = mixture_source(n, &of);
        if (i < 0 || i >= SOURCES || of != count[i])
            return printf("sample %lld is %lld of %d, not %lld\n", (long long)n, (long long)of, i,
                          (long long)count[i]);
        count[i]++;
        for (int k = 0; k < SOURCES; k++) {
            const int64_t here = n + 1 - stage_begin, got = count[k] - begin[k];
            const double wanted = (double)here * (double)share[k][stage] / (double)period;
            if (mixture_count(k, n + 1) != count[k] && n + 1 < SAMPLES)
                return printf("count of %d at %lld\n", k, (long long)n + 1);
            if (fabs((double)got - wanted) > SOURCES - 1 ||
                (here % period == 0 && got * period != here * share[k][stage]))
                return printf("%lld of %d at %lld, wanted %g\n", (long long)got, k, (long long)n,
                              wanted);
        }
    }
    return 0;
}
