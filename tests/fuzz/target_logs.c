/* Fuzz targets: training logs as text and tables, and event files. Whatever is accepted becomes a document,
 * facts and bounds, its scales are compared with every loss scaler, and a scaler is replayed on it. And the
 * gradients of records, as a replay reads them. */
#include "tests/fuzz/fuzz.h"

#include "bench/ingest/dialect/dialect.h"
#include "bench/ingest/log/facts.h"
#include "bench/replay/replay.h"
#include "reports/record/json.h"

#include <math.h>
#include <stdlib.h>

/* Bounds of each step stay in order, and no share leaves [0, 1]. */
static void replay(const ab_recorded *recorded) {
    ab_replay_row row;
    ab_scaler_config config;
    fuzz_insist(ab_scaler_parse("torch:window=3", &config) == AB_OK);
    for (int64_t t = 0; t < recorded->steps; t++)
        fuzz_insist(recorded->step[t].low >= 0 && recorded->step[t].low <= recorded->step[t].high);
    fuzz_insist(ab_replay_scaler(recorded, &config, &row) == AB_OK);
    fuzz_insist(row.most.skipped >= 0 && row.most.skipped <= recorded->steps);
    fuzz_insist(row.most.agreed <= recorded->steps && !(row.most.flushed > 1 + 1e-9));
}

static void try_replay(ab_status status, ab_recorded *recorded) {
    enum { QUICK = 1 << 12 }; /* steps that are replayed here */
    if (status == AB_OK && recorded->steps <= QUICK) replay(recorded);
    ab_recorded_free(recorded);
}

void fuzz_replay(const uint8_t *data, size_t size) {
    ab_recorded recorded = {.steps = 0};
    cJSON *document = cJSON_ParseWithLength((const char *)data, size);
    if (!document) return;
    const ab_status status = ab_recorded_of_document(document, NULL, NULL, &recorded);
    if (status == AB_OK) fuzz_passed();
    try_replay(status, &recorded);
    cJSON_Delete(document);
}

enum { DIALECT_WORK = 1 << 12 }; /* of a search */

static void use(const ab_log *log, const char *const *name) {
    ab_log_bracket bracket[8];
    cJSON *json = ab_log_json(log, name, 1), *dialects = NULL;
    const int bounds = ab_log_brackets(log, 65520, bracket, 8);
    for (int i = 0; i < bounds && i < 8; i++) fuzz_insist(!(bracket[i].low > bracket[i].high));
    fuzz_insist(log->points <= 2 * AB_LOG_POINTS && log->nearest <= AB_LOG_NEAREST && log->copies >= 1);
    fuzz_insist(ab_dialects_json(log, DIALECT_WORK, &dialects) == AB_OK);
    ab_recorded recorded = {.steps = 0};
    const ab_status status = ab_recorded_of_log(log, NULL, &recorded);
    try_replay(status, &recorded);
    ab_json_print(json, fuzz_sink(false));
    cJSON_Delete(json);
    cJSON_Delete(dialects);
}

static void try_log(ab_log *log, const uint8_t *data, size_t size) {
    static const char *const name[] = {"log"};
    if (ab_log_read_bytes(log, name[0], data, size) == AB_OK) {
        fuzz_passed();
        use(log, name);
    }
    ab_log_free(log);
}

void fuzz_log(const uint8_t *data, size_t size) {
    ab_log log = {.points = 0};
    try_log(&log, data, size);
}

void fuzz_events(const uint8_t *data, size_t size) {
    ab_log log = {.points = 0};
    try_log(&log, data, size);
}

/* A loss scaler that is searched for, and constants of it. */
static bool choose(const uint8_t *data, ab_scaler_config *config) {
    const ab_scaler_kind *kind = ab_scaler_at(data[0] % ab_scaler_count());
    const int window = ab_scaler_key_index(kind, "window"), credits = ab_scaler_key_index(kind, "hysteresis");
    *config = ab_scaler_defaults(kind);
    if (kind->sees || window < 0) return false;
    config->value[window] = 1 + data[1] % 40;
    if (credits >= 0) config->value[credits] = 1 + data[2] % 4;
    return true;
}

/* Steps that are taken, then some that overflow, as a log shows them. False: the scaler fails here. */
static bool show(ab_scaler *s, uint8_t steps, ab_scale_span *span) {
    const int taken = steps & 15, skipped = steps >> 4 & 3;
    *span = (ab_scale_span){.steps = taken + skipped, .skipped = skipped};
    for (int i = 0; i < taken + skipped; i++) {
        const bool overflow = i >= taken;
        const ab_scaler_seen seen = {.overflow = overflow, .amax = overflow ? (double)INFINITY : 1};
        const ab_scaler_outcome outcome = ab_scaler_update(s, &seen);
        if (outcome.fault && outcome.fault->raises) return false;
    }
    span->scale = s->scale;
    return span->steps > 0;
}

/* A scaler fits the scales that it made. */
void fuzz_dialect(const uint8_t *data, size_t size) {
    enum { SPANS = 64, CONSTANTS = 3, WORK = 1 << 14 };
    ab_scale_span span[SPANS];
    ab_scaler_config config;
    ab_scaler s;
    ab_dialect_fit fit[AB_DIALECTS];
    bool cut;
    int64_t work = WORK;
    if (size <= CONSTANTS || !choose(data, &config)) return;
    ab_scaler_start(&s, &config);
    ab_scale_course course = {.first = s.scale, .fresh = true, .span = span};
    for (size_t i = CONSTANTS; i < size && course.spans < SPANS; i++)
        if (show(&s, data[i], &span[course.spans]))
            course.spans++;
        else
            break;
    const bool fits = ab_dialect_fits(&course, &config, &work);
    fuzz_insist(fits || work < 0);
    if (fits) fuzz_passed();
    fuzz_insist(ab_dialects_of(&course, DIALECT_WORK, fit, &cut) <= AB_DIALECTS);
}
