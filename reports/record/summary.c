/* Summary numbers of the table, computed from the raw record only. A pure function of the document: it adds
 * cells[].summary, noise_floor and rounding_floor and changes nothing else.
 *
 * Definitions
 *   loss_final      mean of the last min(20, n) losses of a cell that ran all config.steps steps
 *   loss_gap        loss_final minus that of the O0 cell of ab_cells_baseline
 *   noise floor     ab_chance_gap of the loss_gaps of O0 from weights moved by one ulp
 *   rounding floor  ab_chance_gap of the loss_gaps of O0 from weights moved as rounding to half moves them
 *   step_time_ns    median over processes of each process's median; low and high are the extremes of those
 *                   medians; unknown for a cell that ran beside others
 *   peak_bytes      memory_bytes.total; unknown for such a cell, whose workspace is that of fewer threads
 *   ratio_samples_to_o0  against an O0 cell that a machine of the same class ran (machines.h)
 *   samples_per_s   batch x accumulation x (steps_applied / steps_total) / step time: a skipped step trains
 *                   nothing
 *   flushed_share   flushed / nonzero, summed over the tensors that were cast; over all tensors if none was
 *   lost_share      non-zero weight updates that the stored weight did not take, over all of them
 *   worst_layer_flushed_share  the largest flushed_share of a layer
 *                   Each is that of the probed steps; _low, _high: over all steps (sampling.h), there if some
 *                   were not probed
 *   subnormal_slowdown  see subnormals.h; there only if steps with subnormal operands are slower
 *   certificate     see certify() */
#include "reports/record/summary.h"

#include "kernels/core/text.h"
#include "reports/record/cells.h"
#include "reports/record/json.h"
#include "reports/record/learned.h"
#include "reports/record/machines.h"
#include "reports/record/result.h"
#include "reports/record/sampling.h"
#include "reports/record/settings.h"
#include "reports/record/subnormals.h"
#include "reports/stats/chance.h"

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { REASON_TEXT = 200, MAX_REASONS = 4 };

static const double applied_share_needed = 0.95, baseline_share = 0.05;

static const char no_baseline[] = "there is no O0 cell to compare with";

/* A number, or the reason why there is none. */
typedef struct figure {
    double value; /* valid if `reason` is empty */
    char reason[REASON_TEXT];
} figure;

/* Of a share over all steps. */
typedef struct bounds {
    bool sampled; /* some steps were not probed; else there are none */
    figure low, high;
} bounds;

typedef struct reasons {
    int count;
    char text[MAX_REASONS][REASON_TEXT];
} reasons;

typedef struct facts {
    const cJSON *cell;
    const struct facts *baseline; /* NULL: none; an O0 cell is its own */
    figure loss_final, loss_gap, step_time, step_time_low, step_time_high, rate, rate_ratio, peak, peak_ratio;
    figure skipped_share, flushed_share, overflowed, worst_share, lost_share;
    const char *worst_layer; /* borrowed from the document */
    bool flushed_modelled;
    bounds flushed_bounds, worst_bounds, lost_bounds;
    reasons failed;              /* of the certificate */
    bool speed_void;             /* for one of these reasons; O0's learning nothing makes no speed void */
    char unlearned[REASON_TEXT]; /* why O0 learned nothing; "": it did, or there is none */
    cJSON *subnormal_slowdown;   /* owned until it is put into the summary; NULL: none */
} facts;

/* ---- figures --------------------------------------------------------------------------------- */

static figure known(double value) { return (figure){value, ""}; }

static figure unknown(const char *format, ...) AB_PRINTF(1, 2);

static figure unknown(const char *format, ...) {
    figure none = {0, ""};
    va_list args;
    va_start(args, format);
    ab_text_show_args(none.reason, sizeof none.reason, format, args);
    va_end(args);
    return none;
}

static bool is_known(const figure *f) { return f->reason[0] == '\0'; }

