/* A value with exponent e is in [2^e, 2^(e+1)); a limit within such an octave leaves an interval. The
 * recorded extremes narrow it. */
#include "reports/inspect/recorded.h"

#include "kernels/core/show.h"
#include "kernels/core/text.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>
#include <string.h>

/* ---- intervals ------------------------------------------------------------------------------- */

/* Values up to the limit, a half of the smallest number of the format, become 0. */
ab_recorded_range ab_recorded_flushed(const cJSON *tensor, const ab_format *format, double scale) {
    const double limit = ab_format_flush_limit(format) / scale;
    const double least = ab_json_number(tensor, "min_abs", 0);
    int exponent = (int)ab_json_number(tensor, "exponents.first", 0);
    ab_recorded_range range = {0, 0};
    const cJSON *count;
    if (least > limit) return range;
    cJSON_ArrayForEach(count, ab_json_at(tensor, "exponents.counts")) {
        if (ldexp(1, exponent + 1) <= limit) range.low += count->valuedouble;
        if (ldexp(1, exponent) <= limit) range.high += count->valuedouble;
        exponent++;
    }
    if (least > 0 && range.low < 1 && range.high > 0) range.low = 1;
    return range;
}

/* Values from the limit on overflow. */
ab_recorded_range ab_recorded_overflowed(const cJSON *tensor, const ab_format *format, double scale) {
    const double limit = ab_format_overflow_limit(format) / scale;
    const double most = ab_json_number(tensor, "max_abs", (double)INFINITY);
    int exponent = (int)ab_json_number(tensor, "exponents.first", 0);
    ab_recorded_range range = {0, 0};
    const cJSON *count;
    if (most < limit) return range;
    cJSON_ArrayForEach(count, ab_json_at(tensor, "exponents.counts")) {
        if (ldexp(1, exponent) >= limit) range.low += count->valuedouble;
        if (ldexp(1, exponent + 1) > limit) range.high += count->valuedouble;
        exponent++;
    }
    if (isfinite(most) && range.low < 1 && range.high > 0) range.low = 1;
    return range;
}

/* ---- tensors of a document ------------------------------------------------------------------- */

typedef struct walk {
    const cJSON *document;
    const ab_inspect_question *question;
    ab_recorded_picks picks;
    const void *context;
    int seen;
} walk;

typedef void (*visitor)(const walk *w, const cJSON *cell, const char *list, const cJSON *tensor, void *to);

static bool is_o0(const cJSON *cell) { return strcmp(ab_json_text(cell, "level", ""), "O0") == 0; }

static bool has_o0(const cJSON *document) {
    const cJSON *cell;
    cJSON_ArrayForEach(cell, ab_json_at(document, "cells")) if (is_o0(cell)) return true;
    return false;
}

static void visit_list(walk *w, const cJSON *cell, const char *list, visitor visit, void *to) {
    char path[64];
    const cJSON *tensor;
    ab_text_exact(path, sizeof path, "probes.%s", list);
    cJSON_ArrayForEach(tensor, ab_json_at(cell, path)) {
        if (!ab_json_at(tensor, "exponents.counts") ||
            !w->picks(w->context, ab_json_text(tensor, "name", "")))
            continue;
        visit(w, cell, list, tensor, to);
        w->seen++;
    }
}

static ab_status visit_all(walk *w, visitor visit, void *to) {
    static const char *const lists[] = {"tensors", "activations", "weights", "optimizer_state"};
    const cJSON *cell;
    const bool only_o0 = has_o0(w->document);
    cJSON_ArrayForEach(cell, ab_json_at(w->document, "cells")) {
        if (cJSON_IsString(ab_json_at(cell, "twin")) || (only_o0 && !is_o0(cell))) continue;
        for (size_t i = 0; i < AB_COUNT_OF(lists); i++) visit_list(w, cell, lists[i], visit, to);
    }
    if (w->seen > 0) return AB_OK;
    return ab_fail(AB_INPUT,
                   "inspect: the document has no exponents of such a tensor; run with --probes gradients");
}

/* ---- text ------------------------------------------------------------------------------------ */

/* "0.12", or "0.10..0.31" in percent of the non-zero values. */
static void range_text(ab_recorded_range range, double all, char *text, size_t size) {
    char low[AB_TEXT_NUMBER], high[AB_TEXT_NUMBER];
    ab_text_percent(low, all > 0 ? range.low / all : 0);
    ab_text_percent(high, all > 0 ? range.high / all : 0);
    if (strcmp(low, high) == 0)
        ab_text_show(text, size, "%s", low);
    else
        ab_text_show(text, size, "%s..%s", low, high);
}

