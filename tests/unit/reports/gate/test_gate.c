/* The gate on documents: what is comparable, what is exact, when times count, what adds up. */
#define _POSIX_C_SOURCE 200809L /* fmemopen */
#include "reports/gate/gate.h"
#include "reports/record/json.h"
#include "reports/record/result.h"
#include "support/json_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { ROUNDS = 400, ARMS = 5 };

static double recorded[ARMS][ROUNDS];

static int load(void **state) {
    (void)state;
    FILE *file = fopen(AB_SOURCE_DIR "/tests/fixtures/rounds/medians.txt", "r");
    if (!file) return -1;
    int read = 0;
    for (int r = 0; r < ROUNDS; r++)
        for (int a = 0; a < ARMS; a++) read += fscanf(file, "%lf", &recorded[a][r]);
    fclose(file);
    return read == ROUNDS * ARMS ? 0 : -1;
}

/* ---- documents ------------------------------------------------------------------------------- */

static cJSON *tiny(void) {
    cJSON *document = ab_test_read_json(AB_SOURCE_DIR "/tests/fixtures/result_tiny.json");
    assert_non_null(document);
    return document;
}

static cJSON *at(const cJSON *root, const char *path) {
    const cJSON *found = ab_json_at(root, path);
    assert_non_null(found);
    return (cJSON *)(uintptr_t)found;
}

/* Sets a number, string, ... (as JSON text) at "a.b.key" below root. */
static void set(cJSON *root, const char *path, const char *json) {
    char parent[128] = "";
    const char *dot = strrchr(path, '.');
    if (dot) snprintf(parent, sizeof parent, "%.*s", (int)(dot - path), path);
    cJSON *holder = dot ? at(root, parent) : root, *value = cJSON_Parse(json);
    assert_non_null(value);
    cJSON_DeleteItemFromObject(holder, dot ? dot + 1 : path);
    cJSON_AddItemToObject(holder, dot ? dot + 1 : path, value);
}

static cJSON *cell(cJSON *document, int i) { return cJSON_GetArrayItem(at(document, "cells"), i); }

/* A document of one timed cell as an arm of a session: round r took recorded[arm][first + r] * factor. */
static cJSON *arm_of_session(const char *session, int arm, int first, int rounds, double factor) {
    cJSON *document = tiny();
    while (cJSON_GetArraySize(at(document, "cells")) > 1) cJSON_DeleteItemFromArray(at(document, "cells"), 1);
    set(document, "noise_floor", "null");
    set(document, "design.order", "[[0]]");
    cJSON *processes = at(cell(document, 0), "processes"), *model = cJSON_DetachItemFromArray(processes, 0);
    while (cJSON_GetArraySize(processes) > 0) cJSON_DeleteItemFromArray(processes, 0);
    for (int r = 0; r <= rounds; r++) {
        cJSON *process = cJSON_Duplicate(model, 1);
        double time = recorded[arm][first + (r ? r - 1 : 0)] * factor;
        const double steps[] = {time, time + 100, time - 100, time + 50, time - 50};
        cJSON_ReplaceItemInObject(process, "round", cJSON_CreateNumber(r));
        cJSON_ReplaceItemInObject(process, "step_time_ns", cJSON_CreateDoubleArray(steps, 5));
        cJSON_AddItemToArray(processes, process);
    }
    cJSON_Delete(model);
    if (!session) return document;
    char text[200];
    snprintf(
        text, sizeof text,
        "{\"id\": \"%s\", \"arm\": \"x\", \"arms\": [\"a\", \"b\"], \"rounds\": %d, \"fixed_rounds\": 0, "
        "\"order_seed\": 1, \"order\": []}",
        session, rounds);
    set(document, "design.session", text);
    return document;
}

/* Every round has a clock and a load. */
static void add_circumstances(cJSON *document, double clock, double others) {
    cJSON *process;
    cJSON_ArrayForEach(process, at(cell(document, 0), "processes")) {
        cJSON_AddNumberToObject(process, "clock_loop_ns", clock);
        cJSON_AddNumberToObject(process, "other_load", others);
    }
}

/* ---- comparing ------------------------------------------------------------------------------- */

typedef struct outcome {
    int exit_status;
    char text[16384], message[1024];
    cJSON *gate;
} outcome;

static outcome result;

