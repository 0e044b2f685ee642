/* The network's graph in a record: edges and traits, and the reading of records that have none. */
#include "reports/record/graph.h"

#include "reports/record/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "reports/record/cells.h"
#include <cmocka.h>
#include <stdio.h>

/* A residual branch: stem -> {q -> scores -> soft -> mix, add}; in execution order `aside` lies between
 * scores and soft. */
static const char document_text[] =
    "{\"graph\": {\"ops\": ["
    "{\"op\": \"stem\", \"type\": \"add\", \"inputs\": [\"input\", \"input\"], \"traits\": [\"arithmetic\"]},"
    "{\"op\": \"q\", \"type\": \"linear\", \"inputs\": [\"stem\"], \"traits\": [\"product\"]},"
    "{\"op\": \"scores\", \"type\": \"matmul\", \"inputs\": [\"q\", \"q\"], \"traits\": [\"product\", "
    "\"activation_product\"]},"
    "{\"op\": \"aside\", \"type\": \"scale\", \"inputs\": [\"stem\"], \"traits\": [\"scaling\", \"later\"]},"
    "{\"op\": \"soft\", \"type\": \"softmax\", \"inputs\": [\"scores\"], \"traits\": [\"softmax\"]},"
    "{\"op\": \"add\", \"type\": \"add\", \"inputs\": [\"stem\", \"soft\"], \"traits\": [\"arithmetic\"]}]}}";

static const char list_text[] =
    "[{\"op\": \"stem\", \"type\": \"add\"}, {\"op\": \"q\", \"type\": \"linear\"}, {\"op\": \"scores\", "
    "\"type\": \"matmul\"}, {\"op\": \"aside\", \"type\": \"scale\"}, {\"op\": \"soft\", \"type\": "
    "\"softmax\"}, "
    "{\"op\": \"add\", \"type\": \"add\"}]";

static cJSON *document, *list;

static int set_up(void **state) {
    (void)state;
    document = cJSON_Parse(document_text);
    list = cJSON_Parse(list_text);
    return document && list ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    cJSON_Delete(document);
    cJSON_Delete(list);
    return 0;
}

static bool is_softmax(ab_traits t) { return t & AB_TRAIT_softmax; }
static bool is_scaling(ab_traits t) { return t & AB_TRAIT_scaling; }
static bool is_arithmetic(ab_traits t) { return t & AB_TRAIT_arithmetic; }

static void paths_follow_edges(void **state) {
    (void)state;
    const ab_graph g = ab_graph_of(document, list);
    const cJSON *aside = ab_graph_op(&g, "aside"), *scores = ab_graph_op(&g, "scores");
    assert_false(g.by_position);
    assert_false(
        ab_graph_is_read_by(&g, aside, 5, is_softmax)); /* the next in the list, but nothing reads it */
    assert_true(ab_graph_is_read_by(&g, scores, 1, is_softmax));
    assert_true(ab_graph_reads(&g, aside, 1, is_arithmetic));
    assert_false(ab_graph_reads(&g, scores, 5, is_arithmetic)); /* behind another product */
    assert_true(ab_graph_is_read_by(&g, scores, 2, is_arithmetic));
    assert_false(ab_graph_is_read_by(&g, scores, 1, is_arithmetic));
    assert_false(ab_graph_reads(&g, NULL, 5, is_arithmetic));
}

static void rearrangements_do_not_lengthen_a_path(void **state) {
    (void)state;
    static const char text[] =
        "{\"graph\": {\"ops\": ["
        "{\"op\": \"a\", \"type\": \"scale\", \"inputs\": [\"input\"], \"traits\": [\"scaling\"]},"
        "{\"op\": \"b\", \"type\": \"reshape\", \"inputs\": [\"a\"], \"traits\": [\"rearrangement\"]},"
        "{\"op\": \"c\", \"type\": \"permute\", \"inputs\": [\"b\"], \"traits\": [\"rearrangement\"]},"
        "{\"op\": \"d\", \"type\": \"softmax\", \"inputs\": [\"c\"], \"traits\": [\"softmax\"]}]}}";
    cJSON *rearranged = cJSON_Parse(text);
    const ab_graph g = ab_graph_of(rearranged, NULL);
    assert_true(ab_graph_is_read_by(&g, ab_graph_op(&g, "a"), 1, is_softmax));
    assert_true(ab_graph_reads(&g, ab_graph_op(&g, "d"), 1, is_scaling));
    assert_int_equal(ab_op_traits("reshape"), AB_TRAIT_rearrangement);
    cJSON_Delete(rearranged);
}

