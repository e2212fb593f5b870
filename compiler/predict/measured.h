/* Durations that a run measured, put in the place of a program's predicted ones: what remains is
 * the engine alone, which can be held against the step of that run. */
#ifndef PLANC_MEASURED_H
#define PLANC_MEASURED_H

#include "predict/engine.h"

/* A kernel by its name, or a collective. Seconds of one call, mean. */
struct duration {
    const char *name; /* of a kernel; else "gather", "reduce", "sum over replicas", … */
    const char *unit; /* of a gather or reduction; "": a sum */
    int64_t instance; /* of all units, or the number of a sum in the step */
    int micro;        /* of a reduction: PART_FIRST | PART_LAST, -1: any */
    double calls, seconds;
};
/* One step of the run, seconds one by one: calls of kernels, issues, collectives, and from the end
 * of each collective until who waited for it went on. */
struct measured_step {
    double *kernel, *issue, *wake, *collective;
    int kernels, issues, wakes, collectives;
    double between, host;
};
struct durations {
    struct duration *kernel, *collective;
    int kernels, collectives;
    double *sequence; /* seconds of the collectives of a step in the order of their issue */
    int sequences;    /* 0: not known, the mean of each kind counts */
    double between;   /* seconds from a kernel to the next one */
    double issue;     /* seconds that issuing a collective takes from compute */
    double wake;      /* seconds from the end of a collective until who waits for it goes on */
    double host;      /* seconds of a step outside of its schedule */
    struct measured_step *step;
    int steps;  /* 0: not known one by one, the means count */
    int *order; /* by call of a step: which of the kernels */
    int orders;
};

/* Collectives and compute no longer slow each other: what was measured has it in it. A kernel or
 * collective of the program that has no duration: its name is the answer; NULL: all have one. */
const char *program_measured(struct program *p, const struct durations *d);
/* After program_measured(): simulates each step of the run by its own durations. The outcome is the
 * mean of them, whole picoseconds, and p->host that of their hosts; NULL: the steps are not known
 * one by one, or not as the program has them. A step by mean durations waits less than steps do on
 * average, since what is late now is early another time. */
const struct outcome *measured_steps(struct program *p, const struct durations *d);
/* Collectives that the program issues in a step, by its tally. */
int64_t measured_collectives(const struct program *p, const struct tally *counts);
/* A kernel that the program calls another number of times in a step than the run did; NULL: none.
 * `counts`: by item, of a step of the program. */
const char *measured_otherwise(const struct program *p, const struct tally *counts,
                               const struct durations *d);

#endif
