/* Images in the size that the net asks for: the procedural source, and a directory of arrays for each class,
 * good and hostile. */
#define _GNU_SOURCE
#include "bench/data/data.h"

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static ab_data *open_images(const char *name, int64_t height, int64_t width, int64_t channels,
                            uint64_t seed) {
    ab_data *data = NULL;
    if (ab_data_open_images(name, height, width, channels, seed, &data) != AB_OK)
        fail_msg("%s", ab_error_message());
    return data;
}

/* ---- procedural ------------------------------------------------------------------------------ */

static void the_net_s_size_is_made(void **state) {
    (void)state;
    const int64_t sizes[][3] = {{96, 160, 3}, {20, 20, 1}, {17, 9, 2}};
    for (size_t i = 0; i < AB_COUNT_OF(sizes); i++) {
        ab_data *data = open_images("synthetic_images", sizes[i][0], sizes[i][1], sizes[i][2], 1);
        const int64_t bytes = sizes[i][0] * sizes[i][1] * sizes[i][2], most = (64 << 20) / bytes;
        assert_int_equal(data->split[AB_SPLIT_TRAIN].count, most < 4096 ? most : 4096);
        assert_int_equal(data->split[AB_SPLIT_TEST].count, data->split[AB_SPLIT_TRAIN].count / 4);
        assert_true(data->height == sizes[i][0] && data->width == sizes[i][1] &&
                    data->channels == sizes[i][2]);
        assert_true(data->std > 0.05 && data->mean > 0.02 && data->mean < 0.5);
        assert_string_equal(data->adapted, "");
        ab_data_close(data);
    }
}

static void classes_are_balanced_and_bytes_follow_the_seed(void **state) {
    (void)state;
    ab_data *a = open_images("synthetic_images", 24, 24, 3, 1),
            *b = open_images("synthetic_images", 24, 24, 3, 1),
            *c = open_images("synthetic_images", 24, 24, 3, 2);
    const ab_images *train = &a->split[AB_SPLIT_TRAIN];
    const size_t bytes = (size_t)train->count * 24 * 24 * 3;
    int64_t count[10] = {0};
    assert_memory_equal(train->pixel, b->split[AB_SPLIT_TRAIN].pixel, bytes);
    assert_int_not_equal(memcmp(train->pixel, c->split[AB_SPLIT_TRAIN].pixel, bytes), 0);
    for (int64_t i = 0; i < train->count; i++) count[train->label[i]]++;
    for (int k = 0; k < 10; k++) assert_in_range(count[k], train->count / 15, train->count / 6);
    ab_data_close(a);
    ab_data_close(b);
    ab_data_close(c);
}

/* A class has its colour: the mean of a channel over its samples tells three groups apart. */
static void a_class_s_channel_is_the_brightest(void **state) {
    (void)state;
    ab_data *data = open_images("synthetic_images", 16, 16, 3, 1);
    const ab_images *train = &data->split[AB_SPLIT_TRAIN];
    double sum[10][3] = {{0}};
    for (int64_t i = 0; i < train->count; i++)
        for (int p = 0; p < 16 * 16 * 3; p++)
            sum[train->label[i]][p % 3] += train->pixel[i * 16 * 16 * 3 + p];
    for (int k = 0; k < 10; k++)
        for (int c = 0; c < 3; c++) assert_true(c == k % 3 || sum[k][c] < sum[k][k % 3]);
    ab_data_close(data);
}

static void nets_of_several_channels_get_it_by_default(void **state) {
    (void)state;
    const ab_data_shape colour = {.input = AB_INPUT_IMAGES, .x = {.ndim = 3, .dim = {224, 224, 3}}};
    const ab_data_shape grey = {.input = AB_INPUT_IMAGES, .x = {.ndim = 3, .dim = {32, 32, 1}}};
    assert_string_equal(ab_data_default(&colour), "synthetic_images");
    assert_string_equal(ab_data_default(&grey), "fashion_mnist");
}

/* ---- a directory of arrays ------------------------------------------------------------------- */

enum { SIDE = 4, BYTES = SIDE * SIDE * 3 };

static char folder[64];

static int make_folder(void **state) {
    (void)state;
    char path[128];
    snprintf(folder, sizeof folder, "/tmp/ampbench-test-images-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    for (int k = 0; k < 2; k++) {
        snprintf(path, sizeof path, "%s/%s", folder, k ? "dogs" : "cats");
        if (mkdir(path, 0700) != 0) return -1;
    }
    return 0;
}

static int remove_one(const char *path, const struct stat *about, int flag, struct FTW *at) {
    (void)about, (void)flag, (void)at;
    return remove(path);
}

