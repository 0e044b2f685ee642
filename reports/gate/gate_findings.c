/* Findings of all lanes: one difference each, with the recommended action. */
#include "reports/gate/gate_case.h"

#include "kernels/core/text.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <stdarg.h>
#include <string.h>

enum { TEXT = 400 };

static const char *weight_name(ab_gate_weight weight) {
    static const char *const names[] = {"note", "win", "inconclusive", "fail", "not_comparable", "error"};
    return names[weight];
}

/* Recommended action; "" if none is needed. */
static const char *action_of(const char *lane, ab_gate_weight weight) {
    static const struct {
        const char *lane;
        ab_gate_weight weight;
        const char *text;
    } rows[] = {
        {"comparable", AB_GATE_INCOMPARABLE,
         "measure both now (--base-exe or --base-ref), or record a new baseline here; "
         "--ignore FIELD accepts the difference"},
        {"cells", AB_GATE_INCOMPARABLE,
         "run both sides with the same levels, scales and seeds, or accept it with --lenient"},
        {"cells", AB_GATE_BROKEN, "see the reason; ampbench report shows the rest of the run"},
        {"numerics", AB_GATE_BAD,
         "find the change that touched the arithmetic; if it was meant, record a new baseline "
         "(--loss-bound accepts small differences)"},
        {"work", AB_GATE_BAD,
         "find what allocates, casts or computes more; if it was meant, record a new baseline"},
        {"work", AB_GATE_WIN, "record a new baseline, so that the gain is kept"},
        {"time", AB_GATE_BAD,
         "profile this cell in both builds; if the cost was meant, record a new baseline"},
        {"time", AB_GATE_UNSURE, "measure again on a quieter machine or with more rounds"},
        {"time", AB_GATE_WIN, "record a new baseline, so that the gain is kept"},
        {"drift", AB_GATE_BAD, "many small losses add up: look at the changes since the pinned baseline"},
    };
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++)
        if (rows[i].weight == weight && strcmp(rows[i].lane, lane) == 0) return rows[i].text;
    return "";
}

cJSON *ab_gate_copy_or_null(const cJSON *value) {
    return value ? cJSON_Duplicate(value, 1) : cJSON_CreateNull();
}

void ab_gate_find(ab_gate_case *c, const char *lane, ab_gate_weight weight, const cJSON *cell,
                  const char *metric, const cJSON *base, const cJSON *other, const char *format, ...) {
    char text[TEXT];
    va_list args;
    va_start(args, format);
    ab_text_show_args(text, sizeof text, format, args);
    va_end(args);
    cJSON *entry = cJSON_CreateObject();
    cJSON_AddStringToObject(entry, "lane", lane);
    cJSON_AddStringToObject(entry, "outcome", weight_name(weight));
    cJSON_AddItemToObject(entry, "cell",
                          cell ? cJSON_CreateString(ab_json_text(cell, "id", "")) : cJSON_CreateNull());
    cJSON_AddStringToObject(entry, "metric", metric);
    cJSON_AddItemToObject(entry, "base", ab_gate_copy_or_null(base));
    cJSON_AddItemToObject(entry, "new", ab_gate_copy_or_null(other));
    cJSON_AddStringToObject(entry, "text", text);
    cJSON_AddStringToObject(entry, "action", action_of(lane, weight));
    cJSON_AddItemToArray(c->findings, entry);
    const int place = cell ? ab_cells_place(&c->other_cells, ab_json_text(cell, "id", "")) : -1;
    if (place >= 0 && weight == AB_GATE_BAD && strcmp(lane, "numerics") == 0) c->unsound[place] = true;
}

bool ab_gate_is_unsound(const ab_gate_case *c, const cJSON *cell) {
    const int place = ab_cells_place(&c->other_cells, ab_json_text(cell, "id", ""));
    return place >= 0 && c->unsound[place];
}
