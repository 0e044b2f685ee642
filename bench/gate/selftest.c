/* A/A and A/B with injected work. The amount of work per per cent is measured once, so that all processes of
 * an arm do the same. */
#include "bench/gate/selftest.h"

#include "bench/timer/timer.h"
#include "kernels/core/show.h"
#include "kernels/core/text_path.h"
#include "reports/record/json.h"
#include "reports/record/result.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { STANDARD_ROUNDS = 120, PATH_BYTES = 4096 };

static const double standard_effects[] = {0.01, 0.02, 0.03, 0.05, 0.1};
static const char *const names[AB_GATE_ARMS] = {"base",  "twin",  "work1", "work2",
                                                "work3", "work4", "work5", "work6"};

/* The default: a small cell. */
static char *const small_cell[] = {(char[]){"--levels"},  (char[]){"O0"},         (char[]){"--net"},
                                   (char[]){"mlp"},       (char[]){"--data"},     (char[]){"synthetic"},
                                   (char[]){"--threads"}, (char[]){"1"},          (char[]){"--steps"},
                                   (char[]){"40"},        (char[]){"--no-floor"}, NULL};

static ab_status only_cell(const cJSON *document, const cJSON **found) {
    const cJSON *cell;
    *found = NULL;
    cJSON_ArrayForEach(cell, ab_json_at(document, "cells")) {
        if (cJSON_IsString(ab_json_at(cell, "twin"))) continue;
        if (*found)
            return ab_fail(AB_USAGE,
                           "gate: --selftest measures one cell; give one level, scale and half format");
        *found = cell;
    }
    if (*found && cJSON_IsNumber(ab_json_at(*found, "summary.step_time_ns"))) return AB_OK;
    return ab_fail(AB_INTERNAL, "gate: --selftest: the cell has no step times");
}

static ab_status calibrate_work(ab_gate_plan *plan, const double *effects) {
    const cJSON *cell;
    AB_TRY(only_cell(plan->arm[0].document, &cell));
    double loop_ns = (double)ab_clock_loop_ns() / AB_CLOCK_LOOPS;
    double step_ns = ab_json_number(cell, "summary.step_time_ns", 0);
    for (int a = 0; a < plan->arms; a++)
        plan->arm[a].extra_work = (int64_t)floor(effects[a] * step_ns / loop_ns);
    return AB_OK;
}

static ab_status write_calibration(const ab_gate_plan *plan, const cJSON *calibration, const char *json) {
    char path[PATH_BYTES];
    AB_TRY(ab_text_path("gate: --work", path, sizeof path, "%s/calibration.json", plan->folder));
    AB_TRY(ab_json_write_file(calibration, json ? json : path));
    if (json && strcmp(json, "-") == 0) return AB_OK;
    ab_gate_calibration_print(calibration, stdout);
    ab_print(stdout, "calibration in %s; later: ampbench gate --calibration %s ...\n", json ? json : path,
             json ? json : path);
    return AB_OK;
}

static ab_status run_and_judge(ab_gate_plan *plan, const double *effects, const char *json) {
    const cJSON *documents[AB_GATE_ARMS];
    cJSON *calibration = NULL;
    AB_TRY(ab_gate_check_run_options(plan->run_options));
    AB_TRY(ab_gate_run_arms(plan));
    AB_TRY(calibrate_work(plan, effects));
    AB_TRY(ab_gate_measure(plan));
    for (int a = 0; a < plan->arms; a++) documents[a] = plan->arm[a].document;
    AB_TRY(ab_gate_calibrate(documents, effects, plan->arms, plan->options, &calibration));
    ab_status status = write_calibration(plan, calibration, json);
    cJSON_Delete(calibration);
    return status;
}

ab_status ab_gate_selftest(ab_gate_plan *plan, const double *effects, int count, const char *json) {
    double arm_effect[AB_GATE_ARMS] = {0, 0};
    if (!effects) effects = standard_effects, count = AB_COUNT_OF(standard_effects);
    plan->same_program = true;
    plan->arms = 2 + count;
    if (plan->fixed_rounds == 0) plan->fixed_rounds = STANDARD_ROUNDS;
    if (!plan->run_options[0]) plan->run_options = small_cell;
    for (int i = 0; i < count; i++) arm_effect[2 + i] = effects[i];
    for (int a = 0; a < plan->arms; a++)
        plan->arm[a] = (ab_gate_arm){.name = names[a], .program = "/proc/self/exe"};
    ab_status status = run_and_judge(plan, arm_effect, json);
    ab_gate_plan_clear(plan);
    return status;
}
