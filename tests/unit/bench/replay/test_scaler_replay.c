/* Replays of loss scalers: a scaler on its own record repeats it; predictions against runs really made
 * (scripts/replay-pairs); logs; grids. Small cases are counted by hand. */
#define _POSIX_C_SOURCE 200809L /* getline */
#include "bench/replay/replay.h"
#include "reports/record/json.h"
#include "reports/stats/flush_interval.h"
#include "reports/stats/stats.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static ab_scaler_config scaler_of(const char *text) {
    ab_scaler_config config;
    if (ab_scaler_parse(text, &config) != AB_OK) fail_msg("%s", ab_error_message());
    return config;
}

static ab_replay_row replayed(const ab_recorded *recorded, const char *scaler) {
    ab_replay_row row;
    const ab_scaler_config config = scaler_of(scaler);
    assert_int_equal(ab_replay_scaler(recorded, &config, &row), AB_OK);
    return row;
}

static void assert_near(double x, double expected, double relative) {
    if (!(fabs(x - expected) <= relative * fabs(expected))) fail_msg("%.12g, expected %.12g", x, expected);
}

/* ---- runs really made ------------------------------------------------------------------------- */

typedef struct tally {
    int pairs, skips, flushes, flushes_alone;
} tally;

/* Where the recorded gradients are known within bounds only, the middle of what is possible. */
static void judge_skips(const ab_replay_row *row, const cJSON *pair, tally *t) {
    double low, high;
    const int steps = (int)ab_json_number(pair, "steps", 0),
              skipped = (int)ab_json_number(pair, "skipped", 0);
    ab_clopper_pearson(skipped, steps, 0.95, &low, &high);
    const double share = (double)(row->least.skipped + row->most.skipped) / 2 / steps;
    const bool inside = share >= low && share <= high;
    t->skips += inside;
    if (!inside) print_message("%s: skips %g of [%g, %g]\n", row->scaler, share, low, high);
}

static int numbers(const cJSON *list, double *value) {
    const cJSON *item;
    int n = 0;
    cJSON_ArrayForEach(item, list) value[n++] = item->valuedouble;
    return n;
}

/* The recorded run is a sample as well as the trained one: the interval is that of their difference. */
static void judge_flushes(const ab_replay_row *row, const cJSON *pair, tally *t) {
    double values[AB_FLUSH_COLUMNS], lost[AB_FLUSH_COLUMNS];
    ab_flush_interval interval, alone;
    const int n = numbers(ab_json_at(pair, "values"), values);
    assert_int_equal(numbers(ab_json_at(pair, "lost"), lost), n);
    ab_flush_interval_of(values, lost, n, 2, &interval);
    ab_flush_interval_of(values, lost, n, 1, &alone);
    const double share = isnan(row->most.flushed) ? 0 : row->most.flushed;
    const bool inside = share >= interval.low && share <= interval.high;
    t->flushes += inside;
    t->flushes_alone += share >= alone.low && share <= alone.high;
    if (!inside)
        print_message("%s: flushed %g, really %g, [%g, %g]\n", row->scaler, share, interval.share,
                      interval.low, interval.high);
}

static void judge_line(const char *text, tally *t) {
    cJSON *line = cJSON_Parse(text);
    const cJSON *pair;
    ab_recorded recorded;
    assert_non_null(line);
    if (ab_recorded_of_document(ab_json_at(line, "record"), NULL, NULL, &recorded) != AB_OK)
        fail_msg("%s", ab_error_message());
    const ab_replay_row own = replayed(&recorded, ab_json_text(line, "scaler", ""));
    assert_int_equal(own.least.differing, 0);
    assert_int_equal(own.most.differing, 0);
    assert_int_equal(own.most.agreed, recorded.steps);
    const cJSON *cell = cJSON_GetArrayItem(ab_json_at(line, "record.cells"), 0);
    assert_int_equal(own.most.skipped, (int64_t)ab_json_number(cell, "steps_skipped", -1));
    cJSON_ArrayForEach(pair, ab_json_at(line, "pairs")) {
        const ab_replay_row row = replayed(&recorded, ab_json_text(pair, "scaler", ""));
        judge_skips(&row, pair, t);
        judge_flushes(&row, pair, t);
        t->pairs++;
    }
    ab_recorded_free(&recorded);
    cJSON_Delete(line);
}

static void predictions_lie_in_the_intervals_of_runs_really_made(void **state) {
    (void)state;
    tally t = {0};
    char *line = NULL;
    size_t room = 0;
    FILE *file = fopen(AB_REPLAY_FILE, "r");
    assert_non_null(file);
    while (getline(&line, &room, file) > 0) judge_line(line, &t);
    fclose(file);
    free(line);
    print_message(
        "%d pairs: in the interval are the skips of %d, the flushes of %d (of %d in that of the trained run "
        "alone)\n",
        t.pairs, t.skips, t.flushes, t.flushes_alone);
    assert_true(t.pairs >= 40);
    assert_true(t.skips >= 0.95 * t.pairs);
    assert_true(t.flushes >= 0.95 * t.pairs);
}

