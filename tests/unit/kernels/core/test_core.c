/* kernels/core: statuses and messages, shapes, the counted pool, the CPU device, Philox against its published
 * vectors. */
#include "kernels/core/log.h"
#include "kernels/core/mem.h"
#include "kernels/core/rng.h"
#include "kernels/core/shape.h"

#include <math.h>
#include <omp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>

#include <cmocka.h>

/* ---- status ---------------------------------------------------------------------------------- */

static void exit_statuses_are_those_of_the_manual(void **state) {
    (void)state;
    static const struct {
        ab_status status;
        int exit_status;
    } rows[] = {{AB_OK, 0},     {AB_USAGE, 2},       {AB_CONFIG, 2},        {AB_INPUT, 2},
                {AB_OUTPUT, 2}, {AB_UNAVAILABLE, 2}, {AB_NO_MEMORY, 2},     {AB_DEVICE, 1},
                {AB_SYSTEM, 1}, {AB_INTERNAL, 1},    {AB_INTERRUPTED, 130}, {AB_NOT_COMPARABLE, 6}};
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
        assert_int_equal(ab_status_exit(rows[i].status), rows[i].exit_status);
        assert_true(strlen(ab_status_text(rows[i].status)) > 0);
    }
    assert_int_equal(ab_status_exit((ab_status)999), 1);
    assert_string_equal(ab_status_text((ab_status)999), "unknown status");
}

static void a_failure_keeps_its_message_and_its_code(void **state) {
    (void)state;
    assert_int_equal(ab_fail(AB_INPUT, "%s: line %d", "net.json", 7), AB_INPUT);
    assert_string_equal(ab_error_message(), "net.json: line 7");
    assert_int_equal(ab_fail_prefix(AB_CONFIG, "op '%s'", "conv1"), AB_CONFIG);
    assert_string_equal(ab_error_message(), "op 'conv1': net.json: line 7");
    assert_int_equal(ab_fail(AB_USAGE, "again: %s", ab_error_message()),
                     AB_USAGE); /* its own text as argument */
    assert_string_equal(ab_error_message(), "again: op 'conv1': net.json: line 7");
}