/* Deletes the documents. */
static const outcome *compare_with(cJSON *base, cJSON *other, cJSON *pinned, const ab_gate_options *options) {
    cJSON *documents[] = {base, other, pinned};
    cJSON_Delete(result.gate);
    memset(&result, 0, sizeof result);
    for (int i = 0; i < 3; i++) {
        if (!documents[i]) continue;
        assert_int_equal(ab_result_check(documents[i], "mutant"), AB_OK);
        assert_int_equal(ab_result_summarise(documents[i]), AB_OK);
    }
    assert_int_equal(ab_gate_compare((ab_gate_side){base, "base.json"}, (ab_gate_side){other, "new.json"},
                                     (ab_gate_side){pinned, "pinned.json"}, options, &result.gate),
                     AB_OK);
    ab_status status = ab_gate_status(result.gate);
    result.exit_status = ab_status_exit(status);
    snprintf(result.message, sizeof result.message, "%s", status == AB_OK ? "" : ab_error_message());
    FILE *out = fmemopen(result.text, sizeof result.text - 1, "w");
    assert_non_null(out);
    ab_gate_print(result.gate, out);
    fclose(out);
    for (int i = 0; i < 3; i++) cJSON_Delete(documents[i]);
    return &result;
}

static const outcome *compare(cJSON *base, cJSON *other) {
    ab_gate_options options = ab_gate_options_standard();
    return compare_with(base, other, NULL, &options);
}

static void expect(const outcome *o, int exit_status, const char *text) {
    if (o->exit_status != exit_status)
        fail_msg("exit status %d, expected %d:\n%s", o->exit_status, exit_status, o->text);
    if (!strstr(o->text, text)) fail_msg("no \"%s\" in:\n%s", text, o->text);
}

/* ---- numerics and work ----------------------------------------------------------------------- */

static void the_same_result_passes(void **state) {
    (void)state;
    const outcome *o = compare(tiny(), tiny());
    expect(o, 0, "PASS");
    assert_string_equal(o->message, "");
    assert_non_null(strstr(o->text, "advisory"));
}

static void one_bit_of_a_loss_exits_4(void **state) {
    (void)state;
    cJSON *other = tiny(), *loss = cJSON_GetArrayItem(at(cell(other, 0), "loss"), 3);
    loss->valuedouble *= 1 + 0x1p-20;
    expect(compare(tiny(), other), 4, "the first at step 3");
    other = tiny();
    set(cell(other, 0), "loss_digest", "\"0000000000000000\"");
    expect(compare(tiny(), other), 4, "the bits of the losses differ");
}

static void a_declared_bound_accepts_small_differences_only(void **state) {
    (void)state;
    ab_gate_options options = ab_gate_options_standard();
    options.loss_bound = 1e-5;
    for (int large = 0; large < 2; large++) {
        cJSON *other = tiny();
        cJSON_GetArrayItem(at(cell(other, 0), "loss"), 3)->valuedouble *= large ? 1 + 1e-4 : 1 + 1e-6;
        set(cell(other, 0), "loss_digest", "\"0000000000000000\"");
        expect(compare_with(tiny(), other, NULL, &options), large ? 4 : 0,
               large ? "more than the bound" : "PASS");
    }
}

static void another_growth_interval_exits_4(void **state) {
    (void)state;
    cJSON *base = tiny(), *other = tiny();
    set(cell(base, 0), "scale", "[[65536, 3], [131072, 3]]");
    set(cell(other, 0), "scale", "[[65536, 4], [131072, 2]]");
    expect(compare(base, other), 4, "another way from step 3 on: 65536, was 2^17");
    base = tiny(), other = tiny();
    set(cell(base, 0), "scale", "[[65536, 3], [65536, 3]]"); /* the same way, written in another way */
    set(cell(other, 0), "scale", "[[65536, 6]]");
    expect(compare(base, other), 0, "PASS");
}

static void other_skips_exit_4(void **state) {
    (void)state;
    cJSON *base = tiny(), *other = tiny();
    for (int i = 0; i < 2; i++) {
        cJSON *c = cell(i ? other : base, 0);
        set(c, "steps_applied", "5");
        set(c, "steps_skipped", "1");
        set(c, "skipped_steps", i ? "[2]" : "[1]");
    }
    expect(compare(base, other), 4, "not the same ones");
}

