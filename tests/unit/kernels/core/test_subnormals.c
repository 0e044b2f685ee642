/* kernels/core/subnormals.h: the mode reaches every thread of a parallel loop and the library's products, and
 * does not change what must not depend on it: conversions between formats, and elementary functions of normal
 * numbers. Skipped on a processor that cannot flush. */
#define _POSIX_C_SOURCE 200809L /* nanosleep */
#include "kernels/core/elementary.h"
#include "kernels/core/elementary64.h"
#include "kernels/core/parallel.h"
#include "kernels/core/subnormals.h"
#include "kernels/format/convert.h"
#include "kernels/ops/product/gemm.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { THREADS = 4, CHUNKS = 16 };

static const float smallest_normal = 0x1p-126f, subnormal = 0x1p-130f;

static void needs_flushing(void) {
    if (!ab_subnormals_can_flush()) skip();
}

/* ---- threads --------------------------------------------------------------------------------- */

typedef struct seen {
    float operand, result; /* read by the chunks: a compiler cannot compute with them */
    _Atomic int flushed_operands, flushed_results, threads;
} seen;

/* Waits a little, so that all threads take part. */
static void multiply(void *argument, int64_t chunk, int thread) {
    seen *s = argument;
    const struct timespec moment = {0, 200000};
    const volatile float operand = s->operand, normal = s->result;
    (void)chunk;
    nanosleep(&moment, NULL);
    atomic_fetch_or(&s->threads, 1 << thread);
    atomic_fetch_add(&s->flushed_operands, operand * 0x1p60f == 0);
    atomic_fetch_add(&s->flushed_results, ab_bits_of(normal * 0.5f) == 0);
}

static seen loop(void) {
    seen s = {.operand = subnormal, .result = smallest_normal};
    for (int i = 0; i < 50 && atomic_load(&s.threads) != (1 << THREADS) - 1; i++) {
        atomic_store(&s.flushed_operands, 0);
        atomic_store(&s.flushed_results, 0);
        ab_parallel_for(CHUNKS, multiply, &s);
    }
    assert_int_equal(s.threads, (1 << THREADS) - 1);
    return s;
}

/* Threads started before the mode was set do not inherit it, threads started afterwards do. */
static void every_thread_computes_in_the_mode_of_its_caller(void **state) {
    (void)state;
    needs_flushing();
    for (int later = 0; later < 2; later++) {
        if (later) ab_subnormals_set(AB_SUBNORMALS_FLUSHED);
        assert_int_equal(ab_parallel_start(THREADS), AB_OK);
        ab_subnormals_set(AB_SUBNORMALS_FLUSHED);
        assert_int_equal(ab_subnormals_mode(), AB_SUBNORMALS_FLUSHED);
        seen s = loop();
        assert_int_equal(s.flushed_operands, CHUNKS);
        assert_int_equal(s.flushed_results, CHUNKS);
        assert_int_equal(ab_subnormals_set(AB_SUBNORMALS_KEPT), AB_SUBNORMALS_FLUSHED);
        s = loop();
        assert_int_equal(s.flushed_operands, 0);
        assert_int_equal(s.flushed_results, 0);
        ab_parallel_stop();
    }
}

/* ---- products -------------------------------------------------------------------------------- */

enum { SIDE = 64, PLACES = SIDE * SIDE };

typedef struct products {
    float a[PLACES], b[PLACES], c[CHUNKS][PLACES];
} products;

static void run_product(void *argument, int64_t chunk, int thread) {
    products *p = argument;
    const ab_gemm g = {.rows = SIDE,
                       .columns = SIDE,
                       .inner = SIDE,
                       .a = p->a,
                       .lda = SIDE,
                       .b = p->b,
                       .ldb = SIDE,
                       .c = p->c[chunk],
                       .ldc = SIDE,
                       .alpha = 1};
    (void)thread;
    ab_gemm_run(&g, AB_PATH_AUTO, NULL);
}

static void expect_products(products *p, ab_subnormals mode, float expected) {
    ab_subnormals_set(mode);
    ab_parallel_for(CHUNKS, run_product, p);
    ab_subnormals_set(AB_SUBNORMALS_KEPT);
    for (int i = 0; i < CHUNKS * PLACES; i++)
        assert_int_equal(ab_bits_of(p->c[i / PLACES][i % PLACES]), ab_bits_of(expected));
}

