// Stand-in for the CUDA runtime's header: the part that the .cu files use, compiled as C++ and run on the
// host by emulated.h. Names and numbers are CUDA's. Found in place of the toolkit's header because this
// folder is first among the include paths.
#ifndef AB_TESTS_CUDA_HOST_CUDA_RUNTIME_H
#define AB_TESTS_CUDA_HOST_CUDA_RUNTIME_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <utility>

// ---- the language -------------------------------------------------------------------------------

#define __host__
#define __device__
#define __global__
#define __shared__ static // the emulation knows its addresses: the writable data of this module
#define __forceinline__ inline

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

typedef struct emulated_stream *cudaStream_t;
typedef struct emulated_event *cudaEvent_t;
typedef struct emulated_graph *cudaGraph_t;
typedef struct emulated_graph_exec *cudaGraphExec_t;

// The stream of those who name none; a null stream is a mistake here.
#define cudaStreamLegacy (reinterpret_cast<cudaStream_t>(static_cast<uintptr_t>(1)))

#include "emulated.h"

// Constant while a thread runs, so a compiler may read them once.
#define threadIdx (emulated::thread_index())
#define blockIdx (emulated::block_index())
#define blockDim (emulated::block_size())
#define gridDim (emulated::grid_size())
#define warpSize 32

#define __syncthreads() emulated::barrier(emulated::ALL_ARRIVE, 0, __FILE__, __LINE__)
#define __syncthreads_or(x) emulated::barrier(emulated::ANY_TRUE, (x), __FILE__, __LINE__)
#define __syncthreads_and(x) emulated::barrier(emulated::ALL_TRUE, (x), __FILE__, __LINE__)
#define __syncthreads_count(x) emulated::barrier(emulated::HOW_MANY, (x), __FILE__, __LINE__)
#define __syncwarp(...) emulated::warp_sync(__FILE__, __LINE__, ##__VA_ARGS__)
#define __ballot_sync(mask, x) emulated::ballot(mask, (x) != 0, __FILE__, __LINE__)
#define __any_sync(mask, x) (emulated::ballot(mask, (x) != 0, __FILE__, __LINE__) != 0)
#define __all_sync(mask, x) (emulated::ballot(mask, (x) == 0, __FILE__, __LINE__) == 0)
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
#define __shfl_sync(...) emulated::shuffle(emulated::FROM_LANE, __FILE__, __LINE__, __VA_ARGS__)
#define __shfl_up_sync(...) emulated::shuffle(emulated::FROM_BELOW, __FILE__, __LINE__, __VA_ARGS__)
#define __shfl_down_sync(...) emulated::shuffle(emulated::FROM_ABOVE, __FILE__, __LINE__, __VA_ARGS__)
#define __shfl_xor_sync(...) emulated::shuffle(emulated::FROM_XOR, __FILE__, __LINE__, __VA_ARGS__)

template <typename T> static inline T atomicAdd(T *at, T x) {
    return emulated::atomic(at, [x](T old) { return static_cast<T>(old + x); });
}
template <typename T> static inline T atomicMin(T *at, T x) {
    return emulated::atomic(at, [x](T old) { return x < old ? x : old; });
}
template <typename T> static inline T atomicMax(T *at, T x) {
    return emulated::atomic(at, [x](T old) { return x > old ? x : old; });
}
template <typename T> static inline T atomicExch(T *at, T x) {
    return emulated::atomic(at, [x](T) { return x; });
}
template <typename T> static inline T atomicOr(T *at, T x) {
    return emulated::atomic(at, [x](T old) { return old | x; });
}
template <typename T> static inline T atomicCAS(T *at, T expected, T x) {
    return emulated::atomic(at, [=](T old) { return old == expected ? x : old; });
}

// Arguments are evaluated and copied at the launch, as by <<<>>>.
#define AB_CUDA_LAUNCH(kernel, grid, block, shared, stream, ...)                                             \
    emulated::launch(                                                                                        \
        #kernel, grid, block, shared, stream, [=](auto... copied) { kernel(copied...); }, __VA_ARGS__)

// ---- the runtime --------------------------------------------------------------------------------

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInvalidDevice = 101,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorStreamCaptureImplicit = 906,
    cudaErrorStreamCaptureUnsupported = 900
};
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2, cudaMemcpyDeviceToDevice = 3 };
enum cudaStreamCaptureMode {
    cudaStreamCaptureModeGlobal = 0,
    cudaStreamCaptureModeThreadLocal = 1,
    cudaStreamCaptureModeRelaxed = 2
};
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone = 0, cudaStreamCaptureStatusActive = 1 };
enum cudaMemoryType {
    cudaMemoryTypeUnregistered = 0,
    cudaMemoryTypeHost,
    cudaMemoryTypeDevice,
    cudaMemoryTypeManaged
};
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount = 16 };
enum { cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2 };
enum { cudaEventRecordDefault = 0, cudaEventRecordExternal = 1 };

struct cudaDeviceProp {
    char name[256];
    int major, minor, multiProcessorCount, l2CacheSize, ECCEnabled;
    size_t totalGlobalMem;
};

struct cudaPointerAttributes {
    cudaMemoryType type;
    int device;
};

cudaError_t cudaGetLastError();
const char *cudaGetErrorString(cudaError_t code);
const char *cudaGetErrorName(cudaError_t code);
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaSetDevice(int index);
cudaError_t cudaGetDevice(int *index);
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *about, const void *at);
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int index);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int index);
cudaError_t cudaDeviceGetPCIBusId(char *text, int size, int index);
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaMemGetInfo(size_t *left, size_t *all);

cudaError_t emulated_malloc(void **block, size_t bytes, bool pinned);
template <typename T> static inline cudaError_t cudaMalloc(T **block, size_t bytes) {
    return emulated_malloc(reinterpret_cast<void **>(block), bytes, false);
}
template <typename T> static inline cudaError_t cudaMallocHost(T **block, size_t bytes) {
    return emulated_malloc(reinterpret_cast<void **>(block), bytes, true);
}
cudaError_t cudaFree(void *block);
cudaError_t cudaFreeHost(void *block);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemsetAsync(void *block, int value, size_t bytes, cudaStream_t stream);

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
static inline cudaError_t cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to);

#endif
