/* The samples of several sources in one order: see mixture.h. At each place of a period the source
 * that lags furthest behind its share is next, the first of them where several do. So at every
 * place each source is less than a few samples from its proportion. */
#include "mixture.h"
#include "trainer.h"

/* Of a stage. */
struct stage {
    int64_t begin, period; /* begin: its first sample of the run */
    /* of each place: its source, and how many places of the period before it are of that source */
    uint16_t *source;
    int32_t *before;
    int64_t *base; /* samples of each source before the stage */
};

static struct stage *stage;

static void fill(struct stage *s, int number)
{
    int64_t *count = ROOM(int64_t, program.sources);
    for (int64_t place = 0; place < s->period; place++) {
        int next = 0;
        int64_t most = INT64_MIN;
        for (int i = 0; i < program.sources; i++) {
            const int64_t behind =
                program.source[i].share[number] * (place + 1) - count[i] * s->period;
            if (behind > most) most = behind, next = i;
        }
        s->source[place] = (uint16_t)next;
        s->before[place] = (int32_t)count[next]++;
    }
}

static const struct stage *stage_of(int64_t n)
{
    int k = program.stages - 1;
    while (k > 0 && stage[k].begin > n) k--;
    return &stage[k];
}

static int64_t count_in(const struct stage *s, int source, int64_t n)
{
    const int64_t share = program.source[source].share[s - stage], rest = n % s->period;
    int64_t place = rest;
    while (place > 0 && s->source[place - 1] != source) place--;
    return s->base[source] + n / s->period * share + (place > 0 ? s->before[place - 1] + 1 : 0);
}

void mixture_open(void)
{
    stage = ROOM(struct stage, program.stages);
    for (int k = 0; k < program.stages; k++) {
        struct stage *s = &stage[k];
        s->begin = program.stage_step[k] * program.global;
        for (int i = 0; i < program.sources; i++) s->period += program.source[i].share[k];
        s->source = ROOM(uint16_t, s->period);
        s->before = ROOM(int32_t, s->period);
        s->base = ROOM(int64_t, program.sources);
        fill(s, k);
        for (int i = 0; k > 0 && i < program.sources; i++)
            s->base[i] = count_in(&stage[k - 1], i, s->begin - stage[k - 1].begin);
    }
}

int mixture_source(int64_t n, int64_t *of)
{
    const struct stage *s = stage_of(n);
    const int64_t at = n - s->begin, place = at % s->period;
    const int source = s->source[place];
    *of = s->base[source] + at / s->period * program.source[source].share[s - stage] +
          s->before[place];
    return source;
}

int64_t mixture_count(int source, int64_t n)
{
    const struct stage *s = stage_of(n);
    return count_in(s, source, n - s->begin);
}

int64_t mixture_period(int64_t n) { return stage_of(n)->period; }
