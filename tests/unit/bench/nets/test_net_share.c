/* "share": ops on one weight train as one weight. The reference is the same network with a weight for each
 * op, all with the same values: the shared gradient is the sum of theirs, at every level and over
 * micro-batches. Shared weights are counted, drawn and saved once; names and shapes that do not fit are
 * refused. "requires_grad": false trains as a learning rate of 0 does, without gradient, master or state. */
#include "bench/tensorfile/safetensors.h"
#include "bench/train/cell/cell.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BATCH = 4, WEIGHTS = 100 };

#define FIRST                                                                                                \
    "{\"name\": \"flat\", \"op\": \"flatten\"}, {\"name\": \"in\", \"op\": \"linear\", \"out_features\": "   \
    "10}, "
#define SQUARE(name, more)                                                                                   \
    "{\"name\": \"" name "\", \"op\": \"linear\", \"out_features\": 10, \"bias\": false" more "}, "
#define OF(weight) ", \"share\": {\"weight\": \"" weight "\"}"
#define LOSS "{\"name\": \"loss\", \"op\": \"cross_entropy\"}"

static const char tied[] = FIRST SQUARE("a", "") SQUARE("b", OF("a.weight")) SQUARE("c", OF("a.weight")) LOSS;
static const char apart[] = FIRST SQUARE("a", "") SQUARE("b", "") SQUARE("c", "") LOSS;
static const char *const squares[] = {"a.weight", "b.weight", "c.weight"};

static ab_status parse(const char *ops, ab_net **net) {
    char text[4096];
    snprintf(text, sizeof text,
             "{\"format\": \"ampbench-net-1\", \"name\": \"t\", \"input\": {\"height\": 28, \"width\": 28, "
             "\"channels\": 1}, \"ops\": [%s]}",
             ops);
    return ab_net_parse(text, strlen(text), "t.json", net);
}

typedef struct setup {
    ab_net *net;
    ab_cell *cell;
} setup;

static ab_data *images; /* for all tests: making them takes longest */

static ab_policy policy_of(const char *level, int micro_batches) {
    const ab_level *found = NULL;
    ab_policy policy;
    assert_int_equal(ab_level_find(level, &found), AB_OK);
    const char *scale = "loss_scale=1024";
    assert_int_equal(ab_policy_resolve(found, &ab_format_fp16, &scale, 1, &policy), AB_OK);
    policy.keep.micro_batches = micro_batches > 1;
    return policy;
}

static setup start_groups(const char *ops, const char *level, int micro_batches, const char *init,
                          const char *groups) {
    setup s = {NULL, NULL};
    if (parse(ops, &s.net) != AB_OK) fail_msg("%s", ab_error_message());
    if (!images) assert_int_equal(ab_data_open("synthetic", &s.net->data, 1, &images), AB_OK);
    ab_cell_config config = {.net = s.net,
                             .policy = policy_of(level, micro_batches),
                             .optim = {.lr = 0.5},
                             .batch = BATCH / micro_batches,
                             .seed = 1,
                             .data = images,
                             .normalize = AB_NORMALIZE_STANDARD,
                             .init_file = init,
                             .device = &ab_device_cpu};
    config.recipe.micro_batches = micro_batches;
    assert_int_equal(ab_schedule_parse("constant", &config.recipe.schedule, &config.recipe.rates), AB_OK);
    config.recipe.rates.lr = 0.5;
    if (groups) assert_int_equal(ab_param_groups_parse(groups, &config.recipe.groups), AB_OK);
    assert_int_equal(ab_optimizer_find("sgd", &config.optimizer), AB_OK);
    if (ab_cell_create(&config, &s.cell) != AB_OK) fail_msg("%s", ab_error_message());
    return s;
}

static setup start(const char *ops, const char *level, int micro_batches, const char *init) {
    return start_groups(ops, level, micro_batches, init, NULL);
}

static void stop(setup *s) {
    ab_cell_destroy(s->cell);
    ab_net_free(s->net);
}

static void take(const setup *s, const char *name, float *values, int64_t count) {
    ab_shape shape;
    assert_int_equal(ab_cell_read(s->cell, name, &shape, NULL), AB_OK);
    assert_int_equal(ab_shape_count(&shape), count);
    assert_int_equal(ab_cell_read(s->cell, name, &shape, values), AB_OK);
}