static figure ratio(const figure *a, const figure *b, const char *whose) {
    if (!is_known(a)) return *a;
    if (!is_known(b)) return unknown("%s: %s", whose, ab_text_brief(b->reason, 150));
    if (b->value == 0) return unknown("%s is 0", whose);
    return known(a->value / b->value);
}

static void add_reason(reasons *list, const char *format, ...) AB_PRINTF(2, 3);

static void add_reason(reasons *list, const char *format, ...) {
    va_list args;
    if (list->count == MAX_REASONS) return;
    va_start(args, format);
    ab_text_show_args(list->text[list->count++], REASON_TEXT, format, args);
    va_end(args);
}

/* ---- loss ------------------------------------------------------------------------------------ */

static figure final_loss(const cJSON *document, const cJSON *cell) {
    const cJSON *losses = ab_json_at(cell, "loss"), *loss = losses ? losses->child : NULL;
    int n = cJSON_GetArraySize(losses), used = n < AB_SUMMARY_FINAL_LOSSES ? n : AB_SUMMARY_FINAL_LOSSES,
        step = 0;
    double total = ab_json_number(document, "config.steps", n), sum = 0;
    if (n == 0 && ab_steps_of_cell(cell) > 0) return unknown("no loss was given");
    if (n == 0) return unknown("no step was trained");
    if (n < total) return unknown("stopped after %d of %.0f steps", n, total);
    for (; loss && step < n - used; loss = loss->next) step++;
    for (; loss; loss = loss->next, step++) {
        if (!cJSON_IsNumber(loss)) return unknown("the loss of step %d is not finite", step);
        sum += loss->valuedouble;
    }
    return known(sum / used);
}

static figure loss_gap(const facts *f) {
    if (!is_known(&f->loss_final)) return f->loss_final;
    if (!f->baseline) return unknown("%s", no_baseline);
    if (!is_known(&f->baseline->loss_final))
        return unknown("O0: %s", ab_text_brief(f->baseline->loss_final.reason, 150));
    return known(f->loss_final.value - f->baseline->loss_final.value);
}

/* ---- time ------------------------------------------------------------------------------------ */

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median of n >= 1 values; sorts them in place. */
static double median(double *value, int n) {
    qsort(value, (size_t)n, sizeof *value, compare_doubles);
    return n % 2 ? value[n / 2] : (value[n / 2 - 1] + value[n / 2]) / 2;
}

/* Copies the numbers of an array into value[]; returns their count. */
static int read_numbers(const cJSON *array, double *value) {
    int n = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, array) {
        if (cJSON_IsNumber(item)) value[n++] = item->valuedouble;
    }
    return n;
}

static int most_step_times(const cJSON *processes) {
    int most = 0;
    const cJSON *process;
    cJSON_ArrayForEach(process, processes) {
        int n = cJSON_GetArraySize(ab_json_at(process, "step_time_ns"));
        if (n > most) most = n;
    }
    return most;
}

/* Times and memory of a cell that ran beside others are not those of the run's threads. */
static figure beside(int threads) {
    return unknown("it ran beside other cells on %d thread%s", threads, threads == 1 ? "" : "s");
}

static ab_status time_steps(facts *f) {
    const cJSON *process, *processes = ab_json_at(f->cell, "processes");
    const int threads = ab_cell_threads_beside(f->cell);
    int n = 0, room = threads > 0 ? 0 : most_step_times(processes);
    f->step_time = threads > 0 ? beside(threads) : unknown("no unprobed step was timed");
    f->step_time_low = f->step_time_high = f->step_time;
    if (room == 0) return AB_OK;
    double *value = malloc((size_t)room * sizeof *value);
    double *medians = malloc((size_t)cJSON_GetArraySize(processes) * sizeof *medians);
    if (value && medians) {
        cJSON_ArrayForEach(process, processes) {
            int count = read_numbers(ab_json_at(process, "step_time_ns"), value);
            if (count > 0) medians[n++] = median(value, count);
        }
    }
    if (n > 0) {
        f->step_time = known(median(medians, n)); /* median() sorts: the extremes are at the ends */
        f->step_time_low = known(medians[0]);
        f->step_time_high = known(medians[n - 1]);
    }
    bool failed = !value || !medians;
    free(value);
    free(medians);
    return failed ? ab_fail(AB_NO_MEMORY, "out of memory while summarising step times") : AB_OK;
}

