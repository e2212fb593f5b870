/* FP32 master weights as BF16 plans gather them. */
#ifndef CPU_CAST_H
#define CPU_CAST_H

#include "shared/program.h"

/* Elements [at, at + n) of this rank's part of a unit, whose first one is `master`, rounded to BF16
 * into `to`: to nearest, ties to even; a NaN stays one. The bias of a router becomes three
 * numbers. */
void cast_bf16(const struct unit *u, const float *master, int64_t at, int64_t n, uint16_t *to);

#endif
