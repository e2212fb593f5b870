/* Llama, GPT-2, Qwen3 and the mixtures, token by token, over the tape: which tensors a model has
 * and how they are stored, and what it computes. Written from the families' published definitions,
 * not from the plans. families.c has the later ones, which share the parts of a layer. */
#include "truth.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct tensor tensor[1024];
int tensors;
double router_gap = INFINITY;
static uint64_t counter;

static uint64_t scramble(void)
{
    uint64_t z = (counter += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}
double uniform(void) { return ((double)(scramble() >> 11) + 0.5) / 9007199254740992.0; }
static double normal(void)
{
    return sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform());
}

/* ── tensors ─────────────────────────────────────────────────────────────────── */
/* Every stored value is exact in its stored type, so that both sides start from the same
 * numbers. */
static double stored(double x, bool bf16)
{
    float f = (float)x;
    if (!bf16) return f;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&f, &bits, 4);
    return f;
}
/* columns 0: a norm's weight, near 1, or a bias, near 0. */
int tensor_add(int layer, const char *name, int stack, int rows, int columns)
{
    struct tensor *t = &tensor[tensors++];
    if (tensors > (int)(sizeof tensor / sizeof *tensor)) fatal("too many", "tensors");
    if (layer >= 0)
        snprintf(t->name, sizeof t->name, "%s%s.%d.%s", family_prefix(),
                 family == GPT2 ? "h" : "layers", layer, name);
    else
        snprintf(t->name, sizeof t->name, "%s", name);
    t->rank = stack ? 3 : columns ? 2 : 1;
    int dim[3] = {stack ? stack : rows, stack ? rows : columns, columns};
    memcpy(t->dim, dim, sizeof dim);
    t->count = 1;
    for (int i = 0; i < t->rank; i++) t->count *= dim[i];
    t->at = reserve(t->count);
    t->bf16 = whole(BF16) && tensors % 2 == 0;
    size_t n = strlen(name);
    bool bias = n > 5 && !strcmp(name + n - 5, ".bias"),
         router = strstr(name, "gate.weight") != NULL;
    for (int i = 0; i < t->count; i++) {
        double x = columns ? knob[router ? ROUTER : STD].value * normal()
                           : (bias || is_gemma() ? 0 : 1) + 0.1 * normal();
        value[t->at + i] = stored(x, t->bf16);
    }
    return t->at;
}

enum { MOST_LAYERS = 64, MOST_EXPERTS = 64, MOST_ROWS = 1 << 16 };
static struct layer {
    int norm1, norm1_bias, q, k, v, q_bias, k_bias, v_bias, o, q_norm, k_norm, qkv, qkv_bias,
        o_bias, norm2, norm2_bias, gate, up, down, up_bias, down_bias, router, router_bias;
    struct expert {
        int gate, up, down;
    } expert[MOST_EXPERTS], shared;
} layers[MOST_LAYERS];
static int embed, places, final_norm, final_bias, head;

