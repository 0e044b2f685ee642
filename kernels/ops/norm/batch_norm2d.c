/* batch_norm2d over the channels of NHWC images, batch_norm1d over the last dimension of [batch, channels] or
 * [batch, length, channels] (Ioffe and Szegedy 2015, algorithm 1; torch's conventions): a
 * training forward normalises with the biased variance of the batch and updates the running statistics with
 * mean and *unbiased* variance; otherwise the running statistics normalise. eps is added to the variance,
 * inside the square root.
 *
 * A relu behind it, or an addition and a relu, may be computed in its own passes (op.h, ab_tail): forward
 * what normalises writes the relu's output; backward what takes the sums masks by that output and writes the
 * gradient of the addend.
 *
 * Moments: two passes per group of rows (small enough for the cache); groups are merged in double (Chan,
 * Golub, LeVeque 1983) in a fixed order. This avoids cancellation and does not depend on the number of
 * threads. */
#include "kernels/ops/blocks.h"
#include "kernels/ops/norm/norm_sync.h"
#include "kernels/ops/norm/vec_batch_norm.h"
#include "kernels/ops/rows.h"

#include <math.h>

typedef struct bn_attrs {
    double eps, momentum;
    bool affine;
    int64_t mode; /* read by the executor: exec->training is false for "eval" */
} bn_attrs;

static const ab_attr attrs_table[] = {
    {"eps", AB_ATTR_FLOAT, offsetof(bn_attrs, eps), false, 1e-5, 0, 1, "added to the variance"},
    {"momentum", AB_ATTR_FLOAT, offsetof(bn_attrs, momentum), false, 0.1, 0, 1,
     "share of the batch in running statistics"},
    {"affine", AB_ATTR_BOOL, offsetof(bn_attrs, affine), false, 1, 0, 1, "trained weight and bias"},
    {"mode", AB_ATTR_CHOICE, offsetof(bn_attrs, mode), false, 0, 0, 1, "train|eval"},
    {0}};

/* ---- shapes ---------------------------------------------------------------------------------- */

static ab_status infer_rows(const void *attrs, const ab_shape *in, int inputs, ab_shape *out) {
    (void)attrs;
    (void)inputs;
    char text[AB_SHAPE_TEXT];
    if (in->ndim != 2 && in->ndim != 3)
        return ab_fail(AB_CONFIG,
                       "batch_norm1d expects [batch, channels] or [batch, length, channels], found %s",
                       ab_shape_text(in, text));
    *out = *in;
    return AB_OK;
}

static ab_status infer(const void *attrs, const ab_shape *in, int inputs, ab_shape *out) {
    (void)attrs;
    (void)inputs;
    char text[AB_SHAPE_TEXT];
    if (in->ndim != 4)
        return ab_fail(AB_CONFIG, "batch_norm2d expects an image [batch, height, width, channels], found %s",
                       ab_shape_text(in, text));
    *out = *in;
    return AB_OK;
}

static int params(const void *attrs, const ab_shape *in, ab_param_spec *spec) {
    static const ab_param_spec all[] = {
        {"weight", AB_PARAM_WEIGHT, {0}, AB_INIT_ONES, 0.0},
        {"bias", AB_PARAM_WEIGHT, {0}, AB_INIT_ZEROS, 0.0},
        {"running_mean", AB_PARAM_BUFFER, {0}, AB_INIT_ZEROS, 0.0},
        {"running_var", AB_PARAM_BUFFER, {0}, AB_INIT_ONES, 0.0},
    };
    const bn_attrs *a = attrs;
    int first = a->affine ? 0 : 2, count = 0;
    for (int i = first; i < (int)AB_COUNT_OF(all); i++) {
        spec[count] = all[i];
        spec[count++].shape = (ab_shape){.ndim = 1, .dim = {in->dim[in->ndim - 1]}};
    }
    return count;
}

enum { SAVED_MEAN, SAVED_INVSTD, SAVED_COUNT };

