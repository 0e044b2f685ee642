/* Delta debugging on planted sets: what is planted comes back, nothing more, and the number of trials stays
 * small. */
#include "bench/promote/promote.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { MOST = 64 };

/* A set does if it holds all planted items (and, where `odd`, if its size is odd as well). */
typedef struct planted {
    uint64_t needed;
    bool odd;
    int trials;
} planted;

static ab_status holds(void *context, const int *item, int count, bool *does) {
    planted *p = context;
    uint64_t have = 0;
    for (int i = 0; i < count; i++) have |= UINT64_C(1) << item[i];
    p->trials++;
    *does = (have & p->needed) == p->needed && (!p->odd || count % 2 == 1);
    return AB_OK;
}

static uint64_t bits_of(const int *item, int count) {
    uint64_t bits = 0;
    for (int i = 0; i < count; i++) bits |= UINT64_C(1) << item[i];
    return bits;
}

static void planted_sets_come_back(void **state) {
    (void)state;
    uint64_t draw = 5;
    for (int size = 0; size <= 6; size++)
        for (int round = 0; round < 20; round++) {
            planted p = {0, false, 0};
            int item[MOST], count = 40;
            for (int i = 0; i < count; i++) item[i] = (i * 7) % count;
            while (__builtin_popcountll(p.needed) < size) {
                draw = draw * 6364136223846793005u + 1442695040888963407u;
                p.needed |= UINT64_C(1) << (draw >> 33) % 40;
            }
            const ab_ddmin_test test = {holds, &p};
            assert_int_equal(ab_shortest_prefix(&test, item, &count), AB_OK);
            assert_true((bits_of(item, count) & p.needed) == p.needed);
            assert_int_equal(ab_ddmin(&test, item, &count), AB_OK);
            assert_true(bits_of(item, count) == p.needed && count == size);
            assert_true(p.trials < 12 + 22 * size);
        }
}

/* Planted items at the head of the ranking: the beginning of the list is the set, found in a few trials. */
static void a_good_ranking_saves_trials(void **state) {
    (void)state;
    planted p = {7, false, 0};
    int item[MOST], count = 60;
    for (int i = 0; i < count; i++) item[i] = i;
    const ab_ddmin_test test = {holds, &p};
    assert_int_equal(ab_shortest_prefix(&test, item, &count), AB_OK);
    assert_int_equal(count, 3);
    assert_true(p.trials <= 4);
}

/* Where smaller sets do not do as larger ones do, no single item can go from what is left. */
static void what_is_left_is_one_minimal(void **state) {
    (void)state;
    planted p = {UINT64_C(1) << 3 | UINT64_C(1) << 11, true, 0};
    int item[MOST], count = 21;
    for (int i = 0; i < count; i++) item[i] = i;
    const ab_ddmin_test test = {holds, &p};
    assert_int_equal(ab_ddmin(&test, item, &count), AB_OK);
    bool does = false;
    assert_int_equal(holds(&p, item, count, &does), AB_OK);
    assert_true(does);
    for (int i = 0; i < count; i++) {
        int rest[MOST], n = 0;
        for (int j = 0; j < count; j++)
            if (j != i) rest[n++] = item[j];
        assert_int_equal(holds(&p, rest, n, &does), AB_OK);
        assert_false(does);
    }
}

static ab_status breaks(void *context, const int *item, int count, bool *does) {
    (void)context, (void)item, (void)count, (void)does;
    return ab_fail(AB_SYSTEM, "no");
}

static void errors_end_the_search(void **state) {
    (void)state;
    int item[3] = {0, 1, 2}, count = 3;
    const ab_ddmin_test test = {breaks, NULL};
    assert_int_equal(ab_shortest_prefix(&test, item, &count), AB_SYSTEM);
    assert_int_equal(ab_ddmin(&test, item, &count), AB_SYSTEM);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(planted_sets_come_back),
        cmocka_unit_test(a_good_ranking_saves_trials),
        cmocka_unit_test(what_is_left_is_one_minimal),
        cmocka_unit_test(errors_end_the_search),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
