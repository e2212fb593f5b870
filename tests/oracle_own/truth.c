/* An independent trainer that says what the right numbers are: a llama in double precision, differentiated by a tape
 * of scalars. Every multiplication, exponential and inner product is one entry of the tape with its own partial
 * derivatives, and the backward pass walks the tape in reverse: there is no formula for the gradient of a norm or of
 * attention that could share a mistake with the compiler's. Slow, and therefore for tiny models only.
 *
 *   truth OUT key=value ...      writes OUT/config.json, model.safetensors, tokens.bin, train.json, expected.json
 *
 * Keys and defaults are in `knob` below. weights=FILE (raw F32, tensors in the order of `tensor_add`) and tokens=FILE
 * (uint16) replace the generated ones, which is how this program is itself held against other oracles. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fatal(const char *what, const char *which) {
    fprintf(stderr, "truth: %s %s\n", what, which);
    exit(4);
}

/* ── the case ─────────────────────────────────────────────────────────────── */
enum { LAYERS, HIDDEN, HEADS, KV, HEAD_DIM, FFN, VOCAB, SEQ, GLOBAL, STEPS, WARMUP, TIED, BF16, MASK, IGNORE, SEED,
       LR, FLOOR, CLIP, DECAY, EPS, THETA, FACTOR, LOW, HIGH, ORIGINAL, STD, KNOBS };
static struct { const char *name; double value; } knob[KNOBS] = {
    {"layers", 2}, {"hidden", 36}, {"heads", 6}, {"kv", 3}, {"head_dim", 10}, {"ffn", 101}, {"vocab", 97}, {"seq", 19},
    {"global", 8}, {"steps", 8}, {"warmup", 3}, {"tied", 1}, {"bf16", 0},
    {"mask", 0},      /* 0 none; 1 irregular; 2 whole second step; 3 second half of each step's samples */
    {"ignore", -1}, {"seed", 1},
    {"lr", 0.01}, {"floor", 0.1}, {"clip", 1}, {"decay", 0.1}, {"eps", 1e-5}, {"theta", 10000}, {"factor", 8}, {"low", 1},
    {"high", 4}, {"original", 64}, {"std", 0.08},
};
static int whole(int k) { return (int)knob[k].value; }

/* ── the tape ─────────────────────────────────────────────────────────────── */
/* d is the derivative of `out` by `a`, e by `b`; an inner product keeps strides instead. */
struct entry { int out, a, b, n, stride_a, stride_b; double d, e; };
static double *value, *gradient;
static struct entry *tape;
static int used, entries, room_values, room_entries;

static int reserve(int n) {
    while (used + n > room_values) {
        room_values = room_values ? 2 * room_values : 1 << 20;
        value = realloc(value, (size_t)room_values * sizeof *value);
        gradient = realloc(gradient, (size_t)room_values * sizeof *gradient);
        if (!value || !gradient) fatal("out of", "memory");
    }
    memset(value + used, 0, (size_t)n * sizeof *value);
    memset(gradient + used, 0, (size_t)n * sizeof *gradient);
    used += n;
    return used - n;
}
static void record(struct entry e) {
    if (entries == room_entries) {
        room_entries = room_entries ? 2 * room_entries : 1 << 20;
        tape = realloc(tape, (size_t)room_entries * sizeof *tape);
        if (!tape) fatal("out of", "memory");
    }
    tape[entries++] = e;
}
static void unary(int out, int a, double y, double d) {
    value[out] = y;
    record((struct entry){.out = out, .a = a, .b = -1, .d = d});
}
static void binary(int out, int a, int b, double y, double d, double e) {
    value[out] = y;
    record((struct entry){.out = out, .a = a, .b = b, .d = d, .e = e});
}
static void times(int out, int a, int b) { binary(out, a, b, value[a] * value[b], value[b], value[a]); }
static void plus(int out, int a, int b) { binary(out, a, b, value[a] + value[b], 1, 1); }
static void inner(int out, int n, int a, int stride_a, int b, int stride_b) {
    double s = 0;
    for (int i = 0; i < n; i++) s += value[a + i * stride_a] * value[b + i * stride_b];
    value[out] = s;
    record((struct entry){.out = out, .a = a, .b = b, .n = n, .stride_a = stride_a, .stride_b = stride_b});
}
static void walk_back(void) {
    for (int k = entries - 1; k >= 0; k--) {
        const struct entry *e = &tape[k];
        double g = gradient[e->out];
        if (g == 0) continue;
        if (e->n)
            for (int i = 0; i < e->n; i++) {
                int a = e->a + i * e->stride_a, b = e->b + i * e->stride_b;
                double va = value[a], vb = value[b];
                gradient[a] += g * vb;
                gradient[b] += g * va;
            }
        else {
            gradient[e->a] += g * e->d;
            if (e->b >= 0) gradient[e->b] += g * e->e;
        }
    }
}

