/* A log as a document. */
#include "bench/ingest/log/facts.h"
#include "bench/ingest/log/format.h"

#include <math.h>
#include <stdlib.h>

/* ---- points ------------------------------------------------------------------------------------ */

/* JSON has no infinity and no NaN: they are texts, as in result documents. */
static cJSON *number(double value) {
    if (isnan(value)) return cJSON_CreateString("nan");
    if (isinf(value)) return cJSON_CreateString(value > 0 ? "inf" : "-inf");
    return cJSON_CreateNumber(value);
}

static cJSON *column(const ab_log *log, ab_log_field field) {
    cJSON *list = cJSON_CreateArray();
    for (int i = 0; i < log->points; i++)
        cJSON_AddItemToArray(list, ab_log_said(&log->point[i], field) ? number(log->point[i].value[field])
                                                                      : cJSON_CreateNull());
    return list;
}

static cJSON *points(const ab_log *log) {
    cJSON *object = cJSON_CreateObject(), *lines = cJSON_AddArrayToObject(object, "line");
    uint32_t any = 0;
    for (int i = 0; i < log->points; i++) {
        cJSON_AddItemToArray(lines, cJSON_CreateNumber((double)log->point[i].line));
        any |= log->point[i].has;
    }
    for (int field = 0; field < AB_LOG_FIELDS; field++)
        if (any >> field & 1u)
            cJSON_AddItemToObject(object, ab_log_field_name(field), column(log, (ab_log_field)field));
    return object;
}

/* ---- histograms -------------------------------------------------------------------------------- */

static cJSON *exponents(const ab_log_histogram *h) {
    cJSON *list = cJSON_CreateArray();
    for (int i = 0; i < AB_LOG_EXPONENTS; i++) {
        if (h->count[i] == 0) continue;
        cJSON *pair = cJSON_CreateArray();
        cJSON_AddItemToArray(pair, cJSON_CreateNumber(i + AB_LOG_EXPONENT_LOW));
        cJSON_AddItemToArray(pair, cJSON_CreateNumber(h->count[i]));
        cJSON_AddItemToArray(list, pair);
    }
    return list;
}

static cJSON *histograms(const ab_log *log) {
    cJSON *list = cJSON_CreateArray();
    for (int i = 0; i < log->histograms; i++) {
        const ab_log_histogram *h = &log->histogram[i];
        cJSON *object = cJSON_CreateObject();
        cJSON_AddStringToObject(object, "tag", h->tag);
        cJSON_AddNumberToObject(object, "step", h->step);
        cJSON_AddItemToObject(object, "min", number(h->min));
        cJSON_AddItemToObject(object, "max", number(h->max));
        cJSON_AddItemToObject(object, "count", number(h->total));
        if (h->exponential) {
            cJSON_AddItemToObject(object, "exponents", exponents(h));
            cJSON_AddNumberToObject(object, "below", h->below);
            cJSON_AddNumberToObject(object, "straddling", h->straddling);
        }
        cJSON_AddItemToArray(list, object);
    }
    return list;
}

/* ---- the document ------------------------------------------------------------------------------ */

static void add_totals(const ab_log *log, cJSON *object) {
    const ab_log_totals t = ab_log_total(log);
    const struct {
        const char *name;
        double value;
    } numbers[] = {{"first_step", t.first_step},   {"last_step", t.last_step},
                   {"first_scale", t.first_scale}, {"last_scale", t.last_scale},
                   {"least_scale", t.least_scale}, {"largest_scale", t.largest_scale},
                   {"skipped", t.skipped},         {"overflow_lines", (double)t.overflows},
                   {"losses", t.losses},           {"losses_nonfinite", t.nonfinite_losses},
                   {"grad_norms", t.norms},        {"grad_norms_nonfinite", t.nonfinite_norms}};
    cJSON *totals = cJSON_AddObjectToObject(object, "totals");
    for (size_t i = 0; i < AB_COUNT_OF(numbers); i++)
        if (!isnan(numbers[i].value))
            cJSON_AddItemToObject(totals, numbers[i].name, number(numbers[i].value));
}

