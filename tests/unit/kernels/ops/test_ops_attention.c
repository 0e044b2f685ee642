/* scaled_dot_product_attention against its definition in double, with derivatives by differences: packed and
 * separate inputs, both layouts, every kind of mask, several blocks of queries, dropout, half accumulation.
 */
#include "oracle/op_run.h"

#include "kernels/core/rng.h"
#include "kernels/ops/product/bf16_unit.h"
#include "oracle/jacobian.h"

typedef enum mask_kind { NO_MASK, IDS, NUMBERS } mask_kind;

typedef struct attention_case {
    int64_t batch, heads, queries, keys, width, value_width;
    bool packed, four, causal;
    mask_kind mask;
    ab_shape mask_shape;
    double scale, mask_value, dropout;
} attention_case;

static const attention_case cases[] = {
    {1, 1, 1, 1, 1, 1, true, false, false, NO_MASK, {0}, 0, 0, 0},
    {2, 3, 5, 5, 2, 2, true, false, false, NO_MASK, {0}, 0, 0, 0},
    {2, 2, 7, 7, 3, 3, true, false, true, NO_MASK, {0}, 0, 0, 0},
    {1, 2, 4, 4, 3, 3, true, false, false, IDS, {2, {4, 4}}, 0, 0, 0},
    {2, 2, 3, 5, 4, 4, false, false, false, NUMBERS, {2, {1, 5}}, 0.3, 0, 0},
    {2, 2, 3, 4, 3, 5, false, true, false, IDS, {4, {2, 1, 1, 4}}, 0, 0, 0},
    {1, 2, 5, 3, 2, 1, false, true, true, NUMBERS, {3, {2, 5, 1}}, 1.5, 0, 0},
    {2, 1, 4, 4, 3, 3, true, false, true, NO_MASK, {0}, 0, -3.0, 0},
    {1, 2, 4, 4, 3, 3, true, false, false, IDS, {4, {1, 2, 4, 4}}, 0, -2.0, 0},
    {2, 2, 5, 5, 2, 2, true, false, true, NO_MASK, {0}, 0, 0, 0.25},
};

/* ---- the definition -------------------------------------------------------------------------- */

/* Element (batch, head, row, column) of part 0, 1 or 2 of q, k, v; or 3: of the result. */
static int64_t place(const attention_case *k, int part, int64_t b, int64_t h, int64_t row, int64_t column) {
    int64_t rows = part == 1 || part == 2 ? k->keys : k->queries;
    int64_t width = part == 2 || part == 3 ? k->value_width : k->width;
    if (k->four) return ((b * k->heads + h) * rows + row) * width + column;
    if (k->packed && part < 3) return ((b * rows + row) * 3 + part) * k->heads * width + h * width + column;
    return ((b * rows + row) * k->heads + h) * width + column;
}

static double mask_at(const attention_case *k, const double *mask, int64_t b, int64_t h, int64_t i,
                      int64_t j) {
    const int64_t at[] = {b, h, i, j};
    int64_t offset = 0;
    for (int d = 0; d < k->mask_shape.ndim; d++) {
        int64_t size = k->mask_shape.dim[d];
        offset = offset * size + (size == 1 ? 0 : at[4 - k->mask_shape.ndim + d]);
    }
    return mask[offset];
}

/* exec of every run here: the mask of dropout follow from it. */
enum { SEED = 11, STEP = 3, INSTANCE = 4 };

static double mask_factor(const attention_case *k, int64_t b, int64_t h, int64_t i, int64_t j) {
    int64_t at = ((b * k->heads + h) * k->queries + i) * k->keys + j;
    if (k->dropout == 0.0) return 1.0;
    ab_rng_block block = ab_rng_at(SEED, AB_RNG_DROPOUT, STEP, (uint64_t)INSTANCE << 32 | (uint64_t)(at / 4));
    return ldexp((double)(block.word[at % 4] >> 8), -24) >= k->dropout ? 1.0 / (1.0 - k->dropout) : 0.0;
}

