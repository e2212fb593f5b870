/* See interpret.h. Attention is the textbook's: all scores of a row, their softmax, the weighted
 * sum. */
#include "interpret.h"

#include <math.h>
#include <string.h>

struct numbers *numbers_of(const struct value *v)
{
    struct value *w = (struct value *)(uintptr_t)v;
    if (!w->note) {
        struct numbers *t = TAKE(struct numbers);
        t->n = shape_count(v->shape);
        t->x = TAKE_MANY(double, t->n);
        w->note = t;
    }
    return w->note;
}

double as_stored(enum element type, double x)
{
    if (type == F32) return (double)(float)x;
    if (type != BF16) return x;
    float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    if (f == f) bits = (bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000u;
    memcpy(&f, &bits, 4);
    return (double)f;
}

static int64_t last_of(const struct value *v)
{
    return v->shape.rank ? v->shape.dim[v->shape.rank - 1] : 1;
}
static int64_t rows_of(const struct value *v) { return shape_count(v->shape) / last_of(v); }

/* The element of an operand that meets element `at` of a result: axes from the last; 1 spreads, the
 * first may repeat. */
static int64_t met(const struct value *out, const struct value *in, int64_t at)
{
    int64_t index = 0, stride = 1;
    for (int k = 0; k < out->shape.rank; k++) {
        int o = out->shape.rank - 1 - k, i = in->shape.rank - 1 - k;
        int64_t place = at % out->shape.dim[o], size = i >= 0 ? in->shape.dim[i] : 1;
        at /= out->shape.dim[o];
        index += place % size * stride;
        stride *= size;
    }
    return index;
}

static double map(const struct node *n, double a, double b, double c)
{
    switch ((int)n->op) {
    case OP_add: return a + b;
    case OP_sub: return a - b;
    case OP_mul: return a * b;
    case OP_div: return a / b;
    case OP_neg: return -a;
    case OP_exp: return exp(a);
    case OP_log: return log(a);
    case OP_sqrt: return sqrt(a);
    case OP_rsqrt: return 1 / sqrt(a);
    case OP_tanh: return tanh(a);
    case OP_erf: return erf(a);
    case OP_sigmoid: return 1 / (1 + exp(-a));
    case OP_min: return a < b || a != a ? a : b;
    case OP_select: return a != 0 ? b : c;
    case OP_finite: return isfinite(a) ? 1 : 0;
    case OP_sign: return (a > 0) - (a < 0);
    case OP_cast:
    case OP_copy:
    case OP_expand: return a;
    case OP_valid: return a != (double)attr_get(n, "ignore");
    }
    bug("no meaning for %s", op_rows[n->op].name);
}

static int64_t whole(const struct node *n, const char *key)
{
    return attr_find(n, key) ? attr_get(n, key) : 0;
}

static void product(const struct node *n, const double *a, const double *b, double *y)
{
    int64_t m = n->out[0]->shape.dim[0], w = n->out[0]->shape.dim[1];
    bool ta = whole(n, "ta"), tb = whole(n, "tb");
    const struct value *A = n->in[0].value, *B = n->in[1].value;
    int64_t inner = A->shape.dim[ta ? 0 : 1], lda = last_of(A), ldb = last_of(B);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < w; j++) {
            double s = 0;
            for (int64_t k = 0; k < inner; k++)
                s +=
                    (ta ? a[k * lda + i] : a[i * lda + k]) * (tb ? b[j * ldb + k] : b[k * ldb + j]);
            y[i * w + j] = s;
        }
}

/* The first key of the sequence that query row t sees. */
static int64_t first_key(const struct node *n, int64_t t, const double *starts)
{
    int64_t start = t - t % whole(n, "sequence"), first = start,
            window = attr_find(n, "window") ? whole(n, "window") : t + 1;
    if (t - window + 1 > first) first = t - window + 1;
    if (starts && (int64_t)starts[t] > first) first = (int64_t)starts[t];
    return first - start;
}

static double real_or(const struct node *n, const char *key, double otherwise)
{
    const struct attr *a = attr_find(n, key);
    return a ? a->real : otherwise;
}

