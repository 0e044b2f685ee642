/* The census of arrays: splits them into blocks, widens stored formats, merges counts. The loops for large
 * arrays are in vec_census.c. */
#include "kernels/census/census.h"

#include "kernels/census/vec_census.h"
#include "kernels/format/convert.h"
#include "kernels/format/halves.h"
#include "kernels/format/stored.h"
#include "kernels/vec/isa.h"

#include <stdalign.h>
#include <stdbool.h>
#include <string.h>

enum { LOOPS_MIN = 1536 }; /* values; below this the setup of the vector loops costs more than it saves */

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

void ab_census_clear(ab_census *census) { memset(census, 0, sizeof *census); }

/* At most one block, value by value. */
static void add_part(ab_census *census, const ab_vec_census *loops, const float *values, int64_t n) {
    for (int64_t i = 0; i < n; i++) ab_census_count_value(census, values[i]);
    loops->note_extremes(census, values, n);
    loops->add_squares(census, values, n);
    census->count += n;
}

/* ---- arrays ---------------------------------------------------------------------------------- */

/* Source of the next values; widened and gathered into `values` unless contiguous fp32. */
typedef struct source {
    const unsigned char *data;
    const ab_format *format; /* as stored */
    int64_t stride;
    float values[AB_CENSUS_BLOCK];
} source;

static const float *widened(source *s, int64_t first, int64_t n) {
    size_t size = (size_t)s->format->storage_bytes;
    const unsigned char *from = s->data + first * s->stride * (int64_t)size;
    alignas(double) unsigned char gathered[AB_CENSUS_BLOCK * sizeof(double)];
    bool aligned = (uintptr_t)from % size == 0;
    if (s->stride == 1 && aligned && s->format == &ab_format_fp32) return (const float *)(const void *)from;
    if (s->stride == 1 && !aligned) memcpy(gathered, from, (size_t)n * size);
    for (int64_t i = 0; s->stride != 1 && i < n; i++)
        memcpy(gathered + (size_t)i * size, from + i * s->stride * (int64_t)size, size);
    ab_widen(s->values, s->stride == 1 && aligned ? from : gathered, s->format, n);
    return s->values;
}

/* Values below the smallest normal number of a format. */
static int64_t count_below(const ab_census *census, const ab_format *format) {
    int64_t count = 0;
    for (int e = AB_CENSUS_EMIN; e < format->emin; e++) count += ab_census_at(census, e);
    return count;
}

/* A full block: the values padded with zeros, which only add to the zero count. */
static const float *padded(source *s, const float *values, int64_t n) {
    if (n == AB_CENSUS_BLOCK) return values;
    if (values != s->values) memcpy(s->values, values, (size_t)n * sizeof *values);
    memset(s->values + n, 0, (size_t)(AB_CENSUS_BLOCK - n) * sizeof *values);
    return s->values;
}

/* Whether the loops accept the stored format without widening. */
static bool taken_as_stored(const source *s, const ab_vec_census *loops) {
    bool aligned = (uintptr_t)s->data % sizeof(uint16_t) == 0;
    return ab_is_half(s->format) && aligned && s->stride == 1 && loops->takes_halves;
}

/* The block at `first` of n values in all; widened, and padded at the end, if need be. */
static ab_census_values block_at(source *s, const ab_vec_census *loops, int64_t first, int64_t n) {
    int64_t part = smaller(AB_CENSUS_BLOCK, n - first), size = s->format->storage_bytes;
    ab_census_values v = {NULL, NULL, AB_STORED_FP32};
    if (part == AB_CENSUS_BLOCK && taken_as_stored(s, loops)) {
        v.stored = ab_stored_as(s->format);
        v.data = s->data + first * size;
    } else {
        v.data = padded(s, widened(s, first, part), part);
    }
    const int64_t distance = loops->distance[v.stored];
    if (v.data == s->data + first * size && (first + AB_CENSUS_BLOCK) * size + distance <= n * size)
        v.ahead = s->data + first * size + distance;
    return v;
}

