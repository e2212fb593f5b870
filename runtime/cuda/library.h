/* NVIDIA's libraries, loaded by name when the trainer starts. Nothing is linked to them: a program
 * linked to libcuda does not start without a driver, and one built with a toolkit would need that
 * toolkit everywhere. What we call is declared here, one row per function: the row gives its
 * pointer in a struct, its look-up at start, and a check against the vendor's header if there is
 * one (tests/cuda_library). No header of the toolkit is needed to build.
 *
 * Results and enumerators are `unsigned` here, like the vendor's enums; handles are pointers to the
 * vendor's opaque structs where those have a name, else void *. */
#ifndef PLANC_CUDA_LIBRARY_H
#define PLANC_CUDA_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef unsigned long long cuda_address; /* CUdeviceptr */
typedef struct CUctx_st *cuda_context;
typedef struct CUmod_st *cuda_module;
typedef struct CUfunc_st *cuda_function;
typedef struct CUstream_st *cuda_stream;
typedef struct CUevent_st *cuda_event;
typedef struct CUgraph_st *cuda_graph;
typedef struct CUgraphExec_st *cuda_graph_exec;
typedef struct ncclComm *nccl_comm;
typedef struct ncclWindow_vidmem *nccl_window;
typedef struct {
    char internal[128];
} nccl_id;
struct _nvrtcProgram;

enum {
    CUDA_OK = 0,
    CUDA_INVALID_VALUE = 1,
    CUDA_OUT_OF_MEMORY = 2,
    CUDA_NO_DEVICE = 100,
    CUDA_INVALID_IMAGE = 200,
    CUDA_NO_BINARY = 209,
    CUDA_NOT_READY = 600,
    /* of a device */
    CUDA_COMPUTE_MAJOR = 75,
    CUDA_COMPUTE_MINOR = 76,
    CUDA_MULTIPROCESSORS = 16,
    CUDA_CLOCK_KHZ = 13,
    CUDA_SHARED_OPTIN = 97,
    /* of a function */
    CUDA_FUNCTION_SHARED = 1,
    CUDA_FUNCTION_LOCAL = 3,
    CUDA_FUNCTION_REGISTERS = 4,
    CUDA_FUNCTION_DYNAMIC_SHARED = 8,
    CUDA_STREAM_NON_BLOCKING = 1,
    CUDA_EVENT_DEFAULT = 0,
    CUDA_EVENT_NO_TIMING = 2,
    CUDA_HOST_PORTABLE = 1,
    CUDA_HOST_MAPPED = 2,
    CUDA_CAPTURE_RELAXED = 2,
    CUDA_GRAPH_NODE_PRIORITY = 8,
    /* of a tensor map */
    CUDA_TENSOR_BF16 = 9,
    CUDA_TENSOR_PLAIN = 0, /* not interleaved */
    CUDA_TENSOR_SWIZZLE_128 = 3,
    CUDA_TENSOR_FETCH_256 = 3, /* bytes of L2 at a time */
    CUDA_TENSOR_ZEROS = 0,     /* beyond its ends */
    NCCL_OK = 0,
    NCCL_IN_PROGRESS = 7,
    NCCL_SUM = 0,
    NCCL_SYMMETRIC = 1,
    NCCL_BYTES = 1 /* ncclUint8 */,
    NCCL_F32 = 7,
    NCCL_F64 = 8,
};

/* ncclConfig_t as of 2.18: NCCL reads as many bytes as `size` says, and what later versions added
 * it takes as unset. */
struct nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster, min_ctas, max_ctas;
    const char *net;
    int split_share;
};
#define NCCL_UNSET ((int)0x80000000)
#define NCCL_CONFIG                                                                        \
    {                                                                                      \
        sizeof(struct nccl_config), 0xcafebeef, 21801, NCCL_UNSET, NCCL_UNSET, NCCL_UNSET, \
            NCCL_UNSET, NULL, NCCL_UNSET                                                   \
    }

