/* Diagnoses as text and as JSON. Formats the results of diagnose.c, decides nothing. */
#define _POSIX_C_SOURCE 200809L /* open_memstream */
#include "kernels/core/show.h"
#include "kernels/core/text.h"
#include "reports/diagnose/explain.h"
#include "reports/diagnose/facts/loop.h"
#include "reports/diagnose/known_issues.h"
#include "reports/diagnose/story.h"
#include "reports/record/json.h"
#include "reports/record/skips.h"
#include "reports/record/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char unknown_id[] = "unknown", healthy_id[] = "healthy";

/* Of a loop of the user's own: what its loss did not do, as nobody knows which loss it should have. */
static void not_learned(const ab_case *c, char *text, size_t size) {
    const char *also = text[0] ? "; " : "";
    const bool other = c->facts.baseline && c->facts.baseline != c->facts.cell;
    const ab_loss_facts *loss = c->facts.baseline ? &c->facts.baseline_loss : &c->facts.loss;
    if (!ab_is_loop(&c->facts)) {
        ab_text_append(text, size, "%sO0 itself %s", also,
                       c->undecided ? "has not learned yet" : "does not learn");
        return;
    }
    ab_text_append(text, size, "%s%s%s %s", also, c->undecided ? "no known cause; " : "",
                   other ? "O0's loss" : "the loss",
                   ab_loop_is_flat(&c->facts, loss) ? "did not fall"
                                                    : "is no lower than that of a constant prediction");
}

/* Writes the symptoms into text; "" if there are none. */
static void symptoms(const ab_case *c, char *text, size_t size) {
    text[0] = '\0';
    if (c->nonfinite)
        ab_text_append(text, size, "%d of %d losses are NaN or inf", c->facts.loss.nonfinite,
                       c->facts.loss.steps);
    if (c->skipping)
        ab_text_append(text, size, "%s%d of the last %d steps skipped", text[0] ? "; " : "",
                       c->facts.skip.late, c->facts.skip.late_steps);
    if (c->behind)
        ab_text_append(text, size, "%sloss %+.4g above O0's, %.4g is allowed%s", text[0] ? "; " : "",
                       c->facts.gap, c->gap_limit, c->suspect ? ", but its cause shows" : "");
    if (c->unlearned || c->idle) not_learned(c, text, size);
    if (c->inaccurate)
        ab_text_append(text, size, "%stest accuracy %.4g, O0 has %.4g", text[0] ? "; " : "",
                       ab_json_number(c->facts.cell, "test_accuracy", 0),
                       ab_json_number(c->facts.baseline, "test_accuracy", 0));
    if (c->stuck) ab_text_append(text, size, "%sthe averaged weights do not follow", text[0] ? "; " : "");
    if (c->eval_degraded)
        ab_text_append(text, size, "%sit evaluates far worse than it trains", text[0] ? "; " : "");
    if (c->misconfigured)
        ab_text_append(text, size, "%s",
                       ab_json_at(c->facts.document, "log") ? "the log shows it"
                                                            : "it trains, and the record shows a mistake");
}

static void print_evidence(const ab_verdict *v, FILE *out) {
    for (int i = 0; i < v->evidences; i++) {
        ab_print(out, "    %s", v->evidence[i].text);
        ab_print(out, v->evidence[i].pointer[0] ? "  [%s]\n" : "%s\n", v->evidence[i].pointer);
    }
}

static void print_verdict(const ab_verdict *v, FILE *out) {
    ab_print(out, "  %s (%s, %s, %s)", v->rule->id, ab_verdict_family_name(v->rule->family),
             ab_rank_name(v->rank), ab_proof_name(v->proof));
    if (v->layer[0]) ab_print(out, " in %s", v->layer);
    ab_print(out, ": %s\n", v->rule->text);
    print_evidence(v, out);
    if (v->remedy.text[0]) ab_print(out, "    remedy: %s\n", v->remedy.text);
    if (v->missing[0]) ab_print(out, "    cannot tell %s\n", v->missing);
}

/* The layer and the margin of every skipped step; of many the first ones. */
static void print_skipped_steps(const cJSON *cell, FILE *out) {
    enum { MOST = 16 };
    const int count = ab_skips_count(cell);
    for (int i = 0; i < count && i < MOST; i++) {
        ab_skip skip;
        char text[AB_SKIP_TEXT];
        ab_skip_at(cell, i, &skip);
        ab_print(out, "      step %d: %s\n", skip.step, ab_skip_text(&skip, text));
    }
    if (count > MOST) ab_print(out, "      and %d more (--json)\n", count - MOST);
}

