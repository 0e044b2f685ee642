/* Loss-scale advice from a record, on records made of planted tensors. */
#include "kernels/format.h"
#include "reports/advise.h"
#include "reports/scale_advice.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

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

/* A gradient with `values` values of exponent e and none else; its largest value in step i is 2^e * growth^i. */
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

/* 2^e survives at 2^k from e + k = emin - precision on, if it is no tie, and 2^e overflows from e + k = emax + 1 on: one scale holds two
 * tensors that are emax - emin + precision octaves apart, 40 in fp16 and 261 in bf16, and no more. */
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

/* At most a millionth of the energy may go: 1 of 2^10 values at 2^-2 of the others' size holds 2^-14 of it, at 2^-6 less than 2^-21. */
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
        const ab_advise_goal strict = {0.0001, 1e-6, 1.0 / 2000};
        assert_int_equal(ab_advise_make(document, "O2", &strict, &advise), AB_OK);
        assert_int_equal(advise.k_lo, -5 + down);
        cJSON_Delete(document);
    }
}

/* The upper limit is the one of scale_advice.h, which is proved elsewhere. */
static void growing_gradients_leave_the_room_that_gumbel_asks_for(void **state) {
    (void)state;
    ab_advise advise;
    double largest[STEPS];
    cJSON *document = new_record("fp16");
    plant(document, "growing", -10, VALUES, 1.3);
    for (int i = 0; i < STEPS; i++) largest[i] = -10 + i * log2(1.3);
    assert_int_equal(ab_advise_make(document, "O2", &ab_advise_usual, &advise), AB_OK);
    const double quantile = ab_scale_quantile_gumbel(largest, STEPS, ab_advise_usual.alpha);
    assert_int_equal(advise.k_hi, (int)floor(log2(65520.0) - quantile));
    assert_true(advise.overflow > 0 && advise.overflow <= ab_advise_usual.alpha);
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
        cmocka_unit_test(growing_gradients_leave_the_room_that_gumbel_asks_for),
        cmocka_unit_test(a_recorded_scale_is_taken_out),
        cmocka_unit_test(too_little_evidence_is_no_advice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
