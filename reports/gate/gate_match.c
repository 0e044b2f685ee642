/* Decides which documents and cells may be compared. Does not compare measurements. */
#include "kernels/core/text.h"
#include "reports/gate/gate_case.h"
#include "reports/record/cells.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIELD = 96, SHOWN = 64 };

/* Fields that identify machine and toolchain. Two builds measured in one session may differ in the
 * toolchain. */
static const char *const machine_fields[] = {"os",    "kernel",   "cpu_model",    "isa",
                                             "cores", "affinity", "hostname_hash"};
static const char *const build_fields[] = {"compiler", "flags", "build_type", "onednn_version"};

bool ab_gate_ignored(const ab_gate_case *c, const char *field) {
    const char *list = c->options->ignore;
    size_t length = strlen(field);
    while (list && *list) {
        size_t word = strcspn(list, ",");
        if (word == length && strncmp(list, field, word) == 0) return true;
        list += word + (list[word] == ',');
    }
    return false;
}

static void show(char *text, size_t size, const cJSON *value) {
    if (cJSON_IsString(value))
        ab_text_clean(text, size, value->valuestring);
    else if (cJSON_IsNumber(value))
        ab_text_show(text, size, "%.9g", value->valuedouble);
    else
        ab_text_show(text, size, "%s", ab_json_type_text(value));
}

static bool equal(const cJSON *a, const cJSON *b) {
    bool none_a = !a || cJSON_IsNull(a), none_b = !b || cJSON_IsNull(b);
    return none_a || none_b ? none_a && none_b : cJSON_Compare(a, b, 1);
}

/* What a difference means, where its name does not say it. */
static const char *explained(const char *field) {
    return strcmp(field, "config.flush_denormal") == 0
               ? "; subnormal numbers were zeros in one of them: other bits, other step times"
               : "";
}

static void differ(ab_gate_case *c, const char *whose, const char *field, const cJSON *a, const cJSON *b) {
    char left[SHOWN], right[SHOWN];
    cJSON *entry = cJSON_CreateObject();
    bool ignored = ab_gate_ignored(c, field);
    show(left, sizeof left, a);
    show(right, sizeof right, b);
    cJSON_AddStringToObject(entry, "field", field);
    cJSON_AddStringToObject(entry, "against", whose);
    cJSON_AddItemToObject(entry, "base", a ? cJSON_Duplicate(a, 1) : cJSON_CreateNull());
    cJSON_AddItemToObject(entry, "new", b ? cJSON_Duplicate(b, 1) : cJSON_CreateNull());
    cJSON_AddBoolToObject(entry, "ignored", ignored);
    cJSON_AddItemToArray(c->differences, entry);
    ab_gate_find(c, "comparable", ignored ? AB_GATE_NOTE : AB_GATE_INCOMPARABLE, NULL, field, a, b,
                 "%s differs: %s has %s, new has %s%s", field, whose, left, right, explained(field));
}

static bool compare_values(ab_gate_case *c, ab_gate_side base, const char *field, const cJSON *a,
                           const cJSON *b) {
    if (equal(a, b)) return false;
    differ(c, base.document == c->pinned.document ? "pinned" : "base", field, a, b);
    return true;
}

static bool compare_field(ab_gate_case *c, ab_gate_side base, ab_gate_side other, const char *field) {
    return compare_values(c, base, field, ab_json_at(base.document, field),
                          ab_json_at(other.document, field));
}

static int compare_fields(ab_gate_case *c, ab_gate_side base, ab_gate_side other, const char *part,
                          const char *const *list, size_t count) {
    int differences = 0;
    const cJSON *ours = ab_json_at(base.document, part), *theirs = ab_json_at(other.document, part);
    for (size_t i = 0; i < count; i++) {
        char field[FIELD];
        ab_text_exact(field, sizeof field, "%s.%s", part, list[i]);
        differences += compare_values(c, base, field, ab_json_at(ours, list[i]), ab_json_at(theirs, list[i]));
    }
    return differences;
}