/* Prints nothing if no step was skipped. */
static void print_skips(const ab_diagnosis *d, FILE *out) {
    const ab_skip_audit *a = &d->skips;
    if (!d->found.facts.skip.dynamic || d->found.facts.skip.skipped == 0) return;
    ab_print(out,
             "    skips: %d while the scale was found (expected %.0f), %d later (expected %.1f): %s; %.0f "
             "samples without "
             "effect\n",
             a->warm_up, a->expected_warm_up, a->later, a->expected_later,
             a->healthy ? "as this scaler does" : "more than this scaler does", a->samples_lost);
    print_skipped_steps(d->found.facts.cell, out);
    if (isfinite(a->p_value))
        ab_print(out, "    skipped steps' losses rank %.2f among their neighbours (p = %.2g): %s\n",
                 a->mean_rank, a->p_value,
                 a->p_value < d->found.facts.limits->p_value ? "not a random sample"
                                                             : "like a random sample");
    if (!isfinite(a->label_p)) return;
    ab_print(out, "    labels of skipped steps' batches beside all (p = %.2g): %s", a->label_p,
             a->label_p < d->found.facts.limits->p_value ? "not a random sample" : "like a random sample");
    if (a->label_p < d->found.facts.limits->p_value && a->label >= 0)
        fprintf(out, ": class %d is %.1f %% of them and %.1f %% of all", a->label, 100 * a->label_share,
                100 * a->label_expected);
    putc('\n', out);
}

static void print_verdicts(const ab_diagnosis *d, bool explain, FILE *out) {
    for (int i = 0; i < d->verdicts; i++) {
        print_verdict(&d->verdict[i], out);
        if (explain) ab_explain_print(&d->found, &d->verdict[i], out);
    }
    ab_explain_decision(&d->decision, out);
    if (explain && d->found.sick) ab_explain_ruled_out(d, out);
}

/* What is left to say of a cell that is not sick: why no more can be told, and known problems. */
static void print_remarks(const ab_diagnosis *d, FILE *out) {
    char text[AB_VERDICT_TEXT];
    ab_facts_reference(&d->found.facts, text, sizeof text);
    if (text[0]) ab_print(out, "    %s\n", text);
    if (d->found.undecided)
        for (int i = 0; i < d->unnamed.evidences; i++) ab_print(out, "    %s\n", d->unnamed.evidence[i].text);
    if (!d->found.sick && d->unnamed.missing[0])
        ab_print(out, "    cannot tell more: %s\n", d->unnamed.missing);
    ab_known_issues_print(d, out);
}

static void print_cause(const ab_diagnosis *d, bool explain, FILE *out) {
    print_verdicts(d, explain, out);
    if (d->found.sick && d->verdicts == 0) {
        ab_print(out, "  unknown: no rule explains this from the record\n");
        print_evidence(&d->unnamed, out);
        ab_print(out, "    cannot tell %s\n", d->unnamed.missing);
    }
    for (int i = 0; !d->found.sick && !d->found.undecided && i < d->unnamed.evidences; i++)
        ab_print(out, "    %s\n", d->unnamed.evidence[i].text);
}

static void print_head(const ab_diagnosis *d, FILE *out) {
    char id[160], text[AB_VERDICT_TEXT];
    ab_text_clean(id, sizeof id, ab_json_text(d->found.facts.cell, "id", "?"));
    symptoms(&d->found, text, sizeof text);
    ab_print(out, "%s: %s%s%s", id, ab_diagnosis_state(d), text[0] ? ": " : "", text);
}

/* Whether there are losses to tell a trend from. */
static bool shows_trend(const ab_diagnosis *d) {
    return d->found.facts.loss.steps > 0 && ab_json_at(d->found.facts.cell, "loss");
}

static void print_whole(const ab_diagnosis *d, bool explain, FILE *out) {
    print_head(d, out);
    putc('\n', out);
    if (shows_trend(d)) ab_print(out, "    loss: %s\n", ab_trend_name(d->trend));
    print_skips(d, out);
    print_cause(d, explain, out);
    print_remarks(d, out);
}

/* ---- all cells ------------------------------------------------------------------------------- */

typedef struct printing {
    ab_diagnose_detail detail;
    FILE *out;
    cJSON *remarks; /* texts that were printed, each once */
    ab_stories stories;
} printing;

static void keep_once(cJSON *remarks, const char *line) {
    const cJSON *known;
    cJSON_ArrayForEach(known, remarks) {
        if (strcmp(known->valuestring, line) == 0) return;
    }
    cJSON_AddItemToArray(remarks, cJSON_CreateString(line));
}

