/* The loops of vec_batch_norm.h, compiled once per CPU level. Every sum has a fixed order that does not
 * depend on the vector length and nothing is fused in the sense of FMA, so that all levels give the same
 * bits. */
#include "kernels/ops/norm/vec_batch_norm.h"

#include "kernels/ops/norm/vec_stored.h"
#include "kernels/vec/isa.h"
#include "kernels/vec/vec_sums.h"

/* ---- blocks of columns ----------------------------------------------------------------------- */

#if defined(AB_NORM_BLOCKS)

/* dy where `above`, the output of a relu, is not 0, else 0; stored to `masked`, too. Absent ones are NULL. */
static AB_FORCE_INLINE two load_dy_two(const void *dy, const void *above, void *masked, int64_t at,
                                       ab_stored stored) {
    if (!above && !masked) return load_two(dy, at, stored);
    if (stored == AB_STORED_FP32) {
        two d = load_two(dy, at, stored);
        if (above) d = where_above(d, load_two(above, at, stored));
        if (masked) store_values((float *)masked + at, d);
        return d;
    }
    codes c = load_codes((const uint16_t *)dy + at);
    if (above) c = codes_where(c, load_codes((const uint16_t *)above + at));
    if (masked) store_codes((uint16_t *)masked + at, c);
    return widened_two(c, stored);
}

/* The factors of a block of columns, in the order of load_two. */
static AB_FORCE_INLINE two factors_of(const float *factor, int64_t c, bool fold, ab_stored stored) {
    const float *p = factor + c;
    const two x = {{wide_load_first(p, LANES), wide_load_first(fold ? p : p + LANES, LANES)}};
    return stored == AB_STORED_BF16 ? even_and_odd(x) : x;
}

/* The sums of ROW_SUMS rows, in order of columns: a row is a block or, folded, a vector. Folded, only the
 * first vector counts. */
static AB_FORCE_INLINE two total_two(const two sums[ROW_SUMS], bool fold, ab_stored stored) {
    if (!fold) {
        const two sum = add_two(add_two(sums[0], sums[1]), add_two(sums[2], sums[3]));
        return stored == AB_STORED_BF16 ? in_turns(sum) : sum;
    }
    const two a = stored == AB_STORED_BF16 ? in_turns(sums[0]) : sums[0];
    const two b = stored == AB_STORED_BF16 ? in_turns(sums[1]) : sums[1];
    const wide sum = wide_add(wide_add(a.v[0], a.v[1]), wide_add(b.v[0], b.v[1]));
    return (two){{sum, sum}};
}

static AB_FORCE_INLINE void store_columns(float *p, two x, bool fold) {
    wide_store_first(p, x.v[0], LANES);
    if (!fold) wide_store_first(p + LANES, x.v[1], LANES);
}

/* Rows may be taken in pairs, one row a vector, where they have LANES channels; no gain in fp32. */
static AB_FORCE_INLINE bool folds(const ab_bn_rows *r, ab_stored stored) {
    return stored != AB_STORED_FP32 && r->channels == LANES && r->rows % ROW_SUMS == 0;
}

/* Rows wider than a block are taken one by one, so that memory is read as it lies: block by block over many
 * rows of 256 bytes it takes 1.5 to 3 times as long. What is kept for each block of a strip is in memory
 * then. */
enum { STRIP = 8 };

typedef struct strip {
    int64_t c;  /* first column */
    int blocks; /* at most STRIP */
    bool by_rows, fold;
    int64_t step, whole, end; /* of a single block: places of rows; whole: of those that fill all sums */
    int sums;                 /* that many places fill them */
} strip;

static AB_FORCE_INLINE strip strip_at(const ab_bn_rows *r, int64_t c, bool fold) {
    const int64_t blocks = fold ? 1 : (r->channels - c) / BLOCK, end = r->rows * r->channels;
    return (strip){.c = c,
                   .blocks = blocks < STRIP ? (int)blocks : STRIP,
                   .by_rows = r->channels > BLOCK,
                   .fold = fold,
                   .step = fold ? BLOCK : r->channels,
                   .whole = end - r->rows % ROW_SUMS * r->channels,
                   .end = end,
                   .sums = fold ? ROW_SUMS / 2 : ROW_SUMS};
}

/* Calls f(rows, strip, stored, arguments ...) and leaves in c the column after the last strip. */
#define FOR_STRIPS(all, c, stored, f, ...)                                                                   \
    do {                                                                                                     \
        if (folds(all, stored)) {                                                                            \
            f(all, strip_at(all, c, true), stored, __VA_ARGS__);                                             \
            (c) += LANES;                                                                                    \
        }                                                                                                    \
        while ((c) + BLOCK <= (all)->channels) {                                                             \
            const strip next = strip_at(all, c, false);                                                      \
            f(all, next, stored, __VA_ARGS__);                                                               \
            (c) += (int64_t)next.blocks * BLOCK;                                                             \
        }                                                                                                    \
    } while (0)

