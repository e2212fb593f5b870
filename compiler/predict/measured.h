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
struct durations {
    struct duration *kernel, *collective;
    int kernels, collectives;
    double *sequence; /* seconds of the collectives of a step in the order of their issue */
    int sequences;    /* 0: not known, the mean of each kind counts */
    double between;   /* seconds from a kernel to the next one */
    double issue;     /* seconds that issuing a collective takes from compute */
    double wake;      /* seconds from the end of a collective until who waits for it goes on */
    double host;      /* seconds of a step outside of its schedule */
};

/* Collectives and compute no longer slow each other: what was measured has it in it. A kernel or
 * collective of the program that has no duration: its name is the answer; NULL: all have one. */
const char *program_measured(struct program *p, const struct durations *d);
/* Collectives that the program issues in a step, by its tally. */
int64_t measured_collectives(const struct program *p, const struct tally *counts);
/* A kernel that the program calls another number of times in a step than the run did; NULL: none.
 * `counts`: by item, of a step of the program. */
const char *measured_otherwise(const struct program *p, const struct tally *counts,
                               const struct durations *d);

#endif