static double score(const attention_case *k, double *const *x, int64_t b, int64_t h, int64_t i, int64_t j) {
    const double *q = x[0], *keys = k->packed ? x[0] : x[1],
                 *mask = k->mask == NO_MASK ? NULL : x[k->packed ? 1 : 3];
    double scale = k->scale == 0.0 ? 1.0 / sqrt((double)k->width) : k->scale, sum = 0.0;
    double no = k->mask_value == 0.0 ? -(double)INFINITY : k->mask_value;
    for (int64_t c = 0; c < k->width; c++) sum += q[place(k, 0, b, h, i, c)] * keys[place(k, 1, b, h, j, c)];
    sum *= scale;
    if (k->causal && j > i) sum += no;
    if (k->mask == IDS && mask_at(k, mask, b, h, i, j) == 0.0) sum += no;
    if (k->mask == NUMBERS) sum += mask_at(k, mask, b, h, i, j);
    return sum;
}

static void attend_row(const attention_case *k, double *const *x, double *out, int64_t b, int64_t h,
                       int64_t i) {
    const double *values = k->packed ? x[0] : x[2];
    double best = -(double)INFINITY, total = 0.0;
    for (int64_t j = 0; j < k->keys; j++) best = fmax(best, score(k, x, b, h, i, j));
    for (int64_t j = 0; j < k->keys; j++) total += isinf(best) ? 1.0 : exp(score(k, x, b, h, i, j) - best);
    for (int64_t c = 0; c < k->value_width; c++) {
        double sum = 0.0;
        for (int64_t j = 0; j < k->keys && !isinf(best); j++)
            sum += exp(score(k, x, b, h, i, j) - best) / total * mask_factor(k, b, h, i, j) *
                   values[place(k, 2, b, h, j, c)];
        out[place(k, 3, b, h, i, c)] = sum;
    }
}

static void attend(const void *self, double *const *x, double *out) {
    const attention_case *k = self;
    for (int64_t b = 0; b < k->batch; b++)
        for (int64_t h = 0; h < k->heads; h++)
            for (int64_t i = 0; i < k->queries; i++) attend_row(k, x, out, b, h, i);
}

/* ---- runs ------------------------------------------------------------------------------------ */

static op_attrs attrs_of(const attention_case *k) {
    const ab_op *op = &ab_op_scaled_dot_product_attention;
    op_attrs attrs = op_attrs_default(op);
    op_attrs_set(op, &attrs, "num_heads", k->four ? 1.0 : (double)k->heads, 0);
    op_attrs_set(op, &attrs, "is_causal", k->causal, 0);
    op_attrs_set(op, &attrs, "scale", k->scale, 0);
    op_attrs_set(op, &attrs, "mask_value", k->mask_value, 0);
    op_attrs_set(op, &attrs, "dropout_p", k->dropout, 0);
    return attrs;
}

static int inputs_of(const attention_case *k, ab_shape *in) {
    int count = k->packed ? 1 : 3;
    for (int part = 0; part < count; part++) {
        int64_t rows = part ? k->keys : k->queries, width = part == 2 ? k->value_width : k->width;
        in[part] = k->four ? (ab_shape){4, {k->batch, k->heads, rows, width}}
                           : (ab_shape){3, {k->batch, rows, k->heads * width * (k->packed ? 3 : 1)}};
    }
    if (k->mask != NO_MASK) in[count++] = k->mask_shape;
    return count;
}

static void open_path(op_run *r, const attention_case *k, op_formats formats, const ab_exec *exec) {
    static op_attrs attrs;
    ab_shape in[AB_MAX_INPUTS];
    int count = inputs_of(k, in), mask = k->packed ? 1 : 3;
    attrs = attrs_of(k);
    op_run_open_floats(r, &ab_op_scaled_dot_product_attention, &attrs, in, count, formats, exec,
                       k->mask == IDS ? ~(1u << mask) : ~0u);
    r->io.instance = INSTANCE;
    op_run_fill_all(r, 40);
    if (k->mask == IDS) /* the first row, if there are several, lets nobody take part */
        for (int64_t i = 0; i < ab_tensor_count(&r->in[mask]); i++)
            ((int32_t *)r->in[mask].data)[i] =
                (k->mask_value != 0.0 || i >= k->keys || k->mask_shape.ndim == 4) &&
                oracle_random(3, i) > -0.4;
    if (k->mask != NO_MASK) r->io.din[mask] = NULL;
    assert_int_equal(op_run_prepare(r), AB_OK);
}

