/* Mutates binary inputs and keeps what makes a reader refuse them at once: lengths of headers, checksums,
 * directories. */
#include "tests/fuzz/fuzz.h"

#include "bench/tensorfile/zip.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { MOST = 1 << 16, MOST_MEMBERS = 8, NAME = 64 };

size_t fuzz_mutate_bytes(uint8_t *data, size_t size, size_t most, unsigned seed) {
    (void)seed;
    return LLVMFuzzerMutate(data, size, most);
}

static void put16(uint8_t *at, size_t value) {
    at[0] = (uint8_t)value;
    at[1] = (uint8_t)(value >> 8);
}

static void put32(uint8_t *at, size_t value) {
    put16(at, value);
    put16(at + 2, value >> 16);
}

/* ---- npy ------------------------------------------------------------------------------------- */

/* A header of random parts; returns its length. *bytes becomes the size of the data that it promises. */
static size_t compose_header(char *header, size_t most, size_t *bytes, unsigned *state) {
    static const char *const types[] = {"<f4", "<f2", "<f8", ">f4", ">f2", ">f8", "|u1",
                                        "<i4", "<i8", ">i2", "|b1", "<u2", "<U3", "|S2",
                                        "=f4", "<c8", "|O",  "|V2", "f4",  "<f16"};
    static const uint8_t sizes[] = {4, 2, 8, 4, 2, 8, 1, 4, 8, 2, 1, 2, 12, 2, 4, 8, 8, 2, 4, 16};
    static const char *const orders[] = {"False", "True"};
    static const char *const shapes[] = {"()",           "(3,)",          "(2, 3)",    "(0, 4)",
                                         "(1, 1, 1, 1)", "(6,)",          "(2, 2, 2)", "(2, 6, 6)",
                                         "(1, 6, 6, 1)", "(9999999999,)", "(-1,)",     "(4, 3)"};
    static const uint8_t counts[] = {1, 3, 6, 0, 1, 6, 8, 72, 36, 9, 1, 12};
    const unsigned type = fuzz_random(state, sizeof sizes), shape = fuzz_random(state, sizeof counts);
    int length = snprintf(header, most, "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }", types[type],
                          orders[fuzz_random(state, 2)], shapes[shape]);
    *bytes = (size_t)sizes[type] * counts[shape];
    return (size_t)length < most ? (size_t)length : most - 1;
}

/* Mutates one .npy file: its header's text or its data; the header's length is put right. */
size_t fuzz_mutate_npy(uint8_t *data, size_t size, size_t most, unsigned seed) {
    static uint8_t body[MOST];
    char header[512];
    unsigned state = seed;
    const size_t old =
        size >= 10 && memcmp(data, "\x93NUMPY\x01", 7) == 0 ? (size_t)data[8] | (size_t)data[9] << 8 : 0;
    if (!old || old > size - 10 || old >= sizeof header || size > MOST || most < 200)
        return LLVMFuzzerMutate(data, size, most);
    size_t length = old, bytes = size - 10 - old;
    memcpy(header, data + 10, old);
    memcpy(body, data + 10 + old, bytes);
    while (length > 0 && (header[length - 1] == ' ' || header[length - 1] == '\n')) length--;
    const unsigned way = fuzz_random(&state, 4);
    if (way == 0) {
        const size_t had = bytes;
        length = compose_header(header, sizeof header, &bytes, &state);
        if (bytes > had) memset(body + had, 0x3c, bytes - had);
    }
    if (way == 1) length = LLVMFuzzerMutate((uint8_t *)header, length, sizeof header - 70);
    while ((10 + length + 1) % 64 && length < sizeof header - 2) header[length++] = ' ';
    header[length++] = '\n';
    if (10 + length >= most) return LLVMFuzzerMutate(data, size, most);
    if (bytes > most - 10 - length) bytes = most - 10 - length;
    if (way == 3) bytes = LLVMFuzzerMutate(body, bytes, most - 10 - length);
    if (way == 2 && bytes > 0) body[fuzz_random(&state, (unsigned)bytes)] = (uint8_t)fuzz_random(&state, 256);
    put16(data + 8, length);
    memcpy(data + 10, header, length);
    memcpy(data + 10 + length, body, bytes);
    return 10 + length + bytes;
}

