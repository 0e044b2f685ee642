/* What recurrent ops share. Threads split the samples, and the output rows of weight gradients. */
#include "kernels/ops/recurrent/recurrent.h"

#include "kernels/ops/product/gemm.h"

#include <math.h>
#include <string.h>

enum { GROUP_OUTPUTS = 128 };

ab_status ab_recurrent_infer(const char *name, int64_t hidden, const ab_shape *in, ab_shape *out) {
    char text[AB_SHAPE_TEXT];
    if (in->ndim != 3)
        return ab_fail(AB_CONFIG, "%s expects [batch, steps, features], found %s", name,
                       ab_shape_text(in, text));
    *out = *in;
    out->dim[2] = hidden;
    return AB_OK;
}

int ab_recurrent_params(int64_t gates, int64_t hidden, bool bias, const ab_shape *in, ab_param_spec *spec) {
    static const char *const names[] = {"weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"};
    const double bound = 1.0 / sqrt((double)hidden);
    for (int i = 0; i < AB_RECURRENT_PARAMS; i++) {
        ab_shape shape = {.ndim = i < AB_B_IH ? 2 : 1, .dim = {gates * hidden}};
        if (i < AB_B_IH) shape.dim[1] = i == AB_W_IH ? in->dim[2] : hidden;
        spec[i] = (ab_param_spec){names[i], AB_PARAM_WEIGHT, shape, AB_INIT_UNIFORM, bound};
    }
    return bias ? AB_RECURRENT_PARAMS : AB_B_IH;
}

/* ---- memory ---------------------------------------------------------------------------------- */

int64_t ab_recurrent_copy(const ab_tensor *tensor) {
    return tensor && !ab_is_f32(tensor) ? ab_tensor_count(tensor) : 0;
}

static ab_recurrence describe(const ab_exec *exec, const ab_op_io *io, int64_t gates) {
    const ab_shape *in = &io->in[0]->shape, *out = &io->out->shape;
    ab_recurrence r = {.exec = exec,
                       .io = io,
                       .batch = in->dim[0],
                       .steps = in->dim[1],
                       .features = in->dim[2],
                       .hidden = out->dim[2],
                       .width = gates * out->dim[2]};
    r.half = exec->accumulate_half && !ab_is_f32(io->out) ? io->out->format : NULL;
    return r;
}

static void measure(const ab_recurrence *r, ab_recurrent_sizes own, int64_t size[AB_R_ARRAYS]) {
    const ab_op_io *io = r->io;
    memset(size, 0, AB_R_ARRAYS * sizeof *size);
    size[AB_R_WEIGHTS_IN] = ab_recurrent_copy(io->param[AB_W_IH]);
    size[AB_R_WEIGHTS_HIDDEN] = ab_recurrent_copy(io->param[AB_W_HH]);
    size[AB_R_INPUT] = ab_recurrent_copy(io->in[0]);
    size[AB_R_DOUT] = ab_recurrent_copy(io->dout);
    size[AB_R_DIN] = ab_recurrent_copy(io->din[0]);
    size[AB_R_BIAS] = 2 * r->width;
    size[AB_R_BEFORE] = r->batch * r->steps * r->hidden;
    size[AB_R_DWEIGHTS_IN] = r->width * r->features;
    size[AB_R_DWEIGHTS_HIDDEN] = r->width * r->hidden;
    size[AB_R_DBIAS] = r->width;
    own(r, size + AB_R_OWN);
}

void ab_recurrent_measure(const ab_exec *exec, const ab_op_io *io, int64_t gates, ab_recurrent_sizes own,
                          size_t *workspace_bytes) {
    const ab_recurrence r = describe(exec, io, gates);
    int64_t size[AB_R_ARRAYS];
    measure(&r, own, size);
    *workspace_bytes = 0;
    for (int i = 0; i < AB_R_ARRAYS; i++) *workspace_bytes += ab_floats_bytes(size[i]);
}

