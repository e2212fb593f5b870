/* Matrix products, experts, embedding, tables and norms of templates/cuda under fibers, against
 * loops in double that follow the definition of each op. Sizes are awkward on purpose: no multiples
 * of a tile or of eight, experts without rows, one token that is everywhere. What only moves or
 * counts must be equal to the bit; sums of products lie within rounding of sum |a b|. */
#include "fiber.h"

#include "machine.cuh"
#include "op_math.h"

#include "embedding.cuh"
#include "experts.cuh"
#include "positions.cuh"
#include "product.cuh"
#include "row.cuh"
#include "runtime.cuh"
#include "sum_squares.cuh"

#include "templates.h"

/* ── products ────────────────────────────────────────────────────────────────── */
template <class TILE, bool TA, bool TB, bool ADD, class A, class B, class C>
static void tensor_kernel(const A *a, const B *b, C *c, int64_t m, int64_t n, int k)
{
    product_tensor<TILE, TA, TB, ADD>(a, b, c, m, n, k, TA ? m : k, TB ? k : n, n);
}
template <int EACH, bool TA, bool TB, bool ADD, class A, class B, class C>
static void plain_kernel(const A *a, const B *b, C *c, int64_t m, int64_t n, int k)
{
    product_plain<EACH, TA, TB, ADD>(a, b, c, m, n, k, TA ? m : k, TB ? k : n, n);
}

template <class A, class B, class C, class F>
static void product_case(const char *what, F launch, bool ta, bool tb, bool add, int64_t m,
                         int64_t n, int64_t k)
{
    buffer<A> a(m * k);
    buffer<B> b(k * n);
    buffer<C> c(m * n), before(m * n);
    a.fill(), b.fill(), c.fill();
    memcpy(before.at, c.at, (size_t)(m * n) * sizeof(C));
    if (!add) c.blank();
    launch(a.at, b.at, c.at);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = add ? get(before[i * n + j]) : 0.0, size = fabs(sum);
            for (int64_t s = 0; s < k; s++) {
                double x = (double)get(a[ta ? s * m + i : i * k + s]) *
                           (double)get(b[tb ? j * k + s : s * n + j]);
                sum += x, size += fabs(x);
            }
            want(close(get(c[i * n + j]), sum, size, sizeof(C) == 2), what, i * n + j,
                 get(c[i * n + j]), sum);
        }
    c.unharmed(what);
}

template <class TILE, bool TA, bool TB, bool ADD, class C>
static void tensor_case(int64_t m, int64_t n, int64_t k)
{
    product_case<bf16, bf16, C>(
        "tensor",
        [=](bf16 *a, bf16 *b, C *c) {
            fiber_launch(dim3((unsigned)(up(m, TILE::m) * up(n, TILE::n))), dim3(TILE::threads),
                         TILE::stages * TILE::stage_bytes,
                         tensor_kernel<TILE, TA, TB, ADD, bf16, bf16, C>, a, b, c, m, n, (int)k);
        },
        TA, TB, ADD, m, n, k);
}
template <class TILE, bool TA, bool TB> static void tensor_cases()
{
    tensor_case<TILE, TA, TB, false, bf16>(TILE::m + 8, TILE::n + 24, 200);
    tensor_case<TILE, TA, TB, false, float>(TILE::m / 2, TILE::n / 2, 24);
    tensor_case<TILE, TA, TB, true, float>(TILE::m, TILE::n, 384);
}
template <bool TA, bool TB> static void odd_cases()
{
    tensor_case<product_small, TA, TB, false, bf16>(67, 75, 37);
    tensor_case<product_small, TA, TB, true, float>(61, 131, 65);
    tensor_case<product_small, TA, TB, false, float>(5, 3, 1);
    tensor_case<product_small, TA, TB, false, bf16>(64, 75, 64);
    tensor_case<product_small, TA, TB, false, bf16>(75, 64, 80);
    tensor_cases<product_small, TA, TB>();
    tensor_cases<product_middle, TA, TB>();
    tensor_cases<product_large, TA, TB>();
}

