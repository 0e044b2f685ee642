/* Data from files that the user names: text as bytes and as words, one directory a class, and arrays. The
 * files are written here. */
#define _POSIX_C_SOURCE 200809L
#include "bench/data/data.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <zlib.h>

enum { PATH_BYTES = 256 };
static char root[PATH_BYTES];

static int make_root(void **state) {
    (void)state;
    snprintf(root, sizeof root, "/tmp/ampbench-data-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state) {
    (void)state;
    char command[PATH_BYTES + 16];
    snprintf(command, sizeof command, "rm -r '%s'", root);
    return system(command); /* NOLINT(cert-env33-c): a path made here */
}

static const char *in_root(const char *name) {
    static char path[4][PATH_BYTES * 2];
    static int next;
    next = (next + 1) % 4;
    snprintf(path[next], sizeof path[next], "%s/%s", root, name);
    return path[next];
}

static void write_file(const char *name, const void *bytes, size_t size) {
    FILE *file = fopen(in_root(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    fclose(file);
}

static void write_text(const char *name, const char *text) { write_file(name, text, strlen(text)); }
static void make_folder(const char *name) { assert_int_equal(mkdir(in_root(name), 0700), 0); }

static ab_status open_as(const char *source, const char *name, const ab_data_shape *shape, ab_data **data) {
    char spec[PATH_BYTES * 3];
    snprintf(spec, sizeof spec, "%s:%s", source, in_root(name));
    *data = NULL;
    return ab_data_open(spec, shape, 1, data);
}

static ab_data *opened(const char *source, const char *name, const ab_data_shape *shape) {
    ab_data *data = NULL;
    if (open_as(source, name, shape, &data) != AB_OK) fail_msg("%s", ab_error_message());
    return data;
}

static void refused(const char *source, const char *name, const ab_data_shape *shape, ab_status status,
                    const char *part) {
    ab_data *data = NULL;
    assert_int_equal(open_as(source, name, shape, &data), status);
    if (!strstr(ab_error_message(), part)) fail_msg("'%s' is not in: %s", part, ab_error_message());
}

static ab_data_shape text_shape(int64_t length, int64_t vocabulary, ab_target_kind targets) {
    ab_data_shape shape = {
        .input = AB_INPUT_TOKENS, .x = {1, {length}}, .vocabulary = vocabulary, .targets = targets};
    if (targets == AB_TARGETS_TOKENS) shape.y = shape.x;
    return shape;
}

static void sample(const ab_data *data, ab_split split, int64_t index, void *x, void *y) {
    ab_data_fill(data, split, AB_NORMALIZE_UNIT, &index, 1, x, y);
}

/* ---- text ------------------------------------------------------------------------------------ */

static void bytes_are_the_files_of_a_directory_in_order(void **state) {
    (void)state;
    make_folder("text");
    write_text("text/b.txt", "0123456789 abcdefghi");
    write_text("text/a.txt", "The quick brown fox jumps over the lazy dog and runs away from all of it\n");
    write_text("text/.hidden", "no");
    ab_data_shape shape = text_shape(4, 256, AB_TARGETS_TOKENS);
    ab_data *data = opened("bytes", "text", &shape);
    int32_t x[4], y[4];
    sample(data, AB_SPLIT_TRAIN, 1, x, y);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(x[i], "The quick"[4 + i]);
        assert_int_equal(y[i], "The quick"[5 + i]);
    }
    assert_int_equal(data->split[AB_SPLIT_TRAIN].count,
                     (83 - 1) / 4); /* 93 bytes: the first space behind 81 is at 83 */
    sample(data, AB_SPLIT_TEST, 0, x, y);
    assert_memory_equal(((char[]){(char)x[0], (char)x[1], (char)x[2], (char)x[3]}), " abc", 4);
    assert_int_equal(data->classes, 0);
    ab_data_close(data);
}

/* Nothing to cut at: exactly nine tenths, and a test split that is not empty. */
static void text_without_white_space_is_cut_at_nine_tenths(void **state) {
    (void)state;
    const ab_data_shape shape = text_shape(4, 256, AB_TARGETS_TOKENS);
    static char bases[1001];
    for (int i = 0; i < 1000; i++) bases[i] = "ACGT"[i % 4];
    write_text("genome", bases);
    ab_data *data = opened("bytes", "genome", &shape);
    assert_int_equal(data->split[AB_SPLIT_TRAIN].count, (900 - 1) / 4);
    assert_int_equal(data->split[AB_SPLIT_TEST].count, (100 - 1) / 4);
    ab_data_close(data);
    bases[970] = '\n'; /* a white space that would leave a test of 3 % */
    write_text("genome", bases);
    data = opened("bytes", "genome", &shape);
    assert_int_equal(data->split[AB_SPLIT_TEST].count, (100 - 1) / 4);
    ab_data_close(data);
}

static void words_are_numbered_by_how_often_they_occur(void **state) {
    (void)state;
    write_text("words.txt", "b a, c a! b a d e f g h i j k l m n o p q a a a\nb zz a b");
    ab_data_shape shape = text_shape(3, 5, AB_TARGETS_TOKENS);
    ab_data *data = opened("words", "words.txt", &shape);
    /* a: 2, b: 3, the first of those that occur once (the comma): 4, others: 1 */
    static const int32_t expected[] = {3, 2, 4, 1, 2, 1, 3, 2};
    int32_t x[3], y[3];
    for (int i = 0; i < 2; i++) {
        sample(data, AB_SPLIT_TRAIN, i, x, y);
        assert_memory_equal(x, expected + 3 * i, sizeof x);
        for (int k = 0; k < 3 && 3 * i + 1 + k < 8; k++) assert_int_equal(y[k], expected[3 * i + 1 + k]);
    }
    ab_data_close(data);
    shape.x.dim[0] = shape.y.dim[0] = 8;
    refused("words", "words.txt", &shape, AB_INPUT,
            "expected at least 9 tokens in its last tenth, the test split");
    shape.vocabulary = 2;
    refused("words", "words.txt", &shape, AB_CONFIG,
            "expected a net with a vocabulary of 3 or more, found 2");
}

static void directories_are_classes_and_files_are_samples(void **state) {
    (void)state;
    char name[64], text[64];
    make_folder("reviews");
    make_folder("reviews/neg");
    make_folder("reviews/pos");
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "reviews/%s/%02d.txt", i % 2 ? "pos" : "neg", i);
        snprintf(text, sizeof text, "%c%02d", i % 2 ? '+' : '-', i);
        write_text(name, text);
    }
    ab_data_shape shape = text_shape(5, 128, AB_TARGETS_CLASSES);
    ab_data *data = opened("bytes", "reviews", &shape);
    int32_t x[5], label;
    assert_int_equal(data->classes, 2);
    assert_int_equal(data->split[AB_SPLIT_TRAIN].count, 18);
    assert_int_equal(data->split[AB_SPLIT_TEST].count, 2);
    for (int i = 0; i < 18; i++) {
        sample(data, AB_SPLIT_TRAIN, i, x, &label);
        assert_int_equal(label, i >= 9);
        assert_int_equal(x[0], label ? '+' : '-');
        assert_int_equal(x[3], 0); /* short samples end in zeros */
    }
    ab_data_close(data);
    shape.targets = AB_TARGETS_TOKENS;
    shape.y = shape.x;
    refused("bytes", "reviews", &shape, AB_INPUT, "expected text, found no files");
    shape.targets = AB_TARGETS_CLASSES;
    shape.y.ndim = 0;
    refused("bytes", "text", &shape, AB_INPUT, "expected 2 to 256 directories, one for each class, found 0");
}

