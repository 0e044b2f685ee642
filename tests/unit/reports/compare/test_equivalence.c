/* Equivalence over seeds: what is paired with what, and what is said. The tests themselves are proved in
 * test_stats.c. */
#include "reports/compare/equivalence.h"
#include "reports/record/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void add_cell(cJSON *document, const char *level, int seed, double loss, bool twin) {
    char text[400], value[40] = "null";
    if (loss > 0) snprintf(value, sizeof value, "%.17g", loss);
    snprintf(text, sizeof text,
             "{\"id\": \"n/%s/%d%s\", \"model\": \"n\", \"level\": \"%s\", \"scale_policy\": \"1\", "
             "\"half_format\": "
             "\"fp16\", \"device\": \"cpu\", \"seed\": %d, \"twin\": %s, \"policy\": {\"loss_scale\": 1}, "
             "\"summary\": {\"loss_final\": %s}}",
             level, seed, twin ? "/ulp" : "", level, seed, twin ? "\"ulp\"" : "null", value);
    cJSON *cell = cJSON_Parse(text);
    assert_non_null(cell);
    cJSON_AddItemToArray(cJSON_GetObjectItem(document, "cells"), cell);
}

/* O0 scatters by 0.2 over the seeds; the level is `gap` above it, give or take `noise`. */
static cJSON *run_of(int seeds, double gap, double noise) {
    cJSON *document = cJSON_CreateObject();
    cJSON_AddArrayToObject(document, "cells");
    for (int seed = 1; seed <= seeds; seed++) {
        double base = 1 + 0.1 * (seed * 3 % 5 - 2);
        add_cell(document, "O0", seed, base, false);
        add_cell(document, "O2", seed, base + gap + noise * (seed % 3 - 1), false);
    }
    add_cell(document, "O0", 1, 5, true);
    return document;
}

static const cJSON *only_entry(cJSON *document, cJSON *other, cJSON **result) {
    const ab_equivalence_options options = ab_equivalence_options_standard();
    assert_int_equal(ab_equivalence(document, other, &options, result), AB_OK);
    assert_int_equal(cJSON_GetArraySize(*result), 1);
    return (*result)->child;
}

static void expect(int seeds, double gap, double noise, const char *verdict, const char *text) {
    cJSON *document = run_of(seeds, gap, noise), *result;
    const cJSON *entry = only_entry(document, NULL, &result);
    assert_string_equal(ab_json_text(entry, "verdict", ""), verdict);
    if (!strstr(ab_json_text(entry, "text", ""), text))
        fail_msg("no \"%s\" in: %s", text, ab_json_text(entry, "text", ""));
    cJSON_Delete(result);
    cJSON_Delete(document);
}

/* Two levels that both know nothing end alike; that is not equivalence. */
static void knowing_nothing_alike_is_not_equivalent(void **state) {
    (void)state;
    cJSON *document = run_of(5, 0.001, 0.002), *result, *cell;
    cJSON_ArrayForEach(cell, cJSON_GetObjectItem(document, "cells")) {
        cJSON *summary = cJSON_GetObjectItem(cell, "summary");
        cJSON_AddFalseToObject(summary, "baseline_learned");
        cJSON_AddStringToObject(summary, "baseline_learned_reason", "O0 learned nothing: as a constant");
    }
    const cJSON *entry = only_entry(document, NULL, &result);
    assert_string_equal(ab_json_text(entry, "verdict", ""), "unclear");
    assert_non_null(strstr(ab_json_text(entry, "text", ""), "O0 learned nothing: as a constant"));
    cJSON_Delete(result);
    cJSON_Delete(document);
}

static void flushed_subnormals_are_refused_beside_kept_ones(void **state) {
    (void)state;
    const ab_equivalence_options options = ab_equivalence_options_standard();
    for (int flushed = 0; flushed < 2; flushed++) {
        cJSON *side[2] = {run_of(5, 0, 0), run_of(5, 0, 0)}, *result;
        cJSON_AddTrueToObject(cJSON_AddObjectToObject(side[flushed], "config"), "flush_denormal");
        assert_int_equal(ab_equivalence(side[0], side[1], &options, &result), AB_NOT_COMPARABLE);
        assert_non_null(strstr(ab_error_message(), flushed ? "the second result was computed with"
                                                           : "the first result was computed with"));
        cJSON_Delete(result);
        assert_int_equal(ab_equivalence(side[0], side[0], &options, &result), AB_OK);
        cJSON_Delete(result);
        cJSON_Delete(side[0]);
        cJSON_Delete(side[1]);
    }
}

