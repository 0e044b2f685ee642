/* group_norm over groups of channels of NHWC images (Wu and He 2018), as torch.nn.GroupNorm: each group of
 * each image is normalised by its own mean and biased variance; weight and bias are per channel.
 *
 * Moments: two fp32 passes over blocks of pixels; blocks and channels are merged in double (Chan, Golub,
 * LeVeque 1983). One thread processes an image; the parameter gradients are summed over the images in order,
 * in double. */
#include "kernels/ops/blocks.h"
#include "kernels/ops/norm/vec_batch_norm.h"
#include "kernels/vec/vec_math.h"

#include <math.h>
#include <string.h>

typedef struct gn_attrs {
    int64_t groups;
    double eps;
    bool affine;
} gn_attrs;

enum { MAX_GROUPS = 1 << 20, BLOCK_ELEMENTS = 4096 };

static const ab_attr attrs_table[] = {
    {"num_groups", AB_ATTR_INT, offsetof(gn_attrs, groups), true, 0, 1, MAX_GROUPS, "groups of channels"},
    {"eps", AB_ATTR_FLOAT, offsetof(gn_attrs, eps), false, 1e-5, 0, 1, "added to the variance"},
    {"affine", AB_ATTR_BOOL, offsetof(gn_attrs, affine), false, 1, 0, 1, "trained weight and bias"},
    {0}};

/* ---- shapes ---------------------------------------------------------------------------------- */

static ab_status infer(const void *attrs, const ab_shape *in, int inputs, ab_shape *out) {
    const gn_attrs *a = attrs;
    char text[AB_SHAPE_TEXT];
    (void)inputs;
    if (in->ndim != 4 || in->dim[3] % a->groups != 0)
        return ab_fail(
            AB_CONFIG,
            "group_norm expects an image [batch, height, width, channels] with channels divisible by "
            "num_groups %lld, found %s",
            (long long)a->groups, ab_shape_text(in, text));
    *out = *in;
    return AB_OK;
}

static int params(const void *attrs, const ab_shape *in, ab_param_spec *spec) {
    ab_shape shape = {.ndim = 1, .dim = {in->dim[3]}};
    spec[0] = (ab_param_spec){"weight", AB_PARAM_WEIGHT, shape, AB_INIT_ONES, 0.0};
    spec[1] = (ab_param_spec){"bias", AB_PARAM_WEIGHT, shape, AB_INIT_ZEROS, 0.0};
    return ((const gn_attrs *)attrs)->affine ? 2 : 0;
}

/* Mean and 1 / sqrt(var + eps) per group and image. */
static int saved(const void *attrs, const ab_shape *in, const ab_shape *out, ab_shape *shape,
                 const ab_format **format) {
    (void)out;
    for (int i = 0; i < 2; i++) {
        shape[i] = (ab_shape){.ndim = 2, .dim = {in->dim[0], ((const gn_attrs *)attrs)->groups}};
        format[i] = &ab_format_fp32;
    }
    return 2;
}

/* ---- memory ---------------------------------------------------------------------------------- */

enum { FACTORS = 4, THREAD_IMAGES = 3 };

/* Workspace: weight and bias as fp32; per image double sums of both gradients; per thread factors per
 * channel, fp32 sums of a block, double moments, and fp32 copies of half images. */
typedef struct pass {
    const ab_exec *exec;
    const ab_op_io *io;
    int64_t images, pixels, channels, groups, block;
    float *weight, *bias;
    double *sums; /* [image][2][channels] */
    char *threads;
    size_t fixed_bytes, thread_bytes, image_bytes;
} pass;

typedef struct thread_memory {
    float *factor[FACTORS], *few[2], *image[THREAD_IMAGES];
    double *all[2];
} thread_memory;

static pass start(const ab_exec *exec, const ab_op_io *io) {
    const ab_shape *in = &io->in[0]->shape;
    pass p = {.exec = exec,
              .io = io,
              .images = in->dim[0],
              .pixels = in->dim[1] * in->dim[2],
              .channels = in->dim[3],
              .groups = ((const gn_attrs *)io->attrs)->groups};
    size_t row = ab_floats_bytes(p.channels), wide = ab_aligned((size_t)p.channels * sizeof(double));
    const ab_tensor *const all[] = {io->in[0], io->out, io->dout, io->din[0]};
    bool half = false;
    for (size_t i = 0; i < AB_COUNT_OF(all); i++) half = half || (all[i] && !ab_is_f32(all[i]));
    p.block = ab_max64(1, BLOCK_ELEMENTS / p.channels);
    p.image_bytes = half ? ab_floats_bytes(p.pixels * p.channels) : 0;
    p.fixed_bytes = 2 * row + 2 * (size_t)p.images * wide;
    p.thread_bytes = (FACTORS + 2) * row + 2 * wide + THREAD_IMAGES * p.image_bytes;
    return p;
}