static figure sample_rate(const cJSON *document, const facts *f) {
    double batch = ab_json_number(document, "config.batch", 0) * ab_result_batches_per_step(document);
    double total = ab_json_number(f->cell, "steps_total", 0);
    double applied = ab_json_number(f->cell, "steps_applied", 0);
    if (!is_known(&f->step_time)) return f->step_time;
    if (f->step_time.value <= 0 || total <= 0 || batch <= 0) return unknown("no step took any time");
    return known(batch * (applied / total) / f->step_time.value * 1e9);
}

/* ---- memory, skips, casts -------------------------------------------------------------------- */

static figure number_at(const cJSON *cell, const char *path) {
    const cJSON *value = ab_json_at(cell, path);
    return cJSON_IsNumber(value) ? known(value->valuedouble) : unknown("not recorded");
}

static figure skipped_share(const cJSON *cell) {
    double total = ab_json_number(cell, "steps_total", 0);
    return total > 0 ? known(ab_json_number(cell, "steps_skipped", 0) / total)
                     : unknown("no step was trained");
}

static bool any_cast(const cJSON *tensors) {
    const cJSON *tensor;
    cJSON_ArrayForEach(tensor, tensors) {
        if (ab_json_is_true(tensor, "cast")) return true;
    }
    return false;
}

/* Counts summed over the tensors of one layer, or of all layers if `layer` is NULL. */
typedef struct tally {
    double nonzero, flushed, overflowed;
} tally;

static tally tally_tensors(const cJSON *tensors, bool cast_only, const char *layer) {
    tally sum = {0, 0, 0};
    const cJSON *tensor;
    cJSON_ArrayForEach(tensor, tensors) {
        if (!ab_tensor_counts(tensor, cast_only, layer)) continue;
        sum.nonzero += ab_json_number(tensor, "nonzero", 0);
        sum.flushed += ab_json_number(tensor, "flushed", 0);
        sum.overflowed += ab_json_number(tensor, "overflowed", 0);
    }
    return sum;
}

static bounds bounds_of(ab_sampling sampling, const ab_flush_interval *all) {
    if (sampling != AB_TOO_FEW_STEPS)
        return (bounds){sampling == AB_SOME_STEPS, known(all->low), known(all->high)};
    const figure none = unknown("fewer than three steps were probed");
    return (bounds){true, none, none};
}

/* Of one layer, or of all: NULL. */
static bounds flushed_bounds(const facts *f, const char *layer) {
    ab_flush_interval all = {0};
    const ab_sampling sampling = ab_flushed_of_all_steps(f->cell, !f->flushed_modelled, layer, &all);
    return bounds_of(sampling, &all);
}

static bounds lost_bounds(const facts *f) {
    ab_flush_interval all = {0};
    const ab_sampling sampling = ab_lost_of_all_steps(f->cell, &all);
    return bounds_of(sampling, &all);
}

static void find_worst_layer(facts *f, const cJSON *tensors) {
    double worst = 0;
    const cJSON *tensor;
    cJSON_ArrayForEach(tensor, tensors) {
        const char *layer = ab_json_text(tensor, "layer", "");
        tally sum = tally_tensors(tensors, !f->flushed_modelled, layer);
        if (sum.nonzero <= 0 || sum.flushed / sum.nonzero <= worst) continue;
        worst = sum.flushed / sum.nonzero;
        f->worst_layer = layer;
    }
    f->worst_share = f->worst_layer ? known(worst) : unknown("nothing was flushed");
    if (f->worst_layer) f->worst_bounds = flushed_bounds(f, f->worst_layer);
}