/* ── weights ──────────────────────────────────────────────────────────────── */
static struct { char name[80]; int rank, dim[2], at, count; bool bf16; } tensor[512];
static int tensors;
static uint64_t counter;

static uint64_t scramble(void) {
    uint64_t z = (counter += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}
static double uniform(void) { return ((double)(scramble() >> 11) + 0.5) / 9007199254740992.0; }
static double normal(void) { return sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform()); }

/* Every stored value is exact in its stored type, so that both sides start from the same numbers. */
static double stored(double x, bool bf16) {
    float f = (float)x;
    if (!bf16) return f;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&f, &bits, 4);
    return f;
}
static int tensor_add(const char *name, int layer, int rows, int columns) {
    int n = tensors++;
    if (layer >= 0) snprintf(tensor[n].name, sizeof tensor[n].name, "model.layers.%d.%s.weight", layer, name);
    else snprintf(tensor[n].name, sizeof tensor[n].name, "%s.weight", name);
    tensor[n].rank = columns ? 2 : 1;
    tensor[n].dim[0] = rows;
    tensor[n].dim[1] = columns;
    tensor[n].count = columns ? rows * columns : rows;
    tensor[n].at = reserve(tensor[n].count);
    tensor[n].bf16 = whole(BF16) && n % 2;
    for (int i = 0; i < tensor[n].count; i++)
        value[tensor[n].at + i] = stored(columns ? knob[STD].value * normal() : 1 + 0.1 * normal(), tensor[n].bf16);
    return tensor[n].at;
}

/* ── forward ──────────────────────────────────────────────────────────────── */
struct layer { int norm1, q, k, v, o, norm2, gate, up, down; };
static struct layer layers[64];
static int embed, final_norm, head;

