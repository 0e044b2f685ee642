/* Verdicts from records made here: every cause is named from the numbers that show it, with no word of which
 * fault was planted, and the same record without those numbers gives no verdict. And the audits of skips and
 * of where a loss went. */
#include "bench/run/config/options.h"
#include "reports/diagnose/diagnose.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { STEPS = 80, TEXT = 1 << 16 };

/* A loss at every step: from `first` to `last` in a straight line, but `peak` (0: none) in steps 5 to 14;
 * null from step `bad` on. */
static void losses(char *text, size_t size, double first, double last, int bad, double peak) {
    size_t n = (size_t)snprintf(text, size, "[");
    for (int i = 0; i < STEPS; i++) {
        const char *comma = i ? "," : "";
        if (bad >= 0 && i >= bad)
            n += (size_t)snprintf(text + n, size - n, "%snull", comma);
        else
            n += (size_t)snprintf(text + n, size - n, "%s%.6f", comma,
                                  peak > 0 && i >= 5 && i < 15 ? peak
                                                               : first + (last - first) * i / (STEPS - 1));
    }
    snprintf(text + n, size - n, "]");
}

/* What is said of a run: its configuration, the O0 cell's and the other cell's own keys (JSON, each with a
 * comma in front). */
typedef struct record {
    const char *config, *o0, *cell;
    double o0_last, cell_last;
    int o0_bad, cell_bad; /* first step whose loss is no number; -1: none */
    double peak;          /* of both losses; 0: none */
    double o0_first;      /* 0: as the cell's */
} record;

static const record sound = {"", "", "", 0.3, 0.3, -1, -1, 0, 0};

static ab_diagnosis diagnosis;

/* `ampbench run` knows every option of every remedy. (test_remedies.c: it accepts them.) */
static void expect_options(const ab_diagnosis *d) {
    static char program[] = "ampbench";
    char *word[AB_REMEDY_OPTIONS + 1] = {program};
    ab_options options;
    for (int i = 0; i < d->verdicts; i++) {
        ab_remedy remedy = d->verdict[i].remedy;
        for (int k = 0; k < remedy.options; k++) word[k + 1] = remedy.option[k];
        assert_int_equal(ab_options_parse(remedy.options + 1, word, &options), AB_OK);
    }
}

/* Diagnoses the second cell. */
static const ab_diagnosis *diagnose(const record *r) {
    static char text[TEXT], o0[TEXT / 8], cell[TEXT / 8];
    losses(o0, sizeof o0, r->o0_first > 0 ? r->o0_first : 2.3, r->o0_last, r->o0_bad, r->peak);
    losses(cell, sizeof cell, 2.3, r->cell_last, r->cell_bad, r->peak);
    const int written =
        snprintf(text, sizeof text,
                 "{\"config\": {\"batch\": 64, \"lr\": 0.1, \"scale_window\": 2000%s}, \"data\": "
                 "{\"classes\": 10}, \"cells\": ["
                 "{\"id\": \"n/O0/1\", \"model\": \"n\", \"level\": \"O0\", \"half_format\": \"fp16\", "
                 "\"device\": \"cpu\", "
                 "\"seed\": 1, \"twin\": null, \"scale_policy\": \"1\", \"policy\": {\"cast_model_type\": "
                 "\"fp32\", \"loss_scale\": 1}, "
                 "\"loss\": %s, %s\"summary\": {\"loss_gap\": 0}%s}, "
                 "{\"id\": \"n/O2/dynamic\", \"model\": \"n\", \"level\": \"O2\", \"half_format\": \"fp16\", "
                 "\"device\": \"cpu\", "
                 "\"seed\": 1, \"twin\": null, \"scale_policy\": \"dynamic\", \"loss\": %s, "
                 "\"summary\": {\"loss_gap\": %.6f}%s%s}]}",
                 r->config, o0, strstr(r->o0, "\"scale\"") ? "" : "\"scale\": [[1, 80]], ", r->o0, cell,
                 r->cell_last - r->o0_last,
                 strstr(r->cell, "\"policy\"") ? ""
                                               : ", \"policy\": {\"cast_model_type\": \"fp16\", "
                                                 "\"master_weights\": true, \"loss_scale\": \"dynamic\"}, "
                                                 "\"scale\": [[65536, 80]]",
                 r->cell);
    assert_true(written > 0 && written < TEXT);
    cJSON *document = cJSON_Parse(text);
    if (!document) fail_msg("no JSON: %s", text);
    assert_int_equal(ab_diagnose(document, 1, &diagnosis), AB_OK);
    cJSON_Delete(document);
    expect_options(&diagnosis);
    return &diagnosis;
}

static void expect(const record *r, const char *id, const char *layer) {
    const ab_diagnosis *d = diagnose(r);
    if (d->verdicts == 0) fail_msg("no verdict where %s was expected", id);
    assert_string_equal(d->verdict[0].rule->id, id);
    if (layer) assert_string_equal(d->verdict[0].layer, layer);
    assert_true(d->found.sick);
    assert_true(d->verdict[0].evidences > 0 && d->verdict[0].remedy.text[0]);
}

static void expect_no(const record *r, const char *id) {
    const ab_diagnosis *d = diagnose(r);
    for (int i = 0; i < d->verdicts; i++)
        if (strcmp(d->verdict[i].rule->id, id) == 0) fail_msg("%s is not in this record", id);
}

/* ---- health ---------------------------------------------------------------------------------- */

static void a_cell_like_o0_is_healthy(void **state) {
    (void)state;
    const ab_diagnosis *d = diagnose(&sound);
    assert_false(d->found.sick || d->found.undecided);
    assert_int_equal(d->verdicts, 0);
}

static void a_run_that_is_too_short_is_undecided_not_sick(void **state) {
    (void)state;
    record r = sound;
    r.o0_last = r.cell_last = 2.299;
    const ab_diagnosis *d = diagnose(&r);
    assert_false(d->found.sick);
    assert_true(d->found.undecided);
    assert_non_null(strstr(d->unnamed.missing, "run longer"));
}

/* Of next tokens the data have no classes; the decoder's width tells what knowing nothing costs. */
static void a_language_model_that_knows_nothing_has_not_learned(void **state) {
    (void)state;
    record r = sound;
    r.config = "}, \"data\": {\"classes\": 0}, \"unused\": {\"x\": 0";
    r.o0_last = r.cell_last = 2.1; /* from 2.3 */
    assert_false(diagnose(&r)->found.unlearned);
    r.o0 = ", \"implementations\": [{\"op\": \"loss\", \"type\": \"cross_entropy\"}], \"probes\": "
           "{\"signals\": [{\"op\": "
           "\"decoder\", \"units\": 8}], \"tensors\": [{\"kind\": \"activation_gradient\", \"layer\": "
           "\"decoder\"}]}";
    assert_true(diagnose(&r)->found.unlearned); /* log(8) = 2.08 */
}

#define CONSTANT(loss, factor)                                                                               \
    "\"implementations\": [{\"op\": \"ce\", \"type\": \"cross_entropy\"}], \"vitals\": "                     \
    "{\"constant_loss\": {\"loss\": " loss ", \"batches\": 1, \"parts\": [{\"op\": \"ce\", "                 \
    "\"loss\": 2.3, \"factor\": " factor "}]}}"
#define SHUFFLED(other)                                                                                      \
    ", \"test_loss_shuffled\": {\"matched\": 2.0, \"shuffled\": " other ", \"standard_error\": 0.01, "       \
    "\"batches\": 4, \"shuffles\": 8}"

/* The losses of these records fall from 2.3 to 2.1. */
static void what_knowing_nothing_costs_is_in_the_loss_s_units(void **state) {
    (void)state;
    record r = sound;
    r.o0_last = r.cell_last = 2.1;
    r.o0 = ", " CONSTANT("2.3", "1");
    assert_false(diagnose(&r)->found.unlearned);
    r.o0 = ", " CONSTANT("2.09", "1"); /* classes of unequal frequency */
    assert_true(diagnose(&r)->found.unlearned);
    r.o0 = ", " CONSTANT("2355.2", "1024"); /* a loss that is summed */
    r.o0_first = 2600;
    r.o0_last = 1500;
    assert_false(diagnose(&r)->found.unlearned);
    r.o0_last = 2400;
    assert_true(diagnose(&r)->found.unlearned);
}

static void targets_decide_where_no_constant_does(void **state) {
    (void)state;
    record r = sound;
    r.o0_last = r.cell_last = 2.1;
    r.o0 = ", \"vitals\": {\"constant_loss\": null}" SHUFFLED("2.005");
    assert_true(diagnose(&r)->found.unlearned);
    r.o0 = ", \"vitals\": {\"constant_loss\": null}" SHUFFLED("2.1");
    assert_false(diagnose(&r)->found.unlearned);
    r.o0 = ", " CONSTANT("2.09", "1") SHUFFLED("2.1"); /* worse than a constant so far */
    assert_false(diagnose(&r)->found.unlearned);
    r.o0 = ", \"vitals\": {\"constant_loss\": null}";
    assert_false(diagnose(&r)->found.unlearned);
}

#define CLASS_LOSS(more)                                                                                     \
    "}, \"graph\": {\"ops\": [{\"op\": \"loss\", \"type\": \"cross_entropy\", \"inputs\": [\"fc\"], "        \
    "\"traits\": "                                                                                           \
    "[\"class_loss\"]" more "}]}, \"unused\": {\"x\": 0"

/* 30 for 32 rows is 0.94 a row; a mean of 30 is far above what knowing nothing costs. */
static void a_summed_loss_is_not_compared_with_chance(void **state) {
    (void)state;
    record r = sound;
    r.o0_first = 74;
    r.o0_last = r.cell_last = 30;
    r.config = CLASS_LOSS(", \"reduction\": \"sum\"");
    assert_false(diagnose(&r)->found.unlearned);
    r.config = CLASS_LOSS("");
    assert_true(diagnose(&r)->found.unlearned);
}

/* ---- not precision --------------------------------------------------------------------------- */

static void data_and_weights_that_are_no_numbers_are_named(void **state) {
    (void)state;
    record r = sound;
    r.o0_bad = r.cell_bad = 3;
    r.o0 = ", \"vitals\": {\"nonfinite_inputs\": {\"batches\": 2, \"first_step\": 3, \"samples\": 1, "
           "\"batch\": 64, "
           "\"features\": 1, \"features_in_every_sample\": 0}}";
    expect(&r, "nonfinite_data", NULL);
    r.o0 = ", \"vitals\": {\"nonfinite_inputs\": {\"batches\": 77, \"first_step\": 3, \"samples\": 64, "
           "\"batch\": 64, "
           "\"features\": 28, \"features_in_every_sample\": 28}}";
    expect(&r, "data_normalization_division_by_zero", NULL);
    r.o0 = ", \"vitals\": {\"initial_weights\": {\"nonfinite\": 1, \"nonfinite_name\": \"h.0.fc.weight\"}}";
    expect(&r, "nonfinite_initial_weight", "h.0.fc");
    r.o0 = "";
    expect_no(&r, "nonfinite_data");
    expect_no(&r, "nonfinite_initial_weight");
}

#define EVENT(op, type, pass, by, cause, format)                                                             \
    ", \"probes\": {\"origin\": {\"events\": [{\"step\": 0, \"expected\": false, \"op\": \"" op              \
    "\", \"type\": \"" type "\", \"pass\": \"" pass "\", \"by\": \"" by "\", \"format\": \"" format          \
    "\", \"read_largest\": 700, "                                                                            \
    "\"cause\": {\"id\": \"" cause "\"}}]}}"

static void a_formula_without_a_value_is_no_matter_of_formats(void **state) {
    (void)state;
    record r = sound;
    r.o0_bad = r.cell_bad = 0;
    r.o0 = EVENT("log", "log", "forward", "op", "mathematics", "fp32");
    expect(&r, "math_singularity", "log");
    r.o0 = EVENT("fc", "linear", "backward", "op", "range_overflow", "fp32");
    expect_no(&r, "math_singularity");
}

static void a_flat_o0_is_told_apart_by_its_cause(void **state) {
    (void)state;
    record r = sound;
    r.o0_last = r.cell_last = 2.302;
    r.o0 = ", \"vitals\": {\"labels\": {\"samples\": 4096, \"between_class_ratio\": 1.1, \"control_ratio\": "
           "0.9}}";
    expect(&r, "label_corruption", NULL);
    r.o0 = ", \"vitals\": {\"labels\": {\"samples\": 4096, \"between_class_ratio\": 40, \"control_ratio\": "
           "0.9}}";
    expect_no(&r, "label_corruption");
    /* chance moves the ratio of 10 classes by 0.47, of 64 by 0.18 */
    r.o0 = ", \"vitals\": {\"labels\": {\"samples\": 4096, \"classes\": 10, \"between_class_ratio\": 1.9, "
           "\"control_ratio\": 1}}";
    expect(&r, "label_corruption", NULL);
    r.o0 = ", \"vitals\": {\"labels\": {\"samples\": 4096, \"classes\": 64, \"between_class_ratio\": 1.9, "
           "\"control_ratio\": 1}}";
    expect_no(&r, "label_corruption");
    r.o0 = ", \"vitals\": {\"initial_weights\": {\"count\": 10000, \"rms\": 0.02}}, \"probes\": "
           "{\"steps_probed\": 2, "
           "\"lost_updates\": [{\"update\": {\"energy\": 2e-12}}]}";
    expect(&r, "learning_rate_too_low", NULL); /* norm 1e-6 of 2 a step, 80 steps: 4e-5 */
    r.o0 = ", \"vitals\": {\"initial_weights\": {\"count\": 10000, \"rms\": 0.02}}, \"probes\": "
           "{\"steps_probed\": 2, "
           "\"lost_updates\": [{\"update\": {\"energy\": 2e-4}}]}";
    expect_no(&r, "learning_rate_too_low");
    r.o0 = ", \"probes\": {\"signals\": [{\"op\": \"relu2\", \"type\": \"relu\", \"silent_first\": 1, "
           "\"silent_last\": 1}]}";
    expect(&r, "dead_activation", "relu2");
    r.o0 = ", \"probes\": {\"signals\": [{\"op\": \"relu2\", \"type\": \"relu\", \"silent_first\": 0, "
           "\"silent_last\": 0.6}]}";
    expect_no(&r, "dead_activation");
    r.o0 = ", \"probes\": {\"signals\": [{\"op\": \"relu2\", \"type\": \"relu\", \"silent_first\": 0.2, "
           "\"silent_last\": 1}]}";
    expect(&r, "learning_rate_too_high", NULL); /* it was alive: large steps silenced it */
    r.o0 = ", \"probes\": {\"unscaled_gradients\": [{\"name\": \"a.weight.grad\", \"layer\": \"a\", "
           "\"count\": 100, "
           "\"steps\": {\"energy\": [1e-12]}}, {\"name\": \"b.weight.grad\", \"layer\": \"b\", \"count\": "
           "100, \"steps\": "
           "{\"energy\": [1]}}]}";
    expect(&r, "vanishing_gradient", "a");
    r.o0 = ", \"probes\": {\"unscaled_gradients\": [{\"name\": \"e.weight.grad\", \"layer\": \"e\", "
           "\"count\": 100, "
           "\"steps\": {\"energy\": [0.1]}}, {\"name\": \"a.weight.grad\", \"layer\": \"a\", "
           "\"count\": 100, \"steps\": {\"energy\": [1e-12]}}, {\"name\": \"b.weight.grad\", \"layer\": "
           "\"b\", \"count\": "
           "100, \"steps\": {\"energy\": [1]}}]}";
    expect_no(&r, "vanishing_gradient"); /* it gets through to the first layer */
    r.o0 = ", \"probes\": {\"unscaled_gradients\": [{\"name\": \"e.weight.grad\", \"layer\": \"e\", "
           "\"count\": 100, "
           "\"steps\": {\"energy\": [2e-12]}}, {\"name\": \"a.weight.grad\", \"layer\": \"a\", "
           "\"count\": 100, \"steps\": {\"energy\": [1e-12]}}, {\"name\": \"b.weight.grad\", \"layer\": "
           "\"b\", \"count\": "
           "100, \"steps\": {\"energy\": [1]}}]}";
    expect(&r, "vanishing_gradient", "e"); /* the end of the way, though another one's are smaller yet */
    r.o0 = ", \"probes\": {\"unscaled_gradients\": [{\"name\": \"r.weight_ih_l0.grad\", \"layer\": \"r\", "
           "\"count\": 100, \"steps\": {\"energy\": [1e-12]}}, {\"name\": \"out.weight.grad\", \"layer\": "
           "\"out\", \"count\": 100, \"steps\": {\"energy\": [1]}}]}";
    expect(&r, "vanishing_gradient", "r"); /* a recurrence */
}

