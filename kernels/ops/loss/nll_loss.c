/* nll_loss: the negative of the target class's value in each row, averaged or summed, as torch's nll_loss
 * with class weights and ignore_index. Classes are the last dimension; targets are class ids, one a row. The
 * values are taken for logarithms of probabilities (log_softmax's output) as they are: nothing is normalised
 * here. The mean is over the weights of the targets; sums are double and in order. */
#include "kernels/ops/blocks.h"
#include "kernels/ops/elementwise/operand_gradient.h"
#include "kernels/ops/loss/class_loss.h"

typedef struct loss_attrs {
    ab_floats weight;
    int64_t ignore_index;
    int64_t reduction;
} loss_attrs;

enum { MEAN, SUM };

static const ab_attr attrs_table[] = {
    {"weight", AB_ATTR_FLOATS, offsetof(loss_attrs, weight), false, 0, 0, 1e30, "one weight a class"},
    {"ignore_index", AB_ATTR_INT, offsetof(loss_attrs, ignore_index), false, -100, -2147483648.0,
     2147483647.0, "targets with this id do not count"},
    {"reduction", AB_ATTR_CHOICE, offsetof(loss_attrs, reduction), false, MEAN, MEAN, SUM, "mean|sum"},
    {0}};

static ab_status infer(const void *attrs, const ab_shape *in, int inputs, ab_shape *out) {
    const loss_attrs *a = attrs;
    char values[AB_SHAPE_TEXT], targets[AB_SHAPE_TEXT];
    ab_shape rows = in[0];
    (void)inputs;
    rows.ndim--;
    if (in[0].ndim < 2 || !ab_shape_equal(&rows, &in[1]))
        return ab_fail(AB_CONFIG,
                       "nll_loss expects log-probabilities [batch, ..., classes] and one class id for each "
                       "row of them, found %s and targets %s",
                       ab_shape_text(&in[0], values), ab_shape_text(&in[1], targets));
    if (a->weight.value && a->weight.count != in[0].dim[in[0].ndim - 1])
        return ab_fail(AB_CONFIG, "nll_loss: values %s need one weight a class, found %lld weights",
                       ab_shape_text(&in[0], values), (long long)a->weight.count);
    *out = (ab_shape){.ndim = 1, .dim = {1}};
    return AB_OK;
}

typedef struct batch {
    const loss_attrs *attrs;
    const int32_t *target;
    int64_t rows, classes;
    double divisor; /* of the sum of losses */
    float dout;
} batch;

static int64_t classes_of(const ab_op_io *io) { return io->in[0]->shape.dim[io->in[0]->shape.ndim - 1]; }

/* Of a row's loss; 0 for ignored rows. */
static double weight_of(const batch *b, int64_t row) {
    if (b->target[row] == b->attrs->ignore_index) return 0;
    return b->attrs->weight.value ? (double)b->attrs->weight.value[b->target[row]] : 1;
}

/* Checks every target and sums their weights. */
static ab_status start(const ab_op_io *io, batch *b) {
    *b = (batch){.attrs = io->attrs, .target = io->in[1]->data, .classes = classes_of(io)};
    b->rows = ab_tensor_count(io->in[0]) / b->classes;
    for (int64_t row = 0; row < b->rows; row++) {
        const int32_t target = b->target[row];
        if (target != b->attrs->ignore_index && (target < 0 || target >= b->classes))
            return ab_fail(AB_INPUT, "nll_loss: target of sample %lld is class %d, expected 0 to %lld",
                           (long long)row, (int)target, (long long)b->classes - 1);
        b->divisor += weight_of(b, row);
    }
    if (b->attrs->reduction == SUM) b->divisor = 1;
    return AB_OK;
}

static ab_status forward(const ab_exec *exec, ab_op_io *io) {
    batch b;
    AB_TRY(start(io, &b));
    double sum = 0;
    for (int64_t row = 0; row < b.rows; row++) {
        const double weight = weight_of(&b, row);
        float buffer;
        if (b.target[row] == b.attrs->ignore_index) continue;
        sum -= weight * (double)*ab_read(io->in[0], row * b.classes + b.target[row], 1, &buffer);
    }
    const float loss = (float)(sum / b.divisor);
    ab_emit(exec, io->out, 0, &loss, 1);
    return AB_OK;
}

static const float *read_gradient(const void *self, int64_t at, int64_t n, float *buffer) {
    const batch *b = self;
    for (int64_t i = 0; i < n; i++) {
        const int64_t row = (at + i) / b->classes;
        const bool counts = b->target[row] == (at + i) % b->classes && weight_of(b, row) != 0;
        buffer[i] = counts ? (float)(-weight_of(b, row) / b->divisor * (double)b->dout) : 0;
    }
    return buffer;
}

static ab_status backward(const ab_exec *exec, ab_op_io *io) {
    batch b;
    float buffer;
    AB_TRY(start(io, &b));
    b.dout = *ab_read(io->dout, 0, 1, &buffer);
    if (io->din[0]) ab_operand_gradient(exec, io->din[0], &io->in[0]->shape, read_gradient, &b);
    return AB_OK;
}

static ab_status prepare(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes, size_t *state_bytes) {
    (void)exec;
    *workspace_bytes = ab_operand_gradients_bytes(io, 1);
    *state_bytes = 0;
    return AB_OK;
}

static double flops(const void *attrs, const ab_shape *in, const ab_shape *out) {
    (void)attrs;
    (void)out;
    return 2.0 * (double)ab_shape_count(&in[1]);
}

/* ---- best constant prediction: logarithms of the classes' weighted frequencies ---------------- */

static int64_t constant_sums(const ab_op_io *io) { return classes_of(io); }

static void constant_add(const ab_op_io *io, const void *targets, double *sums) {
    const batch b = {.attrs = io->attrs, .target = targets, .classes = classes_of(io)};
    for (int64_t row = 0; row < ab_tensor_count(io->in[0]) / b.classes; row++) {
        const int32_t target = b.target[row];
        if (target >= 0 && target < b.classes) sums[target] += weight_of(&b, row);
    }
}

static void constant_predict(const ab_op_io *io, const double *sums, float *prediction) {
    ab_log_shares(sums, classes_of(io), ab_tensor_count(io->in[0]), prediction);
}

static const ab_best_constant best_constant = {constant_sums, constant_add, constant_predict};

const ab_op ab_op_nll_loss = {.name = "nll_loss",
                              .inputs = 2,
                              .is_loss = true,
                              .integer_inputs = 1u << 1,
                              .attrs_bytes = sizeof(loss_attrs),
                              .attrs = attrs_table,
                              .infer = infer,
                              .backward_needs = 1u << 1,
                              .prepare = prepare,
                              .forward = forward,
                              .backward = backward,
                              .flops = flops,
                              .describe = ab_describe_own,
                              .best_constant = &best_constant};
