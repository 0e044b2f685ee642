/* Golden traces: what PyTorch computed (tests/golden, made by scripts/peer_pytorch.py) beside what a cell
 * computes, and how far apart the two are. Shared by test_golden.c and test_golden_fashion_mnist.c; asserts
 * nothing by itself.
 *
 * Needs POSIX 2008. A tensor is kept as its norm and eight sums of its elements under random signs. The mean
 * square of the differences of two tensors' sums estimates the squared norm of their difference (Alon,
 * Matias, Szegedy, STOC 1996), so every element counts and a trace stays small. */
#ifndef AB_TESTS_UNIT_GOLDEN_TESTING_H
#define AB_TESTS_UNIT_GOLDEN_TESTING_H

#include "bench/run/config/digest.h"
#include "bench/train/cell/cell.h"
#include "kernels/core/rng.h"
#include "tests/support/json_file.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GOLDEN_STEPS = 64, GOLDEN_TENSORS = 288, GOLDEN_SKETCHES = 8, GOLDEN_PATH = 512 };

typedef struct golden_stats {
    double l2, sketch[GOLDEN_SKETCHES];
} golden_stats;

typedef struct golden_tensor {
    char name[AB_PLAN_NAME];
    int64_t count;
    int precision;         /* significand bits of what the optimizer updates; 0 for a buffer */
    golden_stats start;    /* before the first step */
    golden_stats gradient; /* unscaled, of the first step taken */
    golden_stats value;    /* after the second step taken */
    double update_l2;      /* norm of that value's difference from the start */
    float *first;          /* the start itself; only of a measured trace */
} golden_tensor;

typedef struct golden_trace {
    int steps, tensors;
    double loss[GOLDEN_STEPS], scale[GOLDEN_STEPS];
    bool skipped[GOLDEN_STEPS];
    golden_tensor tensor[GOLDEN_TENSORS];
} golden_trace;

/* ---- distances and their limits -------------------------------------------------------------- */

typedef enum golden_quantity {
    GOLDEN_SCALE,       /* steps whose loss scale or skip differs */
    GOLDEN_LOSS_1,      /* relative, at the first step */
    GOLDEN_LOSS_10,     /* largest up to the tenth step */
    GOLDEN_LOSS_60,     /* largest of all steps */
    GOLDEN_START,       /* of the initial weights, relative to their norm */
    GOLDEN_GRADIENT_L2, /* of the norms of the first gradient, relative */
    GOLDEN_GRADIENT,    /* of the first gradient, relative to its norm */
    GOLDEN_WEIGHT,      /* of the weights after two steps, relative to the norm of their update */
    GOLDEN_BUFFER,      /* of the running statistics after two steps, relative to their norm */
    GOLDEN_QUANTITIES
} golden_quantity;

static const char *const golden_names[GOLDEN_QUANTITIES] = {
    "scale", "loss_1", "loss_10", "loss_60", "start", "gradient_l2", "gradient", "weight", "buffer"};

/* The largest distance of each kind, and the tensor it was found in. */
typedef struct golden_distances {
    double value[GOLDEN_QUANTITIES];
    const char *where[GOLDEN_QUANTITIES];
} golden_distances;

/* Losses and gradient norms: the project's promise. The rest: three to ten times what honest PyTorch runs of
 * the same trace differ by ("drift" in each file), which is far below what any planted mistake does. */
