/* Training in double equals PyTorch's in float64 to thirteen digits, step by step: convolutions, batch norm,
 * pools, a sum of two ways, linear layers, cross entropy; attention, other norms and functions; five
 * optimizers with weight decay (fp32 is off by 1e-7 in the same steps). */
#define _POSIX_C_SOURCE 200809L
#include "tests/unit/every_op_testing.h"

#include "bench/experiments/double_cell.h"

#include <math.h>

enum { STEPS = 6 };

/* torch 2.11: scripts/peer_pytorch.py's Trainer with wide=torch.float64 on tests/golden/<net>.json, seed 1,
 * batches of 8 (rms_norm with fp32's eps, as here). */
static const struct recorded {
    const char *net, *optimizer;
    double lr, weight_decay, loss[STEPS];
} recorded[] = {
    {"tiny",
     "sgd",
     0.05,
     0.01,
     {2.3454198834909694, 2.3029217571764367, 2.2686043134733946, 2.283728826933626, 2.234011160351776,
      2.1538394728754438}},
    {"tiny",
     "momentum",
     0.05,
     0.01,
     {2.3454198834909694, 2.3029217571764367, 2.2426627748306545, 2.2519725521938097, 2.1350735015332041,
      2.0536641066632026}},
    {"tiny",
     "nesterov",
     0.05,
     0,
     {2.3454198834909694, 2.275390486197741, 2.200436568196265, 2.2376913849699216, 2.0926320632224393,
      2.0014598277573068}},
    {"tiny",
     "adam",
     0.001,
     0.01,
     {2.3454198834909694, 2.3140379620328586, 2.2933013796654955, 2.2970704212489164, 2.2763934116228319,
      2.1883177518595147}},
    {"tiny",
     "adamw",
     0.001,
     0.1,
     {2.3454198834909694, 2.3139116016596297, 2.2933174203852129, 2.2966771900959886, 2.2757880813075211,
      2.1871055556894583}},
    {"tiny_transformer",
     "momentum",
     0.05,
     0,
     {2.3101242230778456, 2.4018282289875228, 2.3519072424338958, 2.2719853979224118, 2.3808204239948507,
      2.2965001157126119}},
};

static double train(const struct recorded *r, const ab_data *data) {
    char path[512];
    ab_net *net = NULL;
    snprintf(path, sizeof path, AB_SOURCE_DIR "/tests/golden/%s.json", r->net);
    assert_int_equal(ab_net_load(path, &net), AB_OK);
    ab_cell_config config = pt_config(net, "O0", &ab_format_fp16, r->optimizer, NULL);
    ab_double *made = NULL;
    double worst = 0;
    config.data = data;
    config.optim.lr = r->lr;
    config.optim.weight_decay = r->weight_decay;
    ab_cell *guide = pt_cell(&config);
    assert_null(ab_double_refusal(&config, ab_cell_plan(guide)));
    assert_int_equal(ab_double_create(guide, &config, &made), AB_OK);
    for (int i = 0; i < STEPS; i++) {
        double loss;
        if (ab_double_step(made, &loss) != AB_OK) fail_msg("%s", ab_error_message());
        worst = fmax(worst, fabs(loss - r->loss[i]) / r->loss[i]);
    }
    ab_double_destroy(made);
    ab_cell_destroy(guide);
    ab_net_free(net);
    return worst;
}

static void training_in_double_equals_float64_of_pytorch(void **state) {
    ab_net *net = NULL;
    ab_data *data = NULL;
    (void)state;
    assert_int_equal(ab_net_load(AB_SOURCE_DIR "/tests/golden/tiny.json", &net), AB_OK);
    assert_int_equal(ab_data_open(AB_SOURCE_DIR "/tests/golden/data", &net->data, 0, &data), AB_OK);
    for (size_t i = 0; i < AB_COUNT_OF(recorded); i++) {
        const double worst = train(&recorded[i], data);
        if (!(worst < 1e-13)) fail_msg("%s, %s: off by %g", recorded[i].net, recorded[i].optimizer, worst);
    }
    ab_data_close(data);
    ab_net_free(net);
}

/* Every op, dropout, several losses and shared values: the first steps of an fp32 cell, within what fp32
 * rounds. */
static void every_op_can_be_trained_in_double(void **state) {
    (void)state;
    for (size_t n = 0; n < EO_NETS; n++) {
        ab_net *net = eo_net(n);
        ab_cell_config config = pt_config(net, "O0", &ab_format_fp16, "momentum", NULL);
        config.data = eo_data(net);
        config.optim.lr = 0.01;
        ab_cell *guide = pt_cell(&config), *cell = pt_cell(&config);
        ab_double *made = NULL;
        assert_int_equal(ab_double_create(guide, &config, &made), AB_OK);
        for (int i = 0; i < 4; i++) {
            ab_step_result result;
            double loss;
            assert_int_equal(ab_cell_step(cell, NULL, &result), AB_OK);
            if (ab_double_step(made, &loss) != AB_OK) fail_msg("%s", ab_error_message());
            if (!(fabs(loss - (double)result.loss) < 2e-5 * fabs(loss)))
                fail_msg("network %d, step %d: %.9g, fp32 %.9g", (int)n, i, loss, (double)result.loss);
        }
        ab_double_destroy(made);
        ab_cell_destroy(guide);
        ab_cell_destroy(cell);
        ab_net_free(net);
    }
}

static void what_it_cannot_do_is_refused(void **state) {
    (void)state;
    ab_net *net = pt_net(pt_ops);
    ab_cell_config config = pt_config(net, "O0", &ab_format_fp16, "momentum", NULL);
    ab_cell *cell = pt_cell(&config);
    const ab_plan *plan = ab_cell_plan(cell);
    assert_null(ab_double_refusal(&config, plan));
    config.recipe.clip.norm = 1;
    assert_non_null(ab_double_refusal(&config, plan));
    config.recipe.clip.norm = 0;
    config.recipe.micro_batches = 2;
    assert_non_null(ab_double_refusal(&config, plan));
    config.recipe.micro_batches = 1;
    assert_int_equal(ab_optimizer_find("lamb", &config.optimizer), AB_OK);
    assert_non_null(ab_double_refusal(&config, plan));
    ab_cell_destroy(cell);
    ab_net_free(net);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_in_double_equals_float64_of_pytorch),
        cmocka_unit_test(every_op_can_be_trained_in_double),
        cmocka_unit_test(what_it_cannot_do_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
