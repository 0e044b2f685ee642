/* The loops of vec_head.h. Every sum is the chain, or the tree, that vec_gemm.c and vec_rows.c have. */
#include "kernels/ops/attention/vec_head.h"

#define PASTE_TOKENS(a, b) a##b
#define PASTE(a, b) PASTE_TOKENS(a, b)

#if defined(__AVX2__)

#include "kernels/core/elementary64.h"
#include "kernels/vec/vec_exp.h"
#if defined(__AVX512F__)
#include "kernels/vec/vec_half.h"
#endif

/* ROWS by VECTORS sums of a tile stay in registers. BLOCK: queries whose scores are computed at a time.
 * LINES: partial sums over keys, which vec_rows.c has in lanes. FETCHED: rows fetched with every tile. */
#if defined(__AVX512F__)
#define HALVES 1
enum { ROWS = 8 };
#else
#define HALVES 0 /* tiles with half a vector of columns */
enum { ROWS = 6 };
#endif
enum { VECTORS = 2, BLOCK = AB_HEAD_STEP, LINES = 16, FETCHED = 20 };

static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t row_step(const ab_head *h) { return (h->queries + BLOCK - 1) / BLOCK * BLOCK; }

static inline vec vec_fma(float a, vec b, vec c) { return _mm256_fmadd_ps(_mm256_set1_ps(a), b, c); }

/* The larger of a and b behind the first n lanes, b in those. */
static inline wide wide_larger_behind(wide a, int64_t n, wide b) {
    const int64_t first = larger(0, smaller(n, LANES));
    return wide_larger(wide_first_or(wide_set(-INFINITY), (int)first, a), b);
}

#if HALVES
static inline vec vec_larger_behind(vec a, int64_t n, vec b) {
    const int64_t first = larger(0, smaller(n, VEC_LANES));
    return _mm256_mask_max_ps(b, (__mmask8)(0xffU << (unsigned)first), a, b);
}
#endif

/* The lanes of v behind its first n; the others 0. */
static inline wide wide_behind(wide v, int64_t n) { return wide_first_or(wide_zero(), (int)n, v); }

/* bf16 values as pairs, for code that moves them or takes them apart. */
static inline float *pairs_of(const ab_head_rows *rows) { return (float *)(void *)rows->bf16; }

#if HALVES
/* rounded_bf16 of what is no NaN. */
static inline __m512i rounded_bf16_number(__m512 x) {
    const __m512i bits = _mm512_castps_si512(x),
                  odd = _mm512_and_si512(_mm512_srli_epi32(bits, BF16_DROP), _mm512_set1_epi32(1));
    return _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
}
#endif

/* ---- tiles ----------------------------------------------------------------------------------- */

/* A product's tile: ROWS rows of a by columns of b. */
typedef struct tile {
    const float *a, *b; /* bf16 rows: pairs of values seen as fp32 */
    float *c;
    int64_t a_row, a_inner, b_step, c_step; /* either a_row or a_inner is 1 */
    int64_t inner, row;                     /* row: the first */
    float alpha;
} tile;

typedef struct tile_sums {
    const float *row[ROWS], *b;
    int64_t a_inner, b_step;
    wide sum[ROWS][VECTORS];
    vec half[ROWS];
} tile_sums;

/* What a tile has: half a vector of columns or not, and then `vectors` whole ones. Constants where a tile is
 * inlined. */
typedef struct tile_width {
    bool half;
    int vectors;
    bool bf16; /* b's columns are bf16: those of even index are the first vector, the others the second */
} tile_width;

#if HALVES
static inline wide even_of(wide pairs) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(pairs), BF16_DROP));
}
static inline wide odd_of(wide pairs) {
    return _mm512_castsi512_ps(
        _mm512_and_si512(_mm512_castps_si512(pairs), _mm512_set1_epi32((int)0xffff0000U)));
}
#else
static inline wide even_of(wide pairs) { return pairs; }
static inline wide odd_of(wide pairs) { return pairs; }
#endif

