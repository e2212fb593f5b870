/* Which GPU a rank has and how much of its memory. One rank per GPU, chosen by the rank's number on
 * its host among the devices in CUDA_VISIBLE_DEVICES. If a launcher shows every rank only one GPU
 * (srun --gpus-per-task), the ranks first compare which one they have. All problems of a machine
 * that can be found before anything runs are reported here. */
#define _GNU_SOURCE
#include "device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CUuuid_st {
    char bytes[16];
};

/* Kernels use bf16 products of tensor cores and copies from global to shared memory. */
enum { OLDEST_COMPUTE_CAPABILITY = 8, MEMORY_GRAIN = 1 << 21, LOOKS_AT_MEMORY = 4 };

struct gpu gpu = {.number = -1};

/* ── the device ──────────────────────────────────────────────────────────────── */

/* A call whose failure says that the machine is not what this trainer needs. */
static bool went(unsigned result, const char *call)
{
    char text[CUDA_ERROR], who[CUDA_WHO];
    if (result == CUDA_OK) return true;
    return fail_note("%s: %s: %s", cuda_who(who), call, cuda_error_text(result, text));
}
#define WENT(call, ...) went(driver.call(__VA_ARGS__), #call)

static bool choose(void)
{
    char why[LIBRARY_WHY], text[CUDA_ERROR], who[128];
    int devices = 0;
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    world_rank_text(who);
    if (!cuda_library_open(LIBRARY_DRIVER, why)) return fail_note("%s%s", who, why);
    unsigned result = driver.cuInit(0);
    if (result != CUDA_OK && result != CUDA_NO_DEVICE)
        return fail_note("%sthe NVIDIA driver does not start: cuInit: %s", who,
                         cuda_error_text(result, text));
    if (result == CUDA_NO_DEVICE || driver.cuDeviceGetCount(&devices) != CUDA_OK || devices == 0)
        return fail_note("%sno GPU: the NVIDIA driver is there and shows none%s%s", who,
                         visible ? ", with CUDA_VISIBLE_DEVICES=" : "", visible ? visible : "");
    if (world.host_size > devices && devices > 1)
        return fail_note("%s%d ranks on this host and %d GPUs%s%s: one rank per GPU", who,
                         world.host_size, devices, visible ? ", with CUDA_VISIBLE_DEVICES=" : "",
                         visible ? visible : "");
    gpu.number = devices == 1 ? 0 : world.host_rank;
    return true;
}

/* Every rank tells which GPU it has; collective, so called by those too that have none. */
static bool alone_on_it(void)
{
    enum { WORDS = 5 }; /* four of the device's identity, one that says that there is one */
    double *all = ROOM(double, WORDS *(int64_t)world.size), mine[WORDS] = {0};
    struct CUuuid_st uuid;
    int device;
    if (gpu.number >= 0 && driver.cuDeviceGet(&device, gpu.number) == CUDA_OK &&
        driver.cuDeviceGetUuid(&uuid, device) == CUDA_OK) {
        uint32_t word[4];
        memcpy(word, &uuid, sizeof word);
        for (int i = 0; i < 4; i++) mine[i] = word[i];
        mine[4] = 1;
    }
    world_exchange(mine, WORDS, all);
    for (int r = 0; r < world.size && mine[4] > 0; r++)
        if (r != world.rank && !memcmp(all + WORDS * r, mine, sizeof mine))
            return fail_note(
                "rank %d and rank %d, on %s, have the same GPU: one rank per GPU%s",
                world.rank < r ? world.rank : r, world.rank < r ? r : world.rank, world_host(),
                getenv("CUDA_VISIBLE_DEVICES") ? " (CUDA_VISIBLE_DEVICES shows them one)"
                                               : "; this host shows one");
    return true;
}

