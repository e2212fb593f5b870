/* Dense matrix products by cuBLASLt, for product() of launch.h. If the library cannot do a product
 * the answer is false, and the caller runs our own kernel. */
#ifndef GEMM_CUBLASLT_H
#define GEMM_CUBLASLT_H

#include <stddef.h>

#include "shared/launch.h"

/* cublasLt.h's, as of 12 and 13; tests/cuda_library/products.c compares them with the vendor's
 * header. */
enum {
    BLAS_F32 = 0,
    BLAS_BF16 = 14,
    BLAS_COMPUTE_F32 = 68,
    BLAS_AS_STORED = 0,
    BLAS_TRANSPOSED = 1,
    BLAS_PRODUCT_A_IS = 3,
    BLAS_PRODUCT_B_IS = 4,
    BLAS_WISH_WORKSPACE = 1,
    BLAS_WISH_SPLIT_SUMS = 3,
    BLAS_WISH_ALIGNED_A = 5,
    BLAS_WISH_ALIGNED_B = 6,
    BLAS_WISH_ALIGNED_C = 7,
    BLAS_WISH_ALIGNED_D = 8,
    BLAS_SPLIT_SUMS_IN_WORKSPACE = 2,
};
struct blas_algorithm {
    uint64_t data[8];
};
struct blas_found {
    struct blas_algorithm algorithm;
    size_t workspace_bytes;
    unsigned status;
    float waves;
    int reserved[4];
};

/* What the heuristic is to keep to, besides workspace and order of sums. */
struct blas_wish {
    unsigned what;
    const void *value;
    size_t bytes;
};
/* The library's descriptions of a product and its operands, by columns; the result is over c. */
struct blas_product {
    void *product, *a, *b, *c;
    struct blas_algorithm algorithm;
};

/* In a current context, before the first product, for each use; false: `why` (LIBRARY_WHY bytes)
 * says what is missing. */
bool cublaslt_open(char *why);
/* The library's, from then on. */
void *cublaslt_handle(void);
/* p->algorithm: the first of the heuristic that keeps to the wishes, adds split sums in order and
 * needs at most `workspace` bytes; false: there is none. */
bool cublaslt_choose(struct blas_product *p, const struct blas_wish *wish, int wishes,
                     int64_t workspace);
/* As product() of launch.h, on `stream` (a CUstream), in at most `bytes` of device memory at
 * `workspace` (256-byte aligned). False, and nothing is done, where the library has no
 * deterministic algorithm within that. The first use of a product looks for one, so it should not
 * be in a capture; later ones only launch. An error of the library ends the run. */
bool cublaslt_product(const struct product *p, const void *a, const void *b, void *c, void *stream,
                      void *workspace, int64_t bytes);

#endif
