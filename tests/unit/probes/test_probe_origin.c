/* The origin probe: a value that is no number, planted in what every op of ops.def writes, forward and
 * backward, is located at that op; its way is followed; records are bounded; and a step that runs again to be
 * looked at changes no bit. */
#define _POSIX_C_SOURCE 200809L
#include "tests/unit/every_op_testing.h"

#include "kernels/format/convert.h"

#include <math.h>

static const ab_probe_kind *origin(void) { return pt_probe("origin"); }

/* ---- planting -------------------------------------------------------------------------------- */

/* Stands between the cell and the probe: after op `target` has run it puts `value` into what it wrote. */
typedef struct planter {
    ab_observer observer; /* first */
    void *probe;
    const char *target;
    float value;
    bool backward, planted, passed_on;
    int64_t at_step, step;
} planter;

static void ignore(ab_observer *self, int id, int thread, const float *values, int64_t n) {
    (void)self, (void)id, (void)thread, (void)values, (void)n;
}

static void begin(void *context, int64_t step, double loss_scale) {
    planter *p = context;
    p->step = step;
    origin()->begin(p->probe, step, loss_scale);
}

static bool put(const ab_tensor *tensor, float value) {
    if (!tensor) return false;
    int64_t n = ab_tensor_count(tensor);
    for (int64_t i = n / 3; i < n / 3 + 3 && i < n; i++)
        ab_narrow((char *)tensor->data + ab_format_bytes(tensor->format, i), tensor->format, &value, 1);
    return true;
}

/* A gradient that an addition passes on where it is: what is planted there is the op's input, too. */
static bool is_passed_on(const ab_tensor *gradient, const ab_tensor *of_output) {
    return gradient && of_output && gradient->data == of_output->data;
}

static void ran(void *context, const ab_op_run *run) {
    planter *p = context;
    bool here = strcmp(run->name, p->target) == 0 && run->backward == p->backward && p->step == p->at_step;
    if (here && !run->backward) p->planted = put(run->io->out, p->value);
    for (int i = 0; here && run->backward && !p->planted && i < AB_MAX_PARAMS; i++)
        p->planted = put(run->io->dparam[i], p->value);
    for (int i = 0; here && run->backward && !p->planted && i < AB_MAX_INPUTS; i++) {
        p->passed_on |= is_passed_on(run->io->din[i], run->io->dout);
        p->planted = !p->passed_on && put(run->io->din[i], p->value);
    }
    origin()->ran(p->probe, run);
}

static void moved(void *context, const ab_move *move) { origin()->moved(((planter *)context)->probe, move); }

static void start(planter *p, const ab_format *half) {
    const ab_probe_setup setup = {.threads = 1, .half = half};
    p->observer.see = ignore;
    assert_int_equal(origin()->create(&setup, &p->probe), AB_OK);
}

/* What the probe says after `steps` steps. */
static cJSON *report_of(const ab_cell_config *config, planter *p, int steps) {
    ab_cell *cell = pt_cell(config);
    const ab_watch watch = {.context = p, .begin = begin, .ran = ran, .moved = moved};
    start(p, config->policy.half);
    ab_cell_watch(cell, &watch);
    for (int i = 0; i < steps; i++) {
        ab_step_result result;
        assert_int_equal(ab_cell_step(cell, &p->observer, &result), AB_OK);
        origin()->step_end(p->probe, i);
    }
    cJSON *report = pt_report(origin()->report, p->probe);
    origin()->destroy(p->probe);
    ab_cell_destroy(cell);
    return report;
}

static const cJSON *events_of(const cJSON *report) { return pt_get(pt_get(report, "origin"), "events"); }

/* Exactly one event, at the op; none where it passes gradients on. False: the op writes nothing in this pass.
 */
