#include "reports/record/cells.h"

#include "kernels/core/text.h"
#include "reports/record/json.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

const char *ab_cell_label(const cJSON *cell) {
    return ab_json_text(cell, "label", ab_json_text(cell, "level", "?"));
}

static _Thread_local int64_t compared;

int64_t ab_cells_compared(void) { return compared; }

static int compare_text(const char *a, const char *b) {
    compared++;
    return strcmp(a, b);
}

static int compare_keys(const void *a, const void *b) {
    const ab_cell_key *x = a, *y = b;
    const int order = compare_text(x->text, y->text);
    return order ? order : x->index - y->index;
}

static void append_part(char *text, size_t size, const cJSON *part) {
    const char *word = cJSON_GetStringValue(part);
    if (word)
        ab_text_append(text, size, "%s", word);
    else if (cJSON_IsNumber(part))
        ab_text_append(text, size, "%.17g", part->valuedouble);
    ab_text_append(text, size, "%s", "\n");
}

static double draw_of(const cJSON *cell) { return ab_json_number(cell, "draw", 1); }

/* All parts of an id except the loss scale. NULL: out of memory. */
static char *family_of(const cJSON *cell) {
    static const char *const keys[] = {"model", "half_format", "device", "seed", "twin", "of_run.label"};
    size_t size = strlen(ab_cell_label(cell)) + AB_TEXT_ROUND_TRIP + 2;
    for (size_t i = 0; i < AB_COUNT_OF(keys); i++)
        size += strlen(ab_json_text(cell, keys[i], "")) + AB_TEXT_ROUND_TRIP + 1;
    char *text = calloc(size, 1);
    for (size_t i = 0; text && i < AB_COUNT_OF(keys); i++) append_part(text, size, ab_json_at(cell, keys[i]));
    if (text) ab_text_append(text, size, "%.0f\n%s", draw_of(cell), ab_cell_label(cell));
    return text;
}

static ab_status out_of_memory(void) { return ab_fail(AB_NO_MEMORY, "out of memory while indexing cells"); }

static ab_status allocate(ab_cells *cells) {
    const size_t room = (size_t)cells->count + 1;
    cells->cell = calloc(room, sizeof *cells->cell);
    cells->by_digest = calloc(room, sizeof *cells->by_digest);
    cells->by_id = calloc(room, sizeof *cells->by_id);
    cells->by_family = calloc(room, sizeof *cells->by_family);
    return cells->cell && cells->by_digest && cells->by_id && cells->by_family ? AB_OK : out_of_memory();
}

static ab_status add_cell(ab_cells *cells, const cJSON *cell, int i) {
    char *family = family_of(cell);
    if (!family) return out_of_memory();
    cells->cell[i] = cell;
    cells->by_digest[i] = (ab_cell_key){ab_json_text(cell, "config_digest", ""), NULL, i};
    cells->by_id[i] = (ab_cell_key){ab_json_text(cell, "id", ""), NULL, i};
    cells->by_family[i] = (ab_cell_key){family, family, i};
    return AB_OK;
}

ab_status ab_cells_create(const cJSON *document, ab_cells *cells) {
    const cJSON *cell, *list = ab_json_at(document, "cells");
    *cells = (ab_cells){.document = document, .count = cJSON_GetArraySize(list)};
    AB_TRY(allocate(cells));
    int i = 0;
    cJSON_ArrayForEach(cell, list) AB_TRY(add_cell(cells, cell, i++));
    const size_t count = (size_t)cells->count;
    qsort(cells->by_digest, count, sizeof *cells->by_digest, compare_keys);
    qsort(cells->by_id, count, sizeof *cells->by_id, compare_keys);
    qsort(cells->by_family, count, sizeof *cells->by_family, compare_keys);
    return ab_baselines_create(document, &cells->baselines);
}

void ab_cells_free(ab_cells *cells) {
    for (int i = 0; cells->by_family && i < cells->count; i++) free(cells->by_family[i].owned);
    free((void *)cells->cell);
    free(cells->by_digest);
    free(cells->by_id);
    free(cells->by_family);
    ab_baselines_free(&cells->baselines);
    *cells = (ab_cells){.count = 0};
}

