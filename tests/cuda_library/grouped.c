/* What runtime/cuda/experts_cublaslt.h says of cuBLASLt's grouped layouts: with VENDOR, held
 * against NVIDIA's own header; else asked of the library itself, whose descriptions need no device.
 */
#ifdef VENDOR
#include <cublasLt.h>

#include "cuda/experts_cublaslt.h"

#define VALUE(ours, theirs) _Static_assert((long long)(ours) == (long long)(theirs), #theirs)
VALUE(BLAS_PRODUCT_FACTORS_ARE, CUBLASLT_MATMUL_DESC_POINTER_MODE);
VALUE(BLAS_FACTORS_ON_DEVICE, CUBLASLT_POINTER_MODE_DEVICE);
VALUE(BLAS_PRODUCT_ALPHA_STEP, CUBLASLT_MATMUL_DESC_ALPHA_BATCH_STRIDE);
VALUE(BLAS_PRODUCT_BETA_STEP, CUBLASLT_MATMUL_DESC_BETA_BATCH_STRIDE);
VALUE(BLAS_WISH_MEAN_K, CUBLASLT_MATMUL_PREF_GROUPED_AVERAGE_REDUCTION_DIM);
VALUE(BLAS_WISH_MEAN_M, CUBLASLT_MATMUL_PREF_GROUPED_DESC_D_AVERAGE_ROWS);
VALUE(BLAS_WISH_MEAN_N, CUBLASLT_MATMUL_PREF_GROUPED_DESC_D_AVERAGE_COLS);
typedef cublasStatus_t create(cublasLtMatrixLayout_t *, cudaDataType, int, const void *,
                              const void *, const void *);
_Static_assert(_Generic(&cublasLtGroupedMatrixLayoutCreate, create * : 1, default : 0), "its type");
#else
#include "cuda/experts_cublaslt.h"
#include "cuda/gemm_cublaslt.h"
#include "described.h"

static int wrong;
static void took(const char *what, unsigned status)
{
    if (status) printf("%s: %u\n", what, status), wrong = 1;
}

int main(void)
{
    char why[LIBRARY_WHY];
    void *wish, *product, *layout;
    const int64_t mean = 100, step = 1;
    const int32_t factors = BLAS_FACTORS_ON_DEVICE;
    if (!cuda_library_open(LIBRARY_CUBLASLT, why) ||
        !cuda_library_open(LIBRARY_CUBLASLT_GROUPED, why))
        return puts(why), 1;
    took("preference", cublaslt.cublasLtMatmulPreferenceCreate(&wish));
    for (unsigned w = BLAS_WISH_MEAN_K; w <= BLAS_WISH_MEAN_N; w++)
        took("a mean size", cublaslt.cublasLtMatmulPreferenceSetAttribute(wish, w, &mean, 8));
    took("product", cublaslt.cublasLtMatmulDescCreate(&product, BLAS_COMPUTE_F32, BLAS_F32));
    took("factors", cublaslt.cublasLtMatmulDescSetAttribute(product, BLAS_PRODUCT_FACTORS_ARE,
                                                            &factors, sizeof factors));
    took("alpha", cublaslt.cublasLtMatmulDescSetAttribute(product, BLAS_PRODUCT_ALPHA_STEP, &step,
                                                          sizeof step));
    took("beta", cublaslt.cublasLtMatmulDescSetAttribute(product, BLAS_PRODUCT_BETA_STEP, &step,
                                                         sizeof step));
    took("layout", grouped.cublasLtGroupedMatrixLayoutCreate(&layout, BLAS_BF16, 8, (void *)256,
                                                             (void *)512, (void *)1024));
    return wrong;
}
#endif
