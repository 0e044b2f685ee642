/* Streams a tensor's elements in blocks, decoded where the file's bytes cannot be used directly. Mapped
 * tensors are processed by several threads; packed ones are unpacked in order by one. Blocks and chunks are
 * the same in both cases. */
#define _DEFAULT_SOURCE /* madvise */

#include "bench/tensorfile/tensorfile.h"
#include "kernels/core/parallel.h"
#include "kernels/format/convert.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- decoding one block ---------------------------------------------------------------------- */

/* How blocks of a tensor are decoded for the visitor. */
typedef struct decoder {
    const ab_tensor_entry *entry;
    const ab_format *format; /* of the file's elements */
    int64_t item_bytes;
    bool direct;      /* the visitor gets the stored type: fp32, fp16, bf16 */
    bool swapped;     /* elements have the opposite byte order of this machine */
    float table[256]; /* values by code, for 8-bit formats */
} decoder;

static bool big_endian_host(void) {
    const uint16_t one = 1;
    uint8_t first;
    memcpy(&first, &one, 1);
    return first == 0;
}

static void decoder_init(decoder *d, const ab_tensor_entry *entry) {
    d->entry = entry;
    d->format = entry->element->format;
    d->item_bytes = entry->element->bits / 8;
    d->swapped = d->item_bytes > 1 && entry->big_endian != big_endian_host();
    d->direct = d->item_bytes == 2 || d->item_bytes == 4;
    if (d->item_bytes == 1)
        for (unsigned code = 0; code < 256; code++) d->table[code] = (float)ab_format_decode(d->format, code);
}

/* Copies n elements with swapped bytes, one function per width: compilers emit byte-swap instructions. */
static void copy_swapped2(uint8_t *dst, const uint8_t *src, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        uint16_t x;
        memcpy(&x, src + 2 * i, 2);
        x = (uint16_t)(x << 8 | x >> 8);
        memcpy(dst + 2 * i, &x, 2);
    }
}

static void copy_swapped4(uint8_t *dst, const uint8_t *src, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        uint32_t x;
        memcpy(&x, src + 4 * i, 4);
        x = x << 24 | (x & 0xFF00) << 8 | (x >> 8 & 0xFF00) | x >> 24;
        memcpy(dst + 4 * i, &x, 4);
    }
}

static void copy_swapped8(uint8_t *dst, const uint8_t *src, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        uint64_t x;
        memcpy(&x, src + 8 * i, 8);
        x = (x & 0x00FF00FF00FF00FF) << 8 | (x >> 8 & 0x00FF00FF00FF00FF);
        x = (x & 0x0000FFFF0000FFFF) << 16 | (x >> 16 & 0x0000FFFF0000FFFF);
        x = x << 32 | x >> 32;
        memcpy(dst + 8 * i, &x, 8);
    }
}

static void copy_swapped(uint8_t *dst, const uint8_t *src, int64_t n, int64_t width) {
    static void (*const copies[])(uint8_t * dst, const uint8_t *src, int64_t n) = {
        [2] = copy_swapped2, [4] = copy_swapped4, [8] = copy_swapped8};
    copies[width](dst, src, n);
}

/* fp64 -> fp32, counting what the rounding loses. */
static void round_doubles(float *dst, const double *src, ab_tensor_block *block) {
    for (int64_t i = 0; i < block->n; i++) {
        float value = (float)src[i];
        dst[i] = value;
        block->load_flushed += value == 0.0f && src[i] != 0.0;
        block->load_overflowed += isinf(value) && !isinf(src[i]);
    }
}

/* Scratch for one block at each stage: unpacked, swapped or realigned, widened. */
enum { STAGE_BYTES = 8, SCRATCH_BYTES = 2 * STAGE_BYTES + 4 };

/* Decodes the bytes at `raw` to `block`; `scratch` has room for `room` elements per stage. */
static void decode(const decoder *d, const uint8_t *raw, uint8_t *scratch, int64_t room,
                   ab_tensor_block *block) {
    const void *native = raw;
    uint8_t *stage = scratch ? scratch + STAGE_BYTES * room : NULL;
    if (d->swapped) {
        copy_swapped(stage, raw, block->n, d->item_bytes);
        native = stage;
    } else if ((uintptr_t)raw % (uintptr_t)d->item_bytes != 0) {
        native = memcpy(stage, raw, (size_t)(block->n * d->item_bytes));
    }
    block->format = d->direct ? d->format : &ab_format_fp32;
    block->data = native;
    if (d->direct) return;
    float *wide = (float *)(void *)(stage + STAGE_BYTES * room);
    if (d->item_bytes == 8)
        round_doubles(wide, native, block);
    else
        for (int64_t i = 0; i < block->n; i++) wide[i] = d->table[raw[i]];
    block->data = wide;
}

/* ---- elements that are not side by side -------------------------------------------------------- */