static void records_without_a_graph_are_read_by_position(void **state) {
    (void)state;
    cJSON *old = cJSON_Parse("{}");
    const ab_graph g = ab_graph_of(old, list), none = ab_graph_of(old, NULL);
    const cJSON *aside = ab_graph_op(&g, "aside");
    assert_true(g.by_position);
    assert_true(ab_graph_is_read_by(&g, aside, 1, is_softmax));
    assert_true(ab_graph_reads(&g, ab_graph_op(&g, "soft"), 1, is_scaling));
    assert_false(ab_graph_reads(&g, ab_graph_op(&g, "stem"), 5, is_arithmetic)); /* the first reads nothing */
    assert_int_equal(ab_graph_traits(&g, aside), AB_TRAIT_scaling);
    assert_null(none.ops);
    assert_null(ab_graph_op(&none, "stem"));
    cJSON_Delete(old);
}

static void traits_come_from_the_record(void **state) {
    (void)state;
    const ab_graph g = ab_graph_of(document, list);
    assert_int_equal(ab_graph_traits(&g, ab_graph_op(&g, "aside")),
                     AB_TRAIT_scaling); /* "later": not known */
    cJSON_ReplaceItemInObject(
        cJSON_GetArrayItem(cJSON_GetObjectItem(cJSON_GetObjectItem(document, "graph"), "ops"), 3), "type",
        cJSON_CreateString("somebody::scale"));
    assert_int_equal(ab_graph_traits_of(&g, "aside", "somebody::scale"), AB_TRAIT_scaling);
    assert_int_equal(ab_graph_traits_of(&g, "gone", "exp"), AB_TRAIT_exponential);
    assert_int_equal(ab_graph_traits_of(&g, "aside", ""), 0);
}

static void an_only_op_has_no_other_of_its_trait(void **state) {
    (void)state;
    const ab_graph g = ab_graph_of(document, list);
    assert_ptr_equal(ab_graph_only(&g, AB_TRAIT_softmax), ab_graph_op(&g, "soft"));
    assert_null(ab_graph_only(&g, AB_TRAIT_arithmetic));
    assert_null(ab_graph_only(&g, AB_TRAIT_mask));
}

/* Which cells are the same cell: by the digest of their configuration, by their names where there is none. */

static cJSON *document_of(const char *cells) {
    char text[400];
    snprintf(text, sizeof text, "{\"cells\": [%s]}", cells);
    cJSON *parsed = cJSON_Parse(text);
    assert_non_null(parsed);
    return parsed;
}

/* The mark of the cell in `there` that is the only cell of `here`. */
static void is_matched(const char *here, const char *there, const char *mark) {
    cJSON *a = document_of(here), *b = document_of(there);
    const cJSON *found = ab_cell_like(b, ab_json_at(a, "cells")->child);
    assert_string_equal(found ? ab_json_text(found, "mark", "?") : "none", mark);
    cJSON_Delete(a);
    cJSON_Delete(b);
}

static void two_spellings_of_one_configuration_are_one_cell(void **state) {
    (void)state;
    is_matched("{\"id\": \"torch\", \"config_digest\": \"1\"}",
               "{\"id\": \"torch\", \"config_digest\": \"2\", \"mark\": \"name\"},"
               "{\"id\": \"torch:init=65536\", \"config_digest\": \"1\", \"mark\": \"digest\"}",
               "digest");
}

static void old_documents_are_matched_by_name(void **state) {
    (void)state;
    is_matched("{\"id\": \"torch\", \"config_digest\": \"1\"}", "{\"id\": \"torch\", \"mark\": \"name\"}",
               "name");
    is_matched("{\"id\": \"torch\"}", "{\"id\": \"torch\", \"config_digest\": \"1\", \"mark\": \"name\"}",
               "name");
}

/* A cell of a run with another batch size keeps its name: reports say what differs. */
static void a_cell_of_another_configuration_is_found_by_name(void **state) {
    (void)state;
    is_matched("{\"id\": \"torch\", \"config_digest\": \"1\"}",
               "{\"id\": \"torch\", \"config_digest\": \"2\", \"mark\": \"name\"}", "name");
    is_matched("{\"id\": \"apex\", \"config_digest\": \"1\"}",
               "{\"id\": \"torch\", \"config_digest\": \"2\", \"mark\": \"name\"}", "none");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(paths_follow_edges, set_up, tear_down),
        cmocka_unit_test(rearrangements_do_not_lengthen_a_path),
        cmocka_unit_test_setup_teardown(records_without_a_graph_are_read_by_position, set_up, tear_down),
        cmocka_unit_test_setup_teardown(traits_come_from_the_record, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_only_op_has_no_other_of_its_trait, set_up, tear_down),
        cmocka_unit_test(two_spellings_of_one_configuration_are_one_cell),
        cmocka_unit_test(old_documents_are_matched_by_name),
        cmocka_unit_test(a_cell_of_another_configuration_is_found_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
