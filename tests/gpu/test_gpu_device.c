/* The CUDA device's memory, facts and errors, and its casts, sums, unscaling and updates, against the CPU's.
 */
#include "gpu/gpu_testing.h"

#include "kernels/census/census.h"
#include "kernels/format/convert.h"

enum { N = 100003 }; /* odd: tails are taken one by one */

static void bytes_go_there_and_come_back(void **state) {
    (void)state;
    static unsigned char here[N], back[N];
    void *block;
    int64_t left, all;
    for (int i = 0; i < N; i++) here[i] = (unsigned char)(i * 7);
    assert_int_equal(gpu->alloc(N, &block), AB_OK);
    assert_true((uintptr_t)block % 64 == 0);
    assert_int_equal(gpu->upload(block, here, N), AB_OK);
    assert_int_equal(gpu->download(back, block, N), AB_OK);
    assert_memory_equal(here, back, N);
    assert_int_equal(gpu->fill_zero(block, N), AB_OK);
    assert_int_equal(gpu->download(back, block, N), AB_OK);
    for (int i = 0; i < N; i++) assert_int_equal(back[i], 0);
    gpu->free(block);
    assert_int_equal(gpu->memory(&left, &all), AB_OK);
    assert_true(left > 0 && all >= left);
}

static void too_much_memory_is_refused_and_the_rest_goes_on(void **state) {
    (void)state;
    void *block;
    int64_t left, all;
    assert_int_equal(gpu->memory(&left, &all), AB_OK);
    assert_int_equal(gpu->alloc((size_t)all * 2, &block), AB_NO_MEMORY);
    assert_non_null(strstr(ab_error_message(), "out of memory"));
    assert_int_equal(gpu->alloc(1024, &block), AB_OK);
    assert_int_equal(gpu->fill_zero(block, 1024), AB_OK);
    assert_int_equal(gpu->synchronize(), AB_OK);
    gpu->free(block);
}

static void count_fact(void *context, const char *key, const char *text) {
    assert_non_null(key);
    if (text) ++*(int *)context;
}

static void it_says_what_it_is(void **state) {
    (void)state;
    int facts = 0;
    gpu->facts(count_fact, &facts);
    assert_true(facts >= 8);
}

/* Every fp16 and bf16 pattern and numbers around every tie, both ways. */
static ab_tensor on_gpu(const ab_format *format, const float *values, int64_t n) {
    ab_tensor t = {.shape = {1, {n}}, .format = format, .device = gpu, .id = -1};
    assert_int_equal(gpu->alloc(ab_format_bytes(format, n), &t.data), AB_OK);
    assert_int_equal(ab_tensor_write(&t, values), AB_OK);
    return t;
}

static void casts_round_as_the_cpu_does(void **state) {
    (void)state;
    static float values[N], expected[N], found[N];
    static uint16_t code[N];
    static const ab_format *const halves[] = {&ab_format_fp16, &ab_format_bf16};
    const ab_backend *backend = ab_backend_of(gpu);
    const ab_exec exec = {.training = true};
    for (int i = 0; i < N; i++) {
        uint32_t bits = (uint32_t)i * 42953u + (uint32_t)(i % 17) * 4096u;
        values[i] = ab_float_of(bits);
        if (isnan(values[i])) values[i] = 1.0f;
    }
    for (int f = 0; f < 2; f++) {
        ab_narrow(code, halves[f], values, N);
        ab_widen(expected, code, halves[f], N);
        ab_tensor wide = on_gpu(&ab_format_fp32, values, N), half = on_gpu(halves[f], values, N);
        ab_tensor back = on_gpu(&ab_format_fp32, values, N);
        assert_int_equal(gpu->fill_zero(half.data, ab_format_bytes(half.format, N)), AB_OK);
        assert_int_equal(backend->cast(&exec, &half, &wide), AB_OK);
        assert_int_equal(backend->cast(&exec, &back, &half), AB_OK);
        assert_int_equal(ab_tensor_read(&back, found), AB_OK);
        assert_memory_equal(found, expected, sizeof found);
        gpu->free(wide.data), gpu->free(half.data), gpu->free(back.data);
    }
}