static int remove_folder(void **state) {
    (void)state;
    return nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* Every byte of image `first + i` is that number. */
static void write_array(const char *name, const char *type, const char *shape, int images, int first) {
    char path[160], header[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    remove(path);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    int n = snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", type,
                     shape);
    while ((10 + n + 1) % 64) header[n++] = ' ';
    header[n++] = '\n';
    fwrite("\x93NUMPY\x01\x00", 1, 8, file);
    fputc(n & 255, file);
    fputc(n >> 8, file);
    fwrite(header, 1, (size_t)n, file);
    for (int i = 0; i < images; i++)
        for (int b = 0; b < BYTES; b++) fputc(first + i, file);
    assert_int_equal(fclose(file), 0);
}

static void write_good(void) {
    write_array("cats/a.npy", "|u1", "4, 4, 3", 1, 0);
    write_array("cats/b.npy", "|u1", "12, 4, 4, 3", 12, 1);
    write_array("dogs/all.npy", "|u1", "10, 4, 4, 3", 10, 100);
}

static const char *source(void) {
    static char text[80];
    snprintf(text, sizeof text, "images:%s", folder);
    return text;
}

static void every_tenth_image_of_a_class_is_a_test_sample(void **state) {
    (void)state;
    write_good();
    ab_data *data = open_images(source(), SIDE, SIDE, 3, 1);
    const ab_images *train = &data->split[AB_SPLIT_TRAIN], *test = &data->split[AB_SPLIT_TEST];
    assert_int_equal(data->classes, 2);
    assert_int_equal(train->count, 21);
    assert_int_equal(test->count, 2);
    for (int i = 0; i < 21; i++) {
        const int expected = i < 9 ? i : i < 12 ? i + 1 : 100 + i - 12;
        assert_int_equal(train->label[i], i >= 12);
        for (int b = 0; b < BYTES; b++) assert_int_equal(train->pixel[i * BYTES + b], expected);
    }
    assert_true(test->pixel[0] == 9 && test->pixel[BYTES] == 109 && test->label[0] == 0 &&
                test->label[1] == 1);
    const int64_t index = 3;
    float values[BYTES];
    int32_t id;
    ab_data_fill(data, AB_SPLIT_TRAIN, AB_NORMALIZE_UNIT, &index, 1, values, &id);
    assert_true(values[5] == (float)(3 / 255.0) && id == 0);
    ab_data_close(data);
}

static void refused(int64_t channels, const char *part, const char *other) {
    ab_data *data = NULL;
    assert_int_not_equal(ab_data_open_images(source(), SIDE, SIDE, channels, 1, &data), AB_OK);
    if (!strstr(ab_error_message(), part) || !strstr(ab_error_message(), other))
        fail_msg("expected '%s' and '%s' in: %s", part, other, ab_error_message());
    assert_null(data);
}

static void what_does_not_fit_is_named(void **state) {
    (void)state;
    write_good();
    refused(1, "cats/a.npy: expected bytes (uint8)",
            "[4, 4, 1], or several in one array; found uint8 [4, 4, 3]");
    write_array("dogs/all.npy", "<u2", "5, 4, 4, 3", 10, 0);
    refused(3, "dogs/all.npy", "found uint16 [5, 4, 4, 3]");
    write_array("dogs/all.npy", "|u1", "1, 4, 4, 4, 3", 4, 0);
    refused(3, "dogs/all.npy", "found uint8 [1, 4, 4, 4, 3]");
    write_array("dogs/all.npy", "|u1", "9, 4, 4, 3", 10, 0);
    refused(3, "dogs/all.npy", "expected");
    write_array("dogs/all.npy", "|u1", "2, 4, 4, 3", 2, 0);
    write_array("cats/b.npy", "|u1", "2, 4, 4, 3", 2, 0);
    refused(3, "expected 10 or more images in a class", "found no test sample");
}

static void directories_are_classes(void **state) {
    (void)state;
    ab_data *data = NULL;
    char path[128];
    assert_int_not_equal(ab_data_open_images("images:/nonexistent", SIDE, SIDE, 3, 1, &data), AB_OK);
    assert_non_null(strstr(ab_error_message(), "cannot open /nonexistent"));
    refused(3, "expected .npy files in", "cats, found none");
    snprintf(path, sizeof path, "%s/dogs", folder);
    remove(path);
    refused(3, "expected 2 to 256 directories", "found 1");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_net_s_size_is_made),
        cmocka_unit_test(classes_are_balanced_and_bytes_follow_the_seed),
        cmocka_unit_test(a_class_s_channel_is_the_brightest),
        cmocka_unit_test(nets_of_several_channels_get_it_by_default),
        cmocka_unit_test_setup_teardown(every_tenth_image_of_a_class_is_a_test_sample, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(what_does_not_fit_is_named, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(directories_are_classes, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