#define OF_LAYER(name, energies)                                                                             \
    "{\"name\": \"" name ".weight.grad\", \"layer\": \"" name                                                \
    "\", \"count\": 200, \"steps\": {\"first\": 0, \"stride\": 40, \"energy\": [" energies "]}}"

/* Of three layers, c has the largest gradients and learns nothing. */
static void the_layer_whose_gradient_vanished_first_is_named(void **state) {
    (void)state;
    record r = sound;
    r.o0_last = r.cell_last = 2.302;
    r.o0 = ", \"probes\": {\"unscaled_gradients\": [" OF_LAYER("a", "1, 1e-14") ", " OF_LAYER(
        "b", "1e-12, 1e-12") ", " OF_LAYER("c", "1, 1e7") "]}";
    expect(&r, "vanishing_gradient", "b"); /* before those of a were */
    r.o0 = ", \"probes\": {\"unscaled_gradients\": [" OF_LAYER("a", "1e-12, 1e-14") ", " OF_LAYER(
        "b", "1e-12, 1e-12") ", " OF_LAYER("c", "1, 1e7") "]}";
    expect(&r, "vanishing_gradient", "a"); /* at the same step the end of the way */
}

static void a_divergence_in_o0_is_the_rate_or_the_initial_weights(void **state) {
    (void)state;
    record r = sound;
    r.o0_bad = r.cell_bad = 10;
    r.o0_last = r.cell_last = 400;
    expect(&r, "learning_rate_too_high", NULL);
    r.o0 = ", \"probes\": {\"signals\": [{\"op\": \"a\", \"rms_first\": 1}, {\"op\": \"b\", \"rms_first\": "
           "500}, {\"op\": \"c\", "
           "\"rms_first\": 90000}]}";
    expect(&r, "exploding_signal", "b");
}

/* An O0 that begins a million times above chance: that the half format overflows is no news. */
static void an_overflow_of_a_signal_that_explodes_in_o0_too_is_its_consequence(void **state) {
    (void)state;
    record r = sound;
    r.o0_first = 1e7;
    r.o0_last = 1e6;
    r.cell_bad = 0;
    r.o0 = ", \"probes\": {\"signals\": [{\"op\": \"a\", \"rms_first\": 1}, {\"op\": \"b\", \"rms_first\": "
           "500}, {\"op\": \"c\", \"rms_first\": 90000}]}";
    r.cell = ", \"probes\": {\"origin\": {\"events\": [{\"step\": 0, \"expected\": false, \"op\": \"c\", "
             "\"type\": \"linear\", \"pass\": \"forward\", \"by\": \"op\", \"format\": \"fp16\", \"cause\": "
             "{\"id\": \"range_overflow\"}}]}}";
    expect(&r, "exploding_signal", "b");
    r.o0_first = 2.4; /* merely not learning: the overflow is the cell's own */
    r.o0_last = 2.4;
    r.o0 = "";
    expect(&r, "activation_overflow", "c");
}

static void a_schedule_that_takes_the_rate_away_stops_o0(void **state) {
    (void)state;
#define STOPPED(step)                                                                                        \
    ", \"probes\": {\"lost_updates\": [{\"name\": \"fc.weight\", \"update\": {\"energy\": 1}, \"freeze\": "  \
    "{\"lr\": 1e-20, \"stopped_since_step\": " step "}}]}"
    record r = sound;
    r.o0_last = r.cell_last = 1.8;
    r.o0 = STOPPED("20");
    expect(&r, "learning_rate_too_low", NULL);
    assert_string_equal(diagnosis.verdict[0].remedy.option[0], "--schedule");
    r.o0 = STOPPED("70"); /* as a cosine ends */
    assert_false(diagnose(&r)->found.sick);
    r.o0 = STOPPED("null");
    assert_false(diagnose(&r)->found.sick);
    r.o0_last = r.cell_last = 0.3; /* it had learned by then */
    r.o0 = STOPPED("20");
    assert_false(diagnose(&r)->found.sick);
}

static void a_rate_that_throws_weights_about_need_not_raise_the_loss_threefold(void **state) {
    (void)state;
    record r = sound;
    r.o0_last = r.cell_last = 2.6;
#define GROWN(size)                                                                                          \
    ", \"vitals\": {\"initial_weights\": {\"count\": 100, \"rms\": 0.1}, \"final_weights\": {\"rms\": " size \
    "}}"
    r.o0 = GROWN("1.1");
    expect(&r, "learning_rate_too_high", NULL);
    r.o0 = GROWN("0.13");
    expect_no(&r, "learning_rate_too_high");
}

static void a_net_that_learns_little_is_thrown_about_by_its_steps(void **state) {
    (void)state;
    record r = sound;
    r.o0_last = r.cell_last = 1.5;
    r.peak = 2.5;
#define STEPPING(size, energy)                                                                               \
    ", \"vitals\": {\"initial_weights\": {\"count\": 100, \"rms\": 0.1}, \"final_weights\": {\"rms\": " size \
    "}}, \"probes\": {\"steps_probed\": 2, \"lost_updates\": [{\"update\": {\"energy\": " energy "}}]}"
    r.o0 = STEPPING("0.4", "0.18"); /* sqrt(0.18 / 2) is 0.3 of the norm of the weights, 1 */
    expect(&r, "learning_rate_too_high", NULL);
    assert_true(diagnosis.found.misconfigured);
    r.o0 = STEPPING("0.4", "0.01");
    assert_false(diagnose(&r)->found.sick);
    r.o0 = STEPPING("0.2", "0.18");
    assert_false(diagnose(&r)->found.sick);
    r.peak = 0; /* small weights that are normalized grow like this, and learn */
    r.o0 = STEPPING("24", "180");
    assert_false(diagnose(&r)->found.sick);
    r.o0_last = r.cell_last = 2; /* but these did not */
    expect(&r, "learning_rate_too_high", NULL);
    r.peak = 2.5;
    r.o0_last = r.cell_last = 0.2; /* it learned */
    r.o0 = STEPPING("0.4", "0.18");
    assert_false(diagnose(&r)->found.sick);
    r.peak = 9;
    r.o0 = STEPPING("0.4", "2.2"); /* after it had quadrupled, by steps as large as its weights */
    expect(&r, "learning_rate_too_high", NULL);
}

static void a_loss_that_rose_and_stayed_high_is_the_rate(void **state) {
    (void)state;
    record r = sound;
    r.o0_last = r.cell_last = 2;
    r.peak = 3;
    expect(&r, "learning_rate_too_high", NULL);
    r.peak = 2.6; /* noise of small batches */
    assert_false(diagnose(&r)->found.sick);
    r.peak = 3;
    r.o0_last = r.cell_last = 1.3; /* a language model that began with a jump */
    assert_false(diagnose(&r)->found.sick);
    r.peak = 8;
    expect(&r, "learning_rate_too_high", NULL);
    r.o0_last = r.cell_last = 0.5; /* a spike that was made good */
    assert_false(diagnose(&r)->found.sick);
}

/* The gradient of a mean of 256 rows cannot have more energy than 2 / 256. */
static void summed_micro_batches_break_a_bound(void **state) {
    (void)state;
    record r = sound;
    r.config = ", \"gradient_accumulation_steps\": 4";
    r.o0_bad = r.cell_bad = 5;
#define LOGITS(energy)                                                                                       \
    ", \"implementations\": [{\"op\": \"loss\", \"type\": \"cross_entropy\"}], \"probes\": "                 \
    "{\"steps_probed\": 1, \"tensors\": "                                                                    \
    "[{\"kind\": \"activation_gradient\", \"count\": 2560, \"steps\": {\"energy\": [" energy                 \
    "], \"nonzero\": [2560]}}]}"
    r.o0 = LOGITS("0.056"); /* 0.9 / 256 x 16 */
    expect(&r, "accumulation_not_averaged", NULL);
    r.o0 = LOGITS("0.0035");
    expect_no(&r, "accumulation_not_averaged");
    r.o0_bad = r.cell_bad = -1; /* it trains: nothing else makes such a gradient */
    r.o0 = LOGITS("0.056");
    expect(&r, "accumulation_not_averaged", NULL);
    assert_true(diagnosis.found.misconfigured);
    r.o0 = LOGITS("0.0035");
    assert_false(diagnose(&r)->found.sick);
    r.o0 = ", \"scale\": [[1024, 80]]" LOGITS("3670"); /* 0.0035 at a fixed scale, which is O0's too */
    assert_false(diagnose(&r)->found.sick);
    r.o0_bad = r.cell_bad = 5;
    /* of next tokens the data have no classes: the decoder is 256 wide, so these are 10 rows */
    r.config = ", \"gradient_accumulation_steps\": 4}, \"data\": {\"classes\": 0}, \"unused\": {\"x\": 0";
#define TOKENS(energy)                                                                                       \
    ", \"implementations\": [{\"op\": \"loss\", \"type\": \"cross_entropy\"}], \"probes\": "                 \
    "{\"steps_probed\": 1, \"signals\": [{\"op\": \"decoder\", \"units\": 256}], \"tensors\": "              \
    "[{\"kind\": \"activation_gradient\", \"layer\": \"decoder\", \"count\": 2560, \"steps\": "              \
    "{\"energy\": [" energy "], \"nonzero\": [2560]}}]}"
    r.o0 = TOKENS("0.7");
    expect(&r, "accumulation_not_averaged", NULL);
    r.o0 = TOKENS("0.1");
    expect_no(&r, "accumulation_not_averaged");
}

/* ---- precision ------------------------------------------------------------------------------- */

static const struct {
    const char *event, *ops, *id, *layer;
} overflows[] = {
    {EVENT("s", "matmul", "forward", "op", "range_overflow", "fp16"),
     "{\"op\": \"s\", \"type\": \"matmul\"}, {\"op\": \"l\", \"type\": \"scale\"}, {\"op\": \"p\", "
     "\"type\": \"softmax\"}",
     "attention_logit_overflow", "s"},
    {EVENT("q", "square", "forward", "op", "", "fp16"),
     "{\"op\": \"q\", \"type\": \"square\"}, {\"op\": \"m\", \"type\": \"mean\"}, {\"op\": \"r\", "
     "\"type\": \"rsqrt\"}",
     "norm_statistics_in_half", "q"},
    {EVENT("r", "rsqrt", "forward", "op", "mathematics", "fp16"),
     "{\"op\": \"q\", \"type\": \"square\"}, {\"op\": \"m\", \"type\": \"mean\"}, {\"op\": \"r\", "
     "\"type\": \"rsqrt\"}",
     "norm_statistics_in_half", "r"},
    {EVENT("d", "div", "forward", "op", "mathematics", "fp16"),
     "{\"op\": \"q\", \"type\": \"square\"}, {\"op\": \"m\", \"type\": \"mean\"}, {\"op\": \"r\", "
     "\"type\": \"sqrt\"}, {\"op\": \"d\", \"type\": \"div\"}",
     "norm_statistics_in_half", "d"},
    {EVENT("d", "div", "forward", "op", "mathematics", "fp16"),
     "{\"op\": \"e\", \"type\": \"exp\"}, {\"op\": \"t\", \"type\": \"sum\"}, {\"op\": \"d\", \"type\": "
     "\"div\"}",
     "exp_log_in_half", "d"},
    {EVENT("d", "div", "forward", "op", "range_overflow", "fp16"),
     "{\"op\": \"a\", \"type\": \"linear\"}, {\"op\": \"d\", \"type\": \"div\"}", "activation_overflow", "d"},
    {EVENT("p", "softmax", "forward", "op", "mathematics", "fp16"),
     "{\"op\": \"k\", \"type\": \"masked_fill\"}, {\"op\": \"p\", \"type\": \"softmax\"}",
     "attention_logit_overflow", "p"},
    {EVENT("e", "exp", "forward", "op", "", "fp16"), "{\"op\": \"e\", \"type\": \"exp\"}", "exp_log_in_half",
     "e"},
    {EVENT("t", "sum", "forward", "op", "", "fp16"), "{\"op\": \"t\", \"type\": \"sum\"}",
     "reduction_overflow", "t"},
    {EVENT("q", "square", "forward", "op", "", "fp16"),
     "{\"op\": \"q\", \"type\": \"square\"}, {\"op\": \"t\", \"type\": \"sum\"}", "reduction_overflow", "q"},
    {EVENT("q", "square", "forward", "op", "", "fp16"),
     "{\"op\": \"q\", \"type\": \"square\"}, {\"op\": \"t\", \"type\": \"relu\"}", "activation_overflow",
     "q"},
    {EVENT("q", "square", "forward", "op", "", "fp16"), /* the sum is of the other squares */
     "{\"op\": \"q\", \"type\": \"square\"}, {\"op\": \"r\", \"type\": \"square\"}, {\"op\": \"t\", "
     "\"type\": \"sum\"}",
     "activation_overflow", "q"},
    {EVENT("f", "linear", "forward", "op", "range_overflow", "fp16"), "{\"op\": \"f\", \"type\": \"linear\"}",
     "activation_overflow", "f"},
    {EVENT("f", "linear", "forward", "weight_cast", "", "fp16"), "{\"op\": \"f\", \"type\": \"linear\"}",
     "weight_overflow", "f"},
};

static void the_op_that_overflows_says_what_kind_of_overflow_it_is(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof overflows / sizeof overflows[0]; i++) {
        char cell[2048];
        snprintf(cell, sizeof cell, "%s, \"implementations\": [%s]", overflows[i].event, overflows[i].ops);
        record r = sound;
        r.cell = cell;
        r.cell_bad = 0;
        expect(&r, overflows[i].id, overflows[i].layer);
        r.cell_bad = -1;
        r.cell_last = 2.3; /* 1/inf is 0: no loss is lost, nothing is learned */
        expect(&r, overflows[i].id, overflows[i].layer);
        r.cell_last = 0.3; /* and where it does no harm nothing is said */
        assert_false(diagnose(&r)->found.sick);
    }
}

#define OP(op, type, inputs, traits)                                                                         \
    "{\"op\": \"" op "\", \"type\": \"" type "\", \"inputs\": [" inputs "], \"traits\": [" traits "]}"

/* The same list of ops, with other edges. */
static void what_kind_of_overflow_it_is_follows_the_edges_of_the_graph(void **state) {
    static const char scores[] =
        OP("s", "matmul", "\"input\", \"input\"", "\"product\", \"activation_product\"");
    static const char scale[] = OP("l", "my_scale", "\"s\"", "\"scaling\"");
    static const struct {
        const char *soft, *id;
    } known[] = {{OP("p", "softmax", "\"l\"", "\"softmax\""), "attention_logit_overflow"},
                 {OP("p", "softmax", "\"s\"", "\"softmax\""), "activation_overflow"}};
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        char config[1024];
        record r = sound;
        snprintf(config, sizeof config, "}, \"graph\": {\"ops\": [%s, %s, %s]", scores, scale, known[i].soft);
        r.config = config;
        r.cell = EVENT("l", "my_scale", "forward", "op", "range_overflow", "fp16");
        r.cell_bad = 0;
        expect(&r, known[i].id, "l");
    }
}

