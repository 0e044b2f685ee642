/* Options of commands: how they are written, where they go, and what is said of wrong ones. */
#include "bench/cmd/cmd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define WORD(text) ((char *)(uintptr_t)(text)) /* an argument; nobody writes to it */

/* ---- one by one ------------------------------------------------------------------------------ */

static void options_are_found_with_their_values(void **state) {
    (void)state;
    char *argv[] = {WORD("x"), WORD("--json=a"), WORD("--json"), WORD("b"), WORD("--jsonl"), WORD("--json")};
    const char *value = NULL;
    int i = 1;
    assert_true(ab_is_option("--json", 6, argv, &i, &value));
    assert_string_equal(value, "a");
    assert_int_equal(i, 1);
    i = 2;
    assert_true(ab_is_option("--json", 6, argv, &i, &value));
    assert_string_equal(value, "b");
    assert_int_equal(i, 3);
    i = 4;
    assert_false(ab_is_option("--json", 6, argv, &i, &value));
    assert_int_equal(i, 4);
    i = 5;
    assert_true(ab_is_option("--json", 6, argv, &i, &value));
    assert_string_equal(value, "");
}

static void unknown_options_name_the_nearest(void **state) {
    (void)state;
    const char *const names[] = {"--json", "--rows"};
    assert_int_equal(ab_unknown_option("x", "--jsn", names, 2), AB_USAGE);
    assert_string_equal(ab_error_message(), "x: unknown option --jsn; nearest: --json");
    assert_int_equal(ab_unknown_option("x", "--quux", names, 2), AB_USAGE);
    assert_string_equal(ab_error_message(), "x: unknown option --quux; see --help");
}

/* ---- by a list ------------------------------------------------------------------------------- */

typedef struct taken {
    const char *out;
    bool quiet;
    int layers;
} taken;

static ab_status take_layer(void *context, const char *value) {
    taken *t = context;
    t->layers++;
    return strcmp(value, "bad") == 0 ? ab_fail(AB_CONFIG, "no layer is called bad") : AB_OK;
}

/* Takes all words; *t is what they set. */
static ab_status take(taken *t, bool whole, const char *hint, int argc, char **argv) {
    const ab_argument arguments[] = {
        {.name = "--out", .value = &t->out},
        {.name = "--quiet", .flag = &t->quiet},
        {.name = "--layer", .take = take_layer, .context = t},
        {.name = "--trace"},
    };
    const ab_argument_list list = {"x", arguments, (int)AB_COUNT_OF(arguments), hint, whole};
    *t = (taken){.out = NULL};
    for (int i = 0; i < argc; i++) AB_TRY(ab_take_option(&list, argc, argv, &i));
    return AB_OK;
}

static void lists_fill_values_flags_and_calls(void **state) {
    (void)state;
    char *argv[] = {WORD("--out"),   WORD("-"), WORD("--layer=a"), WORD("--quiet"),
                    WORD("--layer"), WORD("b"), WORD("--out=c=d")};
    taken t;
    assert_int_equal(take(&t, false, NULL, 7, argv), AB_OK);
    assert_string_equal(t.out, "c=d");
    assert_true(t.quiet);
    assert_int_equal(t.layers, 2);
}

typedef struct wrong {
    const char *word;
    bool whole;
    const char *hint, *message;
} wrong;

static const wrong wrongs[] = {
    {"--out", false, NULL, "x: --out expects a value"},
    {"--quiet=1", false, NULL, "x: --quiet takes no value"},
    {"--layer=bad", false, NULL, "no layer is called bad"},
    {"--ot=1", false, NULL, "x: unknown option '--ot'; did you mean '--out'?"},
    {"--quit=1", true, NULL, "x: unknown option '--quit=1'; did you mean '--quiet'?"},
    {"--zzzzzz=1", false, "; see y", "x: unknown option '--zzzzzz'; see y"},
    {"--trac", false, "; see y", "x: unknown option '--trac'; did you mean '--trace'?; see y"},
    {"--trace", false, NULL, "x: unknown option '--trace'; did you mean '--trace'?"},
    {"--aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false, NULL,
     "x: unknown option '--aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...'"},
};

static void wrong_options_are_refused_by_name(void **state) {
    (void)state;
    for (size_t i = 0; i < AB_COUNT_OF(wrongs); i++) {
        char word[64];
        char *argv[] = {word};
        taken t;
        snprintf(word, sizeof word, "%s", wrongs[i].word);
        assert_int_not_equal(take(&t, wrongs[i].whole, wrongs[i].hint, 1, argv), AB_OK);
        assert_string_equal(ab_error_message(), wrongs[i].message);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_are_found_with_their_values),
        cmocka_unit_test(unknown_options_name_the_nearest),
        cmocka_unit_test(lists_fill_values_flags_and_calls),
        cmocka_unit_test(wrong_options_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
