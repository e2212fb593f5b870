/* libcuda.so.1 without a device: everything of the driver but streams (streams.c). Modules are
 * shared objects for this processor that module.sh made from kernels.cu; a kernel runs thread by
 * thread under fibers, on the taker's thread. What kind of device is played comes from the
 * environment:
 *   STANDIN_DEVICES (8)   STANDIN_COMPUTE ("9.0")   STANDIN_NAME   STANDIN_MEMORY (bytes, 4 GiB)
 *   STANDIN_DRIVER (13000) STANDIN_SHARED (bytes that a block may have, 227 KiB)
 *   STANDIN_NO_TENSORS (1: refuses every tensor map)
 * What a real driver would only sometimes punish is always punished: shared memory beyond what was
 * asked for, a block larger than the kernel was compiled for, an argument that is an address of the
 * host, memory that nobody wrote (it holds NaN). */
#define _GNU_SOURCE
#include "streams.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ── memory ──────────────────────────────────────────────────────────────────── */
enum { MOST_RANGES = 4096, PAGE = 4096 };
struct range {
    char *base, *mapping;
    size_t bytes, mapped;
    bool host;
};
static struct range range[MOST_RANGES];
static int ranges;
static size_t device_bytes;
static pthread_mutex_t memory_lock = PTHREAD_MUTEX_INITIALIZER;

static size_t memory_total(void)
{
    return (size_t)standin_setting("STANDIN_MEMORY", (int64_t)4 << 30);
}
void memory_sums(size_t *available, size_t *total)
{
    *total = memory_total(), *available = *total - device_bytes;
}

/* Device memory ends at a page that may not be touched and holds NaN; pinned memory too, but is the
 * host's. */