static void a_long_message_is_cut_at_1023_bytes(void **state) {
    (void)state;
    char text[3000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    assert_int_equal(ab_fail(AB_INPUT, "%s", text), AB_INPUT);
    assert_int_equal(strlen(ab_error_message()), 1023);
    assert_int_equal(ab_fail_prefix(AB_INPUT, "file"), AB_INPUT);
    assert_memory_equal(ab_error_message(), "file: xxx", 9);
    assert_true(strlen(ab_error_message()) <= 1023);
}

static void each_thread_has_its_own_message(void **state) {
    (void)state;
    int wrong = 0;
    assert_int_equal(ab_fail(AB_USAGE, "main"), AB_USAGE);
#pragma omp parallel num_threads(2) reduction(+ : wrong)
    {
        char mine[32];
        snprintf(mine, sizeof mine, "thread %d", omp_get_thread_num());
        for (int i = 0; i < 100; i++) {
            (void)ab_fail(AB_INPUT, "%s", mine);
#pragma omp barrier
            wrong += strcmp(ab_error_message(), mine) != 0;
#pragma omp barrier
        }
    }
    assert_int_equal(wrong, 0);
    assert_string_equal(ab_error_message(), "thread 0");
}

static ab_status tried(ab_status inner, int *reached) {
    AB_TRY(inner);
    *reached += 1;
    return AB_OK;
}

static ab_status tried_with_cleanup(ab_status inner, int *reached, int *cleaned) {
    ab_status status = AB_OK;
    AB_TRY_GOTO(inner);
    *reached += 1;
out:
    *cleaned += 1;
    return status;
}

static void try_passes_failures_on_and_nothing_else(void **state) {
    (void)state;
    int reached = 0, cleaned = 0;
    assert_int_equal(tried(AB_DEVICE, &reached), AB_DEVICE);
    assert_int_equal(tried_with_cleanup(AB_SYSTEM, &reached, &cleaned), AB_SYSTEM);
    assert_int_equal(reached, 0);
    assert_int_equal(tried(AB_OK, &reached), AB_OK);
    assert_int_equal(tried_with_cleanup(AB_OK, &reached, &cleaned), AB_OK);
    assert_int_equal(reached, 2);
    assert_int_equal(cleaned, 2);
}

/* ---- shapes ---------------------------------------------------------------------------------- */

static void shapes_count_compare_and_print(void **state) {
    (void)state;
    char text[AB_SHAPE_TEXT];
    ab_shape image = {4, {64, 28, 28, 1}}, same = image, scalar = {0, {0}}, vector = {1, {64}};
    assert_int_equal(ab_shape_count(&image), 64 * 28 * 28);
    assert_int_equal(ab_shape_count(&scalar), 1);
    assert_string_equal(ab_shape_text(&image, text), "[64, 28, 28, 1]");
    assert_string_equal(ab_shape_text(&scalar, text), "[]");
    same.dim[5] = 99; /* beyond ndim: no part of the shape */
    assert_true(ab_shape_equal(&image, &same));
    same.dim[3] = 2;
    assert_false(ab_shape_equal(&image, &same));
    assert_false(ab_shape_equal(&image, &vector));
}

static void impossible_shapes_are_refused(void **state) {
    (void)state;
    const int64_t big = (int64_t)1 << 31;
    ab_shape zero = {2, {4, 0}}, negative = {2, {4, -1}}, deep = {AB_MAX_DIMS + 1, {1}}, below = {-1, {1}};
    ab_shape huge = {2, {big, big}}, wraps = {4, {big, big, big, 4}}, most = {2, {INT64_MAX / 8, 1}};
    ab_shape over = {2, {INT64_MAX / 8, 2}}, fits = {2, {big, 1 << 28}};
    assert_false(ab_shape_check(&zero));
    assert_false(ab_shape_check(&negative));
    assert_false(ab_shape_check(&deep));
    assert_false(ab_shape_check(&below));
    assert_false(ab_shape_check(&huge));
    assert_false(ab_shape_check(&wraps));
    assert_false(ab_shape_check(&over));
    assert_true(ab_shape_check(&most));
    assert_true(ab_shape_check(&fits));
}

static void the_longest_shape_fits_its_text(void **state) {
    (void)state;
    char text[AB_SHAPE_TEXT + 8];
    memset(text, '#', sizeof text);
    ab_shape shape = {AB_MAX_DIMS, {INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX}};
    assert_ptr_equal(ab_shape_text(&shape, text), text);
    assert_true(strlen(text) < AB_SHAPE_TEXT);
    assert_int_equal(strlen(text), 2 + 6 * 19 + 5 * 2); /* nothing is left out */
    assert_int_equal(text[strlen(text) - 1], ']');
    assert_int_equal(text[AB_SHAPE_TEXT], '#');
}

/* ---- the pool -------------------------------------------------------------------------------- */

static void blocks_are_zeroed_aligned_and_counted_as_rounded(void **state) {
    (void)state;
    static const int64_t sizes[] = {1, 63, 64, 65, 4096, 100000};
    ab_mem *mem;
    int64_t expected = 0;
    assert_int_equal(ab_mem_create(&mem, &ab_device_cpu, 0), AB_OK);
    assert_int_equal(ab_mem_total(mem), 0);
    for (size_t i = 0; i < AB_COUNT_OF(sizes); i++) {
        void *block;
        assert_int_equal(ab_mem_alloc(mem, AB_MEM_weights, sizes[i], &block), AB_OK);
        assert_int_equal((uintptr_t)block % AB_MEM_ALIGN, 0);
        for (int64_t b = 0; b < sizes[i]; b++) assert_int_equal(((const char *)block)[b], 0);
        memset(block, 0x5A, (size_t)sizes[i]);
        expected += (sizes[i] + 63) / 64 * 64;
    }
    assert_int_equal(ab_mem_bytes(mem, AB_MEM_weights), expected);
    assert_int_equal(ab_mem_total(mem), expected);
    ab_mem_destroy(mem);
    ab_mem_destroy(NULL);
}

static void categories_sum_to_the_total(void **state) {
    (void)state;
    ab_mem *mem;
    int64_t sum = 0;
    assert_int_equal(ab_mem_create(&mem, &ab_device_cpu, 0), AB_OK);
    for (int c = 0; c < AB_MEM_CATEGORY_COUNT; c++) {
        void *block;
        assert_int_equal(ab_mem_alloc(mem, (ab_mem_category)c, 64 * (c + 1), &block), AB_OK);
        assert_int_equal(ab_mem_bytes(mem, (ab_mem_category)c), 64 * (c + 1));
        assert_true(strlen(ab_mem_category_text((ab_mem_category)c)) > 0);
        sum += 64 * (c + 1);
    }
    assert_int_equal(ab_mem_total(mem), sum);
    assert_string_equal(ab_mem_category_name(AB_MEM_weights), "weights");
    assert_string_equal(ab_mem_category_name(AB_MEM_workspace), "workspace");
    ab_mem_destroy(mem);
}

static void nothing_asked_for_is_nothing_counted(void **state) {
    (void)state;
    ab_mem *mem;
    void *block = &mem;
    assert_int_equal(ab_mem_create(&mem, &ab_device_cpu, 0), AB_OK);
    assert_int_equal(ab_mem_alloc(mem, AB_MEM_casts, 0, &block), AB_OK);
    assert_null(block);
    assert_int_equal(ab_mem_total(mem), 0);
    ab_mem_destroy(mem);
}

static void the_limit_holds_for_rounded_blocks_and_says_what_did_not_fit(void **state) {
    (void)state;
    ab_mem *mem;
    void *block;
    assert_int_equal(ab_mem_create(&mem, &ab_device_cpu, 200), AB_OK);
    assert_int_equal(ab_mem_alloc(mem, AB_MEM_weights, 100, &block), AB_OK); /* 128 */
    assert_int_equal(ab_mem_alloc(mem, AB_MEM_gradients, 65, &block),
                     AB_NO_MEMORY); /* 128 more, though 65 fit */
    assert_null(block);
    assert_string_equal(ab_error_message(),
                        "gradients needs 128 bytes more, 128 of the limit of 200 are in use");
    assert_int_equal(ab_mem_total(mem), 128); /* a refused block is not counted */
    assert_int_equal(ab_mem_bytes(mem, AB_MEM_gradients), 0);
    assert_int_equal(ab_mem_alloc(mem, AB_MEM_gradients, 64, &block), AB_OK);
    assert_int_equal(ab_mem_total(mem), 192);
    assert_int_equal(ab_mem_alloc(mem, AB_MEM_gradients, 1, &block), AB_NO_MEMORY);
    ab_mem_destroy(mem);
}

static int64_t blocks_alive;

static ab_status scarce_alloc(size_t bytes, void **block) {
    *block = NULL;
    if (bytes > 1024) return ab_fail(AB_NO_MEMORY, "scarce");
    *block = malloc(bytes);
    blocks_alive += *block != NULL;
    return *block ? AB_OK : AB_NO_MEMORY;
}

static void scarce_free(void *block) {
    blocks_alive--;
    free(block);
}

static ab_status fill_zero(void *block, size_t bytes) {
    memset(block, 0, bytes);
    return AB_OK;
}

static void a_device_that_refuses_is_named_and_what_it_gave_is_freed(void **state) {
    (void)state;
    const ab_device scarce = {.abi = AB_DEVICE_ABI,
                              .name = "scarce:0",
                              .alloc = scarce_alloc,
                              .free = scarce_free,
                              .fill_zero = fill_zero};
    ab_mem *mem;
    void *block;
    blocks_alive = 0;
    assert_int_equal(ab_mem_create(&mem, &scarce, 0), AB_OK);
    for (int i = 0; i < 5; i++) assert_int_equal(ab_mem_alloc(mem, AB_MEM_weights, 64, &block), AB_OK);
    assert_int_equal(ab_mem_alloc(mem, AB_MEM_activations, 2000, &block), AB_NO_MEMORY);
    assert_null(block);
    assert_non_null(strstr(ab_error_message(), "activations"));
    assert_non_null(strstr(ab_error_message(), "2048"));
    assert_non_null(strstr(ab_error_message(), "scarce:0"));
    assert_int_equal(ab_mem_total(mem), 320);
    assert_int_equal(blocks_alive, 5);
    ab_mem_destroy(mem);
    assert_int_equal(blocks_alive, 0);
}

static void a_reservation_is_one_block_that_the_next_are_cut_from(void **state) {
    (void)state;
    const ab_device scarce = {.abi = AB_DEVICE_ABI,
                              .name = "scarce:0",
                              .alloc = scarce_alloc,
                              .free = scarce_free,
                              .fill_zero = fill_zero};
    ab_mem *mem;
    char *first, *second, *other, *behind;
    blocks_alive = 0;
    assert_int_equal(ab_mem_create(&mem, &scarce, 4096), AB_OK);
    assert_int_equal(ab_mem_reserve(mem, AB_MEM_weights, 192), AB_OK);
    assert_int_equal(ab_mem_total(mem), 0); /* counted as it is cut */
    assert_int_equal(ab_mem_alloc(mem, AB_MEM_weights, 65, (void **)&first), AB_OK);
    assert_int_equal(ab_mem_alloc(mem, AB_MEM_weights, 1, (void **)&second), AB_OK);
    assert_ptr_equal(second, first + 128);
    assert_int_equal(second[0], 0);
    assert_int_equal(blocks_alive, 1);
    assert_int_equal(ab_mem_bytes(mem, AB_MEM_weights), 192);
    assert_int_equal(ab_mem_alloc(mem, AB_MEM_gradients, 64, (void **)&other), AB_OK);
    assert_int_equal(ab_mem_alloc(mem, AB_MEM_weights, 64, (void **)&behind), AB_OK); /* it is used up */
    assert_int_equal(blocks_alive, 3);
    assert_int_equal(ab_mem_total(mem), 320);
    assert_int_equal(ab_mem_reserve(mem, AB_MEM_casts, 2000), AB_NO_MEMORY);
    assert_non_null(strstr(ab_error_message(), "casts: cannot allocate 2000 bytes on scarce:0"));
    assert_int_equal(ab_mem_reserve(mem, AB_MEM_casts, 4096), AB_NO_MEMORY);
    assert_non_null(strstr(ab_error_message(), "casts needs 4096 bytes more, 320 of the limit"));
    ab_mem_destroy(mem);
    assert_int_equal(blocks_alive, 0);
}

/* ---- devices --------------------------------------------------------------------------------- */

static void devices_open_by_name_or_say_why_not(void **state) {
    (void)state;
    static const char *const no_such[] = {"gpu",     "cuda:",      "cuda:x", "cudax", "cuda1",
                                          "cuda:1x", "cuda:12345", "CPU",    ""};
    const ab_device *device = NULL;
    const char *why = "";
    assert_int_equal(ab_device_open("cpu", &device, &why), AB_OK);
    assert_ptr_equal(device, &ab_device_cpu);
    assert_null(why);
    assert_int_equal(ab_device_open("auto", &device, &why), AB_OK);
    assert_true((device == &ab_device_cpu) == (why != NULL)); /* test_plugin says more */
    assert_int_equal(ab_device_open("auto", &device, NULL), AB_OK);
    assert_int_equal(ab_device_open("cuda:999", &device, NULL), AB_UNAVAILABLE);
    assert_non_null(strstr(ab_error_message(), "--device cuda:999: "));
    for (size_t i = 0; i < AB_COUNT_OF(no_such); i++) {
        assert_int_equal(ab_device_open(no_such[i], &device, &why), AB_CONFIG);
        assert_non_null(strstr(ab_error_message(), "expected auto, cpu, cuda or cuda:N"));
    }
}

static void the_cpu_moves_bytes(void **state) {
    (void)state;
    static const char text[] = "sixty-four bytes or fewer";
    void *block;
    char back[sizeof text] = "";
    assert_int_equal(ab_device_cpu.alloc(sizeof text, &block), AB_OK);
    assert_int_equal((uintptr_t)block % 64, 0);
    assert_int_equal(ab_device_cpu.upload(block, text, sizeof text), AB_OK);
    assert_int_equal(ab_device_cpu.synchronize(), AB_OK);
    assert_int_equal(ab_device_cpu.download(back, block, sizeof text), AB_OK);
    assert_string_equal(back, text);
    ab_device_cpu.free(block);
    assert_int_equal(ab_device_cpu.alloc(SIZE_MAX - 8, &block), AB_NO_MEMORY);
}

/* ---- random numbers -------------------------------------------------------------------------- */

/* Salmon et al., Random123 1.14, kat_vectors, "philox4x32 10". */
static void philox_gives_the_published_vectors(void **state) {
    (void)state;
    static const struct {
        ab_rng_block counter;
        uint32_t key[2];
        ab_rng_block expected;
    } rows[] = {
        {{{0, 0, 0, 0}}, {0, 0}, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}},
        {{{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}},
         {0xffffffff, 0xffffffff},
         {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}},
        {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
         {0xa4093822, 0x299f31d0},
         {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}},
    };
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
        ab_rng_block got = ab_philox4x32_10(rows[i].counter, rows[i].key[0], rows[i].key[1]);
        for (int w = 0; w < 4; w++) assert_int_equal(got.word[w], rows[i].expected.word[w]);
    }
}

