/* The interval of a flushed share over all steps, from the steps that were probed: runs whose every step is
 * known, probed at every offset of several intervals. */
#include "reports/record/sampling.h"

#include "reports/record/result.h"
#include "support/json_file.h"
#include "support/recompute.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { STEPS = 960, VALUES = 4000 };

/* Every step of a run: a share that drifts by `drift` of itself, and scatters from step to step. */
static void train(double share, double drift, double scatter, double flushed[STEPS]) {
    uint64_t state = 1;
    for (int i = 0; i < STEPS; i++) {
        double sum = 0; /* of twelve uniform numbers: nearly normal */
        for (int k = 0; k < 12; k++) {
            state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            sum += (double)(state >> 11) * 0x1p-53;
        }
        flushed[i] =
            rint(VALUES * share * (1 + drift * ((double)i / STEPS - 0.5)) * exp(scatter * (sum - 6)));
    }
}

static cJSON *list_of(const double *value, int first, int every) {
    cJSON *list = cJSON_CreateArray();
    for (int i = first; i < STEPS; i += every)
        cJSON_AddItemToArray(list, cJSON_CreateNumber(value ? value[i] : VALUES));
    return list;
}

/* A cell of two tensors, of which one was cast; the other flushes everything. Its updates are lost as the
 * first one's gradients are flushed. */
static cJSON *cell_of(const double *flushed, int first, int every) {
    cJSON *cell = cJSON_CreateObject(), *probes = cJSON_AddObjectToObject(cell, "probes"),
          *tensors = cJSON_AddArrayToObject(probes, "tensors");
    cJSON_AddNumberToObject(cell, "steps_total", STEPS);
    cJSON_AddNumberToObject(probes, "steps_probed", (STEPS - first + every - 1) / every);
    for (int cast = 0; cast < 2; cast++) {
        cJSON *tensor = cJSON_CreateObject(), *steps = cJSON_AddObjectToObject(tensor, "steps");
        cJSON_AddBoolToObject(tensor, "cast", cast);
        cJSON_AddItemToObject(steps, "nonzero", list_of(NULL, first, every));
        cJSON_AddItemToObject(steps, "flushed", list_of(cast ? flushed : NULL, first, every));
        cJSON_AddStringToObject(tensor, "layer", cast ? "cast" : "kept");
        cJSON_AddItemToArray(tensors, tensor);
    }
    cJSON *updates = cJSON_AddArrayToObject(probes, "lost_updates"), *update = cJSON_CreateObject(),
          *steps = cJSON_AddObjectToObject(update, "steps");
    cJSON_AddItemToObject(steps, "nonzero", list_of(NULL, first, every));
    cJSON_AddItemToObject(steps, "lost", list_of(flushed, first, every));
    cJSON_AddItemToArray(updates, update);
    return cell;
}

static double share_of(const double *flushed) {
    double sum = 0;
    for (int i = 0; i < STEPS; i++) sum += flushed[i];
    return sum / STEPS / VALUES;
}

/* How many of the intervals, one for every offset, hold the share of all steps. */
static int holding(const double *flushed, int every) {
    int held = 0;
    for (int first = 0; first < every; first++) {
        ab_flush_interval interval;
        cJSON *cell = cell_of(flushed, first, every);
        assert_int_equal(ab_flushed_of_all_steps(cell, true, NULL, &interval), AB_SOME_STEPS);
        const double share = share_of(flushed);
        held += interval.low <= share && share <= interval.high;
        cJSON_Delete(cell);
    }
    return held;
}

/* Between 92 and 96 % of these do: few steps of a skewed share are a little too sure. */
static void the_interval_holds_the_share_of_all_steps(void **state) {
    (void)state;
    static const struct {
        double share, drift, scatter;
    } runs[] = {{0.02, 0, 0.3}, {0.02, 1, 0.3}, {0.005, 1.5, 0.6}, {0.3, 0.5, 0.1}, {1e-3, 0, 1}};
    double flushed[STEPS];
    for (size_t r = 0; r < AB_COUNT_OF(runs); r++) {
        int held = 0, all = 0;
        train(runs[r].share, runs[r].drift, runs[r].scatter, flushed);
        for (int every = 10; every <= 80; every += 10) {
            held += holding(flushed, every);
            all += every;
        }
        if (held < 0.9 * all) fail_msg("%d of %d intervals hold the share", held, all);
    }
}

/* Shares that vary by little are known better from more steps. */
static void more_steps_narrow_it(void **state) {
    (void)state;
    double flushed[STEPS], before = 1;
    train(0.05, 0, 0.2, flushed);
    for (int every = 160; every >= 2; every /= 2) {
        ab_flush_interval interval;
        cJSON *cell = cell_of(flushed, 0, every);
        if (STEPS / every <= AB_FLUSH_COLUMNS) {
            assert_int_equal(ab_flushed_of_all_steps(cell, true, NULL, &interval), AB_SOME_STEPS);
            assert_true(interval.high - interval.low < before);
            before = interval.high - interval.low;
        }
        cJSON_Delete(cell);
    }
    assert_true(before < 0.01);
}