static void open_case(op_run *r, const void *self, op_formats formats) {
    ab_exec exec = {.training = true, .seed = SEED, .step = STEP};
    open_path(r, self, formats, &exec);
}

static void check_case(const op_run *r, const void *self) {
    oracle_jacobian o = oracle_jacobian_open(r, attend, self);
    oracle_jacobian_check_out(r, &o, 40.0);
    oracle_jacobian_check_gradients(r, &o, 30.0);
    oracle_jacobian_close(&o);
}

static void every_mask_and_layout_matches_the_definition(void **state) {
    (void)state;
    int formats;
    const op_formats *format = op_all_formats(&formats);
    for (size_t k = 0; k < AB_COUNT_OF(cases); k++)
        for (int f = 0; f < formats; f++) {
            oracle_run s = {.open = open_case, .check = check_case, .self = &cases[k], .formats = format[f]};
            oracle_run_once(&s);
        }
}

static void the_portable_product_gives_the_same(void **state) {
    (void)state;
    for (size_t k = 0; k < AB_COUNT_OF(cases); k++) {
        ab_exec exec = {.training = true, .seed = SEED, .step = STEP, .path = AB_PATH_REFERENCE};
        op_run r;
        open_path(&r, &cases[k], (op_formats){&ab_format_fp32, &ab_format_fp32, NULL}, &exec);
        assert_string_equal(r.op->describe(&r.io, "forward"), "reference");
        op_run_both(&r);
        check_case(&r, &cases[k]);
        op_run_close(&r);
    }
}

/* Too large for differences: heads, blocks of queries and masks must not be mixed up. The sum of dq q over
 * the features is that of dk k over everything (both are the sum of dS S), the sum of dv over the keys is
 * that of dout. */
static void check_blocks(const op_run *r, const void *self) {
    const attention_case *k = self;
    double *x[] = {oracle_values(&r->in[0])};
    double sums[4] = {0};
    double *out = oracle_doubles(ab_tensor_count(&r->out));
    for (int64_t i = 0; i < k->queries; i += k->queries / 3) {
        attend_row(k, x, out, k->batch - 1, k->heads - 1, i);
        for (int64_t c = 0; c < k->value_width; c++) {
            int64_t at = place(k, 3, k->batch - 1, k->heads - 1, i, c);
            op_run_near(r, "out", &r->out, at, out[at], 100.0 * ORACLE_U32);
        }
    }
    for (int64_t i = 0; i < k->queries; i++)
        for (int64_t c = 0; c < k->width; c++) {
            const int64_t at[] = {place(k, 0, 0, 0, i, c), place(k, 1, 0, 0, i, c), place(k, 2, 0, 0, i, c)};
            sums[0] += oracle_get(&r->din[0], at[0]) * x[0][at[0]];
            sums[1] += oracle_get(&r->din[0], at[1]) * x[0][at[1]];
            sums[2] += oracle_get(&r->din[0], at[2]);
            sums[3] += oracle_get(&r->dout, place(k, 3, 0, 0, i, c));
        }
    double tolerance = r->out.format == &ab_format_fp32   ? 1e-4
                       : r->out.format == &ab_format_fp16 ? 0.05
                                                          : 0.4;
    assert_true(fabs(sums[0] - sums[1]) < tolerance);
    assert_true(fabs(sums[2] - sums[3]) < tolerance);
    free(x[0]);
    free(out);
}