static void place(pass *p) {
    const ab_tensor *const *param = (const ab_tensor *const *)p->io->param;
    size_t row = ab_floats_bytes(p->channels);
    p->weight = p->exec->workspace;
    p->bias = p->weight + row / sizeof(float);
    p->sums = (double *)(void *)((char *)p->exec->workspace + 2 * row);
    p->threads = (char *)p->exec->workspace + p->fixed_bytes;
    float *to[] = {p->weight, p->bias};
    for (int i = 0; i < 2; i++) {
        const float *view = param[i] ? ab_view_f32(param[i], to[i]) : NULL;
        for (int64_t c = 0; c < p->channels; c++) to[i][c] = view ? view[c] : i == 0 ? 1.0f : 0.0f;
    }
}

static thread_memory memory_of(const pass *p, int thread) {
    char *memory = p->threads + (size_t)thread * p->thread_bytes;
    size_t row = ab_floats_bytes(p->channels), wide = ab_aligned((size_t)p->channels * sizeof(double));
    thread_memory m;
    for (int i = 0; i < FACTORS; i++, memory += row) m.factor[i] = (float *)(void *)memory;
    for (int i = 0; i < 2; i++, memory += row) m.few[i] = (float *)(void *)memory;
    for (int i = 0; i < 2; i++, memory += wide) m.all[i] = (double *)(void *)memory;
    for (int i = 0; i < THREAD_IMAGES; i++, memory += p->image_bytes) m.image[i] = (float *)(void *)memory;
    return m;
}

static ab_status prepare(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes, size_t *state_bytes) {
    pass p = start(exec, io);
    *workspace_bytes = p.fixed_bytes + (size_t)ab_parallel_threads() * p.thread_bytes;
    *state_bytes = 0;
    return AB_OK;
}