static int saved(const void *attrs, const ab_shape *in, const ab_shape *out, ab_shape *shape,
                 const ab_format **format) {
    (void)attrs;
    (void)out;
    for (int i = 0; i < SAVED_COUNT; i++) {
        shape[i] = (ab_shape){.ndim = 1, .dim = {in->dim[in->ndim - 1]}};
        format[i] = &ab_format_fp32;
    }
    return SAVED_COUNT;
}

/* ---- workspace ------------------------------------------------------------------------------- */

enum { F_MEAN, F_SCALE, F_SHIFT, F_SLOPE, F_GAMMA, F_COUNT };

/* Workspace: per chunk two double sums per channel, F_COUNT factors per channel, what is sent to other ranks;
 * per thread two fp32 sums per channel and up to three widened groups. */
typedef struct workspace {
    double *partial;
    float *factor[F_COUNT], *sync;
    char *thread;
    size_t fixed_bytes, thread_bytes, sums_bytes, group_bytes;
} workspace;

static workspace measure(const ab_rows *s, int buffers) {
    size_t partial = ab_aligned((size_t)(2 * s->chunks * s->channels) * sizeof(double));
    const size_t sync = ab_floats_bytes(ab_sync_floats(s->channels));
    workspace w = {.fixed_bytes = partial + F_COUNT * ab_floats_bytes(s->channels) + sync,
                   .sums_bytes = ab_floats_bytes(2 * s->channels),
                   .group_bytes = ab_floats_bytes(s->group_rows * s->channels)};
    w.thread_bytes = w.sums_bytes + (size_t)buffers * w.group_bytes;
    return w;
}

static workspace carve(const ab_rows *s, void *memory, int buffers) {
    workspace w = measure(s, buffers);
    const size_t factor = ab_floats_bytes(s->channels), sync = ab_floats_bytes(ab_sync_floats(s->channels)),
                 partial = w.fixed_bytes - sync - F_COUNT * factor;
    w.partial = memory;
    for (size_t i = 0; i < F_COUNT; i++)
        w.factor[i] = (float *)memory + (partial + i * factor) / sizeof(float);
    w.sync = (float *)memory + (w.fixed_bytes - sync) / sizeof(float);
    w.thread = (char *)memory + w.fixed_bytes;
    return w;
}

/* Each of the four tensors may have its own format. */
static int buffers_of(const ab_op_io *io) {
    const ab_tensor *const all[] = {io->in[0], io->out, io->dout, io->din[0]};
    for (size_t i = 0; i < AB_COUNT_OF(all); i++)
        if (all[i] && !ab_is_f32(all[i])) return 3;
    return 0;
}

/* The plan gives tails whose tensors have one format; the loops must know it, and that of the input must be
 * the same. */
static bool can_fuse(const ab_op_io *io) {
    const ab_tail *tail = &io->tail;
    const ab_tensor *const all[] = {io->in[0], io->din[0], io->dout, tail->out, tail->dout};
    if (!tail->out || ab_stored_as(io->out->format) == AB_STORED_COUNT) return false;
    for (size_t i = 0; i < AB_COUNT_OF(all); i++)
        if (all[i] && all[i]->format != io->out->format) return false;
    return true;
}

static ab_status prepare(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes, size_t *state_bytes) {
    (void)exec;
    ab_rows s = ab_rows_of(&io->in[0]->shape);
    workspace w = measure(&s, buffers_of(io));
    *workspace_bytes = w.fixed_bytes + (size_t)ab_parallel_threads() * w.thread_bytes;
    *state_bytes = 0;
    io->fuses = can_fuse(io);
    return AB_OK;
}

static float *thread_sums(const workspace *w) {
    return (float *)(void *)(w->thread + (size_t)ab_parallel_thread() * w->thread_bytes);
}

static float *thread_group(const workspace *w, int i) {
    return (float *)(void *)(w->thread + (size_t)ab_parallel_thread() * w->thread_bytes + w->sums_bytes +
                             (size_t)i * w->group_bytes);
}

/* ---- statistics ------------------------------------------------------------------------------ */