/* The weights of query row t and head h over the keys of its sequence up to itself; returns log of
 * the sum of exponentials. slope: of a score by the inner product, unless NULL. */
static double weights(const struct node *n, const double *q, const double *k, int64_t t, int64_t h,
                      const double *starts, double *p, double *slope)
{
    const struct value *Q = n->in[0].value, *K = n->in[1].value;
    int64_t heads = Q->shape.dim[1], kv = K->shape.dim[1], d = Q->shape.dim[2],
            start = t - t % whole(n, "sequence"), g = h / (heads / kv);
    double top = -INFINITY, sum = 0, scale = real_or(n, "scale", 1 / sqrt((double)d)),
           cap = real_or(n, "softcap", 0);
    int64_t first = start + first_key(n, t, starts);
    for (int64_t j = start; j <= t; j++) {
        double s = 0, bend = 1;
        for (int64_t c = 0; c < d; c++) s += q[(t * heads + h) * d + c] * k[(j * kv + g) * d + c];
        s *= scale;
        if (cap > 0) {
            double bent = tanh(s / cap);
            s = cap * bent, bend = 1 - bent * bent;
        }
        if (slope) slope[j - start] = scale * bend;
        p[j - start] = j < first ? -INFINITY : s;
        top = fmax(top, p[j - start]);
    }
    for (int64_t j = start; j <= t; j++) sum += exp(p[j - start] - top);
    for (int64_t j = start; j <= t; j++) p[j - start] = exp(p[j - start] - top) / sum;
    return top + log(sum);
}

static void attention(const struct node *n, double *const *in, double *o, double *lse)
{
    const double *q = in[0], *k = in[1], *v = in[2], *starts = n->n_in > 3 ? in[3] : NULL;
    int64_t T = n->in[0].value->shape.dim[0], heads = n->in[0].value->shape.dim[1],
            kv = n->in[1].value->shape.dim[1], d = n->in[0].value->shape.dim[2],
            S = whole(n, "sequence");
    double *p = TAKE_MANY(double, S);
    for (int64_t t = 0; t < T; t++)
        for (int64_t h = 0; h < heads; h++) {
            lse[t * heads + h] = weights(n, q, k, t, h, starts, p, NULL);
            for (int64_t c = 0; c < d; c++) {
                double s = 0;
                for (int64_t j = 0; j <= t % S; j++)
                    s += p[j] * v[((t - t % S + j) * kv + h / (heads / kv)) * d + c];
                o[(t * heads + h) * d + c] = s;
            }
        }
}

static void attention_grad(const struct node *n, double *const *in, double *const *out)
{
    const double *q = in[0], *k = in[1], *v = in[2], *dy = in[5],
                 *starts = n->n_in > 6 ? in[6] : NULL;
    int64_t T = n->in[0].value->shape.dim[0], heads = n->in[0].value->shape.dim[1],
            kv = n->in[1].value->shape.dim[1], d = n->in[0].value->shape.dim[2],
            S = whole(n, "sequence");
    double *p = TAKE_MANY(double, S), *dp = TAKE_MANY(double, S), *slope = TAKE_MANY(double, S);
    for (int i = 0; i < 3; i++)
        memset(out[i], 0, sizeof(double) * (size_t)shape_count(n->out[i]->shape));
    for (int64_t t = 0; t < T; t++)
        for (int64_t h = 0; h < heads; h++) {
            int64_t start = t - t % S, g = h / (heads / kv), row = (t * heads + h) * d;
            weights(n, q, k, t, h, starts, p, slope);
            double mean = 0;
            for (int64_t j = 0; j <= t % S; j++) {
                dp[j] = 0;
                for (int64_t c = 0; c < d; c++)
                    dp[j] += dy[row + c] * v[((start + j) * kv + g) * d + c];
                mean += p[j] * dp[j];
            }
            for (int64_t j = 0; j <= t % S; j++) {
                double s = p[j] * (dp[j] - mean) * slope[j];
                int64_t key = ((start + j) * kv + g) * d;
                for (int64_t c = 0; c < d; c++) {
                    out[0][row + c] += s * k[key + c];
                    out[1][key + c] += s * q[row + c];
                    out[2][key + c] += p[j] * dy[row + c];
                }
            }
        }
}