static int cast_tensor(const cJSON *c) {
    int i = 0;
    const cJSON *tensor;
    cJSON_ArrayForEach(tensor, ab_json_at(c, "probes.tensors")) {
        if (ab_json_is_true(tensor, "cast") && ab_json_number(tensor, "normal", 0) > 0) return i;
        i++;
    }
    return -1;
}

/* One value more is flushed in the first column. */
static void flush_one(cJSON *document, int i) {
    cJSON *tensor =
        cJSON_GetArrayItem(at(cell(document, i), "probes.tensors"), cast_tensor(cell(document, i)));
    cJSON *flushed = at(tensor, "flushed"), *normal = at(tensor, "normal"),
          *column = at(tensor, "steps.flushed")->child;
    cJSON_SetNumberValue(flushed, flushed->valuedouble + 1);
    cJSON_SetNumberValue(normal, normal->valuedouble - 1);
    cJSON_SetNumberValue(column, column->valuedouble + 1);
}

static int half_cell(void) {
    cJSON *document = tiny();
    int found = -1;
    for (int i = 0; i < cJSON_GetArraySize(at(document, "cells")) && found < 0; i++)
        if (cast_tensor(cell(document, i)) >= 0) found = i;
    cJSON_Delete(document);
    assert_true(found >= 0);
    return found;
}

static void a_flushed_value_more_exits_4_if_the_same_steps_were_probed(void **state) {
    (void)state;
    cJSON *base = tiny(), *other = tiny();
    int i = half_cell();
    flush_one(other, i);
    expect(compare(base, other), 4, "values flushed, was");
    base = tiny(), other = tiny();
    flush_one(other, i);
    set(cell(other, i), "probes.steps_probed", "1");
    expect(compare(base, other), 0, "other steps were probed");
}

static void a_byte_more_exits_3_and_a_byte_less_asks_for_a_baseline(void **state) {
    (void)state;
    for (int less = 0; less < 2; less++) {
        cJSON *base = tiny(), *other = tiny(), *grown = less ? base : other;
        cJSON *part = at(cell(grown, 0), "memory_bytes.workspace"),
              *total = at(cell(grown, 0), "memory_bytes.total");
        cJSON_SetNumberValue(part, part->valuedouble + 4096);
        cJSON_SetNumberValue(total, total->valuedouble + 4096);
        const outcome *o = compare(base, other);
        expect(o, less ? 0 : 3, "bytes of workspace");
        assert_true(ab_json_is_true(o->gate, "gate.refresh_baseline") == (less == 1));
        expect(o, less ? 0 : 3, less ? "record a new baseline" : "find what allocates");
    }
    cJSON *other = tiny();
    set(cell(other, 0), "casts_per_step", "99");
    expect(compare(tiny(), other), 3, "casts a step: 99");
    other = tiny();
    set(cell(other, 0), "flops_per_step", "1e12");
    expect(compare(tiny(), other), 3, "FLOPs a step");
    cJSON *base = tiny();
    other = tiny();
    set(cell(base, 0), "kernel_launches_per_step", "10");
    set(cell(other, 0), "kernel_launches_per_step", "11");
    expect(compare(base, other), 3, "kernel launches a step: 11, was 10 (+10.00 %)");
}

static void losses_that_are_not_finite_void_the_speed_up_and_exit_4_even_in_both(void **state) {
    (void)state;
    cJSON *documents[2];
    int i = half_cell();
    for (int d = 0; d < 2; d++) {
        documents[d] = tiny();
        set(cell(documents[d], i), "loss", "[2.5, null, null, null, null, null]");
        set(cell(documents[d], i), "nonfinite_losses", "5");
    }
    const outcome *o = compare(documents[0], documents[1]);
    expect(o, 4, "no certificate, its speed-up is void: 5 of 6 losses are not finite");
    const cJSON *entry;
    int voided = 0;
    cJSON_ArrayForEach(entry, at(o->gate, "speedups")) voided += cJSON_IsNull(ab_json_at(entry, "ratio"));
    assert_true(voided >= 1);
}

/* ---- what may be compared -------------------------------------------------------------------- */