/* Arguments of a pass over the rows. */
typedef struct pass {
    const ab_exec *exec;
    const ab_tensor *x, *dy; /* dy NULL: forward */
    const ab_tail *tail;     /* computed here, too; NULL: none */
    ab_tensor *dst;          /* what a pass that writes values writes */
    ab_rows s;
    workspace w;
    const ab_bn_loops *loops;
    bool direct; /* the loops read and write tensors as they are stored, else fp32 copies of a group */
} pass;

/* Where the loops find values [at, at + n) of a tensor. */
static const void *group_of(const pass *p, const ab_tensor *tensor, int64_t at, int64_t n, int buffer) {
    if (!tensor) return NULL;
    return p->direct ? (const void *)ab_element(tensor, at)
                     : ab_read(tensor, at, n, thread_group(&p->w, buffer));
}

/* Group g of the tensors of a pass. */
static ab_bn_rows rows_of(const pass *p, int64_t g) {
    const int64_t rows = ab_rows_in_group(&p->s, g), at = ab_rows_offset(&p->s, g), n = rows * p->s.channels;
    return (ab_bn_rows){.rows = rows,
                        .channels = p->s.channels,
                        .x = group_of(p, p->x, at, n, 0),
                        .dy = group_of(p, p->dy, at, n, 1)};
}

/* Merges (mean, m2) of nb values into those of na values. */
static void merge_moments(double *mean, double *m2, double na, const float *group_mean, const float *group_m2,
                          double nb, int64_t channels) {
    double share = nb / (na + nb);
    for (int64_t c = 0; c < channels; c++) {
        double delta = (double)group_mean[c] - mean[c];
        mean[c] += delta * share;
        m2[c] += (double)group_m2[c] + delta * delta * (na * share);
    }
}

static void chunk_moments(const pass *p, int64_t chunk) {
    const ab_rows *s = &p->s;
    float *group_mean = thread_sums(&p->w), *group_m2 = group_mean + s->channels;
    double *mean = p->w.partial + 2 * chunk * s->channels, *m2 = mean + s->channels, done = 0.0;
    for (int64_t c = 0; c < 2 * s->channels; c++) mean[c] = 0.0;
    for (int64_t g = chunk * s->chunk_groups; g < ab_rows_chunk_end(s, chunk); g++) {
        const ab_bn_rows r = rows_of(p, g);
        p->loops->moments(&r, group_mean, group_m2);
        merge_moments(mean, m2, done, group_mean, group_m2, (double)r.rows, s->channels);
        done += (double)r.rows;
    }
}

static void chunk_sums(const pass *p, int64_t chunk) {
    const ab_rows *s = &p->s;
    float *group_sum = thread_sums(&p->w), *group_dot = group_sum + s->channels;
    double *sum = p->w.partial + 2 * chunk * s->channels;
    for (int64_t c = 0; c < 2 * s->channels; c++) sum[c] = 0.0;
    for (int64_t g = chunk * s->chunk_groups; g < ab_rows_chunk_end(s, chunk); g++) {
        ab_bn_rows r = rows_of(p, g);
        if (p->tail) r.above = ab_element(p->tail->out, ab_rows_offset(s, g));
        if (p->tail && p->tail->daddend) r.masked = ab_element(p->tail->daddend, ab_rows_offset(s, g));
        p->loops->sums(&r, p->w.factor[F_MEAN], group_sum, group_dot);
        for (int64_t c = 0; c < 2 * s->channels; c++) sum[c] += (double)group_sum[c];
    }
}

typedef struct chunk_job {
    const pass *p;
    void (*f)(const pass *, int64_t);
} chunk_job;

static void run_chunk(void *argument, int64_t chunk, int thread) {
    const chunk_job *job = argument;
    (void)thread;
    job->f(job->p, chunk);
}

/* Element count for the parallel loop; 0 if some thread has no buffer. */
static int64_t parallel_elements(const pass *p) {
    return ab_threads_fit(p->exec, p->w.fixed_bytes, p->w.thread_bytes) ? p->s.rows * p->s.channels : 0;
}

static void for_chunks(const pass *p, void (*f)(const pass *, int64_t)) {
    chunk_job job = {p, f};
    ab_for_chunks(parallel_elements(p), p->s.chunks, run_chunk, &job);
}

