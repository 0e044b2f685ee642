/* Remedies: `ampbench run` accepts every option that a remedy prints, together with the options of the run.
 * Each change is asked of runs of every level, scaler and kind of option; its options go through the parser
 * and the checks of a run. */
#include "bench/run/config/cells.h"
#include "bench/run/config/configure.h"
#include "bench/run/record.h"
#include "reports/diagnose/remedy/remedy.h"
#include "reports/record/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { WORDS = 64, LINE = 4096 };

static ab_data *data; /* of all runs */

/* ---- a run ----------------------------------------------------------------------------------- */

typedef struct run {
    char line[LINE], *word[WORDS];
    int words;
    ab_options options;
    ab_run_config config;
    ab_cell_spec *cells;
    int count;
} run;

/* Splits `text` at spaces; the words point into r->line. */
static ab_status start(run *r, const char *text) {
    memset(r, 0, sizeof *r);
    assert_true(snprintf(r->line, sizeof r->line, "ampbench %s", text) < (int)sizeof r->line);
    for (char *w = strtok(r->line, " "); w; w = strtok(NULL, " ")) r->word[r->words++] = w;
    ab_status status = ab_options_parse(r->words, r->word, &r->options);
    if (status == AB_OK) status = ab_run_config_create(&r->options, false, &r->config);
    if (status == AB_OK && !data) status = ab_data_open(r->config.data_name, &r->config.net->data, 1, &data);
    r->config.data = data;
    if (status == AB_OK) status = ab_run_config_steps(&r->options, &r->config);
    if (status == AB_OK) status = ab_run_cells(&r->config, &r->cells, &r->count);
    return status;
}

static void end(run *r) {
    ab_run_cells_free(r->cells, r->count);
    r->config.data = NULL;
    ab_run_config_clear(&r->config);
}

/* What the record of the run says before it trains, and that it trained `steps` steps at one scale. */
static cJSON *record_of(const run *r, int steps) {
    cJSON *document = NULL, *cell;
    int *order = calloc((size_t)(r->config.rounds * r->count), sizeof *order);
    assert_non_null(order);
    assert_int_equal(
        ab_record_create(&r->config, &r->options, r->words, r->word, r->cells, r->count, order, &document),
        AB_OK);
    free(order);
    cJSON_ArrayForEach(cell, cJSON_GetObjectItem(document, "cells")) {
        cJSON *loss = cJSON_CreateArray(), *scale = cJSON_Parse("[[65536, 8]]");
        for (int i = 0; i < steps; i++) cJSON_AddItemToArray(loss, cJSON_CreateNumber(2.3));
        cJSON_DeleteItemFromObject(cell, "loss");
        cJSON_DeleteItemFromObject(cell, "scale");
        cJSON_AddItemToObject(cell, "loss", loss);
        cJSON_AddItemToObject(cell, "scale", scale);
    }
    return document;
}

/* ---- changes --------------------------------------------------------------------------------- */

static bool checked(const ab_facts *f, ab_remedy *r) { return ab_remedy_checked_scale(f, r); }
static bool higher(const ab_facts *f, ab_remedy *r) { return ab_remedy_higher_scale(f, 0x1p20, r); }
static bool highest(const ab_facts *f, ab_remedy *r) { return ab_remedy_higher_scale(f, 0x1p40, r); }
static bool lower(const ab_facts *f, ab_remedy *r) { return ab_remedy_higher_scale(f, 0x1p-3, r); }
static bool window(const ab_facts *f, ab_remedy *r) { return ab_remedy_longer_window(f, 2000, r); }
static bool rate(const ab_facts *f, ab_remedy *r) { return ab_remedy_rate(f, 1e-3, r); }
static bool no_rate(const ab_facts *f, ab_remedy *r) { return ab_remedy_rate(f, 0, r); }
static bool clip(const ab_facts *f, ab_remedy *r) { return ab_remedy_no_fault(f, "clip_before_unscale", r); }
static bool inputs(const ab_facts *f, ab_remedy *r) { return ab_remedy_no_fault(f, "nan_inputs", r); }
static bool longer(const ab_facts *f, ab_remedy *r) { return ab_remedy_times_steps(f, 4, r); }
static bool a_bit_longer(const ab_facts *f, ab_remedy *r) {
    return ab_remedy_rate(f, 0.5, r) && ab_remedy_more_steps(f, r);
}
static bool layer(const ab_facts *f, ab_remedy *r) { return ab_remedy_keep_fp32(f, "fc1", r); }
static bool no_layer(const ab_facts *f, ab_remedy *r) { return ab_remedy_keep_fp32(f, "fc1.weight", r); }

static bool (*const changes[])(const ab_facts *, ab_remedy *) = {checked,
                                                                 higher,
                                                                 highest,
                                                                 lower,
                                                                 window,
                                                                 rate,
                                                                 no_rate,
                                                                 clip,
                                                                 inputs,
                                                                 longer,
                                                                 a_bit_longer,
                                                                 ab_remedy_masters,
                                                                 ab_remedy_wide_state,
                                                                 ab_remedy_wide_sums,
                                                                 ab_remedy_wide_average,
                                                                 ab_remedy_wide_statistics,
                                                                 ab_remedy_wide_batch_norm,
                                                                 ab_remedy_bf16,
                                                                 layer,
                                                                 no_layer,
                                                                 ab_remedy_constant_rate};