static void step(const setup *s) {
    ab_step_result result;
    if (ab_cell_step(s->cell, NULL, &result) != AB_OK) fail_msg("%s", ab_error_message());
    assert_true(isfinite(result.loss));
}

/* A file with the tied net's weights for the net with three: every square has the values of a.weight. */
static void write_apart(const setup *s, const char *path) {
    static float square[WEIGHTS], in[7840], bias[10];
    const ab_shape pixels = {2, {10, 784}}, ten = {1, {10}}, matrix = {2, {10, 10}};
    take(s, "a.weight", square, WEIGHTS);
    take(s, "in.weight", in, 7840);
    take(s, "in.bias", bias, 10);
    const ab_safetensor_item items[] = {{.name = "in.weight", .shape = pixels, .data = in},
                                        {.name = "in.bias", .shape = ten, .data = bias},
                                        {.name = squares[0], .shape = matrix, .data = square},
                                        {.name = squares[1], .shape = matrix, .data = square},
                                        {.name = squares[2], .shape = matrix, .data = square}};
    assert_int_equal(ab_safetensors_write(path, items, 5, NULL), AB_OK);
}

static void compare(const char *level, int micro_batches, double tolerance) {
    const char path[] = "test_net_share.safetensors";
    float one[WEIGHTS], part[WEIGHTS];
    double apart_by = 0.0, norm = 0.0;
    double sum[WEIGHTS] = {0};
    setup both = start(tied, level, micro_batches, NULL);
    write_apart(&both, path);
    setup three = start(apart, level, micro_batches, path);
    remove(path);
    step(&both);
    step(&three);
    take(&both, "a.weight.grad", one, WEIGHTS);
    for (int k = 0; k < 3; k++) {
        char name[32];
        snprintf(name, sizeof name, "%s.grad", squares[k]);
        take(&three, name, part, WEIGHTS);
        for (int i = 0; i < WEIGHTS; i++) sum[i] += (double)part[i];
    }
    for (int i = 0; i < WEIGHTS; i++) {
        apart_by += pow(sum[i] - (double)one[i], 2.0);
        norm += pow(sum[i], 2.0);
    }
    if (!(norm > 0.0) || sqrt(apart_by) > tolerance * sqrt(norm))
        fail_msg("%s, %d micro-batches: %g apart", level, micro_batches, sqrt(apart_by / norm));
    stop(&both);
    stop(&three);
}

static void a_shared_gradient_is_the_sum_of_the_shares(void **state) {
    (void)state;
    static const char *const levels[] = {"O0", "O1", "O2", "O3"};
    for (int i = 0; i < 4; i++)
        for (int micro_batches = 1; micro_batches <= 2; micro_batches++)
            compare(levels[i], micro_batches, i == 0 ? 1e-6 : 3e-3);
}

/* A probe gets each op's share under the op's name. */
static void each_share_is_shown_by_its_op(void **state) {
    (void)state;
    setup s = start(tied, "O2", 1, NULL);
    const char *const names[] = {"c.weight.grad", "b.weight.grad", "a.weight.grad"};
    for (int k = 0; k < 3; k++) {
        int found = 0;
        for (int i = 0; i < ab_cell_observed_count(s.cell); i++)
            found += strcmp(ab_cell_observed_at(s.cell, i)->name, names[k]) == 0;
        assert_int_equal(found, 1);
    }
    stop(&s);
}

/* After the step all three ops read the moved weight. */
static void all_ops_read_what_the_optimizer_wrote(void **state) {
    (void)state;
    setup s = start(tied, "O2", 1, NULL);
    float before[WEIGHTS], after[WEIGHTS], gradient[WEIGHTS];
    take(&s, "a.weight", before, WEIGHTS);
    step(&s);
    take(&s, "a.weight", after, WEIGHTS);
    take(&s, "a.weight.grad", gradient, WEIGHTS);
    for (int i = 0; i < WEIGHTS; i++)
        assert_true(fabs((double)after[i] - ((double)before[i] - 0.5 * (double)gradient[i])) < 1e-6);
    const ab_plan *plan = ab_cell_plan(s.cell);
    int stored = ab_plan_find(plan, "a.weight");
    assert_int_equal(ab_plan_find(plan, "b.weight"), AB_NONE);
    for (int p = 0; p < plan->params; p++)
        if (plan->param[p].net_op >= 2) assert_int_equal(plan->param[p].stored, stored);
    stop(&s);
}

