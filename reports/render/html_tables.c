/* Tables and texts of the page. Numbers are those of the terminal table (grid.h) or come directly from the
 * document. */
#include "kernels/core/mem.h"
#include "kernels/core/text.h"
#include "reports/plot/plot.h"
#include "reports/record/build.h"
#include "reports/record/cells.h"
#include "reports/record/json.h"
#include "reports/record/skips.h"
#include "reports/record/summary.h"
#include "reports/record/text.h"
#include "reports/render/html.h"
#include "reports/render/markup.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- parts ----------------------------------------------------------------------------------- */

void ab_html_table(const ab_html *h, const char *id, const char *caption, const char *const *headings) {
    fprintf(h->out,
            "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-labelledby=\"%s-caption\">\n<table "
            "id=\"%s\">\n"
            "<caption><span id=\"%s-caption\">%s</span></caption>\n<thead><tr>",
            id, id, id, caption);
    for (; *headings; headings++) {
        bool number = **headings == '#';
        fprintf(h->out, "<th scope=\"col\"%s>%s</th>", number ? " class=\"number\"" : "", *headings + number);
    }
    fputs("</tr></thead>\n<tbody>\n", h->out);
}

void ab_html_end_table(const ab_html *h) { fputs("</tbody>\n</table>\n</div>\n", h->out); }

void ab_html_cell(const ab_html *h, const char *class_name, const char *text) {
    if (class_name)
        fprintf(h->out, "<td class=\"%s\">", class_name);
    else
        fputs("<td>", h->out);
    ab_markup_text(h->out, text);
    fputs("</td>", h->out);
}

void ab_html_row_head(const ab_html *h, const char *text) {
    fputs("<th scope=\"row\">", h->out);
    ab_markup_text(h->out, text);
    fputs("</th>", h->out);
}

static void begin_row(const ab_html *h) { fputs("<tr>", h->out); }
static void end_row(const ab_html *h) { fputs("</tr>\n", h->out); }

static void row_label(const ab_html *h, const cJSON *cell) {
    char label[AB_PLOT_LABEL];
    begin_row(h);
    ab_html_row_head(h, ab_plot_name(&h->naming, cell, label));
}

static double figure(const cJSON *cell, const char *key) {
    return ab_json_number(ab_json_at(cell, "summary"), key, (double)NAN);
}

static bool is_ok(const cJSON *cell) { return strcmp(ab_json_text(cell, "status", ""), "ok") == 0; }
static bool is_certified(const cJSON *cell) { return ab_json_is_true(cell, "summary.certificate.passed"); }
static const cJSON *cells_of(const ab_html *h) { return ab_json_at(h->document, "cells"); }

/* ---- summary --------------------------------------------------------------------------------- */

static void fact(const ab_html *h, const char *what, const char *format, ...) AB_PRINTF(3, 4);

static void fact(const ab_html *h, const char *what, const char *format, ...) {
    char text[AB_GRID_LINE];
    va_list args;
    va_start(args, format);
    ab_text_show_args(text, sizeof text, format, args);
    va_end(args);
    fprintf(h->out, "<div><dt>%s</dt><dd>", what);
    ab_markup_text(h->out, text);
    fputs("</dd></div>\n", h->out);
}

/* A certified level beside O0, with this figure. */
static bool is_candidate(const cJSON *cell, const char *key) {
    return strcmp(ab_json_text(cell, "level", "O0"), "O0") != 0 && !ab_plot_is_perturbed_baseline(cell) &&
           is_certified(cell) && isfinite(figure(cell, key));
}

typedef struct best {
    const cJSON *cell; /* the best one that is better than O0 beyond noise; NULL: none */
    int candidates, within_noise;
} best;

/* sign 1: the largest `key` is best, -1: the smallest. timed: not if its rounds overlap those of O0. */
static best best_cell(const ab_html *h, const ab_cells *cells, const char *key, double sign, bool timed) {
    const cJSON *cell;
    best b = {NULL, 0, 0};
    cJSON_ArrayForEach(cell, cells_of(h)) {
        if (!is_candidate(cell, key)) continue;
        b.candidates++;
        if (!(sign * figure(cell, key) > sign)) continue;
        if (timed && ab_summary_times_overlap(cell, ab_cells_baseline(cells, cell)))
            b.within_noise++;
        else if (!b.cell || sign * figure(cell, key) > sign * figure(b.cell, key))
            b.cell = cell;
    }
    return b;
}

