#include "reports/record/cells.h"

#include "reports/record/json.h"

#include <stdbool.h>
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
