/* The fibers by themselves: every primitive against what CUDA says of it, and mistakes planted in
 * kernels that must be
 * found: a barrier that is missing, one under a condition, a copy that nobody waited for, a lane
 * that never comes. `fibers` runs what must be right, over several orders; `fibers NAME` one
 * planted mistake: it must not come out right. */
#include "machine.cuh"

#include <vector>

static int wrong;
#define WANT(condition)                                                                          \
    do {                                                                                         \
        if (!(condition) && wrong++ < 10) printf("%s:%d: %s\n", __FILE__, __LINE__, #condition); \
    } while (0)

/* ── shuffles, votes, barriers ───────────────────────────────────────────────── */
KERNEL(64) shuffles(int *out, int width)
{
    int t = (int)threadIdx.x, *o = out + t * 6;
    o[0] = __shfl_sync(0xffffffffu, t, 5, width);
    o[1] = __shfl_xor_sync(0xffffffffu, t, 3, width);
    o[2] = __shfl_up_sync(0xffffffffu, t, 2, width);
    o[3] = __shfl_down_sync(0xffffffffu, t, 2, width);
    o[4] = (int)__ballot_sync(0xffffffffu, t % 3 == 0);
    o[5] = __any_sync(0xffffffffu, t == 40) * 2 + __all_sync(0xffffffffu, t < 40);
}
KERNEL(64) typed(double *sums, int64_t *bits)
{
    double x = 1.0 / (threadIdx.x + 1);
    int64_t y = (int64_t)threadIdx.x << 40;
    for (int step = 16; step; step >>= 1)
        x += __shfl_down_sync(0xffffffffu, x, (unsigned)step),
            y |= __shfl_xor_sync(0xffffffffu, y, step);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = x;
    bits[threadIdx.x] = y;
}
/* masks by themselves: halves of a warp go different ways; the second warp has 16 lanes */
KERNEL(48) halves(int *out)
{
    int t = (int)threadIdx.x, lane = t & 31, sum = lane;
    if (lane < 16)
        for (int step = 8; step; step >>= 1) sum += __shfl_xor_sync(0x0000ffffu, sum, step);
    else
        for (int step = 8; step; step >>= 1)
            sum += __shfl_xor_sync(0xffff0000u, sum, step), __syncwarp(0xffff0000u);
    __syncwarp();
    out[t] = __shfl_sync(0xffffffffu, sum, 0) * 1000 + sum;
}
template <class T> DEVICE T block_sum(T value)
{
    __shared__ T part[32];
    for (int step = 16; step; step >>= 1) value += __shfl_xor_sync(0xffffffffu, value, step);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = value;
    __syncthreads();
    value = 0;
    for (unsigned i = 0; i < blockDim.x / 32; i++) value += part[i];
    __syncthreads();
    return value;
}
KERNEL(256) sums(const float *in, float *out, int *counts)
{
    DYNAMIC_SHARED(bytes);
    float *turned = (float *)bytes;
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    /* what was left there is nobody's */
    if (threadIdx.x == 0 && turned[3] == turned[3]) out[blockIdx.x] = 1e30f;
    __syncthreads();
    turned[threadIdx.x] = in[i];
    __syncthreads();
    float sum = block_sum(turned[blockDim.x - 1 - threadIdx.x]);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
    atomicAdd(&counts[threadIdx.x % 7], 1);
    if (threadIdx.x >= 32) return; /* those who have ended are not waited for */
    __syncthreads();
    if (__syncthreads_count(threadIdx.x < 5) != 5) out[blockIdx.x] = NAN;
}
KERNEL(256) plain(float *x, int64_t n)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = fmaf(x[i], 2.0f, 1.0f);
}

/* ── tensor cores and copies ─────────────────────────────────────────────────── */
/* out[m][n] = sum over k of a[m][k] b[k][n], 16 x 8 x 16, through shared memory as real kernels do
 * it. */
