/* Warpgroup products under fibers. First the wrappers alone: operands that the host lays out by the
 * manual's canonical layouts, as CuTe writes them, in all four ways to lie, and one in registers.
 * Then the products of product_wgmma.cuh and experts_wgmma.cuh against plain loops, with more and
 * fewer blocks than tiles, rows that fill no tile, experts without rows and experts beside others
 * that hold NaN. `templates_wgmma NAME` runs a planted mistake: it must not come out right. */
#include "fiber.h"

#include "experts_wgmma.cuh"
#include "machine.cuh"
#include "op_math.h"

#include "templates.h"

/* ── the wrappers ────────────────────────────────────────────────────────────── */
enum mistake {
    RIGHT,
    NO_WRITTEN,
    WRITTEN_TOO_EARLY,
    NO_BEGIN,
    WRONG_STRIDE,
    WRONG_LEADING,
    WRONG_MAJOR,
    NO_SWIZZLE,
    SUMS_TOUCHED,
    NO_WAIT,
    OVERWRITTEN,
    RELEASED_TOO_EARLY,
    NO_ARRIVAL_AWAITED,
    WRONG_PARITY,
    ONE_WARP_LESS,
    BARRIER_UNORDERED,
    BARRIER_OVERWRITTEN,
    REGISTERS_TOUCHED,
    READ_TOO_EARLY
};
enum { K = 64, A_BYTES = 64 * K * 2, B_BYTES = 256 * K * 2, IMAGE = A_BYTES + B_BYTES };

/* out[64, 256] = a b of a shared image, twice, through one stage; the fifth warp brings it. */
template <bool DEEP_A, bool DEEP_B, mistake M>
static void image_kernel(const unsigned char *image, float *out)
{
    DYNAMIC_SHARED(shared);
    constexpr int PANEL = WGMMA_PANEL(K);
    unsigned char *stage = shared + (-shared_address(shared) & 1023);
    uint64_t *full = (uint64_t *)(stage + IMAGE), *empty = full + 1;
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x & 31;
    if (threadIdx.x == 0) mbarrier_begin(full, 32), mbarrier_begin(empty, 4);
    if (M != BARRIER_UNORDERED) __syncthreads();
    if (warp == 4) {
        for (int round = 0; round < 2; round++) {
            if (M != OVERWRITTEN || round == 0) mbarrier_wait(empty, round ^ 1);
            if (M == WRITTEN_TOO_EARLY) wgmma_written();
            for (int i = lane * 16; i < IMAGE; i += 512)
                *(uint4 *)(stage + i) = *(const uint4 *)(image + round * IMAGE + i);
            mbarrier_arrive(full);
        }
        if (M == BARRIER_OVERWRITTEN && lane == 0) full[0] = 0;
        return;
    }
    constexpr bool MAJOR_A = M == WRONG_MAJOR ? !DEEP_A : DEEP_A;
    uint64_t a = wgmma_descriptor<DEEP_A, PANEL>(shared_address(stage)),
             b = wgmma_descriptor<DEEP_B, PANEL>(shared_address(stage + A_BYTES));
    if (M == WRONG_STRIDE) a += (uint64_t)8 << 32;
    if (M == WRONG_LEADING) b -= (uint64_t)64 << 16;
    for (int round = 0; round < 2; round++) {
        float d[32][4];
        if (M != NO_ARRIVAL_AWAITED) mbarrier_wait(full, M == WRONG_PARITY ? round ^ 1 : round);
        if (M != NO_WRITTEN && M != WRITTEN_TOO_EARLY) wgmma_written();
        if (M != NO_BEGIN || round == 0) wgmma_begin();
        for (int s = 0; s < K / 16; s++) {
            if (M == SUMS_TOUCHED && s == 2) d[3][1] = 1.0f;
            if (M == ONE_WARP_LESS && s == 3 && warp == 1) continue;
            wgmma_64xNx16<MAJOR_A, DEEP_B>(d, a + s * (WGMMA_STEP(DEEP_A) / 16),
                                           b + s * (WGMMA_STEP(DEEP_B) / 16), s > 0);
        }
        wgmma_commit();
        if (M == RELEASED_TOO_EARLY && lane == 0) mbarrier_arrive(empty);
        if (M != NO_WAIT) wgmma_wait_all(d);
        if (M != RELEASED_TOO_EARLY && lane == 0) mbarrier_arrive(empty);
        for (int j = 0; j < 32; j++)
            for (int i = 0; i < 4; i++)
                out[round * 64 * 256 + (16 * warp + lane / 4 + 8 * (i / 2)) * 256 + 8 * j +
                    2 * (lane % 4) + i % 2] = d[j][i];
        if (M == NO_WAIT) wgmma_wait_all(d);
    }
}

