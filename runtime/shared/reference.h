/* What DIR/reference.so provides for --compare: the host version of every kernel, and what each
 * argument is, so that the operands can be fetched from the device, the kernel run here, and the
 * results compared. The library consists of the text that the cpu device would run (kernels.c) and
 * a generated table (arguments.c, which defines `reference` and includes matrix products in plain
 * loops, templates/cpu/gemm_plain.h), so it shares no kernel text with the device. */
#ifndef PLANC_REFERENCE_H
#define PLANC_REFERENCE_H

#include <stdbool.h>

#include "device.h"

enum stored_type { STORED_F32, STORED_BF16, STORED_F64, STORED_I32 };

/* How far two right results may be apart: EXACT, moved or chosen; ROUNDED, the same expression
 * element by element; SUMMED, sums in another order somewhere in it; PRODUCT, sums of products of
 * two operands; ATTENTION, weights may be rounded before they multiply. Integers are exact, but for
 * choices among sums (SUMMED), of which one in a thousand may be another. */
enum bound { BOUND_EXACT, BOUND_ROUNDED, BOUND_SUMMED, BOUND_PRODUCT, BOUND_ATTENTION };

/* In the order of the kernel's arguments. count: elements; 0: a unit's shard, of which a call has a
 * range. */
struct reference_argument {
    const char *name;
    enum stored_type type;
    int64_t count;
    bool written;
};
/* terms: how many numbers the longest of its sums adds. */
struct reference_kernel {
    const struct kernel *kernel;
    const char *class;
    enum bound bound;
    double terms;
    const struct reference_argument *argument;
    int arguments;
};

/* Not sorted; found by the name of the kernel. */
struct reference {
    const struct reference_kernel *kernel;
    int kernels;
};
extern const struct reference reference __attribute__((visibility("default")));

#endif
