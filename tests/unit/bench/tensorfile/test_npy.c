/* The npy reader: every version, byte order and element type of numpy, and headers that lie. */
#include "tests/unit/tensorfile_testing.h"

#include <math.h>

/* magic, version, length, header, and nothing after it */
static bytes npy(int version, const char *header) {
    bytes b = {0};
    put(&b, "\x93NUMPY", 6);
    put_number(&b, (uint64_t)version, 2);
    put_number(&b, strlen(header), version == 1 ? 2 : 4);
    put_text(&b, header);
    return b;
}

static bytes npy_of(const char *descr, bool fortran, const char *shape, const void *data, size_t data_bytes) {
    char header[256];
    snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }   \n", descr,
             fortran ? "True" : "False", shape);
    bytes b = npy(1, header);
    put(&b, data, data_bytes);
    return b;
}

/* Opens, checks shape and dtype as the file spells it, and compares the values with expected[n]. */
static void assert_array(const bytes *b, const char *dtype, const char *shape, const float *expected,
                         int64_t n) {
    ab_tensorfile *file = NULL;
    void *block = NULL;
    char text[AB_TENSORFILE_TEXT];
    float found[16];
    ab_status status = open_exact("dir.d/grad.step3.npy", b, &block, &file);
    if (status != AB_OK) fail_msg("%s", ab_error_message());
    assert_int_equal(file->count, 1);
    assert_string_equal(file->tensor[0].name, "grad.step3");
    assert_string_equal(file->tensor[0].dtype, dtype);
    assert_string_equal(ab_tensor_shape_text(&file->tensor[0], text), shape);
    assert_int_equal(file->tensor[0].count, n);
    assert_int_equal(ab_tensorfile_read(file, &file->tensor[0], found), AB_OK);
    for (int64_t i = 0; i < n; i++) assert_true(found[i] == expected[i]);
    ab_tensorfile_close(file);
    free(block);
}

static void every_version_and_spelling_of_the_header_is_read(void **state) {
    (void)state;
    static const struct {
        int version;
        const char *header;
    } rows[] = {
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }\n"},
        {2, "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }\n"},
        {3, "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }\n"},
        {1, "{'shape':(3,),'fortran_order':False,'descr':'<f4'}\n"},
        {1, "{\"descr\": \"<f4\", 'fortran_order': False, 'shape': (3L,)}\n"},
        {1, " { 'descr' :\n'<f4' , 'fortran_order' : False , 'shape' : ( 3 , ) , }  \n"},
    };
    const float values[3] = {1, -2, 0.5f};
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
        bytes b = npy(rows[i].version, rows[i].header);
        put(&b, values, sizeof values);
        assert_array(&b, "<f4", "[3]", values, 3);
        bytes_free(&b);
    }
}

static void both_byte_orders_give_the_same_values(void **state) {
    (void)state;
    static const float expected[3] = {1, -2.5f, 65504};
    static const struct {
        const char *little, *big;
        int width;
        uint64_t code[3];
    } rows[] = {
        {"<f2", ">f2", 2, {0x3C00, 0xC100, 0x7BFF}},
        {"<f4", ">f4", 4, {0x3F800000, 0xC0200000, 0x477FE000}},
        {"<f8", ">f8", 8, {0x3FF0000000000000, 0xC004000000000000, 0x40EFFC0000000000}},
    };
    for (size_t r = 0; r < AB_COUNT_OF(rows); r++) {
        bytes little = {0}, big = {0};
        for (int i = 0; i < 3; i++) {
            put_number(&little, rows[r].code[i], rows[r].width);
            for (int byte = rows[r].width - 1; byte >= 0; byte--)
                put_number(&big, rows[r].code[i] >> (8 * byte), 1);
        }
        bytes a = npy_of(rows[r].little, false, "(3,)", little.at, little.size);
        bytes b = npy_of(rows[r].big, false, "(3,)", big.at, big.size);
        assert_array(&a, rows[r].little, "[3]", expected, 3);
        assert_array(&b, rows[r].big, "[3]", expected, 3);
        bytes_free(&little);
        bytes_free(&big);
        bytes_free(&a);
        bytes_free(&b);
    }
}