static void count_casts(facts *f) {
    const cJSON *tensors = ab_json_at(f->cell, "probes.tensors");
    if (!tensors || !tensors->child) {
        f->flushed_share = f->overflowed = f->worst_share = unknown("gradients were not probed");
        return;
    }
    f->flushed_modelled = !any_cast(tensors);
    tally sum = tally_tensors(tensors, !f->flushed_modelled, NULL);
    f->overflowed = known(sum.overflowed);
    f->flushed_share = sum.nonzero > 0 ? known(sum.flushed / sum.nonzero)
                                       : unknown("no gradient value was finite and not zero");
    if (is_known(&f->flushed_share)) f->flushed_bounds = flushed_bounds(f, NULL);
    find_worst_layer(f, tensors);
}

static void count_updates(facts *f) {
    const cJSON *param;
    double nonzero = 0, lost = 0;
    cJSON_ArrayForEach(param, ab_json_at(f->cell, "probes.lost_updates")) {
        nonzero += ab_json_number(param, "update.nonzero", 0);
        lost += ab_json_number(param, "update.lost", 0);
    }
    f->lost_share = nonzero > 0 ? known(lost / nonzero) : unknown("no update was probed");
    if (is_known(&f->lost_share)) f->lost_bounds = lost_bounds(f);
}

/* ---- comparing with O0 ----------------------------------------------------------------------- */

/* Perturbed baselines of one kind and half format: what chance does. */
typedef struct floor_draws {
    const facts *largest; /* NULL: not measured */
    int count;
    double draw[AB_CHANCE_DRAWS_MOST], chance; /* loss gaps, and ab_chance_gap of them */
} floor_draws;

static bool is_draw(const facts *f, const char *twin) {
    return strcmp(ab_json_text(f->cell, "twin", ""), twin) == 0 && is_known(&f->loss_gap);
}

static const char *half_of(const facts *f) { return ab_json_text(f->cell, "half_format", ""); }

static floor_draws draws_like(const facts *all, int count, const char *twin, const facts *like) {
    floor_draws found = {.largest = like};
    for (int i = 0; i < count && found.count < AB_CHANCE_DRAWS_MOST; i++) {
        if (!is_draw(&all[i], twin) || strcmp(half_of(&all[i]), half_of(like)) != 0) continue;
        found.draw[found.count++] = all[i].loss_gap.value;
        if (fabs(all[i].loss_gap.value) > fabs(found.largest->loss_gap.value)) found.largest = &all[i];
    }
    found.chance = ab_chance_gap(found.draw, found.count);
    return found;
}

/* Of several half formats that with the largest floor. */
static floor_draws find_floor(const facts *all, int count, const char *twin) {
    floor_draws found = {.count = 0};
    for (int i = 0; i < count; i++) {
        if (!is_draw(&all[i], twin)) continue;
        const floor_draws draws = draws_like(all, count, twin, &all[i]);
        if (!found.largest || draws.chance > found.chance) found = draws;
    }
    return found;
}

/* A cell's speed counts only if its training is as good as O0's: it ended well, every loss is finite, at
 * least 95 % of the steps were applied, and the final loss is above O0's by no more than a floor or 5 % of
 * O0's, whichever is largest. */
double ab_summary_allowed_gap(const ab_floors *floors, double baseline_loss) {
    return fmax(fmax(floors->noise, floors->rounding), baseline_share * fabs(baseline_loss));
}

static double floor_of(const cJSON *floor) {
    const double largest = fabs(ab_json_number(floor, "loss_gap", 0));
    return ab_json_number(floor, "chance_gap", ab_chance_gap(&largest, 1));
}

ab_floors ab_summary_floors(const cJSON *document) {
    return (ab_floors){floor_of(ab_json_at(document, "noise_floor")),
                       floor_of(ab_json_at(document, "rounding_floor"))};
}

