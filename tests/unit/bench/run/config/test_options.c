/* The command line of a run: parsing the options, turning them into checked values, crossing them to cells.
 */
#define _GNU_SOURCE
#include "bench/run/config/cells.h"
#include "bench/run/config/configure.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>

#include <cmocka.h>

enum { MOST_WORDS = 24 };

static char program[] = "ampbench";

/* Parses a command line of words that are separated by single spaces. `line` is kept by the options. */
static ab_status parse(char *line, ab_options *options) {
    char *argv[MOST_WORDS + 1] = {program}, *rest = line;
    int argc = 1;
    for (char *word; argc < MOST_WORDS && (word = strsep(&rest, " "));) argv[argc++] = word;
    return ab_options_parse(argc, argv, options);
}

static char line[4096]; /* of the case under test */

static ab_options parsed(const char *text) {
    ab_options options;
    snprintf(line, sizeof line, "%s", text);
    if (parse(line, &options) != AB_OK) fail_msg("%s: %s", text, ab_error_message());
    return options;
}

static void refused(const char *text, const char *expected) {
    ab_options options;
    snprintf(line, sizeof line, "%s", text);
    assert_int_equal(parse(line, &options), AB_USAGE);
    if (!strstr(ab_error_message(), expected))
        fail_msg("%s: \"%s\" lacks \"%s\"", text, ab_error_message(), expected);
}

/* ---- parsing --------------------------------------------------------------------------------- */

static void nothing_given_is_all_defaults(void **state) {
    (void)state;
    ab_options options;
    assert_int_equal(ab_options_parse(0, NULL, &options), AB_OK);
    assert_string_equal(options.text[AB_OPTION_levels], "O0,O1,O2,O3");
    assert_string_equal(options.text[AB_OPTION_net], "lenet5");
    assert_string_equal(options.text[AB_OPTION_rounds], "3");
    assert_null(options.text[AB_OPTION_steps]);
    assert_null(options.text[AB_OPTION_resume]);
    assert_int_equal(options.overrides, 0);
    for (int i = 0; i < AB_OPTION_COUNT; i++) assert_false(options.given[i]);
}

static void values_follow_a_space_or_an_equals_sign(void **state) {
    (void)state;
    ab_options options = parsed("--levels O0,O2 --batch=32 --save-weights=a=b --quiet --probe-every 0");
    assert_string_equal(options.text[AB_OPTION_levels], "O0,O2");
    assert_string_equal(options.text[AB_OPTION_batch], "32");
    assert_string_equal(options.text[AB_OPTION_save_weights], "a=b");
    assert_string_equal(options.text[AB_OPTION_quiet], "");
    assert_string_equal(options.text[AB_OPTION_probe_every], "0");
    assert_true(options.given[AB_OPTION_levels] && options.given[AB_OPTION_quiet]);
    assert_false(options.given[AB_OPTION_net]);
}

static void the_last_of_two_wins_but_overrides_add_up(void **state) {
    (void)state;
    ab_options options = parsed("--seed 1 --seed 2 --set a=1 --set=b=2");
    assert_string_equal(options.text[AB_OPTION_seed], "2");
    assert_int_equal(options.overrides, 2);
    assert_string_equal(options.override[0], "a=1");
    assert_string_equal(options.override[1], "b=2");
}

static void a_value_may_look_like_an_option(void **state) {
    (void)state;
    ab_options options = parsed("--out --quiet --json -");
    assert_string_equal(options.text[AB_OPTION_out], "--quiet");
    assert_false(options.given[AB_OPTION_quiet]);
    assert_string_equal(options.text[AB_OPTION_json], "-");
}

static void mistakes_name_the_option_and_the_nearest(void **state) {
    (void)state;
    refused("--leves O1", "unknown option '--leves'; did you mean '--levels'?");
    refused("--leveles=O1", "'--leveles'; did you mean '--levels'?");
    refused("--cell_timeout 3", "did you mean '--cell-timeout'?");
    refused("--frobnicate", "unknown option '--frobnicate'");
    refused("-x", "unknown option '-x'");
    refused("--", "unknown option '--'");
    refused("-", "unknown option '-'");
    refused("--=3", "unknown option '--'");
    refused("O1", "expected an option, found 'O1'");
    refused("--batch", "--batch: expected N, found nothing");
    refused("--quiet=yes", "--quiet takes no value, found 'yes'");
    refused("--quiet=", "--quiet takes no value, found ''");
}

static void too_many_overrides_are_refused_not_lost(void **state) {
    (void)state;
    char set[] = "--set", value[] = "loss_scale=1", *argv[2 * AB_MAX_OVERRIDES + 3] = {program};
    ab_options options;
    int argc = 1;
    for (int i = 0; i < AB_MAX_OVERRIDES; i++) {
        argv[argc++] = set;
        argv[argc++] = value;
    }
    assert_int_equal(ab_options_parse(argc, argv, &options), AB_OK);
    assert_int_equal(options.overrides, AB_MAX_OVERRIDES);
    argv[argc++] = set;
    argv[argc++] = value;
    assert_int_equal(ab_options_parse(argc, argv, &options), AB_USAGE);
    assert_non_null(strstr(ab_error_message(), "--set: at most 16"));
}

