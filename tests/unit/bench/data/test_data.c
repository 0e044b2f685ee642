/* Data sources: the IDX reader against good and hostile files, the fit to a net's input, orders, batches, and
 * the procedural set. Files are made here; the real Fashion-MNIST is test_fashion_mnist.c's. */
#define _POSIX_C_SOURCE 200809L
#include "bench/data/data.h"

#include "kernels/core/parallel.h"
#include "kernels/format/convert.h"

#include <math.h>
#include <omp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <setjmp.h>

#include <cmocka.h>

/* ---- a directory of IDX files ---------------------------------------------------------------- */

enum { TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS, FILES };
enum { ROWS = 2, COLUMNS = 3, TRAIN = 5, TEST = 4, MAX_BYTES = 64 };

static const char *const file_names[FILES] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                              "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};

static const uint8_t train_label[TRAIN] = {0, 2, 1, 2, 0}, test_label[TEST] = {1, 1, 2, 0};

typedef struct content {
    uint8_t byte[MAX_BYTES];
    size_t bytes;
} content;

typedef struct folder {
    char path[64];
    content file[FILES]; /* what write_folder writes */
} folder;

static void put_header(content *c, uint32_t magic, const uint32_t *dim, int dims) {
    uint32_t word[4] = {magic};
    for (int i = 0; i < dims; i++) word[i + 1] = dim[i];
    for (int i = 0; i <= dims; i++)
        for (int k = 0; k < 4; k++) c->byte[c->bytes++] = (uint8_t)(word[i] >> (24 - 8 * k));
}

/* Pixel `at` of the whole training or test file: all 30 or 24 differ. */
static uint8_t pixel_value(bool test, int at) { return (uint8_t)(test ? 255 - 7 * at : 8 * at + 1); }

static void put_images(content *c, bool test, uint32_t count) {
    const uint32_t dim[3] = {count, ROWS, COLUMNS};
    c->bytes = 0;
    put_header(c, 0x803, dim, 3);
    for (int i = 0; i < (int)count * ROWS * COLUMNS; i++) c->byte[c->bytes++] = pixel_value(test, i);
}

static void put_labels(content *c, const uint8_t *label, uint32_t count) {
    c->bytes = 0;
    put_header(c, 0x801, &count, 1);
    for (uint32_t i = 0; i < count; i++) c->byte[c->bytes++] = label[i];
}

static void fill_folder(folder *f) {
    put_images(&f->file[TRAIN_IMAGES], false, TRAIN);
    put_labels(&f->file[TRAIN_LABELS], train_label, TRAIN);
    put_images(&f->file[TEST_IMAGES], true, TEST);
    put_labels(&f->file[TEST_LABELS], test_label, TEST);
}

static const char *path_of(const folder *f, const char *name) {
    static char path[160];
    snprintf(path, sizeof path, "%s/%s", f->path, name);
    return path;
}

