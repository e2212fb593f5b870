/* The parts of the runtime that need no ranks, each against a naive account of what it promises.
 * Prints one line per case like a suite does; `pieces st FILE` says what the safetensors reader
 * thinks of a file instead. Compiled once a mesh, because the tables of program.c are constants. */
#define _GNU_SOURCE
#include "shared/trainer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct world world = {.size = 1, .host_size = 1, .one_host = true};
bool position_claim(void) { return true; }

static void verdict(const char *name, const char *why)
{
    if (why)
        printf("FAIL %s_fsdp%lld: %s\n", name, (long long)program.fsdp, why);
    else
        printf("ok %s_fsdp%lld\n", name, (long long)program.fsdp);
}

/* ── learning rate ───────────────────────────────────────────────────────────── */

static bool rates(int schedule, int64_t warmup, int64_t steps, int64_t decay, double floor,
                  int64_t from, int n, const double *want)
{
    struct program p = {.lr = 8e-4,
                        .schedule = schedule,
                        .warmup = warmup,
                        .warmup_to = 1,
                        .schedule_steps = steps,
                        .decay = decay,
                        .floor = floor};
    for (int i = 0; i < n; i++) {
        double got = schedule_lr(&p, from + i);
        if (!(fabs(got - want[i]) <= 1e-15)) {
            fprintf(stderr, "schedule %d, warmup %lld of %lld, step %lld: %.17g, not %.17g\n",
                    schedule, (long long)warmup, (long long)steps, (long long)from + i, got,
                    want[i]);
            return false;
        }
    }
    return true;
}
/* Up to the peak, then never up again; at the horizon's end the floor, unless there was nothing to
 * fall over. */
static bool shaped(int schedule, int64_t warmup, int64_t steps, int64_t decay, double floor)
{
    struct program p = {.lr = 1,
                        .schedule = schedule,
                        .warmup = warmup,
                        .warmup_to = 1,
                        .schedule_steps = steps,
                        .decay = decay,
                        .floor = floor};
    double before = 0;
    for (int64_t s = 0; s < 2 * steps; s++) {
        double rate = schedule_lr(&p, s);
        if (!(rate <= 1) ||
            (s < warmup ? !(rate > before) : s > 0 && !(rate <= before && rate >= floor)))
            return false;
        before = rate;
    }
    bool falls = schedule == 3 ? decay > 0 : schedule > 0 && warmup < steps - 1;
    double end = schedule_lr(&p, steps - 1), beyond = schedule_lr(&p, steps);
    return fabs(end - (falls ? floor : 1)) <= 1e-15 &&
           fabs(beyond - (schedule ? floor : 1)) <= 1e-15;
}
#define RATES(schedule, warmup, steps, decay, floor, from, ...) \
    rates(schedule, warmup, steps, decay, floor, from,          \
          (int)(sizeof(double[]){__VA_ARGS__} / sizeof(double)), (double[]){__VA_ARGS__})

static const char *test_rates(void)
{
    const double peak = 8e-4, half = peak * (0.1 + 0.9 * 0.5);
    if (!RATES(1, 5, 106, 0, 0.1, 0, 1.6e-4, 3.2e-4, 4.8e-4, 6.4e-4, peak, peak))
        return "warm-up of five";
    if (!RATES(1, 5, 106, 0, 0.1, 55, half) ||
        !RATES(1, 5, 106, 0, 0.1, 105, peak * 0.1, peak * 0.1, peak * 0.1))
        return "cosine: middle, end and beyond";
    if (!RATES(1, 0, 101, 0, 0.1, 0, peak) || !RATES(1, 0, 1, 0, 0, 0, peak) ||
        !RATES(1, 4, 5, 0, 0.1, 3, peak, peak))
        return "no warm-up, no decay";
    if (!RATES(0, 2, 4, 0, 0, 0, 4e-4, peak, peak, peak, peak)) return "constant";
    if (!RATES(2, 0, 5, 0, 0, 0, peak, 6e-4, 4e-4, 2e-4, 0, 0) ||
        !RATES(2, 2, 6, 0, 0.25, 0, 4e-4, peak, peak, 6e-4, 4e-4, 2e-4, 2e-4))
        return "linear";
    if (!RATES(3, 0, 8, 4, 0.5, 2, peak, peak, 7e-4, 6e-4, 5e-4, 4e-4, 4e-4) ||
        !RATES(3, 2, 7, 2, 0, 0, 4e-4, peak, peak, peak, peak, 4e-4, 0))
        return "warm-up, stable, decay";
    if (!RATES(3, 0, 8, 0, 0.5, 6, peak, peak, 4e-4) ||
        !RATES(3, 0, 4, 4, 0, 0, 6e-4, 4e-4, 2e-4, 0) ||
        !RATES(3, 2, 4, 2, 0, 0, 4e-4, peak, 4e-4, 0))
        return "a decay of nothing, of everything, of all that warm-up leaves";
    for (int kind = 1; kind <= 3; kind++)
        if (!RATES(kind, 0, 1, 0, 0.25, 0, peak, 2e-4, 2e-4) ||
            !RATES(kind, 3, 4, 0, 0.25, 2, peak, peak, 2e-4) ||
            !RATES(kind, 4, 4, 0, 0.25, 2, 6e-4, peak, 2e-4, 2e-4))
            return "a fall of no length, and what is beyond the horizon";
    if (!RATES(0, 0, 0, 0, 0, 0, peak, peak) || !RATES(0, 3, 2, 0, 0.5, 2, peak, peak, peak))
        return "constant without a horizon, and beyond it";
    for (int kind = 0; kind <= 3; kind++)
        for (int64_t warmup = 0; warmup <= 9; warmup++)
            for (int64_t decay = 0; decay + warmup <= 9; decay++)
                if (!shaped(kind, warmup, 9, decay, 0.125))
                    return "a rate leaves its bounds or rises after the warm-up";
    return NULL;
}