/* A record with these ops round the first non-finite value, and members of the document behind them. */
#define OPS(ops, more) "}, \"graph\": {\"ops\": [" ops "]}" more ", \"rest\": {\"is\": 0"
#define NAMED(name, traits, inputs) OP(name, name, inputs, traits)
#define READ(op, largest, cause)                                                                             \
    ", \"probes\": {\"origin\": {\"events\": [{\"step\": 8, \"expected\": false, \"op\": \"" op              \
    "\", \"type\": \"" op "\", \"pass\": \"forward\", \"by\": \"op\", \"format\": \"fp16\", "                \
    "\"read_largest\": " largest ", \"cause\": {\"id\": \"" cause "\"}}]}}"

static void a_mask_that_overflows_hides_every_key_of_a_row(void **state) {
    (void)state;
    record r = sound;
    r.cell_bad = 8;
    r.cell = READ("times", "1", "range_overflow");
#define ADDED_MASK                                                                                           \
    NAMED("bits", "\"arithmetic\"", "")                                                                      \
    ", " NAMED("times", "\"scaling\"", "\"bits\"") ", " NAMED(                                               \
        "qk", "\"product\", \"activation_product\"",                                                         \
        "") ", " NAMED("add", "\"arithmetic\"", "\"qk\", \"times\"") ", " NAMED("softmax", "\"softmax\"",    \
                                                                                "\"add\"")
#define HIDDEN(place)                                                                                        \
    ", \"probe\": {\"facts\": [{\"name\": \"hidden_rows\", \"place\": \"" place "\", \"largest\": 3}]}"
    r.config = OPS(ADDED_MASK, HIDDEN("times"));
    expect(&r, "masked_rows_nan", "times");
    r.config = OPS(ADDED_MASK, ""); /* its infinities became NaN in another way */
    expect(&r, "attention_logit_overflow", "times");
    r.config = OPS(ADDED_MASK, HIDDEN("another"));
    expect(&r, "attention_logit_overflow", "times");
    r.config = OPS(NAMED("qk", "\"product\", \"activation_product\"", "") ", " NAMED(
                       "times", "\"scaling\"", "\"qk\"") ", " NAMED("softmax", "\"softmax\"", "\"times\""),
                   "");
    expect(&r, "attention_logit_overflow", "times");
    r.config = OPS(NAMED("bits", "\"arithmetic\"", "") ", " NAMED("times", "\"scaling\"", "\"bits\""), "");
    expect(&r, "activation_overflow", "times"); /* no softmax reads it */
}

/* What has no value at its inputs in double either left no range: rounding to half made those inputs. */
static void a_formula_without_a_value_in_half_is_no_overflow(void **state) {
    (void)state;
    record r = sound;
    r.cell_bad = 8;
    r.cell = READ("div", "1", "mathematics");
    r.config = OPS(NAMED("sub", "\"arithmetic\"", "") ", " NAMED("div", "\"quotient\"", "\"sub\""), "");
    expect(&r, "math_singularity", "div");
    r.config = OPS(NAMED("exp", "\"exponential\"", "") ", " NAMED("mv", "\"product\"", "\"exp\"") ", " NAMED(
                       "div", "\"quotient\"", "\"mv\""),
                   "");
    expect(&r, "exp_log_in_half", "div"); /* all its terms became 0 */
    r.cell = READ("div", "1", "range_overflow");
    expect(&r, "activation_overflow", "div");
}

static void a_constant_that_multiplies_a_small_sum_is_no_reduction(void **state) {
    (void)state;
    record r = sound;
    r.cell_bad = 8;
    r.config = OPS(NAMED("mean", "\"sum\"", "") ", " NAMED("times", "\"scaling\"", "\"mean\""), "");
    r.cell = READ("times", "2.5", "range_overflow");
    expect(&r, "activation_overflow", "times");
    r.cell = READ("times", "40000", "range_overflow");
    expect(&r, "reduction_overflow", "times");
}

static void what_prepared_the_data_is_no_norm_of_the_network(void **state) {
    (void)state;
    record r = sound;
    r.cell_bad = 0;
    r.cell = READ("sum", "190", "range_overflow");
#define STATISTICS                                                                                           \
    NAMED("sum", "\"sum\"", "")                                                                              \
    ", " NAMED("sub", "\"arithmetic\"", "\"sum\"") ", " NAMED("std", "\"root\"", "\"sub\"")
#define DIVIDED STATISTICS ", " NAMED("div", "\"quotient\"", "\"std\"")
    r.config = OPS(DIVIDED, "");
    expect(&r, "norm_statistics_in_half", "sum");
    r.config = OPS(STATISTICS, ""); /* a root mean square error: nothing is divided by it */
    expect(&r, "reduction_overflow", "sum");
    r.config =
        OPS(DIVIDED, ", \"probe\": {\"facts\": [{\"name\": \"made_before_training\", \"place\": \"sum\", "
                     "\"largest\": 1}]}");
    expect(&r, "reduction_overflow", "sum");
}

/* What a loop's probe saw of data: "prepared" ran before the first step, and argument x of the model is not
 * finite in so many of 64 rows. */
#define LOOP_OF(ops, facts)                                                                                  \
    OPS(ops, ", \"probe\": {\"groups\": [{\"lr_last\": 0.1}], \"facts\": [" facts "]}")
#define FACT(name, place, value)                                                                             \
    "{\"name\": \"" name "\", \"place\": \"" place "\", \"first\": " value ", \"largest\": " value           \
    ", \"first_step\": 0}"
#define PREPARED FACT("made_before_training", "prepared", "1")
#define BAD_ROWS(share, rows)                                                                                \
    FACT("nonfinite_inputs", "Net(x)", share) ", " FACT("nonfinite_input_rows", "Net(x)", rows)

/* Values beyond the half format before any layer reads them are data, not an overflow of the forward pass. */
static void a_cast_of_data_before_the_training_is_no_overflow_of_the_network(void **state) {
    (void)state;
    record r = sound;
    r.cell_bad = 0;
    r.cell = ", \"probes\": {\"origin\": {\"events\": [{\"step\": 0, \"expected\": false, \"op\": "
             "\"prepared\", \"type\": \"cast\", \"pass\": \"forward\", \"by\": \"cast\", \"format\": "
             "\"fp16\", \"read_largest\": 4e5, \"cause\": {\"id\": \"range_overflow\", \"value\": 4e5}}]}}";
    r.config = LOOP_OF("", PREPARED ", " BAD_ROWS("0.5", "32"));
    expect(&r, "nonfinite_data", "prepared");
    assert_int_equal(diagnosis.verdicts, 1);
    assert_string_equal(diagnosis.verdict[0].evidence[2].text,
                        "Net(x) is not finite in 32 of 64 rows before a layer reads it, at step 0");
    r.config = LOOP_OF("", PREPARED); /* a table of weights: no input */
    expect(&r, "activation_overflow", "prepared");
    r.config = LOOP_OF("", BAD_ROWS("0.5", "32")); /* the network's own cast */
    expect(&r, "activation_overflow", "prepared");
}

/* A division before the training without a value: of a feature of some samples it is their data; of all, a
 * formula, as the degree of a node without neighbours is. */
static void a_division_before_the_training_is_of_the_data_where_some_samples_have_it(void **state) {
    (void)state;
    record r = sound;
    r.o0_bad = r.cell_bad = 0;
#define PREPARED_QUOTIENT                                                                                    \
    ", \"probes\": {\"origin\": {\"events\": [{\"step\": 0, \"expected\": false, \"op\": \"prepared\", "     \
    "\"type\": \"div\", \"pass\": \"forward\", \"by\": \"op\", \"format\": \"fp32\", \"read_largest\": 9, "  \
    "\"cause\": {\"id\": \"mathematics\"}}]}}"
    r.o0 = r.cell = PREPARED_QUOTIENT;
#define DIVIDED_BEFORE(rows) LOOP_OF(NAMED("prepared", "\"quotient\"", ""), PREPARED ", " rows)
    r.config = DIVIDED_BEFORE(BAD_ROWS("0.03", "2"));
    expect(&r, "nonfinite_data", "prepared");
    assert_int_equal(diagnosis.verdicts, 1);
    r.config = DIVIDED_BEFORE(BAD_ROWS("1", "64"));
    expect(&r, "math_singularity", "prepared");
}

#define VALUED(op, type, step, pass, format, cause, value)                                                   \
    ", \"probes\": {\"origin\": {\"events\": [{\"step\": " step ", \"expected\": false, \"op\": \"" op       \
    "\", \"type\": \"" type "\", \"pass\": \"" pass "\", \"by\": \"op\", \"format\": \"" format              \
    "\", \"read_largest\": 100, \"cause\": {\"id\": \"" cause "\", \"value\": " value "}}]}}"

/* Every kind of overflow of half asks that fp32 would hold the value. */
static void what_fp32_does_not_hold_either_is_no_overflow_of_half(void **state) {
    static const struct {
        const char *ops, *id, *beyond; /* what is said where it is beyond fp32 too; NULL: nothing */
    } rows[] = {
        {OPS(NAMED("l", "", ""), ""), "activation_overflow", NULL},
        {OPS(NAMED("l", "\"product\", \"attention\"", ""), ""), "attention_logit_overflow", NULL},
        {OPS(NAMED("l", "\"sum\"", ""), ""), "reduction_overflow", NULL},
        {OPS(NAMED("l", "\"normalization\"", ""), ""), "norm_statistics_in_half", NULL},
        {OPS(NAMED("l", "\"exponential\"", ""), ""), "exp_log_in_half", "math_singularity"},
    };
    (void)state;
    record r = sound;
    r.cell_bad = 8;
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
        r.config = rows[i].ops;
        r.cell = VALUED("l", "l", "8", "forward", "fp16", "range_overflow", "7e4");
        expect(&r, rows[i].id, "l");
        r.cell = VALUED("l", "l", "8", "forward", "fp16", "range_overflow", "1e39");
        if (rows[i].beyond)
            expect(&r, rows[i].beyond, "l");
        else
            assert_int_equal(diagnose(&r)->verdicts, 0);
    }
}

/* In fp32, of a loop's own: an exponential is a formula, anything else a signal that grows; unless steps are
 * large, or nobody knows how large. */
static void what_leaves_fp32_is_a_formula_or_a_signal_that_grows(void **state) {
    (void)state;
    record r = sound;
    r.o0_bad = r.cell_bad = 0;
#define BEYOND_FP32(step) VALUED("l", "l", step, "forward", "fp32", "range_overflow", "1e50")
    r.o0 = r.cell = BEYOND_FP32("0");
    r.config = LOOP_OF(NAMED("l", "\"sum\"", ""), "");
    expect(&r, "exploding_signal", "l");
    r.config = LOOP_OF(NAMED("l", "\"exponential\"", ""), "");
    expect(&r, "math_singularity", "l");
    assert_int_equal(diagnosis.verdicts, 1);
    r.o0_bad = r.cell_bad = 5;
    r.o0 = r.cell = BEYOND_FP32("5");
    r.config = LOOP_OF(NAMED("l", "\"sum\"", ""), "");
    expect_no(&r, "exploding_signal");
    r.o0 = r.cell = VALUED("l", "l", "0", "forward", "fp32", "mathematics", "null");
    r.o0_bad = r.cell_bad = 0;
    expect_no(&r, "exploding_signal");
}

/* A gradient without a value at its input makes a scaler skip every step; the losses stay finite. */
static void a_derivative_without_a_value_stops_a_loop_that_scales(void **state) {
    (void)state;
    static char cell[TEXT / 16];
    record r = sound;
    r.cell_last = r.o0_last = 2.3;
    size_t n =
        (size_t)snprintf(cell, sizeof cell, "%s, \"steps_skipped\": %d, \"skipped_steps\": [0",
                         VALUED("root", "sqrt", "0", "backward", "fp32", "mathematics", "null"), STEPS);
    for (int i = 1; i < STEPS; i++) n += (size_t)snprintf(cell + n, sizeof cell - n, ", %d", i);
    snprintf(cell + n, sizeof cell - n, "]");
    r.cell = cell;
    r.config = LOOP_OF(NAMED("root", "\"root\"", ""), FACT("singular_at", "root", "0"));
    expect(&r, "math_singularity", "root");
    assert_string_equal(diagnosis.verdict[0].evidence[1].text, "what it read there is 0");
    char *pass = strstr(cell, "mathematics");
    memcpy(pass, "scale_indu", 10); /* a scale that is too high falls */
    expect_no(&r, "math_singularity");
}

/* An infinity in the half format of an operation at train.py:11, at the second step. */
#define AT_LINE                                                                                              \
    ", \"probes\": {\"origin\": {\"events\": [{\"step\": 1, \"expected\": false, \"op\": \"train.py:11\", "  \
    "\"place\": \"train.py:11\", \"type\": \"add\", \"pass\": \"forward\", \"by\": \"op\", \"format\": "     \
    "\"fp16\", "                                                                                             \
    "\"cause\": {\"id\": \"cannot_tell\"}}]}}"

/* Gradients that a loop adds up in half overflow there, and it leaves out every step: the sum is the cause,
 * and no pass of the net. */
static void a_sum_of_gradients_that_overflows_is_why_steps_are_left_out(void **state) {
    (void)state;
    static char cell[TEXT / 16];
    record r = sound;
    r.cell_last = 2.3;
    size_t n = (size_t)snprintf(cell, sizeof cell, "%s, \"steps_skipped\": %d, \"skipped_steps\": [0",
                                AT_LINE, STEPS);
    for (int i = 1; i < STEPS; i++) n += (size_t)snprintf(cell + n, sizeof cell - n, ", %d", i);
    snprintf(cell + n, sizeof cell - n, "]");
    r.cell = cell;
    r.config = OPS(NAMED("train.py:11", "\"arithmetic\"", ""),
                   ", \"probe\": {\"groups\": [{\"steps\": 60, \"steps_skipped\": 60, \"lr_last\": 0.1}], "
                   "\"facts\": [" FACT("gradient_increments_lost", "train.py:11", "1e-5") "]}");
    expect(&r, "accumulated_in_half", "train.py:11");
    bool named = false;
    for (int i = 1; i < diagnosis.verdicts; i++) {
        if (strcmp(diagnosis.verdict[i].rule->id, "silent_skips") != 0) continue;
        assert_int_equal(diagnosis.verdict[i].rank, AB_RANK_CONSEQUENCE);
        named = true;
    }
    assert_true(named);
    r.config =
        OPS(NAMED("train.py:11", "\"arithmetic\"", ""), ", \"probe\": {\"groups\": [{\"lr_last\": 0.1}]}");
    expect_no(&r, "accumulated_in_half");
}

#define TWO_EVENTS                                                                                           \
    "\"probes\": {\"origin\": {\"events\": [{\"step\": 0, \"expected\": false, \"op\": \"loss\", \"type\": " \
    "\"cross_entropy\", \"pass\": \"backward\", \"by\": \"cast\", \"format\": \"fp16\", \"cause\": "         \
    "{\"id\": "                                                                                              \
    "\"range_overflow\"}}, {\"step\": 30, \"expected\": false, \"op\": \"l\", \"type\": \"log\", \"pass\": " \
    "\"forward\", \"by\": \"op\", \"format\": \"fp16\", \"cause\": {\"id\": \"mathematics\"}}]}}"

/* 2^16 is no number of fp16, so the first scale overflows; or an infinity of a backward pass is masked away.
 */
static void what_went_wrong_first_and_did_no_harm_hides_nothing(void **state) {
    (void)state;
    record r = sound;
    r.cell_bad = 30;
    r.cell = ", \"skipped_steps\": [0], \"steps_skipped\": 1, " TWO_EVENTS;
    expect(&r, "exp_log_in_half", "l");
    r.cell = ", " TWO_EVENTS; /* not skipped, and the next losses are finite */
    expect(&r, "exp_log_in_half", "l");
    r.cell_bad = 1; /* it did reach the weights */
    expect_no(&r, "exp_log_in_half");
}

