/* NVIDIA's run-time compiler, which makes cubins without a GPU or a driver. It is loaded on demand,
 * so planc builds and runs without the CUDA toolkit. */
#ifndef PLANC_NVRTC_H
#define PLANC_NVRTC_H

#include "base/base.h"

/* Loads the library, once: the file that PLANC_NVRTC names, else libnvrtc.so.13 or .12 along the
 * loader's path and in /usr/local/cuda/lib64. NULL when it is there, else where it was looked
 * for. */
const char *nvrtc_open(void);
/* "NVRTC 13.0 (/usr/…/libnvrtc.so.13, 108,224,440 B)": what a compiled text depends on. */
const char *nvrtc_identity(void);
/* NULL when it compiles for "sm_90a", else what it compiles for: "sm_75 to sm_121". */
const char *nvrtc_refuses(const char *arch);
/* Compiles `text`, which may include files of `folder`, for one architecture. `log` gets what the
 * compiler and the assembler said (registers, shared memory and spills of every kernel), also when
 * it failed. The options are those that a trainer uses when it compiles at its start. */
bool nvrtc_compile(const char *text, const char *folder, const char *arch, struct text *cubin,
                   struct text *log);

#endif
