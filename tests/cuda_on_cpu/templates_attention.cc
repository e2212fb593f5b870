/* templates/cuda/attention.cuh, attention_gradient.cuh, their forms for warpgroups and
 * attention_simt.cuh against the definition in double precision: what comes out, the saved
 * log-sum-exp, and the three gradients; sequences shorter than a tile and no multiple of one,
 * several of them after each other, key heads that are shared or not, widths that fill a tile and
 * that do not, both halves of a grid that is divided by result; windows, documents and caps on
 * scores, each against tiles that are left out, cut and whole. */
#include <cmath>
#include <vector>

#include "attention_gradient.cuh"
#include "attention_gradient_wgmma.cuh"
#include "attention_simt.cuh"
#include "attention_wgmma.cuh"

using std::vector;

enum form { TENSOR, SIMT, WGMMA };

/* [sequences, sequence, elements of all heads], `box` rows a copy. */
static tensor_map map_of(const bf16 *at, int64_t tokens, int sequence, int elements, int box)
{
    tensor_map map;
    const char *why = fiber_tensor_of(&map, at, tokens / sequence, sequence, elements, box);
    if (why) printf("no map: %s\n", why), exit(1);
    return map;
}

template <typename T, int W, form FORM>
static void forward(const T *q, const T *k, const T *v, T *o, float *lse, int64_t tokens, int heads,
                    int kv_heads, int sequence, float scale, attention_rule rule)
{
    if constexpr (FORM == SIMT)
        attention_forward_simt<T, W>(q, k, v, o, lse, tokens, heads, kv_heads, sequence, scale,
                                     rule);
    else if (rule.window || rule.starts || rule.softcap > 0)
        attention_forward<W, true>(q, k, v, o, lse, tokens, heads, kv_heads, sequence, scale, rule);
    else
        attention_forward<W, false>(q, k, v, o, lse, tokens, heads, kv_heads, sequence, scale,
                                    rule);
}
template <int W>
static void forward_wgmma(const tensor_map q, const tensor_map k, const tensor_map v, bf16 *o,
                          float *lse, int64_t tokens, int heads, int kv_heads, int sequence,
                          float scale, attention_rule rule)
{
    attention_forward_wgmma<W>(&q, &k, &v, o, lse, tokens, heads, kv_heads, sequence, scale, rule);
}
template <typename T, int W, form FORM>
static void rows(const T *o, const T *d_o, const float *lse, float *to, int64_t tokens, int heads,
                 int64_t turns)
{
    if constexpr (FORM == SIMT)
        attention_rows_simt<T, W>(o, d_o, lse, to, tokens, heads);
    else
        attention_rows<W>(o, d_o, lse, to, tokens, heads, turns);
}
template <typename T, int W>
static void keys(const T *q, const T *k, const T *v, const T *d_o, const float *stats, T *dk, T *dv,
                 int64_t tokens, int heads, int kv_heads, int sequence, float scale,
                 attention_rule rule)
{
    attention_keys_simt<T, W>(q, k, v, d_o, stats, dk, dv, tokens, heads, kv_heads, sequence, scale,
                              rule);
}
template <typename T, int W>
static void queries(const T *q, const T *k, const T *v, const T *d_o, const float *stats, T *dq,
                    int64_t tokens, int heads, int kv_heads, int sequence, float scale,
                    attention_rule rule)
{
    attention_queries_simt<T, W>(q, k, v, d_o, stats, dq, tokens, heads, kv_heads, sequence, scale,
                                 rule);
}
template <int W>
static void gradient(const bf16 *q, const bf16 *k, const bf16 *v, const bf16 *d_o, float *stats,
                     float *sums, bf16 *dq, bf16 *dk, bf16 *dv, int64_t tokens, int heads,
                     int kv_heads, int sequence, float scale, attention_rule rule)
{
    attention_gradient<W>(q, k, v, d_o, stats, sums, dq, dk, dv, tokens, heads, kv_heads, sequence,
                          scale, rule);
}
template <int W>
static void gradient_wgmma(const tensor_map q, const tensor_map k, const tensor_map v,
                           const tensor_map d_o, float *stats, float *sums, bf16 *dq, bf16 *dk,
                           bf16 *dv, int64_t tokens, int heads, int kv_heads, int sequence,
                           float scale, attention_rule rule)
{
    attention_gradient_wgmma<W>(&q, &k, &v, &d_o, stats, sums, dq, dk, dv, tokens, heads, kv_heads,
                                sequence, scale, rule);
}

