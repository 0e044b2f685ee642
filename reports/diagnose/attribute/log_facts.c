/* Facts of a record that was read from a training log. */
#include "reports/diagnose/attribute/log_facts.h"

#include "kernels/core/text.h"
#include "reports/record/json.h"

#include <math.h>
#include <string.h>

/* A number, which documents of logs write as text if it is none. */
static double number(const cJSON *facts, const char *name, double fallback) {
    const cJSON *value = ab_json_at(facts, name);
    if (cJSON_IsString(value) && strcmp(value->valuestring, "inf") == 0) return (double)INFINITY;
    return cJSON_IsNumber(value) ? value->valuedouble : fallback;
}

/* The scaler that is expected to skip most: several may have the log's scales. */
static void see_scalers(const cJSON *document, ab_log_view *v) {
    const cJSON *fit;
    v->later = number(v->facts, "skips_later", 0);
    v->later_expected = (double)NAN;
    cJSON_ArrayForEach(fit, ab_json_at(document, "log.dialects")) {
        const double expected = ab_json_number(fit, "skips_expected", (double)NAN);
        if (!isfinite(expected) || expected <= v->later_expected) continue;
        v->later_expected = expected;
        v->scaler = ab_json_text(fit, "config", "");
    }
}

ab_log_view ab_log_view_of(const ab_case *c) {
    const double unknown = (double)NAN;
    const cJSON *document = c->facts.document, *facts = ab_json_at(document, "log.facts"),
                *totals = ab_json_at(document, "log.totals");
    ab_log_view view = {.facts = facts,
                        .steps = number(facts, "steps", unknown),
                        .skipped = number(facts, "skipped", 0),
                        .skips_at_end = number(facts, "skips_at_end", 0),
                        .floor_skips = number(facts, "floor_skips", 0),
                        .runaway_scale = number(facts, "runaway_scale", unknown),
                        .runaway_from = number(facts, "runaway_from", unknown),
                        .hidden_nans = number(facts, "hidden_nans", 0),
                        .nonfinite_losses = number(facts, "nonfinite_losses", 0),
                        .resets = number(facts, "resets", 0),
                        .reset_from = number(facts, "reset_from", unknown),
                        .reset_to = number(facts, "reset_to", unknown),
                        .skipped_intervals = number(facts, "skipped_intervals", 0),
                        .rate_moved = number(facts, "rate_moved", 0),
                        .first_scale = number(totals, "first_scale", unknown),
                        .last_scale = number(totals, "last_scale", unknown),
                        .lines = number(ab_json_at(document, "log"), "lines", 0)};
    see_scalers(document, &view);
    return view;
}

void ab_verdict_point_log(ab_verdict *verdict, const char *fact) {
    if (verdict->evidences == 0) return;
    ab_evidence *last = &verdict->evidence[verdict->evidences - 1];
    ab_text_show(last->pointer, sizeof last->pointer, "/log/facts/%s", fact);
}

int ab_log_line_of(const ab_log_view *view, const char *name) { return (int)number(view->facts, name, 0); }

/* ---- conditions ------------------------------------------------------------------------------ */

static bool has_log(const ab_case *c) { return ab_log_view_of(c).facts != NULL; }

static bool is_sound(const ab_case *c, const ab_verdict *verdict) {
    (void)verdict;
    const ab_log_view v = ab_log_view_of(c);
    return v.facts && !(v.skipped > 0) && !(v.hidden_nans > 0) && !(v.nonfinite_losses > 0);
}

static bool came_down(const ab_case *c, const ab_verdict *verdict) {
    (void)verdict;
    const ab_log_view v = ab_log_view_of(c);
    return v.facts && v.last_scale < v.runaway_scale;
}

const ab_need ab_need_log = {"what the training loop logged", "give its log: ampbench diagnose LOG", has_log,
                             "give the loop's log: ampbench diagnose LOG"};
const ab_refutation ab_refuted_log_sound = {"the log's losses are finite and none of its steps was skipped",
                                            is_sound};
const ab_refutation ab_refuted_log_came_down = {"the log's last scale is below that one", came_down};
