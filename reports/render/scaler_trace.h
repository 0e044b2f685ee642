/* What loss scalers did over a pattern of steps, without training: steps side by side as a table, a
 * summary, JSON; and for scalers that scale layer by layer, one line a layer and step. The structs are
 * plain; who ran the scalers fills them (bench/amp/trace). All texts and arrays are borrowed. Scales are
 * factors, without a unit. */
#ifndef AB_REPORTS_RENDER_SCALER_TRACE_H
#define AB_REPORTS_RENDER_SCALER_TRACE_H

#include "kernels/core/compiler.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

AB_BEGIN_DECLS

enum { AB_TRACE_COLUMNS = 16, AB_TRACE_VALUES = 16, AB_TRACE_SCALE_TEXT = 40 };

/* ---- what was run ---------------------------------------------------------------------------- */

/* A key of a configuration, or a number of a scaler's state. */
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

/* Where the original goes wrong. */
typedef struct ab_trace_error {
    const char *name, *text; /* name NULL: nowhere */
    bool raises;             /* the original stops there */
    int64_t step;
} ab_trace_error;

/* Steps with one scale, all skipped or all taken. */
typedef struct ab_trace_run {
    double scale; /* in force during the steps */
    bool skipped;
    int64_t first, count;
} ab_trace_run;

/* One scaler over all steps. */
typedef struct ab_trace_column {
    ab_trace_config config;
    const char *heading;     /* the dialect with the keys that were set: "torch:window=100" */
    const ab_trace_run *run; /* in the order of the steps */
    int runs;
    int64_t unlisted; /* steps after the last of `run`; counted below */
    int64_t steps, skipped, overflows;
    int64_t warm_up;                       /* steps skipped before the first that was taken */
    double sum_scale, sum_log2;            /* of the scale and its log2, over the steps */
    ab_trace_value state[AB_TRACE_VALUES]; /* after the last step; state[0] is the scale */
    int states;
    ab_trace_error error;
} ab_trace_column;

/* ---- forms ----------------------------------------------------------------------------------- */

/* 2^16 where that is exact and shorter to read, else six digits. text[AB_TRACE_SCALE_TEXT]. Returns
 * `text`. */
const char *ab_trace_scale_text(double scale, char *text);

/* column[columns], at most AB_TRACE_COLUMNS, side by side: a row for all steps in which none of them
 * changes, `rows` rows at most (0: all) of `steps` steps; then a summary and errors. */
void ab_trace_print(FILE *out, const ab_trace_column *column, int columns, int64_t steps, int64_t rows);

/* An object, or an array of them if there are several columns. Scales that are not finite are null. */
void ab_trace_json(FILE *out, const ab_trace_column *column, int columns);

/* ---- layer by layer -------------------------------------------------------------------------- */

/* One layer in one step. */
typedef struct ab_trace_layer {
    int64_t step;
    const char *name;
    double scale;      /* the layer's own */
    double together;   /* product of the scales from the first layer of the backward pass to this one */
    const char *error; /* its name; NULL: none */
} ab_trace_layer;

/* A table: the heading, then each layer. */
void ab_trace_layers_heading(FILE *out);
void ab_trace_layer_print(FILE *out, const ab_trace_layer *layer);

/* JSON: the beginning, each layer (`first`: the first of all), the end. */
void ab_trace_layers_json_begin(FILE *out, const ab_trace_config *config);
void ab_trace_layer_json(FILE *out, const ab_trace_layer *layer, bool first);
void ab_trace_layers_json_end(FILE *out, const ab_trace_error *error);

AB_END_DECLS

#endif
