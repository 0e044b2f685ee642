/* Pairs cells by seed and tests their differences. */
#include "reports/compare/equivalence.h"

#include "kernels/core/show.h"
#include "kernels/core/text.h"
#include "reports/record/cells.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SEEDS = 1000, TEXT = 500 };

ab_equivalence_options ab_equivalence_options_standard(void) {
    return (ab_equivalence_options){.loss_margin = 0.05, .accuracy_margin = 0.01, .alpha = 0.05};
}

/* Paired values by seed, and the number of missing ones. */
typedef struct pairs {
    int n, lost;     /* lost: the base has a value and the candidate has none */
    int unlearned;   /* pairs whose O0 learned nothing */
    const char *why; /* what its record says of that; borrowed */
    double base[MAX_SEEDS], difference[MAX_SEEDS];
} pairs;

/* A cell that has a base, and its series. */
typedef struct member {
    const cJSON *cell, *base;
    char *series; /* all parts of its id except the seed; owned */
    int index;    /* among the members */
    int first;    /* index of the first member of the series */
} member;

/* Returns an allocated string; NULL: out of memory. */
static char *series_name(const cJSON *cell) {
    return ab_text_new("%s/%s/%s/%s/%s", ab_json_text(cell, "model", ""), ab_cell_label(cell),
                       ab_json_text(cell, "scale_policy", ""), ab_json_text(cell, "half_format", ""),
                       ab_json_text(cell, "device", ""));
}

/* other: of another document; its document is NULL if the cells of `base` are compared with their O0. */
static const cJSON *base_of(const ab_cells *base, const ab_cells *other, const cJSON *cell) {
    const cJSON *found = other->document ? ab_cells_like(base, cell) : ab_cells_baseline(base, cell);
    return found == cell || cJSON_IsString(ab_json_at(cell, "twin")) ? NULL : found;
}

static void add_pair(pairs *p, const cJSON *a, const cJSON *b) {
    if (!cJSON_IsNumber(a) || p->n == MAX_SEEDS) return;
    if (!cJSON_IsNumber(b)) {
        p->lost++;
        return;
    }
    p->base[p->n] = a->valuedouble;
    p->difference[p->n++] = b->valuedouble - a->valuedouble;
}

static void collect(pairs *p, const member *list, int count, const char *metric) {
    p->n = p->lost = p->unlearned = 0;
    p->why = "";
    for (int i = 0; i < count; i++) {
        add_pair(p, ab_json_at(list[i].base, metric), ab_json_at(list[i].cell, metric));
        if (!cJSON_IsFalse(ab_json_at(list[i].base, "summary.baseline_learned"))) continue;
        p->unlearned++;
        p->why = ab_json_text(list[i].base, "summary.baseline_learned_reason", "");
    }
}

static int by_series(const void *a, const void *b) {
    const member *x = a, *y = b;
    const int order = strcmp(x->series, y->series);
    return order ? order : x->index - y->index;
}

static int by_first(const void *a, const void *b) {
    const member *x = a, *y = b;
    return x->first != y->first ? x->first - y->first : x->index - y->index;
}

/* The cells that have a base, series by series: both in the order of the document. list[cells] is owned by
 * the caller, who frees it also after an error. */
static ab_status find_members(const ab_cells *base, const ab_cells *other, member *list, int *count) {
    const ab_cells *cells = other->document ? other : base;
    for (int i = 0; i < cells->count; i++) {
        const cJSON *cell = cells->cell[i], *found = base_of(base, other, cell);
        if (!found) continue;
        list[*count] = (member){cell, found, series_name(cell), *count, 0};
        if (!list[(*count)++].series) return ab_fail(AB_NO_MEMORY, "compare: out of memory");
    }
    qsort(list, (size_t)*count, sizeof *list, by_series);
    for (int i = 0; i < *count; i++) {
        const bool same = i > 0 && strcmp(list[i].series, list[i - 1].series) == 0;
        list[i].first = same ? list[i - 1].first : list[i].index;
    }
    qsort(list, (size_t)*count, sizeof *list, by_first);
    return AB_OK;
}