template <int EACH, bool TA, bool TB, bool ADD, class A, class B, class C>
static void plain_case(int64_t m, int64_t n, int64_t k)
{
    product_case<A, B, C>(
        "plain",
        [=](A *a, B *b, C *c) {
            fiber_launch(dim3((unsigned)(up(m, 16 * EACH) * up(n, 16 * EACH))), dim3(256), 0,
                         plain_kernel<EACH, TA, TB, ADD, A, B, C>, a, b, c, m, n, (int)k);
        },
        TA, TB, ADD, m, n, k);
}
template <bool TA, bool TB> static void plain_cases()
{
    plain_case<4, TA, TB, false, float, float, float>(67, 75, 37);
    plain_case<8, TA, TB, true, float, float, float>(130, 257, 50);
    plain_case<4, TA, TB, true, float, bf16, float>(64, 40, 64);
    plain_case<8, TA, TB, false, bf16, float, bf16>(33, 129, 17);
}

/* F32 times BF16: planes of the F32 operand, parts of k where `parts` is more than one. */
static void split_kernel(const float *x, bf16 *to, int64_t n, int64_t plane)
{
    product_split(x, to, n, plane);
}
template <class TILE, bool TA, bool TB, bool SPLIT_A, bool ADD, class C>
static void planes_kernel(const bf16 *a, const bf16 *b, C *c, int64_t m, int64_t n, int k,
                          int64_t plane, int each)
{
    product_planes<TILE, TA, TB, SPLIT_A, ADD>(a, b, c, m, n, k, TA ? m : k, TB ? k : n, plane,
                                               each);
}
template <bool ADD, class C> static void join_kernel(const float *part, C *c, int64_t n, int parts)
{
    product_join<ADD>(part, c, n, parts);
}
template <class TILE, bool TA, bool TB, bool SPLIT_A, bool ADD, class C>
static void planes_case(int64_t m, int64_t n, int64_t k, int each)
{
    typedef std::conditional_t<SPLIT_A, float, bf16> A;
    typedef std::conditional_t<SPLIT_A, bf16, float> B;
    product_case<A, B, C>(
        "planes",
        [=](A *a, B *b, C *c) {
            int64_t elements = SPLIT_A ? m * k : k * n, plane = up(elements, 128) * 128,
                    parts = up(k, each);
            unsigned blocks = (unsigned)(up(m, TILE::m) * up(n, TILE::n));
            buffer<bf16> planes(3 * plane);
            buffer<float> part(parts * m * n);
            fiber_launch(dim3((unsigned)up(elements, 1024)), dim3(256), 0, split_kernel,
                         SPLIT_A ? (const float *)a : (const float *)b, planes.at, elements, plane);
            const bf16 *left = SPLIT_A ? planes.at : (const bf16 *)a,
                       *right = SPLIT_A ? (const bf16 *)b : planes.at;
            if (parts == 1)
                fiber_launch(dim3(blocks), dim3(TILE::threads), TILE::stages * TILE::stage_bytes,
                             planes_kernel<TILE, TA, TB, SPLIT_A, ADD, C>, left, right, c, m, n,
                             (int)k, plane, each);
            else {
                fiber_launch(dim3(blocks, (unsigned)parts), dim3(TILE::threads),
                             TILE::stages * TILE::stage_bytes,
                             planes_kernel<TILE, TA, TB, SPLIT_A, false, float>, left, right,
                             part.at, m, n, (int)k, plane, each);
                fiber_launch(dim3((unsigned)up(m * n, 256)), dim3(256), 0, join_kernel<ADD, C>,
                             (const float *)part.at, c, m * n, (int)parts);
            }
            planes.unharmed("planes"), part.unharmed("parts");
        },
        TA, TB, ADD, m, n, k);
}
static void split_cases()
{
    planes_case<product_small, false, false, true, false, bf16>(72, 136, 40, 64);
    planes_case<product_small, true, false, true, false, float>(40, 72, 300, 128);
    planes_case<product_small, true, false, false, true, float>(64, 80, 200, 64);
    planes_case<product_middle, false, true, true, true, float>(130, 264, 72, 128);
    planes_case<product_large, true, false, true, false, bf16>(128, 256, 256, 128);
    /* three parts are all of a float, whatever its size; what is not finite stays so */
    buffer<float> x(11);
    buffer<bf16> planes(384);
    const float some[] = {1.0f, -3.14159274f, 3.40282347e38f, -1.17549435e-38f, 1e-30f, 16777215.0f,
                          0.0f, -0.0f,        INFINITY,       -INFINITY,        NAN};
    memcpy(x.at, some, sizeof some);
    fiber_launch(dim3(1), dim3(256), 0, split_kernel, (const float *)x.at, planes.at, (int64_t)11,
                 (int64_t)128);
    for (int64_t i = 0; i < 11; i++) {
        double sum = (double)get(planes[i]) + get(planes[128 + i]) + get(planes[256 + i]);
        want(sum == (double)some[i] || (sum != sum && some[i] != some[i]) ||
                 fabs(sum - (double)some[i]) < 1e-38,
             "split", i, sum, (double)some[i]);
    }
}

