/* The state of one proof, shared by the files of this folder. */
#ifndef PLANC_PROVE_STATE_H
#define PLANC_PROVE_STATE_H

#include "ir/ir.h"

#include <setjmp.h>

struct range {
    int64_t from, to;
    int64_t mark;
};
struct flight {
    int64_t from, to;
    int event;
    bool fills, shard; /* shard: of a gradient, until the sum over replicas has read it */
};
struct kept {
    const char *name;
    int64_t from, to;
};
/* The gradient of a unit on its way into the resident shards. */
struct sum {
    const char *unit;
    int slot, summed;   /* events */
    bool reduces, adds; /* what has not been waited for */
};
/* Marks of a value by iteration of its loop (one entry for straight code). note of the value. */
struct marks {
    int64_t *of;
    int64_t n;
};

/* Marks of gathered units: by the buffer that owns the slot, and by instance. */
struct gathered {
    const char *buffer;
    int64_t instance, mark;
};

struct prove {
    const struct graph *g;
    VECTOR(struct range) bytes; /* of the arena; sorted, apart */
    VECTOR(struct kept) kept;
    VECTOR(struct flight) flight;
    VECTOR(struct sum) sum;
    VECTOR(struct gathered) gathered;
    /* shards of weights that are those of the step: by unit or loop, and layer */
    VECTOR(struct gathered) together;
    int64_t fresh;
    const struct region *region;
    const struct body *body;
    int64_t i, n; /* layer and running count */
    bool first_micro, last_micro;
    int step;
    /* what check_over's kernel walks: a result, or its halves when it is two values side by side */
    struct shape walked;
    bool halves;
    jmp_buf out;
    const char *why;
};

/* bytes.c. Bytes are stretches [from, to) of addresses of the arena. */
/* Ends the proof: the text says what is wrong at the step that runs. */
_Noreturn void wrong(struct prove *p, const char *format, ...) PRINTF_LIKE(2, 3);
/* The address of byte `offset` of the buffer's segment; wrong when `bytes` from there leave it. */
int64_t address_of(struct prove *p, const struct buffer *b, int64_t offset, int64_t bytes,
                   const char *what);
/* Notes what stays for the whole run; each such buffer must be apart from the others. */
void keep_all(struct prove *p);
/* Puts a mark; wrong where something stays or a collective is under way. */
void write_bytes(struct prove *p, int64_t from, int64_t to, int64_t mark, const char *what);
/* Wrong unless every byte has the mark and no collective is filling it. */
void read_bytes(struct prove *p, int64_t from, int64_t to, int64_t mark, const char *what);

/* lanes.c */
void read_weight(struct prove *p, const struct weight *w);
void gather(struct prove *p, const struct node *n);
void reduce(struct prove *p, const struct node *n);
void wait_for(struct prove *p, const struct node *n);
/* Of a gradient that the update reads. */
void read_gradient(struct prove *p, const struct node *state);

/* over.c */
/* The value is made by one of the nodes [first, last) of the body. */
bool inside(const struct body *b, int first, int last, const struct value *v);
void check_over(struct prove *p, const struct body *b, int first, int last,
                const struct value *over, const struct value *out);

/* prove.c */
/* The value that owns the bytes: v itself, or what it is a view of. */
const struct value *bytes_of(const struct value *v);
/* The mark that a reader here means. Values of loops have one per iteration, by layer. */
int64_t meant(struct prove *p, const struct value *v);

#endif