static void text_that_does_not_fit_is_refused(void **state) {
    (void)state;
    ab_data_shape shape = text_shape(4, 100, AB_TARGETS_TOKENS);
    refused("bytes", "text", &shape, AB_INPUT, "expected bytes below the net's vocabulary of 100, found 104");
    refused("bytes", "missing", &shape, AB_INPUT, "cannot open");
    write_text("empty.txt", "");
    refused("bytes", "empty.txt", &shape, AB_INPUT, "expected text, found no bytes");
}

/* ---- arrays ---------------------------------------------------------------------------------- */

/* NumPy's format 1.0; shape as Python writes it. */
static void write_npy(const char *name, const char *type, const char *shape, const void *data, size_t bytes) {
    char file[8192], header[128];
    int length = snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }",
                          type, shape);
    while ((10 + length + 1) % 64) header[length++] = ' ';
    header[length++] = '\n';
    memcpy(file, "\x93NUMPY\x01\x00", 8);
    file[8] = (char)(length & 255);
    file[9] = (char)(length >> 8);
    memcpy(file + 10, header, (size_t)length);
    memcpy(file + 10 + length, data, bytes);
    write_file(name, file, (size_t)(10 + length) + bytes);
}

static void arrays_are_samples_and_the_last_tenth_is_the_test(void **state) {
    (void)state;
    double x[20 * 3];
    int64_t y[20];
    for (int i = 0; i < 60; i++) x[i] = 0.25 * i;
    for (int i = 0; i < 20; i++) y[i] = i % 4;
    make_folder("table");
    write_npy("table/x.npy", "<f8", "20, 3", x, sizeof x);
    write_npy("table/y.npy", "<i8", "20,", y, sizeof y);
    ab_data_shape shape = {.input = AB_INPUT_VALUES, .x = {1, {3}}};
    ab_data *data = opened("arrays", "table", &shape);
    float numbers[3];
    int32_t label;
    assert_int_equal(data->classes, 4);
    assert_int_equal(data->split[AB_SPLIT_TRAIN].count, 18);
    assert_int_equal(data->split[AB_SPLIT_TEST].count, 2);
    for (int i = 0; i < 20; i++) {
        sample(data, i < 18 ? AB_SPLIT_TRAIN : AB_SPLIT_TEST, i < 18 ? i : i - 18, numbers, &label);
        for (int k = 0; k < 3; k++) assert_true((double)numbers[k] == 0.25 * (3 * i + k));
        assert_int_equal(label, i % 4);
    }
    ab_data_close(data);
    shape.targets = AB_TARGETS_ONE_HOT;
    shape.y = (ab_shape){1, {5}};
    data = opened("arrays", "table", &shape);
    float hot[5];
    sample(data, AB_SPLIT_TRAIN, 6, numbers, hot);
    for (int k = 0; k < 5; k++) assert_true(hot[k] == (k == 2 ? 1.0f : 0.0f));
    ab_data_close(data);
    shape.y.dim[0] = 3;
    refused("arrays", "table", &shape, AB_CONFIG,
            "its targets are class ids (1 a sample), the net's are one-hot classes [3]");
    shape.targets = AB_TARGETS_VALUES;
    shape.y.dim[0] = 1;
    data = opened("arrays", "table", &shape); /* integers as numbers */
    sample(data, AB_SPLIT_TRAIN, 7, numbers, hot);
    assert_true(hot[0] == 3.0f);
    ab_data_close(data);
    shape.x.dim[0] = 4;
    refused("arrays", "table", &shape, AB_CONFIG, "x is [20, 3], the net's input is [samples] + [4]");
}

