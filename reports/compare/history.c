/* Collects and sorts runs, splits them into series and finds changes. */
#include "reports/compare/history.h"

#include "kernels/core/text.h"
#include "reports/record/build.h"
#include "reports/record/cells.h"
#include "reports/record/json.h"
#include "reports/record/summary.h"
#include "reports/record/text.h"
#include "reports/stats/changes.h"
#include "reports/stats/stats.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { SETTINGS = 200 };

typedef struct metric {
    const char *name, *path; /* path: in a cell */
    bool exact, more_is_better;
    bool rounds; /* rounding alone changes it: differences within the noise floor are none */
} metric;

static const metric metrics[] = {
    {"step_time_ns", "summary.step_time_ns", false, false, false},
    {"peak_bytes", "summary.peak_bytes", true, false, false},
    {"loss_final", "summary.loss_final", true, false, true},
    {"test_accuracy", "test_accuracy", true, true, false},
    {"steps_skipped", "steps_skipped", true, false, false},
};

enum { METRICS = sizeof metrics / sizeof *metrics };

/* One cell of one run; texts are cleaned, not truncated, and owned. */
enum { CELL, KEY, STARTED, RUN, SHA, LABEL, SETTINGS_OF_RUN, TEXTS };
typedef struct entry {
    char *text[TEXTS];
    uint64_t settings_digest; /* of all settings; the text shows only a few */
    double value[METRICS];    /* NAN: missing */
    double floor;             /* what chance does to the final loss of the cell */
} entry;

struct ab_history {
    int count, room, runs;
    entry *entry;
};

static void clear(entry *e) {
    for (int i = 0; i < TEXTS; i++) free(e->text[i]);
}

ab_status ab_history_create(ab_history **history) {
    *history = calloc(1, sizeof **history);
    return *history ? AB_OK : ab_fail(AB_NO_MEMORY, "out of memory for the history");
}

void ab_history_destroy(ab_history *history) {
    for (int i = 0; history && i < history->count; i++) clear(&history->entry[i]);
    if (history) free(history->entry);
    free(history);
}

/* ---- collecting ------------------------------------------------------------------------------ */

static void describe(const cJSON *document, char *text) {
    char data[40], optimizer[24], build[AB_BUILD_TEXT];
    const cJSON *config = ab_json_at(document, "config");
    const char *slow = ab_build_slow(ab_json_at(document, "generator"), build);
    ab_text_show(text, SETTINGS, "%s, batch %.0f, %.0f steps, %s lr %g, seed %.0f, %.0f thread%s",
                 ab_text_clean(data, sizeof data, ab_json_text(config, "data", "?")),
                 ab_json_number(config, "batch", 0), ab_json_number(config, "steps", 0),
                 ab_text_clean(optimizer, sizeof optimizer, ab_json_text(config, "optimizer", "?")),
                 ab_json_number(config, "lr", 0), ab_json_number(config, "seed", 0),
                 ab_json_number(config, "threads", 0), ab_json_number(config, "threads", 0) == 1 ? "" : "s");
    if (slow[0]) ab_text_append(text, SETTINGS, ", speeds of %s", slow);
}

/* The noise floor of O0; a half level also rounds, which the rounding floor covers. 0: not measured. */
static double floor_of(const cJSON *document, const cJSON *cell) {
    const ab_floors floors = ab_summary_floors(document);
    const bool o0 = strcmp(ab_json_text(cell, "level", ""), "O0") == 0;
    return o0 ? floors.noise : fmax(floors.noise, floors.rounding);
}

static ab_status fill(const cJSON *document, const cJSON *cell, entry *e) {
    char settings[SETTINGS];
    describe(document, settings);
    const char *const texts[TEXTS] = {[CELL] = ab_json_text(cell, "id", "?"),
                                      [KEY] = ab_json_text(document, "comparability_key", "?"),
                                      [STARTED] = ab_json_text(document, "run.started_utc", "?"),
                                      [RUN] = ab_json_text(document, "run.id", "?"),
                                      [SHA] = ab_json_text(document, "generator.git_sha", ""),
                                      [LABEL] = ab_json_text(document, "run.label", ""),
                                      [SETTINGS_OF_RUN] = settings};
    for (int i = 0; i < TEXTS; i++) {
        const size_t size = strlen(texts[i]) + 1; /* cleaning never lengthens a text */
        e->text[i] = malloc(size);
        if (!e->text[i]) return ab_fail(AB_NO_MEMORY, "out of memory for the history");
        ab_text_clean(e->text[i], size, texts[i]);
    }
    e->floor = floor_of(document, cell);
    e->settings_digest = ab_settings_digest(ab_json_at(document, "config"));
    for (int i = 0; i < METRICS; i++) e->value[i] = ab_json_number(cell, metrics[i].path, (double)NAN);
    return AB_OK;
}

