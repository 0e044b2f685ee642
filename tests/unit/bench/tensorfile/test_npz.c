/* The npz reader: archives of numpy and archives built here byte by byte, honest ones and ones that lie. */
#include "tests/unit/tensorfile_testing.h"

#include <zlib.h>

/* What an archive is built from. Numbers below 0 mean the honest value. */
typedef struct part {
    const char *name;
    const uint8_t *content; /* what the member unpacks to */
    size_t size;
    bool deflate;
    bool zip64; /* sizes and offset in the zip64 field */
    int64_t method, flags, declared_size, declared_packed, declared_crc, declared_local;
    const char *local_name;
    int64_t local_flags;
} part;

static part honest(const char *name, const bytes *content, bool deflate) {
    return (part){.name = name,
                  .content = content->at,
                  .size = content->size,
                  .deflate = deflate,
                  .method = -1,
                  .declared_size = -1,
                  .declared_packed = -1,
                  .declared_crc = -1,
                  .declared_local = -1};
}

static uint64_t either(int64_t declared, uint64_t actual) {
    return declared >= 0 ? (uint64_t)declared : actual;
}

static bytes packed_bytes(const part *p) {
    bytes b = {0};
    if (!p->deflate) {
        put(&b, p->content, p->size);
        return b;
    }
    z_stream zlib = {0};
    assert_int_equal(deflateInit2(&zlib, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
    uLong bound = deflateBound(&zlib, (uLong)p->size);
    b.at = malloc(bound);
    assert_non_null(b.at);
    zlib.next_in = (Bytef *)(uintptr_t)p->content;
    zlib.avail_in = (uInt)p->size;
    zlib.next_out = b.at;
    zlib.avail_out = (uInt)bound;
    assert_int_equal(deflate(&zlib, Z_FINISH), Z_STREAM_END);
    b.size = bound - zlib.avail_out;
    deflateEnd(&zlib);
    return b;
}

/* Flag bit 3: checksum and sizes stand in a data descriptor after the data (APPNOTE 4.3.9), 0 in the header.
 */
enum { FLAG_DESCRIPTOR = 1 << 3 };

static void put_local(bytes *zip, const part *p, const bytes *packed, uint32_t crc) {
    const char *name = p->local_name ? p->local_name : p->name;
    const bool later = p->flags & FLAG_DESCRIPTOR;
    put_number(zip, 0x04034b50, 4);
    put_number(zip, 20, 2);
    put_number(zip, (uint64_t)(p->flags | p->local_flags), 2);
    put_number(zip, either(p->method, p->deflate ? 8 : 0), 2);
    put_number(zip, 0, 4);
    put_number(zip, later ? 0 : crc, 4);
    put_number(zip, later ? 0 : packed->size, 4);
    put_number(zip, later ? 0 : p->size, 4);
    put_number(zip, strlen(name), 2);
    put_number(zip, 0, 2);
    put_text(zip, name);
    put(zip, packed->at, packed->size);
    if (!later) return;
    put_number(zip, 0x08074b50, 4);
    put_number(zip, crc, 4);
    put_number(zip, packed->size, p->zip64 ? 8 : 4);
    put_number(zip, p->size, p->zip64 ? 8 : 4);
}

static void put_central(bytes *zip, const part *p, uint64_t packed, uint32_t crc, uint64_t local) {
    uint64_t size = either(p->declared_size, p->size), in_file = either(p->declared_packed, packed);
    uint64_t offset = either(p->declared_local, local);
    put_number(zip, 0x02014b50, 4);
    put_number(zip, 20, 2);
    put_number(zip, 20, 2);
    put_number(zip, (uint64_t)p->flags, 2);
    put_number(zip, either(p->method, p->deflate ? 8 : 0), 2);
    put_number(zip, 0, 4);
    put_number(zip, either(p->declared_crc, crc), 4);
    put_number(zip, p->zip64 ? UINT32_MAX : in_file, 4);
    put_number(zip, p->zip64 ? UINT32_MAX : size, 4);
    put_number(zip, strlen(p->name), 2);
    put_number(zip, p->zip64 ? 28 + 5 : 0, 2);
    put_number(zip, 0, 2 + 2 + 2 + 4);
    put_number(zip, p->zip64 ? UINT32_MAX : offset, 4);
    put_text(zip, p->name);
    if (!p->zip64) return;
    put_number(zip, 0xCAFE, 2); /* a field of somebody else first */
    put_number(zip, 1, 2);
    put_number(zip, 7, 1);
    put_number(zip, 1, 2);
    put_number(zip, 24, 2);
    put_number(zip, size, 8);
    put_number(zip, in_file, 8);
    put_number(zip, offset, 8);
}

static void put_end(bytes *zip, uint64_t entries, uint64_t begin, bool zip64) {
    uint64_t end = zip->size;
    if (zip64) {
        put_number(zip, 0x06064b50, 4);
        put_number(zip, 44, 8);
        put_number(zip, 45, 2);
        put_number(zip, 45, 2);
        put_number(zip, 0, 8);
        put_number(zip, entries, 8);
        put_number(zip, entries, 8);
        put_number(zip, end - begin, 8);
        put_number(zip, begin, 8);
        put_number(zip, 0x07064b50, 4);
        put_number(zip, 0, 4);
        put_number(zip, end, 8);
        put_number(zip, 1, 4);
    }
    put_number(zip, 0x06054b50, 4);
    put_number(zip, 0, 4);
    put_number(zip, zip64 ? UINT16_MAX : entries, 2);
    put_number(zip, zip64 ? UINT16_MAX : entries, 2);
    put_number(zip, zip64 ? UINT32_MAX : end - begin, 4);
    put_number(zip, zip64 ? UINT32_MAX : begin, 4);
    put_number(zip, 0, 2);
}

static bytes zip_of(const part *parts, size_t count) {
    bytes zip = {0};
    uint64_t local[8], packed_size[8];
    uint32_t crc[8];
    for (size_t i = 0; i < count; i++) {
        bytes packed = packed_bytes(&parts[i]);
        local[i] = zip.size;
        packed_size[i] = packed.size;
        crc[i] = (uint32_t)crc32(0, parts[i].content, (uInt)parts[i].size);
        put_local(&zip, &parts[i], &packed, crc[i]);
        bytes_free(&packed);
    }
    uint64_t begin = zip.size;
    for (size_t i = 0; i < count; i++) put_central(&zip, &parts[i], packed_size[i], crc[i], local[i]);
    put_end(&zip, count, begin, count > 0 && parts[0].zip64);
    return zip;
}

static bytes npy_header(const char *descr, const char *shape) {
    char header[256];
    int n = snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }\n", descr,
                     shape);
    bytes b = {0};
    put(&b, "\x93NUMPY\1\0", 8);
    put_number(&b, (uint64_t)n, 2);
    put_text(&b, header);
    return b;
}