typedef struct page {
    FILE *out;
    const cJSON *cell; /* the last one printed */
} page;

static void print_head(const walk *w, const cJSON *cell, FILE *out) {
    char id[160];
    ab_print(out, "%s: recorded values times %.9g; of the non-zero ones flushed / overflowed, %%\n%-28s %12s",
             ab_text_clean(id, sizeof id, ab_json_text(cell, "id", "?")), (double)w->question->scale,
             "tensor", "non-zero");
    for (int i = 0; i < w->question->formats; i++) ab_print(out, "  %18s", w->question->format[i]->name);
    fputc('\n', out);
}

static void print_tensor(const walk *w, const cJSON *cell, const char *list, const cJSON *tensor, void *to) {
    page *p = to;
    char name[64], flushed[40], overflowed[40], both[96];
    const double all = ab_json_number(tensor, "nonzero", 0), scale = (double)w->question->scale;
    (void)list;
    if (p->cell != cell) print_head(w, cell, p->out);
    p->cell = cell;
    ab_text_elide(ab_text_clean(name, sizeof name, ab_json_text(tensor, "name", "?")), 28);
    ab_print(p->out, "%-28s %12.0f", name, all);
    for (int i = 0; i < w->question->formats; i++) {
        const ab_format *format = w->question->format[i];
        range_text(ab_recorded_flushed(tensor, format, scale), all, flushed, sizeof flushed);
        range_text(ab_recorded_overflowed(tensor, format, scale), all, overflowed, sizeof overflowed);
        ab_text_show(both, sizeof both, "%s / %s", flushed, overflowed);
        ab_print(p->out, "  %18s", both);
    }
    fputc('\n', p->out);
}

ab_status ab_recorded_print(const cJSON *document, const ab_inspect_question *question,
                            ab_recorded_picks picks, const void *context, FILE *out) {
    walk w = {document, question, picks, context, 0};
    page p = {out, NULL};
    AB_TRY(visit_all(&w, print_tensor, &p));
    fputs("\na..b: the limit lies within an octave of exponents, and the mantissas are not recorded: at "
          "least a, at "
          "most b.\nA dump of the tensor gives the exact share (`ampbench inspect FILE.npy`).\n",
          out);
    return AB_OK;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void add_range(cJSON *object, const char *key, ab_recorded_range range) {
    const double pair[2] = {range.low, range.high};
    cJSON_AddItemToObject(object, key, cJSON_CreateDoubleArray(pair, 2));
}

static void add_tensor(const walk *w, const cJSON *cell, const char *list, const cJSON *tensor, void *to) {
    cJSON *entry = cJSON_CreateObject();
    cJSON_AddStringToObject(entry, "cell", ab_json_text(cell, "id", ""));
    cJSON_AddStringToObject(entry, "list", list);
    cJSON_AddStringToObject(entry, "tensor", ab_json_text(tensor, "name", ""));
    cJSON_AddNumberToObject(entry, "nonzero", ab_json_number(tensor, "nonzero", 0));
    cJSON *formats = cJSON_AddArrayToObject(entry, "formats");
    for (int i = 0; i < w->question->formats; i++) {
        const ab_format *format = w->question->format[i];
        cJSON *one = cJSON_CreateObject();
        cJSON_AddStringToObject(one, "format", format->name);
        add_range(one, "flushed", ab_recorded_flushed(tensor, format, (double)w->question->scale));
        add_range(one, "overflowed", ab_recorded_overflowed(tensor, format, (double)w->question->scale));
        cJSON_AddItemToArray(formats, one);
    }
    cJSON_AddItemToArray(to, entry);
}

ab_status ab_recorded_json(const cJSON *document, const ab_inspect_question *question,
                           ab_recorded_picks picks, const void *context, cJSON **json) {
    walk w = {document, question, picks, context, 0};
    *json = cJSON_CreateObject();
    if (!*json) return ab_fail(AB_NO_MEMORY, "inspect: out of memory");
    cJSON_AddNumberToObject(*json, "scale", (double)question->scale);
    return visit_all(&w, add_tensor, cJSON_AddArrayToObject(*json, "recorded"));
}
