/* The loops of vec_norm_rows.h. Sums use 16 lanes, which are joined as a binary tree, and double across
 * spans, as in kernels/vec/vec_math.c. */
#include "kernels/ops/norm/vec_norm_rows.h"

#include "kernels/vec/isa.h"

#define AB_EIGHT_LANES 1 /* sixteen bf16 codes fill a vector of AVX2 */
#include "kernels/ops/norm/vec_stored.h"

#include <math.h>

/* SPAN: values added in fp32 before the sum goes on in double. AHEAD, BACK: most rows at once, as many as
 * registers hold sums of. */
#if defined(__AVX512VL__)
enum { SPAN = 1024, AHEAD = 8, BACK = 4 };
#else
enum { SPAN = 1024, AHEAD = 4, BACK = 2 };
#endif

enum { FEW = 4 }; /* rows ahead of fp32 */

enum { VECS = AB_NORM_STEP / LANES };

/* The formats of x and dx, and of y and dy. */
typedef struct formats {
    ab_stored in, out;
} formats;

/* ---- steps of AB_NORM_STEP values ------------------------------------------------------------- */

/* `paired`: in the order of load_two, as rows of other operands are put by `pair`. */

#if defined(AB_NORM_BLOCKS)

static AB_FORCE_INLINE bool paired(formats f) { return f.in == AB_STORED_BF16 && f.out == AB_STORED_BF16; }

static AB_FORCE_INLINE void load_step(wide *to, const void *p, int64_t at, ab_stored stored, formats f) {
    if (paired(f)) {
        const two x = load_two(p, at, stored);
        for (int i = 0; i < VECS; i++) to[i] = x.v[i];
    } else {
        for (int i = 0; i < VECS; i++) to[i] = load(p, at + i * LANES, LANES, stored);
    }
}

static AB_FORCE_INLINE void store_step(void *p, int64_t at, const wide *v, ab_stored stored, formats f) {
    if (stored == AB_STORED_BF16 && !paired(f))
        store_codes((uint16_t *)p + at, narrowed_bf16_16(v[0], v[1]));
    else
        store_two(p, at, (two){{v[0], v[1]}}, false, stored);
}

/* Sum of the values as a binary tree: of i and i + 8, then of i and i + 4, 2 and 1. */
static AB_FORCE_INLINE float join(const wide *sums, formats f) {
    const two x = {{sums[0], sums[1]}}, y = paired(f) ? in_turns(x) : x;
    return wide_join(wide_add(y.v[0], y.v[1]));
}

static void pair(float *row, int64_t n) {
    for (int64_t i = 0; i < n; i += AB_NORM_STEP) store_values(row + i, even_and_odd(load_values(row + i)));
}

static void part(float *row, int64_t n) {
    for (int64_t i = 0; i < n; i += AB_NORM_STEP) store_values(row + i, in_turns(load_values(row + i)));
}

#else

static AB_FORCE_INLINE void load_step(wide *to, const void *p, int64_t at, ab_stored stored, formats f) {
    (void)f;
    for (int i = 0; i < VECS; i++) to[i] = load(p, at + i * LANES, LANES, stored);
}

static AB_FORCE_INLINE void store_step(void *p, int64_t at, const wide *v, ab_stored stored, formats f) {
    (void)f;
    for (int i = 0; i < VECS; i++) store(p, at + i * LANES, v[i], LANES, stored);
}

static AB_FORCE_INLINE float join(const wide *sums, formats f) {
    (void)f;
    return wide_join(wide_add(wide_add(sums[0], sums[2]), wide_add(sums[1], sums[3])));
}

static void pair(float *row, int64_t n) { (void)row, (void)n; }
static void part(float *row, int64_t n) { (void)row, (void)n; }

#endif

static AB_FORCE_INLINE void load_x(wide *to, const void *p, int64_t at, formats f) {
    load_step(to, p, at, f.in, f);
}

static AB_FORCE_INLINE void load_y(wide *to, const void *p, int64_t at, formats f) {
    load_step(to, p, at, f.out, f);
}

/* Rows at once. fp32 comes from memory more often, and many rows in turns are no stream that a CPU fetches
 * ahead. */
