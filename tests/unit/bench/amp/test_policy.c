/* Levels and overrides: every row of apex's preset and override tables, and what each error says. */
#include "bench/amp/policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_OVERRIDES = 4, MOST_WORDS = 3 };

static const ab_format *const fp16 = &ab_format_fp16, *const bf16 = &ab_format_bf16;

static const ab_level *level_called(const char *name) {
    const ab_level *level = NULL;
    assert_int_equal(ab_level_find(name, &level), AB_OK);
    assert_string_equal(level->name, name);
    return level;
}

static int count_of(const char *const *texts) {
    int count = 0;
    while (count < MOST_OVERRIDES && texts[count]) count++;
    return count;
}

static ab_policy resolved(const char *level, const ab_format *half, const char *const *overrides) {
    ab_policy policy;
    assert_int_equal(ab_policy_resolve(level_called(level), half, overrides, count_of(overrides), &policy),
                     AB_OK);
    return policy;
}

/* ---- presets --------------------------------------------------------------------------------- */

typedef struct preset {
    const char *level;
    ab_cast_model cast;
    bool patch;
    ab_tristate keep, master;
    bool dynamic;
} preset;

static const preset presets[] = {
    {"O0", AB_CAST_fp32, false, AB_TRI_none, AB_TRI_false, false},
    {"O1", AB_CAST_none, true, AB_TRI_none, AB_TRI_none, true},
    {"O2", AB_CAST_half, false, AB_TRI_true, AB_TRI_true, true},
    {"O3", AB_CAST_half, false, AB_TRI_false, AB_TRI_false, false},
};

static void has_properties(const ab_policy *policy, const preset *expected) {
    assert_int_equal(policy->cast_model_type, expected->cast);
    assert_int_equal(policy->patch_torch_functions, expected->patch);
    assert_int_equal(policy->keep_batchnorm_fp32, expected->keep);
    assert_int_equal(policy->master_weights, expected->master);
    assert_int_equal(policy->loss_scale.dynamic, expected->dynamic);
    if (!expected->dynamic) assert_true(policy->loss_scale.value == 1.0);
}

static void presets_are_apexs(void **state) {
    (void)state;
    static const char *const none[MOST_OVERRIDES] = {NULL};
    assert_true(ab_level_count() >= (int)AB_COUNT_OF(presets)); /* others' come behind */
    for (size_t i = 0; i < AB_COUNT_OF(presets); i++) {
        assert_string_equal(ab_level_at((int)i)->name, presets[i].level);
        ab_policy policy = resolved(presets[i].level, bf16, none);
        has_properties(&policy, &presets[i]);
        assert_string_equal(policy.level, presets[i].level);
        assert_ptr_equal(policy.half, bf16);
    }
}

static void cast_model_type_is_told_in_the_users_words(void **state) {
    (void)state;
    static const char *const none[MOST_OVERRIDES] = {NULL};
    ab_policy o0 = resolved("O0", fp16, none), o1 = resolved("O1", fp16, none),
              o2 = resolved("O2", bf16, none);
    assert_string_equal(ab_policy_cast_text(&o0), "fp32");
    assert_null(ab_policy_cast_text(&o1));
    assert_string_equal(ab_policy_cast_text(&o2), "bf16");
    assert_string_equal(ab_tristate_text(AB_TRI_none), "None");
    assert_string_equal(ab_tristate_text(AB_TRI_false), "False");
    assert_string_equal(ab_tristate_text(AB_TRI_true), "True");
}

/* An override of None means "not given": nothing can be overridden to None. */
static void none_leaves_every_preset_as_it_is(void **state) {
    (void)state;
    static const char *const properties[] = {"cast_model_type=None", "patch_torch_functions=None",
                                             "keep_batchnorm_fp32=None", "master_weights=None",
                                             "loss_scale=None"};
    for (size_t i = 0; i < AB_COUNT_OF(presets); i++)
        for (size_t p = 0; p < AB_COUNT_OF(properties); p++) {
            const char *const overrides[MOST_OVERRIDES] = {properties[p]};
            ab_policy policy = resolved(presets[i].level, fp16, overrides);
            has_properties(&policy, &presets[i]);
        }
}

/* ---- overrides that are accepted ------------------------------------------------------------- */

typedef enum field { CAST, PATCH, KEEP, MASTER } field;

static int field_of(const ab_policy *policy, field which) {
    const int values[] = {(int)policy->cast_model_type, policy->patch_torch_functions,
                          (int)policy->keep_batchnorm_fp32, (int)policy->master_weights};
    return values[which];
}

static void is_accepted(const char *level, const char *override, field which, int expected) {
    const char *const overrides[MOST_OVERRIDES] = {override};
    ab_policy policy = resolved(level, fp16, overrides);
    assert_int_equal(field_of(&policy, which), expected);
}