static void write_bytes(const char *path, const uint8_t *byte, size_t bytes) {
    remove(path); /* a file system may flush a file that replaces one in place */
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(byte, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static void write_folder(const folder *f) {
    for (int i = 0; i < FILES; i++) write_bytes(path_of(f, file_names[i]), f->file[i].byte, f->file[i].bytes);
}

static int open_folder(void **state) {
    folder *f = calloc(1, sizeof *f);
    if (!f) return -1;
    snprintf(f->path, sizeof f->path, "/tmp/ampbench-test-data-XXXXXX");
    *state = f;
    fill_folder(f);
    return mkdtemp(f->path) ? 0 : -1;
}

static int close_folder(void **state) {
    static const char *const other[] = {"train-images-idx3-ubyte.gz", "train-labels.idx1-ubyte.gz",
                                        "test-images.idx3-ubyte", "test-labels-idx1-ubyte"};
    folder *f = *state;
    for (int i = 0; i < FILES; i++) {
        remove(path_of(f, file_names[i]));
        remove(path_of(f, other[i]));
    }
    remove(f->path);
    free(f);
    return 0;
}

static ab_data *open_data(const char *name, int64_t height, int64_t width) {
    ab_data *data = NULL;
    ab_status status = ab_data_open_images(name, height, width, 1, 1, &data);
    if (status != AB_OK) print_error("%s\n", ab_error_message());
    assert_int_equal(status, AB_OK);
    return data;
}

/* Expects ab_data_open of the folder to fail with AB_INPUT and a one-line message that has every text in it.
 */
static void expect_refused(const folder *f, const char *file, const char *expected, const char *found) {
    ab_data *data = NULL;
    assert_int_equal(ab_data_open_images(f->path, ROWS, COLUMNS, 1, 1, &data), AB_INPUT);
    assert_null(data);
    const char *message = ab_error_message();
    const char *const parts[] = {f->path, file, expected, found};
    for (size_t i = 0; i < AB_COUNT_OF(parts); i++)
        if (!strstr(message, parts[i])) fail_msg("no '%s' in '%s'", parts[i], message);
    assert_null(strchr(message, '\n'));
}

/* ---- reading --------------------------------------------------------------------------------- */

static void expect_content(const ab_data *data) {
    assert_string_equal(data->name, "idx");
    assert_int_equal(data->classes, 3);
    assert_int_equal(data->stored_height, ROWS);
    assert_int_equal(data->stored_width, COLUMNS);
    assert_int_equal(data->channels, 1);
    assert_int_equal(data->split[AB_SPLIT_TRAIN].count, TRAIN);
    assert_int_equal(data->split[AB_SPLIT_TEST].count, TEST);
    assert_memory_equal(data->split[AB_SPLIT_TRAIN].label, train_label, TRAIN);
    assert_memory_equal(data->split[AB_SPLIT_TEST].label, test_label, TEST);
    for (int i = 0; i < TRAIN * ROWS * COLUMNS; i++)
        assert_int_equal(data->split[AB_SPLIT_TRAIN].pixel[i], pixel_value(false, i));
    for (int i = 0; i < TEST * ROWS * COLUMNS; i++)
        assert_int_equal(data->split[AB_SPLIT_TEST].pixel[i], pixel_value(true, i));
}

static void plain_idx_files_are_read(void **state) {
    folder *f = *state;
    write_folder(f);
    ab_data *data = open_data(f->path, ROWS, COLUMNS);
    expect_content(data);
    assert_string_equal(data->origin, f->path);
    assert_string_equal(data->adapted, "");
    ab_data_close(data);
}

static void write_gzip(const char *path, const content *c) {
    gzFile file = gzopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(gzwrite(file, c->byte, (unsigned)c->bytes), c->bytes);
    assert_int_equal(gzclose(file), Z_OK);
}

/* gzip files may be joined end to end (RFC 1952, 2.2); only a stream reader sees the whole. */
static void write_gzip_in_two(const char *path, const content *c) {
    const unsigned half = (unsigned)c->bytes / 2;
    gzFile file = gzopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(gzwrite(file, c->byte, half), half);
    assert_int_equal(gzclose(file), Z_OK);
    file = gzopen(path, "ab");
    assert_non_null(file);
    assert_int_equal(gzwrite(file, c->byte + half, (unsigned)c->bytes - half), c->bytes - half);
    assert_int_equal(gzclose(file), Z_OK);
}

static void gzip_of_two_members_is_read(void **state) {
    folder *f = *state;
    write_gzip_in_two(path_of(f, "train-images-idx3-ubyte.gz"), &f->file[TRAIN_IMAGES]);
    write_gzip(path_of(f, "train-labels.idx1-ubyte.gz"), &f->file[TRAIN_LABELS]);
    write_bytes(path_of(f, "test-images.idx3-ubyte"), f->file[TEST_IMAGES].byte, f->file[TEST_IMAGES].bytes);
    write_bytes(path_of(f, "test-labels-idx1-ubyte"), f->file[TEST_LABELS].byte, f->file[TEST_LABELS].bytes);
    ab_data *data = open_data(f->path, ROWS, COLUMNS);
    expect_content(data);
    ab_data_close(data);
}

static void gzip_and_the_other_spellings_are_read(void **state) {
    folder *f = *state;
    write_gzip(path_of(f, "train-images-idx3-ubyte.gz"), &f->file[TRAIN_IMAGES]);
    write_gzip(path_of(f, "train-labels.idx1-ubyte.gz"), &f->file[TRAIN_LABELS]);
    write_bytes(path_of(f, "test-images.idx3-ubyte"), f->file[TEST_IMAGES].byte, f->file[TEST_IMAGES].bytes);
    write_bytes(path_of(f, "test-labels-idx1-ubyte"), f->file[TEST_LABELS].byte, f->file[TEST_LABELS].bytes);
    ab_data *data = open_data(f->path, ROWS, COLUMNS);
    expect_content(data);
    ab_data_close(data);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void missing_file_is_named(void **state) {
    folder *f = *state;
    write_folder(f);
    remove(path_of(f, file_names[TEST_LABELS]));
    expect_refused(f, "t10k-labels-idx1-ubyte", "expected a file", "found none");
}

static void wrong_magic_is_refused(void **state) {
    folder *f = *state;
    f->file[TRAIN_IMAGES].byte[3] = 0x01;
    write_folder(f);
    expect_refused(f, "train-images-idx3-ubyte", "0x00000803", "found 0x00000801");
    fill_folder(f);
    f->file[TEST_LABELS].byte[2] = 0x0D; /* floats */
    write_folder(f);
    expect_refused(f, "t10k-labels-idx1-ubyte", "0x00000801", "found 0x00000d01");
}

static void every_truncation_is_refused(void **state) {
    folder *f = *state;
    for (int file = 0; file < FILES; file++) {
        for (size_t bytes = 0; bytes < f->file[file].bytes; bytes++) {
            size_t whole = f->file[file].bytes;
            f->file[file].bytes = bytes;
            write_folder(f);
            expect_refused(f, file_names[file], "expected", "found");
            f->file[file].bytes = whole;
        }
    }
}

static void trailing_bytes_are_refused(void **state) {
    folder *f = *state;
    f->file[TRAIN_LABELS].byte[f->file[TRAIN_LABELS].bytes++] = 0;
    write_folder(f);
    expect_refused(f, "train-labels-idx1-ubyte", "expected 5 bytes", "found more");
}

static void damaged_gzip_is_refused(void **state) {
    folder *f = *state;
    uint8_t byte[256];
    write_folder(f);
    remove(path_of(f, file_names[TRAIN_IMAGES]));
    const char *path = path_of(f, "train-images-idx3-ubyte.gz");
    write_gzip(path, &f->file[TRAIN_IMAGES]);
    FILE *file = fopen(path, "rb");
    size_t bytes = fread(byte, 1, sizeof byte, file);
    fclose(file);
    write_bytes(path, byte, bytes - 4);
    expect_refused(f, "train-images-idx3-ubyte.gz", "expected a readable file", "end of file");
    byte[bytes - 6] ^= 1; /* the check sum */
    write_bytes(path, byte, bytes);
    expect_refused(f, "train-images-idx3-ubyte.gz", "expected a readable file", "data check");
}

/* A header that promises 1.9 GB over a file of 46 bytes must neither be believed nor allocated for. */
static void lying_counts_are_refused(void **state) {
    folder *f = *state;
    static const struct {
        uint32_t dim[3];
        const char *expected, *found;
    } lies[] = {
        {{0, ROWS, COLUMNS}, "expected 1 or more samples", "found 0"},
        {{TRAIN, 0, COLUMNS}, "1 to 4096 pixels a side", "found 0x3"},
        {{TRAIN, ROWS, 4097}, "1 to 4096 pixels a side", "found 2x4097"},
        {{0xFFFFFFFFu, 4096, 4096}, "at most 2147483648 bytes", "72057594021150720"},
        {{300000000, ROWS, COLUMNS}, "expected 1800000000 bytes", "found 30"},
        {{TRAIN + 1, ROWS, COLUMNS}, "expected 36 bytes", "found 30"},
    };
    for (size_t i = 0; i < AB_COUNT_OF(lies); i++) {
        content *c = &f->file[TRAIN_IMAGES];
        c->bytes = 0;
        put_header(c, 0x803, lies[i].dim, 3);
        c->bytes += (size_t)TRAIN * ROWS * COLUMNS;
        write_folder(f);
        expect_refused(f, "train-images-idx3-ubyte", lies[i].expected, lies[i].found);
    }
}

static void images_and_labels_must_match(void **state) {
    folder *f = *state;
    put_labels(&f->file[TRAIN_LABELS], train_label, TRAIN - 1);
    write_folder(f);
    expect_refused(f, "train-labels-idx1-ubyte", "expected 5 labels", "found 4");
}

static void label_beyond_the_training_classes_is_refused(void **state) {
    folder *f = *state;
    static const uint8_t wild[TEST] = {1, 1, 3, 0};
    put_labels(&f->file[TEST_LABELS], wild, TEST);
    write_folder(f);
    expect_refused(f, "t10k-labels-idx1-ubyte", "labels from 0 to 2", "found 3 at sample 2");
}

static void test_images_must_have_the_training_shape(void **state) {
    folder *f = *state;
    f->file[TEST_IMAGES].byte[11] = COLUMNS; /* 3x2 for 2x3 */
    f->file[TEST_IMAGES].byte[15] = ROWS;
    write_folder(f);
    expect_refused(f, "t10k-images-idx3-ubyte", "2x3 as in the training set", "found 3x2");
}

static void pixels_without_contrast_are_refused(void **state) {
    folder *f = *state;
    memset(f->file[TRAIN_IMAGES].byte + 16, 9, (size_t)TRAIN * ROWS * COLUMNS);
    write_folder(f);
    expect_refused(f, "", "expected training images with some contrast", "found all pixels equal");
}

static void folder_in_place_of_a_file_is_refused(void **state) {
    folder *f = *state;
    write_folder(f);
    remove(path_of(f, file_names[TEST_IMAGES]));
    assert_int_equal(mkdir(path_of(f, file_names[TEST_IMAGES]), 0700), 0);
    expect_refused(f, "t10k-images-idx3-ubyte", "expected a readable file", "found");
}

/* Any bytes must end in data or in a message, never in a crash: what ASan and UBSan watch. */
static void random_damage_never_crashes(void **state) {
    folder *f = *state;
    uint32_t random = 1;
    for (int round = 0; round < 400; round++) {
        fill_folder(f);
        for (int hit = 0; hit < 3; hit++) {
            random = random * 1664525u + 1013904223u;
            content *c = &f->file[random >> 30];
            size_t at = (random >> 8) % c->bytes;
            c->byte[at] = (uint8_t)(random >> 16);
            if ((random >> 24 & 7) == 0) c->bytes = at + 1;
        }
        write_folder(f);
        ab_data *data = NULL;
        ab_status status = ab_data_open_images(f->path, 8, 8, 1, 1, &data);
        assert_true(status == AB_OK ? data != NULL : (status == AB_INPUT || status == AB_CONFIG) && !data);
        ab_data_close(data);
    }
}

static void expect_open_fails(const char *name, ab_status expected, const char *part) {
    ab_data *data = NULL;
    assert_int_equal(ab_data_open_images(name, 28, 28, 1, 1, &data), expected);
    assert_null(data);
    if (!strstr(ab_error_message(), part)) fail_msg("no '%s' in '%s'", part, ab_error_message());
}

static void unknown_sources_are_refused(void **state) {
    (void)state;
    expect_open_fails("synthetik", AB_CONFIG, "did you mean 'synthetic'?");
    expect_open_fails("", AB_CONFIG, "expected a data source or a directory, found ''");
    expect_open_fails("/nonexistent/place", AB_INPUT, "found nothing there");
    expect_open_fails("/dev/null", AB_INPUT, "found a file");
}

static void missing_fashion_mnist_offers_the_other_ways(void **state) {
    (void)state;
    assert_int_equal(setenv("AMPBENCH_DATA_DIR", "/nonexistent", 1), 0);
    expect_open_fails("fashion_mnist", AB_INPUT, "not in /nonexistent");
    expect_open_fails("fashion_mnist", AB_INPUT, "dataset-fashion-mnist");
    expect_open_fails("fashion_mnist", AB_INPUT, "--data synthetic");
    expect_open_fails("fashion_mnist", AB_INPUT, "--data DIR");
    assert_int_equal(unsetenv("AMPBENCH_DATA_DIR"), 0);
}

static void fashion_mnist_has_ten_classes_and_no_more(void **state) {
    folder *f = *state;
    ab_data *data = NULL;
    write_folder(f);
    assert_int_equal(setenv("AMPBENCH_DATA_DIR", f->path, 1), 0);
    assert_int_equal(ab_data_open_images("fashion_mnist", ROWS, COLUMNS, 1, 1, &data), AB_OK);
    assert_int_equal(data->classes, 10);
    assert_string_equal(data->name, "fashion_mnist");
    ab_data_close(data);
    f->file[TRAIN_LABELS].byte[9] = 10;
    write_folder(f);
    assert_int_equal(ab_data_open_images("fashion_mnist", ROWS, COLUMNS, 1, 1, &data), AB_INPUT);
    assert_non_null(strstr(ab_error_message(), "labels from 0 to 9, found 10 at sample 1"));
    assert_int_equal(unsetenv("AMPBENCH_DATA_DIR"), 0);
}

/* ---- fitting and filling --------------------------------------------------------------------- */

static void images_are_centred_and_padded_with_zeros(void **state) {
    folder *f = *state;
    enum { HEIGHT = 5, WIDTH = 4, TOP = 1, LEFT = 0 }; /* the odd row below, the odd column on the right */
    static const int64_t index[2] = {3, 1};
    float images[2 * HEIGHT * WIDTH];
    int32_t labels[2];
    write_folder(f);
    ab_data *data = open_data(f->path, HEIGHT, WIDTH);
    assert_string_equal(data->adapted, "2x3 zero-padded to 5x4");
    ab_data_fill(data, AB_SPLIT_TEST, AB_NORMALIZE_NONE, index, 2, images, labels);
    for (int i = 0; i < 2 * HEIGHT * WIDTH; i++) {
        int image = i / (HEIGHT * WIDTH), y = i / WIDTH % HEIGHT - TOP, x = i % WIDTH - LEFT;
        bool inside = y >= 0 && y < ROWS && x >= 0 && x < COLUMNS;
        int at = ((int)index[image] * ROWS + y) * COLUMNS + x;
        assert_true(images[i] == (inside ? (float)pixel_value(true, at) : 0.0f));
    }
    assert_int_equal(labels[0], test_label[3]);
    assert_int_equal(labels[1], test_label[1]);
    ab_data_close(data);
}

static void inputs_that_do_not_fit_name_both_shapes(void **state) {
    folder *f = *state;
    static const int64_t shapes[][3] = {{1, 3, 1}, {2, 2, 1}, {2, 3, 3}};
    write_folder(f);
    for (size_t i = 0; i < AB_COUNT_OF(shapes); i++) {
        ab_data *data = NULL;
        char shape[32];
        snprintf(shape, sizeof shape, "%dx%dx%d", (int)shapes[i][0], (int)shapes[i][1], (int)shapes[i][2]);
        assert_int_equal(ab_data_open_images(f->path, shapes[i][0], shapes[i][1], shapes[i][2], 1, &data),
                         AB_CONFIG);
        assert_null(data);
        assert_non_null(strstr(ab_error_message(), "2x3x1"));
        assert_non_null(strstr(ab_error_message(), shape));
    }
}

/* Over the padded training images, from the definition, in extended precision. */
static void statistics_are_those_of_the_padded_training_set(void **state) {
    folder *f = *state;
    enum { PIXELS = TRAIN * 4 * 4 };
    static const int64_t index[TRAIN] = {0, 1, 2, 3, 4};
    float images[PIXELS];
    int32_t labels[TRAIN];
    long double sum = 0, squares = 0, difference = 0, spread = 0;
    write_folder(f);
    ab_data *data = open_data(f->path, 4, 4);
    ab_data_fill(data, AB_SPLIT_TRAIN, AB_NORMALIZE_NONE, index, TRAIN, images, labels);
    for (int i = 0; i < PIXELS; i++) sum += (long double)images[i] / 255.0L;
    for (int i = 0; i < PIXELS; i++) squares += powl((long double)images[i] / 255.0L - sum / PIXELS, 2);
    assert_true(fabs(data->mean - (double)(sum / PIXELS)) < 1e-15);
    assert_true(fabs(data->std - (double)sqrtl(squares / PIXELS)) < 1e-15);
    ab_data_fill(data, AB_SPLIT_TRAIN, AB_NORMALIZE_STANDARD, index, TRAIN, images, labels);
    for (int i = 0; i < PIXELS; i++) difference += (long double)images[i];
    for (int i = 0; i < PIXELS; i++) spread += powl((long double)images[i], 2);
    assert_true(fabsl(difference / PIXELS) < 1e-7L);
    assert_true(fabsl(spread / PIXELS - 1) < 1e-6L);
    ab_data_close(data);
}

static void modes_scale_each_pixel_once(void **state) {
    folder *f = *state;
    static const int64_t index[1] = {4};
    float image[ROWS * COLUMNS];
    int32_t label;
    write_folder(f);
    ab_data *data = open_data(f->path, ROWS, COLUMNS);
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        double x = pixel_value(false, 4 * ROWS * COLUMNS + i);
        ab_data_fill(data, AB_SPLIT_TRAIN, AB_NORMALIZE_NONE, index, 1, image, &label);
        assert_true(image[i] == (float)x);
        ab_data_fill(data, AB_SPLIT_TRAIN, AB_NORMALIZE_UNIT, index, 1, image, &label);
        assert_true(image[i] == (float)(x / 255.0));
        ab_data_fill(data, AB_SPLIT_TRAIN, AB_NORMALIZE_STANDARD, index, 1, image, &label);
        assert_true(image[i] == (float)((x / 255.0 - data->mean) / data->std));
    }
    ab_data_close(data);
}

/* As torchvision's Pad(2) after Normalize((0.1307,), (0.3081,)) after ToTensor(), or Pad(2) first: torch 2.11
 * computes these values for bytes 0, 51, 255 in fp32. */
static void stated_means_and_borders_are_those_of_torchvision(void **state) {
    folder *f = *state;
    static const double expected[3] = {-0.4242129, 0.2249270, 2.8214867};
    static const uint8_t bytes[3] = {0, 51, 255};
    static const int64_t index[1] = {0};
    float image[(ROWS + 4) * (COLUMNS + 4)];
    int32_t label;
    write_folder(f);
    ab_data *data = open_data(f->path, ROWS + 4, COLUMNS + 4);
    for (int before = 0; before < 2; before++) {
        ab_normalize mode = AB_NORMALIZE_NONE;
        ab_pixels pixels = {0};
        assert_int_equal(ab_pixels_normalize("0.1307/0.3081", &mode, &pixels), AB_OK);
        assert_int_equal(mode, AB_NORMALIZE_GIVEN);
        assert_int_equal(ab_pixels_pad(before ? "2:before" : "2", &pixels), AB_OK);
        assert_int_equal(ab_data_preprocess(data, &pixels), AB_OK);
        memcpy(data->split[AB_SPLIT_TRAIN].pixel, bytes, sizeof bytes);
        ab_data_fill(data, AB_SPLIT_TRAIN, mode, index, 1, image, &label);
        assert_true(fabs((double)image[0] - (before ? expected[0] : 0)) < 1e-6);
        for (int i = 0; i < 3; i++)
            assert_true(fabs((double)image[2 * (COLUMNS + 4) + 2 + i] - expected[i]) < 1e-6);
    }
    ab_data_close(data);
}

static void channels_are_normalised_each_by_its_own_pair(void **state) {
    (void)state;
    uint8_t pixel[6] = {0, 128, 255, 10, 20, 30};
    static const double mean[] = {0.485, 0.456, 0.406}, std[] = {0.229, 0.224, 0.225};
    static const int64_t index[1] = {0};
    uint8_t id = 0;
    ab_data data = {.shape = {.x = {.ndim = 3, .dim = {1, 4, 3}}},
                    .height = 1,
                    .width = 4,
                    .channels = 3,
                    .stored_height = 1,
                    .stored_width = 2};
    ab_normalize mode = AB_NORMALIZE_NONE;
    ab_pixels pixels = {0};
    float image[12];
    int32_t label;
    data.split[AB_SPLIT_TRAIN] = (ab_images){.count = 1, .pixel = pixel, .label = &id};
    assert_int_equal(ab_pixels_normalize("0.485/0.229,0.456/0.224,0.406/0.225", &mode, &pixels), AB_OK);
    assert_int_equal(ab_data_preprocess(&data, &pixels), AB_OK);
    ab_data_fill(&data, AB_SPLIT_TRAIN, mode, index, 1, image, &label);
    for (int i = 0; i < 12; i++) {
        const double x = i >= 3 && i < 9 ? pixel[i - 3] / 255.0 : 0;
        assert_true(image[i] == (float)((x - mean[i % 3]) / std[i % 3]));
    }
    pixels.channels = 2;
    assert_int_equal(ab_data_preprocess(&data, &pixels), AB_CONFIG);
    pixels = (ab_pixels){.padded = true, .pad = 1};
    assert_int_equal(ab_data_preprocess(&data, &pixels), AB_CONFIG);
    assert_non_null(strstr(ab_error_message(), "become 3x4, expected the net's input, 1x4"));
}

/* ---- 16 bits --------------------------------------------------------------------------------- */

enum { SIDE = 31, WIDE = 34, IMAGES = 70, HALF_VALUES = IMAGES * WIDE * WIDE * 3 };
static uint8_t many_pixels[IMAGES * SIDE * SIDE * 3], many_ids[IMAGES];

/* Images of `channels` channels, in a border if they are padded. */
static ab_data many_images(int64_t channels, bool padded) {
    ab_data many = {
        .shape = {.x = {.ndim = 3, .dim = {padded ? WIDE : SIDE, padded ? WIDE : SIDE, channels}}},
        .height = padded ? WIDE : SIDE,
        .width = padded ? WIDE : SIDE,
        .channels = channels,
        .stored_height = SIDE,
        .stored_width = SIDE,
        .mean = 0.2860405969887955,
        .std = 0.3530242445149223,
        .pixels = {.channels = (int)channels, .mean = {0.485, 0.456, 0.406}, .std = {0.229, 1e-6, 0.225}}};
    many.split[AB_SPLIT_TEST] = (ab_images){.count = IMAGES, .pixel = many_pixels, .label = many_ids};
    for (size_t i = 0; i < sizeof many_pixels; i++) many_pixels[i] = (uint8_t)(i * 2654435761u >> 13);
    return many;
}

static void halves_are_the_bits_of_a_cast(void **state) {
    (void)state;
    static float values[HALF_VALUES];
    static uint16_t expected[HALF_VALUES], found[HALF_VALUES];
    static const ab_format *const halves[] = {&ab_format_fp16, &ab_format_bf16};
    static const ab_normalize modes[] = {AB_NORMALIZE_NONE, AB_NORMALIZE_STANDARD, AB_NORMALIZE_GIVEN};
    int64_t index[IMAGES];
    int32_t ids[IMAGES], same_ids[IMAGES];
    for (int i = 0; i < IMAGES; i++) index[i] = (i * 37 + 11) % IMAGES;
    for (int k = 0; k < 24; k++) {
        ab_data many = many_images(k % 2 ? 3 : 1, k / 2 % 2);
        const ab_format *half = halves[k / 4 % 2];
        many.pixels.zero_border = k / 4 % 2;
        const int64_t n = IMAGES * many.height * many.width * many.channels;
        ab_data_fill(&many, AB_SPLIT_TEST, modes[k / 8], index, IMAGES, values, ids);
        ab_narrow(expected, half, values, n);
        ab_data_fill_half(&many, AB_SPLIT_TEST, modes[k / 8], half, index, IMAGES, found, same_ids);
        assert_memory_equal(found, expected, (size_t)n * sizeof *found);
        assert_memory_equal(ids, same_ids, sizeof ids);
    }
}

static void batches_do_not_depend_on_threads(void **state) {
    (void)state;
    static float one[HALF_VALUES], three[HALF_VALUES];
    int64_t index[IMAGES];
    int32_t ids[IMAGES];
    const ab_data many = many_images(3, true);
    for (int i = 0; i < IMAGES; i++) index[i] = IMAGES - 1 - i;
    ab_data_fill(&many, AB_SPLIT_TEST, AB_NORMALIZE_UNIT, index, IMAGES, one, ids);
    assert_int_equal(ab_parallel_start(3), AB_OK);
    ab_data_fill(&many, AB_SPLIT_TEST, AB_NORMALIZE_UNIT, index, IMAGES, three, ids);
    ab_parallel_stop();
    assert_memory_equal(one, three, sizeof one);
}

static void images_are_finite_unless_their_spread_is_too_small(void **state) {
    (void)state;
    ab_data many = many_images(3, false);
    assert_true(ab_data_is_finite(&many, AB_NORMALIZE_NONE));
    assert_true(ab_data_is_finite(&many, AB_NORMALIZE_STANDARD));
    assert_true(ab_data_is_finite(&many, AB_NORMALIZE_GIVEN));
    many.pixels.std[2] = 1e-40;
    assert_false(ab_data_is_finite(&many, AB_NORMALIZE_GIVEN));
    many.std = 1e-40;
    assert_false(ab_data_is_finite(&many, AB_NORMALIZE_STANDARD));
    many.stored_height = 0; /* numbers, not images */
    assert_false(ab_data_is_finite(&many, AB_NORMALIZE_NONE));
}

static void other_preprocessing_is_refused(void **state) {
    (void)state;
    static const char *const means[] = {"0.5/0",  "/1",    "0.5/",  "0.5/0.1,", "a/b",
                                        "0.5/-1", "nan/1", "1/inf", "1/2x"};
    static const char *const pads[] = {"", "-1", "2:after", "two", "4097", "2 ", "99999999999999999999"};
    for (size_t i = 0; i < AB_COUNT_OF(means); i++) {
        ab_normalize mode;
        ab_pixels pixels = {0};
        assert_int_equal(ab_pixels_normalize(means[i], &mode, &pixels), AB_CONFIG);
    }
    for (size_t i = 0; i < AB_COUNT_OF(pads); i++) {
        ab_pixels pixels = {0};
        assert_int_equal(ab_pixels_pad(pads[i], &pixels), AB_CONFIG);
    }
}

static void modes_are_found_by_name(void **state) {
    (void)state;
    ab_normalize mode;
    static const char *const names[] = {"none", "unit", "standard"};
    static const ab_normalize modes[] = {AB_NORMALIZE_NONE, AB_NORMALIZE_UNIT, AB_NORMALIZE_STANDARD};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ab_normalize_find(names[i], &mode), AB_OK);
        assert_int_equal(mode, modes[i]);
    }
    assert_int_equal(ab_normalize_find("units", &mode), AB_CONFIG);
    assert_non_null(strstr(ab_error_message(), "none, unit or standard, or MEAN/STD"));
    assert_non_null(strstr(ab_error_message(), "found 'units'"));
}

