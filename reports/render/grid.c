/* Converts the document to the cells of the table. The reports handle layout, escaping and colour. */
#include "reports/render/grid.h"

#include "kernels/core/text.h"
#include "reports/record/build.h"
#include "reports/record/cells.h"
#include "reports/record/json.h"
#include "reports/record/machines.h"
#include "reports/record/subnormals.h"
#include "reports/record/summary.h"
#include "reports/record/text.h"
#include "reports/render/elide.h"
#include "reports/render/half_products.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LABEL_TEXT = 400,
    LONG_MESSAGE = 80,
    SCALE_TEXT = 96,
    SCALE_WIDTH = 10,
    SCALE_MOST = 24,
    PRODUCTS_TEXT = 240
};

/* ---- lines ----------------------------------------------------------------------------------- */

static ab_status append_line(ab_grid_lines *lines, ab_tone tone, const char *text) {
    if (lines->count == lines->room) {
        int room = 2 * lines->room + 8;
        ab_grid_line *line = realloc(lines->line, (size_t)room * sizeof *line);
        if (!line) return ab_fail(AB_NO_MEMORY, "out of memory while laying out the table");
        lines->line = line;
        lines->room = room;
    }
    ab_grid_line *line = &lines->line[lines->count++];
    line->tone = tone;
    ab_text_show(line->text, sizeof line->text, "%s", text);
    return AB_OK;
}

static ab_status add_line(ab_grid_lines *lines, ab_tone tone, const char *format, ...) AB_PRINTF(3, 4);

/* The arguments must be clean. */
static ab_status add_line(ab_grid_lines *lines, ab_tone tone, const char *format, ...) {
    char text[AB_GRID_LINE];
    va_list args;
    va_start(args, format);
    ab_text_show_args(text, sizeof text, format, args);
    va_end(args);
    return append_line(lines, tone, text);
}

/* Copies a cleaned string of the document into the caller's buffer. */
static const char *clean(const cJSON *root, const char *path, const char *fallback, char *text, size_t size) {
    return ab_text_clean(text, size, ab_json_text(root, path, fallback));
}

/* ---- columns --------------------------------------------------------------------------------- */

static double figure(const cJSON *cell, const char *key) {
    return ab_json_number(ab_json_at(cell, "summary"), key, (double)NAN);
}

/* Values that were not cast (predicted counts) are shown in parentheses. */
static void parenthesise(const cJSON *cell, ab_grid_text *out) {
    char text[AB_GRID_TEXT - 2];
    if (!ab_json_is_true(cell, "summary.flushed_modelled") || strcmp(out->text, "-") == 0) return;
    ab_text_show(text, sizeof text, "%.*s", (int)sizeof text - 1, out->text);
    ab_text_show(out->text, sizeof out->text, "(%s)", text);
    out->tone = AB_TONE_FAINT;
}

static void write_level(const cJSON *cell, ab_grid_text *out) {
    char level[AB_GRID_TEXT - 18], twin[16];
    const bool moved = cJSON_IsString(ab_json_at(cell, "twin"));
    ab_text_show(out->text, sizeof out->text, "%s%s%s",
                 ab_text_clean(level, sizeof level, ab_cell_label(cell)), moved ? "+" : "",
                 moved ? clean(cell, "twin", "?", twin, sizeof twin) : "");
}

/* A number with a word behind it, as numbers alone are written: "2^40:skip". */
static void shorten_number(char *text) {
    char number[AB_TEXT_NUMBER], behind[SCALE_TEXT], *rest;
    const double scale = strtod(text, &rest);
    if (text[0] < '0' || text[0] > '9' || *rest != ':') return;
    ab_text_show(behind, sizeof behind, "%s", rest);
    ab_text_show(text, SCALE_TEXT, "%s%s", ab_text_scale(number, scale), behind);
}

static void write_scale(const cJSON *cell, ab_grid_text *out) {
    const cJSON *scale = ab_json_at(cell, "policy.loss_scale");
    if (cJSON_IsNumber(scale)) {
        ab_text_scale(out->text, scale->valuedouble);
        return;
    }
    clean(cell, cJSON_IsString(scale) ? "policy.loss_scale" : "scale_policy", "?", out->text, SCALE_TEXT);
    shorten_number(out->text);
}

static void write_half(const cJSON *cell, ab_grid_text *out) {
    clean(cell, "half_format", "?", out->text, 16);
}
static void write_model(const cJSON *cell, ab_grid_text *out) { clean(cell, "model", "?", out->text, 24); }
static void write_device(const cJSON *cell, ab_grid_text *out) { clean(cell, "device", "?", out->text, 16); }

static void write_seed(const cJSON *cell, ab_grid_text *out) {
    double seed = ab_json_number(cell, "seed", (double)NAN);
    if (isfinite(seed))
        ab_text_count(out->text, seed);
    else
        clean(cell, "seed", "?", out->text, 24);
}

static void write_loss(const cJSON *cell, ab_grid_text *out) {
    ab_text_loss(out->text, figure(cell, "loss_final"));
    if (ab_json_number(cell, "nonfinite_losses", 0) == 0 || isfinite(figure(cell, "loss_final"))) return;
    ab_text_show(out->text, sizeof out->text, "nan/inf");
    out->tone = AB_TONE_BAD;
}

static void write_gap(const cJSON *cell, ab_grid_text *out) {
    double gap = figure(cell, "loss_gap");
    if (gap == 0)
        memcpy(out->text, "0", 2);
    else
        ab_text_gap(out->text, gap);
}

static void write_accuracy(const cJSON *cell, ab_grid_text *out) {
    ab_text_percent(out->text, ab_json_number(cell, "test_accuracy", (double)NAN));
}