static uint32_t state = 12345;
static double uniform(double size)
{
    state = state * 1664525u + 1013904223u;
    return ((double)(state >> 8) / (1 << 23) - 1.0) * size;
}
static double value(float x) { return x; }
static double value(bf16 x) { return op_from_bf16(x); }
static void store(float *to, double x) { *to = (float)x; }
static void store(bf16 *to, double x) { *to = op_to_bf16((float)x); }
template <typename T> static vector<T> random_rows(size_t n, double size, vector<double> &exact)
{
    vector<T> all(n);
    exact.resize(n);
    for (size_t i = 0; i < n; i++) store(&all[i], uniform(size)), exact[i] = value(all[i]);
    return all;
}
/* What nobody writes stays NaN and is found. */
template <typename T> static vector<T> unwritten(size_t n)
{
    vector<T> all(n);
    for (T &x : all) store(&x, NAN);
    return all;
}

struct shape {
    int width, heads, kv_heads, sequence, sequences;
};
/* What templates call attention_rule, with documents by their starts. */
struct kind {
    int window, document; /* 0: none; else no document is longer */
    double softcap;
};
struct truth {
    vector<double> o, size, lse, dq, dk, dv;
}; /* size: sum of |p v| */

static truth define(const struct shape &s, const vector<double> &q, const vector<double> &k,
                    const vector<double> &v, const vector<double> &d_o, double scale,
                    const kind &rule, const vector<int32_t> &starts)
{
    truth t;
    size_t w = (size_t)s.width, n = (size_t)s.heads, m = (size_t)s.kv_heads,
           length = (size_t)s.sequence;
    t.o = t.size = t.dq = vector<double>(q.size());
    t.dk = t.dv = vector<double>(k.size());
    t.lse.resize(q.size() / w);
    for (size_t start = 0; start < length * (size_t)s.sequences; start += length)
        for (size_t h = 0; h < n; h++)
            for (size_t i = 0; i < length; i++) {
                size_t at = ((start + i) * n + h) * w;
                auto key = [&](size_t j) { return ((start + j) * m + h / (n / m)) * w; };
                vector<double> p(i + 1), bend(i + 1, 1.0);
                double sum = 0, delta = 0;
                size_t low =
                    rule.window && i >= (size_t)rule.window ? i - (size_t)rule.window + 1 : 0;
                if (rule.document) low = std::max(low, (size_t)starts[start + i] - start);
                for (size_t j = low; j <= i; j++) {
                    for (size_t c = 0; c < w; c++) p[j] += q[at + c] * k[key(j) + c] * scale;
                    if (rule.softcap > 0) {
                        double bent = std::tanh(p[j] / rule.softcap);
                        p[j] = rule.softcap * bent, bend[j] = 1 - bent * bent;
                    }
                    sum += std::exp(p[j]);
                }
                t.lse[at / w] = std::log(sum);
                for (size_t j = low; j <= i; j++) {
                    p[j] = std::exp(p[j]) / sum;
                    for (size_t c = 0; c < w; c++)
                        t.o[at + c] += p[j] * v[key(j) + c],
                            t.size[at + c] += std::fabs(p[j] * v[key(j) + c]);
                }
                for (size_t c = 0; c < w; c++) delta += t.o[at + c] * d_o[at + c];
                for (size_t j = low; j <= i; j++) {
                    double slope = -delta;
                    for (size_t c = 0; c < w; c++) slope += d_o[at + c] * v[key(j) + c];
                    slope *= p[j] * scale * bend[j];
                    for (size_t c = 0; c < w; c++) {
                        t.dq[at + c] += slope * k[key(j) + c];
                        t.dk[key(j) + c] += slope * q[at + c];
                        t.dv[key(j) + c] += p[j] * d_o[at + c];
                    }
                }
            }
    return t;
}

/* Of a gradient: the norm of the error over the norm of the truth, or over elements of 0.1 where
 * the truth is less, as with sequences of one token, whose scores do not matter. */
