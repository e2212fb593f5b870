/* The points of a space as candidates: each is checked, found in its structure (predict/points.h),
 * and asked for memory and time. `planc check` asks every one for both, a search asks for bounds
 * first. Structures are shared by all spaces that one of these is used for: rungs of a ladder
 * differ in devices alone. */
#ifndef PLANC_CANDIDATES_H
#define PLANC_CANDIDATES_H

#include "analysis/ledger.h"
#include "base/arguments.h"
#include "predict/points.h"

/* The key changes neither a structure nor the machine that its times are of (engines, rates), but
 * only numbers that a structure is asked with, or none. */
bool candidate_key_is_number(const char *key);

/* Spaces that are given to one of these have the same keys with the same choices. */
struct candidates *candidates_open(const struct arguments *a);
void candidates_close(struct candidates *c);

/* What a point is, without its plan. structure NULL: it follows no rule and is compiled by itself.
 * why: it is impossible; interned. */
struct place {
    struct structure *structure;
    struct point at;
    int64_t limit_bytes, outside_bytes, global;
    const char *why;
};
/* It is another point's plan: it is no point of its own, and is not told of. */
bool candidate_repeats(const struct place *place);
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
/* The choices in which structures of one lowered model and one machine do not differ, as one
 * interned word. */
const char *candidate_shared_key(const struct space *s, const int *choice);
/* What of a plan's numbers decides between structures, as text: whether the loss is in pieces,
 * weights are gathered, the replicas have parts of the optimizer, and gradients are then added up
 * over micro-batches; what is kept. */
const char *candidate_structure_text(const struct plan *p);
/* "mesh.fsdp=16 batch.local=4". */
const char *candidate_text(const struct space *s, const int *choice);
/* The next point in the order of the text; false after the last one. */
bool candidate_next(const struct space *s, int *choice);
/* A structure whose sizes follow no simple rule: compiled point by point. NULL: the architecture,
 * or a pass, refuses the point, and *why says why. */
struct graph *candidate_compiled(const struct plan *p, const char **why);

#endif
