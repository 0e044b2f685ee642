/* Slices of the batch or of the outputs; see pass.h. */
#include "kernels/ops/product/pass.h"

#include "kernels/format/convert.h"
#include "kernels/ops/blocks.h"
#include "kernels/ops/product/dnnl_shim.h"
#include "kernels/ops/product/nonfinite.h"
#include "kernels/vec/vec_ops.h"

#include <stdlib.h>
#include <string.h>

/* SLICE_FLOPS: minimum work per claim, some tens of microseconds. SLICE_ROWS: of a matrix product; fewer do
 * not fill the library's blocks. MANY_ROWS: from so many rows per output on, the weight gradient of a matrix
 * product is split by rows: reading all rows for every slice of the outputs would cost more than adding its
 * parts. SUM_BLOCK: weights summed per claim. */
enum { MAX_SLICES = 8, SLICE_ROWS = 32, MANY_ROWS = 2, SUM_BLOCK = 16 * 1024 };
static const double slice_flops = 3e6;

/* The tensors of which a thread has one slice at a time. */
enum { PIECE_SRC, PIECE_DOUT, PIECE_DST, PIECES };

typedef struct sliced {
    ab_pass base;
    ab_pass_kind kind;
    int slices, threads; /* threads: for which there are buffers */
    int64_t weights;     /* elements of the gradient of a slice */
    const ab_format *operands;
    int64_t rows;                       /* of a matrix product */
    int64_t src_count, dout_count;      /* elements of the whole operands; 0: absent */
    int64_t piece[PIECES];              /* elements of a slice of src, dout and dst; 0: not used */
    size_t scratch_step, scratch_bytes; /* per slice: with and without its weight gradient */
    size_t buffer_bytes[PIECES];        /* per thread */
    size_t whole_bytes;                 /* src of a pass by_outputs in fp32 */
    bool by_outputs; /* weight gradient of a matrix product: slices of its rows (the outputs) instead of the
                        batch */
    ab_pass *slice[MAX_SLICES];
} sliced;

/* Number of equal slices of the dimension `cut` (batch or outputs), of at least `least` each; 1 if it is not
 * split. */
static int slices_of(const ab_conv *conv, int64_t cut, int64_t least) {
    const ab_window *w = &conv->window;
    double flops = 2.0 * (double)(conv->batch * w->out[0] * w->out[1] * conv->out_channels) *
                   (double)(w->kernel[0] * w->kernel[1] * w->channels / conv->groups);
    int slices = flops / slice_flops < MAX_SLICES ? (int)(flops / slice_flops) : MAX_SLICES;
    while (slices > 1 && (cut % slices != 0 || cut / slices < least)) slices--;
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
    ab_values src, dout;
    ab_status status[MAX_SLICES];
    bool finite[MAX_SLICES];
} slice_job;

/* ---- scratch: [slices][buffers of the threads][src in fp32] ---------------------------------- */

/* Weight gradient of slice i, stored after its scratch. */
static void *weight_gradient_of(const sliced *s, const ab_pass_args *args, int64_t i) {
    return (char *)args->scratch + (size_t)i * s->scratch_step + s->scratch_bytes;
}

static size_t thread_bytes(const sliced *s) {
    return s->buffer_bytes[PIECE_SRC] + s->buffer_bytes[PIECE_DOUT] + s->buffer_bytes[PIECE_DST];
}

/* The calling thread's buffer for a slice of a tensor. */
static void *buffer_of(const sliced *s, const ab_pass_args *args, int piece) {
    char *at = (char *)args->scratch + s->scratch_step * (size_t)s->slices;
    at += (size_t)ab_parallel_thread() * thread_bytes(s);
    for (int i = 0; i < piece; i++) at += s->buffer_bytes[i];
    return at;
}

static float *wide_src(const sliced *s, const ab_pass_args *args) {
    const size_t before = s->scratch_step * (size_t)s->slices + thread_bytes(s) * (size_t)s->threads;
    return (float *)(void *)((char *)args->scratch + before);
}

/* ---- one slice ------------------------------------------------------------------------------- */

/* n values from `offset` on in the format that the passes read: in place or in `buffer`. */
static const void *read_values(const sliced *s, const ab_values *from, int64_t offset, int64_t n,
                               void *buffer) {
    const char *at = (const char *)from->data + ab_format_bytes(from->format, offset);
    if (from->format == s->operands) return at;
    ab_widen(buffer, at, from->format, n);
    return buffer;
}

/* The columns of dout that belong to slice i of the outputs, dense: the library has no fast product of a part
 * of every row. */
