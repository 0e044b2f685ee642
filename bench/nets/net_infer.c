/* Shapes and parameters of a network: each op infers its own; this file chains them and checks bounds. */
#include "bench/nets/net_build.h"

#include <stdlib.h>

static ab_status fail_op(ab_status status, const ab_net *net, const ab_net_op *op) {
    return ab_fail_prefix(status, "%s:%d: op '%s'", net->path, op->line, op->name);
}

static ab_status check_size(const ab_shape *shape, const char *what) {
    char text[AB_SHAPE_TEXT];
    if (ab_shape_in_bounds(shape)) return AB_OK;
    return ab_fail(AB_CONFIG, "expected %s of 1 to 2^40 elements, found %s", what,
                   ab_shape_text(shape, text));
}

static ab_shape with_batch(const ab_shape *sample, int64_t batch) {
    ab_shape shape = {.ndim = sample->ndim + 1, .dim = {batch}};
    for (int i = 0; i < sample->ndim; i++) shape.dim[i + 1] = sample->dim[i];
    return shape;
}

ab_shape ab_net_input_shape(const ab_net *net, int64_t batch) { return with_batch(&net->data.x, batch); }
ab_shape ab_net_targets_shape(const ab_net *net, int64_t batch) { return with_batch(&net->data.y, batch); }

static void input_shapes(const ab_net *net, const ab_net_op *op, int64_t batch, const ab_shape *shape,
                         ab_shape *in) {
    for (int k = 0; k < op->inputs; k++) {
        if (op->input[k] >= 0)
            in[k] = shape[op->input[k]];
        else if (op->input[k] == AB_NET_INPUT)
            in[k] = ab_net_input_shape(net, batch);
        else
            in[k] = ab_net_targets_shape(net, batch);
    }
}

static ab_status infer_op(const ab_net *net, int i, int64_t batch, ab_shape *shape) {
    const ab_net_op *op = &net->op[i];
    ab_shape in[AB_MAX_INPUTS];
    input_shapes(net, op, batch, shape, in);
    ab_status status = AB_OK;
    for (int k = 0; k < op->inputs && status == AB_OK; k++) status = check_size(&in[k], "an input");
    if (status == AB_OK) status = op->op->infer(op->attrs, in, op->inputs, &shape[i]);
    if (status == AB_OK) status = check_size(&shape[i], "an output");
    return status == AB_OK ? AB_OK : fail_op(status, net, op);
}

ab_status ab_net_infer(const ab_net *net, int64_t batch, ab_shape *shape) {
    for (int i = 0; i < net->ops; i++) AB_TRY(infer_op(net, i, batch, shape));
    return AB_OK;
}

static ab_status make_op_params(const ab_net *net, ab_net_op *op, int64_t batch, const ab_shape *shape) {
    ab_shape in[AB_MAX_INPUTS];
    if (!op->op->params) return AB_OK;
    input_shapes(net, op, batch, shape, in);
    op->params = op->op->params(op->attrs, in, op->param);
    for (int k = 0; k < op->params; k++) {
        ab_status status = check_size(&op->param[k].shape, op->param[k].name);
        if (status != AB_OK) return fail_op(status, net, op);
    }
    return AB_OK;
}

/* Any tensor of one element can be minimised. */
static ab_status check_loss(const ab_net *net, const ab_net_loss *loss, const ab_shape *shape) {
    const ab_net_op *op = &net->op[loss->op];
    char text[AB_SHAPE_TEXT];
    if (ab_shape_count(&shape[loss->op]) == 1) return AB_OK;
    return ab_fail(AB_CONFIG, "%s:%d: op '%s' (%s): expected a loss of one element, found %s%s", net->path,
                   op->line, op->name, op->op->name, ab_shape_text(&shape[loss->op], text),
                   loss->op == net->ops - 1 ? "; end the network with a loss such as cross_entropy or mean"
                                            : "");
}

/* The last loss that compares logits, its first input, with classes. */
static void find_scored(ab_net *net, const ab_shape *shape) {
    net->scored = -1;
    for (int i = 0; i < net->ops; i++) {
        const ab_net_op *op = &net->op[i];
        bool classes = op->op->is_loss && (op->op->integer_inputs | op->op->maybe_integer) >> 1 & 1u;
        if (!classes || op->input[1] != AB_NET_TARGETS || op->input[0] < 0) continue;
        if (net->data.targets == AB_TARGETS_VALUES) continue;
        const ab_shape *logits = &shape[op->input[0]];
        net->scored = i;
        net->classes = net->data.classes = logits->dim[logits->ndim - 1];
    }
}

/* One row of scores for each class id, or one score for each number of one-hot targets. */
static ab_status check_scores(ab_net *net, int64_t batch, const ab_shape *shape) {
    const ab_net_op *op = &net->op[net->scores];
    const ab_shape *scores = &shape[net->scores], targets = ab_net_targets_shape(net, batch);
    char found[AB_SHAPE_TEXT], wanted[AB_SHAPE_TEXT];
    ab_shape rows = *scores;
    if (net->data.targets == AB_TARGETS_VALUES)
        return ab_fail(AB_CONFIG, "%s: 'scores': expected targets that are classes, found numbers",
                       net->path);
    if (ab_data_ids_out(&net->data)) rows.ndim--;
    if (scores->ndim < 2 || !ab_shape_equal(&rows, &targets))
        return ab_fail(
            AB_CONFIG,
            "%s:%d: 'scores': expected an op with one number a class for targets %s, found '%s' with %s",
            net->path, op->line, ab_shape_text(&targets, wanted), op->name, ab_shape_text(scores, found));
    net->scored = -1;
    net->classes = net->data.classes = scores->dim[scores->ndim - 1];
    return AB_OK;
}

ab_status ab_net_make_params(ab_net *net) {
    const int64_t batch = net->defaults.batch;
    ab_shape *shape = calloc((size_t)net->ops, sizeof *shape);
    if (!shape) return ab_fail(AB_NO_MEMORY, "%s: cannot allocate the shapes", net->path);
    ab_status status = AB_OK;
    AB_TRY_GOTO(ab_net_infer(net, batch, shape));
    for (int i = 0; i < net->ops; i++) AB_TRY_GOTO(make_op_params(net, &net->op[i], batch, shape));
    for (int i = 0; i < net->losses; i++) AB_TRY_GOTO(check_loss(net, &net->loss[i], shape));
    find_scored(net, shape);
    if (net->scores >= 0) AB_TRY_GOTO(check_scores(net, batch, shape));
out:
    free(shape);
    return status;
}