static void unscaling_finds_what_is_not_finite(void **state) {
    (void)state;
    static float values[N], expected[N], found_values[N];
    const ab_backend *backend = ab_backend_of(gpu);
    const ab_exec exec = {.training = true};
    for (int place = -1; place < N; place += 33334) {
        bool found = false;
        for (int i = 0; i < N; i++) values[i] = (float)(oracle_random(3, i) * 100);
        if (place >= 0) values[place] = place % 2 ? INFINITY : NAN;
        for (int i = 0; i < N; i++) expected[i] = values[i] * 0.0078125f;
        ab_tensor t = on_gpu(&ab_format_fp32, values, N);
        const ab_unscale_item item = {&t, &t, -1, false};
        assert_int_equal(backend->unscale(&exec, &item, 1, 0.0078125f, &found), AB_OK);
        assert_int_equal(found, place >= 0);
        assert_int_equal(ab_tensor_read(&t, found_values), AB_OK);
        for (int i = 0; i < N; i++) assert_true(found_values[i] == expected[i] || isnan(expected[i]));
        gpu->free(t.data);
    }
}

static void updates_are_the_formulas_bits(void **state) {
    (void)state;
    static float weight[N], grad[N], first[N], second[N], found[N];
    const ab_backend *backend = ab_backend_of(gpu);
    for (int kind = AB_UPDATE_SGD; kind <= AB_UPDATE_ADAGRAD; kind++) {
        ab_update_row row = {.value = {0.1f, 0.01f, 0.9f, 0.999f, 0.001f, 0.3f, 1e-8f}};
        for (int i = 0; i < N; i++) {
            weight[i] = (float)oracle_random(1, i), grad[i] = (float)oracle_random(2, i);
            first[i] = (float)oracle_random(3, i), second[i] = (float)fabs(oracle_random(4, i));
        }
        ab_tensor w = on_gpu(&ab_format_fp32, weight, N), g = on_gpu(&ab_format_fp32, grad, N),
                  a = on_gpu(&ab_format_fp32, first, N), b = on_gpu(&ab_format_fp32, second, N);
        const ab_update_item item = {.weight = &w, .grad = &g, .state = {&a, &b}};
        assert_int_equal(backend->update(&item, 1, kind, &row), AB_OK);
        assert_int_equal(ab_tensor_read(&w, found), AB_OK);
        for (int i = 0; i < N; i++) {
            float held[2] = {first[i], second[i]};
            ab_f_update(kind, row.value, grad[i], &weight[i], held);
        }
        for (int i = 0; i < N; i++) /* the bits of a NaN are the processor's own */
            assert_true(ab_bits_of(found[i]) == ab_bits_of(weight[i]) ||
                        (isnan(found[i]) && isnan(weight[i])));
        gpu->free(w.data), gpu->free(g.data), gpu->free(a.data), gpu->free(b.data);
    }
}

/* Every exponent and class, both signs, zeros, infinities and NaNs, in each format. */
static void the_census_is_the_cpus_count_for_count(void **state) {
    (void)state;
    static float values[N];
    static ab_census here, there;
    static const ab_format *const formats[] = {&ab_format_fp32, &ab_format_fp16, &ab_format_bf16};
    for (int i = 0; i < N; i++) {
        uint32_t bits = (uint32_t)i * 42953u;
        bits = i % 11 == 0 ? bits & 0x80000000u : i % 13 == 0 ? bits | 0x7f800000u : bits;
        values[i] = ab_float_of(i % 26 == 0 ? bits & 0xff800000u : bits);
    }
    for (size_t f = 0; f < AB_COUNT_OF(formats); f++) {
        ab_tensor t = on_gpu(formats[f], values, N);
        void *stored = malloc(ab_format_bytes(formats[f], N));
        assert_int_equal(ab_tensor_download(&t, stored), AB_OK);
        ab_census_clear(&here);
        ab_census_add_stored(&here, stored, formats[f], N);
        assert_int_equal(ab_backend_of(gpu)->census(&t, &there), AB_OK);
        assert_true(here.sum_squares == 0 || !isfinite(here.sum_squares) ||
                    fabs(there.sum_squares / here.sum_squares - 1.0) < 1e-6);
        there.sum_squares = here.sum_squares;
        assert_memory_equal(&here, &there, sizeof here);
        free(stored);
        gpu->free(t.data);
    }
}

int main(void) {
    gpu_or_skip();
    const struct CMUnitTest tests[] = {cmocka_unit_test(bytes_go_there_and_come_back),
                                       cmocka_unit_test(too_much_memory_is_refused_and_the_rest_goes_on),
                                       cmocka_unit_test(it_says_what_it_is),
                                       cmocka_unit_test(casts_round_as_the_cpu_does),
                                       cmocka_unit_test(unscaling_finds_what_is_not_finite),
                                       cmocka_unit_test(updates_are_the_formulas_bits),
                                       cmocka_unit_test(the_census_is_the_cpus_count_for_count)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
