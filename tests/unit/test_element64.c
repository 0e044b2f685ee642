/* Second opinions in double agree with what the ops wrote: for every op of element64.def, forward and backward, in fp32 and in halves,
 * sampled elements differ by no more than rounding. The ops are proved against an oracle of their own; neither shares code with
 * these. */
#define _POSIX_C_SOURCE 200809L
#include "tests/unit/every_op_testing.h"

#include "probes/element64.h"

#include <math.h>

typedef struct seen {
    ab_observer observer; /* first */
    int64_t forward[64], backward[64];
    double worst;
} seen;

static void ignore(ab_observer *self, int id, int thread, const float *values, int64_t n) {
    (void)self, (void)id, (void)thread, (void)values, (void)n;
}

/* An fp32 sum of n terms, then one rounding; generously. */
static double bound(const ab_op_run *run, const ab_tensor *tensor, const ab_element64 *e) {
    double eps = ab_format_eps(tensor->format), smallest = ab_format_min_subnormal(tensor->format);
    double inside = run->op == &ab_op_gelu ? 4e-6 : 2e-5;
    return 0.5 * eps * fabs(e->value) + smallest + inside * (fabs(e->value) + e->largest);
}

static void compare(seen *s, const ab_op_run *run, int wrote, const ab_tensor *tensor) {
    if (!tensor || !tensor->format) return;
    const int64_t n = ab_tensor_count(tensor);
    int index = -1;
    const ab_op *op;
    assert_int_equal(ab_op_find(run->op->name, &op, &index), AB_OK);
    for (int64_t i = 0; i < n; i += n / 7 + 1) {
        ab_element64 e;
        if (!ab_element64_of(run, wrote, i, &e)) return;
        double is = ab_read64(tensor, i), error = fabs(is - e.value), limit = bound(run, tensor, &e);
        if (!(error <= limit))
            fail_msg("%s (%s) %s, tensor %d, element %lld: %.9g, in double %.9g (largest %.3g)", run->name,
                     run->op->name, run->backward ? "backward" : "forward", wrote, (long long)i, is, e.value,
                     e.largest);
        s->worst = fmax(s->worst, error / limit);
        ++(run->backward ? s->backward : s->forward)[index];
    }
}

static void ran(void *context, const ab_op_run *run) {
    seen *s = context;
    if (!run->backward) compare(s, run, AB_WROTE_OUT, run->io->out);
    for (int i = 0; run->backward && i < AB_MAX_INPUTS; i++)
        compare(s, run, AB_WROTE_DIN + i, run->io->din[i]);
    for (int i = 0; run->backward && i < AB_MAX_PARAMS; i++)
        compare(s, run, AB_WROTE_DPARAM + i, run->io->dparam[i]);
}

static void train(size_t n, const char *level, seen *s) {
    ab_net *net = eo_net(n);
    ab_cell_config config = pt_config(net, level, &ab_format_fp16, "sgd", "loss_scale=8");
    const ab_watch watch = {.context = s, .ran = ran};
    config.data = eo_data(net);
    ab_cell *cell = pt_cell(&config);
    ab_cell_watch(cell, &watch);
    for (int i = 0; i < 2; i++) {
        ab_step_result result;
        assert_int_equal(ab_cell_step(cell, &s->observer, &result), AB_OK);
    }
    ab_cell_destroy(cell);
    ab_net_free(net);
}

static void every_second_opinion_agrees_with_its_op(void **state) {
    static const char *const names[] = {
#define AB_SECOND_OPINION(id) #id,
#include "probes/element64.def"
#undef AB_SECOND_OPINION
    };
    seen s = {.observer = {ignore}};
    (void)state;
    for (size_t n = 0; n < EO_NETS; n++)
        for (size_t l = 0; l < AB_COUNT_OF(pt_levels); l++)
            if (eo_runs_at(n, pt_levels[l])) train(n, pt_levels[l], &s);
    for (size_t i = 0; i < AB_COUNT_OF(names); i++) {
        const ab_op *op;
        int index;
        assert_int_equal(ab_op_find(names[i], &op, &index), AB_OK);
        if (s.forward[index] == 0 || s.backward[index] == 0) fail_msg("%s was not compared", names[i]);
    }
    assert_true(s.worst > 0.01); /* the bound is not a formality */
}

static void ops_without_a_row_have_none(void **state) {
    (void)state;
    float x = 1;
    ab_tensor tensor = {&x, {1, {1}}, &ab_format_fp32, &ab_device_cpu, -1};
    ab_op_io io = {.in = {&tensor}, .out = &tensor};
    const ab_op_run run = {.name = "d", .op = &ab_op_dropout, .io = &io};
    ab_element64 e;
    assert_false(ab_element64_of(&run, AB_WROTE_OUT, 0, &e));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_second_opinion_agrees_with_its_op),
                                       cmocka_unit_test(ops_without_a_row_have_none)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