static void write_rate(const cJSON *cell, ab_grid_text *out) {
    ab_text_rate(out->text, figure(cell, "samples_per_s"));
}

/* "-" for a cell that ran beside others: it was not measured. */
static void write_ratio(const cJSON *cell, const char *key, ab_grid_text *out) {
    double ratio = figure(cell, key);
    ab_text_factor(out->text, ratio);
    if (isfinite(ratio) || ab_cell_threads_beside(cell) > 0) return;
    memcpy(out->text, "void", 5);
    out->tone = AB_TONE_WARN;
}

static void write_speed_ratio(const cJSON *cell, ab_grid_text *out) {
    write_ratio(cell, "ratio_samples_to_o0", out);
}

static void write_peak(const cJSON *cell, ab_grid_text *out) {
    ab_text_mib(out->text, figure(cell, "peak_bytes"));
}
static void write_peak_ratio(const cJSON *cell, ab_grid_text *out) {
    write_ratio(cell, "ratio_bytes_to_o0", out);
}

static void write_skipped(const cJSON *cell, ab_grid_text *out) {
    char skipped[AB_TEXT_NUMBER], total[AB_TEXT_NUMBER];
    ab_text_count(skipped, ab_json_number(cell, "steps_skipped", (double)NAN));
    ab_text_count(total, ab_json_number(cell, "steps_total", (double)NAN));
    ab_text_show(out->text, sizeof out->text, "%s/%s", skipped, total);
}

/* With "±", the larger side of the interval, where only some steps were probed; else there are no bounds:
 * NULL. */
static void write_share(double share, const cJSON *low, const cJSON *high, ab_grid_text *out) {
    const bool bounded = cJSON_IsNumber(low) && cJSON_IsNumber(high);
    const double side = bounded ? fmax(share - low->valuedouble, high->valuedouble - share) : (double)NAN;
    if (isfinite(share) && low)
        ab_text_percent_within(out->text, share, side);
    else
        ab_text_percent(out->text, share);
}

static void write_flushed(const cJSON *cell, ab_grid_text *out) {
    write_share(figure(cell, "flushed_share"), ab_json_at(cell, "summary.flushed_share_low"),
                ab_json_at(cell, "summary.flushed_share_high"), out);
    parenthesise(cell, out);
}

static void write_overflowed(const cJSON *cell, ab_grid_text *out) {
    ab_text_count(out->text, figure(cell, "overflowed"));
    parenthesise(cell, out);
}

static void write_worst(const cJSON *cell, ab_grid_text *out) {
    char layer[48], share[AB_TEXT_NUMBER];
    double worst = figure(cell, "worst_layer_flushed_share");
    memcpy(out->text, "-", 2);
    if (!isfinite(worst)) return;
    clean(cell, "summary.worst_layer", "?", layer, sizeof layer);
    ab_text_elide(layer, 16);
    ab_text_show(out->text, sizeof out->text, "%s %s", layer,
                 ab_text_brief(ab_text_percent(share, worst), 8));
    parenthesise(cell, out);
}

static void write_lost(const cJSON *cell, ab_grid_text *out) {
    write_share(figure(cell, "lost_share"), ab_json_at(cell, "summary.lost_share_low"),
                ab_json_at(cell, "summary.lost_share_high"), out);
}

static void write_run(const cJSON *cell, ab_grid_text *out) {
    ab_text_clean(out->text, sizeof out->text, ab_json_text(cell, "of_run.label", "?"));
}

typedef struct rule {
    ab_grid_column look;
    bool label;
    const char *varies; /* shown only when cells differ in this key; NULL: always */
    void (*write)(const cJSON *cell, ab_grid_text *out);
} rule;

static const rule rules[] = {
    {{{"", "run"}, "run", true}, true, "of_run.label", write_run},
    {{{"", "model"}, "model", true}, true, "model", write_model},
    {{{"", "level"}, "level", true}, true, NULL, write_level},
    {{{"", "half"}, "half", true}, true, "half_format", write_half},
    {{{"loss", "scale"}, "loss scale", true}, true, NULL, write_scale},
    {{{"", "device"}, "device", true}, true, "device", write_device},
    {{{"", "seed"}, "seed", true}, true, "seed", write_seed},
    {{{"final", "loss"}, "final loss", false}, false, NULL, write_loss},
    {{{"gap to O0", NULL}, "gap to O0", false}, false, NULL, write_gap},
    {{{"test", "acc. %"}, "test acc. %", false}, false, NULL, write_accuracy},
    {{{"", "samples/s"}, "samples/s", false}, false, NULL, write_rate},
    {{{"speed", "vs O0"}, "speed vs O0", false}, false, NULL, write_speed_ratio},
    {{{"peak", "MiB"}, "peak MiB", false}, false, NULL, write_peak},
    {{{"peak", "vs O0"}, "peak vs O0", false}, false, NULL, write_peak_ratio},
    {{{"steps", "skipped"}, "skipped steps", false}, false, NULL, write_skipped},
    {{{"flushed", "%"}, "flushed %", false}, false, NULL, write_flushed},
    {{{"over-", "flowed"}, "overflowed", false}, false, NULL, write_overflowed},
    {{{"lost", "%"}, "lost updates %", false}, false, NULL, write_lost},
    {{{"worst", "layer %"}, "worst layer %", true}, false, NULL, write_worst},
};

_Static_assert(AB_COUNT_OF(rules) <= AB_GRID_COLUMNS, "the grid has room for every column");

static bool varies(const cJSON *cells, const char *key) {
    const cJSON *cell, *first = cells ? ab_json_at(cells->child, key) : NULL;
    cJSON_ArrayForEach(cell, cells) {
        const cJSON *here = ab_json_at(cell, key);
        if ((first || here) && !cJSON_Compare(first, here, 1)) return true;
    }
    return false;
}