static const void *read_columns(const sliced *s, const ab_values *dout, int64_t i, char *buffer) {
    const int64_t width = s->piece[PIECE_DOUT] / s->rows;
    const size_t bytes = ab_format_bytes(s->operands, width);
    for (int64_t row = 0; row < s->rows; row++) {
        char *to = buffer + (size_t)row * bytes;
        const void *from = read_values(s, dout, (row * s->slices + i) * width, width, to);
        if (from != to) memcpy(to, from, bytes);
    }
    return buffer;
}

static void take_operands(const slice_job *job, ab_pass_args *args, int64_t i) {
    const sliced *s = job->s;
    const int64_t src = s->piece[PIECE_SRC], dout = s->piece[PIECE_DOUT];
    const int64_t first = s->by_outputs ? 0 : i * src;
    args->src = read_values(s, &job->src, first, src, buffer_of(s, job->args, PIECE_SRC));
    if (dout == 0) return;
    void *buffer = buffer_of(s, job->args, PIECE_DOUT);
    const bool columns = s->by_outputs && s->slices > 1;
    args->dout =
        columns ? read_columns(s, &job->dout, i, buffer) : read_values(s, &job->dout, i * dout, dout, buffer);
}

/* Whether the result goes to a half tensor: slices are rounded while they are in cache. */
static bool is_rounded(const ab_pass_args *args) {
    return args->stored && args->stored->dst && !ab_is_f32(args->stored->dst);
}

/* Where slice i of the outputs goes. Those that are rounded share one place a thread. */
static float *outputs_slice(const sliced *s, const ab_pass_args *args, int64_t i) {
    const bool shared = is_rounded(args) && s->threads <= s->slices;
    return args->dst + (shared ? ab_parallel_thread() : i) * s->weights;
}

static float *take_result(const sliced *s, const ab_pass_args *args, int64_t i) {
    const int64_t n = s->piece[PIECE_DST];
    if (s->kind != AB_PASS_BACKWARD_WEIGHTS)
        return args->stored ? ab_target(args->stored->dst, i * n, buffer_of(s, args, PIECE_DST))
                            : args->dst + i * n;
    if (s->by_outputs) return outputs_slice(s, args, i);
    return s->slices > 1 ? weight_gradient_of(s, args, i) : args->dst;
}

/* Whether slice i's share of an operand is finite. */
static bool share_finite(const sliced *s, const ab_values *all, int64_t n, int64_t i) {
    const int64_t first = n * i / s->slices, end = n * (i + 1) / s->slices;
    return ab_values_finite((const char *)all->data + ab_format_bytes(all->format, first), all->format,
                            end - first);
}

/* Elements of the result that a slice completes: none if its weight gradient is a part of a sum. */
static int64_t completed(const sliced *s) {
    if (s->kind != AB_PASS_BACKWARD_WEIGHTS) return s->piece[PIECE_DST];
    return s->by_outputs || s->slices == 1 ? s->weights : 0;
}

/* Widens, computes and rounds a slice while it is in cache. */
static void run_slice(void *argument, int64_t i, int thread) {
    slice_job *job = argument;
    const sliced *s = job->s;
    const ab_pass_stored *stored = job->args->stored;
    ab_pass_args args = *job->args;
    const int64_t n = completed(s);
    (void)thread;
    take_operands(job, &args, i);
    args.dst = take_result(s, job->args, i);
    if (args.scratch) args.scratch = (char *)args.scratch + (size_t)i * s->scratch_step;
    job->status[i] = s->slice[i]->run(s->slice[i], &args);
    job->finite[i] = share_finite(s, &job->src, s->src_count, i) &&
                     (s->dout_count == 0 || share_finite(s, &job->dout, s->dout_count, i));
    if (is_rounded(job->args) && n > 0) ab_emit(stored->exec, stored->dst, i * n, args.dst, n);
}

/* ---- all slices ------------------------------------------------------------------------------ */

static slice_job job_of(const sliced *s, const ab_pass_args *args) {
    const ab_pass_stored *stored = args->stored;
    slice_job job = {.s = s, .args = args};
    job.src = ab_values_of(stored ? stored->src : NULL, args->src, s->operands);
    job.dout = ab_values_of(stored ? stored->dout : NULL, args->dout, s->operands);
    if (s->by_outputs && job.src.format != s->operands) /* every slice reads all of it */
        job.src = (ab_values){ab_view_f32(stored->src, wide_src(s, args)), &ab_format_fp32};
    return job;
}

static void sum_block(void *argument, int64_t block, int thread) {
    const slice_job *job = argument;
    const sliced *s = job->s;
    (void)thread;
    int64_t first = block * SUM_BLOCK, n = ab_min64(SUM_BLOCK, s->weights - first);
    ab_vec_ops_get()->sum_parts(job->args->dst + first,
                                (const float *)weight_gradient_of(s, job->args, 0) + first,
                                (int64_t)(s->scratch_step / sizeof(float)), s->slices, n);
    const ab_pass_stored *stored = job->args->stored;
    if (is_rounded(job->args)) ab_emit(stored->exec, stored->dst, first, job->args->dst + first, n);
}

