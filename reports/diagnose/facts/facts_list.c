/* One getter a row of facts.def. */
#include "reports/diagnose/facts/facts_list.h"

#include "kernels/core/text.h"
#include "reports/diagnose/facts/first_nonfinite.h"
#include "reports/record/json.h"
#include "reports/record/summary.h"

#include <math.h>
#include <string.h>

static ab_fact at(double value, int step, const char *place) {
    ab_fact fact = {.value = value, .step = step};
    ab_text_exact(fact.place, sizeof fact.place, "%s", place);
    return fact;
}

static ab_fact whole(double value, const char *place) { return at(value, AB_STEP_UNKNOWN, place); }

static ab_fact number(const ab_facts *f, const char *key, const char *place) {
    return whole(ab_json_number(f->cell, key, (double)NAN), place);
}

/* Facts beside O0; NAN for O0 itself. */
static double beside(const ab_facts *f, double value) {
    return f->baseline && f->baseline != f->cell ? value : (double)NAN;
}

/* ---- losses ----------------------------------------------------------------------------------------- */

static ab_fact get_loss_first(const ab_facts *f) { return at(f->loss.first, 0, "/loss/0"); }
static ab_fact get_loss_final(const ab_facts *f) { return whole(f->loss.final, "/loss"); }

static ab_fact get_losses_nonfinite(const ab_facts *f) {
    return at(f->loss.nonfinite, f->loss.first_nonfinite, "/loss");
}

static ab_fact get_first_shift(const ab_facts *f) {
    return at(beside(f, ab_facts_first_shift(f)), 0, "/loss/0");
}

static ab_fact get_gap(const ab_facts *f) { return whole(beside(f, f->gap), "/summary/loss_gap"); }

static ab_fact get_gap_share(const ab_facts *f) {
    return whole(beside(f, f->gap / ab_facts_learned(f)), "/summary/loss_gap");
}

static ab_fact get_o0_learned(const ab_facts *f) {
    return whole(beside(f, ab_facts_learned(f)), "/summary/loss_gap");
}

static ab_fact get_gap_error(const ab_facts *f) { return whole(beside(f, ab_facts_gap_error(f)), "/loss"); }

static ab_fact get_gap_lateness(const ab_facts *f) {
    return whole(beside(f, ab_facts_gap_lateness(f)), "/summary/loss_gap");
}

static ab_fact get_rounding_floor(const ab_facts *f) {
    const bool measured = ab_json_at(f->document, "rounding_floor.loss_gap") != NULL;
    return whole(measured ? ab_summary_floors(f->document).rounding : (double)NAN, "");
}
static ab_fact get_noise_floor(const ab_facts *f) {
    const bool measured = ab_json_at(f->document, "noise_floor.loss_gap") != NULL;
    return whole(measured ? ab_summary_floors(f->document).noise : (double)NAN, "");
}

/* ---- scale and non-finite values -------------------------------------------------------------------- */

static ab_fact get_late_skips(const ab_facts *f) {
    const bool known = f->skip.dynamic && f->skip.late_steps > 0;
    return at(known ? (double)f->skip.late / f->skip.late_steps : (double)NAN, f->skip.late_from,
              "/skipped_steps");
}

static ab_fact get_last_scale(const ab_facts *f) { return whole(f->skip.last_scale, "/scale"); }

static ab_fact get_first_nonfinite(const ab_facts *f) {
    const ab_first_nonfinite first = ab_first_nonfinite_of(f->cell, f->half->name, false);
    if (!first.known) return whole((double)NAN, "");
    return at(first.read_largest, first.step, first.pointer);
}

/* ---- gradients and updates -------------------------------------------------------------------------- */

static ab_fact get_flushed_energy(const ab_facts *f) {
    ab_fact most = whole((double)NAN, "");
    const cJSON *tensor;
    int place = -1;
    cJSON_ArrayForEach(tensor, ab_json_at(f->cell, "probes.tensors")) {
        place++;
        const double share =
            ab_json_is_true(tensor, "cast") ? ab_facts_flushed_energy(f, tensor) : (double)NAN;
        if (isnan(share) || share <= most.value) continue;
        most = at(share, ab_first_step_with(tensor, "flushed"), "");
        ab_text_exact(most.place, sizeof most.place, "/probes/tensors/%d/flushed", place);
    }
    return most;
}

static ab_fact get_gradient_deficit(const ab_facts *f) {
    return at(ab_gradient_deficit(f), 0, "/probes/tensors");
}

/* Sum of a number over all parameters' updates; NAN if the probe is missing. */
static double sum_of_updates(const cJSON *cell, const char *key) {
    const cJSON *param, *list = ab_json_at(cell, "probes.lost_updates");
    double sum = list ? 0 : (double)NAN;
    cJSON_ArrayForEach(param, list) sum += ab_json_number(param, key, 0);
    return sum;
}

static ab_fact get_lost_energy(const ab_facts *f) {
    return whole(sum_of_updates(f->cell, "update.lost_energy") / sum_of_updates(f->cell, "update.energy"),
                 "/probes/lost_updates");
}

static ab_fact get_lost_updates(const ab_facts *f) {
    return whole(sum_of_updates(f->cell, "update.lost") / sum_of_updates(f->cell, "update.nonzero"),
                 "/probes/lost_updates");
}

static ab_fact get_relative_update(const ab_facts *f) {
    return whole(ab_relative_update(f->cell), "/probes/lost_updates");
}

static ab_fact get_weight_growth(const ab_facts *f) {
    return whole(ab_weight_growth(f->cell), "/vitals/final_weights/rms");
}

/* ---- accuracy --------------------------------------------------------------------------------------- */

static ab_fact get_accuracy(const ab_facts *f) { return number(f, "test_accuracy", "/test_accuracy"); }

static ab_fact get_accuracy_gap(const ab_facts *f) {
    const double o0 = ab_json_number(f->baseline, "test_accuracy", (double)NAN);
    return whole(beside(f, o0 - get_accuracy(f).value), "/test_accuracy");
}

/* ---- the list --------------------------------------------------------------------------------------- */

static const ab_fact_row rows[] = {
#define AB_FACT(name, unit, threshold, text) {#name, unit, text, #threshold, get_##name},
#include "reports/diagnose/facts/facts.def"
#undef AB_FACT
};

int ab_fact_count(void) { return (int)AB_COUNT_OF(rows); }
const ab_fact_row *ab_fact_at(int i) { return &rows[i]; }

double ab_fact_limit(const ab_fact_row *row, ab_thresholds limits) {
    for (int i = 0; i < ab_threshold_count(); i++)
        if (strcmp(ab_threshold_at(i)->name, row->threshold) == 0) return *ab_threshold_of(&limits, i);
    return (double)NAN;
}
