/* What a laid-out graph says about the memory of a device: every byte under a name, at any step of
 * the schedule, and the verdict against what the device offers. It is read from the layout that the
 * trainer will allocate. */
#ifndef PLANC_COMMAND_LEDGER_H
#define PLANC_COMMAND_LEDGER_H

#include "ir/cost.h"

#include <jansson.h>

/* Bytes under one name: a buffer of the layout, or what the layout leaves. from, to: the steps
 * between which it holds something, in text order. */
struct holding {
    const char *name;
    int64_t bytes;
    const char *formula, *file;
    int line, from, to;
};
/* All holdings of one kind, under its name; kind ALIAS: "unused", "outside" and
 * "checkpoint copy", which are no buffers. file, line: of the plan, where it decides about the
 * kind. */
struct term {
    const char *name;
    enum buffer_kind kind;
    int64_t bytes;
    bool inside;
    const char *formula, *file;
    int line;
    VECTOR(struct holding) holding;
};
typedef VECTOR(struct term) term_list;

/* Against what a device offers: below 92 %, up to 97 %, above; IMPOSSIBLE: a point of a space that
 * is no valid plan. */
enum verdict { FITS, TIGHT, EXCEEDS, IMPOSSIBLE };
#define VERDICTS (IMPOSSIBLE + 1)
extern const char *const verdict_names[VERDICTS];

struct ledger {
    int64_t devices, parameters, active_parameters;
    struct flops flops; /* per token */
    /* peak = arena + outside; the limit is what a device offers */
    int64_t limit_bytes, peak_bytes, arena_bytes, outside_bytes;
    /* the second copy that asynchronous checkpoints are written from, a rank; what the ranks of a
     * host hold of it, and what the host has (0: not known). On cpu it is in outside_bytes. */
    int64_t copy_bytes, host_bytes, host_limit_bytes;
    bool limit_is_machine; /* read from this machine: available memory / ranks */
    int peak_step;         /* the peak */
    const char *peak_at;   /* "layers.backward, step 57 of 93" */
    enum verdict verdict;
    term_list term;        /* at the peak; inside ones add up to the arena */
    int64_t fullest_bytes; /* live at the peak: what no layout can go below */
    int64_t wire_bytes;    /* the end of the arena that collectives touch */
    int64_t *live_bytes;   /* by step, 0 … steps */
    int steps;
};
/* NULL after one line: this machine's memory could not be read. `graph` is at LEVEL_MEMORY. */
struct ledger *ledger_read(const struct plan *plan, const struct graph *graph);
/* The terms of another step; those inside add up to the arena at every one. */
term_list ledger_at(const struct ledger *l, const struct plan *plan, const struct graph *graph,
                    int step);
/* Live bytes of the arena at a step; outside is not in it. */
int64_t ledger_live(const struct ledger *l, int step);
/* "layers.backward, step 57 of 93"; what runs there ("k23 matmul", "gather of layers", "before the
 * first step"), and the plan's line of it (NULL: none). */
const char *ledger_place(const struct graph *graph, int step);
const char *ledger_deed(const struct graph *graph, int step, const char **file, int *line);
/* The steps that are fuller than their neighbours, fullest first; of equal neighbours the first. */
struct instants {
    VECTOR(int) step;
};
struct instants ledger_instants(const struct ledger *l);
/* The first step at which arena and outside hold more than that; -1: none. */
int ledger_first_above(const struct ledger *l, int64_t bytes);
/* Above 97 % of the limit a plan exceeds: by how much. Negative: room below that mark. */
int64_t ledger_over(const struct ledger *l);

/* The device in words: "NVIDIA B200", or that --device asks for another kind than the cluster's. */
const char *ledger_device(const struct plan *plan);
/* What a device offers: the plan's word, else this machine's available memory / ranks. False with
 * errno. */
bool ledger_limit(const struct plan *plan, int64_t *bytes);
enum verdict ledger_verdict(int64_t peak_bytes, int64_t limit_bytes);

/* The stable form, without repairs: an empty list. With holdings when `all`. */
json_t *ledger_json(const char *path, const struct ledger *l, bool all);
json_t *ledger_terms_json(const term_list *terms, bool all);

/* formula.c: the bytes that a buffer has at a step as a product of the plan's own words, with their
 * numbers: "tokens 16,384 x vocab 151,936 x 4 B". */
const char *formula_of(const struct plan *plan, const struct graph *graph, const struct buffer *b,
                       int step);
/* The place of a span, *file NULL: none; and of where the plan decides about a kind of buffer. */
void formula_place_of(struct span at, const char **file, int *line);
void formula_place_of_kind(const struct plan *plan, enum buffer_kind kind, const char **file,
                           int *line);
/* The line of the plan or of its architecture that a buffer comes from; *file NULL: none. */
void formula_place(const struct plan *plan, const struct graph *graph, const struct buffer *b,
                   const char **file, int *line);
/* That line's text, without the blanks around it; NULL when its file is not there. */
const char *formula_line(const struct plan *plan, const char *file, int line);

#endif