/* ---- order ----------------------------------------------------------------------------------- */

static void file_order_drops_the_rest_of_an_epoch(void **state) {
    (void)state;
    static const int64_t first[] = {0, 3, 6, 0, 3, 6, 0};
    ab_data_order order;
    int64_t index[3];
    assert_int_equal(ab_data_order_create(&order, 11, 3, false, 1), AB_OK);
    for (int64_t step = 0; step < 7; step++) {
        ab_data_order_at(&order, step, index);
        for (int i = 0; i < 3; i++) assert_int_equal(index[i], first[step] + i);
    }
    ab_data_order_destroy(&order);
}

/* Recorded from a Philox and a Fisher-Yates written independently, in integers of any size. */
static void shuffled_order_is_the_recorded_one(void **state) {
    (void)state;
    static const struct {
        uint64_t seed;
        int64_t epoch, permutation[10];
    } recorded[] = {
        {42, 0, {5, 7, 9, 0, 6, 1, 2, 3, 8, 4}},
        {42, 3, {1, 3, 6, 8, 5, 4, 0, 7, 9, 2}},
        {(uint64_t)1 << 40, 0, {9, 3, 1, 2, 8, 0, 4, 7, 6, 5}},
    };
    for (size_t i = 0; i < AB_COUNT_OF(recorded); i++) {
        ab_data_order order;
        int64_t index[10];
        assert_int_equal(ab_data_order_create(&order, 10, 10, true, recorded[i].seed), AB_OK);
        ab_data_order_at(&order, recorded[i].epoch, index);
        assert_memory_equal(index, recorded[i].permutation, sizeof index);
        ab_data_order_destroy(&order);
    }
}

