/* Sums over the tensors of a layer; draws nothing. */
#include "reports/plot/strips.h"

#include "reports/record/json.h"

#include <math.h>
#include <string.h>

ab_strips ab_strips_of(const cJSON *cell) {
    return (ab_strips){.every = ab_json_number(cell, "probes.every", 0)};
}

static void add_columns(const cJSON *array, double *sum) {
    int i = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, array) {
        if (i < AB_STRIP_COLUMNS) sum[i++] += item->valuedouble;
    }
}

void ab_strip_add(ab_strip *strip, const cJSON *steps, const char *lost_key) {
    strip->first = ab_json_number(steps, "first", 0);
    strip->stride = ab_json_number(steps, "stride", 1);
    strip->columns = (int)fmin(ab_json_number(steps, "count", 0), AB_STRIP_COLUMNS);
    add_columns(ab_json_at(steps, "nonzero"), strip->nonzero);
    add_columns(ab_json_at(steps, lost_key), strip->lost);
}

/* Every column holds a probed step if these are no further apart than its width. */
static bool is_probed(const ab_strip *strip, int i, const ab_strips *all) {
    return strip->nonzero[i] > 0 || (all->every > 0 && all->every <= strip->stride);
}

void ab_strip_write(const ab_strip *strip, int row, ab_strips *all, FILE *data) {
    for (int i = 0; i < strip->columns; i++) {
        const double from = strip->first + i * strip->stride;
        const bool bad = strip->nonzero[i] <= 0;
        if (!is_probed(strip, i, all)) continue;
        all->any = true;
        all->any_bad |= bad;
        all->any_lost |= strip->lost[i] > 0;
        if (!data) continue;
        fprintf(data, "%d %.10g %.10g %.9g\n", row, from, from + strip->stride,
                bad ? -1 : 100 * strip->lost[i] / strip->nonzero[i]);
    }
}

const char *ab_strips_sentence(const ab_strips *all, const char *nothing) {
    if (!all->any) return "not probed";
    return all->any_lost || all->any_bad ? "" : nothing;
}

bool ab_is_first_of_layer(const cJSON *list, const cJSON *item) {
    for (const cJSON *before = list->child; before != item; before = before->next)
        if (strcmp(ab_json_text(before, "layer", ""), ab_json_text(item, "layer", "")) == 0) return false;
    return true;
}
