/* Why values are no numbers, at every op of ops.def, forward and backward: each cause is planted in what the
 * op reads, the op's own kernel makes the infinities or NaNs of it, and the origin probe must name that op,
 * that tensor and that cause; and where the cause is one of size, the value that the same kernel finds in
 * fp32. */
#define _POSIX_C_SOURCE 200809L
#include "tests/unit/op_instances_testing.h"

#include "kernels/backend/extremes.h"

#include <math.h>

static const ab_probe_kind *origin(void) { return pt_probe("origin"); }

static const op_formats narrowed = {&ab_format_fp32, &ab_format_fp32, &ab_format_fp16};
static const op_formats single = {&ab_format_fp32, &ab_format_fp32, NULL};

/* The event of an op that has run once at a loss scale; NULL without. To be deleted. */
static cJSON *event_of(const ab_op_run *run, double scale, const ab_format *accumulate) {
    const ab_probe_setup setup = {.threads = 1, .half = &ab_format_fp16, .accumulate = accumulate};
    void *probe = NULL;
    assert_int_equal(origin()->create(&setup, &probe), AB_OK);
    origin()->begin(probe, 0, scale);
    origin()->ran(probe, run);
    cJSON *report = pt_report(origin()->report, probe);
    const cJSON *first = cJSON_GetArrayItem(pt_get(pt_get(report, "origin"), "events"), 0);
    cJSON *event = first ? cJSON_Duplicate(first, true) : NULL;
    cJSON_Delete(report);
    origin()->destroy(probe);
    return event;
}

/* What the probe must say of a run: op, pass, cause; value NAN: none is asked for. */
static void expect(const ab_op_run *run, double scale, const char *cause, double value) {
    cJSON *event = event_of(run, scale, NULL);
    if (!event)
        fail_msg("%s %s: nothing found, expected %s", run->name, run->backward ? "backward" : "forward",
                 cause);
    const cJSON *why = pt_get(event, "cause");
    assert_string_equal(pt_text(event, "op"), run->name);
    assert_string_equal(pt_text(event, "pass"), run->backward ? "backward" : "forward");
    if (strcmp(pt_text(why, "id"), cause) != 0)
        fail_msg("%s (%s) %s, tensor %s: %s, expected %s", run->name, run->op->name,
                 run->backward ? "backward" : "forward", pt_text(event, "tensor"), pt_text(why, "id"), cause);
    if (!isnan(value) && !(fabs(pt_number(why, "value") - value) <= 1e-3 * fabs(value)))
        fail_msg("%s (%s): in double %g, the kernel in fp32 %g", run->name, run->op->name,
                 pt_number(why, "value"), value);
    cJSON_Delete(event);
}

