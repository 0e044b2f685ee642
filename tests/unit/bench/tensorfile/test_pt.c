/* Files of torch.save: those that PyTorch wrote (scripts/golden_checkpoints.py), and pickles built here byte
 * by byte that lie. */
#define _POSIX_C_SOURCE 200809L /* mkstemp */
#include "tests/unit/tensorfile_testing.h"

#include <math.h>
#include <unistd.h>

#define FILES AB_CHECKPOINTS_DIR "/files/"

/* ---- files that PyTorch wrote ---------------------------------------------------------------- */

/* Element k of every floating-point tensor whose name has no "any" is (k - 5) / 4. */
static int check_ramps(const ab_tensorfile *file, const ab_tensor_entry *entry, int count) {
    int ramps = 0;
    for (int i = 0; i < count; i++) {
        float value[32];
        if (!entry[i].element->format || strstr(entry[i].name, "any") || strstr(entry[i].name, "running"))
            continue;
        assert_true(entry[i].count <= (int64_t)AB_COUNT_OF(value));
        assert_int_equal(ab_tensorfile_read(file, &entry[i], value), AB_OK);
        for (int64_t k = 0; k < entry[i].count; k++)
            if (value[k] != (float)(k - 5) / 4)
                fail_msg("%s: %s: element %d is %g", file->path, entry[i].name, (int)k, (double)value[k]);
        ramps++;
    }
    return ramps;
}

static void files_of_torch_are_read(void **state) {
    (void)state;
    static const struct {
        const char *path;
        int tensors, ramps;
    } files[] = {{FILES "dtypes.pt", 15, 6},      {FILES "dtypes_protocol4.pt", 15, 6},
                 {FILES "dtypes_old.pt", 15, 6},  {FILES "dtypes_deflated.pt", 15, 6},
                 {FILES "views.pt", 11, 11},      {FILES "views_protocol4.pt", 11, 11},
                 {FILES "views_old.pt", 11, 11},  {FILES "little.pt", 2, 2},
                 {FILES "big.pt", 2, 2},          {FILES "tensor.bin", 1, 1},
                 {FILES "parameter.ckpt", 1, 1},  {FILES "module.pth", 7, 4},
                 {FILES "training.pt", 19, 0},    {FILES "training_protocol4.pt", 19, 0},
                 {FILES "training_old.pt", 19, 0}};
    for (size_t i = 0; i < AB_COUNT_OF(files); i++) {
        ab_tensorfile *file = NULL;
        if (ab_tensorfile_open(files[i].path, &file) != AB_OK) fail_msg("%s", ab_error_message());
        assert_int_equal(file->count, files[i].tensors);
        const int ramps = check_ramps(file, file->tensor, file->count);
        assert_int_equal(ramps + check_ramps(file, file->alias, file->aliases), files[i].ramps);
        ab_tensorfile_close(file);
    }
}

static void bytes_that_tensors_share_are_listed_once(void **state) {
    (void)state;
    static const char *const listed[] = {"tied.first", "any_whole"}, *const shared[] = {"tied.second",
                                                                                        "part"};
    ab_tensorfile *file = NULL;
    assert_int_equal(ab_tensorfile_open(FILES "views.pt", &file), AB_OK);
    assert_int_equal(file->aliases, 2);
    for (int i = 0; i < 2; i++) {
        const ab_tensor_entry *first, *second;
        assert_int_equal(ab_tensorfile_find(file, listed[i], &first), AB_OK);
        assert_int_equal(ab_tensorfile_find(file, shared[i], &second), AB_OK);
        assert_int_equal(first->offset, second->offset);
        assert_true(first >= file->tensor && first < file->tensor + file->count);
        assert_false(second >= file->tensor && second < file->tensor + file->count);
    }
    ab_tensorfile_close(file);
}

/* Elements side by side are read where they are; the others are collected. */
static void only_strides_are_collected(void **state) {
    (void)state;
    static const char *const apart[] = {"transposed", "channels_last", "column", "any_expanded"};
    ab_tensorfile *file = NULL;
    assert_int_equal(ab_tensorfile_open(FILES "views.pt", &file), AB_OK);
    for (int i = 0; i < file->count; i++) {
        bool strided = strstr(file->tensor[i].name, "_column") != NULL;
        for (size_t k = 0; k < AB_COUNT_OF(apart); k++)
            strided = strided || strcmp(file->tensor[i].name, apart[k]) == 0;
        assert_int_equal(file->tensor[i].stride != NULL, strided);
    }
    ab_tensorfile_close(file);
}