static const struct golden_limits {
    const char *net;
    bool half;
    double value[GOLDEN_QUANTITIES];
} golden_limits[] = {
    {"tests/golden/tiny.json", false, {0, 5e-6, 5e-6, 5e-6, 1e-7, 1e-4, 1e-4, 1e-3, 1e-5}},
    {"tests/golden/tiny.json", true, {0, 5e-6, 1e-4, 1e-4, 1e-7, 1e-2, 3e-3, 5e-3, 5e-4}},
    {"tests/golden/two_losses.json", false, {0, 5e-6, 5e-6, 5e-6, 1e-7, 1e-4, 1e-4, 1e-3, 1e-5}},
    {"tests/golden/two_losses.json", true, {0, 5e-6, 1e-4, 3e-4, 1e-7, 1e-2, 3e-3, 5e-3, 5e-4}},
    {"tests/golden/adaloss.json", true, {0, 5e-6, 1e-4, 1e-4, 1e-7, 1e-2, 3e-3, 5e-3, 0}},
    {"autoencoder", false, {0, 5e-6, 5e-6, 5e-6, 1e-7, 1e-4, 1e-4, 1e-3, 0}},
    {"autoencoder", true, {0, 5e-6, 1e-4, 1e-4, 1e-7, 1e-2, 5e-3, 3e-2, 0}},
    {"unet_small", false, {0, 5e-6, 1e-4, 1e-4, 1e-7, 3e-3, 1e-2, 1e-1, 2e-4}},
    {"unet_small", true, {0, 1.5e-4, 6e-3, 6e-3, 1e-7, 1e-1, 5e-1, 1, 1e-2}},
    {"tests/golden/resnet50_64.json", false, {0, 5e-5, 8e-2, 8e-2, 1e-7, 5e-2, 0.25, 3, 0.1}},
    {"tests/golden/tiny_transformer.json", false, {0, 5e-6, 5e-6, 5e-6, 1e-7, 1e-4, 1e-4, 1e-3, 0}},
    {"tests/golden/tiny_transformer.json", true, {0, 5e-6, 1e-4, 1e-4, 1e-7, 1e-2, 3e-3, 5e-3, 0}},
    {"lenet5", false, {0, 5e-6, 5e-6, 5e-6, 1e-7, 1e-4, 1e-4, 1e-3, 0}},
    {"lenet5", true, {0, 5e-6, 1e-4, 1e-4, 1e-7, 1e-2, 5e-3, 1e-2, 0}},
    {"mlp", false, {0, 5e-6, 5e-6, 5e-6, 1e-7, 1e-4, 1e-4, 1e-3, 0}},
    {"mlp", true, {0, 5e-6, 1e-4, 1e-4, 1e-7, 1e-2, 5e-3, 1e-2, 0}},
    {"gpt", false, {0, 5e-6, 5e-6, 5e-6, 1e-7, 1e-4, 1e-4, 1e-3, 0}},
    {"gpt", true, {0, 5e-6, 1e-4, 1e-4, 1e-7, 1e-2, 5e-3, 1e-1, 0}},
    {"transformer_classifier", false, {0, 5e-6, 5e-6, 5e-6, 1e-7, 1e-4, 1e-4, 1e-3, 0}},
    {"transformer_classifier", true, {0, 5e-6, 1e-4, 1e-4, 1e-7, 1e-2, 5e-3, 1e-1, 0}},
    {"lstm_lm", false, {0, 5e-6, 5e-6, 5e-6, 1e-7, 1e-4, 1e-4, 1e-3, 0}},
    {"lstm_lm", true, {0, 5e-6, 1e-4, 1e-4, 1e-7, 1e-2, 5e-3, 1e-2, 0}},
    {"vit_tiny", false, {0, 5e-6, 5e-6, 5e-6, 1e-7, 1e-4, 1e-4, 1e-3, 0}},
    {"vit_tiny", true, {0, 5e-4, 1e-3, 1e-3, 1e-7, 1e-2, 1e-2, 1e-2, 0}},
    {"resnet8", false, {0, 1e-6, 1e-3, 1e-3, 1e-7, 1e-4, 2e-3, 1e-2, 1e-4}},
    {"resnet8", true, {0, 3e-5, 1e-3, 1e-3, 1e-7, 1e-2, 8e-2, 2e-1, 2e-3}},
};

static double golden_share(double difference, double of) {
    if (difference == 0.0) return 0.0;
    return of != 0.0 ? difference / of : HUGE_VAL;
}

static double golden_relative(double a, double b) { return golden_share(fabs(a - b), fabs(b)); }

static double golden_difference(const golden_stats *a, const golden_stats *b) {
    double sum = 0;
    for (int k = 0; k < GOLDEN_SKETCHES; k++) sum += pow(a->sketch[k] - b->sketch[k], 2);
    return sqrt(sum / GOLDEN_SKETCHES);
}

/* What rounding the stored weight explains is taken off first: one ulp of every element in fp32, where an
 * update can be smaller than that; four elements' in a half format, where few fall on the other side. */
static double golden_weight_difference(const golden_tensor *a, const golden_tensor *b) {
    double slack = ldexp(1.0, -23) + ldexp(1.0, 3 - a->precision) / sqrt((double)a->count);
    return fmax(0.0, golden_difference(&a->value, &b->value) - slack * b->value.l2);
}

static void golden_raise(golden_distances *d, golden_quantity q, double value, const char *where) {
    if (isnan(value)) value = HUGE_VAL;
    if (value <= d->value[q]) return;
    d->value[q] = value;
    d->where[q] = where;
}