/* ---- zip ------------------------------------------------------------------------------------- */

typedef struct member {
    char name[NAME];
    uint8_t *byte; /* owned; [MOST] */
    size_t size;
    bool deflated;
} member;

static bool unpack_member(const uint8_t *data, const ab_zip_member *from, member *to) {
    if (from->size > MOST || from->name_bytes >= NAME) return false;
    memcpy(to->name, from->name, from->name_bytes);
    to->name[from->name_bytes] = '\0';
    to->size = (size_t)from->size;
    to->deflated = from->deflated;
    to->byte = malloc(MOST);
    fuzz_insist(to->byte != NULL);
    if (!from->deflated) {
        memcpy(to->byte, data + from->data, to->size);
        return true;
    }
    ab_zip_stream *stream = NULL;
    bool fine =
        ab_zip_open(data, from, &stream) == AB_OK && ab_zip_read(stream, to->byte, from->size) == AB_OK;
    ab_zip_close(stream);
    return fine;
}

/* Returns the number of members, 0 if the archive cannot be read. */
static int unpack_zip(const uint8_t *data, size_t size, member *members) {
    ab_zip_member *list = NULL;
    int64_t count = 0;
    int taken = 0;
    if (!ab_zip_recognise(data, (int64_t)size) || ab_zip_list(data, (int64_t)size, &list, &count) != AB_OK)
        return 0;
    for (int64_t i = 0; i < count && taken < MOST_MEMBERS; i++) {
        members[taken].byte = NULL;
        if (unpack_member(data, &list[i], &members[taken]))
            taken++;
        else
            free(members[taken].byte);
    }
    free(list);
    return taken;
}

/* Writes the fields that a local header and a directory entry share, from "version needed" on: 26 bytes. */
static void put_common(uint8_t *at, const member *m, size_t packed) {
    memset(at, 0, 26);
    put16(at, 20);
    put16(at + 4, m->deflated ? 8 : 0);
    put32(at + 10, crc32(0, m->byte, (unsigned)m->size));
    put32(at + 14, packed);
    put32(at + 18, m->size);
    put16(at + 22, strlen(m->name));
}

static size_t pack_member(const member *m, uint8_t *out, size_t most) {
    if (!m->deflated) {
        if (m->size > most) return 0;
        memcpy(out, m->byte, m->size);
        return m->size;
    }
    z_stream z = {
        .next_in = m->byte, .avail_in = (unsigned)m->size, .next_out = out, .avail_out = (unsigned)most};
    if (deflateInit2(&z, 1, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY) != Z_OK) return 0;
    const int result = deflate(&z, Z_FINISH);
    deflateEnd(&z);
    return result == Z_STREAM_END ? z.total_out : 0;
}

/* Returns the archive's size, 0 if it does not fit. */
static size_t pack_zip(const member *members, int count, uint8_t *out, size_t most) {
    uint8_t directory[MOST_MEMBERS * (46 + NAME)];
    size_t at = 0, listed = 0;
    for (int i = 0; i < count; i++) {
        const member *m = &members[i];
        const size_t name = strlen(m->name), head = 30 + name, start = at;
        if (at + head + m->size + 64 > most) return 0;
        const size_t packed = pack_member(m, out + at + head, most - at - head);
        memcpy(out + at, "PK\3\4", 4);
        put_common(out + at + 4, m, packed);
        memcpy(out + at + 30, m->name, name);
        at += head + packed;
        memset(directory + listed, 0, 46);
        memcpy(directory + listed, "PK\1\2\x14", 5);
        put_common(directory + listed + 6, m, packed);
        put32(directory + listed + 42, start);
        memcpy(directory + listed + 46, m->name, name);
        listed += 46 + name;
    }
    if (at + listed + 22 > most) return 0;
    memcpy(out + at, directory, listed);
    uint8_t *end = out + at + listed;
    memset(end, 0, 22);
    memcpy(end, "PK\5\6", 4);
    put16(end + 8, (size_t)count);
    put16(end + 10, (size_t)count);
    put32(end + 12, listed);
    put32(end + 16, at);
    return at + listed + 22;
}