/* Place of the first key that does not come before `text`. */
static int first_at(const ab_cell_key *keys, int count, const char *text) {
    int low = 0, high = count;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (compare_text(keys[middle].text, text) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int find(const ab_cells *cells, const ab_cell_key *keys, const char *text) {
    const int at = first_at(keys, cells->count, text);
    return at < cells->count && compare_text(keys[at].text, text) == 0 ? keys[at].index : -1;
}

int ab_cells_place(const ab_cells *cells, const char *id) { return find(cells, cells->by_id, id); }

const cJSON *ab_cells_like(const ab_cells *cells, const cJSON *cell) {
    const char *digest = ab_json_text(cell, "config_digest", "");
    int place = digest[0] ? find(cells, cells->by_digest, digest) : -1;
    if (place < 0) place = ab_cells_place(cells, ab_json_text(cell, "id", ""));
    return place < 0 ? NULL : cells->cell[place];
}

const cJSON *ab_cells_baseline(const ab_cells *cells, const cJSON *cell) {
    const int index = ab_baselines_find(&cells->baselines, cell);
    return index < 0 ? NULL : cells->cell[index];
}

void ab_cells_family(const ab_cells *cells, const cJSON *cell,
                     bool (*see)(void *context, const cJSON *member), void *context) {
    char *family = family_of(cell);
    if (!family) return;
    for (int i = first_at(cells->by_family, cells->count, family); i < cells->count; i++) {
        if (compare_text(cells->by_family[i].text, family) != 0) break;
        if (!see(context, cells->cell[cells->by_family[i].index])) break;
    }
    free(family);
}

const cJSON *ab_cell_like(const cJSON *document, const cJSON *cell) {
    ab_cells cells;
    const cJSON *found = ab_cells_create(document, &cells) == AB_OK ? ab_cells_like(&cells, cell) : NULL;
    ab_cells_free(&cells);
    return found;
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

static const char *const not_compared[] = {
    "levels",         "scales",       "half",        "rounds",     "probes",   "probe_every",
    "probe_budget",   "noise_floor",  "floor_draws", "eval_limit", "net_path", "min_loss_scale",
    "max_loss_scale", "scale_window", "epochs",      "overrides",  "seeds"};

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
    compared++;
    int order = strcmp(a->model, b->model);
    if (order == 0) order = strcmp(a->device, b->device);
    if (order == 0) order = (a->seed > b->seed) - (a->seed < b->seed);
    return order ? order : (a->run > b->run) - (a->run < b->run);
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
                           .run = ab_json_number(cell, "of_run.index", 0),
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
    const bool changed = strcmp(ab_json_text(o0, "policy.reference", ""), "changed") == 0;
    return 1 + 4 * !changed + (ab_json_number(o0, "policy.loss_scale", 0) == 1) +
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
static int first_place(const ab_baselines *baselines, const ab_baseline *place) {
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
    for (int i = first_place(baselines, &place); i < baselines->count; i++) {
        const ab_baseline *o0 = &baselines->list[i];
        if (compare_place(o0, &place) != 0) break;
        const int score = fit(cell, o0->cell);
        if (score <= best) continue;
        best = score;
        found = o0->index;
    }
    return found;
}

int ab_steps_of_cell(const cJSON *cell) {
    const cJSON *losses = ab_json_at(cell, "loss");
    return losses ? cJSON_GetArraySize(losses) : (int)ab_json_number(cell, "steps_total", 0);
}

bool ab_cell_further_draw(const cJSON *cell) { return draw_of(cell) > 1; }

int ab_cell_threads_beside(const cJSON *cell) {
    const cJSON *processes = ab_json_at(cell, "processes"), *first = processes ? processes->child : NULL;
    return ab_json_number(first, "beside", 0) > 0 ? (int)ab_json_number(first, "threads", 1) : 0;
}
