/* One row per cell as CSV (RFC 4180: CRLF, quotes doubled); column names are the keys of the document.
 * Numbers are exact. Text that a spreadsheet would interpret as a formula is prefixed with an apostrophe. */
#include "kernels/core/mem.h"
#include "kernels/core/text.h"
#include "reports/record/cells.h"
#include "reports/record/json.h"
#include "reports/record/text.h"
#include "reports/render/report.h"

#include <stdlib.h>
#include <string.h>

/* A column: path of its value. The heading is the path's last part, or `name`. */
typedef struct column {
    const char *path;
    const char *name; /* NULL: the path's last part */
    bool of_document; /* the path starts at the document, not at the cell */
} column;

static const column columns[] = {
    {"run.id", "run_id", true},
    {"run.complete", "run_complete", true},
    {"comparability_key", NULL, true},
    {"id", NULL, false},
    {"model", NULL, false},
    {"config.data", "data", true},
    {"level", NULL, false},
    {"scale_policy", NULL, false},
    {"policy.loss_scale", NULL, false},
    {"half_format", NULL, false},
    {"device", NULL, false},
    {"seed", NULL, false},
    {"twin", NULL, false},
    {"machine", NULL, false},
    {"status", NULL, false},
    {"reason", NULL, false},
    {"math_mode", NULL, false},
    {"accumulate", NULL, false},
    {"emulated", NULL, false},
    {"config.batch", "batch", true},
    {"config.threads", "threads", true},
    {"steps_total", NULL, false},
    {"steps_applied", NULL, false},
    {"steps_skipped", NULL, false},
    {"first_skipped_step", NULL, false},
    {"nonfinite_losses", NULL, false},
    {"deterministic", NULL, false},
    {"loss_digest", NULL, false},
    {"test_accuracy", NULL, false},
    {"test_loss", NULL, false},
    {"test_count", NULL, false},
    {"summary.loss_final", NULL, false},
    {"summary.loss_gap", NULL, false},
    {"noise_floor.loss_gap", "noise_floor_loss_gap", true},
    {"rounding_floor.loss_gap", "rounding_floor_loss_gap", true},
    {"noise_floor.chance_gap", "noise_floor_chance_gap", true},
    {"rounding_floor.chance_gap", "rounding_floor_chance_gap", true},
    {"summary.step_time_ns", NULL, false},
    {"summary.step_time_ns_low", NULL, false},
    {"summary.step_time_ns_high", NULL, false},
    {"summary.samples_per_s", NULL, false},
    {"summary.ratio_samples_to_o0", NULL, false},
    {"summary.ratio_samples_to_o0_reason", NULL, false},
    {"summary.peak_bytes", NULL, false},
    {"summary.ratio_bytes_to_o0", NULL, false},
    {"summary.skipped_share", NULL, false},
    {"summary.flushed_share", NULL, false},
    {"summary.flushed_modelled", NULL, false},
    {"summary.overflowed", NULL, false},
    {"summary.worst_layer", NULL, false},
    {"summary.worst_layer_flushed_share", NULL, false},
    {"summary.baseline_learned", "baseline_learned", false},
    {"summary.certificate.passed", "certificate_passed", false},
    {"summary.certificate.reasons", "certificate_reasons", false},
    {"summary.lost_share", NULL, false},
    {"generator.build_type", "build_type", true},
    {"generator.flags", "build_flags", true},
    {"generator.onednn_version", "onednn_version", true},
    {"summary.flushed_share_low", NULL, false},
    {"summary.flushed_share_high", NULL, false},
    {"label", NULL, false}, /* of every cell: ab_cell_label */
    {"summary.worst_layer_flushed_share_low", NULL, false},
    {"summary.worst_layer_flushed_share_high", NULL, false},
    {"summary.lost_share_low", NULL, false},
    {"summary.lost_share_high", NULL, false},
};