/* A member that unpacks to count values 0, 1, 2, ... (modulo 1000) in fp32. */
static bytes ramp(int count) {
    char shape[32];
    snprintf(shape, sizeof shape, "(%d,)", count);
    bytes b = npy_header("<f4", shape);
    for (int i = 0; i < count; i++) put(&b, &(float){(float)(i % 1000)}, sizeof(float));
    return b;
}

static void check_ramp(void *context, int chunk, const ab_tensor_block *block) {
    (void)chunk;
    const float *values = block->data;
    for (int64_t i = 0; i < block->n; i++) assert_true(values[i] == (float)((block->first + i) % 1000));
    *(int64_t *)context += block->n;
}

/* ---- honest archives ------------------------------------------------------------------------- */

static void files_that_numpy_wrote_are_read(void **state) {
    (void)state; /* made with numpy: tests/fuzz/make_seeds.py */
    static const char *const paths[] = {AB_CORPUS_DIR "/npz/stored.npz", AB_CORPUS_DIR "/npz/deflated.npz"};
    static const char *const names[] = {"x", "layer.0/w", "b"};
    for (size_t p = 0; p < AB_COUNT_OF(paths); p++) {
        ab_tensorfile *file = NULL;
        assert_int_equal(ab_tensorfile_open(paths[p], &file), AB_OK);
        assert_int_equal(file->count, 4);
        for (size_t i = 0; i < AB_COUNT_OF(names); i++) {
            float out[6];
            ab_shape shape = {2, {2, 3}};
            assert_int_equal(ab_tensorfile_read_as(file, names[i], &shape, out), AB_OK);
            for (int k = 0; k < 6; k++) assert_true(out[k] == (float)k - 2.5f);
        }
        ab_tensorfile_close(file);
    }
}