/* Place of a block in a row. */
static AB_FORCE_INLINE int64_t place(const ab_bn_rows *r, const strip *s, int64_t row, int b) {
    return row * r->channels + s->c + (int64_t)b * BLOCK;
}

/* The sum that a row is added to. */
static AB_FORCE_INLINE int sum_of_row(const ab_bn_rows *r, int64_t row) {
    return row < r->rows - r->rows % ROW_SUMS ? (int)(row % ROW_SUMS) : 0;
}

static AB_FORCE_INLINE two block_term(const void *x, int64_t at, const two *mean, ab_stored stored) {
    const two v = load_two(x, at, stored);
    if (!mean) return v;
    const two d = sub_two(v, *mean);
    return mul_two(d, d);
}

/* Sums of all rows of block b. */
static AB_FORCE_INLINE void block_sums(const ab_bn_rows *r, const strip *s, int b, const two *mean,
                                       ab_stored stored, two to[ROW_SUMS]) {
    const int64_t c = place(r, s, 0, b);
    const void *x = r->x;
    two sums[ROW_SUMS] = {0};
    for (int64_t at = c; at < s->whole; at += s->sums * s->step)
        for (int i = 0; i < s->sums; i++)
            sums[i] = add_two(sums[i], block_term(x, at + i * s->step, mean, stored));
    for (int64_t at = s->whole + c; at < s->end; at += s->step)
        sums[0] = add_two(sums[0], block_term(x, at, mean, stored));
    for (int i = 0; i < ROW_SUMS; i++) to[i] = sums[i];
}

/* The mean of block b, and in another pass, over what is in cache, the squares around it. */
static AB_FORCE_INLINE void finish_moments(const ab_bn_rows *r, const strip *s, int b, ab_stored stored,
                                           const two sums[ROW_SUMS], float *mean, float *m2) {
    const int64_t c = place(r, s, 0, b);
    two squares[ROW_SUMS];
    const two sum = total_two(sums, s->fold, stored);
    const wide rows = wide_set((float)r->rows);
    store_columns(mean + c, (two){{wide_div(sum.v[0], rows), wide_div(sum.v[1], rows)}}, s->fold);
    const two m = factors_of(mean, c, s->fold, stored);
    block_sums(r, s, b, &m, stored, squares);
    store_columns(m2 + c, total_two(squares, s->fold, stored), s->fold);
}

static AB_FORCE_INLINE void strip_moments(const ab_bn_rows *r, strip s, ab_stored stored, float *mean,
                                          float *m2) {
    two sums[STRIP][ROW_SUMS];
    if (!s.by_rows) {
        block_sums(r, &s, 0, NULL, stored, sums[0]);
        finish_moments(r, &s, 0, stored, sums[0], mean, m2);
        return;
    }
    for (int b = 0; b < s.blocks; b++)
        for (int i = 0; i < ROW_SUMS; i++) sums[b][i] = (two){{wide_zero(), wide_zero()}};
    for (int64_t row = 0; row < r->rows; row++) {
        const int i = sum_of_row(r, row);
        for (int b = 0; b < s.blocks; b++)
            sums[b][i] = add_two(sums[b][i], load_two(r->x, place(r, &s, row, b), stored));
    }
    for (int b = 0; b < s.blocks; b++) finish_moments(r, &s, b, stored, sums[b], mean, m2);
}

/* The factors of a block, in the order of load_two. */
typedef struct block_factors {
    two mean, scale, shift, slope;
} block_factors;

static AB_FORCE_INLINE block_factors block_factors_of(const ab_bn_factors *f, int64_t c, bool fold,
                                                      ab_stored stored) {
    return (block_factors){.mean = factors_of(f->mean, c, fold, stored),
                           .scale = factors_of(f->scale, c, fold, stored),
                           .shift = factors_of(f->shift, c, fold, stored),
                           .slope = factors_of(f->slope ? f->slope : f->mean, c, fold, stored)};
}

/* Calls f(rows, place, factors, stored, arguments ...) for all places of a strip, with the factors of theirs.
 */