KERNEL(32) product_16x8x16(const uint16_t *a, const uint16_t *b, float *out)
{
    __shared__ __align__(128) uint16_t tile_a[16 * 16], tile_b[16 * 16];
    int t = (int)threadIdx.x, g = t / 4, c = t % 4;
    copy_async_16(&tile_a[t * 8], &a[t * 8], true);
    copy_async_commit();
    copy_async_16(&tile_b[t * 8], &b[t * 8], t < 32);
    copy_async_commit();
    copy_async_wait<0>();
    __syncthreads();
    uint32_t fa[4], fb[4];
    load_matrix_4(fa, &tile_a[(t % 16) * 16 + t / 16 * 8]);
    load_matrix_4_transposed(fb, &tile_b[(t % 16) * 16 + t / 16 * 8]);
    float d[4] = {0, 0, 0, 0};
    mma_16816_bf16(d, fa, fb);
    out[g * 8 + 2 * c] = d[0], out[g * 8 + 2 * c + 1] = d[1], out[(g + 8) * 8 + 2 * c] = d[2],
                    out[(g + 8) * 8 + 2 * c + 1] = d[3];
}

/* ── planted mistakes ────────────────────────────────────────────────────────── */
KERNEL(128) no_barrier(int *out)
{
    __shared__ int value[128];
    value[threadIdx.x] = (int)threadIdx.x;
    out[threadIdx.x] = value[127 - threadIdx.x];
}
KERNEL(128) no_barrier_before_reuse(int *out)
{
    __shared__ int value[128];
    int sum = 0;
    for (int round = 0; round < 2; round++) {
        value[threadIdx.x] = (int)threadIdx.x + round;
        __syncthreads();
        sum += value[127 - threadIdx.x] - round;
    }
    out[threadIdx.x] = sum / 2 + sum % 2 * 1000;
}
KERNEL(32) no_syncwarp(int *out)
{
    __shared__ int value[32];
    value[threadIdx.x] = (int)threadIdx.x;
    out[threadIdx.x] = value[31 - threadIdx.x];
}
KERNEL(128) divergent(int *out)
{
    if (threadIdx.x < 64)
        __syncthreads();
    else
        __syncthreads();
    out[threadIdx.x] = 127 - (int)threadIdx.x;
}
KERNEL(128) conditional(int *out)
{
    out[threadIdx.x] = 127 - (int)threadIdx.x;
    if (threadIdx.x != 77)
        __syncthreads();
    else
        __syncwarp();
}
KERNEL(128) lane_missing(int *out)
{
    int t = (int)threadIdx.x;
    if (t != 70)
        t = __shfl_xor_sync(0xffffffffu, t, 0);
    else
        __syncthreads();
    out[threadIdx.x] = 127 - t;
}
KERNEL(128) no_copy_wait(int *out, const int *in)
{
    __shared__ __align__(16) int value[128];
    if (threadIdx.x < 32)
        copy_async_16(&value[4 * threadIdx.x], &in[4 * threadIdx.x], true), copy_async_commit();
    __syncthreads();
    out[threadIdx.x] = value[127 - threadIdx.x];
}
KERNEL(128) copy_too_early(int *out, const int *in)
{
    __shared__ __align__(16) int value[128];
    for (int i = 0; i < 128; i++)
        if (threadIdx.x == 0) value[i] = i;
    __syncthreads();
    if (threadIdx.x < 32)
        copy_async_16(&value[4 * threadIdx.x], &in[128 + 4 * threadIdx.x], true),
            copy_async_commit();
    out[threadIdx.x] = value[127 - threadIdx.x];
    copy_async_wait<0>();
}
KERNEL(128) too_far(int *out)
{
    DYNAMIC_SHARED(bytes);
    ((int *)bytes)[threadIdx.x] = (int)threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = ((int *)bytes)[127 - threadIdx.x];
}
KERNEL(128) not_in_mask(int *out)
{
    out[threadIdx.x] = 127 - __shfl_sync(0x0000ffffu, (int)threadIdx.x, (int)threadIdx.x);
}

