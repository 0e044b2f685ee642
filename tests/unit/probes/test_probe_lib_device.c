/* libampprobe with tensors in CUDA memory where nothing can count them: skipped, counted as skipped, with the
 * reason once; the same loop's other tensors are counted. With the plugin: tests/gpu/test_gpu_shown.c. */
#define _GNU_SOURCE
#include "tests/unit/probe_lib_testing.h"

static int warnings_with(const cJSON *document, const char *text) {
    int found = 0;
    const cJSON *line;
    cJSON_ArrayForEach(line, ab_json_at(document, "warnings")) {
        found += strstr(line->valuestring, text) != NULL;
    }
    return found;
}

static void tensors_on_a_gpu_are_skipped_with_the_reason(void **state) {
    (void)state;
    static float values[64];
    ampprobe *p = pl_open(NULL);
    ampprobe_tensor t[2] = {pl_gradient(pl_parameter(p, "here", AMPPROBE_FP32, 64), values, 64),
                            pl_gradient(pl_parameter(p, "there", AMPPROBE_FP32, 64), values, 64)};
    t[1].device = AMPPROBE_CUDA;
    for (int64_t step = 0; step < 3; step++) {
        ampprobe_seen seen = {.size = sizeof seen};
        assert_int_equal(ampprobe_gradients(p, 0, t, 2, AMPPROBE_ALL, &seen), AMPPROBE_OK);
        assert_true(seen.tensors == 1 && seen.skipped == 1 && seen.exact == 0);
        assert_int_equal(t[0].skipped, AMPPROBE_COUNTED);
        assert_int_equal(t[1].skipped, AMPPROBE_SKIP_DEVICE);
        pl_step(p, step);
    }
    cJSON *document = pl_close(p);
    assert_int_equal(warnings_with(document, "tensors in CUDA memory are skipped"), 1);
    assert_int_equal(warnings_with(document, "there is no libampbench_cuda.so in AMPBENCH_PLUGIN_DIR /none"),
                     1);
    assert_int_equal(ab_json_number(document, "probe.not_counted.device", -1), 3);
    assert_non_null(pl_tensor(pl_cell(document), "probes.tensors", "here.grad"));
    cJSON_Delete(document);
}

int main(void) {
    setenv("AMPBENCH_PLUGIN_DIR", "/none", 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(tensors_on_a_gpu_are_skipped_with_the_reason)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