static void top_k(const struct node *n, const double *p, double *ids)
{
    int64_t E = last_of(n->in[0].value), k = whole(n, "k");
    for (int64_t t = 0; t < rows_of(n->in[0].value); t++)
        for (int64_t j = 0; j < k; j++) {
            int64_t best = -1;
            for (int64_t e = 0; e < E; e++) {
                bool used = false;
                for (int64_t i = 0; i < j; i++) used |= ids[t * k + i] == (double)e;
                double rank = isnan(p[t * E + e]) ? -INFINITY : p[t * E + e],
                       most = best < 0 || isnan(p[t * E + best]) ? -INFINITY : p[t * E + best];
                if (!used && (best < 0 || rank > most)) best = e;
            }
            ids[t * k + j] = (double)best;
        }
}

static void route_plan(const struct node *n, const double *ids, double *place, double *first)
{
    int64_t E = whole(n, "experts"), choices = shape_count(n->in[0].value->shape), row = 0;
    for (int64_t e = 0; e < E; e++) {
        first[e] = (double)row;
        for (int64_t c = 0; c < choices; c++)
            if (ids[c] == (double)e) place[c] = (double)row++;
    }
    first[E] = (double)row;
}

static void experts(const struct node *n, double *const *in, double *y)
{
    const double *first = in[2];
    bool grad = n->op == OP_expert_matmul_grad, ta = whole(n, "ta");
    int64_t E = shape_count(n->in[2].value->shape) - 1,
            a = last_of(grad ? n->in[1].value : n->in[0].value),
            b = grad ? last_of(n->in[0].value) : last_of(n->out[0]);
    memset(y, 0, sizeof(double) * (size_t)shape_count(n->out[0]->shape));
    for (int64_t e = 0; e < E; e++)
        for (int64_t r = (int64_t)first[e]; r < (int64_t)first[e + 1]; r++)
            for (int64_t o = 0; o < b; o++)
                for (int64_t i = 0; i < a; i++) {
                    int64_t w = e * a * b + (ta ? i * b + o : o * a + i);
                    if (grad)
                        y[w] += in[0][r * b + o] * in[1][r * a + i];
                    else
                        y[r * b + o] += in[0][r * a + i] * in[1][w];
                }
}

/* YaRN, written from its paper: a pair's share of the stretch goes from 0 to 1 between two pairs.
 */
static void yarn(const struct node *n, double *y)
{
    int64_t S = whole(n, "sequence"), d = whole(n, "d"), w = attr_or(n, "width", d);
    double from = attr_get_real(n, "from"), to = attr_get_real(n, "to"),
           size = attr_get_real(n, "magnitude");
    for (int64_t s = 0; s < S; s++)
        for (int64_t j = 0; j < d; j++) {
            int64_t pair = j % (w / 2);
            double as_is = 1 / pow(attr_get_real(n, "theta"), 2.0 * (double)pair / (double)w),
                   stretched = as_is / attr_get_real(n, "yarn"),
                   ramp = fmin(1, fmax(0, ((double)pair - from) / (to - from))),
                   angle = (double)s * (stretched * ramp + as_is * (1 - ramp));
            y[s * d + j] = n->op == OP_rope_cos ? (j < w ? size * cos(angle) : 1)
                           : j >= w             ? 0
                           : j < w / 2          ? -size * sin(angle)
                                                : size * sin(angle);
        }
}

static void rope(const struct node *n, double *y)
{
    int64_t S = whole(n, "sequence"), d = whole(n, "d"), w = attr_or(n, "width", d);
    double linear = attr_find(n, "linear") ? attr_get_real(n, "linear") : 1,
           theta = attr_get_real(n, "theta"), factor = attr_get_real(n, "factor"),
           low = attr_get_real(n, "low"), high = attr_get_real(n, "high"),
           original = attr_get_real(n, "original");
    for (int64_t s = 0; s < S; s++)
        for (int64_t j = 0; j < d; j++) {
            double f = pow(theta, -2.0 * (double)(j % (w / 2)) / (double)w) / linear,
                   wave = 2 * acos(-1.0) / f;
            if (factor > 1) {
                double m = (original / wave - low) / (high - low);
                f = wave > original / low    ? f / factor
                    : wave < original / high ? f
                                             : (1 - m) * f / factor + m * f;
            }
            if (j >= w) f = 0;
            y[s * d + j] = n->op == OP_rope_cos ? cos((double)s * f)
                           : j < w / 2          ? -sin((double)s * f)
                                                : sin((double)s * f);
        }
}

