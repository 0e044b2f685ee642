/* Loss-scale advice from a record, on records made of planted tensors. */
#include "kernels/format/format.h"
#include "reports/advise/advise.h"
#include "reports/advise/scale_advice.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { STEPS = 20, VALUES = 1000 };

/* A record with one O0 cell at scale 1 and no tensors yet. */
static cJSON *new_record(const char *half) {
    cJSON *document = cJSON_CreateObject(), *cell = cJSON_CreateObject(), *run = cJSON_CreateArray();
    cJSON_AddItemToArray(cJSON_AddArrayToObject(document, "cells"), cell);
    cJSON_AddStringToObject(cell, "id", "planted");
    cJSON_AddStringToObject(cell, "level", "O0");
    cJSON_AddStringToObject(cell, "half_format", half);
    cJSON_AddItemToArray(run, cJSON_CreateNumber(1));
    cJSON_AddItemToArray(run, cJSON_CreateNumber(STEPS));
    cJSON_AddItemToArray(cJSON_AddArrayToObject(cell, "scale"), run);
    cJSON_AddArrayToObject(cJSON_AddObjectToObject(cell, "probes"), "tensors");
    return document;
}

/* A gradient with `values` values of exponent e and none else; its largest value in step i is 2^e * growth^i.
 */
static void plant(cJSON *document, const char *name, int e, int values, double growth) {
    const ab_format *half;
    const cJSON *cell = cJSON_GetArrayItem(cJSON_GetObjectItem(document, "cells"), 0);
    cJSON *tensor = cJSON_CreateObject(), *exponents = cJSON_AddObjectToObject(tensor, "exponents");
    assert_int_equal(ab_format_find(cJSON_GetStringValue(cJSON_GetObjectItem(cell, "half_format")), &half),
                     AB_OK);
    cJSON_AddStringToObject(tensor, "name", name);
    cJSON_AddStringToObject(tensor, "layer", name);
    cJSON_AddNumberToObject(exponents, "first", e);
    cJSON_AddItemToArray(cJSON_AddArrayToObject(exponents, "counts"), cJSON_CreateNumber(values));
    cJSON *margins = cJSON_AddArrayToObject(cJSON_AddObjectToObject(tensor, "steps"), "margin_octaves");
    const double limit = half->emax + log2(2 - ldexp(1, -half->precision));
    for (int i = 0; i < STEPS; i++)
        cJSON_AddItemToArray(margins, cJSON_CreateNumber(limit - (e + i * log2(growth))));
    cJSON_AddItemToArray(cJSON_GetObjectItem(cJSON_GetObjectItem(cell, "probes"), "tensors"), tensor);
}

static ab_advise advise_on(const char *half, int top, int bottom) {
    ab_advise advise;
    cJSON *document = new_record(half);
    plant(document, "top", top, VALUES, 1);
    plant(document, "bottom", bottom, VALUES, 1);
    assert_int_equal(ab_advise_make(document, "O2", &ab_advise_usual, &advise), AB_OK);
    cJSON_Delete(document);
    return advise;
}

/* 2^e survives at 2^k from e + k = emin - precision on, if it is no tie, and 2^e overflows from e + k = emax
 * + 1 on: one scale holds two tensors that are emax - emin + precision octaves apart, 40 in fp16 and 261 in
 * bf16, and no more. */
static void infeasibility_flips_at_the_binades_of_the_format(void **state) {
    (void)state;
    const struct {
        const char *half;
        int binades, top;
    } cases[] = {
        {"fp16", 40, 0}, {"fp16", 40, -30}, {"fp16", 40, 20}, {"bf16", 261, 120}, {"fp8_e5m2", 32, 3}};
    for (size_t i = 0; i < AB_COUNT_OF(cases); i++) {
        ab_advise inside = advise_on(cases[i].half, cases[i].top, cases[i].top - cases[i].binades);
        assert_true(inside.feasible);
        assert_int_equal(inside.k_lo, inside.k_hi);
        assert_int_equal(inside.k, inside.k_lo);
        ab_advise outside = advise_on(cases[i].half, cases[i].top, cases[i].top - cases[i].binades - 1);
        assert_false(outside.feasible);
        assert_string_equal(outside.tensor[outside.decides].name, "bottom");
    }
}

static void the_advised_scale_is_an_octave_below_the_limit(void **state) {
    (void)state;
    ab_advise advise = advise_on("fp16", 0, -20);
    assert_int_equal(advise.k_lo, -5);
    assert_int_equal(advise.k_hi, 15);
    assert_int_equal(advise.k, 14);
    assert_true(advise.share == 0 && advise.overflow == 0);
}

