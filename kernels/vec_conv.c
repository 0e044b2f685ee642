/* The loops of vec_conv.h. Each tile function is inlined once per size, so that its accumulators are registers. Products and sums
 * are fused where the CPU level has it. */
#include "kernels/vec_conv.h"

#define PASTE_TOKENS(a, b) a##b
#define PASTE(a, b) PASTE_TOKENS(a, b)

#if defined(__AVX2__)

#include <immintrin.h>
typedef __m256 oct;
static inline oct oct_set(float x) { return _mm256_set1_ps(x); }
static inline oct oct_load(const float *p) { return _mm256_loadu_ps(p); }
static inline void oct_store(float *p, oct v) { _mm256_storeu_ps(p, v); }
static inline oct oct_add(oct a, oct b) { return _mm256_add_ps(a, b); }
static inline oct oct_fma(oct a, oct b, oct c) { return _mm256_fmadd_ps(a, b, c); }

#else

typedef struct oct {
    float lane[AB_NARROW];
} oct;
static inline oct oct_set(float x) { return (oct){{x, x, x, x, x, x, x, x}}; }
static inline oct oct_load(const float *p) { return (oct){{p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7]}}; }
static inline void oct_store(float *p, oct v) {
    for (int i = 0; i < AB_NARROW; i++) p[i] = v.lane[i];
}
static inline oct oct_add(oct a, oct b) {
    for (int i = 0; i < AB_NARROW; i++) a.lane[i] += b.lane[i];
    return a;
}
static inline oct oct_fma(oct a, oct b, oct c) {
    for (int i = 0; i < AB_NARROW; i++) c.lane[i] += a.lane[i] * b.lane[i];
    return c;
}

#endif

enum {
    MAX_PIXELS = 10,
    MAX_RUN = 5,
#if defined(__AVX512F__)
    MAX_ROWS = 5 /* 25 accumulators of 32 registers */
#else
    MAX_ROWS = 2 /* 10 of 16 */
#endif
};

/* The sizes tiles are made for: a row is cut into tiles of `pixel_sizes` pixels, its sums into steps of `step_sizes` terms. */
enum { PIXEL_SIZES = 3, STEP_SIZES = 4 };
static const int64_t pixel_sizes[PIXEL_SIZES] = {MAX_PIXELS, 4, 1};
static const int64_t step_sizes[STEP_SIZES] = {8, 5, 3, 1};

/* Index of the first size that is at most `count`. */
static int pixels_fit(int64_t count) {
    int i = 0;
    while (pixel_sizes[i] > count) i++;
    return i;
}

/* Index of the first size that divides `run`. */
static int steps_fit(int64_t run) {
    int i = 0;
    while (run % step_sizes[i] != 0) i++;
    return i;
}

static oct load_lanes(const float *p, int64_t n) {
    float lanes[AB_NARROW] = {0};
    for (int64_t i = 0; i < n; i++) lanes[i] = p[i];
    return oct_load(lanes);
}

static void store_lanes(float *p, oct v, int64_t n) {
    float lanes[AB_NARROW];
    oct_store(lanes, v);
    for (int64_t i = 0; i < n; i++) p[i] = lanes[i];
}

/* ---- forward ---------------------------------------------------------------------------------------------- */

/* Pixels [x, x + count), `step` terms at a time. Lanes behind a pixel's channels are the next pixel's, stored after it. */
static AB_FORCE_INLINE void row_tile(const ab_narrow_row *job, int64_t x, const int count, const int step) {
    oct sum[MAX_PIXELS];
    for (int p = 0; p < count; p++) sum[p] = oct_load(job->bias);
    const float *w = job->weights;
    for (int64_t r = 0; r < job->rows; r++) {
        const float *in = job->in + r * job->row_step + x * job->step;
        for (int64_t j = 0; j < job->run; j += step, in += step)
            for (int t = 0; t < step; t++, w += AB_NARROW) {
                oct weight = oct_load(w);
                for (int p = 0; p < count; p++)
                    sum[p] = oct_fma(oct_set(in[p * job->step + t]), weight, sum[p]);
            }
    }
    float *out = job->out + x * job->channels;
    for (int p = 0; p < count - 1; p++) oct_store(out + p * job->channels, sum[p]);
    if (job->last && x + count == job->pixels)
        store_lanes(out + (count - 1) * job->channels, sum[count - 1], job->channels);
    else
        oct_store(out + (count - 1) * job->channels, sum[count - 1]);
}

