/* Products of warpgroups, which only compute capability 9.0 has (sm_90a): four warps multiply
 * operands that lie in shared memory, asynchronously, while tensor copies bring the next ones. As
 * in machine.cuh each instruction is behind a named function, and on a CPU the bodies are others
 * (PLANC_MACHINE). HAS_WGMMA is defined where these functions are; kernels of other architectures
 * take mma_16816_bf16.
 *
 * Source: PTX ISA 9.0, "Asynchronous Warpgroup Level Matrix Instructions", "mbarrier",
 * "cp.async.bulk.tensor" and "Proxies"; CUDA driver API, cuTensorMapEncodeTiled. */
#ifndef CUDA_WGMMA_CUH
#define CUDA_WGMMA_CUH

#include "machine.cuh"

/* ── operands in shared memory ───────────────────────────────────────────────── */
/* Both operands lie in lines of 128 bytes, 64 elements of BF16, in the 128-byte swizzle: eight
 * lines begin at a multiple of 1,024 bytes of shared memory, and 16-byte chunk c of line i lies at
 * place c ^ (i % 8). Two ways to lie:
 *   deep    a line is 64 of k of one row of a, or of one column of b; the next line is the next row
 *   across  a line is 64 rows of a, or columns of b, of one k; the next line is the next k; what
 *           lies beyond 64 rows lies WGMMA_PANEL(k) further on
 * Bytes from 16 of k to the next: WGMMA_STEP. */
#define WGMMA_LINE 128
#define WGMMA_PANEL(k) ((k)*WGMMA_LINE)
#define WGMMA_STEP(deep) ((deep) ? 32 : 16 * WGMMA_LINE)

/* What wgmma is told of an operand at `address`: bits 0-13 the address, 16-29 the leading and 32-45
 * the stride offset, all in units of 16 bytes, 62-63 the swizzle (1: of 128 bytes). The stride
 * offset leads from eight lines to the next eight. The leading one leads across a panel to the
 * next one; deep it means nothing. */
template <bool DEEP, int PANEL> DEVICE uint64_t wgmma_descriptor(uint32_t address)
{
    constexpr uint64_t FIXED = (uint64_t)1 << 62 | (uint64_t)(8 * WGMMA_LINE / 16) << 32 |
                               (uint64_t)(DEEP ? 1 : PANEL / 16) << 16;
    return FIXED | (address & 0x3ffff) >> 4;
}

/* ── tensors in global memory ────────────────────────────────────────────────── */
/* BF16 [planes, lines, elements], as the driver describes it to tensor copies (tensor_operand of
 * runtime/shared/launch.h), with the lines that one copy brings. A kernel takes it as `const
 * __grid_constant__ tensor_map`; nobody looks into it. */
struct __align__(128) tensor_map { uint64_t opaque[16]; };
/* Lines of a copy that wgmma_bring makes of ROWS rows of a, or columns of b. */
#define WGMMA_BOX(rows, deep) ((deep) ? (rows) : 64)

#if defined(PLANC_MACHINE)
#define HAS_WGMMA
#elif defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HAS_WGMMA

/* ── barriers of arrivals ────────────────────────────────────────────────────── */
/* A barrier in shared memory ends a phase when `count` arrivals have come and then begins the next;
 * phases have parities 0, 1, 0, … What a thread wrote before it arrives is visible to those who
 * have waited. One thread begins it, and a block's barrier follows. */
DEVICE void mbarrier_begin(uint64_t *at, int count)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(at)), "r"(count)
                 : "memory");
}
DEVICE void mbarrier_arrive(uint64_t *at)
{
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(at)) : "memory");
}
/* Arrives, and the phase does not end before tensor copies have brought `bytes` for it. */
DEVICE void mbarrier_expect(uint64_t *at, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(at)),
                 "r"(bytes)
                 : "memory");
}
/* Until the phase of this parity is over; one that has not begun counts as the one before it. */
DEVICE void mbarrier_wait(uint64_t *at, int parity)
{
    asm volatile("{\n"
                 ".reg .pred over;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared.b64 over, [%0], %1;\n"
                 "@!over bra again;\n"
                 "}" ::"r"(shared_address(at)),
                 "r"(parity)
                 : "memory");
}

/* Orders what this thread knows to be written in shared memory, a barrier's beginning included,
 * before what products read there and tensor copies write there after. What tensor copies write
 * needs no such fence on its way to a product. */
DEVICE void wgmma_written() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/* ── tensor copies ───────────────────────────────────────────────────────────── */
/* One box of a tensor to shared memory, by one thread: 64 elements of each of the map's lines, the
 * first at these coordinates. Coordinates may lie anywhere; what is outside the tensor arrives as
 * zeros. Each line lies in 128 bytes, in the swizzle above; `to` is a multiple of 1,024. `at`
 * learns of all bytes of the box, and who has waited for that phase sees them. */
DEVICE void tensor_copy(void *to, const tensor_map *map, int element, int line, int plane,
                        uint64_t *at)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(shared_address(to)),
                 "l"(map), "r"(element), "r"(line), "r"(plane), "r"(shared_address(at))
                 : "memory");
}

/* ── registers ───────────────────────────────────────────────────────────────── */
/* A warpgroup gives registers back, or waits for more: `count` a thread, a multiple of 8. */
template <int count> DEVICE void registers_give()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
}
template <int count> DEVICE void registers_take()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count));
}

/* ── products ────────────────────────────────────────────────────────────────── */
/* Before the first product, and after a thread has touched the sums. */
DEVICE void wgmma_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
/* Those issued so far are a group. */
DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/* Until at most `behind` of the groups committed last are under way. */
template <int behind> DEVICE void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(behind) : "memory");
}

