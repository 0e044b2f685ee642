/* Pictures of runs that went wrong: what ended in NaN, was not probed or is alone in its scale is shown as
 * such. Data and scripts are text, so nearly all of this needs no gnuplot. */
#define _XOPEN_SOURCE 700
#include "reports/plot/plot.h"
#include "reports/plot/plots.h"
#include "support/recompute.h"
#include "support/report_text.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

static char folder[] = "/tmp/ampbench_messy_XXXXXX";

static int make_folder(void **state) {
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    char command[64];
    (void)state;
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

/* The files of a document are complete without pictures. */
static void write_plots(const cJSON *document) {
    int rendered;
    const char *note, *path = getenv("PATH");
    char *kept = strdup(path ? path : "");
    setenv("PATH", "/nonexistent", 1);
    assert_int_equal(ab_plots_write(document, folder, &rendered, &note), AB_OK);
    setenv("PATH", kept, 1);
    free(kept);
}

/* The caller frees. */
static char *file_of(const char *name) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    char *text = ab_test_read(path);
    assert_non_null(text);
    return text;
}

static void expect(const char *name, const char *text, bool there) {
    char *file = file_of(name);
    if ((strstr(file, text) != NULL) != there)
        fail_msg("%s: '%s' is %s", name, text, there ? "missing" : "there");
    free(file);
}

static cJSON *cell_of(const cJSON *document, const char *id) {
    cJSON *cell;
    cJSON_ArrayForEach(cell, member(document, "cells")) {
        if (strcmp(text_of(cell, "id"), id) == 0) return cell;
    }
    fail_msg("no cell %s", id);
    return NULL;
}

static void lose(cJSON *cell, int from, int to) {
    for (int i = from; i < to; i++)
        cJSON_ReplaceItemInArray(cJSON_GetObjectItem(cell, "loss"), i, cJSON_CreateNull());
}

/* Losses that end are in the key with the step, and have a cross where the last finite one is; a gap in the
 * middle is none. */
static void test_a_cell_that_ends_in_nan_stays_in_the_key_with_a_cross(void **state) {
    (void)state;
    char cross[64];
    cJSON *document = ab_test_fixture("lenet5");
    cJSON *o2 = cell_of(document, "lenet5/O2/default/fp16/cpu/seed1");
    const double last = cJSON_GetArrayItem(member(o2, "loss"), 56)->valuedouble;
    lose(o2, 57, cJSON_GetArraySize(member(o2, "loss")));
    lose(cell_of(document, "lenet5/O1/default/fp16/cpu/seed1"), 30, 33);
    write_plots(document);
    expect("loss.gp", "'O2, dynamic scale, NaN from step 57'", true);
    expect("loss.gp", "'O1, dynamic scale'", true);
    expect("loss.gp", "crosses = 1\n", true);
    snprintf(cross, sizeof cross, "\n56 %.9g 3\n", last);
    expect("loss.dat", cross, true);
    expect("loss.gp", "NaN with linespoints", true); /* the key does not depend on there being points */
    cJSON_Delete(document);
}

/* A mean is of the finite losses, so that its line reaches the last of them. */
static void test_the_running_mean_reaches_the_last_finite_loss(void **state) {
    (void)state;
    cJSON *document = ab_test_fixture("lenet5");
    cJSON *o2 = cell_of(document, "lenet5/O2/default/fp16/cpu/seed1");
    const cJSON *loss = member(o2, "loss");
    char point[64];
    lose(o2, 57, cJSON_GetArraySize(loss));
    const double a = cJSON_GetArrayItem(loss, 55)->valuedouble, b = cJSON_GetArrayItem(loss, 56)->valuedouble;
    write_plots(document); /* of 120 steps: the mean of 3 */
    snprintf(point, sizeof point, "\n56 %.9g %.9g ", b, (a + b) / 2);
    expect("loss.dat", point, true);
    expect("loss.dat", "\n57 ? ? ?\n", true);
    cJSON_Delete(document);
}

static void set_scale(cJSON *cell, const char *scaler) {
    cJSON_ReplaceItemInObject(cJSON_GetObjectItem(cell, "policy"), "loss_scale", cJSON_CreateString(scaler));
    cJSON_ReplaceItemInObject(cell, "steps_skipped", cJSON_CreateNumber(0));
}

