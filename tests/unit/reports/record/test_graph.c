/* The network's graph in a record: edges and traits, and the reading of records that have none. */
#include "reports/compare/equivalence.h"
#include "reports/diagnose/diagnose.h"
#include "reports/gate/gate.h"
#include "reports/record/graph.h"
#include "reports/render/grid.h"

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

/* ---- cost of look-ups ------------------------------------------------------------------------ */

static void add_cell(cJSON *cells, const char *level, int seed, const char *scale, int number) {
    char id[64], digest[32];
    snprintf(id, sizeof id, "mlp/%s/%s/seed%d", level, scale, seed);
    snprintf(digest, sizeof digest, "%s%d", scale, number);
    cJSON *cell = cJSON_CreateObject();
    cJSON_AddItemToArray(cells, cell);
    const char *const words[][2] = {{"id", id},
                                    {"config_digest", digest},
                                    {"model", "mlp"},
                                    {"level", level},
                                    {"device", "cpu"},
                                    {"half_format", "fp16"},
                                    {"scale_policy", scale},
                                    {"status", "ok"},
                                    {"math_mode", "ieee_fp32"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        cJSON_AddStringToObject(cell, words[i][0], words[i][1]);
    cJSON_AddNumberToObject(cell, "seed", seed);
    cJSON_AddItemToObject(cell, "loss", cJSON_CreateDoubleArray((const double[]){2, 1}, 2));
    cJSON_AddNumberToObject(cJSON_AddObjectToObject(cell, "summary"), "loss_final", 1.5);
}

/* O0 and O2 of `seeds` seeds. */
static cJSON *many_cells(int seeds, const char *scale) {
    cJSON *parsed = cJSON_CreateObject(), *cells = cJSON_AddArrayToObject(parsed, "cells");
    for (int seed = 1; seed <= seeds; seed++) {
        add_cell(cells, "O0", seed, scale, 2 * seed);
        add_cell(cells, "O2", seed, scale, 2 * seed + 1);
    }
    return parsed;
}

static void every_cell_has_its_own_o0(void **state) {
    (void)state;
    cJSON *parsed = many_cells(50, "1");
    ab_cells cells;
    assert_int_equal(ab_cells_create(parsed, &cells), AB_OK);
    assert_int_equal(cells.count, 100);
    for (int i = 0; i < cells.count; i++) {
        assert_ptr_equal(ab_cells_baseline(&cells, cells.cell[i]), cells.cell[i - i % 2]);
        assert_ptr_equal(ab_cells_like(&cells, cells.cell[i]), cells.cell[i]);
        assert_int_equal(ab_cells_place(&cells, ab_json_text(cells.cell[i], "id", "")), i);
    }
    ab_cells_free(&cells);
    cJSON_Delete(parsed);
}

static ab_status ignore_diagnosis(const ab_diagnosis *diagnosis, void *argument) {
    (void)diagnosis;
    (void)argument;
    return AB_OK;
}

/* Comparisons by one command over documents of 2 * seeds cells. */
static double work_of(int command, int seeds, const char *scale) {
    const ab_gate_options options = ab_gate_options_standard();
    const ab_equivalence_options margins = ab_equivalence_options_standard();
    cJSON *a = many_cells(seeds, "1"), *b = many_cells(seeds, scale), *result = NULL;
    ab_grid grid = {0};
    ab_status status = AB_INTERNAL;
    const int64_t before = ab_cells_compared();
    if (command == 0)
        status = ab_gate_compare((ab_gate_side){a, "a"}, (ab_gate_side){b, "b"}, (ab_gate_side){a, "a"},
                                 &options, &result);
    if (command == 1) status = ab_diagnose_each(a, ignore_diagnosis, NULL, NULL);
    if (command == 2) status = ab_equivalence(a, b, &margins, &result);
    if (command == 3) status = ab_equivalence(a, NULL, &margins, &result);
    if (command == 4) status = ab_grid_create(a, &grid);
    assert_int_equal(status, AB_OK);
    const double work = (double)(ab_cells_compared() - before);
    ab_grid_free(&grid);
    cJSON_Delete(result);
    cJSON_Delete(a);
    cJSON_Delete(b);
    return work;
}

/* n log n for the index, log n for a look-up: 4 times the cells cost less than 6 times as much. A scan, or an
 * index for every look-up, would cost 16 times as much. */
static void four_times_the_cells_cost_about_four_times_the_comparisons(void **state) {
    (void)state;
    for (int command = 0; command < 5; command++) {
        const double few = work_of(command, 100, "1"), many = work_of(command, 400, "1");
        assert_true(few > 0);
        if (!(many < 6 * few)) fail_msg("command %d: %.0f and %.0f comparisons", command, few, many);
    }
}

/* Cells with other loss scales have no cell of the same name, so the gate looks for one that is equal but for
 * the scale. */
static void cells_without_a_namesake_cost_no_more(void **state) {
    (void)state;
    const double few = work_of(0, 100, "128"), many = work_of(0, 400, "128");
    assert_true(few > 0);
    if (!(many < 6 * few)) fail_msg("%.0f and %.0f comparisons", few, many);
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
        cmocka_unit_test(every_cell_has_its_own_o0),
        cmocka_unit_test(four_times_the_cells_cost_about_four_times_the_comparisons),
        cmocka_unit_test(cells_without_a_namesake_cost_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
