/* The families after the first five, over the parts of model.c: their tensors, a layer, and their
 * configuration. Written from the published definitions, not from the plans. */
#include "truth.h"

#include <math.h>
#include <string.h>

enum { MOST = 64 };
static struct part {
    int norm1, norm1_bias, qkv, qkv_bias, q, k, v, q_bias, k_bias, v_bias, q_norm, k_norm, o,
        o_bias, after1, norm2, norm2_bias, gate, up, down, up_bias, down_bias, after2;
} parts[MOST];

bool family_is_later(void) { return family >= QWEN2; }
const char *family_prefix(void)
{
    return family == GPT2 ? "transformer." : family == GPT_NEOX ? "gpt_neox." : "model.";
}
int family_turned(int d) { return (int)(knob[ROTARY].value * d); }
bool family_key_places(const struct tensor *t, int place[3])
{
    const int third = t->count / 3, d = whole(HIDDEN) / whole(HEADS), wide = whole(HEAD_DIM);
    if (strstr(t->name, "attn.c_attn.bias"))
        memcpy(place, (int[3]){third, third, t->count}, sizeof(int[3]));
    else if (strstr(t->name, "query_key_value.bias"))
        memcpy(place, (int[3]){d + family_turned(d), d - family_turned(d), 3 * d}, sizeof(int[3]));
    else if (family == GLM4_MOE && !whole(QK_NORM) && strstr(t->name, "k_proj.bias"))
        memcpy(place, (int[3]){family_turned(wide), wide - family_turned(wide), wide},
               sizeof(int[3]));
    else
        return false;
    return true;
}

/* ── tensors ─────────────────────────────────────────────────────────────────── */
static void neox_declare(int l, struct part *w)
{
    int h = whole(HIDDEN), f = whole(FFN);
    w->norm1 = tensor_add(l, "input_layernorm.weight", 0, h, 0);
    w->norm1_bias = tensor_add(l, "input_layernorm.bias", 0, h, 0);
    w->qkv = tensor_add(l, "attention.query_key_value.weight", 0, 3 * h, h);
    w->o = tensor_add(l, "attention.dense.weight", 0, h, h);
    w->qkv_bias = w->o_bias = -1;
    if (whole(ATTENTION_BIAS)) {
        w->qkv_bias = tensor_add(l, "attention.query_key_value.bias", 0, 3 * h, 0);
        w->o_bias = tensor_add(l, "attention.dense.bias", 0, h, 0);
    }
    w->norm2 = tensor_add(l, "post_attention_layernorm.weight", 0, h, 0);
    w->norm2_bias = tensor_add(l, "post_attention_layernorm.bias", 0, h, 0);
    w->up = tensor_add(l, "mlp.dense_h_to_4h.weight", 0, f, h);
    w->up_bias = tensor_add(l, "mlp.dense_h_to_4h.bias", 0, f, 0);
    w->down = tensor_add(l, "mlp.dense_4h_to_h.weight", 0, h, f);
    w->down_bias = tensor_add(l, "mlp.dense_4h_to_h.bias", 0, h, 0);
}
void family_declare(int l)
{
    struct part *w = &parts[l];
    int h = whole(HIDDEN), f = whole(FFN), d = whole(HEAD_DIM), q = whole(HEADS) * d,
        kv = whole(KV) * d;
    if (family == GPT_NEOX) {
        neox_declare(l, w);
        return;
    }
    w->q_bias = w->k_bias = w->v_bias = w->q_norm = w->k_norm = w->after1 = w->after2 = -1;
    w->norm1 = family == OLMO2 ? -1 : tensor_add(l, "input_layernorm.weight", 0, h, 0);
    if (family == PHI3) { /* rows of one matrix: queries, keys, values; gate, up */
        w->q = tensor_add(l, "self_attn.qkv_proj.weight", 0, q + 2 * kv, h);
        w->k = w->q + q * h, w->v = w->k + kv * h;
        w->gate = tensor_add(l, "mlp.gate_up_proj.weight", 0, 2 * f, h), w->up = w->gate + f * h;
    } else {
        w->q = tensor_add(l, "self_attn.q_proj.weight", 0, q, h);
        w->k = tensor_add(l, "self_attn.k_proj.weight", 0, kv, h);
        w->v = tensor_add(l, "self_attn.v_proj.weight", 0, kv, h);
        w->gate = tensor_add(l, "mlp.gate_proj.weight", 0, f, h);
        w->up = tensor_add(l, "mlp.up_proj.weight", 0, f, h);
    }
    if (family == QWEN2) {
        w->q_bias = tensor_add(l, "self_attn.q_proj.bias", 0, q, 0);
        w->k_bias = tensor_add(l, "self_attn.k_proj.bias", 0, kv, 0);
        w->v_bias = tensor_add(l, "self_attn.v_proj.bias", 0, kv, 0);
    }
    if (family == GEMMA3) {
        w->q_norm = tensor_add(l, "self_attn.q_norm.weight", 0, d, 0);
        w->k_norm = tensor_add(l, "self_attn.k_norm.weight", 0, d, 0);
    }
    if (family == OLMO2) { /* over all heads together */
        w->q_norm = tensor_add(l, "self_attn.q_norm.weight", 0, q, 0);
        w->k_norm = tensor_add(l, "self_attn.k_norm.weight", 0, kv, 0);
    }
    w->o = tensor_add(l, "self_attn.o_proj.weight", 0, h, q);
    w->down = tensor_add(l, "mlp.down_proj.weight", 0, h, f);
    if (is_gemma()) {
        w->after1 = tensor_add(l, "post_attention_layernorm.weight", 0, h, 0);
        w->norm2 = tensor_add(l, "pre_feedforward_layernorm.weight", 0, h, 0);
        w->after2 = tensor_add(l, "post_feedforward_layernorm.weight", 0, h, 0);
    } else if (family == OLMO2) {
        w->norm2 = -1;
        w->after1 = tensor_add(l, "post_attention_layernorm.weight", 0, h, 0);
        w->after2 = tensor_add(l, "post_feedforward_layernorm.weight", 0, h, 0);
    } else
        w->norm2 = tensor_add(l, "post_attention_layernorm.weight", 0, h, 0);
}

