/* What the compiler predicted of this run. It is of the device of the plan's cluster: on another
 * one nothing was predicted. */
#include "trainer.h"

#include <string.h>

static bool is_here(void)
{
    static int known; /* 0: not asked yet */
    if (!known) known = &predicted && device_is(predicted.device, predicted.arch) ? 1 : -1;
    return known > 0;
}

double predicted_step(void) { return is_here() ? predicted.step_seconds : 0; }

double predicted_kernel(const char *name)
{
    for (int i = 0; predicted_step() > 0 && i < predicted.kernels; i++)
        if (!strcmp(predicted.kernel[i].name, name)) return predicted.kernel[i].seconds;
    return 0;
}
