// Dropout mask on CUDA: the same function of (seed, step, op, element) as on the CPU (vec_math.h), so masks
// are bit-identical. Internal to the plugin.
#ifndef AB_KERNELS_OPS_ELEMENTWISE_DROPOUT_MASK_CUH
#define AB_KERNELS_OPS_ELEMENTWISE_DROPOUT_MASK_CUH

#include "kernels/core/rng.h"
#include "kernels/cuda/cuda_ops.cuh"

#include <cmath>

struct ab_dropout_mask {
    uint64_t seed;
    const int64_t *device_step; // as in ab_exec
    uint32_t step, instance, threshold;
    float scale;

    __device__ ab_rng_block four(int64_t block) const {
        uint32_t now = device_step ? static_cast<uint32_t>(*device_step) : step;
        ab_rng_block counter = {{static_cast<uint32_t>(block), instance, now, AB_RNG_DROPOUT}};
        return ab_philox(counter, static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
    }
    __device__ float keep(uint32_t word, float x) const {
        float kept = x * scale;
        return word >> 8 >= threshold ? kept : 0.0f;
    }
    __device__ float drop(int64_t i, float x) const { return keep(four(i / 4).word[i % 4], x); }
};

// threshold 0: no element is dropped.
static inline ab_dropout_mask ab_cuda_dropout_mask(const ab_exec *exec, const ab_op_io *io, double p) {
    ab_dropout_mask c = {exec->seed, exec->device_step,
                         exec->step, io->instance,
                         0,          p < 1.0 ? static_cast<float>(1.0 / (1.0 - p)) : 0.0f};
    if (exec->training && p > 0.0) c.threshold = static_cast<uint32_t>(std::ceil(p * 0x1p24));
    return c;
}

#endif
