/* The loops of vec_head.h. Every sum is the chain, or the tree, that vec_gemm.c and vec_rows.c have. */
#include "kernels/ops/attention/vec_head.h"

#define PASTE_TOKENS(a, b) a##b
#define PASTE(a, b) PASTE_TOKENS(a, b)

#if defined(__AVX2__)

#include "kernels/core/elementary64.h"
#include "kernels/vec/vec_exp.h"

/* ROWS by VECTORS sums of a tile stay in registers. BLOCK: queries whose scores are computed at a time.
 * LINES: partial sums over keys, which vec_rows.c has in lanes. FETCHED: rows fetched with every tile. */
#if defined(__AVX512F__)
enum { ROWS = 8 };
#else
enum { ROWS = 6 };
#endif
enum { VECTORS = 2, BLOCK = AB_HEAD_STEP, LINES = 16, FETCHED = 12 };

static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t row_step(const ab_head *h) { return (h->queries + BLOCK - 1) / BLOCK * BLOCK; }

/* ---- tiles ----------------------------------------------------------------------------------- */

/* A product's tile: ROWS rows of a by columns of b. */
typedef struct tile {
    const float *a, *b;
    float *c;
    int64_t a_row, a_inner, b_step, c_step; /* either a_row or a_inner is 1 */
    int64_t inner, row;                     /* row: the first */
    float alpha;
} tile;

typedef struct tile_sums {
    const float *row[ROWS], *b;
    int64_t a_inner, b_step;
    wide sum[ROWS][VECTORS];
} tile_sums;

/* Adds value k of the inner dimension to rows [first, end). */
static AB_FORCE_INLINE void add_step(tile_sums *t, int64_t k, const int first, const int end,
                                     const int vectors, const bool turned) {
    const float *b = t->b + k * t->b_step;
    wide line[VECTORS];
#pragma GCC unroll 2
    for (int v = 0; v < vectors; v++) line[v] = wide_load(b + v * LANES);
#pragma GCC unroll 8
    for (int r = first; r < end; r++) {
        const float a = turned ? t->row[0][k * t->a_inner + r] : t->row[r][k];
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) t->sum[r][v] = wide_fma(a, line[v], t->sum[r][v]);
    }
}

#if defined(__AVX512F__)
#define EACH_ROW(what) what(1) what(2) what(3) what(4) what(5) what(6) what(7)
#else
#define EACH_ROW(what) what(1) what(2) what(3) what(4) what(5)
#endif

/* What is left out of a product with a triangle of scores. */
typedef enum tile_shape {
    WHOLE,
    BEFORE, /* of a tile's row i what is before row + i of the inner dimension */
    UNTIL   /* of a tile's row i what is behind row + i */
} tile_shape;

#define ADD_BEFORE(i) add_step(&t, x->row + (i)-1, 0, i, vectors, turned);
#define ADD_UNTIL(i) add_step(&t, x->row + (i), i, ROWS, vectors, turned);

/* c = alpha a b. turned: a_row is 1. */
static AB_FORCE_INLINE void run_tile(const tile *x, const tile_shape shape, const int vectors,
                                     const bool turned) {
    tile_sums t = {.b = x->b, .a_inner = x->a_inner, .b_step = x->b_step};
    int64_t first = 0, end = x->inner;
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++) {
        t.row[r] = x->a + r * x->a_row;
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) t.sum[r][v] = wide_zero();
    }
    if (shape == BEFORE) {
        EACH_ROW(ADD_BEFORE)
        first = x->row + ROWS - 1;
    }
    if (shape == UNTIL) end = x->row + 1;
    for (int64_t k = first; k < end; k++) add_step(&t, k, 0, ROWS, vectors, turned);
    if (shape == UNTIL) {
        EACH_ROW(ADD_UNTIL)
    }
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            wide_store(x->c + r * x->c_step + v * LANES, wide_scale(x->alpha, t.sum[r][v]));
}

static void one_vector(const tile *x) { run_tile(x, WHOLE, 1, false); }
static void two_vectors(const tile *x) { run_tile(x, WHOLE, 2, false); }
static void two_turned(const tile *x) { run_tile(x, WHOLE, 2, true); }
static void two_before(const tile *x) { run_tile(x, BEFORE, 2, false); }
static void two_until(const tile *x) { run_tile(x, UNTIL, 2, true); }

/* The last tile begins where it ends with the rows, and computes some again. */
static inline int64_t tile_row(int64_t row, int64_t rows) { return smaller(row, rows - ROWS); }

/* ---- scores ---------------------------------------------------------------------------------- */

/* to = alpha b a^T of the queries [first, first + n): rows of keys, lanes of queries. a: rows of queries; b:
 * of keys. */