static void every_epoch_is_a_permutation(void **state) {
    (void)state;
    enum { COUNT = 1000, BATCH = 50, BATCHES = COUNT / BATCH, EPOCHS = 3, STEPS = EPOCHS * BATCHES };
    ab_data_order order;
    int64_t index[EPOCHS][COUNT];
    assert_int_equal(ab_data_order_create(&order, COUNT, BATCH, true, 7), AB_OK);
    for (int64_t step = 0; step < STEPS; step++)
        ab_data_order_at(&order, step, &index[step / BATCHES][step % BATCHES * BATCH]);
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        bool seen[COUNT] = {false};
        for (int i = 0; i < COUNT; i++) {
            assert_in_range(index[epoch][i], 0, COUNT - 1);
            assert_false(seen[index[epoch][i]]);
            seen[index[epoch][i]] = true;
        }
        assert_memory_not_equal(index[epoch], index[(epoch + 1) % EPOCHS], sizeof index[0]);
    }
    ab_data_order_destroy(&order);
}

static void steps_may_be_asked_for_in_any_order(void **state) {
    (void)state;
    enum { COUNT = 23, BATCH = 5, STEPS = 12 };
    ab_data_order forward, backward;
    int64_t expected[STEPS][BATCH], index[BATCH];
    assert_int_equal(ab_data_order_create(&forward, COUNT, BATCH, true, 3), AB_OK);
    assert_int_equal(ab_data_order_create(&backward, COUNT, BATCH, true, 3), AB_OK);
    for (int64_t step = 0; step < STEPS; step++) ab_data_order_at(&forward, step, expected[step]);
    for (int64_t step = STEPS - 1; step >= 0; step--) {
        ab_data_order_at(&backward, step, index);
        assert_memory_equal(index, expected[step], sizeof index);
    }
    ab_data_order_destroy(&forward);
    ab_data_order_destroy(&backward);
}

