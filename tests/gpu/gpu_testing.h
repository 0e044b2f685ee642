/* For tests that need a GPU: opening it, or leaving with 77 and the reason, which CTest reports as skipped.
 * A test's main begins with gpu_or_skip(). The same tests run on the emulation of tests/cuda_host, which says
 * so itself and takes smaller sizes where a test asks gpu_is_emulated(). */
#ifndef AB_TESTS_GPU_TESTING_H
#define AB_TESTS_GPU_TESTING_H

#include "oracle/doubles.h"

#include "kernels/backend/backend.h"

#include <stdio.h>
#include <stdlib.h>

static const ab_device *gpu;

static inline void gpu_or_skip(void) {
    if (ab_device_open("cuda", &gpu, NULL) == AB_OK) return;
    printf("SKIPPED: %s\n", ab_error_message());
    exit(77);
}

static inline void gpu_note_emulated(void *emulated, const char *key, const char *text) {
    if (strcmp(key, "gpu") == 0 && text && strncmp(text, "no GPU", 6) == 0) *(bool *)emulated = true;
}

static inline bool gpu_is_emulated(void) {
    bool emulated = false;
    if (gpu->facts) gpu->facts(gpu_note_emulated, &emulated);
    return emulated;
}

/* ---- one op on the GPU, over the tensors of an op_run ---------------------------------------- */

enum { GPU_BLOCKS = 40 };

typedef struct gpu_run {
    const op_run *host;
    const ab_op *op; /* the GPU's; NULL: it has none for these tensors */
    ab_exec exec;
    ab_op_io io;
    ab_tensor tensor[GPU_BLOCKS];
    void *block[GPU_BLOCKS];
    int tensors, blocks;
} gpu_run;

static inline void *gpu_block(gpu_run *g, size_t bytes) {
    void *block;
    assert_true(g->blocks < GPU_BLOCKS);
    if (gpu->alloc(bytes, &block) != AB_OK) fail_msg("%s", ab_error_message());
    assert_int_equal(gpu->fill_zero(block, bytes), AB_OK);
    return g->block[g->blocks++] = block;
}

/* A copy of a tensor, values included. */
static inline ab_tensor *gpu_copy(gpu_run *g, const ab_tensor *host) {
    if (!host) return NULL;
    ab_tensor *t = &g->tensor[g->tensors++];
    *t = *host;
    t->device = gpu;
    size_t size = host->format ? ab_format_bytes(host->format, 1) : sizeof(int32_t);
    t->data = gpu_block(g, (size_t)ab_tensor_count(host) * size);
    assert_int_equal(ab_tensor_upload(t, host->data), AB_OK);
    return t;
}

/* After op_run_open and before the host's run: copies every tensor and prepares. */
static inline bool gpu_run_open(gpu_run *g, const op_run *host) {
    size_t workspace = 0, state = 0;
    memset(g, 0, sizeof *g);
    g->host = host;
    g->exec = host->exec;
    g->io.attrs = host->io.attrs;
    g->io.op = host->op;
    g->io.instance = host->io.instance;
    for (int i = 0; i < AB_MAX_INPUTS; i++) {
        g->io.in[i] = gpu_copy(g, host->io.in[i]);
        g->io.din[i] = gpu_copy(g, host->io.din[i]);
    }
    for (int i = 0; i < AB_MAX_PARAMS; i++) {
        g->io.param[i] = gpu_copy(g, host->io.param[i]);
        g->io.dparam[i] = gpu_copy(g, host->io.dparam[i]);
    }
    for (int i = 0; i < AB_MAX_SAVED; i++) g->io.saved[i] = gpu_copy(g, host->io.saved[i]);
    g->io.out = gpu_copy(g, host->io.out);
    g->io.dout = gpu_copy(g, host->io.dout);
    g->io.params_version = 1;
    g->op = ab_backend_of(gpu)->op(host->op);
    if (!g->op) return false;
    ab_status status = g->op->prepare ? g->op->prepare(&g->exec, &g->io, &workspace, &state) : AB_OK;
    if (status == AB_UNAVAILABLE) return false;
    if (status != AB_OK) fail_msg("%s", ab_error_message());
    g->exec.workspace = gpu_block(g, workspace);
    g->exec.workspace_bytes = workspace;
    if (g->op->bind) g->op->bind(&g->io, gpu_block(g, state));
    return true;
}

static inline void gpu_run_both(gpu_run *g) {
    if (g->op->forward(&g->exec, &g->io) != AB_OK) fail_msg("%s", ab_error_message());
    if (g->op->backward(&g->exec, &g->io) != AB_OK) fail_msg("%s", ab_error_message());
    if (gpu->synchronize() != AB_OK) fail_msg("%s", ab_error_message());
}

/* A host tensor with the GPU's values; release its data with free. */
static inline ab_tensor gpu_result(const ab_tensor *device) {
    ab_tensor t = *device;
    size_t size = device->format ? ab_format_bytes(device->format, 1) : sizeof(int32_t);
    t.device = &ab_device_cpu;
    t.data = malloc((size_t)ab_tensor_count(device) * size);
    assert_non_null(t.data);
    assert_int_equal(ab_tensor_download(device, t.data), AB_OK);
    return t;
}

static inline void gpu_run_close(gpu_run *g) {
    if (g->op && g->op->release) g->op->release(&g->io);
    for (int i = 0; i < g->blocks; i++) gpu->free(g->block[i]);
}

#endif