static ab_status append(ab_history *h, const entry *e) {
    if (h->count == h->room) {
        int room = 2 * h->room + 64;
        entry *list = realloc(h->entry, (size_t)room * sizeof *list);
        if (!list) return ab_fail(AB_NO_MEMORY, "out of memory for the history");
        h->entry = list;
        h->room = room;
    }
    h->entry[h->count++] = *e;
    return AB_OK;
}

static bool is_known(const ab_history *h, const entry *e) {
    for (int i = 0; i < h->count; i++)
        if (strcmp(h->entry[i].text[RUN], e->text[RUN]) == 0 &&
            strcmp(h->entry[i].text[STARTED], e->text[STARTED]) == 0)
            return true;
    return false;
}

ab_status ab_history_add(ab_history *history, const cJSON *document, int *added) {
    const cJSON *cell;
    int before = history->count;
    bool known = false;
    *added = 0;
    cJSON_ArrayForEach(cell, ab_json_at(document, "cells")) {
        entry e = {{NULL}, 0, {0}, 0};
        bool done = strcmp(ab_json_text(cell, "status", ""), "ok") == 0;
        if (!done || cJSON_IsString(ab_json_at(cell, "twin"))) continue;
        ab_status status = fill(document, cell, &e);
        if (status == AB_OK && history->count == before) known = is_known(history, &e);
        if (status == AB_OK && !known) status = append(history, &e);
        if (status != AB_OK || known) {
            clear(&e);
            return status;
        }
    }
    *added = history->count - before;
    history->runs += *added > 0;
    return AB_OK;
}

/* ---- series ---------------------------------------------------------------------------------- */

static int compare_series(const entry *a, const entry *b) {
    int order = strcmp(a->text[KEY], b->text[KEY]);
    if (order == 0) order = strcmp(a->text[SETTINGS_OF_RUN], b->text[SETTINGS_OF_RUN]);
    if (order == 0)
        order = (a->settings_digest > b->settings_digest) - (a->settings_digest < b->settings_digest);
    return order ? order : strcmp(a->text[CELL], b->text[CELL]);
}

static int compare_entries(const void *x, const void *y) {
    const entry *a = x, *b = y;
    int order = compare_series(a, b);
    if (order == 0) order = strcmp(a->text[STARTED], b->text[STARTED]);
    return order ? order : strcmp(a->text[RUN], b->text[RUN]);
}

/* The points of one metric of one series, without gaps. */
typedef struct series {
    const metric *metric;
    int count, segments;
    const entry **at;
    double *value;
    ab_segment *segment;
    double floor; /* differences up to it are chance */
    int distinct; /* runs of equal values */
} series;

static void collect(const entry *first, int count, int which, series *s) {
    s->metric = &metrics[which];
    s->count = s->segments = s->distinct = 0;
    s->floor = 0;
    if (count > AB_CHANGES_MOST) { /* keep the latest */
        first += count - AB_CHANGES_MOST;
        count = AB_CHANGES_MOST;
    }
    for (int i = 0; i < count; i++) {
        double value = first[i].value[which];
        if (!isfinite(value) || (!metrics[which].exact && value <= 0)) continue;
        if (s->metric->rounds) s->floor = fmax(s->floor, first[i].floor);
        s->at[s->count] = &first[i];
        s->value[s->count++] = value;
    }
}

/* Joins segments whose values stay within the floor of the first of them, and takes their median. */
static ab_status join_chance(series *s) {
    int kept = 0;
    double *copy = malloc(((size_t)s->count + 1) * sizeof *copy);
    if (!copy) return ab_fail(AB_NO_MEMORY, "out of memory for the history");
    for (int i = 1; i < s->segments; i++) {
        if (fabs(s->segment[i].median - s->value[s->segment[kept].first]) <= s->floor)
            s->segment[kept].count += s->segment[i].count;
        else
            s->segment[++kept] = s->segment[i];
    }
    s->segments = kept + 1;
    for (int i = 0; i < s->segments; i++) {
        ab_segment *segment = &s->segment[i];
        memcpy(copy, s->value + segment->first, (size_t)segment->count * sizeof *copy);
        segment->median = ab_stats_median(copy, segment->count);
    }
    free(copy);
    return AB_OK;
}

static ab_status search(series *s, double guard) {
    int segments = 0;
    if (s->metric->exact)
        ab_changes_exact(s->value, s->count, s->segment, &segments);
    else
        AB_TRY(ab_changes_find(s->value, s->count, guard, s->segment, &segments));
    s->segments = segments;
    if (!s->metric->exact) return AB_OK;
    s->distinct = segments;
    return s->floor > 0 ? join_chance(s) : AB_OK;
}

/* ---- as JSON --------------------------------------------------------------------------------- */