/* All 24 orders of 4 samples over 4,800 epochs: chi squared with 23 degrees of freedom exceeds 49.7 once in
 * 1,000. A shuffle that swaps with any place instead of the remaining ones gives several hundred. */
static void shuffles_are_uniform(void **state) {
    (void)state;
    enum { EPOCHS = 4800, ORDERS = 256 };
    ab_data_order order;
    int count[ORDERS] = {0};
    double chi = 0;
    assert_int_equal(ab_data_order_create(&order, 4, 4, true, 11), AB_OK);
    for (int64_t epoch = 0; epoch < EPOCHS; epoch++) {
        int64_t index[4];
        ab_data_order_at(&order, epoch, index);
        count[index[0] << 6 | index[1] << 4 | index[2] << 2 | index[3]]++;
    }
    for (int i = 0; i < ORDERS; i++)
        if (count[i]) chi += pow(count[i] - EPOCHS / 24.0, 2) / (EPOCHS / 24.0);
    assert_true(chi < 49.7);
    ab_data_order_destroy(&order);
}

static void batch_larger_than_the_data_is_refused(void **state) {
    (void)state;
    ab_data_order order;
    assert_int_equal(ab_data_order_create(&order, 100, 101, true, 1), AB_CONFIG);
    assert_non_null(strstr(ab_error_message(), "expected 1 to 100, the size of the training set, found 101"));
    ab_data_order_destroy(&order);
    assert_int_equal(ab_data_order_create(&order, 100, 0, false, 1), AB_CONFIG);
    ab_data_order_destroy(&order);
}