static void compare_setting(ab_gate_case *c, ab_gate_side base, const char *key, const cJSON *ours,
                            const cJSON *theirs) {
    char *field = ab_text_new("config.%s", key);
    if (field) compare_values(c, base, field, ours, theirs);
    free(field);
}

/* A key that only one of the documents has is from a later minor version of the schema: a flag that is set
 * was off in the other one, and other values are ignored. */
static const cJSON off = {.type = cJSON_False};

static void compare_config(ab_gate_case *c, ab_gate_side base, ab_gate_side other) {
    const cJSON *item, *ours = ab_json_at(base.document, "config"),
                       *theirs = ab_json_at(other.document, "config");
    cJSON_ArrayForEach(item, ours) {
        const cJSON *other_item = cJSON_GetObjectItemCaseSensitive(theirs, item->string);
        if (ab_setting_counts(item->string) && (other_item || cJSON_IsTrue(item)))
            compare_setting(c, base, item->string, item, other_item ? other_item : &off);
    }
    cJSON_ArrayForEach(item, theirs) {
        if (ab_setting_counts(item->string) && cJSON_IsTrue(item) &&
            !cJSON_GetObjectItemCaseSensitive(ours, item->string))
            compare_setting(c, base, item->string, &off, item);
    }
}

void ab_gate_match_documents(ab_gate_case *c, ab_gate_side base, ab_gate_side other, bool session) {
    static const char *const data_fields[] = {"train_count", "test_count", "mean", "std"};
    int machine;
    if (!session) compare_field(c, base, other, "schema_version");
    compare_config(c, base, other);
    compare_fields(c, base, other, "data", data_fields, AB_COUNT_OF(data_fields));
    compare_field(c, base, other, "network.parameters_count");
    machine = compare_fields(c, base, other, "environment", machine_fields, AB_COUNT_OF(machine_fields));
    if (session) return;
    machine += compare_fields(c, base, other, "generator", build_fields, AB_COUNT_OF(build_fields));
    if (machine == 0) compare_field(c, base, other, "comparability_key");
}

/* ---- cells ----------------------------------------------------------------------------------- */

/* Equal in all parts of an id except the loss scale. */
static bool equal_but_scale(const cJSON *a, const cJSON *b) {
    static const char *const keys[] = {"model", "half_format", "device", "seed", "twin"};
    if (strcmp(ab_cell_label(a), ab_cell_label(b)) != 0) return false;
    for (size_t i = 0; i < AB_COUNT_OF(keys); i++)
        if (!equal(ab_json_at(a, keys[i]), ab_json_at(b, keys[i]))) return false;
    return ab_json_number(a, "draw", 1) == ab_json_number(b, "draw", 1);
}

/* Cells that equal `cell` except for the loss scale and are missing in `without`. */
typedef struct search {
    const cJSON *cell, *found; /* found: the first of them */
    const ab_cells *without;
    int count; /* at most 2 are looked for */
} search;

static bool see_member(void *context, const cJSON *member) {
    search *s = context;
    if (!equal_but_scale(s->cell, member) || ab_cells_like(s->without, member)) return true;
    if (s->count++ == 0) s->found = member;
    return s->count < 2;
}

/* Returns the only such cell of `in`; NULL if there is none or more than one. */
static const cJSON *only_equal_but_scale(const cJSON *cell, const ab_cells *in, const ab_cells *without) {
    search s = {.cell = cell, .without = without};
    ab_cells_family(in, cell, see_member, &s);
    return s.count == 1 ? s.found : NULL;
}

const cJSON *ab_gate_partner(const cJSON *cell, const ab_cells *from, const ab_cells *in) {
    const cJSON *same = ab_cells_like(in, cell);
    if (same) return same;
    const cJSON *candidate = only_equal_but_scale(cell, in, from);
    return candidate && only_equal_but_scale(candidate, from, in) == cell ? candidate : NULL;
}