/* name in our struct, symbol in the library, parameters; each returns a result */
#define CUDA_DRIVER_CALLS(CALL)                                                                    \
    CALL(cuInit, cuInit, (unsigned flags))                                                         \
    CALL(cuDriverGetVersion, cuDriverGetVersion, (int *version))                                   \
    CALL(cuGetErrorName, cuGetErrorName, (unsigned error, const char **name))                      \
    CALL(cuGetErrorString, cuGetErrorString, (unsigned error, const char **text))                  \
    CALL(cuDeviceGetCount, cuDeviceGetCount, (int *count))                                         \
    CALL(cuDeviceGet, cuDeviceGet, (int *device, int ordinal))                                     \
    CALL(cuDeviceGetName, cuDeviceGetName, (char *name, int bytes, int device))                    \
    CALL(cuDeviceGetUuid, cuDeviceGetUuid_v2, (struct CUuuid_st * uuid, int device))               \
    CALL(cuDeviceGetAttribute, cuDeviceGetAttribute, (int *value, unsigned attribute, int device)) \
    CALL(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (cuda_context * context, int device)) \
    CALL(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (int device))                    \
    CALL(cuCtxSetCurrent, cuCtxSetCurrent, (cuda_context context))                                 \
    CALL(cuCtxGetStreamPriorityRange, cuCtxGetStreamPriorityRange, (int *least, int *greatest))    \
    CALL(cuMemGetInfo, cuMemGetInfo_v2, (size_t * available, size_t * total))                      \
    CALL(cuMemAlloc, cuMemAlloc_v2, (cuda_address * at, size_t bytes))                             \
    CALL(cuMemFree, cuMemFree_v2, (cuda_address at))                                               \
    CALL(cuMemGetAddressRange, cuMemGetAddressRange_v2,                                            \
         (cuda_address * base, size_t * bytes, cuda_address at))                                   \
    CALL(cuMemHostAlloc, cuMemHostAlloc, (void **at, size_t bytes, unsigned flags))                \
    CALL(cuMemFreeHost, cuMemFreeHost, (void *at))                                                 \
    CALL(cuMemHostGetDevicePointer, cuMemHostGetDevicePointer_v2,                                  \
         (cuda_address * at, void *host, unsigned flags))                                          \
    CALL(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2,                                                  \
         (cuda_address to, const void *from, size_t bytes, cuda_stream stream))                    \
    CALL(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2,                                                  \
         (void *to, cuda_address from, size_t bytes, cuda_stream stream))                          \
    CALL(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2,                                                  \
         (cuda_address to, cuda_address from, size_t bytes, cuda_stream stream))                   \
    CALL(cuMemsetD8Async, cuMemsetD8Async,                                                         \
         (cuda_address at, unsigned char value, size_t bytes, cuda_stream stream))                 \
    CALL(cuStreamCreateWithPriority, cuStreamCreateWithPriority,                                   \
         (cuda_stream * stream, unsigned flags, int priority))                                     \
    CALL(cuStreamDestroy, cuStreamDestroy_v2, (cuda_stream stream))                                \
    CALL(cuStreamQuery, cuStreamQuery, (cuda_stream stream))                                       \
    CALL(cuStreamSynchronize, cuStreamSynchronize, (cuda_stream stream))                           \
    CALL(cuStreamWaitEvent, cuStreamWaitEvent,                                                     \
         (cuda_stream stream, cuda_event event, unsigned flags))                                   \
    CALL(cuEventCreate, cuEventCreate, (cuda_event * event, unsigned flags))                       \
    CALL(cuEventDestroy, cuEventDestroy_v2, (cuda_event event))                                    \
    CALL(cuEventRecord, cuEventRecord, (cuda_event event, cuda_stream stream))                     \
    CALL(cuEventQuery, cuEventQuery, (cuda_event event))                                           \
    CALL(cuEventSynchronize, cuEventSynchronize, (cuda_event event))                               \
    CALL(cuEventElapsedTime, cuEventElapsedTime,                                                   \
         (float *milliseconds, cuda_event from, cuda_event to))                                    \
    CALL(cuModuleLoadData, cuModuleLoadData, (cuda_module * module, const void *image))            \
    CALL(cuModuleUnload, cuModuleUnload, (cuda_module module))                                     \
    CALL(cuModuleGetFunction, cuModuleGetFunction,                                                 \
         (cuda_function * function, cuda_module module, const char *name))                         \
    CALL(cuFuncGetAttribute, cuFuncGetAttribute,                                                   \
         (int *value, unsigned attribute, cuda_function function))                                 \
    CALL(cuFuncSetAttribute, cuFuncSetAttribute,                                                   \
         (cuda_function function, unsigned attribute, int value))                                  \
    CALL(cuLaunchKernel, cuLaunchKernel,                                                           \
         (cuda_function function, unsigned x, unsigned y, unsigned z, unsigned threads_x,          \
          unsigned threads_y, unsigned threads_z, unsigned shared_bytes, cuda_stream stream,       \
          void **argument, void **extra))                                                          \
    CALL(cuStreamBeginCapture, cuStreamBeginCapture_v2, (cuda_stream stream, unsigned mode))       \
    CALL(cuStreamEndCapture, cuStreamEndCapture, (cuda_stream stream, cuda_graph * graph))         \
    CALL(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags,                                 \
         (cuda_graph_exec * exec, cuda_graph graph, unsigned long long flags))                     \
    CALL(cuGraphLaunch, cuGraphLaunch, (cuda_graph_exec exec, cuda_stream stream))                 \
    CALL(cuGraphExecDestroy, cuGraphExecDestroy, (cuda_graph_exec exec))                           \
    CALL(cuGraphDestroy, cuGraphDestroy, (cuda_graph graph))