static void add_facts(const ab_log *log, cJSON *object) {
    const ab_log_facts f = ab_log_facts_of(log);
    const struct {
        const char *name;
        double value;
    } numbers[] = {{"steps", f.steps},
                   {"skipped", f.skipped},
                   {"skips_later", f.skips_later},
                   {"steps_later", f.steps_later},
                   {"skips_at_end", f.skips_at_end},
                   {"skips_in_a_row", f.skips_in_a_row},
                   {"floor_skips", f.floor_skips},
                   {"skips_line", (double)f.skips_line},
                   {"runaway_scale", f.runaway_scale},
                   {"runaway_from", f.runaway_from},
                   {"runaway_line", (double)f.runaway_line},
                   {"hidden_nans", f.hidden_nans},
                   {"hidden_line", (double)f.hidden_line},
                   {"nonfinite_losses", f.nonfinite_losses},
                   {"nonfinite_line", (double)f.nonfinite_line},
                   {"resets", f.resets},
                   {"reset_from", f.reset_from},
                   {"reset_to", f.reset_to},
                   {"reset_step", f.reset_step},
                   {"reset_line", (double)f.reset_line},
                   {"skipped_intervals", f.skipped_intervals},
                   {"rate_moved", f.rate_moved},
                   {"rate_line", (double)f.rate_line},
                   {"spike", f.spike},
                   {"spike_after_fall", f.spike_before},
                   {"spike_line", (double)f.spike_line}};
    cJSON *facts = cJSON_AddObjectToObject(object, "facts");
    for (size_t i = 0; i < AB_COUNT_OF(numbers); i++)
        if (!isnan(numbers[i].value)) cJSON_AddItemToObject(facts, numbers[i].name, number(numbers[i].value));
}

/* The least magnitude that overflows fp16: half an ulp above the largest number. */
static const double fp16_limit = 65520;

static cJSON *number_or_null(double value) {
    return isnan(value) || isinf(value) ? cJSON_CreateNull() : number(value);
}

static void add_bound(cJSON *list, const ab_log_bracket *b) {
    cJSON *row = cJSON_CreateArray();
    cJSON_AddItemToArray(row, number_or_null(b->step));
    cJSON_AddItemToArray(row, number(b->low));
    cJSON_AddItemToArray(row, number_or_null(b->high));
    cJSON_AddItemToArray(list, row);
}

static void add_brackets(const ab_log *log, cJSON *object) {
    enum { MOST = 4096 };
    ab_log_bracket *bracket = calloc(MOST, sizeof *bracket);
    cJSON *list = cJSON_AddArrayToObject(object, "largest_gradient");
    if (!bracket) return;
    const int count = ab_log_brackets(log, fp16_limit, bracket, MOST);
    for (int i = 0; i < count && i < MOST; i++) add_bound(list, &bracket[i]);
    cJSON_AddNumberToObject(object, "largest_gradient_left_out", count > MOST ? count - MOST : 0);
    free(bracket);
}

cJSON *ab_log_json(const ab_log *log, const char *const *path, int paths) {
    cJSON *object = cJSON_CreateObject(), *files = cJSON_AddArrayToObject(object, "files"),
          *formats = cJSON_AddObjectToObject(object, "formats");
    for (int i = 0; i < paths; i++) cJSON_AddItemToArray(files, cJSON_CreateString(path[i]));
    for (int i = 0; i < ab_log_format_count(); i++)
        if (log->format_lines[i] > 0)
            cJSON_AddNumberToObject(formats, ab_log_format_name(i), (double)log->format_lines[i]);
    cJSON_AddStringToObject(object, "reader", log->reader ? log->reader : "lines");
    cJSON_AddNumberToObject(object, "bytes", (double)log->bytes);
    cJSON_AddNumberToObject(object, "lines", (double)log->lines);
    cJSON_AddNumberToObject(object, "left_out", (double)log->left_out);
    cJSON_AddNumberToObject(object, "other_ranks", (double)log->other_ranks);
    cJSON_AddNumberToObject(object, "ranks",
                            log->copies > 1       ? log->copies
                            : log->rank_high >= 0 ? log->rank_high + 1
                                                  : 1);
    cJSON_AddBoolToObject(object, "cut", log->cut);
    add_totals(log, object);
    add_facts(log, object);
    add_brackets(log, object);
    cJSON_AddItemToObject(object, "points", points(log));
    if (log->histograms) cJSON_AddItemToObject(object, "histograms", histograms(log));
    return object;
}
