/* Evidence and its places in the document. */
#include "reports/diagnose/attribute/verdict.h"

#include "kernels/core/text.h"
#include "reports/diagnose/facts/loop.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

#define AB_VERDICT(id) extern const ab_verdict_rule ab_verdict_rule_##id;
#include "reports/diagnose/attribute/verdicts.def"
#undef AB_VERDICT

static const ab_verdict_rule *const rules[] = {
#define AB_VERDICT(id) &ab_verdict_rule_##id,
#include "reports/diagnose/attribute/verdicts.def"
#undef AB_VERDICT
};
_Static_assert(AB_COUNT_OF(rules) <= AB_VERDICT_RULES, "AB_VERDICT_RULES");

int ab_verdict_rule_count(void) { return (int)AB_COUNT_OF(rules); }
const ab_verdict_rule *ab_verdict_rule_at(int i) { return rules[i]; }

const char *ab_verdict_family_name(ab_verdict_family family) {
    static const char *const names[] = {"healthy", "precision", "configuration", "training"};
    return names[family];
}

void ab_verdict_own(ab_verdict *verdict, ab_proof proof, int since) {
    verdict->proof = proof;
    verdict->own = true;
    verdict->since = since;
}

static ab_evidence *next_evidence(ab_verdict *verdict) {
    if (verdict->evidences == AB_VERDICT_EVIDENCE) return NULL;
    ab_evidence *evidence = &verdict->evidence[verdict->evidences++];
    evidence->pointer[0] = '\0';
    return evidence;
}

void ab_verdict_add_evidence(ab_verdict *verdict, const char *format, ...) {
    char raw[AB_VERDICT_TEXT];
    ab_evidence *evidence = next_evidence(verdict);
    if (!evidence) return;
    va_list args;
    va_start(args, format);
    ab_text_show_args(raw, sizeof raw, format, args);
    va_end(args);
    ab_text_clean(evidence->text, sizeof evidence->text, raw);
}

static AB_PRINTF(3, 0) void point_into(int cell, ab_verdict *verdict, const char *format, va_list args) {
    if (verdict->evidences == 0) return;
    ab_evidence *evidence = &verdict->evidence[verdict->evidences - 1];
    const size_t used = strlen(ab_text_exact(evidence->pointer, sizeof evidence->pointer, "/cells/%d", cell));
    if (!ab_text_fits_args(evidence->pointer + used, sizeof evidence->pointer - used, format, args))
        evidence->pointer[0] = '\0'; /* no pointer instead of a truncated one */
}

void ab_verdict_point(const ab_facts *facts, ab_verdict *verdict, const char *format, ...) {
    va_list args;
    va_start(args, format);
    point_into(facts->index, verdict, format, args);
    va_end(args);
}

void ab_verdict_point_baseline(const ab_facts *facts, ab_verdict *verdict, const char *format, ...) {
    va_list args;
    va_start(args, format);
    point_into(facts->baseline_index, verdict, format, args);
    va_end(args);
}

void ab_verdict_point_document(ab_verdict *verdict, const char *format, ...) {
    if (verdict->evidences == 0) return;
    ab_evidence *evidence = &verdict->evidence[verdict->evidences - 1];
    va_list args;
    va_start(args, format);
    if (!ab_text_fits_args(evidence->pointer, sizeof evidence->pointer, format, args))
        evidence->pointer[0] = '\0';
    va_end(args);
}

/* " at train.py:12", where the name of the op does not say it. */
static const char *at_place(const ab_first_nonfinite *first, char text[AB_VERDICT_LAYER]) {
    char place[AB_VERDICT_LAYER];
    text[0] = '\0';
    if (!first->place[0] || strncmp(first->op, first->place, strlen(first->place)) == 0) return text;
    ab_text_clean(place, sizeof place, first->place);
    ab_text_show(text, AB_VERDICT_LAYER, " at %s", ab_text_brief(place, 60));
    return text;
}