/* Adds value k of the inner dimension to rows [first, end). */
static AB_FORCE_INLINE void add_step(tile_sums *t, int64_t k, const int first, const int end,
                                     const tile_width has, const bool turned) {
    const float *b = t->b + k * t->b_step, *whole = has.half ? b + VEC_LANES : b;
    const vec half = has.half ? vec_load(b, VEC_LANES) : vec_set(0.0f);
    wide line[VECTORS];
#pragma GCC unroll 2
    for (int v = 0; v < has.vectors; v++) line[v] = wide_load(whole + (has.bf16 ? 0 : v * LANES));
    if (has.bf16) {
        line[0] = even_of(line[0]);
        line[1] = odd_of(line[1]);
    }
#pragma GCC unroll 8
    for (int r = first; r < end; r++) {
        const float a = turned ? t->row[0][k * t->a_inner + r] : t->row[r][k];
        if (has.half) t->half[r] = vec_fma(a, half, t->half[r]);
#pragma GCC unroll 2
        for (int v = 0; v < has.vectors; v++) t->sum[r][v] = wide_fma(a, line[v], t->sum[r][v]);
    }
}

static AB_FORCE_INLINE tile_sums begin_tile(const tile *x) {
    tile_sums t = {.b = x->b, .a_inner = x->a_inner, .b_step = x->b_step};
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++) {
        t.row[r] = x->a + r * x->a_row;
        t.half[r] = vec_set(0.0f);
#pragma GCC unroll 2
        for (int v = 0; v < VECTORS; v++) t.sum[r][v] = wide_zero();
    }
    return t;
}

static AB_FORCE_INLINE void scale_tile(tile_sums *t, float alpha, const tile_width has) {
    if (alpha == 1.0f) return;
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++) {
        if (has.half) t->half[r] = vec_mul(vec_set(alpha), t->half[r]);
#pragma GCC unroll 2
        for (int v = 0; v < has.vectors; v++) t->sum[r][v] = wide_scale(alpha, t->sum[r][v]);
    }
}

/* The last tile begins where it ends with the rows, and computes some again. */
static inline int64_t tile_row(int64_t row, int64_t rows) { return smaller(row, rows - ROWS); }

/* ---- products over keys or queries ------------------------------------------------------------- */

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

#define ADD_BEFORE(i) add_step(&t, x->row + (i)-1, 0, i, has, turned);
#define ADD_UNTIL(i) add_step(&t, x->row + (i), i, ROWS, has, turned);

/* Stores rows of 32 columns: two vectors, or those of even and of odd index rounded to bf16. */
static AB_FORCE_INLINE void store_tile(const tile *x, tile_sums *t, const bool bf16) {
#if HALVES
    if (bf16) {
        __mmask16 nan = 0;
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; r++) nan |= _mm512_cmp_ps_mask(t->sum[r][0], t->sum[r][1], _CMP_UNORD_Q);
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; r++) {
            const __m512i even = nan ? rounded_bf16(t->sum[r][0]) : rounded_bf16_number(t->sum[r][0]),
                          odd = nan ? rounded_bf16(t->sum[r][1]) : rounded_bf16_number(t->sum[r][1]);
            const __m512i both = _mm512_mask_mov_epi16(odd, 0x55555555U, _mm512_srli_epi32(even, BF16_DROP));
            _mm512_storeu_si512(x->c + r * x->c_step, both);
        }
        return;
    }
#endif
    (void)bf16;
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 2
        for (int v = 0; v < VECTORS; v++) wide_store(x->c + r * x->c_step + v * LANES, t->sum[r][v]);
}