static void best_fact(const ab_html *h, const ab_cells *cells, const char *what, const char *key, double sign,
                      bool timed) {
    char label[AB_PLOT_LABEL], factor[AB_TEXT_NUMBER], slow[AB_BUILD_TEXT];
    const best b = best_cell(h, cells, key, sign, timed);
    const bool once = timed && ab_json_number(h->document, "config.rounds", 2) == 1;
    if (b.cell)
        fact(h, what, "%s: %s of O0%s%s%s", ab_plot_name(&h->naming, b.cell, label),
             ab_text_factor(factor, figure(b.cell, key)),
             once ? " (one timing round: its scatter is not known)" : "",
             timed && ab_build_slow(ab_json_at(h->document, "generator"), slow)[0] ? "; " : "",
             timed ? slow : "");
    else
        fact(h, what, "%s",
             b.within_noise > 0 ? "none beyond noise: the timing rounds overlap those of O0"
             : b.candidates > 0 ? (timed ? "none is faster than O0" : "none is smaller than O0")
                                : "none");
}

static void cells_fact(const ab_html *h) {
    int all = 0, done = 0, void_cells = 0;
    const cJSON *cell;
    cJSON_ArrayForEach(cell, cells_of(h)) {
        all++;
        done += is_ok(cell);
        void_cells += is_ok(cell) && !is_certified(cell);
    }
    fact(h, "Cells", "%d of %d trained, %d without a certificate", done, all, void_cells);
}

static void floor_fact(const ab_html *h, const char *what, const char *key, double floor) {
    char gap[AB_TEXT_NUMBER];
    if (!cJSON_IsObject(ab_json_at(h->document, key)) || !isfinite(floor)) return;
    ab_text_gap(gap, floor);
    fact(h, what, "%s (chance exceeds it once in 20 runs)", floor == 0 ? "0" : gap + (gap[0] == '+'));
}

ab_status ab_html_summary(const ab_html *h) {
    char id[40], started[40];
    ab_cells cells;
    ab_status status = ab_cells_create(h->document, &cells);
    if (status != AB_OK) {
        ab_cells_free(&cells);
        return status;
    }
    fputs("<dl class=\"facts\">\n", h->out);
    fact(h, "Run", "%s, %s%s",
         ab_text_clean(started, sizeof started, ab_json_text(h->document, "run.started_utc", "?")),
         ab_text_clean(id, sizeof id, ab_json_text(h->document, "run.id", "?")),
         ab_json_is_true(h->document, "run.complete") ? "" : " (incomplete)");
    cells_fact(h);
    best_fact(h, &cells, "Fastest level that trained as well as O0", "ratio_samples_to_o0", 1, true);
    best_fact(h, &cells, "Smallest level that trained as well as O0", "ratio_bytes_to_o0", -1, false);
    ab_cells_free(&cells);
    const ab_floors floors = ab_summary_floors(h->document);
    floor_fact(h, "Noise floor of the final loss", "noise_floor", floors.noise);
    floor_fact(h, "Rounding floor of the final loss", "rounding_floor", floors.rounding);
    fputs("</dl>\n", h->out);
    return AB_OK;
}

/* ---- verdicts -------------------------------------------------------------------------------- */

static void verdict(const ab_html *h, const char *class_name, const char *word) {
    fprintf(h->out, "<td><span class=\"verdict %s\">%s</span></td>", class_name, word);
}

static void write_reasons(const ab_html *h, const cJSON *cell) {
    const cJSON *reason, *reasons = ab_json_at(cell, "summary.certificate.reasons");
    bool first = true;
    fputs("<td class=\"text\">", h->out);
    cJSON_ArrayForEach(reason, reasons) {
        if (!cJSON_IsString(reason)) continue;
        fputs(first ? "" : "<br/>", h->out);
        ab_markup_text(h->out, reason->valuestring);
        first = false;
    }
    if (first) fputs("trained as well as O0", h->out);
    fputs("</td>", h->out);
}

static void write_determinism(const ab_html *h, const cJSON *cell) {
    const cJSON *same = ab_json_at(cell, "deterministic");
    if (cJSON_IsBool(same))
        ab_html_cell(h, cJSON_IsTrue(same) ? NULL : "bad",
                     cJSON_IsTrue(same) ? "same bits every round" : "no");
    else
        ab_html_cell(h, "faint", "one round");
}