static void score_block(const ab_head *h, const ab_head_rows *a, const ab_head_rows *b, int64_t width,
                        float alpha, int64_t first, float *to) {
    _Alignas(64) float turned[AB_HEAD_MOST * BLOCK];
    const int64_t step = row_step(h), n = smaller(BLOCK, h->queries - first),
                  keys = h->causal ? first + n : h->keys;
    wide_transpose(turned, BLOCK, a->data + first * a->step, a->step, n, width);
    for (int64_t at = 0; at < keys; at += ROWS) {
        const int64_t key = tile_row(at, keys);
        const int64_t seen = h->causal ? larger(0, key - first) / LANES * LANES : 0;
        for (int64_t lane = seen; lane < n;) {
            const tile x = {.a = b->data + key * b->step,
                            .b = turned + lane,
                            .c = to + key * step + first + lane,
                            .a_row = b->step,
                            .a_inner = 1,
                            .b_step = BLOCK,
                            .c_step = step,
                            .inner = width,
                            .alpha = alpha};
            const bool two = n - lane > LANES;
            ab_fetch_some(h->fetches, FETCHED);
            (two ? two_vectors : one_vector)(&x);
            lane += two ? 2 * LANES : LANES;
        }
    }
}

/* ---- columns of scores: LANES queries ----------------------------------------------------------- */

typedef struct column {
    float *p, *dp;
    int64_t step, whole, keys; /* every lane sees the first `whole` keys */
} column;

static column column_at(const ab_head *h, int64_t query) {
    const int64_t end = smaller(query + LANES, h->queries);
    return (column){.p = h->p + query,
                    .dp = h->dp + query,
                    .step = row_step(h),
                    .whole = h->causal ? smaller(query + 1, h->keys) : h->keys,
                    .keys = h->causal ? end : h->keys};
}

/* The lanes behind the first n of v; the others 0. */
static inline wide wide_behind(wide v, int64_t n) { return wide_first_or(wide_zero(), (int)n, v); }

static inline wide column_max(column x) {
    const wide least = wide_set(-INFINITY);
    wide most[2] = {least, least};
    int64_t key = 0;
    for (; key + 2 <= x.whole; key += 2) {
        most[0] = wide_larger(wide_load(x.p + key * x.step), most[0]);
        most[1] = wide_larger(wide_load(x.p + (key + 1) * x.step), most[1]);
    }
    for (; key < x.keys; key++) {
        const int64_t unseen = larger(0, key + 1 - x.whole);
        most[0] = wide_larger(wide_first_or(least, (int)unseen, wide_load(x.p + key * x.step)), most[0]);
    }
    return wide_larger(most[0], most[1]);
}

/* The tree of vec_rows.c, whose lanes are lines here. */
static inline wide join_lines(wide line[LINES]) {
    for (int width = LINES / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++) line[i] = wide_add(line[i], line[i + width]);
    return line[0];
}

static inline void clear_lines(wide line[LINES]) {
    for (int i = 0; i < LINES; i++) line[i] = wide_zero();
}

/* p = exp(p - shift), 0 where a query does not see the key. Adds them to the lines. */
static AB_FORCE_INLINE void exp_column(column x, wide shift, wide line[LINES]) {
    for (int64_t key = 0; key < x.whole; key++) {
        const wide e = wide_exp(wide_sub(wide_load(x.p + key * x.step), shift));
        wide_store(x.p + key * x.step, e);
        if (line) line[key % LINES] = wide_add(line[key % LINES], e);
    }
    for (int64_t key = x.whole; key < x.keys; key++) {
        const wide e =
            wide_behind(wide_exp(wide_sub(wide_load(x.p + key * x.step), shift)), key + 1 - x.whole);
        wide_store(x.p + key * x.step, e);
        if (line) line[key % LINES] = wide_add(line[key % LINES], e);
    }
}

/* dp = p (dp - sum over the keys of p dp), 0 where a query does not see the key. */
static void gradient_column(column x) {
    wide line[LINES];
    clear_lines(line);
    for (int64_t key = 0; key < x.keys; key++) {
        wide d = wide_mul(wide_load(x.p + key * x.step), wide_load(x.dp + key * x.step));
        if (key >= x.whole) d = wide_behind(d, key + 1 - x.whole);
        line[key % LINES] = wide_add(line[key % LINES], d);
    }
    const wide dot = join_lines(line);
    for (int64_t key = 0; key < x.keys; key++) {
        wide d = wide_mul(wide_load(x.p + key * x.step), wide_sub(wide_load(x.dp + key * x.step), dot));
        if (key >= x.whole) d = wide_behind(d, key + 1 - x.whole);
        wide_store(x.dp + key * x.step, d);
    }
}

/* ---- forward --------------------------------------------------------------------------------- */

/* c = p^T b (or of dp): rows of queries. */
static void gather_keys(const ab_head *h, const float *p, const ab_head_rows *b, int64_t width, float alpha,
                        const ab_head_rows *c) {
    for (int64_t first = 0; first < h->queries; first += ROWS)
        for (int64_t at = 0; at < width; at += VECTORS * LANES) {
            const int64_t row = tile_row(first, h->queries);
            const tile x = {.a = p + row,
                            .b = b->data + at,
                            .c = c->data + row * c->step + at,
                            .a_row = 1,
                            .a_inner = row_step(h),
                            .b_step = b->step,
                            .c_step = c->step,
                            .inner = h->keys,
                            .row = row,
                            .alpha = alpha};
            ab_fetch_some(h->fetches, FETCHED);
            (h->causal ? two_until : two_turned)(&x);
        }
}