#define FOR_PLACES(r, s, factors, stored, f, ...)                                                            \
    do {                                                                                                     \
        block_factors own[STRIP];                                                                            \
        for (int b = 0; b < (s).blocks; b++)                                                                 \
            own[b] = block_factors_of(factors, place(r, &(s), 0, b), (s).fold, stored);                      \
        if ((s).by_rows) {                                                                                   \
            for (int64_t row = 0; row < (r)->rows; row++)                                                    \
                for (int b = 0; b < (s).blocks; b++)                                                         \
                    f(r, place(r, &(s), row, b), &own[b], stored, __VA_ARGS__);                              \
        } else {                                                                                             \
            const block_factors only = own[0];                                                               \
            for (int64_t at = (s).c; at < (s).end; at += (s).step) f(r, at, &only, stored, __VA_ARGS__);     \
        }                                                                                                    \
    } while (0)

static AB_FORCE_INLINE void apply_at(const ab_bn_rows *r, int64_t at, const block_factors *f,
                                     ab_stored stored, const void *from, const void *addend,
                                     const void *above, bool relu) {
    two v = load_dy_two(from, above, NULL, at, stored);
    v = add_two(mul_two(sub_two(v, f->mean), f->scale), f->shift);
    if (addend) v = add_two(as_stored_two(v, stored), load_two(addend, at, stored));
    store_two(r->out, at, v, relu, stored);
}

static AB_FORCE_INLINE void strip_apply(const ab_bn_rows *all, strip s, ab_stored stored,
                                        const ab_bn_factors *factors, const void *from, const void *addend,
                                        const void *above, bool relu) {
    const ab_bn_rows r = *all; /* stores may not change it */
    FOR_PLACES(&r, s, factors, stored, apply_at, from, addend, above, relu);
}

/* The sums of dy, then the dots. */
typedef struct gradient_sums {
    two sum[ROW_SUMS], dot[ROW_SUMS];
} gradient_sums;

static AB_FORCE_INLINE void add_terms_at(const ab_bn_rows *r, int64_t at, two mean, const void *above,
                                         void *masked, int i, gradient_sums *to, ab_stored stored) {
    const two dy = load_dy_two(r->dy, above, masked, at, stored);
    to->sum[i] = add_two(to->sum[i], dy);
    to->dot[i] = add_two(to->dot[i], mul_two(dy, sub_two(load_two(r->x, at, stored), mean)));
}

static AB_FORCE_INLINE void sum_block_gradients(const ab_bn_rows *r, const strip *s, two mean,
                                                const void *above, void *masked, gradient_sums *to,
                                                ab_stored stored) {
    gradient_sums sums = *to;
    for (int64_t at = s->c; at < s->whole; at += s->sums * s->step)
        for (int i = 0; i < s->sums; i++)
            add_terms_at(r, at + i * s->step, mean, above, masked, i, &sums, stored);
    for (int64_t at = s->whole + s->c; at < s->end; at += s->step)
        add_terms_at(r, at, mean, above, masked, 0, &sums, stored);
    *to = sums;
}

static AB_FORCE_INLINE void strip_sums(const ab_bn_rows *all, strip s, ab_stored stored, const float *mean,
                                       float *sum, float *dot, const void *above, void *masked) {
    const ab_bn_rows r = *all; /* stores to masked may not change it */
    const two zero = {{wide_zero(), wide_zero()}};
    gradient_sums sums[STRIP];
    two m[STRIP];
    for (int b = 0; b < s.blocks; b++) {
        m[b] = factors_of(mean, place(&r, &s, 0, b), s.fold, stored);
        for (int i = 0; i < ROW_SUMS; i++) sums[b].sum[i] = sums[b].dot[i] = zero;
    }
    if (!s.by_rows) sum_block_gradients(&r, &s, m[0], above, masked, &sums[0], stored);
    for (int64_t row = 0; s.by_rows && row < r.rows; row++)
        for (int b = 0; b < s.blocks; b++)
            add_terms_at(&r, place(&r, &s, row, b), m[b], above, masked, sum_of_row(&r, row), &sums[b],
                         stored);
    for (int b = 0; b < s.blocks; b++) {
        const int64_t c = place(&r, &s, 0, b);
        store_columns(sum + c, total_two(sums[b].sum, s.fold, stored), s.fold);
        store_columns(dot + c, total_two(sums[b].dot, s.fold, stored), s.fold);
    }
}

static AB_FORCE_INLINE void gradient_at(const ab_bn_rows *r, int64_t at, const block_factors *f,
                                        ab_stored stored, const void *above) {
    const two centred = mul_two(sub_two(load_two(r->x, at, stored), f->mean), f->slope);
    const two d = sub_two(sub_two(load_dy_two(r->dy, above, NULL, at, stored), f->shift), centred);
    store_two(r->out, at, mul_two(d, f->scale), false, stored);
}

