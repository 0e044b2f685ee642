/* Speeds of a Debug build, of one with sanitizers or without oneDNN are said to be those of the build, in
 * every form that shows speeds; those of a release are not, nor those of records of other programs. */
#define _POSIX_C_SOURCE 200809L
#include "reports/record/build.h"
#include "support/report_text.h"

#include <string.h>

static cJSON *generator(const char *name, const char *type, const char *flags, const char *onednn) {
    cJSON *made = cJSON_CreateObject();
    cJSON_AddStringToObject(made, "name", name);
    cJSON_AddStringToObject(made, "build_type", type);
    cJSON_AddStringToObject(made, "flags", flags);
    cJSON_AddItemToObject(made, "onednn_version", onednn ? cJSON_CreateString(onednn) : cJSON_CreateNull());
    return made;
}

static void expect(const char *slow, cJSON *made) {
    char text[AB_BUILD_TEXT];
    assert_string_equal(ab_build_slow(made, text), slow);
    const char *warning = ab_build_warning(made, text);
    if (slow[0])
        assert_non_null(strstr(warning, slow));
    else
        assert_null(warning);
    cJSON_Delete(made);
}

static void test_a_slow_build_is_named(void **state) {
    (void)state;
    expect("", generator("ampbench", "Release", "-O3 -DNDEBUG -ffp-contract=off", "3.2.0"));
    expect("", generator("ampbench", "RelWithDebInfo", "-O2 -g", "2.6.3"));
    expect("", generator("ampbench", "None", "-g -O2", "2.6.3"));
    expect("a build without oneDNN", generator("ampbench", "Release", "-O3", NULL));
    expect("a Debug build", generator("ampbench", "Debug", "-g", "3.2.0"));
    expect("a build without optimisation", generator("ampbench", "None", "-g", "3.2.0"));
    expect("a build without optimisation", generator("ampbench", "Release", "-O2 -Og", "3.2.0"));
    expect("a build with sanitizers",
           generator("ampbench", "RelWithDebInfo", "-O2 -g -fsanitize=address,undefined", "3.2.0"));
    expect("a Debug build with sanitizers and without oneDNN",
           generator("ampbench", "Debug", "-g -fsanitize=thread", NULL));
}

static void test_records_of_other_programs_are_not_judged(void **state) {
    (void)state;
    expect("", generator("ampprobe", "Debug", "", NULL));
    expect("", generator("ampbench", "", "", NULL)); /* of a log */
}

static cJSON *document_of(const char *type) {
    cJSON *document = ab_test_fixture("lenet5");
    cJSON_ReplaceItemInObject(document, "generator", generator("ampbench", type, "-O3", "3.2.0"));
    return document;
}

static void test_every_form_with_speeds_says_it(void **state) {
    (void)state;
    static const char *const forms[] = {"table", "markdown", "html"};
    for (size_t i = 0; i < AB_COUNT_OF(forms); i++) {
        for (int debug = 0; debug < 2; debug++) {
            cJSON *document = document_of(debug ? "Debug" : "Release");
            char *text = ab_test_report(document, forms[i], 0);
            assert_int_equal(strstr(text, "speeds of a Debug build") != NULL, debug);
            free(text);
            cJSON_Delete(document);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_slow_build_is_named),
        cmocka_unit_test(test_records_of_other_programs_are_not_judged),
        cmocka_unit_test(test_every_form_with_speeds_says_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
