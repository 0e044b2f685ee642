#include "reports/record/baselines.h"

#include "reports/record/json.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static int compare_place(const ab_baseline *a, const ab_baseline *b) {
    int order = strcmp(a->model, b->model);
    if (order == 0) order = strcmp(a->device, b->device);
    return order ? order : (a->seed > b->seed) - (a->seed < b->seed);
}

static int compare(const void *a, const void *b) {
    const ab_baseline *x = a, *y = b;
    const int order = compare_place(x, y);
    return order ? order : x->index - y->index;
}

/* What cells that are compared have in common. False if the cell does not say. */
static bool place_of(const cJSON *cell, int index, ab_baseline *place) {
    const cJSON *seed = ab_json_at(cell, "seed");
    *place = (ab_baseline){.cell = cell,
                           .model = ab_json_text(cell, "model", NULL),
                           .device = ab_json_text(cell, "device", NULL),
                           .index = index};
    if (!place->model || !place->device || !cJSON_IsNumber(seed)) return false;
    place->seed = seed->valuedouble;
    return true;
}

static bool is_o0(const cJSON *cell) {
    return strcmp(ab_json_text(cell, "level", ""), "O0") == 0 && !cJSON_IsString(ab_json_at(cell, "twin"));
}

/* How well an O0 cell of the same place suits; the larger the better. */
static int fit(const cJSON *cell, const cJSON *o0) {
    return 1 + (ab_json_number(o0, "policy.loss_scale", 0) == 1) +
           2 * cJSON_Compare(ab_json_at(cell, "half_format"), ab_json_at(o0, "half_format"), 1);
}

ab_status ab_baselines_create(const cJSON *document, ab_baselines *baselines) {
    const cJSON *cell, *cells = ab_json_at(document, "cells");
    int index = 0;
    const size_t room = (size_t)cJSON_GetArraySize(cells) + 1;
    *baselines = (ab_baselines){.list = calloc(room, sizeof *baselines->list)};
    if (!baselines->list) return ab_fail(AB_NO_MEMORY, "out of memory while looking for O0 cells");
    cJSON_ArrayForEach(cell, cells) {
        if (is_o0(cell) && place_of(cell, index, &baselines->list[baselines->count])) baselines->count++;
        index++;
    }
    qsort(baselines->list, (size_t)baselines->count, sizeof *baselines->list, compare);
    return AB_OK;
}

void ab_baselines_free(ab_baselines *baselines) {
    free(baselines->list);
    *baselines = (ab_baselines){NULL, 0};
}

/* The first of the list that does not come before `place`. */
static int first_at(const ab_baselines *baselines, const ab_baseline *place) {
    int low = 0, high = baselines->count;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (compare_place(&baselines->list[middle], place) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int ab_baselines_find(const ab_baselines *baselines, const cJSON *cell) {
    ab_baseline place;
    int best = 0, found = -1;
    if (!place_of(cell, -1, &place)) return -1;
    for (int i = first_at(baselines, &place); i < baselines->count; i++) {
        const ab_baseline *o0 = &baselines->list[i];
        if (compare_place(o0, &place) != 0) break;
        const int score = fit(cell, o0->cell);
        if (score <= best) continue;
        best = score;
        found = o0->index;
    }
    return found;
}