static void an_average_that_does_not_move_is_sick_only_in_half(void **state) {
    (void)state;
    record r = sound;
    r.config = ", \"ema\": 0.999, \"ema_format\": \"half\"";
    r.cell = ", \"test_loss\": 0.3, \"ema_test_loss\": 1.9, \"vitals\": {\"average\": {\"differing\": 100, "
             "\"stuck\": 93, "
             "\"distance_rms_share\": 0.6}}";
    expect(&r, "ema_in_half", NULL);
    r.cell = ", \"test_loss\": 0.3, \"ema_test_loss\": 1.9, \"vitals\": {\"average\": {\"differing\": 100, "
             "\"stuck\": 2, "
             "\"distance_rms_share\": 0.6}}";
    assert_false(diagnose(&r)->found.sick);
    /* the cell's own format counts: O0 of a run with --ema-format half keeps fp32 averages */
    r.cell = ", \"policy\": {\"ema_format\": \"fp32\"}, \"test_loss\": 0.3, \"ema_test_loss\": 1.9, "
             "\"vitals\": {\"average\": "
             "{\"differing\": 100, \"stuck\": 93, \"distance_rms_share\": 0.6}}";
    expect_no(&r, "ema_in_half");
}

/* The document, a JSON list of cells with a policy each; what is said of the last one's reference. */
static void expect_reference(const char *config, const char *policy, const char *expected) {
    char text[1024], said[256];
    snprintf(text, sizeof text,
             "{\"config\": {%s}, \"cells\": [{\"id\": \"n/O0/1\", \"model\": \"n\", \"level\": \"O0\", "
             "\"half_format\": "
             "\"fp16\", \"device\": \"cpu\", \"seed\": 1, \"twin\": null, \"policy\": {%s}}]}",
             config, policy);
    cJSON *document = cJSON_Parse(text);
    ab_facts facts;
    if (!document) fail_msg("no JSON: %s", text);
    ab_cells cells;
    assert_int_equal(ab_cells_create(document, &cells), AB_OK);
    assert_int_equal(ab_facts_of(&cells, 0, &ab_thresholds_default, &facts), AB_OK);
    ab_facts_reference(&facts, said, sizeof said);
    ab_cells_free(&cells);
    cJSON_Delete(document);
    assert_string_equal(said, expected);
}

static void an_o0_that_is_no_fp32_reference_is_told(void **state) {
    (void)state;
    const char *half =
        "\"optimizer_state\": \"half\", \"ema_format\": \"half\", \"overrides\": {\"to\": \"fc=half\"}";
    expect_reference(half, "\"reference\": \"fp32\"", "");
    expect_reference("\"optimizer_state\": \"weights\"",
                     "\"reference\": \"changed\", \"named\": \"to fc1=half\"",
                     "O0 is no fp32 reference here: to fc1=half");
    expect_reference(half, "",
                     "O0 is no fp32 reference here: --optimizer-state half, --ema-format half, --to fc=half");
    expect_reference("\"optimizer_state\": \"weights\", \"ema_format\": \"fp32\"", "", "");
}

/* Gradients of norm 65536 before unscaling and clipping, 1/65536 after them. */
#define CLIPPED                                                                                              \
    "\"steps_probed\": 1, \"tensors\": [{\"kind\": \"weight_gradient\", \"count\": 100, \"steps\": "         \
    "{\"energy\": [4294967296]}}], "                                                                         \
    "\"unscaled_gradients\": [{\"count\": 100, \"steps\": {\"energy\": [2.3e-10], \"nonzero\": [100]}}]"

#define ENERGIES(scaled, given)                                                                              \
    ", \"probes\": {\"steps_probed\": 1, \"tensors\": [{\"kind\": \"weight_gradient\", \"count\": 100, "     \
    "\"steps\": {\"energy\": [" scaled                                                                       \
    "]}}], \"unscaled_gradients\": [{\"count\": 100, \"steps\": {\"energy\": [" given                        \
    "], \"nonzero\": [100]}}]}"

static void clipping_before_unscaling_shows_in_the_sizes_of_gradients(void **state) {
    (void)state;
    record r = sound;
    r.config = ", \"clip_norm\": 1";
    r.cell_last = 2.3;
    r.cell = ENERGIES("4294967296", "2.3e-10"); /* norm 65536 before, 1/65536 after */
    expect(&r, "clip_before_unscale", NULL);
    r.cell = ENERGIES("4294967296", "1");
    expect_no(&r, "clip_before_unscale");
    r.config = ", \"clip_norm\": 0.01"; /* a norm of 1 that ends as 0.01 was clipped as it should be */
    r.cell = ENERGIES("4294967296", "0.0001");
    expect_no(&r, "clip_before_unscale");
    r.config = "";
    r.cell = ENERGIES("4294967296", "2.3e-10");
    expect_no(&r, "clip_before_unscale");
}

#define UPDATES(energy, lost)                                                                                \
    "\"lost_updates\": [{\"layer\": \"fc\", \"name\": \"fc.weight\", \"update\": {\"nonzero\": 100, "        \
    "\"energy\": " energy ", \"lost\": 96, \"lost_energy\": " lost ", \"lost_energy_share\": 0.9}}]"

/* Updates that are lost because clipping made them a 65536th are its consequence; as large as O0's they are
 * not. */
static void updates_that_clipping_made_small_are_not_lost_by_the_format(void **state) {
    (void)state;
    record r = sound;
    r.config = ", \"clip_norm\": 1";
    r.cell_last = 1.9;
    r.o0 = ", \"probes\": {" UPDATES("1", "0") "}";
    r.cell = ", \"policy\": {\"cast_model_type\": \"fp16\", \"master_weights\": false, \"loss_scale\": "
             "\"dynamic\"}, "
             "\"scale\": [[65536, 80]], \"probes\": {" UPDATES("2.3e-10", "2.2e-10") ", " CLIPPED "}";
    expect(&r, "clip_before_unscale", NULL);
    r.cell = ", \"policy\": {\"cast_model_type\": \"fp16\", \"master_weights\": false, \"loss_scale\": "
             "\"dynamic\"}, "
             "\"scale\": [[65536, 80]], \"probes\": {" UPDATES("1", "0.95") ", " CLIPPED "}";
    expect(&r, "weight_update_lost", "fc");
}

/* Of four probed steps at scale 16. */
#define FOUR(scaled, given)                                                                                  \
    ", \"policy\": {\"cast_model_type\": \"fp16\", \"loss_scale\": \"dynamic\"}, \"scale\": [[16, 80]], "    \
    "\"probes\": {\"steps_probed\": 4, \"tensors\": [{\"kind\": \"weight_gradient\", \"count\": 400, "       \
    "\"steps\": {\"first\": 0, \"stride\": 20, \"nonzero\": [100, 100, 100, 100], \"energy\": [" scaled      \
    "]}}], \"unscaled_gradients\": [{\"kind\": \"unscaled_gradient\", \"count\": 400, \"steps\": "           \
    "{\"first\": "                                                                                           \
    "0, \"stride\": 20, \"nonzero\": [100, 100, 0, 100], \"energy\": [" given "]}}]}"

/* A limit of 5 at a scale of 16 acts as one of 0.31: gradients of norm 1 (energy 256) end at 0.0977, those of
 * 0.25 (16) escape. */
static void clipping_before_unscaling_at_a_small_scale_shows_step_by_step(void **state) {
    (void)state;
    record r = sound;
    r.config = ", \"clip_norm\": 5";
    r.cell = FOUR("256, 256, 256, 16", "0.0977, 0.0977, 0, 0.0625"); /* the third step was skipped */
    expect(&r, "clip_before_unscale", NULL);
    r.cell = FOUR("256, 256, 256, 16", "1, 1, 0, 0.0625");
    assert_false(diagnose(&r)->found.sick);
    r.config = ", \"clip_norm\": 0.3125"; /* asked for */
    r.cell = FOUR("256, 256, 256, 16", "0.0977, 0.0977, 0, 0.0625");
    assert_false(diagnose(&r)->found.sick);
}

#define MICRO(scaled, given, times)                                                                          \
    ", \"probes\": {\"steps_probed\": 1, \"tensors\": [{\"kind\": \"weight_gradient\", \"count\": 400, "     \
    "\"steps\": {\"energy\": [" scaled "]}}], \"unscaled_gradients\": [{\"count\": " times                   \
    "00, \"steps\": {\"energy\": [" given "], \"nonzero\": [100]}}]}"

static void unscaling_every_micro_batch_shows_in_the_first_gradient(void **state) {
    (void)state;
    record r = sound;
    r.config = ", \"gradient_accumulation_steps\": 4";
    r.cell_last = 2.3;
    r.o0 = MICRO("0.25", "1", "1");
    r.cell = MICRO("1073741824", "0.08", "1"); /* one of four shares */
    expect(&r, "unscale_order_in_accumulation", NULL);
    r.cell = MICRO("1073741824", "0.97", "1");
    expect_no(&r, "unscale_order_in_accumulation");
    r.cell = MICRO("1073741824", "0.97", "4"); /* each element written four times */
    expect(&r, "unscale_order_in_accumulation", NULL);
}

/* A mistake that no sound run could have left in the record is said of a cell that trains as O0 does, too. */
static void a_mistake_that_shows_is_said_of_a_cell_that_trains(void **state) {
    (void)state;
    record r = sound;
    r.config = ", \"clip_norm\": 1";
    r.cell = ENERGIES("4294967296", "2.3e-10");
    expect(&r, "clip_before_unscale", NULL);
    assert_true(diagnosis.found.misconfigured);
    r.cell = ENERGIES("4294967296", "1");
    assert_false(diagnose(&r)->found.sick);
    r.cell = ", \"policy\": {\"cast_model_type\": \"fp16\", \"loss_scale\": \"dynamic\"}, \"scale\": "
             "[[65536, 40], "
             "[1024, 40]]" ENERGIES("4294967296", "2.3e-10");
    assert_false(diagnose(&r)->found.sick); /* scales of several sizes: what belongs to which is not known */
    r.config = ", \"gradient_accumulation_steps\": 4";
    r.o0 = MICRO("0.25", "1", "1");
    r.cell = MICRO("1073741824", "0.97", "4");
    expect(&r, "unscale_order_in_accumulation", NULL);
    r.cell =
        MICRO("1073741824", "0.08", "1"); /* smaller than O0's: not certain enough where nothing came of it */
    assert_false(diagnose(&r)->found.sick);
}

#define SIZES(raw, given)                                                                                    \
    ", \"probes\": {\"steps_probed\": 1, \"tensors\": [{\"kind\": \"weight_gradient\", \"count\": 100, "     \
    "\"max_abs\": " raw                                                                                      \
    ", \"steps\": {\"energy\": [1e10]}}], \"unscaled_gradients\": [{\"kind\": \"unscaled_gradient\", "       \
    "\"count\": 100, \"max_abs\": " given ", \"steps\": {\"energy\": [1], \"nonzero\": [100]}}]}"

/* Values that were cut at limit / scale (0.5 / 65536 = 7.63e-6), where the limit would have let them pass. */
static void values_that_end_at_the_limit_over_the_scale_were_clipped_too_early(void **state) {
    (void)state;
    record r = sound;
    r.config = ", \"clip_value\": 0.5";
    r.cell = SIZES("655.36", "7.62e-6"); /* 0.01 before */
    expect(&r, "clip_before_unscale", NULL);
    r.cell = SIZES("655.36", "0.01");
    assert_false(diagnose(&r)->found.sick);
    r.cell = SIZES("0.5", "7.62e-6"); /* they never were larger */
    assert_false(diagnose(&r)->found.sick);
}

/* A model that is cast whole keeps running statistics in half without being asked to. */
static void running_statistics_of_a_model_that_is_cast_whole_are_half(void **state) {
    (void)state;
    record r = sound;
    static const char cell[] = ", \"policy\": {\"cast_model_type\": \"fp16\", \"keep_batchnorm_fp32\": %s, "
                               "\"master_weights\": false, \"loss_scale\": 1}, \"scale\": [[1, 80]], "
                               "\"test_loss\": %s, \"implementations\": [{\"op\": \"bn\", \"type\": "
                               "\"batch_norm2d\", \"format\": \"fp16\"}]";
    char text[sizeof cell + 16];
    r.o0 = ", \"test_loss\": 0.4";
    r.cell = text;
    snprintf(text, sizeof text, cell, "false", "2.5");
    expect(&r, "batch_norm_statistics_in_half", "bn");
    snprintf(text, sizeof text, cell, "true", "2.5"); /* kept in fp32: then it has another reason */
    assert_false(diagnose(&r)->found.sick);
    r.o0 = ", \"test_loss\": 2.2"; /* O0 tests as badly */
    snprintf(text, sizeof text, cell, "false", "2.5");
    assert_false(diagnose(&r)->found.sick);
}

/* A frozen batch norm reads them in training: they are no weights. */
static void running_statistics_beyond_half_are_no_weights(void **state) {
    (void)state;
#define READS(tensor)                                                                                        \
    ", \"implementations\": [{\"op\": \"bn\", \"type\": \"batch_norm2d\"}], \"probes\": {\"origin\": "       \
    "{\"events\": "                                                                                          \
    "[{\"step\": 0, \"expected\": false, \"op\": \"bn\", \"type\": \"batch_norm2d\", \"pass\": "             \
    "\"forward\", "                                                                                          \
    "\"by\": \"op\", \"tensor\": \"" tensor                                                                  \
    "\", \"format\": \"fp16\", \"cause\": {\"id\": \"bad_weights\"}}]}}"
    record r = sound;
    r.cell_last = 2.3;
    r.cell = READS("running_var");
    expect(&r, "batch_norm_statistics_in_half", "bn");
    expect_no(&r, "weight_overflow");
    r.cell = READS("weight");
    expect(&r, "weight_overflow", "bn");
}

/* MindSpore without drop_overflow_update leaves unscaling to an optimizer whose loss_scale is 1. */
static void gradients_that_nobody_unscales_are_seen_in_the_cell_alone(void **state) {
    (void)state;
#define SCALED(scaled, unscaled)                                                                             \
    ", \"policy\": {\"cast_model_type\": \"fp16\", \"master_weights\": true, \"loss_scale\": 128}, "         \
    "\"scale\": [[128, 80]], \"probes\": {\"steps_probed\": 1, \"tensors\": [{\"name\": "                    \
    "\"fc.weight.grad\", "                                                                                   \
    "\"kind\": \"weight_gradient\", \"count\": 100, \"steps\": {\"nonzero\": [100], \"energy\": [" scaled    \
    "]}}], \"unscaled_gradients\": [{\"name\": \"fc.weight.grad\", \"kind\": \"unscaled_gradient\", "        \
    "\"count\": "                                                                                            \
    "100, \"steps\": {\"nonzero\": [100], \"energy\": [" unscaled "]}}]}"
    record r = sound;
    r.cell = SCALED("16384", "16384");
    expect(&r, "gradients_left_scaled", NULL);
    assert_true(diagnosis.found.misconfigured);
    r.cell_bad = 3;
    expect(&r, "gradients_left_scaled", NULL);
    r.cell = SCALED("16384", "1");
    expect_no(&r, "gradients_left_scaled");
    r = sound;
    r.config = ", \"gradient_accumulation_steps\": 4";
    r.cell = SCALED("16384", "4"); /* four equal gradients, summed */
    expect_no(&r, "gradients_left_scaled");
}

/* Half gradients of a model without fp32 masters: torch's norm of them is a half number. */
static void a_norm_beyond_half_leaves_no_gradient(void **state) {
    (void)state;
#define CLIPPED_IN_HALF(energy, nonzero, masters)                                                            \
    ", \"scale\": [[1, 80]], \"policy\": {\"cast_model_type\": \"fp16\", \"master_weights\": " masters       \
    ", \"loss_scale\": 1}, \"probes\": {\"steps_probed\": 2, \"unscaled_gradients\": [{\"name\": "           \
    "\"fc.weight.grad\", \"layer\": \"fc\", \"count\": 2000, \"steps\": {\"nonzero\": [1000, 1000], "        \
    "\"energy\": "                                                                                           \
    "[" energy ", " energy "]}}], \"lost_updates\": [{\"update\": {\"nonzero\": " nonzero                    \
    ", \"energy\": 0}}]}"
    record r = sound;
    r.config = ", \"clip_norm\": 1";
    r.cell_last = 2.3;
    r.cell = CLIPPED_IN_HALF("1e10", "0", "false");
    expect(&r, "clip_norm_overflow", NULL);
    r.cell = CLIPPED_IN_HALF("1e9", "0", "false"); /* 31623 */
    expect_no(&r, "clip_norm_overflow");
    r.cell = CLIPPED_IN_HALF("1e10", "0", "true"); /* fp32 gradients */
    expect_no(&r, "clip_norm_overflow");
    r.cell = CLIPPED_IN_HALF("1e10", "999", "false");
    expect_no(&r, "clip_norm_overflow");
    r.config = "";
    r.cell = CLIPPED_IN_HALF("1e10", "0", "false");
    expect_no(&r, "clip_norm_overflow");
}