/* ---- what is beside tensors ------------------------------------------------------------------ */

typedef struct expected {
    const char *name;
    double number;
    const char *text; /* NULL: a number */
    int seen;
} expected;

static ab_status tick(void *context, const char *name, const ab_tensor_value *value) {
    for (expected *e = context; e->name; e++) {
        if (strcmp(e->name, name) != 0) continue;
        e->seen++;
        assert_int_equal(value->kind == AB_VALUE_NUMBER, e->text == NULL);
        if (!e->text) assert_true(value->number == e->number);
        if (e->text) assert_int_equal(value->bytes, strlen(e->text));
        if (e->text) assert_memory_equal(value->text, e->text, value->bytes);
    }
    return AB_OK;
}

static void numbers_and_texts_are_found_by_name(void **state) {
    (void)state;
    static const char *const paths[] = {FILES "training.pt", FILES "training_protocol4.pt",
                                        FILES "training_old.pt"};
    for (size_t i = 0; i < AB_COUNT_OF(paths); i++) {
        expected e[] = {{"scaler.scale", 65536, NULL, 0},
                        {"scaler._growth_tracker", 17, NULL, 0},
                        {"any_optimizer.param_groups.0.lr", 0.125, NULL, 0},
                        {"any_optimizer.param_groups.0.betas.1", 0.75, NULL, 0},
                        {"any_optimizer.param_groups.0.eps", 0.25, NULL, 0},
                        {"any_optimizer.param_groups.0.params.3", 3, NULL, 0},
                        {"epoch", 3, NULL, 0},
                        {"done", 0, NULL, 0},
                        {"name", 0, "r\xc3\xa9seau", 0},
                        {"args", 0, "argparse.Namespace", 0},
                        {"args.lr", 0.5, NULL, 0},
                        {"args.betas.0", 0.5, NULL, 0},
                        {"counts.seen.0", 3, NULL, 0},
                        {"dtype", 0, "torch.float16", 0},
                        {"pairs.b", 2, NULL, 0},
                        {NULL, 0, NULL, 0}};
        ab_tensorfile *file = NULL;
        assert_int_equal(ab_tensorfile_open(paths[i], &file), AB_OK);
        assert_string_equal(file->note, "not a tensor: argparse.Namespace (not executed)");
        assert_int_equal(ab_tensorfile_values(file, tick, e), AB_OK);
        for (expected *one = e; one->name; one++)
            if (one->seen != 1) fail_msg("%s: %s: seen %d times", paths[i], one->name, one->seen);
        ab_tensorfile_close(file);
    }
}

/* ---- pickles that lie ------------------------------------------------------------------------ */

/* A pickle of protocol 2 as a whole file. */
static bytes pickle_of(const char *ops, size_t n) {
    bytes b = {0};
    put(&b, "\x80\x02", 2);
    put(&b, ops, n);
    put_text(&b, ".");
    return b;
}

#define OPS(text) text, sizeof(text) - 1

static void nothing_is_executed(void **state) {
    (void)state;
    char path[] = "/tmp/ampbench-pt.XXXXXX";
    const int handle = mkstemp(path);
    assert_true(handle >= 0);
    close(handle);
    bytes b = {0};
    put(&b, "\x80\x02", 2);
    put_text(&b, "cos\nsystem\n(X");
    put_number(&b, strlen(path) + 3, 4);
    put_text(&b, "rm ");
    put_text(&b, path);
    put_text(&b, "tR.");
    ab_tensorfile *file = NULL;
    assert_int_equal(ab_tensorfile_open_memory("evil.pt", b.at, (int64_t)b.size, &file), AB_OK);
    assert_int_equal(file->count, 0);
    assert_string_equal(file->note, "not a tensor: os.system (not executed)");
    ab_tensorfile_close(file);
    assert_int_equal(access(path, F_OK), 0);
    unlink(path);
    bytes_free(&b);
}