static AB_FORCE_INLINE void strip_gradient(const ab_bn_rows *all, strip s, ab_stored stored,
                                           const ab_bn_factors *factors, const void *above) {
    const ab_bn_rows r = *all; /* stores may not change it */
    FOR_PLACES(&r, s, factors, stored, gradient_at, above);
}

#else
#define FOR_STRIPS(rows, c, stored, f, ...) (void)0
#endif

/* ---- statistics ------------------------------------------------------------------------------ */

static AB_FORCE_INLINE wide term(wide x, const wide *mean) {
    if (!mean) return x;
    const wide d = wide_sub(x, *mean);
    return wide_mul(d, d);
}

/* Sum over the rows of x, or of the square of x - mean. */
static AB_FORCE_INLINE wide column_sum(const ab_bn_rows *r, int64_t c, int n, const wide *mean,
                                       ab_stored stored) {
    const int64_t whole = r->rows - r->rows % ROW_SUMS;
    wide sums[ROW_SUMS];
    clear_sums(sums);
    for (int64_t row = 0; row < whole; row += ROW_SUMS)
        for (int i = 0; i < ROW_SUMS; i++)
            sums[i] = wide_add(sums[i], term(load(r->x, (row + i) * r->channels + c, n, stored), mean));
    for (int64_t row = whole; row < r->rows; row++)
        sums[0] = wide_add(sums[0], term(load(r->x, row * r->channels + c, n, stored), mean));
    return total_sum(sums);
}

static AB_FORCE_INLINE void moments(const ab_bn_rows *r, float *mean, float *m2, ab_stored stored) {
    int64_t c = 0;
    FOR_STRIPS(r, c, stored, strip_moments, mean, m2);
    for (; c < r->channels; c += LANES) {
        const int n = columns_left(r->channels - c);
        const wide sum = column_sum(r, c, n, NULL, stored);
        const wide m = wide_div(sum, wide_set((float)r->rows));
        wide_store_first(mean + c, m, n);
        wide_store_first(m2 + c, column_sum(r, c, n, &m, stored), n);
    }
}

/* ---- forward --------------------------------------------------------------------------------- */

static AB_FORCE_INLINE void apply_as(const ab_bn_rows *r, const ab_bn_factors *factors, const void *from,
                                     const void *addend, const void *above, bool relu, ab_stored stored) {
    int64_t c = 0;
    FOR_STRIPS(r, c, stored, strip_apply, factors, from, addend, above, relu);
    for (; c < r->channels; c += LANES) {
        const int n = columns_left(r->channels - c);
        const wide mean = wide_load_first(factors->mean + c, n);
        const wide scale = wide_load_first(factors->scale + c, n);
        const wide shift = wide_load_first(factors->shift + c, n);
        for (int64_t at = c; at < r->rows * r->channels; at += r->channels) {
            wide v = load(from, at, n, stored);
            if (above) v = wide_where_above(v, load(above, at, n, stored));
            v = wide_add(wide_mul(wide_sub(v, mean), scale), shift);
            if (addend) v = wide_add(as_stored(v, stored), load(addend, at, n, stored));
            /* relu and rounding commute: rounding to nearest is monotonic and keeps 0 */
            if (relu) v = wide_where_above(v, v);
            store(r->out, at, v, n, stored);
        }
    }
}

static AB_FORCE_INLINE void apply(const ab_bn_rows *r, const ab_bn_factors *factors, ab_stored stored) {
    if (!r->relu)
        apply_as(r, factors, r->x, NULL, NULL, false, stored);
    else if (r->addend)
        apply_as(r, factors, r->x, r->addend, NULL, true, stored);
    else
        apply_as(r, factors, r->x, NULL, NULL, true, stored);
}

/* ---- backward -------------------------------------------------------------------------------- */

static AB_FORCE_INLINE wide load_dy(const ab_bn_rows *r, int64_t at, int n, const void *above,
                                    ab_stored stored) {
    const wide dy = load(r->dy, at, n, stored);
    return above ? wide_where_above(dy, load(above, at, n, stored)) : dy;
}

/* Adds the terms of one row. */
static AB_FORCE_INLINE void add_terms(const ab_bn_rows *r, int64_t at, int n, wide mean, const void *above,
                                      void *masked, wide *sum, wide *dot, ab_stored stored) {
    const wide dy = load_dy(r, at, n, above, stored);
    if (masked) store(masked, at, dy, n, stored);
    *sum = wide_add(*sum, dy);
    *dot = wide_add(*dot, wide_mul(dy, wide_sub(load(r->x, at, n, stored), mean)));
}