/* ---- by hand ---------------------------------------------------------------------------------- */

/* A record of one tensor at scale 1024, whose margin and exponents are given. */
static const char by_hand[] =
    "{\"cells\":[{\"id\":\"hand\",\"level\":\"O2\",\"scale_policy\":\"dynamic\",\"half_format\":\"fp16\","
    "\"steps_total\":6,\"steps_skipped\":1,\"skipped_steps\":[2],\"scale\":[[1024,3],[512,3]],"
    "\"probes\":{\"tensors\":[{\"name\":\"w.grad\",\"layer\":\"w\",\"cast\":true,"
    "\"steps\":{\"first\":0,\"stride\":1,\"margin_octaves\":[1.5,1.5,-0.5,1.5,1.5,1.5]},"
    "\"exponents\":{\"first\":-26,\"counts\":[3,5,0,8]}}]}}]}";

static ab_recorded record_by_hand(void) {
    cJSON *document = cJSON_Parse(by_hand);
    ab_recorded recorded;
    assert_non_null(document);
    if (ab_recorded_of_document(document, NULL, NULL, &recorded) != AB_OK) fail_msg("%s", ab_error_message());
    cJSON_Delete(document);
    return recorded;
}

static void the_recorded_scaler_repeats_its_run(void **state) {
    (void)state;
    ab_recorded recorded = record_by_hand();
    const ab_replay_row row = replayed(&recorded, "torch:init=1024");
    ab_replay_outcome own;
    assert_int_equal(ab_replay_recorded(&recorded, &own), AB_OK);
    assert_int_equal(own.skipped, 1);
    assert_int_equal(row.least.skipped, 1);
    assert_int_equal(row.most.agreed, 6);
    assert_true(row.most.final_scale == 512);
    assert_near(row.most.flushed, own.flushed, 1e-12);
    ab_recorded_free(&recorded);
}

static void a_higher_scale_stays_until_it_is_low_enough(void **state) {
    (void)state;
    ab_recorded recorded = record_by_hand();
    /* step 0 fits below 1024 * 2^1.5: at 8192 and 4096 it overflows, at 2048 not */
    const ab_replay_row row = replayed(&recorded, "torch:init=8192");
    /* the third batch at these weights is that of step 2, which overflows at 2048 */
    assert_int_equal(row.most.wasted, 3);
    assert_int_equal(row.most.agreed, 0);
    assert_true(row.most.final_scale <= 1024);
    ab_recorded_free(&recorded);
}

static void a_lower_scale_goes_past_the_recorded_skip(void **state) {
    (void)state;
    ab_recorded recorded = record_by_hand();
    const ab_replay_row row = replayed(&recorded, "torch:init=64");
    assert_int_equal(row.most.skipped, 0);
    assert_int_equal(row.most.agreed, 2);
    assert_int_equal(row.most.differing, 1);
    /* step 2 is taken, the record took it in step 3: steps 4 and 5 follow, then the record ends */
    assert_int_equal(row.most.beyond, 1);
    ab_recorded_free(&recorded);
}

static void flushes_are_those_below_half_the_smallest_subnormal(void **state) {
    (void)state;
    ab_recorded recorded = record_by_hand();
    /* Counts at the recorded scales, half of them 1024 and half 512: e - 10 and e - 9. At scale 2^8 values
     * below 2^-33 are flushed, of those at e - 10: e < -23 (8 of 16), at e - 9: e < -24 (8 of 16). */
    const ab_replay_row row = replayed(&recorded, "fixed-skip:init=256");
    assert_near(row.most.flushed, 0.5, 1e-12);
    /* at 2^11: below 2^-36: e < -26 and e < -27: none; at 2^10: e < -25 (3), e < -26 (none) */
    assert_near(replayed(&recorded, "fixed-skip:init=1024").least.flushed, 1.5 / 16, 1e-12);
    assert_near(replayed(&recorded, "fixed-skip:init=128").least.flushed, 0.75, 1e-12);
    assert_near(replayed(&recorded, "fixed-skip:init=16").least.flushed, 1, 1e-12);
    assert_int_equal(row.most.worst, 0);
    ab_recorded_free(&recorded);
}

/* ---- logs ------------------------------------------------------------------------------------- */

static ab_recorded record_of(const char *text) {
    ab_log log = {.points = 0};
    ab_recorded recorded;
    if (ab_log_read_bytes(&log, "a.log", text, strlen(text)) != AB_OK) fail_msg("%s", ab_error_message());
    if (ab_recorded_of_log(&log, NULL, &recorded) != AB_OK) fail_msg("%s", ab_error_message());
    ab_log_free(&log);
    return recorded;
}

