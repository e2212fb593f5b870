/* What the files that write cuda kernels share. An IR kernel becomes one or more functions of
 * kernels.cu and one host function of launch.c that launches them. Both are written together,
 * because a launch and its function must agree about grid and arguments. cuda.c joins the texts,
 * gives numbers and shares equal kernels; cuda_fused.c writes fused kernels, cuda_core.c core
 * ops. */
#ifndef PLANC_EMIT_CUDA_H
#define PLANC_EMIT_CUDA_H

#include "emit/common.h"

/* A parameter that is a tensor map, and what its launch says of it (struct tensor_operand of
 * runtime/shared/launch.h). */
#define CUDA_TENSOR_MAP "const __grid_constant__ tensor_map"
struct cuda_tensor {
    int argument;
    int64_t planes, lines, elements;
    int box;
};
enum { CUDA_TENSORS = 4 }; /* of a launch, as SHOT_TENSORS there */

/* One IR kernel being written. */
struct cuda_kernel {
    struct text functions; /* for kernels.cu */
    /* for launch.c: the statements of `static void call_NAME(void *const *p, const struct stretch
     * *s)` */
    struct text call;
    const struct emit *emit;
    const struct emit_kernel *kernel;
    /* a C identifier; every function of the kernel begins with it */
    const char *name;
    bool canonical; /* names are numbers, so that equal kernels give equal texts */
    struct argument *argument;
    int n_argument;
    bool walks;    /* over a unit's shard (emit_walks_shard) */
    bool scales;   /* and has a rate for each stretch of it */
    bool balances; /* and a rule for the bias of a router */
    /* of the function begun next: blocks a multiprocessor to save registers for; 0: as
     * the cuda compiler likes */
    int resident;
    /* of the function begun next and of the launch that follows: arguments that are tensor maps;
     * box 0: none */
    struct cuda_tensor tensor[CUDA_TENSORS];
    VECTOR(const char *) function; /* begun so far */
    struct text offers;            /* for launch.c, before `call`: what a library is offered */
    VECTOR(const char *) offer;    /* and their rows of launch_offer */
};

/* Begins a function in `functions`, up to and with its "{": `KERNEL(threads) f_NAME_ENDING(...)`,
 * without _ENDING when it is "". Its parameters are all arguments of the IR kernel in their order
 * (named by emit_argument_name), then, in one that walks a shard, `int64_t from, int64_t count,
 * float decay`, then, when `works`, `void *work`. Ends with "}" by cuda_end. Returns the function's
 * number as launch.c spells it ("FUNCTION_NAME_ENDING"). */
const char *cuda_begin(struct cuda_kernel *c, const char *ending, int threads, bool works);
void cuda_end(struct cuda_kernel *c);

/* A launch of it, into `call`: blocks x, y, z are C expressions, in which `p` are the kernel's
 * addresses and `s` the stretch. */
void cuda_launch(struct cuda_kernel *c, const char *function, const char *x, const char *y,
                 const char *z, int threads, int64_t shared_bytes, bool works);
/* What struct shot says of tensor maps: `, {{…}, {…}}`, or "". */
const char *cuda_tensors(const struct cuda_tensor tensor[CUDA_TENSORS]);
/* The arguments of such a launch by themselves: `(void *[]){(void *)&p[0], ...}`. */
const char *cuda_launch_arguments(const struct cuda_kernel *c, bool works);

/* The last function of a kernel, f_NAME_wgmma with this one statement, for devices that have
 * products of warpgroups, and its launch, after which the rest of the call is left out there. What
 * the caller writes next does the same on all other devices: its text goes between
 * CUDA_WITHOUT_WGMMA and #endif. */
#define CUDA_WITHOUT_WGMMA "#ifndef __CUDA_ARCH_FEAT_SM90_ALL\n"
void cuda_wgmma(struct cuda_kernel *c, const char *statement, const char *x, const char *y,
                int threads, int64_t shared_bytes, bool works);

/* All of a kernel: functions and call. */
void emit_cuda_fused(struct cuda_kernel *c);
void emit_cuda_core(struct cuda_kernel *c);
/* Of emit_cuda_core's ops, attention and attention_grad (emit_cuda_attention.c): the kernel's core
 * node is n. */
void emit_cuda_attention(struct cuda_kernel *c, const struct node *n);
/* Whether a core op has functions for products of warpgroups too, in the file beside its own that
 * ends in _wgmma. */
bool cuda_has_wgmma_form(enum op op);
/* The file in templates that a core op's functions need ("cuda/product.cuh"). */
const char *emit_cuda_core_template(enum op op);

#endif
