/* Writes .safetensors files atomically. */
#define _POSIX_C_SOURCE 200809L /* open_memstream */

#include "bench/tensorfile/json_scan.h"
#include "bench/tensorfile/safetensors.h"
#include "kernels/core/show.h"
#include "kernels/files/outfile.h"
#include "kernels/format/convert.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PREFIX_BYTES = 8 };

static void write_metadata(FILE *out, const char *const *pairs) {
    ab_json_put_text(out, AB_SAFETENSORS_METADATA);
    fputs(":{", out);
    for (int i = 0; pairs[i]; i += 2) {
        if (i > 0) fputc(',', out);
        ab_json_put_text(out, pairs[i]);
        fputc(':', out);
        ab_json_put_text(out, pairs[i + 1]);
    }
    fputc('}', out);
}

static bool is_half(const ab_format *format) {
    return format == &ab_format_fp16 || format == &ab_format_bf16;
}

static const char *dtype_of(const ab_format *format) {
    return !is_half(format) ? "F32" : format == &ab_format_fp16 ? "F16" : "BF16";
}

static int64_t item_bytes(const ab_safetensor_item *item) {
    return (is_half(item->format) ? 2 : 4) * ab_shape_count(&item->shape);
}

/* The header's JSON, padded with spaces to a multiple of 8 bytes. The caller frees *text, also after a
 * failure. */
static ab_status make_header(const ab_safetensor_item *items, int count, const char *const *metadata,
                             char **text, size_t *length) {
    *text = NULL;
    FILE *out = open_memstream(text, length);
    if (!out) return ab_fail(AB_NO_MEMORY, "out of memory for a header");
    int64_t offset = 0;
    fputc('{', out);
    if (metadata) write_metadata(out, metadata);
    for (int i = 0; i < count; i++) {
        char shape[AB_SHAPE_TEXT];
        if (i > 0 || metadata) fputc(',', out);
        ab_json_put_text(out, items[i].name);
        fprintf(out, ":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%" PRId64 ",%" PRId64 "]}",
                dtype_of(items[i].format), ab_shape_text(&items[i].shape, shape), offset,
                offset + item_bytes(&items[i]));
        offset += item_bytes(&items[i]);
    }
    fputc('}', out);
    for (long at = ftell(out); at % 8 != 0; at++) fputc(' ', out);
    bool failed = ferror(out) != 0;
    failed = fclose(out) != 0 || failed;
    return failed ? ab_fail(AB_NO_MEMORY, "out of memory for a header") : AB_OK;
}

static ab_status check_items(const ab_safetensor_item *items, int count) {
    const char **names = malloc((size_t)(count > 0 ? count : 1) * sizeof *names);
    if (!names) return ab_fail(AB_NO_MEMORY, "out of memory for %d names", count);
    ab_status status = AB_OK;
    for (int i = 0; i < count; i++) {
        names[i] = items[i].name;
        if (!ab_utf8_valid(names[i], strlen(names[i]), NULL) ||
            strcmp(names[i], AB_SAFETENSORS_METADATA) == 0)
            status = ab_fail(AB_INTERNAL, "a tensor cannot be called \"%s\" in a safetensors file", names[i]);
    }
    const char *name = status == AB_OK ? ab_tensor_duplicate(names, count) : NULL;
    if (name) status = ab_fail(AB_INTERNAL, "two tensors are called \"%s\"", name);
    free(names);
    return status;
}

/* Writes fp32 values as little-endian bytes, in chunks. */
static void write_floats(FILE *out, const float *values, int64_t n) {
    enum { STRETCH = 4096 };
    uint8_t bytes[4 * STRETCH];
    for (int64_t done = 0; done < n && !ferror(out); done += STRETCH) {
        int64_t part = n - done < STRETCH ? n - done : STRETCH;
        for (int64_t i = 0; i < part; i++) {
            uint32_t bits = 0;
            memcpy(&bits, &values[done + i], sizeof bits);
            for (int b = 0; b < 4; b++) bytes[4 * i + b] = (uint8_t)(bits >> (8 * b));
        }
        fwrite(bytes, 4, (size_t)part, out);
    }
}

/* The same of values that are rounded to a half format. */
static void write_halves(FILE *out, const ab_format *format, const float *values, int64_t n) {
    enum { STRETCH = 4096 };
    uint16_t half[STRETCH];
    uint8_t bytes[2 * STRETCH];
    for (int64_t done = 0; done < n && !ferror(out); done += STRETCH) {
        int64_t part = n - done < STRETCH ? n - done : STRETCH;
        ab_narrow(half, format, values + done, part);
        for (int64_t i = 0; i < 2 * part; i++) bytes[i] = (uint8_t)(half[i / 2] >> (8 * (i % 2)));
        fwrite(bytes, 2, (size_t)part, out);
    }
}

static void write_values(FILE *out, const ab_safetensor_item *item) {
    const int64_t n = ab_shape_count(&item->shape);
    if (is_half(item->format))
        write_halves(out, item->format, item->data, n);
    else
        write_floats(out, item->data, n);
}

static void write_all(FILE *out, const char *header, size_t length, const ab_safetensor_item *items,
                      int count) {
    for (int b = 0; b < PREFIX_BYTES; b++) fputc((int)(length >> (8 * b) & 0xFF), out);
    fwrite(header, 1, length, out);
    for (int i = 0; i < count; i++) write_values(out, &items[i]);
}

ab_status ab_safetensors_write(const char *path, const ab_safetensor_item *items, int count,
                               const char *const *metadata) {
    struct stat info;
    ab_outfile out = {0};
    char *header = NULL;
    size_t length = 0;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode)) /* a reader maps the file */
        return ab_fail(AB_OUTPUT, "%s: expected a regular file or none, found something else", path);
    ab_status status = check_items(items, count);
    if (status == AB_OK) status = make_header(items, count, metadata, &header, &length);
    if (status != AB_OK) {
        free(header);
        return ab_fail_prefix(status, "%s", path);
    }
    status = ab_outfile_open(path, &out);
    if (status == AB_OK) write_all(out.stream, header, length, items, count);
    free(header);
    return ab_outfile_close(&out, status);
}
