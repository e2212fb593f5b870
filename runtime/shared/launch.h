/* What a generated launch.c calls on the cuda device. schedule.c runs a kernel by its record
 * (device.h); on cuda, `call` of that record is a function of launch.c, which knows the launches of
 * the kernel: which functions of kernels.cu, over which grid. So the compiler decides everything
 * about shapes, and the runtime only launches. All addresses are device addresses; nothing here
 * waits for the device. */
#ifndef PLANC_LAUNCH_H
#define PLANC_LAUNCH_H

#include <stdbool.h>

#include "device.h"

/* The functions of kernels.cu, by number; the runtime finds them in the module when the trainer
 * starts. */
extern const char *const launch_function[];
extern const int launch_functions;

/* An operand that a kernel reads by tensor copies: argument `argument` is the address of BF16
 * [planes, lines, elements], and the kernel gets in its place what the driver makes of that
 * (tensor_map of templates/cuda/wgmma.cuh), for copies of `box` lines of 64 elements. */
struct tensor_operand {
    int argument;
    int64_t planes, lines, elements;
    int box;
};

/* One launch: function, blocks in three directions, threads per block (one direction), dynamic
 * shared memory, operands for tensor copies (box 0: none). */
enum { SHOT_TENSORS = 4 };
struct shot {
    int function;
    int64_t x, y, z;
    int threads;
    int64_t shared_bytes;
    struct tensor_operand tensor[SHOT_TENSORS];
};

/* On the compute lane. argument[i] points at the i-th argument (a device address, int64_t, float or
 * double), as the driver wants it; those of tensors point elsewhere afterwards. */
void launch(const struct shot *s, void **argument);

/* Whether the device has products of warpgroups (compute capability 9.0): of two functions that
 * compute the same, one with them and one without, it then takes the former. */
bool launch_wgmma(void);

/* The buffer that kernels of the compute lane share for what does not outlive them (buffer
 * "workspace" of the ledger). */
void *workspace(void);

/* c[m,n] = a[m,k] b[k,n], or c += (c F32). ta, tb: stored transposed (a[k,m], b[n,k]); lda, ldb,
 * ldc: elements between two stored rows. Done by the library where it is there and knows these
 * types, else by `ours`, whose arguments are a, b, c. */
struct product {
    bool ta, tb, add;
    int64_t m, n, k, lda, ldb, ldc;
    enum element_type a, b, c;
    struct shot ours;
};
void product(const struct product *p, const void *a, const void *b, void *c);

/* Causal attention of BF16 rows, `sequences` of `sequence` tokens one after the other, or its
 * gradient. p: q, k, v, o; of the gradient also do, dq, dk, dv. The log-sum-exp lies at the
 * workspace's beginning, [sequences, heads, sequence] F32: the result's, or put there for the
 * gradient. Only where the library knows it; where it does not, our own kernels are launched
 * instead. */
struct attention {
    int64_t sequences, sequence, heads, kv_heads, width;
    float scale;
    bool gradient;
};
bool attention_known(const struct attention *a); /* one of launch_offer's */
void attention(const struct attention *a, void *const *p);

/* y[r] = W[e] z[r] for the rows r of expert e, which are first[e] to first[e + 1] - 1, all BF16;
 * W[e] is [out, in] as it lies, across: [in, out]. p: z, w, first, y. Or the gradient of the
 * weights, dW[e] = dy' z over the rows of e, [out, in] in F32; what it leaves in experts without
 * rows is not said. p: dy, z, first, dw.
 *
 * `groups`: where in the workspace a kernel of the caller's has written, for cuBLASLt, what
 * templates/cuda/experts.cuh says: 5 experts addresses, 2 sums, 6 experts numbers, 2 factors. The
 * library works in what lies before. `bytes`: of the result. */
struct grouped_product {
    int64_t experts, rows, in, out;
    bool across, gradient;
    int64_t groups, bytes;
};
/* Whether the library has a way for one of launch_offer's at these places; where it has none, our
 * own kernel is launched instead, and that is said once. */
bool grouped_known(const struct grouped_product *g, void *const *p);
void grouped_product(const struct grouped_product *g, void *const *p);

/* All that the kernels offer to a library, one kind each, so that the ranks can agree before the
 * first step on what it takes. */
struct offer {
    const struct attention *attention;
    const struct grouped_product *grouped;
};
extern const struct offer launch_offer[];
extern const int launch_offers;

#endif
