#include "reports/record/cells.h"

#include "reports/record/json.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const cJSON *find(const cJSON *document, const char *key, const char *text) {
    const cJSON *cell;
    cJSON_ArrayForEach(cell, ab_json_at(document, "cells")) {
        if (strcmp(ab_json_text(cell, key, ""), text) == 0) return cell;
    }
    return NULL;
}

const cJSON *ab_cell_like(const cJSON *document, const cJSON *cell) {
    const char *digest = ab_json_text(cell, "config_digest", "");
    const cJSON *found = digest[0] ? find(document, "config_digest", digest) : NULL;
    return found ? found : find(document, "id", ab_json_text(cell, "id", ""));
}

cJSON *ab_cells_deterministic(const cJSON *document) {
    const cJSON *cell;
    bool any = false, all = true;
    cJSON_ArrayForEach(cell, ab_json_at(document, "cells")) {
        const cJSON *item = ab_json_at(cell, "deterministic");
        if (!cJSON_IsBool(item)) continue;
        any = true;
        all = all && cJSON_IsTrue(item);
    }
    return any ? cJSON_CreateBool(all) : cJSON_CreateNull();
}

static const char *const not_compared[] = {"levels",       "scales",      "half",           "rounds",
                                           "probes",       "probe_every", "probe_budget",   "noise_floor",
                                           "eval_limit",   "net_path",    "min_loss_scale", "max_loss_scale",
                                           "scale_window", "epochs",      "overrides",      "seeds"};

bool ab_setting_counts(const char *key) {
    for (size_t i = 0; i < AB_COUNT_OF(not_compared); i++)
        if (strcmp(key, not_compared[i]) == 0) return false;
    return true;
}

static bool is_unset(const cJSON *value) {
    return cJSON_IsNull(value) || cJSON_IsFalse(value) || (cJSON_IsArray(value) && !value->child);
}

static uint64_t add_text(uint64_t digest, const char *text) {
    for (; *text; text++) digest = (digest ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return digest;
}

uint64_t ab_settings_digest(const cJSON *config) {
    uint64_t sum = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, config) {
        if (!item->string || !ab_setting_counts(item->string) || is_unset(item)) continue;
        char *value = cJSON_PrintUnformatted(item);
        uint64_t digest = add_text(UINT64_C(0xcbf29ce484222325), item->string);
        if (value) digest = add_text(add_text(digest, "="), value);
        free(value);
        sum += digest;
    }
    return sum;
}

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
