/* Recognises known problems in verdicts and the record. Adds no verdicts. */
#include "reports/diagnose/known_issues.h"

#include "kernels/core/show.h"
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/log_facts.h"
#include "reports/record/graph.h"
#include "reports/record/json.h"
#include "reports/record/subnormals.h"
#include "reports/record/text.h"

#include <math.h>
#include <string.h>

/* ---- shared ---------------------------------------------------------------------------------- */

static const ab_verdict *find_verdict(const ab_diagnosis *d, const char *id) {
    for (int i = 0; i < d->verdicts; i++)
        if (strcmp(d->verdict[i].rule->id, id) == 0) return &d->verdict[i];
    return NULL;
}

/* Writes the verdict's first evidence into text; false if the diagnosis has no such verdict. */
static bool describe_verdict(const ab_diagnosis *d, const char *id, char *text, size_t size) {
    const ab_verdict *v = find_verdict(d, id);
    if (!v) return false;
    ab_text_show(text, size, "%s%s%s; see %s", v->evidences > 0 ? v->evidence[0].text : v->rule->text,
                 v->layer[0] ? ", in " : "", v->layer, id);
    return true;
}

static bool is_scaled(const ab_diagnosis *d) {
    return d->found.facts.skip.dynamic || d->found.facts.skip.first_scale != 1;
}

/* Steps are skipped although the scale was lowered, so the scale is not the cause. */
static bool skips_whatever_the_scale(const ab_diagnosis *d) {
    return d->found.facts.skip.dynamic && d->found.skipping && !find_verdict(d, "scaler_window_too_short");
}

/* Writes the op of the first non-finite value into text; "" if not recorded. */
static void describe_first_nonfinite(const ab_diagnosis *d, char *text, size_t size) {
    const ab_first_nonfinite first =
        ab_first_nonfinite_of(d->found.facts.cell, d->found.facts.half->name, false);
    text[0] = '\0';
    if (first.known)
        ab_text_show(text, size, "; the first non-finite value: %s, %s pass, step %d", first.op, first.pass,
                     first.step);
}

/* ---- the problems, in the order of known_issues.def ------------------------------------------ */

static bool here_endless_skipping(const ab_diagnosis *d, char *text, size_t size) {
    char where[AB_VERDICT_TEXT];
    if (!skips_whatever_the_scale(d) || ab_facts_at_floor(&d->found.facts) ||
        !(d->found.facts.skip.least_scale < d->found.facts.skip.first_scale))
        return false;
    describe_first_nonfinite(d, where, sizeof where);
    ab_text_show(text, size,
                 "%d of %d steps skipped while the scale fell from %g to %g: not a matter of the scale%s",
                 d->found.facts.skip.skipped, d->found.facts.loss.steps, d->found.facts.skip.first_scale,
                 d->found.facts.skip.least_scale, where);
    return true;
}

static int last_applied(const ab_case *c) {
    const cJSON *skipped = ab_json_at(c->facts.cell, "skipped_steps");
    int step = c->facts.loss.steps - 1;
    for (int i = cJSON_GetArraySize(skipped) - 1; i >= 0 && step >= 0; i--, step--)
        if ((int)cJSON_GetArrayItem(skipped, i)->valuedouble != step) break;
    return step;
}

static bool here_scale_at_minimum(const ab_diagnosis *d, char *text, size_t size) {
    const double least = ab_json_number(d->found.facts.document, "config.min_loss_scale", 0);
    const bool given = least > 0 && d->found.facts.skip.least_scale <= least;
    if (!skips_whatever_the_scale(d) || !(given || ab_facts_at_floor(&d->found.facts))) return false;
    const int last = last_applied(&d->found);
    ab_text_show(text, size, "the scale is at its minimum of %g; %s",
                 given ? least : d->found.facts.skip.least_scale,
                 last < 0 ? "no step was applied" : "the last step that was applied is ");
    if (last >= 0) ab_text_append(text, size, "%d", last);
    return true;
}

/* Of a log: its skips beside those of the scaler that has its scales. */
static bool log_expected_skips(const ab_diagnosis *d, char *text, size_t size) {
    const ab_log_view v = ab_log_view_of(&d->found);
    if (!v.facts || !v.scaler || !(v.skipped > 0) || d->verdicts > 0) return false;
    ab_text_show(
        text, size,
        "%.0f of %.0f steps skipped, %.0f of them after the scale first rose; %s is expected to skip "
        "about %.3g there: nothing to do",
        v.skipped, v.steps, v.later, v.scaler, v.later_expected);
    return true;
}

