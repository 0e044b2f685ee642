/* The safetensors writer and reader: exact round trips, files of the reference package, and every way a
 * header can lie. */
#define _XOPEN_SOURCE 700

#include "bench/tensorfile/safetensors.h"
#include "kernels/core/parallel.h"

#include "tests/unit/tensorfile_testing.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];

static const char *in_folder(const char *name) {
    static char path[384];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int files_in_folder(void) {
    int count = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

static int make_folder(void **state) {
    (void)state;
    strcpy(folder, "/tmp/ampbench_safetensors_XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    DIR *dir = opendir(folder);
    for (struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir))
        unlink(in_folder(entry->d_name));
    if (dir) closedir(dir);
    return rmdir(folder);
}

/* header length, header, `data_bytes` zero bytes */
static bytes file_of(const char *header, size_t data_bytes) {
    bytes b = {0};
    put_number(&b, strlen(header), 8);
    put_text(&b, header);
    put_fill(&b, 0, data_bytes);
    return b;
}

/* ---- writing --------------------------------------------------------------------------------- */

static float from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void written_tensors_read_back_bit_for_bit(void **state) {
    (void)state;
    float matrix[6] = {-0.0f, 1e-45f, 3.4e38f, INFINITY, 0, -1}, scalar = 2.5f, back[6];
    matrix[4] = from_bits(0x7FC01234); /* a nan with a payload */
    const ab_safetensor_item items[] = {{"conv1.weight", {2, {2, 3}}, matrix, NULL},
                                        {"a \"b\"\\\n\x01 \xC3\xA9", {0, {0}}, &scalar, NULL}};
    const char *metadata[] = {"step", "3", "quote\"", "\t", NULL};
    const char *path = in_folder("a.safetensors");
    assert_int_equal(ab_safetensors_write(path, items, 2, metadata), AB_OK);
    ab_tensorfile *file = NULL;
    assert_int_equal(ab_safetensors_open(path, &file), AB_OK);
    assert_int_equal(file->count, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ab_tensorfile_read_as(file, items[i].name, &items[i].shape, back), AB_OK);
        assert_memory_equal(back, items[i].data, (size_t)file->tensor[i].bytes);
        assert_int_equal(file->tensor[i].offset % 4, 0);
    }
    ab_tensorfile_close(file);
}

/* Values of a half format come back as they were, others rounded to it; each in its own dtype. */
static void halves_are_written_as_halves(void **state) {
    (void)state;
    const float exact[3] = {1.5f, -0x1p-24f, 65504}, inexact[2] = {1 + 0x1p-12f, -3.3895314e38f};
    const ab_safetensor_item items[] = {{"a", {1, {3}}, exact, &ab_format_fp16},
                                        {"b", {1, {2}}, inexact, &ab_format_bf16},
                                        {"c", {1, {2}}, inexact, &ab_format_fp32}};
    const char *path = in_folder("halves.safetensors");
    float back[3];
    ab_tensorfile *file = NULL;
    assert_int_equal(ab_safetensors_write(path, items, 3, NULL), AB_OK);
    assert_int_equal(ab_safetensors_open(path, &file), AB_OK);
    assert_ptr_equal(file->tensor[0].element->format, &ab_format_fp16);
    assert_ptr_equal(file->tensor[1].element->format, &ab_format_bf16);
    assert_int_equal(file->tensor[0].bytes, 6);
    assert_int_equal(ab_tensorfile_read_as(file, "a", &items[0].shape, back), AB_OK);
    assert_memory_equal(back, exact, sizeof exact);
    assert_int_equal(ab_tensorfile_read_as(file, "b", &items[1].shape, back), AB_OK);
    assert_true(back[0] == 1 && back[1] == -3.3895314e38f);
    assert_int_equal(ab_tensorfile_read_as(file, "c", &items[2].shape, back), AB_OK);
    assert_memory_equal(back, inexact, sizeof inexact);
    ab_tensorfile_close(file);
}

static void written_bytes_are_the_documented_layout(void **state) {
    (void)state;
    const float values[2] = {1, -2};
    const ab_safetensor_item item = {"w", {1, {2}}, values, NULL};
    const char *path = in_folder("layout.safetensors");
    assert_int_equal(ab_safetensors_write(path, &item, 1, NULL), AB_OK);
    bytes expected = {0};
    const char *header = "{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}";
    put_number(&expected, 56, 8);
    put_text(&expected, header);
    put_fill(&expected, ' ', 56 - strlen(header));
    put_number(&expected, 0x3F800000, 4);
    put_number(&expected, 0xC0000000, 4);
    FILE *in = fopen(path, "rb");
    assert_non_null(in);
    uint8_t found[128];
    assert_int_equal(fread(found, 1, sizeof found, in), expected.size);
    assert_memory_equal(found, expected.at, expected.size);
    fclose(in);
    bytes_free(&expected);
}

static void a_failed_write_leaves_the_old_file_and_nothing_else(void **state) {
    (void)state;
    const float value = 1, other = 2;
    const ab_safetensor_item old = {"w", {0, {0}}, &value, NULL},
                             twins[] = {{"w", {0, {0}}, &other, NULL}, {"w", {0, {0}}, &other, NULL}};
    const char *path = in_folder("old.safetensors");
    assert_int_equal(ab_safetensors_write(path, &old, 1, NULL), AB_OK);
    int before = files_in_folder();
    assert_int_equal(ab_safetensors_write(path, twins, 2, NULL), AB_INTERNAL);
    float back = 0;
    ab_tensorfile *file = NULL;
    assert_int_equal(ab_safetensors_open(path, &file), AB_OK);
    assert_int_equal(ab_tensorfile_read_as(file, "w", &old.shape, &back), AB_OK);
    assert_true(back == value);
    ab_tensorfile_close(file);
    assert_int_equal(files_in_folder(), before);
}

static void a_second_write_replaces_the_first(void **state) {
    (void)state;
    const float first[3] = {1, 2, 3}, second = 9;
    const ab_safetensor_item a = {"w", {1, {3}}, first, NULL}, b = {"v", {0, {0}}, &second, NULL};
    const char *path = in_folder("twice.safetensors");
    assert_int_equal(ab_safetensors_write(path, &a, 1, NULL), AB_OK);
    int before = files_in_folder();
    assert_int_equal(ab_safetensors_write(path, &b, 1, NULL), AB_OK);
    assert_int_equal(files_in_folder(), before);
    ab_tensorfile *file = NULL;
    assert_int_equal(ab_safetensors_open(path, &file), AB_OK);
    assert_int_equal(file->count, 1);
    assert_string_equal(file->tensor[0].name, "v");
    ab_tensorfile_close(file);
}

static void a_place_that_cannot_be_written_is_named(void **state) {
    (void)state;
    const float value = 1;
    const ab_safetensor_item item = {"w", {0, {0}}, &value, NULL};
    const char *places[] = {"/dev/null", folder, "/nonexistent/x.safetensors"};
    for (size_t i = 0; i < AB_COUNT_OF(places); i++) {
        assert_int_equal(ab_safetensors_write(places[i], &item, 1, NULL), AB_OUTPUT);
        assert_non_null(strstr(ab_error_message(), places[i]));
    }
    struct stat info;
    assert_int_equal(stat("/dev/null", &info), 0);
    assert_true(S_ISCHR(info.st_mode));
}

/* ---- reading what others wrote --------------------------------------------------------------- */

static void assert_values(const ab_tensorfile *file, const char *name, const float *expected, int64_t n) {
    const ab_tensor_entry *entry = NULL;
    float found[8];
    assert_int_equal(ab_tensorfile_find(file, name, &entry), AB_OK);
    assert_int_equal(entry->count, n);
    assert_int_equal(ab_tensorfile_read(file, entry, found), AB_OK);
    for (int64_t i = 0; i < n; i++)
        if (!(isnan(expected[i]) ? isnan(found[i]) : found[i] == expected[i]))
            fail_msg("%s[%d]: expected %a, found %a", name, (int)i, (double)expected[i], (double)found[i]);
}

static void every_dtype_of_the_reference_package_is_read_or_listed(void **state) {
    (void)state; /* made with the Python package: tests/fuzz/make_seeds.py */
    ab_tensorfile *file = NULL;
    assert_int_equal(ab_tensorfile_open(AB_CORPUS_DIR "/safetensors/dtypes.safetensors", &file), AB_OK);
    assert_values(file, "f64", (const float[]){1.5f, 0, INFINITY}, 3);
    assert_values(file, "f32", (const float[]){1e-45f, -3}, 2);
    assert_values(file, "f16", (const float[]){65504, 0x1p-24f, -0.5f}, 3);
    assert_values(file, "bf16", (const float[]){0x1.8p100f, -2}, 2);
    assert_values(file, "e4m3", (const float[]){448, -0.5f, NAN}, 3);
    assert_values(file, "e5m2", (const float[]){57344, 0x1p-16f, INFINITY}, 3);
    assert_values(file, "empty", NULL, 0);
    const ab_tensor_entry *entry = NULL;
    static const char *const listed[] = {"i64", "u8", "bool", "e8m0"};
    for (size_t i = 0; i < AB_COUNT_OF(listed); i++) {
        float none[8];
        assert_int_equal(ab_tensorfile_find(file, listed[i], &entry), AB_OK);
        assert_null(entry->element->format);
        assert_int_equal(ab_tensorfile_read(file, entry, none), AB_INPUT);
    }
    assert_int_equal(ab_tensorfile_find(file, "empty", &entry), AB_OK);
    assert_int_equal(entry->ndim, 2);
    assert_int_equal(entry->dim[1], 3);
    ab_tensorfile_close(file);
}

typedef struct load {
    int64_t flushed, overflowed;
    float value[8];
} load;

static void see_load(void *context, int chunk, const ab_tensor_block *block) {
    (void)chunk;
    load *seen = context;
    seen->flushed += block->load_flushed;
    seen->overflowed += block->load_overflowed;
    memcpy(seen->value + block->first, block->data, (size_t)block->n * sizeof *seen->value);
}

static void losses_of_the_fp64_load_are_counted(void **state) {
    (void)state;
    bytes b = file_of("{\"x\":{\"dtype\":\"F64\",\"shape\":[7],\"data_offsets\":[0,56]}}", 0);
    const double values[7] = {1e-60,     -1e300, 0, (double)INFINITY, 1, 0x1p-150 /* ties to even: 0 */,
                              0x1.8p-150};
    const float expected[7] = {0, -INFINITY, 0, INFINITY, 1, 0, 0x1p-149f};
    put(&b, values, sizeof values);
    ab_tensorfile *file = NULL;
    void *block = NULL;
    load seen = {0};
    ab_block_visitor visitor = {.context = &seen, .see = see_load};
    assert_int_equal(open_exact("x.safetensors", &b, &block, &file), AB_OK);
    assert_int_equal(ab_tensorfile_stream(file, &file->tensor[0], &visitor), AB_OK);
    assert_int_equal(seen.flushed, 2);
    assert_int_equal(seen.overflowed, 1);
    for (int i = 0; i < 7; i++) assert_true(seen.value[i] == expected[i]);
    ab_tensorfile_close(file);
    free(block);
    bytes_free(&b);
}

static void errors_of_a_fit_name_tensor_and_both_shapes(void **state) {
    (void)state;
    bytes b = file_of("{\"conv1.weight\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[0,8]}}", 8);
    ab_tensorfile *file = NULL;
    void *block = NULL;
    float out[8];
    ab_shape shape = {3, {2, 1, 1}};
    assert_int_equal(open_exact("x.safetensors", &b, &block, &file), AB_OK);
    assert_int_equal(ab_tensorfile_read_as(file, "conv1.weight", &shape, out), AB_INPUT);
    assert_string_equal(ab_error_message(),
                        "x.safetensors: tensor \"conv1.weight\": expected shape [2, 1, 1], found [2, 1]");
    assert_int_equal(ab_tensorfile_read_as(file, "conv1.wieght", &shape, out), AB_INPUT);
    assert_string_equal(
        ab_error_message(),
        "x.safetensors: expected a tensor \"conv1.wieght\", found none; nearest is \"conv1.weight\"");
    ab_tensorfile_close(file);
    free(block);
    bytes_free(&b);
}

/* ---- bad headers ----------------------------------------------------------------------------- */

#define F32(name, shape, offsets)                                                                            \
    "\"" name "\":{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
static const struct {
    const char *header;
    size_t data_bytes;
    const char *reason;
} lying_headers[] = {
    {"{" F32("a", "[2]", "[0,8]") "}", 4, "within 0..4, found [0, 8]"},
    {"{" F32("a", "[2]", "[0,8]") "}", 12, "expected 8 bytes of data as the header says, found 12"},
    {"{" F32("a", "[1]", "[4,0]") "}", 4, "found [4, 0]"},
    {"{" F32("a", "[2]", "[0,8]") "," F32("b", "[2]", "[4,12]") "}", 12, "overlap"},
    {"{" F32("a", "[1]", "[0,4]") "," F32("b", "[1]", "[8,12]") "}", 12, "hole"},
    {"{" F32("a", "[1]", "[4,8]") "}", 8, "hole"},
    {"{" F32("a", "[3]", "[0,8]") "}", 8, "expected 12 bytes for F32 of shape [3], found 8"},
    {"{" F32("a", "[4294967296,4294967296]", "[0,8]") "}", 8, "does not fit"},
    {"{" F32("a", "[9223372036854775807]", "[0,8]") "}", 8, "does not fit"},
    {"{" F32("a", "[4611686018427387904,2,0]", "[0,0]") "}", 0, "does not fit"},
    {"{" F32("a", "[9223372036854775808]", "[0,8]") "}", 8, "below 2^63"},
    {"{" F32("a", "[-1]", "[0,4]") "}", 4, "integer of 0 or more"},
    {"{" F32("a", "[1.0]", "[0,4]") "}", 4, "integer of 0 or more"},
    {"{" F32("a", "[1e0]", "[0,4]") "}", 4, "integer of 0 or more"},
    {"{" F32("a", "[01]", "[0,4]") "}", 4, "integer of 0 or more"},
    {"{" F32("a", "[1]", "[0]") "}", 4, "[begin, end], found less"},
    {"{" F32("a", "[1]", "[0,4,4]") "}", 4, "[begin, end], found more"},
    {"{" F32("a", "1", "[0,4]") "}", 4, "an array '['"},
    {"{" F32("a", "[1]", "[0,4]") "," F32("a", "[1]", "[4,8]") "}", 8, "\"a\": expected once, found twice"},
    {"{" F32("a", "[1]", "[0,4]") "," F32("\\u0061", "[1]", "[4,8]") "}", 8,
     "\"a\": expected once, found twice"},
    {"{\"a\":{\"dtype\":\"F99\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "found \"F99\""},
    {"{\"a\":{\"dtype\":\"f32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "found \"f32\""},
    {"{\"a\":{\"dtype\":5,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "expected a string, found '5'"},
    {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "expected \"dtype\", found none"},
    {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "expected \"shape\", found none"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 0, "expected \"data_offsets\", found none"},
    {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
     "\"dtype\" once"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "\"shape\" once"},
    {"{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}", 2, "expected whole bytes"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "found two"},
    {"{\"__metadata__\":{\"a\":1}}", 0, "expected a string"},
    {"{\"__metadata__\":[]}", 0, "an object '{'"},
    {"{\"a\":5}", 0, "an object '{'"},
    {"{\"a\":{}", 0, "expected \"dtype\""},
    {"{" F32("a", "[1]", "[0,4]"), 4, "',' or '}'"},
    {"{" F32("a", "[1]", "[0,4]") ",}", 4, "a string"},
    {"{" F32("a", "[1]", "[0,4]") "} x", 4, "nothing more"},
    {"{" F32("a", "[1,]", "[0,4]") "}", 4, "integer of 0 or more"},
    {"{\"a\" {}}", 0, "':'"},
    {"{\"a", 0, "string to end"},
    {"{\"a\\", 0, "string to end"},
    {"{\"\\q\":{}}", 0, "\\u"},
    {"{\"\\ud800\":{}}", 0, "\\u"},
    {"{\"\\u0000\":{}}", 0, "other than NUL"},
    {"{\"\\u00g0\":{}}", 0, "\\u"},
    {"{\"\t\":{}}", 0, "control character 0x09"},
    {"{\"\xC3\":{}}", 0, "expected UTF-8"},
    {"{\"\xED\xA0\x80\":{}}", 0, "expected UTF-8"},
    {"{\"\xC0\x80\":{}}", 0, "expected UTF-8"},
    {"{\"\xF5\x80\x80\x80\":{}}", 0, "expected UTF-8"},
    {"{\"a\":{\"extra\":tru}}", 0, "a value"},
    {"{\"a\":{\"extra\":1.}}", 0, "a value"},
    {"{\"a\":{\"extra\":[1 2]}}", 0, "',' or ']'"},
    {"[]", 0, "an object '{'"},
    {" {}", 0, "byte 0: expected an object '{', found byte 0x20"},
    {"\n{}", 0, "byte 0: expected an object '{', found byte 0x0a"},
    {"", 0, "an object '{', found the end"},
};
#undef F32

static void headers_that_lie_are_refused_with_the_reason(void **state) {
    (void)state;
    for (size_t i = 0; i < AB_COUNT_OF(lying_headers); i++) {
        bytes b = file_of(lying_headers[i].header, lying_headers[i].data_bytes);
        assert_refused("x.safetensors", &b, lying_headers[i].reason);
        bytes_free(&b);
    }
}

static void unknown_members_and_escapes_are_read_past(void **state) {
    (void)state;
    bytes b = file_of(
        "{ \"__metadata__\" : {\"k\":\"v\"} ,\r\n\t\"\\ud83d\\ude00\\n\":{\"shape\":[ 2 , 1 ], \"extra\" : "
        "[{\"x\":[null,true,false,-0.5e+3,\"s\"]},{},[]],\"data_offsets\":[0,8],\"dtype\":\"F32\"}}  ",
        8);
    ab_tensorfile *file = NULL;
    void *block = NULL;
    assert_int_equal(open_exact("x.safetensors", &b, &block, &file), AB_OK);
    assert_int_equal(file->count, 1);
    assert_string_equal(file->tensor[0].name, "\xF0\x9F\x98\x80\n");
    char text[AB_TENSORFILE_TEXT];
    assert_string_equal(ab_tensor_printable(file->tensor[0].name, text), "\xF0\x9F\x98\x80?");
    ab_tensorfile_close(file);
    free(block);
    bytes_free(&b);
}

static void lengths_beyond_the_file_or_the_limit_are_refused(void **state) {
    (void)state;
    static const uint64_t lengths[] = {3, 100, 100000000, 1ULL << 32, 1ULL << 63, UINT64_MAX, UINT64_MAX - 7};
    for (size_t i = 0; i < AB_COUNT_OF(lengths); i++) {
        bytes b = {0};
        put_number(&b, lengths[i], 8);
        put_text(&b, "{}");
        assert_refused("x.safetensors", &b, "bytes, found 2 after its length");
        bytes_free(&b);
    }
    bytes b = {0};
    put_fill(&b, 0, 7);
    assert_refused("x.safetensors", &b, "8-byte header length");
    bytes_free(&b);
}

static void a_header_over_100_megabytes_is_refused(void **state) {
    (void)state;
    const char *path = in_folder("sparse_header.safetensors");
    const uint8_t start[] = {0x01, 0xE1, 0xF5, 0x05, 0, 0, 0, 0, '{', '}'}; /* 100,000,001 */
    int handle = open(path, O_CREAT | O_WRONLY, 0600);
    assert_true(handle >= 0);
    assert_int_equal(write(handle, start, sizeof start), sizeof start);
    assert_int_equal(ftruncate(handle, 200000000), 0);
    close(handle);
    ab_tensorfile *file = NULL;
    assert_int_equal(ab_tensorfile_open(path, &file), AB_INPUT);
    assert_non_null(strstr(ab_error_message(), "at most 100000000"));
}

static void hundred_thousand_levels_of_nesting_are_refused(void **state) {
    (void)state;
    enum { LEVELS = 100000 };
    static const char *const starts[] = {"{\"a\":{\"x\":", "",
                                         "{\"a\":{\"shape\":", "{\"__metadata__\":{\"k\":"};
    static const char *const reasons[] = {"nested deeper than 64", "an object", "integer", "a string"};
    for (size_t i = 0; i < AB_COUNT_OF(starts); i++)
        for (int object = 0; object < 2; object++) {
            bytes header = {0};
            put_text(&header, starts[i]);
            for (int level = 0; level < LEVELS; level++) put_text(&header, object ? "{\"x\":" : "[");
            put(&header, "", 1);
            bytes b = file_of((const char *)header.at, 0);
            assert_refused("x.safetensors", &b,
                           object && i == 1   ? "x.safetensors"
                           : object && i == 2 ? "an array"
                                              : reasons[i]);
            bytes_free(&header);
            bytes_free(&b);
        }
}

static void damaged_files_never_crash(void **state) {
    (void)state;
    bytes b = file_of(
        "{\"__metadata__\":{\"k\":\"v\"},\"a\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[0,16]},"
        "\"b\\n\":{\"dtype\":\"F8_E5M2\",\"shape\":[3,1],\"data_offsets\":[16,19]}}",
        19);
    assert_every_truncation_refused("x.safetensors", &b);
    assert_survives_byte_changes("x.safetensors", &b);
    bytes_free(&b);
}

static void what_is_no_regular_file_is_refused(void **state) {
    (void)state;
    ab_tensorfile *file = NULL;
    const char *fifo = in_folder("fifo.npy");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    const char *paths[] = {folder, "/dev/zero", fifo};
    for (size_t i = 0; i < AB_COUNT_OF(paths); i++) {
        assert_int_equal(ab_tensorfile_open(paths[i], &file), AB_INPUT);
        assert_non_null(strstr(ab_error_message(), "expected a regular file"));
    }
    assert_int_equal(ab_tensorfile_open(in_folder("none.npy"), &file), AB_INPUT);
    assert_non_null(strstr(ab_error_message(), "cannot open"));
    bytes empty = {0}, noise = {0};
    put_text(&noise, "hello, world");
    assert_refused("x.raw", &empty, "expected .safetensors, .npy, .npz or .pt");
    assert_refused("x.raw", &noise, "expected .safetensors, .npy, .npz or .pt");
    bytes_free(&noise);
}

/* ---- streaming ------------------------------------------------------------------------------- */

static void a_file_larger_than_memory_opens_and_its_end_is_read(void **state) {
    (void)state;
    const int64_t big = (int64_t)1 << 40; /* bytes of the first tensor: a hole in a sparse file */
    char header[256];
    int n = snprintf(header, sizeof header,
                     "{\"big\":{\"dtype\":\"F32\",\"shape\":[%lld],\"data_offsets\":[0,%lld]},"
                     "\"end\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[%lld,%lld]}}",
                     (long long)(big / 4), (long long)big, (long long)big, (long long)big + 4);
    bytes b = {0};
    put_number(&b, (uint64_t)n, 8);
    put_text(&b, header);
    const char *path = in_folder("huge.safetensors");
    int handle = open(path, O_CREAT | O_WRONLY, 0600);
    const float value = 7.25f;
    assert_true(handle >= 0);
    assert_int_equal(write(handle, b.at, b.size), (ssize_t)b.size);
    bool sparse = pwrite(handle, &value, 4, (off_t)b.size + big) == 4;
    close(handle);
    bytes_free(&b);
    if (!sparse) return; /* a file system without large sparse files: nothing to see here */
    ab_tensorfile *file = NULL;
    float end = 0;
    assert_int_equal(ab_tensorfile_open(path, &file), AB_OK);
    assert_int_equal(file->tensor[0].count, big / 4);
    assert_int_equal(ab_tensorfile_read(file, &file->tensor[1], &end), AB_OK);
    assert_true(end == value);
    ab_tensorfile_close(file);
}

static long peak_kibibytes(void) {
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return usage.ru_maxrss;
}

static void streaming_gives_back_the_pages_it_has_read(void **state) {
    (void)state;
    enum { MEBIBYTES = 256 };
    char header[128];
    int n =
        snprintf(header, sizeof header, "{\"x\":{\"dtype\":\"F32\",\"shape\":[%d],\"data_offsets\":[0,%d]}}",
                 MEBIBYTES << 18, MEBIBYTES << 20);
    bytes b = {0};
    put_number(&b, (uint64_t)n, 8);
    put_text(&b, header);
    const char *path = in_folder("hole.safetensors");
    int handle = open(path, O_CREAT | O_WRONLY, 0600);
    assert_true(handle >= 0);
    assert_int_equal(write(handle, b.at, b.size), (ssize_t)b.size);
    assert_int_equal(ftruncate(handle, (off_t)b.size + ((off_t)MEBIBYTES << 20)), 0);
    close(handle);
    bytes_free(&b);
    ab_tensorfile *file = NULL;
    int64_t seen = 0;
    ab_block_visitor visitor = {.context = &seen, .see = count_block};
    assert_int_equal(ab_tensorfile_open(path, &file), AB_OK);
    long before = peak_kibibytes();
    assert_int_equal(ab_tensorfile_stream(file, &file->tensor[0], &visitor), AB_OK);
    assert_int_equal(seen, (int64_t)MEBIBYTES << 18);
    assert_true(peak_kibibytes() - before < 64 << 10);
    ab_tensorfile_close(file);
}

/* What a chunk saw: where its blocks began and ended, and whether each value was the one that belongs there.
 */
typedef struct chunk_seen {
    int64_t begin, end;
    bool disordered, wrong;
} chunk_seen;

static void witness(void *context, int chunk, const ab_tensor_block *block) {
    chunk_seen *seen = (chunk_seen *)context + chunk;
    const float *values = block->data;
    if (seen->end == 0) seen->begin = seen->end = block->first;
    seen->disordered =
        seen->disordered || block->first != seen->end || block->first % AB_TENSORFILE_BLOCK != 0;
    seen->wrong = seen->wrong || block->format != &ab_format_fp32 || (uintptr_t)values % sizeof *values != 0;
    for (int64_t i = 0; i < block->n && !seen->wrong; i++)
        seen->wrong = values[i] != (float)((block->first + i) % 1000);
    seen->end = block->first + block->n;
}

/* A file of `count` values; `shift` spaces in the header misalign them. */
static bytes ramp_file(int count, int shift) {
    char header[128];
    bytes b = {0};
    int n = snprintf(header, sizeof header,
                     "{\"x\":{\"dtype\":\"F32\",\"shape\":[%d],\"data_offsets\":[0,%d]}}", count, 4 * count);
    put_number(&b, (uint64_t)(n + shift), 8);
    put_text(&b, header);
    put_fill(&b, ' ', (size_t)shift);
    for (int i = 0; i < count; i++) put(&b, &(float){(float)(i % 1000)}, sizeof(float));
    return b;
}

static void chunks_and_blocks_do_not_depend_on_the_threads(void **state) {
    (void)state;
    static const int counts[] = {5 * AB_TENSORFILE_BLOCK + 3, 40 * AB_TENSORFILE_BLOCK};
    for (int c = 0; c < 2; c++) {
        bytes b = ramp_file(counts[c], 3 * c); /* aligned and misaligned */
        chunk_seen first[AB_TENSORFILE_CHUNKS] = {{0}};
        for (int threads = 1; threads <= 4; threads++) {
            ab_tensorfile *file = NULL;
            chunk_seen seen[AB_TENSORFILE_CHUNKS] = {{0}};
            ab_block_visitor visitor = {seen, witness};
            assert_int_equal(ab_parallel_start(threads), AB_OK);
            assert_int_equal(ab_tensorfile_open_memory("x.safetensors", b.at, (int64_t)b.size, &file), AB_OK);
            int chunks = ab_tensorfile_chunks(&file->tensor[0]);
            assert_int_equal(ab_tensorfile_stream(file, &file->tensor[0], &visitor), AB_OK);
            for (int chunk = 0; chunk < chunks; chunk++) {
                assert_false(seen[chunk].disordered || seen[chunk].wrong);
                assert_int_equal(seen[chunk].begin, chunk > 0 ? seen[chunk - 1].end : 0);
            }
            assert_int_equal(seen[chunks - 1].end, counts[c]);
            if (threads == 1) memcpy(first, seen, sizeof seen);
            assert_memory_equal(first, seen, sizeof seen);
            ab_tensorfile_close(file);
        }
        bytes_free(&b);
    }
    ab_parallel_stop();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_tensors_read_back_bit_for_bit),
        cmocka_unit_test(halves_are_written_as_halves),
        cmocka_unit_test(written_bytes_are_the_documented_layout),
        cmocka_unit_test(a_failed_write_leaves_the_old_file_and_nothing_else),
        cmocka_unit_test(a_second_write_replaces_the_first),
        cmocka_unit_test(a_place_that_cannot_be_written_is_named),
        cmocka_unit_test(every_dtype_of_the_reference_package_is_read_or_listed),
        cmocka_unit_test(losses_of_the_fp64_load_are_counted),
        cmocka_unit_test(errors_of_a_fit_name_tensor_and_both_shapes),
        cmocka_unit_test(headers_that_lie_are_refused_with_the_reason),
        cmocka_unit_test(unknown_members_and_escapes_are_read_past),
        cmocka_unit_test(lengths_beyond_the_file_or_the_limit_are_refused),
        cmocka_unit_test(a_header_over_100_megabytes_is_refused),
        cmocka_unit_test(hundred_thousand_levels_of_nesting_are_refused),
        cmocka_unit_test(damaged_files_never_crash),
        cmocka_unit_test(what_is_no_regular_file_is_refused),
        cmocka_unit_test(a_file_larger_than_memory_opens_and_its_end_is_read),
        cmocka_unit_test(streaming_gives_back_the_pages_it_has_read),
        cmocka_unit_test(chunks_and_blocks_do_not_depend_on_the_threads),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
