/* Traces of loss scalers as JSON, streamed run by run: a trace may have a million runs. */
#include "kernels/core/json_text.h"
#include "kernels/core/text.h"
#include "reports/record/text.h"
#include "reports/render/scaler_trace.h"

#include <inttypes.h>
#include <math.h>

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