static void right()
{
    int out[64 * 6], width;
    for (width = 2; width <= 32; width *= 2) {
        fiber_launch(dim3(1), dim3(64), 0, shuffles, out, width);
        for (int t = 0; t < 64; t++) {
            const int *o = out + 6 * t, first = t / width * width;
            WANT(o[0] == first + (5 & (width - 1)));
            WANT(o[1] == ((t ^ 3) < first + width ? t ^ 3 : t));
            WANT(o[2] == (t - 2 >= first ? t - 2 : t));
            WANT(o[3] == (t + 2 < first + width ? t + 2 : t));
            WANT((o[4] >> (t % 32) & 1) == (t % 3 == 0));
            WANT(o[5] == (t < 32 ? 1 : 2));
        }
    }
    double sum[2], want = 0;
    int64_t bits[64];
    for (int i = 0; i < 32; i++) want += 1.0 / (i + 1);
    fiber_launch(dim3(1), dim3(64), 0, typed, sum, bits);
    WANT(fabs(sum[0] - want) < 1e-14 && bits[0] == (int64_t)31 << 40 &&
         bits[63] == (int64_t)63 << 40);
    fiber_launch(dim3(1), dim3(48), 0, halves, out);
    for (int t = 0; t < 48; t++) WANT(out[t] == 120 * 1000 + (t % 32 < 16 ? 120 : 376));

    std::vector<float> x(256 * 9), y(9);
    int counts[7] = {};
    for (size_t i = 0; i < x.size(); i++) x[i] = (float)(i % 97);
    fiber_launch(dim3(9), dim3(256), 1024, sums, x.data(), y.data(), counts);
    for (int b = 0; b < 9; b++) {
        float s = 0;
        for (int i = 0; i < 256; i++) s += x[(size_t)(b * 256 + i)];
        WANT(y[(size_t)b] == s);
    }
    WANT(counts[0] == 37 * 9 && counts[6] == 36 * 9);
    fiber_launch(dim3(9), dim3(256), 0, plain, x.data(), 2000);
    WANT(x[1999] == (1999 % 97) * 2 + 1 && x[2000] == 2000 % 97);

    alignas(16) uint16_t a[256], b[256];
    float product[128];
    for (int i = 0; i < 256; i++)
        a[i] = (uint16_t)(fiber_bf16((float)((i * 37) % 29 - 14))),
        b[i] = (uint16_t)(fiber_bf16((float)((i * 53) % 31 - 15)));
    fiber_launch(dim3(1), dim3(32), 0, product_16x8x16, a, b, product);
    for (int m = 0; m < 16; m++)
        for (int n = 0; n < 8; n++) {
            float s = 0;
            for (int k = 0; k < 16; k++) s += fiber_low(a[m * 16 + k]) * fiber_low(b[k * 16 + n]);
            WANT(product[m * 8 + n] == s);
        }
    WANT(pack_bf16(1.0f, -2.0f) == 0xc0003f80u &&
         pack_bf16(1.00390625f, 1.01171875f) == 0x3f823f80u);
    WANT(__clz(1) == 31 && __ffs(0) == 0 && __popc(0xf0f0u) == 8 && __brev(1) == 0x80000000u &&
         __byte_perm(0x33221100, 0x77665544, 0x7520) == 0x77552200);
    unsigned u = 5;
    WANT(atomicCAS(&u, 5u, 9u) == 5 && atomicMax(&u, 3u) == 9 && u == 9 && min(3, 4ll) == 3 &&
         max(NAN, 2.0f) == 2.0f);
}