static void each_level_accepts_what_apex_accepts(void **state) {
    (void)state;
    static const char *const without_o1[] = {"O0", "O2", "O3"};
    for (size_t i = 0; i < AB_COUNT_OF(without_o1); i++) {
        const char *level = without_o1[i];
        is_accepted(level, "cast_model_type=fp16", CAST, AB_CAST_half);
        is_accepted(level, "cast_model_type=half", CAST, AB_CAST_half);
        is_accepted(level, "cast_model_type=torch.float16", CAST, AB_CAST_half);
        is_accepted(level, "cast_model_type=float32", CAST, AB_CAST_fp32);
        is_accepted(level, "cast_model_type=False", CAST, AB_CAST_none);
        is_accepted(level, "patch_torch_functions=False", PATCH, false);
        is_accepted(level, "keep_batchnorm_fp32=True", KEEP, AB_TRI_true);
        is_accepted(level, "keep_batchnorm_fp32=False", KEEP, AB_TRI_false);
        is_accepted(level, "master_weights=True", MASTER, AB_TRI_true);
        is_accepted(level, "master_weights=False", MASTER, AB_TRI_false);
    }
    is_accepted("O1", "cast_model_type=fp32", CAST, AB_CAST_fp32);
    is_accepted("O1", "cast_model_type=torch.float32", CAST, AB_CAST_fp32);
    is_accepted("O1", "cast_model_type=False", CAST, AB_CAST_none);
    is_accepted("O1", "patch_torch_functions=False", PATCH, false);
    is_accepted("O1", "patch_torch_functions=True", PATCH, true);
}

static void a_loss_scale_can_be_overridden_at_every_level(void **state) {
    (void)state;
    for (size_t i = 0; i < AB_COUNT_OF(presets); i++) {
        const char *const fixed[MOST_OVERRIDES] = {"loss_scale=128.0"};
        const char *const dynamic[MOST_OVERRIDES] = {"loss_scale=dynamic"};
        ab_policy policy = resolved(presets[i].level, fp16, fixed);
        assert_false(policy.loss_scale.dynamic);
        assert_true(policy.loss_scale.value == 128.0);
        policy = resolved(presets[i].level, fp16, dynamic);
        assert_true(policy.loss_scale.dynamic);
    }
}

static void overrides_apply_in_order_and_the_last_wins(void **state) {
    (void)state;
    const char *const overrides[MOST_OVERRIDES] = {"master_weights=False", "loss_scale=8",
                                                   "master_weights=True", "loss_scale=dynamic"};
    ab_policy policy = resolved("O3", fp16, overrides);
    assert_int_equal(policy.master_weights, AB_TRI_true);
    assert_true(policy.loss_scale.dynamic);
    assert_int_equal(policy.keep_batchnorm_fp32, AB_TRI_false); /* the rest stays */
}

/* ---- overrides that are refused -------------------------------------------------------------- */

typedef struct refusal {
    const char *level, *override;
    const char *word[MOST_WORDS]; /* what the message must say */
} refusal;

static const refusal refusals[] = {
    {"O1", "cast_model_type=fp16", {"cast_model_type=fp16", "keeps the weights in fp32", "O2 or O3"}},
    {"O1", "cast_model_type=half", {"cast_model_type=half", "O1", "O2 or O3"}},
    {"O0", "patch_torch_functions=True", {"patch_torch_functions", "O0", "--levels O1"}},
    {"O2", "patch_torch_functions=True", {"patch_torch_functions", "O2", "--levels O1"}},
    {"O3", "patch_torch_functions=True", {"patch_torch_functions", "O3", "--levels O1"}},
    {"O1", "keep_batchnorm_fp32=True", {"keep_batchnorm_fp32=True", "leave it None", "O2"}},
    {"O1", "keep_batchnorm_fp32=False", {"keep_batchnorm_fp32=False", "leave it None"}},
    {"O1",
     "keep_batchnorm_fp32=perhaps",
     {"keep_batchnorm_fp32=perhaps", "leave it None"}}, /* before the type */
    {"O0", "keep_batchnorm_fp32=1", {"keep_batchnorm_fp32", "True, False or None", "'1'"}},
    {"O2", "keep_batchnorm_fp32=perhaps", {"keep_batchnorm_fp32", "True, False or None", "'perhaps'"}},
    {"O3", "keep_batchnorm_fp32=", {"keep_batchnorm_fp32", "True, False or None", "''"}},
    {"O1", "master_weights=True", {"master_weights=True", "fp32 already", "leave it None"}},
    {"O1", "master_weights=False", {"master_weights=False", "fp32 already"}}, /* False counts as given */
    {"O2", "master_weights=yes", {"master_weights", "True, False or None", "'yes'"}},
    {"O2", "cast_model_type=fp64", {"cast_model_type", "fp32, half, fp16, bf16 or False", "'fp64'"}},
    {"O2", "cast_model_type=bf16", {"cast_model_type=bf16", "--half fp16"}},
    {"O2", "patch_torch_functions=2", {"patch_torch_functions", "True, False or None", "'2'"}},
    {"O2", "loss_scale=big", {"loss_scale", "default, dynamic, a number", "'big'"}},
    {"O2", "loss_scale=0", {"loss_scale", "above 0", "'0'"}},
    {"O2", "loss_scale=-2", {"loss_scale", "above 0", "'-2'"}},
    {"O2", "loss_scale=nan", {"loss_scale", "above 0", "'nan'"}},
    {"O2", "loss_scale=1e39", {"loss_scale", "what fp32 holds", "'1e39'"}},
    {"O2",
     "keep_batchnorm=True",
     {"unknown property 'keep_batchnorm'", "did you mean 'keep_batchnorm_fp32'"}},
    {"O2", "opt_level=O1", {"unknown property 'opt_level'", "master_weights"}},
    {"O2", "master_weights", {"property=value", "'master_weights'"}},
    {"O2", "", {"property=value", "''"}},
    {"O2", "=True", {"unknown property ''"}},
};