/* At most a millionth of the energy may go: 1 of 2^10 values at 2^-2 of the others' size holds 2^-14 of it,
 * at 2^-6 less than 2^-21. */
static void a_few_small_values_do_not_decide(void **state) {
    (void)state;
    for (int down = 2; down <= 6; down += 4) {
        ab_advise advise;
        cJSON *document = new_record("fp16");
        plant(document, "mixed", -20, 1023, 1);
        cJSON *tensor = cJSON_GetArrayItem(
            cJSON_GetObjectItem(
                cJSON_GetObjectItem(cJSON_GetArrayItem(cJSON_GetObjectItem(document, "cells"), 0), "probes"),
                "tensors"),
            0);
        cJSON *exponents = cJSON_GetObjectItem(tensor, "exponents"), *counts = cJSON_CreateArray();
        cJSON_AddItemToArray(counts, cJSON_CreateNumber(1));
        for (int i = 1; i < down; i++) cJSON_AddItemToArray(counts, cJSON_CreateNumber(0));
        cJSON_AddItemToArray(counts, cJSON_CreateNumber(1023));
        cJSON_ReplaceItemInObject(exponents, "counts", counts);
        cJSON_ReplaceItemInObject(exponents, "first", cJSON_CreateNumber(-20 - down));
        assert_int_equal(ab_advise_make(document, "O2", &ab_advise_usual, &advise), AB_OK);
        assert_int_equal(advise.k_lo, down == 2 ? -3 : -5);
        const ab_advise_goal strict = {.flushed_share = 0.0001, .flushed_energy = 1e-6, .alpha = 1.0 / 2000};
        assert_int_equal(ab_advise_make(document, "O2", &strict, &advise), AB_OK);
        assert_int_equal(advise.k_lo, -5 + down);
        cJSON_Delete(document);
    }
}

/* Steps are no independent draws: with the trend taken out nothing is left to chance here, and the last step,
 * the largest, sets the limit. The drift says how long a fixed scale lasts. */
static void growing_gradients_are_a_trend_and_no_chance(void **state) {
    (void)state;
    ab_advise advise;
    ab_advise_goal goal = ab_advise_usual;
    cJSON *document = new_record("fp16");
    plant(document, "growing", -10, VALUES, 1.3);
    const double last = -10 + (STEPS - 1) * log2(1.3);
    assert_int_equal(ab_advise_make(document, "O2", &goal, &advise), AB_OK);
    assert_int_equal(advise.k_hi, (int)floor(log2(65520.0) - last));
    assert_true(fabs(advise.series.drift - 1000 * log2(1.3)) < 1e-6 && advise.series.drift_error < 1e-6);
    assert_true(advise.fixed); /* for the recorded steps */
    goal.horizon = 1000;
    assert_int_equal(ab_advise_make(document, "O2", &goal, &advise), AB_OK);
    assert_false(advise.fixed);
    assert_true(advise.lasts < STEPS + 2 / log2(1.3));
    cJSON_Delete(document);
}

/* Largest values that a Gumbel law drew around a level: of many samples, the mean forecast at the limit that
 * such a law exceeds with probability p is p. */
static void chance_is_forecast_as_it_was_drawn(void **state) {
    (void)state;
    enum { N = 128, SAMPLES = 60 };
    static ab_series s;
    uint64_t draw = 7;
    double mean[3] = {0, 0, 0};
    for (int sample = 0; sample < SAMPLES; sample++) {
        s = (ab_series){.columns = N, .steps_a_column = 1, .block = 1};
        for (int i = 0; i < N; i++) {
            draw = draw * 6364136223846793005u + 1442695040888963407u;
            s.largest[i] = 3 - 0.4 * log(-log(((double)(draw >> 11) + 0.5) * 0x1p-53));
        }
        ab_series_fit(&s);
        for (int i = 0; i < 3; i++) {
            const double p = 0.01 * pow(4, i);
            mean[i] += ab_series_forecast(&s, AB_EXTREME_WEIGHTED, 3 - 0.4 * log(-log1p(-p)), N).skipped / p /
                       SAMPLES;
        }
    }
    for (int i = 0; i < 3; i++)
        if (!(mean[i] > 0.8 && mean[i] < 1.31))
            fail_msg("forecast / truth = %g at p = 0.01 * 4^%d", mean[i], i);
}

