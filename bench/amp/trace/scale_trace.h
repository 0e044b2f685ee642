/* Runs a loss scaler over a pattern of steps without training: the scale of each step, the skipped steps, the
 * faults of the original. The cost of equal steps is that of their scale changes up to the first repetition,
 * so 1e9 steps take milliseconds; memory grows with the recorded changes, of which there are at most
 * AB_TRACE_MOST. */
#ifndef AB_BENCH_AMP_TRACE_SCALE_TRACE_H
#define AB_BENCH_AMP_TRACE_SCALE_TRACE_H

#include "bench/amp/scaler/scaler.h"
#include "kernels/format/format.h"
#include "reports/render/scaler_trace.h"

#include <stdio.h>

AB_BEGIN_DECLS

/* ---- patterns -------------------------------------------------------------------------------- */

typedef struct ab_pattern_run {
    int64_t count;
    double value;
} ab_pattern_run;

typedef struct ab_pattern {
    ab_pattern_run *run;
    int runs;
    int64_t steps;
} ab_pattern;

/* flags: "0010" or runs "1000x0,3x1"; blanks and line ends are skipped. numbers: "100x0.5,2^-3,3xinf",
 * separated by commas or blanks. "@FILE" reads either from a file. The caller clears the pattern. AB_USAGE or
 * AB_INPUT names `option`, the character and its position. */
AB_MUST_CHECK ab_status ab_pattern_flags(const char *option, const char *text, ab_pattern *pattern);
AB_MUST_CHECK ab_status ab_pattern_numbers(const char *option, const char *text, ab_pattern *pattern);
void ab_pattern_clear(ab_pattern *pattern);

/* ---- traces ---------------------------------------------------------------------------------- */

enum { AB_TRACE_MOST = 1 << 20 };

typedef struct ab_scaler_trace {
    ab_scaler scaler; /* after the last step */
    ab_trace_run *run;
    int runs;
    int64_t unlisted; /* steps not in `run`: a long repetition, or beyond AB_TRACE_MOST; counted in the sums
                         below */
    int64_t steps, skipped, overflows;
    int64_t computed;             /* steps computed one by one: what the trace cost */
    int64_t warm_up;              /* steps skipped before the first step taken */
    double sum_scale, sum_log2;   /* over the steps */
    const ab_scaler_fault *fault; /* the first, or the one that raised */
    int64_t fault_step;
} ab_scaler_trace;

/* Either pattern may be NULL, not both. `overflow` says which steps overflow; `amax` gives each step's
 * largest unscaled gradient, and a step overflows also if that times the scale is beyond `half`. Both must
 * have the same number of steps. `elements`: gradient elements per step, one of which is the largest (for
 * dialects that count elements). */
AB_MUST_CHECK ab_status ab_scaler_trace_run(const ab_scaler_config *config, const ab_pattern *overflow,
                                            const ab_pattern *amax, const ab_format *half, double elements,
                                            ab_scaler_trace *trace);
void ab_scaler_trace_clear(ab_scaler_trace *trace);

/* ---- for reports ----------------------------------------------------------------------------- */

/* Structs that reports/render/scaler_trace.h prints. `heading` receives ab_scaler_text; the column borrows it
 * and the trace's runs. */
ab_trace_config ab_scaler_trace_config(const ab_scaler_config *config);
ab_trace_error ab_scaler_trace_error(const ab_scaler_fault *fault, int64_t step);
ab_trace_column ab_scaler_trace_column(const ab_scaler_trace *trace, char heading[AB_SCALER_TEXT]);

/* Runs a per-layer loss scaler over layer statistics from a file, without training.
 *
 * The file has one line per layer, in the order of the backward pass: name, mean, standard deviation and
 * largest magnitude of the unscaled gradient, the same of the weights, fan-in. An empty line ends a step, #
 * begins a comment. */

/* Reads `file` (`path` in messages) from its beginning and calls `see` for each layer of each step (NULL: the
 * file is only checked; the layer is valid during the call). Stops at the first error of the original, stored
 * in *error. AB_INPUT for a bad line, too many layers or none. */
AB_MUST_CHECK ab_status ab_layer_trace_run(const ab_scaler_config *config, const char *path, FILE *file,
                                           void (*see)(void *context, const ab_trace_layer *layer),
                                           void *context, ab_trace_error *error);

AB_END_DECLS

#endif
