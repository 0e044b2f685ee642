/* Reads a log as bounds of the largest gradients, asks for the advice, writes it. */
#include "bench/cmd/advise_log.h"

#include "bench/ingest/ingest.h"
#include "bench/replay/gradients.h"
#include "reports/advise/advise_log.h"
#include "reports/record/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool ab_advise_is_log(const char *path) {
    const ab_input_kind *kind = ab_input_kind_of(path);
    return kind && strcmp(kind->name, "log") == 0;
}

static ab_status read_log(const char *path, ab_recorded *recorded) {
    ab_log log = {.points = 0};
    ab_status status = ab_log_read(&log, &path, 1);
    *recorded = (ab_recorded){.steps = 0};
    if (status == AB_OK) status = ab_recorded_of_log(&log, NULL, recorded);
    ab_log_free(&log);
    return status == AB_OK ? AB_OK : ab_fail_prefix(status, "advise");
}

static ab_status make(const ab_recorded *recorded, double alpha, double scale, ab_advise_log *advice) {
    ab_advise_step *step = malloc((size_t)recorded->steps * sizeof *step);
    if (!step) return ab_fail(AB_NO_MEMORY, "advise: out of memory");
    for (int64_t t = 0; t < recorded->steps; t++) {
        const ab_recorded_step *s = &recorded->step[t];
        /* the next step's limit bounds the weights' gradients, but not those of this batch */
        step[t] = (ab_advise_step){.low = s->skipped ? log2(s->low) : -(double)INFINITY,
                                   .high = s->skipped ? (double)INFINITY : log2(s->high),
                                   .scale = s->scale,
                                   .overflowed = s->skipped};
    }
    const ab_status status = ab_advise_log_make(
        step, recorded->steps, ab_format_overflow_limit(recorded->half), alpha, scale, advice);
    free(step);
    return status;
}

static ab_status write(const ab_advise_log *advice, const char *path, const char *json) {
    if (!json || strcmp(json, "-") != 0) ab_advise_log_print(advice, path, stdout);
    if (!json) return AB_OK;
    cJSON *document = ab_advise_log_json(advice, path);
    const ab_status status =
        document ? ab_json_write_file(document, json) : ab_fail(AB_NO_MEMORY, "advise: out of memory");
    cJSON_Delete(document);
    return status;
}

ab_status ab_advise_from_log(const char *path, double alpha, double scale, const char *json) {
    ab_recorded recorded;
    ab_advise_log *advice = calloc(1, sizeof *advice);
    if (!advice) return ab_fail(AB_NO_MEMORY, "advise: out of memory");
    ab_status status = read_log(path, &recorded);
    if (status == AB_OK) status = make(&recorded, alpha, scale, advice);
    if (status == AB_OK) status = write(advice, path, json);
    ab_recorded_free(&recorded);
    free(advice);
    return status;
}
