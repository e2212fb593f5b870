/* What runtime/cuda/library.h declares, held against NVIDIA's own headers: the types of the
 * driver's and NVRTC's functions, every constant, NCCL's configuration. Compiles or does not;
 * nothing here is run. Functions whose handles are void * with us are compared in shapes.cc. */
#include <cuda.h>
#include <nccl.h>
#include <nvrtc.h>
#include <stddef.h>

#include "cuda/library.h"

#define SAME(name, symbol, parameters)                                                        \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&symbol), unsigned(*) parameters), \
                   #symbol);
CUDA_DRIVER_CALLS(SAME)
CUDA_TENSOR_CALLS(SAME)
CUDA_NVRTC_CALLS(SAME)

_Static_assert(sizeof(nccl_id) == sizeof(ncclUniqueId) &&
                   _Alignof(nccl_id) == _Alignof(ncclUniqueId),
               "id");
#define FIELD(ours, theirs)                                                                \
    _Static_assert(offsetof(struct nccl_config, ours) == offsetof(ncclConfig_t, theirs) && \
                       sizeof(((struct nccl_config *)0)->ours) ==                          \
                           sizeof(((ncclConfig_t *)0)->theirs),                            \
                   #theirs)
FIELD(size, size);
FIELD(magic, magic);
FIELD(version, version);
FIELD(blocking, blocking);
FIELD(cga_cluster, cgaClusterSize);
FIELD(min_ctas, minCTAs);
FIELD(max_ctas, maxCTAs);
FIELD(net, netName);
FIELD(split_share, splitShare);
_Static_assert(NCCL_UNSET == NCCL_CONFIG_UNDEF_INT, "unset");

#define VALUE(ours, theirs) _Static_assert((long long)(ours) == (long long)(theirs), #theirs)
VALUE(sizeof(cuda_address), sizeof(CUdeviceptr));
VALUE(CUDA_OK, CUDA_SUCCESS);
VALUE(CUDA_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
VALUE(CUDA_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
VALUE(CUDA_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
VALUE(CUDA_INVALID_IMAGE, CUDA_ERROR_INVALID_IMAGE);
VALUE(CUDA_NO_BINARY, CUDA_ERROR_NO_BINARY_FOR_GPU);
VALUE(CUDA_NOT_READY, CUDA_ERROR_NOT_READY);
VALUE(CUDA_COMPUTE_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
VALUE(CUDA_COMPUTE_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
VALUE(CUDA_MULTIPROCESSORS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
VALUE(CUDA_CLOCK_KHZ, CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
VALUE(CUDA_SHARED_OPTIN, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
VALUE(CUDA_FUNCTION_SHARED, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
VALUE(CUDA_FUNCTION_LOCAL, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
VALUE(CUDA_FUNCTION_REGISTERS, CU_FUNC_ATTRIBUTE_NUM_REGS);
VALUE(CUDA_FUNCTION_DYNAMIC_SHARED, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
VALUE(CUDA_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
VALUE(CUDA_EVENT_DEFAULT, CU_EVENT_DEFAULT);
VALUE(CUDA_EVENT_NO_TIMING, CU_EVENT_DISABLE_TIMING);
VALUE(CUDA_HOST_PORTABLE, CU_MEMHOSTALLOC_PORTABLE);
VALUE(CUDA_HOST_MAPPED, CU_MEMHOSTALLOC_DEVICEMAP);
VALUE(CUDA_CAPTURE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED);
VALUE(CUDA_GRAPH_NODE_PRIORITY, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY);
VALUE(CUDA_TENSOR_BF16, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
VALUE(CUDA_TENSOR_PLAIN, CU_TENSOR_MAP_INTERLEAVE_NONE);
VALUE(CUDA_TENSOR_SWIZZLE_128, CU_TENSOR_MAP_SWIZZLE_128B);
VALUE(CUDA_TENSOR_FETCH_256, CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
VALUE(CUDA_TENSOR_ZEROS, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
VALUE(128, sizeof(CUtensorMap));
_Static_assert(_Alignof(CUtensorMap) <= 128, "aligned as module.c does it");
VALUE(NCCL_OK, ncclSuccess);
VALUE(NCCL_IN_PROGRESS, ncclInProgress);
VALUE(NCCL_SUM, ncclSum);
VALUE(NCCL_BYTES, ncclUint8);
VALUE(NCCL_F32, ncclFloat32);
VALUE(NCCL_F64, ncclFloat64);
