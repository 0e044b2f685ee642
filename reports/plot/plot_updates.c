/* Weight updates that storing the weight swallowed, a panel per cell: their distribution by |w| / |dw| with
 * the line of the format, and the share swallowed by layer over the run. */
#include "kernels/core/text.h"
#include "kernels/format/format.h"
#include "reports/plot/plot.h"
#include "reports/plot/strips.h"
#include "reports/record/cells.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>
#include <string.h>

enum {
    PER_PAGE = AB_PLOT_PANELS,
    PANEL_HEIGHT = 210,
    MARGINS = 108,
    FIRST = -64,
    BINS = 192,
    ROWS = 40,
    TITLE = 68
};

static const cJSON *ledgers(const cJSON *cell) { return ab_json_at(cell, "probes.lost_updates"); }

static bool is_probed(const cJSON *cell) {
    const cJSON *list = ledgers(cell);
    return list && list->child && ab_json_at(list->child, "sizes") && !ab_plot_is_perturbed_baseline(cell);
}

/* Beside cells with counts, those without are said to have none. */
static bool accept(const cJSON *cell) { return is_probed(cell) || ab_plot_is_trained(cell); }

static int pages(ab_plot_input *in) {
    const bool any = ab_plot_page_count(in, is_probed, 1) > 0;
    return any ? ab_plot_page_count(in, accept, PER_PAGE) : 0;
}

/* ---- distribution ---------------------------------------------------------------------------- */

typedef struct spectrum {
    double counts[BINS], lost[BINS], all;
} spectrum;

static void add_bins(const cJSON *sizes, const char *key, double *bin) {
    int at = (int)ab_json_number(sizes, "first", 0) - FIRST;
    const cJSON *count;
    cJSON_ArrayForEach(count, ab_json_at(sizes, key)) {
        if (at >= 0 && at < BINS) bin[at] += count->valuedouble;
        at++;
    }
}

static spectrum collect(const cJSON *cell) {
    spectrum s = {.all = 0};
    const cJSON *param;
    cJSON_ArrayForEach(param, ledgers(cell)) {
        add_bins(ab_json_at(param, "sizes"), "counts", s.counts);
        add_bins(ab_json_at(param, "sizes"), "lost", s.lost);
    }
    for (int i = 0; i < BINS; i++) s.all += s.counts[i];
    return s;
}

/* The octaves to show in all panels: those with updates, and every format's line. */
static void find_range(const cJSON *const *cell, int panels, int *low, int *high) {
    *low = 0;
    *high = 28;
    for (int k = 0; k < panels; k++) {
        const spectrum s = collect(cell[k]);
        for (int i = 0; i < BINS; i++) {
            if (s.counts[i] < 1e-4 * s.all || s.counts[i] == 0) continue; /* too few to be visible */
            if (FIRST + i < *low) *low = FIRST + i;
            if (FIRST + i + 1 > *high) *high = FIRST + i + 1;
        }
    }
}

static double highest_percent(const spectrum *s) {
    double highest = 1;
    for (int i = 0; i < BINS && s->all > 0; i++) highest = fmax(highest, 100 * s->counts[i] / s->all);
    return highest;
}

static void write_distribution(const spectrum *s, int low, int high, const char *label, FILE *data) {
    fprintf(data, "# %s\n# log2_of_weight_over_update  percent  percent_lost\n", label);
    for (int e = low; e < high; e++) {
        const double all = s->all > 0 ? s->all : 1;
        fprintf(data, "%d %.9g %.9g\n", e, 100 * s->counts[e - FIRST] / all, 100 * s->lost[e - FIRST] / all);
    }
    fputs("\n\n", data);
}

/* ---- layers over the run --------------------------------------------------------------------- */

static void write_layer(const cJSON *list, const char *layer, int row, ab_strips *all, FILE *data) {
    ab_strip strip = {.stride = 1};
    const cJSON *param;
    cJSON_ArrayForEach(param, list) {
        if (strcmp(ab_json_text(param, "layer", ""), layer) == 0)
            ab_strip_add(&strip, ab_json_at(param, "steps"), "lost");
    }
    ab_strip_write(&strip, row, all, data);
}

/* Writes the first ROWS layers, their names if `script` is given; how many they are. */
static int write_layers(const cJSON *cell, ab_strips *all, FILE *data, FILE *script) {
    const cJSON *param, *list = ledgers(cell);
    int rows = 0;
    char name[AB_PLOT_LABEL];
    *all = ab_strips_of(cell);
    cJSON_ArrayForEach(param, list) {
        if (rows == ROWS || !ab_is_first_of_layer(list, param)) continue;
        const char *layer = ab_json_text(param, "layer", "");
        write_layer(list, layer, ++rows, all, data);
        if (!script) continue;
        fputs("used = used + 1; layer[used] = ", script);
        ab_text_elide(ab_text_clean(name, sizeof name, layer), 18);
        ab_plot_quote(script, name);
        fputc('\n', script);
    }
    return rows;
}

