/* Slices of the batch or of the outputs; see pass.h. */
#include "kernels/ops/product/pass.h"

#include "kernels/ops/blocks.h"
#include "kernels/ops/product/dnnl_shim.h"
#include "kernels/ops/product/nonfinite.h"
#include "kernels/vec/vec_ops.h"

#include <stdlib.h>
#include <string.h>

/* SLICE_FLOPS: minimum work per claim, some tens of microseconds. SUM_BLOCK: weights summed per claim. */
enum { MAX_SLICES = 8, SUM_BLOCK = 16 * 1024 };
static const double slice_flops = 3e6;

typedef struct sliced {
    ab_pass base;
    ab_pass_kind kind;
    int slices;
    int64_t weights; /* elements */
    const ab_format *operands;
    int64_t src_count, dout_count;        /* elements of the whole operands; 0: absent */
    size_t src_step, dout_step, dst_step; /* bytes between consecutive slices */
    size_t scratch_step, scratch_bytes;   /* per slice: with and without its weight gradient */
    bool by_outputs; /* weight gradient of a matrix product: slices of its rows (the outputs) instead of the
                        batch */
    ab_pass *slice[MAX_SLICES];
} sliced;

/* Number of equal slices of the dimension `cut` (batch or outputs); 1 if it is not split. */
static int slices_of(const ab_conv *conv, int64_t cut) {
    const ab_window *w = &conv->window;
    double flops = 2.0 * (double)(conv->batch * w->out[0] * w->out[1] * conv->out_channels) *
                   (double)(w->kernel[0] * w->kernel[1] * w->channels / conv->groups);
    int slices = flops / slice_flops < MAX_SLICES ? (int)(flops / slice_flops) : MAX_SLICES;
    while (slices > 1 && cut % slices != 0) slices--;
    return slices < 1 ? 1 : slices;
}

static void destroy(ab_pass *base) {
    sliced *s = (sliced *)base;
    for (int i = 0; i < s->slices; i++)
        if (s->slice[i]) s->slice[i]->destroy(s->slice[i]);
    free(s);
}

static ab_status pack(ab_pass *base, const void *weights, void *packed, void *scratch) {
    sliced *s = (sliced *)base;
    return s->slice[0]->pack(s->slice[0], weights, packed, scratch);
}

typedef struct slice_job {
    const sliced *s;
    const ab_pass_args *args;
    ab_status status[MAX_SLICES];
    bool finite[MAX_SLICES];
} slice_job;

/* Weight gradient of slice i, stored after its scratch. */
static void *weight_gradient_of(const sliced *s, const ab_pass_args *args, int64_t i) {
    return (char *)args->scratch + (size_t)i * s->scratch_step + s->scratch_bytes;
}

/* Whether slice i's share of an operand of n elements is finite; an operand that a pass does not have is
 * NULL. */
static bool share_finite(const sliced *s, const void *values, int64_t n, int64_t i) {
    if (!values) return true;
    const int64_t first = n * i / s->slices, end = n * (i + 1) / s->slices;
    return ab_values_finite((const char *)values + ab_format_bytes(s->operands, first), s->operands,
                            end - first);
}

static void run_slice(void *argument, int64_t i, int thread) {
    slice_job *job = argument;
    const sliced *s = job->s;
    ab_pass_args args = *job->args;
    size_t n = (size_t)i;
    (void)thread;
    args.src = (const char *)args.src + n * s->src_step;
    args.dst = (float *)(void *)((char *)args.dst + n * s->dst_step);
    if (s->kind == AB_PASS_BACKWARD_WEIGHTS) {
        args.dout = (const char *)args.dout + n * s->dout_step;
        if (s->slices > 1 && !s->by_outputs) args.dst = weight_gradient_of(s, job->args, i);
    }
    if (args.scratch) args.scratch = (char *)args.scratch + n * s->scratch_step;
    job->status[i] = s->slice[i]->run(s->slice[i], &args);
    job->finite[i] = share_finite(s, job->args->src, s->src_count, i) &&
                     share_finite(s, job->args->dout, s->dout_count, i);
}

static void sum_block(void *argument, int64_t block, int thread) {
    const slice_job *job = argument;
    const sliced *s = job->s;
    (void)thread;
    int64_t first = block * SUM_BLOCK, n = ab_min64(SUM_BLOCK, s->weights - first);
    ab_vec_ops_get()->sum_parts(job->args->dst + first,
                                (const float *)weight_gradient_of(s, job->args, 0) + first,
                                (int64_t)(s->scratch_step / sizeof(float)), s->slices, n);
}