/* Counts of simulated ranks; the healthy twins have the same ranks and format. */
static void reductions_over_ranks_are_judged_by_their_counts(void **state) {
    (void)state;
#define REDUCED(counts)                                                                                      \
    ", \"scale\": [[1, 80]], \"policy\": {\"cast_model_type\": \"fp16\", \"master_weights\": true, "         \
    "\"loss_scale\": 1}, \"reduction\": {\"steps\": 3, \"tensors\": [{\"name\": \"fc.weight\", \"layer\": "  \
    "\"fc\", " counts "}]}"
#define RANKS(wire, options)                                                                                 \
    ", \"ranks\": 64, \"reduction\": {\"reduce\": \"ring\", \"wire\": \"" wire                               \
    "\", \"divide\": \"pre\"}" options
    static const char fine[] = REDUCED("\"sent\": 1000, \"means\": 100, \"energy\": 1, \"error\": 1e-6");
    static const struct {
        const char *cause, *cell;
        double last;
        int bad;
    } rows[] = {{"reduced_in_half",
                 REDUCED("\"sent\": 1000, \"means\": 100, \"energy\": 1, \"error\": 0.1, \"along\": -0.3"),
                 2.3, -1},
                {"allreduce_underflow",
                 REDUCED("\"sent\": 1000, \"sent_flushed\": 300, \"means\": 100, \"flushed\": 30, "
                         "\"energy\": 1, \"error\": "
                         "0.1"),
                 2.3, -1},
                {"allreduce_overflow",
                 REDUCED("\"sent\": 1000, \"means\": 100, \"overflowed\": 7, \"energy\": 1, \"error\": 1e-6"),
                 0.3, 40}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        record r = sound;
        r.config = RANKS("bf16", "");
        r.cell = rows[i].cell;
        r.cell_last = rows[i].last;
        r.cell_bad = rows[i].bad;
        expect(&r, rows[i].cause, "fc");
        assert_true(diagnosis.verdict[0].proof == AB_PROOF_SHOWN);
        assert_true(diagnosis.verdict[0].remedy.options == 2);
        r.config = RANKS("fp32", ""); /* what is on the wire does not explain it */
        expect_no(&r, rows[i].cause);
        r.config = "";
        expect_no(&r, rows[i].cause);
        r.config = RANKS("bf16", "");
        r.cell = fine;
        expect_no(&r, rows[i].cause);
    }
}

/* Ranks that parted are named in any record that says so, with or without symptoms; the twin agrees. */
static void ranks_out_of_step_are_named_by_their_checksums(void **state) {
    (void)state;
#define REPLICAS(parted) ", \"replicas\": {\"every\": 10, \"checks\": 8, \"ranks\": 4" parted "}"
#define PARTED(agreed, steps)                                                                                \
    ", \"parted\": {\"agreed_steps\": " agreed ", \"steps\": " steps                                         \
    ", \"rank\": 3, \"differing_ranks\": 1, \"tensor\": \"fc.weight\", \"layer\": \"fc\", "                  \
    "\"differing_tensors\": 2}"
    static const double last[] = {2.3, 0.3}; /* behind O0, and as good */
    for (size_t i = 0; i < sizeof last / sizeof *last; i++) {
        record r = sound;
        r.config = ", \"ranks\": 4, \"mpi\": \"MPICH\"";
        r.cell_last = last[i];
        r.cell = REPLICAS(PARTED("20", "30"));
        expect(&r, "ranks_out_of_step", "fc");
        assert_true(diagnosis.verdict[0].proof == AB_PROOF_SHOWN);
        assert_non_null(strstr(diagnosis.verdict[0].evidence[0].text, "after 30 steps fc.weight of rank 3"));
        assert_non_null(strstr(diagnosis.verdict[0].remedy.text, "no_sync()"));
        r.cell = REPLICAS(PARTED("0", "0"));
        expect(&r, "ranks_out_of_step", "fc");
        assert_non_null(strstr(diagnosis.verdict[0].remedy.text, "load checkpoints before"));
        r.cell = REPLICAS("");
        expect_no(&r, "ranks_out_of_step");
    }
}

#define AT_FLOOR(scales, probes)                                                                             \
    ", \"policy\": {\"cast_model_type\": \"fp16\", \"loss_scale\": \"dynamic\"}, \"scale\": " scales         \
    ", \"steps_skipped\": 60, \"probes\": {" probes "\"tensors\": [{\"name\": \"fc.out.grad\", \"layer\": "  \
    "\"fc\", \"kind\": \"activation_gradient\", \"cast\": true, \"overflowed\": 3}]}, \"skipped_steps\": ["

/* DeepSpeed's and Megatron's floor is 1; gradients may be beyond half without any scale. */
static void a_floor_of_one_is_a_floor(void **state) {
    char cell[4096];
    record r = sound;
    (void)state;
    r.cell = cell;
    r.cell_last = 2.3;
    static const struct {
        const char *begin;
        bool floor;
    } all[] = {
        {AT_FLOOR("[[65536, 20], [2, 1], [1, 59]]", ""), true},
        {AT_FLOOR("[[1, 80]]", ""), true},
        {AT_FLOOR("[[65536, 78], [2, 1], [1, 1]]", ""), false}, /* still falling */
        {AT_FLOOR("[[65536, 20], [2, 1], [1, 59]]",
                  "\"origin\": {\"events\": [{\"step\": 20, \"expected\": false, \"op\": \"r\", \"type\": "
                  "\"sqrt\", \"pass\": \"backward\", \"cause\": {\"id\": \"mathematics\"}}]}, "),
         false}}; /* no scale gives it a value */
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        size_t n = (size_t)snprintf(cell, sizeof cell, "%s", all[k].begin);
        for (int i = 20; i < STEPS; i++)
            n += (size_t)snprintf(cell + n, sizeof cell - n, "%s%d", i > 20 ? "," : "", i);
        snprintf(cell + n, sizeof cell - n, "]");
        if (all[k].floor)
            expect(&r, "scale_too_high", "fc");
        else
            expect_no(&r, "scale_too_high");
    }
    r.config = ", \"min_loss_scale\": 1";
    size_t n = (size_t)snprintf(cell, sizeof cell, "%s", all[0].begin);
    for (int i = 20; i < STEPS; i++)
        n += (size_t)snprintf(cell + n, sizeof cell - n, "%s%d", i > 20 ? "," : "", i);
    snprintf(cell + n, sizeof cell - n, "]");
    expect(&r, "scale_too_high", "fc");
    assert_string_equal(diagnosis.verdict[0].remedy.option[0], "--min-loss-scale");
    assert_true(strtod(diagnosis.verdict[0].remedy.option[1], NULL) < 1);
}

static void a_scaler_at_its_floor_is_told_from_one_that_falls(void **state) {
    char cell[4096];
    size_t n = (size_t)snprintf(
        cell, sizeof cell,
        ", \"policy\": {\"cast_model_type\": \"fp16\", \"loss_scale\": \"dynamic\"}, \"scale\": [[8, 1], [4, "
        "79]], \"steps_skipped\": 80, \"probes\": {\"tensors\": [{\"name\": \"fc.out.grad\", \"layer\": "
        "\"fc\", "
        "\"kind\": \"activation_gradient\", \"cast\": true, \"overflowed\": 3}]}, \"skipped_steps\": [");
    (void)state;
    for (int i = 0; i < STEPS; i++) n += (size_t)snprintf(cell + n, sizeof cell - n, "%s%d", i ? "," : "", i);
    snprintf(cell + n, sizeof cell - n, "]");
    record r = sound;
    r.cell = cell;
    r.cell_last = 2.3;
    expect(&r, "scale_too_high", "fc");
    assert_int_equal(diagnose(&r)->verdict[0].remedy.options, 0); /* it is that scaler, without a floor */
    r.config = ", \"min_loss_scale\": 4";
    assert_string_equal(diagnose(&r)->verdict[0].remedy.option[0], "--min-loss-scale");
    r.cell =
        ", \"policy\": {\"cast_model_type\": \"fp16\", \"loss_scale\": \"dynamic\"}, \"scale\": [[8, 80]]";
    expect_no(&r, "scale_too_high");
}

/* 8 of the last 60 steps overflow at a scale that never falls. */
static void a_floor_that_costs_a_tenth_of_the_steps_is_too_high(void **state) {
    (void)state;
#define FLOOR(scales)                                                                                        \
    ", \"policy\": {\"cast_model_type\": \"fp16\", \"loss_scale\": \"dynamic\"}, \"scale\": " scales         \
    ", \"steps_skipped\": 8, \"skipped_steps\": [22, 28, 34, 40, 46, 52, 58, 64], \"probes\": "              \
    "{\"tensors\": "                                                                                         \
    "[{\"name\": \"fc.out.grad\", \"layer\": \"fc\", \"kind\": \"activation_gradient\", \"cast\": true, "    \
    "\"overflowed\": 3}]}"
    record r = sound;
    r.cell = FLOOR("[[8, 10], [4, 70]]");
    expect(&r, "scale_too_high", "fc");
    r.cell =
        ", \"policy\": {\"cast_model_type\": \"fp16\", \"loss_scale\": \"dynamic\"}, \"scale\": [[4, 80]], "
        "\"steps_skipped\": 8, \"skipped_steps\": [22, 28, 34, 40, 46, 52, 58, 64]";
    expect(&r, "scale_too_high", NULL);   /* no probed step was one of them */
    r.cell = FLOOR("[[8, 30], [4, 50]]"); /* it fell in their course */
    assert_false(diagnose(&r)->found.sick);
    r.cell = FLOOR("[[4, 80]], \"scale_window\": 8"); /* it may have been raised in between */
    assert_false(diagnose(&r)->found.sick);
}

/* The variance became 0 on its way from the product: keeping the root alone wide would find it 0. */
static void what_became_zero_before_a_root_is_kept_wide_with_it(void **state) {
    (void)state;
    record r = sound;
    r.cell_bad = 0;
    r.o0 = ", \"probes\": {\"signals\": [{\"op\": \"fc\", \"type\": \"linear\"}, {\"op\": \"q\", \"type\": "
           "\"square\"}, {\"op\": \"m\", \"type\": \"mean\"}, {\"op\": \"r\", \"type\": \"rsqrt\"}, {\"op\": "
           "\"x\", "
           "\"type\": \"mul\"}, {\"op\": \"out\", \"type\": \"linear\"}]}";
    r.cell = EVENT(
        "r", "rsqrt", "forward", "op", "mathematics",
        "fp16") ", \"implementations\": [{\"op\": \"fc\", \"type\": \"linear\"}, {\"op\": \"q\", "
                "\"type\": \"square\"}, {\"op\": \"m\", \"type\": \"mean\"}, {\"op\": \"r\", \"type\": "
                "\"rsqrt\"}, {\"op\": \"x\", \"type\": \"mul\"}, {\"op\": \"out\", \"type\": \"linear\"}]";
    expect(&r, "norm_statistics_in_half", "r");
    assert_string_equal(diagnosis.verdict[0].remedy.option[1], "q=fp32,m=fp32,r=fp32,x=fp32");
}

/* Twelve layers, and a reshape behind each but the first. */
static void reshapes_do_not_lengthen_the_list_of_layers_to_keep_wide(void **state) {
    (void)state;
    static char ops[2048], o0[2200], cell[4096];
    record r = sound;
    size_t used = (size_t)snprintf(ops, sizeof ops, "[{\"op\": \"fc\", \"type\": \"linear\"}");
    for (int i = 0; i < 11; i++)
        used += (size_t)snprintf(ops + used, sizeof ops - used,
                                 ", {\"op\": \"a%d\", \"type\": \"relu\"}, {\"op\": \"s%d\", \"type\": "
                                 "\"reshape\"}",
                                 i, i);
    snprintf(ops + used, sizeof ops - used, ", {\"op\": \"out\", \"type\": \"linear\"}]");
    snprintf(o0, sizeof o0, ", \"probes\": {\"signals\": %s}", ops);
    snprintf(cell, sizeof cell, "%s, \"implementations\": %s",
             EVENT("fc", "linear", "forward", "op", "range_overflow", "fp16"), ops);
    r.cell_bad = 0;
    r.o0 = o0;
    r.cell = cell;
    expect(&r, "activation_overflow", "fc");
    assert_string_equal(diagnosis.verdict[0].remedy.option[0], "--to");
    assert_non_null(strstr(diagnosis.verdict[0].remedy.option[1], "a10=fp32,s10=fp32"));
}

/* ---- several causes -------------------------------------------------------------------------- */

#define EVENT_AT(step, op, type, pass, cause)                                                                \
    "\"origin\": {\"events\": [{\"step\": " step ", \"expected\": false, \"op\": \"" op                      \
    "\", \"type\": \"" type "\", \"pass\": \"" pass                                                          \
    "\", \"by\": \"op\", \"format\": \"fp16\", \"read_largest\": 700, \"cause\": {\"id\": \"" cause "\"}}]}"
#define ADAM(format, stale)                                                                                  \
    "\"adam_warning\": {\"applies\": true, \"constants\": [{\"name\": \"eps\", \"value\": 1e-8, \"lost\": "  \
    "true}], "                                                                                               \
    "\"params\": [{\"name\": \"fc1.weight\", \"layer\": \"fc1\", \"state_format\": \"" format                \
    "\", \"zero_share\": 0, \"stale_share\": " stale "}]}"
#define PROBES(what) ", \"probes\": {\"steps_probed\": 1, " what "}"
#define LARGEST(size) PROBES("\"signals\": [{\"op\": \"fc2\", \"type\": \"linear\", \"largest\": " size "}]")

static bool has_option(const ab_verdict *v, const char *name, const char *value) {
    for (int i = 0; i + 1 < v->remedy.options; i += 2)
        if (strcmp(v->remedy.option[i], name) == 0 && strcmp(v->remedy.option[i + 1], value) == 0)
            return true;
    return false;
}

/* Huge updates make weights, and with them outputs, huge: O0's outputs tell which came first. */
static void an_overflow_that_fp32_is_far_from_is_a_consequence(void **state) {
    (void)state;
    record r = sound;
    r.cell_bad = 4;
    r.o0 = LARGEST("12");
    r.cell = PROBES(EVENT_AT("3", "fc2", "linear", "forward", "range_overflow") ", " ADAM("fp16", "0.99"));
    expect(&r, "optimizer_state_underflow", "fc1");
    assert_string_equal(diagnosis.verdict[1].rule->id, "activation_overflow");
    r.cell = PROBES(EVENT_AT("3", "fc2", "linear", "forward", "range_overflow") ", " ADAM("fp32", "0"));
    expect(&r, "activation_overflow", "fc2");
    r.cell = PROBES(EVENT_AT("3", "fc2", "linear", "forward", "range_overflow") ", " ADAM("fp16", "0.001"));
    expect(&r, "activation_overflow", "fc2");
}

