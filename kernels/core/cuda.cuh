// Shared by all CUDA sources of the plugin: the open device, its stream and scratch memory, and checks
// that map CUDA, cuBLAS and cuDNN statuses to ab_status. Internal to the plugin.
//
// One device per process: every cell has its own process. Everything runs on one stream (a second one
// copies batches), so kernels see the results of earlier ones without synchronisation.
#ifndef AB_CORE_CUDA_CUH
#define AB_CORE_CUDA_CUH

#include "kernels/core/device.h"

#include <cublasLt.h>
#include <cuda_runtime.h>
#include <cudnn.h>

// A launch of `kernel`: grid, block, bytes of dynamic shared memory, stream, then its arguments. Kernels are
// launched through it alone, so that tests/cuda_host can run the same sources on the host.
#if !defined(AB_CUDA_LAUNCH)
#define AB_CUDA_LAUNCH(kernel, grid, block, shared, stream, ...)                                             \
    kernel<<<grid, block, shared, stream>>>(__VA_ARGS__)
#endif

struct ab_cuda {
    int index;
    bool started; // the fields below are initialised
    cudaStream_t stream, copies;
    cublasLtHandle_t blas;
    cudnnHandle_t dnn;
    bool capturing; // a graph is being captured: no synchronisation allowed
    int multiprocessors;
};

// The context of the open device; its stream and library handles are valid after ab_cuda_start.
ab_cuda *ab_cuda_context();
ab_status ab_cuda_start();

// AB_OK, or an error that names the failed call. A lost device or a sticky error is AB_DEVICE; the message
// says that the cell is lost.
ab_status ab_cuda_check(cudaError_t code, const char *what);
ab_status ab_cuda_check_blas(cublasStatus_t code, const char *what);
ab_status ab_cuda_check_dnn(cudnnStatus_t code, const char *what);
ab_status ab_cuda_launched(const char *kernel); // call after each AB_CUDA_LAUNCH

#define AB_CUDA_TRY(call) AB_TRY(ab_cuda_check((call), #call))
#define AB_BLAS_TRY(call) AB_TRY(ab_cuda_check_blas((call), #call))
#define AB_DNN_TRY(call) AB_TRY(ab_cuda_check_dnn((call), #call))

// Device memory that the plugin takes for itself, beside the blocks that the device's table gives out. It is
// counted (ab_device.held), so that a cell's memory is known whole. NULL is a no-op.
ab_status ab_cuda_take(size_t bytes, void **block);
void ab_cuda_give_back(void *block);

// One such block per use, grown as needed and kept until the process ends: values observed on probed steps;
// counts of a reduction, read before the next one begins; the flag of a finite check. What it held is lost
// when it grows. Must not be called during graph capture.
enum ab_cuda_use { AB_CUDA_PROBE, AB_CUDA_COUNTS, AB_CUDA_FLAG, AB_CUDA_USES };
ab_status ab_cuda_kept(ab_cuda_use use, size_t bytes, void **block);

// The flag of a check, on the plugin's stream: cleared for kernels that set it, and waited for.
ab_status ab_cuda_clear_flag(int32_t **flag);
ab_status ab_cuda_read_flag(const int32_t *flag, bool *set);

// Number of blocks of `threads` threads for n items: at least 1, at most a few waves. Kernels use
// grid-stride loops.
unsigned ab_cuda_blocks(int64_t n, int threads);

enum { AB_CUDA_THREADS = 256 };

#endif
