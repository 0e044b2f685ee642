/* The portable convolution declared in pass.h. Work is split by output rows (forward, backward data) or by
 * kernel rows and input channels (backward weights); one thread sums each output element in the documented
 * order. */
#include "kernels/ops/product/pass.h"

#include "kernels/core/text.h"
#include "kernels/format/convert.h"
#include "kernels/ops/blocks.h"

#include <stdlib.h>
#include <string.h>

enum { CHANNEL_TILE = 64 };

typedef struct reference {
    ab_pass base;
    ab_pass_spec spec;
    int threads;
    int64_t in_group, out_group; /* channels of one group */
    int64_t buffer;              /* floats per buffer of a thread */
} reference;

enum { BUFFER_SUM, BUFFER_TERM, BUFFER_TOTAL, BUFFERS };

typedef struct reference_job {
    const reference *r;
    const ab_pass_args *args;
    void (*row)(const reference *r, const ab_pass_args *args, int64_t row, int64_t group);
} reference_job;

/* One row of images, all groups. */
static void run_row(void *argument, int64_t row, int thread) {
    const reference_job *job = argument;
    (void)thread;
    for (int64_t g = 0; g < job->r->spec.conv.groups; g++) job->row(job->r, job->args, row, g);
}

static float *buffer_of(const reference *r, void *scratch, int which) {
    size_t bytes = ab_floats_bytes(r->buffer);
    return (float *)scratch +
           ((size_t)ab_parallel_thread() * BUFFERS + (size_t)which) * (bytes / sizeof(float));
}

static void round_to(const ab_format *format, float *values, int64_t n) {
    static const ab_rounding nearest = {.mode = AB_ROUND_NEAREST_EVEN};
    if (format) ab_round_array(values, format, &nearest, n);
}

/* sum += term, each rounded if the spec requires it. */
static void add_terms(const reference *r, float *sum, float *term, int64_t n) {
    round_to(r->spec.accumulate, term, n);
    for (int64_t i = 0; i < n; i++) sum[i] += term[i];
    round_to(r->spec.accumulate, sum, n);
}

/* term[i] = x * row[i] */
static void scale_row(float *term, float x, const float *row, int64_t n) {
    for (int64_t i = 0; i < n; i++) term[i] = x * row[i];
}

/* ---- weights --------------------------------------------------------------------------------- */

