/* The parts of the runtime that need no ranks, each against a naive account of what it promises. Prints one line a case
 * like a suite does; `pieces st FILE` says what the safetensors reader thinks of a file instead. Compiled once a mesh,
 * because the tables of program.c are constants. */
#define _GNU_SOURCE
#include "trainer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct world world = {.size = 1, .host_size = 1, .one_host = true};
bool position_claim(void) { return true; }
void world_abort(int status) { exit(status); }

static void verdict(const char *name, const char *why)
{
    if (why)
        printf("FAIL %s_fsdp%lld: %s\n", name, (long long)program.fsdp, why);
    else
        printf("ok %s_fsdp%lld\n", name, (long long)program.fsdp);
}

/* ── learning rate ─────────────────────────────────────────────────────────── */

static bool rates(int schedule, int64_t warmup, int64_t steps, int64_t decay, double floor, int64_t from, int n, const double *want)
{
    struct program p = {.lr = 8e-4, .schedule = schedule, .warmup = warmup, .schedule_steps = steps, .decay = decay, .floor = floor};
    for (int i = 0; i < n; i++) {
        double got = schedule_lr(&p, from + i);
        if (!(fabs(got - want[i]) <= 1e-15)) {
            fprintf(stderr, "schedule %d, warmup %lld of %lld, step %lld: %.17g, not %.17g\n", schedule, (long long)warmup, (long long)steps, (long long)from + i, got, want[i]);
            return false;
        }
    }
    return true;
}
#define RATES(schedule, warmup, steps, decay, floor, from, ...) \
    rates(schedule, warmup, steps, decay, floor, from, (int)(sizeof(double[]){__VA_ARGS__} / sizeof(double)), (double[]){__VA_ARGS__})

static const char *test_rates(void)
{
    const double peak = 8e-4, half = peak * (0.1 + 0.9 * 0.5);
    if (!RATES(1, 5, 106, 0, 0.1, 0, 1.6e-4, 3.2e-4, 4.8e-4, 6.4e-4, peak, peak))
        return "warm-up of five";
    if (!RATES(1, 5, 106, 0, 0.1, 55, half) || !RATES(1, 5, 106, 0, 0.1, 105, peak * 0.1, peak * 0.1, peak * 0.1))
        return "cosine: middle, end and beyond";
    if (!RATES(1, 0, 101, 0, 0.1, 0, peak) || !RATES(1, 0, 1, 0, 0, 0, peak) || !RATES(1, 4, 5, 0, 0.1, 3, peak, peak))
        return "no warm-up, no decay";
    if (!RATES(0, 2, 4, 0, 0, 0, 4e-4, peak, peak, peak, peak))
        return "constant";
    if (!RATES(2, 0, 5, 0, 0, 0, peak, 6e-4, 4e-4, 2e-4, 0, 0))
        return "linear";
    if (!RATES(3, 0, 8, 4, 0.5, 2, peak, peak, 7e-4, 6e-4, 5e-4, 4e-4, 4e-4) || !RATES(3, 0, 8, 0, 0.5, 6, peak, peak, 4e-4))
        return "warm-up, stable, decay";
    return NULL;
}

/* ── random numbers ────────────────────────────────────────────────────────── */

static const char *test_random(void)
{
    enum { N = 100003 };
    static float whole[N], part[N];
    uint64_t key = random_key(0, "model.embed_tokens.weight");
    random_normal(key, 0.02, 0, N, whole);
    for (int64_t from = 0, n = 1; from < N; from += n, n = n * 3 % 97 + 1)
        random_normal(key, 0.02, from, from + n < N ? n : N - from, part + from);
    if (memcmp(whole, part, sizeof whole) != 0)
        return "pieces differ from the whole";
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

/* ── segments ──────────────────────────────────────────────────────────────── */

/* Every element of every unit's flat buffer is claimed by exactly the tensor that lies there, or by nobody. */
static const char *test_pieces(void)
{
    for (int u = 0; u < program.units; u++) {
        const struct unit *unit = &program.unit[u];
        int64_t flat = unit->shard * program.fsdp;
        char *claims = room(flat * unit->count);
        struct stored s;
        for (bool more = stored_first(&s); more; more = stored_next(&s)) {
            if (s.unit != unit)
                continue;
            int64_t total = 0;
            for (int64_t shard = 0; shard < program.fsdp; shard++) {
                struct piece p = stored_piece(&s, shard);
                if (p.count && p.element != total)
                    return "a tensor's pieces do not follow each other";
                for (int64_t i = 0; i < p.count; i++) {
                    int64_t at = p.at + i - unit->state_offset - s.instance * unit->shard;
                    if (at < 0 || at >= unit->shard)
                        return "a piece leaves its instance";
                    int64_t place = shard * unit->shard + at, element = s.tensor->offset + s.part * stored_elements(&s) + total + i;
                    if (place != element || claims[s.instance * flat + place]++)
                        return "an element is claimed twice, or from the wrong place";
                }
                total += p.count;
            }
            if (total != stored_elements(&s))
                return "a tensor is not whole";
        }
        for (int64_t i = 0; i < flat; i++) {
            bool inside = false;
            for (int t = 0; t < unit->tensors; t++)
                inside = inside || (i >= unit->tensor[t].offset && i < unit->tensor[t].offset + unit->tensor[t].count);
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
                    if (shard * unit->shard + i >= unit->tensor[t].offset && shard * unit->shard + i < unit->tensor[t].offset + unit->tensor[t].count)
                        there = &unit->tensor[t];
                while (k < n && i >= s[k].from + s[k].count)
                    k++;
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
    if (n != stored_count() || strcmp(name, "model.layers.1.shift.weight") != 0 || strcmp(last, "model.bias.weight") != 0)
        return "names or order of stored tensors";
    return segments_check() ? NULL : fail_noted();
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "st") == 0) {
        static struct st_set set;
        bool fine = st_open(&set, argv[2]);
        printf("%s\n", fine ? "fine" : fail_noted());
        for (int64_t i = 0; fine && i < set.tensors; i++) {
            char shape[128];
            float first[4] = {0};
            int64_t count = 1;
            for (int k = 0; k < set.tensor[i].rank; k++)
                count *= set.tensor[i].dim[k];
            count = count < 4 ? count : 4;
            st_shape_text(set.tensor[i].rank, set.tensor[i].dim, shape, sizeof shape);
            if (set.tensor[i].type != ST_OTHER && st_read(&set.tensor[i], 0, count, first))
                printf("%s %s %s %g %g\n", set.tensor[i].name, set.tensor[i].dtype, shape, (double)first[0], (double)first[1]);
        }
        return 0;
    }
    if (program.fsdp == 1) {
        verdict("learning_rate", test_rates());
        verdict("random", test_random());
    }
    verdict("pieces", test_pieces());
    verdict("stretches", test_stretches());
    verdict("names", test_names());
    return 0;
}