/* Asked for only where a kernel reads by tensor copies. */
#define CUDA_TENSOR_CALLS(CALL)                                                                    \
    CALL(cuTensorMapEncodeTiled, cuTensorMapEncodeTiled,                                           \
         (struct CUtensorMap_st * map, unsigned type, uint32_t rank, void *at,                     \
          const uint64_t *size, const uint64_t *stride, const uint32_t *box, const uint32_t *step, \
          unsigned interleave, unsigned swizzle, unsigned fetch, unsigned fill))

#define CUDA_NVRTC_CALLS(CALL)                                                                   \
    CALL(nvrtcVersion, nvrtcVersion, (int *major, int *minor))                                   \
    CALL(nvrtcCreateProgram, nvrtcCreateProgram,                                                 \
         (struct _nvrtcProgram * *program, const char *text, const char *name, int headers,      \
          const char *const *header, const char *const *header_name))                            \
    CALL(nvrtcCompileProgram, nvrtcCompileProgram,                                               \
         (struct _nvrtcProgram * program, int options, const char *const *option))               \
    CALL(nvrtcGetCUBINSize, nvrtcGetCUBINSize, (struct _nvrtcProgram * program, size_t * bytes)) \
    CALL(nvrtcGetCUBIN, nvrtcGetCUBIN, (struct _nvrtcProgram * program, char *cubin))            \
    CALL(nvrtcGetProgramLogSize, nvrtcGetProgramLogSize,                                         \
         (struct _nvrtcProgram * program, size_t * bytes))                                       \
    CALL(nvrtcGetProgramLog, nvrtcGetProgramLog, (struct _nvrtcProgram * program, char *log))    \
    CALL(nvrtcDestroyProgram, nvrtcDestroyProgram, (struct _nvrtcProgram * *program))

/* Element types and operations are NCCL_* above. */
#define CUDA_NCCL_CALLS(CALL)                                                             \
    CALL(ncclGetVersion, ncclGetVersion, (int *version))                                  \
    CALL(ncclGetUniqueId, ncclGetUniqueId, (nccl_id * id))                                \
    CALL(ncclCommInitRankConfig, ncclCommInitRankConfig,                                  \
         (nccl_comm * comm, int ranks, nccl_id id, int rank, struct nccl_config *config)) \
    CALL(ncclCommDestroy, ncclCommDestroy, (nccl_comm comm))                              \
    CALL(ncclCommAbort, ncclCommAbort, (nccl_comm comm))                                  \
    CALL(ncclCommGetAsyncError, ncclCommGetAsyncError, (nccl_comm comm, unsigned *error)) \
    CALL(ncclMemAlloc, ncclMemAlloc, (void **at, size_t bytes))                           \
    CALL(ncclMemFree, ncclMemFree, (void *at))                                            \
    CALL(ncclCommRegister, ncclCommRegister,                                              \
         (const nccl_comm comm, void *at, size_t bytes, void **handle))                   \
    CALL(ncclCommDeregister, ncclCommDeregister, (const nccl_comm comm, void *handle))    \
    CALL(ncclAllGather, ncclAllGather,                                                    \
         (const void *from, void *to, size_t count, unsigned type, nccl_comm comm,        \
          cuda_stream stream))                                                            \
    CALL(ncclReduceScatter, ncclReduceScatter,                                            \
         (const void *from, void *to, size_t count, unsigned type, unsigned operation,    \
          nccl_comm comm, cuda_stream stream))                                            \
    CALL(ncclAllReduce, ncclAllReduce,                                                    \
         (const void *from, void *to, size_t count, unsigned type, unsigned operation,    \
          nccl_comm comm, cuda_stream stream))

