/* Which GPUs a prediction holds for: `device_is` of runtime/cuda/find.c, alone. */
#include "cuda/device.h"

#include <stdio.h>

bool device_is(const char *name, const char *arch);

static const struct {
    const char *gpu;
    int major, minor;
    const char *name, *arch; /* of the cluster */
    bool same;
} cases[] = {
    {"NVIDIA H200", 9, 0, "NVIDIA H200", "sm_90a", true},
    {"NVIDIA H100 80GB HBM3", 9, 0, "NVIDIA H100", "sm_90a", true},
    {"NVIDIA H100 80GB HBM3", 9, 0, "NVIDIA H100 96 GB, 500 W", "sm_90a", true},
    {"NVIDIA A100-SXM4-80GB", 8, 0, "NVIDIA A100", "sm_80", true},
    {"NVIDIA H200", 9, 0, "NVIDIA H100", "sm_90a", false},
    {"NVIDIA H200", 9, 0, "NVIDIA B200", "sm_100a", false},
    {"NVIDIA B200", 10, 0, "NVIDIA GB200", "sm_100a", false},
    {"NVIDIA B200", 10, 0, "NVIDIA B200", "sm_90a", false},
    {"stand-in device", 9, 0, "NVIDIA H100", "sm_90a", false},
    {"stand-in device", 9, 0, "mine", "sm_90a", true},
    {"stand-in device", 9, 0, "mine", "sm_100a", false},
    {"stand-in device", 9, 0, "mine", "", true},
};

int main(void)
{
    int wrong = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(gpu.name, sizeof gpu.name, "%s", cases[i].gpu);
        gpu.major = cases[i].major, gpu.minor = cases[i].minor;
        if (device_is(cases[i].name, cases[i].arch) == cases[i].same) continue;
        printf("%s, sm_%d%d, for %s, %s\n", gpu.name, gpu.major, gpu.minor, cases[i].name,
               cases[i].arch);
        wrong = 1;
    }
    return wrong;
}
