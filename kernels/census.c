/* The census of arrays: cutting them into blocks, widening stored formats, merging. Counting is in vec_census.c. */
#include "kernels/census.h"

#include "kernels/convert.h"

#include <string.h>

enum { LANES = 16 };

static uint32_t bits_of(float x) {
    uint32_t bits = 0;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits) {
    float x = 0.0f;
    memcpy(&x, &bits, sizeof x);
    return x;
}

void ab_census_clear(ab_census *census) { memset(census, 0, sizeof *census); }

static void count_special(ab_census *census, uint32_t bits) {
    uint32_t magnitude = bits & 0x7fffffffu;
    census->zero += magnitude == 0;
    census->nan += magnitude > 0x7f800000u;
    census->pos_inf += bits == 0x7f800000u;
    census->neg_inf += bits == 0xff800000u;
}

static void widen_range(ab_census *census, uint32_t magnitude) {
    float x = float_of(magnitude);
    if (x > census->max_abs) census->max_abs = x;
    if (census->min_abs == 0.0f || x < census->min_abs) census->min_abs = x;
}

static void add_block(ab_census *census, const float *values, int64_t n) {
    double lane[LANES] = {0};
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = bits_of(values[i]);
        uint32_t magnitude = bits & 0x7fffffffu;
        if (magnitude == 0 || magnitude >= 0x7f800000u) {
            count_special(census, bits);
            continue;
        }
        ab_census_place place = ab_census_bin(magnitude);
        census->bin[place.row][place.column]++;
        census->subnormal += magnitude < 0x00800000u;
        widen_range(census, magnitude);
        lane[i % LANES] += (double)values[i] * (double)values[i];
    }
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int j = 0; j < width; j++) lane[j] += lane[j + width];
    census->count += n;
    census->sum_squares += lane[0];
}

void ab_census_add(ab_census *census, const float *values, int64_t n) {
    for (int64_t i = 0; i < n; i += AB_CENSUS_BLOCK)
        add_block(census, values + i, n - i < AB_CENSUS_BLOCK ? n - i : AB_CENSUS_BLOCK);
}

/* Non-zero magnitudes below the format's smallest normal. */
static int64_t count_subnormal(const float *values, int64_t n, const ab_format *format) {
    uint32_t limit = bits_of((float)ab_format_min_normal(format));
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) count += (bits_of(values[i]) & 0x7fffffffu) - 1u < limit - 1u;
    return count;
}

static void gather(unsigned char *to, const unsigned char *from, size_t size, int64_t n, int64_t stride) {
    for (int64_t i = 0; i < n; i++) memcpy(to + (size_t)i * size, from + i * stride * (int64_t)size, size);
}

void ab_census_add_strided(ab_census *census, const void *data, const ab_format *format, int64_t n,
                           int64_t stride) {
    const unsigned char *bytes = data;
    const ab_format *stored = format->storage_bytes == 0 ? &ab_format_fp32 : format;
    size_t size = (size_t)stored->storage_bytes;
    unsigned char packed[AB_CENSUS_BLOCK * sizeof(double)];
    float values[AB_CENSUS_BLOCK];
    for (int64_t done = 0; done < n; done += AB_CENSUS_BLOCK) {
        int64_t part = n - done < AB_CENSUS_BLOCK ? n - done : AB_CENSUS_BLOCK;
        const unsigned char *from = bytes + done * stride * (int64_t)size;
        int64_t subnormal = census->subnormal;
        if (stride != 1) gather(packed, from, size, part, stride);
        ab_widen(values, stride == 1 ? from : packed, stored, part);
        add_block(census, values, part);
        if (format != &ab_format_fp32) census->subnormal = subnormal + count_subnormal(values, part, format);
    }
}

void ab_census_add_stored(ab_census *census, const void *data, const ab_format *format, int64_t n) {
    if (format == &ab_format_fp32)
        ab_census_add(census, data, n);
    else
        ab_census_add_strided(census, data, format, n, 1);
}

void ab_census_merge(ab_census *into, const ab_census *from) {
    into->count += from->count;
    into->zero += from->zero;
    into->nan += from->nan;
    into->pos_inf += from->pos_inf;
    into->neg_inf += from->neg_inf;
    into->subnormal += from->subnormal;
    into->sum_squares += from->sum_squares;
    if (from->max_abs != 0.0f) {
        widen_range(into, bits_of(from->min_abs));
        widen_range(into, bits_of(from->max_abs));
    }
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
