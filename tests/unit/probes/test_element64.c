/* Second opinions in double agree with what the ops wrote: for every op of ops.def, forward and backward, in
 * fp32 and in halves, sampled elements differ by no more than rounding. The ops are proved against an oracle
 * of their own; neither shares code with these. And their gradients are the slopes of their own forward
 * opinions, by differences. */
#define _POSIX_C_SOURCE 200809L
#include "tests/unit/op_instances_testing.h"

#include "probes/element64/element64.h"

#include <math.h>

typedef struct seen {
    ab_observer observer; /* first */
    int64_t forward[64], backward[64];
    double worst;
} seen;

static void ignore(ab_observer *self, int id, int thread, const float *values, int64_t n) {
    (void)self, (void)id, (void)thread, (void)values, (void)n;
}

/* An fp32 sum of n terms, then one rounding, or three of apex's fused norms (a bias is at most 1);
 * generously. */
static double bound(const ab_op_run *run, const ab_tensor *tensor, const ab_element64 *e) {
    const double more = ab_attr64(run, "memory_efficient") ? 2 * (fabs(e->value) + 1) : 0;
    double eps = ab_format_eps(tensor->format), smallest = ab_format_min_subnormal(tensor->format);
    double inside = run->op == &ab_op_gelu ? 4e-6 : 2e-5;
    return 0.5 * eps * (fabs(e->value) + more) + smallest + inside * (fabs(e->value) + e->largest);
}

