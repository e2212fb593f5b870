/* What a module that module.sh made says of a kernel, to whoever launches it: C and C++. */
#ifndef FIBER_KERNEL_H
#define FIBER_KERNEL_H

#include <stdint.h>

/* sizes[i] bytes of argument i, 0 after the last; pointers: bit i when it is an address. */
struct fiber_kernel {
    const char *name;
    void *function;
    void (*call)(void *, void **);
    int threads;
    const int *sizes;
    uint64_t pointers;
};
/* NULL, or what is wrong. */
typedef const char *fiber_module_runs(const struct fiber_kernel *k, const unsigned grid[3],
                                      const unsigned block[3], int64_t shared_bytes,
                                      void **argument);

#endif