/* ---- page ------------------------------------------------------------------------------------ */

/* The format that most parameters are stored in; "" if it is unknown. */
static const char *stored_in(const cJSON *cell, int *line) {
    const char *name = "";
    double most = 0;
    const cJSON *param;
    cJSON_ArrayForEach(param, ledgers(cell)) {
        const double count = ab_json_number(param, "update.nonzero", 0);
        if (count < most) continue;
        most = count;
        name = ab_json_text(param, "format", "");
    }
    const ab_format *format;
    *line = ab_format_find(name, &format) == AB_OK ? format->precision : 0;
    return *line > 0 ? format->name : "";
}

static void write_text(FILE *script, const char *name, int panel, const char *text) {
    fprintf(script, "%s[%d] = ", name, panel);
    ab_plot_quote(script, text);
    fputc('\n', script);
}

static void write_texts(ab_plot_input *in, const cJSON *cell, int panel, const char *format, FILE *script) {
    char text[AB_PLOT_LABEL], share[AB_TEXT_NUMBER];
    write_text(script, "title", panel, ab_plot_title(in, cell, TITLE, text));
    const double lost = ab_json_number(cell, "summary.lost_share", (double)NAN);
    ab_text_percent(share, lost);
    ab_text_show(text, sizeof text, "weights stored in %s: %s %% of the updates swallowed",
                 format[0] ? format : "formats of their own", share);
    write_text(script, "note", panel, isfinite(lost) ? text : "");
    write_text(script, "nothing", panel,
               !is_probed(cell)         ? "not probed"
               : collect(cell).all <= 0 ? "no update of a probed step was a number other than 0"
                                        : "");
}

/* The layers over the run, or a sentence in their place. */
static void write_map(const cJSON *cell, int panel, FILE *data, FILE *script) {
    ab_strips all;
    int rows = write_layers(cell, &all, NULL, NULL);
    const char *sentence = ab_strips_sentence(&all, "no update was swallowed at any probed step");
    fprintf(script, "first_layer[%d] = used; trained[%d] = %d\n", panel, panel, ab_steps_of_cell(cell));
    write_text(script, "sentence", panel, sentence);
    fputs("# row  from_step  to_step  percent_lost\n", data);
    if (sentence[0] == '\0') write_layers(cell, &all, data, script);
    fputs("0 -1 -1 0\n\n\n", data); /* a block must not be empty */
    fprintf(script, "layers[%d] = %d\n", panel, sentence[0] ? 1 : rows);
}

/* Returns the highest share of an octave. */
static double write_panel(ab_plot_input *in, const cJSON *cell, int panel, const int range[2], FILE *data,
                          FILE *script) {
    char label[AB_PLOT_LABEL];
    int line;
    const spectrum s = collect(cell);
    const char *format = stored_in(cell, &line);
    write_texts(in, cell, panel, format, script);
    write_distribution(&s, range[0], range[1], ab_plot_label(in, cell, label), data);
    fprintf(script, "line[%d] = %d; ", panel, line);
    ab_plot_set_color(script, panel, in, cell);
    write_map(cell, panel, data, script);
    return highest_percent(&s);
}

static ab_status write_plot(ab_plot_input *in, int page, FILE *data, FILE *script) {
    static const char *const arrays[] = {"title",  "note",        "nothing", "sentence", "line",
                                         "layers", "first_layer", "trained", "color_of", "top_percent"};
    const cJSON *cell[PER_PAGE];
    char subject[AB_PLOT_LABEL];
    int panels = ab_plot_cells(in, accept, page, PER_PAGE, cell), range[2];
    double steps = 1, top[PER_PAGE];
    find_range(cell, panels, &range[0], &range[1]);
    for (int i = 0; i < panels; i++) steps = fmax(steps, ab_json_number(cell[i], "steps_total", 0));
    ab_plot_set_text(script, "subject", ab_plot_subject(in->document, subject));
    ab_plot_set_number(script, "panels", panels);
    ab_plot_set_number(script, "width", 1100);
    ab_plot_set_number(script, "height", PANEL_HEIGHT * panels + MARGINS);
    ab_plot_set_number(script, "low", range[0]);
    ab_plot_set_number(script, "high", range[1]);
    ab_plot_set_number(script, "steps", steps);
    for (size_t i = 0; i < AB_COUNT_OF(arrays); i++) fprintf(script, "array %s[%d]\n", arrays[i], panels);
    fprintf(script, "array layer[%d]\nused = 0\n", panels * ROWS);
    for (int i = 0; i < panels; i++) top[i] = write_panel(in, cell[i], i + 1, range, data, script);
    ab_plot_share_tops(top, panels);
    for (int i = 0; i < panels; i++) fprintf(script, "top_percent[%d] = %.10g\n", i + 1, top[i]);
    return AB_OK;
}

extern const char ab_embedded_gp_updates[];
extern const ab_plot ab_plot_updates;
const ab_plot ab_plot_updates = {"updates", ab_embedded_gp_updates, pages, write_plot, false, NULL, NULL};