static void for_images(pass *p, ab_work work) {
    bool fits = ab_threads_fit(p->exec, p->fixed_bytes, p->thread_bytes);
    ab_for_chunks(fits ? p->images * p->pixels * p->channels : 0, p->images, work, p);
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Merges (mean, m2) of n values into those of `done` values. */
static void join(double *mean, double *m2, double done, double more_mean, double more_m2, double n) {
    double delta = more_mean - *mean, share = n / (done + n);
    *mean += delta * share;
    *m2 += more_m2 + delta * delta * done * share;
}

static const ab_bn_loops *loops(void) { return &ab_vec_batch_norm_get()->of[AB_STORED_FP32]; }

/* all[0], all[1]: mean and m2 of each channel of an image. */
static void channel_moments(const pass *p, const float *x, const thread_memory *m) {
    memset(m->all[0], 0, (size_t)p->channels * sizeof(double));
    memset(m->all[1], 0, (size_t)p->channels * sizeof(double));
    for (int64_t first = 0; first < p->pixels; first += p->block) {
        int64_t n = ab_min64(p->block, p->pixels - first);
        const ab_bn_rows rows = {n, p->channels, .x = x + first * p->channels};
        loops()->moments(&rows, m->few[0], m->few[1]);
        for (int64_t c = 0; c < p->channels; c++)
            join(&m->all[0][c], &m->all[1][c], (double)first, (double)m->few[0][c], (double)m->few[1][c],
                 (double)n);
    }
}

/* Statistics of group g from those of its channels. */
static void group_statistics(const pass *p, const thread_memory *m, int64_t g, float *mean, float *rstd) {
    int64_t width = p->channels / p->groups;
    double of[2] = {0.0, 0.0}, count = (double)(p->pixels * width);
    for (int64_t i = 0; i < width; i++)
        join(&of[0], &of[1], (double)(i * p->pixels), m->all[0][g * width + i], m->all[1][g * width + i],
             (double)p->pixels);
    *mean = (float)of[0];
    *rstd = (float)(1.0 / sqrt(of[1] / count + ((const gn_attrs *)p->io->attrs)->eps));
}

static void forward_image(void *argument, int64_t image, int thread) {
    const pass *p = argument;
    thread_memory m = memory_of(p, thread);
    int64_t n = p->pixels * p->channels, width = p->channels / p->groups;
    const float *x = ab_read(p->io->in[0], image * n, n, m.image[0]);
    float *out = ab_target(p->io->out, image * n, m.image[1]);
    channel_moments(p, x, &m);
    for (int64_t g = 0; g < p->groups; g++) {
        float mean, rstd;
        group_statistics(p, &m, g, &mean, &rstd);
        if (p->io->saved[0]) ((float *)p->io->saved[0]->data)[image * p->groups + g] = mean;
        if (p->io->saved[1]) ((float *)p->io->saved[1]->data)[image * p->groups + g] = rstd;
        for (int64_t c = g * width; c < (g + 1) * width; c++) {
            m.factor[0][c] = mean;
            m.factor[1][c] = rstd * p->weight[c];
        }
    }
    const ab_bn_rows rows = {p->pixels, p->channels, .x = x, .out = out};
    const ab_bn_factors factors = {m.factor[0], m.factor[1], p->bias, NULL};
    loops()->apply(&rows, &factors);
    ab_emit(p->exec, p->io->out, image * n, out, n);
}

static ab_status forward(const ab_exec *exec, ab_op_io *io) {
    pass p = start(exec, io);
    place(&p);
    for_images(&p, forward_image);
    return AB_OK;
}

/* ---- backward -------------------------------------------------------------------------------- */

/* sum[c] = sum of dy, dot[c] = sum of dy (x - mean) over the pixels of an image. */
static void channel_sums(const pass *p, const float *dy, const float *x, const thread_memory *m, double *sum,
                         double *dot) {
    memset(sum, 0, (size_t)p->channels * sizeof *sum);
    memset(dot, 0, (size_t)p->channels * sizeof *dot);
    for (int64_t first = 0; first < p->pixels; first += p->block) {
        int64_t n = ab_min64(p->block, p->pixels - first), at = first * p->channels;
        const ab_bn_rows rows = {n, p->channels, .x = x + at, .dy = dy + at};
        loops()->sums(&rows, m->factor[AB_MEAN], m->few[0], m->few[1]);
        for (int64_t c = 0; c < p->channels; c++) {
            sum[c] += (double)m->few[0][c];
            dot[c] += (double)m->few[1][c];
        }
    }
}

/* dx = rstd (weight dy - mean of weight dy - (x - mean) rstd^2 mean of weight dy (x - mean)): per-channel
 * factors. */
static void group_factors(const pass *p, const thread_memory *m, int64_t g, double rstd, const double *sum,
                          const double *dot) {
    int64_t width = p->channels / p->groups;
    double count = (double)(p->pixels * width), all = 0.0, along = 0.0;
    for (int64_t c = g * width; c < (g + 1) * width; c++) {
        all += (double)p->weight[c] * sum[c];
        along += (double)p->weight[c] * dot[c];
    }
    for (int64_t c = g * width; c < (g + 1) * width; c++) {
        m->factor[AB_SLOPE][c] = (float)(rstd * (double)p->weight[c]);
        m->factor[AB_PULL][c] = (float)(rstd * rstd * rstd * along / count);
        m->factor[AB_SHIFT][c] = (float)(rstd * all / count);
    }
}

static void backward_image(void *argument, int64_t image, int thread) {
    const pass *p = argument;
    thread_memory m = memory_of(p, thread);
    int64_t n = p->pixels * p->channels, width = p->channels / p->groups;
    const float *mean = (const float *)p->io->saved[0]->data + image * p->groups,
                *rstd = (const float *)p->io->saved[1]->data + image * p->groups;
    const float *x = ab_read(p->io->in[0], image * n, n, m.image[0]);
    const float *dy = ab_read(p->io->dout, image * n, n, m.image[1]);
    double *sum = p->sums + 2 * image * p->channels, *dot = sum + p->channels;
    for (int64_t c = 0; c < p->channels; c++) m.factor[AB_MEAN][c] = mean[c / width];
    channel_sums(p, dy, x, &m, sum, dot);
    for (int64_t g = 0; g < p->groups; g++) group_factors(p, &m, g, (double)rstd[g], sum, dot);
    for (int64_t c = 0; c < p->channels; c++) dot[c] *= (double)rstd[c / width];
    if (!p->io->din[0]) return;
    float *dx = ab_target(p->io->din[0], image * n, m.image[2]);
    ab_vec_math_get()->channel_gradient(dx, dy, x, p->pixels, p->channels, (const float *const *)m.factor);
    ab_emit(p->exec, p->io->din[0], image * n, dx, n);
}

static ab_status backward(const ab_exec *exec, ab_op_io *io) {
    pass p = start(exec, io);
    place(&p);
    for_images(&p, backward_image);
    for (int i = 0; i < 2; i++) { /* [1]: weight, [0]: bias */
        double *total = p.sums + i * p.channels;
        for (int64_t image = 1; image < p.images; image++)
            for (int64_t c = 0; c < p.channels; c++) total[c] += total[2 * image * p.channels + c];
        for (int64_t c = 0; c < p.channels; c++) p.bias[c] = (float)total[c];
        if (io->dparam[1 - i]) ab_emit(exec, io->dparam[1 - i], 0, p.bias, p.channels);
    }
    return AB_OK;
}

static double flops(const void *attrs, const ab_shape *in, const ab_shape *out) {
    (void)attrs;
    (void)out;
    return 7.0 * (double)ab_shape_count(in);
}

const ab_op ab_op_group_norm = {.name = "group_norm",
                                .inputs = 1,
                                .norm = true,
                                .attrs_bytes = sizeof(gn_attrs),
                                .attrs = attrs_table,
                                .infer = infer,
                                .params = params,
                                .saved = saved,
                                .backward_needs = 1u << 0,
                                .prepare = prepare,
                                .forward = forward,
                                .backward = backward,
                                .flops = flops,
                                .describe = ab_describe_own};
