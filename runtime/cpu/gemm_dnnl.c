/* Matrix products by oneDNN. It uses OpenMP, whose threads would compete with the other ranks of
 * the machine, so the team of the calling thread is set to one before its first product; that
 * setting belongs to a thread, hence the thread-local mark. oneDNN allocates and frees packed
 * operands within the call. Its BF16 product takes any shape and stride, with nothing to prepare or
 * keep per shape (the rows of an expert differ in every step). oneDNN 2 and 3 export it without
 * declaring it, so it is declared here, weakly: in a build of the library without it, or on a
 * processor without a kernel for it, BF16 operands are widened. */
#include "cpu/gemm_bf16.h"
#include "cpu/gemm_f32.h"
#include "cpu/gemm_tiles.h"

#include <dnnl.h>
#include <stdio.h>
#include <stdlib.h>

/* of libgomp; <omp.h> comes with compilers, not with the C library */
void omp_set_num_threads(int threads);

dnnl_status_t dnnl_gemm_bf16bf16f32(char transa, char transb, dnnl_dim_t m, dnnl_dim_t n,
                                    dnnl_dim_t k, float alpha, const uint16_t *a, dnnl_dim_t lda,
                                    const uint16_t *b, dnnl_dim_t ldb, float beta, float *c,
                                    dnnl_dim_t ldc) __attribute__((weak));

static void alone(void)
{
    static _Thread_local bool done;
    if (!done) omp_set_num_threads(1);
    done = true;
}

const char *gemm_text(char text[64])
{
    const dnnl_version_t *v = dnnl_version();
    snprintf(text, 64, "oneDNN %d.%d.%d, ISA 0x%x", v->major, v->minor, v->patch,
             (unsigned)dnnl_get_effective_cpu_isa());
    return text;
}

static void refused(const char *type, int64_t m, int64_t n, int64_t k, dnnl_status_t status)
{
    fprintf(stderr,
            "trainer: oneDNN refused a matrix product of %lld x %lld x %lld in %s (status %d)\n",
            (long long)m, (long long)n, (long long)k, type, (int)status);
    exit(4);
}

/* oneDNN says which instructions it may use, and DNNL_MAX_CPU_ISA limits them: a processor without
 * some of them can be imitated. */
static bool may_use(unsigned isa) { return (dnnl_get_effective_cpu_isa() & isa) == isa; }

void gemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
          const float *b, int64_t ldb, bool add, float *c, int64_t ldc)
{
    if (gemm_f32_takes(ta, tb, m, n, k) && may_use(dnnl_cpu_isa_avx512_core)) {
        gemm_f32(ta, tb, m, n, k, a, lda, b, ldb, add, c, ldc);
        return;
    }
    alone();
    if (m == 0 || n == 0) return;
    dnnl_status_t status = dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', m, n, k, 1.0f, a, lda, b, ldb,
                                      add ? 1.0f : 0.0f, c, ldc);
    if (status != dnnl_success) refused("F32", m, n, k, status);
}

/* A product of few rows does not repay copying the other operand. */
static bool by_pairs(int64_t m)
{
    enum { FEW_ROWS = 48 };
    static int able = -1;
    if (able < 0) able = may_use(dnnl_cpu_isa_avx512_core_bf16) && gemm_pairs_here();
    return able && m >= FEW_ROWS;
}

bool gemm_bf16(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const uint16_t *a, int64_t lda,
               const uint16_t *b, int64_t ldb, bool add, float *c, int64_t ldc)
{
    enum { FEW_TERMS = 160 }; /* oneDNN is faster; one column it adds up in another order */
    if (!dnnl_gemm_bf16bf16f32) return false;
    if (by_pairs(m) && k >= FEW_TERMS && n > 1 &&
        gemm_pairs(ta, tb, m, n, k, a, lda, b, ldb, add ? PAIRS_ADDED : PAIRS_SET, c, ldc))
        return true;
    alone();
    if (m == 0 || n == 0) return true;
    dnnl_status_t status = dnnl_gemm_bf16bf16f32(ta ? 'T' : 'N', tb ? 'T' : 'N', m, n, k, 1.0f, a,
                                                 lda, b, ldb, add ? 1.0f : 0.0f, c, ldc);
    if (status == dnnl_unimplemented) return false;
    if (status != dnnl_success) refused("BF16", m, n, k, status);
    return true;
}

bool gemm_bf16_rounded(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const uint16_t *a,
                       int64_t lda, const uint16_t *b, int64_t ldb, uint16_t *c, int64_t ldc)
{
    return by_pairs(m) && gemm_pairs(ta, tb, m, n, k, a, lda, b, ldb, PAIRS_ROUNDED, c, ldc);
}

const struct gemm_tiles *gemm_tiles(bool bf16)
{
    if (!may_use(bf16 ? dnnl_cpu_isa_avx512_core_bf16 : dnnl_cpu_isa_avx512_core)) return NULL;
    return bf16 ? gemm_tiles_bf16() : gemm_tiles_f32();
}
