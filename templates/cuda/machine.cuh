/* What kernels take from the machine beyond plain CUDA C: the few instructions that have no C, each
 * behind a named function, so that kernel text holds no assembly and the same text can be compiled
 * for a CPU, where the thread hierarchy and these functions come from another header (given as
 * PLANC_MACHINE). Everything else that kernels use must be plain CUDA: threadIdx, blockIdx,
 * blockDim, gridDim, __syncthreads, __syncwarp, __shfl_*_sync, __ballot_sync, atomics on integers.
 * No header of the toolkit is included: NVRTC compiles this text alone. */
#ifndef CUDA_MACHINE_CUH
#define CUDA_MACHINE_CUH

#ifdef PLANC_MACHINE
#include PLANC_MACHINE
#else

typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;

/* KERNEL(256) name(arguments) { ... }: at most so many threads per block. */
#define KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)
/* The same where the compiler must not save registers for more than so many blocks on a
 * multiprocessor. */
#define KERNEL_RESIDENT(threads, blocks) \
    extern "C" __global__ void __launch_bounds__(threads, blocks)
#define DEVICE static __device__ __forceinline__
/* Shared memory whose size the launch says; 128-byte aligned. One per kernel. */
#define DYNAMIC_SHARED(name) extern __shared__ __align__(128) unsigned char name[]

DEVICE uint32_t shared_address(const void *shared)
{
    return (uint32_t)__cvta_generic_to_shared(shared);
}

/* 16 bytes from global to shared memory, asynchronously; zeros when not `valid` (then nothing is
 * read, and `global` may point anywhere). Both 16-byte aligned. Complete for this thread after
 * commit and wait; for others after a barrier too. */
DEVICE void copy_async_16(void *shared, const void *global, bool valid)
{
    int bytes = valid ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
                 "l"(__cvta_generic_to_global(global)), "r"(bytes)
                 : "memory");
}
DEVICE void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/* Until at most `behind` of the groups committed last are still under way. */
template <int behind> DEVICE void copy_async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(behind) : "memory");
}

/* Four 8x8 matrices of 16-bit elements from shared memory into the fragments of mma; thread t gives
 * the address of row t % 8 of matrix t / 8, 16-byte aligned. Transposed: each matrix on its way. */
DEVICE void load_matrix_4(uint32_t to[4], const void *shared)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(shared))
                 : "memory");
}
DEVICE void load_matrix_4_transposed(uint32_t to[4], const void *shared)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(shared))
                 : "memory");
}

/* d[16,8] += a[16,16] b[16,8], a by rows, b by columns, BF16 in, F32 sums. Fragments as PTX lays
 * out m16n8k16: with g = lane / 4, t = lane % 4: a[0] = (g, 2t..2t+1), a[1] = (g + 8, 2t..), a[2] =
 * (g, 2t + 8..), a[3] = (g + 8, 2t + 8..); b[0] = (k 2t.., n g), b[1] = (k 2t + 8.., n g); d[0..1]
 * = (g, 2t..2t+1), d[2..3] = (g + 8, 2t..). */
DEVICE void mma_16816_bf16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, "
                 "%6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Two floats rounded to BF16 (nearest, ties to even) in one word, `low` in its lower half. */
DEVICE uint32_t pack_bf16(float low, float high)
{
    uint32_t both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

/* Words by which blocks of a launch take turns. A thread looks at one and, when it says so, reads
 * after a signal_fence what was written before another thread's signal_fence and signal_give; a
 * barrier on either side takes in the other threads of a block. */
DEVICE int signal_look(const int *at)
{
    int value;
    asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];"
                 : "=r"(value)
                 : "l"(__cvta_generic_to_global(at))
                 : "memory");
    return value;
}
DEVICE void signal_give(int *at, int value)
{
    asm volatile("st.relaxed.gpu.global.s32 [%0], %1;" ::"l"(__cvta_generic_to_global(at)),
                 "r"(value)
                 : "memory");
}
DEVICE void signal_fence() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
/* Two neighbours that another block has written in this launch: not from this multiprocessor's own
 * cache. */
DEVICE float2 load_latest(const float *from)
{
    float2 x;
    asm volatile("ld.global.cg.v2.f32 {%0, %1}, [%2];"
                 : "=f"(x.x), "=f"(x.y)
                 : "l"(__cvta_generic_to_global(from))
                 : "memory");
    return x;
}

/* Nanoseconds of one clock of the whole device, which moves on in steps of up to a microsecond. */
DEVICE uint64_t device_nanoseconds()
{
    uint64_t t;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    return t;
}

/* The larger and the smaller of two; NaN when either is. */
DEVICE float max_or_nan(float a, float b)
{
    float y;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
}
DEVICE float min_or_nan(float a, float b)
{
    float y;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
}

/* 1 / x within 1 unit in the last place, for normal x whose inverse is normal. */
DEVICE float reciprocal_fast(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* 2^x, the machine's own: within 2 units in the last place; for attention weights, where both
 * devices may differ. */
DEVICE float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#endif
#endif