/* Bytes from the beginning to an element, by the canonical layouts of 16-bit elements, T = 8 to 16
 * bytes: K-major ((8,m),(T,2)):((8T,SBO),(1,T)), MN-major ((T,8,m),(8,k)):((1,T,LBO),(8T,SBO)), and
 * Swizzle<3,4,3> on bytes. */
static int canonical(bool deep, int mn, int k, bool swizzled)
{
    const int T = 8, SBO = 512, LBO = K * 64;
    int element = deep ? mn % 8 * 8 * T + mn / 8 * SBO + k % T + k / T * T
                       : mn % T + mn / T % 8 * T + mn / (8 * T) * LBO + k % 8 * 8 * T + k / 8 * SBO;
    return element * 2 ^ (swizzled ? (element * 2 >> 7 & 7) << 4 : 0);
}
template <bool DEEP_A, bool DEEP_B, mistake M> static bool image_case()
{
    buffer<float> a(2 * 64 * K), b(2 * K * 256);
    buffer<unsigned char> image(2 * IMAGE);
    buffer<float> out(2 * 64 * 256);
    bool right = true;
    auto put_at = [&](int64_t at, float x) {
        bf16 h = op_to_bf16(x);
        memcpy(image.at + at, &h, 2);
    };
    for (int r = 0; r < 2; r++)
        for (int k = 0; k < K; k++) {
            for (int m = 0; m < 64; m++)
                a[(r * 64 + m) * K + k] = (float)(int)(random_bits() % 9) - 4,
                                     put_at(r * IMAGE + canonical(DEEP_A, m, k, M != NO_SWIZZLE),
                                            a[(r * 64 + m) * K + k]);
            for (int n = 0; n < 256; n++)
                b[(r * K + k) * 256 + n] = (float)(int)(random_bits() % 9) - 4,
                                      put_at(r * IMAGE + A_BYTES +
                                                 canonical(DEEP_B, n, k, M != NO_SWIZZLE),
                                             b[(r * K + k) * 256 + n]);
        }
    fiber_launch(dim3(1), dim3(160), IMAGE + 1024 + 16, image_kernel<DEEP_A, DEEP_B, M>,
                 (const unsigned char *)image.at, out.at);
    for (int i = 0; i < 2 * 64 * 256; i++) {
        float sum = 0;
        for (int k = 0; k < K; k++)
            sum += a[i / 256 * K + k] * b[(i / (64 * 256) * K + k) * 256 + i % 256];
        if (M == RIGHT) want(out[i] == sum, "image", i, out[i], sum);
        right = right && out[i] == sum;
    }
    return right;
}
/* A product with its left operand in registers, and one of the same with it in shared memory: two
 * sums under way. out: both, [64, N]. */