/* Moments of the whole batch, written to chunk 0. */
static void merge_chunks(const pass *p) {
    const ab_rows *s = &p->s;
    int64_t chunk_rows = s->chunk_groups * s->group_rows;
    for (int64_t chunk = 1; chunk < s->chunks; chunk++) {
        double na = (double)(chunk * chunk_rows);
        double nb = (double)(ab_min64((chunk + 1) * chunk_rows, s->rows) - chunk * chunk_rows);
        const double *part = p->w.partial + 2 * chunk * s->channels;
        for (int64_t c = 0; c < s->channels; c++) {
            double *mean = p->w.partial + c, *m2 = mean + s->channels, delta = part[c] - *mean;
            *mean += delta * nb / (na + nb);
            *m2 += part[s->channels + c] + delta * delta * na * nb / (na + nb);
        }
    }
}

static void add_chunks(const pass *p) {
    for (int64_t chunk = 1; chunk < p->s.chunks; chunk++)
        for (int64_t c = 0; c < 2 * p->s.channels; c++)
            p->w.partial[c] += p->w.partial[2 * chunk * p->s.channels + c];
}

/* ---- forward --------------------------------------------------------------------------------- */

static void fill(float *values, int64_t n, float x) {
    for (int64_t i = 0; i < n; i++) values[i] = x;
}

static void read_param(const ab_tensor *param, int64_t channels, float *values, float otherwise) {
    if (!param)
        fill(values, channels, otherwise);
    else {
        const float *view = ab_view_f32(param, values);
        for (int64_t c = 0; c < channels; c++) values[c] = view[c];
    }
}

/* running = (1 - momentum) running + momentum batch, rounded once. */
static void move_running(const pass *p, ab_tensor *running, const double *batch, double factor,
                         double momentum) {
    for (int64_t c = 0; c < p->s.channels; c++) {
        float old, moved;
        double now = (double)*ab_read(running, c, 1, &old);
        moved = (float)((1.0 - momentum) * now + momentum * (batch[c] * factor));
        ab_emit(p->exec, running, c, &moved, 1);
    }
}

/* Moments of the batches of all ranks in place of those of this one's. */
static ab_status merge_ranks(const pass *p, const bn_attrs *a, double *n) {
    const ab_norm_sync *sync = p->exec->sync;
    double *mean = p->w.partial, *m2 = mean + p->s.channels;
    const float *all;
    if (!sync) return AB_OK;
    ab_sync_send(sync->form, mean, m2, *n, a->eps, p->s.channels, p->w.sync);
    AB_TRY(sync->gather(sync->context, p->w.sync, ab_sync_floats(p->s.channels), &all));
    ab_sync_merge(sync->form, all, sync->ranks, a->eps, p->s.channels, mean, m2, n);
    return AB_OK;
}

/* Writes mean and 1/sqrt(var + eps) of the batch to the factors and saved[]; updates the running
 * statistics. */
static ab_status batch_statistics(const pass *p, ab_op_io *io, ab_tensor *const running[2]) {
    const bn_attrs *a = io->attrs;
    double n = (double)p->s.rows, *mean = p->w.partial, *m2 = mean + p->s.channels;
    for_chunks(p, chunk_moments);
    merge_chunks(p);
    AB_TRY(merge_ranks(p, a, &n));
    for (int64_t c = 0; c < p->s.channels; c++) {
        p->w.factor[F_MEAN][c] = (float)mean[c];
        p->w.factor[F_SCALE][c] = (float)(1.0 / sqrt(m2[c] / n + a->eps));
    }
    for (int i = 0; i < SAVED_COUNT; i++)
        if (io->saved[i]) ab_emit(p->exec, io->saved[i], 0, p->w.factor[F_MEAN + i], p->s.channels);
    if (p->exec->sync && !p->exec->sync->updates) return AB_OK;
    move_running(p, running[0], mean, 1.0, a->momentum);
    move_running(p, running[1], m2, 1.0 / (n - 1.0), a->momentum);
    return AB_OK;
}