static void every_option_has_a_name_and_a_line_of_help(void **state) {
    (void)state;
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    ab_options_help(out);
    fclose(out);
    for (int i = 0; i < AB_OPTION_COUNT; i++) {
        char name[AB_OPTION_NAME], at_line_start[AB_OPTION_NAME + 8];
        ab_option_name((ab_option_id)i, name);
        assert_null(strchr(name, '_'));
        snprintf(at_line_start, sizeof at_line_start, "\n  %s ", name);
        assert_non_null(strstr(text, at_line_start));
    }
    assert_non_null(strstr(text, "(default O0,O1,O2,O3)"));
    free(text);
}

/* A worker and a resumed run get the options that decide results, and no others. */
static void outputs_are_no_part_of_the_configuration(void **state) {
    (void)state;
    static const ab_option_id outputs[] = {AB_OPTION_out,         AB_OPTION_json,  AB_OPTION_csv,
                                           AB_OPTION_resume,      AB_OPTION_quiet, AB_OPTION_no_plots,
                                           AB_OPTION_save_weights};
    static const ab_option_id config[] = {AB_OPTION_levels, AB_OPTION_set,    AB_OPTION_net,
                                          AB_OPTION_data,   AB_OPTION_seed,   AB_OPTION_init,
                                          AB_OPTION_batch,  AB_OPTION_threads};
    for (size_t i = 0; i < AB_COUNT_OF(outputs); i++) assert_false(ab_option_is_config(outputs[i]));
    for (size_t i = 0; i < AB_COUNT_OF(config); i++) assert_true(ab_option_is_config(config[i]));
    assert_true(ab_option_is_flag(AB_OPTION_quiet));
    assert_false(ab_option_is_flag(AB_OPTION_out));
}

/* ---- configuration --------------------------------------------------------------------------- */

static ab_status configure(const char *text, ab_run_config *config) {
    static ab_options options; /* the configuration borrows its texts */
    options = parsed(text);
    return ab_run_config_create(&options, strstr(text, "--data") != NULL, config);
}

/* Every such mistake ends the program with status 2 and one line. */
static void is_misconfigured(const char *text, const char *expected) {
    ab_run_config config;
    assert_int_equal(ab_status_exit(configure(text, &config)), 2);
    assert_null(strchr(ab_error_message(), '\n'));
    if (!strstr(ab_error_message(), expected))
        fail_msg("%s: \"%s\" lacks \"%s\"", text, ab_error_message(), expected);
}

static void lists_are_read_item_by_item(void **state) {
    (void)state;
    ab_run_config config;
    assert_int_equal(configure("--levels O3,O0 --scales default,128,dynamic --half bf16,fp16", &config),
                     AB_OK);
    assert_int_equal(config.levels, 2);
    assert_string_equal(config.level[0]->name, "O3");
    assert_string_equal(config.level[1]->name, "O0");
    assert_int_equal(config.scales, 3);
    assert_true(config.scale[0].preset);
    assert_true(!config.scale[1].preset && config.scale[1].scale.value == 128);
    assert_true(config.scale[2].scale.dynamic);
    assert_ptr_equal(config.half[0], &ab_format_bf16);
    ab_run_config_clear(&config);
    ab_run_config_clear(&config); /* twice is once */
}

/* Scales of a range against powers made by ldexp. */
static void a_range_stands_for_its_powers(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int first, step, count;
    } rows[] = {{"2^0..2^24", 0, 1, 25},
                {"2^0..2^24:4", 0, 4, 7},
                {"2**-3..2^3:5", -3, 5, 2},
                {"0.25..64", -2, 1, 9},
                {"2^7..2^7", 7, 1, 1}};
    ab_run_config config;
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
        char text[80];
        snprintf(text, sizeof text, "--scales default,%s,dynamic", rows[i].text);
        assert_int_equal(configure(text, &config), AB_OK);
        assert_int_equal(config.scales, rows[i].count + 2);
        for (int k = 0; k < rows[i].count; k++) {
            assert_false(config.scale[k + 1].preset || config.scale[k + 1].scale.dynamic);
            assert_true(config.scale[k + 1].scale.value == ldexp(1, rows[i].first + k * rows[i].step));
        }
        ab_run_config_clear(&config);
    }
    assert_int_equal(configure("--scales 10^0..10^4:2:skip", &config), AB_OK);
    assert_int_equal(config.scales, 3);
    assert_string_equal(config.scale[2].text, "10^4:skip");
    assert_true(config.scale[2].scale.dynamic && config.scale[2].scale.scaler.value[0] == 10000);
    ab_run_config_clear(&config);
}

static void bad_ranges_are_refused(void **state) {
    (void)state;
    static const char *const bad[] = {
        "2^3..2^1",    "2^0..3^4",  "3..12",       "2^0..",           "..2^4",      "2^0..2^4:0",
        "2^0..2^4:-1", "2^0..2^4:", "2^0..2^4:4x", "2^0..2^4:skip:4", "2^0.5..2^4", "1^0..1^4",
        "0..4",        "-2..4",     "2^0..2^9999", "nan..2^4",        "2^0..inf",   "2^0..2^4..2^8"};
    for (size_t i = 0; i < AB_COUNT_OF(bad); i++) {
        char text[80];
        snprintf(text, sizeof text, "--scales %s", bad[i]);
        is_misconfigured(text, "--scales: expected a range of powers such as 2^0..2^24");
    }
    is_misconfigured("--scales 2^0..2^900", "--scales: at most 256 items");
    is_misconfigured("--scales 2^0..2^130", "--scales"); /* beyond fp32 */
}

