/* Attention's graphs before cuDNN itself, without a GPU: for a device that is described and not there, the library's heuristic is asked,
 * engines are compiled, and what a plan needs is measured. Nothing is run. The driver that it wants to load is a stand-in
 * that takes every kernel (run.sh makes it).
 *
 * attention CAPABILITY (90 or 100): a line a shape that ends in "fits" (the workspace that the compiler sets aside), "BYTES bytes do
 * not fit" or "no plan". Status 2, and the reason: there is no library to ask. */
#include "attention_cudnn.h"
#include "cuda_library.h"
#include "trainer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The rest of the runtime is not here. */
struct world world;
void fail_now(const char *format, ...) { (void)format; exit(1); }
bool fail_note(const char *format, ...) { (void)format; return false; }
void *room(int64_t bytes) { return calloc(1, (size_t)bytes); }
void world_exchange(const double *mine, int64_t n, double *all) { memcpy(all, mine, sizeof *mine * (size_t)n); }
const char *cuda_where(char text[320]) { return strcpy(text, "nowhere"); }

#define SHAPE "\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],\"regsPerBlock\":65536,\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152," \
              "\"maxSharedMemoryPerBlockOptin\":232448,\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,\"maxThreadsPerBlock\":1024,"  \
              "\"maxThreadsPerSM\":2048,\"pciDeviceId\":0,\"isTccDriver\":0,\"supportCoopLaunch\":1,\"driverVer\":13000,\"cudaDeviceId\":0,"
static const char hopper[] = "{" SHAPE "\"multiProcessorCount\":132,\"smClockRateKHz\":1980000,\"memClockRateKHz\":3201000,\"l2CacheSize\":62914560,\"deviceName\":\"NVIDIA H200\","
                                       "\"deviceVer\":900,\"totalGlobalMem\":150000000000}";
static const char blackwell[] = "{" SHAPE "\"multiProcessorCount\":148,\"smClockRateKHz\":1965000,\"memClockRateKHz\":3996000,\"l2CacheSize\":132644864,\"deviceName\":\"NVIDIA B200\","
                                          "\"deviceVer\":1000,\"totalGlobalMem\":190000000000}";

static void judge(const struct attention *a, int capability)
{
    struct dnn_graph g = {0};
    int64_t bytes = 0;
    printf("%s %lld x %lld tokens, %lld/%lld heads of %lld: ", a->gradient ? "gradient" : "forward", (long long)a->sequences, (long long)a->sequence, (long long)a->heads, (long long)a->kv_heads, (long long)a->width);
    void *device = dnn_device_as(&g, capability == 90 ? hopper : blackwell);
    cudnn_attention_graph(&g, a);
    if (g.status) printf("the graph is refused (%s), ", cudnn.cudnnGetErrorString(g.status));
    void *plan = dnn_plan(&g, device, cudnn_attention_engine(a, capability, cudnn.cudnnGetVersion()), INT64_MAX, &bytes);
    int64_t rows = a->sequences * a->sequence * a->heads * (int64_t)sizeof(float), room_for = (a->gradient ? 2 * rows * a->width : 0) + (1 << 20);
    if (!plan) printf("no plan\n");
    else if (bytes <= room_for) printf("fits\n");
    else printf("%lld bytes do not fit\n", (long long)bytes);
    dnn_drop(&g);
}

int main(int n, char **argument)
{
    char why[LIBRARY_WHY];
    int capability = n > 1 ? atoi(argument[1]) : 90;
    if (!cuda_library_open(LIBRARY_CUDNN, why)) {
        puts(why);
        return 2;
    }
    if (cudnn.cudnnGetVersion() < 91800) {
        printf("cuDNN %zu is older than what these answers are known of\n", cudnn.cudnnGetVersion());
        return 2;
    }
    static const struct attention shape[] = {{4, 4096, 32, 4, 128, 0.1f, false}, {2, 100, 12, 12, 48, 0.1f, false}};
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++)
        for (int gradient = 0; gradient < 2; gradient++) {
            struct attention a = shape[i];
            a.gradient = gradient;
            judge(&a, capability);
        }
    return 0;
}