static void shared_weights_are_counted_and_saved_once(void **state) {
    (void)state;
    const char path[] = "test_net_share_saved.safetensors";
    setup s = start(tied, "O0", 1, NULL);
    assert_int_equal(ab_net_parameters(s.net), 7840 + 10 + 100);
    step(&s);
    assert_int_equal(ab_cell_save(s.cell, path), AB_OK);
    setup again = start(tied, "O0", 1, path);
    float saved[WEIGHTS], loaded[WEIGHTS];
    take(&s, "a.weight", saved, WEIGHTS);
    take(&again, "a.weight", loaded, WEIGHTS);
    assert_memory_equal(saved, loaded, sizeof saved);
    remove(path);
    stop(&s);
    stop(&again);
}

static void what_cannot_be_shared_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *ops, *part;
    } bad[] = {{FIRST SQUARE("a", OF("b.weight")) SQUARE("b", "") LOSS, "earlier op"},
               {FIRST SQUARE("a", "") SQUARE("b", OF("a.weigth")) LOSS, "\"a.weigth\""},
               {FIRST SQUARE("a", OF("in.weight")) LOSS, "[10, 784]"},
               {FIRST SQUARE("a", "") SQUARE("b", ", \"share\": {\"bias\": \"a.weight\"}") LOSS,
                "no trained parameter"},
               {FIRST SQUARE("a", "") SQUARE("b", ", \"share\": \"a\"") LOSS, "an object such as"},
               {FIRST SQUARE("a", "") SQUARE("b", OF("a.weight")) SQUARE("c", OF("b.weight")) LOSS,
                "itself shared"}};
    for (size_t i = 0; i < AB_COUNT_OF(bad); i++) {
        ab_net *net = NULL;
        assert_int_equal(parse(bad[i].ops, &net), AB_CONFIG);
        assert_null(net);
        if (!strstr(ab_error_message(), bad[i].part) || strncmp(ab_error_message(), "t.json:", 7) != 0)
            fail_msg("expected '%s' in '%s'", bad[i].part, ab_error_message());
    }
}

/* ---- requires_grad --------------------------------------------------------------------------- */

#define FIRST_FIXED                                                                                          \
    "{\"name\": \"flat\", \"op\": \"flatten\"}, {\"name\": \"in\", \"op\": \"linear\", \"out_features\": "   \
    "10, \"requires_grad\": {\"weight\": false}}, "
#define FIXED ", \"requires_grad\": false"

static float loss_of_step(const setup *s) {
    ab_step_result result;
    if (ab_cell_step(s->cell, NULL, &result) != AB_OK) fail_msg("%s", ab_error_message());
    return result.loss;
}

/* The reference trains every parameter, these at a rate of 0. */
static void what_requires_no_gradient_trains_as_at_rate_0(void **state) {
    (void)state;
    static const char fixed[] =
        FIRST_FIXED SQUARE("a", FIXED) SQUARE("b", OF("a.weight")) SQUARE("c", "") LOSS;
    static const char all[] = FIRST SQUARE("a", "") SQUARE("b", OF("a.weight")) SQUARE("c", "") LOSS;
    static const char *const levels[] = {"O0", "O1", "O2", "O3", "torch:autocast"};
    for (int i = 0; i < 10; i++) {
        setup one = start(fixed, levels[i / 2], 1 + i % 2, NULL);
        setup two =
            start_groups(all, levels[i / 2], 1 + i % 2, NULL, "in.weight:lr_factor=0;a.weight:lr_factor=0");
        float bias[2][10];
        for (int n = 0; n < 5; n++) assert_true(loss_of_step(&one) == loss_of_step(&two));
        take(&one, "in.bias", bias[0], 10);
        take(&two, "in.bias", bias[1], 10);
        assert_memory_equal(bias[0], bias[1], sizeof bias[0]);
        stop(&one);
        stop(&two);
    }
}