/* OWASP's list of first characters ("CSV Injection"); their full-width forms count in East Asian editions. */
static bool is_formula(const char *text) {
    static const char *const wide[] = {"\xef\xbc\x9d", "\xef\xbc\x8b", "\xef\xbc\x8d", "\xef\xbc\xa0"};
    bool starts = *text && strchr("=+-@", *text);
    for (size_t i = 0; i < AB_COUNT_OF(wide); i++) starts = starts || strncmp(text, wide[i], 3) == 0;
    return starts;
}

static void print_text(const char *text, FILE *out) {
    bool quoted = strpbrk(text, "\",") || is_formula(text);
    if (quoted) fputc('"', out);
    if (is_formula(text)) fputc('\'', out);
    for (; *text; text++) {
        if (*text == '"') fputc('"', out);
        fputc(*text, out);
    }
    if (quoted) fputc('"', out);
}

/* Cleaning removes line breaks from a field, since many CSV readers work line by line. It never lengthens
 * a text. */
static ab_status print_clean(const char *text, FILE *out) {
    const size_t size = strlen(text) + 1;
    char *clean = malloc(size);
    if (!clean) return ab_fail(AB_NO_MEMORY, "csv: out of memory");
    print_text(ab_text_clean(clean, size, text), out);
    free(clean);
    return AB_OK;
}

static ab_status print_list(const cJSON *list, FILE *out) {
    const cJSON *item;
    char *joined = ab_text_new("%s", "");
    cJSON_ArrayForEach(item, list) {
        const char *text = cJSON_IsString(item) ? item->valuestring : "?";
        char *more = joined ? ab_text_new("%s%s%s", joined, item == list->child ? "" : "; ", text) : NULL;
        free(joined);
        joined = more;
    }
    ab_status status = joined ? print_clean(joined, out) : ab_fail(AB_NO_MEMORY, "csv: out of memory");
    free(joined);
    return status;
}

static ab_status print_value(const cJSON *value, FILE *out) {
    if (cJSON_IsNumber(value))
        ab_json_print_number(value->valuedouble, out);
    else if (cJSON_IsBool(value))
        fputs(cJSON_IsTrue(value) ? "true" : "false", out);
    else if (cJSON_IsString(value))
        return print_clean(value->valuestring, out);
    else if (cJSON_IsArray(value))
        return print_list(value, out);
    return AB_OK;
}

static const char *heading(const column *c) {
    const char *dot = strrchr(c->path, '.');
    return c->name ? c->name : dot ? dot + 1 : c->path;
}

static void print_head(FILE *out) {
    for (size_t i = 0; i < AB_COUNT_OF(columns); i++) fprintf(out, i ? ",%s" : "%s", heading(&columns[i]));
    for (int i = 0; i < AB_MEM_CATEGORY_COUNT; i++)
        fprintf(out, ",%s_bytes", ab_mem_category_name((ab_mem_category)i));
    fputs("\r\n", out);
}

static ab_status print_row(const cJSON *document, const cJSON *cell, FILE *out) {
    const cJSON *memory = ab_json_at(cell, "memory_bytes");
    for (size_t i = 0; i < AB_COUNT_OF(columns); i++) {
        if (i > 0) fputc(',', out);
        if (strcmp(columns[i].path, "label") == 0)
            AB_TRY(print_clean(ab_cell_label(cell), out));
        else
            AB_TRY(print_value(ab_json_at(columns[i].of_document ? document : cell, columns[i].path), out));
    }
    for (int i = 0; i < AB_MEM_CATEGORY_COUNT; i++) {
        fputc(',', out);
        AB_TRY(print_value(ab_json_at(memory, ab_mem_category_name((ab_mem_category)i)), out));
    }
    fputs("\r\n", out);
    return AB_OK;
}

static ab_status write_csv(const cJSON *document, FILE *out, int color) {
    (void)color;
    const cJSON *cell, *cells = ab_json_at(document, "cells");
    print_head(out);
    cJSON_ArrayForEach(cell, cells) AB_TRY(print_row(document, cell, out));
    return AB_OK;
}

extern const ab_report ab_report_csv;
const ab_report ab_report_csv = {"csv", "one row per cell, machine names (RFC 4180)", write_csv};