static ab_op_run run_of(const op_run *r, const char *name, bool backward) {
    return (ab_op_run){.name = name, .op = r->op, .io = &r->io, .backward = backward, .exec = &r->exec};
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static bool is_any_of(const ab_op *op, const ab_op *const *list, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (op == list[i]) return true;
    return false;
}

static void scale_all(op_run *r, double factor) {
    for (int i = 0; i < (r->op == &ab_op_div ? 1 : r->inputs); i++) oi_scale(&r->in[i], factor);
    for (int i = 0; i < r->params; i++) oi_scale(&r->param[i], factor);
}

/* So large that the result is beyond fp16 (that of a loss: fp32), where it can be. */
static double large_for(const ab_op *op) {
    if (op == &ab_op_bce) return 1;
    return op == &ab_op_rsqrt ? 0x1p-60 : op == &ab_op_sqrt ? 0x1p60 : op->is_loss ? 0x1p127 : 0x1p24;
}

/* Bounded whatever they read. */
static bool cannot_overflow(const op_run *r) {
    static const ab_op *const bounded[] = {&ab_op_tanh,  &ab_op_sigmoid,  &ab_op_softmax,
                                           &ab_op_log,   &ab_op_bce,      &ab_op_lstm,
                                           &ab_op_clamp, &ab_op_nll_loss, &ab_op_gru};
    const bool norm = r->op->norm && r->params == 0;
    const bool rnn = r->op == &ab_op_rnn && isfinite(oracle_get(&r->out, 0)) && ab_extremes_finite(&r->out);
    const bool affine = r->op->batch_norm && r->spec[0].kind == AB_PARAM_BUFFER;
    return norm || rnn || affine || is_any_of(r->op, bounded, AB_COUNT_OF(bounded));
}

/* Numbers that the op is defined for; of masks every second element is 0. */
static void tame(op_run *r) {
    const int mask = r->op == &ab_op_where ? 0 : r->op == &ab_op_masked_fill && r->inputs > 1 ? 1 : -1;
    for (int64_t k = 0; mask >= 0 && k < ab_tensor_count(&r->in[mask]); k += 2)
        oracle_put(&r->in[mask], k, 0);
    static const ab_op *const roots[] = {&ab_op_sqrt, &ab_op_rsqrt, &ab_op_log, &ab_op_bce};
    for (int i = 0; i < r->inputs && is_any_of(r->op, roots, AB_COUNT_OF(roots)); i++)
        for (int64_t k = 0; k < ab_tensor_count(&r->in[i]); k++)
            oracle_put(&r->in[i], k, 0.5 + 0.4 * oracle_get(&r->in[i], k));
    for (int64_t k = 0; r->op == &ab_op_max && k < ab_tensor_count(&r->in[0]); k++)
        oracle_put(&r->in[0], k, oracle_round(&ab_format_fp16, oracle_get(&r->in[0], k)));
    if (r->op == &ab_op_div) /* a small divisor */
        for (int64_t k = 0; k < ab_tensor_count(&r->in[1]); k++) oracle_put(&r->in[1], k, 0x1p-10);
}

/* First element of what is not finite, as `other` has it. */
static double first_in(const ab_tensor *bad, const ab_tensor *other) {
    int64_t place;
    return ab_extremes_places(bad, &place, 1) ? oracle_get(other, place) : (double)NAN;
}

/* A mask that writes infinities on purpose hides others among them. */
static bool hides(const oi_instance *instance) {
    double value = 0;
    for (const ab_attr *attr = instance->op->attrs; instance->op == &ab_op_masked_fill && attr->name; attr++)
        if (strcmp(attr->name, "value") == 0)
            memcpy(&value, (const char *)instance->attrs + attr->offset, sizeof value);
    return isinf(value);
}

/* A logarithm of 2 x 3e38 for two classes in three. */
static void opposite_logits(const ab_tensor *logits) {
    for (int64_t k = 0; k < ab_tensor_count(logits); k++)
        oracle_put(logits, k, k % logits->shape.dim[logits->shape.ndim - 1] ? -3e38 : 3e38);
}

static bool forward_overflow(const oi_instance *instance) {
    op_run r, wide;
    oi_run_open(&r, instance, narrowed, 3);
    oi_run_open(&wide, instance, single, 3);
    op_run *both[] = {&r, &wide};
    for (int i = 0; i < 2; i++) {
        tame(both[i]);
        scale_all(both[i], large_for(instance->op));
        if (instance->op == &ab_op_cross_entropy) opposite_logits(&both[i]->in[0]);
        op_run_both(both[i]);
    }
    const bool overflows = !ab_extremes_finite(&r.out);
    if (!overflows && !cannot_overflow(&r)) fail_msg("%s (%s) did not overflow", instance->name, r.op->name);
    const ab_op_run run = run_of(&r, instance->name, false);
    const double value = first_in(&r.out, &wide.out);
    if (overflows) expect(&run, 1, "range_overflow", isfinite(value) ? value : (double)NAN);
    op_run_close(&r);
    op_run_close(&wide);
    return overflows;
}

static void a_forward_result_beyond_the_format_is_told_at_every_op(void **state) {
    static oi_all all;
    int overflows = 0;
    (void)state;
    oi_open(&all);
    for (int i = 0; i < all.count; i++)
        if (!hides(&all.instance[i])) overflows += forward_overflow(&all.instance[i]);
    assert_true(overflows > all.count * 3 / 4);
    oi_close(&all);
}

/* Leaves one of the gradients. */
static ab_op_io only(const op_run *r, int wrote) {
    ab_op_io io = r->io;
    for (int i = 0; i < AB_MAX_INPUTS; i++)
        if (i != wrote) io.din[i] = NULL;
    for (int i = 0; i < AB_MAX_PARAMS; i++)
        if (AB_MAX_INPUTS + i != wrote) io.dparam[i] = NULL;
    return io;
}

/* The gradient of a mask is 0. */
static bool is_zero_gradient(const op_run *r, int wrote) {
    return (r->op == &ab_op_where && wrote == 0) || (r->op == &ab_op_masked_fill && wrote == 1);
}

static int backward_overflow(const oi_instance *instance) {
    op_run r, wide;
    int found = 0;
    oi_run_open(&r, instance, narrowed, 4);
    oi_run_open(&wide, instance, single, 4);
    op_run *both[] = {&r, &wide};
    for (int i = 0; i < 2; i++) {
        tame(both[i]);
        oi_scale(&both[i]->dout, 0x1p60);
        op_run_both(both[i]);
    }
    for (int wrote = 0; wrote < AB_MAX_INPUTS + AB_MAX_PARAMS; wrote++) {
        ab_op_io io = only(&r, wrote);
        const int param = wrote - AB_MAX_INPUTS;
        const ab_tensor *tensor = param < 0 ? io.din[wrote] : io.dparam[param];
        if (!tensor || is_zero_gradient(&r, wrote)) continue;
        if (ab_extremes_finite(tensor)) fail_msg("%s: gradient %d did not overflow", instance->name, wrote);
        ab_op_run run = run_of(&r, instance->name, true);
        run.io = &io;
        double value = first_in(tensor, param < 0 ? wide.io.din[wrote] : wide.io.dparam[param]);
        if (r.op == &ab_op_rnn || r.op == &ab_op_lstm || r.op == &ab_op_gru)
            value = (double)NAN; /* half states are others */
        expect(&run, 1, "range_overflow", value);
        expect(&run, 0x1p90, "scale_induced", value);
        found++;
    }
    op_run_close(&r);
    op_run_close(&wide);
    return found;
}

static void a_gradient_beyond_the_format_is_told_at_every_op(void **state) {
    static oi_all all;
    (void)state;
    oi_open(&all);
    for (int i = 0; i < all.count; i++)
        if (backward_overflow(&all.instance[i]) == 0) fail_msg("%s: no gradient", all.instance[i].name);
    oi_close(&all);
}

/* ---- what was read --------------------------------------------------------------------------- */

static void poison(const oi_instance *instance, float value) {
    for (int which = 0; which <= AB_MAX_INPUTS + AB_MAX_PARAMS; which++) {
        op_run r;
        oi_run_open(&r, instance, single, 6);
        tame(&r);
        const bool is_dout = which == AB_MAX_INPUTS + AB_MAX_PARAMS,
                   is_param = which >= AB_MAX_INPUTS && !is_dout;
        const ab_tensor *tensor =
            is_dout    ? &r.dout
            : is_param ? r.io.dparam[which - AB_MAX_INPUTS] ? &r.param[which - AB_MAX_INPUTS] : NULL
                       : r.io.in[which];
        if (tensor && tensor->format) {
            oracle_put(tensor, ab_tensor_count(tensor) / 2, (double)value);
            op_run_both(&r);
            const ab_op_run run = run_of(&r, instance->name, is_dout);
            expect(&run, 1, is_param ? "bad_weights" : "poisoned_input", (double)NAN);
        }
        op_run_close(&r);
    }
}

static void what_was_no_number_when_it_was_read_is_told_at_every_op(void **state) {
    static oi_all all;
    (void)state;
    oi_open(&all);
    for (int i = 0; i < all.count; i++) {
        poison(&all.instance[i], NAN);
        poison(&all.instance[i], INFINITY);
    }
    oi_close(&all);
}

/* ---- nobody's fault but the kernel's --------------------------------------------------------- */

/* Written over what an op has made of harmless numbers. */
static void overwrite(const oi_instance *instance, double value) {
    for (int backward = 0; backward < 2; backward++) {
        op_run r;
        oi_run_open(&r, instance, single, 7);
        tame(&r);
        op_run_both(&r);
        const ab_tensor *to = !backward ? &r.out : NULL;
        for (int i = AB_MAX_PARAMS - 1; backward && i >= 0; i--)
            if (r.io.dparam[i]) to = r.io.dparam[i];
        for (int i = AB_MAX_INPUTS - 1; backward && i >= 0; i--)
            if (r.io.din[i]) to = r.io.din[i];
        oracle_put(to, ab_tensor_count(to) / 2, value);
        const ab_op_run run = run_of(&r, instance->name, backward);
        expect(&run, 1, "not_reproduced", (double)NAN);
        op_run_close(&r);
    }
}

static void what_no_arithmetic_makes_is_told_at_every_op(void **state) {
    static oi_all all;
    (void)state;
    oi_open(&all);
    for (int i = 0; i < all.count; i++) {
        overwrite(&all.instance[i], (double)NAN);
        if (all.instance[i].op != &ab_op_masked_fill) overwrite(&all.instance[i], (double)INFINITY);
    }
    oi_close(&all);
}

/* ---- mathematics ----------------------------------------------------------------------------- */

typedef struct singular {
    const ab_op *op;
    double in[2];
    bool backward, norm; /* norm: eps is 0 */
} singular;

static void plant_singularity(const singular *s) {
    const ab_shape shape = {4, {2, 2, 2, 2}};
    const int inputs = s->op->inputs + (s->op == &ab_op_div);
    op_attrs attrs = op_attrs_default(s->op);
    const ab_exec exec = {.training = true};
    op_run r;
    const ab_shape in[2] = {shape, shape};
    if (s->norm) op_attrs_set(s->op, &attrs, "eps", 0, 0);
    if (s->op == &ab_op_layer_norm || s->op == &ab_op_rms_norm || s->op->mixed_twin || s->op->out_as_weight)
        op_attrs_set(s->op, &attrs, "normalized_shape", 2, 0);
    if (s->op == &ab_op_group_norm) op_attrs_set(s->op, &attrs, "num_groups", 2, 0);
    op_run_open(&r, s->op, &attrs, in, inputs, single, &exec);
    op_run_fill_all(&r, 8);
    for (int i = 0; i < inputs; i++)
        for (int64_t k = 0; k < ab_tensor_count(&r.in[i]); k++) oracle_put(&r.in[i], k, s->in[i]);
    assert_int_equal(op_run_prepare(&r), AB_OK);
    op_run_both(&r);
    const ab_op_run run = run_of(&r, "op", s->backward);
    expect(&run, 1, "mathematics", (double)NAN);
    op_run_close(&r);
}

static void genuine_singularities_are_mathematics(void **state) {
    static const singular planted[] = {
        {&ab_op_log, {0}, false, false},
        {&ab_op_log, {-1}, false, false},
        {&ab_op_log, {0}, true, false},
        {&ab_op_sqrt, {-1}, false, false},
        {&ab_op_sqrt, {0}, true, false},
        {&ab_op_rsqrt, {0}, false, false},
        {&ab_op_rsqrt, {-1}, false, false},
        {&ab_op_div, {0, 0}, false, false},
        {&ab_op_div, {1, 0}, false, false},
        {&ab_op_div, {1, 0}, true, false},
        {&ab_op_bce, {2, 0.5}, false, false},
        {&ab_op_layer_norm, {3}, false, true},
        {&ab_op_layer_norm, {3}, true, true},
        {&ab_op_rms_norm, {0}, false, true},
        {&ab_op_rms_norm, {0}, true, true},
        {&ab_op_batch_norm2d, {3}, false, true},
        {&ab_op_batch_norm2d, {3}, true, true},
        {&ab_op_group_norm, {3}, false, true},
        {&ab_op_group_norm, {3}, true, true},
        {&ab_op_fused_layer_norm, {3}, false, true},
        {&ab_op_fused_layer_norm, {3}, true, true},
        {&ab_op_mixed_fused_rms_norm, {0}, false, true},
        {&ab_op_mixed_fused_rms_norm, {0}, true, true},
    };
    (void)state;
    for (size_t i = 0; i < AB_COUNT_OF(planted); i++) plant_singularity(&planted[i]);
}

/* ---- accumulators ---------------------------------------------------------------------------- */

/* First half of what is summed 200 x 200, the rest -200 x 200: a half accumulator overflows on the way to a
 * small sum. */
static void plant_partial_sum(const ab_op *op, const ab_shape *in, int inputs, const char *attr,
                              double value) {
    static const op_formats half = {&ab_format_fp16, &ab_format_fp16, NULL};
    op_attrs attrs = op_attrs_default(op);
    const ab_exec exec = {.training = true, .accumulate_half = true, .path = AB_PATH_REFERENCE};
    op_run r;
    if (attr) op_attrs_set(op, &attrs, attr, value, value);
    if (op == &ab_op_conv2d) op_attrs_set(op, &attrs, "kernel_size", 1, 1);
    op_run_open(&r, op, &attrs, in, inputs, half, &exec);
    op_run_fill_all(&r, 9);
    const ab_tensor *a = &r.in[0], *b = inputs > 1 ? &r.in[1] : &r.param[0];
    for (int64_t k = 0; k < ab_tensor_count(a); k++) oracle_put(a, k, 200);
    for (int64_t k = 0; k < ab_tensor_count(b); k++) oracle_put(b, k, k % 8 < 4 ? 200 : -200);
    assert_int_equal(op_run_prepare(&r), AB_OK);
    assert_int_equal(op->forward(&r.exec, &r.io), AB_OK);
    const ab_op_run run = run_of(&r, "op", false);
    cJSON *event = event_of(&run, 1, &ab_format_fp16);
    assert_non_null(event);
    assert_string_equal(pt_text(pt_get(event, "cause"), "id"), "accumulator_overflow");
    assert_true(fabs(pt_number(pt_get(event, "cause"), "value")) < 1);
    cJSON_Delete(event);
    op_run_close(&r);
}

static void partial_sums_of_products_are_accumulators(void **state) {
    const ab_shape rows = {2, {2, 8}}, image = {4, {1, 2, 2, 8}}, matrices[2] = {{2, {2, 8}}, {2, {8, 1}}};
    (void)state;
    plant_partial_sum(&ab_op_linear, &rows, 1, "out_features", 3);
    plant_partial_sum(&ab_op_conv2d, &image, 1, "out_channels", 3);
    plant_partial_sum(&ab_op_matmul, matrices, 2, NULL, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_forward_result_beyond_the_format_is_told_at_every_op),
        cmocka_unit_test(a_gradient_beyond_the_format_is_told_at_every_op),
        cmocka_unit_test(what_was_no_number_when_it_was_read_is_told_at_every_op),
        cmocka_unit_test(what_no_arithmetic_makes_is_told_at_every_op),
        cmocka_unit_test(genuine_singularities_are_mathematics),
        cmocka_unit_test(partial_sums_of_products_are_accumulators),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
