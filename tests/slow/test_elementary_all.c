/* All 2^32 fp32 numbers through the functions of one number in elementary.h: their largest errors against
 * libm in double, and the same bits from the vector loops of the best CPU level. */
#include "oracle/op_run.h"

#include "kernels/core/elementary.h"
#include "kernels/vec/vec_math.h"

enum { PART = 1 << 12, CHUNKS = 1 << 10 };

static double sigmoid_exact(double x) { return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x)); }

typedef struct function {
    const char *name;
    float (*f)(float);
    double (*exact)(double);
    void (*loop)(float *out, const float *a, const float *unused, int64_t n); /* NULL: none */
    double bound;                                                             /* units in the last place */
} function;

typedef struct search {
    const function *f;
    double worst[CHUNKS]; /* infinite if a special value is wrong */
    float at[CHUNKS];
} search;

static double ulp_of(double y) {
    int exponent;
    frexp(y, &exponent);
    return ldexp(1.0, (exponent < -125 ? -125 : exponent) - 24);
}

/* Not more than `known`, or the error: a unit in the last place of y is at least 2^-24 y. */
static double error_of(double exact, float y, double known) {
    if (fabs((double)y - exact) <= known * 0x1p-24 * fabs(exact)) return known;
    if (isnan(exact)) return isnan(y) ? 0 : (double)INFINITY;
    if (isinf((float)exact)) return y == (float)exact ? 0 : (double)INFINITY;
    return isfinite(y) ? fabs((double)y - exact) / ulp_of(exact) : (double)INFINITY;
}

static bool same_bits(float a, float b) { return isnan(a) ? isnan(b) : ab_bits_of(a) == ab_bits_of(b); }

static void try_part(search *s, int64_t chunk, uint32_t first) {
    float x[PART], y[PART];
    for (uint32_t i = 0; i < PART; i++) x[i] = ab_float_of(first + i);
    if (s->f->loop) s->f->loop(y, x, NULL, PART);
    for (int i = 0; i < PART; i++) {
        const float found = s->f->f(x[i]);
        double error = error_of(s->f->exact((double)x[i]), found, s->worst[chunk]);
        if (s->f->loop && !same_bits(found, y[i])) error = (double)INFINITY;
        if (error <= s->worst[chunk]) continue;
        s->worst[chunk] = error;
        s->at[chunk] = x[i];
    }
}

static void try_chunk(void *argument, int64_t chunk, int thread) {
    const uint64_t size = (UINT64_C(1) << 32) / CHUNKS;
    (void)thread;
    for (uint64_t i = 0; i < size; i += PART)
        try_part(argument, chunk, (uint32_t)((uint64_t)chunk * size + i));
}

static void check(const function *f) {
    static search s;
    s = (search){.f = f};
    int worst = 0;
    ab_parallel_for(CHUNKS, try_chunk, &s);
    for (int i = 1; i < CHUNKS; i++) worst = s.worst[i] > s.worst[worst] ? i : worst;
    print_message("%s: off by at most %.4f, at %a\n", f->name, s.worst[worst], (double)s.at[worst]);
    if (!(s.worst[worst] <= f->bound)) fail_msg("%s: expected at most %.2f", f->name, f->bound);
}

static void every_float_is_within_the_bound(void **state) {
    (void)state;
    const ab_vec_math *vec = ab_vec_math_get();
    const function functions[] = {{"ab_expf", ab_expf, exp, vec->exp, 0.99},
                                  {"ab_logf", ab_logf, log, NULL, 0.85},
                                  {"ab_log1pf", ab_log1pf, log1p, NULL, 0.86},
                                  {"ab_tanhf", ab_tanhf, tanh, vec->tanh, 1.34},
                                  {"ab_f_sigmoid", ab_f_sigmoid, sigmoid_exact, vec->sigmoid, 2.41}};
    assert_int_equal(ab_parallel_start(2), AB_OK);
    for (size_t i = 0; i < AB_COUNT_OF(functions); i++) check(&functions[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_float_is_within_the_bound)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