static void choose_columns(const cJSON *cells, ab_grid *grid, const rule **chosen) {
    for (size_t i = 0; i < AB_COUNT_OF(rules); i++) {
        if (rules[i].varies && !varies(cells, rules[i].varies)) continue;
        chosen[grid->columns] = &rules[i];
        grid->column[grid->columns++] = &rules[i].look;
        grid->labels += rules[i].label;
    }
}

const char *ab_grid_head(const ab_grid *grid, int i, int line) {
    const char *head = grid->column[i]->head[line];
    return head ? head : grid->gap_head;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void write_row(const cJSON *cell, const ab_grid *grid, const rule *const *chosen, ab_grid_row *row) {
    char reason[AB_GRID_LINE - 32];
    const char *status = ab_json_text(cell, "status", "?");
    row->cell = cell;
    for (int i = 0; i < grid->columns; i++) chosen[i]->write(cell, &row->at[i]);
    if (strcmp(status, "ok") == 0) return;
    char word[16];
    ab_text_clean(word, sizeof word, status);
    clean(cell, "reason", "", reason, sizeof reason);
    bool has_status = strncmp(reason, word, strlen(word)) == 0; /* "interrupted at step 12" */
    if (reason[0] && !has_status)
        ab_text_show(row->message.text, sizeof row->message.text, "%s: %s", word, reason);
    else
        ab_text_show(row->message.text, sizeof row->message.text, "%s", reason[0] ? reason : word);
    row->message.tone = strcmp(status, "failed") == 0 ? AB_TONE_BAD : AB_TONE_WARN;
}

/* Loss scales have long names: they are shortened so far that they still differ. */
static ab_status shorten_scales(ab_grid *grid, const rule *const *chosen) {
    int column = 0;
    while (column < grid->columns && chosen[column]->write != write_scale) column++;
    if (column == grid->columns || grid->rows == 0) return AB_OK;
    char **text = malloc((size_t)grid->rows * sizeof *text);
    if (!text) return ab_fail(AB_NO_MEMORY, "out of memory while laying out the table");
    for (int i = 0; i < grid->rows; i++) text[i] = grid->row[i].at[column].text;
    const ab_status status = ab_elide_distinct(text, grid->rows, SCALE_WIDTH, SCALE_MOST);
    free(text);
    return status;
}

/* "O2 dynamic": the label columns of a row. */
static const char *label_text(const ab_grid *grid, const ab_grid_row *row, char *text) {
    text[0] = '\0';
    for (int i = 0; i < grid->labels; i++)
        ab_text_append(text, LABEL_TEXT, i ? " %s" : "%s", row->at[i].text);
    return text;
}

/* ---- above the table ------------------------------------------------------------------------- */

static ab_status add_title(const cJSON *document, ab_grid_lines *lines) {
    char net[40], data[40], optimizer[24], lr[AB_TEXT_NUMBER], seed[32], epochs[48] = "";
    const cJSON *config = ab_json_at(document, "config");
    double number = ab_json_number(config, "seed", (double)NAN), count = ab_json_number(config, "epochs", 0);
    if (count > 0) ab_text_show(epochs, sizeof epochs, " (%g epoch%s)", count, count == 1 ? "" : "s");
    ab_text_show(lr, sizeof lr, "%g", ab_json_number(config, "lr", (double)NAN));
    if (isfinite(number))
        ab_text_count(seed, number);
    else
        clean(config, "seed", "?", seed, sizeof seed);
    return add_line(lines, AB_TONE_HEAD, "%s on %s: batch %.0f, %.0f steps%s, %s with lr %s, seed %s",
                    clean(config, "net", "?", net, sizeof net), clean(config, "data", "?", data, sizeof data),
                    ab_json_number(config, "batch", 0), ab_json_number(config, "steps", 0), epochs,
                    clean(config, "optimizer", "?", optimizer, sizeof optimizer), lr, seed);
}

/* "fp16, bf16" from an array of strings. */
static const char *join(const cJSON *array, char *text, size_t size) {
    char word[32];
    const cJSON *item;
    text[0] = '\0';
    cJSON_ArrayForEach(item, array) {
        ab_text_clean(word, sizeof word, cJSON_IsString(item) ? item->valuestring : "?");
        ab_text_append(text, size, text[0] ? ", %s" : "%s", word);
    }
    return text;
}

/* What is reduced of micro-batches. */
static const char *every_text(const char *every) {
    if (strcmp(every, "micro-batch") == 0) return " every micro-batch";
    if (strcmp(every, "accumulated") == 0) return " every micro-batch, accumulated ones again";
    return strcmp(every, "step-in-wire") == 0 ? ", micro-batches summed in that format" : "";
}

/* ", gradients reduced by ring bf16 pre" */
static void append_reduction(const cJSON *reduction, double micro, char *text, size_t size) {
    char order[40], wire[16], divide[32];
    ab_text_append(text, size, ", gradients reduced by %s %s %s",
                   clean(reduction, "reduce", "?", order, sizeof order),
                   clean(reduction, "wire", "?", wire, sizeof wire),
                   clean(reduction, "divide", "?", divide, sizeof divide));
    if (micro > 1)
        ab_text_append(text, size, "%s", every_text(clean(reduction, "every", "step", order, sizeof order)));
    if (ab_json_at(reduction, "sync_bn"))
        ab_text_append(text, size, ", batch norms synchronised as %s's",
                       clean(reduction, "sync_bn", "?", order, sizeof order));
}

/* Adds one line on further parts of the training step, if there are any. */
static ab_status add_training_details(const cJSON *document, ab_grid_lines *lines) {
    const cJSON *config = ab_json_at(document, "config");
    const double micro = ab_json_number(config, "gradient_accumulation_steps", 1),
                 ranks = ab_json_number(config, "ranks", 1);
    const char *how = ab_json_is_true(config, "nccl")      ? " ranks, processes of MPI, GPUs joined by NCCL"
                      : ab_json_text(config, "mpi", "")[0] ? " ranks, processes of MPI"
                                                           : " simulated ranks";
    const struct {
        const char *before, *after;
        double value;
    } rows[] = {{", from step ", " on", ab_json_number(config, "first_step", 0)},
                {", ", " batches a step", micro > 1 ? micro : 0},
                {", ", how, ranks > 1 ? ranks : 0},
                {", gradient norm clipped at ", "", ab_json_number(config, "clip_norm", 0)},
                {", gradients clipped at ", "", ab_json_number(config, "clip_value", 0)},
                {", weights averaged with ", "", ab_json_number(config, "ema", 0)}};
    char schedule[80], faults[200], text[480] = "";
    clean(config, "schedule", "constant", schedule, sizeof schedule);
    if (strcmp(schedule, "constant") != 0) ab_text_show(text, sizeof text, ", schedule %s", schedule);
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
        if (rows[i].value > 0)
            ab_text_append(text, sizeof text, "%s%g%s", rows[i].before, rows[i].value, rows[i].after);
    }
    if (ranks > 1) append_reduction(ab_json_at(config, "reduction"), micro, text, sizeof text);
    join(ab_json_at(config, "faults"), faults, sizeof faults);
    if (text[0]) AB_TRY(add_line(lines, AB_TONE_HEAD, "%s", text + 2));
    return faults[0] ? add_line(lines, AB_TONE_BAD, "mistakes made on purpose: %s", faults) : AB_OK;
}