static void test_arrays_and_images_are_taken_as_they_are(void **state) {
    (void)state;
    float x[4 * 6], x_test[2 * 6], y[4 * 2] = {0}, y_test[2 * 2] = {0};
    for (int i = 0; i < 24; i++) x[i] = (float)i;
    for (int i = 0; i < 12; i++) x_test[i] = (float)-i;
    y_test[3] = 5;
    make_folder("pictures");
    write_npy("pictures/x.npy", "<f4", "4, 3, 2", x, sizeof x);
    write_npy("pictures/y.npy", "<f4", "4, 2", y, sizeof y);
    write_npy("pictures/x_test.npy", "<f4", "2, 3, 2", x_test, sizeof x_test);
    write_npy("pictures/y_test.npy", "<f4", "2, 2", y_test, sizeof y_test);
    ab_data_shape shape = {
        .input = AB_INPUT_IMAGES, .x = {3, {3, 2, 1}}, .targets = AB_TARGETS_VALUES, .y = {1, {2}}};
    ab_data *data = opened("arrays", "pictures", &shape);
    float image[6], value[2];
    assert_int_equal(data->split[AB_SPLIT_TRAIN].count, 4);
    sample(data, AB_SPLIT_TEST, 1, image, value);
    assert_true(image[5] == -11.0f && value[0] == 0.0f && value[1] == 5.0f);
    ab_data_close(data);
    write_npy("pictures/y_test.npy", "<f4", "1, 4", y_test, sizeof y_test);
    refused("arrays", "pictures", &shape, AB_INPUT, "x_test has 2 samples, y_test has 1");
}

static void class_ids_and_kinds_of_targets_are_checked(void **state) {
    (void)state;
    const float x[4 * 2] = {0}, numbers[2] = {0};
    const int32_t y[4] = {0, 2, -7, 1}, pairs[4] = {0};
    const ab_data_shape shape = {
        .input = AB_INPUT_VALUES, .x = {1, {2}}, .targets = AB_TARGETS_ONE_HOT, .y = {1, {3}}};
    ab_data_shape values = shape;
    values.targets = AB_TARGETS_CLASSES;
    values.y = (ab_shape){0};
    make_folder("targets");
    write_npy("targets/x.npy", "<f4", "4, 2", x, sizeof x);
    write_npy("targets/y.npy", "<i4", "4,", y, sizeof y);
    refused("arrays", "targets", &shape, AB_INPUT, "expected class ids of 0 or more, found -7");
    write_npy("targets/x_test.npy", "<f4", "2, 2", x, 4 * sizeof *x);
    write_npy("targets/y_test.npy", "<f4", "2,", numbers, sizeof numbers);
    refused("arrays", "targets", &values, AB_INPUT, "y_test and y differ");
    write_npy("targets/y_test.npy", "<i4", "2, 2", pairs, sizeof pairs);
    refused("arrays", "targets", &values, AB_INPUT, "y_test and y differ");
}

