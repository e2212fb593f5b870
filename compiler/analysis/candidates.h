/* The points of a space as candidates: each is checked, found in its structure (predict/points.h),
 * and asked for memory and time. `planc check` asks every one for both, a search asks for bounds
 * first. Structures are shared by all spaces that one of these is used for: rungs of a ladder
 * differ in devices alone. */
#ifndef PLANC_CANDIDATES_H
#define PLANC_CANDIDATES_H

#include "analysis/ledger.h"
#include "base/arguments.h"
#include "predict/points.h"

/* Spaces that are given to one of these have the same keys with the same choices. */
struct candidates *candidates_open(const struct arguments *a);
void candidates_close(struct candidates *c);

/* What a point is, without its plan. structure NULL: it follows no rule and is compiled by itself.
 * why: it is impossible; interned. */
struct place {
    int64_t point; /* the number of the point of this plan: its own, unless keys have no effect */
    struct structure *structure;
    const char *key; /* of its structure; interned */
    struct point at;
    int64_t limit_bytes, outside_bytes, global;
    const char *why;
};
struct place candidate_place(struct candidates *c, const struct space *s, const int *choice);
/* Its peak, laid out; -1: impossible, and place->why says why. */
int64_t candidate_peak(struct candidates *c, const struct space *s, const int *choice,
                       struct place *place);
/* Picoseconds of its step; 0 when the cluster does not say how fast it is (*missing names a figure,
 * NULL is fine). The prediction, when asked for, is in the arena. */
int64_t candidate_step(struct candidates *c, const struct space *s, const int *choice,
                       const struct place *place, struct prediction **prediction,
                       const struct program **program, const char **missing);
/* Where the most is alive: "layers.backward, step 57 of 93". */
const char *candidate_fullest(struct candidates *c, const struct space *s, const int *choice,
                              const struct place *place);
/* Less than these it does not take. 0: not known. */
int64_t candidate_least_peak(const struct place *place);
int64_t candidate_least_step(const struct place *place);

/* Its plan, as a command would compile it; NULL and *why. In the arena. */
struct plan *candidate_plan(const struct arguments *a, const struct space *s, const int *choice,
                            const char **why);
/* "mesh.fsdp=16 batch.local=4". */
const char *candidate_text(const struct space *s, const int *choice);
/* The next point in the order of the text; false after the last one. */
bool candidate_next(const struct space *s, int *choice);
/* The choices of a point, by its number. */
void choice_of(const struct space *s, int64_t number, int *choice);

/* A walk through the points of a space, each plan once: a point that is another one's plan is
 * passed over. Whoever looks at a whole space walks, so that all count the same points. */
struct walk {
    const struct space *space;
    int *choice; /* of the point */
    int64_t number;
    struct place place;
    int64_t *point_of; /* by number, of all points so far: the one whose plan it is */
    bool *refused;     /* by number: impossible */
    int *other;        /* scratch */
};
struct walk *walk_begin(const struct space *s);
bool walk_next(struct walk *w, struct candidates *c); /* false after the last one */

/* FLOPs of a token, recomputation included, and bytes that the collectives of a step move; 0 for a
 * point that cannot be compiled. */
struct candidate_work {
    double flops, moved;
};
struct candidate_work candidate_work(struct candidates *c, const struct space *s, const int *choice,
                                     const struct place *place);
/* A step in seconds, or in some unit that ranks it, where the cluster does not say how fast it is.
 */
double candidate_cost(struct candidates *c, const struct space *s, const int *choice,
                      struct candidate_work work);

#endif