static void judge(facts *f, const ab_floors *floors) {
    const cJSON *cell = f->cell;
    double total = ab_json_number(cell, "steps_total", 0), applied = ab_json_number(cell, "steps_applied", 0);
    double nonfinite = ab_json_number(cell, "nonfinite_losses", 0);
    const char *status = ab_json_text(cell, "status", "");
    if (strcmp(status, "ok") != 0)
        add_reason(&f->failed, "%s: %s", ab_text_brief(status, 20),
                   ab_text_brief(ab_json_text(cell, "reason", "no reason recorded"), 150));
    if (nonfinite > 0) add_reason(&f->failed, "%.0f of %.0f losses are not finite", nonfinite, total);
    if (total > 0 && applied < applied_share_needed * total)
        add_reason(&f->failed, "%.1f %% of the steps were applied, 95 %% are needed", 100 * applied / total);
    if (!is_known(&f->loss_gap)) {
        add_reason(&f->failed, "no loss gap: %s", ab_text_brief(f->loss_gap.reason, 150));
        return;
    }
    double allowed = ab_summary_allowed_gap(floors, f->baseline->loss_final.value);
    if (f->loss_gap.value > allowed)
        add_reason(&f->failed,
                   "loss gap %+.4g is above %.4g, the largest of both noise floors and 5 %% of O0's loss",
                   f->loss_gap.value, allowed);
}

/* As good as an O0 that learned nothing is no certificate. */
static void certify(facts *f, const cJSON *document, const ab_floors *floors) {
    judge(f, floors);
    f->speed_void = f->failed.count > 0;
    if (!f->baseline || !is_known(&f->baseline->loss_final)) return;
    if (!ab_learned(document, f->baseline->cell, f->baseline->loss_final.value, f->unlearned,
                    sizeof f->unlearned))
        add_reason(&f->failed, "%s", f->unlearned);
}

bool ab_summary_times_overlap(const cJSON *cell, const cJSON *o0) {
    const double from = ab_json_number(cell, "summary.step_time_ns_low", (double)NAN),
                 to = ab_json_number(cell, "summary.step_time_ns_high", (double)NAN),
                 o0_from = ab_json_number(o0, "summary.step_time_ns_low", (double)NAN),
                 o0_to = ab_json_number(o0, "summary.step_time_ns_high", (double)NAN);
    return from < to && o0_from < o0_to && from <= o0_to && o0_from <= to;
}

static figure speed_ratio(const facts *f, const ab_machines *machines) {
    const int threads = ab_cell_threads_beside(f->cell);
    if (threads > 0) return beside(threads);
    if (f->baseline && !ab_machines_alike(machines, f->cell, f->baseline->cell))
        return unknown("O0 ran on another class of machine");
    if (f->speed_void || !f->baseline) return unknown("%s", f->speed_void ? f->failed.text[0] : no_baseline);
    if (f->baseline->speed_void) return unknown("O0: %s", ab_text_brief(f->baseline->failed.text[0], 150));
    double steps = ab_json_number(f->cell, "steps_total", 0);
    double o0_steps = ab_json_number(f->baseline->cell, "steps_total", 0);
    if (steps != o0_steps) return unknown("unequal work: %.0f steps, O0 trained %.0f", steps, o0_steps);
    return ratio(&f->rate, &f->baseline->rate, "O0");
}

/* ---- output ---------------------------------------------------------------------------------- */

/* Collects allocation failures of cJSON additions; checked once, at the end. */
typedef struct builder {
    cJSON *object;
    bool failed;
} builder;

static void put(builder *b, const char *key, cJSON *value) {
    if (value && cJSON_AddItemToObject(b->object, key, value)) return;
    cJSON_Delete(value);
    b->failed = true;
}

static void put_reason(builder *b, const char *key, const char *reason) {
    char name[64];
    ab_text_exact(name, sizeof name, "%s_reason", key);
    put(b, name, cJSON_CreateString(reason));
}

static void put_figure(builder *b, const char *key, const figure *f) {
    put(b, key, is_known(f) ? cJSON_CreateNumber(f->value) : cJSON_CreateNull());
    if (!is_known(f)) put_reason(b, key, f->reason);
}