static void test_scalers_of_any_framework_are_dynamic(void **state) {
    (void)state;
    cJSON *document = ab_test_fixture("lenet5");
    set_scale(cell_of(document, "lenet5/O2/default/fp16/cpu/seed1"), "deepspeed:init=65536");
    set_scale(cell_of(document, "lenet5/O3/1024/fp16/cpu/seed1"), "1024:skip");
    write_plots(document);
    expect("scale.gp", "'O2, deepspeed:init=65536 scale'", true);
    expect("scale.gp", "'O3, scale 1024:skip'", false); /* fixed, and no step was skipped */
    expect("loss.gp", "'O3, scale 1024:skip'", true);
    cJSON_Delete(document);
}

/* ---- heat maps ------------------------------------------------------------------------------- */

/* Sets what the probed steps of all tensors of a cell counted. */
static void set_steps(cJSON *cell, double nonzero, double flushed) {
    cJSON *tensor, *tensors = cJSON_GetObjectItem(cJSON_GetObjectItem(cell, "probes"), "tensors");
    cJSON_ArrayForEach(tensor, tensors) {
        cJSON *item, *steps = cJSON_GetObjectItem(tensor, "steps");
        cJSON_ArrayForEach(item, cJSON_GetObjectItem(steps, "nonzero")) cJSON_SetNumberValue(item, nonzero);
        cJSON_ArrayForEach(item, cJSON_GetObjectItem(steps, "flushed")) cJSON_SetNumberValue(item, flushed);
    }
}

static void test_a_map_of_one_colour_is_a_sentence(void **state) {
    (void)state;
    cJSON *document = ab_test_fixture("lenet5");
    set_steps(cell_of(document, "lenet5/O2/default/fp16/cpu/seed1"), 100, 0);
    cJSON_DeleteItemFromObject(cell_of(document, "lenet5/O1/default/fp16/cpu/seed1"), "probes");
    write_plots(document);
    expect("flush.gp", "sentence[2] = 'not probed'", true);
    expect("flush.gp", "sentence[3] = 'no gradient value was flushed at any probed step'\nlayers[3] = 1;",
           true);
    cJSON_Delete(document);
}

/* Columns without a number other than 0 are -1; where it is not known that a step was probed they are left
 * out, and the background says so. */
static void test_what_was_not_probed_is_no_zero(void **state) {
    (void)state;
    cJSON *document = ab_test_fixture("lenet5"), *o2 = cell_of(document, "lenet5/O2/default/fp16/cpu/seed1");
    set_steps(o2, 0, 0);
    write_plots(document);
    expect("flush.dat", "\n1 0 10 -1\n1 10 20 -1\n", true);
    cJSON_ReplaceItemInObject(cJSON_GetObjectItem(o2, "probes"), "every", cJSON_CreateNumber(0));
    write_plots(document);
    expect("flush.dat", "\n1 0 10 -1\n", false);
    expect("flush.gp", "sentence[3] = 'not probed'", true);
    expect("flush.gp", "blue: not probed", true);
    cJSON_Delete(document);
}

static void test_a_run_without_probes_has_no_heat_map(void **state) {
    (void)state;
    cJSON *cell, *document = ab_test_fixture("lenet5");
    char path[128];
    cJSON_ArrayForEach(cell, member(document, "cells")) cJSON_DeleteItemFromObject(cell, "probes");
    snprintf(path, sizeof path, "%s/flush.gp", folder);
    unlink(path);
    write_plots(document);
    assert_int_equal(access(path, F_OK), -1);
    cJSON_Delete(document);
}

/* ---- axes and colours ------------------------------------------------------------------------ */

/* One value of the script, as a number. */
static double value_in(const char *name, const char *variable) {
    char *file = file_of(name), line[64];
    snprintf(line, sizeof line, "\n%s = ", variable);
    const char *at = strstr(file, line);
    if (!at) fail_msg("%s: no %s", name, variable);
    const double value = strtod(at + strlen(line), NULL);
    free(file);
    return value;
}

/* All values of a cell's gradients in one bin do not change the axes of the other panels. */
static void test_one_bar_does_not_flatten_the_other_histograms(void **state) {
    (void)state;
    cJSON *document = ab_test_fixture("lenet5"), *tensor;
    write_plots(document);
    const double before = value_in("gradients.gp", "top_percent[1]");
    cJSON *probes = cJSON_GetObjectItem(cell_of(document, "lenet5/O3/1024/fp16/cpu/seed1"), "probes");
    cJSON_ArrayForEach(tensor, member(probes, "tensors")) {
        const double one = 1;
        cJSON_ReplaceItemInObject(cJSON_GetObjectItem(tensor, "exponents"), "counts",
                                  cJSON_CreateDoubleArray(&one, 1));
        cJSON_ReplaceItemInObject(cJSON_GetObjectItem(tensor, "exponents"), "first", cJSON_CreateNumber(3));
        cJSON_ReplaceItemInObject(tensor, "nonzero", cJSON_CreateNumber(1));
    }
    write_plots(document);
    assert_true(before < 60);
    assert_true(fabs(value_in("gradients.gp", "top_percent[1]") - before) < 1e-9);
    assert_true(fabs(value_in("gradients.gp", "top_percent[5]") - 100) < 1e-9);
    cJSON_Delete(document);
}