static void gpt2_layer(int l)
{
    struct layer *w = &layers[l];
    int h = whole(HIDDEN), f = whole(FFN);
    w->norm1 = tensor_add(l, "ln_1.weight", 0, h, 0),
    w->norm1_bias = tensor_add(l, "ln_1.bias", 0, h, 0);
    w->qkv = tensor_add(l, "attn.c_attn.weight", 0, h, 3 * h),
    w->qkv_bias = tensor_add(l, "attn.c_attn.bias", 0, 3 * h, 0);
    w->o = tensor_add(l, "attn.c_proj.weight", 0, h, h),
    w->o_bias = tensor_add(l, "attn.c_proj.bias", 0, h, 0);
    w->norm2 = tensor_add(l, "ln_2.weight", 0, h, 0),
    w->norm2_bias = tensor_add(l, "ln_2.bias", 0, h, 0);
    w->up = tensor_add(l, "mlp.c_fc.weight", 0, h, f),
    w->up_bias = tensor_add(l, "mlp.c_fc.bias", 0, f, 0);
    w->down = tensor_add(l, "mlp.c_proj.weight", 0, f, h),
    w->down_bias = tensor_add(l, "mlp.c_proj.bias", 0, h, 0);
}
static void experts_of(int l)
{
    struct layer *w = &layers[l];
    bool mixtral = family == MIXTRAL && !whole(FUSED);
    int h = whole(HIDDEN), f = whole(WIDTH), n = whole(EXPERTS);
    w->router =
        tensor_add(l, mixtral ? "block_sparse_moe.gate.weight" : "mlp.gate.weight", 0, n, h);
    w->router_bias = -1;
    if (knob[BALANCE].value > 0 || family == GLM4_MOE) {
        w->router_bias = tensor_add(l,
                                    mixtral ? "block_sparse_moe.gate.e_score_correction_bias"
                                            : "mlp.gate.e_score_correction_bias",
                                    0, n, 0);
        tensor[tensors - 1].balances = true;
        for (int e = 0; e < n; e++) value[w->router_bias + e] -= 1; /* near 0 */
    }
    if (family == GLM4_MOE && whole(SHARED)) {
        int wide = whole(SHARED) * f;
        w->shared.gate = tensor_add(l, "mlp.shared_experts.gate_proj.weight", 0, wide, h),
        w->shared.up = tensor_add(l, "mlp.shared_experts.up_proj.weight", 0, wide, h),
        w->shared.down = tensor_add(l, "mlp.shared_experts.down_proj.weight", 0, h, wide);
    }
    if (whole(FUSED)) {
        int both = tensor_add(l, "mlp.experts.gate_up_proj", n, 2 * f, h),
            down = tensor_add(l, "mlp.experts.down_proj", n, h, f);
        for (int e = 0; e < n; e++)
            w->expert[e].gate = both + 2 * e * f * h, w->expert[e].up = both + (2 * e + 1) * f * h,
            w->expert[e].down = down + e * f * h;
        return;
    }
    for (int e = 0; e < n; e++) {
        char name[64];
        const char *form =
            mixtral ? "block_sparse_moe.experts.%d.w%s.weight" : "mlp.experts.%d.%s_proj.weight";
        snprintf(name, sizeof name, form, e, mixtral ? "1" : "gate"),
            w->expert[e].gate = tensor_add(l, name, 0, f, h);
        snprintf(name, sizeof name, form, e, mixtral ? "3" : "up"),
            w->expert[e].up = tensor_add(l, name, 0, f, h);
        snprintf(name, sizeof name, form, e, mixtral ? "2" : "down"),
            w->expert[e].down = tensor_add(l, name, 0, h, f);
    }
}
static void llama_layer(int l)
{
    struct layer *w = &layers[l];
    int h = whole(HIDDEN), f = whole(FFN), d = whole(HEAD_DIM), heads = whole(HEADS),
        kv = whole(KV);
    w->norm1 = tensor_add(l, "input_layernorm.weight", 0, h, 0);
    w->q = tensor_add(l, "self_attn.q_proj.weight", 0, heads * d, h),
    w->k = tensor_add(l, "self_attn.k_proj.weight", 0, kv * d, h);
    w->v = tensor_add(l, "self_attn.v_proj.weight", 0, kv * d, h),
    w->o = tensor_add(l, "self_attn.o_proj.weight", 0, h, heads * d);
    w->q_norm = w->k_norm = w->q_bias = w->k_bias = w->v_bias = -1;
    if (family == GLM4_MOE && whole(ATTENTION_BIAS))
        w->q_bias = tensor_add(l, "self_attn.q_proj.bias", 0, heads * d, 0),
        w->k_bias = tensor_add(l, "self_attn.k_proj.bias", 0, kv * d, 0),
        w->v_bias = tensor_add(l, "self_attn.v_proj.bias", 0, kv * d, 0);
    if (family == QWEN3 || family == QWEN3_MOE || (family == GLM4_MOE && whole(QK_NORM)))
        w->q_norm = tensor_add(l, "self_attn.q_norm.weight", 0, d, 0),
        w->k_norm = tensor_add(l, "self_attn.k_norm.weight", 0, d, 0);
    if (family == OLMOE) /* over all heads together */
        w->q_norm = tensor_add(l, "self_attn.q_norm.weight", 0, heads * d, 0),
        w->k_norm = tensor_add(l, "self_attn.k_norm.weight", 0, kv * d, 0);
    w->norm2 = tensor_add(l, "post_attention_layernorm.weight", 0, h, 0);
    if (is_sparse(l))
        experts_of(l);
    else
        w->gate = tensor_add(l, "mlp.gate_proj.weight", 0, f, h),
        w->up = tensor_add(l, "mlp.up_proj.weight", 0, f, h),
        w->down = tensor_add(l, "mlp.down_proj.weight", 0, h, f);
}
void model_begin(void)
{
    counter = (uint64_t)whole(SEED) * 1000003;
    int h = whole(HIDDEN), vocab = whole(VOCAB);
    bool gpt2 = family == GPT2;
    if (whole(LAYERS) > MOST_LAYERS || whole(EXPERTS) > MOST_EXPERTS)
        fatal("too many", "layers or experts");
    bool neox = family == GPT_NEOX;
    embed = tensor_add(-1,
                       gpt2   ? "transformer.wte.weight"
                       : neox ? "gpt_neox.embed_in.weight"
                              : "model.embed_tokens.weight",
                       0, vocab, h);
    if (gpt2) places = tensor_add(-1, "transformer.wpe.weight", 0, whole(CONTEXT), h);
    for (int l = 0; l < whole(LAYERS); l++)
        gpt2 ? gpt2_layer(l) : family_is_later() ? family_declare(l) : llama_layer(l);
    final_norm = tensor_add(-1,
                            gpt2   ? "transformer.ln_f.weight"
                            : neox ? "gpt_neox.final_layer_norm.weight"
                                   : "model.norm.weight",
                            0, h, 0);
    final_bias = gpt2   ? tensor_add(-1, "transformer.ln_f.bias", 0, h, 0)
                 : neox ? tensor_add(-1, "gpt_neox.final_layer_norm.bias", 0, h, 0)
                        : -1;
    head = whole(TIED) ? embed
                       : tensor_add(-1, neox ? "embed_out.weight" : "lm_head.weight", 0, vocab, h);
}