/* O0 ignores the scales: one cell a seed, beside the twins of the first seed. */
static void a_range_trains_o0_once_a_seed(void **state) {
    (void)state;
    ab_run_config config;
    ab_cell_spec *cells;
    int count, baselines = 0;
    assert_int_equal(configure("--levels O0,O2,O3 --scales 2^0..2^24 --seeds 3", &config), AB_OK);
    assert_int_equal(ab_run_cells(&config, &cells, &count), AB_OK);
    assert_int_equal(count, 3 * (1 + 2 * 25) + 4);
    for (int i = 0; i < count; i++)
        baselines += ab_level_is_reference(cells[i].level) && !cells[i].perturbation;
    assert_int_equal(baselines, 3);
    ab_run_cells_free(cells, count);
    ab_run_config_clear(&config);
}

/* A worker makes its cell alone, without the others: repeated, perturbed and further seeds' cells too. */
static void a_cell_is_made_by_its_place(void **state) {
    (void)state;
    ab_run_config config;
    ab_cell_spec *cells, one;
    int count;
    assert_int_equal(
        configure("--levels O0,O2,O3,O0:loss_scale=64 --scales default,1,2^0..2^3 --half fp16,bf16 "
                  "--seeds 3",
                  &config),
        AB_OK);
    assert_int_equal(ab_run_cells(&config, &cells, &count), AB_OK);
    assert_true(count > 3 * 2 * 5);
    for (int i = 0; i < count; i++) {
        assert_int_equal(ab_run_cell_at(&config, cells[i].place, cells[i].id, &one), AB_OK);
        assert_string_equal(one.id, cells[i].id);
        assert_string_equal(one.digest, cells[i].digest);
        assert_true(one.seed == cells[i].seed && one.perturbation == cells[i].perturbation);
        free(one.id);
        assert_int_equal(ab_run_cell_at(&config, cells[i].place, cells[(i + 1) % count].id, &one),
                         AB_INTERNAL);
    }
    assert_int_equal(ab_run_cell_at(&config, -1, cells[0].id, &one), AB_INTERNAL);
    assert_int_equal(ab_run_cell_at(&config, 1 << 20, cells[0].id, &one), AB_INTERNAL);
    ab_run_cells_free(cells, count);
    ab_run_config_clear(&config);
}

static void bad_lists_are_refused(void **state) {
    (void)state;
    is_misconfigured("--levels 0", "letter O");
    is_misconfigured("--levels O0,,O1", "empty item");
    is_misconfigured("--levels O0,", "empty item");
    refused("--levels=", "--levels: expected LIST, found nothing");
    is_misconfigured("--levels O1,O0,O1", "duplicate level O1");
    is_misconfigured("--half fp16,fp16", "duplicate format fp16");
    is_misconfigured("--half fp8_e4m3", "expected fp16 or bf16, found 'fp8_e4m3'");
    is_misconfigured("--scales 1,0", "above 0");
    is_misconfigured("--scales 1111111111111111111111111111111111111111111111111111111111111111", "too long");
    is_misconfigured("--scales 2^0..2^99,2^0..2^99,2^0..2^55,2", "--scales: at most 256 items");
}

static void bad_numbers_are_refused_with_the_range(void **state) {
    (void)state;
    is_misconfigured("--batch 0", "--batch: expected an integer from 1 to 16777216, found '0'");
    is_misconfigured("--batch 1e3", "found '1e3'");
    is_misconfigured("--batch 99999999999999999999", "--batch: expected an integer");
    is_misconfigured("--threads -1", "--threads: expected an integer from 1");
    is_misconfigured("--rounds 0", "--rounds: expected an integer from 1");
    is_misconfigured("--seed x", "--seed: expected an integer from 0");
    is_misconfigured("--lr nan", "--lr: expected a number from 0");
    is_misconfigured("--lr -0.1", "found '-0.1'");
    is_misconfigured("--momentum 1.5", "--momentum: expected a number from 0 to 1");
    is_misconfigured("--max-loss-scale inf", "--max-loss-scale: expected a number");
    is_misconfigured("--min-loss-scale 8 --max-loss-scale 4", "--min-loss-scale 8 is above");
    is_misconfigured("--scale-window 0", "--scale-window: expected an integer from 1");
}

static void bad_names_are_refused_with_the_nearest(void **state) {
    (void)state;
    is_misconfigured("--net lenet", "did you mean 'lenet5'");
    is_misconfigured("--optimizer adm", "did you mean 'adam'");
    is_misconfigured("--order shuffle", "did you mean 'shuffled'");
    is_misconfigured("--accumulate fp16", "--accumulate: expected one of fp32, half, found 'fp16'");
    is_misconfigured("--cpu-path natve", "did you mean 'native'");
    is_misconfigured("--normalize std", "--normalize");
    is_misconfigured("--device cuda", "--device cuda: ");
    is_misconfigured("--data sythetic", "sythetic");
}

