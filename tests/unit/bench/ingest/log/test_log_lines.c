/* Lines of every format as their frameworks print them, and what may happen to a log on its way: colours,
 * carriage returns, ends that are cut, ranks, any place where a block of bytes ends. */
#include "bench/ingest/log/format.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static ab_log read_text(const char *text) {
    ab_log log = {.points = 0};
    if (ab_log_read_bytes(&log, "text", text, strlen(text)) != AB_OK) fail_msg("%s", ab_error_message());
    return log;
}

/* The value of a field in the point that `text` alone is. */
static void expect(const char *text, ab_log_field field, double value) {
    ab_log log = read_text(text);
    assert_int_equal(log.points, 1);
    const ab_log_point *point = &log.point[0];
    if (!(point->has >> field & 1u)) fail_msg("no %s in: %s", ab_log_field_name((int)field), text);
    if (isnan(value))
        assert_true(isnan(point->value[field]));
    else
        assert_true(point->value[field] == value);
    ab_log_free(&log);
}

static void examples_are_of_their_format(void **state) {
    (void)state;
    for (int i = 0; i < ab_log_format_count(); i++) {
        char text[512];
        snprintf(text, sizeof text, "%s\n", ab_log_format_example(i));
        ab_log log = read_text(text);
        assert_int_equal(log.points, 1);
        if (log.format_lines[i] != 1) fail_msg("%s does not take: %s", ab_log_format_name(i), text);
        ab_log_free(&log);
    }
}

/* Marks are found by parts of them at every fourth place, so each must be found from any of these. */
static void examples_may_begin_anywhere(void **state) {
    (void)state;
    for (int i = 0; i < ab_log_format_count(); i++)
        for (int before = 0; before < 8; before++) {
            char text[512];
            snprintf(text, sizeof text, "%.*s %s\n", before, "2026-11-27", ab_log_format_example(i));
            ab_log log = read_text(text);
            assert_int_equal(log.points, 1);
            if (log.format_lines[i] != 1) fail_msg("%s does not take: %s", ab_log_format_name(i), text);
            ab_log_free(&log);
        }
}

static void values_are_those_printed(void **state) {
    (void)state;
    expect("Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 6.26e-294\n",
           AB_LOG_scale_after, 6.26e-294);
    expect(
        "[t] [INFO] [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, but hysteresis "
        "is 2. Reducing hysteresis to 1\n",
        AB_LOG_scale_after, 65536);
    expect("[deepspeed] OVERFLOW! Rank 0 Skipping step. \n", AB_LOG_overflow, 1);
    expect("[Rank 0] Overflow detected. Skipping step. Attempted loss scale: 8.0, reducing to 4.0\n",
           AB_LOG_scale_after, 4);
    expect("Increasing dynamic loss scale from 32768.0 to 65536.0\n", AB_LOG_overflow, 0);
    expect(" iteration        2/       4 | consumed samples:           16 | lm loss: 1.5E-02 |\n",
           AB_LOG_loss, 0.015);
    expect(" iteration        2/       4 | consumed samples:           16 | number of skipped iterations:   "
           "3 |\n",
           AB_LOG_skipped, 3);
    expect("| WARNING: overflow detected, setting loss scale to: 64.0\n", AB_LOG_scale_after, 64);
    expect("INFO | train_inner | {\"epoch\": 1, \"loss\": \"14.351\", \"loss_scale\": \"0.062\"}\n",
           AB_LOG_scale, 0.062);
    expect("{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 1e-05, 'epoch': 0.04}\n", AB_LOG_grad_norm,
           (double)NAN);
    expect("{\"step\": 3, \"nested\": {\"loss\": 1, \"x\": [1, \"}\"]}, \"loss\": Infinity}\n", AB_LOG_loss,
           (double)INFINITY);
    expect("No overflow for consecutive 1000 steps, the loss scale is adjusted to 131072\n", AB_LOG_overflow,
           0);
    expect("Found inf or nan, current scale is: 1024.0, decrease to: 1024.0*0.5\n", AB_LOG_scale_after, 512);
    expect(
        "Epoch:[  2/  2], step:[    3/   19], loss:[2.244/2.244], time:1 ms, lr:[0.], overflow cond: True, "
        "loss_scale: 268435460.0\n",
        AB_LOG_step, 22);
    expect(
        "Epoch: 1 | Step: 5 | Loss: 3.5 | overflow cond: False | lr: 0.1 | loss scale: 64.0 | cost time: 1\n",
        AB_LOG_scale, 64);
    expect("Epoch 3:  45%|##| 45/100 [00:12<00:15,  3.20it/s, loss=0.532]\n", AB_LOG_step, 345);
    expect("iter 250: train loss 2.5, val loss 9.5\n", AB_LOG_loss, 2.5);
}