static void copy_apart(uint8_t *dst, const uint8_t *src, int64_t n, int64_t step, int64_t width) {
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < width; k++) dst[i * width + k] = src[i * step * width + k];
}

static void copy_apart2(uint8_t *dst, const uint8_t *src, int64_t n, int64_t step) {
    for (int64_t i = 0; i < n; i++) memcpy(dst + 2 * i, src + 2 * i * step, 2);
}

static void copy_apart4(uint8_t *dst, const uint8_t *src, int64_t n, int64_t step) {
    for (int64_t i = 0; i < n; i++) memcpy(dst + 4 * i, src + 4 * i * step, 4);
}

/* n elements of a row whose neighbours are `step` elements apart. */
static void copy_row(uint8_t *dst, const uint8_t *src, int64_t n, int64_t step, int64_t width) {
    if (step == 1)
        memcpy(dst, src, (size_t)(n * width));
    else if (width == 4)
        copy_apart4(dst, src, n, step);
    else if (width == 2)
        copy_apart2(dst, src, n, step);
    else
        copy_apart(dst, src, n, step, width);
}

/* Collects the elements [first, first + n) in the order of their indices. */
static void gather(const ab_tensor_entry *entry, const uint8_t *map, int64_t first, int64_t n, int64_t width,
                   uint8_t *dst) {
    const int last = entry->ndim - 1;
    int64_t index[AB_TENSORFILE_MAX_DIMS], at = 0;
    for (int d = last; d >= 0; d--) {
        index[d] = first % entry->dim[d];
        first /= entry->dim[d];
        at += index[d] * entry->stride[d];
    }
    while (n > 0) {
        const int64_t left = entry->dim[last] - index[last], row = left < n ? left : n;
        copy_row(dst, map + entry->offset + at * width, row, entry->stride[last], width);
        dst += row * width;
        n -= row;
        at += row * entry->stride[last];
        index[last] += row;
        for (int d = last; d > 0 && index[d] == entry->dim[d]; d--) { /* carry */
            at += entry->stride[d - 1] - index[d] * entry->stride[d];
            index[d] = 0;
            index[d - 1]++;
        }
    }
}

/* ---- walking the blocks ---------------------------------------------------------------------- */

static int64_t block_count(const ab_tensor_entry *entry) {
    return entry->count / AB_TENSORFILE_BLOCK + (entry->count % AB_TENSORFILE_BLOCK > 0);
}

int ab_tensorfile_chunks(const ab_tensor_entry *entry) {
    int64_t blocks = block_count(entry);
    return blocks < AB_TENSORFILE_CHUNKS ? (int)blocks : AB_TENSORFILE_CHUNKS;
}

typedef struct walk {
    const ab_tensorfile *file;
    const ab_block_visitor *visitor;
    decoder decoder;
    int64_t blocks;
    int chunks;
    int64_t room;     /* elements of the largest block, rounded up to keep the stages aligned */
    uint8_t *scratch; /* threads * SCRATCH_BYTES * room, or NULL when nothing needs decoding */
} walk;

static ab_tensor_block block_at(const walk *w, int64_t index) {
    int64_t first = index * AB_TENSORFILE_BLOCK, left = w->decoder.entry->count - first;
    return (ab_tensor_block){.first = first, .n = left < AB_TENSORFILE_BLOCK ? left : AB_TENSORFILE_BLOCK};
}

/* Chunks are as equal as whole blocks allow: chunk c has the blocks [first_block(c), first_block(c + 1)). */
static int64_t first_block(const walk *w, int chunk) {
    int64_t each = w->blocks / w->chunks, rest = w->blocks % w->chunks;
    return chunk * each + (chunk < rest ? chunk : rest);
}

void ab_tensorfile_release(const ab_tensorfile *file, int64_t from, int64_t to) {
    enum { STRETCH = 4 << 20 };
    if (!file->mapping || from / STRETCH == to / STRETCH) return;
    int64_t start = from / STRETCH * STRETCH;
    madvise((uint8_t *)file->mapping + start, (size_t)(to - start), MADV_DONTNEED);
}

static void walk_chunk(void *argument, int64_t chunk, int thread) {
    const walk *w = argument;
    int64_t bytes = w->decoder.item_bytes, end = first_block(w, (int)chunk + 1);
    uint8_t *scratch = w->scratch ? w->scratch + thread * SCRATCH_BYTES * w->room : NULL;
    for (int64_t b = first_block(w, (int)chunk); b < end; b++) {
        ab_tensor_block block = block_at(w, b);
        int64_t from = w->decoder.entry->offset + block.first * bytes;
        const bool apart = w->decoder.entry->stride != NULL;
        assert(scratch || !apart);
        if (apart) gather(w->decoder.entry, w->file->map, block.first, block.n, bytes, scratch);
        decode(&w->decoder, apart ? scratch : w->file->map + from, scratch, w->room, &block);
        w->visitor->see(w->visitor->context, (int)chunk, &block);
        if (!apart) ab_tensorfile_release(w->file, from, from + block.n * bytes);
    }
}