static void other_conditions_are_not_comparable_and_named(void **state) {
    (void)state;
    static const char *const changes[][2] = {
        {"schema_version", "\"1.7.0\""},   {"environment.cpu_model", "\"another\""},
        {"environment.isa", "\"plain\""},  {"environment.hostname_hash", "\"00\""},
        {"config.threads", "7"},           {"config.net", "\"other\""},
        {"config.net_digest", "\"00\""},   {"config.batch", "3"},
        {"config.optimizer", "\"lamb\""},  {"config.lr", "3"},
        {"config.cpu_path", "\"native\""}, {"generator.compiler", "\"tcc\""},
        {"comparability_key", "\"00\""}};
    for (size_t i = 0; i < AB_COUNT_OF(changes); i++) {
        cJSON *other = tiny();
        set(other, changes[i][0], changes[i][1]);
        expect(compare(tiny(), other), 6, changes[i][0]);
        assert_non_null(strstr(result.message, changes[i][0]));
        assert_int_equal(cJSON_GetArraySize(at(result.gate, "differences")), 1);
        ab_gate_options options = ab_gate_options_standard();
        options.ignore = changes[i][0];
        other = tiny();
        set(other, changes[i][0], changes[i][1]);
        expect(compare_with(tiny(), other, NULL, &options), 0, changes[i][0]);
    }
    cJSON *both = tiny();
    set(both, "config.threads", "7");
    set(both, "config.batch", "3");
    compare(tiny(), both);
    assert_int_equal(cJSON_GetArraySize(at(result.gate, "differences")), 2);
}

/* No function of the C library reaches a loss; the records before this one did not name it. */
static void another_c_library_is_comparable(void **state) {
    (void)state;
    cJSON *base = tiny(), *other = tiny();
    cJSON_AddStringToObject(at(base, "environment"), "c_library", "glibc 2.31");
    cJSON_AddStringToObject(at(other, "environment"), "c_library", "glibc 2.41");
    expect(compare(base, other), 0, "");
    assert_int_equal(cJSON_GetArraySize(at(result.gate, "differences")), 0);
    other = tiny();
    cJSON_AddStringToObject(at(other, "environment"), "c_library", "glibc 2.41");
    expect(compare(tiny(), other), 0, "");
}

/* The second half of the steps has subnormal operands and takes twice as long. */
static cJSON *slowing(void) {
    cJSON *document = tiny(), *first = cell(document, 0), *process;
    char counts[400] = "[0", values[400] = "[1000", text[1200];
    for (int i = 1; i < 20; i++) {
        snprintf(counts + strlen(counts), sizeof counts - strlen(counts), ", %d", i < 10 ? 0 : 500);
        snprintf(values + strlen(values), sizeof values - strlen(values), ", 1000");
    }
    snprintf(
        text, sizeof text,
        "{\"values\": 20000, \"subnormal\": 5000, \"steps\": {\"first\": 0, \"stride\": 10, \"count\": 20, "
        "\"values\": %s], \"subnormal\": %s]}, \"operands\": [{\"name\": \"fc.weight\", \"layer\": \"fc\", "
        "\"kind\": \"exp_avg\", \"values\": 9, \"subnormal\": 9, \"first_step\": 100}]}",
        values, counts);
    set(first, "probes.subnormals", text);
    cJSON *losses = cJSON_CreateArray();
    for (int i = 0; i < 200; i++) cJSON_AddItemToArray(losses, cJSON_CreateNumber(1));
    cJSON_ReplaceItemInObject(first, "loss", losses);
    set(first, "steps_total", "200");
    set(first, "steps_applied", "200");
    set(first, "scale", "[[1, 200]]");
    cJSON_ArrayForEach(process, at(first, "processes")) {
        double times[199];
        for (int i = 0; i < 199; i++) times[i] = (i < 99 ? 1e6 : 2e6) + i % 3;
        cJSON_ReplaceItemInObject(process, "step_time_ns", cJSON_CreateDoubleArray(times, 199));
    }
    return document;
}

static void a_trend_by_subnormal_operands_is_noted(void **state) {
    (void)state;
    const outcome *o = compare(slowing(), slowing());
    if (!strstr(o->text, "base: step times have a trend: ") ||
        !strstr(o->text, "new: step times have a trend: ") ||
        !strstr(o->text,
                "from step 100 on up to 50.0 % of operands are subnormal (most: exp_avg of fc.weight)"))
        fail_msg("no note in:\n%s", o->text);
    assert_null(strstr(compare(tiny(), tiny())->text, "trend"));
    cJSON *document = slowing();
    cJSON_DeleteItemFromArray(at(cell(document, 0), "probes.subnormals.steps.subnormal"), 19);
    assert_int_equal(ab_result_check(document, "short"), AB_INPUT);
    assert_non_null(strstr(ab_error_message(), "steps.subnormal is 19, but steps.count is 20"));
    cJSON_Delete(document);
}