/* ── a mixture ───────────────────────────────────────────────────────────────── */
/* Over the rows of a chunk: how often each expert was chosen, and its summed probability, a place
 * on the tape. */
static struct {
    int rows, count[MOST_EXPERTS], mass[MOST_EXPERTS], square[MOST_ROWS]; /* a place a row */
} balance;
/* The squared log-sum-exp of n values, a place on the tape: the top is a constant, taken out and
 * put back. */
static int squared_log_sum_exp(int x, int n, int ones)
{
    int e = powers(x, n, 1, ones), s = reserve(2);
    double top = -INFINITY;
    for (int i = 0; i < n; i++) top = fmax(top, value[x + i]);
    unary(s, e + n, log(value[e + n]) + top, 1 / value[e + n]);
    unary(s + 1, s, value[s] * value[s], 2 * value[s]);
    return s + 1;
}

/* Of one row of router logits: their softmax, or the sigmoid of each. */
static int scores(int x, int n, int ones)
{
    if (!by_sigmoid()) return softmax(x, n, 1, ones);
    int y = reserve(n);
    for (int i = 0; i < n; i++) {
        double p = 1 / (1 + exp(-value[x + i]));
        unary(y + i, x + i, p, p * (1 - p));
    }
    return y;
}

/* What the experts of a GLM give a token, scaled, and beside it what the shared ones do. */
static int with_shared(const struct layer *w, int x, int y, int n)
{
    int h = whole(HIDDEN), f = whole(SHARED) * whole(WIDTH), z = reserve(n * h);
    double scale = knob[ROUTED_SCALE].value;
    for (int i = 0; i < n * h; i++) unary(z + i, y + i, scale * value[y + i], scale);
    if (!f) return z;
    int s = linear(
            swish(linear(x, n, h, w->shared.gate, f), linear(x, n, h, w->shared.up, f), n * f), n,
            f, w->shared.down, h),
        sum = reserve(n * h);
    for (int i = 0; i < n * h; i++) plus(sum + i, z + i, s + i);
    return sum;
}

