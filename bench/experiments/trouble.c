/* Runs the arms for a record; prints them as text and as JSON. */
#include "bench/experiments/trouble.h"

#include "bench/experiments/arms.h"
#include "bench/memory/limits.h"
#include "bench/run/config/cells.h"
#include "bench/run/config/configure.h"
#include "bench/run/replay.h"
#include "kernels/core/show.h"
#include "kernels/core/subnormals.h"
#include "reports/diagnose/diagnose.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <stdlib.h>
#include <string.h>

/* The recorded run. Its options borrow from the words. */
typedef struct recorded {
    ab_replay words;
    ab_options options;
    ab_run_config config;
    ab_cell_spec *cells;
    int count;
    bool open;
} recorded;

static ab_status open_run(const cJSON *document, recorded *r) {
    AB_TRY(ab_replay_words(document, AB_REPLAY_TRAINING, &r->words));
    AB_TRY(ab_replay_check("diagnose", document, &r->words, stderr));
    AB_TRY(ab_options_parse(r->words.count, r->words.word, &r->options));
    AB_TRY(ab_run_config_create(&r->options, true, &r->config));
    r->open = true;
    if (r->config.resume_file)
        return ab_fail(AB_USAGE, "diagnose: --twins: the run began from a checkpoint; give the whole run");
    AB_TRY(ab_run_config_start(&r->config));
    AB_TRY(ab_run_config_steps(&r->options, &r->config));
    return ab_run_cells(&r->config, &r->cells, &r->count);
}

static void close_run(recorded *r) {
    ab_subnormals_set(AB_SUBNORMALS_KEPT);
    ab_run_cells_free(r->cells, r->count);
    if (r->open) ab_run_config_clear(&r->config);
    ab_replay_clear(&r->words);
}

/* Finds the cell by its digest; by its id if the document has no digest, or one of another build. */
static const ab_cell_spec *spec_of(const recorded *r, const cJSON *cell) {
    const char *digest = ab_json_text(cell, "config_digest", ""), *id = ab_json_text(cell, "id", "");
    for (int i = 0; i < r->count; i++)
        if (strcmp(r->cells[i].digest, digest) == 0) return &r->cells[i];
    for (int i = 0; i < r->count; i++)
        if (strcmp(r->cells[i].id, id) == 0) return &r->cells[i];
    return NULL;
}

static void print_double(const ab_arms *arms, FILE *text) {
    if (arms->double_refused)
        ab_print(text, "    fp64 was not asked: %s\n", arms->double_refused);
    else if (arms->double_restarts)
        fprintf(text, "    fp64 (emulated on the CPU): diverged in %d of %d restarts in which fp32 did\n",
                arms->double_left, arms->double_restarts);
}

static void print_arms(const char *raw, const ab_arms *arms, const char *half, FILE *text) {
    char id[288];
    ab_text_clean(id, sizeof id, raw);
    ab_print(text, "%s: %s: %s\n", id, ab_trouble_name(arms->trouble), ab_trouble_text(arms->trouble));
    ab_print(text, "    %d restarts from step %lld, %lld steps each: fp32 diverged in %d, %s in %d",
             AB_ARMS_RESTARTS, (long long)arms->start, (long long)arms->horizon, arms->left[AB_ARM_FP32],
             half, arms->left[AB_ARM_LOW]);
    if (arms->chance) fprintf(text, ", with weights rounded by chance in %d", arms->left[AB_ARM_CHANCE]);
    ab_print(text, "\n    sign tests: %s sooner than fp32 p %.2g", half, arms->p_low_fp32);
    if (arms->chance)
        fprintf(text, ", sooner than by chance p %.2g; by chance sooner than fp32 p %.2g", arms->p_low_chance,
                arms->p_chance_fp32);
    fputs("\n", text);
    print_double(arms, text);
}

