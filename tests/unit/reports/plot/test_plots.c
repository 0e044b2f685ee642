/* Plots: data and scripts are complete without gnuplot, follow from the document alone, and nothing of a
 * document is ever a gnuplot command. Pictures are made where gnuplot is. */
#define _XOPEN_SOURCE 700
#include "reports/plot/plot.h"
#include "reports/plot/plots.h"
#include "support/recompute.h"
#include "support/report_text.h"

#include <dirent.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const names[] = {"frontier", "gradients", "loss", "scale", "cost", "flush"};

static char folder[] = "/tmp/ampbench_plots_XXXXXX";
static char *search_path;

static int make_folder(void **state) {
    (void)state;
    const char *path = getenv("PATH");
    search_path = strdup(path ? path : "");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    free(search_path);
    return rmdir(folder);
}

static const char *in_folder(const char *name, const char *suffix) {
    static char path[8][300];
    static int next;
    next = (next + 1) % 8;
    snprintf(path[next], sizeof path[next], "%s/%s%s", folder, name, suffix);
    return path[next];
}

/* Removes every file of the folder; how many there were. */
static int clear_folder(void) {
    int count = 0;
    DIR *open_folder = opendir(folder);
    assert_non_null(open_folder);
    for (const struct dirent *entry; (entry = readdir(open_folder));) {
        if (entry->d_name[0] == '.') continue;
        count += unlink(in_folder(entry->d_name, "")) == 0;
    }
    closedir(open_folder);
    return count;
}

static bool exists(const char *name, const char *suffix) {
    return access(in_folder(name, suffix), F_OK) == 0;
}

static bool have_gnuplot(void) { return system("gnuplot --version > /dev/null 2>&1") == 0; }

/* Writes the plots of a document with or without a way to find gnuplot; the number of pictures. */
static int write_plots(const cJSON *document, bool with_gnuplot, const char **note) {
    int rendered = -1;
    setenv("PATH", with_gnuplot ? search_path : "/nonexistent", 1);
    assert_int_equal(ab_plots_write(document, folder, &rendered, note), AB_OK);
    setenv("PATH", search_path, 1);
    return rendered;
}

static void test_without_gnuplot_data_and_scripts_are_complete(void **state) {
    (void)state;
    const char *note = NULL;
    cJSON *document = ab_test_fixture("lenet5");
    assert_int_equal(write_plots(document, false, &note), 0);
    assert_non_null(strstr(note, "gnuplot was not found"));
    for (size_t i = 0; i < AB_COUNT_OF(names); i++) {
        assert_true(exists(names[i], ".dat"));
        assert_true(exists(names[i], ".gp"));
        assert_false(exists(names[i], ".png"));
    }
    cJSON_Delete(document);
    clear_folder();
}

static void test_gnuplot_draws_every_plot_of_every_document(void **state) {
    (void)state;
    static const char *const fixtures[] = {"lenet5", "tiny", "broken"};
    if (!have_gnuplot()) skip();
    for (size_t i = 0; i < AB_COUNT_OF(fixtures); i++) {
        const char *note = NULL;
        cJSON *document = ab_test_fixture(fixtures[i]);
        assert_int_equal(write_plots(document, true, &note), AB_COUNT_OF(names));
        assert_null(note);
        for (size_t k = 0; k < AB_COUNT_OF(names); k++) {
            char *picture = ab_test_read(in_folder(names[k], ".png"));
            assert_non_null(picture);
            assert_memory_equal(picture, "\x89PNG", 4);
            free(picture);
        }
        assert_false(exists("gnuplot", ".log"));
        cJSON_Delete(document);
        clear_folder();
    }
}