/* ---- synthetic ------------------------------------------------------------------------------- */

static uint64_t digest(uint64_t hash, const uint8_t *byte, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i++) hash = (hash ^ byte[i]) * 1099511628211u;
    return hash;
}

static uint64_t data_digest(const ab_data *data) {
    uint64_t hash = 14695981039346656037u;
    for (int i = 0; i < 2; i++) {
        hash = digest(hash, data->split[i].label, data->split[i].count);
        hash = digest(hash, data->split[i].pixel, data->split[i].count * 28 * 28);
    }
    return hash;
}

/* Pixels 8 to 15 of row 14, recorded from the description written a second time, with another Philox. */
static void synthetic_samples_are_the_recorded_ones(void **state) {
    (void)state;
    static const struct {
        int64_t sample;
        ab_split split;
        int label;
        uint8_t pixel[8];
    } recorded[] = {
        {0, AB_SPLIT_TRAIN, 4, {175, 255, 191, 102, 125, 66, 0, 13}},
        {1, AB_SPLIT_TRAIN, 0, {93, 86, 78, 4, 36, 44, 166, 202}},
        {9999, AB_SPLIT_TRAIN, 3, {65, 150, 146, 196, 187, 112, 83, 0}},
        {0, AB_SPLIT_TEST, 9, {225, 132, 211, 197, 188, 255, 255, 191}},
    };
    ab_data *data = open_data("synthetic", 28, 28);
    for (size_t i = 0; i < AB_COUNT_OF(recorded); i++) {
        const ab_images *images = &data->split[recorded[i].split];
        assert_int_equal(images->label[recorded[i].sample], recorded[i].label);
        assert_memory_equal(images->pixel + (recorded[i].sample * 28 + 14) * 28 + 8, recorded[i].pixel, 8);
    }
    assert_int_equal(data->split[AB_SPLIT_TRAIN].count, 10000);
    assert_int_equal(data->split[AB_SPLIT_TEST].count, 2000);
    assert_string_equal(data->origin, "procedural, seed 1");
    ab_data_close(data);
}

