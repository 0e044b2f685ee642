/* A training from its record: every option that defines it comes back with its value, none that writes files
 * does, and a record that holds anything else is refused. */
#define _GNU_SOURCE
#include "bench/run/replay.h"

#include "bench/run/config/cells.h"
#include "bench/run/config/configure.h"
#include "kernels/core/rng.h"
#include "reports/record/json.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>

#include <cmocka.h>

enum { MOST_WORDS = 64, WORDS = 2048, DRAWS = 600 };

/* Alternatives between bars; of each: words that make the option a valid one. @ is a random number in (0, 1),
 * # a random integer from 2 to 9. */
static const struct {
    ab_option_id id;
    const char *words;
} samples[] = {
    {AB_OPTION_levels,
     "--levels O0|--levels O3,O1,torch:autocast|--levels "
     "O3,O3:keep_batchnorm_fp32=True,master_weights=True,O2:loss_scale=deepspeed:init=65536,window=#"},
    {AB_OPTION_scales, "--scales torch,deepspeed:init=65536,window=#,dynamic|--scales #.5,default"},
    {AB_OPTION_half, "--half bf16|--half bf16,fp16"},
    {AB_OPTION_set, "--set keep_batchnorm_fp32=False --set loss_scale=#|--set loss_scale=8"},
    {AB_OPTION_to, "--net mlp --to fc1=fp32,fc2:wgrad=fp32"},
    {AB_OPTION_accumulate, "--accumulate half"},
    {AB_OPTION_net, "--net resnet8|--net mlp|--net " AB_SOURCE_DIR "/bench/nets/lenet5.json"},
    {AB_OPTION_data,
     "--data synthetic|--net gpt --data synthetic_text|--net resnet8 --data synthetic_images"},
    {AB_OPTION_normalize, "--normalize unit|--normalize none|--normalize 0.#/0.3081"},
    {AB_OPTION_pad, "--pad 2|--pad 2:before"},
    {AB_OPTION_order, "--order shuffled"},
    {AB_OPTION_init, "--init some.safetensors"},
    {AB_OPTION_freeze_bn, "--net resnet8 --freeze-bn"},
    {AB_OPTION_init_map, "--init some.npz --init-map names.txt"},
    {AB_OPTION_resume_from, "--resume-from checkpoint-%c.safetensors"},
    {AB_OPTION_batch, "--batch #|--batch +#"},
    {AB_OPTION_steps, "--steps #|--steps 0#"},
    {AB_OPTION_epochs, "--epochs #"},
    {AB_OPTION_optimizer, "--optimizer adamw|--optimizer lamb|--optimizer fusedsgd:nesterov=True"},
    {AB_OPTION_lr, "--lr @|--lr 1e-#"},
    {AB_OPTION_momentum, "--momentum @"},
    {AB_OPTION_dampening, "--dampening @"},
    {AB_OPTION_weight_decay, "--weight-decay @"},
    {AB_OPTION_beta1, "--optimizer adam --beta1 @"},
    {AB_OPTION_beta2, "--optimizer adamw --beta2 @"},
    {AB_OPTION_alpha, "--optimizer rmsprop --alpha @"},
    {AB_OPTION_eps, "--optimizer adam --eps @"},
    {AB_OPTION_lr_decay, "--optimizer adagrad --lr-decay @"},
    {AB_OPTION_trust_coefficient, "--optimizer lars --trust-coefficient @"},
    {AB_OPTION_optimizer_state, "--optimizer-state half|--optimizer-state fp32"},
    {AB_OPTION_optimizer_rounding, "--optimizer adam --optimizer-rounding op"},
    {AB_OPTION_no_decay, "--weight-decay @ --no-decay bias,norm"},
    {AB_OPTION_param_groups, "--param-groups *.weight:lr_factor=@,weight_decay=@;*.bias:weight_decay=0"},
    {AB_OPTION_schedule, "--schedule cosine:warmup=1|--schedule step:step_size=#,gamma=@"},
    {AB_OPTION_schedule_on_skip, "--schedule cosine:warmup=1 --schedule-on-skip"},
    {AB_OPTION_clip_norm, "--clip-norm @"},
    {AB_OPTION_clip_norm_format,
     "--clip-norm @ --clip-norm-format fp32|--clip-norm @ --clip-norm-format half"},
    {AB_OPTION_clip_value, "--clip-value @"},
    {AB_OPTION_ema, "--ema @"},
    {AB_OPTION_ema_format, "--ema @ --ema-format half"},
    {AB_OPTION_gradient_accumulation_steps, "--gradient-accumulation-steps #"},
    {AB_OPTION_ranks, "--ranks 3"},
    {AB_OPTION_ddp, "--ranks 2 --ddp torch-ddp-bf16"},
    {AB_OPTION_reduce, "--ranks 2 --reduce tree|--ranks 4 --reduce hierarchical:2"},
    {AB_OPTION_reduce_dtype, "--ranks 2 --reduce-dtype bf16"},
    {AB_OPTION_divide, "--ranks 2 --divide post|--ranks 2 --divide @"},
    {AB_OPTION_reduce_every, "--ranks 2 --gradient-accumulation-steps 2 --reduce-every micro-batch|"
                             "--ranks 2 --gradient-accumulation-steps 2 --reduce-every accumulated"},
    {AB_OPTION_bucket_mb, "--ranks 2 --bucket-mb @"},
    {AB_OPTION_last_rank_samples, "--ranks 2 --batch 4 --last-rank-samples 1"},
    {AB_OPTION_sync_bn, "--ranks 2 --sync-bn torch|--ranks 2 --sync-bn apex"},
    {AB_OPTION_fault, "--clip-norm @ --fault clip_before_unscale"},
    {AB_OPTION_recompute, "--net resnet8 --recompute all|--net gpt --recompute none"},
    {AB_OPTION_seed, "--seed #|--seed 9007199254739990"},
    {AB_OPTION_seeds, "--seeds #"},
    {AB_OPTION_min_loss_scale, "--min-loss-scale @|--min-loss-scale 0x1p-3"},
    {AB_OPTION_max_loss_scale, "--max-loss-scale #00"},
    {AB_OPTION_scale_window, "--scale-window #|--scale-window 9007199254740993"},
    {AB_OPTION_device, "--device cpu"},
    {AB_OPTION_math, "--math ieee"},
    {AB_OPTION_no_graph, "--no-graph"},
    {AB_OPTION_flush_denormal, "--flush-denormal"},
    {AB_OPTION_cpu_path, "--cpu-path reference|--cpu-path convert"},
};

