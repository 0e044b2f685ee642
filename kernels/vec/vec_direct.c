/* The loops of vec_direct.h. A tile is inlined once per number of pixels (or of values, for weight
 * gradients), so that its sums stay in registers; a row is cut into tiles whose sizes differ by at most one.
 */
#include "kernels/vec/vec_direct.h"

#include "kernels/vec/isa.h"
#include "kernels/vec/vec_wide.h"

#if defined(__AVX2__)

/* Pixels of a tile with one and with two vectors of channels; the same for values of a weight gradient. */
#if defined(__AVX512F__)
enum { MOST_1 = 16, MOST_2 = 8 };
#else
enum { MOST_1 = 0, MOST_2 = 6 };
#endif
enum { MOST = 16, CHANNELS = 16 };

/* Part i of n nearly equal parts of `whole` begins here. */
static inline int64_t part_begin(int64_t whole, int64_t parts, int64_t i) { return whole * i / parts; }

/* ---- rows of results --------------------------------------------------------------------------- */

/* A tile of a row: `origin` of value 0 of its first pixel in job->in, which may be negative where that value
 * lies before the image; values left out at its first and last pixel. */
typedef struct row_tile {
    int64_t origin, head, tail;
    float *out;
} row_tile;

/* n values of the pixels from the `from`-th to before the `to`-th, the first of which are at `in`. */
static AB_FORCE_INLINE void add_run(wide (*sum)[2], const float *in, int64_t step, const float *weights,
                                    int64_t n, const int from, const int to, const int vectors) {
    for (int64_t k = 0; k < n; k++, weights += vectors * LANES) {
        wide line[2];
        for (int v = 0; v < vectors; v++) line[v] = wide_load(weights + v * LANES);
#pragma GCC unroll 16
        for (int p = from; p < to; p++) {
            const float a = in[(p - from) * step + k];
            for (int v = 0; v < vectors; v++) sum[p][v] = wide_fma(a, line[v], sum[p][v]);
        }
    }
}

static AB_FORCE_INLINE void start_row(const ab_direct_row *job, const row_tile *t, wide (*sum)[2],
                                      const int pixels, const int vectors) {
#pragma GCC unroll 16
    for (int p = 0; p < pixels; p++)
        for (int v = 0; v < vectors; v++)
            sum[p][v] = job->continues ? wide_load(t->out + p * job->out_step + v * LANES)
                        : job->bias    ? wide_load(job->bias + v * LANES)
                                       : wide_zero();
}

static AB_FORCE_INLINE void sum_row(const ab_direct_row *job, const row_tile *t, const int64_t step,
                                    const int pixels, const int vectors) {
    wide sum[MOST][2];
    const int64_t width = vectors * LANES, middle = job->run - t->head - t->tail;
    const float *weights = job->weights;
    start_row(job, t, sum, pixels, vectors);
    for (int64_t r = 0; r < job->rows; r++) {
        const float *in = job->in + r * job->row_step;
        if (pixels > 1) add_run(sum, in + (t->origin + step), step, weights, t->head, 1, pixels, vectors);
        weights += t->head * width;
        add_run(sum, in + (t->origin + t->head), step, weights, middle, 0, pixels, vectors);
        weights += middle * width;
        if (pixels > 1)
            add_run(sum, in + (t->origin + t->head + middle), step, weights, t->tail, 0, pixels - 1, vectors);
        weights += t->tail * width;
    }
#pragma GCC unroll 16
    for (int p = 0; p < pixels; p++)
        for (int v = 0; v < vectors; v++) wide_store(t->out + p * job->out_step + v * LANES, sum[p][v]);
}

/* With a step that the compiler knows all pixels are addressed from one pointer. */
#define ROW_1(pixels)                                                                                        \
    static void row_1_##pixels(const ab_direct_row *job, const row_tile *t) {                                \
        if (job->step == CHANNELS)                                                                           \
            sum_row(job, t, CHANNELS, pixels, 1);                                                            \
        else                                                                                                 \
            sum_row(job, t, job->step, pixels, 1);                                                           \
    }
#define ROW_2(pixels)                                                                                        \
    static void row_2_##pixels(const ab_direct_row *job, const row_tile *t) {                                \
        sum_row(job, t, job->step, pixels, 2);                                                               \
    }

/* ---- weight gradients -------------------------------------------------------------------------- */