static void add_in_blocks(ab_census *census, const ab_vec_census *loops, source *s, int64_t n) {
    alignas(64) unsigned char state[AB_CENSUS_STATE];
    int64_t padding = (AB_CENSUS_BLOCK - n % AB_CENSUS_BLOCK) % AB_CENSUS_BLOCK;
    loops->begin(state, census);
    for (int64_t i = 0; i < n; i += AB_CENSUS_BLOCK) {
        const ab_census_values values = block_at(s, loops, i, n);
        loops->block(state, &values);
    }
    loops->end(state);
    census->count -= padding;
    census->zero -= padding;
}

static void add_source(ab_census *census, source *s, const ab_format *own, int64_t n) {
    const ab_vec_census *loops = ab_vec_census_get();
    bool other = own->emin != ab_format_fp32.emin; /* fp32 subnormals differ from those of the format */
    int64_t subnormal = census->subnormal, before = other ? count_below(census, own) : 0;
    if (n >= LOOPS_MIN)
        add_in_blocks(census, loops, s, n);
    else if (n > 0)
        add_part(census, loops, widened(s, 0, n), n);
    if (other) census->subnormal = subnormal + count_below(census, own) - before;
}

void ab_census_add_strided(ab_census *census, const void *data, const ab_format *format, int64_t n,
                           int64_t stride) {
    source s;
    s.data = data;
    s.format = format->storage_bytes == 0 ? &ab_format_fp32 : format;
    s.stride = stride;
    add_source(census, &s, format, n);
}

void ab_census_add_stored(ab_census *census, const void *data, const ab_format *format, int64_t n) {
    ab_census_add_strided(census, data, format, n, 1);
}

void ab_census_add(ab_census *census, const float *values, int64_t n) {
    ab_census_add_strided(census, values, &ab_format_fp32, n, 1);
}

/* ---- totals ---------------------------------------------------------------------------------- */

void ab_census_merge(ab_census *into, const ab_census *from) {
    into->count += from->count;
    into->zero += from->zero;
    into->nan += from->nan;
    into->pos_inf += from->pos_inf;
    into->neg_inf += from->neg_inf;
    into->subnormal += from->subnormal;
    into->sum_squares += from->sum_squares;
    if (from->max_abs > into->max_abs) into->max_abs = from->max_abs;
    if (into->min_abs == 0.0f || (from->min_abs != 0.0f && from->min_abs < into->min_abs))
        into->min_abs = from->min_abs;
    for (int row = 0; row < AB_CENSUS_EXPONENTS; row++)
        for (int c = 0; c < AB_CENSUS_CLASSES; c++) into->bin[row][c] += from->bin[row][c];
}

int64_t ab_census_nonzero(const ab_census *census) {
    return census->count - census->zero - census->nan - census->pos_inf - census->neg_inf;
}

int64_t ab_census_at(const ab_census *census, int exponent) {
    int64_t sum = 0;
    if (exponent < AB_CENSUS_EMIN || exponent > AB_CENSUS_EMAX) return 0;
    for (int c = 0; c < AB_CENSUS_CLASSES; c++) sum += census->bin[exponent - AB_CENSUS_EMIN][c];
    return sum;
}

/* ---- CPU levels ------------------------------------------------------------------------------ */

#if defined(__x86_64__)

extern const ab_vec_census ab_vec_census_plain, ab_vec_census_avx2, ab_vec_census_avx512,
    ab_vec_census_avx512bitalg;

const ab_vec_census *ab_vec_census_get(void) {
    static const ab_vec_census *const tables[] = {[AB_ISA_PLAIN] = &ab_vec_census_plain,
                                                  [AB_ISA_AVX2] = &ab_vec_census_avx2,
                                                  [AB_ISA_AVX512] = &ab_vec_census_avx512,
                                                  [AB_ISA_AVX512_BITALG] = &ab_vec_census_avx512bitalg};
    return tables[ab_isa_get()];
}

#else

extern const ab_vec_census ab_vec_census_plain;

const ab_vec_census *ab_vec_census_get(void) { return &ab_vec_census_plain; }

#endif