static bool located(const ab_cell_config *config, const ab_net_op *op, bool backward, float value) {
    planter p = {.target = op->name, .value = value, .backward = backward, .at_step = 2};
    cJSON *report = report_of(config, &p, 3);
    const cJSON *event = cJSON_GetArrayItem(events_of(report), 0);
    if (p.planted) {
        if (!event) fail_msg("%s: nothing found", op->name);
        if (strcmp(pt_text(event, "op"), op->name) != 0)
            fail_msg("%s: found at %s", op->name, pt_text(event, "op"));
        assert_int_equal(cJSON_GetArraySize(events_of(report)), 1);
        assert_string_equal(pt_text(event, "type"), op->op->name);
        assert_string_equal(pt_text(event, "pass"), backward ? "backward" : "forward");
        assert_string_equal(pt_text(event, "by"), "op");
        assert_int_equal(pt_integer(event, "step"), 2);
        assert_true((pt_integer(event, "nan") > 0) == (isnan(value) != 0));
        if (strcmp(pt_text(pt_get(event, "cause"), "id"), "not_reproduced") != 0)
            fail_msg("%s %s: %s", op->name, backward ? "backward" : "forward",
                     pt_text(pt_get(event, "cause"), "id"));
        if (op->op != &ab_op_masked_fill) /* which has others on purpose */
            assert_true((pt_integer(event, "infinite") > 0) == (isinf(value) != 0));
        const cJSON *history = pt_get(event, "history");
        assert_int_equal(cJSON_GetArraySize(history), 2);
        assert_int_equal(pt_integer(cJSON_GetArrayItem(history, 0), "step"), 0);
        assert_int_equal(pt_integer(cJSON_GetArrayItem(history, 1), "step"), 1);
    } else {
        assert_null(event);
    }
    cJSON_Delete(report);
    return p.planted || p.passed_on;
}

typedef struct tally {
    bool forward, backward;
} tally;

static void plant_everywhere(const ab_net *net, const ab_data *data, const char *level, tally *done) {
    ab_cell_config config = pt_config(net, level, &ab_format_fp16, "sgd", "loss_scale=1");
    config.data = data;
    config.optim.lr = 0;
    for (int i = 0; i < net->ops; i++) {
        const ab_op *op;
        int index;
        assert_int_equal(ab_op_find(net->op[i].op->name, &op, &index), AB_OK);
        done[index].forward |= located(&config, &net->op[i], false, i % 2 ? NAN : INFINITY);
        done[index].backward |= located(&config, &net->op[i], true, i % 2 ? INFINITY : NAN);
    }
}

static void at_levels(const char *const *levels, size_t count, tally *done) {
    ab_net *nets[] = {eo_net(0), eo_net(1), eo_net(2), eo_net(3)};
    for (size_t n = 0; n < AB_COUNT_OF(nets); n++)
        for (size_t l = 0; l < count; l++)
            if (eo_runs_at(n, levels[l])) plant_everywhere(nets[n], eo_data(nets[n]), levels[l], done);
    for (size_t n = 0; n < AB_COUNT_OF(nets); n++) ab_net_free(nets[n]);
}

static void a_value_planted_at_any_op_is_located_there(void **state) {
    (void)state;
    tally done[64] = {{false, false}};
    assert_true(ab_op_count() <= (int)AB_COUNT_OF(done));
    at_levels(pt_levels, AB_COUNT_OF(pt_levels), done);
    for (int i = 0; i < ab_op_count(); i++) {
        if (!done[i].forward) fail_msg("%s: not tried forward", ab_op_at(i)->name);
        if (!done[i].backward) fail_msg("%s: not tried backward", ab_op_at(i)->name);
    }
}

/* ---- the way of a value ---------------------------------------------------------------------- */

static const cJSON *flow_at(const cJSON *event, const char *op, const char *pass) {
    const cJSON *item = NULL;
    cJSON_ArrayForEach(item, pt_get(event, "flow")) {
        if (strcmp(pt_text(item, "op"), op) == 0 && strcmp(pt_text(item, "pass"), pass) == 0) return item;
    }
    fail_msg("no %s %s in the flow", op, pass);
    return NULL;
}