static ab_status walk_packed(const walk *w) {
    const ab_tensor_reader *reader = w->file->reader;
    void *state = NULL;
    AB_TRY(reader->unpack_begin(w->file, w->decoder.entry, &state));
    ab_status status = AB_OK;
    for (int chunk = 0; chunk < w->chunks && status == AB_OK; chunk++)
        for (int64_t b = first_block(w, chunk); b < first_block(w, chunk + 1) && status == AB_OK; b++) {
            ab_tensor_block block = block_at(w, b);
            status = reader->unpack(state, w->scratch, block.n * w->decoder.item_bytes);
            if (status != AB_OK) break;
            decode(&w->decoder, w->scratch, w->scratch, w->room, &block);
            w->visitor->see(w->visitor->context, chunk, &block);
            ab_tensorfile_release(w->file, w->decoder.entry->offset,
                                  w->decoder.entry->offset + w->decoder.entry->packed);
        }
    ab_status ended = reader->unpack_end(state, status == AB_OK);
    return status != AB_OK ? status : ended;
}

static bool needs_scratch(const walk *w) {
    const ab_tensor_entry *entry = w->decoder.entry;
    return entry->packed || entry->stride || w->decoder.swapped || !w->decoder.direct ||
           (uintptr_t)(w->file->map + entry->offset) % (uintptr_t)w->decoder.item_bytes != 0;
}

ab_status ab_tensorfile_stream(const ab_tensorfile *file, const ab_tensor_entry *entry,
                               const ab_block_visitor *visitor) {
    char name[AB_TENSORFILE_TEXT];
    const ab_tensorfile *other;
    const ab_tensor_entry *there;
    if (file->reader->elsewhere && file->reader->elsewhere(file, entry, &other, &there))
        return ab_tensorfile_stream(other, there, visitor); /* a part is no set: it ends there */
    ab_tensor_printable(entry->name, name);
    if (!entry->element->format)
        return ab_fail(AB_INPUT, "%s: tensor \"%s\": expected floating-point elements, found %s", file->path,
                       name, entry->dtype);
    AB_TRY(ab_tensorfile_check(file, entry));
    walk w = {.file = file, .visitor = visitor};
    decoder_init(&w.decoder, entry);
    w.blocks = block_count(entry);
    w.room = (entry->count < AB_TENSORFILE_BLOCK ? entry->count + 7 : AB_TENSORFILE_BLOCK) / 8 * 8;
    w.chunks = ab_tensorfile_chunks(entry);
    int threads = entry->packed ? 1 : ab_parallel_threads();
    size_t bytes = (size_t)w.room * SCRATCH_BYTES * (size_t)threads;
    if (bytes > 0 && needs_scratch(&w)) {
        w.scratch = aligned_alloc(64, (bytes + 63) / 64 * 64);
        if (!w.scratch)
            return ab_fail(AB_NO_MEMORY, "%s: out of memory for %zu bytes of blocks", file->path, bytes);
    }
    ab_status status = AB_OK;
    if (entry->packed)
        status = walk_packed(&w);
    else
        ab_parallel_for(w.chunks, walk_chunk, &w);
    free(w.scratch);
    return status == AB_OK ? AB_OK : ab_fail_prefix(status, "%s: tensor \"%s\"", file->path, name);
}

/* ---- a whole tensor -------------------------------------------------------------------------- */

static void copy_block(void *context, int chunk, const ab_tensor_block *block) {
    (void)chunk;
    ab_widen((float *)context + block->first, block->data, block->format, block->n);
}

ab_status ab_tensorfile_read(const ab_tensorfile *file, const ab_tensor_entry *entry, float *dst) {
    ab_block_visitor copy = {.context = dst, .see = copy_block};
    return ab_tensorfile_stream(file, entry, &copy);
}

static bool same_shape(const ab_tensor_entry *entry, const ab_shape *shape) {
    if (entry->ndim != shape->ndim) return false;
    for (int i = 0; i < shape->ndim; i++)
        if (entry->dim[i] != shape->dim[i]) return false;
    return true;
}

ab_status ab_tensorfile_read_as(const ab_tensorfile *file, const char *name, const ab_shape *shape,
                                float *dst) {
    const ab_tensor_entry *entry = NULL;
    AB_TRY(ab_tensorfile_find(file, name, &entry));
    char want[AB_SHAPE_TEXT], have[AB_TENSORFILE_TEXT];
    if (!same_shape(entry, shape))
        return ab_fail(AB_INPUT, "%s: tensor \"%s\": expected shape %s, found %s", file->path, name,
                       ab_shape_text(shape, want), ab_tensor_shape_text(entry, have));
    if (entry->fortran && entry->ndim > 1)
        return ab_fail(AB_INPUT, "%s: tensor \"%s\": expected row-major order, found column-major (Fortran)",
                       file->path, name);
    return ab_tensorfile_read(file, entry, dst);
}