/* c = alpha a b. turned: a_row is 1. */
static AB_FORCE_INLINE void run_tile(const tile *x, const tile_shape shape, const bool turned,
                                     const bool bf16) {
    const tile_width has = {.vectors = VECTORS, .bf16 = bf16};
    tile_sums t = begin_tile(x);
    int64_t first = 0, end = x->inner;
    for (int r = 0; r < ROWS; r++)
        for (int v = 0; v < (bf16 ? 1 : VECTORS); v++)
            __builtin_prefetch(x->c + r * x->c_step + v * LANES, 1, 3); /* a store waits for its line */
    if (shape == BEFORE) {
        EACH_ROW(ADD_BEFORE)
        first = x->row + ROWS - 1;
    }
    if (shape == UNTIL) end = x->row + 1;
#pragma GCC unroll 2
    for (int64_t k = first; k < end; k++) add_step(&t, k, 0, ROWS, has, turned);
    if (shape == UNTIL) {
        EACH_ROW(ADD_UNTIL)
    }
    scale_tile(&t, x->alpha, has);
    store_tile(x, &t, bf16);
}

#define TILES(name, shape, turned)                                                                           \
    static void name(const tile *x) { run_tile(x, shape, turned, false); }                                   \
    static void name##_bf16(const tile *x) { run_tile(x, shape, turned, HALVES); }
TILES(all_turned, WHOLE, true)
TILES(all_straight, WHOLE, false)
TILES(triangle_before, BEFORE, false)
TILES(triangle_until, UNTIL, true)

/* Columns [at, at + 32) of b and of c from row `row` on; both are bf16 if c is. */
static inline void set_columns(tile *x, const ab_head_rows *b, const ab_head_rows *c, int64_t row,
                               int64_t at) {
    x->b = c->bf16 ? pairs_of(b) + at / 2 : b->data + at;
    x->b_step = c->bf16 ? b->bf16_step / 2 : b->step;
    x->c_step = c->bf16 ? c->bf16_step / 2 : c->step;
    x->c = (c->bf16 ? pairs_of(c) + at / 2 : c->data + at) + row * x->c_step;
}

/* c = p^T b (or of dp): rows of queries. */
static void gather_keys(const ab_head *h, const float *p, const ab_head_rows *b, int64_t width, float alpha,
                        const ab_head_rows *c) {
    for (int64_t first = 0; first < h->queries; first += ROWS)
        for (int64_t at = 0; at < width; at += VECTORS * LANES) {
            const int64_t row = tile_row(first, h->queries);
            tile x = {.a = p + row,
                      .a_row = 1,
                      .a_inner = row_step(h),
                      .inner = h->keys,
                      .row = row,
                      .alpha = alpha};
            set_columns(&x, b, c, row, at);
            ab_fetch_some(h->fetches, FETCHED);
            if (c->bf16)
                (h->causal ? triangle_until_bf16 : all_turned_bf16)(&x);
            else
                (h->causal ? triangle_until : all_turned)(&x);
        }
}

/* c = alpha p b (or of dp): rows of keys. */
static void gather_queries(const ab_head *h, const float *p, const ab_head_rows *b, int64_t width,
                           float alpha, const ab_head_rows *c) {
    for (int64_t first = 0; first < h->keys; first += ROWS)
        for (int64_t at = 0; at < width; at += VECTORS * LANES) {
            const int64_t row = tile_row(first, h->keys);
            tile x = {.a = p + row * row_step(h),
                      .a_row = row_step(h),
                      .a_inner = 1,
                      .inner = h->queries,
                      .row = row,
                      .alpha = alpha};
            set_columns(&x, b, c, row, at);
            ab_fetch_some(h->fetches, FETCHED);
            if (c->bf16)
                (h->causal ? triangle_before_bf16 : all_straight_bf16)(&x);
            else
                (h->causal ? triangle_before : all_straight)(&x);
        }
}

/* ---- scores ---------------------------------------------------------------------------------- */

/* A tile of scores: rows of keys, lanes of queries. unseen: how many of the first lanes do not see its first
 * key, one more of each further one; negative where others do not either. */
typedef struct score_tile {
    tile x;
    float *most; /* largest score of each lane; NULL: not wanted */
    int64_t unseen;
} score_tile;