static void relu_erases_what_is_below_its_kink(void **state) {
    (void)state;
    ab_net *net = pt_net(pt_ops);
    ab_cell_config config = pt_config(net, "O2", &ab_format_fp16, "sgd", "loss_scale=1");
    planter p = {.target = "bn1", .value = -INFINITY, .at_step = 1};
    cJSON *report = report_of(&config, &p, 2);
    const cJSON *event = cJSON_GetArrayItem(events_of(report), 0);
    assert_string_equal(pt_text(flow_at(event, "bn1", "forward"), "change"), "appear");
    assert_string_equal(pt_text(flow_at(event, "relu1", "forward"), "change"), "vanish");
    assert_int_equal(pt_integer(event, "appeared"), 1);
    cJSON_Delete(report);
    p = (planter){.target = "conv1", .value = NAN, .at_step = 1};
    report = report_of(&config, &p, 2);
    event = cJSON_GetArrayItem(events_of(report), 0);
    assert_string_equal(pt_text(flow_at(event, "conv1", "forward"), "change"), "appear");
    assert_string_equal(pt_text(flow_at(event, "loss", "forward"), "change"), "propagate");
    assert_string_equal(pt_text(flow_at(event, "fc", "backward"), "change"), "propagate");
    cJSON_Delete(report);
    ab_net_free(net);
}

/* 8, 4, 2 and 1 octaves below the limit in steps 0 to 3: a line through them crosses it at step 4. */
static void margins_of_earlier_steps_are_told(void **state) {
    (void)state;
    float in = 1, out;
    ab_tensor a = {&in, {1, {1}}, &ab_format_fp32, &ab_device_cpu, -1}, b = a;
    b.data = &out;
    ab_op_io io = {.in = {&a}, .out = &b};
    const ab_op_run run = {.number = 3, .name = "r", .op = &ab_op_relu, .io = &io};
    planter p = {.target = "nobody"};
    start(&p, &ab_format_fp16);
    for (int s = 0; s < 12; s++) {
        begin(&p, s, 1);
        out = s == 11 ? INFINITY : ldexpf(1, 117 + s - 1);
        ran(&p, &run);
    }
    cJSON *report = pt_report(origin()->report, p.probe);
    const cJSON *event = cJSON_GetArrayItem(events_of(report), 0), *history = pt_get(event, "history");
    assert_int_equal(cJSON_GetArraySize(history), 8);
    for (int i = 0; i < 8; i++) {
        const cJSON *past = cJSON_GetArrayItem(history, i);
        assert_int_equal(pt_integer(past, "step"), 3 + i);
        assert_true(pt_number(past, "largest") == ldexp(1, 119 + i));
        assert_true(fabs(pt_number(past, "margin_octaves") - (9 - i)) < 1e-6);
    }
    assert_true(fabs(pt_number(event, "crossing_step") - 12) < 1e-6);
    cJSON_Delete(report);
    origin()->destroy(p.probe);
}

/* ---- what is no op's fault ------------------------------------------------------------------- */

static void weights_that_are_bad_already_are_said_to_be(void **state) {
    (void)state;
    ab_net *net = pt_net(pt_ops);
    ab_cell_config config = pt_config(net, "O3", &ab_format_fp16, "sgd", "loss_scale=1");
    config.optim.lr = (double)INFINITY;
    ab_cell *cell = pt_cell(&config);
    ab_step_result result;
    assert_int_equal(ab_cell_step(cell, NULL, &result), AB_OK);
    planter p = {.target = "nobody"};
    const ab_watch watch = {.context = &p, .begin = begin, .ran = ran, .moved = moved};
    start(&p, &ab_format_fp16);
    ab_cell_watch(cell, &watch);
    assert_int_equal(ab_cell_step(cell, &p.observer, &result), AB_OK);
    cJSON *report = pt_report(origin()->report, p.probe);
    const cJSON *event = cJSON_GetArrayItem(events_of(report), 0);
    assert_string_equal(pt_text(event, "op"), "conv1");
    assert_string_equal(pt_text(event, "tensor"), "weight");
    assert_string_equal(pt_text(pt_get(event, "cause"), "id"), "bad_weights");
    cJSON_Delete(report);
    origin()->destroy(p.probe);
    ab_cell_destroy(cell);
    ab_net_free(net);
}