/* The same two factors from the running statistics. */
static void running_statistics(const pass *p, const ab_op_io *io, ab_tensor *const running[2]) {
    const bn_attrs *a = io->attrs;
    float *invstd = p->w.factor[F_SCALE];
    read_param(running[0], p->s.channels, p->w.factor[F_MEAN], 0.0f);
    read_param(running[1], p->s.channels, invstd, 1.0f);
    for (int64_t c = 0; c < p->s.channels; c++) invstd[c] = (float)(1.0 / sqrt((double)invstd[c] + a->eps));
}

typedef void (*group_function)(const ab_bn_rows *rows, const ab_bn_factors *factors);

typedef struct group_job {
    const pass *p;
    ab_bn_factors factors;
    group_function f;
} group_job;

static void emit_group(void *argument, int64_t g, int thread) {
    const group_job *job = argument;
    const pass *p = job->p;
    const int64_t at = ab_rows_offset(&p->s, g);
    ab_bn_rows r = rows_of(p, g);
    (void)thread;
    r.out = p->direct ? (void *)ab_element(p->dst, at) : ab_target(p->dst, at, thread_group(&p->w, 2));
    if (p->tail && p->dy) r.above = ab_element(p->tail->out, at);
    if (p->tail && p->tail->addend) r.addend = ab_element(p->tail->addend, at);
    r.relu = p->tail != NULL;
    job->f(&r, &job->factors);
    if (!p->direct) ab_emit(p->exec, p->dst, at, r.out, r.rows * r.channels);
}

/* Stores f(group) for every group. */
static void emit_groups(const pass *p, group_function f) {
    float *const *factor = p->w.factor;
    group_job job = {p, {factor[F_MEAN], factor[F_SCALE], factor[F_SHIFT], factor[F_SLOPE]}, f};
    ab_for_chunks(parallel_elements(p), p->s.groups, emit_group, &job);
}

/* The tensors as they are stored where they have one format that the loops know and nobody looks. */
static void choose_loops(pass *p) {
    const ab_format *format = p->x->format;
    const ab_stored stored = ab_stored_as(format);
    p->direct = stored != AB_STORED_COUNT && !p->exec->observer && (!p->dst || p->dst->format == format) &&
                (!p->dy || p->dy->format == format);
    p->loops = &ab_vec_batch_norm_get()->of[p->direct ? stored : AB_STORED_FP32];
}

static pass start(const ab_exec *exec, const ab_op_io *io, const ab_tensor *dy, ab_tensor *dst) {
    pass p = {.exec = exec, .x = io->in[0], .dy = dy, .dst = dst, .s = ab_rows_of(&io->in[0]->shape)};
    p.tail = exec->fuse ? &io->tail : NULL;
    p.w = carve(&p.s, exec->workspace, buffers_of(io));
    choose_loops(&p);
    return p;
}

/* The running statistics, after weight and bias; NULL if none. */
static ab_tensor *const *running_of(const ab_op_io *io) {
    const bn_attrs *a = io->attrs;
    return io->param + (a->affine ? 2 : 0);
}

static ab_status forward(const ab_exec *exec, ab_op_io *io) {
    const bn_attrs *a = io->attrs;
    pass p = start(exec, io, NULL, exec->fuse ? io->tail.out : io->out);
    char text[AB_SHAPE_TEXT];
    if (exec->training && p.s.rows < 2 && !exec->sync)
        return ab_fail(AB_CONFIG, "a batch norm needs more than one value a channel to train, found input %s",
                       ab_shape_text(&io->in[0]->shape, text));
    if (exec->training)
        AB_TRY(batch_statistics(&p, io, running_of(io)));
    else
        running_statistics(&p, io, running_of(io));
    read_param(a->affine ? io->param[0] : NULL, p.s.channels, p.w.factor[F_GAMMA], 1.0f);
    read_param(a->affine ? io->param[1] : NULL, p.s.channels, p.w.factor[F_SHIFT], 0.0f);
    for (int64_t c = 0; c < p.s.channels; c++) p.w.factor[F_SCALE][c] *= p.w.factor[F_GAMMA][c];
    emit_groups(&p, p.loops->apply);
    return AB_OK;
}