static void what_depends_on_the_data_is_checked_against_it(void **state) {
    (void)state;
    ab_run_config config;
    is_misconfigured("--data synthetic --batch 1000000", "1000000 is larger than the");
    is_misconfigured("--data synthetic --steps 3 --epochs 1", "--steps and --epochs: give one");
    assert_int_equal(configure("--data synthetic --net mlp --batch 300 --epochs 2", &config), AB_OK);
    assert_int_equal(config.steps, config.data->split[AB_SPLIT_TRAIN].count / 300 * 2);
    assert_int_equal(config.epochs, 2);
    ab_run_config_clear(&config);
    assert_int_equal(configure("--data synthetic --net mlp --steps 7", &config), AB_OK);
    assert_int_equal(config.steps, 7);
    assert_int_equal(config.epochs, 0);
    ab_run_config_clear(&config);
}

/* The network's file recommends optimizer and learning rate; the rate goes with its optimizer, not with
 * another one. */
static void the_network_recommends_and_the_user_decides(void **state) {
    (void)state;
    ab_run_config config;
    assert_int_equal(configure("--net lenet5", &config), AB_OK);
    assert_string_equal(config.optimizer->name, "momentum");
    assert_true(config.optim.lr == 0.01 && config.optim.momentum == 0.9);
    assert_int_equal(config.batch, 64);
    ab_run_config_clear(&config);
    assert_int_equal(configure("--net lenet5 --optimizer adam", &config), AB_OK);
    assert_true(config.optim.lr == 1e-3 && config.optim.beta2 == 0.999);
    ab_run_config_clear(&config);
    assert_int_equal(configure("--net lenet5 --lr 0.5 --momentum 0 --batch 8", &config), AB_OK);
    assert_true(config.optim.lr == 0.5 && config.optim.momentum == 0);
    assert_int_equal(config.batch, 8);
    ab_run_config_clear(&config);
}

/* ---- cells ----------------------------------------------------------------------------------- */

static void crosses_to(const char *text, const char *const *ids, int expected) {
    ab_run_config config;
    ab_cell_spec *cells;
    int count;
    assert_int_equal(configure(text, &config), AB_OK);
    assert_int_equal(ab_run_cells(&config, &cells, &count), AB_OK);
    for (int i = 0; i < count && i < expected; i++) assert_string_equal(cells[i].id, ids[i]);
    assert_int_equal(count, expected);
    ab_run_cells_free(cells, count);
    ab_run_config_clear(&config);
}

static void levels_cross_with_scales_and_o0_gets_a_twin(void **state) {
    (void)state;
    static const char *const ids[] = {"mlp/O0/1/fp16/cpu/seed3",          "mlp/O2/dynamic/fp16/cpu/seed3",
                                      "mlp/O2/64/fp16/cpu/seed3",         "mlp/O0/1/fp16/cpu/seed3/ulp",
                                      "mlp/O0/1/fp16/cpu/seed3/rounding", "mlp/O2/dynamic/bf16/cpu/seed3",
                                      "mlp/O2/64/bf16/cpu/seed3",         "mlp/O0/1/bf16/cpu/seed3/rounding"};
    crosses_to("--net mlp --levels O0,O2 --scales default,64 --half fp16,bf16 --seed 3 --floor-draws 1", ids,
               8);
}

/* O0 casts nothing: one for all half formats, unless something of it is half. */
static void o0_is_trained_once_however_many_half_formats(void **state) {
    (void)state;
    static const char *const plain[] = {"mlp/O0/1/bf16/cpu/seed1",       "mlp/O2/dynamic/bf16/cpu/seed1",
                                        "mlp/O2/dynamic/fp16/cpu/seed1", "mlp/O0/1/bf16/cpu/seed2",
                                        "mlp/O2/dynamic/bf16/cpu/seed2", "mlp/O2/dynamic/fp16/cpu/seed2"};
    static const char *const own[] = {"mlp/O0/1/bf16/cpu/seed1", "mlp/O0/1/fp16/cpu/seed1"};
    crosses_to("--net mlp --levels O0,O2 --half bf16,fp16 --no-floor --seeds 2", plain, 6);
    crosses_to("--net mlp --levels O0 --to O0:fc1=half --half bf16,fp16 --no-floor", own, 2);
}

/* ---- levels by name -------------------------------------------------------------------------- */

/* Calls `check` with the cells of "--net mlp" and more options. */
static void with_cells(const char *text, void (*check)(const ab_cell_spec *cells, int count)) {
    ab_run_config config;
    ab_cell_spec *cells;
    int count;
    assert_int_equal(configure(text, &config), AB_OK);
    assert_int_equal(ab_run_cells(&config, &cells, &count), AB_OK);
    check(cells, count);
    ab_run_cells_free(cells, count);
    ab_run_config_clear(&config);
}

static void expect_plain(const ab_cell_spec *cell) {
    const ab_policy *policy = &cell->policy;
    assert_string_equal(cell->level->name, "O0");
    assert_int_equal(policy->cast_model_type, AB_CAST_fp32);
    assert_int_equal(policy->batch_norm_statistics, AB_CAST_none);
    assert_true(policy->loss_scale.value == 1 && !policy->loss_scale.dynamic);
    assert_null(policy->keep.state_format);
    assert_ptr_equal(policy->keep.ema_format, &ab_format_fp32);
    assert_null(policy->layers);
}

