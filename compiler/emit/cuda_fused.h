/* What the files that write fused cuda kernels share: cuda_fused.c, the launches; cuda_sweep.c, a
 * sweep over the columns of a row; cuda_together.c, how a thread reads and writes neighbouring
 * elements. */
#ifndef PLANC_EMIT_CUDA_FUSED_H
#define PLANC_EMIT_CUDA_FUSED_H

#include "emit/cuda.h"
#include "emit/fused.h"

enum form { FORM_GRID, FORM_ROWS, FORM_CHUNKS };

struct together {
    const char *pointer, *index, *name;
};

/* Of the launch that is being written. */
struct cuda_fused {
    struct cuda_kernel *c;
    enum form form;
    int threads, group; /* threads per block and per row */
    int width;          /* neighbours that are one thread's: 8, or 4 */
    bool together;      /* the piece is read and written so many at a time */
    VECTOR(struct together) read;
    struct text behind; /* what comes after the loop over them */
    /* row sums so far that threads of several warps add up: float, double */
    int sums, wide_sums;
    int launches;
    const char *first; /* "if (t == 0) ": one thread of all that compute the same */
    bool assigns;
};

/* Elements at the loop's column, all of a thread's neighbours read in front of the loop over them:
 * C of one, or NULL where they are not neighbours in memory, or not aligned. */
const char *cuda_load_together(struct fused *f, const char *pointer, const struct value *v,
                               struct spot at);
/* Gathers `x` for a store after the loop; false where a thread's elements must be stored one by
 * one. */
bool cuda_store_together(struct fused *f, const char *pointer, const struct value *v,
                         struct spot at, const char *x);
/* The variable that leads to the other half of a row of 2 `half` columns; NULL where a thread has
 * neighbours in both. */
const char *cuda_turn(struct fused *f, int64_t half);

/* ── cuda_sweep.c ────────────────────────────────────────────────────────────── */
/* Writes one stage of a row into the blocks of `f`. */
void cuda_stage(struct fused *f, struct end **end, int n, int number);
/* The first byte of a node's part of the workspace, and C of a pointer to it. */
int64_t cuda_place_of(const struct fused *f, const struct node *n);
const char *cuda_work_at(const char *type, int64_t place);
/* Whether the kernel has a workspace. */
bool cuda_works(const struct fused *f);
/* C of a total that an earlier launch left in the workspace. */
const char *cuda_finished(struct fused *f, const struct value *v);
/* A sum over rows too wide for registers. */
bool cuda_kept_in_memory(const struct end *e);
bool cuda_mentions(const char *text, const char *word);
/* "" for a text without bytes. */
const char *cuda_text(const struct text *t);

#endif