void *memory_take(size_t bytes, bool host)
{
    if (!bytes || (!host && bytes > memory_total() - device_bytes)) return NULL;
    pthread_mutex_lock(&memory_lock);
    size_t whole = (bytes + 255) & ~(size_t)255,
           mapped = ((whole + PAGE - 1) & ~(size_t)(PAGE - 1)) + 2 * PAGE;
    char *mapping = ranges < MOST_RANGES ? mmap(NULL, mapped, PROT_READ | PROT_WRITE,
                                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                                         : MAP_FAILED;
    if (mapping == MAP_FAILED) {
        pthread_mutex_unlock(&memory_lock);
        return NULL;
    }
    char *base = mapping + mapped - PAGE - whole;
    memset(base, 0xff, whole);
    mprotect(mapping, PAGE, PROT_NONE);
    mprotect(mapping + mapped - PAGE, PAGE, PROT_NONE);
    range[ranges++] = (struct range){base, mapping, bytes, mapped, host};
    device_bytes += host ? 0 : bytes;
    pthread_mutex_unlock(&memory_lock);
    return host ? base : (void *)((uintptr_t)base | DEVICE_BIT);
}
static struct range *find(const void *at, bool host)
{
    uintptr_t plain = host ? (uintptr_t)at : (uintptr_t)at & ~DEVICE_BIT;
    for (int i = 0; i < ranges; i++)
        if (range[i].host == host && plain >= (uintptr_t)range[i].base &&
            plain < (uintptr_t)range[i].base + range[i].bytes)
            return &range[i];
    return NULL;
}
bool memory_give(void *at, bool host)
{
    streams_drain();
    pthread_mutex_lock(&memory_lock);
    struct range *r = find(at, host);
    bool known = r && (uintptr_t)r->base == ((uintptr_t)at & ~DEVICE_BIT);
    if (known) {
        munmap(r->mapping, r->mapped);
        device_bytes -= host ? 0 : r->bytes;
        *r = range[--ranges];
    }
    pthread_mutex_unlock(&memory_lock);
    return known;
}
bool memory_pinned(const void *host)
{
    pthread_mutex_lock(&memory_lock);
    bool pinned = find(host, true) != NULL;
    pthread_mutex_unlock(&memory_lock);
    return pinned;
}
bool memory_range(const void *at, void **base, size_t *bytes)
{
    pthread_mutex_lock(&memory_lock);
    struct range *r = find(at, false);
    if (r) *base = (void *)((uintptr_t)r->base | DEVICE_BIT), *bytes = r->bytes;
    pthread_mutex_unlock(&memory_lock);
    return r != NULL;
}
void *standin_memory(const void *at, size_t bytes)
{
    const bool device = ((uintptr_t)at & DEVICE_BIT) != 0;
    pthread_mutex_lock(&memory_lock);
    struct range *r = find(at, !device);
    char *plain = (char *)((uintptr_t)at & ~DEVICE_BIT);
    bool inside = r && (size_t)(plain - r->base) + bytes <= r->bytes;
    pthread_mutex_unlock(&memory_lock);
    return inside ? plain : NULL;
}

EXPORTED unsigned cuMemGetInfo_v2(size_t *available, size_t *total)
{
    return memory_sums(available, total), standin_error_code();
}
EXPORTED unsigned cuMemAlloc_v2(unsigned long long *at, size_t bytes)
{
    if (!bytes) return INVALID_VALUE;
    *at = (uintptr_t)memory_take(bytes, false);
    return *at ? standin_error_code() : OUT_OF_MEMORY;
}
EXPORTED unsigned cuMemFree_v2(unsigned long long at)
{
    return memory_give((void *)(uintptr_t)at, false) ? standin_error_code() : INVALID_VALUE;
}
EXPORTED unsigned cuMemGetAddressRange_v2(unsigned long long *base, size_t *bytes,
                                          unsigned long long at)
{
    void *from = NULL;
    size_t size = 0;
    if (!memory_range((void *)(uintptr_t)at, &from, &size)) return NOT_FOUND;
    if (base) *base = (uintptr_t)from;
    if (bytes) *bytes = size;
    return standin_error_code();
}
EXPORTED unsigned cuMemHostAlloc(void **at, size_t bytes, unsigned flags)
{
    (void)flags;
    *at = memory_take(bytes, true);
    return *at ? standin_error_code() : OUT_OF_MEMORY;
}
EXPORTED unsigned cuMemAllocHost_v2(void **at, size_t bytes)
{
    return cuMemHostAlloc(at, bytes, 0);
}
EXPORTED unsigned cuMemFreeHost(void *at)
{
    return memory_give(at, true) ? standin_error_code() : INVALID_VALUE;
}
EXPORTED unsigned cuMemHostGetDevicePointer_v2(unsigned long long *at, void *host, unsigned flags)
{
    (void)flags;
    *at = (uintptr_t)host;
    return memory_pinned(host) ? standin_error_code() : INVALID_VALUE;
}

/* ── copies ──────────────────────────────────────────────────────────────────── */
struct copy {
    void *to;
    const void *from;
    void *owned;
    size_t bytes;
    int value;
};
static enum standin_progress run_copy(void *data)
{
    const struct copy *c = data;
    if (c->from)
        memmove(c->to, c->from, c->bytes);
    else
        memset(c->to, c->value, c->bytes);
    free(c->owned);
    return STANDIN_DONE;
}
static enum standin_progress run_set_words(void *data)
{
    const struct copy *c = data;
    for (size_t i = 0; i < c->bytes / 4; i++) memcpy((char *)c->to + 4 * i, &c->value, 4);
    return STANDIN_DONE;
}
EXPORTED unsigned cuStreamIsCapturing(stream_t stream, unsigned *status);
EXPORTED unsigned cuStreamSynchronize(stream_t stream);
static bool capturing(stream_t s)
{
    unsigned status;
    cuStreamIsCapturing(s, &status);
    return status != 0;
}
static unsigned bad_address(const char *call, unsigned long long at, size_t bytes)
{
    fprintf(stderr, "stand-in driver: %s: %zu bytes at %#llx are not in one allocation\n", call,
            bytes, at);
    return INVALID_VALUE;
}
EXPORTED unsigned cuMemcpyHtoDAsync_v2(unsigned long long to, const void *from, size_t bytes,
                                       stream_t stream)
{
    struct copy c = {
        .to = standin_memory((void *)(uintptr_t)to, bytes), .from = from, .bytes = bytes};
    if (!bytes) return standin_error_code();
    if (!c.to || !(to & DEVICE_BIT) || (uintptr_t)from & DEVICE_BIT)
        return bad_address("cuMemcpyHtoDAsync", to, bytes);
    /* pageable memory has been read when the call returns */
    if (!memory_pinned(from) && !capturing(stream)) {
        c.from = c.owned = malloc(bytes);
        if (!c.owned) return OUT_OF_MEMORY;
        memcpy(c.owned, from, bytes);
    }
    return standin_enqueue(stream, "copy to the device", run_copy, &c, sizeof c);
}
EXPORTED unsigned cuMemcpyDtoHAsync_v2(void *to, unsigned long long from, size_t bytes,
                                       stream_t stream)
{
    const struct copy c = {
        .to = to, .from = standin_memory((void *)(uintptr_t)from, bytes), .bytes = bytes};
    if (!bytes) return standin_error_code();
    if (!c.from || !(from & DEVICE_BIT) || (uintptr_t)to & DEVICE_BIT)
        return bad_address("cuMemcpyDtoHAsync", from, bytes);
    unsigned result = standin_enqueue(stream, "copy to the host", run_copy, &c, sizeof c);
    return result || memory_pinned(to) || capturing(stream) ? result : cuStreamSynchronize(stream);
}
EXPORTED unsigned cuMemcpyDtoDAsync_v2(unsigned long long to, unsigned long long from, size_t bytes,
                                       stream_t stream)
{
    const struct copy c = {.to = standin_memory((void *)(uintptr_t)to, bytes),
                           .from = standin_memory((void *)(uintptr_t)from, bytes),
                           .bytes = bytes};
    if (!bytes) return standin_error_code();
    if (!c.to || !c.from) return bad_address("cuMemcpyDtoDAsync", c.to ? from : to, bytes);
    return standin_enqueue(stream, "copy on the device", run_copy, &c, sizeof c);
}
EXPORTED unsigned cuMemsetD8Async(unsigned long long at, unsigned char value, size_t bytes,
                                  stream_t stream)
{
    const struct copy c = {
        .to = standin_memory((void *)(uintptr_t)at, bytes), .bytes = bytes, .value = value};
    if (!bytes) return standin_error_code();
    return c.to ? standin_enqueue(stream, "set bytes", run_copy, &c, sizeof c)
                : bad_address("cuMemsetD8Async", at, bytes);
}
EXPORTED unsigned cuMemsetD32Async(unsigned long long at, unsigned value, size_t words,
                                   stream_t stream)
{
    const struct copy c = {.to = standin_memory((void *)(uintptr_t)at, 4 * words),
                           .bytes = 4 * words,
                           .value = (int)value};
    if (!words) return standin_error_code();
    return c.to ? standin_enqueue(stream, "set words", run_set_words, &c, sizeof c)
                : bad_address("cuMemsetD32Async", at, 4 * words);
}
EXPORTED unsigned cuStreamWriteValue32_v2(stream_t stream, unsigned long long at, uint32_t value,
                                          unsigned flags)
{
    (void)flags;
    return cuMemsetD32Async(at, value, 1, stream);
}
struct host_call {
    void (*call)(void *);
    void *data;
};
static enum standin_progress run_host_call(void *data)
{
    ((struct host_call *)data)->call(((struct host_call *)data)->data);
    return STANDIN_DONE;
}
EXPORTED unsigned cuLaunchHostFunc(stream_t stream, void (*call)(void *), void *data)
{
    const struct host_call h = {call, data};
    return standin_enqueue(stream, "host function", run_host_call, &h, sizeof h);
}

/* ── the device ──────────────────────────────────────────────────────────────── */
static bool begun;
struct CUctx_st {
    int unused;
};
static struct CUctx_st primary;

EXPORTED unsigned cuDriverGetVersion(int *version)
{
    *version = (int)standin_setting("STANDIN_DRIVER", 13000);
    return OK;
}
EXPORTED unsigned cuInit(unsigned flags)
{
    (void)flags;
    if (standin_setting("STANDIN_DEVICES", 8) == 0) return NO_DEVICE;
    begun = true;
    return OK;
}
EXPORTED unsigned cuDeviceGetCount(int *count)
{
    *count = (int)standin_setting("STANDIN_DEVICES", 8);
    return begun ? OK : NOT_INITIALIZED;
}
EXPORTED unsigned cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return !begun                                                            ? NOT_INITIALIZED
           : ordinal >= 0 && ordinal < standin_setting("STANDIN_DEVICES", 8) ? OK
                                                                             : INVALID_DEVICE;
}
EXPORTED unsigned cuDeviceGetName(char *name, int bytes, int device)
{
    (void)device;
    snprintf(name, (size_t)bytes, "%s",
             getenv("STANDIN_NAME") ? getenv("STANDIN_NAME") : "stand-in device");
    return OK;
}
EXPORTED unsigned cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    return (void)device, *bytes = memory_total(), OK;
}
EXPORTED unsigned cuDeviceGetUuid_v2(unsigned char uuid[16], int device)
{
    memset(uuid, 0, 16);
    uuid[0] = (unsigned char)device;
    return OK;
}
EXPORTED unsigned cuDeviceGetAttribute(int *value, unsigned attribute, int device)
{
    static const struct {
        unsigned attribute;
        int value;
    } known[] = {{1, 1024},       {2, 1024},     {3, 1024},     {4, 64},
                 {5, 2147483647}, {6, 65535},    {7, 65535},    {8, 49152},
                 {10, 32},        {12, 65536},   {13, 1980000}, {16, STANDIN_MULTIPROCESSORS},
                 {17, 0},         {18, 0},       {19, 1},       {31, 1},
                 {35, 0},         {36, 3201000}, {37, 6144},    {38, 62914560},
                 {39, 2048},      {40, 3},       {41, 1},       {81, 233472},
                 {106, 32}};
    const char *compute = getenv("STANDIN_COMPUTE") ? getenv("STANDIN_COMPUTE") : "9.0";
    (void)device;
    if (attribute == 97) return *value = (int)standin_setting("STANDIN_SHARED", 232448), OK;
    if (attribute == 75 || attribute == 76) {
        const char *dot = strchr(compute, '.');
        *value = attribute == 75 ? atoi(compute) : dot ? atoi(dot + 1) : 0;
        return OK;
    }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].attribute == attribute) return *value = known[i].value, OK;
    return INVALID_VALUE;
}
EXPORTED unsigned cuDevicePrimaryCtxRetain(struct CUctx_st **context, int device)
{
    return (void)device, *context = &primary, begun ? OK : NOT_INITIALIZED;
}
EXPORTED unsigned cuDevicePrimaryCtxRelease_v2(int device) { return (void)device, OK; }
EXPORTED unsigned cuCtxSetCurrent(struct CUctx_st *context)
{
    return context && context != &primary ? INVALID_CONTEXT : OK;
}
EXPORTED unsigned cuCtxGetCurrent(struct CUctx_st **context) { return *context = &primary, OK; }
EXPORTED unsigned cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    return *least = 0, *greatest = -5, OK;
}

static const struct {
    unsigned code;
    const char *name, *text;
} errors[] = {
    {OK, "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {NO_BINARY, "CUDA_ERROR_NO_BINARY_FOR_GPU",
     "no kernel image is available for execution on the device"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {LAUNCH_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
     "too many resources requested for launch"},
    {LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {CAPTURE_UNJOINED, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"},
    {CAPTURE_ISOLATION, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "dependency created on uncaptured work in another stream"},
    {CAPTURED_EVENT, "CUDA_ERROR_CAPTURED_EVENT",
     "operation not permitted on an event last recorded in a capturing stream"}};
static unsigned error_text(unsigned code, const char **to, bool name)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code) return *to = name ? errors[i].name : errors[i].text, OK;
    *to = NULL;
    return INVALID_VALUE;
}
EXPORTED unsigned cuGetErrorName(unsigned code, const char **name)
{
    return error_text(code, name, true);
}
EXPORTED unsigned cuGetErrorString(unsigned code, const char **text)
{
    return error_text(code, text, false);
}