static void o0_is_plain_and_o2_is_not(const ab_cell_spec *cells, int count) {
    assert_int_equal(count, 4);
    expect_plain(&cells[0]);
    expect_plain(&cells[2]);
    const ab_policy *o2 = &cells[1].policy;
    assert_ptr_equal(o2->keep.state_format, &ab_format_fp16);
    assert_ptr_equal(o2->keep.ema_format, &ab_format_fp16);
    assert_int_equal(o2->batch_norm_statistics, AB_CAST_half);
    assert_string_equal(o2->layers, "fc1=half,fc2=fp32");
    assert_true(o2->loss_scale.value == 128);
}

/* The cell after it is the noise floor, which is O0 too. */
static void o0_stays_the_fp32_reference(void **state) {
    (void)state;
    with_cells("--net mlp --levels O0,O2 --floor-draws 1 --scales 128 --optimizer-state half --ema 0.9 "
               "--ema-format half --to "
               "fc1=half,O2:fc2=fp32 --set batch_norm_statistics=half",
               o0_is_plain_and_o2_is_not);
}

static void o0_is_changed_alone(const ab_cell_spec *cells, int count) {
    assert_int_equal(count, 4);
    for (int i = 0; i < count; i += 2) {
        assert_true(cells[i].policy.loss_scale.value == 64);
        assert_ptr_equal(cells[i].policy.keep.state_format, &ab_format_fp16);
        assert_ptr_equal(cells[i].policy.keep.ema_format, &ab_format_fp16);
        assert_string_equal(cells[i].policy.layers, "fc1:wgrad=half,fc2=half");
    }
    assert_string_equal(cells[1].level->name, "torch:autocast");
    assert_null(cells[1].policy.keep.state_format);
    assert_ptr_equal(cells[1].policy.keep.ema_format, &ab_format_fp32);
    assert_string_equal(cells[1].policy.layers, "fc3=fp32");
    assert_true(cells[1].policy.loss_scale.dynamic);
}

static void o0_changes_when_it_is_named(void **state) {
    (void)state;
    with_cells("--net mlp --levels O0,torch:autocast --floor-draws 1 --ema 0.9 --set O0:loss_scale=64 --set "
               "O0:optimizer_state=half --set O0:ema_format=half --to "
               "O0:fc1:wgrad=half,O0:fc2=half,torch:autocast:fc3=fp32",
               o0_is_changed_alone);
}

/* The cells of a run with --math tf32 on a device of that name. */
static void check_math(const char *text, const char *device, const bool *tf32) {
    ab_run_config config;
    ab_cell_spec *cells = NULL;
    int count = 0;
    assert_int_equal(configure(text, &config), AB_OK);
    ab_device other = *config.device;
    other.name = device;
    config.device = &other;
    config.tf32 = true;
    const ab_status status = ab_run_cells(&config, &cells, &count);
    assert_int_equal(status, tf32 ? AB_OK : AB_USAGE);
    if (!tf32) assert_non_null(strstr(ab_error_message(), "only GPUs have TF32, this run is on cpu"));
    for (int i = 0; i < count && status == AB_OK; i++)
        assert_int_equal(cells[i].policy.tf32, tf32[strcmp(cells[i].level->name, "O0") != 0]);
    if (status == AB_OK) ab_run_cells_free(cells, count);
    ab_run_config_clear(&config);
}

static void tf32_does_not_act_on_o0_unless_named(void **state) {
    (void)state;
    static const bool others[] = {false, true}, all[] = {true, true}, o0[] = {true, false};
    check_math("--net mlp --levels O0,O1,O3", "cuda", others);
    check_math("--net mlp --levels O0,O2 --set O0:math=tf32", "cuda", all);
    check_math("--net mlp --levels O0,O2 --set O0:math=tf32 --set math=ieee", "cuda", o0);
    check_math("--net mlp --levels O0,O2 --set math=tf32", "cpu", NULL);
}

static void an_item_without_effect_is_named(void **state) {
    (void)state;
    static const struct {
        const char *line, *expected;
    } rows[] = {
        {"--net mlp --levels O0 --scales 128 --optimizer-state half --to fc1=half --set loss_scale=2",
         "--set loss_scale=2, --to fc1=half, --scales 128, --optimizer-state half: not for O0"},
        {"--net mlp --levels O0 --set O2:masters_from=fp32", "--set O2:masters_from=fp32: no such level"},
        {"--net mlp --levels O0,O2 --set O3:loss_scale=2 --scales 128 --optimizer-state half",
         "--set O3:loss_scale=2: no such level"},
        {"--net mlp --levels O0 --set O0:loss_scale=2 --to O0:fc1=half --optimizer-state fp32", NULL},
        {"--net mlp --levels O0,O2 --ema 0.9 --ema-format half --to fc1=half --set loss_scale=2", NULL}};
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
        char text[256];
        ab_run_config config;
        ab_options options = parsed(rows[i].line);
        assert_int_equal(ab_run_config_create(&options, false, &config), AB_OK);
        ab_level_options_unused(&options, config.level, config.levels, text, sizeof text);
        if (rows[i].expected ? strncmp(text, rows[i].expected, strlen(rows[i].expected)) != 0
                             : text[0] != '\0')
            fail_msg("%s: found \"%s\"", rows[i].line, text);
        ab_run_config_clear(&config);
    }
}