static void row_10_8(const ab_narrow_row *job, int64_t x) { row_tile(job, x, 10, 8); }
static void row_10_5(const ab_narrow_row *job, int64_t x) { row_tile(job, x, 10, 5); }
static void row_10_3(const ab_narrow_row *job, int64_t x) { row_tile(job, x, 10, 3); }
static void row_10_1(const ab_narrow_row *job, int64_t x) { row_tile(job, x, 10, 1); }
static void row_4_8(const ab_narrow_row *job, int64_t x) { row_tile(job, x, 4, 8); }
static void row_4_5(const ab_narrow_row *job, int64_t x) { row_tile(job, x, 4, 5); }
static void row_4_3(const ab_narrow_row *job, int64_t x) { row_tile(job, x, 4, 3); }
static void row_4_1(const ab_narrow_row *job, int64_t x) { row_tile(job, x, 4, 1); }
static void row_1_8(const ab_narrow_row *job, int64_t x) { row_tile(job, x, 1, 8); }
static void row_1_5(const ab_narrow_row *job, int64_t x) { row_tile(job, x, 1, 5); }
static void row_1_3(const ab_narrow_row *job, int64_t x) { row_tile(job, x, 1, 3); }
static void row_1_1(const ab_narrow_row *job, int64_t x) { row_tile(job, x, 1, 1); }

/* The last tile of a row may overlap the one before it: the same sums are stored twice. */
static void row(const ab_narrow_row *job) {
    static void (*const tiles[PIXEL_SIZES][STEP_SIZES])(const ab_narrow_row *,
                                                        int64_t) = {{row_10_8, row_10_5, row_10_3, row_10_1},
                                                                    {row_4_8, row_4_5, row_4_3, row_4_1},
                                                                    {row_1_8, row_1_5, row_1_3, row_1_1}};
    int size = pixels_fit(job->pixels), step = steps_fit(job->run);
    int64_t count = pixel_sizes[size];
    for (int64_t x = 0; x < job->pixels; x += count)
        tiles[size][step](job, x + count <= job->pixels ? x : job->pixels - count);
}

/* ---- backward data ---------------------------------------------------------------------------------------- */

static AB_FORCE_INLINE void scatter_tile(const ab_narrow_scatter *job, int64_t x, const int count,
                                         const int step) {
    const float *w = job->weights;
    int64_t apart = job->step * AB_NARROW;
    for (int64_t k = 0; k < job->columns; k++) {
        const float *dout = job->dout + x * job->run;
        float *to = job->sum + (x * job->step + k) * AB_NARROW;
        oct sum[MAX_PIXELS];
        for (int p = 0; p < count; p++) sum[p] = oct_load(to + p * apart);
        for (int64_t j = 0; j < job->run; j += step, dout += step)
            for (int t = 0; t < step; t++, w += AB_NARROW) {
                oct weight = oct_load(w);
                for (int p = 0; p < count; p++)
                    sum[p] = oct_fma(oct_set(dout[p * job->run + t]), weight, sum[p]);
            }
        for (int p = 0; p < count; p++) oct_store(to + p * apart, sum[p]);
    }
}

static void scatter_10_8(const ab_narrow_scatter *job, int64_t x) { scatter_tile(job, x, 10, 8); }
static void scatter_10_5(const ab_narrow_scatter *job, int64_t x) { scatter_tile(job, x, 10, 5); }
static void scatter_10_3(const ab_narrow_scatter *job, int64_t x) { scatter_tile(job, x, 10, 3); }
static void scatter_10_1(const ab_narrow_scatter *job, int64_t x) { scatter_tile(job, x, 10, 1); }
static void scatter_4_8(const ab_narrow_scatter *job, int64_t x) { scatter_tile(job, x, 4, 8); }
static void scatter_4_5(const ab_narrow_scatter *job, int64_t x) { scatter_tile(job, x, 4, 5); }
static void scatter_4_3(const ab_narrow_scatter *job, int64_t x) { scatter_tile(job, x, 4, 3); }
static void scatter_4_1(const ab_narrow_scatter *job, int64_t x) { scatter_tile(job, x, 4, 1); }
static void scatter_1_8(const ab_narrow_scatter *job, int64_t x) { scatter_tile(job, x, 1, 8); }
static void scatter_1_5(const ab_narrow_scatter *job, int64_t x) { scatter_tile(job, x, 1, 5); }
static void scatter_1_3(const ab_narrow_scatter *job, int64_t x) { scatter_tile(job, x, 1, 3); }
static void scatter_1_1(const ab_narrow_scatter *job, int64_t x) { scatter_tile(job, x, 1, 1); }

