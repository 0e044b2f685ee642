/* Training agrees with PyTorch on Fashion-MNIST: lenet5, mlp and resnet8 at every level, from the same
 * initial weights and file-order batches. Exits 77 (skipped) where the data package is not installed;
 * test_golden.c always runs. */
#define _POSIX_C_SOURCE 200809L

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/unit/golden_check.h"

enum { SKIPPED = 77 };

static void losses_gradients_weights_and_statistics_match_pytorch(void **state) {
    (void)state;
    assert_true(golden_for_each("tests/golden", "fashion_mnist", golden_check) >= 15);
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
