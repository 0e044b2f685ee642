/* Stack distances against a list that is kept in the order of last use. */
#include "bench/profile/reuse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

enum { GRANULES = 700, TOUCHES = 4000, GRANULE = 1024 };

static double sum(const double *bytes) {
    double total = 0;
    for (int i = 0; i < AB_LIMIT_SIZES; i++) total += bytes[i];
    return total;
}

/* Granules, the last used first. */
typedef struct list {
    int64_t item[GRANULES];
    int count;
} list;

/* The number of granules touched since `item` was, and it; -1: it never was. */
static int64_t use(list *l, int64_t item) {
    int at = 0;
    while (at < l->count && l->item[at] != item) at++;
    const bool known = at < l->count;
    if (!known) l->count++;
    memmove(l->item + 1, l->item, (size_t)at * sizeof *l->item);
    l->item[0] = item;
    return known ? at + 1 : -1;
}

static void distances_are_those_of_a_list_in_order_of_use(void **state) {
    (void)state;
    static list l;
    ab_reuse *reuse;
    ab_traffic found = {.read = {0}}, wanted = {.read = {0}};
    uint64_t random = 1;
    assert_int_equal(ab_reuse_create((int64_t)GRANULES * GRANULE, TOUCHES, &reuse), AB_OK);
    for (int i = 0; i < TOUCHES; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        const int64_t granule = (int64_t)((random >> 33) % (i % 3 ? GRANULES : 20));
        const bool written = random >> 62 & 1u;
        const int64_t since = use(&l, granule);
        const int size = since < 0 ? AB_LIMIT_SIZES - 1 : ab_machine_limits_holding((double)since * GRANULE);
        (written ? wanted.written : wanted.read)[size] += 100;
        ab_reuse_begin_pass(reuse);
        ab_reuse_touch(reuse, granule * GRANULE + 7, 100, written, &found);
    }
    assert_memory_equal(&found, &wanted, sizeof found);
    assert_true(sum(found.read) > 0 && found.read[1] > 0 && found.read[2] > 0 && found.read[3] > 0);
    ab_reuse_destroy(reuse);
}

static void a_loop_over_a_working_set_lies_as_far_back_as_it_is_large(void **state) {
    (void)state;
    for (int size = 0; size < 6; size++) {
        const int64_t bytes = (int64_t)ab_machine_limits_size(size);
        ab_traffic traffic = {.read = {0}};
        ab_reuse *reuse;
        assert_int_equal(ab_reuse_create(bytes, 2 * ab_reuse_granules(GRANULE, 0, bytes), &reuse), AB_OK);
        ab_reuse_begin_pass(reuse);
        ab_reuse_touch(reuse, 0, bytes, false, &traffic);
        assert_true(traffic.read[AB_LIMIT_SIZES - 1] == (double)bytes);
        memset(&traffic, 0, sizeof traffic);
        ab_reuse_begin_pass(reuse);
        ab_reuse_touch(reuse, 0, bytes, false, &traffic);
        assert_true(traffic.read[size] == (double)bytes && sum(traffic.read) == (double)bytes);
        ab_reuse_destroy(reuse);
    }
}

static void what_a_pass_reads_and_then_writes_is_updated_in_place(void **state) {
    (void)state;
    enum { BYTES = 10 * GRANULE };
    ab_traffic traffic = {.read = {0}};
    ab_reuse *reuse;
    assert_int_equal(ab_reuse_create(2 * BYTES, 100, &reuse), AB_OK);
    ab_reuse_begin_pass(reuse);
    ab_reuse_touch(reuse, 0, BYTES, false, &traffic);
    ab_reuse_touch(reuse, BYTES, BYTES, true, &traffic);
    ab_reuse_touch(reuse, 0, BYTES, true, &traffic);
    assert_true(sum(traffic.read) == 0 && sum(traffic.written) == BYTES && sum(traffic.updated) == BYTES);
    memset(&traffic, 0, sizeof traffic);
    ab_reuse_begin_pass(reuse); /* in another pass it is read, and then written, once each */
    ab_reuse_touch(reuse, 0, BYTES, false, &traffic);
    ab_reuse_begin_pass(reuse);
    ab_reuse_touch(reuse, 0, BYTES, true, &traffic);
    assert_true(sum(traffic.read) == BYTES && sum(traffic.written) == BYTES && sum(traffic.updated) == 0);
    ab_reuse_destroy(reuse);
}

static void tensors_in_one_granule_are_not_taken_for_each_other(void **state) {
    (void)state;
    ab_traffic traffic = {.read = {0}};
    ab_reuse *reuse;
    assert_int_equal(ab_reuse_create(GRANULE, 10, &reuse), AB_OK);
    ab_reuse_begin_pass(reuse);
    ab_reuse_touch(reuse, 0, 64, false, &traffic);
    ab_reuse_touch(reuse, 64, 256, true, &traffic);
    assert_true(sum(traffic.read) >= 0 && sum(traffic.read) + sum(traffic.updated) == 64);
    assert_true(sum(traffic.read) + 2 * sum(traffic.updated) + sum(traffic.written) == 64 + 256);
    ab_reuse_destroy(reuse);
}

static void granules_grow_with_the_memory(void **state) {
    (void)state;
    assert_true(ab_reuse_granule(1) == GRANULE && ab_reuse_granule(1 << 29) == GRANULE);
    for (int64_t bytes = 1; bytes < INT64_C(1) << 50; bytes = bytes * 3 + 1)
        assert_true(bytes / ab_reuse_granule(bytes) < 1 << 20);
}

static void a_copy_takes_as_long_as_reading_one_half_and_writing_the_other(void **state) {
    (void)state;
    ab_machine_limits limits = {.format = {NULL}};
    for (int i = 0; i < AB_LIMIT_SIZES; i++) {
        limits.copied[i] = 1e9 * (20 - i);
        limits.read[i] = 1e9 * (30 - i);
        limits.updated[i] = 1e9 * (40 - i);
    }
    for (int i = 0; i < AB_LIMIT_SIZES; i++) {
        ab_traffic copy = {.read = {0}}, update = {.read = {0}};
        copy.read[i] = copy.written[i] = 5e8;
        update.updated[i] = 1e9;
        assert_true(fabs(ab_machine_limits_memory(&limits, &copy) * limits.copied[i] - 1e9) < 1);
        assert_true(fabs(ab_machine_limits_memory(&limits, &update) * limits.updated[i] - 2e9) < 1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(distances_are_those_of_a_list_in_order_of_use),
        cmocka_unit_test(a_loop_over_a_working_set_lies_as_far_back_as_it_is_large),
        cmocka_unit_test(what_a_pass_reads_and_then_writes_is_updated_in_place),
        cmocka_unit_test(tensors_in_one_granule_are_not_taken_for_each_other),
        cmocka_unit_test(granules_grow_with_the_memory),
        cmocka_unit_test(a_copy_takes_as_long_as_reading_one_half_and_writing_the_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
