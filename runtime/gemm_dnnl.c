/* Matrix products by oneDNN. It is an OpenMP library whose threads would fight with the other ranks of the machine, so
 * the calling thread's team is set to one before its first product; that setting belongs to a thread, hence the
 * thread-local mark. What oneDNN allocates for its packed operands it allocates itself and gives back in the call. */
#include "gemm.h"

#include <dnnl.h>
#include <stdio.h>
#include <stdlib.h>

void omp_set_num_threads(int threads); /* of libgomp; <omp.h> comes with compilers, not with the C library */

void gemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
          const float *b, int64_t ldb, bool add, float *c, int64_t ldc)
{
    static _Thread_local bool alone;
    if (!alone) {
        omp_set_num_threads(1);
        alone = true;
    }
    if (m == 0 || n == 0) return;
    dnnl_status_t status = dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', m, n, k, 1.0f, a, lda, b, ldb, add ? 1.0f : 0.0f, c, ldc);
    if (status != dnnl_success) {
        fprintf(stderr, "trainer: oneDNN refused a matrix product of %lld x %lld x %lld (status %d)\n",
                (long long)m, (long long)n, (long long)k, (int)status);
        exit(4);
    }
}