/* ── random numbers ──────────────────────────────────────────────────────────── */

static const char *test_random(void)
{
    enum { N = 100003 };
    static float whole[N], part[N];
    uint64_t key = random_key(0, "model.embed_tokens.weight");
    random_normal(key, 0.02, 0, N, whole);
    for (int64_t from = 0, n = 1; from < N; from += n, n = n * 3 % 97 + 1)
        random_normal(key, 0.02, from, from + n < N ? n : N - from, part + from);
    if (memcmp(whole, part, sizeof whole) != 0) return "pieces differ from the whole";
    double mean = 0, square = 0, fourth = 0;
    for (int i = 0; i < N; i++) {
        double x = (double)whole[i] / 0.02;
        mean += x / N;
        square += x * x / N;
        fourth += x * x * x * x / N;
    }
    if (fabs(mean) > 0.015 || fabs(square - 1) > 0.02 || fabs(fourth - 3) > 0.1)
        return "not a standard normal";
    if (random_key(0, "a") == random_key(1, "a") || random_key(0, "a") == random_key(0, "b"))
        return "seed or name make no difference";
    return NULL;
}

/* ── shuffled order ──────────────────────────────────────────────────────────── */

static const char *test_shuffle(void)
{
    static char seen[2000];
    for (int64_t n = 1; n < 2000; n = n < 40 ? n + 1 : n * 5 / 4)
        for (int64_t epoch = 0; epoch < 6; epoch++) {
            memset(seen, 0, sizeof seen);
            for (int64_t i = 0; i < n; i++) {
                int64_t to = shuffle_place(epoch * 11, epoch, n, i);
                if (to < 0 || to >= n || seen[to]++) return "not a permutation";
            }
        }
    const int64_t large[] = {((int64_t)1 << 40) + 15, ((int64_t)1 << 62) - 57, (int64_t)1 << 32};
    for (int k = 0; k < 3; k++)
        for (int64_t i = 0; i < 1000; i++) {
            int64_t to = shuffle_place(1, 0, large[k], i),
                    end = shuffle_place(1, 0, large[k], large[k] - 1 - i);
            if (to < 0 || to >= large[k] || end < 0 || end >= large[k] || to == end)
                return "leaves a long epoch";
        }
    /* all 24 orders of four equally often (chi-squared of 23 degrees, 99.99 %: 60); so the place
     * that follows a place */
    int count[256] = {0}, follows[10] = {0};
    const int draws = 24000;
    for (int epoch = 0; epoch < draws; epoch++) {
        int code = 0;
        for (int i = 0; i < 4; i++) code = code << 2 | (int)shuffle_place(3, epoch, 4, i);
        count[code]++;
        follows[(shuffle_place(3, epoch, 10, 7) - shuffle_place(3, epoch, 10, 6) + 10) % 10]++;
    }
    double orders = 0, steps = 0;
    int different = 0;
    for (int i = 0; i < 256; i++)
        if (count[i])
            orders += (count[i] - draws / 24.0) * (count[i] - draws / 24.0) / (draws / 24.0),
                different++;
    for (int i = 1; i < 10; i++)
        steps += (follows[i] - draws / 9.0) * (follows[i] - draws / 9.0) / (draws / 9.0);
    if (different != 24 || orders > 60 || follows[0] || steps > 35) {
        fprintf(stderr, "%d orders, chi-squared %.1f and %.1f\n", different, orders, steps);
        return "not all orders are as likely";
    }
    int same = 0;
    for (int64_t i = 0; i < 1000; i++)
        same += (shuffle_place(0, 0, 1000, i) == shuffle_place(1, 0, 1000, i)) +
                (shuffle_place(0, 0, 1000, i) == shuffle_place(0, 1, 1000, i)) +
                (shuffle_place(0, 1, 1000, i) == shuffle_place(1, 0, 1000, i));
    return same < 20 ? NULL : "seed or epoch make little difference";
}