template <typename T> static double norm_error(const vector<double> &want, const vector<T> &got)
{
    double error = 0, size = 0;
    for (size_t i = 0; i < want.size(); i++)
        error += (want[i] - value(got[i])) * (want[i] - value(got[i])), size += want[i] * want[i];
    return std::sqrt(error / std::fmax(size, 0.01 * (double)want.size()));
}

static int wrong;
template <typename T, int W, form FORM>
static void check(int heads, int kv_heads, int sequence, int sequences, kind of_kind = {0, 0, 0.0})
{
    struct shape s = {W, heads, kv_heads, sequence, sequences};
    int64_t tokens = (int64_t)sequence * sequences;
    size_t many = (size_t)tokens * (size_t)heads, few = (size_t)tokens * (size_t)kv_heads;
    float scale = 1.0f / std::sqrt((float)W);
    vector<double> q_exact, k_exact, v_exact, d_exact;
    vector<T> q = random_rows<T>(many * W, 3, q_exact), k = random_rows<T>(few * W, 3, k_exact),
              v = random_rows<T>(few * W, 1, v_exact), d_o = random_rows<T>(many * W, 1, d_exact);
    vector<T> o = unwritten<T>(many * W), dq = unwritten<T>(many * W), dk = unwritten<T>(few * W),
              dv = unwritten<T>(few * W);
    vector<float> lse = unwritten<float>(many), stats = unwritten<float>(2 * many);
    vector<int32_t> starts((size_t)tokens);
    for (int64_t i = 0, left = 0; i < tokens && of_kind.document; i++) {
        bool begins = i % sequence == 0 || left == 0;
        if (begins) left = 1 + (int64_t)((uniform(0.5) + 0.5) * of_kind.document);
        starts[(size_t)i] = begins ? (int32_t)i : starts[(size_t)i - 1];
        left--;
    }
    truth want = define(s, q_exact, k_exact, v_exact, d_exact, scale, of_kind, starts);
    attention_rule rule = {of_kind.window, (float)of_kind.softcap,
                           of_kind.document ? starts.data() : nullptr};

    constexpr bool simt = FORM == SIMT;
    unsigned tile = simt ? 64 : 128, tiles = ((unsigned)sequence + tile - 1) / tile, lanes = 1;
    int64_t row = 2 * ((W + 15) / 16 * 16 + 8), n_queries = W > 64 && W <= 128 ? 64 : 32;
    while (lanes < W / 8) lanes *= 2;
    unsigned rows_a_block = simt ? 8 : 256 / lanes, parts = W > (simt ? 256 : 128) ? 2 : 1,
             n = (unsigned)heads, of = (unsigned)sequences, m = (unsigned)kv_heads,
             pieces_of_rows = ((unsigned)tokens + rows_a_block - 1) / rows_a_block;
    int64_t turns = 1 + sequences * (heads * ((sequence + n_queries - 1) / n_queries) +
                                     (int64_t)parts * kv_heads * tiles),
            shared = (256 + 4 * n_queries) * row + 256 * (n_queries + 8) +
                     (of_kind.document ? 24 : 16) * n_queries;
    stats.resize(2 * many + (size_t)turns, NAN);
    vector<float> sums = unwritten<float>((many + (heads > kv_heads ? 2 * few : 0)) * W);
    int forward_threads = simt || W > 128 || W % 16 ? 256 : 128,
        gradient_threads = W > 64 || W % 16 ? 256 : 128;
    int64_t forward_shared = simt ? 0 : 384 * row;
    auto map = [&](const T *at, int of_heads, int box) {
        return map_of((const bf16 *)at, tokens, sequence, of_heads * W, box);
    };
    auto launch_gradient = [&](bf16 *to_q, bf16 *to_k, bf16 *to_v) {
        /* with a cap on scores there is none of that form for 64 columns */
        if constexpr (FORM == WGMMA)
            if (rule.softcap == 0 || W == 128) {
                using room = attention_gradient_room<W>;
                fiber_launch(dim3(n * of, tiles), dim3(ATTENTION_WGMMA_THREADS), room::shared,
                             gradient_wgmma<W>, map(q.data(), heads, room::queries),
                             map(k.data(), kv_heads, room::rows),
                             map(v.data(), kv_heads, room::rows),
                             map(d_o.data(), heads, room::queries), stats.data(), sums.data(), to_q,
                             to_k, to_v, tokens, heads, kv_heads, sequence, scale, rule);
                return;
            }
        if constexpr (!simt)
            fiber_launch(dim3(n * of, tiles, parts), dim3(gradient_threads), shared, gradient<W>,
                         (const bf16 *)q.data(), (const bf16 *)k.data(), (const bf16 *)v.data(),
                         (const bf16 *)d_o.data(), stats.data(), sums.data(), to_q, to_k, to_v,
                         tokens, heads, kv_heads, sequence, scale, rule);
    };
    if constexpr (FORM == WGMMA)
        fiber_launch(dim3(n * of, tiles), dim3(ATTENTION_WGMMA_THREADS), attention_wgmma<W>::shared,
                     forward_wgmma<W>, map(q.data(), heads, 64), map(k.data(), kv_heads, 128),
                     map(v.data(), kv_heads, 128), o.data(), lse.data(), tokens, heads, kv_heads,
                     sequence, scale, rule);
    else
        fiber_launch(dim3(n * of, tiles), dim3(forward_threads), forward_shared,
                     forward<T, W, FORM>, (const T *)q.data(), (const T *)k.data(),
                     (const T *)v.data(), o.data(), lse.data(), tokens, heads, kv_heads, sequence,
                     scale, rule);
    fiber_launch(dim3(pieces_of_rows, n), dim3(256), 0, rows<T, W, FORM>, (const T *)o.data(),
                 (const T *)d_o.data(), (const float *)lse.data(), stats.data(), tokens, heads,
                 turns);
    bool same = true;
    if constexpr (simt) {
        fiber_launch(dim3(m * of, tiles, parts), dim3(256), 0, keys<T, W>, (const T *)q.data(),
                     (const T *)k.data(), (const T *)v.data(), (const T *)d_o.data(),
                     (const float *)stats.data(), dk.data(), dv.data(), tokens, heads, kv_heads,
                     sequence, scale, rule);
        fiber_launch(dim3(n * of, tiles), dim3(256), 0, queries<T, W>, (const T *)q.data(),
                     (const T *)k.data(), (const T *)v.data(), (const T *)d_o.data(),
                     (const float *)stats.data(), dq.data(), tokens, heads, kv_heads, sequence,
                     scale, rule);
    } else {
        launch_gradient(dq.data(), dk.data(), dv.data());
        /* another order of blocks and threads, the same bits */
        vector<T> again[3] = {dq, dk, dv};
        fiber_launch(dim3(pieces_of_rows, n), dim3(256), 0, rows<T, W, FORM>, (const T *)o.data(),
                     (const T *)d_o.data(), (const float *)lse.data(), stats.data(), tokens, heads,
                     turns);
        launch_gradient(again[0].data(), again[1].data(), again[2].data());
        same = again[0] == dq && again[1] == dk && again[2] == dv;
    }

    vector<float> stats_there = unwritten<float>(many), lse_back = unwritten<float>(many);
    unsigned pieces = (unsigned)((many + 255) / 256);
    fiber_launch(dim3(pieces), dim3(256), 0, attention_stats<true>, (const float *)lse.data(),
                 stats_there.data(), tokens, heads, sequence);
    fiber_launch(dim3(pieces), dim3(256), 0, attention_stats<false>,
                 (const float *)stats_there.data(), lse_back.data(), tokens, heads, sequence);
    bool there = lse_back == lse;
    for (int64_t t = 0; t < tokens; t++)
        for (int h = 0; h < heads; h++)
            there = there &&
                    stats_there[(size_t)((t / sequence * heads + h) * sequence + t % sequence)] ==
                        lse[(size_t)(t * heads + h)];

    /* BF16: weights and result are each rounded once, up to 2^-8 of either */
    double out = 0, log_sum = 0, bound = sizeof(T) == 2 ? 2.0 / 256 : 1e-5;
    for (size_t i = 0; i < o.size(); i++) {
        double error = std::fabs(value(o[i]) - want.o[i]) / want.size[i];
        if (!(error <= out)) out = error;
    }
    for (size_t i = 0; i < lse.size(); i++)
        if (!(std::fabs(lse[i] - want.lse[i]) <= log_sum))
            log_sum = std::fabs(lse[i] - want.lse[i]);
    double g = sizeof(T) == 2 ? 1e-2 : 1e-5, eq = norm_error(want.dq, dq),
           ek = norm_error(want.dk, dk), ev = norm_error(want.dv, dv);
    bool right = there && same && out <= bound && log_sum <= 2e-5 && eq <= g && ek <= g && ev <= g;
    wrong += !right;
    if (!right || getenv("SHOW"))
        printf("%s%s%s width %d, heads %d/%d, %d sequences of %d, window %d, documents of %d, cap "
               "%g: o %.2g, lse %.2g, dq %.2g, dk %.2g, dv %.2g\n",
               right ? "" : "wrong: ", sizeof(T) == 2 ? "bf16" : "f32",
               FORM == SIMT    ? " simt"
               : FORM == WGMMA ? " wgmma"
                               : "",
               W, heads, kv_heads, sequences, sequence, of_kind.window, of_kind.document,
               of_kind.softcap, out, log_sum, eq, ek, ev);
}

