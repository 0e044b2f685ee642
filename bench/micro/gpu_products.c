/* Rates of the GPU's matrix products and convolutions as ampbench runs them (cuBLASLt, cuDNN behind the
 * device's own ops), as JSON: many forward passes in a row with one synchronisation at the end. Exits with 77
 * without a GPU. Not a test. */
#include "bench/timer/timer.h"
#include "kernels/backend/backend.h"
#include "kernels/core/rng.h"
#include "kernels/format/convert.h"
#include "kernels/ops/op.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CALLS = 20, ROUNDS = 7 };

typedef struct product {
    const char *op;
    ab_shape in, out, weight;
    int64_t attrs[12]; /* of the op, in the order of its table */
    double flop;
} product;

typedef struct running {
    const ab_op *run;
    ab_exec exec;
    ab_op_io io;
    ab_tensor in, out, weight;
    void *state;
} running;

/* Normal values of a period of PERIOD: a product of zeros takes less power and is faster. */
static ab_status fill(ab_tensor *tensor) {
    enum { PERIOD = 65521 };
    int64_t count = ab_tensor_count(tensor);
    float *values = malloc((size_t)count * sizeof *values);
    void *stored = malloc(ab_format_bytes(tensor->format, count));
    ab_status status = values && stored ? AB_OK : ab_fail(AB_NO_MEMORY, "out of memory");
    if (status == AB_OK) {
        for (int64_t i = 0; i < count; i++)
            values[i] = i < PERIOD ? ab_rng_normal(1, AB_RNG_SYNTHETIC, 0, (uint64_t)i) : values[i - PERIOD];
        ab_narrow(stored, tensor->format, values, count);
        status = ab_tensor_upload(tensor, stored);
    }
    free(values);
    free(stored);
    return status;
}

static ab_status place(const ab_device *device, ab_tensor *tensor, ab_shape shape, const ab_format *format) {
    *tensor = (ab_tensor){.shape = shape, .format = format, .device = device, .id = -1};
    AB_TRY(device->alloc(ab_format_bytes(format, ab_tensor_count(tensor)), &tensor->data));
    return fill(tensor);
}

static ab_status start(const ab_device *device, const product *p, const ab_format *format, const ab_op *op,
                       running *r) {
    size_t workspace = 0, state = 0;
    memset(r, 0, sizeof *r);
    AB_TRY(place(device, &r->in, p->in, format));
    AB_TRY(place(device, &r->out, p->out, format));
    AB_TRY(place(device, &r->weight, p->weight, format));
    r->exec.training = true;
    r->io = (ab_op_io){.op = op, .attrs = p->attrs, .in = {&r->in}, .param = {&r->weight}, .out = &r->out};
    r->run = ab_backend_of(device)->op(op);
    if (!r->run) return ab_fail(AB_UNAVAILABLE, "%s: not on this device", op->name);
    AB_TRY(r->run->prepare(&r->exec, &r->io, &workspace, &state));
    AB_TRY(device->alloc(workspace ? workspace : 1, &r->exec.workspace));
    AB_TRY(device->alloc(state ? state : 1, &r->state));
    r->exec.workspace_bytes = workspace;
    if (r->run->bind) r->run->bind(&r->io, r->state);
    return AB_OK;
}

static void stop(const ab_device *device, running *r) {
    if (r->run && r->run->release) r->run->release(&r->io);
    void *const blocks[] = {r->in.data, r->out.data, r->weight.data, r->exec.workspace, r->state};
    for (size_t i = 0; i < AB_COUNT_OF(blocks); i++)
        if (blocks[i]) device->free(blocks[i]);
}

/* Median nanoseconds of a call. */
static ab_status time_calls(const ab_device *device, running *r, double *ns) {
    double round[ROUNDS];
    for (int k = -1; k < ROUNDS; k++) { /* the first is warm-up */
        AB_TRY(device->synchronize());
        int64_t begin = ab_monotonic_ns();
        for (int i = 0; i < CALLS; i++) AB_TRY(r->run->forward(&r->exec, &r->io));
        AB_TRY(device->synchronize());
        if (k >= 0) round[k] = (double)(ab_monotonic_ns() - begin) / CALLS;
    }
    *ns = ab_median(round, ROUNDS);
    return AB_OK;
}

static ab_status measure(const ab_device *device, const product *p, const ab_format *format, bool first) {
    const ab_op *op;
    running r;
    double ns = 0;
    AB_TRY(ab_op_find(p->op, &op, NULL));
    ab_status status = start(device, p, format, op, &r);
    if (status == AB_OK) status = time_calls(device, &r, &ns);
    if (status == AB_OK)
        printf("%s\n  {\"op\": \"%s\", \"format\": \"%s\", \"size\": %lld, \"time_ns\": %.0f, "
               "\"flop_per_s\": %.6g, "
               "\"implementation\": \"%s\"}",
               first ? "" : ",", p->op, format->name, (long long)p->weight.dim[0], ns, p->flop / ns * 1e9,
               r.run->describe(&r.io, "forward"));
    stop(device, &r);
    return status;
}

static product matmul(int64_t n) {
    return (product){.op = "linear",
                     .in = {2, {n, n}},
                     .out = {2, {n, n}},
                     .weight = {2, {n, n}},
                     .attrs = {n},
                     .flop = 2.0 * (double)n * (double)n * (double)n};
}

/* 64 images, 3x3 with padding 1. The attributes in the order of conv2d's table: out_channels, kernel, stride,
 * padding, dilation, groups, bias. */
static product conv(int64_t channels, int64_t size) {
    return (product){.op = "conv2d",
                     .in = {4, {64, size, size, channels}},
                     .out = {4, {64, size, size, channels}},
                     .weight = {4, {channels, channels, 3, 3}},
                     .attrs = {channels, 3, 3, 1, 1, 1, 1, 1, 1, 1, 0},
                     .flop = 2.0 * 64 * 9 * (double)(size * size * channels) * (double)channels};
}

static ab_status measure_all(const ab_device *device) {
    static const ab_format *const formats[] = {&ab_format_fp16, &ab_format_bf16, &ab_format_fp32};
    const product products[] = {matmul(1024), matmul(2048),  matmul(4096), matmul(8192),
                                conv(64, 56), conv(128, 28), conv(256, 14)};
    printf("{\"device\": \"%s\", \"products\": [", device->name);
    for (size_t p = 0; p < AB_COUNT_OF(products); p++)
        for (size_t f = 0; f < AB_COUNT_OF(formats); f++)
            AB_TRY(measure(device, &products[p], formats[f], p == 0 && f == 0));
    printf("\n]}\n");
    return AB_OK;
}

int main(void) {
    const ab_device *device;
    if (ab_device_open("cuda", &device, NULL) != AB_OK) {
        fprintf(stderr, "SKIPPED: %s\n", ab_error_message());
        return 77;
    }
    if (measure_all(device) == AB_OK) return 0;
    fprintf(stderr, "%s\n", ab_error_message());
    return 1;
}