/* The library's too, on every thread. */
static void products_take_subnormal_operands_as_zeros(void **state) {
    (void)state;
    needs_flushing();
    products *p = calloc(1, sizeof *p);
    assert_non_null(p);
    for (int i = 0; i < PLACES; i++) {
        p->a[i] = subnormal;
        p->b[i] = 0x1p20f;
    }
    assert_int_equal(ab_parallel_start(THREADS), AB_OK);
    expect_products(p, AB_SUBNORMALS_KEPT, SIDE * 0x1p-110f);
    expect_products(p, AB_SUBNORMALS_FLUSHED, 0);
    ab_parallel_stop();
    free(p);
}

/* ---- conversions ----------------------------------------------------------------------------- */

/* Every sign, exponent and leading 10 bits of the mantissa, with the ends around every format's ties. */
static int64_t numbers(float **list) {
    static const uint32_t ends[] = {0, 1, 0xfff, 0x1000, 0x1001, 0x1fff};
    const int64_t tops = 1 << 19, each = AB_COUNT_OF(ends);
    *list = malloc((size_t)(tops * each) * sizeof **list);
    assert_non_null(*list);
    for (int64_t i = 0; i < tops * each; i++)
        (*list)[i] = ab_float_of((uint32_t)(i / each) << 13 | ends[i % each]);
    return tops * each;
}

static void expect_same_conversions(const ab_format *format, const float *value, int64_t n) {
    const size_t size = (size_t)ab_format_bytes(format, n);
    void *code[2] = {malloc(size), malloc(size)};
    float *back[2] = {malloc((size_t)n * sizeof(float)), malloc((size_t)n * sizeof(float))};
    assert_true(code[0] && code[1] && back[0] && back[1]);
    for (int m = 0; m < 2; m++) {
        ab_subnormals_set(m ? AB_SUBNORMALS_FLUSHED : AB_SUBNORMALS_KEPT);
        ab_narrow(code[m], format, value, n);
        ab_widen(back[m], code[0], format, n);
    }
    ab_subnormals_set(AB_SUBNORMALS_KEPT);
    if (memcmp(code[0], code[1], size) != 0) fail_msg("casts to %s depend on the mode", format->name);
    if (memcmp(back[0], back[1], (size_t)n * sizeof(float)) != 0)
        fail_msg("casts from %s depend on the mode", format->name);
    for (int m = 0; m < 2; m++) {
        free(code[m]);
        free(back[m]);
    }
}

static void conversions_do_not_depend_on_the_mode(void **state) {
    (void)state;
    needs_flushing();
    float *value;
    const int64_t n = numbers(&value);
    for (int f = 0; f < ab_format_count(); f++)
        if (ab_format_at(f) != &ab_format_fp64) expect_same_conversions(ab_format_at(f), value, n);
    free(value);
}

/* ---- elementary functions -------------------------------------------------------------------- */

static const struct {
    const char *name;
    float (*f)(float);
} functions[] = {
    {"exp", ab_expf},          {"log", ab_logf},    {"log1p", ab_log1pf}, {"tanh", ab_tanhf},
    {"sigmoid", ab_f_sigmoid}, {"silu", ab_f_silu}, {"gelu", ab_f_gelu},  {"gelu_tanh", ab_f_gelu_tanh}};

static bool is_subnormal(uint32_t bits) { return (bits & 0x7fffffffu) - 1 < 0x7fffffu; }

static bool same_bits(float a, float b) { return ab_bits_of(a) == ab_bits_of(b) || (isnan(a) && isnan(b)); }

/* A flushed result has the same bits, or is a zero for a result or factor of a result that was subnormal
 * (silu and gelu multiply it by |x| < 2^8); of a subnormal number, it may be that of a zero. */
static bool is_flush_of(float (*f)(float), float x, float found) {
    const float y = f(x);
    if (same_bits(found, y)) return true;
    if (ab_magnitude(y) < 0x1p-118f && ab_magnitude(found) == 0) return true;
    return is_subnormal(ab_bits_of(x)) && same_bits(found, f(ab_with_sign_of(0, x)));
}

static void elementary_functions_differ_by_the_flush_alone(void **state) {
    (void)state;
    needs_flushing();
    for (size_t k = 0; k < AB_COUNT_OF(functions); k++)
        for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 3989) {
            const volatile float x = ab_float_of((uint32_t)bits);
            ab_subnormals_set(AB_SUBNORMALS_FLUSHED);
            const volatile float y = functions[k].f(x);
            ab_subnormals_set(AB_SUBNORMALS_KEPT);
            if (!is_flush_of(functions[k].f, x, y))
                fail_msg("%s(%a) is %a when flushed", functions[k].name, (double)x, (double)y);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_thread_computes_in_the_mode_of_its_caller),
        cmocka_unit_test(products_take_subnormal_operands_as_zeros),
        cmocka_unit_test(conversions_do_not_depend_on_the_mode),
        cmocka_unit_test(elementary_functions_differ_by_the_flush_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
