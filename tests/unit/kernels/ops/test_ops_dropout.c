/* dropout: masks are Philox's coins by (seed, step, op, element), the same forward and backward, on every
 * level, thread count and however the tensor is split; the share of zeros is p; nothing happens outside
 * training. */
#include "oracle/op_run.h"

#include "kernels/core/rng.h"
#include "oracle/jacobian.h"

typedef struct dropout_case {
    int64_t n;
    double p;
    uint64_t seed;
    uint32_t step, instance;
    bool training;
} dropout_case;

static const dropout_case cases[] = {
    {1, 0.5, 1, 0, 0, true},
    {1003, 0.1, 7, 3, 2, true},
    {70001, 0.25, 1u << 30, 99, 5, true},
    {513, 1.0, 1, 1, 1, true},
    {513, 0.0, 1, 1, 1, true},
    {513, 0.5, 1, 1, 1, false},
    {6000, 0.5, ((uint64_t)9 << 32) + 3, 4, 1, true},
};

static void open_case(op_run *r, const void *self, op_formats formats) {
    const dropout_case *k = self;
    static op_attrs attrs;
    ab_exec exec = {.training = k->training, .seed = k->seed, .step = k->step};
    ab_shape shape = {.ndim = 2, .dim = {1, k->n}};
    attrs = op_attrs_default(&ab_op_dropout);
    op_attrs_set(&ab_op_dropout, &attrs, "p", k->p, 0);
    op_run_open(r, &ab_op_dropout, &attrs, &shape, 1, formats, &exec);
    r->io.instance = k->instance;
    op_run_fill_all(r, 12);
    assert_int_equal(op_run_prepare(r), AB_OK);
}

static bool is_kept(const dropout_case *k, int64_t i) {
    if (!k->training) return true;
    ab_rng_block block =
        ab_rng_at(k->seed, AB_RNG_DROPOUT, k->step, (uint64_t)k->instance << 32 | (uint64_t)(i / 4));
    return ldexp((double)(block.word[i % 4] >> 8), -24) >= k->p;
}

static void check_case(const op_run *r, const void *self) {
    const dropout_case *k = self;
    double scale = k->training && k->p < 1.0 ? 1.0 / (1.0 - k->p) : 1.0;
    int64_t zeros = 0;
    for (int64_t i = 0; i < k->n; i++) {
        bool kept = is_kept(k, i);
        double out = kept ? scale * oracle_get(&r->in[0], i) : 0.0,
               din = kept ? scale * oracle_get(&r->dout, i) : 0.0;
        op_run_near(r, "out", &r->out, i, out, 2.0 * ORACLE_U32 * fabs(out));
        op_run_near(r, "din", &r->din[0], i, din, 2.0 * ORACLE_U32 * fabs(din));
        zeros += !kept;
        if (!kept) assert_true(oracle_get(&r->out, i) == 0.0);
    }
    double expected = k->training ? k->p : 0.0, n = (double)k->n;
    if (k->n > 500)
        assert_true(fabs((double)zeros - n * expected) <= 5.0 * sqrt(n * expected * (1.0 - expected)));
}

static void masks_are_the_documented_coins(void **state) {
    (void)state;
    for (size_t k = 0; k < AB_COUNT_OF(cases); k++)
        oracle_run_all((oracle_run){.open = open_case, .check = check_case, .self = &cases[k]});
}

static int64_t kept_by_both(const dropout_case *a, const dropout_case *b) {
    op_run ra, rb;
    int64_t both = 0;
    open_case(&ra, a, (op_formats){&ab_format_fp32, &ab_format_fp32, NULL});
    open_case(&rb, b, (op_formats){&ab_format_fp32, &ab_format_fp32, NULL});
    op_run_both(&ra);
    op_run_both(&rb);
    for (int64_t i = 0; i < a->n; i++) both += oracle_get(&ra.out, i) != 0.0 && oracle_get(&rb.out, i) != 0.0;
    op_run_close(&ra);
    op_run_close(&rb);
    return both;
}

/* Other seeds, steps and ops have independent masks: half of a half is kept by both. */
static void seeds_steps_and_ops_have_masks_of_their_own(void **state) {
    (void)state;
    const dropout_case base = {20000, 0.5, 1, 1, 1, true};
    dropout_case other[3] = {base, base, base};
    other[0].seed = 2;
    other[1].step = 2;
    other[2].instance = 2;
    assert_true(kept_by_both(&base, &base) > 9500);
    for (int i = 0; i < 3; i++) {
        int64_t both = kept_by_both(&base, &other[i]);
        assert_true(both > 4600 && both < 5400);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_are_the_documented_coins),
        cmocka_unit_test(seeds_steps_and_ops_have_masks_of_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