template <int N, bool DEEP_B, mistake M>
static void pair_kernel(const unsigned char *image, const uint32_t *fragment, float *out)
{
    DYNAMIC_SHARED(shared);
    unsigned char *stage = shared + (-shared_address(shared) & 1023);
    if (threadIdx.x == 0) mbarrier_begin((uint64_t *)(stage + IMAGE), 1); /* orders are watched */
    __syncthreads();
    for (int i = (int)threadIdx.x * 4; i < IMAGE; i += 512)
        *(uint32_t *)(stage + i) = *(const uint32_t *)(image + i);
    wgmma_written();
    __syncthreads();
    uint64_t left = wgmma_descriptor<true, 0>(shared_address(stage)),
             b = wgmma_descriptor<DEEP_B, WGMMA_PANEL(K)>(shared_address(stage + A_BYTES));
    float d[2][N / 8][4];
    uint32_t a[K / 16][4];
    for (int i = 0; i < K / 4; i++) a[i / 4][i % 4] = fragment[(int)threadIdx.x * K / 4 + i];
    for (int i = 0; i < N / 2; i++) d[0][i / 4][i % 4] = 0.0f;
    wgmma_begin();
    for (int s = 0; s < K / 16; s++)
        wgmma_64xNx16<DEEP_B>(d[0], a[s], b + s * (WGMMA_STEP(DEEP_B) / 16));
    wgmma_commit();
    for (int s = 0; s < K / 16; s++)
        wgmma_64xNx16<true, DEEP_B>(d[1], left + s * (WGMMA_STEP(true) / 16),
                                    b + s * (WGMMA_STEP(DEEP_B) / 16), s > 0);
    wgmma_commit();
    if (M == REGISTERS_TOUCHED) a[2][1] ^= 1;
    wgmma_wait_for<1>(d[0], a);
    if (M != READ_TOO_EARLY) wgmma_wait_for<0>(d[1]);
    int row = (int)threadIdx.x / 32 * 16 + (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4;
    for (int i = 0; i < N; i++)
        out[i / (N / 2) * 64 * N + (row + i / 2 % 2 * 8) * N + i % (N / 2) / 4 * 8 + t * 2 +
            i % 2] = d[i / (N / 2)][i % (N / 2) / 4][i % 4];
    if (M == READ_TOO_EARLY) wgmma_wait_for<0>(d[1]);
}
template <int N, bool DEEP_B, mistake M> static bool pair_case()
{
    buffer<float> a(64 * K), b(K * N), out(2 * 64 * N);
    buffer<unsigned char> image(IMAGE);
    buffer<uint32_t> fragment(128 * K / 4);
    bool right = true;
    memset(image.at, 0, IMAGE), memset(fragment.at, 0, 128 * K);
    auto put_at = [&](unsigned char *at, float x) {
        bf16 h = op_to_bf16(x);
        memcpy(at, &h, 2);
    };
    for (int k = 0; k < K; k++) {
        for (int m = 0; m < 64; m++) {
            /* row g or g + 8 of the warp, k 2 t or 2 t + 8 of 16, and the one after */
            int thread = m / 16 * 32 + m % 8 * 4 + k % 8 / 2,
                word = k / 16 * 4 + m / 8 % 2 + k / 8 % 2 * 2;
            float x = a[m * K + k] = (float)(int)(random_bits() % 9) - 4;
            put_at(image.at + canonical(true, m, k, true), x);
            put_at((unsigned char *)(fragment.at + thread * K / 4 + word) + k % 2 * 2, x);
        }
        for (int n = 0; n < N; n++)
            put_at(image.at + A_BYTES + canonical(DEEP_B, n, k, true),
                   b[k * N + n] = (float)(int)(random_bits() % 9) - 4);
    }
    fiber_launch(dim3(1), dim3(128), IMAGE + 1024 + 16, pair_kernel<N, DEEP_B, M>,
                 (const unsigned char *)image.at, (const uint32_t *)fragment.at, out.at);
    for (int i = 0; i < 2 * 64 * N; i++) {
        float sum = 0;
        for (int k = 0; k < K; k++) sum += a[i / N % 64 * K + k] * b[k * N + i % N];
        if (M == RIGHT) want(out[i] == sum, "pair", i, out[i], sum);
        right = right && out[i] == sum;
    }
    return right;
}
/* ── products ────────────────────────────────────────────────────────────────── */
static tensor_map map_of(const bf16 *at, int64_t planes, int64_t lines, int64_t elements, int rows,
                         bool deep)
{
    tensor_map map;
    const char *why = fiber_tensor_of(&map, at, planes, lines, elements, WGMMA_BOX(rows, deep));
    if (why) printf("no map: %s\n", why), exit(1);
    return map;
}
template <bool TA, bool TB, bool ADD, class C>
static void product_kernel(const tensor_map a, const tensor_map b, C *c, int64_t m, int64_t n,
                           int k)
{
    product_wgmma<TA, TB, ADD>(&a, &b, c, m, n, k, n);
}
/* rows_b: of b a tile, as the map says. */
template <bool TA, bool TB, bool ADD, class C>
static void product_case(int blocks, int64_t m, int64_t n, int64_t k, int rows_b = wgmma_tile::n)
{
    buffer<bf16> a(m * k), b(k * n);
    buffer<C> c(m * n);
    a.fill(), b.fill(), c.fill();
    std::vector<C> before(c.at, c.at + m * n);
    if (!ADD) c.blank();
    fiber_launch(dim3((unsigned)blocks), dim3(WGMMA_THREADS), WGMMA_SHARED,
                 product_kernel<TA, TB, ADD, C>,
                 map_of(a.at, 1, TA ? k : m, TA ? m : k, wgmma_tile::m, !TA),
                 map_of(b.at, 1, TB ? n : k, TB ? k : n, rows_b, TB), c.at, m, n, (int)k);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = ADD ? get(before[(size_t)(i * n + j)]) : 0.0, size = fabs(sum);
            for (int64_t s = 0; s < k; s++) {
                double x = (double)get(a[TA ? s * m + i : i * k + s]) *
                           (double)get(b[TB ? j * k + s : s * n + j]);
                sum += x, size += fabs(x);
            }
            want(close(get(c[i * n + j]), sum, size, sizeof(C) == 2), "product", i * n + j,
                 get(c[i * n + j]), sum);
        }
    c.unharmed("product");
}