static void scalars_empty_arrays_and_fortran_order_are_read(void **state) {
    (void)state;
    const float values[6] = {0, 3, 1, 4, 2, 5};
    bytes scalar = npy_of("<f4", false, "()", values, 4);
    assert_array(&scalar, "<f4", "[]", values, 1);
    bytes empty = npy_of("<f4", false, "(0, 7)", NULL, 0);
    assert_array(&empty, "<f4", "[0, 7]", NULL, 0);
    bytes fortran = npy_of("<f4", true, "(2, 3)", values, 24);
    assert_array(&fortran, "<f4", "[2, 3]", values, 6); /* in file order */
    ab_tensorfile *file = NULL;
    void *block = NULL;
    float out[6];
    ab_shape shape = {2, {2, 3}};
    assert_int_equal(open_exact("w.npy", &fortran, &block, &file), AB_OK);
    assert_true(file->tensor[0].fortran);
    assert_int_equal(ab_tensorfile_read_as(file, "w", &shape, out), AB_INPUT);
    assert_non_null(strstr(ab_error_message(), "row-major"));
    ab_tensorfile_close(file);
    free(block);
    bytes_free(&scalar);
    bytes_free(&empty);
    bytes_free(&fortran);
}

static void files_that_numpy_wrote_are_read(void **state) {
    (void)state; /* made with numpy: tests/fuzz/make_seeds.py */
    static const char *const names[] = {"v1", "v2", "v3", "big_endian", "big_endian_f8", "fortran_f2"};
    for (size_t i = 0; i < AB_COUNT_OF(names); i++) {
        char path[256];
        float sum = 0, out[6];
        ab_tensorfile *file = NULL;
        snprintf(path, sizeof path, AB_CORPUS_DIR "/npy/%s.npy", names[i]);
        assert_int_equal(ab_tensorfile_open(path, &file), AB_OK);
        assert_string_equal(file->tensor[0].name, names[i]);
        assert_int_equal(ab_tensorfile_read(file, &file->tensor[0], out), AB_OK);
        assert_true(out[0] == -2.5f && out[5] == 2.5f);
        for (int k = 0; k < 6; k++) sum += out[k];
        assert_true(sum == 0);
        ab_tensorfile_close(file);
    }
}

static void types_that_are_no_floats_are_listed_and_not_read(void **state) {
    (void)state;
    static const struct {
        const char *descr, *element;
        size_t item_bytes;
    } rows[] = {{"<i8", "int64", 8},        {"|b1", "bool", 1},        {"|u1", "uint8", 1},
                {"<U3", "other", 12},       {"|S5", "other", 5},       {"<M8[ns]", "other", 8},
                {"<c8", "complex64", 8},    {"|V2", "other", 2},       {"|S0", "other", 0},
                {"<f16", "longdouble", 16}, {">c16", "complex128", 16}};
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
        uint8_t zeros[64] = {0};
        ab_tensorfile *file = NULL;
        void *block = NULL;
        float out[2];
        bytes b = npy_of(rows[i].descr, false, "(2,)", zeros, 2 * rows[i].item_bytes);
        assert_int_equal(open_exact("x.npy", &b, &block, &file), AB_OK);
        assert_string_equal(file->tensor[0].element->name, rows[i].element);
        assert_int_equal(ab_tensorfile_read(file, &file->tensor[0], out), AB_INPUT);
        assert_non_null(strstr(ab_error_message(), rows[i].descr));
        ab_tensorfile_close(file);
        free(block);
        bytes_free(&b);
    }
}