/* Keeps the remarks on a cell unless they are known; their deeper lines, of one cell each, are left out. */
static ab_status keep_remarks(printing *p, const ab_diagnosis *d) {
    char *text = NULL, *rest = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&text, &size);
    if (!memory) return ab_fail(AB_NO_MEMORY, "diagnose: out of memory");
    print_remarks(d, memory);
    const bool whole = fclose(memory) == 0;
    for (char *line = whole ? strtok_r(text, "\n", &rest) : NULL; line; line = strtok_r(NULL, "\n", &rest))
        if (strncmp(line, "      ", 6) != 0) keep_once(p->remarks, line);
    free(text);
    return whole ? AB_OK : ab_fail(AB_NO_MEMORY, "diagnose: out of memory");
}

/* A sick cell; what was said of another one is not repeated. */
static ab_status print_sick(printing *p, const ab_diagnosis *d) {
    char causes[AB_VERDICT_TEXT], id[160];
    const char *first;
    AB_TRY(ab_stories_find(&p->stories, d, &first));
    if (!first) {
        print_whole(d, false, p->out);
        return AB_OK;
    }
    print_head(d, p->out);
    ab_print(p->out, "; %s, as %s\n", ab_story_causes(d, causes), ab_text_clean(id, sizeof id, first));
    return AB_OK;
}

static ab_status print_one(const ab_diagnosis *d, void *argument) {
    printing *p = argument;
    if (p->detail != AB_DIAGNOSE_BRIEF) {
        print_whole(d, p->detail == AB_DIAGNOSE_EXPLAINED, p->out);
        return AB_OK;
    }
    if (d->found.sick) return print_sick(p, d);
    print_head(d, p->out);
    if (shows_trend(d)) ab_print(p->out, "; loss: %s", ab_trend_name(d->trend));
    putc('\n', p->out);
    return keep_remarks(p, d);
}

ab_status ab_diagnose_print(const cJSON *document, const ab_thresholds *limits, ab_diagnose_detail detail,
                            FILE *out, int *sick) {
    printing p = {detail, out, cJSON_CreateArray(), {NULL}};
    const cJSON *remark;
    if (!p.remarks) return ab_fail(AB_NO_MEMORY, "diagnose: out of memory");
    ab_status status = ab_diagnose_each_by(document, limits, print_one, &p, sick);
    if (status == AB_OK && p.remarks->child)
        ab_print(out, "cells that are not sick (--verbose says more of each):\n");
    cJSON_ArrayForEach(remark, p.remarks) {
        if (status == AB_OK) ab_print(out, "%s\n", remark->valuestring);
    }
    cJSON_Delete(p.remarks);
    ab_stories_free(&p.stories);
    return status;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void add_text(cJSON *object, const char *name, const char *text) {
    if (text[0])
        cJSON_AddStringToObject(object, name, text);
    else
        cJSON_AddNullToObject(object, name);
}

static void add_evidence(cJSON *object, const ab_verdict *v) {
    cJSON *list = cJSON_AddArrayToObject(object, "evidence");
    for (int i = 0; i < v->evidences; i++) {
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "text", v->evidence[i].text);
        add_text(item, "pointer", v->evidence[i].pointer);
        cJSON_AddItemToArray(list, item);
    }
}

static void add_measure(cJSON *object, const char *name, double value) {
    cJSON_AddItemToObject(object, name, isfinite(value) ? cJSON_CreateNumber(value) : cJSON_CreateNull());
}

static cJSON *verdict_json(const ab_case *c, const ab_verdict *v, const char *id, const char *family) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "id", id);
    cJSON_AddStringToObject(object, "family", family);
    add_text(object, "layer", v->layer);
    cJSON_AddStringToObject(object, "rank", ab_rank_name(v->rank));
    cJSON_AddStringToObject(object, "proof", ab_proof_name(v->proof));
    add_measure(object, "since_step", v->since == AB_STEP_UNKNOWN ? (double)NAN : v->since);
    add_evidence(object, v);
    add_text(object, "remedy", v->remedy.text);
    cJSON *options = cJSON_AddArrayToObject(object, "remedy_options");
    for (int i = 0; i < v->remedy.options; i++)
        cJSON_AddItemToArray(options, cJSON_CreateString(v->remedy.option[i]));
    add_text(object, "missing", v->missing);
    ab_explain_json(c, v, object);
    return object;
}

