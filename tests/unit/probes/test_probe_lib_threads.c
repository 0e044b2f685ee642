/* libampprobe from several threads at once, as autograd's threads call it: no count is lost, and
 * ThreadSanitizer (scripts/check tsan) sees no race. */
#define _POSIX_C_SOURCE 200809L
#include "tests/unit/probe_lib_testing.h"

enum { THREADS = 4, ROUNDS = 200, VALUES = 300 };

static void counts_of_all_threads_are_kept(void **state) {
    (void)state;
    ampprobe *p = pl_open("{\"probe_every\": 1}");
    const int32_t shared = pl_parameter(p, "shared.weight", AMPPROBE_FP32, VALUES);
    int failures = 0;
#pragma omp parallel for num_threads(THREADS) schedule(static, 1) reduction(+ : failures)
    for (int thread = 0; thread < THREADS; thread++) {
        char name[32];
        float values[VALUES];
        snprintf(name, sizeof name, "layer%d", thread);
        for (int i = 0; i < VALUES; i++) values[i] = (float)(i + 1);
        for (int round = 0; round < ROUNDS; round++) {
            ampprobe_tensor layer = pl_gradient(-1, values, VALUES),
                            gradient = pl_gradient(shared, values, VALUES);
            ampprobe_step_facts f = pl_facts(round);
            f.seconds = 1e-3;
            layer.role = round % 2 ? AMPPROBE_ACTIVATION : AMPPROBE_ACTIVATION_GRADIENT;
            failures += ampprobe_see_named(p, name, &layer) != AMPPROBE_OK;
            failures += ampprobe_gradients(p, 0, &gradient, 1, AMPPROBE_ALL, NULL) != AMPPROBE_OK;
            if (round % 50 == 0) failures += ampprobe_note(p, name) != AMPPROBE_OK;
            if (round % 20 == 19) failures += ampprobe_step(p, &f) != AMPPROBE_OK;
            if (round % 100 == 99) failures += ampprobe_flush(p) != AMPPROBE_OK;
            failures += ampprobe_plan(p, round) == 0;
        }
    }
    pl_step(p, ROUNDS);
    assert_int_equal(failures, 0);
    cJSON *document = pl_close(p);
    const cJSON *cell = pl_cell(document), *tensor = pl_tensor(cell, "probes.tensors", "shared.weight.grad");
    assert_int_equal(ab_json_number(tensor, "count", 0), THREADS * ROUNDS * VALUES);
    for (int thread = 0; thread < THREADS; thread++) {
        char name[32];
        snprintf(name, sizeof name, "layer%d.out", thread);
        assert_int_equal(ab_json_number(pl_tensor(cell, "probes.activations", name), "count", 0),
                         ROUNDS / 2 * VALUES);
    }
    assert_int_equal(ab_json_number(cell, "steps_total", 0), THREADS * ROUNDS / 20 + 1);
    cJSON_Delete(document);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(counts_of_all_threads_are_kept)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
