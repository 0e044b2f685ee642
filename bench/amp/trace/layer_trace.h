/* Runs a per-layer loss scaler over layer statistics from a file, without training.
 *
 * The file has one line per layer, in the order of the backward pass: name, mean, standard deviation and
 * largest magnitude of the unscaled gradient, the same of the weights, fan-in. An empty line ends a step, #
 * begins a comment. */
#ifndef AB_BENCH_AMP_TRACE_LAYER_TRACE_H
#define AB_BENCH_AMP_TRACE_LAYER_TRACE_H

#include "bench/amp/scaler/scaler.h"
#include "reports/render/scaler_trace.h"

#include <stdio.h>

AB_BEGIN_DECLS

/* Reads `file` (`path` in messages) from its beginning and calls `see` for each layer of each step (NULL: the
 * file is only checked; the layer is valid during the call). Stops at the first error of the original, stored
 * in *error. AB_INPUT for a bad line, too many layers or none. */
AB_MUST_CHECK ab_status ab_layer_trace_run(const ab_scaler_config *config, const char *path, FILE *file,
                                           void (*see)(void *context, const ab_trace_layer *layer),
                                           void *context, ab_trace_error *error);

AB_END_DECLS

#endif