static cJSON *skipped_steps_json(const cJSON *cell) {
    cJSON *list = cJSON_CreateArray();
    for (int i = 0; i < ab_skips_count(cell); i++) {
        ab_skip skip;
        cJSON *step = cJSON_CreateObject();
        ab_skip_at(cell, i, &skip);
        cJSON_AddNumberToObject(step, "step", skip.step);
        add_text(step, "op", skip.op ? skip.op : "");
        add_text(step, "pass", skip.pass ? skip.pass : "");
        add_text(step, "tensor", skip.tensor ? skip.tensor : "");
        add_text(step, "format", skip.format ? skip.format : "");
        add_measure(step, "loss_scale", skip.scale);
        add_measure(step, "margin_octaves", skip.margin);
        cJSON_AddItemToArray(list, step);
    }
    return list;
}

static void add_skips(cJSON *object, const ab_diagnosis *d) {
    const ab_skip_audit *a = &d->skips;
    if (!d->found.facts.skip.dynamic) {
        cJSON_AddNullToObject(object, "skips");
        return;
    }
    cJSON *skips = cJSON_AddObjectToObject(object, "skips");
    cJSON_AddNumberToObject(skips, "warm_up", a->warm_up);
    cJSON_AddNumberToObject(skips, "expected_warm_up", a->expected_warm_up);
    cJSON_AddNumberToObject(skips, "later", a->later);
    cJSON_AddNumberToObject(skips, "expected_later", a->expected_later);
    cJSON_AddBoolToObject(skips, "as_expected", a->healthy);
    cJSON_AddNumberToObject(skips, "samples_without_effect", a->samples_lost);
    cJSON_AddNumberToObject(skips, "ranked", a->ranked);
    add_measure(skips, "mean_loss_rank", a->mean_rank);
    add_measure(skips, "p_value", a->p_value);
    cJSON_AddNumberToObject(skips, "labels", a->labels);
    add_measure(skips, "label_p_value", a->label_p);
    cJSON_AddItemToObject(skips, "steps", skipped_steps_json(d->found.facts.cell));
}

static ab_status add_one(const ab_diagnosis *d, void *array) {
    char text[AB_VERDICT_TEXT];
    cJSON *object = cJSON_CreateObject();
    symptoms(&d->found, text, sizeof text);
    cJSON_AddStringToObject(object, "cell", ab_json_text(d->found.facts.cell, "id", ""));
    cJSON_AddBoolToObject(object, "sick", d->found.sick);
    cJSON_AddStringToObject(object, "state", ab_diagnosis_state(d));
    cJSON_AddStringToObject(object, "trend", ab_trend_name(d->trend));
    add_measure(object, "first_step",
                d->found.sick && ab_first_symptom(&d->found) >= 0 ? (double)ab_first_symptom(&d->found)
                                                                  : (double)NAN);
    add_skips(object, d);
    add_text(object, "symptoms", text);
    ab_facts_reference(&d->found.facts, text, sizeof text);
    add_text(object, "reference", text);
    cJSON *verdicts = cJSON_AddArrayToObject(object, "verdicts");
    if (!d->found.sick)
        cJSON_AddItemToArray(verdicts,
                             verdict_json(&d->found, &d->unnamed, ab_diagnosis_state(d), healthy_id));
    if (d->found.sick && d->verdicts == 0)
        cJSON_AddItemToArray(verdicts, verdict_json(&d->found, &d->unnamed, unknown_id, unknown_id));
    for (int i = 0; i < d->verdicts; i++)
        cJSON_AddItemToArray(verdicts, verdict_json(&d->found, &d->verdict[i], d->verdict[i].rule->id,
                                                    ab_verdict_family_name(d->verdict[i].rule->family)));
    ab_explain_cell_json(d, object);
    cJSON_AddItemToObject(object, "known_problems", ab_known_issue_json(d));
    return cJSON_AddItemToArray(array, object) ? AB_OK : ab_fail(AB_NO_MEMORY, "diagnose: out of memory");
}

ab_status ab_diagnose_json(const cJSON *document, const ab_thresholds *limits, cJSON **json, int *sick) {
    *json = cJSON_CreateObject();
    if (!*json) return ab_fail(AB_NO_MEMORY, "diagnose: out of memory");
    cJSON_AddStringToObject(*json, "schema", "ampbench-diagnosis");
    cJSON_AddNumberToObject(*json, "schema_version", 2);
    cJSON *cells = cJSON_AddArrayToObject(*json, "cells");
    ab_status status = ab_diagnose_each_by(document, limits, add_one, cells, sick);
    cJSON_AddNumberToObject(*json, "sick", *sick);
    return status;
}
