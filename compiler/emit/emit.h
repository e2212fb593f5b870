/* The entry point of all that turns a laid-out graph into text: kernels, the schedule that runs
 * them, the tables that the trainer reads, and the resolved plan. The texts depend only on the
 * graph and the plan, so building twice gives the same bytes. They are written to be read by
 * people. */
#ifndef PLANC_EMIT_H
#define PLANC_EMIT_H

#include "ir/ir.h"

enum emit_device { EMIT_CPU, EMIT_TRACE, EMIT_CUDA };

/* How kernels.c is compiled on cpu: contraction and reassociation would change bits, the other
 * flags only say that nobody looks at errno or at floating-point exceptions and honour `omp simd`,
 * so that loops vectorise. Include paths: runtime, templates. */
#define EMIT_KERNEL_FLAGS                                                              \
    "-std=c17 -O3 -march=native -ffp-contract=off -fno-math-errno -fno-trapping-math " \
    "-fopenmp-simd"

/* All files of DIR: kernels.h, kernels.c (cuda: kernels.cu and launch.c), schedule.c, program.c,
 * plan.json; with `reference` (cuda) kernels.c and arguments.c too. False with errno when one
 * cannot be written; an identical file keeps its time stamp. `graph` is at LEVEL_MEMORY. */
bool emit_files(const struct graph *graph, const struct plan *plan, enum emit_device device,
                bool reference, const char *directory);

/* Each of these texts by itself. */
void emit_kernels_h(struct text *to, const struct graph *g);
void emit_kernels_c(struct text *to, const struct graph *g, enum emit_device device);
/* On cuda: the kernels, and the host text that launches them, with the records that kernels.h
 * declares. */
void emit_kernels_cu(struct text *to, const struct graph *g);
void emit_launch_c(struct text *to, const struct graph *g);
void emit_schedule_c(struct text *to, const struct graph *g, const struct plan *plan);
void emit_program_c(struct text *to, const struct graph *g, const struct plan *plan,
                    enum emit_device device);
/* arguments.c: beside kernels.c the other text of DIR/reference.so, with which --compare judges
 * another device's kernels. */
void emit_arguments_c(struct text *to, const struct graph *g);
void emit_plan_json(struct text *to, const struct graph *g, const struct plan *plan);
/* What kernels.cu includes, beside the texts above: paths in the folder `templates`
 * ("cuda/machine.cuh") and in `runtime` ("op_math.h"), NULL after the last. An included template
 * may include others of templates/cuda. */
const char *const *emit_cuda_templates(const struct graph *g);
const char *const *emit_cuda_headers(void);

#endif
