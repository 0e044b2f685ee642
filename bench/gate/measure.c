/* Runs the rounds of all arms. reports/gate/gate.h computes the verdict and decides when to stop. */
#define _GNU_SOURCE
#include "bench/gate/measure.h"

#include "bench/gate/child.h"
#include "bench/run/config/digest.h"
#include "bench/run/config/options.h"
#include "bench/timer/timer.h"
#include "kernels/core/rng.h"
#include "kernels/core/show.h"
#include "kernels/core/text.h"
#include "kernels/core/text_path.h"
#include "kernels/spawn/spawn.h"
#include "reports/record/cells.h"
#include "reports/record/json.h"
#include "reports/record/result.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 4096, MAX_WORDS = 256, STANDARD_ROUNDS = 30 };

/* ---- command lines --------------------------------------------------------------------------- */

ab_status ab_gate_check_run_options(char *const *run_options) {
    static const ab_option_id ours[] = {
        AB_OPTION_out,          AB_OPTION_json,         AB_OPTION_resume,         AB_OPTION_rounds,
        AB_OPTION_probe_budget, AB_OPTION_save_weights, AB_OPTION_save_gradients, AB_OPTION_csv,
        AB_OPTION_markdown,     AB_OPTION_help};
    char *words[MAX_WORDS + 1], word[] = "run", name[AB_OPTION_NAME];
    int n = 1;
    words[0] = word;
    for (int i = 0; run_options[i]; i++) {
        if (n == MAX_WORDS / 2) return ab_fail(AB_USAGE, "gate: too many options after --");
        words[n++] = run_options[i];
    }
    words[n] = NULL;
    ab_options options;
    AB_TRY(ab_options_parse(n, words, &options));
    for (size_t i = 0; i < AB_COUNT_OF(ours); i++)
        if (options.given[ours[i]])
            return ab_fail(AB_USAGE, "gate: %s cannot be given after --: the gate sets it itself",
                           ab_option_name(ours[i], name));
    return AB_OK;
}

typedef struct command {
    const char *word[MAX_WORDS + 1];
    int words;
} command;

static void add(command *c, const char *word) {
    if (c->words < MAX_WORDS) c->word[c->words++] = word;
    c->word[c->words] = NULL;
}

static command begin(const ab_gate_arm *arm) {
    command c = {.words = 0};
    add(&c, arm->program);
    add(&c, "run");
    return c;
}

/* Whether a word is `name`, alone or as NAME=VALUE. */
static bool is_option(const char *word, const char *name) {
    const size_t length = strlen(name);
    return strncmp(word, name, length) == 0 && (!word[length] || word[length] == '=');
}

/* The run's options; of a short run without those that have no effect in one (see run_short), which would be
 * refused. */
static void add_run_options(command *c, const ab_gate_plan *plan, bool is_short) {
    static const char *const with_value[] = {"--probes", "--probe-every", "--floor-draws"};
    for (int i = 0; plan->run_options[i]; i++) {
        const char *word = plan->run_options[i];
        bool dropped = is_short && is_option(word, "--trace");
        for (size_t k = 0; k < AB_COUNT_OF(with_value) && is_short; k++) {
            if (!is_option(word, with_value[k])) continue;
            dropped = true;
            i += !strchr(word, '=') && plan->run_options[i + 1];
        }
        if (!dropped) add(c, word);
    }
}

static void add_all(command *c, const char *const *words) {
    for (int i = 0; words[i]; i++) add(c, words[i]);
}

static bool has_run_option(const ab_gate_plan *plan, const char *option) {
    size_t length = strlen(option);
    for (int i = 0; plan->run_options[i]; i++)
        if (strncmp(plan->run_options[i], option, length) == 0) return true;
    return false;
}

/* ---- running an arm -------------------------------------------------------------------------- */