/* x: n positions of `width` values, wherever at[] says they are. */
static int norm(const int *at, int n, int width, int g) {
    int y = reserve(n * width), t = reserve(2 * n), s = reserve(n * width);
    for (int p = 0; p < n; p++) {
        inner(t + 2 * p, width, at[p], 1, at[p], 1);
        double mean = value[t + 2 * p] / width + knob[EPS].value, r = 1 / sqrt(mean);
        unary(t + 2 * p + 1, t + 2 * p, r, -0.5 * r / mean / width);
        for (int j = 0; j < width; j++) {
            times(s + p * width + j, at[p] + j, t + 2 * p + 1);
            times(y + p * width + j, s + p * width + j, g + j);
        }
    }
    return y;
}
static int linear(int x, int n, int in, int w, int out) {
    int y = reserve(n * out);
    for (int p = 0; p < n; p++)
        for (int j = 0; j < out; j++) inner(y + p * out + j, in, x + p * in, 1, w + j * in, 1);
    return y;
}
static double frequency(int j) {
    double f = pow(knob[THETA].value, -2.0 * j / knob[HEAD_DIM].value), w = 6.283185307179586 / f;
    double factor = knob[FACTOR].value, low = knob[LOW].value, high = knob[HIGH].value, c = knob[ORIGINAL].value;
    if (factor == 1 || w < c / high) return f;
    if (w > c / low) return f / factor;
    double m = (c / w - low) / (high - low);
    return (1 - m) * f / factor + m * f;
}
static int turn(int x, int n, int heads, int d) {
    int y = reserve(n * heads * d);
    for (int p = 0; p < n; p++)
        for (int h = 0; h < heads; h++)
            for (int j = 0; j < d / 2; j++) {
                int a = (p * heads + h) * d + j, b = a + d / 2;
                double c = cos(p * frequency(j)), s = sin(p * frequency(j));
                binary(y + a, x + a, x + b, value[x + a] * c - value[x + b] * s, c, -s);
                binary(y + b, x + b, x + a, value[x + b] * c + value[x + a] * s, c, s);
            }
    return y;
}
static int attend(int q, int k, int v, int n, int heads, int kv, int d) {
    int y = reserve(n * heads * d), e = reserve(n * heads * (n + 1) * 3), ones = reserve(n);
    for (int i = 0; i < n; i++) value[ones + i] = 1;
    for (int p = 0; p < n; p++)
        for (int h = 0; h < heads; h++) {
            int share = h / (heads / kv), at = e + (p * heads + h) * 3 * (n + 1), scores = at, powers = at + n + 1, weights = at + 2 * (n + 1);
            double top = -INFINITY;
            for (int i = 0; i <= p; i++) {
                inner(scores + i, d, q + (p * heads + h) * d, 1, k + (i * kv + share) * d, 1);
                top = fmax(top, value[scores + i]);
            }
            for (int i = 0; i <= p; i++) {
                double y_i = exp((value[scores + i] - top) / sqrt(d));
                unary(powers + i, scores + i, y_i, y_i / sqrt(d));
            }
            inner(scores + n, p + 1, powers, 1, ones, 1);
            double sum = value[scores + n];
            for (int i = 0; i <= p; i++)
                binary(weights + i, powers + i, scores + n, value[powers + i] / sum, 1 / sum, -value[powers + i] / (sum * sum));
            for (int j = 0; j < d; j++) inner(y + (p * heads + h) * d + j, p + 1, weights, 1, v + share * d + j, kv * d);
        }
    return y;
}
static int swish(int g, int u, int n) {
    int y = reserve(n), s = reserve(n);
    for (int i = 0; i < n; i++) {
        double x = value[g + i], p = 1 / (1 + exp(-x));
        unary(s + i, g + i, x * p, p + x * p * (1 - p));
        times(y + i, s + i, u + i);
    }
    return y;
}
/* x += y, position by position. */
static void residual(int *at, int y, int n, int width) {
    int z = reserve(n * width);
    for (int p = 0; p < n; p++) {
        for (int j = 0; j < width; j++) plus(z + p * width + j, at[p] + j, y + p * width + j);
        at[p] = z + p * width;
    }
}
/* The summed loss of one sample; seeds the gradient with 1/valid. Returns the logits' place through *logits_at. */
static double sample(const uint16_t *ids, double valid, int *logits_at) {
    int n = whole(SEQ), h = whole(HIDDEN), heads = whole(HEADS), kv = whole(KV), d = whole(HEAD_DIM), vocab = whole(VOCAB);
    int *at = malloc((size_t)n * sizeof *at);
    if (!at) fatal("out of", "memory");
    for (int p = 0; p < n; p++) at[p] = embed + ids[p] * h;
    for (int l = 0; l < whole(LAYERS); l++) {
        struct layer w = layers[l];
        int x = norm(at, n, h, w.norm1);
        int q = turn(linear(x, n, h, w.q, heads * d), n, heads, d), k = turn(linear(x, n, h, w.k, kv * d), n, kv, d);
        int o = attend(q, k, linear(x, n, h, w.v, kv * d), n, heads, kv, d);
        residual(at, linear(o, n, heads * d, w.o, h), n, h);
        x = norm(at, n, h, w.norm2);
        int f = swish(linear(x, n, h, w.gate, whole(FFN)), linear(x, n, h, w.up, whole(FFN)), n * whole(FFN));
        residual(at, linear(f, n, whole(FFN), w.down, h), n, h);
    }
    int logits = *logits_at = linear(norm(at, n, h, final_norm), n, h, head, vocab);
    int powers = reserve(n * vocab), ones = reserve(vocab), sums = reserve(3 * n);
    for (int i = 0; i < vocab; i++) value[ones + i] = 1;
    double loss = 0;
    for (int p = 0; p < n; p++) {
        int target = ids[p + 1], row = logits + p * vocab, s = sums + 3 * p;
        if (target == whole(IGNORE)) continue;
        double top = -INFINITY;
        for (int i = 0; i < vocab; i++) top = fmax(top, value[row + i]);
        for (int i = 0; i < vocab; i++) {
            double y = exp(value[row + i] - top);
            unary(powers + p * vocab + i, row + i, y, y);
        }
        inner(s, vocab, powers + p * vocab, 1, ones, 1);
        unary(s + 1, s, log(value[s]) + top, 1 / value[s]);
        binary(s + 2, s + 1, row + target, value[s + 1] - value[row + target], 1, -1);
        gradient[s + 2] = 1 / valid;
        loss += value[s + 2];
    }
    free(at);
    return loss;
}