static void broken_pickles_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *ops;
        size_t n;
        const char *reason;
    } rows[] = {
        {OPS(""), "expected one object at the end"},
        {OPS("NN"), "expected one object at the end"},
        {OPS("("), "expected one object at the end"},
        {OPS("0"), "takes more than there is"},
        {OPS("1"), "expected a mark"},
        {OPS("t"), "expected a mark"},
        {OPS("(\x85"), "takes more than there is"},
        {OPS("R"), "takes more than there is"},
        {OPS("NNR"), "expected a tuple of arguments"},
        {OPS("Nb"), "takes more than there is"},
        {OPS("NNb"), "a state is given to something that is no object"},
        {OPS("NNa"), "items are put into something that has none"},
        {OPS("}Na"), "items are put into something that has none"},
        {OPS("](NNu"), "items are put into something that has none"},
        {OPS("}(Nu"), "expected a value for every key"},
        {OPS("(Nd"), "expected a value for every key"},
        {OPS("h\x05"), "nothing was put at a memo index"},
        {OPS("Nr\xff\xff\xff\xff"), "a memo index is out of range"},
        {OPS("X\xff\xff\xff\x7f"), "expected 2147483647 more bytes"},
        {OPS("\x8d\xff\xff\xff\xff\xff\xff\xff\xff"), "expected 18446744073709551615 more bytes"},
        {OPS("\x8b\xff\xff\xff\xff"), "expected 4294967295 more bytes"},
        {OPS("\x8a\xff"), "expected 255 more bytes"},
        {OPS("cos"), "expected a name that ends"},
        {OPS("NN\x93"), "expected the texts of a module and a name"},
        {OPS("I1\n"), "expected an opcode of protocols 2 to 4, found 0x49"},
        {OPS("\x97"), "expected an opcode of protocols 2 to 4, found 0x97"},
        {OPS("\x80\x06N"), "expected protocol 2, 3 or 4"},
        {OPS("ctorch._utils\n_rebuild_tensor_v2\n)R"), "expected a storage of a known type"},
        {OPS("ctorch._utils\n_rebuild_tensor_v2\n(N\x85QK\0))tR"), "expected a storage of a known type"}};
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
        bytes b = pickle_of(rows[i].ops, rows[i].n);
        assert_refused("x.pt", &b, rows[i].reason);
        bytes_free(&b);
    }
    bytes none = {0};
    put_text(&none, "PK\3\4 not");
    assert_refused("x.pt", &none, "zip: expected an end record");
    none.size = 0;
    put_text(&none, "hello, this is text");
    assert_refused("x.bin", &none, "expected what torch.save writes");
    bytes_free(&none);
}

/* Honest protocol with integers of any length; those beyond 64 bits are no values. */
static void long_integers_are_read(void **state) {
    (void)state;
    expected e[] = {{"a", -2, NULL, 0}, {"b", 255, NULL, 0}, {"c", 0, NULL, 0}, {NULL, 0, NULL, 0}};
    bytes b = pickle_of(OPS("}(U\1a\x8a\1\xfeU\1b\x8a\2\xff\0U\1c\x8a\0U\1d\x8a\11\1\1\1\1\1\1\1\1\1u"));
    ab_tensorfile *file = NULL;
    assert_int_equal(ab_tensorfile_open_memory("x.pt", b.at, (int64_t)b.size, &file), AB_OK);
    assert_int_equal(ab_tensorfile_values(file, tick, e), AB_OK);
    for (int i = 0; i < 3; i++) assert_int_equal(e[i].seen, 1);
    ab_tensorfile_close(file);
    bytes_free(&b);
}

static ab_status count_values(void *context, const char *name, const ab_tensor_value *value) {
    assert_true(strlen(name) <= 4096 && value != NULL);
    ++*(int *)context;
    return AB_OK;
}

static int values_of(const bytes *b) {
    ab_tensorfile *file = NULL;
    int count = 0;
    if (ab_tensorfile_open_memory("x.pt", b->at, (int64_t)b->size, &file) != AB_OK)
        fail_msg("%s", ab_error_message());
    assert_int_equal(ab_tensorfile_values(file, count_values, &count), AB_OK);
    ab_tensorfile_close(file);
    return count;
}

