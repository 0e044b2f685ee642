// What the files of CUDA reductions share. Internal to the plugin.
#ifndef AB_KERNELS_CUDA_BACKEND_REDUCTIONS_CUDA_CUH
#define AB_KERNELS_CUDA_BACKEND_REDUCTIONS_CUDA_CUH

#include "kernels/cuda/cuda_ops.cuh"

// ab_reductions.update
ab_status ab_cuda_update_counted(const ab_update_item *item, int kind, const ab_update_row *row,
                                 const ab_update_question *question, ab_update_counts *counts);

// ab_reductions.clip (resident_cuda.cu)
ab_status ab_cuda_clip(ab_tensor *const *grad, int count, double norm, double value, double *total);

#endif