/* Stores a vector of a tile's rows; with s->most, also what the largest score of each lane is. */
static AB_FORCE_INLINE void end_column(const score_tile *s, tile_sums *t, const int v, int64_t lane) {
    const int64_t unseen = s->unseen - lane;
    float *to = s->x.c + lane;
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++) wide_store(to + r * s->x.c_step, t->sum[r][v]);
    if (!s->most) return;
    wide most = wide_load(s->most + lane);
    if (unseen + ROWS <= 1) {
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; r++) most = wide_larger(t->sum[r][v], most);
    } else {
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; r++) most = wide_larger_behind(t->sum[r][v], unseen + r, most);
    }
    wide_store(s->most + lane, most);
}

#if HALVES
static AB_FORCE_INLINE void end_half(const score_tile *s, tile_sums *t) {
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++) vec_store(s->x.c + r * s->x.c_step, t->half[r], VEC_LANES);
    if (!s->most) return;
    vec most = vec_load(s->most, VEC_LANES);
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++) most = vec_larger_behind(t->half[r], s->unseen + r, most);
    vec_store(s->most, most, VEC_LANES);
}
#endif

static AB_FORCE_INLINE void end_scores(const score_tile *s, tile_sums *t, const tile_width has) {
    scale_tile(t, s->x.alpha, has);
#if HALVES
    if (has.half) end_half(s, t);
#endif
#pragma GCC unroll 2
    for (int v = 0; v < has.vectors; v++) end_column(s, t, v, (has.half ? VEC_LANES : 0) + v * LANES);
}

enum { AT_ONCE = 8 }; /* values of the inner dimension, or pairs of them */

static AB_FORCE_INLINE void run_scores(const score_tile *s, const tile_width has) {
    tile_sums t = begin_tile(&s->x);
    for (int64_t k = 0; k < s->x.inner; k += AT_ONCE)
#pragma GCC unroll 8
        for (int i = 0; i < AT_ONCE; i++) add_step(&t, k + i, 0, ROWS, has, false);
    end_scores(s, &t, has);
}

#if HALVES

#define FOR_PAIRS __attribute__((target("avx512bf16")))

/* The same of bf16 pairs: of each the odd value's product is added first. */
FOR_PAIRS static AB_FORCE_INLINE void add_pairs(tile_sums *t, int64_t k, const tile_width has) {
    const float *b = t->b + k * t->b_step, *whole = has.half ? b + VEC_LANES : b;
    const vec half = has.half ? vec_load(b, VEC_LANES) : vec_set(0.0f);
    wide line[VECTORS];
#pragma GCC unroll 2
    for (int v = 0; v < has.vectors; v++) line[v] = wide_load(whole + v * LANES);
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++) {
        const wide a = wide_set(t->row[r][k]);
        if (has.half)
            t->half[r] = _mm256_dpbf16_ps(t->half[r], (__m256bh)_mm512_castps512_ps256(a), (__m256bh)half);
#pragma GCC unroll 2
        for (int v = 0; v < has.vectors; v++)
            t->sum[r][v] = _mm512_dpbf16_ps(t->sum[r][v], (__m512bh)a, (__m512bh)line[v]);
    }
}

FOR_PAIRS static AB_FORCE_INLINE void run_pairs(const score_tile *s, const tile_width has) {
    tile_sums t = begin_tile(&s->x);
    for (int64_t k = 0; k < s->x.inner; k += AT_ONCE)
#pragma GCC unroll 8
        for (int i = 0; i < AT_ONCE; i++) add_pairs(&t, k + i, has);
    end_scores(s, &t, has);
}

#define SCORES(name, half, vectors)                                                                          \
    static void name(const score_tile *s) { run_scores(s, (tile_width){half, vectors, false}); }             \
    FOR_PAIRS static void name##_pairs(const score_tile *s) {                                                \
        run_pairs(s, (tile_width){half, vectors, false});                                                    \
    }
SCORES(half_wide, true, 0)
SCORES(half_and_one, true, 1)

#else

#define SCORES(name, half, vectors)                                                                          \
    static void name(const score_tile *s) { run_scores(s, (tile_width){half, vectors, false}); }

#endif

SCORES(one_wide, false, 1)
SCORES(two_wide, false, 2)