static void blocks_of_queries_are_joined_with_the_same_bits_on_any_lanes(void **state) {
    (void)state;
    const int64_t many = op_run_rows(700), fewer = op_run_rows(400);
    const attention_case large[] = {
        {2, 2, many, many, 8, 8, true, false, true, NO_MASK, {0}, 0, 0, 0},
        {1, 3, fewer, fewer, 5, 5, true, false, false, NO_MASK, {0}, 0, 0, 0},
        {2, 3, 65, 65, 24, 24, true, false, true, NO_MASK, {0}, 0, 0, 0},
        {2, 2, 65, 65, 64, 64, true, false, false, NO_MASK, {0}, 0, 0, 0},
        {1, 2, 150, 150, 33, 33, true, false, true, NO_MASK, {0}, 0, 0, 0},
        {2, 2, 64, 64, 32, 32, true, false, true, NO_MASK, {0}, 0, 0, 0},
        {1, 2, 77, 77, 64, 64, true, false, false, NO_MASK, {0}, 0, 0, 0},
    };
    int formats;
    const op_formats *format = op_all_formats(&formats);
    for (size_t k = 0; k < AB_COUNT_OF(large); k++)
        for (int f = 0; f < formats; f++) {
            oracle_run s = {
                .open = open_case, .check = check_blocks, .self = &large[k], .formats = format[f]};
            op_run r[2];
            oracle_run_once(&s);
            for (int threads = 2; threads >= 1; threads--) {
                assert_int_equal(ab_parallel_start(threads), AB_OK);
                open_case(&r[threads - 1], &large[k], format[f]);
                op_run_both(&r[threads - 1]);
            }
            op_run_same_results(&r[0], &r[1]);
            op_run_close(&r[0]);
            op_run_close(&r[1]);
        }
}

/* Where multiply-adds are fused, the width of vectors changes no bit. */
static void the_widest_vectors_change_no_bits(void **state) {
    (void)state;
    static const attention_case wide[] = {
        {2, 2, 65, 65, 40, 40, true, false, false, NO_MASK, {0}, 0, 0, 0},
        {1, 2, 70, 70, 33, 33, true, false, true, NO_MASK, {0}, 0, 0, 0.25},
        {2, 2, 19, 83, 24, 50, false, true, true, NUMBERS, {2, {1, 83}}, 0.3, 0, 0},
        {2, 2, 64, 64, 32, 32, true, false, true, NO_MASK, {0}, 0, 0, 0},
        {1, 2, 19, 83, 64, 32, false, true, false, NO_MASK, {0}, 0, 0, 0},
    };
    if (ab_isa_best() < AB_ISA_AVX512) skip();
    for (size_t k = 0; k < AB_COUNT_OF(wide); k++) {
        op_run r[2];
        for (int i = 0; i < 2; i++) {
            assert_int_equal(ab_isa_force(i ? AB_ISA_AVX512 : AB_ISA_AVX2), AB_OK);
            open_case(&r[i], &wide[k], (op_formats){&ab_format_fp32, &ab_format_fp32, NULL});
            op_run_both(&r[i]);
        }
        op_run_same_results(&r[0], &r[1]);
        op_run_close(&r[0]);
        op_run_close(&r[1]);
        assert_int_equal(ab_isa_force(ab_isa_best()), AB_OK);
    }
}

/* A mask of zeros changes no score and makes the op compute by blocks of queries. spoiled: a value of q that
 * makes one row's sum of exponentials unusual. */
static void check_head_at_once(const attention_case *k, const ab_format *format, const double *spoiled) {
    op_run r[2];
    for (int i = 0; i < 2; i++) {
        attention_case one = *k;
        if (i) one.mask = NUMBERS, one.mask_shape = (ab_shape){1, {one.keys}};
        open_case(&r[i], &one, (op_formats){format, format, NULL});
        const int mask = k->packed ? 1 : 3;
        for (int64_t j = 0; i && j < k->keys; j++) oracle_put(&r[i].in[mask], j, 0.0);
        if (spoiled) oracle_put(&r[i].in[0], place(k, 0, 0, 0, k->queries / 2, 3), *spoiled);
        op_run_both(&r[i]);
    }
    bool same = op_run_same_bits(&r[0].out, &r[1].out) &&
                op_run_same_bits(&r[0].saved_tensor[0], &r[1].saved_tensor[0]);
    for (int i = 0; i < (k->packed ? 1 : 3); i++) same = same && op_run_same_bits(&r[0].din[i], &r[1].din[i]);
    if (!same)
        fail_msg("%s, %lld queries of %lld values, causal %d: other bits than by blocks", format->name,
                 (long long)k->queries, (long long)k->width, k->causal);
    op_run_close(&r[0]);
    op_run_close(&r[1]);
}