static void an_update_of_finite_numbers_that_is_none_is_the_optimizers(void **state) {
    (void)state;
    const ab_probe_param params[] = {
        {.name = "fc.weight", .layer = "fc", .count = 4, .format = &ab_format_fp32}};
    const ab_probe_setup setup = {.threads = 2, .half = &ab_format_fp16, .param = params, .params = 1};
    const float before[] = {1, 2, NAN, 3}, grad[] = {1, 1, 1, 1}, ill[] = {0, 1, NAN, INFINITY};
    void *probe = NULL;
    assert_int_equal(origin()->create(&setup, &probe), AB_OK);
    origin()->begin(probe, 5, 1);
    const ab_update_block block = {
        .param = 0, .thread = 1, .n = 4, .before = before, .after = ill, .stored = ill, .grad = grad};
    origin()->update(probe, &block);
    origin()->step_end(probe, 5);
    cJSON *report = pt_report(origin()->report, probe);
    const cJSON *event = cJSON_GetArrayItem(events_of(report), 0);
    assert_string_equal(pt_text(event, "op"), "fc");
    assert_string_equal(pt_text(event, "by"), "optimizer");
    assert_string_equal(pt_text(pt_get(event, "cause"), "id"), "optimizer_arithmetic");
    assert_int_equal(pt_integer(event, "infinite"), 1);
    cJSON_Delete(report);
    origin()->destroy(probe);
}

static void infinities_of_a_mask_are_intended(void **state) {
    (void)state;
    ab_net *net = eo_net(1);
    for (size_t l = 0; l < AB_COUNT_OF(pt_levels); l++) {
        ab_cell_config config = pt_config(net, pt_levels[l], &ab_format_fp16, "sgd", "loss_scale=1");
        planter p = {.target = "nobody"};
        cJSON *report = report_of(&config, &p, 2);
        assert_int_equal(cJSON_GetArraySize(events_of(report)), 0);
        cJSON_Delete(report);
    }
    ab_net_free(net);
}

/* ---- causes ---------------------------------------------------------------------------------- */

/* One op by hand: what it read and wrote, in one format each. */
typedef struct by_hand {
    const ab_op *op;
    float in[2][3], out[3];
    ab_shape of_in[2], of_out;
    const ab_format *format;
    bool backward; /* in[0] is dout then, out din */
} by_hand;

static ab_tensor stored(const float *values, ab_shape shape, const ab_format *format, char *memory) {
    ab_tensor tensor = {memory, shape, format, &ab_device_cpu, -1};
    ab_narrow(memory, format, values, ab_shape_count(&shape));
    return tensor;
}

/* The event of one op that ran once, at a loss scale. */
static cJSON *event_by_hand(const by_hand *h, double scale, bool reacts, const ab_format *accumulate) {
    char memory[3][16];
    ab_tensor a = stored(h->in[0], h->of_in[0], h->format, memory[0]);
    ab_tensor b = stored(h->in[1], h->of_in[1], h->format, memory[1]);
    ab_tensor out = stored(h->out, h->of_out, h->format, memory[2]);
    struct {
        double factor;
    } attrs = {2};
    const bool two = h->op == &ab_op_div || h->op == &ab_op_matmul;
    ab_op_io io = {.op = h->op, .attrs = &attrs, .in = {&a, two ? &b : NULL}, .out = &out};
    if (h->backward) {
        io.dout = &a;
        io.din[0] = &out;
        io.out = &a;
    }
    const ab_op_run run = {.number = 0, .name = "op", .op = h->op, .io = &io, .backward = h->backward};
    const ab_probe_setup setup = {
        .threads = 1, .half = &ab_format_fp16, .scale_reacts = reacts, .accumulate = accumulate};
    void *probe = NULL;
    assert_int_equal(origin()->create(&setup, &probe), AB_OK);
    origin()->begin(probe, 0, scale);
    origin()->ran(probe, &run);
    cJSON *report = pt_report(origin()->report, probe);
    cJSON *event = cJSON_Duplicate(cJSON_GetArrayItem(events_of(report), 0), true);
    assert_non_null(event);
    cJSON_Delete(report);
    origin()->destroy(probe);
    return event;
}

#define ONE                                                                                                  \
    {                                                                                                        \
        1, { 1 }                                                                                             \
    }