/* ---- words ----------------------------------------------------------------------------------- */

typedef struct words {
    char text[WORDS];
    char *argv[MOST_WORDS + 1];
    int argc;
} words;

static void split(const char *text, words *w) {
    static char program[] = "ampbench";
    char *rest = w->text;
    assert_true(strlen(text) < WORDS);
    strcpy(w->text, text);
    w->argc = 0;
    w->argv[w->argc++] = program;
    for (char *word; (word = strsep(&rest, " "));)
        if (word[0]) {
            assert_true(w->argc < MOST_WORDS);
            w->argv[w->argc++] = word;
        }
    w->argv[w->argc] = NULL;
}

static uint32_t draws;

static uint64_t below(uint64_t most) { return ab_rng_below(15, AB_RNG_DESIGN, 0, draws++, most); }

/* A number from 0.01 to 0.99 in one of the forms that a user may type. */
static void write_share(char *text, size_t size) {
    const double x = 0.01 + 0.98 * (double)below(1u << 30) / (double)(1u << 30);
    switch (below(4)) {
    case 0:
        snprintf(text, size, "%.17g", x);
        break;
    case 1:
        snprintf(text, size, "%a", x);
        break;
    case 2:
        snprintf(text, size, "%.3f", x);
        break;
    default:
        snprintf(text, size, "+%ge-%d", 10 * x, 1);
    }
}

/* Appends one alternative with its numbers drawn. */
static void append(char *text, const char *alternatives) {
    int bars = 1;
    for (const char *c = alternatives; *c; c++) bars += *c == '|';
    for (uint64_t skip = below((uint64_t)bars); skip > 0; skip--)
        alternatives = strchr(alternatives, '|') + 1;
    size_t at = strlen(text);
    text[at++] = ' ';
    for (const char *c = alternatives; *c && *c != '|'; c++) {
        char piece[64] = {*c, '\0'};
        if (*c == '@') write_share(piece, sizeof piece);
        if (*c == '#') snprintf(piece, sizeof piece, "%d", (int)(2 + below(8)));
        assert_true(at + strlen(piece) + 1 < WORDS);
        at += (size_t)sprintf(text + at, "%s", piece);
    }
    text[at] = '\0';
}

