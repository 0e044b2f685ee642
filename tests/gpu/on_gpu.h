/* Included before a test of an op (tests/unit/test_ops_*.c): runs its cases on the GPU, so that the same
 * oracles, formats and shapes judge the GPU's kernels. What a test asks of the host's op directly (errors,
 * lanes, a path of the CPU other than the default) stays there. Tensors that the GPU does not take run on the
 * host, as in the program; a test in which nothing ran on the GPU fails. Ends with 77 without a GPU. */
#ifndef AB_TESTS_GPU_ON_GPU_H
#define AB_TESTS_GPU_ON_GPU_H

#define _GNU_SOURCE
#include "gpu/gpu_testing.h"

static long on_gpu_runs, on_gpu_refused;

static inline void on_gpu_fetch(const ab_tensor *device, ab_tensor *host) {
    if (device && host) assert_int_equal(ab_tensor_download(device, host->data), AB_OK);
}

static bool on_gpu(op_run *r) {
    if (r->exec.path != AB_PATH_AUTO) return false;
    gpu_run g;
    bool taken = gpu_run_open(&g, r);
    on_gpu_runs += taken;
    on_gpu_refused += !taken;
    if (taken) {
        gpu_run_both(&g);
        on_gpu_fetch(g.io.out, r->io.out);
        for (int i = 0; i < AB_MAX_INPUTS; i++) on_gpu_fetch(g.io.din[i], r->io.din[i]);
        for (int i = 0; i < AB_MAX_PARAMS; i++) {
            on_gpu_fetch(g.io.dparam[i], r->io.dparam[i]);
            on_gpu_fetch(g.io.param[i], r->io.param[i]);
        }
        for (int i = 0; i < AB_MAX_SAVED; i++) on_gpu_fetch(g.io.saved[i], r->io.saved[i]);
        op_run_check_guards(r);
    }
    gpu_run_close(&g);
    return taken;
}

int on_gpu_tests(void);

int main(void) {
    gpu_or_skip();
    op_run_device = on_gpu;
    if (gpu_is_emulated()) op_run_part = 8;
    int failed = on_gpu_tests();
    printf("%ld runs on the GPU, %ld left to the host\n", on_gpu_runs, on_gpu_refused);
    return failed || on_gpu_runs == 0;
}

#define main on_gpu_tests

#endif