/* Largest values of `columns` steps around 2^level; `draw` is the generator's state. */
static ab_series wobbling(int columns, double level, double beta, uint64_t *draw) {
    ab_series s = {.columns = columns, .steps_a_column = 1, .block = 1};
    for (int i = 0; i < columns; i++) {
        *draw = *draw * 6364136223846793005u + 1442695040888963407u;
        s.largest[i] = level - beta * log(-log(((double)(*draw >> 11) + 0.5) * 0x1p-53));
        s.top = i == 0 ? s.largest[i] : fmax(s.top, s.largest[i]);
    }
    ab_series_fit(&s);
    return s;
}

/* sqrt(df / q): 5 % points of chi-squared are 0.3518 (3), 1.1455 (5), 5.2260 (12). */
static void few_columns_are_taken_to_spread_wider(void **state) {
    (void)state;
    uint64_t draw = 3;
    const struct {
        int columns;
        double widened;
    } cases[] = {{6, 2.9202}, {8, 2.0892}, {15, 1.5153}, {16, 1}, {128, 1}};
    for (size_t i = 0; i < AB_COUNT_OF(cases); i++) {
        const ab_series s = wobbling(cases[i].columns, 3, 0.4, &draw);
        if (fabs(s.widened - cases[i].widened) > 1e-3)
            fail_msg("%d columns: %g times, expected %g", cases[i].columns, s.widened, cases[i].widened);
    }
}

/* Of 200 samples: how many give a limit below what the law exceeds once in 200 steps. */
static int too_low(int columns, bool widen) {
    uint64_t draw = 11;
    int below = 0;
    const double alpha = 1.0 / 200, truth = 3 - 0.4 * log(-log1p(-alpha));
    for (int sample = 0; sample < 200; sample++) {
        ab_series s = wobbling(columns, 3, 0.4, &draw);
        if (!widen) s.widened = 1;
        below += ab_series_quantile(&s, AB_EXTREME_WEIGHTED, alpha, columns) < truth;
    }
    return below;
}

static void a_limit_from_few_columns_is_less_often_too_low(void **state) {
    (void)state;
    for (int columns = AB_SERIES_FEWEST; columns < AB_SERIES_ENOUGH; columns++) {
        const int wide = too_low(columns, true), found = too_low(columns, false);
        if (wide > 70 || 2 * wide > found)
            fail_msg("%d columns: %d of 200 too low, %d without widening", columns, wide, found);
    }
}

/* The planted tensor's record of steps becomes `columns` steps that wobble by an octave. */
static void wobble(cJSON *document, int columns) {
    const cJSON *probes =
        cJSON_GetObjectItem(cJSON_GetArrayItem(cJSON_GetObjectItem(document, "cells"), 0), "probes");
    cJSON *steps =
              cJSON_GetObjectItem(cJSON_GetArrayItem(cJSON_GetObjectItem(probes, "tensors"), 0), "steps"),
          *margins = cJSON_CreateArray();
    for (int i = 0; i < columns; i++)
        cJSON_AddItemToArray(margins, cJSON_CreateNumber(20 + (i * 7 % 5) / 4.0));
    cJSON_ReplaceItemInObject(steps, "margin_octaves", margins);
}

static void fewer_steps_are_answered_with_a_narrower_range(void **state) {
    (void)state;
    int k_hi[STEPS + 1];
    for (int columns = AB_SERIES_FEWEST - 1; columns <= STEPS; columns++) {
        ab_advise advise;
        cJSON *document = new_record("fp16");
        plant(document, "top", -5, VALUES, 1);
        wobble(document, columns);
        const ab_status status = ab_advise_make(document, "O2", &ab_advise_usual, &advise);
        assert_int_equal(status, columns < AB_SERIES_FEWEST ? AB_INPUT : AB_OK);
        if (status == AB_OK) assert_int_equal(advise.steps, columns);
        if (status != AB_OK)
            assert_non_null(strstr(ab_error_message(), "expected gradients of 6 steps or more, found 5"));
        k_hi[columns] = advise.k_hi;
        cJSON_Delete(document);
    }
    assert_true(k_hi[6] < k_hi[10] && k_hi[10] < k_hi[STEPS]);
    assert_true(k_hi[STEPS] - k_hi[6] < 8); /* and still an answer */
}

/* A column that holds the largest of 8 steps exceeds a limit with probability 1 - (1 - p)^8. */
static void columns_of_several_steps_are_told_from_steps(void **state) {
    (void)state;
    enum { N = 64 };
    static ab_series one, eight;
    one.columns = eight.columns = N;
    one.steps_a_column = one.block = 1;
    eight.steps_a_column = eight.block = 8;
    for (int i = 0; i < N; i++) one.largest[i] = eight.largest[i] = (i % 4) / 4.0;
    ab_series_fit(&one);
    ab_series_fit(&eight);
    const ab_forecast a = ab_series_forecast(&one, AB_EXTREME_GUMBEL, 1.2, N),
                      b = ab_series_forecast(&eight, AB_EXTREME_GUMBEL, 1.2, 8 * N);
    assert_true(a.skipped > 0.001 && fabs(b.skipped - a.skipped / 8) < 0.1 * a.skipped / 8);
}