static void test_shared_tops_leave_out_what_is_far_above_the_median(void **state) {
    (void)state;
    double top[5] = {10, 14, 100, 12, 13}, two[2] = {10, 90}, none[1] = {0};
    const double expected[5] = {14, 14, 100, 14, 14};
    ab_plot_share_tops(top, 5);
    for (int i = 0; i < 5; i++) assert_true(top[i] == expected[i]);
    ab_plot_share_tops(two, 2);
    assert_true(two[0] == 10 && two[1] == 90);
    ab_plot_share_tops(none, 1);
    assert_true(none[0] == 0);
}

static cJSON *levels(const char *const *level, int count) {
    cJSON *document = cJSON_CreateObject(), *cells = cJSON_AddArrayToObject(document, "cells");
    for (int i = 0; i < count; i++) {
        cJSON *cell = cJSON_CreateObject();
        cJSON_AddStringToObject(cell, "level", level[i]);
        cJSON_AddItemToArray(cells, cell);
    }
    return document;
}

static int color_in(const ab_plot_input *in, int i) {
    return ab_plot_color(in, cJSON_GetArrayItem(member(in->document, "cells"), i));
}

static void test_a_level_has_the_same_colour_in_every_picture(void **state) {
    (void)state;
    static const char *const few[] = {"O0", "O3"}, *const many[] = {
                                                       "torch:autocast", "O3", "O1",          "O0", "O2",
                                                       "mindspore:O2",   "O3", "mindspore:O2"};
    const int expected[] = {5, 4, 2, 0, 3, 6, 4, 6};
    cJSON *one = levels(few, 2), *other = levels(many, 8);
    const ab_plot *plot = ab_plots_at(0);
    ab_plot_input in;
    assert_int_equal(ab_plot_open(plot, one, &in), AB_OK);
    assert_int_equal(color_in(&in, 1), 4);
    ab_plot_close(plot, &in);
    assert_int_equal(ab_plot_open(plot, other, &in), AB_OK);
    for (int i = 0; i < 8; i++) assert_int_equal(color_in(&in, i), expected[i]);
    ab_plot_close(plot, &in);
    cJSON_Delete(one);
    cJSON_Delete(other);
}

/* Every script takes a level's colour from the same place. */
static void test_every_picture_of_cells_says_the_colour_of_their_levels(void **state) {
    (void)state;
    static const char *const scripts[] = {"loss.gp",  "scale.gp", "gradients.gp",
                                          "flush.gp", "cost.gp",  "frontier.gp"};
    cJSON *document = ab_test_fixture("lenet5");
    write_plots(document);
    for (size_t i = 0; i < AB_COUNT_OF(scripts); i++) {
        expect(scripts[i], "color_of[1] = ", true);
        expect(scripts[i], "level(color_of[i])", true);
    }
    cJSON_Delete(document);
}

/* ---- texts ----------------------------------------------------------------------------------- */

/* Joins continued lines and returns the next command of a script; NULL at its end. Frees nothing. */
static char *next_command(char **rest) {
    char *start = *rest;
    if (!*start) return NULL;
    for (char *end; (end = strchr(*rest, '\n')); *rest = end + 1) {
        if (end > start && end[-1] == '\\') {
            end[-1] = *end = ' ';
            continue;
        }
        *end = '\0';
        *rest = end + 1;
        return start;
    }
    *rest += strlen(*rest);
    return start;
}

static int count_of_text(const char *text, const char *wanted) {
    int count = 0;
    for (; (text = strstr(text, wanted)); text += strlen(wanted)) count++;
    return count;
}