/* ── experts ─────────────────────────────────────────────────────────────────── */
template <class TILE, bool ACROSS, class Y>
static void expert_kernel(const bf16 *z, const bf16 *w, const int32_t *first, Y *y, int experts,
                          int in, int out)
{
    expert_product<TILE, ACROSS>(z, w, first, y, experts, in, out);
}
template <int EACH, bool ACROSS, class T>
static void expert_plain_kernel(const T *z, const T *w, const int32_t *first, T *y, int experts,
                                int in, int out)
{
    expert_plain<EACH, ACROSS>(z, w, first, y, experts, in, out);
}
template <class TILE>
static void expert_grad_kernel(const bf16 *dy, const bf16 *z, const int32_t *first, float *dw,
                               int in, int out)
{
    expert_product_grad<TILE>(dy, z, first, dw, in, out);
}
template <int EACH, class T>
static void expert_plain_grad_kernel(const T *dy, const T *z, const int32_t *first, float *dw,
                                     int in, int out)
{
    expert_plain_grad<EACH>(dy, z, first, dw, in, out);
}

struct tile_of {
    int m, n, threads;
    int64_t shared;
};
template <class T, class F, class G>
static void expert_case(const char *what, F forward, G grad, struct tile_of tile, bool across,
                        std::vector<int> rows, int64_t in, int64_t out)
{
    expert_operands<T> e(rows, in, out);
    fiber_launch(dim3((unsigned)((e.total / tile.m + e.experts) * up(out, tile.n))),
                 dim3((unsigned)tile.threads), tile.shared, forward, e.z.at, e.w.at, e.first.at,
                 e.y.at, (int)e.experts, (int)in, (int)out);
    fiber_launch(dim3((unsigned)(e.experts * up(out, tile.m) * up(in, tile.n))),
                 dim3((unsigned)tile.threads), tile.shared, grad, e.dy.at, e.z.at, e.first.at,
                 e.dw.at, (int)in, (int)out);
    e.agree(what, across);
}
template <class TILE> static void expert_cases(std::vector<int> rows, int64_t in, int64_t out)
{
    struct tile_of tile = {TILE::m, TILE::n, TILE::threads, TILE::stages * TILE::stage_bytes};
    expert_case<bf16>("expert", expert_kernel<TILE, false, bf16>, expert_grad_kernel<TILE>, tile,
                      false, rows, in, out);
    expert_case<bf16>("expert across", expert_kernel<TILE, true, bf16>, expert_grad_kernel<TILE>,
                      tile, true, rows, in, out);
}
template <int EACH> static void expert_plain_cases(std::vector<int> rows, int64_t in, int64_t out)
{
    struct tile_of tile = {16 * EACH, 16 * EACH, 256, 0};
    expert_case<float>("plain expert", expert_plain_kernel<EACH, false, float>,
                       expert_plain_grad_kernel<EACH, float>, tile, false, rows, in, out);
    expert_case<float>("plain expert across", expert_plain_kernel<EACH, true, float>,
                       expert_plain_grad_kernel<EACH, float>, tile, true, rows, in, out);
}