static void golden_compare_tensor(golden_distances *d, const golden_tensor *a, const golden_tensor *b) {
    if (b->precision == 0) {
        golden_raise(d, GOLDEN_BUFFER, golden_share(golden_difference(&a->value, &b->value), b->value.l2),
                     b->name);
        return;
    }
    golden_raise(d, GOLDEN_START, golden_share(golden_difference(&a->start, &b->start), b->start.l2),
                 b->name);
    golden_raise(d, GOLDEN_GRADIENT_L2, golden_relative(a->gradient.l2, b->gradient.l2), b->name);
    golden_raise(d, GOLDEN_GRADIENT,
                 golden_share(golden_difference(&a->gradient, &b->gradient), b->gradient.l2), b->name);
    golden_raise(d, GOLDEN_WEIGHT, golden_share(golden_weight_difference(a, b), b->update_l2), b->name);
}

/* Distances of a measured trace from a recorded one, over the steps that both have. */
static golden_distances golden_compare(const golden_trace *measured, const golden_trace *recorded) {
    golden_distances d = {{0}, {NULL}};
    int steps = measured->steps < recorded->steps ? measured->steps : recorded->steps;
    for (int i = 0; i < steps; i++) {
        double loss = golden_relative(measured->loss[i], recorded->loss[i]);
        if (i < 1) golden_raise(&d, GOLDEN_LOSS_1, loss, NULL);
        if (i < 10) golden_raise(&d, GOLDEN_LOSS_10, loss, NULL);
        golden_raise(&d, GOLDEN_LOSS_60, loss, NULL);
        d.value[GOLDEN_SCALE] +=
            measured->scale[i] != recorded->scale[i] || measured->skipped[i] != recorded->skipped[i];
    }
    for (int t = 0; t < recorded->tensors; t++)
        golden_compare_tensor(&d, &measured->tensor[t], &recorded->tensor[t]);
    return d;
}

/* The limits of a trace's network and level. */
static const struct golden_limits *golden_limits_of(const char *net, const char *level) {
    for (size_t i = 0; i < AB_COUNT_OF(golden_limits); i++)
        if (strcmp(golden_limits[i].net, net) == 0 && golden_limits[i].half == (strcmp(level, "O0") != 0))
            return &golden_limits[i];
    return NULL;
}

/* One line of all distances, for people. */
static void golden_print(const char *path, const golden_distances *d) {
    printf("  %s:", path);
    for (int q = 0; q < GOLDEN_QUANTITIES; q++) printf(" %s %.1e", golden_names[q], d->value[q]);
    printf("\n");
}

/* How many quantities are beyond their limits; prints each as "kind value > limit at tensor". */
static int golden_count_beyond(const golden_distances *d, const struct golden_limits *limits) {
    int beyond = 0;
    for (int q = 0; q < GOLDEN_QUANTITIES; q++) {
        if (d->value[q] <= limits->value[q]) continue;
        printf("    %s %.2g > %.2g%s%s\n", golden_names[q], d->value[q], limits->value[q],
               d->where[q] ? " at " : "", d->where[q] ? d->where[q] : "");
        beyond++;
    }
    return beyond;
}

/* ---- recorded traces ------------------------------------------------------------------------- */

