/* What runtime/cuda/gemm_cublaslt.h says of cuBLASLt, held against NVIDIA's own header. Compiles or
 * does not; nothing here is run. */
#include <cublasLt.h>
#include <stddef.h>

#include "cuda/gemm_cublaslt.h"

#define VALUE(ours, theirs) _Static_assert((long long)(ours) == (long long)(theirs), #theirs)
VALUE(BLAS_F32, CUDA_R_32F);
VALUE(BLAS_BF16, CUDA_R_16BF);
VALUE(BLAS_COMPUTE_F32, CUBLAS_COMPUTE_32F);
VALUE(BLAS_AS_STORED, CUBLAS_OP_N);
VALUE(BLAS_TRANSPOSED, CUBLAS_OP_T);
VALUE(BLAS_PRODUCT_A_IS, CUBLASLT_MATMUL_DESC_TRANSA);
VALUE(BLAS_PRODUCT_B_IS, CUBLASLT_MATMUL_DESC_TRANSB);
VALUE(BLAS_WISH_WORKSPACE, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
VALUE(BLAS_WISH_SPLIT_SUMS, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
VALUE(BLAS_WISH_ALIGNED_A, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
VALUE(BLAS_WISH_ALIGNED_B, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
VALUE(BLAS_WISH_ALIGNED_C, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
VALUE(BLAS_WISH_ALIGNED_D, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
VALUE(BLAS_SPLIT_SUMS_IN_WORKSPACE, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
VALUE(sizeof(struct blas_algorithm), sizeof(cublasLtMatmulAlgo_t));
VALUE(sizeof(struct blas_found), sizeof(cublasLtMatmulHeuristicResult_t));
VALUE(offsetof(struct blas_found, workspace_bytes),
      offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
VALUE(offsetof(struct blas_found, status), offsetof(cublasLtMatmulHeuristicResult_t, state));
VALUE(CUBLAS_STATUS_SUCCESS, 0);
