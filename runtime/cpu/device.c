/* The cpu device: the calling thread computes, and one worker thread performs all collectives in
 * the order of issue. There is one worker, not one for each lane: two that wait for other ranks
 * would take turns on one core, and MPI would have to allow several threads. It also makes events
 * cheap: an event is the number of its command, and it has happened when the worker has executed
 * that command.
 *
 * Memory is one mapping of exactly the bytes that the compiler laid out, between two guard pages,
 * so an overrun stops there instead of in other memory, and /proc/self/maps shows exactly our
 * bytes. It is populated at once, so too little memory is known before the first step. */
#define _GNU_SOURCE
#include "cpu/cast.h"
#include "cpu/neighbours.h"
#include "shared/sample.h"
#include "shared/watch.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum kind { GATHER, REDUCE, REPLICAS, GATHER_REPLICAS, SCATTER_REPLICAS, SUM, STOP };
struct command {
    enum kind kind;
    int64_t unit;
    void *slot, *stage, *into;
    int micro;
    double *value;
    int64_t count;
    bool whole_world;
    int64_t mark;
};
enum { QUEUE = 64 };

struct device {
    unsigned char *local, *wire;
    struct instance *instance;
    /* number of the command that an event stands for; 0: never recorded */
    int64_t *event;
    int64_t micro_batch;
    bool forward; /* a validation: steps that it does not need are left out */
    double *stamp;
    int64_t stamps; /* of steps that are watched: what the clock said */
    double exposed;

    pthread_t worker;
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    struct command queue[QUEUE];
    int64_t issued, completed; /* commands so far */
};

/* ── memory ──────────────────────────────────────────────────────────────────── */

