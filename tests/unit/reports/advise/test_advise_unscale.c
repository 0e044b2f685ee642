/* Advice on a run whose loss scale changed: the same as on the same gradients at a scale that stays the same,
 * and the histogram without the scale is what counting the true values by hand gives. */
#include "unit/probe_lib_testing.h"

#include "reports/advise/advise.h"

enum { STEPS = 48, VALUES = 512 };

/* True gradients of a step: sizes from 2^-22 to 2^-9, the largest different in every step and not near a
 * power of two (margins are recorded in sixteenths of an octave, the values without the scale are not
 * rounded). */
static double gradient_at(int step, int i) {
    return 0.8 * ldexp(1 + 0.013 * (i % 40), -22 + i % 13) * (i % 2 ? 1 : -1) *
           (1 + 0.02 * ((step * 7) % 11));
}

static double fixed(int step) {
    (void)step;
    return 0x1p10;
}

/* Falls in the first steps and rises later, as a dynamic scale does. */
static double dynamic(int step) { return step < 6 ? ldexp(1, 16 - step) : step < 30 ? 0x1p10 : 0x1p11; }

/* Not a power of two. */
static double thousands(int step) { return step < 20 ? 1000 : 2000; }

static cJSON *record(double (*scale)(int step), int inf_at) {
    ampprobe *p = pl_open("{\"probe_every\": 1, \"level\": \"torch:autocast\", \"half\": \"fp16\"}");
    const int32_t id = pl_parameter(p, "fc.weight", AMPPROBE_FP32, VALUES);
    for (int step = 0; step < STEPS; step++) {
        float values[VALUES];
        for (int i = 0; i < VALUES; i++) values[i] = (float)(gradient_at(step, i) * scale(step));
        if (step == inf_at) values[0] = INFINITY;
        ampprobe_tensor t = pl_gradient(id, values, VALUES);
        assert_int_equal(ampprobe_gradients(p, 0, &t, 1, AMPPROBE_ALL, NULL), AMPPROBE_OK);
        ampprobe_step_facts f = pl_facts(step);
        f.flags = AMPPROBE_HAS_SCALE | AMPPROBE_HAS_LOSS;
        f.scale_before = scale(step), f.scale_after = scale(step + 1);
        f.found_inf = step == inf_at, f.stepped = step != inf_at;
        f.loss = 1.0 / (1 + step), f.seconds = 1e-3;
        assert_int_equal(ampprobe_step(p, &f), AMPPROBE_OK);
    }
    return pl_close(p);
}

static ab_advise advice;

static ab_advise_unscaled advise(cJSON *document) {
    ab_advise_unscaled about;
    assert_int_equal(ab_advise_unscale(document, &about), AB_OK);
    if (ab_advise_make(document, "torch:autocast", &ab_advise_usual, &advice) != AB_OK)
        fail_msg("%s", ab_error_message());
    return about;
}

static void a_scale_that_changes_gives_the_advice_of_one_that_does_not(void **state) {
    (void)state;
    cJSON *one = record(fixed, -1);
    ab_advise_unscaled about = advise(one);
    const ab_advise expected = advice;
    cJSON_Delete(one);
    assert_int_equal(about.scales, 0); /* nothing was done */
    cJSON *other = record(dynamic, -1);
    about = advise(other);
    cJSON_Delete(other);
    assert_int_equal(about.scales, 8);
    assert_true(about.least == 0x1p10 && about.largest == 0x1p16);
    assert_true(about.rounded == 0 && about.cut == 0);
    assert_int_equal(advice.k_lo, expected.k_lo);
    assert_int_equal(advice.k_hi, expected.k_hi);
    assert_int_equal(advice.k, expected.k);
    assert_true(advice.share == expected.share && fabs(advice.energy - expected.energy) < 1e-12);
}

static void the_histogram_without_the_scale_is_that_of_the_true_values(void **state) {
    (void)state;
    enum { LOW = -40, HIGH = 10 };
    double count[HIGH - LOW] = {0};
    for (int step = 0; step < STEPS; step++)
        for (int i = 0; i < VALUES; i++) count[ilogbf((float)gradient_at(step, i)) - LOW]++;
    cJSON *document = record(dynamic, -1);
    const cJSON *tensor = pl_tensor(pl_cell(document), "probes.tensors", "fc.weight.grad"),
                *unscaled = ab_json_at(tensor, "unscaled"), *counts = ab_json_at(unscaled, "counts");
    const int first = (int)ab_json_number(unscaled, "first", 0);
    double sum = 0;
    for (int i = 0; i < cJSON_GetArraySize(counts); i++) {
        assert_true(cJSON_GetArrayItem(counts, i)->valuedouble == count[first + i - LOW]);
        sum += count[first + i - LOW];
    }
    assert_true(sum == STEPS * VALUES);
    cJSON_Delete(document);
}

static void what_is_not_exact_is_said(void **state) {
    (void)state;
    cJSON *document = record(thousands, -1);
    ab_advise_unscaled about = advise(document);
    cJSON_Delete(document);
    assert_true(about.rounded == STEPS * VALUES && about.values == about.rounded);
    document = record(dynamic, 2);
    about = advise(document);
    cJSON_Delete(document);
    assert_true(about.cut == 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_scale_that_changes_gives_the_advice_of_one_that_does_not),
        cmocka_unit_test(the_histogram_without_the_scale_is_that_of_the_true_values),
        cmocka_unit_test(what_is_not_exact_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