static void what_requires_no_gradient_has_none(void **state) {
    (void)state;
    static const char ops[] = FIRST_FIXED SQUARE("a", FIXED) SQUARE("c", "") LOSS;
    setup s = start(ops, "O2", 1, NULL), whole = start(apart, "O2", 1, NULL);
    const ab_plan *plan = ab_cell_plan(s.cell);
    static const char *const none[] = {"in.weight.grad", "in.weight.master", "a.weight.grad",
                                       "a.weight.master"};
    for (size_t i = 0; i < AB_COUNT_OF(none); i++) {
        assert_int_equal(ab_plan_find(plan, none[i]), AB_NONE);
        assert_int_not_equal(ab_plan_find(ab_cell_plan(whole.cell), none[i]), AB_NONE);
    }
    assert_int_not_equal(ab_plan_find(plan, "in.bias.master"), AB_NONE);
    assert_ptr_equal(plan->tensor[ab_plan_find(plan, "a.weight")].format, &ab_format_fp16);
    stop(&s);
    stop(&whole);
}

static void what_cannot_be_fixed_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *ops, *part;
    } bad[] = {{FIRST SQUARE("a", ", \"requires_grad\": {\"bias\": false}") LOSS,
                "linear has no trained parameter \"bias\""},
               {FIRST SQUARE("a", ", \"requires_grad\": 0") LOSS, "expected true, false or an object"},
               {FIRST SQUARE("a", "") SQUARE("b", OF("a.weight") FIXED) LOSS, "that of 'a'; say it there"},
               {"{\"name\": \"flat\", \"op\": \"flatten\"" FIXED "}, " SQUARE("a", "") LOSS,
                "flatten has no trained parameters"},
               {"{\"name\": \"flat\", \"op\": \"flatten\"}, " SQUARE("a", FIXED) LOSS,
                "expected a trained parameter, found none"}};
    for (size_t i = 0; i < AB_COUNT_OF(bad); i++) {
        ab_net *net = NULL;
        assert_int_equal(parse(bad[i].ops, &net), AB_CONFIG);
        if (!strstr(ab_error_message(), bad[i].part))
            fail_msg("expected '%s' in '%s'", bad[i].part, ab_error_message());
    }
}

/* ---- accumulate ------------------------------------------------------------------------------ */

/* An op's own accumulator changes its results and no others' before it: op a alone against all and none. */
static void one_op_can_accumulate_in_half(void **state) {
    (void)state;
    static const char *const ops[] = {FIRST SQUARE("a", "") SQUARE("b", "") LOSS,
                                      FIRST SQUARE("a", ", \"accumulate\": \"half\"")
                                          SQUARE("b", ", \"accumulate\": \"fp32\"") LOSS};
    static const char *const levels[] = {"O0", "O2", "O3"};
    for (int l = 0; l < 3; l++) {
        float gradient[2][WEIGHTS], loss[2];
        for (int k = 0; k < 2; k++) {
            setup s = start(ops[k], levels[l], 1, NULL);
            assert_int_equal(ab_net_half_accumulators(s.net), k);
            loss[k] = loss_of_step(&s);
            take(&s, "a.weight.grad", gradient[k], WEIGHTS);
            stop(&s);
        }
        assert_int_equal(memcmp(gradient[0], gradient[1], sizeof gradient[0]) == 0, l == 0);
        assert_int_equal(loss[0] == loss[1], l == 0);
    }
}

static void only_products_accumulate(void **state) {
    (void)state;
    ab_net *net = NULL;
    assert_int_equal(
        parse("{\"name\": \"flat\", \"op\": \"flatten\", \"accumulate\": \"half\"}, " SQUARE("a", "") LOSS,
              &net),
        AB_CONFIG);
    assert_non_null(strstr(ab_error_message(), "accumulate"));
    assert_int_equal(parse(FIRST SQUARE("a", ", \"accumulate\": \"fp16\"") LOSS, &net), AB_CONFIG);
    assert_non_null(strstr(ab_error_message(), "expected one of fp32|half"));
}

static int close_images(void **state) {
    (void)state;
    ab_data_close(images);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shared_gradient_is_the_sum_of_the_shares),
        cmocka_unit_test(each_share_is_shown_by_its_op),
        cmocka_unit_test(all_ops_read_what_the_optimizer_wrote),
        cmocka_unit_test(shared_weights_are_counted_and_saved_once),
        cmocka_unit_test(what_cannot_be_shared_is_refused),
        cmocka_unit_test(what_requires_no_gradient_trains_as_at_rate_0),
        cmocka_unit_test(what_requires_no_gradient_has_none),
        cmocka_unit_test(what_cannot_be_fixed_is_refused),
        cmocka_unit_test(one_op_can_accumulate_in_half),
        cmocka_unit_test(only_products_accumulate),
    };
    return cmocka_run_group_tests(tests, NULL, close_images);
}
