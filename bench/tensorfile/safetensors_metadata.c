/* Reads __metadata__ of a safetensors file, whose header was checked when it was opened. */
#include "bench/tensorfile/safetensors.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

enum { PREFIX_BYTES = 8 };

/* Bytes of the header; 0 if the file is too short for it. */
static size_t header_length(const ab_tensorfile *file) {
    uint64_t length = 0;
    if (file->size < PREFIX_BYTES) return 0;
    for (int b = 0; b < PREFIX_BYTES; b++) length |= (uint64_t)file->map[b] << (8 * b);
    return length <= (uint64_t)file->size - PREFIX_BYTES ? (size_t)length : 0;
}

ab_status ab_safetensors_metadata(const ab_tensorfile *file, const char *key, char **value) {
    *value = NULL;
    cJSON *header = cJSON_ParseWithLength((const char *)file->map + PREFIX_BYTES, header_length(file));
    if (!header) return ab_fail(AB_INPUT, "%s: its header cannot be read again", file->path);
    const cJSON *metadata = cJSON_GetObjectItemCaseSensitive(header, AB_SAFETENSORS_METADATA);
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(metadata, key));
    ab_status status = AB_OK;
    if (text) {
        size_t size = strlen(text) + 1;
        *value = malloc(size);
        if (*value)
            memcpy(*value, text, size);
        else
            status = ab_fail(AB_NO_MEMORY, "%s: out of memory", file->path);
    }
    cJSON_Delete(header);
    return status;
}