/* ", the later ones of 200 steps or more": of rounds that repeat the first steps of cells only. */
static const char *later_rounds(const cJSON *document, char text[64]) {
    const cJSON *cell, *process;
    double least = (double)INFINITY, most = 0;
    cJSON_ArrayForEach(cell, ab_json_at(document, "cells")) {
        cJSON_ArrayForEach(process, ab_json_at(cell, "processes")) {
            const double steps = ab_json_number(process, "steps", 0);
            if (steps > 0) least = fmin(least, steps);
            most = fmax(most, steps);
        }
    }
    text[0] = '\0';
    if (most > 0)
        ab_text_exact(text, 64, ", the later ones of %.0f steps%s", least, most > least ? " or more" : "");
    return text;
}

static ab_status add_setting(const cJSON *document, ab_grid_lines *lines) {
    char later[64], device[24], isa[24], half[64], cpu[80];
    const cJSON *config = ab_json_at(document, "config");
    const cJSON *machines = ab_json_at(document, "machines"), *machine = machines ? machines->child : NULL;
    double threads = ab_json_number(config, "threads", 0), rounds = ab_json_number(config, "rounds", 0);
    threads = ab_json_number(machine, "threads", threads);
    return add_line(lines, AB_TONE_PLAIN, "%s (%s, %s), %.0f thread%s; half format %s; %.0f timing round%s%s",
                    clean(config, "device", "?", device, sizeof device),
                    clean(document, "environment.cpu_model", "unknown CPU", cpu, sizeof cpu),
                    clean(document, "environment.isa", "?", isa, sizeof isa), threads,
                    threads == 1 ? "" : "s", join(ab_json_at(config, "half"), half, sizeof half), rounds,
                    rounds == 1 ? "" : "s", later_rounds(document, later));
}

/* A line for each class of machines: its first machine, and how many more there are. */
static ab_status add_classes(const ab_machines *machines, ab_grid_lines *lines) {
    enum { SHOWN = 6 };
    char text[200];
    int shown = 0;
    for (int i = 0; i < machines->count; i++) {
        const int more = ab_machines_of_class(machines, i) - 1;
        if (more < 0) continue;
        if (shown++ == SHOWN) return add_line(lines, AB_TONE_PLAIN, "  ...");
        ab_machine_text(machines->machine[i], text, sizeof text);
        if (more > 0) ab_text_append(text, sizeof text, " and %d more", more);
        AB_TRY(add_line(lines, AB_TONE_PLAIN, "  %s", text));
    }
    return AB_OK;
}

/* The machines of a sweep, and what they mean for the speeds. */
static ab_status add_machines(const cJSON *document, ab_grid_lines *lines) {
    ab_machines machines;
    ab_status status = AB_OK;
    if (!ab_machines_create(document, &machines)) return ab_fail(AB_NO_MEMORY, "table: out of memory");
    const int classes = ab_machines_classes(&machines);
    if (machines.count > 1)
        AB_TRY_GOTO(add_line(lines, AB_TONE_PLAIN, "cells ran on %d machines of %d class%s%s", machines.count,
                             classes, classes == 1 ? "" : "es",
                             classes == 1 ? "" : "; speeds are compared within a class only"));
    if (classes > 1) status = add_classes(&machines, lines);
out:
    ab_machines_clear(&machines);
    return status;
}

static ab_status add_slow_build(const cJSON *document, ab_grid_lines *lines) {
    char text[AB_BUILD_TEXT];
    const char *warning = ab_build_warning(ab_json_at(document, "generator"), text);
    return warning ? add_line(lines, AB_TONE_WARN, "%s", warning) : AB_OK;
}