static ab_status run(ab_pass *base, const ab_pass_args *args) {
    const sliced *s = (const sliced *)base;
    slice_job job = job_of(s, args);
    ab_for_prepared(s->threads, s->slices, run_slice, &job);
    for (int i = 0; i < s->slices; i++) {
        if (job.status[i] != AB_OK)
            return ab_fail(job.status[i], "%s: slice %d of the batch failed", s->base.text, i);
        if (!job.finite[i] && args->nonfinite) *args->nonfinite = true;
    }
    if (s->slices > 1 && s->kind == AB_PASS_BACKWARD_WEIGHTS && !s->by_outputs)
        ab_for_chunks(s->weights * s->slices, ab_div_up(s->weights, SUM_BLOCK), sum_block, &job);
    return AB_OK;
}

/* ---- set-up ---------------------------------------------------------------------------------- */

/* Sizes, from the spec of one slice. */
static void measure(sliced *s, const ab_pass_spec *spec) {
    const ab_conv *conv = &spec->conv;
    const ab_window *w = &conv->window;
    const int64_t in = conv->batch * w->in[0] * w->in[1] * w->channels,
                  out = conv->batch * w->out[0] * w->out[1] * conv->out_channels;
    const bool weights = spec->kind == AB_PASS_BACKWARD_WEIGHTS;
    s->operands = spec->operands;
    s->rows = conv->batch;
    s->weights = conv->out_channels * (w->channels / conv->groups) * w->kernel[0] * w->kernel[1];
    s->piece[PIECE_SRC] = spec->kind == AB_PASS_BACKWARD_DATA ? out : in;
    s->piece[PIECE_DOUT] = weights ? out : 0;
    s->piece[PIECE_DST] = weights ? 0 : in + out - s->piece[PIECE_SRC];
    s->src_count = s->piece[PIECE_SRC] * (s->by_outputs ? 1 : s->slices);
    s->dout_count = s->piece[PIECE_DOUT] * s->slices;
}

static void size_scratch(sliced *s, const ab_pass_spec *spec) {
    const bool weights = spec->kind == AB_PASS_BACKWARD_WEIGHTS, columns = s->by_outputs && s->slices > 1;
    const size_t gradient = weights && s->slices > 1 && !s->by_outputs ? ab_floats_bytes(s->weights) : 0;
    s->threads = ab_parallel_threads();
    s->scratch_bytes = ab_aligned(s->slice[0]->scratch_bytes);
    s->scratch_step = s->scratch_bytes + gradient;
    for (int i = 0; i < PIECES; i++)
        if ((spec->stored && !(i == PIECE_SRC && s->by_outputs)) || (i == PIECE_DOUT && columns))
            s->buffer_bytes[i] = ab_floats_bytes(s->piece[i]);
    if (spec->stored && s->by_outputs) s->whole_bytes = ab_floats_bytes(s->piece[PIECE_SRC]);
}

/* Properties of the whole pass taken from its slices. */
static void inherit(sliced *s, bool stored) {
    const ab_pass *one = s->slice[0];
    s->base.packed_bytes = one->packed_bytes;
    s->base.scratch_bytes =
        s->scratch_step * (size_t)s->slices + thread_bytes(s) * (size_t)s->threads + s->whole_bytes;
    s->base.pack = one->pack ? pack : NULL;
    s->base.takes_stored = s->base.rounds_weights = stored;
    memcpy(s->base.text, one->text, sizeof s->base.text);
}

/* Spec of one of `slices` slices. */
static ab_pass_spec part_of(const ab_pass_spec *spec, int slices, bool by_outputs) {
    ab_pass_spec one = *spec;
    if (by_outputs)
        one.conv.out_channels /= slices;
    else
        one.conv.batch /= slices;
    return one;
}

ab_status ab_sliced_pass(ab_pass_maker maker, const ab_pass_spec *spec, ab_pass **pass) {
    const bool matmul = maker == ab_dnnl_matmul_pass;
    bool by_outputs = spec->kind == AB_PASS_BACKWARD_WEIGHTS && matmul &&
                      spec->conv.batch < MANY_ROWS * spec->conv.out_channels;
    int slices = slices_of(&spec->conv, by_outputs ? spec->conv.out_channels : spec->conv.batch,
                           matmul ? SLICE_ROWS : 1),
        made = 0;
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
    size_scratch(s, &one);
    inherit(s, spec->stored);
    *pass = &s->base;
    return AB_OK;
}
