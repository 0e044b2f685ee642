/* Training on the GPU: graphs on and off and run after run give the same bits; the CPU's losses are followed
 * as closely as two fp32 implementations do; every op of these networks runs on the GPU itself; probes change
 * nothing. */
#include "gpu/gpu_testing.h"

#include "bench/train/cell/cell.h"
#include "probes/set.h"

enum { STEPS = 40, BATCH = 32 };

typedef struct trace {
    ab_step_result step[STEPS];
    int64_t time_ns[STEPS];
} trace;

static void see_nothing(ab_observer *self, int id, int thread, const float *values, int64_t n) {
    (void)self, (void)id, (void)thread, (void)values, (void)n;
}

static void check_own(const ab_cell *cell) {
    const ab_plan *plan = ab_cell_plan(cell);
    for (int n = 0; n < plan->nodes; n++) {
        const char *text =
            ab_plan_node_op(plan, &plan->node[n]) ? ab_cell_describe(cell, n, "forward") : NULL;
        if (text && strncmp(text, "host:", 5) == 0) fail_msg("node %d runs as %s", n, text);
    }
}

/* How the cells are trained. */
static struct {
    const char *data, *optimizer;
    ab_recipe recipe;
    int batch, steps;
    ab_perturbation perturbation;
} how = {"synthetic", "momentum", {0}, BATCH, STEPS, AB_PERTURB_NONE};

static void train(const char *name, const char *level_name, const ab_device *device, bool no_graph,
                  bool probed, trace *t) {
    ab_net *net;
    ab_data *data;
    ab_cell *cell;
    const ab_level *level;
    ab_observer observer = {.see = see_nothing};
    ab_cell_config config = {.batch = how.batch, .seed = 1, .device = device, .no_graph = no_graph};
    assert_int_equal(ab_net_load(name, &net), AB_OK);
    assert_int_equal(ab_data_open(how.data, &net->data, 1, &data), AB_OK);
    config.net = net;
    config.data = data;
    assert_int_equal(ab_level_find(level_name, &level), AB_OK);
    assert_int_equal(ab_policy_resolve(level, &ab_format_fp16, NULL, 0, &config.policy), AB_OK);
    assert_int_equal(ab_optimizer_find(how.optimizer, &config.optimizer), AB_OK);
    config.optim = config.optimizer->defaults;
    config.recipe = how.recipe;
    config.perturbation = how.perturbation;
    config.recipe.rates.lr = config.optim.lr;
    if (ab_cell_create(&config, &cell) != AB_OK) fail_msg("%s", ab_error_message());
    if (device == gpu) check_own(cell);
    if (!probed && ab_cell_run_steps(cell, how.steps, t->step, t->time_ns) != AB_OK)
        fail_msg("%s", ab_error_message());
    for (int i = 0; probed && i < how.steps; i++)
        if (ab_cell_step(cell, i % 4 == 0 ? &observer : NULL, &t->step[i]) != AB_OK)
            fail_msg("%s", ab_error_message());
    ab_cell_destroy(cell);
    ab_data_close(data);
    ab_net_free(net);
}

static void same_bits(const trace *a, const trace *b) {
    for (int i = 0; i < how.steps; i++) {
        assert_memory_equal(&a->step[i].loss, &b->step[i].loss, sizeof(float));
        assert_true(a->step[i].scale == b->step[i].scale);
        assert_int_equal(a->step[i].skipped, b->step[i].skipped);
    }
}

static const char *const levels[] = {"O0", "O1", "O2", "O3"};

static void graphs_probes_and_repeats_change_no_bit(void **state) {
    (void)state;
    static trace first, again, plain, probed;
    for (size_t l = 0; l < AB_COUNT_OF(levels); l++) {
        train("lenet5", levels[l], gpu, false, false, &first);
        train("lenet5", levels[l], gpu, false, false, &again);
        train("lenet5", levels[l], gpu, true, false, &plain);
        train("lenet5", levels[l], gpu, false, true, &probed);
        same_bits(&first, &again);
        same_bits(&first, &plain);
        same_bits(&first, &probed);
    }
}

/* Two implementations drift apart by rounding: at first by the roundings of one step, then by what training
 * makes of them. The yardstick is the CPU beside itself from weights moved by one rounding: sixteen times the
 * most that the loss has moved so far, as that is one draw, and a few roundings of the loss. */
