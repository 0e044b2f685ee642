/* Several runs in one document. */
#include "reports/record/overlay.h"

#include "kernels/core/text.h"
#include "reports/record/cells.h"
#include "reports/record/json.h"

#include <stdlib.h>
#include <string.h>

enum { LABEL = 200, VALUE = 80 };

bool ab_result_is_rank(const cJSON *document) { return ab_json_number(document, "probe.world", 1) > 1; }

static void name_cells(const cJSON *document, int index, const char *label) {
    cJSON *cell;
    cJSON_ArrayForEach(cell, cJSON_GetObjectItemCaseSensitive(document, "cells")) {
        cJSON *run = cJSON_AddObjectToObject(cell, "of_run");
        cJSON_AddNumberToObject(run, "index", index);
        cJSON_AddStringToObject(run, "label", label);
    }
}

static const char *label_of(const cJSON *document, const char *path) {
    return ab_json_text(document, "run.label", path);
}

static bool is_taken(const cJSON *document, const char *label) {
    const cJSON *cell;
    cJSON_ArrayForEach(cell, ab_json_at(document, "cells")) {
        if (strcmp(ab_json_text(cell, "of_run.label", ""), label) == 0) return true;
    }
    return false;
}

static void remove_twins(const cJSON *document) {
    cJSON *cells = cJSON_GetObjectItemCaseSensitive(document, "cells"), *next;
    for (cJSON *cell = cells ? cells->child : NULL; cell; cell = next) {
        next = cell->next;
        if (cJSON_IsString(ab_json_at(cell, "twin"))) cJSON_Delete(cJSON_DetachItemViaPointer(cells, cell));
    }
}

/* ---- differences of the settings ------------------------------------------------------------- */

static bool is_unset(const cJSON *value) {
    return !value || cJSON_IsNull(value) || cJSON_IsFalse(value) || (cJSON_IsArray(value) && !value->child);
}

static bool differs(const cJSON *a, const cJSON *b) {
    return !(is_unset(a) && is_unset(b)) && !cJSON_Compare(a, b, true);
}

static void append_value(char *text, size_t size, const cJSON *value) {
    char *printed = value ? cJSON_PrintUnformatted(value) : NULL;
    ab_text_append(text, size, "%s",
                   is_unset(value) ? "none"
                   : printed       ? ab_text_brief(printed, VALUE)
                                   : "?");
    cJSON_free(printed);
}

static void append_difference(char *text, size_t size, const char *key, const cJSON *here,
                              const cJSON *there) {
    ab_text_append(text, size, "%s%s ", text[0] ? ", " : "", key);
    append_value(text, size, there);
    ab_text_append(text, size, "%s", " instead of ");
    append_value(text, size, here);
}

/* "batch 32 instead of 16, ..."; "" if nothing that counts differs. */
static void list_differences(const cJSON *here, const cJSON *there, char *text, size_t size) {
    const cJSON *item, *mine = ab_json_at(here, "config"), *theirs = ab_json_at(there, "config");
    text[0] = '\0';
    cJSON_ArrayForEach(item, theirs) {
        const cJSON *other = cJSON_GetObjectItemCaseSensitive(mine, item->string);
        if (ab_setting_counts(item->string) && differs(other, item))
            append_difference(text, size, item->string, other, item);
    }
    cJSON_ArrayForEach(item, mine) {
        if (ab_setting_counts(item->string) && !cJSON_GetObjectItemCaseSensitive(theirs, item->string) &&
            !is_unset(item))
            append_difference(text, size, item->string, item, NULL);
    }
}

static void warn(cJSON *document, const char *label, const char *what, const char *text) {
    cJSON *warnings = cJSON_GetObjectItemCaseSensitive(document, "warnings");
    char *line = ab_text_new("run '%s' %s%s", label, what, text);
    if (cJSON_IsArray(warnings) && line) cJSON_AddItemToArray(warnings, cJSON_CreateString(line));
    free(line);
}

static void warn_of_differences(cJSON *document, const cJSON *other, const char *label) {
    char text[1024];
    list_differences(document, other, text, sizeof text);
    if (text[0]) warn(document, label, "was trained with other settings than the first: ", text);
    if (differs(ab_json_at(document, "comparability_key"), ab_json_at(other, "comparability_key")))
        warn(document, label, "is of another machine or build than the first, its speeds do not compare", "");
}

/* ---- the document ---------------------------------------------------------------------------- */

static bool is_same_run(const cJSON *a, const cJSON *b) {
    const char *id = ab_json_text(a, "run.id", "");
    return id[0] && strcmp(id, ab_json_text(b, "run.id", "")) == 0 &&
           strcmp(ab_json_text(a, "run.started_utc", ""), ab_json_text(b, "run.started_utc", "")) == 0;
}

ab_status ab_result_lay_over(cJSON *document, const char *path, int index, cJSON *other,
                             const char *other_path) {
    char label[LABEL];
    cJSON *cells = cJSON_GetObjectItemCaseSensitive(document, "cells");
    cJSON *theirs = cJSON_GetObjectItemCaseSensitive(other, "cells");
    if (is_same_run(document, other))
        return ab_fail(AB_INPUT, "%s: expected another run than that of '%s'", other_path, path);
    if (index == 1) name_cells(document, 0, label_of(document, path));
    ab_text_show(label, sizeof label, "%s", label_of(other, other_path));
    if (is_taken(document, label)) ab_text_append(label, sizeof label, " (%s)", other_path);
    remove_twins(other);
    name_cells(other, index, label);
    warn_of_differences(document, other, label);
    while (theirs && theirs->child)
        cJSON_AddItemToArray(cells, cJSON_DetachItemViaPointer(theirs, theirs->child));
    return AB_OK;
}