static void mutate_member(member *m, size_t most, unsigned *state) {
    switch (fuzz_random(state, 6)) {
    case 0:
        m->deflated = !m->deflated;
        break;
    case 1: {
        const size_t length = LLVMFuzzerMutate((uint8_t *)m->name, strlen(m->name), NAME - 1);
        m->name[length] = '\0';
        break;
    }
    default:
        m->size = fuzz_mutate_npy(m->byte, m->size, most, *state);
        break;
    }
}

/* Mutates a member of an archive, or the list of members, and writes the archive anew with its checksums. */
size_t fuzz_mutate_zip(uint8_t *data, size_t size, size_t most, unsigned seed) {
    static uint8_t out[MOST];
    member members[MOST_MEMBERS];
    unsigned state = seed;
    int count = unpack_zip(data, size, members);
    if (count == 0) return LLVMFuzzerMutate(data, size, most);
    mutate_member(&members[fuzz_random(&state, (unsigned)count)], most / 2, &state);
    const int kept = count > 1 && fuzz_random(&state, 8) == 0 ? count - 1 : count;
    size_t written = pack_zip(members, kept, out, most < MOST ? most : MOST);
    for (int i = 0; i < count; i++) free(members[i].byte);
    if (written) memcpy(data, out, written);
    return written ? written : LLVMFuzzerMutate(data, size, most);
}

/* ---- safetensors ----------------------------------------------------------------------------- */

static double bytes_of(const cJSON *entry) {
    static const struct {
        const char *name;
        double bytes;
    } types[] = {{"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8},
                 {"I32", 4}, {"I16", 2}, {"U8", 1},  {"BOOL", 1}};
    const char *type = cJSON_GetStringValue(cJSON_GetObjectItem(entry, "dtype"));
    double bytes = 1;
    for (size_t i = 0; type && i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, type) == 0) bytes = types[i].bytes;
    const cJSON *dim;
    cJSON_ArrayForEach(dim, cJSON_GetObjectItem(entry, "shape")) bytes *= dim->valuedouble;
    return bytes >= 0 && bytes < MOST ? bytes : 0;
}

/* Places the tensors of a header one after the other. Returns the bytes of their data. */
static size_t place_tensors(cJSON *header) {
    double at = 0;
    cJSON *entry;
    cJSON_ArrayForEach(entry, header) {
        if (!cJSON_GetObjectItem(entry, "data_offsets")) continue;
        const double ends[2] = {at, at + bytes_of(entry)};
        cJSON_ReplaceItemInObject(entry, "data_offsets", cJSON_CreateDoubleArray(ends, 2));
        at = ends[1];
    }
    return (size_t)at;
}

/* Mutates the header as JSON, places its tensors anew three times out of four, and puts its length right. */
size_t fuzz_mutate_safetensors(uint8_t *data, size_t size, size_t most, unsigned seed) {
    static uint8_t header[MOST], body[MOST];
    unsigned state = seed;
    const size_t old = size >= 8 ? (size_t)data[0] | (size_t)data[1] << 8 | (size_t)data[2] << 16 : 0;
    if (old < 2 || old > size - 8 || size > MOST || most > MOST || fuzz_random(&state, 6) == 0)
        return LLVMFuzzerMutate(data, size, most);
    size_t bytes = size - 8 - old, length = old;
    memcpy(header, data + 8, old);
    memcpy(body, data + 8 + old, bytes);
    length = fuzz_mutate_json(header, old, most - 8, state);
    const char *at = (const char *)header;
    cJSON *tree = fuzz_random(&state, 4) ? fuzz_next_json(&at, at + length) : NULL;
    if (tree) {
        const size_t placed = place_tensors(tree), wanted = placed < MOST ? placed : MOST;
        if (wanted > bytes) memset(body + bytes, 0x3c, wanted - bytes);
        bytes = wanted;
        if (cJSON_PrintPreallocated(tree, (char *)header, (int)most - 8, 0)) length = strlen((char *)header);
    }
    cJSON_Delete(tree);
    if (8 + length > most) length = most - 8;
    if (bytes > most - 8 - length) bytes = most - 8 - length;
    memset(data, 0, 8);
    put32(data, length);
    memcpy(data + 8, header, length);
    memcpy(data + 8 + length, body, bytes);
    return 8 + length + bytes;
}

