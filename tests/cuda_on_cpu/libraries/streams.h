/* What the stand-in libraries share: streams as queues, the one thread that takes from them, and
 * memory that plays a device's.
 *
 * Device addresses carry a bit that no address of a process has. The host cannot follow them by
 * mistake, and everything that works "on the device" (a kernel, a copy, NCCL, cuBLASLt) gives the
 * bit back first and learns whether the bytes are there.
 *
 * What is put on a stream is a function with a copy of its data, called by the taker again and
 * again until it says that it is done; so an operation that waits for another process does not stop
 * other streams. The same function serves capture: on a stream that is being captured it becomes a
 * node of the graph, whose data is copied anew for every launch. */
#ifndef STANDIN_STREAMS_H
#define STANDIN_STREAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORTED __attribute__((visibility("default")))

/* of the device that is played */
enum { STANDIN_MULTIPROCESSORS = 132 };

typedef struct CUstream_st *stream_t;

/* How a piece of work stands. STANDIN_FAILED: standin_error was called. */
enum standin_progress { STANDIN_DONE, STANDIN_AGAIN, STANDIN_FAILED };
/* Puts work on a stream: `bytes` of `data` are copied. `what` is told in errors. Gives a
 * CUresult. */
EXPORTED unsigned standin_enqueue(stream_t stream, const char *what,
                                  enum standin_progress (*run)(void *data), const void *data,
                                  size_t bytes);

/* What the driver's addresses have and those in a kernel do not, so that no host follows one. */
#define DEVICE_BIT ((uintptr_t)1 << 62)
/* The memory behind a device address; NULL when [at, at + bytes) is not wholly in one allocation
 * (or pinned host memory). */
EXPORTED void *standin_memory(const void *at, size_t bytes);
/* The first mistake of the device: every later call says `code`, and stderr says why. */
EXPORTED void standin_error(unsigned code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
EXPORTED unsigned standin_error_code(void);
/* that could be launched */
EXPORTED int standin_graphs(void);

/* a number from the environment */
EXPORTED int64_t standin_setting(const char *name, int64_t otherwise);
EXPORTED uint64_t standin_random(void); /* from STANDIN_SEED */

/* ── within libcuda ──────────────────────────────────────────────────────────── */
enum {
    OK = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    NO_BINARY = 209,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    LAUNCH_OUT_OF_RESOURCES = 701,
    LAUNCH_FAILED = 719,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
    CAPTURE_UNJOINED = 904,
    CAPTURE_ISOLATION = 905,
    CAPTURED_EVENT = 907,
};
void *memory_take(size_t bytes, bool host); /* a device address, or a host one */
bool memory_give(void *at, bool host);
bool memory_pinned(const void *host); /* lies in pinned host memory */
bool memory_range(const void *at, void **base, size_t *bytes);
void memory_sums(size_t *available, size_t *total);
unsigned streams_drain(void); /* until every queue is empty */

#endif