ab_recurrence ab_recurrent_start(const ab_exec *exec, const ab_op_io *io, int64_t gates,
                                 ab_recurrent_sizes own) {
    ab_recurrence r = describe(exec, io, gates);
    int64_t size[AB_R_ARRAYS];
    char *memory = exec->workspace;
    measure(&r, own, size);
    for (int i = 0; i < AB_R_ARRAYS; i++) {
        r.array[i] = (float *)(void *)memory;
        memory += ab_floats_bytes(size[i]);
    }
    r.w_in = ab_view_f32(io->param[AB_W_IH], r.array[AB_R_WEIGHTS_IN]);
    r.w_hidden = ab_view_f32(io->param[AB_W_HH], r.array[AB_R_WEIGHTS_HIDDEN]);
    r.x = ab_view_f32(io->in[0], r.array[AB_R_INPUT]);
    return r;
}

/* ---- groups of samples ----------------------------------------------------------------------- */

void ab_recurrent_groups(ab_recurrence *r, ab_work work) {
    ab_for_chunks(r->batch * r->steps * r->width, ab_div_up(r->batch, AB_RECURRENT_SAMPLES), work, r);
}

int64_t ab_recurrent_group(int64_t batch, int64_t group, int64_t *count) {
    *count = ab_min64(AB_RECURRENT_SAMPLES, batch - group * AB_RECURRENT_SAMPLES);
    return group * AB_RECURRENT_SAMPLES;
}

void ab_recurrent_biases(const ab_recurrence *r) {
    float *sum = r->array[AB_R_BIAS], *other = sum + r->width;
    memset(sum, 0, (size_t)r->width * sizeof *sum);
    for (int i = AB_B_IH; i <= AB_B_HH && r->io->param[i]; i++) {
        const float *bias = ab_view_f32(r->io->param[i], other);
        for (int64_t k = 0; k < r->width; k++) sum[k] += bias[k];
    }
}

void ab_recurrent_add_product(const ab_recurrence *r, const float *a, int64_t lda, const float *w,
                              int64_t inner, int64_t rows, int64_t columns, float *c, int64_t ldc) {
    const ab_gemm g = {.transpose_b = true,
                       .rows = rows,
                       .columns = columns,
                       .inner = inner,
                       .alpha = 1.0f,
                       .beta = 1.0f,
                       .a = a,
                       .lda = lda,
                       .b = w,
                       .ldb = inner,
                       .c = c,
                       .ldc = ldc};
    ab_gemm_run(&g, r->exec->path, r->half);
}

void ab_recurrent_back_product(const ab_recurrence *r, const float *d, int64_t ldd, const float *w,
                               int64_t columns, int64_t rows, float *c, int64_t ldc, float beta) {
    const ab_gemm g = {.rows = rows,
                       .columns = columns,
                       .inner = r->width,
                       .alpha = 1.0f,
                       .beta = beta,
                       .a = d,
                       .lda = ldd,
                       .b = w,
                       .ldb = columns,
                       .c = c,
                       .ldc = ldc};
    ab_gemm_run(&g, r->exec->path, r->half);
}

void ab_recurrent_previous(const ab_recurrence *r, int64_t first, int64_t samples) {
    const int64_t steps = r->steps, h = r->hidden;
    for (int64_t i = first; i < first + samples; i++) {
        float *to = r->array[AB_R_BEFORE] + i * steps * h;
        memset(to, 0, (size_t)h * sizeof(float));
        for (int64_t t = 1; t < steps; t++) {
            const float *state = ab_read(r->io->out, (i * steps + t - 1) * h, h, to + t * h);
            if (state != to + t * h) memcpy(to + t * h, state, (size_t)h * sizeof(float));
        }
    }
}

/* ---- gradients ------------------------------------------------------------------------------- */

