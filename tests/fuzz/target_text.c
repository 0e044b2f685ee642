/* Fuzz targets: small languages of options: loss scales, patterns of steps, formats of layers, groups,
 * schedules; and text files of lines. */
#define _GNU_SOURCE /* fmemopen */
#include "tests/fuzz/fuzz.h"

#include "bench/amp/layer_formats.h"
#include "bench/amp/policy.h"
#include "bench/amp/trace/scale_trace.h"
#include "bench/train/init/init_map.h"
#include "bench/train/optim/groups.h"
#include "bench/train/schedule/schedule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- loss scalers ---------------------------------------------------------------------------- */

/* A few steps, some of which overflow. */
static void run_scaler(const ab_scaler_config *config) {
    const ab_scaler_layer layer = {0.1, 0.5, 2, 0.01, 0.1, 1, 64, 1};
    ab_scaler scaler;
    ab_scaler_start(&scaler, config);
    for (int i = 0; i < 24; i++) {
        const ab_scaler_seen seen = {.overflow = i % 7 == 3,
                                     .amax = i % 7 == 3 ? (double)INFINITY : ldexp(1, i - 12),
                                     .upper = i % 5,
                                     .lower = 100,
                                     .layer = &layer};
        const ab_scaler_outcome outcome = ab_scaler_update(&scaler, &seen);
        if (outcome.fault && outcome.fault->raises) return;
    }
}

/* What a scaler is written as must be read as the same scaler. */
void fuzz_scaler(const uint8_t *data, size_t size) {
    char *text = fuzz_string(data, size), written[AB_SCALER_TEXT], again[AB_SCALER_TEXT];
    ab_loss_scale scale, read;
    if (ab_loss_scale_parse("--scales", text, &scale) == AB_OK) {
        fuzz_passed();
        ab_loss_scale_text(&scale, written);
        fuzz_insist(ab_loss_scale_parse("--scales", written, &read) == AB_OK);
        fuzz_insist(strcmp(ab_loss_scale_text(&read, again), written) == 0 && read.dynamic == scale.dynamic);
        if (scale.dynamic) run_scaler(&scale.scaler);
    }
    free(text);
}

/* Some scalers count every overflow: a run of 10^9 of them takes seconds. */
static void run_pattern(const ab_scaler_config *config, const ab_pattern *overflow, const ab_pattern *amax) {
    ab_scaler_trace trace;
    if ((overflow ? overflow : amax)->steps > 100000) return;
    if (ab_scaler_trace_run(config, overflow, amax, &ab_format_fp16, 1e6, &trace) != AB_OK) return;
    fuzz_passed();
    fuzz_insist(trace.skipped <= trace.steps && trace.overflows <= trace.steps);
    ab_scaler_trace_clear(&trace);
}

/* The first byte chooses the scaler; the rest is a pattern of one kind or the other. */
void fuzz_pattern(const uint8_t *data, size_t size) {
    ab_pattern pattern;
    if (size == 0) return;
    char *text = fuzz_string(data + 1, size - 1);
    const ab_scaler_config config = ab_scaler_defaults(ab_scaler_at(data[0] % ab_scaler_count()));
    const bool by_layer = (config.kind->sees & AB_SEES_LAYER) != 0;
    if (ab_pattern_flags("--overflow", text, &pattern) == AB_OK) {
        if (!by_layer && !(config.kind->sees & (AB_SEES_AMAX | AB_SEES_COUNTS)))
            run_pattern(&config, &pattern, NULL);
        ab_pattern_clear(&pattern);
    }
    if (ab_pattern_numbers("--amax", text, &pattern) == AB_OK) {
        if (!by_layer) run_pattern(&config, NULL, &pattern);
        ab_pattern_clear(&pattern);
    }
    free(text);
}

static void see_layer(void *context, const ab_trace_layer *layer) {
    (void)context;
    ab_trace_layer_print(fuzz_sink(false), layer);
}

void fuzz_layer_trace(const uint8_t *data, size_t size) {
    const ab_scaler_kind *kind;
    ab_trace_error error;
    if (size == 0 || ab_scaler_find("adaloss", &kind) != AB_OK) return;
    const ab_scaler_config config = ab_scaler_defaults(kind);
    FILE *file = fmemopen((void *)(uintptr_t)data, size, "r");
    fuzz_insist(file != NULL);
    if (ab_layer_trace_run(&config, "layers.txt", file, see_layer, NULL, &error) == AB_OK) fuzz_passed();
    fclose(file);
}

/* ---- tables of names ------------------------------------------------------------------------- */

void fuzz_init_map(const uint8_t *data, size_t size) {
    static const char *const names[] = {"conv1.weight", "layer1.0.bn2.bias", "fc", ""};
    ab_init_map *map = NULL;
    char there[64];
    const int *axis;
    fuzz_file("map.txt", data, size);
    if (ab_init_map_load("map.txt", &map) != AB_OK) return;
    fuzz_passed();
    for (int i = 0; i < 4; i++)
        for (int ndim = 1; ndim <= 4; ndim++) {
            ab_status status = ab_init_map_find(map, names[i], ndim, there, sizeof there, &axis);
            if (status == AB_OK && axis)
                for (int d = 0; d < ndim; d++) fuzz_insist(axis[d] >= 0 && axis[d] < ndim);
        }
    (void)ab_init_map_ignores(map, "x.num_batches_tracked");
    ab_status unused = ab_init_map_check_used(map);
    (void)unused;
    ab_init_map_free(map);
}

/* ---- layers, groups, schedules --------------------------------------------------------------- */

static ab_net *a_net(void) {
    static ab_net *net;
    if (!net) fuzz_insist(ab_net_load("resnet20", &net) == AB_OK || ab_net_load("lenet5", &net) == AB_OK);
    return net;
}

static void try_schedule(const char *text) {
    const ab_schedule *schedule;
    ab_schedule_config config;
    if (ab_schedule_parse(text, &schedule, &config) != AB_OK) return;
    config.lr = 0.1;
    config.total = 100;
    if (ab_schedule_check(schedule, &config) != AB_OK) return;
    fuzz_passed();
    for (int64_t t = 0; t < 120; t += 7) (void)ab_schedule_rate(schedule, &config, t);
}

static void try_groups(const char *text) {
    ab_param_groups decay = {0}, own = {0};
    if (ab_param_groups_no_decay(text, &decay) == AB_OK && ab_param_groups_check(&decay, a_net()) == AB_OK)
        fuzz_passed();
    if (ab_param_groups_parse(text, &own) == AB_OK && ab_param_groups_check(&own, a_net()) == AB_OK)
        fuzz_passed();
}

/* One text as everything that it may be. */
void fuzz_layers(const uint8_t *data, size_t size) {
    static ab_layer_format *own;
    char *text = fuzz_string(data, size);
    const ab_level *level;
    const char *overrides[] = {text, "master_weights=True"};
    ab_policy policy;
    if (!own) own = calloc((size_t)a_net()->ops, sizeof *own);
    if (ab_layer_formats(text, a_net(), &ab_format_fp16, own) == AB_OK) fuzz_passed();
    if (ab_level_find(text, &level) == AB_OK) fuzz_passed();
    for (int i = 0; i < ab_level_count(); i++)
        if (ab_policy_resolve(ab_level_at(i), &ab_format_fp16, overrides, 2, &policy) == AB_OK) fuzz_passed();
    try_schedule(text);
    try_groups(text);
    free(text);
}
