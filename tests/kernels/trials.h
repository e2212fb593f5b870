/* The trials of all ops: nodes of one body with their operands, and the gradients of each. */
#ifndef TEST_TRIALS_H
#define TEST_TRIALS_H

#include "interpret.h"
#include "machine.h"

struct trial {
    enum op op;
    const char *name;
    int first, last, end;
    struct value *seed[3];
    struct value *into[8];
};
extern struct trials {
    struct graph *g;
    struct build b;
    VECTOR(struct trial) trial;
    uint64_t state;
    int given;
    enum element type;
} trials;

/* Needs a shard to walk: update.c tries it. Views of a loop's piece and lane ops have no kernel. */
bool elsewhere(enum op op);
/* Adds the trials of an op in t.type. */
void trials_of(enum op op);
/* Core ops that read or write what is kept in the compute type; the others work on ids, positions
 * and F32 choices. */
bool moves_bf16(enum op op);

#endif
