/* Loads NVIDIA's libraries, and checks the results of the driver. A missing library, one without a
 * function that we call, and a driver that is too old give three different messages, because each
 * has another fix. */
#define _GNU_SOURCE
#include "library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "device.h"

/* The first driver that takes cubins of CUDA 13's NVRTC and is enough for CUDA 13's cuBLASLt:
 * within a major version newer libraries run on older drivers, from one to the next they do not.
 * 580 is its first release. */
enum { OLDEST_DRIVER = 13000, OLDEST_RELEASE = 580 };

struct cuda_driver driver;
struct cuda_tensors tensors;
struct cuda_nvrtc nvrtc;
struct cuda_nccl nccl;
struct cuda_windows nccl_windows;
struct cuda_cublaslt cublaslt;
struct cuda_grouped grouped;
struct cuda_cudnn cudnn;

struct symbol {
    const char *name;
    void *to;
};
#define ROW(table, name, symbol) {#symbol, &table.name},
#define DRIVER_ROW(name, symbol, parameters) ROW(driver, name, symbol)
#define TENSOR_ROW(name, symbol, parameters) ROW(tensors, name, symbol)
#define NVRTC_ROW(name, symbol, parameters) ROW(nvrtc, name, symbol)
#define NCCL_ROW(name, symbol, parameters) ROW(nccl, name, symbol)
#define WINDOW_ROW(name, symbol, parameters) ROW(nccl_windows, name, symbol)
#define CUBLASLT_ROW(name, symbol, parameters) ROW(cublaslt, name, symbol)
#define GROUPED_ROW(name, symbol, parameters) ROW(grouped, name, symbol)
#define CUDNN_ROW(name, symbol, parameters) ROW(cudnn, name, symbol)
static const struct symbol driver_symbol[] = {CUDA_DRIVER_CALLS(DRIVER_ROW){0}};
static const struct symbol tensor_symbol[] = {CUDA_TENSOR_CALLS(TENSOR_ROW){0}};
static const struct symbol nvrtc_symbol[] = {
    CUDA_NVRTC_CALLS(NVRTC_ROW) ROW(nvrtc, nvrtcGetErrorString, nvrtcGetErrorString){0}};
static const struct symbol nccl_symbol[] = {CUDA_NCCL_CALLS(NCCL_ROW) ROW(
    nccl, ncclGetErrorString, ncclGetErrorString) ROW(nccl, ncclGetLastError, ncclGetLastError){0}};
static const struct symbol window_symbol[] = {CUDA_WINDOW_CALLS(WINDOW_ROW){0}};
static const struct symbol cublaslt_symbol[] = {
    CUDA_CUBLASLT_CALLS(CUBLASLT_ROW) ROW(cublaslt, cublasLtGetStatusName, cublasLtGetStatusName)
        ROW(cublaslt, cublasLtGetVersion, cublasLtGetVersion){0}};
static const struct symbol grouped_symbol[] = {CUDA_GROUPED_CALLS(GROUPED_ROW){0}};
static const struct symbol cudnn_symbol[] = {
    CUDA_CUDNN_CALLS(CUDNN_ROW) ROW(cudnn, cudnnGetErrorString, cudnnGetErrorString)
        ROW(cudnn, cudnnGetVersion, cudnnGetVersion){0}};

static const struct library {
    const char *soname, *what, *missing;
    const struct symbol *symbol;
} libraries[] = {
    [LIBRARY_DRIVER] = {"libcuda.so.1", "NVIDIA driver", "no NVIDIA driver", driver_symbol},
    [LIBRARY_TENSORS] = {"libcuda.so.1", "NVIDIA driver", "no NVIDIA driver", tensor_symbol},
    [LIBRARY_NVRTC] = {"libnvrtc.so.13", "NVRTC", "no NVRTC of CUDA 13", nvrtc_symbol},
    [LIBRARY_NCCL] = {"libnccl.so.2", "NCCL", "no NCCL", nccl_symbol},
    [LIBRARY_CUBLASLT] = {"libcublasLt.so.13", "cuBLASLt", "no cuBLASLt of CUDA 13",
                          cublaslt_symbol},
    [LIBRARY_CUBLASLT_GROUPED] = {"libcublasLt.so.13", "cuBLASLt", "no cuBLASLt of CUDA 13",
                                  grouped_symbol},
    [LIBRARY_NCCL_WINDOWS] = {"libnccl.so.2", "NCCL", "no NCCL", window_symbol},
    [LIBRARY_CUDNN] = {"libcudnn.so.9", "cuDNN", "no cuDNN 9", cudnn_symbol},
};

