/* Traces of loss scalers: the table, its summary, layers. And their JSON. */
#include "reports/render/scaler_trace.h"

#include "kernels/core/show.h"
#include "kernels/core/text.h"
#include "reports/record/text.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { CELL = 64, NARROWEST = 13 };

const char *ab_trace_scale_text(double scale, char *text) {
    int exponent = 0;
    bool power = isfinite(scale) && scale > 0 && frexp(scale, &exponent) == 0.5;
    if (power && (scale >= 4096 || scale < 0.01))
        ab_text_exact(text, AB_TRACE_SCALE_TEXT, "2^%d", exponent - 1);
    else
        ab_text_exact(text, AB_TRACE_SCALE_TEXT, "%.6g", scale);
    return text;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static int width_of(const ab_trace_column *column) {
    size_t length = strlen(column->heading);
    return (int)(length < NARROWEST ? NARROWEST : length);
}

/* Returns the run that contains a step; NULL if the scaler has stopped or the runs end. */
static const ab_trace_run *run_at(const ab_trace_column *c, int *at, int64_t step) {
    while (*at < c->runs && c->run[*at].first + c->run[*at].count <= step) ++*at;
    return *at < c->runs && c->run[*at].first <= step ? &c->run[*at] : NULL;
}

static void print_cell(FILE *out, const ab_trace_column *c, const ab_trace_run *run) {
    char scale[AB_TRACE_SCALE_TEXT], text[CELL];
    if (run)
        ab_text_exact(text, sizeof text, "%s%s", ab_trace_scale_text(run->scale, scale),
                      run->skipped ? " skip" : "");
    else
        ab_text_exact(text, sizeof text, "%s", c->error.name && c->error.raises ? "stopped" : "...");
    ab_print(out, "  %-*s", width_of(c), text);
}

/* Prints one row for all steps in which no column changes. Returns the first step of the next row. */
static int64_t print_row(FILE *out, const ab_trace_column *column, int columns, int *at, int64_t step,
                         int64_t steps) {
    char range[CELL];
    int64_t next = steps;
    const ab_trace_run *run[AB_TRACE_COLUMNS];
    for (int i = 0; i < columns; i++) {
        run[i] = run_at(&column[i], &at[i], step);
        if (run[i] && run[i]->first + run[i]->count < next) next = run[i]->first + run[i]->count;
    }
    ab_text_exact(range, sizeof range, next - step > 1 ? "%" PRId64 "..%" PRId64 : "%" PRId64, step,
                  next - 1);
    ab_print(out, "%-22s", range);
    for (int i = 0; i < columns; i++) print_cell(out, &column[i], run[i]);
    fputc('\n', out);
    return next;
}

static void print_rows(FILE *out, const ab_trace_column *column, int columns, int64_t steps, int64_t rows) {
    int at[AB_TRACE_COLUMNS] = {0};
    ab_print(out, "%-22s", "steps");
    for (int i = 0; i < columns; i++) ab_print(out, "  %-*s", width_of(&column[i]), column[i].heading);
    fputc('\n', out);
    int64_t step = 0;
    for (int64_t row = 0; step < steps && (rows == 0 || row < rows); row++)
        step = print_row(out, column, columns, at, step, steps);
    if (step < steps)
        fprintf(out, "(%" PRId64 " more steps; --rows 0 shows all, --json - too)\n", steps - step);
}

/* ---- the summary ----------------------------------------------------------------------------- */

static const char *const summary[] = {"skipped",      "skipped at the start", "average scale",
                                      "average, log", "scale after",          "error"};

static const char *summary_text(const ab_trace_column *c, int line, char text[CELL]) {
    char scale[AB_TRACE_SCALE_TEXT];
    double n = (double)c->steps;
    if (line == 0) ab_text_exact(text, CELL, "%" PRId64, c->skipped);
    if (line == 1) ab_text_exact(text, CELL, "%" PRId64, c->warm_up);
    if (line == 2) ab_text_exact(text, CELL, "%s", ab_trace_scale_text(c->sum_scale / n, scale));
    if (line == 3) ab_text_exact(text, CELL, isfinite(c->sum_log2) ? "2^%.4g" : "-", c->sum_log2 / n);
    if (line == 4) ab_text_exact(text, CELL, "%s", ab_trace_scale_text(c->state[0].value, scale));
    if (line == 5) ab_text_show(text, CELL, "%s", c->error.name ? c->error.name : "-");
    return text;
}

static void print_summary(FILE *out, const ab_trace_column *column, int columns) {
    char text[CELL];
    fputc('\n', out);
    for (int line = 0; line < (int)AB_COUNT_OF(summary); line++) {
        ab_print(out, "%-22s", summary[line]);
        for (int i = 0; i < columns; i++)
            ab_print(out, "  %-*s", width_of(&column[i]), summary_text(&column[i], line, text));
        fputc('\n', out);
    }
    for (int i = 0; i < columns; i++) {
        const ab_trace_error *error = &column[i].error;
        if (error->name)
            ab_print(out, "\n%s: %s at step %" PRId64 "%s: %s\n", column[i].heading, error->name, error->step,
                     error->raises ? " (raises)" : "", error->text);
    }
}

void ab_trace_print(FILE *out, const ab_trace_column *column, int columns, int64_t steps, int64_t rows) {
    print_rows(out, column, columns, steps, rows);
    print_summary(out, column, columns);
}

/* ---- per layer ------------------------------------------------------------------------------- */

void ab_trace_layers_heading(FILE *out) {
    ab_print(out, "%6s  %-24s %10s %12s\n", "step", "layer", "scale", "together");
}

void ab_trace_layer_print(FILE *out, const ab_trace_layer *layer) {
    char scale[AB_TRACE_SCALE_TEXT], together[AB_TRACE_SCALE_TEXT];
    ab_print(out, "%6" PRId64 "  %-24s %10s %12s  %s\n", layer->step, layer->name,
             ab_trace_scale_text(layer->scale, scale), ab_trace_scale_text(layer->together, together),
             layer->error ? layer->error : "");
}

/* Traces of loss scalers as JSON, streamed run by run: a trace may have a million runs. */

enum { NAME = 64 };

static void put_number(FILE *out, double x) {
    char text[AB_TEXT_ROUND_TRIP];
    fputs(isfinite(x) ? ab_text_round_trip(text, x) : "null", out);
}

static void put_values(FILE *out, const ab_trace_value *value, int count) {
    fputs("{", out);
    for (int i = 0; i < count; i++) {
        fprintf(out, "%s\"%s\": ", i ? ", " : "", value[i].name);
        if (value[i].is_flag)
            fputs(value[i].value != 0 ? "true" : "false", out);
        else
            put_number(out, value[i].value);
    }
    fputs("}", out);
}

static void put_config(FILE *out, const ab_trace_config *config) {
    fprintf(out, "{\"dialect\": \"%s\", \"config\": ", config->dialect);
    put_values(out, config->key, config->keys);
}

/* Also writes the closing brace of the enclosing object. */
static void put_error(FILE *out, const ab_trace_error *error) {
    if (error->name)
        fprintf(out,
                "\"error\": {\"name\": \"%s\", \"step\": %" PRId64 ", \"raises\": %s, \"message\": \"%s\"}}",
                error->name, error->step, error->raises ? "true" : "false", error->text);
    else
        fputs("\"error\": null}", out);
}

static void put_summary(FILE *out, const ab_trace_column *c) {
    double n = (double)c->steps;
    fprintf(out,
            "\"summary\": {\"steps\": %" PRId64 ", \"overflows\": %" PRId64 ", \"skipped\": %" PRId64
            ", \"warm_up_skipped\": %" PRId64 ", \"mean_scale\": ",
            c->steps, c->overflows, c->skipped, c->warm_up);
    put_number(out, c->sum_scale / n);
    fputs(", \"mean_log2_scale\": ", out);
    put_number(out, c->sum_log2 / n);
    fputs("}", out);
}

static void put_column(FILE *out, const ab_trace_column *c) {
    put_config(out, &c->config);
    fputs(",\n \"steps\": [", out);
    for (int i = 0; i < c->runs; i++) {
        fputs(i ? ", [" : "[", out);
        put_number(out, c->run[i].scale);
        fprintf(out, ", %s, %" PRId64 "]", c->run[i].skipped ? "true" : "false", c->run[i].count);
    }
    fprintf(out, "],\n \"unlisted_steps\": %" PRId64 ",\n ", c->unlisted);
    put_summary(out, c);
    fputs(",\n \"final\": ", out);
    put_values(out, c->state, c->states);
    fputs(",\n ", out);
    put_error(out, &c->error);
}

void ab_trace_json(FILE *out, const ab_trace_column *column, int columns) {
    if (columns > 1) fputs("[", out);
    for (int i = 0; i < columns; i++) {
        if (i) fputs(",\n", out);
        put_column(out, &column[i]);
    }
    fputs(columns > 1 ? "]\n" : "\n", out);
}

void ab_trace_layers_json_begin(FILE *out, const ab_trace_config *config) {
    put_config(out, config);
    fputs(",\n \"layers\": [", out);
}

void ab_trace_layer_json(FILE *out, const ab_trace_layer *layer, bool first) {
    char name[NAME];
    fprintf(out, "%s[%" PRId64 ", ", first ? "" : ",\n  ", layer->step);
    ab_json_put_text(out, ab_text_clean(name, sizeof name, layer->name));
    fputs(", ", out);
    put_number(out, layer->scale);
    fputs(", ", out);
    put_number(out, layer->together);
    fputs("]", out);
}

void ab_trace_layers_json_end(FILE *out, const ab_trace_error *error) {
    fputs("],\n ", out);
    put_error(out, error);
    fputs("\n", out);
}