ab_status ab_html_verdicts(const ab_html *h) {
    static const char *const headings[] = {"level", "certificate", "why", "deterministic", NULL};
    const cJSON *cell;
    ab_html_table(
        h, "verdict-table",
        "Does the level's speed count? A certificate needs finite losses, 95 % of the steps applied, and a "
        "final loss within the largest of the two noise floors and 5 % of that of O0.",
        headings);
    cJSON_ArrayForEach(cell, cells_of(h)) {
        row_label(h, cell);
        if (!is_ok(cell) && strcmp(ab_json_text(cell, "status", ""), "failed") != 0)
            verdict(h, "open", "not finished");
        else
            verdict(h, is_certified(cell) ? "passed" : "void", is_certified(cell) ? "passed" : "void");
        write_reasons(h, cell);
        write_determinism(h, cell);
        end_row(h);
    }
    ab_html_end_table(h);
    AB_TRY(ab_html_diagnosis(h));
    if (h->grid->notes.count > 0) fputs("<h3>Notes</h3>\n<ul class=\"notes\">\n", h->out);
    for (int i = 0; i < h->grid->notes.count; i++) {
        fputs("<li>", h->out);
        ab_markup_text(h->out, h->grid->notes.line[i].text);
        fputs("</li>\n", h->out);
    }
    if (h->grid->notes.count > 0) fputs("</ul>\n", h->out);
    return AB_OK;
}

/* ---- levels ---------------------------------------------------------------------------------- */

static const char *tone_class(ab_tone tone, bool number) {
    static const char *const of_text[] = {"word", "word faint", "word warn", "word bad", "word"};
    static const char *const of_number[] = {"number", "number faint", "number warn", "number bad", "number"};
    return number ? of_number[tone] : of_text[tone];
}

static void level_row(const ab_html *h, const ab_grid_row *row) {
    begin_row(h);
    for (int i = 0; i < h->grid->columns; i++) {
        if (i < h->grid->labels) {
            ab_html_row_head(h, row->at[i].text);
        } else if (row->message.text[0]) {
            fprintf(h->out, "<td class=\"text\" colspan=\"%d\">", h->grid->columns - i);
            ab_markup_text(h->out, row->message.text);
            fputs("</td>", h->out);
            break;
        } else {
            ab_html_cell(h, tone_class(row->at[i].tone, !h->grid->column[i]->left), row->at[i].text);
        }
    }
    end_row(h);
}

ab_status ab_html_levels(const ab_html *h) {
    char head[AB_GRID_COLUMNS][40];
    const char *headings[AB_GRID_COLUMNS + 1];
    for (int i = 0; i < h->grid->columns; i++) {
        ab_text_show(head[i], sizeof head[i], "%s%s", h->grid->column[i]->left ? "" : "#",
                     h->grid->column[i]->title);
        headings[i] = head[i];
    }
    headings[h->grid->columns] = NULL;
    ab_html_table(h, "level-table", "What every level cost and what it broke", headings);
    for (int r = 0; r < h->grid->rows; r++) level_row(h, &h->grid->row[r]);
    ab_html_end_table(h);
    fputs("<ul class=\"notes soft\">\n", h->out);
    for (int i = 0; i < h->grid->legend.count; i++) {
        fputs("<li>", h->out);
        ab_markup_text(h->out, h->grid->legend.line[i].text);
        fputs("</li>\n", h->out);
    }
    fputs("</ul>\n", h->out);
    return AB_OK;
}

/* ---- data of the figures --------------------------------------------------------------------- */

/* Tables of very many cells are folded. */
static bool is_folded(const ab_html *h) { return cJSON_GetArraySize(cells_of(h)) > AB_PLOT_MANY; }

static void begin_fold(const ab_html *h, const char *summary) {
    if (is_folded(h)) fprintf(h->out, "<details>\n<summary>%s</summary>\n", summary);
}

static void end_fold(const ab_html *h) {
    if (is_folded(h)) fputs("</details>\n", h->out);
}