/* Before its functions are looked up: an old driver lacks some, and its age says more. */
static bool driver_is_new_enough(void *handle, char why[LIBRARY_WHY])
{
    int version = 0;
    void *found = dlsym(handle, "cuDriverGetVersion");
    unsigned (*get_version)(int *) = NULL;
    memcpy(&get_version, &found, sizeof found);
    if (!get_version || get_version(&version) != CUDA_OK) {
        snprintf(
            why, LIBRARY_WHY,
            "the NVIDIA driver does not say its version: libcuda.so.1 is not what its name says");
        return false;
    }
    if (version < OLDEST_DRIVER)
        snprintf(why, LIBRARY_WHY,
                 "the NVIDIA driver is of CUDA %d.%d, the kernels and libraries of this trainer "
                 "are of CUDA %d and need %d.%d or later: update the driver to %d or newer",
                 version / 1000, version % 1000 / 10, OLDEST_DRIVER / 1000, OLDEST_DRIVER / 1000,
                 OLDEST_DRIVER % 1000 / 10, OLDEST_RELEASE);
    return version >= OLDEST_DRIVER;
}

bool cuda_library_open(enum cuda_library library, char why[LIBRARY_WHY])
{
    static bool there[sizeof libraries / sizeof *libraries];
    const struct library *l = &libraries[library];
    if (there[library]) return true;
    void *handle = dlopen(l->soname, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        const char *error = dlerror();
        snprintf(why, LIBRARY_WHY, "%s: %s cannot be loaded (%s)", l->missing, l->soname,
                 error ? error : "no reason given");
        return false;
    }
    if (library == LIBRARY_DRIVER && !driver_is_new_enough(handle, why)) return false;
    for (const struct symbol *s = l->symbol; s->name; s++) {
        void *found = dlsym(handle, s->name);
        if (!found) {
            snprintf(
                why, LIBRARY_WHY,
                "the %s that is installed (%s) has no %s: it is too old, or not what its name says",
                l->what, l->soname, s->name);
            return false;
        }
        /* a pointer to data, as dlsym gives it, is one to a function here */
        memcpy(s->to, &found, sizeof found);
    }
    return there[library] = true;
}

/* What to do about errors that are seen in practice. */
static const struct {
    unsigned result;
    const char *way_out;
} remedies[] = {
    {CUDA_OUT_OF_MEMORY, "nvidia-smi shows which other programs have memory of this GPU"},
    {214 /* ECC_UNCORRECTABLE */, "the GPU's memory is damaged: take the host out of the run"},
    {700 /* ILLEGAL_ADDRESS */, "a kernel is wrong: compute-sanitizer, or --compare, finds it"},
    {702 /* LAUNCH_TIMEOUT */, "the GPU drives a display too: take another one"},
    {716 /* MISALIGNED_ADDRESS */, "a kernel is wrong: compute-sanitizer, or --compare, finds it"},
    {719 /* LAUNCH_FAILED */,
     "a kernel, or the GPU, failed: the kernel log (dmesg, Xid) says which"},
    {802 /* SYSTEM_NOT_READY */, "NVIDIA's fabric manager does not run on this host"},
    {803 /* SYSTEM_DRIVER_MISMATCH */,
     "the driver was updated under the running system: restart the host"},
};

const char *cuda_error_text(unsigned result, char text[CUDA_ERROR])
{
    const char *name = NULL, *words = NULL, *way_out = NULL;
    for (size_t i = 0; i < sizeof remedies / sizeof *remedies; i++)
        if (remedies[i].result == result) way_out = remedies[i].way_out;
    if (!driver.cuGetErrorName || driver.cuGetErrorName(result, &name) != CUDA_OK ||
        driver.cuGetErrorString(result, &words) != CUDA_OK || !name || !words)
        snprintf(text, CUDA_ERROR, "CUDA error %u", result);
    else
        snprintf(text, CUDA_ERROR, "%s (%.120s)%s%s", name, words, way_out ? "; " : "",
                 way_out ? way_out : "");
    return text;
}

void cuda_check(unsigned result, const char *call)
{
    char text[CUDA_ERROR], where[CUDA_WHERE];
    if (result != CUDA_OK)
        fail_now("%s: %s: %s", cuda_where(where), call, cuda_error_text(result, text));
}
