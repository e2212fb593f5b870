/* For what asks cuDNN about graphs without a GPU: devices as its JSON, and what the parts of the
 * runtime under test call of the rest. */
#include "cuda/library.h"
#include "shared/trainer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The rest of the runtime is not here. */
struct world world;
void fail_now(const char *format, ...)
{
    (void)format;
    exit(1);
}
bool fail_note(const char *format, ...)
{
    (void)format;
    return false;
}
void *room(int64_t bytes) { return calloc(1, (size_t)bytes); }
void world_exchange(const double *mine, int64_t n, double *all)
{
    memcpy(all, mine, sizeof *mine * (size_t)n);
}
const char *cuda_where(char text[320]) { return strcpy(text, "nowhere"); }

#define SHAPE                                                                                    \
    "\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],\"regsPerBlock\":" \
    "65536,\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152,"                                   \
    "\"maxSharedMemoryPerBlockOptin\":232448,\"reservedSharedMemoryPerBlock\":1024,"             \
    "\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,\"maxThreadsPerBlock\":1024,"               \
    "\"maxThreadsPerSM\":2048,\"pciDeviceId\":0,\"isTccDriver\":0,\"supportCoopLaunch\":1,"      \
    "\"driverVer\":13000,\"cudaDeviceId\":0,\"memoryBusWidth\":6144,"
static const char hopper[] =
    "{" SHAPE "\"multiProcessorCount\":132,\"smClockRateKHz\":1980000,\"memClockRateKHz\":3201000,"
    "\"l2CacheSize\":62914560,\"deviceName\":\"NVIDIA H200\","
    "\"deviceVer\":900,\"totalGlobalMem\":150000000000}";
static const char blackwell[] =
    "{" SHAPE "\"multiProcessorCount\":148,\"smClockRateKHz\":1965000,\"memClockRateKHz\":3996000,"
    "\"l2CacheSize\":132644864,\"deviceName\":\"NVIDIA B200\","
    "\"deviceVer\":1000,\"totalGlobalMem\":190000000000}";

static inline const char *described(int capability)
{
    return capability == 90 ? hopper : blackwell;
}