/* Ops that pick elements by row and column. */
static void indexed(const struct node *n, double *const *in, double *y)
{
    const struct value *A = n->in[0].value;
    int64_t columns = last_of(n->out[0]), rows = rows_of(n->out[0]), width = last_of(A);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) {
            double *to = &y[r * columns + c];
            const double *a = in[0];
            *to = 0;
            switch ((int)n->op) {
            case OP_rotate: {
                int64_t w = attr_or(n, "width", width);
                *to = a[r * width + (c < w ? (c + w / 2) % w : c)];
                break;
            }
            case OP_slice: *to = a[r * width + c + whole(n, "from")]; break;
            case OP_pad:
                if (c >= whole(n, "from") && c < whole(n, "from") + width)
                    *to = a[r * width + c - whole(n, "from")];
                break;
            case OP_beside: *to = in[c >= width][r * width + c % width]; break;
            case OP_onehot:
                if ((double)c == a[r]) *to = in[1][r];
                break;
            case OP_put:
                for (int64_t j = 0; j < width; j++)
                    if (a[r * width + j] == (double)c) *to += in[1][r * width + j];
                break;
            case OP_take: *to = a[r * width + (int64_t)in[1][r * columns + c]]; break;
            case OP_pick:
                if (in[1][r] >= 0 && in[1][r] < (double)width)
                    *to = a[r * width + (int64_t)in[1][r]];
                break;
            }
        }
}

static void reduced(const struct node *n, const double *a, double *y)
{
    int64_t columns = last_of(n->in[0].value), rows = rows_of(n->in[0].value);
    for (int64_t i = 0; i < shape_count(n->out[0]->shape); i++)
        y[i] = n->op == OP_max_last ? -INFINITY : 0;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) {
            double x = a[r * columns + c], *to = n->op == OP_sum_rows ? &y[c]
                                                 : n->op == OP_sum_all || n->op == OP_sum_squares
                                                     ? &y[0]
                                                     : &y[r];
            *to = n->op == OP_max_last ? (x > *to || x != x ? x : *to)
                                       : *to + (n->op == OP_sum_squares ? x * x : x);
        }
}

/* Rows moved by a map: place[t * k + j] is the row of choice j of token t. */
static void moved(const struct node *n, const double *a, const double *place, double *y)
{
    int64_t choices = shape_count(n->in[1].value->shape),
            width = n->op == OP_to_rows || n->op == OP_from_rows ? 1 : last_of(n->in[0].value);
    int64_t k = n->op == OP_dispatch  ? choices / rows_of(n->in[0].value)
                : n->op == OP_collect ? rows_of(n->in[0].value) / rows_of(n->out[0])
                                      : 1;
    memset(y, 0, sizeof(double) * (size_t)shape_count(n->out[0]->shape));
    for (int64_t c = 0; c < choices; c++)
        for (int64_t w = 0; w < width; w++) {
            int64_t row = (int64_t)place[c];
            if (n->op == OP_dispatch || n->op == OP_to_rows)
                y[row * width + w] = a[c / k * width + w];
            else
                y[c / k * width + w] += a[row * width + w];
        }
}