static void a_number_is_named_by_seed_stream_step_and_index(void **state) {
    (void)state;
    const uint64_t seed = 0x299f31d0a4093822u, index = 0x85a308d3243f6a88u;
    ab_rng_block counter = {{0x243f6a88, 0x85a308d3, 77, (uint32_t)AB_RNG_DROPOUT}};
    ab_rng_block expected = ab_philox4x32_10(counter, 0xa4093822, 0x299f31d0);
    ab_rng_block got = ab_rng_at(seed, AB_RNG_DROPOUT, 77, index);
    assert_memory_equal(&got, &expected, sizeof got);
    static const ab_rng_stream streams[] = {AB_RNG_INIT,    AB_RNG_ORDER,  AB_RNG_SYNTHETIC, AB_RNG_ROUNDING,
                                            AB_RNG_DROPOUT, AB_RNG_SAMPLE, AB_RNG_DESIGN};
    for (size_t a = 0; a < AB_COUNT_OF(streams); a++)
        for (size_t b = 0; b < a; b++)
            assert_true(ab_rng_at(1, streams[a], 0, 0).word[0] != ab_rng_at(1, streams[b], 0, 0).word[0]);
}

/* Counts of `n` draws below `bound` against the uniform expectation; chi-square. */
static double chi_square(const int *count, int cells, int n) {
    double expected = (double)n / cells, sum = 0;
    for (int i = 0; i < cells; i++) sum += (count[i] - expected) * (count[i] - expected) / expected;
    return sum;
}

