/* Reads what was recorded, replays the scalers, writes the answer. */
#include "bench/cmd/scaler_replay.h"

#include "bench/ingest/ingest.h"
#include "bench/replay/replay.h"
#include "kernels/core/log.h"
#include "kernels/core/text.h"
#include "kernels/files/lock.h"
#include "reports/record/json.h"
#include "reports/record/result.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- input ------------------------------------------------------------------------------------ */

static ab_status read_document(const ab_replay_request *r, ab_recorded *recorded) {
    cJSON *document = NULL;
    if (r->paths > 1) return ab_fail(AB_USAGE, "--replay: expected one result document, found %d", r->paths);
    AB_TRY(ab_result_load(r->path[0], &document));
    const ab_status status = ab_recorded_of_document(document, r->cell, r->half, recorded);
    cJSON_Delete(document);
    return status;
}

static ab_status read_log(const ab_replay_request *r, ab_recorded *recorded) {
    ab_log log = {.points = 0};
    const char *path[AB_REPLAY_PATHS];
    if (r->cell) return ab_fail(AB_USAGE, "--cell: a log has no cells");
    memcpy(path, r->path, sizeof path);
    ab_log_order(path, r->paths);
    ab_status status = ab_log_read(&log, path, r->paths);
    if (status == AB_OK) status = ab_recorded_of_log(&log, r->half, recorded);
    ab_log_free(&log);
    return status;
}

/* Whether the largest gradient is known well enough to tell neighbouring powers of two apart. */
static bool is_bounded(const ab_recorded_step *s) { return s->high > 1.09 * s->low; }

static ab_status read_source(const ab_replay_request *r, ab_recorded *recorded) {
    const ab_input_kind *kind = ab_input_kind_of(r->path[0]);
    *recorded = (ab_recorded){.steps = 0};
    if (kind && strcmp(kind->name, "checkpoint") == 0)
        return ab_fail(AB_INPUT, "--replay: expected a result document or a log, found a checkpoint: %s",
                       r->path[0]);
    AB_TRY(kind && strcmp(kind->name, "log") == 0 ? read_log(r, recorded) : read_document(r, recorded));
    ab_replay_source *s = &recorded->source;
    s->path = r->path[0];
    s->steps = recorded->steps;
    ab_text_show(s->half, sizeof s->half, "%s", recorded->half->name);
    for (int64_t t = 0; t < recorded->steps; t++) {
        s->bounded += is_bounded(&recorded->step[t]);
        s->skipped += recorded->step[t].skipped;
    }
    return AB_OK;
}

/* ---- scalers ---------------------------------------------------------------------------------- */

static ab_status check_dialects(const ab_replay_request *r, const ab_recorded *recorded) {
    for (int i = 0; i < r->dialects; i++) {
        const ab_scaler_kind *kind = r->config[i].kind;
        if (!ab_replay_can(kind))
            return ab_fail(AB_USAGE, "scaler %s: it has a scale for each layer, which a replay does not tell",
                           kind->name);
        if (kind->sees && !recorded->source.has_gradients)
            return ab_fail(AB_USAGE,
                           "scaler %s: it follows the size of the gradients, which a log does not tell",
                           kind->name);
    }
    return AB_OK;
}

/* Every dialect that changes its scale by what is recorded. */
static int all_dialects(const ab_recorded *recorded, ab_scaler_config *config) {
    int count = 0;
    for (int i = 0; i < ab_scaler_count(); i++) {
        const ab_scaler_kind *kind = ab_scaler_at(i);
        const ab_scaler_config defaults = ab_scaler_defaults(kind);
        ab_scaler scaler;
        ab_scaler_start(&scaler, &defaults);
        if (!ab_replay_can(kind) || !ab_scaler_checks(&scaler)) continue;
        if (kind->sees && !recorded->source.has_gradients) continue;
        config[count++] = defaults;
    }
    return count;
}

static ab_status replay_all(const ab_recorded *recorded, const ab_scaler_config *config, int count,
                            ab_replay_result *result) {
    result->source = recorded->source;
    result->rows = count;
    AB_TRY(ab_replay_recorded(recorded, &result->recorded));
    for (int i = 0; i < count; i++) AB_TRY(ab_replay_scaler(recorded, &config[i], &result->row[i]));
    ab_replay_judge(result);
    return AB_OK;
}

static ab_status replay_grid(const ab_replay_request *r, const ab_recorded *recorded,
                             ab_replay_result *result) {
    ab_scaler_config *all = calloc((size_t)ab_scaler_count(), sizeof *all), *configs = NULL;
    int count = 0;
    if (!all) return ab_fail(AB_NO_MEMORY, "scaler: out of memory");
    const int dialects = r->dialects > 0 ? r->dialects : all_dialects(recorded, all);
    ab_status status = ab_replay_grid(r->grid, r->dialects > 0 ? r->config : all, dialects, &configs, &count);
    if (status == AB_OK) status = replay_all(recorded, configs, count, result);
    free(configs);
    free(all);
    return status;
}

/* ---- output ----------------------------------------------------------------------------------- */

static ab_status draw(const cJSON *document, const char *folder) {
    const char *note = NULL;
    ab_lock lock;
    AB_TRY(ab_lock_folder("--plot", folder, &lock));
    const ab_status status = ab_replay_plot(document, folder, &note);
    ab_lock_release(&lock);
    AB_TRY(status);
    if (note) ab_warn("%s", note);
    return AB_OK;
}

static ab_status report(const ab_replay_request *r, const ab_replay_result *result) {
    if (!r->json || strcmp(r->json, "-") != 0) ab_replay_print(stdout, result);
    if (!r->json && !r->plot) return AB_OK;
    cJSON *document = ab_replay_document(result);
    ab_status status = document ? AB_OK : ab_fail(AB_NO_MEMORY, "scaler: out of memory");
    if (status == AB_OK && r->json) status = ab_json_write_file(document, r->json);
    if (status == AB_OK && r->plot) status = draw(document, r->plot);
    cJSON_Delete(document);
    return status;
}

ab_status ab_replay_run(const ab_replay_request *request) {
    ab_recorded recorded;
    ab_replay_result *result = calloc(1, sizeof *result);
    if (!result) return ab_fail(AB_NO_MEMORY, "scaler: out of memory");
    ab_status status = read_source(request, &recorded);
    if (status == AB_OK) status = check_dialects(request, &recorded);
    if (status == AB_OK) status = replay_grid(request, &recorded, result);
    if (status == AB_OK) status = report(request, result);
    ab_recorded_free(&recorded);
    free(result);
    return status;
}