static void heads_at_once_have_the_bits_of_blocks_of_queries(void **state) {
    (void)state;
    static const attention_case heads[] = {
        {2, 3, 64, 64, 32, 32, true, false, true, NO_MASK, {0}, 0, 0, 0},
        {1, 2, 64, 64, 32, 32, true, false, false, NO_MASK, {0}, 0, 0, 0},
        {1, 2, 8, 8, 32, 32, true, false, true, NO_MASK, {0}, 0, 0, 0},
        {1, 2, 33, 33, 64, 64, true, false, true, NO_MASK, {0}, 0.7, 0, 0},
        {1, 2, 65, 65, 32, 32, true, false, true, NO_MASK, {0}, 0, 0, 0},
        {1, 1, 127, 127, 96, 96, true, false, true, NO_MASK, {0}, 0, 0, 0},
        {1, 1, 128, 128, 128, 128, true, false, false, NO_MASK, {0}, 0, 0, 0},
        {2, 2, 9, 91, 32, 64, false, true, false, NO_MASK, {0}, 0, 0, 0},
        {2, 2, 100, 12, 64, 32, false, false, false, NO_MASK, {0}, 0, 0, 0},
        {2, 3, 65, 65, 64, 64, true, false, false, NO_MASK, {0}, 0, 0, 0},
        {1, 2, 8, 18, 32, 96, false, true, false, NO_MASK, {0}, 0.7, 0, 0},
    };
    static const ab_format *const formats[] = {&ab_format_fp32, &ab_format_fp16, &ab_format_bf16};
    static const double spoiled[] = {(double)NAN, (double)INFINITY, 3e38};
    static const ab_isa levels[] = {AB_ISA_PLAIN, AB_ISA_AVX2, AB_ISA_AVX512};
    for (size_t l = 0; l < AB_COUNT_OF(levels) && levels[l] <= ab_isa_best(); l++) {
        assert_int_equal(ab_isa_force(levels[l]), AB_OK);
        for (size_t k = 0; k < AB_COUNT_OF(heads); k++)
            for (size_t f = 0; f < AB_COUNT_OF(formats); f++) {
                check_head_at_once(&heads[k], formats[f], NULL);
                for (size_t i = 0; i < AB_COUNT_OF(spoiled) && f == 0; i++)
                    check_head_at_once(&heads[k], formats[f], &spoiled[i]);
            }
    }
    assert_int_equal(ab_isa_force(ab_isa_best()), AB_OK);
}

/* ---- bf16 pairs ------------------------------------------------------------------------------ */

static void see_nothing(ab_observer *self, int id, int thread, const float *values, int64_t n) {
    (void)self, (void)id, (void)thread, (void)values, (void)n;
}

static void run_bf16(op_run *r, const attention_case *k, ab_cpu_path path, ab_observer *observer,
                     const double *spoiled) {
    const ab_exec exec = {.training = true, .path = path, .observer = observer};
    open_path(r, k, (op_formats){&ab_format_bf16, &ab_format_bf16, NULL}, &exec);
    if (spoiled) oracle_put(&r->in[0], place(k, 0, 0, 0, k->queries / 2, 3), *spoiled);
    op_run_both(r);
}

/* The score of the first query and key of a head, summed as bf16_unit.h says of vectors, or in order. */
static float first_score(const op_run *r, const attention_case *k, int64_t b, int64_t h, bool pairs) {
    float sum = 0.0f;
    for (int64_t i = 0; i < k->width; i++) {
        const int64_t c = pairs ? i ^ 1 : i;
        sum = fmaf((float)oracle_get(&r->in[0], place(k, 0, b, h, 0, c)),
                   (float)oracle_get(&r->in[k->packed ? 0 : 1], place(k, 1, b, h, 0, c)), sum);
    }
    return (float)(1.0 / sqrt((double)k->width)) * sum;
}

/* Of a causal head the log-sum of the first query is its one score. */
static void check_first_scores(const op_run *r, const attention_case *k, bool pairs) {
    for (int64_t b = 0; b < k->batch && k->causal && k->scale == 0.0; b++)
        for (int64_t h = 0; h < k->heads; h++)
            assert_true((float)oracle_get(&r->saved_tensor[0], (b * k->heads + h) * k->queries) ==
                        first_score(r, k, b, h, pairs));
}