static void an_overflow_of_the_first_step_is_nobodys_consequence(void **state) {
    (void)state;
    record r = sound;
    r.cell_bad = 0;
    r.o0 = LARGEST("70000");
    r.cell = PROBES(EVENT_AT("0", "fc2", "linear", "forward", "range_overflow") ", " ADAM("fp16", "0"));
    expect(&r, "activation_overflow", "fc2");
    /* and what would come next is healed at once */
    assert_true(has_option(&diagnosis.verdict[0], "--to", "fc2=fp32"));
    assert_true(has_option(&diagnosis.verdict[0], "--optimizer-state", "fp32"));
    r.cell = PROBES(EVENT_AT("0", "fc2", "linear", "forward", "range_overflow") ", " ADAM("fp32", "0"));
    expect(&r, "activation_overflow", "fc2");
    assert_false(has_option(&diagnosis.verdict[0], "--optimizer-state", "fp32"));
}

static void state_that_o0_keeps_in_half_too_is_not_the_learning_rate(void **state) {
    (void)state;
    record r = sound;
    r.o0_bad = r.cell_bad = 10;
    r.o0_last = r.cell_last = 400;
    r.o0 = PROBES(ADAM("fp16", "0.9"));
    expect(&r, "optimizer_state_underflow", "fc1");
    r.o0 = PROBES(ADAM("fp32", "0"));
    expect(&r, "learning_rate_too_high", NULL);
    r.o0_bad = -1; /* O0 merely does not learn, and keeps its state in fp32: what the cell's does is the
                      cell's own */
    r.o0_last = 2.3;
    r.cell = PROBES(ADAM("fp16", "0.9"));
    expect(&r, "optimizer_state_underflow", "fc1");
    r.cell = "";
    r.o0_bad = r.cell_bad = -1; /* it learns, but is unstable */
    r.o0_last = r.cell_last = 2;
    r.peak = 3;
    r.o0 = PROBES(ADAM("fp16", "0.9"));
    expect(&r, "optimizer_state_underflow", "fc1");
}

/* The gradient of a bias whose layer is normalized is a sum that cancels: what fp32's rounding leaves of it
 * is nothing to lose. */
static void the_rounding_of_a_bias_without_gradient_is_not_flushed(void **state) {
    (void)state;
#define BIAS(largest)                                                                                        \
    PROBES("\"tensors\": [{\"name\": \"fc.bias.grad\", \"layer\": \"fc\", \"kind\": \"weight_gradient\", "   \
           "\"max_abs\": " largest ", \"exponents\": {\"first\": -28, \"counts\": [100]}}, {\"name\": "      \
           "\"fc.out.grad\", \"layer\": \"fc\", \"kind\": \"activation_gradient\", \"max_abs\": 0.0026}]")
    record r = sound;
    r.cell_last = 0.5;
    r.cell = ", \"policy\": {\"cast_model_type\": \"fp16\", \"master_weights\": true, \"loss_scale\": 1}, "
             "\"scale\": [[1, 80]], \"probes\": {\"steps_probed\": 1, \"tensors\": [{\"name\": "
             "\"fc.bias.grad\", \"layer\": \"fc\", \"kind\": \"weight_gradient\", \"cast\": true, \"count\": "
             "100, \"nonzero\": 100, \"flushed\": 100, \"max_abs\": 2e-9}]}";
    r.o0 = BIAS("7e-9");
    expect_no(&r, "gradient_underflow");
    r.o0 = BIAS("7e-7");
    expect(&r, "gradient_underflow", "fc");
}

/* Of O0: 1000 values of 2^-12 to 2^-11. */
#define HISTOGRAM                                                                                            \
    PROBES("\"tensors\": [{\"name\": \"out.grad\", \"layer\": \"out\", \"kind\": \"activation_gradient\", "  \
           "\"max_abs\": 0.0004, \"exponents\": {\"first\": -12, \"counts\": [1000]}}]")
#define ZEROS(scale)                                                                                         \
    ", \"policy\": {\"cast_model_type\": \"fp16\", \"master_weights\": true, \"loss_scale\": 1}, "           \
    "\"scale\": [[" scale                                                                                    \
    ", 80]], \"probes\": {\"steps_probed\": 1, \"tensors\": [{\"name\": \"out.grad\", \"layer\": \"out\", "  \
    "\"kind\": \"activation_gradient\", \"cast\": true, \"count\": 1000, \"nonzero\": 0, \"flushed\": 0, "   \
    "\"margin_octaves\": null}]"

static void gradients_that_all_went_to_zero_are_seen_in_those_of_o0(void **state) {
    (void)state;
    record r = sound;
    r.cell_last = 2.3;
    r.o0 = HISTOGRAM;
    r.cell = ZEROS("0.000030517578125") "}"; /* 2^-15: 2^-27 is below half of 2^-24 */
    expect(&r, "gradient_underflow", "out");
    assert_true(has_option(&diagnosis.verdict[0], "--scales", "dynamic"));
    r.cell = ZEROS("1") "}";
    expect_no(&r, "gradient_underflow");
}

/* Half of the values, and none that is left is a normal number: their energy is not what is lost. */
static void gradients_of_few_bits_explain_a_gap_that_nothing_surer_does(void **state) {
    (void)state;
#define FAINT(largest, flushed)                                                                              \
    ", \"policy\": {\"cast_model_type\": \"fp16\", \"master_weights\": true, \"loss_scale\": 1}, "           \
    "\"scale\": [[1, 80]], \"probes\": {\"steps_probed\": 1, \"tensors\": [{\"name\": \"out.grad\", "        \
    "\"layer\": \"out\", \"kind\": \"activation_gradient\", \"cast\": true, \"count\": 1000, "               \
    "\"nonzero\": 1000, \"flushed\": " flushed ", \"max_abs\": " largest "}]}"
    record r = sound;
    r.cell_last = 0.5;
    r.cell = FAINT("3e-6", "600");
    expect(&r, "gradient_underflow", "out");
    r.cell = FAINT("3e-6", "400");
    assert_true(diagnose(&r)->found.undecided);
    r.cell = FAINT("3e-4", "600");
    assert_true(diagnose(&r)->found.undecided);
    r.cell_last = 1; /* more than twice what is allowed */
    r.cell = FAINT("3e-6", "150");
    expect(&r, "gradient_underflow", "out");
    r.cell = FAINT("3e-4", "600");
    expect(&r, "gradient_underflow", "out");
    r.cell = FAINT("3e-4", "150");
    assert_true(diagnose(&r)->found.undecided);
    r.cell = FAINT("3e-6", "50");
    assert_true(diagnose(&r)->found.undecided);
    r.cell_last = 0.3;
    r.cell = FAINT("3e-6", "600"); /* harmless */
    assert_false(diagnose(&r)->found.sick);
}

#define FLUSHED(name, counts, steps)                                                                         \
    "{\"name\": \"" name ".out.grad\", \"layer\": \"" name                                                   \
    "\", \"kind\": \"activation_gradient\", \"cast\": true, \"count\": 1000, \"nonzero\": 1000, "            \
    "\"flushed\": "                                                                                          \
    "950, \"max_abs\": 1e-7, \"exponents\": {\"first\": -26, \"counts\": [" counts                           \
    "]}, \"steps\": {\"first\": 0, \"stride\": 40, \"flushed\": [" steps "]}}"

/* b lost more of its energy, but only after a had lost half of its own. */
static void the_layer_that_was_flushed_first_is_named(void **state) {
    (void)state;
    record r = sound;
    r.cell_last = 1.5;
    r.cell = PROBES(
        "\"tensors\": [" FLUSHED("b", "1000", "0, 950") ", " FLUSHED("a", "950, 0, 50", "475, 475") "]");
    expect(&r, "gradient_underflow", "a");
    r.cell = PROBES(
        "\"tensors\": [" FLUSHED("b", "1000", "475, 475") ", " FLUSHED("a", "950, 0, 50", "475, 475") "]");
    expect(&r, "gradient_underflow", "b");
}

/* The casts of the probed steps flushed nothing, the twin's steps say otherwise. */
static void an_fp32_twin_is_believed_about_flushed_gradients(void **state) {
    (void)state;
    record r = sound;
    r.cell_last = 2.3;
#define TWIN(share)                                                                                          \
    PROBES("\"tensors\": [{\"name\": \"w\", \"layer\": \"a\", \"cast\": true, \"nonzero\": 100, "            \
           "\"flushed\": 1}]")                                                                               \
    ", \"shadow\": {\"reference\": \"fp32\", \"tensors\": [{\"op\": \"a\", \"flushed_energy_share\": " share \
    "}]}"
    r.cell = TWIN("0.6");
    expect(&r, "gradient_underflow", "a");
    assert_string_equal(diagnosis.verdict[0].evidence[1].pointer,
                        "/cells/1/shadow/tensors/0/flushed_energy_share");
    r.cell = TWIN("0.01");
    expect_no(&r, "gradient_underflow");
}

/* Nothing overflowed because nothing was trained; O0 shows what comes once it is. */
static void what_comes_after_the_first_cause_is_healed_with_it(void **state) {
    (void)state;
    record r = sound;
    r.cell_last = 2.3;
#define ALSO(largest) "\"signals\": [{\"op\": \"fc2\", \"type\": \"linear\", \"largest\": " largest "}]"
    r.o0 = PROBES(
        "\"tensors\": [{\"name\": \"out.grad\", \"layer\": \"out\", \"max_abs\": 0.0004, \"exponents\": "
        "{\"first\": -12, \"counts\": [1000]}}], " ALSO("990000"));
    r.cell = ZEROS("0.000030517578125") ", " ALSO("20000") "}";
    expect(&r, "gradient_underflow", "out");
    assert_true(has_option(&diagnosis.verdict[0], "--to", "fc2=fp32"));
    r.cell = ZEROS("0.000030517578125") ", " ALSO("900000") "}"; /* it is not in half here */
    expect(&r, "gradient_underflow", "out");
    assert_false(has_option(&diagnosis.verdict[0], "--to", "fc2=fp32"));
    r.cell = ZEROS("1") ", " ALSO("20000") "}"; /* and alone it is no cause */
    assert_int_equal(diagnose(&r)->verdicts, 0);
}

static void half_trained_weights_that_overflow_lacked_their_gradients(void **state) {
    (void)state;
    record r = sound;
    r.cell_bad = 40;
    r.o0 = HISTOGRAM;
    r.cell = ZEROS("0.000030517578125") ", " EVENT_AT("39", "fc2", "linear", "forward", "range_overflow") "}";
    expect(&r, "gradient_underflow", "out");
    r.cell = ZEROS("1") ", " EVENT_AT("39", "fc2", "linear", "forward", "range_overflow") "}";
    expect(&r, "activation_overflow", "fc2");
}

/* Zeros make no infinities, and fp32's outputs come near the limit as well. */
static void an_overflow_of_its_own_is_no_consequence_of_flushed_gradients(void **state) {
    (void)state;
    record r = sound;
    r.cell_bad = 40;
#define BIG_AND_SMALL(largest)                                                                               \
    PROBES(                                                                                                  \
        "\"signals\": [{\"op\": \"fc2\", \"type\": \"linear\", \"largest\": " largest "}], \"tensors\": [{"  \
        "\"name\": \"out.grad\", \"layer\": \"out\", \"max_abs\": 0.0004, \"exponents\": {\"first\": -12, "  \
        "\"counts\": [1000]}}]")
    r.o0 = BIG_AND_SMALL("60000");
    r.cell = ZEROS("0.000030517578125") ", " EVENT_AT("39", "fc2", "linear", "forward", "range_overflow") "}";
    expect(&r, "activation_overflow", "fc2");
    r.o0 = BIG_AND_SMALL("60");
    expect(&r, "gradient_underflow", "out");
}

/* A scaler that falls to 2^-80 because the forward pass overflows flushes everything in the end. */
static void a_scale_that_fell_is_not_why_gradients_are_zero(void **state) {
    (void)state;
    record r = sound;
    r.cell_bad = 0;
    r.o0 = HISTOGRAM;
    r.cell = ", \"policy\": {\"cast_model_type\": \"fp16\", \"loss_scale\": \"dynamic\"}, \"scale\": "
             "[[65536, 1], [1e-24, "
             "79]], \"probes\": {\"tensors\": [{\"name\": \"out.grad\", \"cast\": true, \"count\": 1000, "
             "\"nonzero\": 0}], " EVENT_AT("0", "fc2", "linear", "forward", "range_overflow") "}";
    expect(&r, "activation_overflow", "fc2");
    expect_no(&r, "gradient_underflow");
}

/* What overflowed has no energy: weight gradients that lack half of O0's lost it at the other end. */
static void gradients_that_overflowed_were_not_flushed(void **state) {
    (void)state;
    record r = sound;
    r.cell_bad = 1;
#define GRADIENT(energy, overflowed, flushed)                                                                \
    PROBES("\"tensors\": [{\"name\": \"w\", \"layer\": \"fc2\", \"kind\": \"weight_gradient\", \"cast\": "   \
           "true, "                                                                                          \
           "\"count\": 10, \"nonzero\": 10, \"flushed\": " flushed ", \"overflowed\": " overflowed           \
           ", \"max_abs\": 0.02, \"steps\": {\"nonzero\": [10], \"overflowed\": [" overflowed                \
           "], \"energy\": [" energy "]}}]")
#define FIXED                                                                                                \
    ", \"policy\": {\"cast_model_type\": \"fp16\", \"loss_scale\": 16777216}, \"scale\": [[16777216, 80]]"
    r.o0 = GRADIENT("4", "0", "0");
    r.cell = FIXED GRADIENT("5e14", "5", "1");
    expect(&r, "scale_too_high", "fc2");
    expect_no(&r, "gradient_underflow");
    r.cell = FIXED GRADIENT("5e14", "0", "1");
    expect(&r, "gradient_underflow", "fc2");
}

/* What an accumulated gradient lacks because it was divided by the scale twice was not flushed. */
static void gradients_that_are_unscaled_twice_were_not_flushed(void **state) {
    (void)state;
    record r = sound;
    r.config = ", \"gradient_accumulation_steps\": 2";
    r.cell_last = 2;
#define UNSCALED(count)                                                                                      \
    FIXED PROBES(                                                                                            \
        "\"tensors\": [{\"name\": \"w\", \"layer\": \"fc2\", \"kind\": \"weight_gradient\", \"cast\": "      \
        "true, \"count\": 10, \"nonzero\": 10, \"flushed\": 1, \"max_abs\": 0.02, \"steps\": "               \
        "{\"nonzero\": [10], \"energy\": [5e14]}}], \"unscaled_gradients\": [{\"count\": " count             \
        ", \"steps\": {\"energy\": [1], \"nonzero\": [5]}}]")
    r.o0 = GRADIENT("4", "0", "0");
    r.cell = UNSCALED("5"); /* once for the two micro-batches that "tensors" counts */
    expect(&r, "gradient_underflow", "fc2");
    r.cell = UNSCALED("10");
    expect_no(&r, "gradient_underflow");
}

/* The probed steps lie behind the overflow: only the origin saw it. */
static void a_scale_too_high_is_known_from_the_origin_alone(void **state) {
    (void)state;
    record r = sound;
    r.cell_bad = 12;
    r.o0 = PROBES("\"tensors\": [{\"name\": \"fc2.out.grad\", \"layer\": \"fc2\", \"max_abs\": 0.02}]");
    r.cell = ", \"policy\": {\"cast_model_type\": \"fp16\", \"loss_scale\": 8388608}, \"scale\": [[8388608, "
             "80]]" PROBES(EVENT_AT("11", "fc2", "linear", "backward", "scale_induced"));
    expect(&r, "scale_too_high", "fc2");
    r.cell = ", \"policy\": {\"cast_model_type\": \"fp16\", \"loss_scale\": 8388608}, \"scale\": [[8388608, "
             "80]]" PROBES(EVENT_AT("11", "fc2", "linear", "backward", "mathematics"));
    expect_no(&r, "scale_too_high");
}

static void a_partial_sum_that_overflows_is_the_accumulators(void **state) {
    (void)state;
    record r = sound;
    r.cell_bad = 0;
    r.cell = ", \"accumulate\": \"half\"" PROBES(
        EVENT_AT("0", "fc2", "linear", "forward", "accumulator_overflow"));
    expect(&r, "accumulator_in_half", "fc2");
    expect_no(&r, "activation_overflow");
    r.cell = ", \"accumulate\": \"half\"" PROBES(EVENT_AT("0", "fc2", "linear", "forward", "range_overflow"));
    expect(&r, "activation_overflow", "fc2");
}

