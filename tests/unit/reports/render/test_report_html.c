/* The HTML page: well-formed, every link and label finds its target, nothing is loaded from elsewhere, the
 * same bytes for the same document, complete without gnuplot; and the sieve that pictures go through. */
#define _POSIX_C_SOURCE 200809L
#include "reports/render/markup.h"
#include "support/page_check.h"
#include "support/report_text.h"

#include <string.h>

static const char *const fixtures[] = {"lenet5", "tiny", "broken", "hostile"};

static bool have_gnuplot(void) { return system("gnuplot --version > /dev/null 2>&1") == 0; }

static char *page_of(const char *fixture) {
    cJSON *document = ab_test_fixture(fixture);
    char *text = ab_test_report(document, "html", 0);
    cJSON_Delete(document);
    return text;
}

static char *hide_gnuplot(void) {
    char *search_path = strdup(getenv("PATH") ? getenv("PATH") : "");
    setenv("PATH", "/nonexistent", 1);
    return search_path;
}

static void show_gnuplot(char *search_path) {
    setenv("PATH", search_path, 1);
    free(search_path);
}

static int count_of(const char *text, const char *what) {
    int count = 0;
    for (const char *at = text; (at = strstr(at, what)); at += strlen(what)) count++;
    return count;
}

static void check(const char *text, const char *name) {
    char wrong[256];
    if (ab_page_check(text, true, wrong)) fail_msg("%s: %s", name, wrong);
    static const char *const outside[] = {"<script", "<link", "<img",  "<iframe",
                                          "@import", "url(",  "http:", "src="};
    for (size_t i = 0; i < AB_COUNT_OF(outside); i++) {
        bool in_text =
            strcmp(outside[i], "http:") == 0 && strcmp(name, "hostile") == 0; /* shown, not followed */
        if (!in_text && strstr(text, outside[i])) fail_msg("%s holds %s", name, outside[i]);
    }
}

static void test_pages_are_well_formed_and_refer_only_to_themselves(void **state) {
    (void)state;
    for (size_t i = 0; i < AB_COUNT_OF(fixtures); i++) {
        char *text = page_of(fixtures[i]);
        check(text, fixtures[i]);
        assert_null(strstr(text, "left out"));
        free(text);
    }
}

static void test_the_same_document_gives_the_same_bytes(void **state) {
    (void)state;
    char *once = page_of("tiny"), *twice = page_of("tiny");
    assert_string_equal(once, twice);
    free(once);
    free(twice);
}

static void test_every_plot_is_a_labelled_picture(void **state) {
    (void)state;
    if (!have_gnuplot()) skip();
    char *text = page_of("lenet5");
    assert_int_equal(count_of(text, "<svg class=\"plot\" role=\"img\" aria-labelledby="), 6);
    assert_int_equal(count_of(text, "<figcaption>"), 6);
    free(text);
}

static void test_tables_have_captions_and_scopes(void **state) {
    (void)state;
    char *search_path = hide_gnuplot(), *text = page_of("lenet5");
    show_gnuplot(search_path);
    assert_int_equal(count_of(text, "<table "), count_of(text, "<caption>"));
    assert_int_equal(count_of(text, "<th>"), 0);
    assert_true(count_of(text, "<th scope=\"row\">") >= 14);
    assert_non_null(strstr(text, "<td class=\"number\">40587</td>")); /* samples/s of O0 */
    assert_non_null(
        strstr(text, "<h3 id=\"diagnosis\">Diagnosis</h3>\n<p><strong>O3, scale 1</strong>: sick"));
    assert_non_null(strstr(text, "loss gap +0.1909 is above 0.02163"));
    assert_non_null(strstr(text, "<pre><code>ampbench --levels O0,O1,O2,O3</code></pre>"));
    free(text);
}

static void test_without_gnuplot_the_page_says_so_and_keeps_its_tables(void **state) {
    (void)state;
    char *search_path = hide_gnuplot();
    char *text = page_of("lenet5");
    show_gnuplot(search_path);
    check(text, "lenet5");
    assert_null(strstr(text, "<svg"));
    assert_non_null(strstr(text, "There are no pictures: gnuplot was not found"));
    assert_non_null(strstr(text, "<table id=\"memory-table\">"));
    assert_non_null(strstr(text, "<table id=\"scale-table\">"));
    assert_non_null(strstr(text, "<table id=\"gradient-table\">"));
    free(text);
}