static void synthetic_bytes_do_not_depend_on_threads_but_on_the_seed(void **state) {
    (void)state;
    ab_data *other = NULL;
    omp_set_num_threads(1);
    ab_data *one = open_data("synthetic", 28, 28);
    omp_set_num_threads(5);
    ab_data *five = open_data("synthetic", 28, 28);
    assert_int_equal(ab_data_open_images("synthetic", 28, 28, 1, 2, &other), AB_OK);
    assert_true(data_digest(one) == UINT64_C(0xa6b4932ba848a230));
    assert_true(data_digest(one) == data_digest(five));
    assert_true(data_digest(one) != data_digest(other));
    ab_data_close(one);
    ab_data_close(five);
    ab_data_close(other);
}

static void synthetic_classes_are_balanced(void **state) {
    (void)state;
    ab_data *data = open_data("synthetic", 28, 28);
    int count[10] = {0};
    for (int64_t i = 0; i < 10000; i++) count[data->split[AB_SPLIT_TRAIN].label[i]]++;
    for (int c = 0; c < 10; c++) assert_in_range(count[c], 900, 1100);
    ab_data_close(data);
}

/* Softmax regression by plain gradient steps, one sample at a time. */
enum { FEATURES = 28 * 28 };
typedef struct linear_model {
    float weight[10][FEATURES + 1];
} linear_model;

