/* The IDX reader. Files are untrusted: every count is bounded before use, and trailing bytes are errors. */
#define _POSIX_C_SOURCE 200809L

#include "bench/data/idx.h"

#include "bench/data/gunzip.h"
#include "kernels/core/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

enum { PATH_BYTES = 1024, MAX_SIDE = 4096, MAX_DIMS = 3, HEADER_MOST = 4 + 4 * MAX_DIMS };
static const int64_t most_bytes = (int64_t)1 << 31; /* of one file's elements */
static const size_t first_block = (size_t)1 << 20;

typedef struct idx_file {
    char path[PATH_BYTES];
    gzFile stream; /* NULL if the whole file is unpacked in `block` */
    size_t next;   /* bytes of `block` read so far */
    int dims;
    int64_t dim[MAX_DIMS];
    ab_block block; /* owned until taken */
    uint8_t *bytes; /* the elements, in `block` */
} idx_file;

/* ---- file names ------------------------------------------------------------------------------ */

static const char *const prefixes[2][2] = {{"train", "train"}, {"t10k", "test"}};
static const char *const joints[] = {"-", "."}; /* "train-images-idx3-ubyte" and "train-images.idx3-ubyte" */
static const char *const endings[] = {"", ".gz"};

static bool exists(const char *path) {
    struct stat info;
    return stat(path, &info) == 0;
}

/* Finds the file of a split under any of its names; `kind` is "images" or "labels". */
static bool find_file(const char *directory, ab_split split, const char *kind, int dims, char *path) {
    for (size_t p = 0; p < 2; p++)
        for (size_t j = 0; j < AB_COUNT_OF(joints); j++)
            for (size_t e = 0; e < AB_COUNT_OF(endings); e++) {
                if (ab_text_fits(path, PATH_BYTES, "%s/%s-%s%sidx%d-ubyte%s", directory, prefixes[split][p],
                                 kind, joints[j], dims, endings[e]) &&
                    exists(path))
                    return true;
            }
    return false;
}