/* ── a layer ─────────────────────────────────────────────────────────────────── */
/* Without a norm the rows themselves, one after the other. */
static int normed(const int *at, int n, int width, int g)
{
    if (g >= 0) return norm(at, n, width, g, -1);
    int y = reserve(n * width);
    for (int i = 0; i < n * width; i++) {
        int x = at[i / width] + i % width;
        unary(y + i, x, value[x], 1);
    }
    return y;
}
static void neox_layer(const struct part *w, int *at, int n)
{
    int h = whole(HIDDEN), f = whole(FFN), heads = whole(HEADS), d = h / heads, before[MOST];
    struct turning how = {family_turned(d), knob[THETA].value, 1};
    if (n > MOST) fatal("too many", "tokens");
    memcpy(before, at, (size_t)n * sizeof *at);
    int qkv = with_bias(linear(norm(at, n, h, w->norm1, w->norm1_bias), n, h, w->qkv, 3 * h), n,
                        3 * h, w->qkv_bias);
    /* [token][head][query, key, value] */
    int q = turn(columns(qkv, n * heads, 3 * d, 0, d), n, heads, d, how),
        k = turn(columns(qkv, n * heads, 3 * d, d, d), n, heads, d, how),
        v = columns(qkv, n * heads, 3 * d, 2 * d, d),
        o = attend(q, k, v, n, heads, heads, d, (struct rule){.scale = 1 / sqrt(d)});
    residual(at, with_bias(linear(o, n, h, w->o, h), n, h, w->o_bias), n, h);
    int x = norm(whole(PARALLEL) ? before : at, n, h, w->norm2, w->norm2_bias);
    x = gelu(with_bias(linear(x, n, h, w->up, f), n, f, w->up_bias), n * f);
    residual(at, with_bias(linear(x, n, f, w->down, h), n, h, w->down_bias), n, h);
}
void family_layer(int l, int *at, int n)
{
    const struct part *w = &parts[l];
    int h = whole(HIDDEN), f = whole(FFN), d = whole(HEAD_DIM), heads = whole(HEADS),
        kv = whole(KV), width = heads * d;
    if (family == GPT_NEOX) {
        neox_layer(w, at, n);
        return;
    }
    bool all = is_gemma() && (l + 1) % whole(EVERY) == 0;
    struct turning how = {family_turned(d), knob[THETA].value, 1};
    if (family == GEMMA3) {
        how.theta = knob[all ? THETA : LOCAL_THETA].value;
        if (all) how.linear = knob[LINEAR].value;
    }
    struct rule rule = {.window = all ? 0 : whole(WINDOW),
                        .scale = 1 / sqrt(is_gemma() ? knob[QUERY_WIDTH].value : d),
                        .cap = knob[SCORE_CAP].value};
    int x = normed(at, n, h, w->norm1);
    int q = with_bias(linear(x, n, h, w->q, width), n, width, w->q_bias),
        k = with_bias(linear(x, n, h, w->k, kv * d), n, kv * d, w->k_bias),
        v = with_bias(linear(x, n, h, w->v, kv * d), n, kv * d, w->v_bias);
    int together = family == OLMO2; /* all heads of a token are one row */
    q = norm_heads(q, together ? n : n * heads, together ? width : d, w->q_norm);
    k = norm_heads(k, together ? n : n * kv, together ? kv * d : d, w->k_norm);
    q = turn(q, n, heads, d, how), k = turn(k, n, kv, d, how);
    x = linear(attend(q, k, v, n, heads, kv, d, rule), n, width, w->o, h);
    residual(at, norm_heads(x, n, h, w->after1), n, h);
    x = normed(at, n, h, w->norm2);
    int gate = linear(x, n, h, w->gate, f), up = linear(x, n, h, w->up, f);
    if (is_gemma()) {
        int g = gelu(gate, n * f);
        x = reserve(n * f);
        for (int i = 0; i < n * f; i++) times(x + i, g + i, up + i);
    } else
        x = swish(gate, up, n * f);
    residual(at, norm_heads(linear(x, n, f, w->down, h), n, h, w->after2), n, h);
}