void interpret(const struct node *n, bool rounded)
{
    double *in[8] = {0}, *out[4] = {0};
    for (int i = 0; i < n->n_in; i++) in[i] = n->in[i].value ? numbers_of(n->in[i].value)->x : NULL;
    for (int i = 0; i < n->n_out; i++) out[i] = numbers_of(n->out[i])->x;
    double *y = out[0];
    int64_t count = n->n_out ? shape_count(n->out[0]->shape) : 0;
    switch (n->op) {
#define MAP(name, ...) case OP_##name:
#include "ir/ops.def"
        for (int64_t i = 0; i < count; i++) {
            double x[3] = {0};
            for (int k = 0; k < n->n_in; k++)
                x[k] =
                    !n->in[k].value
                        ? (rounded ? as_stored(n->out[0]->type, n->in[k].number) : n->in[k].number)
                        : in[k][n->op == OP_valid ? i : met(n->out[0], n->in[k].value, i)];
            y[i] = map(n, x[0], x[1], x[2]);
        }
        break;
    case OP_rotate:
    case OP_slice:
    case OP_pad:
    case OP_beside:
    case OP_onehot:
    case OP_put:
    case OP_take:
    case OP_pick: indexed(n, in, y); break;
    case OP_sum_last:
    case OP_max_last:
    case OP_sum_rows:
    case OP_sum_all:
    case OP_sum_squares: reduced(n, in[0], y); break;
    case OP_reshape: memcpy(y, in[0], sizeof *y * (size_t)count); break;
    case OP_zeros:
        for (int64_t i = 0; i < count; i++)
            y[i] = attr_find(n, "value") ? attr_get_real(n, "value") : 0;
        break;
    case OP_positions:
        for (int64_t i = 0; i < count; i++)
            y[i] = n->n_in ? (double)i - in[0][i] : (double)(i % whole(n, "sequence"));
        break;
    case OP_rope_cos:
    case OP_rope_sin: attr_find(n, "yarn") ? yarn(n, y) : rope(n, y); break;
    case OP_matmul: product(n, in[0], in[1], y); break;
    case OP_matmul_add:
        product(n, in[0], in[1], y);
        for (int64_t i = 0; i < count; i++) y[i] += in[2][i];
        break;
    case OP_embedding:
        for (int64_t i = 0; i < count; i++)
            y[i] = in[1][(int64_t)in[0][i / last_of(n->out[0])] * last_of(n->out[0]) +
                         i % last_of(n->out[0])];
        break;
    case OP_embedding_grad: {
        int64_t w = last_of(n->out[0]);
        memset(y, 0, sizeof *y * (size_t)count);
        for (int64_t i = 0; i < shape_count(n->in[1].value->shape); i++)
            y[(int64_t)in[0][i / w] * w + i % w] += in[1][i];
        break;
    }
    case OP_sum_middle: {
        struct shape s = n->in[0].value->shape;
        memset(y, 0, sizeof *y * (size_t)count);
        for (int64_t i = 0; i < shape_count(s); i++)
            y[i / (s.dim[1] * s.dim[2]) * s.dim[2] + i % s.dim[2]] += in[0][i];
        break;
    }
    case OP_attention: attention(n, in, out[0], out[1]); break;
    case OP_attention_grad: attention_grad(n, in, out); break;
    case OP_top_k: top_k(n, in[0], y); break;
    case OP_route_plan: route_plan(n, in[0], out[0], out[1]); break;
    case OP_load:
        for (int64_t i = 0; i < count; i++) y[i] = in[0][i + 1] - in[0][i];
        break;
    case OP_dispatch:
    case OP_collect:
    case OP_to_rows:
    case OP_from_rows: moved(n, in[0], in[1], y); break;
    case OP_expert_matmul:
    case OP_expert_matmul_grad: experts(n, in, y); break;
    /* given from outside, or only a place */
    case OP_scalar:
    case OP_metric_sum:
    case OP_state:
    case OP_decay:
    case OP_lr_scale:
    case OP_balance_mean:
    case OP_balance_rate:
    case OP_part:
    case OP_put_part:
    case OP_sum_ranks:
    case OP_assign:
    case OP_assign_scalar:
    case OP_metric:
    case OP_balance:
    case OP_tap:
    case OP_batch:
    case OP_use:
    case OP_reduce:
    case OP_gather:
    case OP_wait: return;
    case OP_COUNT: bug("no op");
    }
    for (int k = 0; k < n->n_out && rounded; k++)
        for (int64_t i = 0; i < shape_count(n->out[k]->shape); i++)
            out[k][i] = as_stored(n->out[k]->type, out[k][i]);
}