/* A gnuplot that draws nothing and stops at the script "loss.gp", as the real one does at an error. */
static void write_fake_gnuplot(char path[300]) {
    snprintf(path, 300, "%s-bin", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    char program[320];
    snprintf(program, sizeof program, "%s/gnuplot", path);
    FILE *file = fopen(program, "w");
    assert_non_null(file);
    fputs("#!/bin/sh\n"
          "for word; do\n"
          "    case $word in *\"load 'loss.gp'\"*) exit 1;; esac\n"
          "    case $word in *to_file=*) name=${word#*to_file=\\'}; echo picture >\"${name%%\\'*}\";; esac\n"
          "done\n",
          file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(program, 0700), 0);
}

static void test_a_picture_that_fails_takes_no_other_along(void **state) {
    (void)state;
    const char *note = NULL;
    char path[300], searched[4096], program[320];
    int rendered = -1;
    cJSON *document = ab_test_fixture("lenet5");
    write_fake_gnuplot(path);
    snprintf(searched, sizeof searched, "%s:%s", path, search_path);
    setenv("PATH", searched, 1);
    assert_int_equal(ab_plots_write(document, folder, &rendered, &note), AB_OK);
    setenv("PATH", search_path, 1);
    assert_int_equal(rendered, AB_COUNT_OF(names) - 1);
    assert_non_null(note);
    assert_non_null(strstr(note, "gnuplot failed on at least one plot"));
    for (size_t i = 0; i < AB_COUNT_OF(names); i++)
        assert_int_equal(exists(names[i], ".png"), strcmp(names[i], "loss") != 0);
    snprintf(program, sizeof program, "%s/gnuplot", path);
    unlink(program);
    rmdir(path);
    cJSON_Delete(document);
    clear_folder();
}

static void test_the_same_document_gives_the_same_files(void **state) {
    (void)state;
    static const char *const suffixes[] = {".dat", ".gp"};
    const char *note;
    char *first[10] = {NULL};
    cJSON *document = ab_test_fixture("lenet5");
    for (int round = 0; round < 2; round++) {
        write_plots(document, false, &note);
        for (size_t i = 0; i < 10; i++) {
            char *text = ab_test_read(in_folder(names[i / 2], suffixes[i % 2]));
            assert_non_null(text);
            if (round == 0)
                first[i] = text;
            else
                assert_string_equal(text, first[i]);
            if (round == 1) free(text);
        }
    }
    for (size_t i = 0; i < 10; i++) free(first[i]);
    cJSON_Delete(document);
    clear_folder();
}

/* Without its quoted strings and comments a script of the hostile document is letter for letter that of a
 * harmless one. */
static void strip_strings(char *script) {
    char *to = script;
    bool inside = false, comment = false;
    for (const char *from = script; *from; from++) {
        if (*from == '\n') comment = false;
        if (*from == '#' && !inside) comment = true;
        if (*from == '\'' && !comment) inside = !inside; /* '' closes and opens again */
        if (!inside && !comment && *from != '\'') *to++ = *from;
    }
    *to = '\0';
    assert_false(inside);
}

static void tame(cJSON *value) {
    if (cJSON_IsString(value)) {
        static const char *const kept[] = {"O0",  "O2", "O3", "weight_gradient", "activation_gradient",
                                           "fp16"};
        for (size_t i = 0; i < AB_COUNT_OF(kept); i++)
            if (strcmp(value->valuestring, kept[i]) == 0) return;
        char *text = strdup(value->valuestring);
        for (char *c = text; *c; c++)
            if (strchr("'\"`\n\\{}@#%$|=+\x1b\r", *c)) *c = 'x';
        cJSON_SetValuestring(value, text);
        free(text);
    }
    for (cJSON *child = value->child; child; child = child->next) tame(child);
}

static char *stripped_script(const char *name) {
    char *script = ab_test_read(in_folder(name, ".gp"));
    assert_non_null(script);
    for (const unsigned char *c = (const unsigned char *)script; *c; c++)
        if (*c < 0x20 && *c != '\n') fail_msg("control character 0x%02x in %s.gp", *c, name);
    strip_strings(script);
    return script;
}

static void test_no_string_of_a_document_is_a_command(void **state) {
    (void)state;
    const char *note = NULL;
    char *hostile[AB_COUNT_OF(names)];
    cJSON *document = ab_test_fixture("hostile");
    write_plots(document, true, &note);
    assert_false(exists("pwned", ""));
    for (size_t i = 0; i < AB_COUNT_OF(names); i++) hostile[i] = stripped_script(names[i]);
    tame(document);
    write_plots(document, false, &note);
    for (size_t i = 0; i < AB_COUNT_OF(names); i++) {
        char *tamed = stripped_script(names[i]);
        assert_string_equal(hostile[i], tamed);
        free(tamed);
        free(hostile[i]);
    }
    cJSON_Delete(document);
    clear_folder();
}

/* Adds copies of the last cell under new ids. */
static void add_cells(cJSON *document, int count) {
    cJSON *cells = member(document, "cells");
    for (int i = 0; i < count; i++) {
        char id[32];
        cJSON *copy = cJSON_Duplicate(cJSON_GetArrayItem(cells, cJSON_GetArraySize(cells) - 1), 1);
        snprintf(id, sizeof id, "copy%d", i);
        cJSON_ReplaceItemInObject(copy, "id", cJSON_CreateString(id));
        cJSON_AddItemToArray(cells, copy);
    }
}

static void test_many_cells_go_to_several_pages(void **state) {
    (void)state;
    const char *note;
    cJSON *document = ab_test_fixture("lenet5");
    add_cells(document, 7); /* 13 cells without the twin */
    write_plots(document, false, &note);
    assert_true(exists("gradients-3", ".gp") && !exists("gradients-4", ".gp"));
    assert_true(exists("cost-2", ".gp") && !exists("cost-3", ".gp"));
    assert_true(exists("loss-2", ".gp") && !exists("loss-3", ".gp"));
    char *script = ab_test_read(in_folder("gradients-3", ".gp"));
    assert_non_null(strstr(script, "page_note = ' (3 of 3)'"));
    assert_non_null(strstr(script, "name = 'gradients-3'"));
    free(script);
    cJSON_Delete(document);
    clear_folder();
}

static void test_a_document_without_data_has_no_plots(void **state) {
    (void)state;
    const char *note;
    cJSON *document = cJSON_Parse("{\"cells\": [{\"status\": \"pending\"}]}");
    assert_int_equal(write_plots(document, true, &note), 0);
    assert_int_equal(clear_folder(), 0);
    cJSON_Delete(document);
}

/* The histogram in the data file is that of the document: percent of the non-zero values by exponent. */
static void test_the_data_of_the_histogram_follow_from_the_record(void **state) {
    (void)state;
    const char *note;
    cJSON *document = ab_test_fixture("lenet5");
    const cJSON *tensor, *tensors = member(member(member(document, "cells")->child, "probes"), "tensors");
    double expected = 0, nonzero = 0;
    cJSON_ArrayForEach(tensor, tensors) {
        if (strcmp(text_of(tensor, "kind"), "weight_gradient") != 0) continue;
        const cJSON *exponents = member(tensor, "exponents");
        int at = -13 - (int)number_of(exponents, "first");
        const cJSON *count = cJSON_GetArrayItem(member(exponents, "counts"), at);
        if (count) expected += count->valuedouble;
        nonzero += number_of(tensor, "nonzero");
    }
    write_plots(document, false, &note);
    char *data = ab_test_read(in_folder("gradients", ".dat"));
    const char *line = strstr(data, "\n-13 ");
    assert_non_null(line);
    assert_true(fabs(strtod(line + 5, NULL) - 100 * expected / nonzero) < 1e-6);
    free(data);
    cJSON_Delete(document);
    clear_folder();
}

static void test_an_unwritable_folder_is_named(void **state) {
    (void)state;
    int rendered;
    const char *note;
    cJSON *document = ab_test_fixture("tiny");
    FILE *file = fopen(in_folder("file", ""), "w");
    assert_non_null(file);
    fclose(file);
    assert_int_equal(ab_plots_write(document, in_folder("file", "/plots"), &rendered, &note), AB_OUTPUT);
    assert_non_null(strstr(ab_error_message(), "file/plots"));
    cJSON_Delete(document);
    clear_folder();
}

static void test_two_draws_of_a_floor_share_no_label(void **state) {
    (void)state;
    char first[AB_PLOT_LABEL], second[AB_PLOT_LABEL];
    cJSON *document = ab_test_fixture("lenet5"), *cell;
    const ab_plot_naming naming = ab_plot_naming_of(document);
    cJSON_ArrayForEach(cell, cJSON_GetObjectItem(document, "cells")) {
        if (!cJSON_IsString(cJSON_GetObjectItem(cell, "twin"))) continue;
        ab_plot_name(&naming, cell, first);
        cJSON_AddNumberToObject(cell, "draw", 2);
        ab_plot_name(&naming, cell, second);
        assert_string_equal(first, "O0 + 1 ulp, scale 1");
        assert_string_equal(second, "O0 + 1 ulp (draw 2), scale 1");
    }
    assert_non_null(strstr(second, "draw"));
    cJSON_Delete(document);
}

static int looks;

static bool is_looked_at(const cJSON *cell) {
    looks++;
    return !ab_plot_is_perturbed_baseline(cell);
}

static int pages_of_two(ab_plot_input *in) { return ab_plot_page_count(in, is_looked_at, 2); }

/* Plots of many cells have many pages: the time of each must not grow with the cells. */
static void test_a_filter_looks_at_each_cell_once_for_all_pages(void **state) {
    (void)state;
    static const ab_plot plot = {.name = "counted", .pages = pages_of_two};
    const cJSON *cell[2];
    ab_plot_input in;
    cJSON *document = ab_test_fixture("lenet5");
    add_cells(document, 100);
    const int cells = cJSON_GetArraySize(member(document, "cells"));
    looks = 0;
    assert_int_equal(ab_plot_open(&plot, document, &in), AB_OK);
    int shown = 0;
    for (int page = 0; page < in.pages; page++) shown += ab_plot_cells(&in, is_looked_at, page, 2, cell);
    assert_int_equal(ab_plot_cells(&in, is_looked_at, in.pages, 2, cell), 0);
    assert_true(in.pages > 50 && shown > 100 && shown < cells);
    assert_int_equal(looks, cells);
    ab_plot_close(&plot, &in);
    cJSON_Delete(document);
}

/* Beyond 30 cells pictures of single cells are scripts only; those of the whole run are drawn. */
static void test_very_many_cells_are_one_picture(void **state) {
    (void)state;
    char text[AB_PLOTS_UNDRAWN];
    const char *note;
    cJSON *document = ab_test_fixture("lenet5");
    const int had = cJSON_GetArraySize(member(document, "cells"));
    assert_null(ab_plots_undrawn_text(document, text));
    add_cells(document, 31 - had);
    assert_int_equal(cJSON_GetArraySize(member(document, "cells")), 31);
    const int drawn = write_plots(document, true, &note);
    assert_true(exists("loss-2", ".gp") && exists("loss-2", ".dat"));
    assert_false(exists("loss", ".png") || exists("cost", ".png") || exists("gradients-3", ".png"));
    if (have_gnuplot()) assert_int_equal(drawn, 1); /* the frontier */
    assert_true(ab_plots_undrawn(document) > 10);
    assert_non_null(strstr(ab_plots_undrawn_text(document, text), "more than 30 cells"));
    cJSON_Delete(document);
    clear_folder();
}

/* A timed cell of its own seed. */
static void add_timed(cJSON *document, int seed, double rate, double accuracy, bool certified) {
    cJSON *cell = cJSON_CreateObject(), *summary = cJSON_AddObjectToObject(cell, "summary");
    cJSON_AddStringToObject(cell, "level", "O2");
    cJSON_AddStringToObject(cell, "scale_policy", "dynamic");
    cJSON_AddNumberToObject(cell, "seed", seed);
    cJSON_AddNumberToObject(cell, "test_accuracy", accuracy);
    cJSON_AddNumberToObject(cell, "test_count", 10000);
    cJSON_AddNumberToObject(summary, "samples_per_s", rate);
    cJSON_AddNumberToObject(summary, "step_time_ns", 1e6);
    cJSON_AddNumberToObject(summary, "step_time_ns_low", 1e6);
    cJSON_AddNumberToObject(summary, "step_time_ns_high", 1e6);
    cJSON_AddBoolToObject(cJSON_AddObjectToObject(summary, "certificate"), "passed", certified);
    cJSON_AddItemToArray(cJSON_GetObjectItem(document, "cells"), cell);
}

static bool holds(const char *name, const char *suffix, const char *part) {
    char *text = ab_test_read(in_folder(name, suffix));
    assert_non_null(text);
    const bool found = strstr(text, part) != NULL;
    free(text);
    return found;
}

/* More than ten pages of cells are one: those that no cell of any page beats in both. */
static void test_the_frontier_of_very_many_cells_is_one_page(void **state) {
    (void)state;
    enum { FULL = 400 };
    const char *note;
    cJSON *document = cJSON_CreateObject();
    cJSON_AddArrayToObject(document, "cells");
    for (int i = 0; i < FULL; i++)
        add_timed(document, i, 1000 + i, i == 200 ? 0.7 : i == 300 ? 0.6 : i == 250 ? 0.55 : 0.5, true);
    write_plots(document, false, &note);
    assert_true(exists("frontier-10", ".gp") && !exists("frontier-11", ".gp"));
    clear_folder();
    add_timed(document, 1000, 1100, 0.9, false); /* void */
    add_timed(document, 1001, 1300, 0.6, true);  /* as good as the 300th */
    write_plots(document, false, &note);
    assert_true(exists("frontier", ".gp") && !exists("frontier-2", ".gp"));
    assert_true(holds("frontier", ".gp", "the 4 of 402 cells that no other one beats"));
    assert_true(holds("frontier", ".gp", "rows = 4\n"));
    assert_true(holds("frontier", ".dat", "# rate  value\n 1200 70\n 1300 60\n 1399 50\n"));
    assert_true(holds("frontier", ".gp", "seed 200") && holds("frontier", ".gp", "seed 1001"));
    assert_false(holds("frontier", ".gp", "seed 250") || holds("frontier", ".gp", "seed 1000"));
    cJSON_Delete(document);
    clear_folder();
}

static void test_the_frontier_of_void_cells_is_their_first_page(void **state) {
    (void)state;
    const char *note;
    cJSON *document = cJSON_CreateObject();
    cJSON_AddArrayToObject(document, "cells");
    for (int i = 0; i < 500; i++) add_timed(document, i, 1000 + i, 0.5, false);
    write_plots(document, false, &note);
    assert_true(exists("frontier", ".gp") && !exists("frontier-2", ".gp"));
    assert_true(holds("frontier", ".gp", "the first 40 of 500 cells, all void"));
    cJSON_Delete(document);
    clear_folder();
}

/* A cell O2 at `scale` with a loss gap and shares that the test chooses. */
static void add_swept(cJSON *document, double scale, double seed, double gap, double flushed) {
    cJSON *cell = cJSON_CreateObject(), *policy = cJSON_AddObjectToObject(cell, "policy"),
          *summary = cJSON_AddObjectToObject(cell, "summary");
    cJSON_AddStringToObject(cell, "level", "O2");
    cJSON_AddStringToObject(cell, "half_format", "fp16");
    cJSON_AddStringToObject(cell, "device", "cpu");
    cJSON_AddStringToObject(cell, "model", "mlp");
    cJSON_AddNumberToObject(cell, "seed", seed);
    cJSON_AddNumberToObject(policy, "loss_scale", scale);
    if (isfinite(gap)) cJSON_AddNumberToObject(summary, "loss_gap", gap);
    cJSON_AddNumberToObject(summary, "flushed_share", flushed);
    cJSON_AddNumberToObject(summary, "overflowed", scale);
    cJSON_AddNumberToObject(summary, "skipped_share", 0.25);
    cJSON_AddItemToArray(cJSON_GetObjectItem(document, "cells"), cell);
}

/* Points in order of the scale, means and ranges over the seeds; too few scales are no sweep. */
static void test_a_sweep_is_one_line_of_means(void **state) {
    (void)state;
    const char *note;
    cJSON *document = cJSON_CreateObject();
    cJSON_AddArrayToObject(document, "cells");
    add_swept(document, 8, 1, (double)NAN, 0);
    add_swept(document, 1, 1, 0.5, 0.125);
    add_swept(document, 1, 2, -0.25, 0.375);
    write_plots(document, false, &note);
    assert_false(exists("sweep", ".dat"));
    add_swept(document, 0.5, 1, -2, 0.5);
    write_plots(document, false, &note);
    char *text = ab_test_read(in_folder("sweep", ".dat"));
    assert_non_null(text);
    assert_non_null(
        strstr(text, "\n-1 2 2 2 1 0 50 0.5 25\n0 0.125 0.25 0.5 0 0 25 1 25\n3 ? ? ? 0 1 ? 8 25\n"));
    assert_false(exists("sweep-2", ".dat"));
    free(text);
    cJSON_Delete(document);
    clear_folder();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_gnuplot_data_and_scripts_are_complete),
        cmocka_unit_test(test_gnuplot_draws_every_plot_of_every_document),
        cmocka_unit_test(test_a_picture_that_fails_takes_no_other_along),
        cmocka_unit_test(test_the_same_document_gives_the_same_files),
        cmocka_unit_test(test_no_string_of_a_document_is_a_command),
        cmocka_unit_test(test_many_cells_go_to_several_pages),
        cmocka_unit_test(test_two_draws_of_a_floor_share_no_label),
        cmocka_unit_test(test_a_filter_looks_at_each_cell_once_for_all_pages),
        cmocka_unit_test(test_very_many_cells_are_one_picture),
        cmocka_unit_test(test_the_frontier_of_very_many_cells_is_one_page),
        cmocka_unit_test(test_the_frontier_of_void_cells_is_their_first_page),
        cmocka_unit_test(test_a_sweep_is_one_line_of_means),
        cmocka_unit_test(test_a_document_without_data_has_no_plots),
        cmocka_unit_test(test_the_data_of_the_histogram_follow_from_the_record),
        cmocka_unit_test(test_an_unwritable_folder_is_named),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