static void not_of_training(void **state) {
    (void)state;
    static const char *const texts[] = {"{'eval_loss': 1.0, 'epoch': 1}\n",
                                        "{'train_runtime': 3.0, 'train_loss': 0.3, 'epoch': 1.0}\n",
                                        "a loss of hope in 3 steps\n",
                                        "val loss 3, val step 4\n",
                                        "{'loss': \n",
                                        "loss: 2.5 and nothing else\n"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        ab_log log = {.points = 0};
        assert_int_equal(ab_log_read_bytes(&log, "text", texts[i], strlen(texts[i])), AB_INPUT);
        assert_non_null(strstr(ab_error_message(), "nearest lines: line 1: "));
        ab_log_free(&log);
    }
}

/* ---- what happens to a log on its way ---------------------------------------------------------- */

static const char mixed[] =
    "\033[32mstart\033[0m\r\n"
    "step 1 | loss: 2.5 | scale: 65536.0\r\n"
    " 10%|#| 1/10 [00:01<00:09, 1.0it/s, loss=2.25, scale=65536]\r 20%|##| 2/10 [00:02<00:08, 1.0it/s, "
    "loss=2.125, "
    "scale=32768]\r\n"
    "\033[1mstep\033[0m 3 | \033[31mloss\033[0m: 2 | scale: 32768.0\n"
    "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 16384.0\n";

static void same_points(const ab_log *a, const ab_log *b) {
    assert_int_equal(a->points, b->points);
    for (int i = 0; i < a->points; i++) {
        assert_int_equal(a->point[i].line, b->point[i].line);
        assert_int_equal(a->point[i].has, b->point[i].has);
        for (int f = 0; f < AB_LOG_FIELDS; f++)
            if (a->point[i].has >> f & 1u) assert_true(a->point[i].value[f] == b->point[i].value[f]);
    }
}

static void blocks_may_end_anywhere(void **state) {
    (void)state;
    ab_log whole = read_text(mixed);
    assert_int_equal(whole.points, 5);
    assert_int_equal(whole.point[4].line, 5);
    for (size_t cut = 1; cut + 1 < sizeof mixed; cut++) {
        ab_log parts = {.points = 0};
        assert_int_equal(ab_log_prepare(&parts), AB_OK);
        ab_log_stream stream = {.log = &parts, .name = "parts", .last = -1};
        assert_int_equal(ab_log_reader_lines.begin(&stream), AB_OK);
        assert_int_equal(ab_log_reader_lines.feed(&stream, mixed, cut), AB_OK);
        assert_int_equal(ab_log_reader_lines.feed(&stream, mixed + cut, sizeof mixed - 1 - cut), AB_OK);
        assert_int_equal(ab_log_reader_lines.end(&stream, AB_OK), AB_OK);
        same_points(&whole, &parts);
        ab_log_free(&parts);
    }
    ab_log_free(&whole);
}

static void a_cut_number_is_not_read(void **state) {
    (void)state;
    ab_log log = read_text("step 1, loss 2.5, scale 65536\nstep 2, loss 2.25, scale 6553");
    assert_true(log.cut);
    assert_int_equal(log.points, 2);
    assert_false(log.point[1].has >> AB_LOG_scale & 1u);
    assert_true(log.point[1].value[AB_LOG_loss] == 2.25);
    ab_log_free(&log);
}

