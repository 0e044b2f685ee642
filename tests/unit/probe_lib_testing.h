/* Short forms for tests of libampprobe. */
#ifndef AB_TESTS_UNIT_PROBE_LIB_TESTING_H
#define AB_TESTS_UNIT_PROBE_LIB_TESTING_H

#include "include/ampprobe.h"
#include "kernels/format/format.h"
#include "reports/record/json.h"
#include "reports/record/result.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { PL_PATH = 96 };

/* The one place of a test's process; its children write there too. */
static inline const char *pl_path(char path[PL_PATH]) {
    static int process;
    if (process == 0) process = (int)getpid();
    snprintf(path, PL_PATH, "/tmp/ampprobe-test-%d.json", process);
    return path;
}

static inline ampprobe *pl_open(const char *config) {
    char path[PL_PATH];
    ampprobe *p = NULL;
    if (ampprobe_open(pl_path(path), config, &p) != AMPPROBE_OK) fail_msg("%s", ampprobe_error());
    assert_non_null(p);
    return p;
}

/* Closes the probe and reads its document, which passes all checks; removes it. */
static inline cJSON *pl_close(ampprobe *p) {
    char path[PL_PATH], journal[PL_PATH + 8];
    cJSON *document = NULL;
    assert_int_equal(ampprobe_close(p), AMPPROBE_OK);
    snprintf(journal, sizeof journal, "%s.steps", pl_path(path));
    assert_int_not_equal(access(journal, F_OK), 0);
    if (ab_result_load(path, &document) != AB_OK) fail_msg("%s", ab_error_message());
    unlink(path);
    return document;
}

static inline const cJSON *pl_cell(const cJSON *document) {
    return cJSON_GetArrayItem(ab_json_at(document, "cells"), 0);
}

static inline const cJSON *pl_tensor(const cJSON *cell, const char *list, const char *name) {
    const cJSON *tensor;
    cJSON_ArrayForEach(tensor, ab_json_at(cell, list)) {
        if (strcmp(ab_json_text(tensor, "name", ""), name) == 0) return tensor;
    }
    return NULL;
}

static inline ampprobe_thing pl_thing(const char *name, int32_t dtype, int64_t count) {
    return (ampprobe_thing){.size = sizeof(ampprobe_thing),
                            .flags = AMPPROBE_PARAMETER,
                            .name = name,
                            .dtype = dtype,
                            .dimensions = 1,
                            .shape = {count}};
}

static inline int32_t pl_parameter(ampprobe *p, const char *name, int32_t dtype, int64_t count) {
    const ampprobe_thing thing = pl_thing(name, dtype, count);
    int32_t id = -1;
    assert_int_equal(ampprobe_describe(p, &thing, 1, &id), AMPPROBE_OK);
    return id;
}

/* `count` contiguous fp32 values as a gradient. */
static inline ampprobe_tensor pl_gradient(int32_t id, const void *values, int64_t count) {
    return (ampprobe_tensor){.id = id,
                             .role = AMPPROBE_WEIGHT_GRADIENT,
                             .dtype = AMPPROBE_FP32,
                             .data = values,
                             .count = count,
                             .stride = 1,
                             .storage_bytes = 4 * count};
}

static inline ampprobe_step_facts pl_facts(int64_t step) {
    return (ampprobe_step_facts){
        .size = sizeof(ampprobe_step_facts), .step = step, .found_inf = -1, .stepped = -1};
}

static inline void pl_step(ampprobe *p, int64_t step) {
    ampprobe_step_facts f = pl_facts(step);
    f.seconds = 1e-3;
    if (ampprobe_step(p, &f) != AMPPROBE_OK) fail_msg("%s", ampprobe_error());
}

static inline int64_t pl_size(const char *path) {
    struct stat about;
    return stat(path, &about) == 0 ? (int64_t)about.st_size : 0;
}

#endif
