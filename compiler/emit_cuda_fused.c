/* Fused kernels of the cuda device. */
#include "emit_cuda.h"

void emit_cuda_fused(struct cuda_kernel *c) { bug("kernel %s has no cuda text", c->kernel->kernel->name); }
