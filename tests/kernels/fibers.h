/* Launches of generated cuda kernels inside the test; see fibers.c. */
#ifndef TEST_FIBERS_H
#define TEST_FIBERS_H

#include <stdbool.h>
#include <stdint.h>

/* From now on launches find their functions in `module` (made by tests/cuda_on_cpu/module.sh),
 * numbered by `launches` (launch.c). */
bool fibers_open(void *module, void *launches, int64_t workspace_bytes);
/* Something was written after the workspace. */
bool fibers_overrun(void);

#endif