int main(void)
{
#ifndef ONLY_WGMMA
    check<bf16, 64, TENSOR>(4, 2, 1, 3);
    check<bf16, 64, TENSOR>(4, 2, 65, 2);
    check<bf16, 8, TENSOR>(8, 1, 100, 2);
    check<bf16, 16, TENSOR>(2, 2, 129, 2);
    check<bf16, 24, TENSOR>(3, 3, 100, 1);
    check<bf16, 48, TENSOR>(2, 1, 256, 1);
    check<bf16, 64, TENSOR>(4, 2, 300, 1);
    check<bf16, 96, TENSOR>(8, 1, 65, 1);
    check<bf16, 128, TENSOR>(3, 3, 100, 2);
    check<bf16, 128, TENSOR>(2, 1, 256, 1);
    check<bf16, 136, TENSOR>(2, 1, 65, 1);
    check<bf16, 256, TENSOR>(2, 1, 140, 1);
    check<bf16, 20, SIMT>(2, 1, 100, 2);
    check<float, 8, SIMT>(3, 3, 65, 2);
    check<float, 33, SIMT>(2, 1, 1, 3);
    check<float, 48, SIMT>(8, 1, 100, 1);
    check<float, 128, SIMT>(4, 2, 130, 1);
    check<float, 320, SIMT>(2, 1, 65, 1);
    check<bf16, 64, TENSOR>(2, 1, 300, 1, {1, 0, 0});
    check<bf16, 64, TENSOR>(4, 2, 400, 1, {100, 0, 0});
    check<bf16, 128, TENSOR>(2, 1, 330, 1, {37, 0, 3});
    check<bf16, 64, TENSOR>(2, 1, 260, 2, {0, 20, 0});
    check<bf16, 128, TENSOR>(2, 2, 300, 1, {0, 250, 5});
    check<bf16, 24, TENSOR>(2, 1, 300, 1, {60, 200, 2});
    check<bf16, 256, TENSOR>(2, 1, 150, 1, {50, 70, 3});
    check<bf16, 20, SIMT>(2, 1, 200, 1, {30, 60, 2});
    check<float, 16, SIMT>(2, 1, 300, 1, {70, 0, 2});
    check<float, 320, SIMT>(2, 1, 140, 1, {0, 30, 0});
#endif
    check<bf16, 64, WGMMA>(4, 2, 1, 3);
    check<bf16, 64, WGMMA>(2, 1, 300, 1);
    check<bf16, 128, WGMMA>(3, 3, 100, 2);
    check<bf16, 128, WGMMA>(2, 1, 512, 1);
    check<bf16, 64, WGMMA>(4, 2, 400, 1, {100, 0, 0});
    check<bf16, 64, WGMMA>(2, 1, 260, 2, {0, 20, 0});
    check<bf16, 128, WGMMA>(2, 1, 330, 1, {37, 0, 3});
    check<bf16, 128, WGMMA>(2, 2, 300, 1, {0, 250, 0});
    check<bf16, 128, WGMMA>(2, 1, 260, 1, {150, 90, 1.5});
    if (wrong) printf("%d shapes wrong\n", wrong);
    return wrong != 0;
}