static int64_t whole_pages(int64_t bytes)
{
    int64_t page = sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

/* What begins at `shared` and later may be used by the neighbours: nothing, if that is the end. Its
 * page lies where a large one can begin. */
enum { OF_NOBODY_ELSE = -1 };
static void *map(int64_t bytes, int64_t shared, const char *what)
{
    int64_t page = sysconf(_SC_PAGESIZE), inside = whole_pages(bytes ? bytes : 1);
    const int64_t own = shared == OF_NOBODY_ELSE ? 0 : shared / page * page;
    char *base = mmap(NULL, (size_t)(inside + 2 * page + NEIGHBOURS_BLOCK), PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base != MAP_FAILED) base += page + neighbours_align(base + page + own);
    if (base == MAP_FAILED || mprotect(base, (size_t)inside, PROT_READ | PROT_WRITE) != 0) {
        fail_note("rank %d: cannot map the %lld bytes of %s: %s", world.rank, (long long)bytes,
                  what, strerror(errno));
        return NULL;
    }
    if (shared != OF_NOBODY_ELSE) neighbours_map(base + own, inside - own);
    madvise(base, (size_t)inside, MADV_HUGEPAGE); /* optional: fewer page table walks */
#ifdef MADV_POPULATE_WRITE
    if (madvise(base, (size_t)inside, MADV_POPULATE_WRITE) == 0) {
        if (shared != OF_NOBODY_ELSE) neighbours_populated();
        return base;
    }
    if (errno != EINVAL) {
        fail_note("rank %d: no memory for the %lld bytes of %s: %s", world.rank, (long long)bytes,
                  what, strerror(errno));
        return NULL;
    }
#endif
    memset(base, 0, (size_t)inside);
    return base;
}

void *local(struct device *d, int64_t offset) { return d->local + offset; }
void *wire(struct device *d, int64_t offset) { return d->wire + offset; }

static int64_t arena_bytes(void) { return program.local_bytes + program.wire_bytes; }

int64_t device_mapped_bytes(struct device *d)
{
    return machine_mapped_bytes(d->local, arena_bytes());
}

int64_t device_predicted_bytes(void) { return whole_pages(arena_bytes()); }

/* ── the worker ──────────────────────────────────────────────────────────────── */

static int64_t weight_bytes(void) { return program.compute_type == TYPE_BF16 ? 2 : 4; }

/* Of an instance, where the replicas have parts. */
static char *resident_shard(struct device *d, const struct instance *n)
{
    const struct unit *u = n->unit;
    return local(d, program.weights + weight_bytes() * (u->shard_offset + n->index * u->shard));
}

struct own {
    struct device *d;
    const struct instance *instance;
};

/* Of this rank's master weights of an instance, in the compute type: see own_part. */
static const void *cast_weights(const void *of, int64_t at, int64_t n, void *to)
{
    const struct own *own = of;
    const struct unit *u = own->instance->unit;
    const float *master = local(
        own->d, program.master + 4 * (u->state_offset + own->instance->index * state_part(u)));
    if (program.compute_type != TYPE_BF16) return master + at;
    cast_bf16(u, master, at, n, to);
    return to;
}

static const void *resident_weights(const void *of, int64_t at, int64_t n, void *to)
{
    const struct own *own = of;
    return (void)n, (void)to, resident_shard(own->d, own->instance) + at * weight_bytes();
}

static void do_gather(struct device *d, const struct command *c)
{
    const struct own own = {d, &d->instance[c->unit]};
    collective_gather(c->slot, own.instance->unit->shard, weight_bytes(),
                      program.parts ? resident_weights : cast_weights, &own);
}

static void do_gather_replicas(struct device *d, const struct command *c)
{
    const struct own own = {d, &d->instance[c->unit]};
    const int64_t part = own.instance->unit->part, bytes = weight_bytes();
    char *shard = resident_shard(d, own.instance), *mine = shard + world.replica * part * bytes;
    const void *lies = cast_weights(&own, 0, part, mine);
    if (lies != mine) memcpy(mine, lies, (size_t)(part * bytes));
    collective_gather_replicas(shard, part, bytes);
}

static void do_reduce(struct device *d, const struct command *c)
{
    const int64_t shard = d->instance[c->unit].unit->shard;
    collective_reduce_scatter(c->slot, c->stage, c->into, shard, (c->micro & MICRO_FIRST) != 0);
}

static void *work(void *argument)
{
    struct device *d = argument;
    for (bool more = true; more;) {
        pthread_mutex_lock(&d->lock);
        while (d->completed == d->issued) pthread_cond_wait(&d->work, &d->lock);
        struct command c = d->queue[d->completed % QUEUE];
        pthread_mutex_unlock(&d->lock);
        switch (c.kind) {
        case GATHER:
            c.mark = watching ? watch_begin(d, WATCH_GATHER, "gather", c.unit) : -1;
            do_gather(d, &c);
            break;
        case REDUCE:
            c.mark = watching ? watch_begin(d, WATCH_REDUCE, "reduce", c.unit) : -1;
            watch_micro(c.mark, c.micro);
            do_reduce(d, &c);
            break;
        case REPLICAS:
            c.mark = watching ? watch_begin(d, WATCH_REPLICAS, "sum over replicas", c.unit) : -1;
            collective_all_reduce(c.into, d->instance[c.unit].unit->shard);
            break;
        case GATHER_REPLICAS:
            c.mark = watching ? watch_begin(d, WATCH_REPLICAS, "gather over replicas", c.unit) : -1;
            do_gather_replicas(d, &c);
            break;
        case SCATTER_REPLICAS:
            c.mark = watching ? watch_begin(d, WATCH_REPLICAS, "sum over replicas", c.unit) : -1;
            collective_scatter_replicas(c.slot, c.into, d->instance[c.unit].unit->part);
            break;
        case SUM:
            c.mark = watching ? watch_begin(d, WATCH_REDUCE, "sum over ranks", -1) : -1;
            collective_sum(c.value, c.count, c.whole_world);
            break;
        case STOP: more = false; break;
        }
        if (watching && c.kind != STOP)
            watch_end(d,
                      c.kind == GATHER                    ? WATCH_GATHER
                      : c.kind == REDUCE || c.kind == SUM ? WATCH_REDUCE
                                                          : WATCH_REPLICAS,
                      c.mark);
        pthread_mutex_lock(&d->lock);
        d->completed++;
        pthread_cond_broadcast(&d->done);
        pthread_mutex_unlock(&d->lock);
    }
    return NULL;
}

/* Waits until command number `wanted` is done; the time is communication that no computation
 * hid. */
static void wait_for(struct device *d, int64_t wanted)
{
    pthread_mutex_lock(&d->lock);
    if (d->completed < wanted) {
        double from = clock_seconds();
        position_wait(true);
        while (d->completed < wanted) pthread_cond_wait(&d->done, &d->lock);
        position_wait(false);
        d->exposed += clock_seconds() - from;
    }
    pthread_mutex_unlock(&d->lock);
}

static void issue(struct device *d, int step, int event, struct command c)
{
    position_set(step);
    const int64_t mark = watching ? watch_begin(d, WATCH_COMPUTE, WATCH_ISSUE, d->issued + 1) : -1;
    wait_for(d, d->issued - QUEUE + 1); /* issued is this thread's own */
    pthread_mutex_lock(&d->lock);
    d->queue[d->issued % QUEUE] = c;
    d->issued++;
    pthread_cond_signal(&d->work);
    pthread_mutex_unlock(&d->lock);
    if (watching) watch_end(d, WATCH_COMPUTE, mark);
    if (event >= 0) d->event[event] = d->issued;
}

/* ── verbs ───────────────────────────────────────────────────────────────────── */

static bool left_out(const struct device *d, int step)
{
    return d->forward && !program.step[step].forward;
}

void iteration(struct device *d, int64_t i)
{
    (void)d;
    position_iteration(i);
}

static void call(struct device *d, const struct kernel *k, void *const *address,
                 const struct stretch *s, double part)
{
    if (watching)
        watch_kernel(d, k, address, s, part);
    else
        k->call(address, s);
}

void run(struct device *d, int step, const struct kernel *k, void *const *address)
{
    if (left_out(d, step)) return;
    position_set(step);
    call(d, k, address, NULL, 1);
}

void run_shard(struct device *d, int step, const struct kernel *k, int64_t unit,
               void *const *address)
{
    const struct instance *n = &d->instance[unit];
    if (left_out(d, step)) return;
    position_set(step);
    for (int i = 0; i < n->stretches; i++)
        call(d, k, address, &n->stretch[i], (double)n->stretch[i].count / (double)n->elements);
}

void gather(struct device *d, int step, int64_t unit, void *slot, int event)
{
    if (left_out(d, step)) return;
    issue(d, step, event, (struct command){.kind = GATHER, .unit = unit, .slot = slot});
}

void reduce(struct device *d, int step, int64_t unit, void *slot, void *stage, void *into,
            int micro, int event)
{
    if (left_out(d, step)) return;
    issue(d, step, event,
          (struct command){.kind = REDUCE,
                           .unit = unit,
                           .slot = slot,
                           .stage = stage,
                           .into = into,
                           .micro = micro});
}

void sum_replicas(struct device *d, int step, int64_t unit, void *shard, int micro, int event)
{
    if (left_out(d, step) || !(micro & MICRO_LAST)) return;
    issue(d, step, event, (struct command){.kind = REPLICAS, .unit = unit, .into = shard});
}

void gather_replicas(struct device *d, int step, int64_t unit, int micro)
{
    if (left_out(d, step) || !(micro & MICRO_FIRST)) return;
    issue(d, step, -1, (struct command){.kind = GATHER_REPLICAS, .unit = unit});
}

void scatter_replicas(struct device *d, int step, int64_t unit, void *shard, void *into, int micro,
                      int event)
{
    if (left_out(d, step) || !(micro & MICRO_LAST)) return;
    issue(d, step, event,
          (struct command){.kind = SCATTER_REPLICAS, .unit = unit, .slot = shard, .into = into});
}

/* The worker does everything in the order of issue. */
void reduce_after(struct device *d, int step, int event) { (void)d, (void)step, (void)event; }

void sum_ranks(struct device *d, int step, const char *group, double *address, int64_t count,
               int event)
{
    if (left_out(d, step)) return;
    issue(
        d, step, event,
        (struct command){
            .kind = SUM, .value = address, .count = count, .whole_world = !strcmp(group, "world")});
}

void await(struct device *d, int step, int event)
{
    if (left_out(d, step)) return;
    position_set(step);
    const int64_t mark = watching ? watch_begin(d, WATCH_COMPUTE, WATCH_WAIT, d->event[event]) : -1;
    wait_for(d, d->event[event]);
    if (watching) watch_end(d, WATCH_COMPUTE, mark);
}

void load_batch(struct device *d, int step, int32_t *tokens, int32_t *targets, int micro)
{
    load_documents(d, step, tokens, targets, NULL, micro);
}

void load_documents(struct device *d, int step, int32_t *tokens, int32_t *targets, int32_t *starts,
                    int micro)
{
    position_set(step);
    d->micro_batch = micro & MICRO_FIRST ? 0 : d->micro_batch + 1;
    data_batch(d->micro_batch, tokens, targets, starts);
}

void tap(struct device *d, int step, const char *name, enum element_type type, const void *value,
         int64_t rows, int64_t columns)
{
    position_set(step);
    if (!d->forward) probe_tap(d, name, type, value, rows, columns); /* no validation */
    sample_tap(d, name, type, value, rows, columns);
}

/* ── the host's side ─────────────────────────────────────────────────────────── */

/* Host and device memory are one; what the worker still reads or writes nobody else asks for before
 * a drain or an await. */
void device_write(struct device *d, void *to, const void *from, int64_t bytes)
{
    (void)d;
    memcpy(to, from, (size_t)bytes);
}

void device_read(struct device *d, void *to, const void *from, int64_t bytes)
{
    (void)d;
    memcpy(to, from, (size_t)bytes);
}

void device_clear(struct device *d, void *at, int64_t bytes)
{
    (void)d;
    memset(at, 0, (size_t)bytes);
}

void *device_staging(struct device *d) { return local(d, program.staging); }

int64_t device_copy_bytes(int64_t bytes)
{
    return bytes;
} /* this machine's memory is the device's */

void *device_host_memory(struct device *d, int64_t bytes)
{
    (void)d;
    return map(bytes, OF_NOBODY_ELSE, "a checkpoint's second copy");
}

void device_copy_out(struct device *d, void *to, const void *from, int64_t bytes)
{
    (void)d;
    memcpy(to, from, (size_t)bytes);
}

void device_copied(struct device *d)
{ /* it was populated at once */
    (void)d;
}

/* Nothing of it is watched; the worker reads that, so it must have done all of it. */
static void play_forward(struct device *d, int micro)
{
    const bool watched = watching;
    watching = false;
    d->forward = true;
    schedule_micro_batch(d, micro & (MICRO_FIRST | MICRO_LAST | MICRO_FORWARD));
    device_drain(d);
    d->forward = false;
    watching = watched;
}

void device_play(struct device *d, enum play what, int micro)
{
    switch (what) {
    case PLAY_SETUP: schedule_setup(d); break;
    case PLAY_MICRO_BATCH:
        if (micro & (MICRO_FORWARD | MICRO_LOGITS))
            play_forward(d, micro);
        else
            schedule_micro_batch(d, micro);
        break;
    case PLAY_UPDATE: schedule_update(d); break;
    }
}

void device_watch(void)
{ /* the host is the device: every verb says where it stands */
}

void device_drain(struct device *d) { wait_for(d, d->issued); }

/* ── for observers ─────────────────────────────────────────────────────────── */

bool device_stamps(struct device *d, int64_t n)
{
    if (n > d->stamps) d->stamp = ROOM(double, n), d->stamps = n;
    return true;
}

void device_stamp(struct device *d, enum watch_lane lane, int64_t number)
{
    (void)lane; /* the caller is the thread of the lane */
    d->stamp[number] = clock_seconds();
}

double device_stamp_seconds(struct device *d, int64_t number) { return d->stamp[number]; }

void device_copy(struct device *d, void *to, const void *from, int64_t bytes)
{
    (void)d;
    memcpy(to, from, (size_t)bytes);
}

double device_exposed_seconds(struct device *d)
{
    double seconds = d->exposed;
    d->exposed = 0;
    return seconds;
}

struct device *device_open(void)
{
    static struct device device;
    struct device *d = &device;
    d->local = map(arena_bytes(),
                   program.fsdp > 1 ? program.local_bytes
                   : program.dp > 1 ? device_predicted_bytes()
                                    : OF_NOBODY_ELSE,
                   "the arena");
    if (!d->local) return NULL;
    d->wire = d->local + program.local_bytes;
    d->instance = segments_instances();
    d->event = ROOM(int64_t, program.events + 1);
    if (pthread_mutex_init(&d->lock, NULL) || pthread_cond_init(&d->work, NULL) ||
        pthread_cond_init(&d->done, NULL) || pthread_create(&d->worker, NULL, work, d)) {
        fail_note("rank %d: no thread for the collectives", world.rank);
        return NULL;
    }
    return d;
}

void device_close(struct device *d)
{
    issue(d, 0, -1, (struct command){.kind = STOP});
    pthread_join(d->worker, NULL);
}
