/* Evidence of a verdict and its places in the document. */
#include "reports/diagnose/attribute/verdict.h"

#include "kernels/core/text.h"
#include "reports/diagnose/facts/loop.h"
#include "reports/record/text.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

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
