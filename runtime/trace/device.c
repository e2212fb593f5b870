/* The trace device: one process that plays rank 0 of any mesh, executes nothing and prints every
 * schedule step. Its output is for reading and for golden tests: the order of issue, what waits for
 * what, which instance of a unit is on its way. Addresses are the offsets themselves, tagged by
 * segment, and are never read. It has its own small main and nothing of MPI, data or weights. */
#define _GNU_SOURCE
#include "shared/trainer.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* event: what its latest recording stands for */
struct device {
    int64_t iteration;
    char (*event)[128];
};
struct world world = {.rank = 0, .size = 1, .host_size = 1, .one_host = true};

static const uintptr_t WIRE_TAG = (uintptr_t)1 << 62, LOCAL_TAG = (uintptr_t)1 << 61;

void *local(struct device *d, int64_t offset)
{
    (void)d;
    return (void *)(LOCAL_TAG | (uintptr_t)offset);
}
void *wire(struct device *d, int64_t offset)
{
    (void)d;
    return (void *)(WIRE_TAG | (uintptr_t)offset);
}
void iteration(struct device *d, int64_t i) { d->iteration = i; }

/* "wire+4096" */
static const char *place(const void *address, char text[40])
{
    uintptr_t a = (uintptr_t)address;
    if (!address) return "none";
    snprintf(text, 40, "%s+%" PRIuPTR, a & WIRE_TAG ? "wire" : "local",
             a & ~(WIRE_TAG | LOCAL_TAG));
    return text;
}

/* "layers[3]": an instance of a unit by its layer. */
static const char *instance(int64_t number, char text[96])
{
    for (int u = 0; u < program.units; u++) {
        const struct unit *unit = &program.unit[u];
        if (number < unit->count) {
            snprintf(text, 96, "%s[%lld]", unit->name,
                     (long long)(unit->layer ? unit->layer[number] : number));
            return text;
        }
        number -= unit->count;
    }
    snprintf(text, 96, "no unit");
    return text;
}

static const char *micro_text(int micro)
{
    static const char *const text[] = {"middle", "first", "last", "first and last"};
    return text[micro & 3];
}

/* step, lane, region[iteration], then what the verb itself has to say */
PRINTF_LIKE(4, 5)
static void line(const struct device *d, int step, const char *lane, const char *format, ...)
{
    char region[128] = "?", text[512];
    if (step >= 1 && step <= program.steps)
        snprintf(region, sizeof region, d->iteration >= 0 ? "%s[%lld]" : "%s",
                 program.step[step].region, (long long)d->iteration);
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    printf("%4d  %-7s  %-24s  %s\n", step, lane, region, text);
}

PRINTF_LIKE(3, 4) static void record(struct device *d, int event, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (event >= 0 && event <= program.events)
        vsnprintf(d->event[event], sizeof *d->event, format, args);
    va_end(args);
}

void run(struct device *d, int step, const struct kernel *k, void *const *address)
{
    (void)address;
    line(d, step, "compute", "run %s", k->name);
}

void run_shard(struct device *d, int step, const struct kernel *k, int64_t unit,
               void *const *address)
{
    char name[96];
    (void)address;
    line(d, step, "compute", "run %s over the shard of %s", k->name, instance(unit, name));
}

void gather(struct device *d, int step, int64_t unit, void *slot, int event)
{
    char name[96], to[40];
    line(d, step, "gather", "gather %s to %s, event %d", instance(unit, name), place(slot, to),
         event);
    record(d, event, "gather %s", name);
}

void reduce(struct device *d, int step, int64_t unit, void *slot, void *stage, void *into,
            int micro, int event)
{
    char name[96], from[40], through[40], to[40];
    line(d, step, "reduce", "reduce %s from %s through %s into %s, %s micro-batch, event %d",
         instance(unit, name), place(slot, from), place(stage, through), place(into, to),
         micro_text(micro), event);
    record(d, event, "reduce %s", name);
}

