/* What a rank does in a step, as the discrete-event run reads it: the scheduled graph with every
 * kernel and collective replaced by its time. Loops stay loops; kernels between two interactions of
 * lanes are one run of them. */
#ifndef PLANC_PROGRAM_H
#define PLANC_PROGRAM_H

#include "predict/collective.h"

/* ITEM_PARTS: a gather of a shard over the replicas, before the first gather of its unit. */
enum item_kind {
    ITEM_RUN,
    ITEM_PARTS,
    ITEM_GATHER,
    ITEM_REDUCE,
    ITEM_REPLICAS,
    ITEM_SUM,
    ITEM_WAIT
};
/* Collectives of one run one after the other. */
enum series { SERIES_SHARDS, SERIES_REPLICAS, SERIES };

/* One kernel in a run. Times are scaled by the slowest device. */
struct timed {
    const char *name;
    enum cost_class class;
    struct kernel_time time; /* unscaled */
    int64_t launch;          /* before it */
    double flops, bytes;
    bool again;
};

/* Parts of a collective: at most a cast, a reduce-scatter and an add. */
enum { TRANSFER_PARTS = 4 };
struct parts {
    struct transfer part[TRANSFER_PARTS];
    int n;
    int64_t total;
};

struct item {
    enum item_kind kind;
    int number; /* in the program, from 0: places in tallies */
    int step;   /* of the schedule, of its first node */
    /* ITEM_RUN: kernels [kernel, kernel + kernels) of the program's; clock[c][k]: picoseconds from
     * the run's begin to the begin of its kernel k in company c; clock[c][kernels] is all */
    int kernel, kernels;
    int64_t *clock[COMPANIES];
    /* collectives: by kind of micro-batch (enum micro) and, when they differ, by instance */
    const char *what; /* "gather layers" */
    int64_t shift, from, to, ring, event;
    bool loop; /* its event is one of a ring */
    bool down;
    int64_t count;               /* of the target's loop */
    const struct parts **gather; /* by instance of the target (layer order) */
    struct parts reduce[4];      /* by MICRO_FIRST | MICRO_LAST */
    enum series series;          /* that it runs in; of a wait: that of what it waits for */
    int unit;                    /* ITEM_REDUCE, ITEM_REPLICAS: that it is of */
    int64_t numbers;             /* ITEM_SUM: F64 */
    bool world;                  /* ITEM_SUM: over all ranks, else over the shards */
    bool first, last;            /* of a gradient that comes in parts */
    bool all;                    /* ITEM_WAIT: the whole ring */
    bool once;        /* ITEM_PARTS, ITEM_GATHER, ITEM_WAIT: of the first micro-batch of a step */
    bool next;        /* ITEM_GATHER: of all but the last */
    bool slot;        /* ITEM_WAIT: for a slot to be written again */
    bool after_parts; /* ITEM_GATHER: in the first micro-batch after its ITEM_PARTS */
    /* ITEM_REDUCE: 1 + the first event of the ring of sums over the replicas that have to have read
     * what it writes; 0: none */
    int64_t after_sums;
};
enum { PART_FIRST = 1, PART_LAST = 2 };

struct stage { /* a body of a region */
    struct item *item;
    int n;
};
enum part_of_step { STEP_FORWARD, STEP_LOSS, STEP_BACKWARD, STEP_UPDATE };
#define STEP_PARTS (STEP_UPDATE + 1)
extern const char *const step_part_names[STEP_PARTS];

struct part_region {
    const char *name;
    enum part_of_step part;
    bool update; /* once per step, else once per micro-batch */
    int64_t count;
    bool pieces; /* a loop over the pieces of the loss */
    bool down;
    struct stage *stage;
    int stages;
    int16_t *kind;     /* by running iteration: what it does; equal numbers do equal things */
    int16_t *stage_of; /* by running iteration */
};

/* Of one step that was measured on a device of one order, picoseconds in the order in which a run
 * of it asks for them: of kernels; of issuing collectives; by collective, of waking up when it
 * ends. `between`: from one kernel to the next. */
struct replay {
    int64_t *kernel, *issue, *wake;
    int64_t kernels, issues, between;
};

struct program {
    struct part_region *region;
    int regions;
    struct timed *kernel;
    int kernels;
    int items; /* over all regions: numbers of tallies */
    struct item **by_number;
    int *region_of; /* by item number */
    int64_t events;
    int64_t accumulation, tokens, devices;
    /* two collectives at a time do not slow each other: durations of a run, which contain that */
    bool apart;
    bool one_order;       /* the device runs all collectives in one order (cpu) */
    bool joins;           /* lanes meet at the end of a micro-batch and of the update (graphs) */
    int64_t host;         /* picoseconds between two steps */
    int64_t issue;        /* picoseconds of compute for each collective */
    int64_t wake;         /* picoseconds from the end of what compute waits for until it goes on */
    double slowest, late; /* factors: of the slowest device's times; of a step that jitters */
    /* measured ones of a step in the order of their issue; 0: none, items have their own */
    struct parts *sequence;
    int64_t sequences;
    const struct replay *replay; /* the rest of such a step, one by one; NULL: items have theirs */
    /* of a collective while compute runs: its time times this (1: undisturbed) */
    double disturbed;
    bool outside; /* some shape lies outside the measured grids */
    missing_list missing;
    struct machine machine;
    struct rings rings;
    /* what times follow from: a kernel's work; a unit's gathers; the unit of a reduction, the
     * numbers of a sum */
    struct work *work;
    struct parts *gather, *together; /* by unit: of its gathers, of its gathers over replicas */
    int units;
    int *alike; /* by unit: 1 + the first that is gathered in the same time; 0: not known */
    const char **unit_name;
    int64_t *shard; /* elements of a shard, by unit */
    int64_t *part;  /* of what a rank updates: a shard, or its part of one */
    bool cut;       /* the replicas have parts of a shard */
    enum element compute;
    struct block *block; /* the program's memory, from the heap */
};

/* The parts of a gather that iteration n (running) issues. */
const struct parts *item_gather(const struct item *it, int64_t n);

/* From a graph after schedule or memory. From the heap, except what `machine`
 * points to. */
struct program *program_of(const struct plan *p, const struct machine *m, const struct graph *g);
/* The work of all kernels of a graph, in the order of a program's. In the arena. */
const struct work *program_work(const struct graph *g, int *n);
/* Works out all times anew, from the program's work, shards, machine and accumulation, for a mesh
 * of these numbers. */
void program_time(struct program *p, int64_t fsdp, int64_t dp);
/* Adds to what is missing when a step would take longer than is simulated, by these times and the
 * program's accumulation. */
void program_limit(struct program *p);
/* From the times of kernels: where each begins in its run, and which iterations are equal. */
void program_set_clocks(struct program *p);
/* Another number of pieces of the loss, which one structure leaves free when it is not 1. */
void program_set_pieces(struct program *p, int64_t chunks);
/* Memory that the program frees. Zeroed. */
void *program_take(struct program *p, size_t bytes);
void program_free(struct program *p); /* NULL: nothing */

#endif