static void follow(const char *net, const char *level) {
    static trace here, moved, there;
    const bool half = strcmp(level, "O0") != 0;
    const double unit = half ? 0x1p-11 : 0x1p-24;
    double most = 0;
    train(net, level, &ab_device_cpu, false, false, &here);
    how.perturbation = half ? AB_PERTURB_ROUNDING : AB_PERTURB_ULP;
    train(net, level, &ab_device_cpu, false, false, &moved);
    how.perturbation = AB_PERTURB_NONE;
    train(net, level, gpu, false, false, &there);
    for (int i = 0; i < 5; i++) {
        const double a = (double)here.step[i].loss, b = (double)there.step[i].loss;
        most = fmax(most, fabs((double)moved.step[i].loss - a));
        if (!(fabs(a - b) <= 16 * most + 4 * unit * fabs(a)))
            fail_msg("%s %s step %d: loss %.9g on the CPU, %.9g on the GPU; %g is what a rounding moves", net,
                     level, i, a, b, most);
        assert_int_equal(here.step[i].skipped, there.step[i].skipped);
        assert_true(here.step[i].scale == there.step[i].scale);
    }
}

static void losses_follow_the_cpus(void **state) {
    (void)state;
    static const char *const nets[] = {"lenet5", "resnet20"};
    const size_t count = gpu_is_emulated() ? 1 : AB_COUNT_OF(nets);
    for (size_t n = 0; n < count; n++)
        for (size_t l = 0; l < AB_COUNT_OF(levels); l++) follow(nets[n], levels[l]);
}

/* With dropout: a coin that fell otherwise than on the CPU would show at once. */
static void a_transformers_recipe_follows_the_cpus(void **state) {
    (void)state;
    static trace here, there, again;
    const ab_schedule *cosine = NULL;
    for (int i = 0; i < ab_schedule_count(); i++)
        if (strcmp(ab_schedule_at(i)->name, "cosine") == 0) cosine = ab_schedule_at(i);
    const char *net =
        gpu_is_emulated() ? AB_SOURCE_DIR "/tests/fixtures/small_transformer.json" : "transformer_classifier";
    how.data = "synthetic_text";
    how.optimizer = "adamw";
    how.batch = 4;
    how.steps = gpu_is_emulated() ? 3 : 6;
    how.recipe = (ab_recipe){
        .schedule = cosine, .rates = {.total = 6, .warmup = 2}, .clip = {.norm = 1.0}, .micro_batches = 2};
    assert_int_equal(ab_param_groups_no_decay("bias,norm", &how.recipe.groups), AB_OK);
    for (size_t l = 0; l < AB_COUNT_OF(levels) - 1; l++) {
        train(net, levels[l], &ab_device_cpu, false, false, &here);
        train(net, levels[l], gpu, false, false, &there);
        train(net, levels[l], gpu, true, false, &again);
        double unit = l == 0 ? 0x1p-23 : 0x1p-10;
        for (int i = 0; i < how.steps; i++) {
            double a = (double)here.step[i].loss, b = (double)there.step[i].loss;
            double norms[] = {here.step[i].grad_norm, there.step[i].grad_norm};
            if (!(fabs(a - b) <= 256 * unit * (i + 1) * (fabs(a) + 1)))
                fail_msg("%s step %d: loss %.9g on the CPU, %.9g on the GPU", levels[l], i, a, b);
            assert_int_equal(here.step[i].skipped, there.step[i].skipped);
            assert_true(here.step[i].skipped || fabs(norms[0] / norms[1] - 1) <= 256 * unit * (i + 1));
        }
        same_bits(&there, &again);
    }
}

static void a_cell_without_room_fails_and_names_the_category(void **state) {
    (void)state;
    ab_net *net;
    ab_cell *cell = NULL;
    const ab_level *level;
    ab_cell_config config = {.batch = (int64_t)1 << 26, .seed = 1, .device = gpu};
    assert_int_equal(ab_net_load("resnet20", &net), AB_OK);
    config.net = net;
    assert_int_equal(ab_level_find("O0", &level), AB_OK);
    assert_int_equal(ab_policy_resolve(level, &ab_format_fp16, NULL, 0, &config.policy), AB_OK);
    assert_int_equal(ab_optimizer_find("sgd", &config.optimizer), AB_OK);
    config.optim = config.optimizer->defaults;
    assert_int_equal(ab_cell_create(&config, &cell), AB_NO_MEMORY);
    assert_non_null(strstr(ab_error_message(), "cannot allocate"));
    static trace after;
    how.data = "synthetic";
    how.optimizer = "momentum";
    how.batch = gpu_is_emulated() ? 4 : BATCH;
    how.recipe = (ab_recipe){.micro_batches = 1};
    train("lenet5", "O0", gpu, false, false, &after); /* the device is as good as before */
    ab_net_free(net);
}

int main(void) {
    gpu_or_skip();
    if (gpu_is_emulated()) how.batch = 4, how.steps = 5;
    const struct CMUnitTest tests[] = {cmocka_unit_test(graphs_probes_and_repeats_change_no_bit),
                                       cmocka_unit_test(losses_follow_the_cpus),
                                       cmocka_unit_test(a_transformers_recipe_follows_the_cpus),
                                       cmocka_unit_test(a_cell_without_room_fails_and_names_the_category)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