/* ── experts ─────────────────────────────────────────────────────────────────── */
template <bool ACROSS, class Y>
static void expert_kernel(const tensor_map z, const tensor_map w, const int32_t *first, Y *y,
                          int experts, int in, int out)
{
    expert_product_wgmma<ACROSS>(&z, &w, first, y, experts, in, out);
}
static void expert_grad_kernel(const tensor_map dy, const tensor_map z, const int32_t *first,
                               float *dw, int experts, int in, int out)
{
    expert_product_grad_wgmma(&dy, &z, first, dw, experts, in, out);
}
/* As if no expert ended within a stage: one tile an expert. */
static void expert_uncut_kernel(const tensor_map dy, const tensor_map z, const int32_t *first,
                                float *dw, int experts, int in, int out)
{
    wgmma_tiles<true, false, false, false, float>(
        &dy, &z, in, [=](int i, struct wgmma_work<float> *to) {
            if (i >= experts) return false;
            *to = {0, 0, first[i], 0, dw + (int64_t)i * out * in, out, in, first[i + 1] - first[i]};
            return true;
        });
}
template <bool ACROSS>
static void expert_forward(int blocks, expert_operands<bf16> &e, int64_t planes)
{
    int64_t lines = ACROSS ? e.in : e.out;
    fiber_launch(dim3((unsigned)blocks), dim3(WGMMA_THREADS), WGMMA_SHARED,
                 expert_kernel<ACROSS, bf16>, map_of(e.z.at, 1, e.total, e.in, wgmma_tile::m, true),
                 map_of(e.w.at, planes, e.experts / planes * lines, ACROSS ? e.out : e.in,
                        wgmma_tile::n, !ACROSS),
                 e.first.at, e.y.at, (int)e.experts, (int)e.in, (int)e.out);
}
template <class K> static void expert_grad(int blocks, expert_operands<bf16> &e, K kernel)
{
    fiber_launch(dim3((unsigned)blocks), dim3(WGMMA_THREADS), WGMMA_SHARED, kernel,
                 map_of(e.dy.at, 1, e.total, e.out, wgmma_tile::m, false),
                 map_of(e.z.at, 1, e.total, e.in, wgmma_tile::n, false), e.first.at, e.dw.at,
                 (int)e.experts, (int)e.in, (int)e.out);
}
template <bool ACROSS>
static void expert_case(int blocks, std::vector<int> rows, int64_t in, int64_t out)
{
    expert_operands<bf16> e(rows, in, out);
    expert_forward<ACROSS>(blocks, e, e.experts);
    if (out % 8 == 0) expert_grad(blocks, e, expert_grad_kernel);
    e.agree("expert", ACROSS, out % 8 == 0);
}
/* No expert learns of what others hold: one after the other, all others hold NaN or infinity, and
 * the results are those of before, to the bit. */