/* `default` at O3 is 1: asking for both is asking once. */
static void cells_that_would_be_equal_are_run_once(void **state) {
    (void)state;
    static const char *const ids[] = {"mlp/O3/1/fp16/cpu/seed1", "mlp/O3/128/fp16/cpu/seed1"};
    crosses_to("--net mlp --levels O3 --scales default,1,128.0,128,1.0", ids, 2);
}

/* An option that cannot act is refused, with what is missing; beside what it needs it is taken. */
static void an_option_without_effect_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *alone, *missing, *beside;
    } rows[] = {{"--init-map x", "--init FILE", NULL},
                {"--schedule-on-skip", "--schedule NAME", "--schedule cosine"},
                {"--no-decay bias", "--weight-decay X", "--weight-decay 0.1"},
                {"--no-decay bias", "--weight-decay X", "--optimizer adamw"},
                {"--clip-norm-format fp32", "--clip-norm X", "--clip-norm 1"},
                {"--ema-format half", "--ema DECAY", "--ema 0.9"},
                {"--reduce tree", "--ranks N", "--ranks 2"},
                {"--ddp fsdp2", "--ranks N", "--ranks 2"},
                {"--bucket-mb 3", "--ranks N", "--ranks 2"},
                {"--check-ranks 3", "--ranks N", NULL},
                {"--net resnet8 --sync-bn torch", "--ranks N", "--ranks 2"},
                {"--probe-every 0 --probes gradients", "no step is probed", "--probe-every 5"},
                {"--probe-every 0 --trace", "no step is probed", "--probe-every 5"},
                {"--shadow decensor", "--shadow-every N", "--shadow-every 5"},
                {"--no-floor --floor-draws 3", "no noise floor", NULL},
                {"--levels O2 --floor-draws 3", "no noise floor", "--levels O0,O2"}};
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
        char both[160];
        ab_run_config config;
        if (configure(rows[i].alone, &config) != AB_USAGE) fail_msg("%s is taken", rows[i].alone);
        if (!strstr(ab_error_message(), rows[i].missing))
            fail_msg("%s: %s", rows[i].alone, ab_error_message());
        if (!rows[i].beside) continue;
        snprintf(both, sizeof both, "%s %s", rows[i].alone, rows[i].beside);
        if (configure(both, &config) != AB_OK) fail_msg("%s: %s", both, ab_error_message());
        ab_run_config_clear(&config);
    }
}

static void every_floor_has_as_many_draws_as_wanted(void **state) {
    (void)state;
    static const char *const two[] = {"mlp/O0/1/fp16/cpu/seed1", "mlp/O0/1/fp16/cpu/seed1/ulp",
                                      "mlp/O0/1/fp16/cpu/seed1/ulp2", "mlp/O0/1/fp16/cpu/seed1/rounding",
                                      "mlp/O0/1/fp16/cpu/seed1/rounding2"};
    ab_run_config config;
    crosses_to("--net mlp --levels O0", two, 5);
    crosses_to("--net mlp --levels O0 --floor-draws 2", two, 5);
    assert_int_equal(configure("--net mlp --floor-draws 0", &config), AB_USAGE);
    assert_int_equal(configure("--net mlp --floor-draws 21", &config), AB_USAGE);
}

static void the_noise_floor_can_be_left_out(void **state) {
    (void)state;
    static const char *const ids[] = {"mlp/O0/1/fp16/cpu/seed1"};
    crosses_to("--net mlp --levels O0 --no-floor", ids, 1);
}

static void an_override_reaches_every_cell_and_an_explicit_scale_beats_it(void **state) {
    (void)state;
    ab_run_config config;
    ab_cell_spec *cells;
    int count;
    assert_int_equal(configure("--net mlp --levels O2,O3 --scales default,4 --set loss_scale=64 --set "
                               "master_weights=False",
                               &config),
                     AB_OK);
    assert_int_equal(ab_run_cells(&config, &cells, &count), AB_OK);
    assert_int_equal(count, 4);
    for (int i = 0; i < count; i++) {
        assert_int_equal(cells[i].policy.master_weights, AB_TRI_false);
        assert_true(cells[i].policy.loss_scale.value == (i % 2 ? 4.0 : 64.0));
        ab_cell_config cell = ab_cell_config_of(&config, &cells[i]);
        assert_ptr_equal(cell.net, config.net);
        assert_int_equal(cell.batch, config.batch);
        assert_true(cell.policy.loss_scale.value == cells[i].policy.loss_scale.value);
    }
    ab_run_cells_free(cells, count);
    ab_run_config_clear(&config);
}

static void an_override_that_a_level_refuses_refuses_the_run(void **state) {
    (void)state;
    ab_run_config config;
    ab_cell_spec *cells;
    int count;
    assert_int_equal(configure("--net mlp --set keep_batchnorm_fp32=True", &config), AB_OK);
    assert_int_equal(ab_run_cells(&config, &cells, &count), AB_USAGE);
    assert_non_null(strstr(ab_error_message(), "keep_batchnorm_fp32=True: at O1"));
    ab_run_config_clear(&config);
}

