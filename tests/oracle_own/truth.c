/* An independent trainer that says what the right numbers are: families in double precision
 * (model.c, families.c), differentiated by a tape of scalars (tape.c). Slow, and therefore for tiny
 * models only. This file is the rest of a trainer: the case's numbers, its files, the loss of a
 * step, clipping, AdamW.
 *
 *   truth OUT key=value ...      writes OUT/config.json, model.safetensors, tokens.bin, train.json,
 *   expected.json
 *
 * Keys and defaults are in `knob` below; family=NAME. weights=FILE (raw F32, tensors in the order
 * of their declaration) and tokens=FILE (uint16) replace the generated ones, which is how this
 * program is itself held against other oracles. */
#include "truth.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void fatal(const char *what, const char *which)
{
    fprintf(stderr, "truth: %s %s\n", what, which);
    exit(4);
}

enum family family;
const char *const family_names[FAMILIES] = {"llama",   "gpt2",     "qwen3",  "qwen3_moe", "mixtral",
                                            "olmoe",   "glm4_moe", "qwen2",  "gpt_neox",  "phi3",
                                            "mistral", "gemma2",   "gemma3", "olmo2"};
struct knob knob[KNOBS] = {
    {"layers", 2},
    {"hidden", 36},
    {"heads", 6},
    {"kv", 3},
    {"head_dim", 10},
    {"ffn", 101},
    {"vocab", 97},
    {"context", 64},
    {"seq", 19},
    {"global", 8},
    {"steps", 8},
    {"warmup", 3},
    {"tied", 1},
    {"bf16", 0},
    /* 0 none; 1 irregular; 2 whole second step; 3 second half of each step's samples */
    {"mask", 0},
    {"ignore", -1},
    {"seed", 1},
    {"experts", 5},
    {"top_k", 3},
    {"width", 37},
    {"normalize", 0},
    {"aux", 0.01},
    {"z_loss", 0},
    {"router_z", 0},
    {"sigmoid", 0},  /* of the router's logits, instead of their softmax */
    {"balance", 0},  /* what a step moves the bias of a router by; 0: there is none */
    {"together", 0}, /* samples whose balance is one; 0: all of a step */
    {"dense", 0},    /* bit i: layer i has no experts */
    {"fused", 0},    /* experts stored in two tensors */
    {"bare", 0},     /* stored without the prefix, and with buffers that are no weights */
    {"erf", 0},
    {"router", 0.5},
    {"lr", 0.01},
    {"floor", 0.1},
    {"clip", 1},
    {"decay", 0.1},
    {"vector_decay", 0},
    {"embed_decay", -1},
    {"expert_decay", -1},
    /* -1: as decay */ {"eps", 1e-5},
    {"theta", 10000},
    {"factor", 8},
    {"low", 1},
    {"high", 4},
    {"original", 64},
    {"std", 0.08},
    {"rotary", 1},
    {"parallel", 1},
    {"attention_bias", 1},
    {"window", 0},
    {"every", 2},
    {"score_cap", 0},
    {"logit_cap", 0},
    {"query_width", 16},
    {"local_theta", 100},
    {"linear", 1},
    {"scale", 0},  /* of scores; 0: 1 / sqrt(head_dim) */
    {"shared", 1}, /* experts that every token takes, as one that is so much wider */
    {"routed_scale", 1},
    {"qk_norm", 0},
    {"yarn", 1},
    {"fast", 32},
    {"slow", 1},
    {"magnitude", 0}, /* 0: 0.1 ln yarn + 1 */
    /* id that ends a document, and documents are separate; -1: they are packed */
    {"end", -1},
};