static void test_a_command_is_quoted_for_a_shell(void **state) {
    (void)state;
    char *search_path = hide_gnuplot();
    cJSON *document = ab_test_fixture("tiny"), *run = cJSON_GetObjectItem(document, "run");
    const char *const words[] = {"ampbench", "--net", "it's $(here).json", ""};
    cJSON_ReplaceItemInObject(run, "argv", cJSON_CreateStringArray(words, 4));
    char *text = ab_test_report(document, "html", 0);
    assert_non_null(
        strstr(text, "ampbench --net &#39;it&#39;\\&#39;&#39;s $(here).json&#39; &#39;&#39;</code>"));
    assert_null(strstr(text, "cannot be shown"));
    free(text);
    const char *const odd[] = {"ampbench", "--net", "a\nb"};
    cJSON_ReplaceItemInObject(run, "argv", cJSON_CreateStringArray(odd, 3));
    text = ab_test_report(document, "html", 0);
    assert_non_null(strstr(text, "An argument holds characters that cannot be shown"));
    free(text);
    cJSON_Delete(document);
    show_gnuplot(search_path);
}

/* ---- the sieve ------------------------------------------------------------------------------- */

static const char *sieve(const char *svg, char *copy) {
    FILE *out = fmemopen(copy, 1024, "w");
    assert_non_null(out);
    const char *refused = ab_markup_svg(out, svg, "plot");
    fclose(out);
    return refused;
}

static void test_pictures_with_anything_unusual_are_refused(void **state) {
    (void)state;
    static const char *const bad[] = {
        "no picture at all",
        "<svg><script>alert(1)</script></svg>",
        "<svg onload=\"alert(1)\"></svg>",
        "<svg><a href=\"http://example.com\"></a></svg>",
        "<svg><use xlink:href=\"http://example.com#x\"/></svg>",
        "<svg><path style=\"fill:url(http://example.com)\"/></svg>",
        "<svg><rect fill=\"url(javascript:x)\"/></svg>",
        "<svg><rect fill='a\"onload=\"x'/></svg>",
        "<svg><image width=\"1\"/></svg>",
        "<svg><foreignObject/></svg>",
        "<svg><![CDATA[x]]></svg>",
        "<svg><g",
        "<svg><g fill",
        "<svg><g fill=\"red",
        "<svg><!-- x",
        "<svg><title>x",
    };
    char copy[1024];
    for (size_t i = 0; i < AB_COUNT_OF(bad); i++)
        if (!sieve(bad[i], copy)) fail_msg("accepted: %s", bad[i]);
}

static void test_pictures_are_copied_with_their_own_ids_and_the_pages_colours(void **state) {
    (void)state;
    char copy[1024] = "";
    const char *svg =
        "<?xml version=\"1.0\"?><svg width=\"9\" xmlns=\"http://www.w3.org/2000/svg\"><title>tip</title>"
        "<defs><path id='p' d='M0,0\n1,1'/></defs><use xlink:href='#p' fill='rgb( 34, 34,34)'/>"
        "<text fill=\"rgb(1,2,3)\">a &lt;b> & c</text></svg>";
    assert_null(sieve(svg, copy));
    assert_string_equal(
        copy, "<svg class=\"plot\" role=\"img\" aria-labelledby=\"plot-title\" width=\"9\">"
              "<defs><path id=\"plot-p\" d=\"M0,0 1,1\"/></defs><use href=\"#plot-p\" fill=\"var(--ink)\"/>"
              "<text fill=\"rgb(1,2,3)\">a &lt;b&gt; &amp; c</text></svg>");
}

static void test_the_checker_finds_what_is_wrong(void **state) {
    (void)state;
    static const char *const bad[] = {"<p>",
                                      "<p></b>",
                                      "<p id=a></p>",
                                      "<p>a & b</p>",
                                      "<p id=\"a\"></p><p id=\"a\"></p>",
                                      "<a href=\"#none\"></a>",
                                      "<a href=\"http://x\"></a>",
                                      "<script></script>",
                                      "<p onclick=\"x\"></p>",
                                      "<p>\033</p>"};
    char wrong[256];
    for (size_t i = 0; i < AB_COUNT_OF(bad); i++)
        if (!ab_page_check(bad[i], true, wrong)) fail_msg("accepted: %s", bad[i]);
    assert_null(ab_page_check("<p id=\"a\">x &amp; <a href=\"#a\">y</a><br/></p>", true, wrong));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_checker_finds_what_is_wrong),
        cmocka_unit_test(test_pages_are_well_formed_and_refer_only_to_themselves),
        cmocka_unit_test(test_the_same_document_gives_the_same_bytes),
        cmocka_unit_test(test_every_plot_is_a_labelled_picture),
        cmocka_unit_test(test_tables_have_captions_and_scopes),
        cmocka_unit_test(test_without_gnuplot_the_page_says_so_and_keeps_its_tables),
        cmocka_unit_test(test_a_command_is_quoted_for_a_shell),
        cmocka_unit_test(test_pictures_with_anything_unusual_are_refused),
        cmocka_unit_test(test_pictures_are_copied_with_their_own_ids_and_the_pages_colours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