static AB_FORCE_INLINE int rows_ahead(formats f) {
    const int fewer = f.in == AB_STORED_FP32;
    return AHEAD - fewer * (AHEAD - FEW);
}
static AB_FORCE_INLINE int rows_back(formats f) { return f.in == AB_STORED_FP32 ? 1 : BACK; }

static AB_FORCE_INLINE wide row_at(const float *row, int64_t c, int v) {
    return wide_load(row + c + v * LANES);
}

/* ---- forward --------------------------------------------------------------------------------- */

typedef enum term { VALUE, SQUARE, DEVIATION } term;

/* total[r] = sum over row r of its values, of their squares, or of (value - mean[r])^2. */
static AB_FORCE_INLINE void sum_rows(const void *x, int64_t at, int64_t n, int rows, term of,
                                     const float *mean, double *total, formats f) {
    for (int r = 0; r < rows; r++) total[r] = 0.0;
    for (int64_t first = 0; first < n; first += SPAN) {
        const int64_t end = first + SPAN < n ? first + SPAN : n;
        wide sums[AHEAD][VECS], value[VECS];
        for (int r = 0; r < rows; r++)
            for (int v = 0; v < VECS; v++) sums[r][v] = wide_set(0.0f);
        for (int64_t i = first; i < end; i += AB_NORM_STEP)
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++) {
                load_x(value, x, at + r * n + i, f);
#pragma GCC unroll 4
                for (int v = 0; v < VECS; v++) {
                    if (of == DEVIATION) value[v] = wide_sub(value[v], wide_set(mean[r]));
                    if (of != VALUE) value[v] = wide_mul(value[v], value[v]);
                    sums[r][v] = wide_add(sums[r][v], value[v]);
                }
            }
        for (int r = 0; r < rows; r++) total[r] += (double)join(sums[r], f);
    }
}

/* Row after row: stores to several rows in turns cost more than the loads of weights that they save. */
static AB_FORCE_INLINE void normalise(const ab_norm_forward *p, int64_t at, float mean, float rstd,
                                      bool biased, formats f) {
    const wide m = wide_set(mean), s = wide_set(rstd);
    wide y[VECS];
    for (int64_t c = 0; c < p->n; c += AB_NORM_STEP) {
        load_x(y, p->x, at + c, f);
#pragma GCC unroll 4
        for (int v = 0; v < VECS; v++) {
            y[v] = wide_mul(wide_mul(wide_sub(y[v], m), s), row_at(p->weight, c, v));
            if (biased) y[v] = wide_add(y[v], row_at(p->bias, c, v));
        }
        store_step(p->y, at + c, y, f.out, f);
    }
}

typedef struct statistics {
    float mean[AHEAD], rstd[AHEAD];
} statistics;

static AB_FORCE_INLINE void find_means(const ab_norm_forward *p, int64_t first, int rows, statistics *s,
                                       formats f) {
    double total[AHEAD];
    if (p->centred) sum_rows(p->x, first * p->n, p->n, rows, VALUE, NULL, total, f);
    for (int r = 0; r < rows; r++) s->mean[r] = p->centred ? (float)(total[r] / (double)p->n) : 0.0f;
}

/* Squared deviations are rounded to fp32 once, before they are divided. */
static AB_FORCE_INLINE void find_deviations(const ab_norm_forward *p, int64_t first, int rows, statistics *s,
                                            formats f) {
    double total[AHEAD];
    float squares[AHEAD];
    if (p->centred)
        sum_rows(p->x, first * p->n, p->n, rows, DEVIATION, s->mean, total, f);
    else
        sum_rows(p->x, first * p->n, p->n, rows, SQUARE, NULL, total, f);
    for (int r = 0; r < rows; r++) squares[r] = (float)total[r];
    for (int r = 0; r < rows; r++) {
        const double sum = p->centred ? (double)squares[r] : total[r];
        s->rstd[r] = (float)(1.0 / sqrt(sum / (double)p->n + p->eps));
    }
}

static AB_FORCE_INLINE void normalise_rows(const ab_norm_forward *p, int64_t first, int rows,
                                           const statistics *s, formats f) {
    for (int r = 0; r < rows; r++)
        if (p->bias)
            normalise(p, (first + r) * p->n, s->mean[r], s->rstd[r], true, f);
        else
            normalise(p, (first + r) * p->n, s->mean[r], s->rstd[r], false, f);
    for (int r = 0; r < rows && p->mean; r++) p->mean[first + r] = s->mean[r];
    for (int r = 0; r < rows && p->rstd; r++) p->rstd[first + r] = s->rstd[r];
}