/* ── files ───────────────────────────────────────────────────────────────────── */
static FILE *create(const char *folder, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    if (!f) fatal("cannot write", path);
    return f;
}
static void finish(FILE *f)
{
    if (ferror(f) || fclose(f)) fatal("cannot finish", "a file");
}
/* The name in the file: with `bare` the model's own prefix is left out. */
static const char *stored_name(const struct tensor *t)
{
    const char *prefix = family_prefix();
    size_t n = strlen(prefix);
    return whole(BARE) && !strncmp(t->name, prefix, n) ? t->name + n : t->name;
}
static void write_weights(const char *folder)
{
    FILE *f = create(folder, "model.safetensors");
    char *text = NULL;
    size_t bytes = 0;
    FILE *t = open_memstream(&text, &bytes);
    if (!t) fatal("out of", "memory");
    int offset = 0, buffers = whole(BARE) && family == GPT2 ? whole(LAYERS) : 0;
    fprintf(t, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (int i = 0; i < tensors; i++) {
        int size = tensor[i].count * (tensor[i].bf16 ? 2 : 4);
        fprintf(t, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", stored_name(&tensor[i]),
                tensor[i].bf16 ? "BF16" : "F32");
        for (int k = 0; k < tensor[i].rank; k++) fprintf(t, "%s%d", k ? "," : "", tensor[i].dim[k]);
        fprintf(t, "],\"data_offsets\":[%d,%d]}", offset, offset + size);
        offset += size;
    }
    for (int l = 0; l < buffers; l++, offset += 4)
        fprintf(
            t,
            ",\"h.%d.attn.bias\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1],\"data_offsets\":[%d,%d]}",
            l, offset, offset + 4);
    fprintf(t, "}");
    while (ftell(t) % 8) fputc(' ', t);
    finish(t);
    uint64_t length = bytes;
    fwrite(&length, 8, 1, f);
    fwrite(text, 1, bytes, f);
    for (int i = 0; i < tensors; i++)
        for (int j = 0; j < tensor[i].count; j++) {
            float x = (float)value[tensor[i].at + j];
            uint32_t bits;
            memcpy(&bits, &x, 4);
            uint16_t top = (uint16_t)(bits >> 16);
            fwrite(tensor[i].bf16 ? (void *)&top : (void *)&x, tensor[i].bf16 ? 2 : 4, 1, f);
        }
    for (int l = 0; l < buffers; l++) fwrite(&(float){1}, 4, 1, f);
    free(text);
    finish(f);
}
static void write_gpt2_config(FILE *f)
{
    fprintf(f,
            "{\"architectures\": [\"GPT2LMHeadModel\"], \"model_type\": \"gpt2\", "
            "\"activation_function\": \"%s\", \"n_embd\": %d, \"n_head\": %d,\n"
            " \"n_inner\": %d, \"n_layer\": %d, \"n_positions\": %d, \"n_ctx\": %d, "
            "\"vocab_size\": %d, \"layer_norm_epsilon\": %g, \"scale_attn_weights\": true,\n"
            " \"scale_attn_by_inverse_layer_idx\": false, \"reorder_and_upcast_attn\": false, "
            "\"attn_pdrop\": 0.0, \"resid_pdrop\": 0, \"embd_pdrop\": 0.0,\n"
            " \"summary_type\": \"cls_index\", \"initializer_range\": 0.02, "
            "\"tie_word_embeddings\": %s}\n",
            whole(ERF) ? "gelu" : "gelu_new", whole(HIDDEN), whole(HEADS), whole(FFN),
            whole(LAYERS), whole(CONTEXT), whole(CONTEXT), whole(VOCAB), knob[EPS].value,
            whole(TIED) ? "true" : "false");
}
static void write_glm_keys(FILE *f)
{
    int first = 0;
    while (first < whole(LAYERS) && !is_sparse(first)) first++;
    fprintf(
        f,
        " \"n_routed_experts\": %d, \"num_experts_per_tok\": %d, \"moe_intermediate_size\": %d, "
        "\"first_k_dense_replace\": %d,\n"
        " \"n_shared_experts\": %d, \"norm_topk_prob\": %s, \"routed_scaling_factor\": %g, "
        "\"use_qk_norm\": %s, \"partial_rotary_factor\": %g,\n"
        " \"n_group\": 1, \"topk_group\": 1, \"num_nextn_predict_layers\": 0,\n",
        whole(EXPERTS), whole(TOP_K), whole(WIDTH), first, whole(SHARED),
        whole(NORMALIZE) ? "true" : "false", knob[ROUTED_SCALE].value,
        whole(QK_NORM) ? "true" : "false", knob[ROTARY].value);
}
static void write_config(const char *folder)
{
    static const char *const class[] = {"LlamaForCausalLM",   "",
                                        "Qwen3ForCausalLM",   "Qwen3MoeForCausalLM",
                                        "MixtralForCausalLM", "OlmoeForCausalLM",
                                        "Glm4MoeForCausalLM"};
    FILE *f = create(folder, "config.json");
    if (family == GPT2) {
        write_gpt2_config(f);
        finish(f);
        return;
    }
    if (family_is_later()) {
        family_config(f);
        finish(f);
        return;
    }
    fprintf(f,
            "{\"architectures\": [\"%s\"], \"model_type\": \"%s\", \"hidden_act\": \"silu\", "
            "\"hidden_size\": %d,\n"
            " \"intermediate_size\": %d, \"num_hidden_layers\": %d, \"num_attention_heads\": %d, "
            "\"num_key_value_heads\": %d,\n"
            " \"head_dim\": %d, \"vocab_size\": %d, \"max_position_embeddings\": 4096, "
            "\"rms_norm_eps\": %g, \"rope_theta\": %.1f,\n",
            class[family], family_names[family], whole(HIDDEN),
            family == MIXTRAL || family == OLMOE ? whole(WIDTH) : whole(FFN), whole(LAYERS),
            whole(HEADS), whole(KV), whole(HEAD_DIM), whole(VOCAB), knob[EPS].value,
            knob[THETA].value);
    if (family == QWEN3_MOE) {
        fprintf(f,
                " \"num_experts\": %d, \"num_experts_per_tok\": %d, \"moe_intermediate_size\": %d, "
                "\"norm_topk_prob\": %s, \"router_aux_loss_coef\": %g,\n"
                " \"decoder_sparse_step\": 1, \"output_router_logits\": false, "
                "\"use_sliding_window\": false, \"sliding_window\": 4096, \"mlp_only_layers\": [",
                whole(EXPERTS), whole(TOP_K), whole(WIDTH), whole(NORMALIZE) ? "true" : "false",
                knob[AUX].value);
        for (int l = 0, n = 0; l < whole(LAYERS); l++)
            if (!is_sparse(l)) fprintf(f, "%s%d", n++ ? ", " : "", l);
        fprintf(f, "],\n");
    }
    if (family == MIXTRAL)
        fprintf(
            f,
            " \"num_local_experts\": %d, \"num_experts_per_tok\": %d, \"router_aux_loss_coef\": "
            "%g, \"router_jitter_noise\": 0.0, \"sliding_window\": null,\n",
            whole(EXPERTS), whole(TOP_K), knob[AUX].value);
    if (family == OLMOE)
        fprintf(f,
                " \"num_experts\": %d, \"num_experts_per_tok\": %d, \"norm_topk_prob\": %s, "
                "\"router_aux_loss_coef\": %g, \"clip_qkv\": null,\n",
                whole(EXPERTS), whole(TOP_K), whole(NORMALIZE) ? "true" : "false", knob[AUX].value);
    if (family == GLM4_MOE) write_glm_keys(f);
    if (is_mixture() && whole(SIGMOID)) fprintf(f, " \"scoring_func\": \"sigmoid\",\n");
    if (is_mixture() && knob[BALANCE].value > 0) fprintf(f, " \"topk_method\": \"noaux_tc\",\n");
    if (knob[YARN].value > 1) {
        fprintf(f,
                " \"rope_scaling\": {\"type\": \"yarn\", \"factor\": %.1f, "
                "\"original_max_position_embeddings\": %d, \"beta_fast\": %g, \"beta_slow\": %g",
                knob[YARN].value, whole(ORIGINAL), knob[FAST].value, knob[SLOW].value);
        if (knob[MAGNITUDE].value > 0)
            fprintf(f, ", \"attention_factor\": %g", knob[MAGNITUDE].value);
        fprintf(f, "},\n");
    } else if (knob[FACTOR].value == 1)
        fprintf(f, " \"rope_scaling\": null,\n");
    else
        fprintf(
            f,
            " \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": %.1f, \"low_freq_factor\": "
            "%.1f, \"high_freq_factor\": %.1f, \"original_max_position_embeddings\": %d},\n",
            knob[FACTOR].value, knob[LOW].value, knob[HIGH].value, whole(ORIGINAL));
    fprintf(f,
            " \"attention_bias\": %s, \"mlp_bias\": false, \"tie_word_embeddings\": %s, "
            "\"torch_dtype\": \"float32\"}\n",
            family == GLM4_MOE && whole(ATTENTION_BIAS) ? "true" : "false",
            whole(TIED) ? "true" : "false");
    finish(f);
}
static void write_recipe(const char *folder)
{
    FILE *f = create(folder, "train.json");
    fprintf(f,
            "{\"seq_len\": %d, \"global_batch\": %d, \"steps\": %d, \"ignore\": %d,\n"
            " \"optimizer\": {\"beta1\": 0.9, \"beta2\": 0.95, \"eps\": 1e-08, \"weight_decay\": "
            "%g}, \"grad_clip\": {\"max_norm\": %g},\n"
            " \"lr_schedule\": {\"peak_lr\": %g, \"warmup_steps\": %d, \"min_lr_ratio\": %g, "
            "\"total_steps\": %d}}\n",
            whole(SEQ), whole(GLOBAL), whole(STEPS), whole(IGNORE), knob[DECAY].value,
            knob[CLIP].value, knob[LR].value, whole(WARMUP), knob[FLOOR].value, whole(STEPS));
    finish(f);
}

/* Ids that can be learnt: each mostly follows from the one before. Some are then masked. */
static uint16_t *make_tokens(const char *folder, int count)
{
    uint16_t *ids = malloc((size_t)count * sizeof *ids);
    if (!ids) fatal("out of", "memory");
    int vocab = whole(VOCAB), seq = whole(SEQ), step_tokens = whole(GLOBAL) * seq;
    for (int i = 0; i < count; i++)
        ids[i] = (uint16_t)(i && uniform() < 0.8 ? (ids[i - 1] * 5 + 3) % vocab
                                                 : (int)(uniform() * uniform() * vocab));
    ids[count / 2] = (uint16_t)(vocab - 1);
    for (int i = 1; i < count; i++) {
        int step = (i - 1) / step_tokens, in_step = (i - 1) % step_tokens;
        bool masked = whole(MASK) == 1   ? (i / 11) % 3 == 0 || uniform() < 0.1
                      : whole(MASK) == 2 ? step == 1
                      : whole(MASK) == 3 ? in_step >= step_tokens / 2
                                         : false;
        if (masked) ids[i] = (uint16_t)whole(IGNORE);
    }
    FILE *f = create(folder, "tokens.bin");
    fwrite(ids, sizeof *ids, (size_t)count, f);
    finish(f);
    return ids;
}
static void read_exactly(const char *path, void *to, size_t bytes)
{
    FILE *f = fopen(path, "rb");
    if (!f || fread(to, 1, bytes, f) != bytes) fatal("cannot read", path);
    fclose(f);
}

/* ── training ────────────────────────────────────────────────────────────────── */
static double rate(int s)
{
    int w = whole(WARMUP), last = whole(STEPS) - 1;
    double r = knob[FLOOR].value;
    if (s < w) return knob[LR].value * (s + 1) / w;
    return knob[LR].value *
           (last == w ? 1
                      : r + (1 - r) * 0.5 * (1 + cos(3.141592653589793 * (s - w) / (last - w))));
}
static double norm_of(const double *x, int n)
{
    double s = 0;
    for (int i = 0; i < n; i++) s += x[i] * x[i];
    return sqrt(s);
}
/* Without what is no derivative. */
static double norm_of_gradient(void)
{
    double s = 0;
    for (int i = 0; i < tensors; i++)
        if (!tensor[i].balances) s += pow(norm_of(gradient + tensor[i].at, tensor[i].count), 2);
    return sqrt(s);
}
/* What one step's loss is: gradients of the whole step, chunk by chunk. Logits of sample 0 go to
 * `probe` when there is one. */
struct step {
    double ce, z, aux, router_z, chosen[64];
};
static struct step forward_and_back(const uint16_t *ids, int parameters, FILE *probe)
{
    struct step all = {0};
    int seq = whole(SEQ), global = whole(GLOBAL),
        together = whole(TOGETHER) ? whole(TOGETHER)
                   : is_mixture()  ? global
                                   : 1;
    double valid = 0;
    memset(gradient, 0, (size_t)parameters * sizeof *gradient);
    for (int i = 1; i <= global * seq; i++) valid += is_target(ids, i);
    for (int i = 0; i < global; i += together) {
        rewind_to(parameters);
        struct chunk c =
            model_chunk(ids + i * seq, together, valid, (double)together / global, all.chosen);
        walk_back();
        all.ce += c.ce, all.aux += c.aux, all.z += c.z, all.router_z += c.router_z;
        if (!probe || i) continue;
        fprintf(probe, "\"logits_step0\": [");
        for (int t = 0; t < (seq < 4 ? seq : 4); t++) {
            fprintf(probe, "%s[", t ? ", " : "");
            for (int j = 0; j < (whole(VOCAB) < 16 ? whole(VOCAB) : 16); j++)
                fprintf(probe, "%s%.17g", j ? ", " : "", value[c.logits + t * whole(VOCAB) + j]);
            fprintf(probe, "]");
        }
        fprintf(probe, "], ");
    }
    all.ce = valid > 0 ? all.ce / valid : 0;
    all.z = valid > 0 ? all.z / valid : 0;
    return all;
}
static double loss_of(const struct step *s)
{
    double loss = s->ce + knob[Z_LOSS].value * s->z;
    if (is_mixture()) loss += knob[AUX].value * s->aux + knob[ROUTER_Z].value * s->router_z;
    return loss;
}
static void write_final(FILE *f)
{
    fprintf(f, "\"final_params\": {");
    for (int i = 0; i < tensors; i++) {
        const double *x = value + tensor[i].at;
        int n = tensor[i].count, key[3];
        fprintf(f, "%s\n \"%s\": {\"norm\": %.17g, \"first8\": [", i ? "," : "", tensor[i].name,
                norm_of(x, n));
        for (int j = 0; j < 8 && j < n; j++) fprintf(f, "%s%.17g", j ? ", " : "", x[j]);
        fprintf(f, "]");
        /* the bias of keys that are not turned changes no score but by rounding, and what moves it
         * is rounding too */
        if (family_key_places(&tensor[i], key)) {
            double sum = 0;
            for (int j = 0; j < n; j++) {
                int place = j % key[2] - key[0];
                if (place < 0 || place >= key[1]) sum += x[j] * x[j];
            }
            fprintf(f, ", \"norm_without_key\": %.17g, \"key\": [%d, %d, %d]", sqrt(sum), key[0],
                    key[1], key[2]);
        }
        fprintf(f, "}");
    }
    fprintf(f, "}");
}
static double decay_of(const struct tensor *t)
{
    double embed = t == tensor ? knob[EMBED_DECAY].value : -1,
           expert = strstr(t->name, ".experts.") ? knob[EXPERT_DECAY].value : -1;
    return embed >= 0    ? embed
           : expert >= 0 ? expert
                         : knob[t->rank > 1 ? DECAY : VECTOR_DECAY].value;
}
int main(int argc, char **argv)
{
    if (argc < 2) fatal("usage: truth OUT", "key=value ...");
    const char *folder = argv[1], *weights_file = NULL, *tokens_file = NULL;
    for (int i = 2; i < argc; i++) {
        char *eq = strchr(argv[i], '=');
        int k = 0;
        if (!eq) fatal("not key=value:", argv[i]);
        *eq = 0;
        if (!strcmp(argv[i], "weights")) {
            weights_file = eq + 1;
            continue;
        }
        if (!strcmp(argv[i], "tokens")) {
            tokens_file = eq + 1;
            continue;
        }
        if (!strcmp(argv[i], "family")) {
            while (k < FAMILIES && strcmp(family_names[k], eq + 1)) k++;
            if (k == FAMILIES) fatal("unknown family", eq + 1);
            family = (enum family)k;
            continue;
        }
        while (k < KNOBS && strcmp(knob[k].name, argv[i])) k++;
        if (k == KNOBS) fatal("unknown key", argv[i]);
        knob[k].value = atof(eq + 1);
    }
    model_begin();
    int seq = whole(SEQ), global = whole(GLOBAL), parameters = reserved(),
        count = whole(STEPS) * global * seq + 1;
    if (weights_file) {
        float *raw = malloc((size_t)parameters * sizeof *raw);
        if (!raw) fatal("out of", "memory");
        read_exactly(weights_file, raw, (size_t)parameters * sizeof *raw);
        for (int i = 0; i < parameters; i++) value[i] = raw[i];
        free(raw);
    }
    write_config(folder);
    write_recipe(folder);
    write_weights(folder);
    uint16_t *ids = make_tokens(folder, count);
    if (tokens_file) read_exactly(tokens_file, ids, (size_t)count * sizeof *ids);

    double *m = calloc((size_t)parameters, sizeof *m), *v = calloc((size_t)parameters, sizeof *v);
    FILE *f = create(folder, "expected.json");
    if (!m || !v) fatal("out of", "memory");
    char *probe = NULL;
    size_t probe_bytes = 0;
    FILE *p = open_memstream(&probe, &probe_bytes);
    if (!p) fatal("out of", "memory");
    fprintf(f, "{\"float64\": {\"steps\": [");
    for (int s = 0; s < whole(STEPS); s++) {
        struct step step = forward_and_back(ids + s * global * seq, parameters, s ? NULL : p);
        double size = norm_of_gradient(), lr = rate(s),
               clip = fmin(1, knob[CLIP].value / (size + 1e-6));
        fprintf(f,
                "%s\n {\"step\": %d, \"loss\": %.17g, \"ce\": %.17g, \"grad_norm\": %.17g, \"lr\": "
                "%.17g",
                s ? "," : "", s, loss_of(&step), step.ce, size, lr);
        if (knob[Z_LOSS].value > 0) fprintf(f, ", \"z\": %.17g", step.z);
        if (knob[ROUTER_Z].value > 0) fprintf(f, ", \"router_z\": %.17g", step.router_z);
        if (is_mixture()) {
            fprintf(f, ", \"aux\": %.17g, \"load\": [", step.aux);
            for (int e = 0; e < whole(EXPERTS); e++)
                fprintf(f, "%s%.17g", e ? ", " : "", step.chosen[e]);
            fprintf(f, "]");
        }
        fprintf(f, "}");
        if (s == 0) {
            fprintf(p, "\"grad_norms_step0\": {");
            for (int i = 0; i < tensors; i++)
                fprintf(p, "%s\"%s\": %.17g", i ? ", " : "", tensor[i].name,
                        norm_of(gradient + tensor[i].at, tensor[i].count));
            fprintf(p, "}, ");
        }
        for (int i = 0; i < tensors; i++)
            for (int j = tensor[i].at; j < tensor[i].at + tensor[i].count; j++) {
                double mean = (double)global * seq * whole(TOP_K) / whole(EXPERTS);
                if (tensor[i].balances) {
                    value[j] += knob[BALANCE].value * ((gradient[j] < mean) - (gradient[j] > mean));
                    continue;
                }
                double g = gradient[j] * clip, t = s + 1;
                value[j] *= 1 - lr * decay_of(&tensor[i]);
                m[j] = 0.9 * m[j] + 0.1 * g;
                v[j] = 0.95 * v[j] + 0.05 * g * g;
                value[j] -=
                    lr / (1 - pow(0.9, t)) * m[j] / (sqrt(v[j]) / sqrt(1 - pow(0.95, t)) + 1e-8);
            }
    }
    if (fclose(p)) fatal("out of", "memory");
    fprintf(f, "],\n%s", probe);
    if (is_mixture()) fprintf(f, "\"router_logit_gap_min\": %.3g, ", fmin(router_gap, 1e9));
    write_final(f);
    fprintf(f, "}}\n");
    finish(f);
    free(ids);
    free(m);
    free(v);
    free(probe);
    return 0;
}