static AB_FORCE_INLINE void sums_as(const ab_bn_rows *r, const float *mean, float *sum, float *dot,
                                    const void *above, void *masked, ab_stored stored) {
    const int64_t step = r->channels, whole = (r->rows - r->rows % ROW_SUMS) * step;
    int64_t c = 0;
    FOR_STRIPS(r, c, stored, strip_sums, mean, sum, dot, above, masked);
    for (; c < step; c += LANES) {
        const int n = columns_left(step - c);
        const wide m = wide_load_first(mean + c, n);
        wide sums[ROW_SUMS], dots[ROW_SUMS];
        clear_sums(sums);
        clear_sums(dots);
        for (int64_t at = c; at < whole; at += ROW_SUMS * step)
            for (int i = 0; i < ROW_SUMS; i++)
                add_terms(r, at + i * step, n, m, above, masked, &sums[i], &dots[i], stored);
        for (int64_t at = whole + c; at < r->rows * step; at += step)
            add_terms(r, at, n, m, above, masked, &sums[0], &dots[0], stored);
        wide_store_first(sum + c, total_sum(sums), n);
        wide_store_first(dot + c, total_sum(dots), n);
    }
}

static AB_FORCE_INLINE void sums(const ab_bn_rows *r, const float *mean, float *sum, float *dot,
                                 ab_stored stored) {
    if (!r->above)
        sums_as(r, mean, sum, dot, NULL, NULL, stored);
    else if (r->masked)
        sums_as(r, mean, sum, dot, r->above, r->masked, stored);
    else
        sums_as(r, mean, sum, dot, r->above, NULL, stored);
}

static AB_FORCE_INLINE void gradient_as(const ab_bn_rows *r, const ab_bn_factors *factors, const void *above,
                                        ab_stored stored) {
    int64_t c = 0;
    FOR_STRIPS(r, c, stored, strip_gradient, factors, above);
    for (; c < r->channels; c += LANES) {
        const int n = columns_left(r->channels - c);
        const wide mean = wide_load_first(factors->mean + c, n);
        const wide scale = wide_load_first(factors->scale + c, n);
        const wide shift = wide_load_first(factors->shift + c, n);
        const wide slope = wide_load_first(factors->slope + c, n);
        for (int64_t at = c; at < r->rows * r->channels; at += r->channels) {
            const wide centred = wide_mul(wide_sub(load(r->x, at, n, stored), mean), slope);
            const wide d = wide_sub(wide_sub(load_dy(r, at, n, above, stored), shift), centred);
            store(r->out, at, wide_mul(d, scale), n, stored);
        }
    }
}

static AB_FORCE_INLINE void gradient(const ab_bn_rows *r, const ab_bn_factors *factors, ab_stored stored) {
    if (r->above)
        gradient_as(r, factors, r->above, stored);
    else
        gradient_as(r, factors, NULL, stored);
}

static AB_FORCE_INLINE void scaled(const ab_bn_rows *r, const ab_bn_factors *factors, ab_stored stored) {
    if (r->above)
        apply_as(r, factors, r->dy, NULL, r->above, false, stored);
    else
        apply_as(r, factors, r->dy, NULL, NULL, false, stored);
}

/* ---- one set of loops per format ------------------------------------------------------------- */

#define LOOPS(name, stored)                                                                                  \
    static void moments_##name(const ab_bn_rows *r, float *mean, float *m2) {                                \
        moments(r, mean, m2, stored);                                                                        \
    }                                                                                                        \
    static void apply_##name(const ab_bn_rows *r, const ab_bn_factors *f) { apply(r, f, stored); }           \
    static void sums_##name(const ab_bn_rows *r, const float *mean, float *sum, float *dot) {                \
        sums(r, mean, sum, dot, stored);                                                                     \
    }                                                                                                        \
    static void gradient_##name(const ab_bn_rows *r, const ab_bn_factors *f) { gradient(r, f, stored); }     \
    static void scaled_##name(const ab_bn_rows *r, const ab_bn_factors *f) { scaled(r, f, stored); }

LOOPS(fp32, AB_STORED_FP32)
LOOPS(fp16, AB_STORED_FP16)
LOOPS(bf16, AB_STORED_BF16)

#define ROW(name)                                                                                            \
    { moments_##name, apply_##name, sums_##name, gradient_##name, scaled_##name }

AB_ISA_TABLE(ab_vec_batch_norm) = {
    {[AB_STORED_FP32] = ROW(fp32), [AB_STORED_FP16] = ROW(fp16), [AB_STORED_BF16] = ROW(bf16)}};
