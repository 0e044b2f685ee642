/* Training agrees with PyTorch on Fashion-MNIST: lenet5, mlp and resnet8 at every level, from the same initial weights and
 * file-order batches. Exits 77 (skipped) where the data package is not installed; test_golden.c always runs. */
#define _POSIX_C_SOURCE 200809L
#include "tests/unit/golden_testing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { SKIPPED = 77 };

static void check(const char *path, const cJSON *document) {
    static golden_trace measured, recorded;
    golden_distances distances;
    const cJSON *config = golden_get(document, "config");
    const struct golden_limits *limits =
        golden_limits_of(golden_text(config, "net"), golden_text(config, "level"));
    assert_non_null(limits);
    ab_status status = golden_run(document, &measured, &recorded, &distances);
    golden_free(&measured);
    if (status != AB_OK) fail_msg("%s: %s", path, ab_error_message());
    golden_print(path, &distances);
    if (golden_count_beyond(&distances, limits) > 0) fail_msg("%s: not what PyTorch computed", path);
}

static void losses_gradients_weights_and_statistics_match_pytorch(void **state) {
    (void)state;
    assert_true(golden_for_each("tests/golden", "fashion_mnist", check) >= 15);
}

static bool have_data(void) {
    ab_data *data = NULL;
    ab_status status = ab_data_open_images("fashion_mnist", 28, 28, 1, 0, &data);
    ab_data_close(data);
    return status == AB_OK;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_gradients_weights_and_statistics_match_pytorch)};
    if (!have_data()) {
        printf("skipped: %s\n", ab_error_message());
        return SKIPPED;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