/* ── files ────────────────────────────────────────────────────────────────── */
static FILE *create(const char *folder, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    if (!f) fatal("cannot write", path);
    return f;
}
static void finish(FILE *f) {
    if (ferror(f) || fclose(f)) fatal("cannot finish", "a file");
}
static void write_weights(const char *folder) {
    FILE *f = create(folder, "model.safetensors");
    char *head_text = malloc(1 << 16);
    if (!head_text) fatal("out of", "memory");
    int n = snprintf(head_text, 1 << 16, "{\"__metadata__\":{\"format\":\"pt\"}"), offset = 0;
    for (int i = 0; i < tensors; i++) {
        int bytes = tensor[i].count * (tensor[i].bf16 ? 2 : 4);
        n += snprintf(head_text + n, (size_t)((1 << 16) - n), ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%d", tensor[i].name, tensor[i].bf16 ? "BF16" : "F32", tensor[i].dim[0]);
        if (tensor[i].rank == 2) n += snprintf(head_text + n, (size_t)((1 << 16) - n), ",%d", tensor[i].dim[1]);
        n += snprintf(head_text + n, (size_t)((1 << 16) - n), "],\"data_offsets\":[%d,%d]}", offset, offset + bytes);
        offset += bytes;
    }
    n += snprintf(head_text + n, (size_t)((1 << 16) - n), "}");
    while (n % 8) head_text[n++] = ' ';
    uint64_t length = (uint64_t)n;
    fwrite(&length, 8, 1, f);
    fwrite(head_text, 1, (size_t)n, f);
    for (int i = 0; i < tensors; i++)
        for (int j = 0; j < tensor[i].count; j++) {
            float x = (float)value[tensor[i].at + j];
            uint32_t bits;
            memcpy(&bits, &x, 4);
            uint16_t top = (uint16_t)(bits >> 16);
            fwrite(tensor[i].bf16 ? (void *)&top : (void *)&x, tensor[i].bf16 ? 2 : 4, 1, f);
        }
    free(head_text);
    finish(f);
}
static void write_config(const char *folder) {
    FILE *f = create(folder, "config.json");
    fprintf(f, "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_act\": \"silu\", \"hidden_size\": %d,\n"
            " \"intermediate_size\": %d, \"num_hidden_layers\": %d, \"num_attention_heads\": %d, \"num_key_value_heads\": %d,\n"
            " \"head_dim\": %d, \"vocab_size\": %d, \"max_position_embeddings\": 4096, \"rms_norm_eps\": %g, \"rope_theta\": %.1f,\n",
            whole(HIDDEN), whole(FFN), whole(LAYERS), whole(HEADS), whole(KV), whole(HEAD_DIM), whole(VOCAB), knob[EPS].value, knob[THETA].value);
    if (knob[FACTOR].value == 1) fprintf(f, " \"rope_scaling\": null,\n");
    else
        fprintf(f, " \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": %.1f, \"low_freq_factor\": %.1f, \"high_freq_factor\": %.1f, \"original_max_position_embeddings\": %d},\n",
                knob[FACTOR].value, knob[LOW].value, knob[HIGH].value, whole(ORIGINAL));
    fprintf(f, " \"attention_bias\": false, \"mlp_bias\": false, \"tie_word_embeddings\": %s, \"torch_dtype\": \"float32\"}\n", whole(TIED) ? "true" : "false");
    finish(f);
}
static void write_recipe(const char *folder) {
    FILE *f = create(folder, "train.json");
    fprintf(f, "{\"seq_len\": %d, \"global_batch\": %d, \"steps\": %d, \"ignore\": %d,\n"
            " \"optimizer\": {\"beta1\": 0.9, \"beta2\": 0.95, \"eps\": 1e-08, \"weight_decay\": %g}, \"grad_clip\": {\"max_norm\": %g},\n"
            " \"lr_schedule\": {\"peak_lr\": %g, \"warmup_steps\": %d, \"min_lr_ratio\": %g, \"total_steps\": %d}}\n",
            whole(SEQ), whole(GLOBAL), whole(STEPS), whole(IGNORE), knob[DECAY].value, knob[CLIP].value, knob[LR].value, whole(WARMUP), knob[FLOOR].value, whole(STEPS));
    finish(f);
}

/* Ids that can be learnt: each mostly follows from the one before. Some are then masked. */
static uint16_t *make_tokens(const char *folder, int count) {
    uint16_t *ids = malloc((size_t)count * sizeof *ids);
    if (!ids) fatal("out of", "memory");
    int vocab = whole(VOCAB), seq = whole(SEQ), step_tokens = whole(GLOBAL) * seq;
    for (int i = 0; i < count; i++)
        ids[i] = (uint16_t)(i && uniform() < 0.8 ? (ids[i - 1] * 5 + 3) % vocab : (int)(uniform() * uniform() * vocab));
    ids[count / 2] = (uint16_t)(vocab - 1);
    for (int i = 1; i < count; i++) {
        int step = (i - 1) / step_tokens, in_step = (i - 1) % step_tokens;
        bool masked = whole(MASK) == 1 ? (i / 11) % 3 == 0 || uniform() < 0.1 : whole(MASK) == 2 ? step == 1 : whole(MASK) == 3 ? in_step >= step_tokens / 2 : false;
        if (masked) ids[i] = (uint16_t)whole(IGNORE);
    }
    FILE *f = create(folder, "tokens.bin");
    fwrite(ids, sizeof *ids, (size_t)count, f);
    finish(f);
    return ids;
}
static void read_exactly(const char *path, void *to, size_t bytes) {
    FILE *f = fopen(path, "rb");
    if (!f || fread(to, 1, bytes, f) != bytes) fatal("cannot read", path);
    fclose(f);
}

/* ── training ─────────────────────────────────────────────────────────────── */
static double rate(int s) {
    int w = whole(WARMUP), last = whole(STEPS) - 1;
    double r = knob[FLOOR].value;
    if (s < w) return knob[LR].value * (s + 1) / w;
    return knob[LR].value * (last == w ? 1 : r + (1 - r) * 0.5 * (1 + cos(3.141592653589793 * (s - w) / (last - w))));
}
static double norm_of(const double *x, int n) {
    double s = 0;
    for (int i = 0; i < n; i++) s += x[i] * x[i];
    return sqrt(s);
}
int main(int argc, char **argv) {
    if (argc < 2) fatal("usage: truth OUT", "key=value ...");
    const char *folder = argv[1], *weights_file = NULL, *tokens_file = NULL;
    for (int i = 2; i < argc; i++) {
        char *eq = strchr(argv[i], '=');
        int k = 0;
        if (!eq) fatal("not key=value:", argv[i]);
        *eq = 0;
        if (!strcmp(argv[i], "weights")) { weights_file = eq + 1; continue; }
        if (!strcmp(argv[i], "tokens")) { tokens_file = eq + 1; continue; }
        while (k < KNOBS && strcmp(knob[k].name, argv[i])) k++;
        if (k == KNOBS) fatal("unknown key", argv[i]);
        knob[k].value = atof(eq + 1);
    }
    counter = (uint64_t)whole(SEED) * 1000003;
    int h = whole(HIDDEN), d = whole(HEAD_DIM), seq = whole(SEQ), global = whole(GLOBAL);
    embed = tensor_add("model.embed_tokens", -1, whole(VOCAB), h);
    for (int l = 0; l < whole(LAYERS); l++)
        layers[l] = (struct layer){
            tensor_add("input_layernorm", l, h, 0), tensor_add("self_attn.q_proj", l, whole(HEADS) * d, h),
            tensor_add("self_attn.k_proj", l, whole(KV) * d, h), tensor_add("self_attn.v_proj", l, whole(KV) * d, h),
            tensor_add("self_attn.o_proj", l, h, whole(HEADS) * d), tensor_add("post_attention_layernorm", l, h, 0),
            tensor_add("mlp.gate_proj", l, whole(FFN), h), tensor_add("mlp.up_proj", l, whole(FFN), h), tensor_add("mlp.down_proj", l, h, whole(FFN))};
    final_norm = tensor_add("model.norm", -1, h, 0);
    head = whole(TIED) ? embed : tensor_add("lm_head", -1, whole(VOCAB), h);
    int parameters = used, count = whole(STEPS) * global * seq + 1;
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
        double valid = 0, loss = 0;
        const uint16_t *first = ids + s * global * seq;
        memset(gradient, 0, (size_t)parameters * sizeof *gradient);
        for (int i = 1; i <= global * seq; i++) valid += first[i] != whole(IGNORE);
        for (int i = 0; i < global; i++) {
            int logits;
            used = parameters;
            entries = 0;
            loss += sample(first + i * seq, valid, &logits);
            walk_back();
            if (s == 0 && i == 0) {
                fprintf(p, "\"logits_step0\": [");
                for (int t = 0; t < (seq < 4 ? seq : 4); t++) {
                    fprintf(p, "%s[", t ? ", " : "");
                    for (int j = 0; j < (whole(VOCAB) < 16 ? whole(VOCAB) : 16); j++) fprintf(p, "%s%.17g", j ? ", " : "", value[logits + t * whole(VOCAB) + j]);
                    fprintf(p, "]");
                }
                fprintf(p, "], ");
            }
        }
        loss = valid > 0 ? loss / valid : 0;
        double size = norm_of(gradient, parameters), lr = rate(s), clip = fmin(1, knob[CLIP].value / (size + 1e-6));
        fprintf(f, "%s\n {\"step\": %d, \"loss\": %.17g, \"grad_norm\": %.17g, \"lr\": %.17g}", s ? "," : "", s, loss, size, lr);
        if (s == 0) {
            fprintf(p, "\"grad_norms_step0\": {");
            for (int i = 0; i < tensors; i++) fprintf(p, "%s\"%s\": %.17g", i ? ", " : "", tensor[i].name, norm_of(gradient + tensor[i].at, tensor[i].count));
            fprintf(p, "}, ");
        }
        for (int i = 0; i < tensors; i++)
            for (int j = tensor[i].at; j < tensor[i].at + tensor[i].count; j++) {
                double g = gradient[j] * clip, t = s + 1;
                if (tensor[i].rank > 1) value[j] *= 1 - lr * knob[DECAY].value;
                m[j] = 0.9 * m[j] + 0.1 * g;
                v[j] = 0.95 * v[j] + 0.05 * g * g;
                value[j] -= lr / (1 - pow(0.9, t)) * m[j] / (sqrt(v[j]) / sqrt(1 - pow(0.95, t)) + 1e-8);
            }
    }
    if (fclose(p)) fatal("out of", "memory");
    fprintf(f, "],\n%s\"final_params\": {", probe);
    for (int i = 0; i < tensors; i++) {
        fprintf(f, "%s\n \"%s\": {\"norm\": %.17g, \"first8\": [", i ? "," : "", tensor[i].name, norm_of(value + tensor[i].at, tensor[i].count));
        for (int j = 0; j < 8 && j < tensor[i].count; j++) fprintf(f, "%s%.17g", j ? ", " : "", value[tensor[i].at + j]);
        fprintf(f, "]}");
    }
    fprintf(f, "}}}\n");
    finish(f);
    free(ids);
    free(m);
    free(v);
    free(probe);
    free(value);
    free(gradient);
    free(tape);
    return 0;
}
