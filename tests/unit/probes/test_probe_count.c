/* Probes that count get a census in the place of values that are far away: their reports are the same, to the
 * digit. The device is tests/support/far_memory.h's, whose census is the CPU's; no GPU, and it stands in for
 * none. */
#define _GNU_SOURCE
#include "tests/unit/probe_testing.h"

#include "kernels/backend/backend_layout.h"
#include "kernels/backend/fallback.h"
#include "kernels/census/census.h"
#include "support/far_memory.h"

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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_census_serves_probes_that_count),
                                       cmocka_unit_test(probes_that_want_values_get_them)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