/* Two roundings to bf16 of sums that differ by their order: at most a unit in the last place apart. */
static void check_near(const ab_tensor *a, const ab_tensor *b) {
    for (int64_t i = 0; i < ab_tensor_count(a); i++) {
        const double x = oracle_get(a, i), y = oracle_get(b, i);
        assert_int_equal(isfinite(x), isfinite(y));
        if (isfinite(x)) assert_true(fabs(x - y) <= 0x1p-7 * fmax(fabs(x), fabs(y)) + 1e-5);
    }
}

static void check_pairs(const attention_case *k, const double *spoiled) {
    ab_observer observer = {.see = see_nothing};
    op_run converts, pairs, seen;
    run_bf16(&converts, k, AB_PATH_CONVERT, NULL, spoiled);
    run_bf16(&pairs, k, AB_PATH_NATIVE, NULL, spoiled);
    run_bf16(&seen, k, AB_PATH_NATIVE, &observer, spoiled);
    assert_string_equal(pairs.op->describe(&pairs.io, "forward"), "native+own:avx512_bf16");
    assert_null(strstr(converts.op->describe(&converts.io, "forward"), "native"));
    if (!spoiled) check_first_scores(&converts, k, false);
    if (!spoiled) check_first_scores(&pairs, k, true);
    check_near(&pairs.out, &converts.out);
    for (int i = 0; i < (k->packed ? 1 : 3); i++) check_near(&pairs.din[i], &converts.din[i]);
    op_run_same_results(&pairs, &seen);
    op_run_close(&converts);
    op_run_close(&pairs);
    op_run_close(&seen);
}

static void bf16_scores_are_summed_in_pairs_where_the_cpu_has_a_unit(void **state) {
    (void)state;
    static const attention_case heads[] = {
        {2, 3, 64, 64, 32, 32, true, false, true, NO_MASK, {0}, 0, 0, 0},
        {1, 2, 33, 33, 64, 64, true, false, true, NO_MASK, {0}, 0, 0, 0},
        {1, 2, 77, 77, 64, 64, true, false, false, NO_MASK, {0}, 0.7, 0, 0},
        {1, 1, 128, 128, 96, 96, true, false, true, NO_MASK, {0}, 0, 0, 0},
        {1, 3, 65, 65, 64, 64, true, false, false, NO_MASK, {0}, 0, 0, 0},
        {2, 2, 9, 91, 32, 64, false, true, false, NO_MASK, {0}, 0, 0, 0},
        {2, 2, 100, 12, 64, 32, false, false, false, NO_MASK, {0}, 0, 0, 0},
    };
    static const double spoiled[] = {(double)NAN, (double)INFINITY, 3e38};
    const ab_bf16_unit *unit = ab_bf16_unit_get(true);
    if (!unit || unit != ab_bf16_unit_avx512()) skip();
    for (size_t k = 0; k < AB_COUNT_OF(heads); k++) {
        check_pairs(&heads[k], NULL);
        for (size_t i = 0; i < AB_COUNT_OF(spoiled); i++) check_pairs(&heads[k], &spoiled[i]);
    }
}

/* ---- behaviour ------------------------------------------------------------------------------- */

/* -70000 is no fp16 number: rounded it is -inf, and a row it covers has nobody left; in fp32 it is a constant
 * that cancels. */
static void a_mask_value_is_rounded_to_the_format_of_q(void **state) {
    (void)state;
    attention_case k = {1, 1, 2, 2, 1, 1, true, false, false, IDS, {2, {2, 2}}, 0, -70000.0, 0};
    const op_formats formats[] = {{&ab_format_fp32, &ab_format_fp32, NULL},
                                  {&ab_format_fp16, &ab_format_fp16, NULL}};
    for (size_t f = 0; f < 2; f++) {
        op_run r;
        open_case(&r, &k, formats[f]);
        const int32_t takes_part[] = {0, 0, 1, 1};
        memcpy(r.in[1].data, takes_part, sizeof takes_part);
        for (int i = 0; i < 6; i++) oracle_put(&r.in[0], i, 1.0);
        op_run_both(&r);
        assert_true(oracle_get(&r.out, 0) == (f ? 0.0 : 1.0));
        assert_true(oracle_get(&r.out, 1) == 1.0);
        op_run_close(&r);
    }
}