static void deep_nests_are_walked(void **state) {
    (void)state;
    enum { DEEP = 100000 };
    static const char *const one[] = {"]", "(", "]q\0", "}U\1k"}, *const other[] = {
                                                                      "a", "t", "h\0a",
                                                                      "s"}; /* lists, tuples, cycles, dicts */
    static const size_t bytes_of_one[] = {1, 1, 3, 4}, bytes_of_other[] = {1, 1, 3, 1};
    for (int kind = 0; kind < 4; kind++) {
        bytes b = {0};
        put(&b, "\x80\2", 2);
        for (int i = 0; i < DEEP; i++) put(&b, one[kind], bytes_of_one[kind]);
        put_text(&b, "K\7");
        for (int i = 0; i < DEEP; i++) {
            if (kind == 2 && i > 0) break;
            put(&b, other[kind], bytes_of_other[kind]);
        }
        if (kind == 2) {
            b.size = 2;
            put(&b, "]q\0h\0aK\7a", 9); /* a list in itself */
        }
        put_text(&b, ".");
        assert_int_equal(values_of(&b), kind == 2); /* names of more than 4096 bytes are not told */
        bytes_free(&b);
    }
}

/* Each list holds the one before twice: 2^1000 paths, 1000 lists. */
static void shared_parts_are_walked_once(void **state) {
    (void)state;
    enum { LEVELS = 1000 };
    bytes b = {0};
    put(&b, "\x80\2(K\7lq\0", 8);
    for (int i = 0; i < LEVELS; i++) put(&b, "0(h\0h\0lq\0", 9);
    put_text(&b, ".");
    assert_int_equal(values_of(&b), 1);
    b.size = 2; /* a thousand objects with one state of a thousand numbers */
    put_text(&b, "](}q");
    put_number(&b, 0, 1);
    put_text(&b, "(");
    for (int i = 0; i < LEVELS; i++) {
        put_text(&b, "M");
        put_number(&b, (uint64_t)i, 2);
        put_text(&b, "K\1");
    }
    put_text(&b, "u0");
    for (int i = 0; i < LEVELS; i++) put(&b, "ca\nb\n)\x81h\0b", 10);
    put_text(&b, "e.");
    assert_int_equal(values_of(&b), 2 * LEVELS);
    bytes_free(&b);
}

/* ---- storages that lie ----------------------------------------------------------------------- */

enum { OLD_ELEMENTS = 4 };

/* A file of before PyTorch 1.6 with one tensor of fp32 in a storage of four elements; all may be other. */
static bytes old_file(const char *class, int64_t declared, int64_t offset, int64_t size, int64_t stride,
                      uint64_t written) {
    bytes b = {0};
    put(&b,
        "\x80\2\x8a\12l\xfc\x9c"
        "F\xf9 j\xa8P\x19.\x80\2M\xe9\3.\x80\2}.\x80\2",
        27);
    put_text(&b, "ctorch._utils\n_rebuild_tensor_v2\n((X");
    put_number(&b, 7, 4);
    put_text(&b, "storagectorch\n");
    put_text(&b, class);
    put_text(&b, "\nX");
    put_number(&b, 1, 4);
    put_text(&b, "0X");
    put_number(&b, 3, 4);
    put_text(&b, "cpu\x8a\10");
    put_number(&b, (uint64_t)declared, 8);
    put_text(&b, "NtQ\x8a\10");
    put_number(&b, (uint64_t)offset, 8);
    put_text(&b, "\x8a\10");
    put_number(&b, (uint64_t)size, 8);
    put_text(&b, "\x85\x8a\10");
    put_number(&b, (uint64_t)stride, 8);
    put_text(&b, "\x85\x89}tR.\x80\2]X");
    put_number(&b, 1, 4);
    put_text(&b, "0a.");
    put_number(&b, written, 8);
    for (int i = 0; i < OLD_ELEMENTS; i++) put(&b, &(float){(float)(i - 5) / 4}, sizeof(float));
    return b;
}