static void memory_table(const ab_html *h) {
    char head[AB_MEM_CATEGORY_COUNT][40], text[AB_TEXT_NUMBER];
    const char *headings[AB_MEM_CATEGORY_COUNT + 3] = {"level"};
    const cJSON *cell;
    for (int i = 0; i < AB_MEM_CATEGORY_COUNT; i++) {
        ab_text_show(head[i], sizeof head[i], "#%s", ab_mem_category_name((ab_mem_category)i));
        for (char *c = head[i]; (c = strchr(c, '_'));) *c = ' ';
        headings[i + 1] = head[i];
    }
    headings[AB_MEM_CATEGORY_COUNT + 1] = "#total";
    begin_fold(h, "Tensor memory by category");
    ab_html_table(h, "memory-table", "Tensor memory by category, MiB", headings);
    cJSON_ArrayForEach(cell, cells_of(h)) {
        const cJSON *memory = ab_json_at(cell, "memory_bytes");
        if (!memory) continue;
        row_label(h, cell);
        for (int i = 0; i < AB_MEM_CATEGORY_COUNT; i++)
            ab_html_cell(h, "number",
                         ab_text_mib(text, ab_json_number(memory, ab_mem_category_name((ab_mem_category)i),
                                                          (double)NAN)));
        ab_html_cell(h, "number", ab_text_mib(text, ab_json_number(memory, "total", (double)NAN)));
        end_row(h);
    }
    ab_html_end_table(h);
    end_fold(h);
}

typedef struct scales {
    double first, last, low, high;
    int changes;
} scales;

static scales read_scales(const cJSON *runs) {
    scales s = {(double)NAN, (double)NAN, (double)INFINITY, 0, 0};
    const cJSON *run;
    cJSON_ArrayForEach(run, runs) {
        double scale = run->child->valuedouble;
        if (run == runs->child) s.first = scale;
        s.changes += run != runs->child;
        s.low = fmin(s.low, scale);
        s.high = fmax(s.high, scale);
        s.last = scale;
    }
    return s;
}

static void scale_table(const ab_html *h) {
    static const char *const headings[] = {"level",          "#first",         "#lowest",
                                           "#highest",       "#last",          "#changes",
                                           "#steps skipped", "#first skipped", NULL};
    char text[AB_TEXT_NUMBER];
    const cJSON *cell;
    begin_fold(h, "Loss scale over the steps");
    ab_html_table(h, "scale-table", "Loss scale over the steps", headings);
    cJSON_ArrayForEach(cell, cells_of(h)) {
        const cJSON *runs = ab_json_at(cell, "scale");
        if (!runs || !runs->child) continue;
        scales s = read_scales(runs);
        const double numbers[] = {s.first, s.low, s.high, s.last};
        row_label(h, cell);
        for (size_t i = 0; i < AB_COUNT_OF(numbers); i++)
            ab_html_cell(h, "number", ab_text_scale(text, numbers[i]));
        ab_html_cell(h, "number", ab_text_count(text, s.changes));
        ab_html_cell(h, "number", ab_text_count(text, ab_json_number(cell, "steps_skipped", (double)NAN)));
        ab_html_cell(h, "number",
                     ab_text_count(text, ab_json_number(cell, "first_skipped_step", (double)NAN)));
        end_row(h);
    }
    ab_html_end_table(h);
    end_fold(h);
}

/* The layer and the margin of every skipped step. */
static void skip_table(const ab_html *h) {
    static const char *const headings[] = {"level", "#step", "#loss scale",
                                           "where it overflowed, and by how much", NULL};
    char text[AB_TEXT_NUMBER], where[AB_SKIP_TEXT];
    const cJSON *cell;
    bool any = false;
    cJSON_ArrayForEach(cell, cells_of(h)) {
        for (int i = 0; i < ab_skips_count(cell); i++) {
            ab_skip skip;
            ab_skip_at(cell, i, &skip);
            if (!any) {
                fputs("<details>\n<summary>Skipped steps</summary>\n", h->out);
                ab_html_table(h, "skip-table",
                              "Skipped steps: the layer that overflowed first, and by how much", headings);
            }
            any = true;
            row_label(h, cell);
            ab_html_cell(h, "number", ab_text_count(text, skip.step));
            ab_html_cell(h, "number", isfinite(skip.scale) ? ab_text_scale(text, skip.scale) : "-");
            ab_html_cell(h, NULL, ab_skip_text(&skip, where));
            end_row(h);
        }
    }
    if (!any) return;
    ab_html_end_table(h);
    fputs("</details>\n", h->out);
}