static void members_that_are_no_arrays_are_left_alone(void **state) {
    (void)state;
    ab_tensorfile *file = NULL;
    float out[6];
    ab_shape shape = {2, {2, 3}};
    assert_int_equal(ab_tensorfile_open(AB_CORPUS_DIR "/npz/extra_member.npz", &file), AB_OK);
    assert_int_equal(file->count, 1);
    assert_int_equal(ab_tensorfile_read_as(file, "x", &shape, out),
                     AB_OK); /* index 0, though the second member */
    assert_true(out[5] == 2.5f);
    ab_tensorfile_close(file);
}

static void many_blocks_come_out_of_a_deflated_member(void **state) {
    (void)state;
    enum { COUNT = 2 * AB_TENSORFILE_BLOCK + 17 };
    bytes content = ramp(COUNT);
    for (int kind = 0; kind < 4; kind++) {
        part p = honest("x.npy", &content, kind & 1);
        p.zip64 = kind & 2;
        bytes zip = zip_of(&p, 1);
        ab_tensorfile *file = NULL;
        int64_t seen = 0;
        ab_block_visitor visitor = {.context = &seen, .see = check_ramp};
        assert_int_equal(ab_tensorfile_open_memory("x.npz", zip.at, (int64_t)zip.size, &file), AB_OK);
        assert_int_equal(ab_tensorfile_stream(file, &file->tensor[0], &visitor), AB_OK);
        assert_int_equal(seen, COUNT);
        ab_tensorfile_close(file);
        bytes_free(&zip);
    }
    bytes_free(&content);
}

/* As Python's zipfile writes to a pipe. */
static void sizes_after_the_data_are_read(void **state) {
    (void)state;
    bytes content = ramp(50);
    for (int kind = 0; kind < 4; kind++) {
        part parts[2] = {honest("a.npy", &content, kind & 1), honest("b.npy", &content, kind & 1)};
        for (int i = 0; i < 2; i++) {
            parts[i].flags = FLAG_DESCRIPTOR;
            parts[i].zip64 = kind & 2;
        }
        bytes zip = zip_of(parts, 2);
        assert_int_equal(try_all("x.npz", &zip), AB_OK);
        bytes_free(&zip);
    }
    bytes_free(&content);
}

/* ---- archives that lie ----------------------------------------------------------------------- */

static void names_that_climb_out_are_refused(void **state) {
    (void)state;
    static const char *const names[] = {"../x.npy",     "a/../../x.npy", "a/..",     "..", "/etc/x.npy",
                                        "a\\..\\x.npy", "C:x.npy",       "a\nb.npy", "",   "\xFF.npy"};
    bytes content = ramp(3);
    for (size_t i = 0; i < AB_COUNT_OF(names); i++) {
        part parts[2] = {honest("good.npy", &content, false), honest(names[i], &content, true)};
        bytes zip = zip_of(parts, 2);
        assert_refused("x.npz", &zip, "expected a plain relative member name");
        bytes_free(&zip);
    }
    part fine = honest("..a/b../...npy", &content, true); /* dots alone are no harm */
    bytes zip = zip_of(&fine, 1);
    assert_int_equal(try_all("x.npz", &zip), AB_OK);
    bytes_free(&zip);
    bytes_free(&content);
}

/* One member with one lie in it, and the reason that opening or reading must give. */
typedef struct lie {
    void (*tell)(part *p);
    const char *reason;
} lie;