/* Since 2.27; without them memory is registered as buffers. */
#define CUDA_WINDOW_CALLS(CALL)                                                    \
    CALL(ncclCommWindowRegister, ncclCommWindowRegister,                           \
         (nccl_comm comm, void *at, size_t bytes, nccl_window *window, int flags)) \
    CALL(ncclCommWindowDeregister, ncclCommWindowDeregister, (nccl_comm comm, nccl_window window))

#define CUDA_CUBLASLT_CALLS(CALL)                                                                  \
    CALL(cublasLtCreate, cublasLtCreate, (void **handle))                                          \
    CALL(cublasLtDestroy, cublasLtDestroy, (void *handle))                                         \
    CALL(cublasLtMatmul, cublasLtMatmul,                                                           \
         (void *handle, void *operation, const void *alpha, const void *a, void *layout_a,         \
          const void *b, void *layout_b, const void *beta, const void *c, void *layout_c, void *d, \
          void *layout_d, const void *algorithm, void *workspace, size_t workspace_bytes,          \
          cuda_stream stream))                                                                     \
    CALL(cublasLtMatmulDescCreate, cublasLtMatmulDescCreate,                                       \
         (void **operation, unsigned compute_type, unsigned scale_type))                           \
    CALL(cublasLtMatmulDescDestroy, cublasLtMatmulDescDestroy, (void *operation))                  \
    CALL(cublasLtMatmulDescSetAttribute, cublasLtMatmulDescSetAttribute,                           \
         (void *operation, unsigned attribute, const void *from, size_t bytes))                    \
    CALL(cublasLtMatrixLayoutCreate, cublasLtMatrixLayoutCreate,                                   \
         (void **layout, unsigned type, uint64_t rows, uint64_t columns, int64_t ld))              \
    CALL(cublasLtMatrixLayoutDestroy, cublasLtMatrixLayoutDestroy, (void *layout))                 \
    CALL(cublasLtMatmulPreferenceCreate, cublasLtMatmulPreferenceCreate, (void **preference))      \
    CALL(cublasLtMatmulPreferenceDestroy, cublasLtMatmulPreferenceDestroy, (void *preference))     \
    CALL(cublasLtMatmulPreferenceSetAttribute, cublasLtMatmulPreferenceSetAttribute,               \
         (void *preference, unsigned attribute, const void *from, size_t bytes))                   \
    CALL(cublasLtMatmulAlgoGetHeuristic, cublasLtMatmulAlgoGetHeuristic,                           \
         (void *handle, void *operation, void *layout_a, void *layout_b, void *layout_c,           \
          void *layout_d, void *preference, int wanted, void *results, int *found))

/* Since 13.1, and asked for only where run.experts wants it. */
#define CUDA_GROUPED_CALLS(CALL)                                                           \
    CALL(cublasLtGroupedMatrixLayoutCreate, cublasLtGroupedMatrixLayoutCreate,             \
         (void **layout, unsigned type, int groups, const void *rows, const void *columns, \
          const void *ld))

