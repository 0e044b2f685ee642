/* Formatting into fixed buffers: whole, marked as cut, or refused; never cut without a word. */
#include "kernels/core/shape.h"
#include "kernels/core/status.h"
#include "kernels/core/text.h"
#include "kernels/core/text_path.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void what_fits_is_written_whole(void **state) {
    (void)state;
    char text[6];
    assert_int_equal(ab_text_show(text, sizeof text, "%d%s", 12, "abc"), 5);
    assert_string_equal(text, "12abc");
    assert_true(ab_text_fits(text, sizeof text, "%s", "abcde"));
    assert_string_equal(text, "abcde");
    assert_string_equal(ab_text_exact(text, sizeof text, "%s", "vwxyz"), "vwxyz");
}

static void what_is_cut_ends_in_dots(void **state) {
    (void)state;
    char text[8];
    assert_int_equal(ab_text_show(text, sizeof text, "%s", "abcdefgh"), 7);
    assert_string_equal(text, "abcd...");
    for (size_t size = 1; size <= 4; size++) {
        ab_text_show(text, size, "%s", "abcdefgh");
        assert_int_equal(strlen(text), size - 1);
        assert_int_equal(strspn(text, "."), size - 1);
    }
}

static void a_cut_is_at_a_whole_character(void **state) {
    (void)state;
    char text[10];
    ab_text_show(text, sizeof text,
                 "abcd\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac"); /* the second byte of the first euro would go */
    assert_string_equal(text, "abcd...");
    ab_text_show(text, sizeof text, "%s", "\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac");
    assert_string_equal(text, "\xe2\x82\xac\xe2\x82\xac...");
}

static void appending_goes_on_and_marks_the_cut(void **state) {
    (void)state;
    char text[10] = "";
    assert_int_equal(ab_text_append(text, sizeof text, "%s", "abc"), 3);
    assert_int_equal(ab_text_append(text, sizeof text, ", %s", "def"), 8);
    assert_string_equal(text, "abc, def");
    ab_text_append(text, sizeof text, ", %s", "ghi");
    assert_string_equal(text, "abc, d...");
    ab_text_append(text, sizeof text, ", %s", "jkl"); /* there is no room, and none is taken */
    assert_string_equal(text, "abc, d...");
}

static void a_text_that_must_be_whole_is_refused(void **state) {
    (void)state;
    char text[6] = "old";
    assert_false(ab_text_fits(text, sizeof text, "%s", "abcdef"));
    assert_string_equal(text, "");
}

static void a_path_that_does_not_fit_names_the_option(void **state) {
    (void)state;
    char path[8];
    assert_int_equal(ab_text_path("--out", path, sizeof path, "%s/%s", "abc", "def"), AB_OK);
    assert_int_equal(ab_text_path("--out", path, sizeof path, "%s/%s", "abcd", "def"), AB_USAGE);
    assert_string_equal(ab_error_message(),
                        "--out: expected a path of less than 8 bytes, found 8: 'abcd/def'");
    assert_string_equal(path, "");
}

static void a_brief_word_is_itself_or_says_that_more_follows(void **state) {
    (void)state;
    const char *const word = "abcdefgh";
    assert_ptr_equal(ab_text_brief(word, 8), word);
    const char *first = ab_text_brief(word, 7), *second = ab_text_brief(word, 6);
    assert_string_equal(first, "abcd...");
    assert_string_equal(second, "abc...");
}

static void an_allocated_text_has_any_length(void **state) {
    (void)state;
    char word[3001];
    memset(word, 'x', 3000);
    word[3000] = '\0';
    char *text = ab_text_new("%s=%s", word, word);
    assert_non_null(text);
    assert_int_equal(strlen(text), 6001);
    free(text);
}

/* A mistake in the program must not become a wrong text. */
static void a_text_that_cannot_be_too_long_ends_the_program_if_it_is(void **state) {
    (void)state;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char text[4];
        signal(SIGABRT, SIG_DFL);
        close(STDERR_FILENO);
        ab_text_exact(text, sizeof text, "%s", "abcd");
        _exit(0);
    }
    int how = 0;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFSIGNALED(how));
    assert_int_equal(WTERMSIG(how), SIGABRT);
}

/* An error's message ends in dots where it is cut, and a prefix does not push the message out. */
static void long_error_messages_are_marked(void **state) {
    (void)state;
    char word[3001];
    memset(word, 'x', 3000);
    word[3000] = '\0';
    (void)!ab_fail(AB_USAGE, "found '%s'", word);
    const char *message = ab_error_message();
    assert_int_equal(strlen(message), 1023);
    assert_string_equal(message + 1020, "...");
    (void)!ab_fail(AB_USAGE, "the reason");
    (void)!ab_fail_prefix(AB_USAGE, "%s", word);
    assert_non_null(strstr(ab_error_message(), "x...: the reason"));
}

static void exact_numbers_have_the_fewest_digits_that_read_back(void **state) {
    (void)state;
    static const struct {
        double x;
        const char *text;
    } rows[] = {{0.1, "0.1"},
                {65536, "65536"},
                {1e15, "1e+15"},
                {0x1p50, "1125899906842624"},
                {0.1 + 0.2, "0.30000000000000004"},
                {-0.0, "-0"}};
    char text[AB_TEXT_ROUND_TRIP];
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++)
        assert_string_equal(ab_text_round_trip(text, rows[i].x), rows[i].text);
}

static void many_dims_are_shown_in_part(void **state) {
    (void)state;
    const int64_t dim[] = {INT64_MAX, 2, 3, 4, INT64_MAX, INT64_MAX};
    char text[64];
    assert_string_equal(ab_dims_text(dim, 0, text, sizeof text), "[]");
    assert_string_equal(ab_dims_text(dim + 1, 3, text, sizeof text), "[2, 3, 4]");
    assert_string_equal(ab_dims_text(dim, 6, text, sizeof text),
                        "[9223372036854775807, 2, 3, 4, 9223372036854775807, ...]");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_fits_is_written_whole),
        cmocka_unit_test(what_is_cut_ends_in_dots),
        cmocka_unit_test(a_cut_is_at_a_whole_character),
        cmocka_unit_test(appending_goes_on_and_marks_the_cut),
        cmocka_unit_test(a_text_that_must_be_whole_is_refused),
        cmocka_unit_test(a_path_that_does_not_fit_names_the_option),
        cmocka_unit_test(a_brief_word_is_itself_or_says_that_more_follows),
        cmocka_unit_test(an_allocated_text_has_any_length),
        cmocka_unit_test(a_text_that_cannot_be_too_long_ends_the_program_if_it_is),
        cmocka_unit_test(long_error_messages_are_marked),
        cmocka_unit_test(exact_numbers_have_the_fewest_digits_that_read_back),
        cmocka_unit_test(many_dims_are_shown_in_part),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
