/* What the tests of probes share: a small network on data made here, cells at every level, probes by name,
 * and reports as trees. */
#ifndef AB_TESTS_UNIT_PROBE_TESTING_H
#define AB_TESTS_UNIT_PROBE_TESTING_H

#include "bench/run/json_lines.h"
#include "bench/train/cell/cell.h"
#include "kernels/core/parallel.h"
#include "kernels/core/rng.h"
#include "probes/set.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/grey_images.h"

#include <cjson/cJSON.h>

enum { PT_SIDE = 8, PT_SAMPLES = 24, PT_BATCH = 8, PT_MOST = 128 };

static const char *const pt_levels[] = {"O0", "O1", "O2", "O3"};

/* ---- network and data ------------------------------------------------------------------------ */

static const char pt_ops[] =
    "{\"name\": \"conv1\", \"op\": \"conv2d\", \"out_channels\": 4, \"kernel_size\": 3, \"padding\": 1}, "
    "{\"name\": \"bn1\", \"op\": \"batch_norm2d\"}, {\"name\": \"relu1\", \"op\": \"relu\"}, "
    "{\"name\": \"conv2\", \"op\": \"conv2d\", \"out_channels\": 4, \"kernel_size\": 3, \"padding\": 1}, "
    "{\"name\": \"sum\", \"op\": \"add\", \"in\": [\"conv2\", \"relu1\"]}, "
    "{\"name\": \"pool\", \"op\": \"max_pool2d\", \"kernel_size\": 2}, "
    "{\"name\": \"flat\", \"op\": \"flatten\"}, "
    "{\"name\": \"fc\", \"op\": \"linear\", \"out_features\": 3}, "
    "{\"name\": \"loss\", \"op\": \"cross_entropy\"}";

static inline ab_net *pt_net(const char *ops) {
    char text[4096];
    ab_net *net = NULL;
    snprintf(text, sizeof text,
             "{\"format\": \"ampbench-net-1\", \"name\": \"tiny\", \"input\": {\"height\": 8, \"width\": 8, "
             "\"channels\": 1}, \"ops\": [%s]}",
             ops);
    if (ab_net_parse(text, strlen(text), "tiny.json", &net) != AB_OK) fail_msg("%s", ab_error_message());
    return net;
}

static inline const ab_data *pt_data(void) {
    static uint8_t pixels[PT_SAMPLES * PT_SIDE * PT_SIDE], labels[PT_SAMPLES];
    static ab_data data;
    grey_noise(pixels, labels, PT_SAMPLES, PT_SIDE, 3, 2);
    ab_images images = {.count = PT_SAMPLES, .pixel = pixels, .label = labels};
    data = grey_images("tiny", PT_SIDE, 3, images, images, 0.5);
    return &data;
}

/* A configuration at a level; `set` overrides one property, or is NULL. */
static inline ab_cell_config pt_config(const ab_net *net, const char *level, const ab_format *half,
                                       const char *optimizer, const char *set) {
    const ab_level *found = NULL;
    ab_cell_config config = {.net = net,
                             .batch = PT_BATCH,
                             .seed = 1,
                             .data = pt_data(),
                             .normalize = AB_NORMALIZE_STANDARD,
                             .device = &ab_device_cpu};
    assert_int_equal(ab_level_find(level, &found), AB_OK);
    assert_int_equal(ab_policy_resolve(found, half, &set, set ? 1 : 0, &config.policy), AB_OK);
    assert_int_equal(ab_optimizer_find(optimizer, &config.optimizer), AB_OK);
    config.optim = config.optimizer->defaults;
    return config;
}

static inline ab_cell *pt_cell(const ab_cell_config *config) {
    ab_cell *cell = NULL;
    if (ab_cell_create(config, &cell) != AB_OK) fail_msg("%s", ab_error_message());
    return cell;
}

/* ---- probes ---------------------------------------------------------------------------------- */

static inline const ab_probe_kind *pt_probe(const char *name) {
    int index = -1;
    if (ab_probe_find(name, &index) != AB_OK) fail_msg("%s", ab_error_message());
    return ab_probe_at(index);
}

