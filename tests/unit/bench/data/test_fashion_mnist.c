/* The installed Fashion-MNIST, read through our reader: known labels, pixels and statistics (recorded with
 * numpy from the same files). Skipped where the package dataset-fashion-mnist is missing. */
#define _POSIX_C_SOURCE 200809L
#include "bench/data/idx.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>

#include <setjmp.h>

#include <cmocka.h>

enum { PIXELS = 28 * 28, SPOT = 14 * 28 + 6, SKIPPED = 77 };

static ab_data *open_data(int64_t side) {
    ab_data *data = NULL;
    assert_int_equal(ab_data_open_images("fashion_mnist", side, side, 1, 0, &data), AB_OK);
    return data;
}

static void expect_split(const ab_images *images, int64_t count, const uint8_t *labels, const uint8_t *first,
                         const uint8_t *last, int64_t pixel_sum, int64_t label_sum) {
    assert_int_equal(images->count, count);
    assert_memory_equal(images->label, labels, 10);
    assert_memory_equal(images->pixel + SPOT, first, 10);
    assert_memory_equal(images->pixel + (count - 1) * PIXELS + SPOT, last, 10);
    for (int64_t i = 0; i < count; i++) label_sum -= images->label[i];
    for (int64_t i = 0; i < count * PIXELS; i++) pixel_sum -= images->pixel[i];
    assert_int_equal(label_sum, 0);
    assert_int_equal(pixel_sum, 0);
}

/* The first ten labels; pixels 6 to 15 of row 14 of the first and the last image; sums of all pixels and
 * labels. */
static void contents_are_known(void **state) {
    (void)state;
    static const uint8_t train[10] = {9, 0, 0, 3, 0, 2, 7, 2, 5, 5},
                         test[10] = {9, 2, 1, 1, 6, 1, 4, 6, 5, 7};
    static const uint8_t train_first[10] = {2, 0, 0, 0, 0, 0, 237, 226, 217, 223};
    static const uint8_t train_last[10] = {144, 133, 129, 153, 34, 0, 3, 3, 0, 3};
    static const uint8_t test_first[10] = {2, 4, 1, 0, 0, 0, 98, 136, 110, 109};
    static const uint8_t test_last[10] = {32, 37, 45, 45, 69, 128, 100, 120, 132, 123};
    ab_data *data = open_data(28);
    expect_split(&data->split[AB_SPLIT_TRAIN], 60000, train, train_first, train_last, 3431114169, 270000);
    expect_split(&data->split[AB_SPLIT_TEST], 10000, test, test_first, test_last, 573469082, 45000);
    assert_int_equal(data->classes, 10);
    ab_data_close(data);
}

static void statistics_are_known(void **state) {
    (void)state;
    ab_data *data = open_data(28);
    assert_true(fabs(data->mean - 0.2860405969887955) < 1e-14);
    assert_true(fabs(data->std - 0.35302424451492254) < 1e-12);
    ab_data_close(data);
    data = open_data(32);
    assert_true(fabs(data->mean - 0.21899983206954657) < 1e-14);
    assert_true(fabs(data->std - 0.331811372999959) < 1e-12);
    ab_data_close(data);
}

static void labels_of_a_batch_follow_the_file(void **state) {
    (void)state;
    static const int32_t expected[4] = {9, 0, 0, 3};
    static const int64_t index[4] = {0, 1, 2, 3};
    float *images = malloc((size_t)4 * 32 * 32 * sizeof *images);
    int32_t labels[4];
    ab_data *data = open_data(32);
    ab_data_fill(data, AB_SPLIT_TRAIN, AB_NORMALIZE_UNIT, index, 4, images, labels);
    assert_memory_equal(labels, expected, sizeof expected);
    assert_true(images[(14 + 2) * 32 + 6 + 2 + 6] == (float)(237 / 255.0));
    ab_data_close(data);
    free(images);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contents_are_known),
        cmocka_unit_test(statistics_are_known),
        cmocka_unit_test(labels_of_a_batch_follow_the_file),
    };
    unsetenv("AMPBENCH_DATA_DIR");
    if (!ab_idx_present("/usr/share/datasets/fashion-mnist")) return SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