/* ── choices, orders, rows ───────────────────────────────────────────────────── */
template <int G, int C, int K, bool EACH>
static void top_kernel(const float *p, int32_t *ids, int64_t rows)
{
    constexpr int ROUNDS = (C + 8 * G - 1) / (8 * G);
    int t = (int)threadIdx.x % G;
    int64_t r = (int64_t)blockIdx.x * (blockDim.x / G) + (int)threadIdx.x / G;
    if (r >= rows) return;
    float own[ROUNDS][8] = {};
    for (int i = 0; i < ROUNDS; i++)
        for (int k = 0; k < 8; k++)
            if (int j = 8 * (t + i * G) + k; j < C) own[i][k] = p[r * C + j];
    int32_t mine[K];
    row_top<G, G, C, K, EACH>(EACH ? mine : ids + r * K, own);
    if (EACH && t == G - 1)
        for (int k = 0; k < K; k++) ids[r * K + k] = mine[k];
}
/* G threads a row of C columns, of which K are chosen. */
template <int G, int C, int K, bool EACH> static void top_case(int64_t rows)
{
    buffer<float> p(rows * C);
    buffer<int32_t> ids(rows * K);
    for (int64_t i = 0; i < rows * C; i++) {
        uint32_t kind = random_bits() % 16;
        p[i] = kind == 0   ? NAN
               : kind == 1 ? -INFINITY
               : kind == 2 ? INFINITY
                           : (float)(random_bits() % 5);
    }
    int threads = G > 32 ? G : 256;
    fiber_launch(dim3((unsigned)up(rows, threads / G)), dim3((unsigned)threads), 0,
                 top_kernel<G, C, K, EACH>, p.at, ids.at, rows);
    for (int64_t t = 0; t < rows; t++) {
        std::vector<bool> taken((size_t)C);
        for (int j = 0; j < K; j++) {
            int best = -1;
            for (int e = 0; e < C; e++) {
                auto rank = [&](int at) {
                    float x = p[t * C + at];
                    return x == x ? x : -INFINITY;
                };
                if (!taken[(size_t)e] && (best < 0 || rank(e) > rank(best))) best = e;
            }
            taken[(size_t)best] = true;
            want(ids[t * K + j] == best, "row_top", t * K + j, ids[t * K + j], best);
        }
    }
    ids.unharmed("row_top");
}

template <int BINS>
static void count_kernel(const int32_t *ids, const int32_t *order, int32_t *counts, int n,
                         int chunk, int chunks, int shift)
{
    sort_count<BINS>(ids, order, counts, n, chunk, chunks, shift);
}
template <int BINS> static void scan_kernel(int32_t *counts, int32_t *first, int chunks)
{
    sort_scan<BINS>(counts, first, chunks);
}
template <int BINS, bool INVERSE>
static void place_kernel(const int32_t *ids, const int32_t *order, const int32_t *counts,
                         int32_t *to, int n, int chunk, int chunks, int shift)
{
    sort_place<BINS, INVERSE>(ids, order, counts, to, n, chunk, chunks, shift);
}
template <int BINS, bool INVERSE>
static void sort_pass(const int32_t *ids, const int32_t *order, int32_t *first, int32_t *to, int n,
                      int chunk, int shift)
{
    int chunks = (int)up(n, chunk);
    buffer<int32_t> counts(BINS * chunks);
    fiber_launch(dim3((unsigned)chunks), dim3(256), 0, count_kernel<BINS>, ids, order, counts.at, n,
                 chunk, chunks, shift);
    fiber_launch(dim3(1), dim3(1024), 0, scan_kernel<BINS>, counts.at, first, chunks);
    fiber_launch(dim3((unsigned)chunks), dim3(256), 0, place_kernel<BINS, INVERSE>, ids, order,
                 (const int32_t *)counts.at, to, n, chunk, chunks, shift);
    counts.unharmed("counts");
}

template <class T>
static void dispatch_kernel(const T *x, const int32_t *place, T *z, int64_t tokens, int k,
                            int width)
{
    dispatch(x, place, z, tokens, k, width);
}
template <class T, bool WIDE>
static void collect_kernel(const T *z, const int32_t *place, T *y, int64_t tokens, int k, int width)
{
    collect<T, WIDE>(z, place, y, tokens, k, width);
}
static void to_rows_kernel(const float *w, const int32_t *place, float *out, int64_t n)
{
    to_rows(w, place, out, n);
}
static void from_rows_kernel(const float *w, const int32_t *place, float *out, int64_t n)
{
    from_rows(w, place, out, n);
}