static ab_status add_completeness(const cJSON *document, ab_grid_lines *lines) {
    const cJSON *cell, *cells = ab_json_at(document, "cells");
    int done = 0, count = cJSON_GetArraySize(cells);
    cJSON_ArrayForEach(cell, cells) done += strcmp(ab_json_text(cell, "status", ""), "ok") == 0;
    if (ab_json_is_true(document, "run.complete")) return AB_OK;
    return add_line(lines, AB_TONE_BAD, "INCOMPLETE: the run has not finished; %d of %d cells are done", done,
                    count);
}

/* Selects the cells that a line applies to. */
typedef struct cell_filter {
    bool (*applies)(const struct cell_filter *self, const cJSON *cell);
    const char *path, *value; /* parameters of `applies` */
    const ab_cells *cells;
} cell_filter;

static bool has_value(const cell_filter *q, const cJSON *cell) {
    const char *value = ab_json_text(cell, q->path, NULL);
    return value && strcmp(value, q->value) == 0;
}

static bool has_products(const cell_filter *q, const cJSON *cell) {
    char text[PRODUCTS_TEXT];
    return ab_half_products_text(cell, text, sizeof text) && strcmp(text, q->value) == 0;
}

static bool is_nondeterministic(const cell_filter *q, const cJSON *cell) {
    (void)q;
    return cJSON_IsFalse(ab_json_at(cell, "deterministic"));
}

static bool is_void(const cell_filter *q, const cJSON *cell) {
    return ab_cell_threads_beside(cell) == 0 && has_value(q, cell);
}

static bool is_beside(const cell_filter *q, const cJSON *cell) {
    (void)q;
    return ab_cell_threads_beside(cell) > 0;
}

static bool is_within_spread(const cell_filter *q, const cJSON *cell) {
    const cJSON *o0 = ab_cells_baseline(q->cells, cell);
    return o0 && o0 != cell && !cJSON_IsString(ab_json_at(cell, "twin")) &&
           isfinite(figure(cell, "ratio_samples_to_o0")) && ab_summary_times_overlap(cell, o0);
}

/* "O1 dynamic, O2 dynamic": the cells with numbers that the query selects; "" if there is none. */
static const char *list_cells(const ab_grid *grid, const cell_filter *q, char *labels) {
    char label[LABEL_TEXT];
    labels[0] = '\0';
    for (int i = 0; i < grid->rows; i++) {
        const ab_grid_row *row = &grid->row[i];
        if (row->message.text[0] || !q->applies(q, row->cell)) continue;
        label_text(grid, row, label);
        if (strlen(labels) + strlen(label) + 8 > LABEL_TEXT) {
            ab_text_append(labels, LABEL_TEXT, ", ...");
            break;
        }
        ab_text_append(labels, LABEL_TEXT, labels[0] ? ", %s" : "%s", label);
    }
    return labels;
}

static bool is_first(const cell_filter *q, const ab_grid *grid, int row) {
    for (int i = 0; i < row; i++)
        if (q->applies(q, grid->row[i].cell)) return false;
    return true;
}

/* Adds each distinct text at q.path once, with the cells that share it. */
static ab_status add_grouped(const ab_grid *grid, cell_filter q, ab_tone tone, const char *what,
                             ab_grid_lines *lines) {
    char labels[LABEL_TEXT], text[200];
    for (int i = 0; i < grid->rows; i++) {
        q.value = ab_json_text(grid->row[i].cell, q.path, NULL);
        if (!q.value || !q.applies(&q, grid->row[i].cell) || !is_first(&q, grid, i)) continue;
        if (!list_cells(grid, &q, labels)[0]) continue;
        ab_text_clean(text, sizeof text, q.value);
        AB_TRY(add_line(lines, tone, "%s: %s: %s", labels, what, text));
    }
    return AB_OK;
}

/* Adds each distinct sentence about half products once, with the cells that share it. */
static ab_status add_products(const ab_grid *grid, ab_grid_lines *lines) {
    char labels[LABEL_TEXT], text[PRODUCTS_TEXT];
    for (int i = 0; i < grid->rows; i++) {
        cell_filter q = {has_products, NULL, text, NULL};
        if (!ab_half_products_text(grid->row[i].cell, text, sizeof text) || !is_first(&q, grid, i)) continue;
        if (list_cells(grid, &q, labels)[0]) AB_TRY(add_line(lines, AB_TONE_PLAIN, "%s: %s", labels, text));
    }
    return AB_OK;
}

static ab_status add_about(const ab_grid *grid, const cell_filter *q, ab_tone tone, const char *what,
                           ab_grid_lines *lines) {
    char labels[LABEL_TEXT];
    list_cells(grid, q, labels);
    return labels[0] ? add_line(lines, tone, "%s: %s", labels, what) : AB_OK;
}

static ab_status add_run_label(const cJSON *document, ab_grid_lines *lines) {
    char text[200];
    const char *label = ab_json_text(document, "run.label", NULL);
    const cJSON *cells = ab_json_at(document, "cells");
    const char *first = cells ? ab_json_text(cells->child, "of_run.label", NULL) : NULL;
    if (first)
        return add_line(lines, AB_TONE_PLAIN, "several runs; the next two lines are of the first, %s",
                        ab_text_clean(text, sizeof text, first));
    return label ? add_line(lines, AB_TONE_PLAIN, "label: %s", ab_text_clean(text, sizeof text, label))
                 : AB_OK;
}

static ab_status add_intro(const cJSON *document, ab_grid *grid) {
    AB_TRY(add_run_label(document, &grid->intro));
    AB_TRY(add_title(document, &grid->intro));
    AB_TRY(add_training_details(document, &grid->intro));
    AB_TRY(add_setting(document, &grid->intro));
    AB_TRY(add_machines(document, &grid->intro));
    AB_TRY(add_slow_build(document, &grid->intro));
    AB_TRY(add_products(grid, &grid->intro));
    const cell_filter emulated = {has_value, "emulated_text", NULL, NULL};
    AB_TRY(add_grouped(grid, emulated, AB_TONE_PLAIN, "emulated", &grid->intro));
    return add_completeness(document, &grid->intro);
}