/* "2^24" or "my_net" in a label is not markup, wherever it comes from. */
static void test_no_label_is_enhanced_text(void **state) {
    (void)state;
    static const char *const templates[] = {"cost", "flush", "frontier", "gradients", "history", "inspect",
                                            "loss", "ranks", "scale",    "sweep",     "updates"};
    for (size_t i = 0; i < AB_COUNT_OF(templates); i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/plots/%s.gp", AB_SOURCE_DIR, templates[i]);
        char *text = ab_test_read(path), *rest = text;
        int labels = 0;
        assert_non_null(text);
        for (char *command; (command = next_command(&rest));) {
            const int here = count_of_text(command, "set label") - count_of_text(command, "unset label") -
                             count_of_text(command, "set label k ''") + count_of_text(command, "set key at") +
                             count_of_text(command, "with labels");
            labels += here;
            if (count_of_text(command, "noenhanced") < here) fail_msg("%s: %s", path, command);
        }
        assert_true(labels > 3);
        free(text);
    }
}

static bool have_gnuplot(void) { return system("gnuplot --version > /dev/null 2>&1") == 0; }

/* The script finds its data and puts its picture beside itself. */
static void test_a_script_draws_from_any_folder(void **state) {
    (void)state;
    static const char *const from[] = {"", "..", "/"}; /* the plots' folder, the one above, another */
    char command[512];
    if (!have_gnuplot()) skip();
    cJSON *document = ab_test_fixture("lenet5");
    for (size_t i = 0; i < AB_COUNT_OF(from); i++) {
        write_plots(document); /* removes the picture */
        snprintf(command, sizeof command, "cd %s/%s && gnuplot %s%sloss.gp", from[i][0] == '/' ? "" : folder,
                 from[i], from[i][0] ? folder : "", from[i][0] ? "/" : "");
        assert_int_equal(system(command), 0);
        char *picture = file_of("loss.png");
        assert_memory_equal(picture, "\x89PNG", 4);
        free(picture);
    }
    cJSON_Delete(document);
}

/* A long label leaves fewer columns to the key: the picture grows by its rows. */
static void test_a_key_has_as_many_rows_as_it_needs(void **state) {
    (void)state;
    assert_int_equal(ab_plot_key_rows(10, 6), 1);
    assert_int_equal(ab_plot_key_rows(33, 9), 3);
    assert_int_equal(ab_plot_key_rows(56, 9), 9);
    assert_int_equal(ab_plot_key_rows(400, 9), 9);
    assert_int_equal(ab_plot_key_rows(0, 0), 1);
    cJSON *document = ab_test_fixture("lenet5");
    write_plots(document);
    const double before = value_in("loss.gp", "height"), rows = value_in("loss.gp", "key_rows");
    set_scale(cell_of(document, "lenet5/O2/default/fp16/cpu/seed1"),
              "deepspeed:init=65536,window=1000,min=1");
    write_plots(document);
    assert_true(value_in("loss.gp", "key_rows") > rows);
    assert_true(value_in("loss.gp", "height") - before == 18 * (value_in("loss.gp", "key_rows") - rows));
    cJSON_Delete(document);
}

static void test_speeds_of_a_debug_build_are_marked(void **state) {
    (void)state;
    static const char *const scripts[] = {"cost.gp", "frontier.gp"};
    cJSON *document = ab_test_fixture("lenet5"), *generator = cJSON_GetObjectItem(document, "generator");
    write_plots(document);
    for (int i = 0; i < 2; i++) expect(scripts[i], "build_note = ''", true);
    cJSON_ReplaceItemInObject(generator, "name", cJSON_CreateString("ampbench"));
    cJSON_ReplaceItemInObject(generator, "build_type", cJSON_CreateString("Debug"));
    write_plots(document);
    for (int i = 0; i < 2; i++) expect(scripts[i], "build_note = '; speeds of a Debug build", true);
    cJSON_Delete(document);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_cell_that_ends_in_nan_stays_in_the_key_with_a_cross),
        cmocka_unit_test(test_the_running_mean_reaches_the_last_finite_loss),
        cmocka_unit_test(test_scalers_of_any_framework_are_dynamic),
        cmocka_unit_test(test_a_map_of_one_colour_is_a_sentence),
        cmocka_unit_test(test_what_was_not_probed_is_no_zero),
        cmocka_unit_test(test_a_run_without_probes_has_no_heat_map),
        cmocka_unit_test(test_one_bar_does_not_flatten_the_other_histograms),
        cmocka_unit_test(test_shared_tops_leave_out_what_is_far_above_the_median),
        cmocka_unit_test(test_a_level_has_the_same_colour_in_every_picture),
        cmocka_unit_test(test_every_picture_of_cells_says_the_colour_of_their_levels),
        cmocka_unit_test(test_no_label_is_enhanced_text),
        cmocka_unit_test(test_a_script_draws_from_any_folder),
        cmocka_unit_test(test_a_key_has_as_many_rows_as_it_needs),
        cmocka_unit_test(test_speeds_of_a_debug_build_are_marked),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