static bool here_expected_skips(const ab_diagnosis *d, char *text, size_t size) {
    if (log_expected_skips(d, text, size)) return true;
    if (!d->found.facts.skip.dynamic || d->found.facts.skip.skipped == 0 || d->found.sick ||
        !d->skips.healthy)
        return false;
    ab_text_show(text, size, "%d skipped, as this scaler is meant to: nothing to do",
                 d->found.facts.skip.skipped);
    return true;
}

static bool here_schedule_ahead(const ab_diagnosis *d, char *text, size_t size) {
    const char *schedule = ab_json_text(d->found.facts.document, "config.schedule", "constant");
    if (d->found.facts.skip.skipped == 0 || strcmp(schedule, "constant") == 0) return false;
    if (!ab_json_is_true(d->found.facts.document, "config.schedule_on_skip")) return false;
    ab_text_show(
        text, size,
        "the schedule advanced at %d steps that the optimizer did not take: leave --schedule-on-skip out",
        d->found.facts.skip.skipped);
    return true;
}

static bool here_clipped_while_scaled(const ab_diagnosis *d, char *text, size_t size) {
    return describe_verdict(d, "clip_before_unscale", text, size);
}

static bool here_half_parameters(const ab_diagnosis *d, char *text, size_t size) {
    if (!ab_facts_half_weights(&d->found.facts) || !is_scaled(d)) return false;
    ab_text_show(text, size,
                 "the parameters themselves are %s: torch.amp.GradScaler refuses them; O2 keeps fp32 masters",
                 d->found.facts.half->name);
    return true;
}

/* Parameters whose gradient was all zeros at every probed step. */
static bool here_no_gradients(const ab_diagnosis *d, char *text, size_t size) {
    char name[AB_VERDICT_LAYER];
    const cJSON *tensor, *cell = d->found.facts.baseline ? d->found.facts.baseline : d->found.facts.cell;
    const char *first = "";
    int without = 0, all = 0;
    cJSON_ArrayForEach(tensor, ab_json_at(cell, "probes.tensors")) {
        const double count = ab_json_number(tensor, "count", 0);
        if (strcmp(ab_json_text(tensor, "kind", ""), "weight_gradient") != 0 || !(count > 0)) continue;
        all++;
        if (ab_json_number(tensor, "zero", 0) != count) continue;
        if (without++ == 0) first = ab_json_text(tensor, "name", "");
    }
    if (without == 0) return false;
    ab_text_clean(name, sizeof name, first);
    ab_text_show(text, size, "%d of %d parameters had no gradient but zeros in O0, the first is %s", without,
                 all, name);
    return true;
}

static bool here_scaled_bf16(const ab_diagnosis *d, char *text, size_t size) {
    if (strcmp(d->found.facts.half->name, "bf16") != 0 || !ab_facts_uses_half(&d->found.facts) ||
        !is_scaled(d))
        return false;
    ab_text_show(text, size, "bf16 has the range of fp32 and needs no loss scale: --scales 1");
    return true;
}

static bool here_log_of_half(const ab_diagnosis *d, char *text, size_t size) {
    return describe_verdict(d, "exp_log_in_half", text, size);
}

static bool here_batch_norm_types(const ab_diagnosis *d, char *text, size_t size) {
    const cJSON *op, *list = ab_json_at(d->found.facts.cell, "implementations");
    const ab_graph graph = ab_graph_of(d->found.facts.document, list);
    int norms = 0;
    if (!d->found.sick) return false;
    cJSON_ArrayForEach(op, list) {
        const ab_traits traits =
            ab_graph_traits_of(&graph, ab_json_text(op, "op", ""), ab_json_text(op, "type", ""));
        norms += traits & AB_TRAIT_running_statistics &&
                 strcmp(ab_json_text(op, "format", ""), d->found.facts.half->name) == 0;
    }
    if (norms == 0) return false;
    ab_text_show(text, size, "%d batch norm%s in %s, statistics in %s: --to keeps them in fp32", norms,
                 norms == 1 ? " runs" : "s run", d->found.facts.half->name,
                 ab_facts_statistics_format(&d->found.facts));
    return true;
}

