/* What a build for cuda adds: a folder that stands alone for NVRTC, and the cubins compiled from
 * it. */
#ifndef PLANC_BUILD_CUDA_H
#define PLANC_BUILD_CUDA_H

#include "commands/build.h"

/* How schedule.c, program.c and launch.c are compiled: such a trainer may run on another host than
 * this one. */
#define CUDA_HOST_FLAGS "-std=c17 -O2 -ffp-contract=off"

/* Copies the templates and headers that kernels.cu includes, and those that they include, to
 * DIR/cuda and DIR. False after naming the one that failed. `all` gets their bytes, in order. */
bool cuda_copy_templates(const struct graph *g, const struct places *p, const char *directory,
                         struct text *all);

/* DIR/kernels.ARCH.cubin and DIR/kernels.ARCH.log (registers, shared memory, spills of every
 * kernel) for each architecture of the plan, compiled side by side, or found kept. `copied`: the
 * text of everything that DIR/kernels.cu includes. Without NVRTC it says that the trainer will
 * compile when it starts, and where `demanded` (--arch) it fails. Text that does not compile is a
 * mistake of ours, shown with the compiler's words. Returns an exit status. */
int cuda_cubins(const struct trainer *t, const char *directory, const struct text *copied,
                bool demanded);

/* The files in DIR that an earlier build left and that would be taken for this one's. */
void cuda_remove_stale(const char *directory);

#endif