static int mixture(const struct layer *w, int x, int n)
{
    int h = whole(HIDDEN), f = whole(WIDTH), experts = whole(EXPERTS), k = whole(TOP_K),
        ones = constants(experts, 1);
    int logits = linear(x, n, h, w->router, experts), y = reserve(n * h);
    bool normalize = family == MIXTRAL || whole(NORMALIZE);
    for (int t = 0; t < n; t++) {
        int p = scores(logits + t * experts, experts, ones), chosen[MOST_EXPERTS],
            weight = reserve(k), part = reserve(k * h), share = p;
        double rank[MOST_EXPERTS]; /* what decides which experts are chosen, and nothing else */
        for (int e = 0; e < experts; e++)
            rank[e] = value[p + e] + (w->router_bias < 0 ? 0 : value[w->router_bias + e]);
        bool taken[MOST_EXPERTS] = {false};
        for (int j = 0; j < k; j++) {
            chosen[j] = -1;
            for (int e = 0; e < experts; e++)
                if (!taken[e] && (chosen[j] < 0 || rank[e] > rank[chosen[j]])) chosen[j] = e;
            taken[chosen[j]] = true;
            balance.count[chosen[j]]++;
            if (w->router_bias >= 0) gradient[w->router_bias + chosen[j]]++;
            unary(weight + j, p + chosen[j], value[p + chosen[j]], 1);
        }
        for (int e = 0; e < experts; e++)
            if (!taken[e])
                router_gap = fmin(router_gap, w->router_bias < 0
                                                  ? value[logits + t * experts + chosen[k - 1]] -
                                                        value[logits + t * experts + e]
                                                  : rank[chosen[k - 1]] - rank[e]);
        if (normalize) {
            int sum = reserve(1), divided = reserve(k);
            inner(sum, k, weight, 1, ones, 1);
            for (int j = 0; j < k; j++) quotient(divided + j, weight + j, sum);
            weight = divided;
        }
        for (int j = 0; j < k; j++) {
            int e = chosen[j], row = x + t * h;
            int z = swish(linear(row, 1, h, w->expert[e].gate, f),
                          linear(row, 1, h, w->expert[e].up, f), f);
            int out = linear(z, 1, f, w->expert[e].down, h);
            for (int c = 0; c < h; c++) unary(part + j * h + c, out + c, value[out + c], 1);
        }
        for (int c = 0; c < h; c++) inner(y + t * h + c, k, weight, 1, part + c, h);
        if (by_sigmoid()) {
            int all = reserve(1);
            share = reserve(experts);
            inner(all, experts, p, 1, ones, 1);
            for (int e = 0; e < experts; e++) quotient(share + e, p + e, all);
        }
        for (int e = 0; e < experts; e++) {
            int sum = reserve(1);
            plus(sum, balance.mass[e], share + e);
            balance.mass[e] = sum;
        }
        if (balance.rows == MOST_ROWS) fatal("too many", "rows");
        balance.square[balance.rows++] = squared_log_sum_exp(logits + t * experts, experts, ones);
    }
    return family == GLM4_MOE ? with_shared(w, x, y, n) : y;
}
/* E x sum over experts of (share of the rows that chose it) x (its mean probability). */
static double balance_loss(double seed)
{
    int experts = whole(EXPERTS), shares = reserve(experts), masses = reserve(experts),
        aux = reserve(1);
    for (int e = 0; e < experts; e++) {
        unary(masses + e, balance.mass[e], value[balance.mass[e]] / balance.rows,
              1.0 / balance.rows);
        value[shares + e] = (double)experts * balance.count[e] / balance.rows;
    }
    inner(aux, experts, masses, 1, shares, 1);
    gradient[aux] = seed;
    return value[aux];
}