static void compare(seen *s, const ab_op_run *run, int wrote, const ab_tensor *tensor) {
    if (!tensor || !tensor->format) return;
    const int64_t n = ab_tensor_count(tensor);
    int index = -1;
    const ab_op *op;
    assert_int_equal(ab_op_find(run->op->name, &op, &index), AB_OK);
    for (int64_t i = 0; i < n; i += n / 7 + 1) {
        ab_element64 e;
        if (!ab_element64_of(run, wrote, i, &e)) fail_msg("%s: no opinion", run->name);
        double is = ab_read64(tensor, i), error = fabs(is - e.value), limit = bound(run, tensor, &e);
        if (isinf(is) && is == e.value) continue; /* a mask's */
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

static void every_op_has_a_second_opinion_that_agrees(void **state) {
    seen s = {.observer = {.see = ignore}};
    (void)state;
    for (size_t n = 0; n < EO_NETS; n++)
        for (size_t l = 0; l < AB_COUNT_OF(pt_levels); l++)
            if (eo_runs_at(n, pt_levels[l])) train(n, pt_levels[l], &s);
    for (int i = 0; i < ab_op_count(); i++)
        if (s.forward[i] == 0 || s.backward[i] == 0) fail_msg("%s was not compared", ab_op_at(i)->name);
    assert_true(s.worst > 0.01); /* the bound is not a formality */
}

/* ---- one by one ------------------------------------------------------------------------------ */

/* Inputs where the op is defined and smooth; of masks every second element is 0. */
static void tame(op_run *r) {
    static const ab_op *const positive[] = {&ab_op_log, &ab_op_sqrt, &ab_op_rsqrt, &ab_op_div, &ab_op_bce};
    const int mask = r->op == &ab_op_where ? 0 : r->op == &ab_op_masked_fill && r->inputs > 1 ? 1 : -1;
    for (size_t k = 0; k < AB_COUNT_OF(positive); k++)
        for (int i = 0; i < r->inputs && r->op == positive[k]; i++)
            for (int64_t j = 0; j < ab_tensor_count(&r->in[i]); j++)
                oracle_put(&r->in[i], j, 0.7 + 0.2 * oracle_get(&r->in[i], j));
    for (int i = 0; i < r->params; i++)
        for (int64_t j = 0; r->spec[i].kind == AB_PARAM_BUFFER && j < ab_tensor_count(&r->param[i]); j++)
            oracle_put(&r->param[i], j, 0.5 + 0.4 * oracle_get(&r->param[i], j));
    for (int64_t j = 0; mask >= 0 && j < ab_tensor_count(&r->in[mask]); j += 2)
        oracle_put(&r->in[mask], j, 0);
}

static ab_op_run run_of(const op_run *r, const char *name, bool backward) {
    return (ab_op_run){.name = name, .op = r->op, .io = &r->io, .backward = backward, .exec = &r->exec};
}

static void compare_alone(seen *s, const oi_instance *instance) {
    int formats;
    const op_formats *all = op_all_formats(&formats);
    for (int f = 0; f < formats; f++)
        for (int training = 0; training < 2; training++) {
            oi_instance one = *instance;
            op_run r;
            one.exec.training = training == 1;
            if (!training && !one.op->batch_norm && one.op != &ab_op_dropout) continue;
            oi_run_open(&r, &one, all[f], (uint64_t)f + 5);
            tame(&r);
            op_run_both(&r);
            const ab_op_run forward = run_of(&r, one.name, false), backward = run_of(&r, one.name, true);
            ran(s, &forward);
            ran(s, &backward);
            op_run_close(&r);
        }
}

static void other_attributes_and_numbers_agree_too(void **state) {
    seen s = {.observer = {.see = ignore}};
    static oi_all all;
    (void)state;
    oi_open(&all);
    for (int i = 0; i < all.count; i++) compare_alone(&s, &all.instance[i]);
    oi_close(&all);
    assert_true(s.worst > 0.01);
}

/* ---- differences ----------------------------------------------------------------------------- */

/* Sum of dout times what the op makes, in double. */
static double objective(const ab_op_run *run, ab_element64 *room, int64_t *place) {
    double sum = 0;
    const int64_t n = ab_tensor_count(run->io->out);
    for (int64_t k = 0; k < n; k++) place[k] = k;
    assert_int_equal(ab_elements64_of(run, AB_WROTE_OUT, place, (int)n, room), n);
    for (int64_t k = 0; k < n; k++)
        if (!isinf(room[k].value)) sum += room[k].value * ab_read64(run->io->dout, k); /* but a mask's */
    return sum;
}

typedef struct slope_check {
    const op_run *r;
    const char *name;
    ab_element64 *room;
    int64_t *place;
    int checked;
} slope_check;

/* A few elements of x, whose gradient is `wrote`: the slope claimed and the one that a step of 2^-9 to both
 * sides shows. */
static void check_slopes(slope_check *c, const ab_tensor *x, int wrote) {
    const ab_op_run forward = run_of(c->r, c->name, false), backward = run_of(c->r, c->name, true);
    const int64_t n = ab_tensor_count(x);
    double largest = 0, claimed[8] = {0}, found[8] = {0};
    int count = 0;
    for (int64_t i = n / 9; i < n && count < 8; i += n / 5 + 1, count++) {
        ab_element64 e;
        const double was = oracle_get(x, i);
        assert_true(ab_element64_of(&backward, wrote, i, &e));
        claimed[count] = e.value;
        oracle_put(x, i, was + 0x1p-9);
        const double high = oracle_get(x, i), up = objective(&forward, c->room, c->place);
        oracle_put(x, i, was - 0x1p-9);
        const double low = oracle_get(x, i), down = objective(&forward, c->room, c->place);
        oracle_put(x, i, was);
        found[count] = (up - down) / (high - low);
        largest = fmax(largest, fabs(claimed[count]));
    }
    for (int k = 0; k < count; k++)
        if (!(fabs(claimed[k] - found[k]) <= 1e-4 * (fabs(found[k]) + largest) + 1e-7))
            fail_msg("%s (%s), gradient %d: %.9g claimed, differences say %.9g", c->name, c->r->op->name,
                     wrote, claimed[k], found[k]);
    c->checked += count;
}

static bool is_mask(const op_run *r, int input) {
    return (r->op == &ab_op_where && input == 0) || (r->op == &ab_op_masked_fill && input == 1);
}

/* Recurrent ops read the states that they have stored; here nothing is stored, so that all of them follow
 * from the inputs. */
static void forget_states(op_run *r) {
    const bool forgets = r->op == &ab_op_lstm || r->op == &ab_op_rnn || r->op == &ab_op_gru;
    for (int64_t i = 0; i < ab_tensor_count(&r->out) && forgets; i++) oracle_put(&r->out, i, (double)NAN);
}

static int slopes_of(const oi_instance *instance) {
    static const op_formats single = {&ab_format_fp32, &ab_format_fp32, NULL};
    op_run r;
    oi_run_open(&r, instance, single, 77);
    tame(&r);
    op_run_both(&r);
    forget_states(&r);
    const size_t n = (size_t)ab_tensor_count(&r.out);
    slope_check c = {.r = &r,
                     .name = instance->name,
                     .room = malloc(n * sizeof(ab_element64)),
                     .place = malloc(n * sizeof(int64_t))};
    for (int i = 0; i < r.inputs; i++)
        if (r.io.din[i] && !is_mask(&r, i)) check_slopes(&c, &r.in[i], AB_WROTE_DIN + i);
    for (int i = 0; i < r.params; i++)
        if (r.io.dparam[i]) check_slopes(&c, &r.param[i], AB_WROTE_DPARAM + i);
    free(c.room);
    free(c.place);
    op_run_close(&r);
    return c.checked;
}

/* Nothing is compared with a kernel here. */
static void gradients_are_slopes_of_the_forward_opinion(void **state) {
    static oi_all all;
    (void)state;
    oi_open(&all);
    for (int i = 0; i < all.count; i++)
        if (slopes_of(&all.instance[i]) == 0) fail_msg("%s: nothing checked", all.instance[i].name);
    oi_close(&all);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_op_has_a_second_opinion_that_agrees),
                                       cmocka_unit_test(other_attributes_and_numbers_agree_too),
                                       cmocka_unit_test(gradients_are_slopes_of_the_forward_opinion)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