static void a_nan_spoils_its_rows_even_where_nothing_else_is_seen(void **state) {
    (void)state;
    attention_case k = {1, 1, 2, 2, 1, 1, true, false, true, NO_MASK, {0}, 0, 0, 0};
    op_run r;
    open_case(&r, &k, (op_formats){&ab_format_fp32, &ab_format_fp32, NULL});
    oracle_put(&r.in[0], 0, (double)NAN); /* q of row 0, which sees one key */
    op_run_both(&r);
    assert_true(isnan(oracle_get(&r.out, 0)));
    assert_true(!isnan(oracle_get(&r.out, 1)));
    op_run_close(&r);
}

/* Products and sums rounded to fp16 at every step: 4096 + 1 is 4096 there. */
static void half_accumulation_loses_what_half_sums_lose(void **state) {
    (void)state;
    attention_case k = {1, 1, 1, 2, 2, 2, false, false, false, NO_MASK, {0}, 1.0, 0, 0};
    for (int half = 0; half < 2; half++) {
        ab_exec exec = {.training = true, .accumulate_half = half == 1};
        op_run r;
        open_path(&r, &k, (op_formats){&ab_format_fp16, &ab_format_fp16, NULL}, &exec);
        const double q[] = {64.0, 1.0}, keys[] = {64.0, 0.0, 64.0, 1.0}, v[] = {0.0, 0.0, 1.0, 1.0};
        for (int i = 0; i < 2; i++) oracle_put(&r.in[0], i, q[i]);
        for (int i = 0; i < 4; i++) {
            oracle_put(&r.in[1], i, keys[i]);
            oracle_put(&r.in[2], i, v[i]);
        }
        op_run_both(&r);
        double expected = half ? 0.5 : 1.0 / (1.0 + exp(-1.0)); /* scores 4096 and 4097 */
        assert_true(fabs(oracle_get(&r.out, 0) - expected) < 1e-3);
        op_run_close(&r);
    }
}

static void refuse(const ab_shape *in, int inputs, double heads, const char *part) {
    const ab_op *op = &ab_op_scaled_dot_product_attention;
    op_attrs attrs = op_attrs_default(op);
    ab_shape out;
    op_attrs_set(op, &attrs, "num_heads", heads, 0);
    assert_int_equal(op->infer(&attrs, in, inputs, &out), AB_CONFIG);
    if (!strstr(ab_error_message(), part)) fail_msg("expected '%s' in '%s'", part, ab_error_message());
}

static void shapes_that_do_not_go_together_are_named(void **state) {
    (void)state;
    const ab_shape q = {3, {2, 5, 12}}, image = {4, {2, 3, 5, 4}}, flat = {2, {5, 12}},
                   other = {3, {2, 7, 8}}, mask = {2, {5, 6}}, big = {5, {1, 1, 1, 1, 1}};
    refuse((ab_shape[]){flat}, 1, 1, "[5, 12]");
    refuse((ab_shape[]){q}, 1, 5, "[2, 5, 12]");
    refuse((ab_shape[]){q, mask}, 2, 1, "[5, 6]");
    refuse((ab_shape[]){q, big}, 2, 1, "at most 4");
    refuse((ab_shape[]){q, image, image}, 3, 1, "[2, 3, 5, 4]");
    refuse((ab_shape[]){q, other, q}, 3, 1, "features of q");
    refuse((ab_shape[]){q, q, (ab_shape){3, {2, 4, 12}}}, 3, 1, "tokens of k");
    refuse((ab_shape[]){q, (ab_shape){3, {1, 5, 12}}, q}, 3, 1, "batch and heads");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_mask_and_layout_matches_the_definition),
        cmocka_unit_test(the_portable_product_gives_the_same),
        cmocka_unit_test(blocks_of_queries_are_joined_with_the_same_bits_on_any_lanes),
        cmocka_unit_test(the_widest_vectors_change_no_bits),
        cmocka_unit_test(heads_at_once_have_the_bits_of_blocks_of_queries),
        cmocka_unit_test(bf16_scores_are_summed_in_pairs_where_the_cpu_has_a_unit),
        cmocka_unit_test(a_mask_value_is_rounded_to_the_format_of_q),
        cmocka_unit_test(a_nan_spoils_its_rows_even_where_nothing_else_is_seen),
        cmocka_unit_test(half_accumulation_loses_what_half_sums_lose),
        cmocka_unit_test(shapes_that_do_not_go_together_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
