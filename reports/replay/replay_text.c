/* Replayed scalers as a table. */
#include "reports/replay/replay_result.h"

#include "kernels/core/show.h"
#include "kernels/core/text.h"
#include "reports/render/scaler_trace.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { CELL = 160, NARROW = 8, WIDEST = 64 };

static int width_of(const ab_replay_result *result) {
    size_t width = strlen("recorded");
    for (int i = 0; i < result->rows; i++) {
        const size_t length = strlen(result->row[i].scaler);
        if (length > width) width = length;
    }
    return width < WIDEST ? (int)width : WIDEST;
}

/* "3", or "3..17" where the ends differ. */
static const char *counts(int64_t least, int64_t most, char text[CELL]) {
    const int64_t low = least < most ? least : most, high = least < most ? most : least;
    return ab_text_exact(text, CELL, low == high ? "%" PRId64 : "%" PRId64 "..%" PRId64, low, high);
}

static void append_percent(char text[CELL], double share) {
    const double percent = 100 * share;
    if (isnan(share))
        ab_text_append(text, CELL, "-");
    else
        ab_text_append(text, CELL,
                       percent == 0 || percent >= 0.001 ? "%.3g"
                       : percent >= 1e-6                ? "%.1e"
                                                        : "<1e-06",
                       percent);
}

static bool is_near(double a, double b) { return a == b || fabs(a - b) <= 0.01 * fmax(a, b); }

static const char *shares(double least, double most, char text[CELL]) {
    text[0] = '\0';
    append_percent(text, fmin(least, most));
    if (isnan(least) || is_near(least, most)) return text;
    ab_text_append(text, CELL, "..");
    append_percent(text, fmax(least, most));
    return text;
}

static const char *scales(double least, double most, char text[CELL]) {
    char low[AB_TRACE_SCALE_TEXT], high[AB_TRACE_SCALE_TEXT];
    const bool same = least == most || (isnan(least) && isnan(most));
    return ab_text_exact(text, CELL, same ? "%s" : "%s..%s", ab_trace_scale_text(fmin(least, most), low),
                         ab_trace_scale_text(fmax(least, most), high));
}

static void print_worst(FILE *out, const ab_replay_source *s, const ab_replay_outcome *o) {
    char text[CELL] = "";
    if (o->worst < 0 || !(o->energy > 0)) {
        ab_print(out, "  -");
        return;
    }
    ab_text_show(text, sizeof text, "%s ", s->layer[o->worst]);
    append_percent(text, o->worst_energy);
    ab_print(out, "  %s", text);
}

static void print_agreement(FILE *out, const ab_replay_source *s, const ab_replay_row *row) {
    const int64_t agreed = row->least.agreed < row->most.agreed ? row->least.agreed : row->most.agreed;
    if (agreed == s->steps)
        ab_print(out, " %10s", "all");
    else
        ab_print(out, " %10" PRId64, agreed);
}

static void print_row(FILE *out, const ab_replay_source *s, const ab_replay_row *row, int width) {
    char skips[CELL], wasted[CELL], flushed[CELL], energy[CELL], scale[CELL];
    const ab_replay_outcome *a = &row->least, *b = &row->most;
    ab_print(out, "%s%-*s %*s %*s", row->best ? "* " : "  ", width, row->scaler, NARROW,
             counts(a->skipped, b->skipped, skips), NARROW, counts(a->wasted, b->wasted, wasted));
    print_agreement(out, s, row);
    ab_print(out, " %12s", scales(a->final_scale, b->final_scale, scale));
    if (s->has_gradients) {
        ab_print(out, " %12s %12s", shares(a->flushed, b->flushed, flushed),
                 shares(a->energy, b->energy, energy));
        print_worst(out, s, a->energy >= b->energy ? a : b);
    }
    fputc('\n', out);
}

static void print_faults(FILE *out, const ab_replay_row *row) {
    const ab_replay_outcome *o = &row->most;
    if (o->fault)
        ab_print(out, "%s: %s at step %" PRId64 "%s\n", row->scaler, o->fault, o->fault_step,
                 o->stops ? ", where the original stops" : "");
    if (o->unseen > 0)
        ab_print(out,
                 "%s: it does not look: %" PRId64 " steps with inf in their gradients reach the weights\n",
                 row->scaler, o->unseen);
}

static void print_head(FILE *out, const ab_replay_source *s, int width) {
    ab_print(out, "%s%s%s: %" PRId64 " steps, %s\n\n", s->path, s->cell[0] ? ", " : "", s->cell, s->steps,
             s->half);
    ab_print(out, "  %-*s %*s %*s %10s %12s", width, "", NARROW, "", NARROW, "at the", "exact for", "final");
    if (s->has_gradients) ab_print(out, " %12s %12s  %s", "flushed", "energy", "worst layer,");
    ab_print(out, "\n  %-*s %*s %*s %10s %12s", width, "scaler", NARROW, "skips", NARROW, "start", "steps",
             "scale");
    if (s->has_gradients) ab_print(out, " %12s %12s  %s", "%", "lost %", "its energy lost %");
    fputc('\n', out);
}

static void print_notes(FILE *out, const ab_replay_result *result) {
    const ab_replay_source *s = &result->source;
    fputs("\n*: no other here skips less and flushes less. Exact for: steps until the first one that the "
          "scaler\n"
          "skips and the recorded run took, or the other way round; from there on it is a prediction.\n",
          out);
    if (s->bounded > 0)
        ab_print(out,
                 "a..b: the largest gradient of %" PRId64 " of %" PRId64
                 " steps is known within bounds only; both ends were run\n",
                 s->bounded, s->steps);
    if (s->stride > 1)
        ab_print(out, "%" PRId64 " steps share a largest gradient, that of the largest among them\n",
                 s->stride);
    if (!s->has_gradients)
        fputs("a log tells no gradients: what is flushed is not known; a higher scale flushes less\n", out);
}

void ab_replay_print(FILE *out, const ab_replay_result *result) {
    const ab_replay_source *s = &result->source;
    const int width = width_of(result);
    ab_replay_row recorded = {.scaler = "recorded", .least = result->recorded, .most = result->recorded};
    print_head(out, s, width);
    print_row(out, s, &recorded, width);
    for (int i = 0; i < result->rows; i++) print_row(out, s, &result->row[i], width);
    print_notes(out, result);
    for (int i = 0; i < result->rows; i++) print_faults(out, &result->row[i]);
}
