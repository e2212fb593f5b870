/* Where bytes are, as schedule.c writes it: named constants for the offsets of the memory pass, and
 * expressions over them for the current entry. One table of names, so two buffers never share
 * one. */
#ifndef PLANC_EMIT_PLACE_H
#define PLANC_EMIT_PLACE_H

#include "emit/common.h"

struct constant_of {
    const char *key, *name, *note;
    int64_t value;
};
struct places {
    const struct graph *graph;
    VECTOR(struct constant_of) constant; /* in order of first use */
    /* the current loop runs over a unit's own instances (update), not over layers */
    bool by_unit;
};
/* What a body knows: the region, its loop's index "i", and the running count of iterations ("i"
 * upward, "n" downward). */
struct here {
    const struct region *region;
    const struct body *body;
    const char *index, *running;
};

struct here here_of(const struct region *r, const struct body *b);
/* The name of a constant; made from `stem` at the first use of `key`. */
const char *place_constant(struct places *p, const char *key, const char *stem, int64_t value,
                           const char *note);
/* C of the address of a value that a body reads or writes: `base` (declared with `base_address`)
 * plus an offset where many share a slot, else base is NULL. `name`: what to call it; a weight's
 * gradient is called after the weight. */
struct address {
    const char *name, *base, *base_address, *at;
};
struct address place_value(struct places *p, struct here h, const struct value *v);
/* C of entry number `entry` (C, or a number) modulo `ring` of what begins at `base`, entries `each`
 * apart (NULL: 1). What is known is computed: no "0 % 2", no "+ 0". */
const char *place_entry(const char *base, const char *entry, int64_t ring, const char *each);
/* Entry number `entry` (C) of the slots in buffer `buffer`, which hold instances of `u`. */
const char *place_slot(struct places *p, const char *buffer, const struct unit *u,
                       const char *entry, int64_t ring);
/* This rank's resident shard of a unit's instance, or its part of it; `instance`: C. */
const char *place_state(struct places *p, enum buffer_kind state, const struct unit *u,
                        const char *instance);
const char *place_plain(struct places *p, const char *buffer);
/* The number of a unit's first instance, as a constant's name; a loop's units are numbered one
 * after the other. */
const char *place_unit(struct places *p, const struct unit *u);
/* The unit of that name, or the first one of the loop of that name. */
const struct unit *place_find_unit(const struct graph *g, const char *name);
/* C of which instance of `u` an iteration is (with variants a unit has fewer instances than its
 * loop iterations). */
const char *place_instance(struct places *p, const struct unit *u, const char *index);
bool place_has_variants(const struct graph *g, const char *loop);
/* "gather.layers.forward.layers" without what it says twice. */
const char *place_slot_name(const char *buffer);

#endif