static cJSON *points_json(const series *s) {
    cJSON *list = cJSON_CreateArray();
    for (int i = 0; i < s->count; i++) {
        cJSON *point = cJSON_CreateObject();
        cJSON_AddStringToObject(point, "started_utc", s->at[i]->text[STARTED]);
        cJSON_AddStringToObject(point, "run", s->at[i]->text[RUN]);
        if (s->at[i]->text[SHA][0])
            cJSON_AddStringToObject(point, "git_sha", s->at[i]->text[SHA]);
        else
            cJSON_AddNullToObject(point, "git_sha");
        if (s->at[i]->text[LABEL][0]) cJSON_AddStringToObject(point, "label", s->at[i]->text[LABEL]);
        cJSON_AddNumberToObject(point, "value", s->value[i]);
        cJSON_AddItemToArray(list, point);
    }
    return list;
}

static cJSON *segments_json(const series *s) {
    cJSON *list = cJSON_CreateArray();
    for (int i = 0; i < s->segments; i++) {
        cJSON *segment = cJSON_CreateObject();
        cJSON_AddNumberToObject(segment, "first", s->segment[i].first);
        cJSON_AddNumberToObject(segment, "count", s->segment[i].count);
        cJSON_AddNumberToObject(segment, "median", s->segment[i].median);
        cJSON_AddItemToArray(list, segment);
    }
    return list;
}

static cJSON *changes_json(const series *s) {
    cJSON *list = cJSON_CreateArray();
    for (int i = 1; i < s->segments; i++) {
        double before = s->segment[i - 1].median, after = s->segment[i].median;
        cJSON *change = cJSON_CreateObject();
        const entry *at = s->at[s->segment[i].first];
        cJSON_AddNumberToObject(change, "index", s->segment[i].first);
        cJSON_AddStringToObject(change, "started_utc", at->text[STARTED]);
        cJSON_AddStringToObject(change, "run", at->text[RUN]);
        cJSON_AddNumberToObject(change, "before", before);
        cJSON_AddNumberToObject(change, "after", after);
        if (before != 0)
            cJSON_AddNumberToObject(change, "percent", 100 * (after - before) / fabs(before));
        else
            cJSON_AddNullToObject(change, "percent");
        cJSON_AddBoolToObject(change, "better", (after > before) == s->metric->more_is_better);
        cJSON_AddItemToArray(list, change);
    }
    return list;
}

static cJSON *series_json(const series *s) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "cell", s->at[0]->text[CELL]);
    cJSON_AddStringToObject(object, "settings", s->at[0]->text[SETTINGS_OF_RUN]);
    cJSON_AddStringToObject(object, "comparability_key", s->at[0]->text[KEY]);
    cJSON_AddStringToObject(object, "metric", s->metric->name);
    cJSON_AddBoolToObject(object, "exact", s->metric->exact);
    if (s->floor > 0) {
        cJSON_AddNumberToObject(object, "noise_floor", s->floor);
        cJSON_AddNumberToObject(object, "within_noise", s->distinct - s->segments);
    }
    cJSON_AddItemToObject(object, "points", points_json(s));
    cJSON_AddItemToObject(object, "segments", segments_json(s));
    cJSON_AddItemToObject(object, "changes", changes_json(s));
    return object;
}

/* All metrics of the entries first[0..count), which are one cell. */
static ab_status add_series(const entry *first, int count, double guard, series *s, cJSON *list) {
    for (int i = 0; i < METRICS; i++) {
        collect(first, count, i, s);
        if (s->count == 0) continue;
        AB_TRY(search(s, guard));
        cJSON_AddItemToArray(list, series_json(s));
    }
    return AB_OK;
}

static ab_status add_all(const ab_history *h, double guard, series *s, cJSON *list) {
    for (int i = 0, end = 0; i < h->count; i = end) {
        while (end < h->count && compare_series(&h->entry[i], &h->entry[end]) == 0) end++;
        AB_TRY(add_series(&h->entry[i], end - i, guard, s, list));
    }
    return AB_OK;
}

ab_status ab_history_json(const ab_history *history, double guard, cJSON **json) {
    size_t room = (size_t)history->count + 2;
    series s = {.at = malloc(room * sizeof *s.at),
                .value = malloc(room * sizeof *s.value),
                .segment = malloc(room * sizeof *s.segment)};
    cJSON *document = cJSON_CreateObject(), *list = cJSON_CreateArray();
    ab_status status = AB_OK;
    *json = NULL;
    if (!s.at || !s.value || !s.segment || !document || !list) {
        status = ab_fail(AB_NO_MEMORY, "out of memory for the history");
        goto out;
    }
    if (history->count > 0)
        qsort(history->entry, (size_t)history->count, sizeof *history->entry, compare_entries);
    cJSON_AddStringToObject(document, "schema", "ampbench-history");
    cJSON_AddStringToObject(document, "schema_version", "1.0.0");
    cJSON_AddNumberToObject(document, "runs", history->runs);
    cJSON_AddNumberToObject(document, "guard", guard);
    AB_TRY_GOTO(add_all(history, guard, &s, list));
    cJSON_AddItemToObject(document, "series", list);
    *json = document;
    document = list = NULL;
out:
    cJSON_Delete(document);
    cJSON_Delete(list);
    free(s.at);
    free(s.value);
    free(s.segment);
    return status;
}