static void bad_data_are_named_by_sample_and_input(void **state) {
    (void)state;
    record r = sound;
    r.o0_bad = r.cell_bad = 3;
    r.config = ", \"data\": \"arrays:x\"";
    r.o0 = ", \"vitals\": {\"nonfinite_inputs\": {\"batches\": 1, \"first_step\": 3, \"samples\": 1, "
           "\"batch\": 64, \"features\": 1, \"features_in_every_sample\": 0, \"first_sample\": 777, "
           "\"first_feature\": 5}}";
    expect(&r, "nonfinite_data", NULL);
    assert_string_equal(diagnosis.verdict[0].remedy.text,
                        "remove sample 777 of arrays:x, whose input 5 is not finite (counted from 0)");
    assert_int_equal(diagnosis.verdict[0].remedy.options, 0);
}

static void repaired_data_are_given_more_steps_in_a_short_run(void **state) {
    (void)state;
    record r = sound;
    r.o0_bad = r.cell_bad = 3;
    r.o0 = ", \"vitals\": {\"initial_weights\": {\"nonfinite\": 1, \"nonfinite_name\": \"a.weight\"}}";
    expect(&r, "nonfinite_initial_weight", "a");
    assert_int_equal(diagnosis.verdict[0].remedy.options, 0); /* no option made it */
    r.config = ", \"faults\": [\"nan_inputs\", \"nan_initial_weight\"]";
    expect(&r, "nonfinite_initial_weight", "a");
    assert_true(has_option(&diagnosis.verdict[0], "--fault", "nan_inputs")); /* the other one stays */
    assert_true(has_option(&diagnosis.verdict[0], "--steps", "160"));
    r.config = ", \"faults\": [\"nan_initial_weight\"], \"epochs\": 3";
    expect(&r, "nonfinite_initial_weight", "a");
    assert_true(has_option(&diagnosis.verdict[0], "--fault", "none"));
    assert_true(has_option(&diagnosis.verdict[0], "--epochs", "6")); /* --steps would be refused beside it */
}

#define O3_CELL(probes)                                                                                      \
    ", \"policy\": {\"cast_model_type\": \"fp16\", \"master_weights\": false, \"loss_scale\": 1}, "          \
    "\"scale\": [[1, 80]], \"probes\": {\"steps_probed\": 8" probes "}"

/* Half weights lose what a lower rate, or a higher scale, leaves of their updates; other levels refuse
 * masters. */
static void half_weights_get_masters_with_other_changes(void **state) {
    (void)state;
    record r = sound;
    r.o0_bad = r.cell_bad = 10;
    r.o0_last = r.cell_last = 400;
    expect(&r, "learning_rate_too_high", NULL);
    assert_false(has_option(&diagnosis.verdict[0], "--set", "master_weights=True"));
    r.cell = O3_CELL("");
    r.config = ", \"levels\": [\"O0\", \"O1\", \"O2\"]";
    expect(&r, "learning_rate_too_high", NULL);
    assert_true(has_option(&diagnosis.verdict[0], "--set", "master_weights=True"));
    assert_true(has_option(&diagnosis.verdict[0], "--levels", "O0,O2"));
}

#define LEDGER(decay, gradient)                                                                              \
    ", \"policy\": {\"cast_model_type\": \"fp16\", \"master_weights\": false, \"loss_scale\": 1}, "          \
    "\"scale\": [[1, 80]]" PROBES(                                                                           \
        "\"lost_updates\": [{\"name\": \"fc.weight\", \"layer\": \"fc\", \"update\": {\"nonzero\": 100, "    \
        "\"lost\": 80, \"energy\": 1, \"lost_energy\": 0.4, \"lost_energy_share\": 0.4}, \"weight_decay\": " \
        "{\"nonzero\": 100, \"lost\": 100, \"lost_energy\": " decay                                          \
        "}, \"gradient\": {\"nonzero\": 100, \"lost\": 80, \"lost_energy\": " gradient "}}]")

/* Of a cell that is behind and has no surer cause, less than what is enough by itself. */
static void a_gap_that_nothing_else_explains_is_believed_of_fewer_lost_updates(void **state) {
    (void)state;
    record r = sound;
    r.cell_last = 1.5;
    r.cell = O3_CELL(", \"lost_updates\": [{\"name\": \"fc.weight\", \"layer\": \"fc\", \"update\": "
                     "{\"nonzero\": 100, \"lost\": 62, \"energy\": 1, \"lost_energy\": 0.04, "
                     "\"lost_energy_share\": 0.04}}]");
    expect(&r, "weight_update_lost", "fc");
    assert_int_equal(diagnosis.verdict[0].proof, AB_PROOF_CONSISTENT);
    r.cell = O3_CELL(", \"lost_updates\": [{\"name\": \"fc.weight\", \"layer\": \"fc\", \"update\": "
                     "{\"nonzero\": 100, \"lost\": 52, \"energy\": 1, \"lost_energy\": 0.01, "
                     "\"lost_energy_share\": 0.01}}]");
    expect(&r, "weight_update_lost", "fc"); /* it is behind by ten times what is allowed */
    r.cell_last = 0.5;
    expect_no(&r, "weight_update_lost");
    r.cell_last = 1.5;
    r.cell = O3_CELL(", \"lost_updates\": [{\"name\": \"fc.weight\", \"layer\": \"fc\", \"update\": "
                     "{\"nonzero\": 100, \"lost\": 45, \"energy\": 1, \"lost_energy\": 0.01, "
                     "\"lost_energy_share\": 0.01}}]");
    expect_no(&r, "weight_update_lost");
}

/* O0's loss fell from 2.3 to 2.1, where the best constant is 2.09; the cell has almost nothing of that fall.
 */
static void a_cell_that_lacks_what_o0_learned_is_judged_though_a_constant_is_better(void **state) {
    (void)state;
    record r = sound;
    r.o0 = ", \"implementations\": [{\"op\": \"ce\", \"type\": \"cross_entropy\"}], \"vitals\": "
           "{\"constant_loss\": "
           "{\"loss\": 2.09, \"parts\": [{\"op\": \"ce\", \"loss\": 2.09, \"factor\": 1}]}}";
    r.o0_last = 2.1;
    r.cell_last = 2.28;
    r.cell = LEDGER("0.4", "0.01");
    expect(&r, "weight_update_lost", "fc");
    r.cell_last = 2.11; /* within what counts as learning */
    expect_no(&r, "weight_update_lost");
}

/* Both are lost; the ledger says which of them is most of it. */
static void lost_decay_is_told_from_lost_gradients(void **state) {
    (void)state;
    record r = sound;
    r.cell_last = 1.5;
    r.config = ", \"weight_decay\": 0.02";
    r.cell = LEDGER("0.4", "0.01");
    expect(&r, "weight_decay_lost", NULL);
    r.cell = LEDGER("0.01", "0.4");
    expect(&r, "weight_update_lost", "fc");
    r.config = ", \"weight_decay\": 0.0001"; /* 0.1 x 0.0001 x 80 would not have shrunk anything */
    r.cell = LEDGER("0.4", "0.01");
    expect(&r, "weight_update_lost", "fc");
    expect_no(&r, "weight_decay_lost");
}

/* ---- order ----------------------------------------------------------------------------------- */

static void every_cause_declares_what_it_needs_predicts_and_is_refuted_by(void **state) {
    (void)state;
    for (int i = 0; i < ab_verdict_rule_count(); i++) {
        const ab_verdict_rule *rule = ab_verdict_rule_at(i);
        if (!rule->needs[0] || !rule->predicts || !rule->refuted_by[0])
            fail_msg("%s lacks needs, predicts or refuted_by", rule->id);
        assert_true(rule->predicts < 1U << AB_SYMPTOMS);
    }
}

/* Of both, the losses are NaN from step 3 on, and a rate is a possible cause of that. */
static void a_rate_is_ruled_out_by_a_start_that_has_no_finite_loss(void **state) {
    (void)state;
    record r = sound;
    r.o0_bad = r.cell_bad = 3;
    expect(&r, "learning_rate_too_high", NULL);
    r.o0 = EVENT("log", "log", "forward", "op", "mathematics", "fp32");
    expect(&r, "math_singularity", "log");
    expect_no(&r, "learning_rate_too_high");
    assert_int_equal(diagnosis.ruled_out, 1);
    assert_string_equal(diagnosis.not_cause[0].rule->id, "learning_rate_too_high");
    r.o0 = ", \"vitals\": {\"nonfinite_inputs\": {\"batches\": 2, \"first_step\": 3, \"samples\": 1, "
           "\"batch\": 64, \"features\": 1, \"features_in_every_sample\": 0}}";
    expect(&r, "nonfinite_data", NULL);
    expect_no(&r, "learning_rate_too_high");
}

/* A loss that had risen to 400 before: the rate is not ruled out, and it acts before step 40. */
static void a_rate_that_made_the_losses_rise_is_not_ruled_out(void **state) {
    (void)state;
    record r = sound;
    r.o0_bad = r.cell_bad = 40;
    r.peak = 400;
    r.o0 = ", \"vitals\": {\"nonfinite_inputs\": {\"batches\": 2, \"first_step\": 40, \"samples\": 1, "
           "\"batch\": 64, \"features\": 1, \"features_in_every_sample\": 0}}";
    expect(&r, "learning_rate_too_high", NULL);
    assert_int_equal(diagnosis.verdicts, 2);
    assert_string_equal(diagnosis.verdict[1].rule->id, "nonfinite_data");
    assert_int_equal(diagnosis.verdict[1].rank, AB_RANK_POSSIBLE);
    assert_int_equal(diagnosis.decision.count, 2); /* data have no options, the rate has */
    assert_string_equal(diagnosis.decision.between[diagnosis.decision.healthy_if], "learning_rate_too_high");
    assert_string_equal(diagnosis.decision.remedy.option[0], "--lr");
}

static void an_update_that_makes_finite_weights_infinite_is_not_their_size(void **state) {
    (void)state;
    record r = sound;
    r.cell_bad = 2;
    r.o0 = ", \"vitals\": {\"final_weights\": {\"largest\": 40000}}";
    r.cell = ", \"probes\": {" EVENT_AT("2", "fc", "linear", "forward", "bad_weights") "}";
    expect(&r, "weight_overflow", "fc");
    r.o0 = ", \"vitals\": {\"final_weights\": {\"largest\": 1}}";
    expect_no(&r, "weight_overflow");
    assert_int_equal(diagnosis.ruled_out, 1);
}

/* An O0 that only has not learned yet does not explain why the cell is behind it. */
static void lost_updates_are_told_beside_an_o0_that_has_not_learned(void **state) {
    (void)state;
    record r = sound;
    r.o0_last = 2.25;
    r.cell_last = 2.6;
    r.o0 = ", " CONSTANT("2.2", "1");
    r.cell = LEDGER("0", "0.4");
    expect(&r, "weight_update_lost", "fc");
    assert_true(diagnosis.found.unlearned);
}

/* ---- gaps ------------------------------------------------------------------------------------ */

static void a_gap_of_what_chance_makes_is_no_gap(void **state) {
    (void)state;
    record r = sound;
    r.o0_last = 0.01;
    r.cell_last = 0.05; /* five times O0's, and 98 % of the way */
    assert_false(diagnose(&r)->found.sick);
    r.cell_last = 0.5;
    const ab_diagnosis *d = diagnose(&r); /* nobody measured a noise floor, nothing explains it */
    assert_true(d->found.undecided && !d->found.sick);
    assert_non_null(strstr(d->unnamed.missing, "noise floor"));
    r.cell_last = 2;
    assert_true(diagnose(&r)->found.sick); /* but this is too much for chance */
}

/* Within what is allowed, but more than half of it: enough to believe what is proved, not what is a mere
 * hint. */
