/* Per-layer traces: every layer has its own scaler, started at the layer's first step. */
#include "bench/amp/trace/scale_trace.h"

#include "kernels/core/text.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_LAYERS = 4096, NAME = 48, LINE = 512 };

typedef struct layer_row {
    char name[NAME];
    ab_scaler machine;
} layer_row;

typedef struct walk {
    const ab_scaler_config *config;
    const char *path;
    layer_row *row; /* [MAX_LAYERS] */
    int rows;
    int64_t step;
    double chain;                 /* product of the scales of the earlier layers in this step */
    bool open;                    /* the step has a layer */
    const ab_scaler_fault *fault; /* of the last layer */
} walk;

/* Parses a line of the file; *blank: it holds no layer. */
static ab_status parse_layer(const char *path, int line, char *text, char name[NAME], ab_scaler_layer *layer,
                             bool *blank) {
    const size_t length = strlen(text);
    if (length + 1 == LINE && text[length - 1] != '\n')
        return ab_fail(AB_INPUT, "%s:%d: expected lines of at most %d characters", path, line, LINE - 2);
    text[strcspn(text, "#\r\n")] = '\0';
    const size_t named = strcspn(text + strspn(text, " \t"), " \t");
    if (named >= NAME)
        return ab_fail(AB_INPUT, "%s:%d: expected a name of at most %d characters, found %zu", path, line,
                       NAME - 1, named);
    int read = sscanf(text, " %47s %lf %lf %lf %lf %lf %lf %lf", name, &layer->g_mean, &layer->g_std,
                      &layer->g_max, &layer->w_mean, &layer->w_std, &layer->w_max, &layer->fan_in);
    *blank = read <= 0;
    if (*blank) return AB_OK;
    if (read != 8)
        return ab_fail(AB_INPUT, "%s:%d: expected a name and 7 numbers, found a name and %d", path, line,
                       read - 1);
    bool sane =
        layer->g_std >= 0 && layer->g_max >= 0 && layer->w_std >= 0 && layer->w_max >= 0 && layer->fan_in > 0;
    return sane ? AB_OK
                : ab_fail(AB_INPUT, "%s:%d: deviations and magnitudes are 0 or more, the fan-in is above 0",
                          path, line);
}

/* Finds the layer's scaler, or starts it at its first step. */
static ab_status find_row(walk *w, const char *name, layer_row **row) {
    for (int i = 0; i < w->rows; i++) {
        *row = &w->row[i];
        if (strcmp(w->row[i].name, name) == 0) return AB_OK;
    }
    if (w->rows == MAX_LAYERS) return ab_fail(AB_INPUT, "--layers: at most %d layers", MAX_LAYERS);
    *row = &w->row[w->rows++];
    ab_text_exact((*row)->name, NAME, "%s", name);
    ab_scaler_start(&(*row)->machine, w->config);
    return AB_OK;
}

static void end_step(walk *w) {
    if (!w->open) return;
    w->step++;
    w->chain = 1;
    w->open = false;
}

/* Updates the layer's scaler. */
static ab_status take_layer(walk *w, const char *name, ab_scaler_layer *statistics, ab_trace_layer *layer) {
    layer_row *row;
    w->open = true;
    statistics->chain = w->chain;
    AB_TRY(find_row(w, name, &row));
    ab_scaler_seen seen = {.layer = statistics};
    w->fault = ab_scaler_update(&row->machine, &seen).fault;
    w->chain *= row->machine.scale;
    *layer = (ab_trace_layer){w->step, name, row->machine.scale, w->chain, w->fault ? w->fault->name : NULL};
    return AB_OK;
}

static ab_status walk_lines(walk *w, FILE *file, void (*see)(void *context, const ab_trace_layer *layer),
                            void *context) {
    char text[LINE], name[NAME];
    rewind(file);
    for (int line = 1; !w->fault && fgets(text, sizeof text, file); line++) {
        ab_scaler_layer statistics;
        ab_trace_layer layer;
        bool blank = false, comment = text[0] == '#';
        AB_TRY(parse_layer(w->path, line, text, name, &statistics, &blank));
        if (blank && !comment) end_step(w);
        if (blank) continue;
        AB_TRY(take_layer(w, name, &statistics, &layer));
        if (see) see(context, &layer);
    }
    return w->rows ? AB_OK : ab_fail(AB_INPUT, "%s: no layers", w->path);
}

ab_status ab_layer_trace_run(const ab_scaler_config *config, const char *path, FILE *file,
                             void (*see)(void *context, const ab_trace_layer *layer), void *context,
                             ab_trace_error *error) {
    walk w = {.config = config, .path = path, .row = calloc(MAX_LAYERS, sizeof *w.row), .chain = 1};
    if (!w.row) return ab_fail(AB_NO_MEMORY, "scaler: out of memory");
    ab_status status = walk_lines(&w, file, see, context);
    *error = ab_scaler_trace_error(w.fault, w.step);
    free(w.row);
    return status;
}