static void scatter(const ab_narrow_scatter *job) {
    static void (*const tiles[PIXEL_SIZES][STEP_SIZES])(const ab_narrow_scatter *, int64_t) = {
        {scatter_10_8, scatter_10_5, scatter_10_3, scatter_10_1},
        {scatter_4_8, scatter_4_5, scatter_4_3, scatter_4_1},
        {scatter_1_8, scatter_1_5, scatter_1_3, scatter_1_1}};
    int step = steps_fit(job->run);
    for (int64_t x = 0, size; x < job->pixels; x += pixel_sizes[size]) {
        size = pixels_fit(job->pixels - x);
        tiles[size][step](job, x);
    }
}

/* ---- backward weights ------------------------------------------------------------------------------------- */

/* Kernel rows [r0, r0 + rows) and, of each, taps [j0, j0 + run). */
static AB_FORCE_INLINE void weights_tile(const ab_narrow_image *job, int64_t r0, int64_t j0, const int rows,
                                         const int run) {
    oct sum[MAX_ROWS * MAX_RUN];
    float *to = job->dweight + (r0 * job->run + j0) * AB_NARROW;
    int64_t last = job->height * job->width - 1;
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < run; j++) sum[r * run + j] = oct_load(to + (r * job->run + j) * AB_NARROW);
    for (int64_t y = 0, pixel = 0; y < job->height; y++) {
        const float *in = job->in + y * job->image_step + r0 * job->row_step + j0;
        for (int64_t x = 0; x < job->width; x++, pixel++, in += job->step) {
            const float *at = job->dout + pixel * job->channels;
            oct d = pixel == last ? load_lanes(at, job->channels) : oct_load(at);
            for (int r = 0; r < rows; r++)
                for (int j = 0; j < run; j++)
                    sum[r * run + j] = oct_fma(oct_set(in[r * job->row_step + j]), d, sum[r * run + j]);
        }
    }
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < run; j++) oct_store(to + (r * job->run + j) * AB_NARROW, sum[r * run + j]);
}

typedef void (*weights_part)(const ab_narrow_image *job, int64_t r0, int64_t j0);

static void block_1(const ab_narrow_image *job, int64_t r0, int64_t j0) {
    weights_tile(job, r0, j0, MAX_ROWS, 1);
}
static void block_2(const ab_narrow_image *job, int64_t r0, int64_t j0) {
    weights_tile(job, r0, j0, MAX_ROWS, 2);
}
static void block_3(const ab_narrow_image *job, int64_t r0, int64_t j0) {
    weights_tile(job, r0, j0, MAX_ROWS, 3);
}
static void block_4(const ab_narrow_image *job, int64_t r0, int64_t j0) {
    weights_tile(job, r0, j0, MAX_ROWS, 4);
}
static void block_5(const ab_narrow_image *job, int64_t r0, int64_t j0) {
    weights_tile(job, r0, j0, MAX_ROWS, 5);
}
static void line_1(const ab_narrow_image *job, int64_t r0, int64_t j0) { weights_tile(job, r0, j0, 1, 1); }
static void line_2(const ab_narrow_image *job, int64_t r0, int64_t j0) { weights_tile(job, r0, j0, 1, 2); }
static void line_3(const ab_narrow_image *job, int64_t r0, int64_t j0) { weights_tile(job, r0, j0, 1, 3); }
static void line_4(const ab_narrow_image *job, int64_t r0, int64_t j0) { weights_tile(job, r0, j0, 1, 4); }
static void line_5(const ab_narrow_image *job, int64_t r0, int64_t j0) { weights_tile(job, r0, j0, 1, 5); }

static void weights(const ab_narrow_image *job) {
    static const weights_part block[MAX_RUN + 1] = {0, block_1, block_2, block_3, block_4, block_5};
    static const weights_part line[MAX_RUN + 1] = {0, line_1, line_2, line_3, line_4, line_5};
    for (int64_t r = 0, rows; r < job->rows; r += rows) {
        rows = job->rows - r >= MAX_ROWS ? MAX_ROWS : 1;
        for (int64_t j = 0, run; j < job->run; j += run) {
            run = job->run - j < MAX_RUN ? job->run - j : MAX_RUN;
            (rows == MAX_ROWS ? block : line)[run](job, r, j);
        }
    }
}

extern const ab_vec_conv PASTE(ab_vec_conv_, AB_ISA_SUFFIX);
const ab_vec_conv PASTE(ab_vec_conv_, AB_ISA_SUFFIX) = {.row = row, .scatter = scatter, .weights = weights};
