/* What a laid-out graph says about a device's memory: the terms that are alive at the fullest moment, their sum, and the
 * verdict against what the device offers. Read off the layout that the trainer will allocate, never estimated beside it. */
#ifndef PLANC_COMMAND_LEDGER_H
#define PLANC_COMMAND_LEDGER_H

#include "cost.h"

struct term { const char *name; int64_t bytes; bool inside; const char *formula; int line; };
struct ledger {
    int64_t devices, parameters, active_parameters;
    struct flops flops;            /* per token */
    int64_t limit_bytes, peak_bytes, arena_bytes, outside_bytes; /* peak = arena + outside; the limit is what a device offers */
    bool limit_is_machine;         /* read from this machine: available memory / ranks */
    const char *peak_at;           /* "layers.backward, step 57 of 93" */
    const char *verdict;           /* "fits", "tight", "exceeds" */
    VECTOR(struct term) term;      /* inside ones add up to the arena */
};
/* NULL after one line: this machine's memory could not be read. `graph` is at LEVEL_MEMORY. */
struct ledger *ledger_read(const struct plan *plan, const struct graph *graph);

#endif