void ab_recurrent_input_gradient(const ab_recurrence *r, int64_t first, int64_t samples, const float *d) {
    ab_tensor *din = r->io->din[0];
    if (!din) return;
    const int64_t row = first * r->steps, rows = samples * r->steps, at = row * r->features;
    float *result = ab_target(din, at, r->array[AB_R_DIN] + (ab_recurrent_copy(din) ? at : 0));
    ab_recurrent_back_product(r, d + row * r->width, r->width, r->w_in, r->features, rows, result,
                              r->features, 0.0f);
    ab_emit(r->exec, din, at, result, rows * r->features);
}

typedef struct weight_job {
    const ab_recurrence *r;
    const float *d, *d_hidden;
    float *dbias, *dbias_hidden;
} weight_job;

/* Rows [first, first + n) of dW = d^T a, summed over all steps of all samples. */
static void weight_rows(const ab_recurrence *r, const float *d, int64_t first, int64_t n, const float *a,
                        int64_t columns, float *dw) {
    const ab_gemm g = {.transpose_a = true,
                       .rows = n,
                       .columns = columns,
                       .inner = r->batch * r->steps,
                       .alpha = 1.0f,
                       .a = d + first,
                       .lda = r->width,
                       .b = a,
                       .ldb = columns,
                       .c = dw + first * columns,
                       .ldc = columns};
    ab_gemm_run(&g, r->exec->path, r->half);
}

static void bias_rows(const ab_recurrence *r, const float *d, int64_t first, int64_t n, float *dbias) {
    for (int64_t k = first; k < first + n; k++) {
        double sum = 0.0;
        for (int64_t row = 0; row < r->batch * r->steps; row++) sum += (double)d[row * r->width + k];
        dbias[k] = (float)sum;
    }
}

static void some_outputs(void *argument, int64_t chunk, int thread) {
    const weight_job *job = argument;
    const ab_recurrence *r = job->r;
    const int64_t first = chunk * GROUP_OUTPUTS, n = ab_min64(GROUP_OUTPUTS, r->width - first);
    (void)thread;
    weight_rows(r, job->d, first, n, r->x, r->features, r->array[AB_R_DWEIGHTS_IN]);
    weight_rows(r, job->d_hidden, first, n, r->array[AB_R_BEFORE], r->hidden, r->array[AB_R_DWEIGHTS_HIDDEN]);
    bias_rows(r, job->d, first, n, job->dbias);
    if (job->dbias_hidden != job->dbias) bias_rows(r, job->d_hidden, first, n, job->dbias_hidden);
}

void ab_recurrent_weight_gradients(const ab_recurrence *r, const float *d, const float *d_hidden,
                                   float *dbias_hidden, ab_op_io *io) {
    float *dbias = r->array[AB_R_DBIAS];
    weight_job job = {r, d, d_hidden ? d_hidden : d, dbias, d_hidden ? dbias_hidden : dbias};
    const float *const from[] = {r->array[AB_R_DWEIGHTS_IN], r->array[AB_R_DWEIGHTS_HIDDEN], job.dbias,
                                 job.dbias_hidden};
    ab_for_chunks(r->batch * r->steps * r->width, ab_div_up(r->width, GROUP_OUTPUTS), some_outputs, &job);
    for (int i = 0; i < AB_RECURRENT_PARAMS; i++)
        if (io->dparam[i]) ab_emit(r->exec, io->dparam[i], 0, from[i], ab_tensor_count(io->dparam[i]));
}

/* ---- for the record -------------------------------------------------------------------------- */

double ab_recurrent_flops(int64_t gates, int64_t hidden, const ab_shape *in) {
    const double steps = (double)(in->dim[0] * in->dim[1]), h = (double)hidden;
    return steps * 2.0 * (double)gates * h * ((double)in->dim[2] + h + 10.0);
}

/* Who computes the products depends on the size of each (gemm.h). */
const char *ab_recurrent_describe(const ab_op_io *io, const char *pass) {
    (void)pass;
    return ab_is_f32(io->in[0]) && ab_is_f32(io->out) ? "own+products" : "convert+own+products";
}
