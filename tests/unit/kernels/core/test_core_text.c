/* Formatting into fixed buffers: whole, marked as cut, or refused; never cut without a word. Text from
 * outside is escaped. */
#define _POSIX_C_SOURCE 200809L /* open_memstream */
#include "kernels/core/shape.h"
#include "kernels/core/show.h"
#include "kernels/core/status.h"
#include "kernels/core/text.h"
#include "kernels/core/text_path.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/core/compiler.h"
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

/* What comes from outside, as a terminal may see it, and as JSON. */
static const struct {
    const char *raw, *shown, *json;
} outside[] = {
    {"plain \xc3\xa4 \xe6\x97\xa5 \xf0\x9f\x98\x80", "plain \xc3\xa4 \xe6\x97\xa5 \xf0\x9f\x98\x80",
     "\"plain \xc3\xa4 \xe6\x97\xa5 \xf0\x9f\x98\x80\""},
    {"x\n::error file=y", "x\\n::error file=y", "\"x\\n::error file=y\""},
    {"a\rb\tc\033[31m\177", "a\\rb\\tc\\x1b[31m\\x7f", "\"a\\rb\\tc\\u001b[31m\\u007f\""},
    {"\302\205\302\233", "\\u0085\\u009b", "\"\\u0085\\u009b\""},
    {"\xe2\x80\xae\xe2\x81\xa6\xe2\x81\xa9", "\\u202e\\u2066\\u2069", "\"\\u202e\\u2066\\u2069\""},
    {"\xf3\xa0\x81\x81", "\\U000e0041", "\"\\udb40\\udc41\""},
    {"\xff\xc0\xaf\xe2\x80", "\\xff\\xc0\\xaf\\xe2\\x80",
     "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""},
    {"::error::x", "\\x3a:error::x", "\"::error::x\""},
    {"  ::error::x", "  \\x3a:error::x", "\"  ::error::x\""},
    {"a ##[error]x ##vso[y", "a \\x23#[error]x \\x23#vso[y", "\"a \\u0023#[error]x \\u0023#vso[y\""},
    {"a\\b \"c\"", "a\\b \"c\"", "\"a\\\\b \\\"c\\\"\""},
};

static void text_from_outside_is_escaped_and_again_the_same(void **state) {
    (void)state;
    for (size_t i = 0; i < AB_COUNT_OF(outside); i++) {
        char once[128], twice[128];
        assert_string_equal(ab_text_escape(once, sizeof once, outside[i].raw), outside[i].shown);
        assert_string_equal(ab_text_escape(twice, sizeof twice, once), once);
        char *json = NULL;
        size_t size = 0;
        FILE *out = open_memstream(&json, &size);
        ab_json_put_text(out, outside[i].raw);
        fclose(out);
        assert_string_equal(json, outside[i].json);
        free(json);
    }
}

static void an_escape_that_does_not_fit_is_left_out_whole(void **state) {
    (void)state;
    for (size_t size = 1; size < 16; size++) {
        char text[16] = "";
        memset(text, 'x', sizeof text);
        ab_text_escape(text, size,
                       "a\n\xe2\x80\xae"
                       "bcdef");
        assert_true(strlen(text) == size - 1 || (size > 4 && strlen(text) < size));
        const char *tail = strrchr(text, '\\');
        if (tail) assert_true(strncmp(tail, "\\n", 2) == 0 || strncmp(tail, "\\u202e", 6) == 0);
    }
    char text[16];
    assert_string_equal(ab_text_escape(text, sizeof text,
                                       "a\n\xe2\x80\xae"
                                       "bcdef"),
                        "a\\n\\u202ebcdef");
    assert_string_equal(ab_text_escape(text, 14,
                                       "a\n\xe2\x80\xae"
                                       "bcdef"),
                        "a\\n\\u202eb...");
}

static void errors_are_one_line(void **state) {
    (void)state;
    ab_fail(AB_INPUT, "%s: no such\nfile", "x\n::error file=y\033");
    assert_string_equal(ab_error_message(), "x\\n::error file=y\\x1b: no such\\nfile");
    ab_fail_prefix(AB_INPUT, "%s", "::set-output\r");
    assert_string_equal(ab_error_message(), "\\x3a:set-output\\r: x\\n::error file=y\\x1b: no such\\nfile");
}

/* Only the format breaks lines, wherever the argument stands and whatever it holds. */
static void printing_breaks_lines_where_the_format_does(void **state) {
    (void)state;
    static const struct {
        const char *argument, *printed;
    } cases[] = {
        {"x", "x\n-1   x| x\n"},
        {"::e", "\\x3a:e\n-1 ::e| \\x3a:e\n"},
        {"a\nb", "a\\nb\n-1 a\\nb| a\\nb\n"},
        {"\1", "\\x01\n-1   \\x01| \\x01\n"},
        {"\n\1\n", "\\n\\x01\\n\n-1 \\n\\x01\\n| \\n\\x01\\n\n"},
        {"%d%n", "%d%n\n-1 %d%n| %d%n\n"},
    };
    for (size_t i = 0; i < AB_COUNT_OF(cases); i++) {
        const char *x = cases[i].argument;
        char *text = NULL;
        size_t size = 0;
        FILE *out = open_memstream(&text, &size);
        const int written = ab_print(out, "%s\n%d %3s|", x, -1, x) + ab_print(out, " %s\n", x);
        fclose(out);
        assert_string_equal(text, cases[i].printed);
        assert_int_equal(written, size);
        free(text);
    }
}

static void a_shell_word_is_one_word(void **state) {
    (void)state;
    static const struct {
        const char *raw, *word;
    } cases[] = {{"fc1=fp32", "'fc1=fp32'"},
                 {"a'; touch x; 'b $HOME `y`", "'a'\\''; touch x; '\\''b $HOME `y`'"},
                 {"a\n'b\\\033", "$'a\\n\\'b\\\\\\x1b'"}};
    for (size_t i = 0; i < AB_COUNT_OF(cases); i++) {
        char *text = NULL;
        size_t size = 0;
        FILE *out = open_memstream(&text, &size);
        ab_print_shell_word(out, cases[i].raw);
        fclose(out);
        assert_string_equal(text, cases[i].word);
        free(text);
    }
}

/* ab_nearest suggests what a person meant and stays silent when nothing is close. */

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
        cmocka_unit_test(text_from_outside_is_escaped_and_again_the_same),
        cmocka_unit_test(an_escape_that_does_not_fit_is_left_out_whole),
        cmocka_unit_test(errors_are_one_line),
        cmocka_unit_test(printing_breaks_lines_where_the_format_does),
        cmocka_unit_test(a_shell_word_is_one_word),
        cmocka_unit_test(one_edit_of_each_kind_is_found),
        cmocka_unit_test(the_closer_of_two_names_wins_and_the_first_of_equals),
        cmocka_unit_test(a_prefix_is_close_however_long_the_name),
        cmocka_unit_test(nothing_close_is_no_suggestion),
        cmocka_unit_test(swaps_count_one_edit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
