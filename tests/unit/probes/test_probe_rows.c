/* The probe of rows: planted updates in any cut, and a training whose weights it must find. */
#define _POSIX_C_SOURCE 200809L
#include "tests/unit/probe_testing.h"

#include <math.h>

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
        cmocka_unit_test(rows_are_found_however_blocks_are_cut),
        cmocka_unit_test(every_weight_of_a_net_has_its_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