static void assert_lie_found(const lie *row, bool deflate) {
    bytes content = ramp(100);
    part p = honest("x.npy", &content, deflate);
    row->tell(&p);
    bytes zip = zip_of(&p, 1);
    assert_int_equal(try_all("x.npz", &zip), AB_INPUT);
    if (!strstr(ab_error_message(), row->reason))
        fail_msg("expected \"%s\" in \"%s\"", row->reason, ab_error_message());
    assert_ptr_equal(strstr(ab_error_message(), "x.npz"), ab_error_message());
    bytes_free(&zip);
    bytes_free(&content);
}

static void tell_bomb(part *p) { p->declared_size = 1 << 30; }
static void tell_more(part *p) { p->declared_size = (int64_t)p->size + 4; }
static void tell_less(part *p) { p->declared_size = (int64_t)p->size - 4; }
static void tell_crc(part *p) { p->declared_crc = 12345; }
static void tell_encrypted(part *p) { p->flags = 1; }
static void tell_local_encrypted(part *p) { p->local_flags = 1; }
static void tell_patch(part *p) { p->flags = 1 << 5; }
static void tell_masked(part *p) { p->flags = 1 << 13; }
static void tell_method(part *p) { p->method = 12; }
static void tell_packed_less(part *p) { p->declared_packed = 40; }
static void tell_packed_past_end(part *p) { p->declared_packed = 100000; }
static void tell_local_past_end(part *p) { p->declared_local = 100000; }
static void tell_local_elsewhere(part *p) { p->declared_local = 3; }
static void tell_other_name(part *p) { p->local_name = "y.npy"; }
static void tell_not_deflated(part *p) { p->method = 8; }
static void tell_zip64_huge(part *p) {
    p->zip64 = true;
    p->declared_packed = INT64_MAX;
}

static void declared_sizes_are_not_believed(void **state) {
    (void)state;
    static const lie deflated[] = {
        {tell_bomb, "a zip bomb?"},
        {tell_more, "bytes of data for <f4 of shape [100], found 404"},
        {tell_less, "bytes of data for <f4 of shape [100], found 396"},
        {tell_crc, "zip: member \"x.npy\": expected checksum 00003039, found "},
        {tell_encrypted, "no encryption"},
        {tell_local_encrypted, "contradicts the directory"},
        {tell_masked, "no encryption"},
        {tell_patch, "found a patch"},
        {tell_method, "found 12"},
        {tell_packed_less, "the deflated data is truncated"},
        {tell_packed_past_end, "found the directory"},
        {tell_local_past_end, "expected a local header at 100000"},
        {tell_local_elsewhere, "expected a local header at 3"},
        {tell_other_name, "contradicts the directory"},
        {tell_zip64_huge, "found the directory"},
    };
    for (size_t i = 0; i < AB_COUNT_OF(deflated); i++) assert_lie_found(&deflated[i], true);
    static const lie stored[] = {{tell_crc, "zip: member \"x.npy\": expected checksum 00003039, found "},
                                 {tell_more, "stored bytes"},
                                 {tell_less, "stored bytes"},
                                 {tell_not_deflated, "more bytes, found the end"}};
    for (size_t i = 0; i < AB_COUNT_OF(stored); i++) assert_lie_found(&stored[i], false);
}

/* Every byte of a member counts, stored or deflated: numpy's own check. */
static void no_changed_byte_of_a_member_passes(void **state) {
    (void)state;
    for (int deflate = 0; deflate < 2; deflate++) {
        bytes content = ramp(60);
        part p = honest("x.npy", &content, deflate);
        bytes zip = zip_of(&p, 1), packed = packed_bytes(&p);
        const size_t data = 30 + strlen("x.npy");
        const size_t last = packed.size - (size_t)deflate; /* deflate pads its last byte */
        for (size_t i = 0; i < last; i++) {
            zip.at[data + i] ^= 0x10;
            if (try_all("x.npz", &zip) != AB_INPUT) fail_msg("byte %zu may change", i);
            zip.at[data + i] ^= 0x10;
        }
        assert_int_equal(try_all("x.npz", &zip), AB_OK);
        bytes_free(&zip);
        bytes_free(&packed);
        bytes_free(&content);
    }
}