static void a_log_bounds_the_largest_gradient(void **state) {
    (void)state;
    ab_recorded recorded = record_of("step,scale,skipped\n1,1024,0\n2,512,1\n3,512,0\n4,512,0\n");
    assert_int_equal(recorded.steps, 4);
    assert_false(recorded.step[0].skipped);
    assert_true(recorded.step[1].skipped);
    assert_near(recorded.step[0].high, 65520.0 / 1024, 1e-9);
    assert_near(recorded.step[1].low, 65520.0 / 1024, 1e-9);
    assert_near(recorded.step[1].high, 65520.0 / 512, 1e-9);
    assert_true(recorded.step[2].low == 0);
    const ab_replay_row own = replayed(&recorded, "torch:init=1024");
    assert_int_equal(own.least.agreed, 4);
    assert_int_equal(own.most.agreed, 4);
    /* twice the scale: the first step may overflow or not, the second must */
    const ab_replay_row twice = replayed(&recorded, "torch:init=2048");
    assert_int_equal(twice.least.skipped, 1);
    assert_int_equal(twice.most.skipped, 2);
    assert_true(isnan(twice.most.flushed));
    ab_recorded_free(&recorded);
}

static void lines_of_overflows_between_steps_are_placed(void **state) {
    (void)state;
    ab_recorded recorded = record_of(
        "step 1 | loss 2.0\nGradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 32768.0\n"
        "step 3 | loss 1.9\nstep 4 | loss 1.8\n");
    assert_int_equal(recorded.steps, 4);
    int skipped = 0;
    for (int64_t i = 0; i < recorded.steps; i++) skipped += recorded.step[i].skipped;
    assert_int_equal(skipped, 1);
    assert_near(recorded.step[2].low, 65520.0 / 65536, 1e-9);
    ab_recorded_free(&recorded);
}

static void a_log_that_counts_nothing_is_refused(void **state) {
    (void)state;
    static const char text[] =
        "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 32768.0\n";
    ab_log log = {.points = 0};
    ab_recorded recorded;
    assert_int_equal(ab_log_read_bytes(&log, "a.log", text, strlen(text)), AB_OK);
    assert_int_equal(ab_recorded_of_log(&log, NULL, &recorded), AB_INPUT);
    ab_recorded_free(&recorded);
    ab_log_free(&log);
}

/* ---- grids ------------------------------------------------------------------------------------ */

static void a_grid_is_every_combination(void **state) {
    (void)state;
    const ab_scaler_config base[] = {scaler_of("torch"), scaler_of("fixed-skip")};
    ab_scaler_config *configs;
    int count;
    assert_int_equal(ab_replay_grid("window=100/500,init=2^8..2^10", base, 2, &configs, &count), AB_OK);
    assert_int_equal(count, 6 + 3);
    char text[AB_SCALER_TEXT];
    assert_string_equal(ab_scaler_text(&configs[0], text), "torch:init=256,window=100");
    assert_string_equal(ab_scaler_text(&configs[8], text), "fixed-skip:init=1024");
    free(configs);
    assert_int_equal(ab_replay_grid("window=2^4..2^10:3", base, 1, &configs, &count), AB_OK);
    assert_int_equal(count, 3);
    assert_string_equal(ab_scaler_text(&configs[2], text), "torch:window=1024");
    free(configs);
}

static void a_grid_that_says_nothing_is_refused(void **state) {
    (void)state;
    const ab_scaler_config base = scaler_of("torch");
    static const char *const bad[] = {"",
                                      "window",
                                      "window=",
                                      "=5",
                                      "windw=100",
                                      "init=2^9..2^8",
                                      "init=0..8",
                                      "window=1/",
                                      "window=1.5",
                                      "init=1..2^1000",
                                      "init=2^8..frog",
                                      "window=x",
                                      "init=2^8..2^16:skip"};
    for (size_t i = 0; i < AB_COUNT_OF(bad); i++) {
        ab_scaler_config *configs;
        int count;
        if (ab_replay_grid(bad[i], &base, 1, &configs, &count) != AB_USAGE)
            fail_msg("'%s' was taken", bad[i]);
        assert_null(configs);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(predictions_lie_in_the_intervals_of_runs_really_made),
        cmocka_unit_test(the_recorded_scaler_repeats_its_run),
        cmocka_unit_test(a_higher_scale_stays_until_it_is_low_enough),
        cmocka_unit_test(a_lower_scale_goes_past_the_recorded_skip),
        cmocka_unit_test(flushes_are_those_below_half_the_smallest_subnormal),
        cmocka_unit_test(a_log_bounds_the_largest_gradient),
        cmocka_unit_test(lines_of_overflows_between_steps_are_placed),
        cmocka_unit_test(a_log_that_counts_nothing_is_refused),
        cmocka_unit_test(a_grid_is_every_combination),
        cmocka_unit_test(a_grid_that_says_nothing_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
