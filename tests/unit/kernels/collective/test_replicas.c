/* Checksums of replicas: any flipped bit of any value changes one, and so does an exchange of two values; the
 * first rank and tensor that parted are named, by the majority where there is one. */
#include "kernels/collective/replicas.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { VALUES = 37, TENSORS = 5, MOST_RANKS = 8 };

static void fill(float *value) {
    for (int i = 0; i < VALUES; i++) value[i] = (float)(i * i) - 300.25f;
}

static void every_flipped_bit_changes_the_checksum(void **state) {
    float value[VALUES];
    (void)state;
    fill(value);
    const uint64_t sound = ab_replica_checksum(value, VALUES);
    assert_true(ab_replica_checksum(value, VALUES) == sound);
    for (int i = 0; i < VALUES; i++)
        for (int bit = 0; bit < 32; bit++) {
            uint32_t word;
            float kept = value[i];
            memcpy(&word, &kept, sizeof word);
            word ^= 1u << bit;
            memcpy(&value[i], &word, sizeof word);
            assert_true(ab_replica_checksum(value, VALUES) != sound);
            value[i] = kept;
        }
}

static void the_order_of_values_counts(void **state) {
    float value[VALUES];
    (void)state;
    fill(value);
    const uint64_t sound = ab_replica_checksum(value, VALUES);
    for (int i = 0; i + 4 < VALUES; i++) { /* neighbours, and of one lane */
        const int other[] = {i + 1, i + 4};
        for (int k = 0; k < 2; k++) {
            const float kept = value[i];
            value[i] = value[other[k]];
            value[other[k]] = kept;
            assert_true(ab_replica_checksum(value, VALUES) != sound);
            value[other[k]] = value[i];
            value[i] = kept;
        }
    }
    assert_true(ab_replica_checksum(value, VALUES - 1) != sound);
}

/* Every single rank and tensor that differs, with 2 to 8 ranks. */
static void the_first_rank_and_tensor_are_named(void **state) {
    (void)state;
    for (int ranks = 2; ranks <= MOST_RANKS; ranks++)
        for (int odd = 0; odd < ranks; odd++)
            for (int t = 0; t < TENSORS; t++) {
                uint64_t all[MOST_RANKS * TENSORS];
                for (int k = 0; k < ranks * TENSORS; k++) all[k] = (uint64_t)(k % TENSORS);
                ab_parting found = ab_replicas_compare(all, ranks, TENSORS);
                assert_true(found.rank == -1 && found.tensor == -1 && found.tensors == 0);
                all[odd * TENSORS + t] ^= 1;
                all[odd * TENSORS + TENSORS - 1] ^= 2;
                found = ab_replicas_compare(all, ranks, TENSORS);
                assert_int_equal(found.tensor, t);
                assert_int_equal(found.rank, ranks == 2 ? 1 : odd);
                assert_int_equal(found.ranks, 1);
                assert_int_equal(found.tensors, t == TENSORS - 1 ? 1 : 2);
            }
}

static void most_ranks_decide_who_differs(void **state) {
    const uint64_t all[] = {9, 4, 4, 7, 4};
    (void)state;
    const ab_parting found = ab_replicas_compare(all, 5, 1);
    assert_int_equal(found.rank, 0);
    assert_int_equal(found.ranks, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_flipped_bit_changes_the_checksum),
                                       cmocka_unit_test(the_order_of_values_counts),
                                       cmocka_unit_test(the_first_rank_and_tensor_are_named),
                                       cmocka_unit_test(most_ranks_decide_who_differs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