/* Sums, or an operand in registers, that may be touched after a wait: the compiler must not move
 * what touches them before it. */
template <int N> DEVICE void wgmma_settle(float (&d)[N][4])
{
#pragma unroll
    for (int i = 0; i < 4 * N; i++) asm volatile("" : "+f"(d[i / 4][i % 4])::"memory");
}
template <int N> DEVICE void wgmma_settle(uint32_t (&a)[N][4])
{
#pragma unroll
    for (int i = 0; i < 4 * N; i++) asm volatile("" : "+r"(a[i / 4][i % 4])::"memory");
}
/* Until at most `behind` of the groups committed last are under way; then what the others sum in or
 * take from registers may be touched. */
template <int behind, class... T> DEVICE void wgmma_wait_for(T &...of)
{
    wgmma_wait<behind>();
    (wgmma_settle(of), ...);
}

#define WGMMA_4(f, i) f(i, 0), f(i, 1), f(i, 2), f(i, 3)
#define WGMMA_16(f, i) WGMMA_4(f, i), WGMMA_4(f, i + 1), WGMMA_4(f, i + 2), WGMMA_4(f, i + 3)
#define WGMMA_32(f, i) WGMMA_16(f, i), WGMMA_16(f, i + 4)
#define WGMMA_64(f, i) WGMMA_32(f, i), WGMMA_32(f, i + 8)
#define WGMMA_128(f, i) WGMMA_64(f, i), WGMMA_64(f, i + 16)
#define WGMMA_SUM(i, e) "+f"(d[i][e])
#define WGMMA_NAMES_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define WGMMA_NAMES_32 \
    WGMMA_NAMES_16     \
    ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define WGMMA_NAMES_64                                                                 \
    WGMMA_NAMES_32                                                                     \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47" \
    ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define WGMMA_NAMES_128                                                                    \
    WGMMA_NAMES_64                                                                         \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"     \
    ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"     \
    ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109"     \
    ", %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123" \
    ", %124, %125, %126, %127"

/* Until all groups are complete; then the sums may be touched. */
DEVICE void wgmma_wait_all(float (&d)[32][4])
{
    asm volatile("wgmma.wait_group.sync.aligned 0;" : WGMMA_128(WGMMA_SUM, 0)::"memory");
}

/* d[64, N] = a[64, 16] b[16, N], or d += with `more`; the 128 threads of a warpgroup. With w = warp
 * % 4, g = lane / 4, t = lane % 4: d[j][0..1] is row 16 w + g, columns 8 j + 2 t and the next,
 * d[j][2..3] the same eight rows below. Then d += with a in registers: as mma_16816_bf16 has the 16
 * rows of a warp. N2 = N / 2, the others the numbers after it. */
#define WGMMA_PRODUCTS(N, N2, N3, N4, N5, N6, N7)                                               \
    template <bool DEEP_A, bool DEEP_B>                                                         \
    DEVICE void wgmma_64xNx16(float(&d)[N / 8][4], uint64_t a, uint64_t b, bool more)           \
    {                                                                                           \
        asm volatile("{\n.reg .pred more;\nsetp.ne.b32 more, %" #N4 ", 0;\n"                    \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 "                \
                     "{" WGMMA_NAMES_##N2 "}, %" #N2 ", %" #N3 ", more, 1, 1, %" #N5 ", %" #N6  \
                                          ";\n}"                                                \
                     : WGMMA_##N2(WGMMA_SUM, 0)                                                 \
                     : "l"(a), "l"(b), "r"((int)more), "n"(DEEP_A ? 0 : 1), "n"(DEEP_B ? 0 : 1) \
                     : "memory");                                                               \
    }                                                                                           \
    template <bool DEEP_B>                                                                      \
    DEVICE void wgmma_64xNx16(float(&d)[N / 8][4], const uint32_t(&a)[4], uint64_t b)           \
    {                                                                                           \
        asm volatile("{\n.reg .pred more;\nsetp.eq.b32 more, 0, 0;\n"                           \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 "                \
                     "{" WGMMA_NAMES_##N2 "}, {%" #N2 ", %" #N3 ", %" #N4 ", %" #N5 "}, %" #N6  \
                                          ", more, 1, 1, %" #N7 ";\n}"                          \
                     : WGMMA_##N2(WGMMA_SUM, 0)                                                 \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(DEEP_B ? 0 : 1)  \
                     : "memory");                                                               \
    }
WGMMA_PRODUCTS(64, 32, 33, 34, 35, 36, 37)
WGMMA_PRODUCTS(128, 64, 65, 66, 67, 68, 69)
WGMMA_PRODUCTS(256, 128, 129, 130, 131, 132, 133)

#undef WGMMA_PRODUCTS
#undef WGMMA_NAMES_128
#undef WGMMA_NAMES_64
#undef WGMMA_NAMES_32
#undef WGMMA_NAMES_16
#undef WGMMA_SUM
#undef WGMMA_128
#undef WGMMA_64
#undef WGMMA_32
#undef WGMMA_16
#undef WGMMA_4

#endif

#ifdef HAS_WGMMA
/* 64 of k of ROWS rows of a, or columns of b, to where products find them: from row `row` and from
 * k on, in plane `plane` of a tensor [planes, rows, k] when deep, else [planes, k, rows]. ROWS x
 * 128 bytes arrive at `at`. One thread. */
template <int ROWS, bool DEEP>
DEVICE void wgmma_bring(unsigned char *to, const tensor_map *map, int row, int k, int plane,
                        uint64_t *at)
{
    if (DEEP)
        tensor_copy(to, map, k, row, plane, at);
    else
#pragma unroll
        for (int i = 0; i < ROWS; i += 64)
            tensor_copy(to + i / 64 * WGMMA_PANEL(64), map, row + i, k, plane, at);
}
#endif
#endif