/* ---- inputs of several files ----------------------------------------------------------------- */

enum { MOST_PARTS = 8 };

static size_t split(const uint8_t *data, size_t size, fuzz_part *part) {
    const uint8_t *at = data, *end = data + size;
    size_t count = 0;
    while (at < end && count < MOST_PARTS) part[count++] = fuzz_next_part(&at, end);
    return count;
}

/* Makes an IDX header say what follows it, or puts random numbers there. */
static void mend_idx(uint8_t *byte, size_t size, unsigned *state) {
    if (size < 8 || byte[0] || byte[1] || byte[2] != 8) return;
    const size_t head = byte[3] == 3 ? 16 : 8;
    if (size < head) return;
    size_t pixels = head == 16 ? (size_t)byte[11] * byte[15] : 1;
    if (pixels == 0) byte[11] = byte[15] = 2, pixels = 4;
    const size_t samples = fuzz_random(state, 4) ? (size - head) / pixels : fuzz_random(state, 20);
    byte[4] = byte[5] = 0;
    byte[6] = (uint8_t)(samples >> 8);
    byte[7] = (uint8_t)samples;
}

static size_t mutate_part(uint8_t *byte, size_t size, size_t most, unsigned *state) {
    if (size > 7 && memcmp(byte, "\x93NUMPY\x01", 7) == 0) return fuzz_mutate_npy(byte, size, most, *state);
    if (size > 4 && memcmp(byte, "PK\3\4", 4) == 0) return fuzz_mutate_zip(byte, size, most, *state);
    if (size > 10 && byte[8] == '{') return fuzz_mutate_safetensors(byte, size, most, *state);
    const bool idx = size >= 8 && !byte[0] && !byte[1] && byte[2] == 8;
    const size_t head = idx && fuzz_random(state, 4) ? 8 : 0;
    size = head + LLVMFuzzerMutate(byte + head, size - head, most - head);
    if (idx) mend_idx(byte, size, state);
    return size;
}

/* Mutates one file of the input, or exchanges two. */
size_t fuzz_mutate_files(uint8_t *data, size_t size, size_t most, unsigned seed) {
    static uint8_t out[MOST], one[MOST];
    fuzz_part part[MOST_PARTS];
    unsigned state = seed;
    const size_t count = split(data, size, part);
    if (count == 0 || most > MOST || size > most) return LLVMFuzzerMutate(data, size, most);
    const size_t chosen = fuzz_random(&state, (unsigned)count), room = most - size > 256 ? 256 : most - size;
    const bool copies = fuzz_random(&state, 16) == 0;
    fuzz_part changed = part[fuzz_random(&state, (unsigned)count)];
    if (!copies) {
        memcpy(one, part[chosen].byte, part[chosen].size);
        changed = (fuzz_part){one, mutate_part(one, part[chosen].size, part[chosen].size + room, &state)};
    }
    part[chosen] = changed;
    size_t at = 0;
    for (size_t i = 0; i < count && at + 2 + part[i].size <= most; i++) {
        put16(out + at, part[i].size);
        memcpy(out + at + 2, part[i].byte, part[i].size);
        at += 2 + part[i].size;
    }
    memcpy(data, out, at);
    return at;
}
