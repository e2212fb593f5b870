/* The numbers of a step, F32 each in device memory: the host writes some before the step, kernels
 * read them and write the others. Apart, because kernels of every device include it, NVRTC's among
 * them: plain declarations only. */
#ifndef PLANC_SCALAR_H
#define PLANC_SCALAR_H

enum scalar {
    SCALAR_LR,
    SCALAR_BIAS1,
    SCALAR_BIAS2,
    SCALAR_LOSS_SCALE,
    SCALAR_NORM,
    SCALAR_CLIP,
    SCALAR_SKIP,
    SCALAR_COUNT
};
/* Rate; 1 - beta1^t; 1 - beta2^t, t: updates so far, this one too; accumulation x ranks / valid
 * targets of the step (0 when none); gradient norm; clipping coefficient; 1 when the step's update
 * is not applied. The first four are written by the host before a step. */

#endif