static void add_arms(const char *id, const ab_arms *arms, cJSON *list) {
    static const char *const names[AB_ARMS] = {"fp32", "low", "chance"};
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "cell", id);
    cJSON_AddStringToObject(object, "trouble", ab_trouble_name(arms->trouble));
    cJSON_AddNumberToObject(object, "start_step", (double)arms->start);
    cJSON_AddNumberToObject(object, "horizon_steps", (double)arms->horizon);
    cJSON *times = cJSON_AddObjectToObject(object, "divergence_steps");
    for (int a = 0; a < (arms->chance ? AB_ARMS : AB_ARM_CHANCE); a++) {
        cJSON *of = cJSON_AddArrayToObject(times, names[a]);
        for (int r = 0; r < AB_ARMS_RESTARTS; r++)
            cJSON_AddItemToArray(of, arms->time[r][a] < arms->horizon
                                         ? cJSON_CreateNumber((double)arms->time[r][a])
                                         : cJSON_CreateNull());
    }
    cJSON_AddNumberToObject(object, "p_low_sooner_than_fp32", arms->p_low_fp32);
    if (arms->chance) cJSON_AddNumberToObject(object, "p_low_sooner_than_chance", arms->p_low_chance);
    if (arms->chance) cJSON_AddNumberToObject(object, "p_chance_sooner_than_fp32", arms->p_chance_fp32);
    if (arms->double_restarts) {
        cJSON *fp64 = cJSON_AddObjectToObject(object, "fp64");
        cJSON_AddNumberToObject(fp64, "restarts", arms->double_restarts);
        cJSON_AddNumberToObject(fp64, "diverged", arms->double_left);
    }
    if (arms->double_refused) cJSON_AddStringToObject(object, "fp64_refused", arms->double_refused);
    cJSON_AddItemToArray(list, object);
}

static ab_status check_memory(const ab_cell_config *settings, const char *id) {
    ab_memory_limit limit;
    ab_plan *plan;
    AB_TRY(ab_cell_compile(settings, &plan));
    ab_memory_limit_of("", settings->device, &limit);
    ab_status status = ab_memory_check(&limit, settings, plan, id);
    ab_plan_destroy(plan);
    return status;
}

static ab_status judge_cell(const recorded *r, const ab_diagnosis *diagnosis, FILE *text, cJSON *list) {
    const char *id = ab_json_text(diagnosis->found.facts.cell, "id", "");
    const ab_cell_spec *spec = spec_of(r, diagnosis->found.facts.cell);
    ab_arms arms;
    if (!spec) return ab_fail(AB_INPUT, "diagnose: --twins: the recorded options give no cell '%s'", id);
    const ab_cell_config settings = ab_cell_config_of(&r->config, spec);
    if (!r->options.given[AB_OPTION_no_memory_check]) AB_TRY(check_memory(&settings, id));
    ab_print(stderr, "diagnose: --twins: %d restarts of three arms for %s\n", AB_ARMS_RESTARTS, id);
    AB_TRY(ab_arms_run(&settings, diagnosis->found.facts.loss.first_nonfinite,
                       diagnosis->found.facts.loss.steps, &arms));
    if (text) print_arms(id, &arms, spec->half->name, text);
    add_arms(id, &arms, list);
    return AB_OK;
}

typedef struct judging {
    recorded *run;
    FILE *text;
    cJSON *list;
} judging;

static ab_status judge_failing(const ab_diagnosis *diagnosis, void *argument) {
    const judging *j = argument;
    return diagnosis->found.sick ? judge_cell(j->run, diagnosis, j->text, j->list) : AB_OK;
}

ab_status ab_trouble_of(const cJSON *document, FILE *text, cJSON *list) {
    recorded r = {.open = false};
    judging j = {&r, text, list};
    ab_status status = open_run(document, &r);
    if (status == AB_OK) status = ab_diagnose_each(document, judge_failing, &j, NULL);
    close_run(&r);
    return status;
}