static ab_status run_command(const ab_gate_plan *plan, const ab_gate_arm *arm, command *c, cJSON **document,
                             ab_child *child) {
    char output[PATH_BYTES], work[64], what[96], *const added[] = {arm->extra_work ? work : NULL, NULL};
    AB_TRY(ab_text_path("gate: --work", output, sizeof output, "%s/%s.stdout", plan->folder, arm->name));
    ab_text_exact(work, sizeof work, "AMPBENCH_EXTRA_WORK=%" PRId64, arm->extra_work);
    ab_text_show(what, sizeof what, "gate: %s", arm->name);
    char **environment = ab_variables_new(NULL, added);
    if (!environment) return ab_fail(AB_NO_MEMORY, "%s: out of memory", what);
    ab_status status = ab_child_require(what, (char *const *)(uintptr_t)c->word, output, environment, child);
    free(environment);
    if (status != AB_OK) return status;
    status = ab_result_load(output, document);
    unlink(output);
    return status == AB_OK ? AB_OK : ab_fail_prefix(status, "%s", what);
}

static ab_status run_full(const ab_gate_plan *plan, ab_gate_arm *arm) {
    static const char *const tail[] = {"--rounds", "1", "--no-plots", "--quiet",
                                       "--json",   "-", "--out",      NULL};
    char document[PATH_BYTES];
    ab_child child;
    command c = begin(arm);
    add_run_options(&c, plan, false);
    if (!has_run_option(plan, "--probe-every"))
        add_all(&c, (const char *const[]){"--probe-every", "10", NULL});
    add_all(&c, tail);
    AB_TRY(ab_text_path("gate: --work", document, sizeof document, "%s/%s.json", plan->folder, arm->name));
    add(&c, document);
    if (!plan->quiet) ab_print(stderr, "ampbench: gate: %s: the full run\n", arm->name);
    AB_TRY(run_command(plan, arm, &c, &arm->document, &child));
    return ab_result_summarise(arm->document);
}

ab_status ab_gate_run_arms(ab_gate_plan *plan) {
    for (int a = 0; a < plan->arms; a++) {
        if (a == 0 || !plan->same_program) {
            AB_TRY(run_full(plan, &plan->arm[a]));
            continue;
        }
        plan->arm[a].document = cJSON_Duplicate(plan->arm[0].document, 1);
        if (!plan->arm[a].document) return ab_fail(AB_NO_MEMORY, "gate: out of memory");
    }
    return AB_OK;
}

/* ---- one process of a round ------------------------------------------------------------------ */

/* Adds the process of a short run of one cell to the arm's document as `round`. */
static ab_status adopt(ab_gate_arm *arm, const cJSON *cell, const cJSON *found, int round, int position,
                       int64_t clock_ns, double other_load) {
    cJSON *mutable_cell = (cJSON *)(uintptr_t)cell;
    const cJSON *theirs = ab_cell_like(found, cell);
    cJSON *process = cJSON_Duplicate(cJSON_GetArrayItem(ab_json_at(theirs, "processes"), 0), 1);
    if (!process)
        return ab_fail(AB_INTERNAL, "gate: %s did not run the cell %s that it was asked to run", arm->name,
                       ab_json_text(cell, "id", ""));
    cJSON_ReplaceItemInObject(process, "round", cJSON_CreateNumber(round));
    cJSON_ReplaceItemInObject(process, "position", cJSON_CreateNumber(position));
    cJSON_AddNumberToObject(process, "clock_loop_ns", (double)clock_ns);
    cJSON_AddItemToObject(process, "other_load",
                          other_load < 0 ? cJSON_CreateNull() : cJSON_CreateNumber(other_load));
    cJSON_AddItemToArray(cJSON_GetObjectItem(mutable_cell, "processes"), process);
    bool same = strcmp(ab_json_text(theirs, "loss_digest", ""), ab_json_text(cell, "loss_digest", "")) == 0;
    bool was_false = cJSON_IsFalse(ab_json_at(cell, "deterministic"));
    cJSON_DeleteItemFromObject(mutable_cell, "deterministic");
    cJSON_AddBoolToObject(mutable_cell, "deterministic", same && !was_false);
    return AB_OK;
}

