/* Core ops of the cuda device: which function of templates/cuda does one, its sizes and its grid. */
#include "emit_cuda.h"

const char *emit_cuda_core_template(enum op op)
{
    (void)op;
    return NULL;
}

void emit_cuda_core(struct cuda_kernel *c) { bug("kernel %s has no cuda text", c->kernel->kernel->name); }