static void every_step_probed_needs_none_and_two_give_none(void **state) {
    (void)state;
    double flushed[STEPS];
    ab_flush_interval interval = {0};
    train(0.05, 0, 0.2, flushed);
    cJSON *all = cell_of(flushed, 0, 1), *two = cell_of(flushed, 0, STEPS / 2);
    assert_int_equal(ab_flushed_of_all_steps(all, true, NULL, &interval), AB_EVERY_STEP);
    assert_int_equal(ab_flushed_of_all_steps(two, true, NULL, &interval), AB_TOO_FEW_STEPS);
    cJSON_DeleteItemFromObject(cJSON_GetObjectItem(two, "probes"), "steps_probed");
    assert_int_equal(ab_flushed_of_all_steps(two, true, NULL, &interval), AB_EVERY_STEP);
    cJSON_Delete(all);
    cJSON_Delete(two);
}

/* Of the layer that is named, and of updates that were lost: the same columns have the same interval. */
static void a_layer_and_lost_updates_have_their_own(void **state) {
    (void)state;
    double flushed[STEPS];
    ab_flush_interval cast = {0}, layer = {0}, kept = {0}, lost = {0};
    train(0.05, 0, 0.2, flushed);
    cJSON *cell = cell_of(flushed, 0, 40);
    assert_int_equal(ab_flushed_of_all_steps(cell, true, NULL, &cast), AB_SOME_STEPS);
    assert_int_equal(ab_flushed_of_all_steps(cell, false, "cast", &layer), AB_SOME_STEPS);
    assert_int_equal(ab_flushed_of_all_steps(cell, false, "kept", &kept), AB_SOME_STEPS);
    assert_int_equal(ab_lost_of_all_steps(cell, &lost), AB_SOME_STEPS);
    assert_memory_equal(&cast, &layer, sizeof cast);
    assert_memory_equal(&cast, &lost, sizeof cast);
    assert_true(cast.low < cast.share && cast.share < cast.high);
    assert_true(kept.share == 1 && kept.low > cast.high);
    cJSON_Delete(cell);
}

/* In a summary: bounds around the share, beside it or as a reason; none where every step was probed. */
/* Gives every cell updates that are lost now and then. */
static void lose_updates(cJSON *cell) {
    static const int lost[] = {0, 3, 1, 0, 2, 2, 5, 0, 1, 1, 0, 3},
                     values[AB_COUNT_OF(lost)] = {9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9};
    cJSON *updates = cJSON_AddArrayToObject(cJSON_GetObjectItem(cell, "probes"), "lost_updates"),
          *param = cJSON_CreateObject(), *all = cJSON_AddObjectToObject(param, "update"),
          *steps = cJSON_AddObjectToObject(param, "steps");
    cJSON_AddNumberToObject(all, "nonzero", 108);
    cJSON_AddNumberToObject(all, "lost", 18);
    cJSON_AddItemToObject(steps, "nonzero", cJSON_CreateIntArray(values, AB_COUNT_OF(lost)));
    cJSON_AddItemToObject(steps, "lost", cJSON_CreateIntArray(lost, AB_COUNT_OF(lost)));
    cJSON_AddItemToArray(updates, param);
}

static void a_summary_has_bounds_around_each_share(void **state) {
    (void)state;
    static const char *const shares[] = {"flushed_share", "worst_layer_flushed_share", "lost_share"};
    cJSON *document = ab_test_read_json(AB_SOURCE_DIR "/tests/fixtures/result_lenet5.json"), *cell;
    int bounded[AB_COUNT_OF(shares)] = {0};
    assert_non_null(document);
    cJSON_SetNumberValue(cJSON_GetObjectItem(cJSON_GetObjectItem(document, "cells")->child, "steps_total"),
                         1);
    cJSON_ArrayForEach(cell, cJSON_GetObjectItem(document, "cells")) { lose_updates(cell); }
    assert_int_equal(ab_result_summarise(document), AB_OK);
    cJSON_ArrayForEach(cell, member(document, "cells")) {
        for (size_t i = 0; i < AB_COUNT_OF(shares); i++) {
            char low_key[48], high_key[48];
            snprintf(low_key, sizeof low_key, "%s_low", shares[i]);
            snprintf(high_key, sizeof high_key, "%s_high", shares[i]);
            const cJSON *summary = member(cell, "summary");
            const double share = number_of(summary, shares[i]), low = number_of(summary, low_key),
                         high = number_of(summary, high_key);
            if (cell == member(document, "cells")->child || !isfinite(share)) {
                assert_null(member(summary, low_key));
                continue;
            }
            assert_true(low <= share && share <= high && low < high);
            bounded[i]++;
        }
    }
    for (size_t i = 0; i < AB_COUNT_OF(shares); i++) assert_true(bounded[i] > 0);
    cJSON_Delete(document);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_interval_holds_the_share_of_all_steps),
                                       cmocka_unit_test(more_steps_narrow_it),
                                       cmocka_unit_test(every_step_probed_needs_none_and_two_give_none),
                                       cmocka_unit_test(a_layer_and_lost_updates_have_their_own),
                                       cmocka_unit_test(a_summary_has_bounds_around_each_share)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