static void put_certificate(builder *b, const reasons *failed) {
    builder certificate = {cJSON_CreateObject(), false};
    cJSON *list = cJSON_CreateArray();
    for (int i = 0; i < failed->count; i++) {
        cJSON *text = cJSON_CreateString(failed->text[i]);
        if (!cJSON_AddItemToArray(list, text)) b->failed = true;
    }
    put(&certificate, "passed", cJSON_CreateBool(failed->count == 0));
    put(&certificate, "reasons", list);
    put(b, "certificate", certificate.object);
    b->failed |= certificate.failed;
}

static void put_bounds(builder *b, const char *share, const bounds *all_steps) {
    const struct {
        const char *side;
        const figure *figure;
    } rows[] = {{"low", &all_steps->low}, {"high", &all_steps->high}};
    for (size_t i = 0; all_steps->sampled && i < AB_COUNT_OF(rows); i++) {
        char key[64];
        ab_text_exact(key, sizeof key, "%s_%s", share, rows[i].side);
        put_figure(b, key, rows[i].figure);
    }
}

static cJSON *summary_object(facts *f) {
    const struct {
        const char *key;
        const figure *figure;
    } rows[] = {{"loss_final", &f->loss_final},
                {"loss_gap", &f->loss_gap},
                {"step_time_ns", &f->step_time},
                {"step_time_ns_low", &f->step_time_low},
                {"step_time_ns_high", &f->step_time_high},
                {"samples_per_s", &f->rate},
                {"ratio_samples_to_o0", &f->rate_ratio},
                {"peak_bytes", &f->peak},
                {"ratio_bytes_to_o0", &f->peak_ratio},
                {"skipped_share", &f->skipped_share},
                {"flushed_share", &f->flushed_share},
                {"overflowed", &f->overflowed},
                {"worst_layer_flushed_share", &f->worst_share},
                {"lost_share", &f->lost_share}};
    builder b = {cJSON_CreateObject(), false};
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) put_figure(&b, rows[i].key, rows[i].figure);
    put_bounds(&b, "flushed_share", &f->flushed_bounds);
    put_bounds(&b, "worst_layer_flushed_share", &f->worst_bounds);
    put_bounds(&b, "lost_share", &f->lost_bounds);
    put(&b, "flushed_modelled", cJSON_CreateBool(f->flushed_modelled));
    put(&b, "worst_layer", f->worst_layer ? cJSON_CreateString(f->worst_layer) : cJSON_CreateNull());
    if (!f->worst_layer) put_reason(&b, "worst_layer", f->worst_share.reason);
    if (f->subnormal_slowdown) put(&b, "subnormal_slowdown", f->subnormal_slowdown);
    f->subnormal_slowdown = NULL;
    if (f->baseline && is_known(&f->baseline->loss_final))
        put(&b, "baseline_learned", cJSON_CreateBool(!f->unlearned[0]));
    if (f->unlearned[0]) put_reason(&b, "baseline_learned", f->unlearned);
    put_certificate(&b, &f->failed);
    if (!b.failed) return b.object;
    cJSON_Delete(b.object);
    return NULL;
}

static cJSON *floor_object(const floor_draws *floor, const char *text) {
    if (!floor->largest) return cJSON_CreateNull();
    builder b = {cJSON_CreateObject(), false};
    put(&b, "cell", cJSON_CreateString(ab_json_text(floor->largest->cell, "id", "")));
    put(&b, "loss_gap", cJSON_CreateNumber(fabs(floor->largest->loss_gap.value)));
    put(&b, "draws", cJSON_CreateDoubleArray(floor->draw, floor->count));
    put(&b, "chance_gap", cJSON_CreateNumber(floor->chance));
    put(&b, "text", cJSON_CreateString(text));
    if (!b.failed) return b.object;
    cJSON_Delete(b.object);
    return NULL;
}