static ab_status run(ab_pass *base, const ab_pass_args *args) {
    const sliced *s = (const sliced *)base;
    slice_job job = {.s = s, .args = args};
    ab_parallel_for(s->slices, run_slice, &job);
    for (int i = 0; i < s->slices; i++) {
        if (job.status[i] != AB_OK)
            return ab_fail(job.status[i], "%s: slice %d of the batch failed", s->base.text, i);
        if (!job.finite[i] && args->nonfinite) *args->nonfinite = true;
    }
    if (s->slices > 1 && s->kind == AB_PASS_BACKWARD_WEIGHTS && !s->by_outputs)
        ab_for_chunks(s->weights * s->slices, ab_div_up(s->weights, SUM_BLOCK), sum_block, &job);
    return AB_OK;
}

/* Strides and sizes, from the spec of one slice. */
static void measure(sliced *s, const ab_pass_spec *spec) {
    const ab_conv *conv = &spec->conv;
    const ab_window *w = &conv->window;
    size_t in = (size_t)(conv->batch * w->in[0] * w->in[1] * w->channels);
    size_t out = (size_t)(conv->batch * w->out[0] * w->out[1] * conv->out_channels);
    size_t operand = ab_format_bytes(spec->operands, 1);
    bool data = spec->kind == AB_PASS_BACKWARD_DATA, weights = spec->kind == AB_PASS_BACKWARD_WEIGHTS;
    s->weights = conv->out_channels * (w->channels / conv->groups) * w->kernel[0] * w->kernel[1];
    s->src_step = (data ? out : in) * operand;
    s->dout_step = out * operand;
    s->dst_step = (weights ? 0 : data ? in : out) * sizeof(float);
    s->operands = spec->operands;
    s->src_count = (int64_t)(data ? out : in) * s->slices;
    s->dout_count = weights ? (int64_t)out * s->slices : 0;
    size_t keep = weights && s->slices > 1 ? ab_floats_bytes(s->weights) : 0;
    if (s->by_outputs) {
        s->src_count = (int64_t)in;
        s->src_step = 0;
        s->dout_step = (size_t)conv->out_channels * operand;
        s->dst_step = (size_t)s->weights * sizeof(float);
        keep = 0;
    }
    s->scratch_bytes = ab_aligned(s->slice[0]->scratch_bytes);
    s->scratch_step = s->scratch_bytes + keep;
}

/* Properties of the whole pass taken from its slices. */
static void inherit(sliced *s) {
    const ab_pass *one = s->slice[0];
    s->base.packed_bytes = one->packed_bytes;
    s->base.scratch_bytes = s->scratch_step * (size_t)s->slices;
    s->base.pack = one->pack ? pack : NULL;
    memcpy(s->base.text, one->text, sizeof s->base.text);
}

/* Spec of one of `slices` slices. */
static ab_pass_spec part_of(const ab_pass_spec *spec, int slices, bool by_outputs) {
    ab_pass_spec one = *spec;
    if (by_outputs) {
        one.conv.out_channels /= slices;
        one.dout_step = spec->conv.out_channels; /* a slice's columns are a part of every row */
    } else {
        one.conv.batch /= slices;
    }
    return one;
}

ab_status ab_sliced_pass(ab_pass_maker maker, const ab_pass_spec *spec, ab_pass **pass) {
    bool by_outputs = spec->kind == AB_PASS_BACKWARD_WEIGHTS && maker == ab_dnnl_matmul_pass;
    int slices = slices_of(&spec->conv, by_outputs ? spec->conv.out_channels : spec->conv.batch), made = 0;
    sliced *s = calloc(1, sizeof *s);
    if (!s) return ab_fail(AB_NO_MEMORY, "cannot allocate a sliced product");
    s->base.run = run;
    s->base.destroy = destroy;
    s->kind = spec->kind;
    s->slices = slices;
    s->by_outputs = by_outputs;
    ab_pass_spec one = slices > 1 ? part_of(spec, slices, by_outputs) : *spec;
    ab_status status = AB_OK;
    const int needed = spec->sizes_only ? 1 : slices; /* they are all alike */
    for (; made < needed && status == AB_OK; made++) {
        status = maker(&one, &s->slice[made]);
        if (!s->slice[made]) break;
    }
    if (made < needed || status != AB_OK) {
        destroy(&s->base);
        return status;
    }
    measure(s, &one);
    inherit(s);
    *pass = &s->base;
    return AB_OK;
}
