/* Every function that runtime/cuda/library.h declares against the vendor's declaration: as many
 * parameters, each a pointer where theirs is one and of the same size. Enums and handles have names
 * of their own there, so types cannot be compared as wholes; and only C++ can take a function's
 * type apart. Compiles or does not. */
#include <cublasLt.h>
#include <cuda.h>
#include <cudnn.h>
#include <nccl.h>
#include <nvrtc.h>
#include <type_traits>

#include "cuda/library.h"

template <class T, class U>
constexpr bool alike = sizeof(T) == sizeof(U) && std::is_pointer<T>::value
                                                     == std::is_pointer<U>::value;
template <class F, class G> struct same {
    static constexpr bool value = false;
};
template <class R, class S, class... A, class... B> struct same<R (*)(A...), S (*)(B...)> {
    template <bool equal, class = void> struct each {
        static constexpr bool value = false;
    };
    template <class none> struct each<true, none> {
        static constexpr bool value = alike<R, S> && (alike<A, B> && ...);
    };
    static constexpr bool value = each<sizeof...(A) == sizeof...(B)>::value;
};
#define SAME(name, symbol, parameters) \
    static_assert(same<decltype(&symbol), unsigned(*) parameters>::value, #symbol);
CUDA_DRIVER_CALLS(SAME)
CUDA_NVRTC_CALLS(SAME)
CUDA_NCCL_CALLS(SAME)
CUDA_CUBLASLT_CALLS(SAME)
CUDA_CUDNN_CALLS(SAME)