static void a_file_of_another_kind_than_its_name_says_is_refused(void **state) {
    (void)state;
    bytes array = ramp(3), header = {0};
    part p = honest("x.npy", &array, false);
    bytes zip = zip_of(&p, 1);
    put_number(&header, 2, 8);
    put_text(&header, "{}");
    assert_refused("x.npz", &array, "expected npz, as the name ends in .npz, found npy (rename it to *.npy)");
    assert_refused("x.npy", &zip, "expected npy, as the name ends in .npy, found npz");
    assert_refused("x.npy", &header, "found safetensors");
    assert_refused("x.safetensors", &zip,
                   "expected safetensors, as the name ends in .safetensors, found npz");
    assert_int_equal(try_all("array", &array), AB_OK);
    assert_int_equal(try_all("archive.bin", &zip), AB_OK);
    assert_int_equal(try_all("header.bin", &header), AB_OK);
    bytes_free(&array);
    bytes_free(&zip);
    bytes_free(&header);
}

/* The header of the array and the declared size agree with each other, the packed stream disagrees with both.
 */
static void a_stream_longer_or_shorter_than_declared_is_refused(void **state) {
    (void)state;
    static const char *const reasons[] = {"found more than declared", "more bytes, found the end"};
    for (int longer = 0; longer < 2; longer++) {
        bytes content = ramp(100);
        if (!longer)
            put_fill(&content, 0, 4); /* a surplus value in the stream */
        else
            content.size -= 4;
        part p = honest("x.npy", &content, true);
        p.declared_size = (int64_t)(longer ? content.size + 4 : content.size - 4);
        bytes zip = zip_of(&p, 1);
        assert_int_equal(try_all("x.npz", &zip), AB_INPUT);
        assert_non_null(strstr(ab_error_message(), reasons[longer]));
        bytes_free(&zip);
        bytes_free(&content);
    }
}

static void a_real_bomb_is_read_in_bounded_memory(void **state) {
    (void)state;
    enum { COUNT = 16 << 20 }; /* 64 MiB of zeros in 64 KiB */
    bytes content = npy_header("<f4", "(16777216,)");
    void *zeros = calloc(COUNT, 4);
    assert_non_null(zeros);
    put(&content, zeros, 4U * COUNT);
    free(zeros);
    part p = honest("x.npy", &content, true);
    bytes zip = zip_of(&p, 1);
    assert_true(zip.size < 100000);
    assert_int_equal(try_all("x.npz", &zip), AB_OK); /* honest about its size: streamed, never held */
    bytes_free(&zip);
    bytes_free(&content);
}

static void members_that_share_bytes_or_names_are_refused(void **state) {
    (void)state;
    bytes content = ramp(10);
    part parts[2] = {honest("a.npy", &content, true), honest("a.npy", &content, true)};
    bytes twins = zip_of(parts, 2);
    assert_refused("x.npz", &twins, "\"a.npy\" once, found it twice");
    parts[1].declared_local = 0; /* both entries point to the first member */
    bytes shared = zip_of(parts, 2);
    assert_refused("x.npz", &shared, "overlap");
    bytes_free(&twins);
    bytes_free(&shared);
    bytes_free(&content);
}

static void object_arrays_in_members_are_refused(void **state) {
    (void)state;
    for (int deflate = 0; deflate < 2; deflate++) {
        bytes content = npy_header("|O", "(1,)");
        put_fill(&content, 0, 8);
        part p = honest("pickled.npy", &content, deflate);
        bytes zip = zip_of(&p, 1);
        assert_refused("x.npz", &zip, "member \"pickled.npy\": expected numbers, found an object array");
        bytes_free(&zip);
        bytes_free(&content);
    }
}