static void headers_that_lie_are_refused_with_the_reason(void **state) {
    (void)state;
#define HEADER(descr, order, shape) "{'descr': " descr ", 'fortran_order': " order ", 'shape': " shape ", }\n"
    static const struct {
        const char *header;
        size_t data_bytes;
        const char *reason;
    } rows[] = {
        {HEADER("'<f4'", "False", "(3,)"), 11, "expected 12 bytes of data for <f4 of shape [3], found 11"},
        {HEADER("'<f4'", "False", "(3,)"), 13, "found 13"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", 12, "its end, found byte 0x7d"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }\n ", 12, "found byte 0x20"},
        {HEADER("'<f4'", "False", "(4294967296, 4294967296)"), 8, "does not fit"},
        {HEADER("'<f4'", "False", "(9223372036854775807,)"), 8, "does not fit"},
        {HEADER("'<f4'", "False", "(9223372036854775808,)"), 8, "below 2^63"},
        {HEADER("'<f4'", "False", "(4611686018427387904, 4, 0)"), 0, "does not fit"},
        {HEADER("'|S1073741824'", "False", "(9223372036,)"), 0, "does not fit"},
        {HEADER("'|S1073741825'", "False", "(1,)"), 0, "expected a dtype"},
        {HEADER("'|S99999999999'", "False", "(1,)"), 0, "expected a dtype"},
        {HEADER("'<f4'", "False", "(-1,)"), 4, "a dimension of 0 or more, found '-'"},
        {HEADER("'<f4'", "False", "(1.5,)"), 4, "',' or ')', found '.'"},
        {HEADER("'<f4'", "False", "3"), 12, "a shape '(', found '3'"},
        {HEADER("'<f4'", "False", "(,)"), 4, "a dimension"},
        {HEADER("'<f4'", "Maybe", "(1,)"), 4, "True or False"},
        {HEADER("'|O'", "False", "(1,)"), 8, "object array"},
        {HEADER("'O8'", "False", "(1,)"), 8, "object array"},
        {HEADER("[('x', '<f4')]", "False", "(1,)"), 4, "structured"},
        {HEADER("'<f3'", "False", "(1,)"), 3, "found '<f3'"},
        {HEADER("'<f'", "False", "(1,)"), 4, "found '<f'"},
        {HEADER("'<f4x'", "False", "(1,)"), 4, "found '<f4x'"},
        {HEADER("'<f-4'", "False", "(1,)"), 4, "found '<f-4'"},
        {HEADER("'bfloat16'", "False", "(1,)"), 2, "found 'bfloat16'"},
        {HEADER("''", "False", "(1,)"), 4, "found ''"},
        {HEADER("'<'", "False", "(1,)"), 4, "found '<'"},
        {HEADER("'<f4", "False", "(1,)"), 4, "a dtype such as"},
        {HEADER("'<f4444444444444444444'", "False", "(1,)"), 4, "a dtype such as"},
        {HEADER("None", "False", "(1,)"), 4, "a dtype such as '<f4', found 'N'"},
        {"{'descr': '<f4', 'fortran_order': False, }", 4, "expected 'shape', found none"},
        {"{'descr': '<f4', 'shape': (1,), }", 4, "expected 'fortran_order', found none"},
        {"{'fortran_order': False, 'shape': (1,), }", 4, "expected 'descr', found none"},
        {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", 4, "'descr' once"},
        {"{'shape': (1,), 'shape': (1,), 'descr': '<f4', 'fortran_order': False}", 4, "'shape' once"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': 1}", 4, "found 'x'"},
        {"{'descr': '<f4' 'fortran_order': False, 'shape': (1,)}", 4, "',' or '}'"},
        {"{'descr' '<f4', 'fortran_order': False, 'shape': (1,)}", 4, "':'"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x", 4, "its end, found 'x'"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)", 4, "found its end"},
        {"__import__('os').system('true')", 4, "expected '{', found '_'"},
        {"{__import__('os'): 1}", 4, "found '_'"},
        {"", 0, "expected '{', found its end"},
        {"{'descr\xFF': 1}", 0, "found \"descr...\""},
    };
#undef HEADER
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
        bytes b = npy(1, rows[i].header);
        put_fill(&b, 0, rows[i].data_bytes);
        assert_refused("x.npy", &b, rows[i].reason);
        bytes_free(&b);
    }
}

static void too_many_dims_are_refused(void **state) {
    (void)state;
    for (int dims = AB_TENSORFILE_MAX_DIMS; dims <= AB_TENSORFILE_MAX_DIMS + 1; dims++) {
        bytes header = {0};
        put_text(&header, "{'descr': '<f4', 'fortran_order': False, 'shape': (");
        for (int i = 0; i < dims; i++) put_text(&header, "1,");
        put(&header, ")}\n", 4);
        bytes b = npy(1, (const char *)header.at);
        put_number(&b, 0, 4);
        if (dims == AB_TENSORFILE_MAX_DIMS)
            assert_int_equal(try_all("x.npy", &b), AB_OK);
        else
            assert_refused("x.npy", &b, "at most 64 dims");
        bytes_free(&header);
        bytes_free(&b);
    }
}

static void nesting_of_any_depth_is_refused_without_recursion(void **state) {
    (void)state;
    static const char *const starts[] = {"{'descr': ", "{'descr': '<f4', 'shape': (", ""};
    for (size_t i = 0; i < AB_COUNT_OF(starts); i++) {
        bytes header = {0};
        put_text(&header, starts[i]);
        put_fill(&header, '(', 100000);
        put(&header, "", 1);
        bytes b = npy(2, (const char *)header.at);
        assert_refused("x.npy", &b, "expected");
        bytes_free(&header);
        bytes_free(&b);
    }
}

static void prefixes_that_lie_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *start;
        size_t n;
        const char *reason;
    } rows[] = {
        {"", 0, "something else"},
        {"\x93NUMP", 5, "something else"},
        {"\x93NUMPY", 6, "something else"},
        {"\x93NUMPY\x04\0\0\0\0\0", 12, "found 4.0"},
        {"\x93NUMPY\0\0\0\0\0\0", 12, "found 0.0"},
        {"\x93NUMPY\1\1\0\0\0\0", 12, "found 1.1"},
        {"\x93NUMPY\2\0\0\0", 10, "expected 12 bytes, found 10"},
        {"\x93NUMPY\1\0\xFF\xFF{}", 12, "expected 65545 bytes, found a file of 12"},
        {"\x93NUMPY\2\0\xFF\xFF\xFF\xFF", 12, "at most 1048576 bytes, found 4294967307"},
        {"\x93NUMPY\2\0\xF4\xFF\x0F\0", 12, "expected 1048576 bytes, found a file of 12"},
        {"\x93NUMPY\2\0\xF5\xFF\x0F\0", 12, "at most 1048576"},
    };
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
        bytes b = {0};
        put(&b, rows[i].start, rows[i].n);
        assert_refused("x.npy", &b, rows[i].reason);
        bytes_free(&b);
    }
}

