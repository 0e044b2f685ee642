/* --probes, --probe-every and --probe-budget: what they mean together, and what they refuse. */
#define _POSIX_C_SOURCE 200809L
#define _GNU_SOURCE
#include "bench/run/config/configure.h"
#include "probes/probe.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels/backend/backend_layout.h"
#include "kernels/backend/fallback.h"
#include "kernels/census/census.h"
#include <cmocka.h>
#include <math.h>

#include "support/far_memory.h"
#include "tests/unit/probe_testing.h"

/* A configuration from words that are separated by single spaces. */
static ab_status configure(const char *text, ab_run_config *config) {
    static char line[256], program[] = "ampbench";
    char *argv[16] = {program}, *rest = line;
    int argc = 1;
    ab_options options;
    strncpy(line, text, sizeof line - 1);
    for (char *word; argc < 15 && (word = strsep(&rest, " "));)
        if (word[0]) argv[argc++] = word;
    ab_status status = ab_options_parse(argc, argv, &options);
    return status == AB_OK ? ab_run_config_create(&options, false, config) : status;
}

static uint64_t bit(const char *name) {
    int index = -1;
    assert_int_equal(ab_probe_find(name, &index), AB_OK);
    return (uint64_t)1 << index;
}

typedef struct meaning {
    uint64_t probes;
    int64_t every;
    double budget;
} meaning;

static void means(const char *text, meaning expected) {
    ab_run_config config;
    if (configure(text, &config) != AB_OK) fail_msg("%s: %s", text, ab_error_message());
    if (config.probes != expected.probes || config.probe_every != expected.every ||
        config.probe_budget != expected.budget)
        fail_msg("'%s' means %llx, every %lld, budget %g", text, (unsigned long long)config.probes,
                 (long long)config.probe_every, config.probe_budget);
    ab_run_config_clear(&config);
}

static void defaults_are_cheap_probes_within_three_percent(void **state) {
    (void)state;
    means("", (meaning){ab_probes_standard(), 10, 0.03});
    means("--probes default", (meaning){ab_probes_standard(), 10, 0.03});
}

static void names_are_collected(void **state) {
    (void)state;
    means("--probes gradients", (meaning){bit("gradients"), 10, 0.03});
    means("--probes lost_updates,nan_provenance,lost_updates",
          (meaning){bit("lost_updates") | bit("nan_provenance"), 10, 0.03});
    means("--probes default,activations", (meaning){ab_probes_standard() | bit("activations"), 10, 0.03});
    means("--probes all", (meaning){ab_probes_all(), 10, 0.03});
}

static void an_interval_that_is_given_is_kept(void **state) {
    (void)state;
    means("--probe-every 7", (meaning){ab_probes_standard(), 7, 0});
    means("--probes all --probe-every 1", (meaning){ab_probes_all(), 1, 0});
    means("--probe-every 0", (meaning){0, 0, 0});
}

static void a_budget_is_a_share(void **state) {
    (void)state;
    means("--probe-budget 5%", (meaning){ab_probes_standard(), 10, 0.05});
    means("--probe-budget 0.05", (meaning){ab_probes_standard(), 10, 0.05});
    means("--probe-budget 100%", (meaning){ab_probes_standard(), 10, 1});
    means("--probe-budget 0", (meaning){0, 0, 0});
    means("--probe-budget 0%", (meaning){0, 0, 0});
}

static void refused(const char *text, const char *expected) {
    ab_run_config config;
    assert_int_equal(configure(text, &config), AB_USAGE);
    if (!strstr(ab_error_message(), expected))
        fail_msg("%s: \"%s\" lacks \"%s\"", text, ab_error_message(), expected);
}

static void mistakes_are_refused_with_the_option_and_the_nearest_name(void **state) {
    (void)state;
    refused("--probes gradient", "--probes: no probe is called 'gradient'; did you mean 'gradients'?");
    refused("--probes gradients,,weights", "--probes");
    refused("--probe-budget 5", "--probe-budget: expected a share such as 3% or 0.03, at most 1, found '5'");
    refused("--probe-budget 101%", "--probe-budget");
    refused("--probe-budget -1%", "--probe-budget");
    refused("--probe-budget nan", "--probe-budget");
    refused("--probe-budget 3%%", "--probe-budget");
    refused("--probe-budget %", "--probe-budget");
    refused("--probe-every -1", "--probe-every");
    refused("--probes all --probe-budget 0", "--probes: no step is probed");
    refused("--probe-every 1 --probe-budget 3%", "give one of them");
}

/* Probes that count get a census in the place of values that are far away: their reports are the same, to the
 * digit. The device is tests/support/far_memory.h's, whose census is the CPU's; no GPU, and it stands in for
 * none. */

static int censuses;

static ab_status far_census(const ab_tensor *tensor, ab_census *census) {
    far_access(PROT_READ | PROT_WRITE);
    ab_census_clear(census);
    ab_census_add_stored(census, tensor->data, tensor->format, ab_tensor_count(tensor));
    far_access(PROT_NONE);
    censuses++;
    return AB_OK;
}

static const ab_op *no_op(const ab_op *op) { return op == NULL ? op : NULL; }

static const ab_backend backend = {.abi = AB_DEVICE_ABI,
                                   .layout = ab_backend_layout,
                                   .kind = "far",
                                   .op = no_op,
                                   .cast = ab_fallback_cast,
                                   .accumulate = ab_fallback_accumulate,
                                   .unscale = ab_fallback_unscale,
                                   .census = far_census};

static const ab_device device = {.abi = AB_DEVICE_ABI,
                                 .name = "far",
                                 .alloc = far_alloc,
                                 .free = far_free,
                                 .fill_zero = far_fill_zero,
                                 .upload = far_copy,
                                 .download = far_copy,
                                 .synchronize = far_synchronize,
                                 .backend = &backend};

