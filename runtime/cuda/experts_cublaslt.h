/* Expert products by cuBLASLt's grouped layouts, for grouped_product() of launch.h: the product,
 * the gradient of its operand and that of its weights. */
#ifndef EXPERTS_CUBLASLT_H
#define EXPERTS_CUBLASLT_H

#include <stddef.h>

#include "shared/launch.h"

/* cublasLt.h's, as of 13.1, where they are experimental; tests/cuda_library/grouped.c compares them
 * with the vendor's header. */
enum {
    BLAS_PRODUCT_FACTORS_ARE = 2, /* where alpha and beta are */
    BLAS_FACTORS_ON_DEVICE = 1,
    BLAS_PRODUCT_ALPHA_STEP = 39,
    BLAS_PRODUCT_BETA_STEP = 40,
    BLAS_WISH_MEAN_K = 13,
    BLAS_WISH_MEAN_M = 14,
    BLAS_WISH_MEAN_N = 15,
};
/* What is at `groups` of struct grouped_product, by templates/cuda/experts.cuh: addresses of all
 * groups, one kind after the other, two sums for the check, sizes and columns' distances, factors.
 */
enum group_address { GROUP_A, GROUP_B, GROUP_D, GROUP_ALPHA, GROUP_BETA, GROUP_ADDRESSES };
enum group_number { GROUP_M, GROUP_N, GROUP_K, GROUP_LDA, GROUP_LDB, GROUP_LDD, GROUP_NUMBERS };

/* Once, after cublaslt_open; false: `why` (LIBRARY_WHY bytes) says what is missing. */
bool cublaslt_grouped_open(int major, int minor, char *why);
/* Whether the library has an algorithm, within what lies before `groups` at `work`; the first use
 * of a shape asks it, so it should not be in a capture. */
bool cublaslt_grouped_known(const struct grouped_product *p, const void *work);
bool cublaslt_grouped_fits(void *const *address); /* whether it takes these */
/* On `stream`, when the groups have been written there. The first product of a shape is made twice;
 * other bits end the run. An error of the library does too. */
void cublaslt_grouped_product(const struct grouped_product *p, void *const *address, void *stream,
                              void *work);

#endif