/* ---- below the table ------------------------------------------------------------------------- */

static ab_status add_warnings(const cJSON *document, ab_grid *grid) {
    char text[AB_GRID_LINE - 16];
    const cJSON *warning, *warnings = ab_json_at(document, "warnings");
    cJSON_ArrayForEach(warning, warnings) {
        if (!cJSON_IsString(warning)) continue;
        ab_text_clean(text, sizeof text, warning->valuestring);
        AB_TRY(add_line(&grid->notes, AB_TONE_WARN, "warning: %s", text));
    }
    return AB_OK;
}

/* Says of a probe's record where its numbers come from. */
static ab_status add_sources(const cJSON *document, ab_grid *grid) {
    char from[AB_GRID_LINE - 64], quantity[32];
    const cJSON *source;
    cJSON_ArrayForEach(source, ab_json_at(document, "probe.sources")) {
        const double steps = ab_json_number(source, "steps", 0);
        ab_text_clean(quantity, sizeof quantity, ab_json_text(source, "quantity", ""));
        ab_text_clean(from, sizeof from, ab_json_text(source, "from", ""));
        AB_TRY(add_line(&grid->notes, AB_TONE_PLAIN, "%s of %.0f step%s: %s", quantity, steps,
                        steps == 1 ? "" : "s", from));
    }
    return AB_OK;
}

/* Adds in full the messages that the table has to shorten. */
static ab_status add_long_messages(ab_grid *grid) {
    char label[LABEL_TEXT];
    for (int i = 0; i < grid->rows; i++) {
        const ab_grid_row *row = &grid->row[i];
        if (ab_text_width(row->message.text) > LONG_MESSAGE)
            AB_TRY(add_line(&grid->notes, row->message.tone, "%s: %s", label_text(grid, row, label),
                            row->message.text));
    }
    return AB_OK;
}

/* Says which step times have a trend because of subnormal operands. */
static ab_status add_slowdowns(ab_grid *grid) {
    char label[LABEL_TEXT], text[AB_GRID_LINE - 32];
    for (int i = 0; i < grid->rows; i++) {
        const ab_grid_row *row = &grid->row[i];
        if (ab_subnormal_slowdown_text(row->cell, text, sizeof text))
            AB_TRY(add_line(&grid->notes, AB_TONE_WARN, "%s: step times have a trend: %s",
                            label_text(grid, row, label), text));
    }
    return AB_OK;
}

static ab_status add_timing_notes(const cJSON *document, ab_grid *grid) {
    AB_TRY(add_slowdowns(grid));
    if (ab_json_number(document, "config.rounds", 2) == 1)
        return add_line(&grid->notes, AB_TONE_PLAIN,
                        "one timing round: how far the speeds scatter is not known");
    ab_cells cells;
    ab_status status = ab_cells_create(document, &cells);
    const cell_filter spread = {is_within_spread, NULL, NULL, &cells};
    if (status == AB_OK)
        status = add_about(grid, &spread, AB_TONE_WARN,
                           "the timing rounds overlap those of O0: the difference in speed may be noise",
                           &grid->notes);
    ab_cells_free(&cells);
    return status;
}

/* "ce 65536 to 1024 (6 overflows)", "fc1 1 to 16" */
static void append_own_scale(const cJSON *scaler, char *text, size_t size) {
    char name[120], first[AB_TEXT_NUMBER], last[AB_TEXT_NUMBER], count[AB_TEXT_NUMBER];
    const cJSON *runs = ab_json_at(scaler, "scale"), *end = runs ? runs->child : NULL;
    const double overflows = ab_json_number(scaler, "overflows", (double)NAN);
    if (!end) return;
    ab_text_scale(first, end->child->valuedouble);
    while (end->next) end = end->next;
    ab_text_scale(last, end->child->valuedouble);
    if (!isfinite(overflows))
        ab_text_append(text, size, "%s %s to %s", clean(scaler, "layer", "?", name, sizeof name), first,
                       last);
    else
        ab_text_append(text, size, "%s %s to %s (%s overflow%s)",
                       join(ab_json_at(scaler, "losses"), name, sizeof name), first, last,
                       ab_text_count(count, overflows), overflows == 1 ? "" : "s");
}

/* Adds a line for every cell with per-loss or per-layer scales, if these can change. */
static ab_status add_own_scales(ab_grid *grid) {
    const cJSON *scaler;
    for (int i = 0; i < grid->rows; i++) {
        char label[LABEL_TEXT], text[640] = "";
        const cJSON *cell = grid->row[i].cell;
        const char *kind = ab_json_at(cell, "layer_scales") ? "layer_scales" : "loss_scales";
        label_text(grid, &grid->row[i], label);
        if (cJSON_IsNumber(ab_json_at(cell, "policy.loss_scale"))) continue;
        cJSON_ArrayForEach(scaler, ab_json_at(cell, kind)) {
            if (text[0]) ab_text_append(text, sizeof text, "; ");
            if (strlen(text) > sizeof text - 240) {
                ab_text_append(text, sizeof text, "...");
                break;
            }
            append_own_scale(scaler, text, sizeof text);
        }
        if (text[0])
            AB_TRY(add_line(&grid->notes, AB_TONE_PLAIN, "%s: %s scales: %s", label,
                            kind[1] == 'a' ? "layer" : "loss", text));
    }
    return AB_OK;
}