static void storages_that_lie_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *class;
        int64_t declared, offset, size, stride;
        uint64_t written;
        const char *reason; /* NULL: it is honest */
    } rows[] = {
        {"FloatStorage", 4, 0, 4, 1, 4, NULL},
        {"FloatStorage", 4, 3, 1, 1, 4, NULL},
        {"FloatStorage", 4, 0, 2, 3, 4, NULL},
        {"FloatStorage", 4, 4, 0, 1, 4, NULL},
        {"FloatStorage", 5, 0, 4, 1, 4, "expected a storage of 5 elements, found 16 bytes"},
        {"FloatStorage", INT64_MAX, 0, 4, 1, 4, "elements, found 16 bytes"},
        {"FloatStorage", -1, 0, 4, 1, 4, "expected the keys of storages that tensors have"},
        {"FloatStorage", 4, 1, 4, 1, 4, "reaches beyond its storage of 4 elements"},
        {"FloatStorage", 4, -1, 4, 1, 4, "expected an offset, sizes and strides from 0 on"},
        {"FloatStorage", 4, INT64_MAX, 4, 1, 4, "reaches beyond its storage"},
        {"FloatStorage", 4, 0, 2, 4, 4, "reaches beyond its storage"},
        {"FloatStorage", 4, 0, 2, -1, 4, "expected an offset, sizes and strides from 0 on"},
        {"FloatStorage", 4, 0, -4, 1, 4, "does not fit in 63 bits"},
        {"FloatStorage", 4, 0, INT64_MAX, INT64_MAX, 4, "63 bits"},
        {"FloatStorage", 4, 0, INT64_MAX / 8, INT64_MAX, 4, "63 bits"},
        {"FloatStorage", 4, 0, 1 << 12, 0, 4, NULL},
        {"FloatStorage", 4, 0, 1 << 20, 0, 4, "repeats the elements of its storage more than 1024 times"},
        {"FloatStorage", 4, 0, 4, 1, 5, "expected a storage of 5 elements at"},
        {"FloatStorage", 4, 0, 4, 1, UINT64_MAX, "expected a storage of 18446744073709551615 elements at"},
        {"EvilStorage", 4, 0, 4, 1, 4, "expected the keys of storages that tensors have"},
        {"DoubleStorage", 2, 0, 2, 1, 2, NULL},
        {"DoubleStorage", 4, 0, 4, 1, 2, "expected a storage of 4 elements, found 16 bytes"},
    };
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
        bytes b = old_file(rows[i].class, rows[i].declared, rows[i].offset, rows[i].size, rows[i].stride,
                           rows[i].written);
        if (rows[i].reason)
            assert_refused("x.pt", &b, rows[i].reason);
        else if (try_all("x.pt", &b) != AB_OK)
            fail_msg("row %d: %s", (int)i, ab_error_message());
        bytes_free(&b);
    }
}

static bytes whole_file(const char *path) {
    bytes b = {0};
    uint8_t block[4096];
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    for (size_t n; (n = fread(block, 1, sizeof block, file)) > 0;) put(&b, block, n);
    fclose(file);
    return b;
}

static void damage_is_survived(void **state) {
    (void)state;
    static const char *const paths[] = {FILES "little.pt", FILES "views_old.pt"};
    for (int i = 0; i < 2; i++) {
        bytes b = whole_file(paths[i]);
        assert_every_truncation_refused("x.pt", &b);
        assert_survives_byte_changes("x.pt", &b);
        bytes_free(&b);
    }
}

/* Names decide only where bytes do not. */
static void names_and_bytes_agree(void **state) {
    (void)state;
    bytes b = whole_file(FILES "little.pt");
    assert_int_equal(try_all("weights", &b), AB_OK);
    assert_int_equal(try_all("weights.bin", &b), AB_OK);
    assert_int_equal(try_all("weights.any", &b), AB_OK);
    assert_refused("weights.npz", &b, "expected npz, as the name ends in .npz, found pt");
    bytes_free(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_of_torch_are_read),
        cmocka_unit_test(bytes_that_tensors_share_are_listed_once),
        cmocka_unit_test(only_strides_are_collected),
        cmocka_unit_test(numbers_and_texts_are_found_by_name),
        cmocka_unit_test(nothing_is_executed),
        cmocka_unit_test(broken_pickles_are_refused),
        cmocka_unit_test(long_integers_are_read),
        cmocka_unit_test(deep_nests_are_walked),
        cmocka_unit_test(shared_parts_are_walked_once),
        cmocka_unit_test(storages_that_lie_are_refused),
        cmocka_unit_test(damage_is_survived),
        cmocka_unit_test(names_and_bytes_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