static void uniform_numbers_are_uniform_multiples_of_two_to_the_minus_24(void **state) {
    (void)state;
    enum { N = 64000, CELLS = 64 };
    int count[CELLS] = {0};
    for (uint64_t i = 0; i < N; i++) {
        float u = ab_rng_uniform(7, AB_RNG_SAMPLE, 3, i);
        float steps = u * 0x1p24f;
        assert_true(u >= 0.0f && u < 1.0f);
        assert_true(steps == floorf(steps));
        assert_true((uint32_t)steps == ab_rng_at(7, AB_RNG_SAMPLE, 3, i).word[0] >> 8);
        count[(int)(u * CELLS)]++;
    }
    assert_true(chi_square(count, CELLS, N) < 103.4); /* 63 degrees of freedom, p = 0.001 */
}

static int compare_floats(const void *left, const void *right) {
    float a = *(const float *)left, b = *(const float *)right;
    return (a > b) - (a < b);
}

/* Kolmogorov and Smirnov: the largest distance between the empirical and the exact distribution function. */
static void normal_numbers_are_normal(void **state) {
    (void)state;
    enum { N = 40000 };
    static float value[N];
    double mean = 0, square = 0, fourth = 0, distance = 0;
    for (uint64_t i = 0; i < N; i++) {
        value[i] = ab_rng_normal(11, AB_RNG_INIT, 5, i);
        double x = (double)value[i];
        mean += x / N;
        square += x * x / N;
        fourth += x * x * x * x / N;
    }
    qsort(value, N, sizeof *value, compare_floats);
    for (int i = 0; i < N; i++) {
        double exact = 0.5 * erfc(-(double)value[i] / sqrt(2.0));
        distance = fmax(distance, fmax(fabs(exact - (double)i / N), fabs(exact - (double)(i + 1) / N)));
    }
    assert_true(distance * sqrt(N) < 1.95); /* p = 0.001 */
    assert_true(fabs(mean) < 4 / sqrt(N));
    assert_true(fabs(square - 1) < 4 * sqrt(2.0 / N));
    assert_true(fabs(fourth - 3) < 4 * sqrt(96.0 / N));
}