/* ── blocks that take turns ──────────────────────────────────────────────────── */
/* Each of four blocks reads what another thread of the block before has written. */
enum { TURN = 200, BEGUN, TURNS = 4 };
template <bool TICKET, bool BARRIER, bool FENCE, bool FENCE_AFTER> DEVICE void take_turns(int *out)
{
    __shared__ int begun;
    int t = (int)threadIdx.x, last = (int)blockDim.x - 1;
    if (t == 0) begun = TICKET ? atomicAdd(out + BEGUN, 1) : (int)blockIdx.x;
    __syncthreads();
    int mine = begun;
    if (t == 0) {
        while (signal_look(out + TURN) != mine) continue;
        if (FENCE_AFTER) signal_fence();
    }
    __syncthreads();
    int before = mine ? out[last - t] : 0;
    __syncthreads();
    out[t] = mine == TURNS - 1 ? last - t + (before - mine) : before + 1;
    if (BARRIER) __syncthreads();
    if (t == 0) {
        if (FENCE) signal_fence();
        signal_give(out + TURN, mine + 1);
    }
}
KERNEL(128) turns(int *out) { take_turns<true, true, true, true>(out); }
KERNEL(128) turns_by_index(int *out) { take_turns<false, true, true, true>(out); }
KERNEL(128) turns_no_barrier(int *out) { take_turns<true, false, true, true>(out); }
KERNEL(128) turns_no_fence(int *out) { take_turns<true, true, false, true>(out); }
KERNEL(128) turns_no_fence_after(int *out) { take_turns<true, true, true, false>(out); }

int main(int argc, char **argv)
{
    if (argc < 2) {
        for (uint64_t seed = 1; seed <= 20; seed++) fiber_seed(seed), right();
        return wrong != 0;
    }
    struct {
        const char *name;
        void (*one)(int *);
        void (*two)(int *, const int *);
        int threads, shared, blocks = 1;
    } planted[] = {
        {"turns", turns, 0, 128, 0, TURNS},
        {"turns_by_index", turns_by_index, 0, 128, 0, TURNS},
        {"turns_no_barrier", turns_no_barrier, 0, 128, 0, TURNS},
        {"turns_no_fence", turns_no_fence, 0, 128, 0, TURNS},
        {"turns_no_fence_after", turns_no_fence_after, 0, 128, 0, TURNS},
        {"no_barrier", no_barrier, 0, 128, 0},
        {"no_barrier_before_reuse", no_barrier_before_reuse, 0, 128, 0},
        {"no_syncwarp", no_syncwarp, 0, 32, 0},
        {"divergent", divergent, 0, 128, 0},
        {"conditional", conditional, 0, 128, 0},
        {"lane_missing", lane_missing, 0, 128, 0},
        {"not_in_mask", not_in_mask, 0, 128, 0},
        {"too_far", too_far, 0, 128, 500},
        {"no_copy_wait", 0, no_copy_wait, 128, 0},
        {"copy_too_early", 0, copy_too_early, 128, 0},
    };
    for (auto &p : planted) {
        if (strcmp(p.name, argv[1])) continue;
        for (uint64_t seed = 1; seed <= 8; seed++) {
            alignas(16) int in[256], out[256] = {0};
            for (int i = 0; i < 256; i++) in[i] = i;
            fiber_seed(seed);
            if (p.one)
                fiber_launch(dim3((unsigned)p.blocks), dim3((unsigned)p.threads), p.shared, p.one,
                             out);
            else
                fiber_launch(dim3(1), dim3((unsigned)p.threads), p.shared, p.two, out, in);
            for (int i = 0; i < p.threads; i++)
                if (out[i] != p.threads - 1 - i) {
                    printf("wrong with seed %d: element %d is %d\n", (int)seed, i, out[i]);
                    return 1;
                }
        }
        return 0;
    }
    if (!strcmp(argv[1], "speed")) {
        std::vector<float> x(1 << 20), y(4096);
        int counts[7];
        fiber_launch(dim3(4096), dim3(256), 1024, sums, x.data(), y.data(), counts);
        printf("%lld switches\n", (long long)fiber_m.steps);
        fiber_launch(dim3(4096), dim3(256), 0, plain, x.data(), 1 << 20);
        return 0;
    }
    return 2;
}