/* The options of the run with those of the remedy behind them; a user repeats the layers of an earlier --to.
 */
static void both(const char *text, const ab_remedy *remedy, char *line) {
    const char *to = strstr(text, "--to ");
    int n = snprintf(line, LINE, "%s", text);
    for (int i = 0; i < remedy->options; i++) {
        const bool layers = to && i % 2 == 1 && strcmp(remedy->option[i - 1], "--to") == 0;
        n += snprintf(line + n, LINE - (size_t)n, " %.*s%s%s", layers ? (int)strcspn(to + 5, " ") : 0,
                      layers ? to + 5 : "", layers ? "," : "", remedy->option[i]);
    }
}

static void expect_accepted(const char *text, const char *cell, const ab_remedy *remedy) {
    char line[LINE];
    run r;
    both(text, remedy, line);
    if (start(&r, line) != AB_OK) fail_msg("of %s: `%s` is refused: %s", cell, line, ab_error_message());
    assert_true(r.count > 0);
    end(&r);
}

static void ask(const char *text, const char *cell, const ab_facts *facts,
                bool (*change)(const ab_facts *, ab_remedy *)) {
    ab_remedy remedy = {.options = 0};
    const bool applies = change(facts, &remedy);
    assert_int_equal(applies, remedy.options > 0);
    assert_int_equal(applies, remedy.text[0] != '\0');
    if (applies) expect_accepted(text, cell, &remedy);
}

static void ask_all(const char *text, int steps) {
    run r;
    if (start(&r, text) != AB_OK) fail_msg("`%s`: %s", text, ab_error_message());
    cJSON *document = record_of(&r, steps);
    ab_cells cells;
    assert_int_equal(ab_cells_create(document, &cells), AB_OK);
    for (int i = 0; i < r.count; i++) {
        ab_facts facts;
        assert_int_equal(ab_facts_of(&cells, i, &ab_thresholds_default, &facts), AB_OK);
        if (!facts.baseline || cJSON_IsString(ab_json_at(facts.cell, "twin"))) continue;
        for (size_t k = 0; k < sizeof changes / sizeof *changes; k++)
            ask(text, r.cells[i].id, &facts, changes[k]);
    }
    ab_cells_free(&cells);
    cJSON_Delete(document);
    end(&r);
}

/* ---- tests ----------------------------------------------------------------------------------- */

#define NET "--net lenet5 --data synthetic --device cpu --batch 16 --steps 8 "

static void every_option_is_accepted_by_the_run_it_is_for(void **state) {
    (void)state;
    ask_all("--net lenet5 --data synthetic --device cpu --batch 16 --epochs 2", 8);
    ask_all(NET, 8); /* all levels of apex: some refuse what others take */
    ask_all(NET "--levels O0,O3 --optimizer adam --optimizer-state half", 8);
    ask_all(NET "--levels O0,torch:autocast,torch:half,deepspeed:fp16,megatron:fp16", 8);
    ask_all(NET "--levels O0,mindspore:O2,mindspore:O3,keras:mixed_float16", 8);
    ask_all(NET "--levels O0,O2 --scales adaloss", 8);
    ask_all(NET "--levels O0,O2,O3 --scales graphcore-als,megatron,128", 8);
    ask_all(NET "--levels O0,O3 --min-loss-scale 4 --max-loss-scale 128 --scales dynamic", 8);
    ask_all(NET "--levels O0,O3 --scale-window 4 --scales dynamic,keras", 8);
    ask_all(NET "--levels O0,O3 --min-loss-scale 1e-6 --scales dynamic", 8);
    ask_all(NET "--levels O0,O2 --accumulate half --ema 0.9 --ema-format half --schedule cosine:warmup=2", 8);
    ask_all(NET "--levels O0,O2,O3 --set cast_model_type=fp16 --to fc1=fp16", 8);
    ask_all(NET "--levels O0,O2 --clip-norm 1 --fault clip_before_unscale,nan_inputs", 8);
    ask_all(NET "--levels O0,O2 --set num_losses=2", 8);
    ask_all(NET "--levels O0,O3 --lr 0.1 --scales torch:window=3", 8);
}

/* One place makes words and options: they are the same, and a contradiction is not joined. */
static void text_holds_the_options(void **state) {
    (void)state;
    ab_remedy a = {.options = 0}, b = {.options = 0}, c = {.options = 0};
    ab_remedy_option(&a, "checked", "--scales", "%s", "dynamic");
    ab_remedy_add_text(&a, "or another");
    assert_string_equal(a.text, "--scales dynamic (checked); or another");
    ab_remedy_option(&b, NULL, "--set", "%s", "master_weights=True");
    ab_remedy_option(&b, NULL, "--scales", "%s", "dynamic");
    ab_remedy_join(&a, &b, "weight_update_lost");
    assert_string_equal(a.text, "--scales dynamic (checked); or another; also --set master_weights=True "
                                "(weight_update_lost)");
    assert_int_equal(a.options, 4);
    ab_remedy_option(&c, NULL, "--scales", "%s", "8");
    ab_remedy_join(&a, &c, "other");
    assert_int_equal(a.options, 4);
}

static int close_data(void **state) {
    (void)state;
    ab_data_close(data);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_option_is_accepted_by_the_run_it_is_for),
        cmocka_unit_test(text_holds_the_options),
    };
    return cmocka_run_group_tests(tests, NULL, close_data);
}