/* Packed: [group][kernel row][kernel column][summed channel][result channel]. */
static ab_status pack(ab_pass *base, const void *weights, void *packed, void *scratch) {
    const reference *r = (const reference *)base;
    const int64_t *kernel = r->spec.conv.window.kernel, taps = kernel[0] * kernel[1];
    const float *from = weights;
    float *to = packed;
    bool forward = r->spec.kind == AB_PASS_FORWARD;
    (void)scratch;
    for (int64_t g = 0; g < r->spec.conv.groups; g++)
        for (int64_t tap = 0; tap < taps; tap++)
            for (int64_t o = 0; o < r->out_group; o++)
                for (int64_t i = 0; i < r->in_group; i++) {
                    int64_t place = forward ? i * r->out_group + o : o * r->in_group + i;
                    to[(g * taps + tap) * r->out_group * r->in_group + place] =
                        from[((g * r->out_group + o) * r->in_group + i) * taps + tap];
                }
    return AB_OK;
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Output columns [first, end) for which kernel column k reads inside the image. */
static void valid_columns(const ab_window *w, int64_t k, int64_t *first, int64_t *end) {
    int64_t offset = k * w->dilation[1] - w->padding[1], stride = w->stride[1];
    *first = offset >= 0 ? 0 : ab_div_up(-offset, stride);
    *end = w->in[1] - 1 - offset < 0 ? 0 : ab_min64(w->out[1], (w->in[1] - 1 - offset) / stride + 1);
}

/* One tap and input channel: adds x * weight row for every output column that reads inside the image. */
static void forward_tap(const reference *r, float *sum, float *term, const float *in_row,
                        const float *weight_row, int64_t kx) {
    const ab_window *w = &r->spec.conv.window;
    int64_t first, end, n = r->out_group;
    valid_columns(w, kx, &first, &end);
    for (int64_t ox = first; ox < end; ox++) {
        int64_t ix = ox * w->stride[1] + kx * w->dilation[1] - w->padding[1];
        scale_row(term + ox * n, in_row[ix * w->channels], weight_row, n);
    }
    if (end > first) add_terms(r, sum + first * n, term + first * n, (end - first) * n);
}

static void forward_row(const reference *r, const ab_pass_args *args, int64_t row, int64_t group) {
    const ab_window *w = &r->spec.conv.window;
    int64_t image = row / w->out[0], oy = row % w->out[0], n = r->out_group;
    float *sum = buffer_of(r, args->scratch, BUFFER_SUM), *term = buffer_of(r, args->scratch, BUFFER_TERM);
    const float *in =
        (const float *)args->src + image * w->in[0] * w->in[1] * w->channels + group * r->in_group;
    const float *weights =
        (const float *)args->weights + group * w->kernel[0] * w->kernel[1] * r->in_group * n;
    memset(sum, 0, (size_t)(w->out[1] * n) * sizeof *sum);
    for (int64_t ky = 0; ky < w->kernel[0]; ky++) {
        int64_t iy = oy * w->stride[0] + ky * w->dilation[0] - w->padding[0];
        if (iy < 0 || iy >= w->in[0]) continue;
        for (int64_t kx = 0; kx < w->kernel[1]; kx++)
            for (int64_t i = 0; i < r->in_group; i++)
                forward_tap(r, sum, term, in + iy * w->in[1] * w->channels + i,
                            weights + ((ky * w->kernel[1] + kx) * r->in_group + i) * n, kx);
    }
    float *out = args->dst + row * w->out[1] * r->spec.conv.out_channels + group * n;
    for (int64_t ox = 0; ox < w->out[1]; ox++)
        for (int64_t o = 0; o < n; o++)
            out[ox * r->spec.conv.out_channels + o] =
                sum[ox * n + o] + (args->bias ? args->bias[group * n + o] : 0.0f);
}

static ab_status run_forward(ab_pass *base, const ab_pass_args *args) {
    const reference *r = (const reference *)base;
    int64_t rows = r->spec.conv.batch * r->spec.conv.window.out[0];
    reference_job job = {r, args, forward_row};
    ab_for_prepared(r->threads, rows, run_row, &job);
    return AB_OK;
}

/* ---- backward data --------------------------------------------------------------------------- */

/* Terms of one tap and output channel: dout * weight row, at the input columns read by the output row.
 * Distinct output columns read distinct input columns, so each term belongs to its own sum. */
static void data_tap(const reference *r, float *sum, float *term, const float *dout_row,
                     const float *weight_row, int64_t kx) {
    const ab_window *w = &r->spec.conv.window;
    int64_t first, end, n = r->in_group, step = w->stride[1] * n;
    valid_columns(w, kx, &first, &end);
    if (end <= first) return;
    int64_t at = (first * w->stride[1] + kx * w->dilation[1] - w->padding[1]) * n;
    for (int64_t ox = first; ox < end; ox++)
        scale_row(term + (ox - first) * n, dout_row[ox * r->spec.conv.out_channels], weight_row, n);
    if (w->stride[1] == 1)
        add_terms(r, sum + at, term, (end - first) * n);
    else
        for (int64_t ox = first; ox < end; ox++)
            add_terms(r, sum + at + (ox - first) * step, term + (ox - first) * n, n);
}

static void data_row(const reference *r, const ab_pass_args *args, int64_t row, int64_t group) {
    const ab_window *w = &r->spec.conv.window;
    int64_t image = row / w->in[0], iy = row % w->in[0], n = r->in_group,
            channels = r->spec.conv.out_channels;
    float *sum = buffer_of(r, args->scratch, BUFFER_SUM), *term = buffer_of(r, args->scratch, BUFFER_TERM);
    const float *dout =
        (const float *)args->src + image * w->out[0] * w->out[1] * channels + group * r->out_group;
    const float *weights =
        (const float *)args->weights + group * w->kernel[0] * w->kernel[1] * r->out_group * n;
    memset(sum, 0, (size_t)(w->in[1] * n) * sizeof *sum);
    for (int64_t ky = 0; ky < w->kernel[0]; ky++) {
        int64_t reach = iy + w->padding[0] - ky * w->dilation[0];
        if (reach < 0 || reach % w->stride[0] != 0 || reach / w->stride[0] >= w->out[0]) continue;
        const float *dout_row = dout + reach / w->stride[0] * w->out[1] * channels;
        for (int64_t kx = 0; kx < w->kernel[1]; kx++)
            for (int64_t o = 0; o < r->out_group; o++)
                data_tap(r, sum, term, dout_row + o,
                         weights + ((ky * w->kernel[1] + kx) * r->out_group + o) * n, kx);
    }
    float *din = args->dst + row * w->in[1] * w->channels + group * n;
    for (int64_t ix = 0; ix < w->in[1]; ix++)
        for (int64_t i = 0; i < n; i++) din[ix * w->channels + i] = sum[ix * n + i];
}

static ab_status run_backward_data(ab_pass *base, const ab_pass_args *args) {
    const reference *r = (const reference *)base;
    int64_t rows = r->spec.conv.batch * r->spec.conv.window.in[0];
    reference_job job = {r, args, data_row};
    ab_for_prepared(r->threads, rows, run_row, &job);
    return AB_OK;
}

/* ---- backward weights ------------------------------------------------------------------------ */

/* Work item: one kernel row, one group, up to CHANNEL_TILE of its input channels. */
typedef struct work_item {
    int64_t ky, group, first, channels;
} work_item;

/* Terms of one output pixel: [kernel column][input channel][output channel]. */
static void pixel_terms(const reference *r, const work_item *s, float *sum, float *term, const float *in_row,
                        const float *dout, int64_t ox) {
    const ab_window *w = &r->spec.conv.window;
    int64_t n = r->out_group, first = w->kernel[1], end = 0;
    for (int64_t kx = 0; kx < w->kernel[1]; kx++) {
        int64_t ix = ox * w->stride[1] + kx * w->dilation[1] - w->padding[1];
        if (ix < 0 || ix >= w->in[1]) continue;
        first = ab_min64(first, kx);
        end = kx + 1;
        for (int64_t i = 0; i < s->channels; i++)
            scale_row(term + (kx * s->channels + i) * n, in_row[ix * w->channels + i], dout, n);
    }
    int64_t tap = s->channels * n;
    if (end > first) add_terms(r, sum + first * tap, term + first * tap, (end - first) * tap);
}

static void image_terms(const reference *r, const ab_pass_args *args, const work_item *s, int64_t image,
                        float *sum, float *term) {
    const ab_window *w = &r->spec.conv.window;
    int64_t channels = r->spec.conv.out_channels;
    const float *in = (const float *)args->src + image * w->in[0] * w->in[1] * w->channels +
                      s->group * r->in_group + s->first;
    const float *dout =
        (const float *)args->dout + image * w->out[0] * w->out[1] * channels + s->group * r->out_group;
    for (int64_t oy = 0; oy < w->out[0]; oy++) {
        int64_t iy = oy * w->stride[0] + s->ky * w->dilation[0] - w->padding[0];
        if (iy < 0 || iy >= w->in[0]) continue;
        for (int64_t ox = 0; ox < w->out[1]; ox++)
            pixel_terms(r, s, sum, term, in + iy * w->in[1] * w->channels,
                        dout + (oy * w->out[1] + ox) * channels, ox);
    }
}

/* fp32 sums: adds the image's sum to the total, so the error grows with pixels + images. */
static void close_image(const reference *r, float *sum, float *total, int64_t n) {
    if (r->spec.accumulate) return;
    for (int64_t i = 0; i < n; i++) total[i] += sum[i];
    memset(sum, 0, (size_t)n * sizeof *sum);
}

static void weight_share(const reference *r, const ab_pass_args *args, const work_item *s) {
    const ab_window *w = &r->spec.conv.window;
    int64_t n = r->out_group, count = w->kernel[1] * s->channels * n, taps = w->kernel[0] * w->kernel[1];
    float *sum = buffer_of(r, args->scratch, BUFFER_SUM), *term = buffer_of(r, args->scratch, BUFFER_TERM);
    float *total = buffer_of(r, args->scratch, BUFFER_TOTAL);
    memset(sum, 0, (size_t)count * sizeof *sum);
    memset(total, 0, (size_t)count * sizeof *total);
    for (int64_t image = 0; image < r->spec.conv.batch; image++) {
        image_terms(r, args, s, image, sum, term);
        close_image(r, sum, total, count);
    }
    const float *result = r->spec.accumulate ? sum : total;
    for (int64_t o = 0; o < n; o++)
        for (int64_t i = 0; i < s->channels; i++)
            for (int64_t kx = 0; kx < w->kernel[1]; kx++)
                args->dst[((s->group * n + o) * r->in_group + s->first + i) * taps + s->ky * w->kernel[1] +
                          kx] = result[(kx * s->channels + i) * n + o];
}

/* Sum of dout over all pixels in order, rounding every partial sum. */
static void bias_gradient(const reference *r, const ab_pass_args *args) {
    int64_t n = r->spec.conv.out_channels,
            pixels = r->spec.conv.batch * r->spec.conv.window.out[0] * r->spec.conv.window.out[1];
    float *term = buffer_of(r, args->scratch, BUFFER_TERM);
    memset(args->dbias, 0, (size_t)n * sizeof *args->dbias);
    for (int64_t pixel = 0; pixel < pixels; pixel++) {
        memcpy(term, (const float *)args->dout + pixel * n, (size_t)n * sizeof *term);
        add_terms(r, args->dbias, term, n);
    }
}

static void run_share(void *argument, int64_t k, int thread) {
    const reference_job *job = argument;
    const reference *r = job->r;
    (void)thread;
    int64_t tiles = ab_div_up(r->in_group, CHANNEL_TILE), kernel_rows = r->spec.conv.window.kernel[0];
    int64_t first = k % tiles * CHANNEL_TILE;
    work_item s = {.ky = k / tiles % kernel_rows,
                   .group = k / tiles / kernel_rows,
                   .first = first,
                   .channels = ab_min64(CHANNEL_TILE, r->in_group - first)};
    weight_share(r, job->args, &s);
}

static ab_status run_backward_weights(ab_pass *base, const ab_pass_args *args) {
    const reference *r = (const reference *)base;
    int64_t tiles = ab_div_up(r->in_group, CHANNEL_TILE), kernel_rows = r->spec.conv.window.kernel[0];
    reference_job job = {r, args, NULL};
    ab_for_prepared(r->threads, r->spec.conv.groups * kernel_rows * tiles, run_share, &job);
    if (r->base.sums_bias && args->dbias) bias_gradient(r, args);
    return AB_OK;
}

/* ---- set-up ---------------------------------------------------------------------------------- */

static void destroy(ab_pass *pass) { free(pass); }

static int64_t buffer_floats(const reference *r) {
    const ab_window *w = &r->spec.conv.window;
    const int64_t floats[AB_PASSES] = {
        [AB_PASS_FORWARD] = w->out[1] * r->out_group,
        [AB_PASS_BACKWARD_DATA] = w->in[1] * r->in_group,
        [AB_PASS_BACKWARD_WEIGHTS] = ab_max64(
            w->kernel[1] * ab_min64(CHANNEL_TILE, r->in_group) * r->out_group, r->spec.conv.out_channels)};
    return floats[r->spec.kind];
}

ab_status ab_reference_pass(const ab_pass_spec *spec, ab_pass **pass) {
    static ab_status (*const runs[AB_PASSES])(ab_pass *, const ab_pass_args *) = {
        [AB_PASS_FORWARD] = run_forward,
        [AB_PASS_BACKWARD_DATA] = run_backward_data,
        [AB_PASS_BACKWARD_WEIGHTS] = run_backward_weights};
    const ab_conv *conv = &spec->conv;
    reference *r = calloc(1, sizeof *r);
    if (!r) return ab_fail(AB_NO_MEMORY, "cannot allocate a reference convolution");
    r->spec = *spec;
    r->threads = ab_parallel_threads();
    r->in_group = conv->window.channels / conv->groups;
    r->out_group = conv->out_channels / conv->groups;
    r->buffer = buffer_floats(r);
    r->base = (ab_pass){.scratch_bytes = (size_t)(r->threads * BUFFERS) * ab_floats_bytes(r->buffer),
                        .pack = pack,
                        .keeps_nonfinite = true,
                        .sums_bias = spec->accumulate != NULL,
                        .run = runs[spec->kind],
                        .destroy = destroy};
    if (spec->kind != AB_PASS_BACKWARD_WEIGHTS)
        r->base.packed_bytes = ab_floats_bytes(conv->out_channels * r->in_group * conv->window.kernel[0] *
                                               conv->window.kernel[1]);
    ab_text_exact(r->base.text, sizeof r->base.text,
                  spec->accumulate ? "reference, half accumulation" : "reference");
    *pass = &r->base;
    return AB_OK;
}