/* Computes as many of `lanes` lanes as a tile has, a multiple of VEC_LANES, and returns how many. */
static inline int64_t run_lanes(const score_tile *s, int64_t lanes, bool pairs) {
#if HALVES
    if (lanes % LANES != 0) {
        if (pairs)
            (lanes > LANES ? half_and_one_pairs : half_wide_pairs)(s);
        else
            (lanes > LANES ? half_and_one : half_wide)(s);
        return lanes;
    }
    if (pairs) (lanes > LANES ? two_wide_pairs : one_wide_pairs)(s);
#else
    if (pairs) return lanes;
#endif
    if (!pairs) (lanes > LANES ? two_wide : one_wide)(s);
    return lanes > LANES ? 2 * LANES : LANES;
}

/* The tree of vec_rows.c and of vec_gemm.c's last columns, whose lanes are lines here. */
static inline wide join_lines(wide line[LINES]) {
#pragma GCC unroll 4
    for (int width = LINES / 2; width > 0; width /= 2)
#pragma GCC unroll 8
        for (int i = 0; i < width; i++) line[i] = wide_add(line[i], line[i + width]);
    return line[0];
}

/* The scores of one key by chains over every LINES-th value. */
static void score_key(const score_tile *s, int64_t lanes) {
    for (int64_t lane = 0; lane < lanes; lane += LANES) {
        wide line[LINES];
#pragma GCC unroll 16
        for (int i = 0; i < LINES; i++) line[i] = wide_zero();
        for (int64_t k = 0; k < s->x.inner; k += LINES)
#pragma GCC unroll 16
            for (int i = 0; i < LINES; i++)
                line[i] = wide_fma(s->x.a[k + i], wide_load(s->x.b + (k + i) * s->x.b_step + lane), line[i]);
        const wide score = wide_scale(s->x.alpha, join_lines(line));
        wide_store(s->x.c + lane, score);
        if (s->most) wide_store(s->most + lane, wide_larger(score, wide_load(s->most + lane)));
    }
}

/* The last keys whose scores vec_gemm.c computes so; pairs have no other code to agree with. */
static int64_t last_keys(const ab_head *h) {
    enum { DOT_COLUMNS = 2 };
    const int64_t last = h->keys % LINES;
    return !h->causal && !h->pairs && last <= DOT_COLUMNS ? last : 0;
}

/* to = alpha b a^T of the queries [first, first + n): rows of keys, lanes of queries. a: rows of queries; b:
 * of keys. most, unless NULL: the largest score of each query, of -inf before. */
static void score_block(const ab_head *h, const ab_head_rows *a, const ab_head_rows *b, int64_t width,
                        float alpha, int64_t first, float *to, float *most) {
    _Alignas(64) float turned[AB_HEAD_MOST * BLOCK];
    const bool pairs = h->pairs;
    const int64_t step = row_step(h), n = smaller(BLOCK, h->queries - first), last = last_keys(h),
                  keys = (h->causal ? first + n : h->keys) - last,
                  end = (n + VEC_LANES - 1) / VEC_LANES * VEC_LANES,
                  a_step = pairs ? a->bf16_step / 2 : a->step, b_step = pairs ? b->bf16_step / 2 : b->step;
    const float *from = pairs ? pairs_of(a) : a->data, *rows = pairs ? pairs_of(b) : b->data;
    score_tile s = {.x = {.a_row = b_step,
                          .a_inner = 1,
                          .b_step = BLOCK,
                          .c_step = step,
                          .inner = pairs ? width / 2 : width,
                          .alpha = alpha},
                    .unseen = -ROWS - LANES * VECTORS};
    wide_transpose(turned, BLOCK, from + first * a_step, a_step, n, s.x.inner);
    for (int64_t at = 0; at < keys; at += ROWS) {
        const int64_t key = tile_row(at, keys);
        for (int64_t lane = h->causal ? larger(0, key - first) / VEC_LANES * VEC_LANES : 0; lane < end;) {
            s.x.a = rows + key * b_step;
            s.x.b = turned + lane;
            s.x.c = to + key * step + first + lane;
            s.most = most ? most + lane : NULL;
            if (h->causal) s.unseen = key - first - lane;
            ab_fetch_some(h->fetches, FETCHED);
            lane += run_lanes(&s, end - lane, pairs);
        }
    }
    for (int64_t key = keys; key < keys + last; key++) {
        s.x.a = rows + key * b_step;
        s.x.b = turned;
        s.x.c = to + key * step + first;
        s.most = most;
        score_key(&s, end);
    }
}