static void damaged_files_never_crash(void **state) {
    (void)state;
    const double values[2] = {1, 2};
    bytes b = npy_of("<f8", true, "(1, 2)", values, sizeof values);
    assert_every_truncation_refused("x.npy", &b);
    assert_survives_byte_changes("x.npy", &b);
    bytes_free(&b);
}

static void a_file_name_that_is_not_utf8_gives_a_name_that_is(void **state) {
    (void)state;
    const float value = 1;
    bytes b = npy_of("<f4", false, "()", &value, 4);
    ab_tensorfile *file = NULL;
    assert_int_equal(ab_tensorfile_open_memory("/tmp/\xFFg\xC3.npy", b.at, (int64_t)b.size, &file), AB_OK);
    assert_string_equal(file->tensor[0].name, "?g?");
    ab_tensorfile_close(file);
    bytes_free(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_version_and_spelling_of_the_header_is_read),
        cmocka_unit_test(both_byte_orders_give_the_same_values),
        cmocka_unit_test(scalars_empty_arrays_and_fortran_order_are_read),
        cmocka_unit_test(files_that_numpy_wrote_are_read),
        cmocka_unit_test(types_that_are_no_floats_are_listed_and_not_read),
        cmocka_unit_test(headers_that_lie_are_refused_with_the_reason),
        cmocka_unit_test(too_many_dims_are_refused),
        cmocka_unit_test(nesting_of_any_depth_is_refused_without_recursion),
        cmocka_unit_test(prefixes_that_lie_are_refused),
        cmocka_unit_test(damaged_files_never_crash),
        cmocka_unit_test(a_file_name_that_is_not_utf8_gives_a_name_that_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