static bool here_attention_nan(const ab_diagnosis *d, char *text, size_t size) {
    return describe_verdict(d, "attention_logit_overflow", text, size);
}

static bool here_forward_overflow(const ab_diagnosis *d, char *text, size_t size) {
    return describe_verdict(d, "activation_overflow", text, size) ||
           describe_verdict(d, "reduction_overflow", text, size) ||
           describe_verdict(d, "norm_statistics_in_half", text, size);
}

static bool here_epsilon_is_zero(const ab_diagnosis *d, char *text, size_t size) {
    return describe_verdict(d, "optimizer_state_underflow", text, size);
}

static bool here_nan_hidden_by_log(const ab_diagnosis *d, char *text, size_t size) {
    return describe_verdict(d, "nan_hidden_by_log", text, size);
}

static bool here_not_faster(const ab_diagnosis *d, char *text, size_t size) {
    const double slower = d->found.facts.limits->slower;
    const double ratio = ab_json_number(d->found.facts.cell, "summary.ratio_samples_to_o0", (double)NAN);
    if (!ab_facts_uses_half(&d->found.facts) || !(ratio < slower)) return false;
    ab_text_show(text, size, "%.2fx of O0's samples a second; %.0f casts a step%s", ratio,
                 ab_json_number(d->found.facts.cell, "casts_per_step", 0),
                 ab_json_is_true(d->found.facts.cell, "emulated") ? "; this device only emulates the format"
                                                                  : "");
    return true;
}

static bool here_subnormal_slowdown(const ab_diagnosis *d, char *text, size_t size) {
    return ab_subnormal_slowdown_text(d->found.facts.cell, text, size);
}

static bool here_lost_on_resume(const ab_diagnosis *d, char *text, size_t size) {
    const cJSON *resumed = ab_json_at(d->found.facts.cell, "vitals.resumed");
    const int tensors = (int)ab_json_number(resumed, "tensors_differing", 0),
              states = (int)ab_json_number(resumed, "states_differing", 0);
    char name[AB_VERDICT_LAYER], state[AB_VERDICT_LAYER] = "";
    const cJSON *first = cJSON_GetArrayItem(ab_json_at(resumed, "differing_states"), 0);
    if (tensors == 0 && states == 0) return false;
    ab_text_clean(name, sizeof name, ab_json_text(resumed, "first_differing", "-"));
    ab_text_clean(state, sizeof state, ab_json_text(first, "name", "-"));
    ab_text_show(
        text, size,
        "not as the checkpoint has it: %d of %.0f tensors (first %s), %d of %.0f states (first %s: %g "
        "saved, %g used)",
        tensors, ab_json_number(resumed, "tensors", 0), name, states, ab_json_number(resumed, "states", 0),
        state, ab_json_number(first, "saved", 0), ab_json_number(first, "used", 0));
    return true;
}

static const ab_known_issue problems[] = {
#define AB_KNOWN_ISSUE(id, title, threads) {#id, title, threads, here_##id},
#include "reports/diagnose/known_issues.def"
#undef AB_KNOWN_ISSUE
};

int ab_known_issue_count(void) { return (int)AB_COUNT_OF(problems); }
const ab_known_issue *ab_known_issue_at(int i) { return &problems[i]; }

/* ---- output ---------------------------------------------------------------------------------- */

void ab_known_issues_print(const ab_diagnosis *diagnosis, FILE *out) {
    char text[AB_VERDICT_TEXT];
    for (size_t i = 0; i < AB_COUNT_OF(problems); i++) {
        if (!problems[i].here(diagnosis, text, sizeof text)) continue;
        ab_print(out, "    known problem %s: %s (%s)\n      %s\n", problems[i].id, problems[i].title,
                 problems[i].threads, text);
    }
}

cJSON *ab_known_issue_json(const ab_diagnosis *diagnosis) {
    char text[AB_VERDICT_TEXT];
    cJSON *list = cJSON_CreateArray();
    for (size_t i = 0; i < AB_COUNT_OF(problems); i++) {
        if (!problems[i].here(diagnosis, text, sizeof text)) continue;
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "id", problems[i].id);
        cJSON_AddStringToObject(item, "title", problems[i].title);
        cJSON_AddStringToObject(item, "text", text);
        cJSON_AddStringToObject(item, "threads", problems[i].threads);
        cJSON_AddItemToArray(list, item);
    }
    return list;
}