/* Half of the run overflows every second step. Skipped steps do not train: the run stays there twice as long.
 */
static void skipping_holds_the_clock(void **state) {
    (void)state;
    enum { N = 64 };
    static ab_series s;
    s.columns = N;
    s.steps_a_column = s.block = 1;
    for (int i = 0; i < N; i++) s.largest[i] = i < N / 2 ? i % 2 : -3 + i % 2;
    ab_series_fit(&s);
    const ab_forecast f = ab_series_forecast(&s, AB_EXTREME_WEIGHTED, 0.5, N);
    assert_true(f.skipped > 0.33 && f.skipped < 0.55); /* not 0.25 */
    assert_true(f.worst > 0.4 && !ab_forecast_within(&f, 0.1));
}

/* All layers need no more than 30 binades of their own, the run 41: each layer can have a scale, all together
 * none. */
static void layers_are_told_apart_where_no_scale_fits_all(void **state) {
    (void)state;
    ab_advise advise;
    cJSON *document = new_record("fp16");
    plant(document, "top", 0, VALUES, 1);
    plant(document, "bottom", -41, VALUES, 1);
    plant(document, "middle", -20, VALUES, 1);
    assert_int_equal(ab_advise_make(document, "O2", &ab_advise_usual, &advise), AB_OK);
    assert_false(advise.feasible);
    assert_true(advise.binades == 41);
    for (int i = 0; i < advise.layers; i++) {
        const ab_advise_layer *l = &advise.layer[i];
        assert_true(l->feasible);
        assert_true(l->blocks == (strcmp(l->name, "bottom") == 0));
    }
    cJSON_Delete(document);
}

static const ab_advise_rule *rule(const ab_advise *a, const char *name) {
    for (int i = 0; i < AB_ADVISE_RULES; i++)
        if (strcmp(a->rule[i].name, name) == 0) return &a->rule[i];
    fail_msg("no rule %s", name);
    return NULL;
}

/* 2^0 at most: 2^15 < 65504 <= 2^16; 2^13 at 2^k is just above 8188 from k = 13 on; equal steps leave LogMax
 * no deviation; AdaLoss' formula by hand for a root mean square of sqrt(7/3): 6e-8 / (1.2533e-3 * 1.5275)
 * = 3.13e-5, about 2^-15. */
static void other_rules_are_their_formulas(void **state) {
    (void)state;
    ab_advise advise;
    cJSON *document = new_record("fp16");
    plant(document, "one", 0, VALUES, 1);
    assert_int_equal(ab_advise_make(document, "O2", &ab_advise_usual, &advise), AB_OK);
    assert_true(rule(&advise, "max")->octaves == 15);
    assert_true(rule(&advise, "als")->octaves == 12);
    assert_true(rule(&advise, "logmax")->octaves == 16);
    assert_true(rule(&advise, "adaloss")->octaves == -15);
    assert_true(rule(&advise, "dynamic")->octaves == 15);
    assert_true(rule(&advise, "logmax")->skipped == 1 && rule(&advise, "max")->skipped == 0);
    cJSON_Delete(document);
}

static void a_recorded_scale_is_taken_out(void **state) {
    (void)state;
    ab_advise advise;
    cJSON *document = new_record("fp16");
    plant(document, "top", 0, VALUES, 1);
    cJSON *cell = cJSON_GetArrayItem(cJSON_GetObjectItem(document, "cells"), 0);
    cJSON_ReplaceItemInArray(cJSON_GetArrayItem(cJSON_GetObjectItem(cell, "scale"), 0), 0,
                             cJSON_CreateNumber(1024));
    assert_int_equal(ab_advise_make(document, "O2", &ab_advise_usual, &advise), AB_OK);
    assert_int_equal(advise.k_hi, 25); /* 2^0 seen at 2^10 is 2^-10 without */
    assert_int_equal(advise.k_lo, -15);
    cJSON_Delete(document);
}

/* Three rows whose largest gradients are 2^-3, 2^-9 and 2^-31: all but the last are safe at any scale from
 * 2^-16 on, it from 2^6 on. */