/* Adds a line for every cell whose ranks have parted. */
static ab_status add_partings(ab_grid *grid) {
    for (int i = 0; i < grid->rows; i++) {
        char label[LABEL_TEXT], tensor[120];
        const cJSON *parted = ab_json_at(grid->row[i].cell, "replicas.parted");
        label_text(grid, &grid->row[i], label);
        if (parted)
            AB_TRY(add_line(&grid->notes, AB_TONE_BAD,
                            "%s: after %.0f steps rank %.0f had other weights than most: %s", label,
                            ab_json_number(parted, "steps", 0), ab_json_number(parted, "rank", 0),
                            clean(parted, "tensor", "?", tensor, sizeof tensor)));
    }
    return AB_OK;
}

/* "reduce_scatter 1.2 ms, 88 KiB" */
static void append_op(const cJSON *op, double steps, char *text, size_t size) {
    char name[40];
    const double kib = ab_json_number(op, "bytes_sent", 0) / steps / 1024;
    ab_text_append(text, size, "%s%s %.3g ms", text[0] ? ", " : "", clean(op, "op", "?", name, sizeof name),
                   ab_json_number(op, "time_ns", 0) / steps * 1e-6);
    if (kib > 0) ab_text_append(text, size, " %.3g KiB", kib);
}

static void append_overlap(const cJSON *cell, double steps, char *text, size_t size) {
    const double kib = ab_json_number(cell, "communication.overlapped_bytes", 0) / steps / 1024;
    if (kib > 0) ab_text_append(text, size, "; %.3g KiB of gradients sent during the backward pass", kib);
}

/* Adds a line for every cell whose ranks are processes: the reduction's part of a step. */
static ab_status add_communication(ab_grid *grid) {
    const cJSON *op;
    for (int i = 0; i < grid->rows; i++) {
        char label[LABEL_TEXT], text[400] = "";
        const cJSON *cell = grid->row[i].cell;
        const double steps = ab_json_number(cell, "communication.steps", 0),
                     step = ab_json_number(cell, "communication.elapsed_ns", 0) / fmax(steps, 1);
        double sum = 0;
        label_text(grid, &grid->row[i], label);
        if (!(steps > 0) || !(step > 0)) continue;
        cJSON_ArrayForEach(op, ab_json_at(cell, "communication.ops")) {
            sum += ab_json_number(op, "time_ns", 0) / steps;
            append_op(op, steps, text, sizeof text);
        }
        append_overlap(cell, steps, text, sizeof text);
        AB_TRY(add_line(&grid->notes, AB_TONE_PLAIN,
                        "%s: reduction %.3g of %.3g ms a step, efficiency against one rank %.0f %%: %s",
                        label, sum * 1e-6, step * 1e-6, 100 * fmax(0, 1 - sum / step), text));
    }
    return AB_OK;
}

static void append_rate(const char *name, double first, double last, char *text, size_t size) {
    char known[AB_GRID_TEXT];
    if (!isfinite(first)) return;
    ab_text_append(text, size, "%s%s%s%.3g", text[0] ? "; " : "", ab_text_clean(known, sizeof known, name),
                   name[0] ? " " : "", first);
    if (last != first) ab_text_append(text, size, " to %.3g", last);
}

/* Of a training loop of the user's own: the rates of all optimizers and their groups, at first and at the
 * end. */
static ab_status add_rates(const cJSON *document, ab_grid *grid) {
    const cJSON *group, *fact;
    char text[AB_GRID_LINE - 20] = "", name[32] = "";
    int optimizer = 0;
    cJSON_ArrayForEach(group, ab_json_at(document, "probe.groups")) {
        if (optimizer++ > 0) ab_text_show(name, sizeof name, "optimizer %d", optimizer - 1);
        append_rate(name, ab_json_number(group, "lr_first", (double)NAN), ab_json_number(group, "lr_last", 0),
                    text, sizeof text);
    }
    cJSON_ArrayForEach(fact, ab_json_at(document, "probe.facts")) {
        if (strcmp(ab_json_text(fact, "name", ""), "learning_rate") != 0) continue;
        append_rate(ab_json_text(fact, "place", ""), ab_json_number(fact, "first", (double)NAN),
                    ab_json_number(fact, "last", 0), text, sizeof text);
    }
    return text[0] ? add_line(&grid->notes, AB_TONE_PLAIN, "learning rates: %s", text) : AB_OK;
}

static const char not_timed[] = "not timed: they ran beside other cells on some of the threads";

static ab_status add_notes(const cJSON *document, ab_grid *grid) {
    static const struct {
        cell_filter of;
        const char *what;
    } missing[] = {
        {{is_void, "summary.ratio_samples_to_o0_reason", NULL, NULL}, "speed ratio void"},
        {{has_value, "summary.baseline_learned_reason", NULL, NULL}, "no certificate"},
        {{is_void, "summary.ratio_bytes_to_o0_reason", NULL, NULL}, "memory ratio void"},
        {{has_value, "test_accuracy_reason", NULL, NULL}, "no test accuracy"},
    };
    const cell_filter besides = {is_beside, NULL, NULL, NULL};
    AB_TRY(add_rates(document, grid));
    AB_TRY(add_own_scales(grid));
    AB_TRY(add_partings(grid));
    AB_TRY(add_communication(grid));
    for (size_t i = 0; i < AB_COUNT_OF(missing); i++)
        AB_TRY(add_grouped(grid, missing[i].of, AB_TONE_WARN, missing[i].what, &grid->notes));
    const cell_filter nondeterministic = {is_nondeterministic, NULL, NULL, NULL};
    AB_TRY(add_long_messages(grid));
    AB_TRY(add_about(grid, &besides, AB_TONE_PLAIN, not_timed, &grid->notes));
    AB_TRY(add_timing_notes(document, grid));
    AB_TRY(add_about(grid, &nondeterministic, AB_TONE_BAD,
                     "not deterministic: the losses differ between rounds", &grid->notes));
    AB_TRY(add_warnings(document, grid));
    return add_sources(document, grid);
}