static void headers_inside_members_are_bounded(void **state) {
    (void)state;
    for (int deflate = 0; deflate < 2; deflate++) {
        bytes content = {0};
        put(&content, "\x93NUMPY\2\0", 8);
        put_number(&content, 50U << 20, 4);
        put_fill(&content, ' ', 1000);
        part p = honest("x.npy", &content, deflate);
        bytes zip = zip_of(&p, 1);
        assert_refused("x.npz", &zip, "at most 1048576 bytes");
        content.at[8] = content.at[10] = content.at[11] = 0;
        content.at[9] = 0x10; /* 4,096: below the limit, beyond the member */
        bytes beyond = zip_of(&p, 1);
        assert_refused("x.npz", &beyond, "npy header: expected 4108 bytes, found 1012");
        content.size = 7;
        p.size = 7;
        bytes tiny = zip_of(&p, 1);
        assert_refused("x.npz", &tiny, "member \"x.npy\": expected a .npy array");
        bytes_free(&zip);
        bytes_free(&beyond);
        bytes_free(&tiny);
        bytes_free(&content);
    }
}

static void archives_without_arrays_say_what_they_are(void **state) {
    (void)state;
    bytes none = zip_of(NULL, 0), content = ramp(1);
    assert_refused("x.npz", &none, "expected .npy members, found none");
    part p = honest("archive/data.pkl", &content, false);
    bytes pickle = zip_of(&p, 1);
    assert_refused("model.npz", &pickle, "expected npz, as the name ends in .npz, found pt");
    bytes_free(&none);
    bytes_free(&content);
    bytes_free(&pickle);
}

static void directories_that_lie_are_refused(void **state) {
    (void)state;
    bytes content = ramp(3);
    part p = honest("x.npy", &content, false);
    static const struct {
        int from_end, width; /* what to overwrite in the end record */
        uint64_t number;
        const char *reason;
    } rows[] = {
        {12, 2, 2, "directory entries"},
        {12, 2, 0, "more entries than declared"},
        {10, 4, 5, "a directory that ends at"},
        {6, 4, 0, "a directory that ends at"},
        {6, 4, UINT32_MAX, "a directory that ends at"},
        {18, 2, 1, "a single volume"},
        {2, 2, 9, "expected an end record"},
        {22, 4, 0, "expected an end record"},
    };
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
        bytes zip = zip_of(&p, 1);
        for (int b = 0; b < rows[i].width; b++)
            zip.at[zip.size - (size_t)rows[i].from_end + (size_t)b] = (uint8_t)(rows[i].number >> (8 * b));
        assert_refused("x.npz", &zip, rows[i].reason);
        bytes_free(&zip);
    }
    bytes_free(&content);
}

static void damaged_files_never_crash(void **state) {
    (void)state;
    bytes content = ramp(3), other = npy_header(">f2", "(2, 2)");
    put_fill(&other, 0x3C, 8);
    part parts[2] = {honest("x.npy", &content, true), honest("y/z.npy", &other, false)};
    for (int zip64 = 0; zip64 < 2; zip64++) {
        parts[0].zip64 = parts[1].zip64 = zip64;
        bytes zip = zip_of(parts, 2);
        assert_every_truncation_refused("x.npz", &zip);
        assert_survives_byte_changes("x.npz", &zip);
        bytes_free(&zip);
    }
    bytes_free(&content);
    bytes_free(&other);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_that_numpy_wrote_are_read),
        cmocka_unit_test(members_that_are_no_arrays_are_left_alone),
        cmocka_unit_test(many_blocks_come_out_of_a_deflated_member),
        cmocka_unit_test(sizes_after_the_data_are_read),
        cmocka_unit_test(no_changed_byte_of_a_member_passes),
        cmocka_unit_test(a_file_of_another_kind_than_its_name_says_is_refused),
        cmocka_unit_test(names_that_climb_out_are_refused),
        cmocka_unit_test(declared_sizes_are_not_believed),
        cmocka_unit_test(a_stream_longer_or_shorter_than_declared_is_refused),
        cmocka_unit_test(a_real_bomb_is_read_in_bounded_memory),
        cmocka_unit_test(members_that_share_bytes_or_names_are_refused),
        cmocka_unit_test(object_arrays_in_members_are_refused),
        cmocka_unit_test(headers_inside_members_are_bounded),
        cmocka_unit_test(archives_without_arrays_say_what_they_are),
        cmocka_unit_test(directories_that_lie_are_refused),
        cmocka_unit_test(damaged_files_never_crash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