/* Records before --flush-denormal have no such key: they kept subnormals. */
static void flushed_subnormals_are_not_comparable_with_kept_ones(void **state) {
    (void)state;
    const char *const settings[] = {NULL, "false"};
    for (size_t i = 0; i < AB_COUNT_OF(settings); i++)
        for (int flushed = 0; flushed < 2; flushed++) {
            cJSON *side[2] = {tiny(), tiny()};
            cJSON_AddTrueToObject(at(side[flushed], "config"), "flush_denormal");
            if (settings[i]) cJSON_AddFalseToObject(at(side[!flushed], "config"), "flush_denormal");
            expect(compare(side[0], side[1]), 6, "config.flush_denormal");
            assert_non_null(strstr(result.message, "subnormal numbers were zeros in one of them"));
            assert_int_equal(cJSON_GetArraySize(at(result.gate, "differences")), 1);
        }
    cJSON *side[2] = {tiny(), tiny()};
    cJSON_AddFalseToObject(at(side[1], "config"), "flush_denormal");
    expect(compare(side[0], side[1]), 0, "");
}

static void missing_and_new_cells_are_named(void **state) {
    (void)state;
    char id[200];
    for (int fresh = 0; fresh < 2; fresh++) {
        for (int lenient = 0; lenient < 2; lenient++) {
            ab_gate_options options = ab_gate_options_standard();
            options.lenient = lenient;
            cJSON *base = tiny(), *other = tiny(), *fewer = fresh ? base : other;
            set(fewer, "design.order", "[]");
            int i = half_cell();
            snprintf(id, sizeof id, "%s", ab_json_text(cell(fewer, i), "id", ""));
            cJSON_DeleteItemFromArray(at(fewer, "cells"), i);
            const outcome *o = compare_with(base, other, NULL, &options);
            expect(o, lenient ? 0 : 6, id);
            expect(o, lenient ? 0 : 6,
                   fresh ? "new: the base has no such cell" : "missing: the base has this cell");
        }
    }
}

static void fp32_and_tf32_are_never_compared_as_one(void **state) {
    (void)state;
    cJSON *other = tiny();
    set(cell(other, 0), "math_mode", "\"tf32\"");
    expect(compare(tiny(), other), 6, "ieee_fp32 and tf32 are different series");
}

static void a_cell_whose_loss_scale_changed_is_compared_with_what_it_was(void **state) {
    (void)state;
    cJSON *other = tiny();
    set(cell(other, 0), "id", "\"tiny/changed\"");
    set(cell(other, 0), "scale_policy", "\"16777216\"");
    set(cell(other, 0), "scale", "[[16777216, 6]]");
    expect(compare(tiny(), other), 4, "another way from step 0 on: 2^24");
}

static void a_failed_cell_exits_1_before_anything_else(void **state) {
    (void)state;
    cJSON *other = tiny();
    set(cell(other, 0), "status", "\"failed\"");
    set(cell(other, 0), "reason", "\"killed by signal 11\"");
    set(cell(other, half_cell()), "casts_per_step", "9999");
    expect(compare(tiny(), other), 1, "failed: killed by signal 11");
}

static void the_worst_outcome_decides(void **state) {
    (void)state;
    cJSON *other = tiny();
    set(cell(other, 0), "casts_per_step", "9999");
    cJSON_GetArrayItem(at(cell(other, 0), "loss"), 0)->valuedouble += 1;
    expect(compare(tiny(), other), 4, "casts a step");
    other = tiny();
    cJSON_GetArrayItem(at(cell(other, 0), "loss"), 0)->valuedouble += 1;
    set(other, "design.order", "[]");
    cJSON_DeleteItemFromArray(at(other, "cells"), half_cell());
    expect(compare(tiny(), other), 6, "missing");
}

/* ---- times ----------------------------------------------------------------------------------- */

enum { A, P };