template <bool ACROSS>
static bool alone_case(std::vector<int> rows, int64_t in, int64_t out, bool planes, bool cut)
{
    expert_operands<bf16> e(rows, in, out), wild(rows, in, out);
    bool right = true;
    auto both = [&](expert_operands<bf16> &of) {
        expert_forward<ACROSS>(3, of, planes ? of.experts : 1);
        if (cut)
            expert_grad(3, of, expert_grad_kernel);
        else
            expert_grad(1, of, expert_uncut_kernel);
    };
    expert_forward<ACROSS>(3, e, e.experts), expert_grad(3, e, expert_grad_kernel);
    for (int64_t x = 0; x < e.experts; x++) {
        memset((void *)wild.z.at, 0xff, (size_t)wild.z.n * 2);
        memset((void *)wild.w.at, 0xff, (size_t)wild.w.n * 2);
        for (int64_t i = 0; i < wild.dy.n; i++) wild.dy[i] = 0x7f80;
        int64_t from = e.first[x], n = e.first[x + 1] - from;
        memcpy(wild.z.at + from * in, e.z.at + from * in, (size_t)(n * in) * 2);
        memcpy(wild.dy.at + from * out, e.dy.at + from * out, (size_t)(n * out) * 2);
        memcpy(wild.w.at + x * in * out, e.w.at + x * in * out, (size_t)(in * out) * 2);
        both(wild);
        right = right &&
                !memcmp(wild.y.at + from * out, e.y.at + from * out, (size_t)(n * out) * 2) &&
                !memcmp(wild.dw.at + x * in * out, e.dw.at + x * in * out, (size_t)(in * out) * 4);
    }
    return right;
}
static bool alone(bool planes, bool cut)
{
    return alone_case<false>({70, 0, 9, 64}, 72, 40, planes, cut) &&
           alone_case<true>({1, 100, 30}, 88, 24, planes, cut);
}

static int planted(const char *name)
{
    static const planted_mistake all[] = {
        {"no_written", image_case<true, true, NO_WRITTEN>},
        {"written_too_early", image_case<true, false, WRITTEN_TOO_EARLY>},
        {"no_begin", image_case<true, true, NO_BEGIN>},
        {"wrong_stride", image_case<true, true, WRONG_STRIDE>},
        {"wrong_leading", image_case<true, false, WRONG_LEADING>},
        {"wrong_major", image_case<false, true, WRONG_MAJOR>},
        {"no_swizzle", image_case<true, true, NO_SWIZZLE>},
        {"sums_touched", image_case<true, true, SUMS_TOUCHED>},
        {"no_wait", image_case<true, true, NO_WAIT>},
        {"overwritten", image_case<true, true, OVERWRITTEN>},
        {"released_too_early", image_case<false, true, RELEASED_TOO_EARLY>},
        {"no_arrival_awaited", image_case<true, true, NO_ARRIVAL_AWAITED>},
        {"wrong_parity", image_case<true, true, WRONG_PARITY>},
        {"one_warp_less", image_case<true, true, ONE_WARP_LESS>},
        {"barrier_unordered", image_case<true, true, BARRIER_UNORDERED>},
        {"barrier_overwritten", image_case<true, true, BARRIER_OVERWRITTEN>},
        {"registers_touched", pair_case<64, false, REGISTERS_TOUCHED>},
        {"read_too_early", pair_case<128, true, READ_TOO_EARLY>},
        {"uncut", [] { return alone(true, false); }},
        {"one_plane", [] { return alone(false, true); }}};
    if (!strcmp(name, "other_box"))
        return product_case<false, true, false, float>(1, 64, 64, 64, 128), 0;
    return run_planted(all, name);
}

int main(int argc, char **argv)
{
    if (argc > 1) return planted(argv[1]);
    for (uint64_t seed = 1; seed <= 4; seed++) {
        fiber_seed(seed);
        image_case<true, true, RIGHT>(), image_case<true, false, RIGHT>(),
            image_case<false, true, RIGHT>(), image_case<false, false, RIGHT>();
        pair_case<64, true, RIGHT>(), pair_case<64, false, RIGHT>(), pair_case<128, true, RIGHT>(),
            pair_case<128, false, RIGHT>(), pair_case<256, false, RIGHT>();
    }
    product_case<false, false, false, bf16>(1, 136, 264, 328);
    product_case<false, true, false, bf16>(3, 264, 72, 200);
    product_case<true, false, true, float>(9, 136, 280, 77);
    product_case<true, true, false, float>(2, 128, 512, 64);
    product_case<false, true, false, bf16>(2, 130, 77, 64);
    product_case<true, true, true, float>(1, 72, 77, 40);
    expert_case<false>(1, {3, 130}, 72, 37);
    expert_case<false>(2, {0, 3, 130, 0, 64, 1, 0}, 72, 264);
    expert_case<true>(5, {300, 0, 5}, 136, 40);
    expert_case<true>(40, {0, 0, 1}, 8, 8);
    if (!alone(true, true) && ++failures) printf("experts: others are not left out\n");
    return failures != 0;
}