/* Appends a floor without its sign. */
static void append_floor(double floor, char *text, size_t size) {
    char number[AB_TEXT_NUMBER];
    ab_text_gap(number, floor);
    ab_text_append(text, size, "%s", floor == 0 ? "0" : number + (number[0] == '+'));
}

/* "0.0039|0.0051": the noise floor, and the rounding floor where it was measured. */
static const char *floor_text(const cJSON *document, char *text, size_t size) {
    const ab_floors floors = ab_summary_floors(document);
    text[0] = '\0';
    append_floor(floors.noise, text, size);
    if (!cJSON_IsObject(ab_json_at(document, "rounding_floor"))) return text;
    ab_text_append(text, size, "|");
    append_floor(floors.rounding, text, size);
    return text;
}

static const char *draws_text(int draws, char number[AB_TEXT_NUMBER]) {
    ab_text_exact(number, AB_TEXT_NUMBER, draws > 1 ? "%d runs" : "a run", draws);
    return number;
}

static ab_status add_floor_legend(const cJSON *document, ab_grid *grid) {
    char floors[2 * AB_TEXT_NUMBER], number[AB_TEXT_NUMBER];
    const int draws = cJSON_GetArraySize(ab_json_at(document, "noise_floor.draws"));
    if (!cJSON_IsObject(ab_json_at(document, "noise_floor")))
        return add_line(&grid->legend, AB_TONE_PLAIN,
                        "gap to O0: final loss minus O0's; no noise floor was measured");
    floor_text(document, floors, sizeof floors);
    if (!cJSON_IsObject(ab_json_at(document, "rounding_floor")))
        return add_line(&grid->legend, AB_TONE_PLAIN,
                        "gap to O0, floor ±%s: what chance alone exceeds in one run of 20, by %s of O0 with "
                        "every initial "
                        "weight moved by one ulp; a gap within it may be chance",
                        floors, draws_text(draws, number));
    return add_line(&grid->legend, AB_TONE_PLAIN,
                    "gap to O0, floors ±ulp|rounding %s: what chance alone exceeds in one run of 20, by %s "
                    "of O0 with every "
                    "initial weight moved by one ulp, or by as much as rounding it to half would; a gap "
                    "within either may be "
                    "chance",
                    floors, draws_text(draws, number));
}

/* How much of the test set the accuracy is of. */
static ab_status add_accuracy_legend(const cJSON *document, ab_grid *grid) {
    const double limit = ab_json_number(document, "config.eval_limit", 0),
                 all = ab_json_number(document, "data.test_count", 0);
    char some[AB_TEXT_NUMBER + 32] = "";
    if (limit > 0 && limit < all) ab_text_show(some, sizeof some, "%.0f samples of ", limit);
    return add_line(&grid->legend, AB_TONE_FAINT,
                    "final loss: mean of the last 20 training losses; acc.: accuracy on %sthe test set",
                    some);
}

static ab_status add_legend(const cJSON *document, ab_grid *grid) {
    static const char *const lines[] = {
        "speed vs O0: samples/s over O0's; void unless the work was equal and the training as good as O0's",
        "peak: bytes of all tensors and workspaces the cell held; skipped: steps without an update, because "
        "of an overflow",
        "flushed: of the gradients that are cast to the half format, the share of non-zero values that "
        "became 0",
        "overflowed: values among them beyond the half format's range; worst layer: the one with the largest "
        "flushed share",
        "lost: of the non-zero weight updates, the share that storing the weight swallowed (`ampbench "
        "formats --swallow`)",
        "flushed, lost ±: for all steps, of which only some are probed (95 %)",
        "( ): modelled: nothing is cast in this cell; what a cast to the half format would have done",
    };
    AB_TRY(add_floor_legend(document, grid));
    AB_TRY(add_accuracy_legend(document, grid));
    for (size_t i = 0; i < AB_COUNT_OF(lines); i++)
        AB_TRY(add_line(&grid->legend, AB_TONE_FAINT, "%s", lines[i]));
    return AB_OK;
}

static void write_gap_head(const cJSON *document, ab_grid *grid) {
    char floors[2 * AB_TEXT_NUMBER];
    if (!cJSON_IsObject(ab_json_at(document, "noise_floor"))) return;
    ab_text_show(grid->gap_head, sizeof grid->gap_head, "±%s", floor_text(document, floors, sizeof floors));
}

/* ---- public ---------------------------------------------------------------------------------- */

ab_status ab_grid_create(const cJSON *document, ab_grid *grid) {
    const rule *chosen[AB_GRID_COLUMNS];
    const cJSON *cell, *cells = ab_json_at(document, "cells");
    *grid = (ab_grid){0};
    choose_columns(cells, grid, chosen);
    write_gap_head(document, grid);
    grid->row = calloc((size_t)cJSON_GetArraySize(cells) + 1, sizeof *grid->row);
    if (!grid->row) return ab_fail(AB_NO_MEMORY, "out of memory while laying out the table");
    cJSON_ArrayForEach(cell, cells) {
        if (!ab_cell_further_draw(cell)) write_row(cell, grid, chosen, &grid->row[grid->rows++]);
    }
    AB_TRY(shorten_scales(grid, chosen));
    AB_TRY(add_intro(document, grid));
    AB_TRY(add_notes(document, grid));
    return add_legend(document, grid);
}

void ab_grid_free(ab_grid *grid) {
    free(grid->row);
    free(grid->intro.line);
    free(grid->notes.line);
    free(grid->legend.line);
    *grid = (ab_grid){0};
}
