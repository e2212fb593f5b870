/* Opens one library by the runtime's loader and says what it says. The rest of the runtime is not
 * here. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/device.h"

struct world world;
void fail_now(const char *format, ...)
{
    (void)format;
    exit(1);
}
const char *cuda_where(char text[CUDA_WHERE]) { return strcpy(text, "nowhere"); }

int main(int argc, char **argv)
{
    static const char *const name[] = {"driver", "nvrtc", "nccl", "cublaslt", "cudnn"};
    char why[LIBRARY_WHY] = "";
    for (int i = 0; argc > 1 && i < 5; i++)
        if (strcmp(argv[1], name[i]) == 0)
            puts(cuda_library_open((enum cuda_library)i, why) ? "there" : why);
    return 0;
}
