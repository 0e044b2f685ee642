/* Traces of loss scalers over a pattern of steps, without training: a table with one column per scaler, a
 * summary, JSON; for per-layer scalers, one line per layer and step. bench/amp/trace fills the structs.
 * All texts and arrays are borrowed. Scales are dimensionless factors. */
#ifndef AB_REPORTS_RENDER_SCALER_TRACE_H
#define AB_REPORTS_RENDER_SCALER_TRACE_H

#include "kernels/core/compiler.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

AB_BEGIN_DECLS

enum { AB_TRACE_COLUMNS = 16, AB_TRACE_VALUES = 16, AB_TRACE_SCALE_TEXT = 40 };

/* ---- input ----------------------------------------------------------------------------------- */

/* A configuration key or a number of a scaler's state. */
typedef struct ab_trace_value {
    const char *name;
    double value;
    bool is_flag; /* true unless `value` is 0 */
} ab_trace_value;

typedef struct ab_trace_config {
    const char *dialect; /* "torch" */
    ab_trace_value key[AB_TRACE_VALUES];
    int keys;
} ab_trace_config;

/* Where the original implementation fails. */
typedef struct ab_trace_error {
    const char *name, *text; /* name NULL: no failure */
    bool raises;             /* the original raises an exception there */
    int64_t step;
} ab_trace_error;

/* Consecutive steps with the same scale, all skipped or all taken. */
typedef struct ab_trace_run {
    double scale; /* in force during the steps */
    bool skipped;
    int64_t first, count;
} ab_trace_run;

/* One scaler over all steps. */
typedef struct ab_trace_column {
    ab_trace_config config;
    const char *heading;     /* the dialect and the keys that were set: "torch:window=100" */
    const ab_trace_run *run; /* in step order */
    int runs;
    int64_t unlisted; /* steps after the last of `run`; included in the counts below */
    int64_t steps, skipped, overflows;
    int64_t warm_up;                       /* skipped steps before the first taken step */
    double sum_scale, sum_log2;            /* sums of the scale and its log2 over the steps */
    ab_trace_value state[AB_TRACE_VALUES]; /* after the last step; state[0] is the scale */
    int states;
    ab_trace_error error;
} ab_trace_column;

/* ---- output ---------------------------------------------------------------------------------- */

/* Formats a scale: 2^16 if that is exact and shorter, else six digits. text[AB_TRACE_SCALE_TEXT]. Returns
 * `text`. */
const char *ab_trace_scale_text(double scale, char *text);

/* Prints column[columns], at most AB_TRACE_COLUMNS, next to each other: one row per range of steps in
 * which no column changes, at most `rows` rows (0: all) of `steps` steps; then a summary and errors. */
void ab_trace_print(FILE *out, const ab_trace_column *column, int columns, int64_t steps, int64_t rows);

/* Prints an object, or an array of objects if there are several columns. Non-finite scales are null. */
void ab_trace_json(FILE *out, const ab_trace_column *column, int columns);

/* ---- per layer ------------------------------------------------------------------------------- */

/* One layer in one step. */
typedef struct ab_trace_layer {
    int64_t step;
    const char *name;
    double scale;      /* of this layer */
    double together;   /* product of the scales from the first layer of the backward pass to this one */
    const char *error; /* its name; NULL: none */
} ab_trace_layer;

/* Table: the heading, then one line per layer. */
void ab_trace_layers_heading(FILE *out);
void ab_trace_layer_print(FILE *out, const ab_trace_layer *layer);

/* JSON: the beginning, each layer (`first`: the first of all layers), the end. */
void ab_trace_layers_json_begin(FILE *out, const ab_trace_config *config);
void ab_trace_layer_json(FILE *out, const ab_trace_layer *layer, bool first);
void ab_trace_layers_json_end(FILE *out, const ab_trace_error *error);

AB_END_DECLS

#endif
