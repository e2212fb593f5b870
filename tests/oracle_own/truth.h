/* What the parts of the oracle share: the numbers of a case, the tape, and the tensors of a
 * model. */
#ifndef TRUTH_H
#define TRUTH_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

void fatal(const char *what, const char *which);

/* ── the case ────────────────────────────────────────────────────────────────── */
enum family { LLAMA, GPT2, QWEN3, QWEN3_MOE, MIXTRAL, FAMILIES };
extern enum family family;
extern const char *const family_names[FAMILIES];
enum {
    LAYERS,
    HIDDEN,
    HEADS,
    KV,
    HEAD_DIM,
    FFN,
    VOCAB,
    CONTEXT,
    SEQ,
    GLOBAL,
    STEPS,
    WARMUP,
    TIED,
    BF16,
    MASK,
    IGNORE,
    SEED,
    EXPERTS,
    TOP_K,
    WIDTH,
    NORMALIZE,
    AUX,
    TOGETHER,
    DENSE,
    FUSED,
    BARE,
    ERF,
    ROUTER,
    LR,
    FLOOR,
    CLIP,
    DECAY,
    VECTOR_DECAY,
    EMBED_DECAY,
    EXPERT_DECAY,
    EPS,
    THETA,
    FACTOR,
    LOW,
    HIGH,
    ORIGINAL,
    STD,
    KNOBS
};
extern struct knob {
    const char *name;
    double value;
} knob[KNOBS];
static inline int whole(int k) { return (int)knob[k].value; }
static inline bool is_mixture(void) { return family == QWEN3_MOE || family == MIXTRAL; }
static inline bool is_sparse(int layer) { return is_mixture() && !(whole(DENSE) >> layer & 1); }

/* ── tape.c ──────────────────────────────────────────────────────────────────── */
extern double *value, *gradient; /* by place on the tape */
int reserve(int n);              /* places for n values, zero, with zero gradients */
int reserved(void);
void rewind_to(int n); /* forgets all entries, and all places from n on */
void unary(int out, int a, double y, double d);
void binary(int out, int a, int b, double y, double d, double e);
void times(int out, int a, int b);
void plus(int out, int a, int b);
void inner(int out, int n, int a, int stride_a, int b, int stride_b);
void walk_back(void);

/* ── model.c ─────────────────────────────────────────────────────────────────── */
struct tensor {
    char name[96];
    int rank, dim[3], at, count;
    bool bf16;
};
extern struct tensor tensor[1024];
extern int tensors;
void model_begin(void); /* declares and fills the tensors */
/* `samples` of the step, together: their summed cross-entropy, seeded with 1 / valid; what they add
 * to the step's balance loss, seeded with `share` of its weight; chosen[e] += the part of the rows
 * that chose e, times share. */
struct chunk {
    double ce, aux;
    int logits;
};
struct chunk model_chunk(const uint16_t *ids, int samples, double valid, double share,
                         double *chosen);
/* smallest so far between the last chosen and the first rejected logit */
extern double router_gap;
double uniform(void);

#endif
