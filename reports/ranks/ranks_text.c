/* The answer as text: a table, and for each reduction from how many ranks on it loses more than the
 * mini-batch's own noise. */
#include "kernels/core/show.h"
#include "kernels/core/text.h"
#include "reports/ranks/ranks_result.h"
#include "reports/record/text.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { NAME = 64 };

static void print_heading(FILE *out, const ab_ranks_result *result) {
    const ab_ranks_question *q = result->question;
    ab_print(out, "gradients of %d micro-batches: %d tensor%s, %" PRId64 " elements", result->micro_batches,
             result->tensors, result->tensors == 1 ? "" : "s", result->count);
    if (result->simulated < result->count)
        ab_print(out, ", %" PRId64 " of them simulated (--elements)", result->simulated);
    char scale[AB_TEXT_NUMBER];
    ab_print(out, "; loss scale %s\n", ab_text_scale(scale, q->scale));
    if (result->skipped > 0)
        ab_print(out, "%d tensors that are not floating-point are left out\n", result->skipped);
    if (result->not_finite > 0)
        ab_print(out, "%" PRId64 " elements with an inf or NaN in a file are left out\n", result->not_finite);
    ab_print(out, "one micro-batch's noise is %.3g times the mean gradient\n", result->noise);
    if (q->count[q->counts - 1] > result->micro_batches)
        ab_print(
            out,
            "simulated; beyond %d ranks micro-batches repeat in random order, so correlation between more "
            "of them is extrapolated\n",
            result->micro_batches);
}

static const char *percent(double share, char text[AB_TEXT_NUMBER]) {
    if (share == 0) return ab_text_exact(text, AB_TEXT_NUMBER, "0");
    return ab_text_percent(text, share);
}

static void print_row(FILE *out, const ab_ranks_result *result, int count, int rule) {
    const ab_ranks_outcome *o = ab_ranks_at(result, count, rule);
    char label[AB_RANKS_LABEL], over[AB_TEXT_NUMBER], flushed[AB_TEXT_NUMBER], name[NAME];
    ab_print(out, "%7" PRId64 "  %-24s", result->question->count[count],
             ab_ranks_label(&result->question->rule[rule], label));
    if (isfinite(o->error))
        ab_print(out, " %9.2g %+9.2g", o->error, 100 * o->bias);
    else
        ab_print(out, " %9s %9s", "-", "-");
    ab_print(out, " %8s %8s %9.2g", percent(o->overflowed, over), percent(o->flushed, flushed), o->noise);
    if (o->worst >= 0 && result->tensors > 1) {
        ab_text_show(name, sizeof name, "%s", result->tensor[o->worst].name);
        ab_print(
            out, "  %s %.2g", name,
            result->by_tensor[(count * result->question->rules + rule) * result->tensors + o->worst].error);
    }
    fputc('\n', out);
}

/* Rounded to two significant digits; x is at least 1. */
static double two_digits(double x) {
    double unit = x < 10 ? 1 : pow(10, floor(log10(x)) - 1);
    return round(x / unit) * unit;
}

static void print_crossing(FILE *out, const ab_ranks_result *result, int rule) {
    char label[AB_RANKS_LABEL];
    const ab_ranks_question *q = result->question;
    double from = ab_ranks_crossing(result, rule);
    ab_print(out, "  %-24s ", ab_ranks_label(&q->rule[rule], label));
    if (isinf(from))
        ab_print(out, "stays below it up to %" PRId64 " ranks\n", q->count[q->counts - 1]);
    else if (from == 0)
        ab_print(out, "exceeds it at %" PRId64 " ranks already\n", q->count[0]);
    else
        ab_print(out, "exceeds it from about %.0f ranks on\n", two_digits(from));
}

void ab_ranks_print(FILE *out, const ab_ranks_result *result) {
    const ab_ranks_question *q = result->question;
    print_heading(out, result);
    ab_print(out, "\n%7s  %-24s %9s %9s %8s %8s %9s  %s\n", "ranks", "reduction", "error", "bias %", "over %",
             "flush %", "noise", result->tensors > 1 ? "worst tensor, its error" : "");
    for (int c = 0; c < q->counts; c++)
        for (int k = 0; k < q->rules; k++) print_row(out, result, c, k);
    fputs("\nerror: |result - mean| / |mean|; bias: what the result lost or gained along the mean; noise: "
          "standard error\nof the mini-batch's mean / |mean|, which no reduction removes. A reduction whose "
          "error "
          "exceeds it decides\nthe gradient's quality:\n",
          out);
    for (int k = 0; k < q->rules; k++) print_crossing(out, result, k);
}