/* Texts far longer than any name; the last key decides. */
static void scale_texts_of_any_length_are_taken_whole(void **state) {
    (void)state;
    static const size_t lengths[] = {160, 300, 3000};
    for (size_t i = 0; i < AB_COUNT_OF(lengths); i++) {
        char text[3200] = "--net mlp --levels O2 --no-floor --scales deepspeed:init=1024";
        while (strlen(text) < lengths[i]) strcat(text, ",min_loss_scale=0.5");
        strcat(text, ",loss_scale_window=2000");
        ab_run_config config;
        assert_int_equal(configure(text, &config), AB_OK);
        const ab_scaler_config *scaler = &config.scale[0].scale.scaler;
        assert_true(scaler->value[ab_scaler_key_index(scaler->kind, "window")] == 2000);
        ab_run_config_clear(&config);
    }
}

/* Every key set, with the longest numbers: more than 160 bytes, and read back to the same numbers. */
static void a_scaler_text_holds_every_key(void **state) {
    (void)state;
    for (int k = 0; k < ab_scaler_count(); k++) {
        ab_scaler_config config = ab_scaler_defaults(ab_scaler_at(k)), back;
        for (int i = 0; i < config.kind->keys; i++) {
            config.given |= 1u << i;
            if (config.kind->key[i].type == AB_SCALER_REAL && config.value[i] != 0)
                config.value[i] *= 1.0000000000000002;
        }
        char text[AB_SCALER_TEXT];
        ab_scaler_text(&config, text);
        if (ab_scaler_parse(text, &back) != AB_OK) continue; /* a default at the end of its range */
        for (int i = 0; i < config.kind->keys; i++) assert_true(back.value[i] == config.value[i]);
    }
}

/* What the user typed for these two differs in the last key alone, behind byte 160. */
static void cells_that_differ_late_stay_two(void **state) {
    (void)state;
    const char *const same =
        "deepspeed:init=1.00000000000000022,window=1000000000000001,min=0.10000000000000001,"
        "hysteresis=1000000001,consecutive_hysteresis=False,consecutive_hysteresis=True,"
        "raise_error_at_min_scale=";
    assert_true(strlen(same) > 160);
    char text[800];
    snprintf(text, sizeof text, "--net mlp --levels O2 --no-floor --scales %sTrue,%sFalse", same, same);
    ab_run_config config;
    ab_cell_spec *cells;
    int count;
    assert_int_equal(configure(text, &config), AB_OK);
    assert_int_equal(ab_run_cells(&config, &cells, &count), AB_OK);
    assert_int_equal(count, 2);
    assert_string_not_equal(cells[0].digest, cells[1].digest);
    assert_string_not_equal(cells[0].id, cells[1].id);
    assert_non_null(strstr(cells[1].id, "raises=False/fp16/cpu/seed1"));
    ab_run_cells_free(cells, count);
    ab_run_config_clear(&config);
}

/* What is set to its default is not set; the first spelling names the cell. */
static void two_spellings_of_one_configuration_are_one_cell(void **state) {
    (void)state;
    static const char *const torch[] = {"mlp/O2/torch/fp16/cpu/seed1"};
    crosses_to("--net mlp --levels O2 --scales torch,torch:init=65536,torch:init=65536.0 --no-floor", torch,
               1);
    static const char *const dynamic[] = {"mlp/O2/dynamic/fp16/cpu/seed1", "mlp/O2/torch/fp16/cpu/seed1"};
    crosses_to("--net mlp --levels O2 --scales default,dynamic,apex:init=2^16,torch --no-floor", dynamic, 2);
    static const char *const skipping[] = {"mlp/O2/128:skip/fp16/cpu/seed1", "mlp/O2/128/fp16/cpu/seed1"};
    crosses_to("--net mlp --levels O2 --scales 128:skip,128.0:skip,fixed-skip:init=2^7,128 --no-floor",
               skipping, 2);
    static const char *const numbers[] = {"mlp/O2/1/fp16/cpu/seed1", "mlp/O2/1.0000000001/fp16/cpu/seed1"};
    crosses_to("--net mlp --levels O2 --scales 1,1.0,1.0000000001 --no-floor", numbers, 2);
}

/* An int and a float are two numbers to a scaler that counts as Python does. */
static void a_python_int_is_not_a_float(void **state) {
    (void)state;
    static const char *const ids[] = {"mlp/O2/mindspore-host:init=65536/fp16/cpu/seed1",
                                      "mlp/O2/mindspore-host:init=65536.0/fp16/cpu/seed1"};
    crosses_to(
        "--net mlp --levels O2 --scales mindspore-host:init=65536,mindspore-host:init=65536.0 --no-floor",
        ids, 2);
}

static void digest_of(const char *text, char digest[17]) {
    ab_run_config config;
    ab_cell_spec *cells;
    int count;
    if (configure(text, &config) != AB_OK) fail_msg("%s: %s", text, ab_error_message());
    assert_int_equal(ab_run_cells(&config, &cells, &count), AB_OK);
    memcpy(digest, cells[0].digest, 17);
    ab_run_cells_free(cells, count);
    ab_run_config_clear(&config);
}

