/* Joins skipped_steps and probes.origin.steps of a cell. */
#include "reports/record/skips.h"

#include "kernels/core/text.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>

int ab_skips_count(const cJSON *cell) { return cJSON_GetArraySize(ab_json_at(cell, "skipped_steps")); }

static const cJSON *origin_of(const cJSON *cell, int step) {
    const cJSON *entry;
    cJSON_ArrayForEach(entry, ab_json_at(cell, "probes.origin.steps")) {
        if (ab_json_number(entry, "step", -1) == step) return entry;
    }
    return NULL;
}

void ab_skip_at(const cJSON *cell, int i, ab_skip *skip) {
    const cJSON *step = cJSON_GetArrayItem(ab_json_at(cell, "skipped_steps"), i);
    *skip = (ab_skip){.step = cJSON_IsNumber(step) ? step->valueint : -1};
    const cJSON *origin = origin_of(cell, skip->step);
    skip->op = ab_json_text(origin, "op", NULL);
    skip->pass = ab_json_text(origin, "pass", NULL);
    skip->tensor = ab_json_text(origin, "tensor", NULL);
    skip->format = ab_json_text(origin, "format", NULL);
    skip->margin = ab_json_number(origin, "margin_octaves", (double)NAN);
    skip->scale = ab_json_number(origin, "loss_scale", (double)NAN);
}

const char *ab_skip_text(const ab_skip *skip, char text[AB_SKIP_TEXT]) {
    char op[96], tensor[96], format[24];
    if (!skip->op) return ab_text_exact(text, AB_SKIP_TEXT, "not looked at");
    ab_text_show(text, AB_SKIP_TEXT, "%s %s", ab_text_clean(op, sizeof op, skip->op),
                 skip->pass ? ab_text_clean(format, sizeof format, skip->pass) : "");
    if (skip->tensor)
        ab_text_append(text, AB_SKIP_TEXT, ", %s", ab_text_clean(tensor, sizeof tensor, skip->tensor));
    if (isfinite(skip->margin))
        ab_text_append(text, AB_SKIP_TEXT, ": 2^%.1f above what %s holds", skip->margin,
                       ab_text_clean(format, sizeof format, skip->format ? skip->format : "its format"));
    else
        ab_text_append(text, AB_SKIP_TEXT,
                       ": not a number in exact arithmetic either, or not computed again");
    return text;
}