/* Replaces or adds a key; takes ownership of `value`, which may be NULL after a failed allocation. */
static ab_status set(cJSON *object, const char *key, cJSON *value) {
    bool exists = ab_json_at(object, key) != NULL;
    bool done = value && (exists ? cJSON_ReplaceItemInObjectCaseSensitive(object, key, value)
                                 : cJSON_AddItemToObject(object, key, value));
    if (done) return AB_OK;
    cJSON_Delete(value);
    return ab_fail(AB_NO_MEMORY, "out of memory while summarising the result");
}

/* ---- public ---------------------------------------------------------------------------------- */

static ab_status measure(const cJSON *document, facts *f) {
    f->loss_final = final_loss(document, f->cell);
    AB_TRY(time_steps(f));
    f->rate = sample_rate(document, f);
    const int threads = ab_cell_threads_beside(f->cell);
    f->peak = threads > 0 ? beside(threads) : number_at(f->cell, "memory_bytes.total");
    f->skipped_share = skipped_share(f->cell);
    count_casts(f);
    count_updates(f);
    return ab_subnormal_slowdown(f->cell, &f->subnormal_slowdown);
}

typedef struct floor_cells {
    floor_draws noise, rounding;
} floor_cells;

static floor_cells compare(const cJSON *document, const ab_baselines *baselines, const ab_machines *machines,
                           facts *all, int count) {
    for (int i = 0; i < count; i++) {
        const int o0 = ab_baselines_find(baselines, all[i].cell);
        all[i].baseline = o0 < 0 ? NULL : &all[o0];
        all[i].loss_gap = loss_gap(&all[i]);
    }
    const floor_cells found = {find_floor(all, count, "ulp"), find_floor(all, count, "rounding")};
    const ab_floors floors = {found.noise.chance, found.rounding.chance};
    for (int i = 0; i < count; i++) certify(&all[i], document, &floors);
    for (int i = 0; i < count; i++) {
        const facts *o0 = all[i].baseline;
        all[i].rate_ratio = speed_ratio(&all[i], machines);
        all[i].peak_ratio = o0 ? ratio(&all[i].peak, &o0->peak, "O0") : unknown("%s", no_baseline);
    }
    return found;
}

static ab_status set_floors(cJSON *document, const floor_cells *found) {
    static const char ulp[] = "O0 again with every initial weight moved by one ulp",
                      rounding[] = "O0 again with every initial weight moved by as much as rounding to the "
                                   "half format would";
    AB_TRY(set(document, "noise_floor", floor_object(&found->noise, ulp)));
    return set(document, "rounding_floor", floor_object(&found->rounding, rounding));
}

ab_status ab_result_summarise(cJSON *document) {
    cJSON *cell, *cells = cJSON_GetObjectItemCaseSensitive(document, "cells");
    int count = cJSON_GetArraySize(cells), i = 0;
    ab_status status = AB_OK;
    facts *all = calloc((size_t)count + 1, sizeof *all);
    ab_baselines baselines = {NULL, 0};
    ab_machines machines;
    if (!all || !ab_machines_create(document, &machines)) {
        free(all);
        return ab_fail(AB_NO_MEMORY, "out of memory while summarising %d cells", count);
    }
    AB_TRY_GOTO(ab_baselines_create(document, &baselines));
    cJSON_ArrayForEach(cell, cells) all[i++].cell = cell;
    for (i = 0; i < count; i++) AB_TRY_GOTO(measure(document, &all[i]));
    const floor_cells floors = compare(document, &baselines, &machines, all, count);
    AB_TRY_GOTO(set_floors(document, &floors));
    i = 0;
    cJSON_ArrayForEach(cell, cells) AB_TRY_GOTO(set(cell, "summary", summary_object(&all[i++])));
out:
    for (i = 0; i < count; i++) cJSON_Delete(all[i].subnormal_slowdown);
    ab_baselines_free(&baselines);
    ab_machines_clear(&machines);
    free(all);
    return status;
}
