/* What a cell and its O0 cell did, computed once from the record: losses, skips, formats. */
#include "reports/diagnose/facts/facts.h"

#include "kernels/core/text.h"
#include "reports/record/cells.h"
#include "reports/record/json.h"
#include "reports/record/summary.h"
#include "reports/record/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- losses ----------------------------------------------------------------------------------------- */

/* Mean of the last losses of the first `steps`. */
static double mean_of_last(const cJSON *losses, int steps) {
    const int used = steps < AB_SUMMARY_FINAL_LOSSES ? steps : AB_SUMMARY_FINAL_LOSSES;
    double sum = 0;
    int step = 0;
    const cJSON *loss;
    cJSON_ArrayForEach(loss, losses) {
        if (step++ < steps - used) continue;
        if (step > steps) break;
        if (!cJSON_IsNumber(loss)) return (double)NAN;
        sum += loss->valuedouble;
    }
    return used > 0 ? sum / used : (double)NAN;
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Mean and standard deviation of the finite losses of steps [from, end); NAN below two of them. */
static double mean_between(const cJSON *losses, int from, int end, double *deviation) {
    const cJSON *loss;
    double sum = 0, squares = 0;
    int step = 0, n = 0;
    cJSON_ArrayForEach(loss, losses) {
        const int here = step++;
        if (here < from || here >= end || !cJSON_IsNumber(loss)) continue;
        sum += loss->valuedouble;
        n++;
    }
    const double mean = n > 1 ? sum / n : (double)NAN;
    step = 0;
    cJSON_ArrayForEach(loss, losses) {
        const int here = step++;
        if (here < from || here >= end || !cJSON_IsNumber(loss)) continue;
        squares += (loss->valuedouble - mean) * (loss->valuedouble - mean);
    }
    *deviation = n > 1 ? sqrt(squares / (n - 1)) : (double)NAN;
    return mean;
}

static void find_spread(const cJSON *losses, int from, ab_loss_facts *facts) {
    const int half = (facts->steps - from) / 2, quarter = from + (facts->steps - from) / 4,
              used = half < AB_SUMMARY_FINAL_LOSSES ? half : AB_SUMMARY_FINAL_LOSSES;
    facts->begin = mean_between(losses, from, from + used, &facts->begin_error);
    facts->begin_error /= sqrt(fmax(1, used));
    facts->quarter = mean_between(losses, quarter, quarter + used, &facts->quarter_error);
    facts->quarter_error /= sqrt(fmax(1, used));
    (void)mean_between(losses, facts->steps - used, facts->steps, &facts->spread);
}

enum { ROW = 5 };

/* Highest mean and median of five losses in a row, none of them the first; two spikes do not move the median.
 * NAN: no five are finite. */
static void find_highest(const cJSON *losses, int from, ab_loss_facts *facts) {
    double row[ROW], sorted[ROW];
    const cJSON *loss;
    int step = 0, finite = 0;
    cJSON_ArrayForEach(loss, losses) {
        const int here = step++;
        if (here <= from) continue;
        finite = cJSON_IsNumber(loss) ? finite + 1 : 0;
        row[here % ROW] = finite > 0 ? loss->valuedouble : 0;
        if (finite < ROW) continue;
        double sum = 0;
        for (int i = 0; i < ROW; i++) sum += row[i];
        memcpy(sorted, row, sizeof sorted);
        qsort(sorted, ROW, sizeof *sorted, by_size);
        facts->highest = fmax(facts->highest, sum / ROW);
        facts->sustained = fmax(facts->sustained, sorted[ROW / 2]);
    }
}

enum { MOST_STAGES = 4, SHORTEST_STAGE = 2 * AB_SUMMARY_FINAL_LOSSES };

/* The step from which on a loop's losses are of one kind: the last one at which an optimizer came in place of
 * another, as the next stage of a training has a loss of its own. An optimizer that is made anew again and
 * again makes no stages. */
static int last_stage(const cJSON *document, int steps) {
    const cJSON *entry;
    double from = 0, times = 0;
    cJSON_ArrayForEach(entry, ab_json_at(document, "probe.facts")) {
        if (strcmp(ab_json_text(entry, "name", ""), "optimizer_replaced") != 0) continue;
        times += ab_json_number(entry, "times", 0);
        from = fmax(from, ab_json_number(entry, "last_step", 0));
    }
    return times <= MOST_STAGES && steps - from >= SHORTEST_STAGE ? (int)from : 0;
}

static ab_loss_facts losses_of(const cJSON *document, const cJSON *cell) {
    const cJSON *losses = ab_json_at(cell, "loss"), *loss;
    const int from = last_stage(document, cJSON_GetArraySize(losses));
    ab_loss_facts facts = {.first_nonfinite = -1,
                           .first = (double)NAN,
                           .largest = (double)NAN,
                           .highest = (double)NAN,
                           .sustained = (double)NAN};
    cJSON_ArrayForEach(loss, losses) {
        const int step = facts.steps++;
        if (!cJSON_IsNumber(loss)) {
            facts.nonfinite++;
            if (facts.first_nonfinite < 0) facts.first_nonfinite = step;
            continue;
        }
        if (step == from) facts.first = loss->valuedouble;
        facts.largest = fmax(facts.largest, loss->valuedouble);
    }
    facts.steps = ab_steps_of_cell(cell);
    facts.final = losses ? mean_of_last(losses, facts.steps) : (double)NAN;
    find_highest(losses, from, &facts);
    find_spread(losses, from, &facts);
    return facts;
}

double ab_facts_cost_of_steps(const ab_facts *facts, int steps) {
    const ab_loss_facts *o0 = &facts->baseline_loss;
    return fmax(0, mean_of_last(ab_json_at(facts->baseline, "loss"), o0->steps - steps) - o0->final);
}

double ab_facts_first_shift(const ab_facts *facts) {
    return fabs(facts->loss.first - facts->baseline_loss.first) / fabs(facts->baseline_loss.first);
}

double ab_facts_knows_targets(const ab_facts *facts) {
    const cJSON *shuffled = ab_json_at(facts->baseline, "test_loss_shuffled");
    const double matched = ab_json_number(shuffled, "matched", (double)NAN),
                 other = ab_json_number(shuffled, "shuffled", (double)NAN),
                 error = ab_json_number(shuffled, "standard_error", (double)NAN);
    return error > 0 ? (other - matched) / error : other - matched == 0 ? 0 : (double)NAN;
}

/* ---- skips ------------------------------------------------------------------------------------------ */

/* cells[].scale is a run-length list of [scale, steps]. */
static void read_scales(const cJSON *cell, ab_skip_facts *skip) {
    const cJSON *run;
    bool first = true;
    cJSON_ArrayForEach(run, ab_json_at(cell, "scale")) {
        const cJSON *value = cJSON_GetArrayItem(run, 0);
        if (!cJSON_IsNumber(value)) continue;
        const double scale = value->valuedouble;
        if (first) skip->first_scale = skip->least_scale = skip->largest_scale = scale;
        first = false;
        skip->last_scale = scale;
        skip->least_scale = fmin(skip->least_scale, scale);
        skip->largest_scale = fmax(skip->largest_scale, scale);
    }
}

static bool loss_is_finite(const cJSON *losses, int step) {
    return cJSON_IsNumber(cJSON_GetArrayItem(losses, step));
}

/* Steps before the first one that was applied: the scaler looks for its first scale. 0 if none was applied.
 */
static int search_steps(const cJSON *skipped_steps, int steps) {
    const cJSON *skipped;
    int step = 0;
    cJSON_ArrayForEach(skipped, skipped_steps) {
        if ((int)skipped->valuedouble != step) break;
        step++;
    }
    return step < steps ? step : 0;
}

static ab_skip_facts skips_of(const cJSON *document, const cJSON *cell, int steps) {
    const cJSON *losses = ab_json_at(cell, "loss"), *skipped;
    ab_skip_facts facts = {.skipped = (int)ab_json_number(cell, "steps_skipped", 0),
                           .window = ab_json_number(cell, "scale_window",
                                                    ab_json_number(document, "config.scale_window", 2000))};
    const int search = search_steps(ab_json_at(cell, "skipped_steps"), steps);
    facts.dynamic = cJSON_IsString(ab_json_at(cell, "policy.loss_scale"));
    facts.late_from = search > steps / 4 ? search : steps / 4;
    facts.late_steps = steps - facts.late_from;
    cJSON_ArrayForEach(skipped, ab_json_at(cell, "skipped_steps")) {
        facts.late += skipped->valuedouble >= facts.late_from;
        facts.loss_finite += loss_is_finite(losses, (int)skipped->valuedouble);
    }
    read_scales(cell, &facts);
    return facts;
}

/* NAN if it is no number: comparisons are false then. */
static double number_of(const cJSON *item) { return cJSON_IsNumber(item) ? item->valuedouble : (double)NAN; }

static double steps_at(const cJSON *scales, int run) {
    return number_of(cJSON_GetArrayItem(cJSON_GetArrayItem(scales, run), 1));
}

int ab_facts_skipped_at_last_scale(const ab_facts *facts) {
    const cJSON *scales = ab_json_at(facts->cell, "scale"), *skipped;
    const double from = facts->loss.steps - steps_at(scales, cJSON_GetArraySize(scales) - 1);
    int count = 0;
    cJSON_ArrayForEach(skipped, ab_json_at(facts->cell, "skipped_steps")) count +=
        skipped->valuedouble >= from;
    return count;
}

bool ab_facts_at_floor(const ab_facts *facts) {
    const cJSON *scales = ab_json_at(facts->cell, "scale");
    const int runs = cJSON_GetArraySize(scales);
    const double before = runs > 1 ? steps_at(scales, runs - 2) : 0;
    return facts->skip.dynamic && facts->skip.last_scale == facts->skip.least_scale &&
           ab_facts_skipped_at_last_scale(facts) > facts->limits->floor_times * fmax(1, before);
}

bool ab_facts_short_window(const ab_facts *facts) { return facts->skip.window < facts->limits->short_window; }

/* ---- the facts of a cell ---------------------------------------------------------------------------- */

ab_status ab_facts_of(const ab_cells *cells, int index, const ab_thresholds *limits, ab_facts *facts) {
    const cJSON *document = cells->document, *cell = cells->cell[index];
    *facts = (ab_facts){.document = document, .cell = cell, .index = index, .limits = limits};
    AB_TRY(ab_format_find(ab_json_text(cell, "half_format", ""), &facts->half));
    facts->baseline_index = ab_baselines_find(&cells->baselines, cell);
    facts->baseline = facts->baseline_index < 0 ? NULL : cells->cell[facts->baseline_index];
    facts->loss = losses_of(document, cell);
    facts->skip = skips_of(document, cell, facts->loss.steps);
    facts->gap = ab_json_number(cell, "summary.loss_gap", (double)NAN);
    if (!facts->baseline) return AB_OK;
    facts->baseline_loss = losses_of(document, facts->baseline);
    facts->skip_cost = ab_facts_cost_of_steps(facts, facts->skip.skipped);
    return AB_OK;
}

static void add_shared(char *text, size_t size, const char *option, const char *value) {
    ab_text_append(text, size, "%s%s %s", text[0] ? ", " : "", option, ab_text_brief(value, 80));
}

/* Options that acted on O0 in documents that do not say of which kind their reference is. */
static void shared_options(const ab_facts *facts, char *text, size_t size) {
    static const char half[] = "half";
    const cJSON *layers = ab_json_at(facts->document, "config.overrides.to");
    text[0] = '\0';
    if (strcmp(ab_json_text(facts->document, "config.optimizer_state", ""), half) == 0)
        add_shared(text, size, "--optimizer-state", half);
    if (strcmp(ab_json_text(facts->document, "config.ema_format", ""), half) == 0)
        add_shared(text, size, "--ema-format", half);
    if (cJSON_IsString(layers)) add_shared(text, size, "--to", layers->valuestring);
}

void ab_facts_reference(const ab_facts *facts, char *text, size_t size) {
    const char *kind = ab_json_text(facts->baseline, "policy.reference", NULL);
    char named[160];
    text[0] = '\0';
    if (!facts->baseline || (kind && strcmp(kind, "changed") != 0)) return;
    if (kind)
        ab_text_clean(named, sizeof named, ab_json_text(facts->baseline, "policy.named", "?"));
    else
        shared_options(facts, named, sizeof named);
    if (named[0]) ab_text_show(text, size, "O0 is no fp32 reference here: %s", named);
}

/* ---- formats ---------------------------------------------------------------------------------------- */

bool ab_facts_uses_half(const ab_facts *facts) {
    const char *model = ab_json_text(facts->cell, "policy.cast_model_type", "fp32");
    return strcmp(model, "fp32") != 0 || ab_json_is_true(facts->cell, "policy.patch_torch_functions");
}

bool ab_facts_half_weights(const ab_facts *facts) {
    const char *model = ab_json_text(facts->cell, "policy.cast_model_type", "fp32");
    const cJSON *masters = ab_json_at(facts->cell, "policy.master_weights");
    return strcmp(model, facts->half->name) == 0 && !cJSON_IsTrue(masters) && !cJSON_IsNull(masters);
}

const char *ab_facts_statistics_format(const ab_facts *facts) {
    const char *model = ab_json_text(facts->cell, "policy.cast_model_type", "fp32");
    const bool kept =
        ab_json_is_true(facts->cell, "policy.keep_batchnorm_fp32") || strcmp(model, facts->half->name) != 0;
    return ab_json_text(facts->cell, "policy.batch_norm_statistics", kept ? "fp32" : model);
}

bool ab_facts_accumulates_in_half(const ab_facts *facts) {
    return strcmp(ab_json_text(facts->cell, "accumulate", "fp32"), "half") == 0 && ab_facts_uses_half(facts);
}