/* Rows are normalised while the means of the next ones are on their way, whose chain of joined sums and a
 * division takes as long as some rows; the roots' chain is behind the sums of those after.
 *
 * The copy stays in registers: to a compiler, stores of vectors could change what a pointer points to. */
static AB_FORCE_INLINE void forward(const ab_norm_forward *pass, formats f) {
    const ab_norm_forward p = *pass;
    const int ahead = rows_ahead(f);
    const int64_t whole = p.rows - p.rows % ahead;
    statistics now, next = {{0}, {0}};
    for (int64_t row = -ahead; row < whole; row += ahead) {
        const bool more = row + ahead < whole;
        now = next;
        if (more) find_means(&p, row + ahead, ahead, &next, f);
        if (row >= 0) normalise_rows(&p, row, ahead, &now, f);
        if (more) find_deviations(&p, row + ahead, ahead, &next, f);
    }
    for (int64_t row = whole; row < p.rows; row++) {
        find_means(&p, row, 1, &now, f);
        find_deviations(&p, row, 1, &now, f);
        normalise_rows(&p, row, 1, &now, f);
    }
}

/* ---- backward -------------------------------------------------------------------------------- */

/* Of rows at once: statistics, and the means of dy weight and of dy weight xhat. */
typedef struct back_rows {
    float mean[BACK], rstd[BACK], by_sum[BACK], by_dot[BACK];
} back_rows;

/* Their sums on the way. */
typedef struct sums_back {
    wide sums[BACK][VECS], dots[BACK][VECS];
} sums_back;

/* Adds the terms of sixteen columns to the sums, and dy xhat and dy to the gradients of the parameters. */
static AB_FORCE_INLINE void add_terms(const ab_norm_backward *p, int64_t at, int64_t c, int rows,
                                      const back_rows *of, sums_back *s, formats f) {
    wide weight[VECS], dweight[VECS], dbias[VECS], x[VECS], dy[VECS];
    for (int v = 0; v < VECS; v++) {
        weight[v] = row_at(p->weight, c, v);
        dweight[v] = row_at(p->dweight, c, v);
        dbias[v] = row_at(p->dbias, c, v);
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        load_x(x, p->x, at + r * p->n + c, f);
        load_y(dy, p->dy, at + r * p->n + c, f);
#pragma GCC unroll 4
        for (int v = 0; v < VECS; v++) {
            const wide pulled = wide_mul(dy[v], weight[v]),
                       xhat = wide_mul(wide_sub(x[v], wide_set(of->mean[r])), wide_set(of->rstd[r]));
            s->sums[r][v] = wide_add(s->sums[r][v], pulled);
            s->dots[r][v] = wide_add(s->dots[r][v], wide_mul(pulled, xhat));
            dweight[v] = wide_add(dweight[v], wide_mul(dy[v], xhat));
            dbias[v] = wide_add(dbias[v], dy[v]);
        }
    }
    for (int v = 0; v < VECS; v++) {
        wide_store(p->dweight + c + v * LANES, dweight[v]);
        wide_store(p->dbias + c + v * LANES, dbias[v]);
    }
}

static AB_FORCE_INLINE void sum_gradients(const ab_norm_backward *p, int64_t at, int rows, back_rows *of,
                                          formats f) {
    double sum[BACK] = {0}, dot[BACK] = {0};
    for (int64_t first = 0; first < p->n; first += SPAN) {
        const int64_t end = first + SPAN < p->n ? first + SPAN : p->n;
        sums_back s;
        for (int r = 0; r < rows; r++)
            for (int v = 0; v < VECS; v++) s.sums[r][v] = s.dots[r][v] = wide_set(0.0f);
        for (int64_t c = first; c < end; c += AB_NORM_STEP) add_terms(p, at, c, rows, of, &s, f);
        for (int r = 0; r < rows; r++) {
            sum[r] += (double)join(s.sums[r], f);
            dot[r] += (double)join(s.dots[r], f);
        }
    }
    for (int r = 0; r < rows; r++) {
        of->by_sum[r] = p->centred ? (float)(sum[r] / (double)p->n) : 0.0f;
        of->by_dot[r] = (float)(dot[r] / (double)p->n);
    }
}

