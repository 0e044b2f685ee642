/* A training log, as a record: what its lines say and what they prove (bench/ingest/log). */
#include "bench/ingest/dialect/dialect.h"
#include "bench/ingest/ingest.h"
#include "reports/record/result.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* What a result document must have; a log knows none of it. */
static const char frame[] =
    "{\"schema\":\"ampbench-result\",\"schema_version\":\"1.0\","
    "\"generator\":{\"name\":\"ampbench read\",\"version\":\"0\",\"git_sha\":null,\"git_dirty\":false,"
    "\"build_type\":\"\",\"compiler\":\"\",\"flags\":\"\",\"onednn_version\":null},"
    "\"run\":{\"id\":\"log\",\"started_utc\":\"\",\"finished_utc\":null,\"argv\":[],\"complete\":true,"
    "\"exit_status\":0,\"elapsed_s\":0},\"config\":{\"net\":\"log\",\"levels\":[],\"scales\":[],"
    "\"half\":[\"fp16\"],\"device\":\"unknown\",\"steps\":0,\"rounds\":1,\"probe_every\":0},"
    "\"design\":{\"rounds\":1,\"order_seed\":0,\"order\":[]},\"network\":{\"name\":\"log\","
    "\"text\":\"\",\"parameters_count\":0},\"cells\":[{\"observed_by\":\"log\",\"model\":\"log\","
    "\"level\":\"log\",\"scale_policy\":\"dynamic\",\"half_format\":\"fp16\",\"device\":\"unknown\","
    "\"seed\":0,\"twin\":null,\"status\":\"ok\",\"reason\":null,\"summary\":{}}],\"noise_floor\":null,"
    "\"warnings\":[]}";

/* Steps that the log spans; where it counts none, its points. */
static double steps_of(const ab_log *log) {
    const ab_log_totals t = ab_log_total(log);
    const double steps = t.last_step - t.first_step + 1;
    return fmax(steps >= 1 && steps < 0x1p53 ? floor(steps) : log->points + log->histograms, t.skipped);
}

static cJSON *new_record(const ab_log *log, const char *name) {
    cJSON *document = cJSON_Parse(frame);
    cJSON *cell = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(document, "cells"), 0);
    if (cJSON_AddStringToObject(cell, "id", name) &&
        cJSON_AddNumberToObject(cell, "steps_total", steps_of(log)))
        return document;
    cJSON_Delete(document);
    return NULL;
}

static ab_status as_record(const ab_log *log, const char *const *path, int paths, cJSON **document) {
    *document = new_record(log, path[0]);
    cJSON *json = ab_log_json(log, path, paths);
    if (!*document || !json || !cJSON_AddItemToObject(*document, "log", json)) {
        cJSON_Delete(json);
        return ab_fail(AB_NO_MEMORY, "%s: out of memory", path[0]);
    }
    cJSON *dialects;
    AB_TRY(ab_dialects_json(log, AB_DIALECT_WORK, &dialects));
    if (dialects) cJSON_AddItemToObject(json, "dialects", dialects);
    return AB_OK;
}

static ab_status read_log(const ab_ingest_request *request, cJSON **document) {
    ab_log log = {.points = 0};
    ab_status status = AB_OK;
    const char **path = calloc((size_t)request->paths, sizeof *path);
    *document = NULL;
    if (!path) return ab_fail(AB_NO_MEMORY, "%s: out of memory", request->path[0]);
    for (int i = 0; i < request->paths; i++) path[i] = request->path[i];
    ab_log_order(path, request->paths);
    AB_TRY_GOTO(ab_log_read(&log, path, request->paths));
    AB_TRY_GOTO(as_record(&log, path, request->paths, document));
    status = ab_result_summarise(*document);
    if (status == AB_OK) status = ab_result_check(*document, path[0]);
out:
    if (status != AB_OK) {
        cJSON_Delete(*document);
        *document = NULL;
    }
    ab_log_free(&log);
    free(path);
    return status;
}

/* Text that is no JSON is read as a log too: if it is none, its reader says what it looked for. */
static bool is_plain_text(const char *path) {
    unsigned char head[512];
    FILE *file = fopen(path, "rb");
    if (!file) return false;
    const size_t size = fread(head, 1, sizeof head, file);
    size_t blank = 0;
    fclose(file);
    while (blank < size && (head[blank] == ' ' || head[blank] == '\n' || head[blank] == '\t')) blank++;
    for (size_t i = 0; i < size; i++)
        if (head[i] == '\0') return false;
    return blank < size && head[blank] != '{' && head[blank] != '[';
}

static bool recognise(const char *path) { return ab_log_recognises(path) || is_plain_text(path); }

const ab_input_kind ab_input_kind_log = {
    .name = "log",
    .text = "LOG...: a training log of any framework, CSV, JSON Lines, event files (docs/logs.md)",
    .recognise = recognise,
    .read = read_log,
};
