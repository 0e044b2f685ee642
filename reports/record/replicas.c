/* A check is [steps, [checksum, ...]] with checksums as 16 hex digits in the order of "tensors". */
#include "reports/record/replicas.h"

#include "kernels/collective/replicas.h"
#include "kernels/core/text.h"
#include "reports/record/json.h"

#include <stdlib.h>
#include <string.h>

typedef struct records {
    const cJSON *const *document;
    int count, tensors;
    uint64_t *checksum; /* [count][tensors] */
} records;

static const cJSON *about(const records *r, int i) {
    return ab_json_at(r->document[i], "probe.about.replicas");
}

static bool comparable(const records *r) {
    const cJSON *tensors = ab_json_at(about(r, 0), "tensors");
    if (cJSON_GetArraySize(tensors) < 1) return false;
    for (int i = 1; i < r->count; i++)
        if (!cJSON_Compare(tensors, ab_json_at(about(r, i), "tensors"), true)) return false;
    return true;
}

/* The checksums of rank i after `steps` steps; NULL: it was not checked then. */
static const cJSON *check_of(const records *r, int i, double steps) {
    const cJSON *check;
    cJSON_ArrayForEach(check, ab_json_at(about(r, i), "checks")) {
        const cJSON *at = cJSON_GetArrayItem(check, 0), *list = cJSON_GetArrayItem(check, 1);
        if (cJSON_IsNumber(at) && at->valuedouble == steps) return list;
    }
    return NULL;
}

/* Fills the table; false if a rank has no whole check of these steps. */
static bool collect(const records *r, double steps) {
    for (int i = 0; i < r->count; i++) {
        const cJSON *list = check_of(r, i, steps), *text;
        uint64_t *to = r->checksum + (size_t)i * (size_t)r->tensors;
        if (cJSON_GetArraySize(list) != r->tensors) return false;
        cJSON_ArrayForEach(text, list) *to++ =
            cJSON_IsString(text) ? strtoull(text->valuestring, NULL, 16) : 0;
    }
    return true;
}

static cJSON *parted_json(const records *r, const ab_parting *found, double agreed, double steps) {
    cJSON *parted = cJSON_CreateObject();
    const cJSON *name = cJSON_GetArrayItem(ab_json_at(about(r, 0), "tensors"), found->tensor);
    const char *tensor = cJSON_IsString(name) ? name->valuestring : "", *dot = strrchr(tensor, '.');
    char *layer = ab_text_new("%.*s", (int)(dot ? (size_t)(dot - tensor) : strlen(tensor)), tensor);
    cJSON_AddNumberToObject(parted, "agreed_steps", agreed);
    cJSON_AddNumberToObject(parted, "steps", steps);
    cJSON_AddNumberToObject(parted, "rank", ab_json_number(r->document[found->rank], "probe.rank", 0));
    cJSON_AddNumberToObject(parted, "differing_ranks", found->ranks);
    cJSON_AddStringToObject(parted, "tensor", tensor);
    cJSON_AddStringToObject(parted, "layer", layer ? layer : "");
    cJSON_AddNumberToObject(parted, "differing_tensors", found->tensors);
    free(layer);
    return parted;
}

/* Compares the checks that all ranks have, in their order. */
static void compare(const records *r, cJSON *replicas) {
    const cJSON *check;
    double agreed = 0;
    int checks = 0;
    cJSON *parted = NULL;
    cJSON_ArrayForEach(check, ab_json_at(about(r, 0), "checks")) {
        const cJSON *at = cJSON_GetArrayItem(check, 0);
        if (!cJSON_IsNumber(at) || !collect(r, at->valuedouble)) continue;
        const ab_parting found = ab_replicas_compare(r->checksum, r->count, r->tensors);
        checks++;
        if (found.rank < 0 && !parted) agreed = at->valuedouble;
        if (found.rank >= 0 && !parted) parted = parted_json(r, &found, agreed, at->valuedouble);
    }
    cJSON_AddNumberToObject(replicas, "every", ab_json_number(about(r, 0), "every", 0));
    cJSON_AddNumberToObject(replicas, "checks", checks);
    cJSON_AddNumberToObject(replicas, "ranks", r->count);
    if (parted) cJSON_AddItemToObject(replicas, "parted", parted);
}

ab_status ab_replicas_of_records(const cJSON *const *documents, int count, cJSON **replicas) {
    records r = {.document = documents, .count = count};
    *replicas = NULL;
    if (!comparable(&r)) return AB_OK;
    r.tensors = cJSON_GetArraySize(ab_json_at(about(&r, 0), "tensors"));
    r.checksum = calloc((size_t)count * (size_t)r.tensors, sizeof *r.checksum);
    *replicas = cJSON_CreateObject();
    if (!r.checksum || !*replicas) {
        free(r.checksum);
        cJSON_Delete(*replicas);
        *replicas = NULL;
        return ab_fail(AB_NO_MEMORY, "checksums of ranks: out of memory");
    }
    compare(&r, *replicas);
    free(r.checksum);
    return AB_OK;
}