/* ---- results --------------------------------------------------------------------------------- */

typedef struct measure {
    const char *metric, *what, *unit;
    double scale; /* factor to the displayed unit */
} measure;

static const measure loss = {"summary.loss_final", "final loss", "", 1};
static const measure accuracy = {"test_accuracy", "test accuracy", " points", 100};

static const char *verdict_of(const pairs *p, const ab_tost *t, double margin) {
    if (p->lost > 0) return "failed";
    if (p->n < 2 || p->unlearned > 0) return "unclear";
    if (t->equivalent) return "equivalent";
    return t->low > margin || t->high < -margin ? "different" : "unclear";
}

static void describe(char text[TEXT], const measure *m, const pairs *p, const ab_tost *t, double margin,
                     const ab_equivalence_options *options) {
    double s = m->scale, confidence = 100 * (1 - 2 * options->alpha);
    char advice[160] = "";
    const char *verdict = verdict_of(p, t, margin);
    if (p->lost > 0) {
        ab_text_show(text, TEXT, "not equivalent: %d of %d seeds have no %s where the base has one", p->lost,
                     p->lost + p->n, m->what);
        return;
    }
    if (p->n < 2) {
        ab_text_show(text, TEXT, "%d seed says nothing about others: train with --seeds 5", p->n);
        return;
    }
    if (p->unlearned > 0) {
        ab_text_show(text, TEXT, "cannot tell: at %d of %d seeds there is nothing to compare with: %s",
                     p->unlearned, p->n, ab_text_brief(p->why, 150));
        return;
    }
    bool unclear = strcmp(verdict, "unclear") == 0;
    if (unclear && t->n_needed > p->n)
        ab_text_show(advice, sizeof advice, "; about %d seeds would show it with a power of 80 %%",
                     t->n_needed);
    ab_text_show(text, TEXT,
                 "%s: over %d seeds the %s changes by %+.4g%s on average, %.0f %% interval %+.4g to %+.4g, "
                 "margin %.4g (p = %.2g); "
                 "the power to find equivalence is %.0f %%%s%s",
                 unclear                             ? "cannot tell"
                 : strcmp(verdict, "different") == 0 ? "not equivalent"
                 : t->different                      ? "equivalent, with a small but real difference"
                                                     : "equivalent",
                 p->n, m->what, s * t->mean, m->unit, confidence, s * t->low, s * t->high, s * margin, t->p,
                 100 * t->power, advice,
                 unclear && t->n_needed == 0 ? "; no number of seeds up to 1000 would show it" : "");
}

static double shown(double x) {
    char text[40];
    ab_text_show(text, sizeof text, "%.4g", x);
    double value = 0;
    return sscanf(text, "%lf", &value) == 1 ? value : 0;
}

static void add_entry(cJSON *result, const char *series, const measure *m, const pairs *p, double margin,
                      const ab_equivalence_options *options) {
    ab_tost t = {.n = p->n};
    char text[TEXT];
    cJSON *entry = cJSON_CreateObject();
    if (p->n >= 2) ab_tost_paired(p->difference, p->n, margin, options->alpha, &t);
    describe(text, m, p, &t, margin, options);
    cJSON_AddItemToArray(result, entry);
    cJSON_AddStringToObject(entry, "metric",
                            strcmp(m->metric, "test_accuracy") == 0 ? m->metric : "loss_final");
    cJSON_AddStringToObject(entry, "series", series);
    cJSON_AddNumberToObject(entry, "n", p->n);
    cJSON_AddNumberToObject(entry, "lost", p->lost);
    cJSON_AddItemToObject(entry, "difference", cJSON_CreateDoubleArray(p->difference, p->n));
    cJSON_AddNumberToObject(entry, "alpha", options->alpha);
    cJSON_AddNumberToObject(entry, "margin", margin);
    if (p->n >= 2) {
        cJSON_AddNumberToObject(entry, "mean", t.mean);
        cJSON_AddNumberToObject(entry, "sd", t.sd);
        cJSON_AddNumberToObject(entry, "low", t.low);
        cJSON_AddNumberToObject(entry, "high", t.high);
        cJSON_AddNumberToObject(entry, "p", t.p);
        cJSON_AddNumberToObject(entry, "power", shown(t.power));
        cJSON_AddNumberToObject(entry, "n_needed", t.n_needed);
    }
    cJSON_AddStringToObject(entry, "verdict", verdict_of(p, &t, margin));
    cJSON_AddStringToObject(entry, "text", text);
}