static void because(by_hand h, double scale, bool reacts, const ab_format *accumulate, const char *cause,
                    double value) {
    cJSON *event = event_by_hand(&h, scale, reacts, accumulate);
    const cJSON *why = pt_get(event, "cause");
    if (strcmp(pt_text(why, "id"), cause) != 0)
        fail_msg("%s: %s, expected %s", h.op->name, pt_text(why, "id"), cause);
    if (isnan(value))
        assert_true(pt_is_null(why, "value"));
    else
        assert_true(fabs(pt_number(why, "value") - value) <= 1e-9 * fabs(value));
    bool expected = reacts && h.backward && strcmp(cause, "scale_induced") == 0;
    assert_true((cJSON_IsTrue(pt_get(event, "expected")) != 0) == expected);
    cJSON_Delete(event);
}

static void causes_are_told_apart(void **state) {
    (void)state;
    const double no = (double)NAN;
    const ab_format *half = &ab_format_fp16, *single = &ab_format_fp32;
    by_hand square = {&ab_op_square, {{300}}, {INFINITY}, {ONE, ONE}, ONE, half, false};
    because(square, 1, true, NULL, "range_overflow", 90000);
    square.in[0][0] = NAN;
    because(square, 1, true, NULL, "poisoned_input", no);
    square.in[0][0] = 2;
    because(square, 1, true, NULL, "not_reproduced", 4);
    const by_hand exponential = {&ab_op_exp, {{200}}, {INFINITY}, {ONE, ONE}, ONE, single, false};
    because(exponential, 1, false, NULL, "range_overflow", exp(200));
    const by_hand logarithm = {&ab_op_log, {{0}}, {-INFINITY}, {ONE, ONE}, ONE, single, false};
    because(logarithm, 1, false, NULL, "mathematics", no);
    const by_hand root = {&ab_op_sqrt, {{-1}}, {NAN}, {ONE, ONE}, ONE, half, false};
    because(root, 1, false, NULL, "mathematics", no);
    const by_hand quotient = {&ab_op_div, {{0}, {0}}, {NAN}, {ONE, ONE}, ONE, half, false};
    because(quotient, 1, false, NULL, "mathematics", no);
    const by_hand dropped = {&ab_op_relu, {{1}}, {NAN}, {ONE, ONE}, ONE, half, false};
    because(dropped, 1, false, NULL, "not_reproduced", 1);
}

static void a_partial_sum_beyond_the_accumulator_is_told_from_a_result_beyond_the_format(void **state) {
    (void)state;
    by_hand product = {&ab_op_matmul, {{200, 200, 200}, {200, 200, -200}},
                       {INFINITY},    {{2, {1, 3}}, {2, {3, 1}}},
                       {2, {1, 1}},   &ab_format_fp16,
                       false};
    because(product, 1, false, &ab_format_fp16, "accumulator_overflow", 40000);
    because(product, 1, false, NULL, "not_reproduced", 40000); /* an fp32 accumulator holds 80000 */
    product.in[1][2] = 200;
    because(product, 1, false, &ab_format_fp16, "range_overflow", 120000);
}

static void an_overflow_that_the_loss_scale_made_is_expected_of_a_scale_that_reacts(void **state) {
    (void)state;
    by_hand twice = {&ab_op_scale, {{40000}}, {INFINITY}, {ONE, ONE}, ONE, &ab_format_fp16, true};
    because(twice, 65536, true, NULL, "scale_induced", 80000);
    because(twice, 65536, false, NULL, "scale_induced", 80000);
    because(twice, 1, true, NULL, "range_overflow", 80000);
    because(twice, 1.125, true, NULL, "range_overflow", 80000);
}

/* ---- limits ---------------------------------------------------------------------------------- */