static void each_refusal_names_the_option_and_the_remedy_in_one_line(void **state) {
    (void)state;
    for (size_t i = 0; i < AB_COUNT_OF(refusals); i++) {
        const refusal *row = &refusals[i];
        ab_policy policy;
        assert_int_equal(ab_policy_resolve(level_called(row->level), fp16, &row->override, 1, &policy),
                         AB_USAGE);
        const char *message = ab_error_message();
        assert_memory_equal(message, "--set", 5);
        assert_null(strchr(message, '\n'));
        for (int w = 0; w < MOST_WORDS && row->word[w]; w++) {
            if (!strstr(message, row->word[w]))
                fail_msg("%s at %s: \"%s\" lacks \"%s\"", row->override, row->level, message, row->word[w]);
        }
    }
}

static void a_refused_override_is_refused_in_any_company(void **state) {
    (void)state;
    const char *const overrides[] = {"loss_scale=8", "keep_batchnorm_fp32=None", "master_weights=False"};
    ab_policy policy;
    assert_int_equal(ab_policy_resolve(level_called("O1"), fp16, overrides, 3, &policy), AB_USAGE);
    assert_non_null(strstr(ab_error_message(), "master_weights"));
}

/* ---- level names ----------------------------------------------------------------------------- */

static void a_zero_typed_for_the_letter_is_told(void **state) {
    (void)state;
    static const struct {
        const char *typed, *meant;
    } rows[] = {{"0", "'O0'"},  {"1", "'O1'"},  {"2", "'O2'"}, {"3", "'O3'"},
                {"00", "'O0'"}, {"01", "'O1'"}, {"o2", "'O2'"}};
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
        const ab_level *level;
        assert_int_equal(ab_level_find(rows[i].typed, &level), AB_USAGE);
        assert_non_null(strstr(ab_error_message(), "letter O"));
        assert_non_null(strstr(ab_error_message(), rows[i].meant));
    }
}

static void other_unknown_levels_get_the_list(void **state) {
    (void)state;
    static const char *const names[] = {"O4", "O", "", "opt2", "O22", "O0 ", "4", "04"};
    for (size_t i = 0; i < AB_COUNT_OF(names); i++) {
        const ab_level *level;
        assert_int_equal(ab_level_find(names[i], &level), AB_USAGE);
        assert_non_null(strstr(ab_error_message(), "expected O0, O1, O2 or O3"));
        assert_null(strstr(ab_error_message(), "letter O"));
    }
}

/* ---- loss scales ----------------------------------------------------------------------------- */

static void loss_scales_are_read_and_written_back(void **state) {
    (void)state;
    static const struct {
        const char *text, *back;
    } rows[] = {{"dynamic", "dynamic"},  {"1", "1"},         {"128.0", "128"},
                {"65536", "65536"},      {"0.5", "0.5"},     {"1e3", "1000"},
                {"3e38", "3e+38"},       {"1e-40", "1e-40"}, {"0x1p10", "1024"},
                {"16777216", "16777216"}};
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
        ab_loss_scale scale;
        char text[AB_SCALER_TEXT];
        assert_int_equal(ab_loss_scale_parse("--scales", rows[i].text, &scale), AB_OK);
        assert_string_equal(ab_loss_scale_text(&scale, text), rows[i].back);
    }
}