/* ---- backward -------------------------------------------------------------------------------- */

/* dweight = sum dy * normalised, dbias = sum dy; F_SCALE holds 1/sqrt(var + eps). */
static void emit_param_gradients(const pass *p, ab_op_io *io) {
    const double *sum = p->w.partial, *dot = sum + p->s.channels;
    for (int64_t c = 0; c < p->s.channels; c++) {
        float dweight = (float)(dot[c] * (double)p->w.factor[F_SCALE][c]), dbias = (float)sum[c];
        if (io->dparam[0]) ab_emit(p->exec, io->dparam[0], c, &dweight, 1);
        if (io->dparam[1]) ab_emit(p->exec, io->dparam[1], c, &dbias, 1);
    }
}

/* dx = gamma invstd ((dy - mean(dy)) - (x - mean) invstd^2 mean(dy (x - mean))) in training; gamma invstd dy
 * otherwise. */
static void input_gradient_factors(const pass *p, bool training, double n) {
    const double *sum = p->w.partial, *dot = sum + p->s.channels;
    for (int64_t c = 0; c < p->s.channels; c++) {
        double invstd = (double)p->w.factor[F_SCALE][c];
        p->w.factor[F_SHIFT][c] = training ? (float)(sum[c] / n) : 0.0f;
        p->w.factor[F_SLOPE][c] = (float)(invstd * invstd * dot[c] / n);
        p->w.factor[F_SCALE][c] *= p->w.factor[F_GAMMA][c];
        if (!training) p->w.factor[F_MEAN][c] = 0.0f;
    }
}

static ab_status backward(const ab_exec *exec, ab_op_io *io) {
    const bn_attrs *a = io->attrs;
    pass p = start(exec, io, exec->fuse ? io->tail.dout : io->dout, io->din[0]);
    if (exec->training) {
        read_param(io->saved[SAVED_MEAN], p.s.channels, p.w.factor[F_MEAN], 0.0f);
        read_param(io->saved[SAVED_INVSTD], p.s.channels, p.w.factor[F_SCALE], 1.0f);
    } else {
        running_statistics(&p, io, running_of(io));
    }
    for_chunks(&p, chunk_sums);
    add_chunks(&p);
    if (a->affine) emit_param_gradients(&p, io);
    if (!io->din[0]) return AB_OK; /* on all ranks alike */
    double n = (double)p.s.rows;
    if (exec->sync && exec->training) {
        const double total = n * exec->sync->ranks; /* all ranks have batches of one size */
        AB_TRY(ab_sync_sums(exec->sync, n, total, p.s.channels, p.w.sync, p.w.partial));
        n = total;
    }
    read_param(a->affine ? io->param[0] : NULL, p.s.channels, p.w.factor[F_GAMMA], 1.0f);
    input_gradient_factors(&p, exec->training, n);
    if (p.tail && p.tail->daddend) { /* masked by the sums */
        p.dy = p.tail->daddend;
        p.tail = NULL;
    }
    emit_groups(&p, exec->training ? p.loops->gradient : p.loops->scaled);
    return AB_OK;
}

static double flops(const void *attrs, const ab_shape *in, const ab_shape *out) {
    (void)attrs;
    (void)out;
    return 7.0 * (double)ab_shape_count(in); /* moments 4, normalisation 3 per value */
}

const ab_op ab_op_batch_norm2d = {.name = "batch_norm2d",
                                  .norm = true,
                                  .inputs = 1,
                                  .batch_norm = true,
                                  .attrs_bytes = sizeof(bn_attrs),
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

const ab_op ab_op_batch_norm1d = {.name = "batch_norm1d",
                                  .norm = true,
                                  .inputs = 1,
                                  .batch_norm = true,
                                  .attrs_bytes = sizeof(bn_attrs),
                                  .attrs = attrs_table,
                                  .infer = infer_rows,
                                  .params = params,
                                  .saved = saved,
                                  .backward_needs = 1u << 0,
                                  .prepare = prepare,
                                  .forward = forward,
                                  .backward = backward,
                                  .flops = flops,
                                  .describe = ab_describe_own};
