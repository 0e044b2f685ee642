/* Signal propagation: the RMS of every op's output, and the share of its units that are zero for a whole
 * batch.
 *
 * Samples evenly spaced rows (a row is the last dimension: channels or features), at most SAMPLED values per
 * output: RMS values are estimates, and a unit counts as silent if it is 0 in every sampled row. This probe
 * does not detect all infinities. */
#include "kernels/backend/row_sums.h"
#include "kernels/core/text.h"
#include "probes/probe.h"

#include <math.h>
#include <stdlib.h>

enum { MAX_OPS = 256, NAME = 96, SAMPLED = 1 << 13, LEAST_ROWS = 32 };

/* One op's output, over the probed steps. */
typedef struct signal {
    char name[NAME], type[32];
    int number;
    int64_t steps, units;
    double rms_first, rms_last, rms_largest; /* of finite values; NAN: none */
    double largest;                          /* sampled magnitude */
    double silent_first, silent_last;        /* share of units */
    double zero;                             /* share of the sampled values, in the last probed step */
} signal;

typedef struct signals {
    signal signal[MAX_OPS];
    int signals;
} signals;

static void destroy(void *state) { free(state); }

static ab_status create(const ab_probe_setup *setup, void **state) {
    (void)setup;
    signals *s = calloc(1, sizeof *s);
    if (!s) return ab_fail(AB_NO_MEMORY, "probe signals: out of memory");
    *state = s;
    return AB_OK;
}

/* ---- a step ---------------------------------------------------------------------------------- */

static signal *signal_of(signals *s, const ab_op_run *run) {
    for (int i = 0; i < s->signals; i++)
        if (s->signal[i].number == run->number) return &s->signal[i];
    if (s->signals == MAX_OPS) return NULL;
    signal *fresh = &s->signal[s->signals++];
    fresh->number = run->number;
    ab_text_exact(fresh->name, sizeof fresh->name, "%s", run->name);
    ab_text_exact(fresh->type, sizeof fresh->type, "%s", run->op->name);
    return fresh;
}

static void note(signal *to, const ab_row_sums *sum, int64_t seen, double silent) {
    const double rms = sum->finite ? sqrt(sum->squares / (double)sum->finite) : (double)NAN;
    if (to->steps++ == 0) {
        to->rms_first = rms;
        to->silent_first = silent;
    }
    to->rms_last = rms;
    to->rms_largest = fmax(to->rms_largest, rms);
    to->largest = fmax(to->largest, sum->largest);
    to->silent_last = silent;
    to->zero = (double)sum->zero / (double)seen;
}

static void ran(void *state, const ab_op_run *run) {
    signals *s = state;
    const ab_tensor *out = run->io->out;
    if (run->backward || run->op->is_loss || !out || !out->format || out->shape.ndim < 2) return;
    const int64_t units = out->shape.dim[out->shape.ndim - 1];
    if (units > AB_ROW_UNITS) return;
    signal *to = signal_of(s, run);
    if (!to) return;
    const int64_t there = ab_tensor_count(out) / units,
                  wanted = SAMPLED / units < LEAST_ROWS ? LEAST_ROWS : SAMPLED / units;
    const int64_t rows = there < wanted ? there : wanted;
    const ab_row_sums sum = ab_row_sums_of(out, rows);
    to->units = units;
    note(to, &sum, rows * units, (double)sum.silent / (double)units);
}

/* ---- report ---------------------------------------------------------------------------------- */

static void report(void *state, ab_probe_sink *sink) {
    const signals *s = state;
    sink->begin_array(sink, "signals");
    for (int i = 0; i < s->signals; i++) {
        const signal *one = &s->signal[i];
        sink->begin_object(sink, NULL);
        sink->text(sink, "op", one->name);
        sink->text(sink, "type", one->type);
        sink->integer(sink, "units", one->units);
        sink->number(sink, "rms_first", one->rms_first);
        sink->number(sink, "rms_last", one->rms_last);
        sink->number(sink, "rms_largest", one->rms_largest);
        sink->number(sink, "largest", one->largest);
        sink->number(sink, "silent_first", one->silent_first);
        sink->number(sink, "silent_last", one->silent_last);
        sink->number(sink, "zero_share_last", one->zero);
        sink->end(sink);
    }
    sink->end(sink);
}

extern const ab_probe_kind ab_probe_signals;
const ab_probe_kind ab_probe_signals = {
    .name = "signals",
    .text =
        "size of every op's output and the share of units that are silent for a whole batch, from samples",
    .standard = true,
    .create = create,
    .destroy = destroy,
    .ran = ran,
    .anywhere = true,
    .report = report,
};
