/* A driver that has no GPU behind it and believes it has: device memory is this process's,
 * everything is done when it is asked for, and what it says about itself comes from the
 * environment. So the ways in which a start can fail can be had one by one, and a plain run passes
 * through all of the runtime but recording. Kernels: those of templates/cuda/runtime.cuh, as C. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/library.h"

struct CUuuid_st {
    char bytes[16];
};
enum { FAILS_VALUE = 1 };

static long number(const char *name, long otherwise)
{
    return getenv(name) ? atol(getenv(name)) : otherwise;
}
static size_t taken;
static struct {
    char *at;
    size_t bytes;
} arena;

unsigned cuInit(unsigned flags) { return flags ? FAILS_VALUE : (unsigned)number("FAKE_INIT", 0); }
unsigned cuDriverGetVersion(int *v)
{
    *v = (int)number("FAKE_VERSION", 13000);
    return 0;
}
unsigned cuGetErrorName(unsigned e, const char **n)
{
    *n = e == CUDA_OUT_OF_MEMORY   ? "CUDA_ERROR_OUT_OF_MEMORY"
         : e == CUDA_INVALID_IMAGE ? "CUDA_ERROR_INVALID_IMAGE"
         : e == 700                ? "CUDA_ERROR_ILLEGAL_ADDRESS"
                                   : "CUDA_ERROR_OTHER";
    return 0;
}
unsigned cuGetErrorString(unsigned e, const char **t)
{
    (void)e;
    *t = "as was asked for";
    return 0;
}
unsigned cuDeviceGetCount(int *n)
{
    *n = (int)number("FAKE_DEVICES", 1);
    return 0;
}
unsigned cuDeviceGet(int *d, int i)
{
    *d = i;
    return i < number("FAKE_DEVICES", 1) ? 0 : 101;
}
unsigned cuDeviceGetName(char *to, int n, int d)
{
    snprintf(to, (size_t)n, "Fake %d", d);
    return 0;
}
unsigned cuDeviceGetUuid_v2(struct CUuuid_st *u, int d)
{
    memset(u, 1 + d, sizeof *u);
    return 0;
}
unsigned cuDeviceGetAttribute(int *v, unsigned a, int d)
{
    (void)d;
    *v = a == CUDA_COMPUTE_MAJOR   ? (int)number("FAKE_MAJOR", 9)
         : a == CUDA_COMPUTE_MINOR ? (int)number("FAKE_MINOR", 0)
         : a == CUDA_SHARED_OPTIN  ? 232448
                                   : 1;
    return 0;
}
unsigned cuDevicePrimaryCtxRetain(cuda_context *c, int d)
{
    (void)d;
    *c = (cuda_context)(void *)&taken;
    return 0;
}
unsigned cuDevicePrimaryCtxRelease_v2(int d)
{
    (void)d;
    return 0;
}
unsigned cuCtxSetCurrent(cuda_context c) { return c ? 0 : FAILS_VALUE; }
unsigned cuCtxGetStreamPriorityRange(int *l, int *g)
{
    *l = 0;
    *g = -5;
    return 0;
}
static long said; /* how often the device has said where it stands */
/* FAKE_GROWS: bytes that something takes once the device has worked. */
unsigned cuMemGetInfo_v2(size_t *a, size_t *t)
{
    *t = (size_t)number("FAKE_MEMORY", 1 << 30);
    *a = *t - taken - (size_t)(said > 0 ? number("FAKE_GROWS", 0) : 0);
    return 0;
}
unsigned cuMemAlloc_v2(cuda_address *at, size_t n)
{
    if (getenv("FAKE_NO_ARENA")) return CUDA_OUT_OF_MEMORY;
    arena.at = aligned_alloc(256, (n + 255) / 256 * 256);
    memset(arena.at, 0xff, n);
    arena.bytes = n + (size_t)number("FAKE_GRANTS_MORE", 0);
    taken += n;
    *at = (cuda_address)(size_t)arena.at;
    return 0;
}
unsigned cuMemFree_v2(cuda_address at)
{
    (void)at;
    return 0;
}
unsigned cuMemGetAddressRange_v2(cuda_address *b, size_t *n, cuda_address at)
{
    *b = (cuda_address)(size_t)arena.at;
    *n = arena.bytes;
    return at >= *b && at < *b + *n ? 0 : FAILS_VALUE;
}
unsigned cuMemHostAlloc(void **at, size_t n, unsigned flags)
{
    (void)flags;
    *at = malloc(n);
    return *at ? 0 : CUDA_OUT_OF_MEMORY;
}
unsigned cuMemFreeHost(void *at)
{
    free(at);
    return 0;
}
unsigned cuMemHostGetDevicePointer_v2(cuda_address *at, void *host, unsigned flags)
{
    (void)flags;
    *at = (cuda_address)(size_t)host;
    return 0;
}
#define AT(address) ((void *)(size_t)(address))
unsigned cuMemcpyHtoDAsync_v2(cuda_address to, const void *from, size_t n, cuda_stream s)
{
    (void)s;
    memcpy(AT(to), from, n);
    return 0;
}
unsigned cuMemcpyDtoHAsync_v2(void *to, cuda_address from, size_t n, cuda_stream s)
{
    (void)s;
    memcpy(to, AT(from), n);
    return 0;
}
unsigned cuMemcpyDtoDAsync_v2(cuda_address to, cuda_address from, size_t n, cuda_stream s)
{
    (void)s;
    memcpy(AT(to), AT(from), n);
    return 0;
}
unsigned cuMemsetD8Async(cuda_address at, unsigned char v, size_t n, cuda_stream s)
{
    (void)s;
    memset(AT(at), v, n);
    return 0;
}

