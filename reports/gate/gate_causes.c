/* What differs between two runs besides what they measured: libraries, variables, commits, machines and the
 * kernels that were chosen. Says what may explain a verdict; decides nothing. */
#include "kernels/core/show.h"
#include "kernels/core/text.h"
#include "reports/gate/gate_case.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <string.h>

enum { FIELD = 200, SHOWN = 80 };

/* Says nothing of a cause: names of this run, and what changes from minute to minute. */
static bool is_passing(const char *key) {
    static const char *const passing[] = {"load_average", "name", "git_dirty_files"};
    for (size_t i = 0; i < AB_COUNT_OF(passing); i++)
        if (strcmp(key, passing[i]) == 0) return true;
    return false;
}

static void show(char *text, const cJSON *value) {
    if (cJSON_IsString(value))
        ab_text_clean(text, SHOWN, value->valuestring);
    else if (cJSON_IsNumber(value))
        ab_text_show(text, SHOWN, "%.9g", value->valuedouble);
    else if (!value || cJSON_IsNull(value))
        ab_text_show(text, SHOWN, "not set");
    else if (cJSON_IsBool(value))
        ab_text_show(text, SHOWN, "%s", cJSON_IsTrue(value) ? "true" : "false");
    else
        ab_text_show(text, SHOWN, "another list");
}

static bool equal(const cJSON *a, const cJSON *b) {
    const bool none_a = !a || cJSON_IsNull(a), none_b = !b || cJSON_IsNull(b);
    return none_a || none_b ? none_a && none_b : cJSON_Compare(a, b, 1);
}

static void add_cause(cJSON *causes, const char *field, const cJSON *a, const cJSON *b, const char *where) {
    char left[SHOWN], right[SHOWN], text[2 * SHOWN + FIELD + 40];
    cJSON *entry = cJSON_CreateObject();
    show(left, a);
    show(right, b);
    ab_text_show(text, sizeof text, "%s: %s, was %s%s", field, right, left, where);
    cJSON_AddStringToObject(entry, "field", field);
    cJSON_AddItemToObject(entry, "base", a ? cJSON_Duplicate(a, 1) : cJSON_CreateNull());
    cJSON_AddItemToObject(entry, "new", b ? cJSON_Duplicate(b, 1) : cJSON_CreateNull());
    cJSON_AddStringToObject(entry, "text", text);
    cJSON_AddItemToArray(causes, entry);
}

/* Every key of either object; `part` names them. Objects inside are compared by their keys. */
static void compare_part(cJSON *causes, const char *part, const cJSON *a, const cJSON *b) {
    const cJSON *item, *sides[2] = {a, b};
    for (int side = 0; side < 2; side++) {
        cJSON_ArrayForEach(item, sides[side]) {
            const cJSON *ours = cJSON_GetObjectItemCaseSensitive(a, item->string),
                        *theirs = cJSON_GetObjectItemCaseSensitive(b, item->string);
            char field[FIELD];
            if ((side == 1 && ours) || is_passing(item->string)) continue;
            ab_text_show(field, sizeof field, "%s.%s", part, item->string);
            if (cJSON_IsObject(ours) && cJSON_IsObject(theirs))
                compare_part(causes, field, ours, theirs);
            else if (!equal(ours, theirs))
                add_cause(causes, field, ours, theirs, "");
        }
    }
}

/* The first kernel of a cell that is another one, with the number of those that are. */
static void compare_kernels(cJSON *causes, const cJSON *base, const cJSON *other) {
    static const char *const passes[] = {"forward", "backward_data", "backward_weights"};
    const cJSON *a = ab_json_at(base, "implementations"), *b = ab_json_at(other, "implementations");
    const cJSON *first[2] = {NULL, NULL};
    char field[FIELD] = "", where[FIELD];
    int differing = 0;
    a = a ? a->child : NULL;
    b = b ? b->child : NULL;
    for (; a && b; a = a->next, b = b->next) {
        for (size_t p = 0; p < AB_COUNT_OF(passes); p++) {
            const cJSON *ours = ab_json_at(a, passes[p]), *theirs = ab_json_at(b, passes[p]);
            if (equal(ours, theirs) || differing++ > 0) continue;
            first[0] = ours;
            first[1] = theirs;
            ab_text_show(field, sizeof field, "kernel of %s %s",
                         ab_text_brief(ab_json_text(b, "op", "?"), 40), passes[p]);
        }
    }
    if (differing == 0) return;
    ab_text_show(where, sizeof where, " (%d kernel%s of %s)", differing, differing == 1 ? "" : "s",
                 ab_text_brief(ab_json_text(other, "id", "?"), 100));
    add_cause(causes, field, first[0], first[1], where);
}

cJSON *ab_gate_causes(const ab_gate_case *c) {
    static const char *const parts[] = {"generator", "environment"};
    cJSON *causes = cJSON_CreateArray();
    const cJSON *cell;
    for (size_t i = 0; i < AB_COUNT_OF(parts); i++)
        compare_part(causes, parts[i], ab_json_at(c->base.document, parts[i]),
                     ab_json_at(c->other.document, parts[i]));
    cJSON_ArrayForEach(cell, ab_json_at(c->other.document, "cells")) {
        const cJSON *base = ab_cells_like(&c->base_cells, cell);
        if (base && !cJSON_IsString(ab_json_at(cell, "twin"))) compare_kernels(causes, base, cell);
    }
    return causes;
}

const char *ab_gate_causes_head(const cJSON *gate) {
    const cJSON *causes = ab_json_at(gate, "probable_causes");
    if (!causes || strcmp(ab_json_text(gate, "gate.verdict", "PASS"), "PASS") == 0) return NULL;
    const bool judged = strcmp(ab_json_text(gate, "gate.verdict", ""), "NOT_COMPARABLE") != 0;
    if (!causes->child && !judged) return NULL;
    return causes->child ? "probable causes: what differs besides the results"
                         : "probable causes: none on record: the same commit, libraries, variables, kernels "
                           "and machine";
}

void ab_gate_causes_print(const cJSON *gate, FILE *out) {
    const char *head = ab_gate_causes_head(gate);
    const cJSON *cause;
    if (!head) return;
    ab_print(out, "%s\n", head);
    cJSON_ArrayForEach(cause, ab_json_at(gate, "probable_causes")) {
        ab_print(out, "  %s\n", ab_json_text(cause, "text", ""));
    }
}