/* The mean over the rows. */
static double router_z_loss(double seed)
{
    double sum = 0;
    for (int i = 0; i < balance.rows; i++) {
        sum += value[balance.square[i]];
        gradient[balance.square[i]] = seed / balance.rows;
    }
    return sum / balance.rows;
}

/* ── a sample, and samples together ──────────────────────────────────────────── */
/* Of families that have no rule of their own: what the numbers of the case say. */
static struct rule rule_of(int layer, int d)
{
    bool all = whole(EVERY) > 1 && (layer + 1) % whole(EVERY) == 0;
    return (struct rule){.window = all ? 0 : whole(WINDOW),
                         .scale = knob[SCALE].value > 0 ? knob[SCALE].value : 1 / sqrt(d),
                         .cap = knob[SCORE_CAP].value};
}
/* GPT-2's: stored [in, out], with a bias. */
static int conv1d(int x, int n, int in, int w, int bias, int out)
{
    int y = reserve(n * out), z = reserve(n * out);
    for (int p = 0; p < n; p++)
        for (int j = 0; j < out; j++) {
            inner(z + p * out + j, in, x + p * in, 1, w + j, out);
            plus(y + p * out + j, z + p * out + j, bias + j);
        }
    return y;
}
static void gpt2_body(int *at, int n)
{
    int h = whole(HIDDEN), heads = whole(HEADS), d = h / heads;
    for (int l = 0; l < whole(LAYERS); l++) {
        const struct layer *w = &layers[l];
        int qkv = conv1d(norm(at, n, h, w->norm1, w->norm1_bias), n, h, w->qkv, w->qkv_bias, 3 * h);
        int o = attend(columns(qkv, n, 3 * h, 0, h), columns(qkv, n, 3 * h, h, h),
                       columns(qkv, n, 3 * h, 2 * h, h), n, heads, heads, d, rule_of(l, d));
        residual(at, conv1d(o, n, h, w->o, w->o_bias, h), n, h);
        int f = gelu(
            conv1d(norm(at, n, h, w->norm2, w->norm2_bias), n, h, w->up, w->up_bias, whole(FFN)),
            n * whole(FFN));
        residual(at, conv1d(f, n, whole(FFN), w->down, w->down_bias, h), n, h);
    }
}
static void llama_body(int *at, int n)
{
    int h = whole(HIDDEN), heads = whole(HEADS), kv = whole(KV), d = whole(HEAD_DIM),
        ffn = whole(FFN);
    struct turning how = {family == GLM4_MOE ? family_turned(d) : d, knob[THETA].value, 1};
    for (int l = 0; l < whole(LAYERS); l++) {
        const struct layer *w = &layers[l];
        int x = norm(at, n, h, w->norm1, -1);
        int q = with_bias(linear(x, n, h, w->q, heads * d), n, heads * d, w->q_bias),
            k = with_bias(linear(x, n, h, w->k, kv * d), n, kv * d, w->k_bias),
            v = with_bias(linear(x, n, h, w->v, kv * d), n, kv * d, w->v_bias);
        bool together = family == OLMOE; /* all heads of a token are one row */
        q = norm_heads(q, together ? n : n * heads, together ? heads * d : d, w->q_norm);
        k = norm_heads(k, together ? n : n * kv, together ? kv * d : d, w->k_norm);
        q = turn(q, n, heads, d, how), k = turn(k, n, kv, d, how);
        residual(at, linear(attend(q, k, v, n, heads, kv, d, rule_of(l, d)), n, heads * d, w->o, h),
                 n, h);
        x = norm(at, n, h, w->norm2, -1);
        if (is_sparse(l))
            residual(at, mixture(w, x, n), n, h);
        else
            residual(
                at,
                linear(swish(linear(x, n, h, w->gate, ffn), linear(x, n, h, w->up, ffn), n * ffn),
                       n, ffn, w->down, h),
                n, h);
    }
}
static double sample(const uint16_t *ids, double valid, int *logits_at, double *z)
{
    int n = whole(SEQ), h = whole(HIDDEN), vocab = whole(VOCAB),
        *at = malloc((size_t)n * sizeof *at);
    if (!at) fatal("out of", "memory");
    for (int p = 0; p < n; p++) at[p] = embed + ids[p] * h;
    find_documents(ids, n);
    if (family == GPT2)
        for (int p = 0; p < n; p++) residual(at + p, places + (p - starts[p]) * h, 1, h);
    if (is_gemma()) { /* the factor is a number of single precision */
        double scale = (float)sqrt(h);
        for (int p = 0; p < n; p++) {
            int y = reserve(h);
            for (int j = 0; j < h; j++) unary(y + j, at[p] + j, value[at[p] + j] * scale, scale);
            at[p] = y;
        }
    }
    if (family_is_later())
        for (int l = 0; l < whole(LAYERS); l++) family_layer(l, at, n);
    else
        family == GPT2 ? gpt2_body(at, n) : llama_body(at, n);
    int logits = linear(norm(at, n, h, final_norm, final_bias), n, h, head, vocab),
        ones = constants(vocab, 1);
    if (knob[LOGIT_CAP].value > 0) {
        double cap = knob[LOGIT_CAP].value;
        int capped = reserve(n * vocab);
        for (int i = 0; i < n * vocab; i++) {
            double t = tanh(value[logits + i] / cap);
            unary(capped + i, logits + i, cap * t, 1 - t * t);
        }
        logits = capped;
    }
    *logits_at = logits;
    double loss = 0;
    for (int p = 0; p < n; p++) {
        int target = ids[p + 1], row = logits + p * vocab, s = reserve(2);
        if (!is_target(ids, p + 1)) continue;
        double top = -INFINITY;
        for (int i = 0; i < vocab; i++) top = fmax(top, value[row + i]);
        int e = powers(row, vocab, 1, ones);
        unary(s, e + vocab, log(value[e + vocab]) + top, 1 / value[e + vocab]);
        binary(s + 1, s, row + target, value[s] - value[row + target], 1, -1);
        gradient[s + 1] = 1 / valid;
        loss += value[s + 1];
        int square = squared_log_sum_exp(row, vocab, ones);
        gradient[square] = knob[Z_LOSS].value / valid;
        *z += value[square];
    }
    free(at);
    return loss;
}
struct chunk model_chunk(const uint16_t *ids, int samples, double valid, double share,
                         double *chosen)
{
    struct chunk c = {0};
    memset(&balance, 0, sizeof balance);
    for (int e = 0; e < whole(EXPERTS); e++) balance.mass[e] = reserve(1);
    for (int i = 0; i < samples; i++) {
        int logits;
        c.ce += sample(ids + i * whole(SEQ), valid, &logits, &c.z);
        if (!i) c.logits = logits;
    }
    if (!is_mixture()) return c;
    c.aux = share * balance_loss(knob[AUX].value * share);
    c.router_z = share * router_z_loss(knob[ROUTER_Z].value * share);
    for (int e = 0; e < whole(EXPERTS); e++) chosen[e] += share * balance.count[e] / balance.rows;
    return c;
}