static void tensor_row(const ab_html *h, const cJSON *cell, const cJSON *tensor) {
    static const char *const shares[] = {"flushed", "subnormal", "overflowed"};
    char text[AB_TEXT_NUMBER], range[2 * AB_TEXT_NUMBER];
    double nonzero = ab_json_number(tensor, "nonzero", 0),
           first = ab_json_number(tensor, "exponents.first", (double)NAN);
    int binades = cJSON_GetArraySize(ab_json_at(tensor, "exponents.counts"));
    row_label(h, cell);
    ab_html_cell(h, NULL, ab_json_text(tensor, "name", "?"));
    ab_html_cell(h, "number", ab_text_count(text, nonzero));
    for (size_t i = 0; i < AB_COUNT_OF(shares); i++)
        ab_html_cell(h, "number",
                     ab_text_percent(text, nonzero > 0 ? ab_json_number(tensor, shares[i], 0) / nonzero
                                                       : (double)NAN));
    ab_text_show(range, sizeof range, "2^%.0f to 2^%.0f", first, first + binades);
    ab_html_cell(h, "number", isfinite(first) && binades > 0 ? range : "-");
    ab_html_cell(h, NULL, ab_json_is_true(tensor, "cast") ? "cast" : "modelled");
    end_row(h);
}

static void gradient_table(const ab_html *h) {
    static const char *const headings[] = {"level",       "tensor",       "#non-zero values",
                                           "#flushed %",  "#subnormal %", "#overflowed %",
                                           "#magnitudes", "counts are",   NULL};
    const cJSON *cell, *tensor;
    fputs("<details>\n<summary>Gradients by tensor</summary>\n", h->out);
    ab_html_table(h, "gradient-table",
                  "Gradient values at the cast to the half format, by tensor, at the probed steps", headings);
    cJSON_ArrayForEach(cell, cells_of(h)) {
        if (ab_plot_is_perturbed_baseline(cell)) continue;
        cJSON_ArrayForEach(tensor, ab_json_at(cell, "probes.tensors")) tensor_row(h, cell, tensor);
    }
    ab_html_end_table(h);
    fputs("</details>\n", h->out);
}

ab_status ab_html_numbers(const ab_html *h) {
    memory_table(h);
    scale_table(h);
    skip_table(h);
    gradient_table(h);
    return AB_OK;
}

/* ---- environment ----------------------------------------------------------------------------- */

static void write_plain_value(const ab_html *h, const cJSON *value) {
    const cJSON *item;
    bool first = true;
    if (cJSON_IsString(value)) ab_markup_text(h->out, value->valuestring);
    if (cJSON_IsNumber(value)) ab_json_print_number(value->valuedouble, h->out);
    if (cJSON_IsBool(value)) fputs(cJSON_IsTrue(value) ? "yes" : "no", h->out);
    if (cJSON_IsNull(value)) fputs("not known", h->out);
    if (!cJSON_IsArray(value) && !cJSON_IsObject(value)) return;
    cJSON_ArrayForEach(item, value) {
        if (!first) fputs(cJSON_IsObject(value) ? "; " : ", ", h->out);
        first = false;
        if (item->string) ab_markup_text(h->out, item->string);
        if (item->string) fputs(" = ", h->out);
        write_plain_value(h, item);
    }
}

static void key_table(const ab_html *h, const char *key, const char *id, const char *caption) {
    static const char *const headings[] = {"key", "value", NULL};
    const cJSON *item, *object = ab_json_at(h->document, key);
    if (!object || !object->child) return;
    ab_html_table(h, id, caption, headings);
    cJSON_ArrayForEach(item, object) {
        begin_row(h);
        ab_html_row_head(h, item->string ? item->string : "?");
        fputs("<td class=\"text\">", h->out);
        write_plain_value(h, item);
        fputs("</td>", h->out);
        end_row(h);
    }
    ab_html_end_table(h);
}