static bool take(void)
{
    struct gpu *g = &gpu;
    char who[CUDA_WHO];
    size_t available = 0, total = 0;
    int device = 0;
    if (!WENT(cuDeviceGet, &device, g->number) ||
        !WENT(cuDeviceGetName, g->name, sizeof g->name, device) ||
        !WENT(cuDeviceGetAttribute, &g->major, CUDA_COMPUTE_MAJOR, device) ||
        !WENT(cuDeviceGetAttribute, &g->minor, CUDA_COMPUTE_MINOR, device) ||
        !WENT(cuDeviceGetAttribute, &g->multiprocessors, CUDA_MULTIPROCESSORS, device) ||
        !WENT(cuDeviceGetAttribute, &g->shared, CUDA_SHARED_OPTIN, device))
        return false;
    if (g->major < OLDEST_COMPUTE_CAPABILITY)
        return fail_note("%s: compute capability %d.%d; the kernels need %d.0 or later",
                         cuda_who(who), g->major, g->minor, OLDEST_COMPUTE_CAPABILITY);
    if (!WENT(cuDevicePrimaryCtxRetain, &g->context, device) ||
        !WENT(cuCtxSetCurrent, g->context) || !WENT(cuMemGetInfo, &available, &total))
        return false;
    g->free = (int64_t)available;
    g->total = (int64_t)total;
    return true;
}

bool device_find(void)
{
    bool fine = choose();
    if (world.size > 1) fine = alone_on_it() && fine;
    return fine && take();
}

/* ── memory ──────────────────────────────────────────────────────────────────── */

static int64_t arena_bytes(void) { return program.local_bytes + program.wire_bytes; }

int64_t device_predicted_bytes(void)
{
    return (arena_bytes() + MEMORY_GRAIN - 1) / MEMORY_GRAIN * MEMORY_GRAIN;
}
int64_t device_limit_bytes(void) { return gpu.free; }
const char *device_limit_text(int64_t limit, char text[256])
{
    char have[32], all[32];
    snprintf(text, 256, "%s has %s free of %s: planc check says what would make it fit", gpu.name,
             count_text(limit, have), count_text(gpu.total, all));
    return text;
}

int64_t device_memory_bytes(int64_t limit) { return (void)limit, gpu.total; }
int64_t device_mapped_bytes(struct device *d) { return d->granted; }

/* NCCL's own allocator gives memory that all its ways of moving data can use; it rounds up by a
 * grain of its own, which is no part of the arena. */
bool cuda_take_arena(struct device *d)
{
    const int64_t bytes = device_predicted_bytes();
    char text[CUDA_ERROR], said[NCCL_ERROR], who[CUDA_WHO];
    void *at = NULL;
    size_t granted = 0;
    cuda_address base;
    if (nccl_wanted()) {
        unsigned result = nccl.ncclMemAlloc(&at, (size_t)bytes);
        if (result != NCCL_OK)
            return fail_note("%s: no memory for the %lld bytes of the arena: ncclMemAlloc: %s",
                             cuda_who(who), (long long)bytes, nccl_said(result, NULL, said));
        d->arena = (cuda_address)(uintptr_t)at;
    } else {
        unsigned result = driver.cuMemAlloc(&d->arena, (size_t)bytes);
        if (result != CUDA_OK)
            return fail_note("%s: no memory for the %lld bytes of the arena: cuMemAlloc: %s",
                             cuda_who(who), (long long)bytes, cuda_error_text(result, text));
    }
    if (!WENT(cuMemGetAddressRange, &base, &granted, d->arena)) return false;
    d->granted = (int64_t)granted / MEMORY_GRAIN * MEMORY_GRAIN;
    if (nccl_wanted() && d->granted > bytes) d->granted = bytes;
    return true;
}

void *cuda_pinned(int64_t bytes)
{
    void *at = NULL;
    const size_t size = bytes > 0 ? (size_t)bytes : 1;
    CUDA(cuMemHostAlloc, &at, size, CUDA_HOST_PORTABLE | CUDA_HOST_MAPPED);
    return memset(at, 0, size);
}

static int64_t taken(void)
{
    size_t available = 0, total = 0;
    CUDA(cuMemGetInfo, &available, &total);
    return (int64_t)total - (int64_t)available;
}

/* All that is taken of the device's memory: by us, what comes with us, and any other program.
 * Looked at in the first steps; what comes after them device_outside_bytes has. */
int64_t device_peak_bytes(struct device *d)
{
    static int64_t most;
    static int looks;
    (void)d;
    if (looks < LOOKS_AT_MEMORY) {
        int64_t now = taken();
        looks++;
        most = now > most ? now : most;
    }
    return most;
}

/* ── what the machine is ─────────────────────────────────────────────────────── */

double device_peak_flops(void) { return program.peak_flops; }
const char *device_peak_name(void) { return "peak"; }

const char *device_name(void) { return gpu.name; }

/* "NVIDIA H100 96 GB, 500 W" of a cluster is "NVIDIA H100 80GB HBM3" to the driver: the model is
 * the second word. A device that is not named so is told by its architecture alone. */