static void times_count_only_when_measured_in_turns(void **state) {
    (void)state;
    expect(compare(arm_of_session("s1", A, 100, 30, 1), arm_of_session("s1", P, 100, 30, 1.1)), 3,
           "slower: +");
    expect(compare(arm_of_session("s1", A, 100, 30, 1), arm_of_session("s1", P, 100, 30, 1)), 0, "PASS");
    expect(compare(arm_of_session("s1", A, 100, 30, 1), arm_of_session("s2", P, 100, 30, 1.1)), 0,
           "ADVISORY");
    expect(compare(arm_of_session(NULL, A, 100, 30, 1), arm_of_session(NULL, P, 100, 30, 1.1)), 0,
           "ADVISORY");
}

static void a_gain_passes_and_asks_for_a_baseline(void **state) {
    (void)state;
    const outcome *o = compare(arm_of_session("s", A, 100, 30, 1), arm_of_session("s", P, 100, 30, 0.85));
    expect(o, 0, "record a new baseline");
    assert_true(ab_json_is_true(o->gate, "gate.refresh_baseline"));
    cJSON *other = arm_of_session("s", P, 100, 30, 0.85);
    set(cell(other, 0), "flops_per_step", "1");
    expect(compare(arm_of_session("s", A, 100, 30, 1), other), 0, "void as a speed-up: unequal work");
}

static void few_rounds_and_missing_times_are_inconclusive(void **state) {
    (void)state;
    expect(compare(arm_of_session("s", A, 0, 4, 1), arm_of_session("s", P, 0, 4, 1.5)), 5,
           "4 rounds cannot reach alpha");
    cJSON *other = arm_of_session("s", P, 100, 30, 1), *process;
    int r = 0;
    cJSON_ArrayForEach(process, at(cell(other, 0), "processes")) {
        if (r++ % 3 == 1) cJSON_ReplaceItemInObject(process, "step_time_ns", cJSON_CreateArray());
    }
    expect(compare(arm_of_session("s", A, 100, 30, 1), other), 5, "10 of 30 rounds lack a time");
    other = arm_of_session("s", P, 100, 30, 1);
    set(cell(other, 0), "processes", "[]");
    expect(compare(arm_of_session("s", A, 100, 30, 1), other), 5, "no round has times of both arms");
}

static void clocks_and_load_of_one_arm_are_inconclusive(void **state) {
    (void)state;
    for (int which = 0; which < 3; which++) {
        cJSON *base = arm_of_session("s", A, 100, 30, 1), *other = arm_of_session("s", P, 100, 30, 1.1);
        add_circumstances(base, 1000, 0.1);
        add_circumstances(other, which == 0 ? 1100 : 1000, which == 1 ? 0.9 : 0.1);
        expect(compare(base, other), which == 2 ? 3 : 5,
               which == 0   ? "the clock differed between the arms: the same loop took +10.0 %"
               : which == 1 ? "others kept 0.80 more processors busy"
                            : "slower");
    }
}

static void waiting_in_one_arm_is_inconclusive(void **state) {
    (void)state;
    for (int waits = 0; waits < 2; waits++) {
        cJSON *documents[] = {arm_of_session("s", A, 100, 30, 1), arm_of_session("s", P, 100, 30, 1.1)};
        for (int d = 0; d < 2; d++) {
            cJSON *process;
            cJSON_ArrayForEach(process, at(cell(documents[d], 0), "processes")) cJSON_AddNumberToObject(
                process, "run_delay_ns", (waits && d ? 0.25 : 0.05) * at(process, "elapsed_ns")->valuedouble);
        }
        expect(compare(documents[0], documents[1]), waits ? 5 : 3,
               waits ? "waited for a processor during 20.0 % more of its time" : "slower");
    }
}

/* ---- the gate on itself ---------------------------------------------------------------------- */