/* ---- columns of scores: LANES queries ----------------------------------------------------------- */

typedef struct column {
    float *p, *dp;
    int64_t step, whole, keys; /* every lane sees the first `whole` keys, a multiple of LANES or all keys */
} column;

static column column_at(const ab_head *h, int64_t query) {
    return (column){.p = h->p + query,
                    .dp = h->dp + query,
                    .step = row_step(h),
                    .whole = h->causal ? query : h->keys,
                    .keys = h->causal ? smaller(query + LANES, h->queries) : h->keys};
}

static inline void clear_lines(wide line[LINES]) {
    for (int i = 0; i < LINES; i++) line[i] = wide_zero();
}

/* p = exp(p - shift) of n keys from `key` on, of which the first lanes do not see the last ones where `edge`
 * is set; line, unless NULL: adds those that are seen. */
static AB_FORCE_INLINE void exp_keys(const column *x, int64_t key, const int n, const bool edge, wide shift,
                                     wide *line) {
    float *p = x->p + key * x->step;
    wide e[EXPS];
    line += line ? key % LINES : 0;
#pragma GCC unroll 8
    for (int i = 0; i < n; i++) e[i] = wide_sub(wide_load(p + i * x->step), shift);
    wide_exp_each(e, n, true);
#pragma GCC unroll 8
    for (int i = 0; i < n; i++) {
        wide_store(p + i * x->step, e[i]);
        if (line && edge) e[i] = wide_behind(e[i], key + i - x->whole);
        if (line) line[i] = wide_add(line[i], e[i]);
    }
}

static AB_FORCE_INLINE void exp_part(const column *x, int64_t from, int64_t to, const bool edge, wide shift,
                                     wide *line) {
    int64_t key = from;
    for (; key + EXPS <= to; key += EXPS) exp_keys(x, key, EXPS, edge, shift, line);
    for (; key < to; key++) exp_keys(x, key, 1, edge, shift, line);
}

/* p = exp(p - shift), anything where a query does not see the key; line, unless NULL: their sums. */
static AB_FORCE_INLINE void exp_column(column x, wide shift, wide *line) {
    exp_part(&x, 0, x.whole, false, shift, line);
    exp_part(&x, x.whole, x.keys, true, shift, line);
}

/* Adds p dp of LINES keys from `key` on, or of those before `end` of them, to a line each. */
static AB_FORCE_INLINE void add_products(const column *x, int64_t key, int64_t end, const bool edge,
                                         wide line[LINES]) {
#pragma GCC unroll 16
    for (int i = 0; i < LINES; i++) {
        const int64_t at = (key + i) * x->step;
        if (edge && key + i >= end) break;
        wide d = wide_mul(wide_load(x->p + at), wide_load(x->dp + at));
        if (edge && key + i > x->whole) d = wide_behind(d, key + i - x->whole);
        line[i] = wide_add(line[i], d);
    }
}

/* dp = p (dp - sum over the keys of p dp), anything where a query does not see the key. */
static void gradient_column(column x) {
    wide line[LINES];
    int64_t key = 0;
#pragma GCC unroll 16
    for (int i = 0; i < LINES; i++) line[i] = wide_zero();
    for (; key + LINES <= x.whole; key += LINES) add_products(&x, key, x.keys, false, line);
    for (; key < x.keys; key += LINES) add_products(&x, key, x.keys, true, line);
    const wide dot = join_lines(line);
#pragma GCC unroll 4
    for (int64_t at = 0; at < x.keys; at++) {
        float *dp = x.dp + at * x.step;
        wide_store(dp, wide_mul(wide_load(x.p + at * x.step), wide_sub(wide_load(dp), dot)));
    }
}