/* ---- cells ----------------------------------------------------------------------------------- */

typedef struct trained {
    ab_options options;
    ab_run_config config;
    ab_cell_spec *cells;
    int count;
} trained;

/* Steps as of a thousand samples; the cells have the name of the data, not their contents. Steps done are
 * read from checkpoints, of which there are none here. */
static ab_status make_steps(trained *t) {
    ab_data data = {.classes = 2};
    data.split[AB_SPLIT_TRAIN].count = 1000;
    if (t->options.given[AB_OPTION_resume_from]) return AB_OK;
    t->config.data = &data;
    ab_status status = ab_run_config_steps(&t->options, &t->config);
    t->config.data = NULL;
    return status;
}

static ab_status make(int argc, char *const *argv, trained *t) {
    *t = (trained){.cells = NULL};
    AB_TRY(ab_options_parse(argc, argv, &t->options));
    AB_TRY(ab_run_config_create(&t->options, false, &t->config));
    ab_status status = make_steps(t);
    if (status == AB_OK) status = ab_run_cells(&t->config, &t->cells, &t->count);
    if (status != AB_OK) ab_run_config_clear(&t->config);
    return status;
}

static void clear(trained *t) {
    ab_run_cells_free(t->cells, t->count);
    ab_run_config_clear(&t->config);
}

/* A document with these options, written and read again. */
static cJSON *recorded(const ab_options *options) {
    cJSON *document = cJSON_CreateObject(), *run = cJSON_AddObjectToObject(document, "run");
    char *text = NULL;
    size_t size = 0;
    cJSON_AddItemToObject(run, "options", ab_replay_record(options));
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    ab_json_print(document, out);
    fclose(out);
    cJSON_Delete(document);
    document = cJSON_Parse(text);
    assert_non_null(document);
    free(text);
    return document;
}

static void comes_back(const char *line, const trained *first) {
    cJSON *document = recorded(&first->options);
    ab_replay replay;
    trained second;
    if (ab_replay_words(document, AB_REPLAY_TRAINING, &replay) != AB_OK ||
        make(replay.count, replay.word, &second) != AB_OK)
        fail_msg("%s: %s", line, ab_error_message());
    if (second.count != first->count) fail_msg("%s: %d cells, %d again", line, first->count, second.count);
    for (int i = 0; i < first->count; i++)
        if (strcmp(first->cells[i].digest, second.cells[i].digest) != 0)
            fail_msg("%s: another digest of %s", line, first->cells[i].id);
    clear(&second);
    ab_replay_clear(&replay);
    cJSON_Delete(document);
}

static bool is_training(ab_option_id id) {
    return ab_option_trait_of(id) == AB_OPTION_TRAIT_training ||
           ab_option_trait_of(id) == AB_OPTION_TRAIT_training_input;
}

static void every_option_of_training_has_a_sample(void **state) {
    (void)state;
    for (int i = 0; i < AB_OPTION_COUNT; i++) {
        bool found = false;
        for (size_t k = 0; k < AB_COUNT_OF(samples); k++) found = found || samples[k].id == (ab_option_id)i;
        if (found != is_training((ab_option_id)i))
            fail_msg("%s: %s", ab_option_key((ab_option_id)i),
                     found ? "has a sample, but is not of training" : "lacks a sample in test_replay.c");
    }
}

/* One sample first, so that each option is drawn; then up to three more. */
static void every_drawn_training_has_the_same_cells_again(void **state) {
    (void)state;
    int taken[AB_OPTION_COUNT] = {0}, accepted = 0;
    for (int d = 0; d < DRAWS; d++) {
        char line[WORDS] = "--steps 7 --batch 3 --data synthetic";
        words w;
        trained first;
        append(line, samples[(size_t)d % AB_COUNT_OF(samples)].words);
        for (uint64_t more = below(4); more > 0; more--)
            append(line, samples[below(AB_COUNT_OF(samples))].words);
        if (strstr(line, "--epochs")) memset(line, ' ', strlen("--steps 7"));
        split(line, &w);
        if (make(w.argc, w.argv, &first) != AB_OK) continue; /* options that exclude each other */
        accepted++;
        for (int i = 0; i < AB_OPTION_COUNT; i++) taken[i] += first.options.given[i];
        comes_back(line, &first);
        clear(&first);
    }
    assert_true(accepted > DRAWS / 3);
    for (size_t k = 0; k < AB_COUNT_OF(samples); k++)
        if (taken[samples[k].id] == 0) fail_msg("%s: no draw was valid", ab_option_key(samples[k].id));
}

