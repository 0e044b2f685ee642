// What every CUDA source of the plugin shares: the open device, its stream and scratch memory, and checks
// that turn statuses of CUDA, cuBLAS and cuDNN into ours. Internal to the plugin.
//
// One device a process: a cell has a process of its own. Everything runs on one stream (a second one moves
// batches), so kernels see what earlier ones wrote without further synchronisation.
#ifndef AB_CORE_CUDA_CUH
#define AB_CORE_CUDA_CUH

#include "kernels/core/device.h"

#include <cublasLt.h>
#include <cuda_runtime.h>
#include <cudnn.h>

struct ab_cuda {
    int index;
    bool started; // the rest is there
    cudaStream_t stream, copies;
    cublasLtHandle_t blas;
    cudnnHandle_t dnn;
    bool capturing; // a graph is being recorded: nothing may wait for the device
    int multiprocessors;
    float *probe; // scratch of probed steps, see ab_cuda_probe_scratch
    size_t probe_bytes;
};

// The context of the device that was opened; its stream and libraries are there once ab_cuda_start succeeded.
ab_cuda *ab_cuda_get();
ab_status ab_cuda_start();

// AB_OK, or a failure that names what was called. A lost device and a sticky error are AB_DEVICE and say that
// the cell is lost.
ab_status ab_cuda_check(cudaError_t code, const char *what);
ab_status ab_cuda_check_blas(cublasStatus_t code, const char *what);
ab_status ab_cuda_check_dnn(cudnnStatus_t code, const char *what);
ab_status ab_cuda_launched(const char *kernel); // after a <<<>>>

#define AB_CUDA_TRY(call) AB_TRY(ab_cuda_check((call), #call))
#define AB_BLAS_TRY(call) AB_TRY(ab_cuda_check_blas((call), #call))
#define AB_DNN_TRY(call) AB_TRY(ab_cuda_check_dnn((call), #call))

// fp32 scratch for what probed steps show, grown as needed, freed with the process. It is outside the cell's
// categories: only probed steps use it. Not while a graph is recorded.
ab_status ab_cuda_probe_scratch(size_t bytes, float **scratch);

// Blocks of `threads` threads for n items, at least 1 and at most a few waves of the device: kernels stride
// over the rest.
unsigned ab_cuda_blocks(int64_t n, int threads);

enum { AB_CUDA_THREADS = 256 };

#endif
