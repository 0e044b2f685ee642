/* Remedies of records that a probe wrote in PyTorch: every cause has its line, with the numbers of the
 * options. */
#include "reports/diagnose/attribute/verdict.h"
#include "reports/diagnose/remedy/remedy.h"

#include <cjson/cJSON.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
// clang-format off
#include <setjmp.h>
#include <cmocka.h>
// clang-format on

static const char torch_record[] = "{\"probe\":{\"framework\":\"torch\"},\"config\":{\"device\":\"cpu\"}}";

static ab_remedy remedy_in(const char *record, const char *id, const char *layer, const char *scale) {
    ab_facts facts = {.document = cJSON_Parse(record)};
    ab_remedy remedy = {.options = 0};
    assert_non_null(facts.document);
    ab_remedy_option(&remedy, NULL, "--scales", "%s", scale);
    ab_remedy_for_framework(&facts, id, layer, &remedy);
    cJSON_Delete((cJSON *)facts.document);
    return remedy;
}

static void test_every_cause_has_a_line(void **state) {
    (void)state;
    static const char *const ids[] = {
#define AB_VERDICT(id) #id,
#include "reports/diagnose/attribute/verdicts.def"
#undef AB_VERDICT
    };
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        const ab_remedy remedy = remedy_in(torch_record, ids[i], "blocks.11.attention.out_proj", "dynamic");
        const size_t length = strlen(remedy.text);
        assert_int_equal(remedy.options, 0);
        assert_null(strstr(remedy.text, "--"));
        assert_null(strchr(remedy.text, '{'));
        assert_true(length > 10 && strcmp(remedy.text + length - 3, "...") != 0); /* not cut */
    }
}

static void test_numbers_come_from_the_options(void **state) {
    (void)state;
    ab_remedy remedy = remedy_in(torch_record, "scale_too_high", "", "dynamic:init=5000");
    assert_non_null(strstr(remedy.text, "torch.amp.GradScaler(init_scale=2**12)"));
    remedy = remedy_in(torch_record, "activation_overflow", "encoder.3", "dynamic");
    assert_non_null(strstr(remedy.text, "with torch.autocast(\"cpu\", enabled=False): round encoder.3,"));
}

static void test_other_records_keep_their_options(void **state) {
    (void)state;
    const ab_remedy remedy = remedy_in("{}", "scale_too_high", "", "dynamic");
    assert_int_equal(remedy.options, 2);
    assert_string_equal(remedy.text, "--scales dynamic");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_cause_has_a_line),
        cmocka_unit_test(test_numbers_come_from_the_options),
        cmocka_unit_test(test_other_records_keep_their_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