/* ---- forward --------------------------------------------------------------------------------- */

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

/* Scores to probabilities of the queries [first, first + n); shift: the largest of each. */
static bool softmax_block(const ab_head *h, int64_t first, int64_t n, const float *shift) {
    _Alignas(64) float total[BLOCK], factor[BLOCK];
    for (int64_t at = 0; at < n; at += LANES) {
        wide line[LINES];
        clear_lines(line);
        exp_column(column_at(h, first + at), wide_load(shift + at), line);
        wide_store(total + at, join_lines(line));
    }
    if (!finish_sums(shift, total, n, factor, h->log_sum ? h->log_sum + first : NULL)) return false;
    for (int64_t at = 0; at < n; at += LANES) {
        const column x = column_at(h, first + at);
        const wide by = wide_load(factor + at);
#pragma GCC unroll 4
        for (int64_t key = 0; key < x.keys; key++)
            wide_store(x.p + key * x.step, wide_mul(wide_load(x.p + key * x.step), by));
    }
    return true;
}

static bool forward(const ab_head *h) {
    for (int64_t first = 0; first < h->queries; first += BLOCK) {
        _Alignas(64) float most[BLOCK];
        for (int64_t at = 0; at < BLOCK; at += LANES) wide_store(most + at, wide_set(-INFINITY));
        score_block(h, &h->in[0], &h->in[1], h->width, h->scale, first, h->p, most);
        if (!softmax_block(h, first, smaller(BLOCK, h->queries - first), most)) return false;
    }
    gather_keys(h, h->p, &h->in[2], h->value_width, 1.0f, &h->out);
    return true;
}

/* ---- backward -------------------------------------------------------------------------------- */

static void probabilities_again(const ab_head *h, int64_t first, int64_t n) {
    for (int64_t at = first; at < first + n; at += LANES)
        exp_column(column_at(h, at), wide_load_first(h->log_sum + at, (int)smaller(LANES, h->queries - at)),
                   NULL);
}

static bool is_wanted(const ab_head_rows *rows) { return rows->data || rows->bf16; }

static bool backward(const ab_head *h) {
    int unusual = 0;
    for (int64_t i = 0; i < h->queries; i++)
        unusual |= !(h->log_sum[i] >= -FLT_MAX && h->log_sum[i] <= FLT_MAX);
    if (unusual) return false;
    for (int64_t first = 0; first < h->queries; first += BLOCK) {
        const int64_t n = smaller(BLOCK, h->queries - first);
        score_block(h, &h->in[0], &h->in[1], h->width, h->scale, first, h->p, NULL);
        probabilities_again(h, first, n);
        score_block(h, &h->dout, &h->in[2], h->value_width, 1.0f, first, h->dp, NULL);
        for (int64_t at = first; at < first + n; at += LANES) gradient_column(column_at(h, at));
    }
    if (is_wanted(&h->din[2])) gather_queries(h, h->p, &h->dout, h->value_width, 1.0f, &h->din[2]);
    if (is_wanted(&h->din[0])) gather_keys(h, h->dp, &h->in[1], h->width, h->scale, &h->din[0]);
    if (is_wanted(&h->din[1])) gather_queries(h, h->dp, &h->in[0], h->width, h->scale, &h->din[1]);
    return true;
}

extern const ab_vec_head PASTE(ab_vec_head_, AB_ISA_SUFFIX);
const ab_vec_head PASTE(ab_vec_head_,
                        AB_ISA_SUFFIX) = {.forward = forward, .backward = backward, .takes_bf16 = HALVES};

#else

extern const ab_vec_head PASTE(ab_vec_head_, AB_ISA_SUFFIX);
const ab_vec_head PASTE(ab_vec_head_, AB_ISA_SUFFIX) = {0};

#endif