void ab_say_first_nonfinite(const ab_facts *facts, const ab_first_nonfinite *first, ab_verdict *verdict) {
    char op[AB_VERDICT_LAYER], cause[AB_VERDICT_LAYER], place[AB_VERDICT_LAYER];
    ab_text_clean(op, sizeof op, first->op);
    ab_text_clean(cause, sizeof cause, first->cause);
    memcpy(verdict->layer, op, sizeof op);
    if (isfinite(first->read_largest))
        ab_verdict_add_evidence(
            verdict,
            "%s%s%s%s%s is the first op to produce a non-finite value from finite inputs: step %d, "
            "%s pass, inputs up to %.4g%s%s",
            ab_text_brief(op, 60), first->type[0] ? " (" : "", ab_text_brief(first->type, 24),
            first->type[0] ? ")" : "", at_place(first, place), first->step, ab_text_brief(first->pass, 10),
            first->read_largest, cause[0] ? "; " : "", ab_text_brief(cause, 24));
    else
        ab_verdict_add_evidence(verdict, "%s (%s) is the first op with non-finite values: %s pass",
                                ab_text_brief(op, 60), ab_text_brief(first->type, 24),
                                ab_text_brief(first->pass, 10));
    ab_verdict_point(facts, verdict, "%s", first->pointer);
}

void ab_say_baseline_fails(const ab_case *c, ab_verdict *verdict) {
    const ab_loss_facts *o0 = &c->facts.baseline_loss;
    if (o0->nonfinite > 0)
        ab_verdict_add_evidence(
            verdict,
            "O0 fails too: %d of its %d losses are NaN or inf, the first at step %d; no format "
            "is to blame",
            o0->nonfinite, o0->steps, o0->first_nonfinite);
    else
        ab_verdict_add_evidence(
            verdict,
            "O0 fails too: its loss was %.4g at step 0 and is %.4g at the end; no format is to "
            "blame",
            o0->first, o0->final);
    ab_verdict_point_baseline(&c->facts, verdict, "/loss");
}

const ab_refutation *ab_refutation_of(const ab_case *c, const ab_verdict *verdict) {
    for (int i = 0; i < AB_RULE_REFUTATIONS && verdict->rule->refuted_by[i]; i++)
        if (verdict->rule->refuted_by[i]->holds(c, verdict)) return verdict->rule->refuted_by[i];
    return NULL;
}

static bool wants(const ab_verdict_rule *rule, const ab_need *need) {
    for (int i = 0; i < AB_RULE_NEEDS && rule->needs[i]; i++)
        if (rule->needs[i] == need) return true;
    return false;
}

/* Appends the causes of these symptoms that nothing contradicts and that need a fact; returns how many. */
static int name_causes(const ab_case *c, const ab_need *need, unsigned symptoms, char *text, size_t size) {
    enum { MOST = 3 };
    int count = 0;
    for (int i = 0; i < ab_verdict_rule_count(); i++) {
        const ab_verdict verdict = {.rule = rules[i], .since = AB_STEP_UNKNOWN};
        if (!(rules[i]->predicts & symptoms) || !wants(rules[i], need) || ab_refutation_of(c, &verdict))
            continue;
        if (count < MOST) ab_text_append(text, size, "%s%s", count ? ", " : "", rules[i]->id);
        count++;
    }
    if (count > MOST) ab_text_append(text, size, " and %d more", count - MOST);
    return count;
}

void ab_missing_evidence(const ab_case *c, char *text, size_t size) {
    static const ab_need *const needs[] = {&ab_need_o0,       &ab_need_origin, &ab_need_gradients,
                                           &ab_need_unscaled, &ab_need_state,  &ab_need_signals,
                                           &ab_need_ledger,   &ab_need_vitals};
    char causes[AB_VERDICT_TEXT];
    for (size_t i = 0; i < AB_COUNT_OF(needs); i++) {
        causes[0] = '\0';
        if (needs[i]->there(c) || name_causes(c, needs[i], ab_symptoms_of(c), causes, sizeof causes) == 0)
            continue;
        ab_text_show(text, size, "%s (%s): %s", needs[i]->text, causes, ab_need_get(c, needs[i]));
        return;
    }
    ab_text_show(text, size, "%s",
                 ab_is_loop(&c->facts) ? "more: attach the probe with every=1"
                                       : "more: run with --probes all --probe-every 1");
}
