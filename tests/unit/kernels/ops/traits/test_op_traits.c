/* Traits of ops: names lead back to their bit, and traits that a descriptor states too agree with it. */
#include "kernels/ops/op.h"
#include "kernels/ops/traits/op_traits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void every_name_leads_to_its_bit(void **state) {
    (void)state;
    assert_in_range(AB_TRAIT_COUNT, 1, 8 * sizeof(ab_traits) - 1);
    for (int bit = 0; bit < AB_TRAIT_COUNT; bit++) {
        assert_int_equal(ab_trait_named(ab_trait_name(bit)), 1u << bit);
        assert_true(ab_trait_text(bit)[0]);
    }
    assert_int_equal(ab_trait_named("no such trait"), 0);
}

static void traits_agree_with_descriptors(void **state) {
    (void)state;
    for (int i = 0; i < ab_op_count(); i++) {
        const ab_op *op = ab_op_at(i);
        const ab_traits traits = ab_op_traits(op->name);
        if (((traits & AB_TRAIT_loss) != 0) != op->is_loss) fail_msg("%s: loss", op->name);
        if (((traits & AB_TRAIT_running_statistics) != 0) != op->batch_norm)
            fail_msg("%s: running_statistics", op->name);
        if (((traits & AB_TRAIT_normalization) != 0) != (op->norm || op->batch_norm))
            fail_msg("%s: normalization", op->name);
    }
}

static void every_trait_has_an_op(void **state) {
    (void)state;
    ab_traits all = 0;
    for (int i = 0; i < ab_op_count(); i++) all |= ab_op_traits(ab_op_at(i)->name);
    assert_int_equal(all, (1u << AB_TRAIT_COUNT) - 1);
    assert_int_equal(ab_op_traits("matmul"), AB_TRAIT_product | AB_TRAIT_activation_product);
    assert_int_equal(ab_op_traits(""), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_name_leads_to_its_bit),
        cmocka_unit_test(traits_agree_with_descriptors),
        cmocka_unit_test(every_trait_has_an_op),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