static int classify(const linear_model *model, const float *image, float *probability) {
    int best = 0;
    float sum = 0, score[10];
    for (int c = 0; c < 10; c++) {
        score[c] = model->weight[c][FEATURES];
        for (int i = 0; i < FEATURES; i++) score[c] += model->weight[c][i] * image[i];
        if (score[c] > score[best]) best = c;
    }
    for (int c = 0; c < 10; c++) sum += probability[c] = expf(score[c] - score[best]);
    for (int c = 0; c < 10; c++) probability[c] /= sum;
    return best;
}

static void learn(linear_model *model, const float *image, int32_t label) {
    float probability[10];
    classify(model, image, probability);
    for (int c = 0; c < 10; c++) {
        float step = 0.002f * ((c == label ? 1.0f : 0.0f) - probability[c]);
        for (int i = 0; i < FEATURES; i++) model->weight[c][i] += step * image[i];
        model->weight[c][FEATURES] += step;
    }
}

static void a_linear_model_learns_much_of_synthetic_but_not_all(void **state) {
    (void)state;
    linear_model *model = calloc(1, sizeof *model);
    float image[FEATURES], probability[10];
    int32_t label;
    int right = 0;
    ab_data *data = open_data("synthetic", 28, 28);
    for (int64_t i = 0; i < 10000; i++) {
        ab_data_fill(data, AB_SPLIT_TRAIN, AB_NORMALIZE_STANDARD, &i, 1, image, &label);
        learn(model, image, label);
    }
    for (int64_t i = 0; i < 2000; i++) {
        ab_data_fill(data, AB_SPLIT_TEST, AB_NORMALIZE_STANDARD, &i, 1, image, &label);
        right += classify(model, image, probability) == label;
    }
    print_message("linear model: %d of 2000 right\n", right);
    assert_in_range(right, 1000, 1600); /* chance is 200 */
    ab_data_close(data);
    free(model);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, open_folder, close_folder)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(plain_idx_files_are_read),
        IN_FOLDER(gzip_and_the_other_spellings_are_read),
        IN_FOLDER(gzip_of_two_members_is_read),
        IN_FOLDER(missing_file_is_named),
        IN_FOLDER(wrong_magic_is_refused),
        IN_FOLDER(every_truncation_is_refused),
        IN_FOLDER(trailing_bytes_are_refused),
        IN_FOLDER(damaged_gzip_is_refused),
        IN_FOLDER(lying_counts_are_refused),
        IN_FOLDER(images_and_labels_must_match),
        IN_FOLDER(label_beyond_the_training_classes_is_refused),
        IN_FOLDER(test_images_must_have_the_training_shape),
        IN_FOLDER(pixels_without_contrast_are_refused),
        IN_FOLDER(folder_in_place_of_a_file_is_refused),
        IN_FOLDER(random_damage_never_crashes),
        cmocka_unit_test(unknown_sources_are_refused),
        cmocka_unit_test(missing_fashion_mnist_offers_the_other_ways),
        IN_FOLDER(fashion_mnist_has_ten_classes_and_no_more),
        IN_FOLDER(images_are_centred_and_padded_with_zeros),
        IN_FOLDER(inputs_that_do_not_fit_name_both_shapes),
        IN_FOLDER(statistics_are_those_of_the_padded_training_set),
        IN_FOLDER(modes_scale_each_pixel_once),
        IN_FOLDER(stated_means_and_borders_are_those_of_torchvision),
        cmocka_unit_test(channels_are_normalised_each_by_its_own_pair),
        cmocka_unit_test(halves_are_the_bits_of_a_cast),
        cmocka_unit_test(batches_do_not_depend_on_threads),
        cmocka_unit_test(images_are_finite_unless_their_spread_is_too_small),
        cmocka_unit_test(other_preprocessing_is_refused),
        cmocka_unit_test(modes_are_found_by_name),
        cmocka_unit_test(file_order_drops_the_rest_of_an_epoch),
        cmocka_unit_test(shuffled_order_is_the_recorded_one),
        cmocka_unit_test(every_epoch_is_a_permutation),
        cmocka_unit_test(steps_may_be_asked_for_in_any_order),
        cmocka_unit_test(shuffles_are_uniform),
        cmocka_unit_test(batch_larger_than_the_data_is_refused),
        cmocka_unit_test(synthetic_samples_are_the_recorded_ones),
        cmocka_unit_test(synthetic_bytes_do_not_depend_on_threads_but_on_the_seed),
        cmocka_unit_test(synthetic_classes_are_balanced),
        cmocka_unit_test(a_linear_model_learns_much_of_synthetic_but_not_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