static void a_gap_that_may_be_chance_is_believed_where_its_cause_shows(void **state) {
    (void)state;
    record r = sound;
    r.cell_last = 0.39; /* 0.068 above 0.53, of the 0.096 that a twentieth of the steps are worth */
    r.cell = ZEROS("0.000030517578125") "}";
    assert_false(diagnose(&r)->found.sick);
    r.o0 = HISTOGRAM;
    expect(&r, "gradient_underflow", "out");
    assert_true(diagnosis.found.suspect && diagnosis.found.facts.gap < diagnosis.found.gap_limit);
    r.cell_last = 0.305; /* too little to ask about */
    assert_false(diagnose(&r)->found.sick);
    r.cell_last = 0.39;
    r.o0 = "";
    r.cell = FAINT("3e-6", "600"); /* a hint */
    assert_false(diagnose(&r)->found.sick);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void skips_of_a_warm_up_are_those_of_this_scaler(void **state) {
    (void)state;
    record r = sound;
    r.cell = ", \"policy\": {\"cast_model_type\": \"fp16\", \"loss_scale\": \"dynamic\"}, \"scale\": "
             "[[16777216, 1], [8388608, "
             "1], [4194304, 78]], \"steps_skipped\": 2, \"skipped_steps\": [0, 1]";
    const ab_skip_audit *audit = &diagnose(&r)->skips;
    assert_int_equal(audit->warm_up, 2);
    assert_true(audit->expected_warm_up == 2);
    assert_int_equal(audit->later, 0);
    assert_true(audit->healthy);
    assert_true(audit->samples_lost == 128);
}

/* Skipping whenever the loss is high is no random sample: the ranks say so. */
/* 10 of the last 60 steps, for a window of 5: less than a fifth, but O0 would be as far behind without those
 * steps. */
static void skips_that_explain_the_gap_are_the_windows(void **state) {
    (void)state;
    record r = sound;
    r.cell_last = 0.55;
    r.cell = ", \"scale_window\": 5, \"steps_skipped\": 10, \"skipped_steps\": [22, 28, 34, 40, 46, 52, 58, "
             "64, 70, "
             "76]";
    expect(&r, "scaler_window_too_short", NULL);
    r.cell_last = 0.305; /* they did no harm */
    assert_false(diagnose(&r)->found.sick);
}

/* A scale that has not risen yet is still searched for, whatever quarter of a short run it is. */
static void a_short_run_may_be_search_alone(void **state) {
    (void)state;
    record r = sound;
    r.cell_last = 0.35;
    r.o0 = ", \"test_count\": 1000, \"test_accuracy\": 0.8";
    r.cell =
        ", \"test_count\": 1000, \"test_accuracy\": 0.6, \"policy\": {\"cast_model_type\": \"fp16\", "
        "\"loss_scale\": \"dynamic\"}, \"scale\": [[8388608, 1], [4194304, 1], [2097152, 28], [1048576, 5], "
        "[524288, 45]], \"steps_skipped\": 4, \"skipped_steps\": [0, 1, 29, 34]";
    const ab_skip_audit *audit = &diagnose(&r)->skips;
    assert_int_equal(audit->warm_up, 4);
    assert_int_equal(audit->later, 0);
    assert_true(audit->healthy);
    assert_false(diagnosis.found.sick); /* late in its loss, so in its accuracy too */
    r.cell_last = 0.3;
    assert_true(diagnose(&r)->found.sick);
}

static void skips_that_choose_their_samples_are_found(void **state) {
    char cell[2048];
    size_t n = (size_t)snprintf(
        cell, sizeof cell,
        ", \"policy\": {\"cast_model_type\": \"fp16\", \"loss_scale\": \"dynamic\"}, \"scale\": [[4, 80]], "
        "\"steps_skipped\": 12, \"skipped_steps\": [");
    (void)state;
    for (int i = 0; i < 12; i++)
        n += (size_t)snprintf(cell + n, sizeof cell - n, "%s%d", i ? "," : "", 8 + 6 * i);
    snprintf(cell + n, sizeof cell - n, "]");
    record r = sound;
    r.cell = cell; /* the losses fall in a straight line: each is the median of its neighbours */
    const ab_skip_audit *audit = &diagnose(&r)->skips;
    assert_int_equal(audit->ranked, 10); /* those of the first quarter are the warm-up's */
    assert_true(audit->mean_rank > 0.45 && audit->mean_rank < 0.55 && audit->p_value > 0.5);
    cJSON *document = cJSON_Parse(
        "{\"config\": {\"scale_window\": 2000}, \"cells\": [{\"level\": \"O2\", \"half_format\": \"fp16\", "
        "\"policy\": {\"loss_scale\": \"dynamic\"}, \"scale\": [[4, 80]]}]}");
    cJSON *item = cJSON_GetArrayItem(cJSON_GetObjectItem(document, "cells"), 0);
    cJSON *loss = cJSON_AddArrayToObject(item, "loss"),
          *skipped = cJSON_AddArrayToObject(item, "skipped_steps");
    for (int i = 0; i < STEPS; i++) {
        const bool high = i % 10 == 9;
        cJSON_AddItemToArray(loss, cJSON_CreateNumber(high ? 2 : 1 + 0.001 * i));
        if (high) cJSON_AddItemToArray(skipped, cJSON_CreateNumber(i));
    }
    assert_int_equal(ab_diagnose(document, 0, &diagnosis), AB_OK);
    assert_true(diagnosis.skips.mean_rank > 0.9 && diagnosis.skips.p_value < 0.001);
    cJSON_Delete(document);
}

/* A window that the text of the scale sets, and that --scale-window would not reach. */
static void a_scalers_own_window_counts(void **state) {
    (void)state;
    for (int own = 0; own < 2; own++) {
        char text[128];
        snprintf(text, sizeof text,
                 "{\"config\": {\"scale_window\": 2000}, \"cells\": [{\"level\": \"O2\"%s}]}",
                 own ? ", \"scale_window\": 2" : "");
        cJSON *document = cJSON_Parse(text);
        assert_non_null(document);
        cJSON *cell = cJSON_GetArrayItem(cJSON_GetObjectItem(document, "cells"), 0);
        cJSON_AddStringToObject(cell, "half_format", "fp16");
        cJSON_AddStringToObject(cJSON_AddObjectToObject(cell, "policy"), "loss_scale", "apex:window=2");
        cJSON_AddNumberToObject(cell, "steps_skipped", STEPS / 3);
        cJSON *loss = cJSON_AddArrayToObject(cell, "loss"),
              *skipped = cJSON_AddArrayToObject(cell, "skipped_steps");
        for (int i = 0; i < STEPS; i++) {
            cJSON_AddItemToArray(loss, cJSON_CreateNumber(2 - 0.01 * i));
            if (i % 3 == 2) cJSON_AddItemToArray(skipped, cJSON_CreateNumber(i));
        }
        assert_int_equal(ab_diagnose(document, 0, &diagnosis), AB_OK);
        assert_true(diagnosis.found.facts.skip.window == (own ? 2 : 2000));
        const bool named =
            diagnosis.verdicts > 0 && strcmp(diagnosis.verdict[0].rule->id, "scaler_window_too_short") == 0;
        assert_int_equal(named, own);
        if (own) assert_true(has_option(&diagnosis.verdict[0], "--scales", "dynamic"));
        cJSON_Delete(document);
    }
}

/* The labels of skipped steps beside those of all; the p-values are SciPy's (chi2_contingency, fisher_exact).
 */
static void skips_that_choose_their_labels_are_found(void **state) {
    (void)state;
    static const struct {
        const char *counts, *skipped;
        double p;
        int label;
    } rows[] = {{"[1000, 1010, 990]", "[20, 22, 22]", 0.935961594648566, 2},
                {"[1000, 1010, 990]", "[60, 2, 2]", 4.7291548337894224e-24, 0},
                {"[300, 260]", "[12, 20]", 0.0688651485222716, 1}};
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
        char text[512];
        snprintf(
            text, sizeof text,
            "{\"cells\": [{\"level\": \"O2\", \"half_format\": \"fp16\", \"policy\": "
            "{\"loss_scale\": \"dynamic\"}, \"scale\": [[4, 80]], \"vitals\": {\"labels\": {\"counts\": %s, "
            "\"skipped_counts\": %s}}}]}",
            rows[i].counts, rows[i].skipped);
        cJSON *document = cJSON_Parse(text);
        assert_non_null(document);
        assert_int_equal(ab_diagnose(document, 0, &diagnosis), AB_OK);
        const ab_skip_audit *audit = &diagnosis.skips;
        if (!(fabs(audit->label_p - rows[i].p) <= 1e-6 * rows[i].p)) fail_msg("p %.17g", audit->label_p);
        assert_int_equal(audit->label, rows[i].label);
        cJSON_Delete(document);
    }
}

static void the_first_symptom_is_where_it_began(void **state) {
    (void)state;
    record r = sound;
    r.cell_bad = 17;
    assert_int_equal(ab_first_symptom(&diagnose(&r)->found), -1 + 18);
    r.cell_bad = -1;
    assert_int_equal(ab_first_symptom(&diagnose(&r)->found), -1);
}

static void a_flat_loss_is_told_from_a_falling_one(void **state) {
    (void)state;
    record r = sound;
    assert_int_equal(diagnose(&r)->trend, AB_TREND_FALLING);
    r.cell_last = r.o0_last = 2.302;
    assert_int_equal(diagnose(&r)->trend, AB_TREND_UNLEARNED);
    r.o0_last = 2.27; /* a little; the cell is behind by what a few steps make */
    r.cell_last = 2.2712;
    assert_int_equal(diagnose(&r)->trend, AB_TREND_STALLED);
    assert_false(diagnosis.found.sick || diagnosis.found.undecided);
    r.cell_last = 2.27;
    assert_int_equal(diagnose(&r)->trend, AB_TREND_CONVERGED);
    r.cell_bad = 3;
    assert_int_equal(diagnose(&r)->trend, AB_TREND_NONFINITE);
}

/* A record without what a rule needs: nothing is guessed. */
static void an_empty_record_gives_no_verdict(void **state) {
    (void)state;
    record r = sound;
    r.cell_last = 2.3;
    const ab_diagnosis *d = diagnose(&r);
    assert_true(d->found.sick);
    assert_int_equal(d->verdicts, 0);
}

/* The cell's own format counts: O0 of a run with --ema-format half keeps fp32 averages. */
static void an_fp32_average_is_not_blamed_for_half(void **state) {
    (void)state;
    record r = sound;
    r.config = ", \"ema\": 0.999, \"ema_format\": \"half\"";
    r.cell = ", \"policy\": {\"ema_format\": \"fp32\"}, \"test_loss\": 0.3, \"ema_test_loss\": 1.9, "
             "\"vitals\": {\"average\": "
             "{\"differing\": 100, \"stuck\": 93, \"distance_rms_share\": 0.6}}";
    expect_no(&r, "ema_in_half");
}

/* Nothing was learned, so no gap can be told from what was. */
static void a_gap_to_an_o0_that_has_not_learned_is_not_told(void **state) {
    (void)state;
    record r = sound;
    r.o0_last = 2.299;
    r.cell_last = 2.3;
    assert_true(diagnose(&r)->found.undecided && !diagnosis.found.behind);
    r.cell_last = 9;
    assert_true(diagnose(&r)->found.sick && diagnosis.found.behind);
}

/* A cell that trains as O0 does and scores worse; one that is late scores worse because of that. */
static void accuracy_is_a_symptom_where_the_loss_is_that_of_o0(void **state) {
    (void)state;
    record r = sound;
    r.o0 = ", \"test_count\": 400, \"test_accuracy\": 0.9";
    r.cell = ", \"test_count\": 400, \"test_accuracy\": 0.8";
    assert_true(diagnose(&r)->found.inaccurate && diagnosis.found.sick);
    r.cell = ", \"test_count\": 400, \"test_accuracy\": 0.86"; /* 1.7 standard errors */
    assert_false(diagnose(&r)->found.inaccurate);
    r.cell = ", \"test_count\": 400, \"test_accuracy\": 0.8";
    r.cell_last = 0.33;
    assert_false(diagnose(&r)->found.inaccurate);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_cell_like_o0_is_healthy),
    cmocka_unit_test(a_run_that_is_too_short_is_undecided_not_sick),
    cmocka_unit_test(a_language_model_that_knows_nothing_has_not_learned),
    cmocka_unit_test(what_knowing_nothing_costs_is_in_the_loss_s_units),
    cmocka_unit_test(targets_decide_where_no_constant_does),
    cmocka_unit_test(data_and_weights_that_are_no_numbers_are_named),
    cmocka_unit_test(a_formula_without_a_value_is_no_matter_of_formats),
    cmocka_unit_test(a_flat_o0_is_told_apart_by_its_cause),
    cmocka_unit_test(a_divergence_in_o0_is_the_rate_or_the_initial_weights),
    cmocka_unit_test(a_rate_that_throws_weights_about_need_not_raise_the_loss_threefold),
    cmocka_unit_test(summed_micro_batches_break_a_bound),
    cmocka_unit_test(the_op_that_overflows_says_what_kind_of_overflow_it_is),
    cmocka_unit_test(what_kind_of_overflow_it_is_follows_the_edges_of_the_graph),
    cmocka_unit_test(what_went_wrong_first_and_did_no_harm_hides_nothing),
    cmocka_unit_test(an_average_that_does_not_move_is_sick_only_in_half),
    cmocka_unit_test(clipping_before_unscaling_shows_in_the_sizes_of_gradients),
    cmocka_unit_test(unscaling_every_micro_batch_shows_in_the_first_gradient),
    cmocka_unit_test(a_gap_that_nothing_else_explains_is_believed_of_fewer_lost_updates),
    cmocka_unit_test(a_net_that_learns_little_is_thrown_about_by_its_steps),
    cmocka_unit_test(a_loss_that_rose_and_stayed_high_is_the_rate),
    cmocka_unit_test(gradients_of_few_bits_explain_a_gap_that_nothing_surer_does),
    cmocka_unit_test(clipping_before_unscaling_at_a_small_scale_shows_step_by_step),
    cmocka_unit_test(the_rounding_of_a_bias_without_gradient_is_not_flushed),
    cmocka_unit_test(skips_that_explain_the_gap_are_the_windows),
    cmocka_unit_test(a_floor_that_costs_a_tenth_of_the_steps_is_too_high),
    cmocka_unit_test(an_overflow_of_a_signal_that_explodes_in_o0_too_is_its_consequence),
    cmocka_unit_test(a_schedule_that_takes_the_rate_away_stops_o0),
    cmocka_unit_test(a_gap_that_may_be_chance_is_believed_where_its_cause_shows),
    cmocka_unit_test(reshapes_do_not_lengthen_the_list_of_layers_to_keep_wide),
    cmocka_unit_test(what_became_zero_before_a_root_is_kept_wide_with_it),
    cmocka_unit_test(a_mistake_that_shows_is_said_of_a_cell_that_trains),
    cmocka_unit_test(values_that_end_at_the_limit_over_the_scale_were_clipped_too_early),
    cmocka_unit_test(running_statistics_of_a_model_that_is_cast_whole_are_half),
    cmocka_unit_test(running_statistics_beyond_half_are_no_weights),
    cmocka_unit_test(gradients_that_nobody_unscales_are_seen_in_the_cell_alone),
    cmocka_unit_test(a_norm_beyond_half_leaves_no_gradient),
    cmocka_unit_test(reductions_over_ranks_are_judged_by_their_counts),
    cmocka_unit_test(ranks_out_of_step_are_named_by_their_checksums),
    cmocka_unit_test(a_floor_of_one_is_a_floor),
    cmocka_unit_test(a_scaler_at_its_floor_is_told_from_one_that_falls),
    cmocka_unit_test(an_overflow_that_fp32_is_far_from_is_a_consequence),
    cmocka_unit_test(an_overflow_of_the_first_step_is_nobodys_consequence),
    cmocka_unit_test(state_that_o0_keeps_in_half_too_is_not_the_learning_rate),
    cmocka_unit_test(gradients_that_all_went_to_zero_are_seen_in_those_of_o0),
    cmocka_unit_test(an_fp32_twin_is_believed_about_flushed_gradients),
    cmocka_unit_test(what_comes_after_the_first_cause_is_healed_with_it),
    cmocka_unit_test(half_trained_weights_that_overflow_lacked_their_gradients),
    cmocka_unit_test(an_overflow_of_its_own_is_no_consequence_of_flushed_gradients),
    cmocka_unit_test(a_scale_that_fell_is_not_why_gradients_are_zero),
    cmocka_unit_test(gradients_that_are_unscaled_twice_were_not_flushed),
    cmocka_unit_test(gradients_that_overflowed_were_not_flushed),
    cmocka_unit_test(a_scale_too_high_is_known_from_the_origin_alone),
    cmocka_unit_test(a_mask_that_overflows_hides_every_key_of_a_row),
    cmocka_unit_test(a_formula_without_a_value_in_half_is_no_overflow),
    cmocka_unit_test(a_constant_that_multiplies_a_small_sum_is_no_reduction),
    cmocka_unit_test(what_prepared_the_data_is_no_norm_of_the_network),
    cmocka_unit_test(what_fp32_does_not_hold_either_is_no_overflow_of_half),
    cmocka_unit_test(what_leaves_fp32_is_a_formula_or_a_signal_that_grows),
    cmocka_unit_test(a_derivative_without_a_value_stops_a_loop_that_scales),
    cmocka_unit_test(a_sum_of_gradients_that_overflows_is_why_steps_are_left_out),
    cmocka_unit_test(a_cast_of_data_before_the_training_is_no_overflow_of_the_network),
    cmocka_unit_test(a_division_before_the_training_is_of_the_data_where_some_samples_have_it),
    cmocka_unit_test(a_partial_sum_that_overflows_is_the_accumulators),
    cmocka_unit_test(bad_data_are_named_by_sample_and_input),
    cmocka_unit_test(repaired_data_are_given_more_steps_in_a_short_run),
    cmocka_unit_test(half_weights_get_masters_with_other_changes),
    cmocka_unit_test(a_cell_that_lacks_what_o0_learned_is_judged_though_a_constant_is_better),
    cmocka_unit_test(lost_decay_is_told_from_lost_gradients),
    cmocka_unit_test(the_layer_whose_gradient_vanished_first_is_named),
    cmocka_unit_test(the_layer_that_was_flushed_first_is_named),
    cmocka_unit_test(every_cause_declares_what_it_needs_predicts_and_is_refuted_by),
    cmocka_unit_test(a_rate_is_ruled_out_by_a_start_that_has_no_finite_loss),
    cmocka_unit_test(a_rate_that_made_the_losses_rise_is_not_ruled_out),
    cmocka_unit_test(an_update_that_makes_finite_weights_infinite_is_not_their_size),
    cmocka_unit_test(lost_updates_are_told_beside_an_o0_that_has_not_learned),
    cmocka_unit_test(a_gap_of_what_chance_makes_is_no_gap),
    cmocka_unit_test(skips_of_a_warm_up_are_those_of_this_scaler),
    cmocka_unit_test(a_short_run_may_be_search_alone),
    cmocka_unit_test(skips_that_choose_their_samples_are_found),
    cmocka_unit_test(skips_that_choose_their_labels_are_found),
    cmocka_unit_test(a_scalers_own_window_counts),
    cmocka_unit_test(the_first_symptom_is_where_it_began),
    cmocka_unit_test(a_flat_loss_is_told_from_a_falling_one),
    cmocka_unit_test(an_o0_that_is_no_fp32_reference_is_told),
    cmocka_unit_test(an_fp32_average_is_not_blamed_for_half),
    cmocka_unit_test(updates_that_clipping_made_small_are_not_lost_by_the_format),
    cmocka_unit_test(a_summed_loss_is_not_compared_with_chance),
    cmocka_unit_test(a_gap_to_an_o0_that_has_not_learned_is_not_told),
    cmocka_unit_test(accuracy_is_a_symptom_where_the_loss_is_that_of_o0),
    cmocka_unit_test(an_empty_record_gives_no_verdict),
};

int main(void) { return cmocka_run_group_tests(tests, NULL, NULL); }