static void a_normal_number_is_box_muller_of_two_words_rounded_once(void **state) {
    (void)state;
    const long double pi = 3.14159265358979323846264338327950288L;
    for (uint64_t i = 0; i < 2000; i++) {
        ab_rng_block block = ab_rng_at(3, AB_RNG_INIT, 9, i);
        long double u = ((long double)block.word[0] + 0.5L) / 4294967296.0L;
        long double v = (long double)block.word[1] / 4294967296.0L;
        long double exact = sqrtl(-2 * logl(u)) * cosl(2 * pi * v);
        float got = ab_rng_normal(3, AB_RNG_INIT, 9, i);
        assert_true(fabsl((long double)got - exact) <= 0.50001L * 0x1p-23L * fmaxl(fabsl(exact), 0x1p-20L));
    }
}

__extension__ typedef unsigned __int128 u128;

static void bounded_integers_are_the_high_word_of_the_product(void **state) {
    (void)state;
    static const uint64_t bounds[] = {1,
                                      2,
                                      3,
                                      6,
                                      1000,
                                      60000,
                                      0xFFFFFFFFu,
                                      0x100000000u,
                                      0x123456789ABCDEFu,
                                      0x7FFFFFFFFFFFFFFFu,
                                      0x8000000000000000u,
                                      UINT64_MAX};
    for (size_t b = 0; b < AB_COUNT_OF(bounds); b++)
        for (uint64_t i = 0; i < 500; i++) {
            ab_rng_block block = ab_rng_at(5, AB_RNG_ORDER, 2, i);
            uint64_t word = (uint64_t)block.word[0] << 32 | block.word[1];
            uint64_t expected = (uint64_t)((u128)word * bounds[b] >> 64);
            uint64_t got = ab_rng_below(5, AB_RNG_ORDER, 2, i, bounds[b]);
            assert_true(got == expected);
            assert_true(got < bounds[b]);
        }
}