bool ab_idx_present(const char *directory) {
    char path[PATH_BYTES];
    return find_file(directory, AB_SPLIT_TRAIN, "images", 3, path);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static ab_status read_error(const idx_file *file) {
    int code = Z_OK;
    const char *text = gzerror(file->stream, &code);
    if (code == Z_ERRNO) text = strerror(errno);
    return ab_fail(AB_INPUT, "%s: expected a readable file, plain or gzip, found: %s", file->path, text);
}

static size_t unread(const idx_file *file) { return file->block.size - file->next; }

static void copy_some(idx_file *file, void *to, size_t n, size_t *got) {
    *got = n < unread(file) ? n : unread(file);
    memcpy(to, file->block.bytes + file->next, *got);
    file->next += *got;
}

/* Reads up to n bytes; fewer only at the end of the file. */
static ab_status read_some(idx_file *file, void *block, size_t n, size_t *got) {
    *got = 0;
    if (!file->stream) {
        copy_some(file, block, n, got);
        return AB_OK;
    }
    while (*got < n) {
        size_t rest = n - *got;
        int count =
            gzread(file->stream, (char *)block + *got, (unsigned)(rest < first_block ? rest : first_block));
        if (count < 0) return read_error(file);
        if (count == 0) break;
        *got += (size_t)count;
    }
    return AB_OK;
}

static uint32_t big_endian(const uint8_t *byte) {
    return (uint32_t)byte[0] << 24 | (uint32_t)byte[1] << 16 | (uint32_t)byte[2] << 8 | byte[3];
}

/* ---- header ---------------------------------------------------------------------------------- */

static ab_status check_dims(const idx_file *file) {
    int64_t bytes = file->dim[0];
    if (bytes < 1) return ab_fail(AB_INPUT, "%s: expected 1 or more samples, found 0", file->path);
    for (int i = 1; i < file->dims; i++) {
        if (file->dim[i] < 1 || file->dim[i] > MAX_SIDE)
            return ab_fail(AB_INPUT, "%s: expected images of 1 to %d pixels a side, found %lldx%lld",
                           file->path, (int)MAX_SIDE, (long long)file->dim[1], (long long)file->dim[2]);
        bytes *= file->dim[i];
    }
    if (bytes > most_bytes)
        return ab_fail(AB_INPUT, "%s: expected at most %lld bytes of data, found a header that says %lld",
                       file->path, (long long)most_bytes, (long long)bytes);
    return AB_OK;
}

static ab_status read_header(idx_file *file) {
    uint8_t header[HEADER_MOST] = {0};
    size_t bytes = 4 + 4 * (size_t)file->dims, got = 0;
    const uint32_t expected = 0x00000800u | (uint32_t)file->dims;
    AB_TRY(read_some(file, header, bytes, &got));
    uint32_t magic = got >= 4 ? big_endian(header) : expected;
    if (magic != expected)
        return ab_fail(AB_INPUT,
                       "%s: expected IDX magic 0x%08x (unsigned bytes, %d dimension%s), found 0x%08x",
                       file->path, expected, file->dims, file->dims == 1 ? "" : "s", magic);
    if (got < bytes)
        return ab_fail(AB_INPUT, "%s: expected an IDX header of %d bytes, found a file of %d", file->path,
                       (int)bytes, (int)got);
    for (int i = 0; i < file->dims; i++) file->dim[i] = big_endian(header + 4 * (size_t)(i + 1));
    return check_dims(file);
}

/* ---- elements -------------------------------------------------------------------------------- */

/* Reads one byte beyond the data: verifies that the file ends there, and makes zlib verify a gzip
 * checksum. */
static ab_status check_end(idx_file *file, int64_t total) {
    uint8_t extra;
    size_t got = 0;
    AB_TRY(read_some(file, &extra, 1, &got));
    if (got)
        return ab_fail(AB_INPUT, "%s: expected %lld bytes of data as the header says, found more", file->path,
                       (long long)total);
    int code = Z_OK;
    if (file->stream) gzerror(file->stream, &code);
    return code == Z_OK || code == Z_STREAM_END ? AB_OK : read_error(file);
}

static ab_status truncated(const idx_file *file, size_t wanted, size_t found) {
    return ab_fail(AB_INPUT, "%s: truncated: expected %zu bytes of data as the header says, found %zu",
                   file->path, wanted, found);
}

static size_t element_bytes(const idx_file *file) {
    size_t total = 1;
    for (int i = 0; i < file->dims; i++) total *= (size_t)file->dim[i];
    return total;
}

static ab_status read_elements(idx_file *file) {
    size_t wanted = element_bytes(file), filled = unread(file);
    if (file->stream) {
        AB_TRY(ab_block_create(&file->block, wanted, file->path));
        file->bytes = file->block.bytes;
        AB_TRY(read_some(file, file->bytes, wanted, &filled));
    } else {
        file->bytes = file->block.bytes + file->next;
        file->next += filled < wanted ? filled : wanted;
    }
    if (filled < wanted) return truncated(file, wanted, filled);
    return check_end(file, (int64_t)wanted);
}

static ab_status read_file(idx_file *file, const char *directory, ab_split split, const char *kind,
                           int dims) {
    file->dims = dims;
    if (!find_file(directory, split, kind, dims, file->path))
        return ab_fail(AB_INPUT, "%s: expected a file %s-%s-idx%d-ubyte or the same with .gz, found none",
                       directory, prefixes[split][0], kind, dims);
    if (!ab_gunzip_whole(file->path, (size_t)most_bytes + HEADER_MOST, &file->block)) {
        file->stream = gzopen(file->path, "rb");
        if (!file->stream) return ab_fail(AB_INPUT, "%s: cannot open: %s", file->path, strerror(errno));
        (void)gzbuffer(file->stream, 1 << 17);
    }
    AB_TRY(read_header(file));
    return read_elements(file);
}

static void close_file(idx_file *file) {
    if (file->stream) gzclose(file->stream);
    ab_block_free(&file->block);
}

static ab_block take_block(idx_file *file) {
    ab_block block = file->block;
    file->block.bytes = NULL;
    return block;
}

/* ---- a split --------------------------------------------------------------------------------- */

/* The training split sets the shape; the test split must match it. */
static ab_status check_shape(ab_data *data, const idx_file *images) {
    if (data->stored_height == 0) {
        data->stored_height = images->dim[1];
        data->stored_width = images->dim[2];
    }
    if (images->dim[1] == data->stored_height && images->dim[2] == data->stored_width) return AB_OK;
    return ab_fail(AB_INPUT, "%s: expected images of %lldx%lld as in the training set, found %lldx%lld",
                   images->path, (long long)data->stored_height, (long long)data->stored_width,
                   (long long)images->dim[1], (long long)images->dim[2]);
}

static ab_status check_labels(ab_data *data, const idx_file *labels) {
    const int64_t count = labels->dim[0];
    if (data->classes == 0)
        for (int64_t i = 0; i < count; i++)
            if (labels->bytes[i] >= data->classes) data->classes = labels->bytes[i] + 1;
    for (int64_t i = 0; i < count; i++)
        if (labels->bytes[i] >= data->classes)
            return ab_fail(AB_INPUT, "%s: expected labels from 0 to %lld, found %d at sample %lld",
                           labels->path, (long long)data->classes - 1, labels->bytes[i], (long long)i);
    return AB_OK;
}

static ab_status load_split(ab_data *data, const char *directory, ab_split split) {
    idx_file images = {.dims = 0}, labels = {.dims = 0};
    ab_status status = AB_OK;
    AB_TRY_GOTO(read_file(&labels, directory, split, "labels", 1));
    AB_TRY_GOTO(check_labels(data, &labels));
    AB_TRY_GOTO(read_file(&images, directory, split, "images", 3));
    AB_TRY_GOTO(check_shape(data, &images));
    if (images.dim[0] != labels.dim[0]) {
        status = ab_fail(AB_INPUT, "%s: expected %lld labels, one for each image of %s, found %lld",
                         labels.path, (long long)images.dim[0], images.path, (long long)labels.dim[0]);
        goto out;
    }
    data->split[split] = (ab_images){.count = images.dim[0],
                                     .pixel = images.bytes,
                                     .label = labels.bytes,
                                     .pixels = take_block(&images),
                                     .labels = take_block(&labels)};
out:
    close_file(&images);
    close_file(&labels);
    return status;
}

ab_status ab_idx_load(ab_data *data, const char *directory, int64_t classes) {
    data->classes = classes;
    data->channels = 1;
    ab_text_show(data->origin, sizeof data->origin, "%s", directory);
    AB_TRY(load_split(data, directory, AB_SPLIT_TRAIN));
    return load_split(data, directory, AB_SPLIT_TEST);
}