static bool ended_well(const cJSON *cell) { return strcmp(ab_json_text(cell, "status", ""), "ok") == 0; }

static bool same_policy(const cJSON *a, const cJSON *b) {
    const cJSON *item, *theirs = ab_json_at(b, "policy");
    cJSON_ArrayForEach(item, ab_json_at(a, "policy")) {
        if (strcmp(item->string, "loss_scale") == 0) continue;
        if (!equal(item, cJSON_GetObjectItemCaseSensitive(theirs, item->string))) return false;
    }
    return true;
}

bool ab_gate_cells_agree(const cJSON *base, const cJSON *other) {
    return ended_well(base) && ended_well(other) && same_policy(base, other) &&
           equal(ab_json_at(base, "math_mode"), ab_json_at(other, "math_mode")) &&
           equal(ab_json_at(base, "accumulate"), ab_json_at(other, "accumulate"));
}

static void check_end(ab_gate_case *c, const cJSON *cell) {
    const char *status = ab_json_text(cell, "status", ""),
               *reason = ab_json_text(cell, "reason", "no reason recorded");
    if (strcmp(status, "failed") == 0)
        ab_gate_find(c, "cells", AB_GATE_BROKEN, cell, "status", NULL, ab_json_at(cell, "status"),
                     "failed: %s", ab_text_brief(reason, 160));
    else if (!ended_well(cell))
        ab_gate_find(c, "cells", AB_GATE_INCOMPARABLE, cell, "status", NULL, ab_json_at(cell, "status"),
                     "%s: the run is not complete", ab_text_brief(status, 20));
}

static void check_pair(ab_gate_case *c, const cJSON *base, const cJSON *other) {
    static const char *const keys[] = {"math_mode", "accumulate"};
    check_end(c, other);
    if (!ended_well(base))
        ab_gate_find(c, "cells", AB_GATE_INCOMPARABLE, other, "status", ab_json_at(base, "status"), NULL,
                     "the base's cell is %s", ab_text_brief(ab_json_text(base, "status", "?"), 20));
    if (!ended_well(base) || !ended_well(other)) return;
    for (size_t i = 0; i < AB_COUNT_OF(keys); i++) {
        const cJSON *a = ab_json_at(base, keys[i]), *b = ab_json_at(other, keys[i]);
        if (equal(a, b)) continue;
        ab_gate_find(c, "cells", AB_GATE_INCOMPARABLE, other, keys[i], a, b,
                     "%s differs: %s and %s are different series", keys[i],
                     ab_text_brief(ab_json_text(base, keys[i], "?"), 40),
                     ab_text_brief(ab_json_text(other, keys[i], "?"), 40));
    }
    if (!same_policy(base, other))
        ab_gate_find(c, "cells", AB_GATE_INCOMPARABLE, other, "policy", ab_json_at(base, "policy"),
                     ab_json_at(other, "policy"), "the policies differ: these are different levels");
}

void ab_gate_match_cells(ab_gate_case *c) {
    const cJSON *cell;
    ab_gate_weight orphan = c->options->lenient ? AB_GATE_NOTE : AB_GATE_INCOMPARABLE;
    cJSON_ArrayForEach(cell, ab_json_at(c->base.document, "cells")) {
        if (!ab_gate_partner(cell, &c->base_cells, &c->other_cells))
            ab_gate_find(c, "cells", orphan, cell, "missing", NULL, NULL,
                         "missing: the base has this cell, the new document has not");
    }
    cJSON_ArrayForEach(cell, ab_json_at(c->other.document, "cells")) {
        const cJSON *base = ab_gate_partner(cell, &c->other_cells, &c->base_cells);
        if (base)
            check_pair(c, base, cell);
        else
            ab_gate_find(c, "cells", orphan, cell, "new", NULL, NULL,
                         "new: the base has no such cell; record a new baseline");
        if (!base) check_end(c, cell);
    }
}