static void impossible_loss_scales_are_refused(void **state) {
    (void)state;
    static const char *const texts[] = {"0",    "-0",    "-1",       "nan",     "-nan", "inf",
                                        "-inf", "1e39",  "3.5e38",   "",        "1x",   "Dynamic",
                                        "1 2",  "1e-60", "dynamic ", "default", "1,5"};
    for (size_t i = 0; i < AB_COUNT_OF(texts); i++) {
        ab_loss_scale scale;
        assert_int_equal(ab_loss_scale_parse("--scales", texts[i], &scale), AB_USAGE);
        assert_memory_equal(ab_error_message(), "--scales: expected ", 19);
        assert_non_null(strstr(ab_error_message(), texts[i]));
    }
}

/* A label holds what overrides changed of the level's row, in one order and spelling; it is an item of
 * --levels. */
static void a_label_names_what_overrides_changed(void **state) {
    (void)state;
    static const struct {
        const char *level, *set[MOST_OVERRIDES], *own[MOST_OVERRIDES], *label;
    } rows[] = {{"O2", {NULL}, {NULL}, "O2"},
                {"O2", {"keep_batchnorm_fp32=true"}, {"loss_scale=128", "verbosity=1"}, "O2"},
                {"O3", {NULL}, {"keep_batchnorm_fp32=true"}, "O3:keep_batchnorm_fp32=True"},
                {"O3",
                 {"master_weights=True"},
                 {"cast_model_outputs=half", "keep_batchnorm_fp32=True"},
                 "O3:keep_batchnorm_fp32=True,master_weights=True,cast_model_outputs=fp16"},
                {"O3",
                 {"keep_batchnorm_fp32=True"},
                 {"keep_batchnorm_fp32=False"},
                 "O3"}, /* the entry's own counts */
                {"O1", {"enabled=False"}, {NULL}, "O1:enabled=False"},
                {"O2", {"num_losses=2"}, {"enabled=False"}, "O2:enabled=False"},
                {"O2", {"enabled=False"}, {"enabled=True"}, "O2"},
                {"O2", {"num_losses=2", "math=ieee"}, {NULL}, "O2:num_losses=2,math=ieee"},
                {"O0", {NULL}, {"optimizer_state=half"}, "O0:optimizer_state=fp16"},
                {"O2", {NULL}, {"optimizer_state=weights"}, "O2:optimizer_state=weights"},
                {"O1", {NULL}, {"cast_model_type=False"}, "O1"},
                {"mindspore:O2", {NULL}, {"cast_model_type=fp32"}, "mindspore:O2:cast_model_type=fp32"}};
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
        ab_policy policy;
        const ab_level *level = level_called(rows[i].level);
        assert_int_equal(ab_policy_resolve_entry(level, fp16, rows[i].set, count_of(rows[i].set), rows[i].own,
                                                 count_of(rows[i].own), &policy),
                         AB_OK);
        assert_string_equal(policy.label, rows[i].label);
    }
}

static void an_error_names_the_option_that_it_came_from(void **state) {
    (void)state;
    static const char *const bad[] = {"keep_batchnorm_fp32=maybe", "cast_model_outputs=fp8", "num_losses=0",
                                      "verbosity=2", "loss_scale=-1"};
    for (size_t i = 0; i < AB_COUNT_OF(bad); i++) {
        ab_policy policy;
        assert_int_equal(ab_policy_resolve_entry(level_called("O2"), fp16, &bad[i], 1, NULL, 0, &policy),
                         AB_USAGE);
        assert_int_equal(strncmp(ab_error_message(), "--set ", 6), 0);
        assert_int_equal(ab_policy_resolve_entry(level_called("O2"), fp16, NULL, 0, &bad[i], 1, &policy),
                         AB_USAGE);
        assert_int_equal(strncmp(ab_error_message(), "--levels ", 9), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(presets_are_apexs),
        cmocka_unit_test(cast_model_type_is_told_in_the_users_words),
        cmocka_unit_test(none_leaves_every_preset_as_it_is),
        cmocka_unit_test(each_level_accepts_what_apex_accepts),
        cmocka_unit_test(a_loss_scale_can_be_overridden_at_every_level),
        cmocka_unit_test(overrides_apply_in_order_and_the_last_wins),
        cmocka_unit_test(each_refusal_names_the_option_and_the_remedy_in_one_line),
        cmocka_unit_test(a_refused_override_is_refused_in_any_company),
        cmocka_unit_test(a_zero_typed_for_the_letter_is_told),
        cmocka_unit_test(other_unknown_levels_get_the_list),
        cmocka_unit_test(loss_scales_are_read_and_written_back),
        cmocka_unit_test(impossible_loss_scales_are_refused),
        cmocka_unit_test(a_label_names_what_overrides_changed),
        cmocka_unit_test(an_error_names_the_option_that_it_came_from),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