static void ranks_say_things_once(void **state) {
    (void)state;
    ab_log log = read_text("[rank1]: step 1, loss 2.5\n[rank0]: step 1, loss 2.5\n[rank1]: step 2, loss 2\n"
                           "[rank0]: step 2, loss 2\n");
    assert_int_equal(log.points, 2);
    assert_int_equal(log.rank_high, 1);
    ab_log_free(&log);
    static const char line[] = "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to ";
    char text[2048] = "";
    const int scales[] = {32768, 16384, 16384};
    for (int i = 0; i < 12; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d.0\n", line, scales[i / 4]);
    log = read_text(text);
    assert_int_equal(log.copies, 4);
    assert_int_equal(log.points, 3);
    ab_log_free(&log);
}

static void columns_are_the_users(void **state) {
    (void)state;
    ab_log log = {.points = 0};
    static const char table[] = "n,loss,my ce,\"amp, scale\"\n1,9,2.5,64\n2,9,,32\n";
    assert_int_equal(ab_log_columns(&log, "step=n,loss=my ce"), AB_OK);
    assert_int_equal(ab_log_read_bytes(&log, "t", table, strlen(table)), AB_OK);
    assert_int_equal(log.points, 1);
    assert_true(log.point[0].value[AB_LOG_loss] == 2.5 && log.point[0].value[AB_LOG_step] == 1);
    assert_int_equal(ab_log_columns(&log, "los=x"), AB_USAGE);
    assert_non_null(strstr(ab_error_message(), "nearest: loss"));
    ab_log_free(&log);
}

static void rotated_files_sort(void **state) {
    (void)state;
    const char *path[] = {"run.log", "run.log.1", "run.log.10.gz", "run.log.2.gz"};
    ab_log_order(path, 4);
    assert_string_equal(path[0], "run.log.10.gz");
    assert_string_equal(path[1], "run.log.2.gz");
    assert_string_equal(path[2], "run.log.1");
    assert_string_equal(path[3], "run.log");
}

static void memory_is_bounded(void **state) {
    (void)state;
    enum { STEPS = 400000 };
    ab_log log = {.points = 0};
    assert_int_equal(ab_log_prepare(&log), AB_OK);
    for (int i = 0; i < STEPS; i++) {
        ab_log_point point = {.line = i + 1, .format = -1, .rank = -1};
        ab_log_set(&point, AB_LOG_step, i);
        ab_log_set(&point, AB_LOG_loss, i == 123456 ? (double)NAN : 1);
        ab_log_set(&point, AB_LOG_scale, i < 300000 ? 65536 : 32768);
        assert_int_equal(ab_log_add(&log, &point), AB_OK);
    }
    assert_int_equal(ab_log_settle(&log), AB_OK);
    assert_true(log.points <= 2 * AB_LOG_POINTS && log.points + log.left_out == STEPS);
    const ab_log_totals t = ab_log_total(&log);
    assert_int_equal(t.nonfinite_losses, 1);
    assert_true(t.last_step == STEPS - 1 && t.last_scale == 32768);
    int changes = 0;
    for (int i = 1; i < log.points; i++)
        if (log.point[i].value[AB_LOG_scale] != log.point[i - 1].value[AB_LOG_scale])
            changes += log.point[i].value[AB_LOG_step] == 300000;
    assert_int_equal(changes, 1);
    ab_log_free(&log);
}

/* Of lines that say nothing new as many are kept at the beginning as at the end, and always the one before a
 * line that does: what that one counts began there. */
static void lines_are_left_out_evenly(void **state) {
    (void)state;
    enum { STEPS = 1000000, EVERY = 9973 };
    ab_log log = {.points = 0};
    assert_int_equal(ab_log_prepare(&log), AB_OK);
    for (int i = 0; i < STEPS; i++) {
        ab_log_point point = {.line = i + 1, .format = 0, .rank = -1};
        ab_log_set(&point, AB_LOG_step, i);
        ab_log_set(&point, AB_LOG_skipped, i % EVERY == 0);
        assert_int_equal(ab_log_add(&log, &point), AB_OK);
    }
    assert_int_equal(ab_log_settle(&log), AB_OK);
    int events = 0, early = 0;
    for (int i = 1; i < log.points; i++) {
        const double step = log.point[i].value[AB_LOG_step], gap = step - log.point[i - 1].value[AB_LOG_step];
        assert_true(gap >= 1 && gap <= 16);
        early += step < STEPS / 2;
        if (log.point[i].value[AB_LOG_skipped] == 0) continue;
        events++;
        assert_true(gap == 1);
    }
    assert_int_equal(events, STEPS / EVERY);
    assert_true(log.point[log.points - 1].value[AB_LOG_step] == STEPS - 1);
    assert_true(early > log.points / 4 && early < 3 * (log.points / 4));
    assert_int_equal(log.points + log.left_out, STEPS);
    ab_log_free(&log);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(examples_are_of_their_format), cmocka_unit_test(examples_may_begin_anywhere),
        cmocka_unit_test(values_are_those_printed),     cmocka_unit_test(not_of_training),
        cmocka_unit_test(blocks_may_end_anywhere),      cmocka_unit_test(a_cut_number_is_not_read),
        cmocka_unit_test(ranks_say_things_once),        cmocka_unit_test(columns_are_the_users),
        cmocka_unit_test(rotated_files_sort),           cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test(lines_are_left_out_evenly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