/* Probes in a cell. Tensors and parameters live as long as this. */
typedef struct pt_probing {
    ab_probe_set *set;
    ab_probe_tensor tensor[PT_MOST];
    ab_probe_param param[PT_MOST];
    ab_probe_setup setup;
} pt_probing;

static inline void pt_start(pt_probing *p, uint64_t chosen, ab_cell *cell, const ab_cell_config *config,
                            const ab_format *half) {
    assert_int_equal(ab_probe_set_create(chosen, NULL, &p->set), AB_OK);
    ab_watch watch = ab_probe_set_watch(p->set);
    ab_cell_watch(cell, &watch);
    p->setup = (ab_probe_setup){.tensor = p->tensor,
                                .tensors = ab_cell_observed_count(cell),
                                .threads = ab_parallel_threads(),
                                .half = half,
                                .param = p->param,
                                .params = ab_cell_trained_count(cell),
                                .optimizer = {.lr = config->optim.lr,
                                              .weight_decay = config->optim.weight_decay,
                                              .beta1 = config->optim.beta1,
                                              .beta2 = config->optim.beta2,
                                              .eps = config->optim.eps,
                                              .second_moment = config->optimizer->second_moment}};
    for (int i = 0; i < config->optimizer->states; i++)
        p->setup.optimizer.state[i] = config->optimizer->state[i];
    assert_true(p->setup.tensors <= PT_MOST && p->setup.params <= PT_MOST);
    for (int i = 0; i < p->setup.tensors; i++) {
        const ab_observed *about = ab_cell_observed_at(cell, i);
        p->tensor[i] = (ab_probe_tensor){about->name, about->layer, about->role, about->cast};
    }
    for (int i = 0; i < p->setup.params; i++) p->param[i] = *ab_cell_trained_at(cell, i);
    assert_int_equal(ab_probe_set_start(p->set, &p->setup), AB_OK);
}

/* One probed step; returns the loss. */
static inline float pt_step(pt_probing *p, ab_cell *cell) {
    ab_step_result result;
    int64_t step = ab_cell_steps(cell);
    if (ab_cell_step(cell, ab_probe_set_observer(p->set), &result) != AB_OK)
        fail_msg("%s", ab_error_message());
    ab_probe_set_step_end(p->set, step);
    return result.loss;
}

/* ---- reports --------------------------------------------------------------------------------- */

typedef void (*pt_writer)(void *state, ab_probe_sink *sink);

/* What `write` puts into an object. The caller deletes the tree. */
static inline cJSON *pt_report(pt_writer write, void *state) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    ab_json_line line;
    ab_json_line_begin(&line, out, "probes");
    write(state, &line.sink);
    ab_json_line_end(&line);
    fclose(out);
    cJSON *document = cJSON_Parse(text);
    assert_non_null(document);
    free(text);
    return document;
}

static inline void pt_write_set(void *state, ab_probe_sink *sink) { ab_probe_set_report(state, sink); }
static inline cJSON *pt_set_report(const pt_probing *p) { return pt_report(pt_write_set, p->set); }

static inline const cJSON *pt_get(const cJSON *object, const char *key) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!item) fail_msg("the report lacks %s", key);
    return item;
}

static inline double pt_number(const cJSON *object, const char *key) {
    const cJSON *item = pt_get(object, key);
    if (!cJSON_IsNumber(item)) fail_msg("%s is no number", key);
    return item->valuedouble;
}

static inline int64_t pt_integer(const cJSON *object, const char *key) {
    return (int64_t)pt_number(object, key);
}

static inline bool pt_is_null(const cJSON *object, const char *key) {
    return cJSON_IsNull(pt_get(object, key));
}

static inline const char *pt_text(const cJSON *object, const char *key) {
    const char *text = cJSON_GetStringValue(pt_get(object, key));
    if (!text) fail_msg("%s is no text", key);
    return text;
}

/* The element of an array whose `key` is `text`. */
static inline const cJSON *pt_find(const cJSON *array, const char *key, const char *text) {
    const cJSON *item = NULL;
    cJSON_ArrayForEach(item, array) {
        if (strcmp(pt_text(item, key), text) == 0) return item;
    }
    fail_msg("nothing has %s \"%s\"", key, text);
    return NULL;
}

#endif