/* 400 recorded rounds hold 13 windows of 30 that share no round, and 33 of 12. */
static void recorded_arms_give_the_known_calibration(void **state) {
    (void)state;
    enum { ARMS_USED = 4 };
    const double effects[ARMS_USED] = {0, 0, 0.0218, 0.0403};
    static const int arms[ARMS_USED] = {0, 1, 3, 4}, fails[ARMS_USED] = {0, 0, -1, 13};
    cJSON *documents[ARMS_USED], *calibration = NULL;
    const ab_gate_options options = ab_gate_options_standard();
    for (int a = 0; a < ARMS_USED; a++) documents[a] = arm_of_session("s", arms[a], 0, ROUNDS, 1);
    assert_int_equal(
        ab_gate_calibrate((const cJSON *const *)documents, effects, ARMS_USED, &options, &calibration),
        AB_OK);
    for (int a = 1; a < ARMS_USED; a++) {
        const cJSON *row = cJSON_GetArrayItem(at(calibration, "rows"), a - 1);
        assert_true(ab_json_number(row, "windows.windows", 0) == 13);
        assert_true(ab_json_number(row, "first_look.windows", 0) == 33);
        assert_true(ab_json_number(row, "overlapping.windows", 0) == 371);
        if (fails[a] >= 0) assert_true(ab_json_number(row, "windows.fail", -1) == fails[a]);
    }
    const cJSON *identical = at(calibration, "rows")->child;
    assert_true(ab_json_number(identical, "windows.fail_share_low", -1) == 0);
    assert_float_equal(ab_json_number(identical, "windows.fail_share_high", 0), 0.2471, 1e-4); /* 0 of 13 */
    assert_true(ab_json_number(calibration, "summary.noise_p99_percent", 0) > 1);
    assert_non_null(
        strstr(ab_json_text(calibration, "summary.text", ""), "identical builds: 0 of 13 failed"));
    ab_gate_options citing = options;
    citing.calibration = calibration;
    citing.calibration_ref = "calibration.json";
    const outcome *o =
        compare_with(arm_of_session("s", A, 100, 30, 1), arm_of_session("s", P, 100, 30, 1), NULL, &citing);
    expect(o, 0, "this gate on such a machine: identical builds: 0 of 13 failed");
    for (int a = 0; a < ARMS_USED; a++) cJSON_Delete(documents[a]);
    cJSON_Delete(calibration);
}

/* ---- drift ----------------------------------------------------------------------------------- */

static void ten_small_steps_are_caught_by_the_pinned_baseline(void **state) {
    (void)state;
    ab_gate_options options = ab_gate_options_standard();
    double factor = 1;
    int caught_at = 0;
    for (int step = 1; step <= 10; step++) {
        char session[8];
        double before = factor;
        factor *= 1.009;
        snprintf(session, sizeof session, "s%d", step);
        cJSON *base = arm_of_session(session, A, 100, 30, before);
        cJSON *other = arm_of_session(session, P, 100, 30, factor);
        expect(compare(cJSON_Duplicate(base, 1), cJSON_Duplicate(other, 1)), 0,
               "PASS"); /* no step is seen alone */
        const outcome *o = compare_with(base, other, arm_of_session("s0", A, 100, 30, 1), &options);
        if (o->exit_status == 3 && !caught_at) caught_at = step;
        if (caught_at) expect(o, 3, "slower than the pinned baseline");
    }
    assert_in_range(caught_at, 6, 10); /* 1.009^6 = 1.055: the budget of 5 % is passed, and then seen */
}

static void drift_in_memory_is_caught_within_the_tolerance(void **state) {
    (void)state;
    ab_gate_options options = ab_gate_options_standard();
    options.memory_tolerance = 0.01;
    cJSON *documents[3] = {tiny(), tiny(), tiny()};
    double pinned = at(cell(documents[2], 0), "memory_bytes.total")->valuedouble, factor = 1;
    for (int i = 0; i < 10; i++) factor *= 1.009;
    for (int d = 0; d < 2; d++) {
        double more = (double)(long long)(pinned * (factor * (d ? 1 : 1 / 1.009) - 1));
        cJSON *part = at(cell(documents[d], 0), "memory_bytes.activations"),
              *total = at(cell(documents[d], 0), "memory_bytes.total");
        cJSON_SetNumberValue(part, part->valuedouble + more);
        cJSON_SetNumberValue(total, total->valuedouble + more);
    }
    options.memory_tolerance = 0.2;
    expect(compare_with(documents[0], documents[1], documents[2], &options), 3,
           "memory grew by 9.4 % since the pinned baseline, budget 5 %");
}

/* ---- the same bits everywhere ---------------------------------------------------------------- */