static uint64_t bit_of(const char *name) {
    int index;
    assert_int_equal(ab_probe_find(name, &index), AB_OK);
    return (uint64_t)1 << index;
}

/* The report without what took time. */
static char *report_of(const char *level, uint64_t chosen, const ab_device *on) {
    ab_net *net = pt_net(pt_ops);
    ab_cell_config config = pt_config(net, level, &ab_format_fp16, "momentum", NULL);
    config.device = on;
    ab_cell *cell = pt_cell(&config);
    pt_probing probing;
    pt_start(&probing, chosen, cell, &config, &ab_format_fp16);
    for (int i = 0; i < 3; i++) pt_step(&probing, cell);
    cJSON *report = pt_set_report(&probing);
    cJSON_DeleteItemFromObject(report, "costs");
    char *text = cJSON_Print(report);
    cJSON_Delete(report);
    ab_probe_set_destroy(probing.set);
    ab_cell_destroy(cell);
    ab_net_free(net);
    return text;
}

static void compare(const char *level, uint64_t chosen, bool counted) {
    char *here = report_of(level, chosen, &ab_device_cpu);
    censuses = 0;
    char *there = report_of(level, chosen, &device);
    assert_string_equal(here, there);
    assert_true((censuses > 0) == counted);
    free(here);
    free(there);
    far_blocks = 0;
}

static void a_census_serves_probes_that_count(void **state) {
    (void)state;
    for (size_t l = 0; l < AB_COUNT_OF(pt_levels); l++)
        compare(pt_levels[l], bit_of("gradients") | bit_of("activations"), true);
}

static void probes_that_want_values_get_them(void **state) {
    (void)state;
    compare("O2", bit_of("rounding_bias"), false);
    compare("O1", ab_probes_all(), false);
    compare("O2", ab_probes_standard(), true);
}

/* The probe of rows: planted updates in any cut, and a training whose weights it must find. */

static void write_rows(void *state, ab_probe_sink *sink) { pt_probe("rows")->report(state, sink); }

/* Three rows of four: largest magnitudes 2^-3, nothing, 2^-20, cut so that blocks end inside rows. inf and
 * nan are no gradient. */
static void rows_are_found_however_blocks_are_cut(void **state) {
    (void)state;
    const float grad[12] = {0x1p-5f, -0x1p-3f,   0,        0x1p-4f,         0,         0,
                            0,       (float)NAN, 0x1p-20f, (float)INFINITY, -0x1p-21f, 0};
    const ab_probe_param param[2] = {{.name = "w", .layer = "fc", .count = 12, .rows = 3},
                                     {.name = "b", .layer = "fc", .count = 3}};
    const ab_probe_setup setup = {.threads = 2, .param = param, .params = 2};
    for (int cut = 1; cut <= 12; cut++) {
        void *probe = NULL;
        assert_int_equal(pt_probe("rows")->create(&setup, &probe), AB_OK);
        for (int first = 12 - (12 - 1) % cut - 1; first >= 0; first -= cut) { /* last block first */
            const ab_update_block block = {.param = 0,
                                           .thread = first / cut % 2,
                                           .first = first,
                                           .n = first + cut > 12 ? 12 - first : cut,
                                           .grad = grad + first};
            pt_probe("rows")->update(probe, &block);
        }
        const ab_update_block bias = {.param = 1, .n = 3, .grad = grad};
        pt_probe("rows")->update(probe, &bias);
        cJSON *report = pt_report(write_rows, probe);
        const cJSON *list = pt_get(report, "rows"), *w = pt_find(list, "name", "w");
        assert_int_equal(cJSON_GetArraySize(list), 1);
        assert_int_equal(pt_integer(w, "rows"), 3);
        assert_int_equal(pt_integer(w, "never"), 1);
        const cJSON *exponents = pt_get(w, "exponents"), *counts = pt_get(exponents, "counts");
        assert_int_equal(pt_integer(exponents, "first"), -20);
        assert_int_equal(cJSON_GetArraySize(counts), 18);
        for (int i = 0; i < 18; i++)
            assert_int_equal(cJSON_GetArrayItem(counts, i)->valuedouble, i == 0 || i == 17);
        cJSON_Delete(report);
        pt_probe("rows")->destroy(probe);
    }
}

/* Weights have as many rows as outputs, biases none. */
static void every_weight_of_a_net_has_its_rows(void **state) {
    (void)state;
    ab_net *net = pt_net(pt_ops);
    ab_cell_config config = pt_config(net, "O0", &ab_format_fp16, "sgd", NULL);
    ab_cell *cell = pt_cell(&config);
    for (int i = 0; i < ab_cell_trained_count(cell); i++) {
        const ab_probe_param *about = ab_cell_trained_at(cell, i);
        const int64_t rows = strcmp(about->name, "fc.weight") == 0                          ? 3
                             : strstr(about->name, "conv") && strstr(about->name, "weight") ? 4
                                                                                            : 0;
        assert_int_equal(about->rows, rows);
    }
    ab_cell_destroy(cell);
    ab_net_free(net);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_cheap_probes_within_three_percent),
        cmocka_unit_test(names_are_collected),
        cmocka_unit_test(an_interval_that_is_given_is_kept),
        cmocka_unit_test(a_budget_is_a_share),
        cmocka_unit_test(mistakes_are_refused_with_the_option_and_the_nearest_name),
        cmocka_unit_test(a_census_serves_probes_that_count),
        cmocka_unit_test(probes_that_want_values_get_them),
        cmocka_unit_test(rows_are_found_however_blocks_are_cut),
        cmocka_unit_test(every_weight_of_a_net_has_its_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
