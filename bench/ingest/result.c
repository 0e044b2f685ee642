/* A result document: already a record. */
#include "reports/record/result.h"
#include "bench/ingest/ingest.h"
#include "reports/record/overlay.h"
#include "reports/record/ranks.h"

#include <stdio.h>
#include <string.h>

/* Documents begin with their schema's name. */
static bool recognise(const char *path) {
    char start[256] = "";
    FILE *file = fopen(path, "rb");
    if (!file) return false;
    const size_t n = fread(start, 1, sizeof start - 1, file);
    fclose(file);
    start[n] = '\0';
    return strstr(start, "\"ampbench-result\"") != NULL;
}

static ab_status read_result(const ab_ingest_request *request, cJSON **document) {
    AB_TRY(ab_result_load(request->path[0], document));
    if (request->paths == 1) return AB_OK;
    if (!ab_result_is_rank(*document))
        return ab_fail(
            AB_USAGE,
            "diagnose: expected one result, or the records of the ranks of one run, found '%s' and "
            "'%s'",
            request->path[0], request->path[1]);
    cJSON_Delete(*document);
    return ab_result_load_ranks(request->path, request->paths, document);
}

const ab_input_kind ab_input_kind_result = {
    .name = "result",
    .text =
        "RESULT.json: the document of a run, or of a training loop with libampprobe; of all its ranks, if it "
        "is distributed",
    .recognise = recognise,
    .read = read_result,
};