/* The machines of a sweep, one a row. */
static void machine_table(const ab_html *h) {
    static const char *const keys[] = {"name", "class", "threads", "cpu_model",
                                       "isa",  "cores", "kernel",  NULL};
    const cJSON *machine, *machines = ab_json_at(h->document, "machines");
    if (!machines || !machines->child) return;
    ab_html_table(h, "machines-table", "Machines of the cells: speeds are compared within a class only",
                  keys);
    cJSON_ArrayForEach(machine, machines) {
        begin_row(h);
        ab_html_row_head(h, ab_json_text(machine, "name", "?"));
        for (int i = 1; keys[i]; i++) {
            fputs("<td class=\"text\">", h->out);
            write_plain_value(h, ab_json_at(machine, keys[i]));
            fputs("</td>", h->out);
        }
        end_row(h);
    }
    ab_html_end_table(h);
}

ab_status ab_html_environment(const ab_html *h) {
    fputs("<p>Runs are comparable when their key is the same: <code>", h->out);
    ab_markup_text(h->out, ab_json_text(h->document, "comparability_key", "?"));
    fputs("</code></p>\n", h->out);
    key_table(h, "environment", "machine-table", "The machine");
    machine_table(h);
    key_table(h, "generator", "build-table", "The program");
    fputs("<details>\n<summary>Configuration, data and network</summary>\n", h->out);
    key_table(h, "config", "config-table", "The configuration");
    key_table(h, "data", "data-table", "The data");
    key_table(h, "network", "network-table", "The network");
    key_table(h, "determinism", "determinism-table", "Determinism");
    fputs("</details>\n", h->out);
    return AB_OK;
}

/* ---- how to reproduce ------------------------------------------------------------------------ */

static bool is_plain_word(const char *text) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,+@%";
    return *text && strspn(text, plain) == strlen(text);
}

/* Writes a word of a shell command, in single quotes if needed. Returns whether it is exactly the
 * argument. */
static bool write_word(const ab_html *h, const char *text) {
    char clean[AB_MARKUP_TEXT];
    ab_text_clean(clean, sizeof clean, text);
    bool exact = strcmp(clean, text) == 0, quoted = !is_plain_word(clean);
    if (quoted) fputs("&#39;", h->out);
    for (char *c = clean; *c;) {
        size_t length = strcspn(c, "'");
        bool quote = c[length] == '\'';
        c[length] = '\0';
        ab_markup_text(h->out, c);
        if (quote) fputs("&#39;\\&#39;&#39;", h->out);
        c += length + quote;
    }
    if (quoted) fputs("&#39;", h->out);
    return exact;
}

static bool write_command(const ab_html *h) {
    const cJSON *word, *argv = ab_json_at(h->document, "run.argv");
    bool exact = true;
    fputs("<pre><code>ampbench", h->out);
    cJSON_ArrayForEach(word, argv) {
        if (word == argv->child || !cJSON_IsString(word)) continue;
        fputc(' ', h->out);
        exact &= write_word(h, word->valuestring);
    }
    fputs("</code></pre>\n", h->out);
    return exact;
}

ab_status ab_html_reproduce(const ab_html *h) {
    static const char *const headings[] = {"cell", "losses", NULL};
    const cJSON *cell;
    const char *sha = ab_json_text(h->document, "generator.git_sha", NULL);
    fputs("<p>The command of this run:</p>\n", h->out);
    if (!write_command(h))
        fputs("<p class=\"note\">An argument holds characters that cannot be shown; <code>run.argv</code> of "
              "the "
              "document has it in full.</p>\n",
              h->out);
    fputs("<p>Version ", h->out);
    ab_markup_text(h->out, ab_json_text(h->document, "generator.version", "?"));
    if (sha) fputs(", commit <code>", h->out);
    if (sha) ab_markup_text(h->out, sha);
    if (sha) fputs("</code>", h->out);
    fputs(ab_json_is_true(h->document, "generator.git_dirty") ? ", with local changes" : "", h->out);
    fputs(". The same version on the same data has the same losses, to the bit, whatever the number of "
          "threads; speeds belong to "
          "the machine.</p>\n",
          h->out);
    ab_html_table(h, "digest-table", "Digests of all losses of a cell, to compare with", headings);
    cJSON_ArrayForEach(cell, cells_of(h)) {
        begin_row(h);
        ab_html_row_head(h, ab_json_text(cell, "id", "?"));
        ab_html_cell(h, "code", ab_json_text(cell, "loss_digest", "-"));
        end_row(h);
    }
    ab_html_end_table(h);
    return AB_OK;
}