/* Streams and events have nothing to do. FAKE_LOST: when the device has said n times where it
 * stands, it stops with an error;
 * FAKE_HANGS: it is never done. */
unsigned cuStreamCreateWithPriority(cuda_stream *s, unsigned f, int p)
{
    (void)f, (void)p;
    *s = (cuda_stream)(void *)&taken;
    return 0;
}
unsigned cuStreamDestroy_v2(cuda_stream s)
{
    (void)s;
    return 0;
}
unsigned cuStreamQuery(cuda_stream s)
{
    (void)s;
    return said >= number("FAKE_LOST", 1 << 30)    ? 700
           : said >= number("FAKE_HANGS", 1 << 30) ? CUDA_NOT_READY
                                                   : 0;
}
unsigned cuStreamSynchronize(cuda_stream s)
{
    (void)s;
    return 0;
}
unsigned cuStreamWaitEvent(cuda_stream s, cuda_event e, unsigned f)
{
    (void)s, (void)f;
    return e ? 0 : FAILS_VALUE;
}
unsigned cuEventCreate(cuda_event *e, unsigned f)
{
    (void)f;
    *e = (cuda_event)(void *)&taken;
    return 0;
}
unsigned cuEventDestroy_v2(cuda_event e)
{
    (void)e;
    return 0;
}
unsigned cuEventRecord(cuda_event e, cuda_stream s) { return e && s ? 0 : FAILS_VALUE; }
unsigned cuEventQuery(cuda_event e)
{
    (void)e;
    return 0;
}
unsigned cuEventSynchronize(cuda_event e)
{
    (void)e;
    return 0;
}
unsigned cuEventElapsedTime_v2(float *ms, cuda_event a, cuda_event b)
{
    (void)a, (void)b;
    *ms = 0;
    return 0;
}
unsigned cuEventElapsedTime(float *ms, cuda_event a, cuda_event b)
{
    return cuEventElapsedTime_v2(ms, a, b);
}

unsigned cuModuleLoadData(cuda_module *m, const void *image)
{
    *m = (cuda_module)(void *)&taken;
    return strncmp(image, "cubin", 5) && strncmp(image, "\177ELF", 4) ? CUDA_INVALID_IMAGE : 0;
}
unsigned cuModuleUnload(cuda_module m)
{
    (void)m;
    return 0;
}
unsigned cuModuleGetFunction(cuda_function *f, cuda_module m, const char *name)
{
    static const char *const known[] = {"runtime_cast_bf16", "runtime_set_f32", "runtime_add_f32",
                                        "runtime_publish",
                                        /* not launched here */
                                        "runtime_split_bf16", "runtime_checksum"};
    (void)m;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(name, known[i]) == 0) {
            *f = (cuda_function)(i + 1);
            return getenv("FAKE_NO_KERNEL") && strcmp(getenv("FAKE_NO_KERNEL"), name) == 0 ? 500
                                                                                           : 0;
        }
    return 500;
}
unsigned cuFuncGetAttribute(int *v, unsigned a, cuda_function f)
{
    (void)a, (void)f;
    *v = 1;
    return 0;
}
unsigned cuFuncSetAttribute(cuda_function f, unsigned a, int v)
{
    (void)f, (void)a, (void)v;
    return 0;
}
unsigned cuLaunchKernel(cuda_function f, unsigned x, unsigned y, unsigned z, unsigned tx,
                        unsigned ty, unsigned tz, unsigned shared, cuda_stream s, void **p,
                        void **extra)
{
    (void)y, (void)z, (void)ty, (void)tz, (void)shared, (void)s, (void)extra;
    if ((size_t)f == 4) {
        uint64_t *clock = *(uint64_t **)p[2];
        if (*(int *)p[3] == 2) clock[1] += 1000;
        if (said < number("FAKE_LOST", 1 << 30) && said < number("FAKE_HANGS", 1 << 30))
            **(volatile uint64_t **)p[0] = *(uint64_t *)p[1];
        said++;
        return 0;
    }
    const float *from = *(const float **)p[0];
    const int64_t n = *(int64_t *)p[2];
    if (tx != 256 || (int64_t)x * 1024 < n || ((int64_t)x - 1) * 1024 >= n) return FAILS_VALUE;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, from + i, 4);
        if ((size_t)f == 1)
            (*(uint16_t **)p[1])[i] = (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
        else
            (*(float **)p[1])[i] = (size_t)f == 2 ? from[i] : (*(float **)p[1])[i] + from[i];
    }
    return 0;
}
unsigned cuStreamBeginCapture_v2(cuda_stream s, unsigned mode)
{
    (void)s, (void)mode;
    return 801;
}
unsigned cuStreamEndCapture(cuda_stream s, cuda_graph *g)
{
    (void)s, (void)g;
    return 801;
}
unsigned cuGraphInstantiateWithFlags(cuda_graph_exec *e, cuda_graph g, unsigned long long f)
{
    (void)e, (void)g, (void)f;
    return 801;
}
unsigned cuGraphLaunch(cuda_graph_exec e, cuda_stream s)
{
    (void)e, (void)s;
    return 801;
}
unsigned cuGraphExecDestroy(cuda_graph_exec e)
{
    (void)e;
    return 801;
}
unsigned cuGraphDestroy(cuda_graph g)
{
    (void)g;
    return 801;
}
/* NVRTC asks a driver that it finds for this and believes that it is there. */
unsigned cuGetExportTable(const void **table, const void *id)
{
    (void)id;
    *table = NULL;
    return 801;
}