template <int EXPERTS> static void route_case(int64_t tokens, int k, int chunk, int width)
{
    int n = (int)(tokens * k);
    buffer<int32_t> ids(n), place(n), first(EXPERTS + 1);
    std::vector<int> count(EXPERTS), begin(EXPERTS + 1);
    for (int i = 0; i < n; i++)
        ids[i] = (int32_t)(random_bits() % 3 ? random_bits() % EXPERTS : 1),
        ids[i] = ids[i] == 2 ? 0 : ids[i], count[(size_t)ids[i]]++;
    for (int e = 0; e < EXPERTS; e++) begin[(size_t)e + 1] = begin[(size_t)e] + count[(size_t)e];
    sort_pass<EXPERTS, true>(ids.at, nullptr, first.at, place.at, n, chunk, -1);
    std::vector<int> next = begin;
    for (int i = 0; i < n; i++) {
        int at = next[(size_t)ids[i]]++;
        want(place[i] == at, "route_plan", i, place[i], at);
    }
    for (int e = 0; e <= EXPERTS; e++)
        want(first[e] == begin[(size_t)e], "first", e, first[e], begin[(size_t)e]);

    buffer<bf16> x(tokens * width), z(n * width), y(tokens * width), y1(tokens * width);
    x.fill();
    int pieces = width * 2 / 4;
    fiber_launch(dim3((unsigned)up(tokens * pieces, 256)), dim3(256), 0, dispatch_kernel<uint32_t>,
                 (const uint32_t *)x.at, place.at, (uint32_t *)z.at, tokens, k, pieces);
    for (int i = 0; i < n; i++)
        for (int c = 0; c < width; c++)
            want(z[place[i] * width + c] == x[i / k * width + c], "dispatch", i,
                 z[place[i] * width + c], x[i / k * width + c]);
    z.fill();
    if (width % 8 == 0)
        fiber_launch(dim3((unsigned)up(tokens * width / 8, 256)), dim3(256), 0,
                     collect_kernel<bf16, true>, z.at, place.at, y.at, tokens, k, width);
    fiber_launch(dim3((unsigned)up(tokens * width, 256)), dim3(256), 0, collect_kernel<bf16, false>,
                 z.at, place.at, y1.at, tokens, k, width);
    for (int64_t t = 0; t < tokens; t++)
        for (int c = 0; c < width; c++) {
            float sum = get(z[place[t * k] * width + c]);
            for (int j = 1; j < k; j++) sum += get(z[place[t * k + j] * width + c]);
            want(y1[t * width + c] == op_to_bf16(sum) &&
                     (width % 8 || y[t * width + c] == y1[t * width + c]),
                 "collect", t * width + c, get(y1[t * width + c]), sum);
        }
    buffer<float> w(n), rows(n), back(n);
    w.fill();
    fiber_launch(dim3((unsigned)up(n, 256)), dim3(256), 0, to_rows_kernel, w.at, place.at, rows.at,
                 n);
    fiber_launch(dim3((unsigned)up(n, 256)), dim3(256), 0, from_rows_kernel, rows.at, place.at,
                 back.at, n);
    for (int i = 0; i < n; i++)
        want(rows[place[i]] == w[i] && back[i] == w[i], "rows", i, back[i], w[i]);
    place.unharmed("place"), z.unharmed("z"), y.unharmed("y"), y1.unharmed("y");
}