/* ── segments ────────────────────────────────────────────────────────────────── */

/* Every element of every unit's flat buffer is claimed by exactly the tensor that lies there, or by
 * nobody. */
static const char *test_pieces(void)
{
    for (int u = 0; u < program.units; u++) {
        const struct unit *unit = &program.unit[u];
        int64_t flat = unit->shard * program.fsdp;
        char *claims = room(flat * unit->count);
        struct stored s;
        for (bool more = stored_first(&s); more; more = stored_next(&s)) {
            if (s.unit != unit) continue;
            int64_t total = 0;
            for (int64_t shard = 0; shard < program.fsdp; shard++) {
                struct piece p = stored_piece(&s, shard);
                if (p.count && p.element != total)
                    return "a tensor's pieces do not follow each other";
                for (int64_t i = 0; i < p.count; i++) {
                    int64_t at = p.at + i - unit->state_offset - s.instance * unit->shard;
                    if (at < 0 || at >= unit->shard) return "a piece leaves its instance";
                    int64_t place = shard * unit->shard + at,
                            element = s.tensor->offset + s.part * stored_elements(&s) + total + i;
                    if (place != element || claims[s.instance * flat + place]++)
                        return "an element is claimed twice, or from the wrong place";
                }
                total += p.count;
            }
            if (total != stored_elements(&s)) return "a tensor is not whole";
        }
        for (int64_t i = 0; i < flat; i++) {
            bool inside = false;
            for (int t = 0; t < unit->tensors; t++)
                inside = inside || (i >= unit->tensor[t].offset &&
                                    i < unit->tensor[t].offset + unit->tensor[t].count);
            for (int64_t k = 0; k < unit->count; k++)
                if (claims[k * flat + i] != inside)
                    return "padding belongs to a tensor, or an element to none";
        }
    }
    return NULL;
}

static const char *test_stretches(void)
{
    for (int u = 0; u < program.units; u++) {
        const struct unit *unit = &program.unit[u];
        struct stretch *s = room((int64_t)sizeof *s * unit->tensors);
        for (int64_t shard = 0; shard < program.fsdp; shard++) {
            int n = segments_stretches(unit, shard, s), k = 0;
            for (int64_t i = 0; i < unit->shard; i++) {
                const struct tensor *there = NULL;
                for (int t = 0; t < unit->tensors; t++)
                    if (shard * unit->shard + i >= unit->tensor[t].offset &&
                        shard * unit->shard + i < unit->tensor[t].offset + unit->tensor[t].count)
                        there = &unit->tensor[t];
                while (k < n && i >= s[k].from + s[k].count) k++;
                bool inside = k < n && i >= s[k].from;
                if (inside != (there != NULL))
                    return "a stretch covers padding, or leaves a weight out";
                if (there && fabs(s[k].decay - there->weight_decay) > 0)
                    return "a weight decays like its neighbour";
            }
        }
    }
    return NULL;
}

static const char *test_names(void)
{
    struct stored s;
    int64_t n = 0;
    char name[128], last[128] = "";
    for (bool more = stored_first(&s); more; more = stored_next(&s), n++)
        stored_name(&s, last, sizeof last);
    stored_first(&s);
    stored_next(&s);
    stored_next(&s);
    stored_name(&s, name, sizeof name);
    if (n != stored_count() || strcmp(name, "model.layers.1.shift.weight") != 0 ||
        strcmp(last, "model.bias.weight") != 0)
        return "names or order of stored tensors";
    return segments_check() ? NULL : fail_noted();
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "st") == 0) {
        static struct st_set set;
        bool fine = st_open(&set, argv[2]);
        printf("%s\n", fine ? "fine" : st_why());
        for (int64_t i = 0; fine && i < set.tensors; i++) {
            char shape[128];
            float first[4] = {0};
            int64_t count = 1;
            for (int k = 0; k < set.tensor[i].rank; k++) count *= set.tensor[i].dim[k];
            count = count < 4 ? count : 4;
            st_shape_text(set.tensor[i].rank, set.tensor[i].dim, shape, sizeof shape);
            if (set.tensor[i].type != ST_OTHER && st_read(&set.tensor[i], 0, count, first))
                printf("%s %s %s %g %g\n", set.tensor[i].name, set.tensor[i].dtype, shape,
                       (double)first[0], (double)first[1]);
        }
        return 0;
    }
    if (program.fsdp == 1) {
        verdict("learning_rate", test_rates());
        verdict("random", test_random());
        verdict("shuffle", test_shuffle());
    }
    verdict("pieces", test_pieces());
    verdict("stretches", test_stretches());
    verdict("names", test_names());
    return 0;
}