/* factor = 1 / total; log_sum, where it is wanted, shift + log(total). False: see vec_head.h. */
static bool finish_sums(const float *shift, const float *total, int64_t n, float *factor, float *log_sum) {
    int unusual = 0;
    for (int64_t i = 0; i < n; i++) unusual |= !(total[i] >= 1.0f && total[i] <= FLT_MAX);
    if (unusual) return false;
    for (int64_t i = 0; i < BLOCK; i += LANES)
        wide_store(factor + i, wide_div(wide_set(1.0f), wide_load(total + i)));
    if (!log_sum) return true;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) log_sum[i] = (float)((double)shift[i] + ab_log((double)total[i]));
    return true;
}

/* Scores to probabilities of the queries [first, first + n). */
static bool softmax_block(const ab_head *h, int64_t first, int64_t n) {
    _Alignas(64) float shift[BLOCK], total[BLOCK], factor[BLOCK];
    for (int64_t at = 0; at < n; at += LANES) {
        const column x = column_at(h, first + at);
        wide line[LINES];
        const wide most = column_max(x);
        clear_lines(line);
        wide_store(shift + at, most);
        exp_column(x, most, line);
        wide_store(total + at, join_lines(line));
    }
    if (!finish_sums(shift, total, n, factor, h->log_sum ? h->log_sum + first : NULL)) return false;
    for (int64_t at = 0; at < n; at += LANES) {
        const column x = column_at(h, first + at);
        const wide by = wide_load(factor + at);
        for (int64_t key = 0; key < x.keys; key++)
            wide_store(x.p + key * x.step, wide_mul(wide_load(x.p + key * x.step), by));
    }
    return true;
}

static bool forward(const ab_head *h) {
    for (int64_t first = 0; first < h->queries; first += BLOCK) {
        const int64_t n = smaller(BLOCK, h->queries - first);
        score_block(h, &h->in[0], &h->in[1], h->width, h->scale, first, h->p);
        if (!softmax_block(h, first, n)) return false;
    }
    gather_keys(h, h->p, &h->in[2], h->value_width, 1.0f, &h->out);
    return true;
}

/* ---- backward -------------------------------------------------------------------------------- */

/* c = alpha p b (or of dp): rows of keys. */
static void gather_queries(const ab_head *h, const float *p, const ab_head_rows *b, int64_t width,
                           float alpha, const ab_head_rows *c) {
    for (int64_t first = 0; first < h->keys; first += ROWS)
        for (int64_t at = 0; at < width; at += VECTORS * LANES) {
            const int64_t row = tile_row(first, h->keys);
            const tile x = {.a = p + row * row_step(h),
                            .b = b->data + at,
                            .c = c->data + row * c->step + at,
                            .a_row = row_step(h),
                            .a_inner = 1,
                            .b_step = b->step,
                            .c_step = c->step,
                            .inner = h->queries,
                            .row = row,
                            .alpha = alpha};
            ab_fetch_some(h->fetches, FETCHED);
            (h->causal ? two_before : two_vectors)(&x);
        }
}

static void probabilities_again(const ab_head *h, int64_t first, int64_t n) {
    for (int64_t at = first; at < first + n; at += LANES)
        exp_column(column_at(h, at), wide_load_first(h->log_sum + at, (int)smaller(LANES, h->queries - at)),
                   NULL);
}

static bool backward(const ab_head *h) {
    int unusual = 0;
    for (int64_t i = 0; i < h->queries; i++)
        unusual |= !(h->log_sum[i] >= -FLT_MAX && h->log_sum[i] <= FLT_MAX);
    if (unusual) return false;
    for (int64_t first = 0; first < h->queries; first += BLOCK) {
        const int64_t n = smaller(BLOCK, h->queries - first);
        score_block(h, &h->in[0], &h->in[1], h->width, h->scale, first, h->p);
        probabilities_again(h, first, n);
        score_block(h, &h->dout, &h->in[2], h->value_width, 1.0f, first, h->dp);
        for (int64_t at = first; at < first + n; at += LANES) gradient_column(column_at(h, at));
    }
    if (h->din[2].data) gather_queries(h, h->p, &h->dout, h->value_width, 1.0f, &h->din[2]);
    if (h->din[0].data) gather_keys(h, h->dp, &h->in[1], h->width, h->scale, &h->din[0]);
    if (h->din[1].data) gather_queries(h, h->dp, &h->in[0], h->width, h->scale, &h->din[1]);
    return true;
}

extern const ab_vec_head PASTE(ab_vec_head_, AB_ISA_SUFFIX);
const ab_vec_head PASTE(ab_vec_head_, AB_ISA_SUFFIX) = {.forward = forward, .backward = backward};

#else

extern const ab_vec_head PASTE(ab_vec_head_, AB_ISA_SUFFIX);
const ab_vec_head PASTE(ab_vec_head_, AB_ISA_SUFFIX) = {0};

#endif
