/* What the files of the engine share: its state, which engine.c steps through a program,
 * engine_lanes.c moves on in time, and engine_states.c compares and extrapolates. */
#ifndef PLANC_ENGINE_STATE_H
#define PLANC_ENGINE_STATE_H

#include "predict/engine.h"

enum { UNDER_WAY = 256, KEPT_STATES = 12 };

/* A collective that was issued and is not over. */
struct pending {
    const struct item *item;
    const struct parts *parts;
    int part;
    int64_t left;  /* picoseconds of the part, undisturbed */
    int64_t after; /* collectives of the other series that it comes after */
    bool began;
    int64_t layer, since;
};

/* Collectives that run one after the other. */
struct queue {
    struct pending of[UNDER_WAY];
    int64_t issued, completed; /* so far */
};

struct rotating {
    int64_t event, ring;
};

/* A state that may come back, and the totals at that time. */
struct kept {
    int64_t at; /* iteration or micro-batch */
    int64_t *state;
    int states;
    int64_t now, issued[SERIES], iterations;
    struct tally *tally;
    int64_t part[STEP_PARTS];
};

struct engine {
    const struct program *p;
    struct outcome out;
    int64_t now;
    struct queue queue[SERIES];
    int64_t *event; /* number, in its series, of the collective that it stands for; 0: none yet */
    enum series *series;              /* of an event */
    struct rotating **rotating;       /* by region, ended by ring 0 */
    struct kept kept[2][KEPT_STATES]; /* iterations, micro-batches */
    int64_t *scratch;
    struct watcher *watcher;
    bool unrolled;
    int64_t layer;
    int micro;
    struct item issuing, waking; /* runs of one kernel that is none */
    int64_t issuing_clock[2], waking_clock[2];
    int64_t replayed, issues; /* of the program's replay: kernels, issues so far */
    struct item replaying;
    int64_t *replaying_clock;
};

static inline enum series other(enum series o)
{
    return o == SERIES_SHARDS ? SERIES_REPLICAS : SERIES_SHARDS;
}
static inline int64_t modulo(int64_t n, int64_t ring) { return ((n % ring) + ring) % ring; }

/* ── engine_lanes.c ──────────────────────────────────────────────────────────── */
/* A collective is issued; it comes after so many of the other series. */
void lane_enqueue(struct engine *e, const struct item *it, const struct parts *parts, int64_t layer,
                  int64_t after);
/* Compute waits until the collective of this number of a series is over. awaited: from which number
 * on they are waited for themselves. */
void lane_wait(struct engine *e, enum series o, int64_t number, int64_t awaited, bool slot);
/* The kernels of a run, beside what is under way. */
void lane_compute(struct engine *e, const struct item *run);

/* ── engine_states.c ─────────────────────────────────────────────────────────── */
/* A state that was there before: which; else it is kept, in the oldest's place. level: of
 * iterations, 0, or of micro-batches, 1; region -1: none; *count: states kept so far. */
const struct kept *state_seen(struct engine *e, int level, int64_t *count, int region, int64_t at);
/* The totals since a kept state happen `times` more; events of rings move on by `by`. */
void state_repeat(struct engine *e, const struct kept *k, int64_t times, int region, int64_t by);

#endif
