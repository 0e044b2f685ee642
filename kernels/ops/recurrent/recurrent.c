/* Parameters of recurrent ops and their gradients; threads split the output rows. */
#include "kernels/ops/recurrent/recurrent.h"

#include "kernels/ops/blocks.h"
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

int64_t ab_recurrent_copy(const ab_tensor *tensor) {
    return tensor && !ab_is_f32(tensor) ? ab_tensor_count(tensor) : 0;
}

int64_t ab_recurrent_group(int64_t batch, int64_t group, int64_t *count) {
    *count = ab_min64(AB_RECURRENT_SAMPLES, batch - group * AB_RECURRENT_SAMPLES);
    return group * AB_RECURRENT_SAMPLES;
}

void ab_recurrent_biases(const ab_op_io *io, int64_t n, float *sum, float *other) {
    memset(sum, 0, (size_t)n * sizeof *sum);
    for (int i = AB_B_IH; i <= AB_B_HH && io->param[i]; i++) {
        const float *bias = ab_view_f32(io->param[i], other);
        for (int64_t k = 0; k < n; k++) sum[k] += bias[k];
    }
}

void ab_recurrent_previous(const ab_op_io *io, int64_t first, int64_t samples, float *before) {
    const int64_t steps = io->out->shape.dim[1], h = io->out->shape.dim[2];
    for (int64_t i = first; i < first + samples; i++) {
        float *to = before + i * steps * h;
        memset(to, 0, (size_t)h * sizeof(float));
        for (int64_t t = 1; t < steps; t++) {
            const float *state = ab_read(io->out, (i * steps + t - 1) * h, h, to + t * h);
            if (state != to + t * h) memcpy(to + t * h, state, (size_t)h * sizeof(float));
        }
    }
}

/* Rows [first, first + n) of dW = d^T a, summed over all steps of all samples. */
static void weight_rows(const ab_recurrent_gradients *r, const float *d, int64_t first, int64_t n,
                        const float *a, int64_t width, float *dw) {
    ab_gemm g = {.transpose_a = true,
                 .rows = n,
                 .columns = width,
                 .inner = r->rows,
                 .alpha = 1.0f,
                 .a = d + first,
                 .lda = r->width,
                 .b = a,
                 .ldb = width,
                 .c = dw + first * width,
                 .ldc = width};
    ab_gemm_run(&g, r->exec->path, r->half);
}

static void bias_rows(const ab_recurrent_gradients *r, const float *d, int64_t first, int64_t n,
                      float *dbias) {
    for (int64_t k = first; k < first + n; k++) {
        double sum = 0.0;
        for (int64_t row = 0; row < r->rows; row++) sum += (double)d[row * r->width + k];
        dbias[k] = (float)sum;
    }
}

static const float *hidden_side(const ab_recurrent_gradients *r) { return r->d_hidden ? r->d_hidden : r->d; }

static void some_outputs(void *argument, int64_t chunk, int thread) {
    const ab_recurrent_gradients *r = argument;
    const int64_t first = chunk * GROUP_OUTPUTS, n = ab_min64(GROUP_OUTPUTS, r->width - first);
    (void)thread;
    weight_rows(r, r->d, first, n, r->x, r->features, r->dw_in);
    weight_rows(r, hidden_side(r), first, n, r->before, r->hidden, r->dw_hidden);
    bias_rows(r, r->d, first, n, r->dbias);
    if (r->d_hidden) bias_rows(r, r->d_hidden, first, n, r->dbias_hidden);
}

void ab_recurrent_weight_gradients(const ab_recurrent_gradients *g, ab_op_io *io) {
    ab_recurrent_gradients job = *g;
    const float *const from[] = {g->dw_in, g->dw_hidden, g->dbias, g->d_hidden ? g->dbias_hidden : g->dbias};
    ab_for_chunks(g->rows * g->width, ab_div_up(g->width, GROUP_OUTPUTS), some_outputs, &job);
    for (int i = 0; i < AB_RECURRENT_PARAMS; i++)
        if (io->dparam[i]) ab_emit(g->exec, io->dparam[i], 0, from[i], ab_tensor_count(io->dparam[i]));
}

const char *ab_recurrent_describe(const ab_op_io *io, const char *pass) {
    (void)pass;
    return ab_is_f32(io->in[0]) && ab_is_f32(io->out) ? "own+sgemm" : "convert+own+sgemm";
}