#define CUDA_CUDNN_CALLS(CALL)                                                                   \
    CALL(cudnnGetProperty, cudnnGetProperty, (unsigned what, int *value))                        \
    CALL(cudnnCreate, cudnnCreate, (void **handle))                                              \
    CALL(cudnnDestroy, cudnnDestroy, (void *handle))                                             \
    CALL(cudnnSetStream, cudnnSetStream, (void *handle, cuda_stream stream))                     \
    CALL(cudnnBackendCreateDescriptor, cudnnBackendCreateDescriptor,                             \
         (unsigned type, void **descriptor))                                                     \
    CALL(cudnnBackendDestroyDescriptor, cudnnBackendDestroyDescriptor, (void *descriptor))       \
    CALL(cudnnBackendSetAttribute, cudnnBackendSetAttribute,                                     \
         (void *descriptor, unsigned attribute, unsigned type, int64_t count, const void *from)) \
    CALL(cudnnBackendGetAttribute, cudnnBackendGetAttribute,                                     \
         (void *descriptor, unsigned attribute, unsigned type, int64_t wanted, int64_t *count,   \
          void *to))                                                                             \
    CALL(cudnnBackendFinalize, cudnnBackendFinalize, (void *descriptor))                         \
    CALL(cudnnBackendExecute, cudnnBackendExecute, (void *handle, void *plan, void *variant))

#define CUDA_DECLARE(name, symbol, parameters) unsigned(*name) parameters;
struct CUuuid_st;
struct CUtensorMap_st;
struct cuda_driver {
    CUDA_DRIVER_CALLS(CUDA_DECLARE)
};
struct cuda_tensors {
    CUDA_TENSOR_CALLS(CUDA_DECLARE)
};
struct cuda_nvrtc {
    CUDA_NVRTC_CALLS(CUDA_DECLARE) const char *(*nvrtcGetErrorString)(unsigned error);
};
struct cuda_nccl {
    CUDA_NCCL_CALLS(CUDA_DECLARE) const char *(*ncclGetErrorString)(unsigned error);
    const char *(*ncclGetLastError)(nccl_comm comm);
};
struct cuda_windows {
    CUDA_WINDOW_CALLS(CUDA_DECLARE)
};
struct cuda_cublaslt {
    CUDA_CUBLASLT_CALLS(CUDA_DECLARE) const char *(*cublasLtGetStatusName)(unsigned status);
    size_t (*cublasLtGetVersion)(void);
};
struct cuda_grouped {
    CUDA_GROUPED_CALLS(CUDA_DECLARE)
};
struct cuda_cudnn {
    CUDA_CUDNN_CALLS(CUDA_DECLARE) const char *(*cudnnGetErrorString)(unsigned status);
    size_t (*cudnnGetVersion)(void);
};

/* Filled by cuda_library_open; all NULL before. */
extern struct cuda_driver driver;
extern struct cuda_tensors tensors;
extern struct cuda_nvrtc nvrtc;
extern struct cuda_nccl nccl;
extern struct cuda_windows nccl_windows;
extern struct cuda_cublaslt cublaslt;
extern struct cuda_grouped grouped;
extern struct cuda_cudnn cudnn;

enum cuda_library {
    LIBRARY_DRIVER,
    LIBRARY_NVRTC,
    LIBRARY_NCCL,
    LIBRARY_CUBLASLT,
    LIBRARY_CUDNN,
    LIBRARY_CUBLASLT_GROUPED,
    LIBRARY_NCCL_WINDOWS,
    LIBRARY_TENSORS
};

/* Loads one, once. False: `why` (LIBRARY_WHY bytes) says in a sentence without a full stop what is
 * missing; whether that is the end of the run or only slower is the caller's to say. Not after the
 * first step: it allocates. */
enum { LIBRARY_WHY = 512 };
bool cuda_library_open(enum cuda_library library, char why[LIBRARY_WHY]);

/* Looks at a result of the driver. Not CUDA_OK: one line with rank, step, call and the error's
 * name, and the run ends. */
void cuda_check(unsigned result, const char *call);
/* "CUDA_ERROR_OUT_OF_MEMORY (out of memory); nvidia-smi shows …" */
enum { CUDA_ERROR = 320 };
const char *cuda_error_text(unsigned result, char text[CUDA_ERROR]);
#define CUDA(call, ...) cuda_check(driver.call(__VA_ARGS__), #call)

#endif