void sum_replicas(struct device *d, int step, int64_t unit, void *shard, int micro, int event)
{
    char name[96], at[40];
    if (!(micro & MICRO_LAST)) return;
    line(d, step, "replicas", "sum %s at %s over the replicas, event %d", instance(unit, name),
         place(shard, at), event);
    record(d, event, "sum of %s over the replicas", name);
}

void gather_replicas(struct device *d, int step, int64_t unit, int micro)
{
    char name[96];
    if (micro & MICRO_FIRST)
        line(d, step, "replicas", "gather the shard of %s over the replicas", instance(unit, name));
}

void scatter_replicas(struct device *d, int step, int64_t unit, void *shard, void *into, int micro,
                      int event)
{
    char name[96], at[40], to[40];
    if (!(micro & MICRO_LAST)) return;
    line(d, step, "replicas", "sum %s at %s over the replicas, a part into %s, event %d",
         instance(unit, name), place(shard, at), place(into, to), event);
    record(d, event, "sum of %s over the replicas", name);
}

void reduce_after(struct device *d, int step, int event)
{
    const char *what = event >= 0 && event <= program.events ? d->event[event] : "";
    line(d, step, "reduce", "begin after event %d (%s)", event, *what ? what : "not recorded yet");
}

void sum_ranks(struct device *d, int step, const char *group, double *address, int64_t count,
               int event)
{
    char at[40];
    line(d, step, "reduce", "sum %lld at %s over %s, event %d", (long long)count,
         place(address, at), group, event);
    record(d, event, "sum over %s", group);
}

void await(struct device *d, int step, int event)
{
    const char *what = event >= 0 && event <= program.events ? d->event[event] : "";
    line(d, step, "compute", "wait for event %d (%s)", event, *what ? what : "not recorded yet");
}

void load_batch(struct device *d, int step, int32_t *tokens, int32_t *targets, int micro)
{
    char a[40], b[40];
    line(d, step, "host", "load tokens to %s, targets to %s, %s micro-batch", place(tokens, a),
         place(targets, b), micro_text(micro));
}

void load_documents(struct device *d, int step, int32_t *tokens, int32_t *targets, int32_t *starts,
                    int micro)
{
    char a[40], b[40], c[40];
    line(d, step, "host",
         "load tokens to %s, targets to %s, starts of documents to %s, %s "
         "micro-batch",
         place(tokens, a), place(targets, b), place(starts, c), micro_text(micro));
}

void tap(struct device *d, int step, const char *name, enum element_type type, const void *value,
         int64_t rows, int64_t columns)
{
    char at[40];
    line(d, step, "compute", "tap %s %lld x %lld %s at %s", name, (long long)rows,
         (long long)columns, type == TYPE_BF16 ? "bf16" : "f32", place(value, at));
}

void world_leave(int status) { exit(fflush(stdout) == 0 ? status : STATUS_ENVIRONMENT); }

int main(int argc, char **argv)
{
    struct device d = {.iteration = -1};
    struct options o;
    if (!options_read(&o, argc, argv)) {
        fail_print(fail_noted());
        return STATUS_USAGE;
    }
    if (o.help) {
        printf("%s\n", options_help);
        return 0;
    }
    if (o.steps < 0) o.steps = 1;
    d.event = room((int64_t)sizeof *d.event * (program.events + 1));
    printf("trace of rank 0 of fsdp %lld x dp %lld: %s\n", (long long)program.fsdp,
           (long long)program.dp, program.title);
    printf("setup\n");
    schedule_setup(&d);
    for (int64_t step = 0; step < o.steps; step++) {
        for (int64_t j = 0; j < program.accumulation; j++) {
            int micro =
                (j == 0 ? MICRO_FIRST : 0) | (j + 1 == program.accumulation ? MICRO_LAST : 0);
            printf("step %lld, micro-batch %lld (%s)\n", (long long)step, (long long)j,
                   micro_text(micro));
            schedule_micro_batch(&d, micro);
        }
        printf("step %lld, update\n", (long long)step);
        schedule_update(&d);
    }
    world_leave(0);
}