/* The file was written by this test's own build with GCC; any compiler must write the same bytes. */
static void a_verdict_is_the_committed_one_to_the_byte(void **state) {
    (void)state;
    static char found[1 << 16];
    char *expected = ab_test_read(AB_SOURCE_DIR "/tests/fixtures/gate_verdict.json");
    cJSON *base = arm_of_session("s", A, 37, 30, 1), *other = arm_of_session("s", P, 37, 30, 1.031);
    add_circumstances(base, 1000, 0.1);
    add_circumstances(other, 1003, 0.12);
    compare(base, other);
    memset(found, 0, sizeof found);
    FILE *out = fmemopen(found, sizeof found - 1, "w");
    assert_non_null(out);
    ab_json_print(result.gate, out);
    fclose(out);
    const char *keep = getenv("AMPBENCH_WRITE_VERDICT");
    if (keep) {
        FILE *file = fopen(keep, "w");
        assert_non_null(file);
        fputs(found, file);
        fclose(file);
    }
    assert_non_null(expected);
    assert_string_equal(found, expected);
    free(expected);
}

static void hostile_names_come_out_harmless(void **state) {
    (void)state;
    cJSON *base = ab_test_read_json(AB_SOURCE_DIR "/tests/fixtures/result_hostile.json"),
          *other = cJSON_Duplicate(base, 1);
    const outcome *o = compare(base, other);
    assert_int_equal(o->exit_status, 1); /* it has a failed cell, whose reason is printed */
    assert_non_null(strstr(o->text, "failed"));
    for (const char *c = o->text; *c; c++) assert_true(*c == '\n' || (unsigned char)*c >= 0x20);
    for (const char *c = o->message; *c; c++) assert_true((unsigned char)*c >= 0x20);
    for (int form = 0; form < 3; form++) {
        static char text[1 << 16];
        memset(text, 0, sizeof text);
        FILE *out = fmemopen(text, sizeof text - 1, "w");
        assert_non_null(out);
        if (form == 0) ab_gate_markdown(o->gate, out);
        if (form == 1) assert_int_equal(ab_gate_junit(o->gate, out), AB_OK);
        if (form == 2) ab_gate_github(o->gate, out);
        fclose(out);
        assert_non_null(strstr(text, "failed"));
        if (form < 2) assert_null(strstr(text, "<script")); /* annotations are plain text */
        for (const char *c = text; *c; c++) assert_true(*c == '\n' || (unsigned char)*c >= 0x20);
    }
}

static int unload(void **state) {
    (void)state;
    cJSON_Delete(result.gate);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_result_passes),
        cmocka_unit_test(one_bit_of_a_loss_exits_4),
        cmocka_unit_test(a_declared_bound_accepts_small_differences_only),
        cmocka_unit_test(another_growth_interval_exits_4),
        cmocka_unit_test(other_skips_exit_4),
        cmocka_unit_test(a_flushed_value_more_exits_4_if_the_same_steps_were_probed),
        cmocka_unit_test(a_byte_more_exits_3_and_a_byte_less_asks_for_a_baseline),
        cmocka_unit_test(losses_that_are_not_finite_void_the_speed_up_and_exit_4_even_in_both),
        cmocka_unit_test(other_conditions_are_not_comparable_and_named),
        cmocka_unit_test(another_c_library_is_comparable),
        cmocka_unit_test(a_trend_by_subnormal_operands_is_noted),
        cmocka_unit_test(flushed_subnormals_are_not_comparable_with_kept_ones),
        cmocka_unit_test(missing_and_new_cells_are_named),
        cmocka_unit_test(fp32_and_tf32_are_never_compared_as_one),
        cmocka_unit_test(a_cell_whose_loss_scale_changed_is_compared_with_what_it_was),
        cmocka_unit_test(a_failed_cell_exits_1_before_anything_else),
        cmocka_unit_test(the_worst_outcome_decides),
        cmocka_unit_test(times_count_only_when_measured_in_turns),
        cmocka_unit_test(a_gain_passes_and_asks_for_a_baseline),
        cmocka_unit_test(few_rounds_and_missing_times_are_inconclusive),
        cmocka_unit_test(clocks_and_load_of_one_arm_are_inconclusive),
        cmocka_unit_test(waiting_in_one_arm_is_inconclusive),
        cmocka_unit_test(recorded_arms_give_the_known_calibration),
        cmocka_unit_test(ten_small_steps_are_caught_by_the_pinned_baseline),
        cmocka_unit_test(drift_in_memory_is_caught_within_the_tolerance),
        cmocka_unit_test(a_verdict_is_the_committed_one_to_the_byte),
        cmocka_unit_test(hostile_names_come_out_harmless),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
