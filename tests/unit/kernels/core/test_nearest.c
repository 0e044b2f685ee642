/* ab_nearest suggests what a person meant and stays silent when nothing is close. */
#include "kernels/core/nearest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/core/compiler.h"

static const char *const nets[] = {"lenet5", "mlp", NULL, "resnet8", "resnet20"};

static const char *near(const char *word) { return ab_nearest(word, nets, (int)AB_COUNT_OF(nets)); }

static void one_edit_of_each_kind_is_found(void **state) {
    (void)state;
    assert_string_equal(near("lenet"), "lenet5");   /* missing */
    assert_string_equal(near("leenet5"), "lenet5"); /* extra */
    assert_string_equal(near("lenat5"), "lenet5");  /* wrong */
    assert_string_equal(near("lneet5"), "lenet5");  /* swapped */
    assert_string_equal(near("LeNet5"), "lenet5");  /* case is free */
    assert_string_equal(near("resnet-20"), "resnet20");
}

static void the_closer_of_two_names_wins_and_the_first_of_equals(void **state) {
    (void)state;
    assert_string_equal(near("resnet9"), "resnet8");
    assert_string_equal(near("resnet2"), "resnet8"); /* one edit from both */
    assert_string_equal(near("resnet200"), "resnet20");
}

static void a_prefix_is_close_however_long_the_name(void **state) {
    static const char *const names[] = {"batch", "keep_batchnorm_fp32"};
    (void)state;
    assert_string_equal(ab_nearest("keep", names, 2), "keep_batchnorm_fp32");
    assert_string_equal(ab_nearest("bat", names, 2), "batch");
}

static void nothing_close_is_no_suggestion(void **state) {
    static const char *const single[] = {"x"};
    char longer[200];
    (void)state;
    for (size_t i = 0; i + 1 < sizeof longer; i++) longer[i] = 'a';
    longer[sizeof longer - 1] = '\0';
    assert_null(near("transformer"));
    assert_null(near(""));
    assert_null(near("q"));
    assert_null(near(longer));
    assert_null(ab_nearest("y", single, 1));
    assert_null(ab_nearest("lenet5", nets, 0));
}

static void swaps_count_one_edit(void **state) {
    static const char *const names[] = {"abcd", "badc"};
    (void)state;
    assert_string_equal(ab_nearest("abdc", names, 2), "abcd");
    assert_string_equal(ab_nearest("bacd", names, 1), "abcd");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_edit_of_each_kind_is_found),
        cmocka_unit_test(the_closer_of_two_names_wins_and_the_first_of_equals),
        cmocka_unit_test(a_prefix_is_close_however_long_the_name),
        cmocka_unit_test(nothing_close_is_no_suggestion),
        cmocka_unit_test(swaps_count_one_edit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