static const cJSON *golden_get(const cJSON *object, const char *key) {
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

static double golden_number(const cJSON *object, const char *key) {
    return cJSON_GetNumberValue(golden_get(object, key)); /* nan when absent */
}

static const char *golden_text(const cJSON *object, const char *key) {
    return cJSON_GetStringValue(golden_get(object, key));
}

/* ---- files of traces: FOLDER/traces.jsonl, a line each, which begins with {"file": "NAME", ----- */

/* The traces of `folder` (below the project's root) as text; NULL without such a file. The caller frees. */
static char *golden_lines(const char *folder) {
    char full[2 * GOLDEN_PATH];
    snprintf(full, sizeof full, "%s/%s/traces.jsonl", AB_SOURCE_DIR, folder);
    return ab_test_read(full);
}

/* The trace FOLDER/NAME, parsed; NULL if there is none. The caller deletes it. */
static inline cJSON *golden_open(const char *path) {
    char full[2 * GOLDEN_PATH];
    const char *slash = strrchr(path, '/');
    snprintf(full, sizeof full, "%s/%.*s/traces.jsonl", AB_SOURCE_DIR, (int)(slash - path), path);
    return ab_test_read_json_line(full, slash + 1);
}

static golden_stats golden_read_stats(const cJSON *object) {
    golden_stats stats = {.l2 = golden_number(object, "l2")};
    for (int k = 0; k < GOLDEN_SKETCHES; k++)
        stats.sketch[k] = cJSON_GetNumberValue(cJSON_GetArrayItem(golden_get(object, "sketch"), k));
    return stats;
}

static void golden_read_tensor(const cJSON *object, golden_tensor *tensor) {
    bool buffer = golden_get(object, "buffer") != NULL;
    snprintf(tensor->name, sizeof tensor->name, "%s", object->string);
    tensor->count = (int64_t)golden_number(object, "count");
    tensor->value = golden_read_stats(golden_get(object, buffer ? "buffer" : "weight"));
    if (buffer) return;
    tensor->precision = (int)golden_number(object, "precision");
    tensor->start = golden_read_stats(golden_get(object, "start"));
    tensor->gradient = golden_read_stats(golden_get(object, "gradient"));
    tensor->update_l2 = golden_number(object, "update_l2");
}

static void golden_read(const cJSON *document, golden_trace *trace) {
    memset(trace, 0, sizeof *trace);
    const cJSON *scales = golden_get(document, "scale"), *item = NULL;
    cJSON_ArrayForEach(item, golden_get(document, "loss")) {
        if (trace->steps == GOLDEN_STEPS) break;
        trace->loss[trace->steps] = strtod(item->valuestring, NULL); /* hexadecimal: exact */
        trace->scale[trace->steps] = cJSON_GetNumberValue(cJSON_GetArrayItem(scales, trace->steps));
        trace->steps++;
    }
    cJSON_ArrayForEach(item, golden_get(document, "skipped")) {
        if (item->valueint < trace->steps) trace->skipped[item->valueint] = true;
    }
    cJSON_ArrayForEach(item, golden_get(document, "tensors")) {
        if (trace->tensors < GOLDEN_TENSORS) golden_read_tensor(item, &trace->tensor[trace->tensors++]);
    }
}

/* ---- measured traces ------------------------------------------------------------------------- */

/* What a recorded configuration is made of here. */
typedef struct golden_setup {
    ab_net *net;
    ab_data *data;
    ab_cell *cell;
} golden_setup;

/* A data source whose folder is packed as a text file, and the source that a test has unpacked it to. */
static const char golden_packed[] = "bytes:tests/golden/text/classes";
static const char *golden_unpacked;

/* Paths of a configuration are relative to the project's root; names are names. */
static const char *golden_resolve(const char *name, char path[GOLDEN_PATH]) {
    if (golden_unpacked && strcmp(name, golden_packed) == 0) return golden_unpacked;
    if (strcmp(name, "lenet5") == 0)
        name = "tests/fixtures/lenet5_normal.json"; /* as it was when they were made */
    int source = strchr(name, ':') ? (int)(strchr(name, ':') - name) + 1 : 0; /* "bytes:" */
    snprintf(path, GOLDEN_PATH, strchr(name, '/') ? "%.*s%s/%s" : "%.*s%.0s%s", source, name, AB_SOURCE_DIR,
             name + source);
    return path;
}

/* Traces that were made before there was such a key have none. */
static double golden_option(const cJSON *config, const char *key, double otherwise) {
    return cJSON_IsNumber(golden_get(config, key)) ? golden_number(config, key) : otherwise;
}

static ab_status golden_policy(const cJSON *config, ab_policy *policy) {
    const ab_level *level = NULL;
    const ab_format *half = NULL;
    char scale[64], losses[64];
    const char *overrides[] = {losses, scale};
    const char *scaler = cJSON_GetStringValue(golden_get(config, "scaler"));
    bool given = scaler || cJSON_IsNumber(golden_get(config, "scale"));
    snprintf(losses, sizeof losses, "num_losses=%.0f", golden_option(config, "num_losses", 1));
    snprintf(scale, sizeof scale, "loss_scale=%.17g", golden_number(config, "scale"));
    if (scaler) snprintf(scale, sizeof scale, "loss_scale=%s", scaler);
    AB_TRY(ab_level_find(golden_text(config, "level"), &level));
    AB_TRY(ab_format_find(golden_text(config, "half"), &half));
    return ab_policy_resolve(level, half, overrides, given ? 2 : 1, policy);
}

static ab_status golden_optimizer(const cJSON *config, ab_cell_config *cell) {
    AB_TRY(ab_optimizer_find(golden_text(config, "optimizer"), &cell->optimizer));
    cell->optim = (ab_optimizer_config){.lr = golden_number(config, "lr"),
                                        .momentum = golden_number(config, "momentum"),
                                        .beta1 = golden_number(config, "beta1"),
                                        .beta2 = golden_number(config, "beta2"),
                                        .eps = golden_number(config, "eps"),
                                        .weight_decay = golden_option(config, "weight_decay", 0)};
    return AB_OK;
}

static ab_status golden_recipe(const cJSON *config, ab_cell_config *cell) {
    ab_recipe *recipe = &cell->recipe;
    recipe->clip.norm = golden_option(config, "clip_norm", 0);
    recipe->clip.value = golden_option(config, "clip_value", 0);
    recipe->micro_batches = (int64_t)golden_option(config, "micro_batches", 1);
    const char *schedule = cJSON_GetStringValue(golden_get(config, "schedule"));
    AB_TRY(ab_schedule_parse(schedule ? schedule : "constant", &recipe->schedule, &recipe->rates));
    recipe->rates.lr = cell->optim.lr;
    return AB_OK;
}

static void golden_teardown(golden_setup *setup) {
    ab_cell_destroy(setup->cell);
    ab_data_close(setup->data);
    ab_net_free(setup->net);
}

/* Opens network and data and makes a cell; golden_teardown also after a failure. */
static ab_status golden_create(const cJSON *config, golden_setup *setup) {
    char path[GOLDEN_PATH];
    ab_cell_config cell = {.path = AB_PATH_AUTO, .device = &ab_device_cpu};
    *setup = (golden_setup){NULL, NULL, NULL};
    AB_TRY(ab_net_load(golden_resolve(golden_text(config, "net"), path), &setup->net));
    AB_TRY(
        ab_data_open(golden_resolve(golden_text(config, "data"), path), &setup->net->data, 0, &setup->data));
    AB_TRY(golden_policy(config, &cell.policy));
    AB_TRY(golden_optimizer(config, &cell));
    AB_TRY(golden_recipe(config, &cell));
    AB_TRY(ab_normalize_find(golden_text(config, "normalize"), &cell.normalize));
    cell.net = setup->net;
    cell.data = setup->data;
    cell.batch = (int64_t)golden_number(config, "batch");
    cell.seed = (uint64_t)golden_number(config, "seed");
    cell.scale_window = (int64_t)golden_option(config, "scale_window", 0);
    return ab_cell_create(&cell, &setup->cell);
}

static golden_stats golden_describe(const char *name, const float *values, int64_t n) {
    golden_stats stats = {0};
    for (int64_t i = 0; i < n; i++) {
        double x = (double)values[i];
        uint32_t signs = ab_rng_at(0, AB_RNG_SAMPLE, ab_rng_name(name), (uint64_t)i).word[0];
        stats.l2 += x * x;
        for (int k = 0; k < GOLDEN_SKETCHES; k++) stats.sketch[k] += (signs >> k & 1u) ? x : -x;
    }
    stats.l2 = sqrt(stats.l2);
    return stats;
}

/* The tensor called `name` (with `suffix`) of a cell; values are the caller's to free, NULL after a failure.
 */
static float *golden_values(const ab_cell *cell, const char *name, const char *suffix, int64_t count) {
    char full[AB_PLAN_NAME + 8];
    ab_shape shape;
    snprintf(full, sizeof full, "%s%s", name, suffix);
    if (ab_cell_read(cell, full, &shape, NULL) != AB_OK || ab_shape_count(&shape) != count) return NULL;
    float *values = malloc((size_t)count * sizeof *values);
    if (values && ab_cell_read(cell, full, &shape, values) == AB_OK) return values;
    free(values);
    return NULL;
}

static ab_status golden_missing(const char *name) {
    return ab_fail(AB_INTERNAL, "the cell has no tensor '%s' of the recorded size", name);
}

/* Describes one tensor of the cell into *stats; `keep`, if not NULL, takes its values over. */
static ab_status golden_take(const ab_cell *cell, const golden_tensor *tensor, const char *suffix,
                             golden_stats *stats, float **keep) {
    float *values = golden_values(cell, tensor->name, suffix, tensor->count);
    if (!values) return golden_missing(tensor->name);
    *stats = golden_describe(tensor->name, values, tensor->count);
    if (keep)
        *keep = values;
    else
        free(values);
    return AB_OK;
}

static ab_status golden_take_value(const ab_cell *cell, golden_tensor *tensor) {
    float *values = NULL;
    double squares = 0;
    AB_TRY(golden_take(cell, tensor, "", &tensor->value, &values));
    for (int64_t i = 0; tensor->first && i < tensor->count; i++)
        squares += pow((double)values[i] - (double)tensor->first[i], 2);
    tensor->update_l2 = sqrt(squares);
    free(values);
    return AB_OK;
}

/* After the taken-th step that was not skipped: gradients, then values. */
static ab_status golden_after_step(const ab_cell *cell, int taken, golden_trace *trace) {
    for (int t = 0; t < trace->tensors; t++) {
        golden_tensor *tensor = &trace->tensor[t];
        if (taken == 1 && tensor->precision > 0)
            AB_TRY(golden_take(cell, tensor, ".grad", &tensor->gradient, NULL));
        if (taken == 2) AB_TRY(golden_take_value(cell, tensor));
    }
    return AB_OK;
}

static ab_status golden_train(ab_cell *cell, golden_trace *trace) {
    int taken = 0;
    for (int i = 0; i < trace->steps; i++) {
        ab_step_result result;
        AB_TRY(ab_cell_step(cell, NULL, &result));
        trace->loss[i] = (double)result.loss;
        trace->scale[i] = result.scale;
        trace->skipped[i] = result.skipped;
        if (!result.skipped) AB_TRY(golden_after_step(cell, ++taken, trace));
    }
    return AB_OK;
}

static void golden_free(golden_trace *trace) {
    for (int t = 0; t < trace->tensors; t++) {
        free(trace->tensor[t].first);
        trace->tensor[t].first = NULL;
    }
}

/* Significand bits of what the optimizer updates: the master's, where there is one. */
static int golden_precision(const ab_plan *plan, const char *name) {
    int found = ab_plan_find(plan, name);
    for (int p = 0; p < plan->params; p++)
        if (plan->param[p].stored == found && plan->param[p].master != AB_NONE) found = plan->param[p].master;
    return found == AB_NONE ? 0 : plan->tensor[found].format->precision;
}

/* Trains `cell`, which has not taken a step, as far as `recorded` goes, and describes the tensors that it
 * names. golden_free also after a failure. */
static ab_status golden_measure(ab_cell *cell, const golden_trace *recorded, golden_trace *measured) {
    *measured = (golden_trace){.steps = recorded->steps, .tensors = recorded->tensors};
    for (int t = 0; t < recorded->tensors; t++) {
        const golden_tensor *like = &recorded->tensor[t];
        golden_tensor *tensor = &measured->tensor[t];
        memcpy(tensor->name, like->name, sizeof tensor->name);
        tensor->count = like->count;
        if (like->precision == 0) continue;
        tensor->precision = golden_precision(ab_cell_plan(cell), tensor->name);
        AB_TRY(golden_take(cell, tensor, "", &tensor->start, &tensor->first));
    }
    return golden_train(cell, measured);
}

/* Trains as `document` says and compares; *measured is the caller's to golden_free. */
static ab_status golden_run(const cJSON *document, golden_trace *measured, golden_trace *recorded,
                            golden_distances *distances) {
    golden_setup setup;
    golden_read(document, recorded);
    *measured = (golden_trace){0};
    *distances = (golden_distances){{0}, {NULL}};
    ab_status status = golden_create(golden_get(document, "config"), &setup);
    if (status == AB_OK) status = golden_measure(setup.cell, recorded, measured);
    if (status == AB_OK) *distances = golden_compare(measured, recorded);
    golden_teardown(&setup);
    return status;
}

/* ---- the committed traces -------------------------------------------------------------------- */

/* Calls `see` for each trace of `folder` (below the project's root) whose data is `data`, in the order of
 * their names. Returns how many there are; -1 when the file or a line of it cannot be read. */
static int golden_for_each(const char *folder, const char *data,
                           void (*see)(const char *path, const cJSON *document)) {
    char path[GOLDEN_PATH], *text = golden_lines(folder), *rest = text;
    int seen = text ? 0 : -1;
    for (char *line = text ? strtok_r(text, "\n", &rest) : NULL; line; line = strtok_r(NULL, "\n", &rest)) {
        cJSON *document = cJSON_Parse(line);
        const char *source = golden_text(golden_get(document, "config"), "data");
        if (!document) seen = -1;
        if (seen >= 0 && source && strcmp(source, data) == 0) {
            snprintf(path, sizeof path, "%s/%s", folder, golden_text(document, "file"));
            see(path, document);
            seen++;
        }
        cJSON_Delete(document);
    }
    free(text);
    return seen;
}

#endif
