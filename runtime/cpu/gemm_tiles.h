/* The tiles of gemm.h by AVX-512: what gemm_dnnl.c offers where oneDNN may use these instructions.
 * NULL: this processor does not have them. */
#ifndef GEMM_TILES_H
#define GEMM_TILES_H

#include "shared/gemm.h"

const struct gemm_tiles *gemm_tiles_f32(void);
const struct gemm_tiles *gemm_tiles_bf16(void);

#endif