static void the_scatter_of_seeds_cancels_in_pairs(void **state) {
    (void)state;
    expect(5, 0.001, 0.002, "equivalent", "equivalent: over 5 seeds");
    expect(5, 0.02, 0.001, "equivalent", "equivalent, with a small but real difference");
    expect(5, 0.3, 0.01, "different", "not equivalent: over 5 seeds");
}

static void noise_beyond_the_margin_is_unclear_and_says_how_many_seeds_would_do(void **state) {
    (void)state;
    expect(5, 0.01, 0.1, "unclear", "seeds would show it with a power of 80 %");
    expect(1, 0.001, 0, "unclear", "1 seed says nothing about others");
}

static void a_seed_that_broke_is_not_equivalent(void **state) {
    (void)state;
    cJSON *document = run_of(5, 0, 0.001), *result;
    add_cell(document, "O0", 9, 1, false);
    add_cell(document, "O2", 9, 0, false); /* no final loss */
    const cJSON *entry = only_entry(document, NULL, &result);
    assert_string_equal(ab_json_text(entry, "verdict", ""), "failed");
    assert_non_null(strstr(ab_json_text(entry, "text", ""), "1 of 6 seeds have no final loss"));
    cJSON_Delete(result);
    cJSON_Delete(document);
}

static void two_results_are_paired_by_cell(void **state) {
    (void)state;
    const ab_equivalence_options options = ab_equivalence_options_standard();
    cJSON *base = run_of(5, 0, 0.001), *other = run_of(5, 0.3, 0.001), *result;
    assert_int_equal(ab_equivalence(base, other, &options, &result), AB_OK);
    assert_int_equal(cJSON_GetArraySize(result), 2); /* O0 against O0, O2 against O2; no twins */
    assert_string_equal(ab_json_text(result->child, "verdict", ""), "equivalent");
    assert_string_equal(ab_json_text(result->child->next, "verdict", ""), "different");
    cJSON_Delete(result);
    cJSON_Delete(base);
    cJSON_Delete(other);
}

/* Loss scales whose texts differ behind byte 60 alone. */
static void series_that_differ_late_stay_two(void **state) {
    (void)state;
    static const char *const ends[] = {"True", "False"};
    cJSON *document = run_of(3, 0.001, 0.002), *result;
    for (int i = 0, n = 0; i < cJSON_GetArraySize(cJSON_GetObjectItem(document, "cells")); i++) {
        cJSON *cell = cJSON_GetArrayItem(cJSON_GetObjectItem(document, "cells"), i);
        if (strcmp(ab_json_text(cell, "level", ""), "O2") != 0) continue;
        char scale[200];
        snprintf(scale, sizeof scale, "deepspeed:init=1.0000000000000002,window=1000000000000001,raises=%s",
                 ends[n++ % 2]);
        cJSON_ReplaceItemInObject(cell, "scale_policy", cJSON_CreateString(scale));
    }
    const ab_equivalence_options options = ab_equivalence_options_standard();
    assert_int_equal(ab_equivalence(document, NULL, &options, &result), AB_OK);
    assert_int_equal(cJSON_GetArraySize(result), 2);
    assert_non_null(strstr(ab_json_text(result->child, "series", ""), "raises=True/fp16/cpu"));
    assert_non_null(strstr(ab_json_text(result->child->next, "series", ""), "raises=False/fp16/cpu"));
    cJSON_Delete(result);
    cJSON_Delete(document);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(series_that_differ_late_stay_two),
        cmocka_unit_test(the_scatter_of_seeds_cancels_in_pairs),
        cmocka_unit_test(flushed_subnormals_are_refused_beside_kept_ones),
        cmocka_unit_test(noise_beyond_the_margin_is_unclear_and_says_how_many_seeds_would_do),
        cmocka_unit_test(a_seed_that_broke_is_not_equivalent),
        cmocka_unit_test(knowing_nothing_alike_is_not_equivalent),
        cmocka_unit_test(two_results_are_paired_by_cell),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