/* ── embedding ───────────────────────────────────────────────────────────────── */
template <class T>
static void embedding_kernel(const int32_t *ids, const T *table, T *out, int64_t tokens, int width)
{
    embedding(ids, table, out, tokens, width);
}
static void clear_kernel(float *dw, int64_t n) { embedding_clear(dw, n); }
template <int EACH, int THREADS, class T>
static void embedding_grad_kernel(const int32_t *ids, const int32_t *order, const T *dy, float *dw,
                                  int tokens, int width)
{
    embedding_grad<EACH, THREADS>(ids, order, dy, dw, tokens, width);
}
/* Keys of twice BITS bits: two passes. */
template <int BITS, int EACH, int THREADS, class T>
static void embedding_case(int tokens, int rows, int width)
{
    buffer<int32_t> ids(tokens), one(tokens), two(tokens);
    for (int t = 0; t < tokens; t++)
        ids[t] = (int32_t)(random_bits() % 3 ? random_bits() % (unsigned)rows : (unsigned)rows - 1);
    buffer<T> table(rows * width), out(tokens * width), dy(tokens * width);
    buffer<float> dw(rows * width);
    table.fill(), dy.fill();
    fiber_launch(dim3((unsigned)up(tokens * width, 256)), dim3(256), 0, embedding_kernel<T>, ids.at,
                 table.at, out.at, tokens, width);
    for (int t = 0; t < tokens; t++)
        for (int c = 0; c < width; c++)
            want(out[t * width + c] == table[ids[t] * width + c], "embedding", t * width + c,
                 get(out[t * width + c]), get(table[ids[t] * width + c]));
    sort_pass<1 << BITS, false>(ids.at, nullptr, nullptr, one.at, tokens, 256, 0);
    sort_pass<1 << BITS, false>(ids.at, one.at, nullptr, two.at, tokens, 256, BITS);
    fiber_launch(dim3((unsigned)up(rows * width, 1024)), dim3(256), 0, clear_kernel, dw.at,
                 rows * width);
    fiber_launch(dim3((unsigned)tokens, (unsigned)up(width, THREADS * EACH)), dim3(THREADS), 0,
                 embedding_grad_kernel<EACH, THREADS, T>, ids.at, two.at, dy.at, dw.at, tokens,
                 width);
    std::vector<float> sum((size_t)(rows * width));
    for (int t = 0; t < tokens; t++)
        for (int c = 0; c < width; c++) sum[(size_t)(ids[t] * width + c)] += get(dy[t * width + c]);
    for (int i = 0; i < rows * width; i++)
        want(dw[i] == sum[(size_t)i], "embedding gradient", i, dw[i], sum[(size_t)i]);
    dw.unharmed("embedding gradient"), out.unharmed("embedding");
}

/* ── tables, norms, what the runtime launches ────────────────────────────────── */
static void positions_kernel(int32_t *out, int64_t tokens, int64_t sequence)
{
    positions(out, tokens, sequence);
}
static void cos_kernel(float *out, int64_t sequence, int64_t width, int64_t turned, double factor)
{
    rope_cos(out, sequence, width, turned, 1e4, 2, factor, 1, 4, 64);
}
static void sin_kernel(float *out, int64_t sequence, int64_t width, int64_t turned, double factor)
{
    rope_sin(out, sequence, width, turned, 1e4, 2, factor, 1, 4, 64);
}
static void tables()
{
    int64_t sequence = 37, width = 10;
    buffer<int32_t> at(100);
    buffer<float> c(sequence * width), s(sequence * width);
    fiber_launch(dim3(1), dim3(256), 0, positions_kernel, at.at, (int64_t)100, sequence);
    for (int64_t t = 0; t < 100; t++)
        want(at[t] == t % sequence, "positions", t, at[t], (double)(t % sequence));
    for (int k = 0; k < 4; k++) {
        const double factor = k % 2 ? 8 : 1;
        const int64_t turned = k / 2 ? 6 : width, half = turned / 2; /* columns that turn */
        const dim3 blocks((unsigned)up(sequence * width, 256));
        fiber_launch(blocks, dim3(256), 0, cos_kernel, c.at, sequence, width, turned, factor);
        fiber_launch(blocks, dim3(256), 0, sin_kernel, s.at, sequence, width, turned, factor);
        for (int64_t i = 0; i < sequence * width; i++) {
            const int64_t j = i % width;
            double f = pow(1e4, -2.0 * (double)(j % half) / (double)turned) / 2,
                   turns = 64 * f / 6.283185307179586, share = (turns - 1) / 3;
            if (factor > 1)
                f = turns > 4 ? f : turns < 1 ? f / factor : (1 - share) * f / factor + share * f;
            double angle = j < turned ? (double)(i / width) * f : 0,
                   sine = j < half ? -sin(angle) : sin(angle);
            want(fabs(c[i] - cos(angle)) < 1e-7, "rope_cos", i, c[i], cos(angle));
            want(fabs(s[i] - sine) < 1e-7, "rope_sin", i, s[i], sine);
        }
    }
    at.unharmed("positions"), c.unharmed("rope_cos"), s.unharmed("rope_sin");
}