static ab_status run_short(const ab_gate_plan *plan, ab_gate_arm *arm, const cJSON *cell, int round,
                           int position) {
    static const char *const tail[] = {
        "--seeds", "1",          "--no-floor", "--rounds", "1", "--probe-every", "0", "--eval-limit",
        "1",       "--no-plots", "--quiet",    "--json",   "-", "--out",         NULL};
    char path[PATH_BYTES], seed[32];
    ab_child child = {.exit_status = 0};
    cJSON *found = NULL;
    command c = begin(arm);
    add_run_options(&c, plan, true);
    ab_text_exact(seed, sizeof seed, "%.0f", ab_json_number(cell, "seed", 1));
    AB_TRY(ab_text_path("gate: --work", path, sizeof path, "%s/%s-round.json", plan->folder, arm->name));
    add_all(&c, (const char *const[]){"--levels", ab_cell_label(cell), "--scales",
                                      ab_json_text(cell, "scale_policy", ""), "--half",
                                      ab_json_text(cell, "half_format", ""), "--seed", seed, NULL});
    add_all(&c, tail + (has_run_option(plan, "--seeds") ? 0 : 2));
    add(&c, path);
    int64_t before = ab_clock_loop_ns();
    AB_TRY(run_command(plan, arm, &c, &found, &child));
    int64_t after = ab_clock_loop_ns();
    ab_status status =
        adopt(arm, cell, found, round, position, before < after ? before : after, child.other_load);
    cJSON_Delete(found);
    unlink(path);
    return status;
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static bool is_timed(const cJSON *cell) {
    return strcmp(ab_json_text(cell, "status", ""), "ok") == 0 && !cJSON_IsString(ab_json_at(cell, "twin"));
}

/* Cells of the first arm that all arms have. */
static int common_cells(const ab_gate_plan *plan, const cJSON **cell, int most) {
    int n = 0;
    const cJSON *candidate;
    cJSON_ArrayForEach(candidate, ab_json_at(plan->arm[0].document, "cells")) {
        bool everywhere = is_timed(candidate) && n < most;
        for (int a = 1; everywhere && a < plan->arms; a++) {
            const cJSON *theirs = ab_cell_like(plan->arm[a].document, candidate);
            everywhere = everywhere && theirs && is_timed(theirs);
        }
        if (everywhere) cell[n++] = candidate;
    }
    return n;
}

/* The arm at a position: rows of a Latin square, so that every arm is first, second, ... equally often; row
 * and direction are random per cell and rotate with the round. */
static int arm_at(const ab_gate_plan *plan, int round, int cell, int position) {
    int arms = plan->arms;
    int offset = (int)ab_rng_below(plan->seed, AB_RNG_DESIGN, 0, (uint64_t)cell, (uint64_t)arms);
    int turn = (round + offset) % arms, back = round / arms % 2;
    return back && arms > 2 ? (2 * arms - 1 - position + turn) % arms : (position + turn) % arms;
}

static ab_status run_round(const ab_gate_plan *plan, ab_gate_arm *arm, const cJSON *const *cell, int cells,
                           int round, cJSON *order) {
    cJSON *row = cJSON_CreateArray();
    cJSON_AddItemToArray(order, row);
    for (int i = 0; i < cells; i++) {
        for (int p = 0; p < plan->arms; p++) {
            int a = arm_at(plan, round, i, p);
            const cJSON *own = ab_cell_like(arm[a].document, cell[i]);
            cJSON_AddItemToArray(row, cJSON_CreateNumber(i * plan->arms + a));
            AB_TRY(run_short(plan, &arm[a], own, round, i * plan->arms + p));
        }
    }
    return AB_OK;
}

static void put_session(const ab_gate_plan *plan, const ab_gate_arm *arm, const char *id, int rounds,
                        const cJSON *order) {
    cJSON *design = (cJSON *)(uintptr_t)ab_json_at(arm->document, "design"), *session = cJSON_CreateObject();
    cJSON_DeleteItemFromObject(design, "session");
    cJSON_AddItemToObject(design, "session", session);
    cJSON_AddStringToObject(session, "id", id);
    cJSON_AddStringToObject(session, "arm", arm->name);
    cJSON *arms = cJSON_AddArrayToObject(session, "arms");
    for (int a = 0; a < plan->arms; a++) cJSON_AddItemToArray(arms, cJSON_CreateString(plan->arm[a].name));
    cJSON_AddNumberToObject(session, "rounds", rounds);
    cJSON_AddNumberToObject(session, "fixed_rounds", plan->fixed_rounds);
    cJSON_AddNumberToObject(session, "order_seed", (double)plan->seed);
    cJSON_AddItemToObject(session, "order", cJSON_Duplicate(order, 1));
}

static ab_status save_all(const ab_gate_plan *plan, const char *id, int rounds, const cJSON *order) {
    for (int a = 0; a < plan->arms; a++) {
        char path[PATH_BYTES];
        put_session(plan, &plan->arm[a], id, rounds, order);
        AB_TRY(ab_result_summarise(plan->arm[a].document));
        AB_TRY(
            ab_text_path("gate: --work", path, sizeof path, "%s/%s.json", plan->folder, plan->arm[a].name));
        AB_TRY(ab_result_write(plan->arm[a].document, path));
    }
    return AB_OK;
}

/* *done: whether to stop after `round`: the last round, or a check with no undecided cells. */
static ab_status is_done(const ab_gate_plan *plan, int round, bool *done) {
    ab_gate_rule rule = ab_gate_rule_standard(plan->fixed_rounds);
    int undecided;
    *done = round >= (plan->fixed_rounds ? plan->fixed_rounds : STANDARD_ROUNDS);
    for (int l = 0; l < rule.looks && !*done && plan->fixed_rounds == 0; l++) {
        if (rule.look[l] != round) continue;
        AB_TRY(ab_gate_undecided(plan->arm[0].document, plan->arm[1].document, plan->options, &undecided));
        *done = undecided == 0;
        if (!plan->quiet)
            fprintf(stderr, "ampbench: gate: %d rounds: %d cells undecided\n", round, undecided);
    }
    return AB_OK;
}

static const char *session_id(char id[17]) {
    const int64_t parts[] = {ab_monotonic_ns(), (int64_t)getpid()};
    return ab_digest_text(ab_digest_add(ab_digest_start(), parts, sizeof parts), id);
}

/* Prints an estimate of the duration from the full runs of the cells. */
static void print_estimate(const ab_gate_plan *plan, const cJSON *const *cell, int cells) {
    double seconds = 0;
    for (int i = 0; i < cells; i++)
        for (int a = 0; a < plan->arms; a++) {
            const cJSON *own = ab_cell_like(plan->arm[a].document, cell[i]);
            const cJSON *first = cJSON_GetArrayItem(ab_json_at(own, "processes"), 0);
            seconds += 1e-9 * ab_json_number(first, "elapsed_ns", 0);
        }
    if (!plan->quiet)
        ab_print(stderr,
                 "ampbench: gate: %d cell%s, about %.0f s a round, at most %d rounds; --steps N makes them "
                 "shorter\n",
                 cells, cells == 1 ? "" : "s", seconds < 1 ? 1.0 : seconds,
                 plan->fixed_rounds ? plan->fixed_rounds : STANDARD_ROUNDS);
}

ab_status ab_gate_measure(ab_gate_plan *plan) {
    const cJSON *cell[256];
    char id[17];
    int cells = common_cells(plan, cell, (int)AB_COUNT_OF(cell));
    cJSON *order = cJSON_CreateArray();
    ab_status status = AB_OK;
    session_id(id);
    print_estimate(plan, cell, cells);
    bool done = cells == 0;
    for (int round = 1; !done; round++) {
        AB_TRY_GOTO(run_round(plan, plan->arm, cell, cells, round, order));
        if (!plan->quiet && plan->same_program && round % 25 == 0)
            fprintf(stderr, "ampbench: gate: %d of %d rounds\n", round, plan->fixed_rounds);
        ab_gate_rule rule = ab_gate_rule_standard(plan->fixed_rounds);
        bool look =
            round == rule.look[0] || (rule.looks > 1 && (round == rule.look[1] || round == rule.look[2]));
        if (!look) continue;
        AB_TRY_GOTO(save_all(plan, id, round, order));
        AB_TRY_GOTO(is_done(plan, round, &done));
    }
out:
    cJSON_Delete(order);
    return status;
}

void ab_gate_plan_clear(ab_gate_plan *plan) {
    for (int a = 0; a < plan->arms; a++) {
        cJSON_Delete(plan->arm[a].document);
        plan->arm[a].document = NULL;
    }
}