static void a_digest_follows_what_changes_training_and_nothing_else(void **state) {
    (void)state;
    static const char *const other[] = {"--lr 0.02",          "--momentum 0.8",
                                        "--batch 32",         "--seed 2",
                                        "--half bf16",        "--levels O3",
                                        "--scales 64",        "--scale-window 500",
                                        "--ema 0.9",          "--clip-norm 1",
                                        "--schedule linear",  "--order shuffled",
                                        "--accumulate half",  "--normalize unit",
                                        "--cpu-path convert", "--to fc1=fp32",
                                        "--optimizer adam",   "--weight-decay 0.1 --no-decay bias",
                                        "--net lenet5",       "--set master_weights=False",
                                        "--init w.npz",       "--flush-denormal"};
    static const char *const same[] = {"--threads 1",        "--rounds 7",         "--probe-every 0",
                                       "--levels O2,O3",     "--scales dynamic",   "--out other.json",
                                       "--memory-limit 1GB", "--schedule constant"};
    char base[17], digest[17], text[200];
    digest_of("--net mlp --levels O2 --scales default --no-floor", base);
    for (size_t i = 0; i < AB_COUNT_OF(other); i++) {
        snprintf(text, sizeof text, "--net mlp --levels O2 --scales default --no-floor %s", other[i]);
        digest_of(text, digest);
        if (strcmp(base, digest) == 0) fail_msg("%s: the same digest", other[i]);
    }
    for (size_t i = 0; i < AB_COUNT_OF(same); i++) {
        snprintf(text, sizeof text, "--net mlp --levels O2 --scales default --no-floor %s", same[i]);
        digest_of(text, digest);
        if (strcmp(base, digest) != 0) fail_msg("%s: another digest", same[i]);
    }
}

static void a_path_that_does_not_fit_is_refused(void **state) {
    (void)state;
    char path[64], pattern[64];
    assert_int_equal(ab_cell_file("--checkpoint", "a/%c.st", "mlp/O2/1", path, sizeof path), AB_OK);
    assert_string_equal(path, "a/mlp-O2-1.st");
    memset(pattern, 'x', 60);
    strcpy(pattern + 60, "%c");
    assert_int_equal(ab_cell_file("--checkpoint", pattern, "mlp/O2/1", path, sizeof path), AB_USAGE);
    assert_non_null(strstr(ab_error_message(), "--checkpoint: expected a path of less than 64 bytes"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scale_texts_of_any_length_are_taken_whole),
        cmocka_unit_test(a_scaler_text_holds_every_key),
        cmocka_unit_test(cells_that_differ_late_stay_two),
        cmocka_unit_test(two_spellings_of_one_configuration_are_one_cell),
        cmocka_unit_test(a_python_int_is_not_a_float),
        cmocka_unit_test(a_digest_follows_what_changes_training_and_nothing_else),
        cmocka_unit_test(a_path_that_does_not_fit_is_refused),
        cmocka_unit_test(nothing_given_is_all_defaults),
        cmocka_unit_test(values_follow_a_space_or_an_equals_sign),
        cmocka_unit_test(the_last_of_two_wins_but_overrides_add_up),
        cmocka_unit_test(a_value_may_look_like_an_option),
        cmocka_unit_test(mistakes_name_the_option_and_the_nearest),
        cmocka_unit_test(too_many_overrides_are_refused_not_lost),
        cmocka_unit_test(every_option_has_a_name_and_a_line_of_help),
        cmocka_unit_test(outputs_are_no_part_of_the_configuration),
        cmocka_unit_test(lists_are_read_item_by_item),
        cmocka_unit_test(a_cell_is_made_by_its_place),
        cmocka_unit_test(bad_lists_are_refused),
        cmocka_unit_test(a_range_stands_for_its_powers),
        cmocka_unit_test(bad_ranges_are_refused),
        cmocka_unit_test(a_range_trains_o0_once_a_seed),
        cmocka_unit_test(bad_numbers_are_refused_with_the_range),
        cmocka_unit_test(bad_names_are_refused_with_the_nearest),
        cmocka_unit_test(what_depends_on_the_data_is_checked_against_it),
        cmocka_unit_test(the_network_recommends_and_the_user_decides),
        cmocka_unit_test(levels_cross_with_scales_and_o0_gets_a_twin),
        cmocka_unit_test(o0_is_trained_once_however_many_half_formats),
        cmocka_unit_test(o0_stays_the_fp32_reference),
        cmocka_unit_test(o0_changes_when_it_is_named),
        cmocka_unit_test(tf32_does_not_act_on_o0_unless_named),
        cmocka_unit_test(an_item_without_effect_is_named),
        cmocka_unit_test(cells_that_would_be_equal_are_run_once),
        cmocka_unit_test(an_option_without_effect_is_refused),
        cmocka_unit_test(every_floor_has_as_many_draws_as_wanted),
        cmocka_unit_test(the_noise_floor_can_be_left_out),
        cmocka_unit_test(an_override_reaches_every_cell_and_an_explicit_scale_beats_it),
        cmocka_unit_test(an_override_that_a_level_refuses_refuses_the_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