static void parts_kernel(const float *x, double *part, int64_t from, int64_t count)
{
    sum_squares_parts(x, part, from, count);
}
static void short_kernel(const float *x, double *out, int64_t from, int64_t count)
{
    sum_squares_short(x, out, from, count);
}
static void add_kernel(const double *part, double *out, int parts)
{
    sum_squares_add(part, out, parts);
}
static void norms()
{
    buffer<float> x(20000);
    buffer<double> part(8), out(1);
    for (int64_t from : {0, 1, 2, 3, 4000})
        for (int64_t count : {1, 2, 3, 4, 7, 1030, 15001}) {
            x.blank();
            double sum = out[0] = 1.5;
            for (int64_t i = from; i < from + count; i++)
                x[i] = random_value(), sum += (double)x[i] * (double)x[i];
            int parts = (int)up(count, 4096);
            fiber_launch(dim3((unsigned)parts), dim3(256), 0, parts_kernel, x.at, part.at, from,
                         count);
            fiber_launch(dim3(1), dim3(256), 0, add_kernel, part.at, out.at, parts);
            want(fabs(out[0] - sum) < 1e-12 * sum, "sum_squares", from, out[0], sum);
            out[0] = 1.5;
            fiber_launch(dim3(1), dim3(256), 0, short_kernel, x.at, out.at, from, count);
            want(fabs(out[0] - sum) < 1e-12 * sum, "sum_squares", from, out[0], sum);
        }
    part.unharmed("parts");
}

static void shards()
{
    for (int64_t n : {1, 3, 4, 1000, 2051})
        for (int shift = 0; shift < 2; shift++) {
            buffer<float> from(n + 1), to(n + 1), sum(n + 1);
            buffer<bf16> half(n + 1);
            from.fill(), sum.fill();
            std::vector<float> before(sum.at, sum.at + n + 1);
            unsigned blocks = (unsigned)up(n, 1024);
            fiber_launch(dim3(blocks), dim3(256), 0, runtime_cast_bf16, from.at, half.at + shift,
                         n);
            fiber_launch(dim3(blocks), dim3(256), 0, runtime_set_f32, from.at, to.at + shift, n);
            fiber_launch(dim3(blocks), dim3(256), 0, runtime_add_f32, from.at, sum.at + shift, n);
            for (int64_t i = 0; i < n; i++) {
                want(half[i + shift] == op_to_bf16(from[i]), "cast", i, get(half[i + shift]),
                     from[i]);
                want(to[i + shift] == from[i], "copy", i, to[i + shift], from[i]);
                want(sum[i + shift] == before[(size_t)(i + shift)] + from[i], "add", i,
                     sum[i + shift], from[i]);
            }
        }
}

int main()
{
    odd_cases<false, false>(), odd_cases<false, true>(), odd_cases<true, false>(),
        odd_cases<true, true>();
    plain_cases<false, false>(), plain_cases<false, true>(), plain_cases<true, false>(),
        plain_cases<true, true>();
    split_cases();
    expert_cases<product_small>({0, 3, 70, 0, 64, 1, 0}, 40, 72);
    expert_cases<product_small>({11, 0, 130, 2, 7}, 37, 53);
    expert_cases<product_middle>({0, 300, 1}, 136, 152);
    expert_cases<product_large>({5, 0, 129}, 72, 264);
    expert_plain_cases<4>({11, 0, 70, 2, 7}, 37, 53);
    expert_plain_cases<8>({0, 140, 3}, 40, 130);
    std::vector<int> many(70);
    for (size_t e = 0; e < many.size(); e++) many[e] = (int)(e * 7 % 5);
    expert_cases<product_small>(many, 8, 8);
    top_case<1, 5, 2, false>(300), top_case<1, 1, 1, true>(9), top_case<8, 37, 8, true>(50);
    top_case<16, 128, 8, false>(20), top_case<16, 128, 20, true>(20);
    top_case<64, 300, 8, false>(9), top_case<128, 1000, 3, true>(5);
    route_case<5>(300, 2, 256, 30), route_case<37>(700, 4, 512, 64), route_case<128>(40, 8, 256, 8);
    embedding_case<5, 1, 32, bf16>(700, 257, 37);
    embedding_case<5, 8, 32, bf16>(300, 1000, 264);
    embedding_case<5, 4, 64, float>(520, 1000, 300);
    tables(), norms(), shards();
    return failures != 0;
}