static void bounded_integers_are_uniform(void **state) {
    (void)state;
    enum { N = 60000, BOUND = 10, SEEDS = 12 };
    double sum = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        int count[BOUND] = {0};
        for (uint64_t i = 0; i < N; i++) count[ab_rng_below(seed, AB_RNG_DESIGN, 0, i, BOUND)]++;
        sum += chi_square(count, BOUND, N);
    }
    assert_true(sum < 157.9); /* 108 degrees of freedom, p = 0.001 */
}

/* Fowler, Noll, Vo: test vectors of FNV-1a 32. */
static void names_hash_to_the_published_values(void **state) {
    (void)state;
    assert_int_equal(ab_rng_name(""), 0x811c9dc5u);
    assert_int_equal(ab_rng_name("a"), 0xe40c292cu);
    assert_int_equal(ab_rng_name("foobar"), 0xbf9cf968u);
    assert_true(ab_rng_name("conv1.weight") != ab_rng_name("conv2.weight"));
}

/* ---- log ------------------------------------------------------------------------------------- */

static void the_log_level_is_kept(void **state) {
    (void)state;
    ab_log_level before = ab_log_get_level();
    assert_int_equal(before, AB_LOG_WARN);
    ab_log_set_level(AB_LOG_QUIET);
    ab_warn("never %s", "seen");
    assert_int_equal(ab_log_get_level(), AB_LOG_QUIET);
    ab_log_set_level(before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exit_statuses_are_those_of_the_manual),
        cmocka_unit_test(a_failure_keeps_its_message_and_its_code),
        cmocka_unit_test(a_long_message_is_cut_at_1023_bytes),
        cmocka_unit_test(each_thread_has_its_own_message),
        cmocka_unit_test(try_passes_failures_on_and_nothing_else),
        cmocka_unit_test(shapes_count_compare_and_print),
        cmocka_unit_test(impossible_shapes_are_refused),
        cmocka_unit_test(the_longest_shape_fits_its_text),
        cmocka_unit_test(blocks_are_zeroed_aligned_and_counted_as_rounded),
        cmocka_unit_test(categories_sum_to_the_total),
        cmocka_unit_test(nothing_asked_for_is_nothing_counted),
        cmocka_unit_test(the_limit_holds_for_rounded_blocks_and_says_what_did_not_fit),
        cmocka_unit_test(a_device_that_refuses_is_named_and_what_it_gave_is_freed),
        cmocka_unit_test(a_reservation_is_one_block_that_the_next_are_cut_from),
        cmocka_unit_test(devices_open_by_name_or_say_why_not),
        cmocka_unit_test(the_cpu_moves_bytes),
        cmocka_unit_test(philox_gives_the_published_vectors),
        cmocka_unit_test(a_number_is_named_by_seed_stream_step_and_index),
        cmocka_unit_test(uniform_numbers_are_uniform_multiples_of_two_to_the_minus_24),
        cmocka_unit_test(normal_numbers_are_normal),
        cmocka_unit_test(a_normal_number_is_box_muller_of_two_words_rounded_once),
        cmocka_unit_test(bounded_integers_are_the_high_word_of_the_product),
        cmocka_unit_test(bounded_integers_are_uniform),
        cmocka_unit_test(names_hash_to_the_published_values),
        cmocka_unit_test(the_log_level_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