static void records_are_bounded(void **state) {
    (void)state;
    float in[2] = {1, 1}, out[2] = {NAN, 1};
    ab_tensor a = {in, {1, {2}}, &ab_format_fp32, &ab_device_cpu, -1}, b = a;
    b.data = out;
    ab_op_io first = {.in = {&a}, .out = &b}, second = {.in = {&b}, .out = &b};
    planter p = {.target = "nobody"};
    start(&p, &ab_format_fp16);
    for (int s = 0; s < 40; s++) {
        begin(&p, s, 1);
        const ab_op_run run = {.number = s % 20, .name = "r", .op = &ab_op_relu, .io = &first};
        ran(&p, &run);
        for (int i = 1; i < 60; i++) {
            const ab_op_run next = {.number = s % 20 + i, .name = "n", .op = &ab_op_relu, .io = &second};
            ran(&p, &next);
        }
    }
    cJSON *report = pt_report(origin()->report, p.probe);
    const cJSON *event = cJSON_GetArrayItem(events_of(report), 0);
    assert_int_equal(cJSON_GetArraySize(events_of(report)), 12);
    assert_int_equal(pt_integer(pt_get(report, "origin"), "events_left_out"), 16);
    assert_int_equal(pt_integer(event, "times"), 2);
    assert_int_equal(pt_integer(event, "last_step"), 20);
    assert_int_equal(cJSON_GetArraySize(pt_get(event, "flow")), 24);
    assert_int_equal(pt_integer(event, "propagated"), 59);
    cJSON_Delete(report);
    origin()->destroy(p.probe);
}

/* ---- steps that run again -------------------------------------------------------------------- */

static uint64_t bit_of(const char *name) {
    int index;
    assert_int_equal(ab_probe_find(name, &index), AB_OK);
    return (uint64_t)1 << index;
}

enum { STEPS = 12 };

/* Losses and the running mean of a cell whose steps are not probed; with a probe that may ask for them again,
 * its report. */
static cJSON *train(const ab_cell_config *config, bool probes, float loss[STEPS], float mean[4], int *again) {
    ab_cell *cell = pt_cell(config);
    ab_shape shape;
    pt_probing probing;
    cJSON *report = NULL;
    *again = 0;
    if (probes) pt_start(&probing, bit_of("origin") | bit_of("gradients"), cell, config, &ab_format_fp16);
    for (int i = 0; i < STEPS; i++) {
        ab_step_result result;
        assert_int_equal(ab_cell_step(cell, NULL, &result), AB_OK);
        loss[i] = result.loss;
        *again += result.replayed;
    }
    assert_int_equal(ab_cell_read(cell, "bn1.running_mean", &shape, mean), AB_OK);
    if (probes) {
        report = pt_set_report(&probing);
        ab_probe_set_destroy(probing.set);
    }
    ab_cell_destroy(cell);
    return report;
}

static void a_step_that_runs_again_changes_no_bit(void **state) {
    (void)state;
    static const char *const sets[] = {"loss_scale=dynamic", "loss_scale=16777216"};
    ab_net *net = pt_net(pt_ops);
    for (size_t l = 1; l < AB_COUNT_OF(pt_levels); l++)
        for (size_t s = 0; s < AB_COUNT_OF(sets); s++)
            for (int64_t micro = 1; micro <= 2; micro++) {
                ab_cell_config config = pt_config(net, pt_levels[l], &ab_format_fp16, "momentum", sets[s]);
                float loss[2][STEPS], mean[2][4];
                int again[2];
                config.recipe.micro_batches = micro;
                config.policy.loss_scale.scaler.value[0] = 0x1p24; /* init of the dynamic one */
                assert_null(train(&config, false, loss[0], mean[0], &again[0]));
                cJSON *report = train(&config, true, loss[1], mean[1], &again[1]);
                assert_memory_equal(loss[0], loss[1], sizeof loss[0]);
                assert_memory_equal(mean[0], mean[1], sizeof mean[0]);
                assert_int_equal(again[0], 0);
                assert_true(again[1] > 0);
                const cJSON *event = cJSON_GetArrayItem(events_of(report), 0);
                assert_true(cJSON_IsTrue(pt_get(event, "ran_again")));
                assert_string_equal(pt_text(event, "pass"), "backward");
                assert_int_equal(pt_integer(event, "step"), 0);
                assert_string_equal(pt_text(pt_get(event, "cause"), "id"), "scale_induced");
                assert_int_equal(pt_integer(report, "steps_probed"), 0); /* by the others */
                cJSON_Delete(report);
            }
    ab_net_free(net);
}

/* Of governed probed steps every fourth is looked at; one of the others that ends in no numbers is run again,
 * for this probe alone. */
