/* The loops of vec_panel.h. The tile function is inlined once per width, so that its accumulators stay in
 * registers. */
#include "kernels/vec/vec_panel.h"

#define PASTE_TOKENS(a, b) a##b
#define PASTE(a, b) PASTE_TOKENS(a, b)

#if defined(__AVX512F__)

#include <immintrin.h>
enum { LANES = 16, MAX_VECTORS = 4 }; /* 24 accumulators of 32 registers */
typedef __m512 wide;
static inline wide wide_zero(void) { return _mm512_setzero_ps(); }
static inline wide wide_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void wide_store(float *p, wide v) { _mm512_storeu_ps(p, v); }
static inline wide wide_fma(float a, wide b, wide c) { return _mm512_fmadd_ps(_mm512_set1_ps(a), b, c); }

#elif defined(__AVX2__)

#include <immintrin.h>
enum { LANES = 8, MAX_VECTORS = 2 }; /* 12 of 16 */
typedef __m256 wide;
static inline wide wide_zero(void) { return _mm256_setzero_ps(); }
static inline wide wide_load(const float *p) { return _mm256_loadu_ps(p); }
static inline void wide_store(float *p, wide v) { _mm256_storeu_ps(p, v); }
static inline wide wide_fma(float a, wide b, wide c) { return _mm256_fmadd_ps(_mm256_set1_ps(a), b, c); }

#else

enum { LANES = 4, MAX_VECTORS = 1 };
typedef struct wide {
    float lane[LANES];
} wide;
static inline wide wide_zero(void) { return (wide){{0.0f, 0.0f, 0.0f, 0.0f}}; }
static inline wide wide_load(const float *p) { return (wide){{p[0], p[1], p[2], p[3]}}; }
static inline void wide_store(float *p, wide v) {
    for (int i = 0; i < LANES; i++) p[i] = v.lane[i];
}
static inline wide wide_fma(float a, wide b, wide c) {
    for (int i = 0; i < LANES; i++) c.lane[i] += a * b.lane[i];
    return c;
}

#endif

enum { WIDEST = LANES * MAX_VECTORS };

/* `vectors` vectors of columns from `at` on. Rows past the last repeat it. */
static AB_FORCE_INLINE void columns_tile(const ab_panel_tile *job, int64_t at, const int vectors) {
    wide sum[AB_PANEL_ROWS][MAX_VECTORS];
    const float *row[AB_PANEL_ROWS], *panel = job->panel + at;
    for (int r = 0; r < AB_PANEL_ROWS; r++) {
        row[r] = job->a + (r < job->rows ? r : job->rows - 1) * job->inner;
        for (int v = 0; v < vectors; v++) sum[r][v] = wide_zero();
    }
    for (int64_t k = 0; k < job->inner; k++, panel += AB_PANEL) {
        wide b[MAX_VECTORS];
        for (int v = 0; v < vectors; v++) b[v] = wide_load(panel + v * LANES);
        for (int r = 0; r < AB_PANEL_ROWS; r++) {
            const float a = row[r][k];
            for (int v = 0; v < vectors; v++) sum[r][v] = wide_fma(a, b[v], sum[r][v]);
        }
    }
    for (int r = 0; r < AB_PANEL_ROWS; r++)
        for (int v = 0; v < vectors; v++) wide_store(job->c + r * AB_PANEL + at + v * LANES, sum[r][v]);
}

static void widest(const ab_panel_tile *job, int64_t at) { columns_tile(job, at, MAX_VECTORS); }
static void narrowest(const ab_panel_tile *job, int64_t at) { columns_tile(job, at, 1); }

static void tile(const ab_panel_tile *job) {
    int64_t at = 0;
    for (; at + WIDEST <= job->columns; at += WIDEST) widest(job, at);
    for (; at < job->columns; at += LANES) narrowest(job, at);
}

/* Blocks of four by four, which stay in registers. */
static void transpose(float *dst, int64_t dst_step, const float *src, int64_t src_step, int64_t rows,
                      int64_t columns) {
    enum { SIDE = 4 };
    int64_t r = 0;
    for (; r + SIDE <= rows; r += SIDE) {
        int64_t c = 0;
#if defined(__AVX2__)
        for (; c + SIDE <= columns; c += SIDE) {
            const float *from = src + r * src_step + c;
            __m128 a = _mm_loadu_ps(from), b = _mm_loadu_ps(from + src_step);
            __m128 x = _mm_loadu_ps(from + 2 * src_step), y = _mm_loadu_ps(from + 3 * src_step);
            _MM_TRANSPOSE4_PS(a, b, x, y);
            float *to = dst + c * dst_step + r;
            _mm_storeu_ps(to, a);
            _mm_storeu_ps(to + dst_step, b);
            _mm_storeu_ps(to + 2 * dst_step, x);
            _mm_storeu_ps(to + 3 * dst_step, y);
        }
#endif
        for (; c < columns; c++)
            for (int64_t i = r; i < r + SIDE; i++) dst[c * dst_step + i] = src[i * src_step + c];
    }
    for (; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) dst[c * dst_step + r] = src[r * src_step + c];
}

extern const ab_vec_panel PASTE(ab_vec_panel_, AB_ISA_SUFFIX);
const ab_vec_panel PASTE(ab_vec_panel_, AB_ISA_SUFFIX) = {.tile = tile, .transpose = transpose};