static void no_row_may_lose_its_whole_gradient(void **state) {
    (void)state;
    for (int recorded = 0; recorded < 2; recorded++) {
        ab_advise advise;
        cJSON *document = new_record("fp16");
        plant(document, "w.grad", -3, VALUES, 1);
        cJSON *probes =
            cJSON_GetObjectItem(cJSON_GetArrayItem(cJSON_GetObjectItem(document, "cells"), 0), "probes");
        if (recorded) {
            cJSON *item = cJSON_CreateObject(), *exponents = cJSON_AddObjectToObject(item, "exponents");
            int counts[29] = {[0] = 1, [22] = 1, [28] = 1};
            cJSON_AddStringToObject(item, "name", "w");
            cJSON_AddNumberToObject(exponents, "first", -31);
            cJSON_AddItemToObject(exponents, "counts", cJSON_CreateIntArray(counts, 29));
            cJSON_AddItemToArray(cJSON_AddArrayToObject(probes, "rows"), item);
        }
        assert_int_equal(ab_advise_make(document, "O2", &ab_advise_usual, &advise), AB_OK);
        assert_int_equal(advise.k_lo, recorded ? 6 : -22);
        assert_true(advise.tensor[0].by_rows == (recorded == 1));
        cJSON_Delete(document);
    }
}

/* The cell of the level that trains the same way, if its own scale lost nothing; O0 where it did. */
static void the_own_cell_is_taken_where_it_lost_nothing(void **state) {
    (void)state;
    for (int lost = 0; lost < 2; lost++) {
        ab_advise advise;
        cJSON *document = new_record("fp16"), *other = new_record("fp16");
        plant(document, "top", 0, VALUES, 1);
        plant(other, "top", lost ? -30 : 2, VALUES, 1); /* 2^-30 at a scale of 1 is flushed */
        cJSON *cell = cJSON_DetachItemFromArray(cJSON_GetObjectItem(other, "cells"), 0);
        cJSON_ReplaceItemInObject(cell, "level", cJSON_CreateString("O2"));
        cJSON *tensor =
            cJSON_GetArrayItem(cJSON_GetObjectItem(cJSON_GetObjectItem(cell, "probes"), "tensors"), 0);
        cJSON_AddTrueToObject(tensor, "cast");
        cJSON_AddItemToArray(cJSON_GetObjectItem(document, "cells"), cell);
        assert_int_equal(ab_advise_make(document, "O2", &ab_advise_usual, &advise), AB_OK);
        assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(advise.cell, "level")),
                            lost ? "O0" : "O2");
        assert_true(advise.own == !lost);
        assert_int_equal(advise.k_hi, lost ? 15 : 13);
        cJSON_Delete(document);
        cJSON_Delete(other);
    }
}

static void too_little_evidence_is_no_advice(void **state) {
    (void)state;
    ab_advise advise;
    cJSON *document = new_record("fp16");
    assert_int_equal(ab_advise_make(document, "O2", &ab_advise_usual, &advise), AB_INPUT);
    plant(document, "top", 0, VALUES, 1);
    const cJSON *cell = cJSON_GetArrayItem(cJSON_GetObjectItem(document, "cells"), 0);
    cJSON *scales = cJSON_GetObjectItem(cell, "scale"), *second = cJSON_CreateArray();
    cJSON_AddItemToArray(second, cJSON_CreateNumber(2));
    cJSON_AddItemToArray(scales, second); /* the scale changed: what was seen at which is not known */
    assert_int_equal(ab_advise_make(document, "O2", &ab_advise_usual, &advise), AB_INPUT);
    cJSON_Delete(document);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(infeasibility_flips_at_the_binades_of_the_format),
        cmocka_unit_test(the_advised_scale_is_an_octave_below_the_limit),
        cmocka_unit_test(a_few_small_values_do_not_decide),
        cmocka_unit_test(growing_gradients_are_a_trend_and_no_chance),
        cmocka_unit_test(chance_is_forecast_as_it_was_drawn),
        cmocka_unit_test(few_columns_are_taken_to_spread_wider),
        cmocka_unit_test(a_limit_from_few_columns_is_less_often_too_low),
        cmocka_unit_test(fewer_steps_are_answered_with_a_narrower_range),
        cmocka_unit_test(columns_of_several_steps_are_told_from_steps),
        cmocka_unit_test(skipping_holds_the_clock),
        cmocka_unit_test(layers_are_told_apart_where_no_scale_fits_all),
        cmocka_unit_test(other_rules_are_their_formulas),
        cmocka_unit_test(a_recorded_scale_is_taken_out),
        cmocka_unit_test(no_row_may_lose_its_whole_gradient),
        cmocka_unit_test(the_own_cell_is_taken_where_it_lost_nothing),
        cmocka_unit_test(too_little_evidence_is_no_advice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