/* ── the configuration ───────────────────────────────────────────────────────── */
static const char *truth_word(int k) { return whole(k) ? "true" : "false"; }
static void number_or_null(FILE *f, const char *key, int k)
{
    fprintf(f, " \"%s\": ", key);
    fprintf(f, knob[k].value > 0 ? "%g,\n" : "null,\n", knob[k].value);
}
static void neox_config(FILE *f)
{
    fprintf(f,
            " \"hidden_act\": \"%s\", \"layer_norm_eps\": %g, \"rotary_emb_base\": %g, "
            "\"rotary_pct\": %g,\n \"use_parallel_residual\": %s, \"attention_bias\": %s,\n",
            whole(ERF) ? "gelu" : "gelu_new", knob[EPS].value, knob[THETA].value,
            knob[ROTARY].value, truth_word(PARALLEL), truth_word(ATTENTION_BIAS));
}
static void gemma_config(FILE *f)
{
    fprintf(f,
            " \"hidden_activation\": \"gelu_pytorch_tanh\", \"query_pre_attn_scalar\": %d, "
            "\"layer_types\": [",
            whole(QUERY_WIDTH));
    for (int l = 0; l < whole(LAYERS); l++)
        fprintf(f, "%s\"%s_attention\"", l ? ", " : "",
                (l + 1) % whole(EVERY) ? "sliding" : "full");
    fprintf(f, "],\n");
    if (family == GEMMA2) {
        number_or_null(f, "attn_logit_softcapping", SCORE_CAP);
        number_or_null(f, "final_logit_softcapping", LOGIT_CAP);
        return;
    }
    fprintf(f, " \"rope_local_base_freq\": %g,\n", knob[LOCAL_THETA].value);
    if (knob[LINEAR].value > 1)
        fprintf(f, " \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": %g},\n",
                knob[LINEAR].value);
}
void family_config(FILE *f)
{
    static const char *const class[FAMILIES] = {
        [QWEN2] = "Qwen2",   [GPT_NEOX] = "GPTNeoX", [PHI3] = "Phi3",  [MISTRAL] = "Mistral",
        [GEMMA2] = "Gemma2", [GEMMA3] = "Gemma3",    [OLMO2] = "Olmo2"};
    fprintf(f,
            "{\"architectures\": [\"%sForCausalLM\"], \"model_type\": \"%s\", \"vocab_size\": %d,\n"
            " \"hidden_size\": %d, \"intermediate_size\": %d, \"num_hidden_layers\": %d, "
            "\"num_attention_heads\": %d, \"max_position_embeddings\": 4096,\n",
            class[family], family == GEMMA3 ? "gemma3_text" : family_names[family], whole(VOCAB),
            whole(HIDDEN), whole(FFN), whole(LAYERS), whole(HEADS));
    if (family == GPT_NEOX)
        neox_config(f);
    else {
        fprintf(f, " \"num_key_value_heads\": %d, \"rms_norm_eps\": %g, \"rope_theta\": %g,\n",
                whole(KV), knob[EPS].value, knob[THETA].value);
        if (!is_gemma()) fprintf(f, " \"hidden_act\": \"silu\",\n");
        if (family != PHI3) fprintf(f, " \"head_dim\": %d,\n", whole(HEAD_DIM));
        if (family == QWEN2)
            fprintf(f, " \"use_sliding_window\": false, \"sliding_window\": 7, "
                       "\"max_window_layers\": 1,\n");
        else if (family != OLMO2)
            number_or_null(f, "sliding_window", WINDOW);
        if (family == PHI3 && knob[ROTARY].value < 1)
            fprintf(f, " \"partial_rotary_factor\": %g,\n", knob[ROTARY].value);
        if (is_gemma()) gemma_config(f);
    }
    fprintf(f, " \"tie_word_embeddings\": %s, \"torch_dtype\": \"float32\"}\n", truth_word(TIED));
}