static void judge_series(cJSON *result, const member *list, int count, pairs *p,
                         const ab_equivalence_options *options) {
    double sum = 0;
    collect(p, list, count, loss.metric);
    for (int i = 0; i < p->n; i++) sum += fabs(p->base[i]);
    add_entry(result, list->series, &loss, p, p->n ? options->loss_margin * (sum / p->n) : 0, options);
    collect(p, list, count, accuracy.metric);
    if (p->n + p->lost > 0) add_entry(result, list->series, &accuracy, p, options->accuracy_margin, options);
}

static ab_status judge_all(const ab_cells *base, const ab_cells *other, const ab_equivalence_options *options,
                           cJSON *result) {
    static _Thread_local pairs p;
    int count = 0;
    member *list = calloc((size_t)(other->document ? other : base)->count + 1, sizeof *list);
    if (!list) return ab_fail(AB_NO_MEMORY, "compare: out of memory");
    ab_status status = find_members(base, other, list, &count);
    for (int i = 0, end; status == AB_OK && i < count; i = end) {
        for (end = i + 1; end < count && list[end].first == list[i].first;) end++;
        judge_series(result, &list[i], end - i, &p, options);
    }
    for (int i = 0; i < count; i++) free(list[i].series);
    free(list);
    return status;
}

/* Subnormals as zeros are other arithmetic, not another seed. */
static ab_status check_arithmetic(const cJSON *base, const cJSON *other) {
    const bool flushed = ab_json_is_true(base, "config.flush_denormal");
    if (!other || flushed == ab_json_is_true(other, "config.flush_denormal")) return AB_OK;
    return ab_fail(
        AB_NOT_COMPARABLE,
        "compare: the %s result was computed with --flush-denormal (subnormal numbers as zeros), the "
        "%s one without: run both alike",
        flushed ? "first" : "second", flushed ? "second" : "first");
}

ab_status ab_equivalence(const cJSON *base, const cJSON *other, const ab_equivalence_options *options,
                         cJSON **result) {
    ab_cells bases, others = {.count = 0};
    *result = cJSON_CreateArray();
    if (!*result) return ab_fail(AB_NO_MEMORY, "compare: out of memory");
    AB_TRY(check_arithmetic(base, other));
    ab_status status = ab_cells_create(base, &bases);
    if (status == AB_OK) status = ab_cells_create(other, &others);
    if (status == AB_OK) status = judge_all(&bases, &others, options, *result);
    ab_cells_free(&bases);
    ab_cells_free(&others);
    return status;
}

void ab_equivalence_print(const cJSON *result, FILE *out) {
    const cJSON *entry;
    char clean[TEXT];
    const char *last = "";
    cJSON_ArrayForEach(entry, result) {
        const char *series = ab_json_text(entry, "series", "");
        if (strcmp(series, last) != 0) ab_print(out, "%s\n", ab_text_clean(clean, sizeof clean, series));
        last = series;
        ab_print(out, "  %-13s %s\n", ab_json_text(entry, "metric", ""),
                 ab_text_clean(clean, sizeof clean, ab_json_text(entry, "text", "")));
    }
}