/* ---- what is not replayed -------------------------------------------------------------------- */

static void nothing_that_writes_is_recorded_or_replayed(void **state) {
    (void)state;
    words w;
    ab_options options, again;
    ab_replay replay;
    split("--lr 0.5 --csv a.csv --html a.html --markdown a.md --out a.json --json - --save-weights w "
          "--checkpoint c --checkpoint-every 5 --resume --no-plots --quiet --cell-timeout 3 --probe-every 4",
          &w);
    assert_int_equal(ab_options_parse(w.argc, w.argv, &options), AB_OK);
    cJSON *document = recorded(&options);
    assert_int_equal(ab_replay_words(document, AB_REPLAY_TRAINING, &replay), AB_OK);
    assert_int_equal(replay.count, 5);
    assert_int_equal(ab_options_parse(replay.count, replay.word, &again), AB_OK);
    for (int i = 0; i < AB_OPTION_COUNT; i++)
        assert_int_equal(again.given[i], i == AB_OPTION_lr || i == AB_OPTION_probe_every);
    ab_replay_clear(&replay);
    assert_int_equal(ab_replay_words(document, AB_REPLAY_RESUME, &replay), AB_OK);
    assert_int_equal(ab_options_parse(replay.count, replay.word, &again), AB_OK);
    assert_string_equal(again.text[AB_OPTION_checkpoint_every], "5");
    assert_null(again.text[AB_OPTION_checkpoint]);
    ab_replay_clear(&replay);
    cJSON_Delete(document);
}

