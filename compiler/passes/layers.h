/* Composite layers (layers.c), for lower. Each returns NULL with *why when shapes do not fit. x is
 * in the compute type; statistics are in F32 (docs/numerics.md). */
#ifndef PLANC_LAYERS_H
#define PLANC_LAYERS_H

#include "ir/ir.h"

/* add sub mul div in F32, rounded to the operands' type */
struct value *layer_arith(struct build *b, enum op op, struct operand x, struct operand y,
                          const char **why);
/* exp sqrt sigmoid … likewise */
struct value *layer_call1(struct build *b, enum op op, struct value *x, const char **why);
struct value *layer_linear(struct build *b, struct value *x, struct value *w, bool stored_out_in,
                           enum element out, const char **why);
/* x / sqrt(mean x^2 + eps) times g + offset */
struct value *layer_rms_norm(struct build *b, struct value *x, struct value *g, double eps,
                             double offset, const char **why);
struct value *layer_layer_norm(struct build *b, struct value *x, struct value *g,
                               struct value *bias, double eps, const char **why);
/* 2 sqrt(2 / pi): gelu(x) is about x sigmoid(GELU_STEEPNESS (x + 0.044715 x^3)). */
#define GELU_STEEPNESS 1.5957691216057308
struct value *layer_silu(struct build *b, struct value *x);
struct value *layer_gelu(struct build *b, struct value *x, bool tanh_form);
/* cap tanh(x / cap); cap 0: x */
struct value *layer_softcap(struct build *b, struct value *x, double cap);
/* last axis; F32 */
struct value *layer_softmax(struct build *b, struct value *x);
/* Angles of rotary positions: the first `width` columns of a head are turned (0: all of them), by
 * frequencies divided by `linear`, and where factor > 1 scaled as Llama 3 does, where yarn > 1 as
 * YaRN does. */
struct rotary {
    int64_t width;
    double theta, linear, factor, low, high, original;
    double yarn, fast, slow, magnitude; /* magnitude 0: 0.1 ln yarn + 1 */
};
/* x[T,n,d]; setup tables are made once per distinct r and d. */
struct value *layer_rope(struct build *b, struct value *x, const struct rotary *r,
                         const char **why);
/* [T] I32: place in its sequence, a setup table; with separate documents place in its document */
struct value *layer_positions(struct build *b);
struct value *layer_heads_of(struct build *b, struct value *x, int64_t head_dim, const char **why);
struct value *layer_merge_heads(struct build *b, struct value *x, const char **why);
/* scale 0: 1 / sqrt(d); a window of a whole sample or more is none; starts: those of the graph. */
struct value *layer_attention(struct build *b, struct value *q, struct value *k, struct value *v,
                              struct attention_rule rule, const char **why);
/* Scaled so that its average over the step's micro-batches and ranks is the mean over the step's
 * valid targets. */
struct value *layer_cross_entropy(struct build *b, struct value *logits, struct value *targets,
                                  const char **why);
/* The mean over the same targets of the squared log-sum-exp of their logits (the z-loss of PaLM:
 * Chowdhery et al., 2022, section 5); scaled likewise. */
struct value *layer_z_loss(struct build *b, struct value *logits, struct value *targets,
                           const char **why);
/* [R, C] -> [R, 1] F32 */
struct value *layer_log_sum_exp(struct build *b, struct value *x);
struct routing {
    struct value *ids, *weights, *place, *first;
    int64_t k, experts;
};
/* The k largest of each row of scores p. With the bias of a router, a value of
 * layer_balance_weight, the k largest of p + bias are taken, and their weights are still of p. */
bool layer_route(struct build *b, struct value *p, int64_t k, bool normalize, struct value *bias,
                 struct routing *r, const char **why);
/* [E] F32, of a weight with `balances` */
struct value *layer_balance_weight(struct build *b, struct value *w);
struct value *layer_dispatch(struct build *b, struct value *x, const struct routing *r,
                             const char **why);
struct value *layer_expert_linear(struct build *b, struct value *z, struct value *w,
                                  const struct routing *r, const char **why);
struct value *layer_combine(struct build *b, struct value *z, const struct routing *r,
                            const char **why);
struct value *layer_load(struct build *b, const struct routing *r);
/* At the end of lower: the loss trained, and a metric reported under its name (averaged over
 * micro-batches and ranks). */
void layer_metric(struct build *b, const char *name, struct value *v);

#endif
