/* What the parts of the oracle share: the numbers of a case, the tape, and the tensors of a
 * model. */
#ifndef TRUTH_H
#define TRUTH_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

void fatal(const char *what, const char *which);

/* ── the case ────────────────────────────────────────────────────────────────── */
enum family {
    LLAMA,
    GPT2,
    QWEN3,
    QWEN3_MOE,
    MIXTRAL,
    OLMOE,
    GLM4_MOE,
    QWEN2,
    GPT_NEOX,
    PHI3,
    MISTRAL,
    GEMMA2,
    GEMMA3,
    OLMO2,
    FAMILIES
};
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
    Z_LOSS,
    ROUTER_Z,
    SIGMOID,
    BALANCE,
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
    ROTARY,
    PARALLEL,
    ATTENTION_BIAS,
    WINDOW,
    EVERY,
    SCORE_CAP,
    LOGIT_CAP,
    QUERY_WIDTH,
    LOCAL_THETA,
    LINEAR,
    SCALE,
    SHARED,
    ROUTED_SCALE,
    QK_NORM,
    YARN,
    FAST,
    SLOW,
    MAGNITUDE,
    END,
    KNOBS
};
extern struct knob {
    const char *name;
    double value;
} knob[KNOBS];
static inline int whole(int k) { return (int)knob[k].value; }
static inline bool is_mixture(void)
{
    return family == QWEN3_MOE || family == MIXTRAL || family == OLMOE || family == GLM4_MOE;
}
/* The router's scores are sigmoids of its logits, not their softmax. */
static inline bool by_sigmoid(void) { return whole(SIGMOID) || family == GLM4_MOE; }
static inline bool is_gemma(void) { return family == GEMMA2 || family == GEMMA3; }
static inline bool is_sparse(int layer) { return is_mixture() && !(whole(DENSE) >> layer & 1); }

/* No document is asked to say what the next one begins with. */
static inline bool is_target(const uint16_t *ids, int i)
{
    return ids[i] != whole(IGNORE) && (whole(END) < 0 || ids[i - 1] != whole(END));
}

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
    bool bf16, balances; /* the bias of a router: its gradient is how often experts were chosen */
};
extern struct tensor tensor[1024];
extern int tensors;
void model_begin(void); /* declares and fills the tensors */
/* `samples` of the step, together: their summed cross-entropy, seeded with 1 / valid, and the sum
 * over the same targets of the squared log-sum-exp of the logits, seeded with that times its
 * weight; what they add to the step's balance loss and to the mean squared log-sum-exp of the
 * router's logits, seeded with `share` of their weights; chosen[e] += the part of the rows that
 * chose e, times share. */
struct chunk {
    double ce, z, aux, router_z;
    int logits;
};
struct chunk model_chunk(const uint16_t *ids, int samples, double valid, double share,
                         double *chosen);
/* Declares a tensor, of layer `layer` or -1, and fills it; its place. stack 0: not stacked; columns
 * 0: a vector, which is a norm's weight, near 1 (Gemma: near 0), or a bias, near 0. */
int tensor_add(int layer, const char *name, int stack, int rows, int columns);

/* ── parts.c ─────────────────────────────────────────────────────────────────── */
/* Parts of a layer over n rows, as places on the tape. at[]: where each row stands. */
struct turning {
    int width; /* of a head, which is turned */
    double theta, linear;
};
struct rule {
    int window;        /* 0: all */
    double scale, cap; /* 0: none */
};
int norm(const int *at, int n, int width, int g, int bias); /* bias -1: RMSNorm, else LayerNorm */
int norm_heads(int x, int n, int d, int g);                 /* g -1: as it is */
int linear(int x, int n, int in, int w, int out);
int with_bias(int x, int n, int width, int bias); /* bias -1: as it is */
int columns(int x, int n, int row, int from, int width);
int turn(int x, int n, int heads, int d, struct turning how);
int attend(int q, int k, int v, int n, int heads, int kv, int d, struct rule how);
int swish(int g, int u, int n);
int gelu(int x, int n);
int constants(int n, double x);
void residual(int *at, int y, int n, int width); /* at[] += y */
/* exp((x - top) scale) of n values, and their sum as the last of n + 1. */
int powers(int x, int n, double scale, int ones);
int softmax(int x, int n, double scale, int ones);
void quotient(int out, int a, int b);
/* Of each token of the sample at hand: the first one of its document. */
extern int starts[4096];
void find_documents(const uint16_t *ids, int n);

/* ── families.c ──────────────────────────────────────────────────────────────── */
bool family_is_later(void); /* one of those below */
const char *family_prefix(void);
void family_declare(int layer);
void family_layer(int layer, int *at, int n);
void family_config(FILE *f);
int family_turned(int d); /* how many of a head's d columns are turned */
/* For the bias of fused queries, keys and values: which of its elements change no score, as from,
 * count, period; false: it is another tensor. */
bool family_key_places(const struct tensor *t, int place[3]);

/* smallest so far between the last chosen and the first rejected logit */
extern double router_gap;
double uniform(void);

#endif