/* An option whose argument is a file is read, or it writes; what it is said to be is not left to chance. */
static void an_option_that_takes_a_file_says_what_for(void **state) {
    (void)state;
    static const ab_option_id read[] = {AB_OPTION_net, AB_OPTION_data, AB_OPTION_init, AB_OPTION_init_map,
                                        AB_OPTION_resume_from};
    static const struct {
        const char *id, *argument, *group;
    } rows[] = {
#define AB_OPTION(id, argument, fallback, trait, group, text) {#id, argument, group},
#include "bench/run/config/options.def"
#undef AB_OPTION
    };
    for (int i = 0; i < AB_OPTION_COUNT; i++) {
        const ab_option_id id = (ab_option_id)i;
        const ab_option_trait trait = ab_option_trait_of(id);
        const char *argument = rows[i].argument ? rows[i].argument : "";
        bool is_read = false;
        for (size_t k = 0; k < AB_COUNT_OF(read); k++) is_read = is_read || read[k] == id;
        if (is_read != (trait == AB_OPTION_TRAIT_training_input)) fail_msg("%s: its trait", rows[i].id);
        if (strstr(argument, "FILE") && !is_read && trait != AB_OPTION_TRAIT_output)
            fail_msg("%s: takes a file, and its trait is neither training_input nor output", rows[i].id);
        if (strcmp(rows[i].group, "Output") == 0 && ab_option_is_config(id))
            fail_msg("%s: an option of Output is passed on", rows[i].id);
    }
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void refused(const char *json, const char *expected) {
    cJSON *document = cJSON_Parse(json);
    ab_replay replay;
    assert_non_null(document);
    assert_int_equal(ab_replay_words(document, AB_REPLAY_TRAINING, &replay), AB_INPUT);
    if (!strstr(ab_error_message(), expected))
        fail_msg("%s: \"%s\" lacks \"%s\"", json, ab_error_message(), expected);
    ab_replay_clear(&replay);
    cJSON_Delete(document);
}

static void other_keys_and_types_are_refused_by_name(void **state) {
    (void)state;
    refused("{\"run\": {\"argv\": [\"ampbench\", \"--csv\", \"x\"]}}", "expected run.options");
    refused("{\"run\": {\"options\": [\"--csv\"]}}", "expected run.options");
    refused("{\"run\": {\"options\": {\"csv\": \"x\"}}}", "run.options.csv: no option of a training");
    refused("{\"run\": {\"options\": {\"save_weights\": \"x\"}}}", "run.options.save_weights");
    refused("{\"run\": {\"options\": {\"lr\": \"0.1 --csv x\"}}}",
            "run.options.lr: expected a number, found a string");
    refused("{\"run\": {\"options\": {\"lr\": null}}}", "run.options.lr: expected a number, found null");
    refused("{\"run\": {\"options\": {\"steps\": 1.5}}}", "run.options.steps: expected an integer");
    refused("{\"run\": {\"options\": {\"steps\": 1e300}}}", "run.options.steps: expected an integer");
    refused("{\"run\": {\"options\": {\"levels\": \"O0\"}}}", "run.options.levels: expected a list of texts");
    refused("{\"run\": {\"options\": {\"levels\": []}}}", "run.options.levels: expected a list of texts");
    refused("{\"run\": {\"options\": {\"levels\": [1]}}}", "run.options.levels: expected a list of texts");
    refused("{\"run\": {\"options\": {\"set\": [{}]}}}", "run.options.set: expected a list of texts");
    refused("{\"run\": {\"options\": {\"net\": 3}}}", "run.options.net: expected a text, found a number");
    refused("{\"run\": {\"options\": {\"no_floor\": \"--csv\"}}}", "run.options.no_floor: expected true");
}

static void a_text_that_looks_like_an_option_stays_a_value(void **state) {
    (void)state;
    cJSON *document =
        cJSON_Parse("{\"run\": {\"options\": {\"data\": \"--csv=x\", \"levels\": [\"--out\"]}}}");
    ab_replay replay;
    ab_options options;
    assert_int_equal(ab_replay_words(document, AB_REPLAY_TRAINING, &replay), AB_OK);
    assert_int_equal(ab_options_parse(replay.count, replay.word, &options), AB_OK);
    assert_string_equal(options.text[AB_OPTION_data], "--csv=x");
    assert_null(options.text[AB_OPTION_csv]);
    assert_false(options.given[AB_OPTION_out]);
    assert_int_equal(ab_replay_check("diagnose", document, &replay, NULL), AB_USAGE);
    ab_replay_clear(&replay);
    cJSON_Delete(document);
}

static void devices_and_pipes_are_not_read(void **state) {
    (void)state;
    static const char *const options[] = {"\"net\": \"/dev/zero\"", "\"data\": \"bytes:/dev/zero\"",
                                          "\"init\": \"/dev/null\""};
    for (size_t i = 0; i < AB_COUNT_OF(options); i++) {
        char json[128];
        ab_replay replay;
        snprintf(json, sizeof json, "{\"run\": {\"options\": {%s}}}", options[i]);
        cJSON *document = cJSON_Parse(json);
        assert_int_equal(ab_replay_words(document, AB_REPLAY_TRAINING, &replay), AB_OK);
        assert_int_equal(ab_replay_check("diagnose", document, &replay, NULL), AB_INPUT);
        assert_non_null(strstr(ab_error_message(), "expected a file or a folder"));
        ab_replay_clear(&replay);
        cJSON_Delete(document);
    }
}

static void another_network_under_the_same_name_is_refused(void **state) {
    (void)state;
    cJSON *document = cJSON_Parse("{\"config\": {\"net_digest\": \"0123456789abcdef\"}, "
                                  "\"run\": {\"options\": {\"net\": \"mlp\"}}}");
    ab_replay replay;
    assert_int_equal(ab_replay_words(document, AB_REPLAY_TRAINING, &replay), AB_OK);
    assert_int_equal(ab_replay_check("diagnose", document, &replay, NULL), AB_NOT_COMPARABLE);
    assert_non_null(strstr(ab_error_message(), "config.net_digest is 0123456789abcdef there"));
    ab_replay_clear(&replay);
    cJSON_Delete(document);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_option_of_training_has_a_sample),
        cmocka_unit_test(every_drawn_training_has_the_same_cells_again),
        cmocka_unit_test(nothing_that_writes_is_recorded_or_replayed),
        cmocka_unit_test(an_option_that_takes_a_file_says_what_for),
        cmocka_unit_test(other_keys_and_types_are_refused_by_name),
        cmocka_unit_test(a_text_that_looks_like_an_option_stays_a_value),
        cmocka_unit_test(devices_and_pipes_are_not_read),
        cmocka_unit_test(another_network_under_the_same_name_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
