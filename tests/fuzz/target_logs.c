/* Fuzz targets: training logs as text and tables, and event files. Whatever is accepted becomes a document,
 * facts and bounds, and its scales are compared with every loss scaler. */
#include "tests/fuzz/fuzz.h"

#include "bench/ingest/dialect/dialect.h"
#include "bench/ingest/log/facts.h"
#include "reports/record/json.h"

#include <math.h>
#include <stdlib.h>

static void use(const ab_log *log, const char *const *name) {
    ab_log_bracket bracket[8];
    cJSON *json = ab_log_json(log, name, 1), *dialects = NULL;
    const int bounds = ab_log_brackets(log, 65520, bracket, 8);
    for (int i = 0; i < bounds && i < 8; i++) fuzz_insist(!(bracket[i].low > bracket[i].high));
    fuzz_insist(log->points <= 2 * AB_LOG_POINTS && log->nearest <= AB_LOG_NEAREST && log->copies >= 1);
    fuzz_insist(ab_dialects_json(log, &dialects) == AB_OK);
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