bool device_is(const char *name, const char *arch)
{
    int capability = 10 * gpu.major + gpu.minor, wanted;
    if (sscanf(arch, "sm_%d", &wanted) == 1 && wanted != capability) return false;
    char model[32], offered[sizeof gpu.name];
    if (sscanf(name, "NVIDIA %31[A-Za-z0-9]", model) != 1) return true;
    if (sscanf(gpu.name, "NVIDIA %127[A-Za-z0-9]", offered) != 1) return false;
    return !strcmp(model, offered);
}

const char *device_machine(char text[192])
{
    int runtime = 0;
    CUDA(cuDriverGetVersion, &runtime);
    snprintf(text, 192, "%s, driver of CUDA %d.%d", gpu.name, runtime / 1000, runtime % 1000 / 10);
    return text;
}

/* Of the kernel's part: "580.65.06"; "" when it does not say. */
static void module_version(char to[32])
{
    char line[256];
    FILE *f = fopen("/proc/driver/nvidia/version", "r");
    to[0] = 0;
    if (f && fgets(line, sizeof line, f)) {
        const char *at = strstr(line, "Kernel Module");
        if (at) at += strcspn(at, "0123456789");
        if (at) snprintf(to, 32, "%.*s", (int)strspn(at, "0123456789."), at);
    }
    if (f) fclose(f);
}

void device_identify(struct device_identity *is)
{
    char module[32], mpi[48], product[32] = "", graph[32] = "", networks[24] = "";
    int version = 0;
    snprintf(is->name, sizeof is->name, "%.90s", device_name());
    CUDA(cuDriverGetVersion, &version);
    module_version(module);
    snprintf(is->driver, sizeof is->driver, "%s%sCUDA %d.%d", module, module[0] ? ", " : "",
             version / 1000, version % 1000 / 10);
    world_mpi_text(mpi, sizeof mpi);
    if (nccl_wanted() && nccl.ncclGetVersion(&version) == NCCL_OK)
        snprintf(networks, sizeof networks, ", NCCL %d.%d.%d", version / 10000,
                 version % 10000 / 100, version % 100);
    if (engines.gemm == ENGINE_CUBLASLT || engines.experts == ENGINE_CUBLASLT)
        snprintf(product, sizeof product, ", cuBLASLt %zu", cublaslt.cublasLtGetVersion());
    if (engines.attention == ENGINE_CUDNN || engines.experts == ENGINE_CUDNN)
        snprintf(graph, sizeof graph, ", cuDNN %zu", cudnn.cudnnGetVersion());
    snprintf(is->libraries, sizeof is->libraries, "%s%s%s%s", mpi, networks, product, graph);
}

static int64_t outside_before;

bool device_outside_bytes(struct device *d, double before_and_now[2])
{
    before_and_now[0] = (double)outside_before;
    before_and_now[1] = (double)(taken() - d->granted);
    return true;
}

void device_describe(struct device *d, double flops)
{
    char a[32], b[32], c[32], e[32], f[32];
    int runtime = 0;
    CUDA(cuDriverGetVersion, &runtime);
    outside_before = taken() - d->granted;
    say("memory per rank: predicted %s bytes, mapped %s bytes (by %s); outside the arena %s bytes "
        "(context, kernels, libraries), %s assumed; host %s",
        count_text(device_predicted_bytes(), a), count_text(d->granted, b),
        nccl_wanted() ? "NCCL" : "the driver", count_text(outside_before, c),
        count_text(program.outside_bytes, f), count_text(room_bytes(), e));
    if (flops > 0)
        say("machine: %s, sm_%d%d, %d multiprocessors, driver of CUDA %d.%d, kernels %s; peak of "
            "all ranks %.1f TFLOP/s in %s",
            gpu.name, gpu.major, gpu.minor, gpu.multiprocessors, runtime / 1000,
            runtime % 1000 / 10, cuda_module_name(), 1e-12 * flops,
            program.compute_type == TYPE_BF16 ? "BF16" : "FP32");
    else
        say("machine: %s, sm_%d%d, %d multiprocessors, driver of CUDA %d.%d, kernels %s", gpu.name,
            gpu.major, gpu.minor, gpu.multiprocessors, runtime / 1000, runtime % 1000 / 10,
            cuda_module_name());
    engines_say();
    nccl_say();
}