/* Values [j, j + values) of the run, over pixels [first, end) of every row. */
static AB_FORCE_INLINE void sum_values(const ab_direct_weights *job, int64_t j, int64_t first, int64_t end,
                                       const int values, const int vectors) {
    wide sum[MOST][2];
    float *sums = job->sums + j * vectors * LANES;
#pragma GCC unroll 16
    for (int i = 0; i < values; i++)
        for (int v = 0; v < vectors; v++) sum[i][v] = wide_load(sums + (i * vectors + v) * LANES);
    for (int64_t y = 0; y < job->height; y++) {
        const float *in = job->in + (y * job->image_step + first * job->step + j - job->head);
        const float *dout = job->dout + y * job->dout_row + first * job->dout_step;
        for (int64_t x = first; x < end; x++, in += job->step, dout += job->dout_step) {
            wide line[2];
            for (int v = 0; v < vectors; v++) line[v] = wide_load(dout + v * LANES);
#pragma GCC unroll 16
            for (int i = 0; i < values; i++)
                for (int v = 0; v < vectors; v++) sum[i][v] = wide_fma(in[i], line[v], sum[i][v]);
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < values; i++)
        for (int v = 0; v < vectors; v++) wide_store(sums + (i * vectors + v) * LANES, sum[i][v]);
}

#define VALUES(vectors, values)                                                                              \
    static void values_##vectors##_##values(const ab_direct_weights *job, int64_t j, int64_t first,          \
                                            int64_t end) {                                                   \
        sum_values(job, j, first, end, values, vectors);                                                     \
    }

/* ---- tables ------------------------------------------------------------------------------------ */

#define TO_6(each) each(1) each(2) each(3) each(4) each(5) each(6)
#define TO_8(each) TO_6(each) each(7) each(8)
#define TO_16(each) TO_8(each) each(9) each(10) each(11) each(12) each(13) each(14) each(15) each(16)
#define VALUES_1(values) VALUES(1, values)
#define VALUES_2(values) VALUES(2, values)
#define NAME_ROW_1(pixels) row_1_##pixels,
#define NAME_ROW_2(pixels) row_2_##pixels,
#define NAME_VALUES_1(values) values_1_##values,
#define NAME_VALUES_2(values) values_2_##values,

typedef void (*row_function)(const ab_direct_row *job, const row_tile *t);
typedef void (*values_function)(const ab_direct_weights *job, int64_t j, int64_t first, int64_t end);

#if defined(__AVX512F__)
TO_16(ROW_1)
TO_8(ROW_2)
TO_16(VALUES_1)
TO_8(VALUES_2)
static const row_function rows_1[] = {TO_16(NAME_ROW_1)}, rows_2[] = {TO_8(NAME_ROW_2)};
static const values_function values_1[] = {TO_16(NAME_VALUES_1)}, values_2[] = {TO_8(NAME_VALUES_2)};
#else
TO_6(ROW_2)
TO_6(VALUES_2)
static const row_function *const rows_1 = 0, rows_2[] = {TO_6(NAME_ROW_2)};
static const values_function *const values_1 = 0, values_2[] = {TO_6(NAME_VALUES_2)};
#endif

static int64_t block(int64_t channels) {
    if (channels % AB_DIRECT_STEP != 0) return 0;
    return channels % (2 * LANES) == 0 ? 2 * LANES : LANES;
}

/* Two vectors; always where two of them are the least block. */
static inline bool is_pair(int64_t channels) { return 2 * LANES <= AB_DIRECT_STEP || channels == 2 * LANES; }

static void row(const ab_direct_row *job) {
    const bool pair = is_pair(job->block);
    const row_function *tiles = pair ? rows_2 : rows_1;
    const int64_t most = pair ? MOST_2 : MOST_1, parts = (job->pixels + most - 1) / most;
    for (int64_t i = 0; i < parts; i++) {
        const int64_t x = part_begin(job->pixels, parts, i), end = part_begin(job->pixels, parts, i + 1);
        const row_tile t = {.origin = x * job->step - job->head,
                            .head = i == 0 ? job->head : 0,
                            .tail = i == parts - 1 ? job->tail : 0,
                            .out = job->out + x * job->out_step};
        tiles[end - x - 1](job, &t);
    }
}

static void weights(const ab_direct_weights *job) {
    const bool pair = is_pair(job->block);
    const values_function *tiles = pair ? values_2 : values_1;
    const int64_t most = pair ? MOST_2 : MOST_1, parts = (job->unit + most - 1) / most;
    for (int64_t begin = 0; begin < job->run; begin += job->unit) {
        const int64_t first = begin < job->head ? 1 : 0,
                      end = job->pixels - (begin >= job->run - job->tail ? 1 : 0);
        for (int64_t i = 0; i < parts; i++) {
            const int64_t j = part_begin(job->unit, parts, i), next = part_begin(job->unit, parts, i + 1);
            tiles[next - j - 1](job, begin + j, first, end);
        }
    }
}

#else

static int64_t block(int64_t channels) {
    (void)channels;
    return 0;
}

/* Never called. */
static void row(const ab_direct_row *job) { (void)job; }
static void weights(const ab_direct_weights *job) { (void)job; }

#endif

AB_ISA_TABLE(ab_vec_direct) = {.block = block, .row = row, .weights = weights};