static void token_arrays_are_checked_against_the_vocabulary(void **state) {
    (void)state;
    int16_t x[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 300};
    uint8_t y[4] = {0, 1, 1, 0};
    make_folder("ids");
    write_npy("ids/x.npy", "<i2", "4, 3", x, sizeof x);
    write_npy("ids/y.npy", "|u1", "4,", y, sizeof y);
    ab_data_shape shape = text_shape(3, 301, AB_TARGETS_CLASSES);
    ab_data *data = opened("arrays", "ids", &shape);
    int32_t token[3], label;
    sample(data, AB_SPLIT_TEST, 0, token, &label);
    assert_int_equal(token[2], 300);
    assert_int_equal(label, 0);
    ab_data_close(data);
    shape.vocabulary = 300;
    refused("arrays", "ids", &shape, AB_INPUT,
            "expected token ids below the net's vocabulary of 300, found 300");
    refused("arrays", "missing", &shape, AB_INPUT, "missing");
}

static void put(FILE *file, uint64_t number, int width) {
    for (int i = 0; i < width; i++) fputc((int)(number >> 8 * i & 255), file);
}

/* The files "ids/x.npy" and "ids/y.npy" as stored members (PKWARE APPNOTE 4.3); one bit of x's last byte is
 * turned over if `change`. */
static void write_npz(const char *name, bool change) {
    static const char *const members[2] = {"x.npy", "y.npy"};
    unsigned long begin[2], crc[2], bytes[2];
    FILE *zip = fopen(in_root(name), "wb");
    for (int i = 0; i < 2; i++) {
        unsigned char content[512];
        char path[16];
        snprintf(path, sizeof path, "ids/%s", members[i]);
        FILE *file = fopen(in_root(path), "rb");
        bytes[i] = fread(content, 1, sizeof content, file);
        fclose(file);
        crc[i] = crc32(0, content, (uInt)bytes[i]);
        if (change && i == 0) content[bytes[i] - 1] ^= 1;
        begin[i] = (unsigned long)ftell(zip);
        put(zip, 0x04034b50, 4);
        put(zip, 20, 8);
        put(zip, 0, 2);
        put(zip, crc[i], 4);
        put(zip, bytes[i], 4);
        put(zip, bytes[i], 4);
        put(zip, 5, 4);
        fputs(members[i], zip);
        fwrite(content, 1, bytes[i], zip);
    }
    const unsigned long directory = (unsigned long)ftell(zip);
    for (int i = 0; i < 2; i++) {
        put(zip, 0x02014b50, 4);
        put(zip, 20, 4);
        put(zip, 0, 8);
        put(zip, crc[i], 4);
        put(zip, bytes[i], 4);
        put(zip, bytes[i], 4);
        put(zip, 5, 6);
        put(zip, 0, 8);
        put(zip, begin[i], 4);
        fputs(members[i], zip);
    }
    put(zip, 0x06054b50, 4);
    put(zip, 0, 4);
    put(zip, 2, 2);
    put(zip, 2, 2);
    put(zip, (unsigned long)ftell(zip) - 12 - directory, 4);
    put(zip, directory, 4);
    put(zip, 0, 2);
    fclose(zip);
}

static void a_changed_byte_of_an_archive_is_refused(void **state) {
    (void)state;
    ab_data_shape shape = text_shape(3, 301, AB_TARGETS_CLASSES);
    write_npz("ids.npz", false);
    ab_data_close(opened("arrays", "ids.npz", &shape));
    write_npz("changed.npz", true);
    refused("arrays", "changed.npz", &shape, AB_INPUT,
            "changed.npz: zip: member \"x.npy\": expected checksum");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_the_files_of_a_directory_in_order),
        cmocka_unit_test(text_without_white_space_is_cut_at_nine_tenths),
        cmocka_unit_test(words_are_numbered_by_how_often_they_occur),
        cmocka_unit_test(directories_are_classes_and_files_are_samples),
        cmocka_unit_test(text_that_does_not_fit_is_refused),
        cmocka_unit_test(arrays_are_samples_and_the_last_tenth_is_the_test),
        cmocka_unit_test(test_arrays_and_images_are_taken_as_they_are),
        cmocka_unit_test(class_ids_and_kinds_of_targets_are_checked),
        cmocka_unit_test(token_arrays_are_checked_against_the_vocabulary),
        cmocka_unit_test(a_changed_byte_of_an_archive_is_refused),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