/* by_sum, by_dot: a row's means of dy weight and of dy weight xhat. */
static AB_FORCE_INLINE void gradient(const ab_norm_backward *p, int64_t at, float mean, float rstd,
                                     float by_sum, float by_dot, formats f) {
    const wide m = wide_set(mean), s = wide_set(rstd), sum = wide_set(by_sum), dot = wide_set(by_dot);
    wide x[VECS], dy[VECS];
    for (int64_t c = 0; c < p->n; c += AB_NORM_STEP) {
        load_x(x, p->x, at + c, f);
        load_y(dy, p->dy, at + c, f);
#pragma GCC unroll 4
        for (int v = 0; v < VECS; v++) {
            const wide pulled = wide_mul(dy[v], row_at(p->weight, c, v)),
                       part = wide_mul(wide_mul(wide_sub(x[v], m), s), dot);
            x[v] = wide_mul(s, wide_sub(wide_sub(pulled, sum), part));
        }
        store_step(p->dx, at + c, x, f.in, f);
    }
}

static AB_FORCE_INLINE void sum_rows_back(const ab_norm_backward *p, int64_t first, int rows, back_rows *s,
                                          formats f) {
    for (int r = 0; r < rows; r++) {
        s->mean[r] = p->mean ? p->mean[first + r] : 0.0f;
        s->rstd[r] = p->rstd[first + r];
    }
    sum_gradients(p, first * p->n, rows, s, f);
}

static AB_FORCE_INLINE void gradients(const ab_norm_backward *p, int64_t first, int rows, const back_rows *s,
                                      formats f) {
    for (int r = 0; r < rows && p->dx; r++)
        gradient(p, (first + r) * p->n, s->mean[r], s->rstd[r], s->by_sum[r], s->by_dot[r], f);
}

/* In the order of `forward`. */
static AB_FORCE_INLINE void backward(const ab_norm_backward *pass, formats f) {
    const ab_norm_backward p = *pass;
    const int back = rows_back(f);
    const int64_t whole = p.rows - p.rows % back;
    back_rows now, next = {{0}, {0}, {0}, {0}};
    for (int64_t row = -back; row < whole; row += back) {
        now = next;
        if (row + back < whole) sum_rows_back(&p, row + back, back, &next, f);
        if (row >= 0) gradients(&p, row, back, &now, f);
    }
    for (int64_t row = whole; row < p.rows; row++) {
        sum_rows_back(&p, row, 1, &now, f);
        gradients(&p, row, 1, &now, f);
    }
}

static void move_on(double *all, float *few, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        all[i] += (double)few[i];
        few[i] = 0.0f;
    }
}

/* ---- one set of loops per pair of formats ---------------------------------------------------- */

#define LOOPS(name, in, out)                                                                                 \
    static void forward_##name(const ab_norm_forward *p) { forward(p, (formats){in, out}); }                 \
    static void backward_##name(const ab_norm_backward *p) { backward(p, (formats){in, out}); }

LOOPS(fp32, AB_STORED_FP32, AB_STORED_FP32)
LOOPS(fp16, AB_STORED_FP16, AB_STORED_FP16)
LOOPS(bf16, AB_STORED_BF16, AB_STORED_BF16)
LOOPS(fp32_fp16, AB_STORED_FP32, AB_STORED_FP16)
LOOPS(fp32_bf16, AB_STORED_FP32, AB_STORED_BF16)
LOOPS(fp16_fp32, AB_STORED_FP16, AB_STORED_FP32)
LOOPS(bf16_fp32, AB_STORED_BF16, AB_STORED_FP32)

#define BY_FORMATS(pass)                                                                                     \
    {                                                                                                        \
        [AB_STORED_FP32] = {pass##_fp32, pass##_fp32_fp16, pass##_fp32_bf16},                                \
        [AB_STORED_FP16] = {pass##_fp16_fp32, pass##_fp16, NULL},                                            \
        [AB_STORED_BF16] = {pass##_bf16_fp32, NULL, pass##_bf16},                                            \
    }

AB_ISA_TABLE(ab_vec_norm_rows) = {BY_FORMATS(forward), BY_FORMATS(backward), move_on, pair, part};