static void rationed_steps_are_looked_at_when_they_must_be(void **state) {
    (void)state;
    ab_net *net = pt_net(pt_ops);
    ab_cell_config config = pt_config(net, "O2", &ab_format_fp16, "momentum", "loss_scale=dynamic");
    config.policy.loss_scale.scaler.value[0] = 0x1p24; /* too high for a few steps */
    ab_cell *cell = pt_cell(&config);
    pt_probing p;
    pt_start(&p, bit_of("origin") | bit_of("gradients"), cell, &config, &ab_format_fp16);
    ab_probe_set_destroy(p.set); /* once more, governed */
    assert_int_equal(ab_probe_set_create(bit_of("origin") | bit_of("gradients"), NULL, &p.set), AB_OK);
    const ab_watch watch = ab_probe_set_watch(p.set);
    ab_cell_watch(cell, &watch);
    p.setup.governed = true;
    assert_int_equal(ab_probe_set_start(p.set, &p.setup), AB_OK);
    for (int i = 0; i < 2; i++) {
        ab_step_result result;
        assert_int_equal(ab_cell_step(cell, ab_probe_set_observer(p.set), &result), AB_OK);
        ab_probe_set_step_end(p.set, i);
        assert_true(result.overflow);
        assert_int_equal(result.replayed, i == 1); /* the first one was looked at */
    }
    cJSON *report = pt_set_report(&p);
    const cJSON *found = pt_get(report, "origin"), *event = cJSON_GetArrayItem(pt_get(found, "events"), 0);
    assert_int_equal(pt_integer(found, "nonfinite_steps"), 2);
    assert_int_equal(pt_integer(found, "steps_run_again"), 1);
    assert_int_equal(pt_integer(event, "step"), 0);
    assert_int_equal(pt_integer(event, "last_step"), 1);
    assert_int_equal(pt_integer(event, "times"), 2);
    assert_int_equal(pt_integer(report, "steps_probed"), 2);
    cJSON_Delete(report);
    ab_probe_set_destroy(p.set);
    ab_cell_destroy(cell);
    ab_net_free(net);
}

/* Every one of the first 64 steps that end in no numbers, with its place and its margin. */
static void every_early_step_runs_again(void **state) {
    (void)state;
    ab_net *net = pt_net(pt_ops);
    ab_cell_config config = pt_config(net, "O3", &ab_format_fp16, "momentum", "loss_scale=16777216");
    float loss[STEPS], mean[4];
    int again;
    cJSON *report = train(&config, true, loss, mean, &again);
    assert_int_equal(pt_integer(pt_get(report, "origin"), "nonfinite_steps"), STEPS);
    assert_int_equal(pt_integer(pt_get(report, "origin"), "steps_run_again"), STEPS);
    assert_int_equal(again, STEPS);
    const cJSON *steps = pt_get(pt_get(report, "origin"), "steps");
    assert_int_equal(cJSON_GetArraySize(steps), STEPS);
    for (int i = 0; i < STEPS; i++) {
        const cJSON *step = cJSON_GetArrayItem(steps, i);
        assert_int_equal(pt_integer(step, "step"), i);
        assert_true(strlen(pt_get(step, "op")->valuestring) > 0);
        assert_true(i > 0 || pt_get(step, "margin_octaves")->valuedouble > 0);
    }
    cJSON_Delete(report);
    ab_net_free(net);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_value_planted_at_any_op_is_located_there),
        cmocka_unit_test(relu_erases_what_is_below_its_kink),
        cmocka_unit_test(margins_of_earlier_steps_are_told),
        cmocka_unit_test(weights_that_are_bad_already_are_said_to_be),
        cmocka_unit_test(an_update_of_finite_numbers_that_is_none_is_the_optimizers),
        cmocka_unit_test(infinities_of_a_mask_are_intended),
        cmocka_unit_test(causes_are_told_apart),
        cmocka_unit_test(a_partial_sum_beyond_the_accumulator_is_told_from_a_result_beyond_the_format),
        cmocka_unit_test(an_overflow_that_the_loss_scale_made_is_expected_of_a_scale_that_reacts),
        cmocka_unit_test(records_are_bounded),
        cmocka_unit_test(a_step_that_runs_again_changes_no_bit),
        cmocka_unit_test(rationed_steps_are_looked_at_when_they_must_be),
        cmocka_unit_test(every_early_step_runs_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
