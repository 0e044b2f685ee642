/* Other frameworks' levels: torch's autocast op by op as torch 2.11 recorded it (tests/golden/autocast.json,
 * made by scripts/peer_autocast.py), the formats of the other levels on a small network, and layers with
 * formats of their own. */
#include "bench/amp/layer_formats.h"
#include "bench/amp/plan/plan.h"
#include "tests/support/json_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const ab_format *fp16, *bf16;
static const ab_format *const fp32 = &ab_format_fp32;

static int find_formats(void **state) {
    (void)state;
    return ab_format_find("fp16", &fp16) != AB_OK || ab_format_find("bf16", &bf16) != AB_OK;
}

static ab_net *parsed(const char *text) {
    ab_net *net = NULL;
    if (ab_net_parse(text, strlen(text), "case.json", &net) != AB_OK) fail_msg("%s", ab_error_message());
    return net;
}

static ab_policy policy_of(const char *name, const ab_format *half, const char *override) {
    const ab_level *level;
    ab_policy policy;
    assert_int_equal(ab_level_find(name, &level), AB_OK);
    if (ab_policy_resolve(level, half, &override, override != NULL, &policy) != AB_OK)
        fail_msg("%s", ab_error_message());
    return policy;
}

static ab_plan *planned(const ab_net *net, const ab_policy *policy) {
    ab_plan *plan = NULL;
    if (ab_plan_create(net, policy, 4, 1, &plan) != AB_OK) fail_msg("%s", ab_error_message());
    return plan;
}

static const ab_plan_node *node_of(const ab_plan *plan, const char *name) {
    for (int n = 0; n < plan->nodes; n++) {
        const ab_net_op *op = ab_plan_node_op(plan, &plan->node[n]);
        if (op && strcmp(op->name, name) == 0) return &plan->node[n];
    }
    fail_msg("no op %s", name);
    return NULL;
}

static const ab_format *format_of(const ab_plan *plan, const char *tensor) {
    int i = ab_plan_find(plan, tensor);
    if (i == AB_NONE) fail_msg("no tensor %s", tensor);
    return plan->tensor[i].format;
}

/* ---- torch's autocast ------------------------------------------------------------------------ */

static const char *short_name(const ab_format *format) { return format == fp32 ? "fp32" : "half"; }

static int check_ops(const cJSON *ops, const char *text, const ab_format *half) {
    ab_net *net = parsed(text);
    ab_policy policy = policy_of("torch:autocast-cpu", half, NULL);
    ab_plan *plan = planned(net, &policy);
    const cJSON *op;
    int count = 0;
    cJSON_ArrayForEach(op, ops) {
        const char *name = cJSON_GetObjectItemCaseSensitive(op, "op")->valuestring;
        const cJSON *ran = cJSON_GetObjectItemCaseSensitive(op, "ran"),
                    *out = cJSON_GetObjectItemCaseSensitive(op, "out");
        const ab_plan_node *node = node_of(plan, name);
        const char *found = short_name(plan->tensor[node->out].format);
        if (strcmp(found, out->valuestring) != 0)
            fail_msg("%s: torch gives %s, the plan %s, in %s", name, out->valuestring, found, text);
        count++;
        if (cJSON_IsNull(ran)) continue;
        found = short_name(plan->tensor[node->in[0]].format);
        if (strcmp(found, ran->valuestring) != 0)
            fail_msg("%s: torch runs it in %s, the plan in %s, in %s", name, ran->valuestring, found, text);
    }
    ab_plan_destroy(plan);
    ab_net_free(net);
    return count;
}

static void autocast_on_the_cpu_is_torchs_op_by_op(void **state) {
    (void)state;
    cJSON *file = ab_test_read_json(AB_SOURCE_DIR "/tests/golden/autocast.json");
    assert_non_null(file);
    const cJSON *one;
    int count = 0;
    cJSON_ArrayForEach(one, cJSON_GetObjectItemCaseSensitive(file, "cases")) {
        char *text = cJSON_PrintUnformatted(cJSON_GetObjectItemCaseSensitive(one, "net"));
        count += check_ops(cJSON_GetObjectItemCaseSensitive(one, "bf16"), text, bf16);
        count += check_ops(cJSON_GetObjectItemCaseSensitive(one, "fp16"), text, fp16);
        cJSON_free(text);
    }
    cJSON_Delete(file);
    assert_true(count > 460);
}

static void autocast_on_cuda_has_the_rules_that_torch_ships(void **state) {
    (void)state;
    static const char *const rules[] = {[AB_RULE_low] = "low",
                                        [AB_RULE_fp32] = "fp32",
                                        [AB_RULE_fp32_out] = "fp32_out",
                                        [AB_RULE_promote] = "promote",
                                        [AB_RULE_follow] = "follow"};
    cJSON *file = ab_test_read_json(AB_SOURCE_DIR "/tests/golden/autocast.json");
    const cJSON *table = cJSON_GetObjectItemCaseSensitive(file, "cuda_rules");
    int count = 0;
    for (int i = 0; i < ab_op_count(); i++) {
        const cJSON *expected = cJSON_GetObjectItemCaseSensitive(table, ab_op_at(i)->name);
        if (!expected) continue; /* an op that torch does not have, or newer than the recording */
        assert_string_equal(rules[ab_op_rule_of(AB_LIST_torch_cuda, i)], expected->valuestring);
        count++;
    }
    cJSON_Delete(file);
    assert_true(count >= 35);
}

/* ---- the other levels ------------------------------------------------------------------------ */

static const char small[] =
    "{\"format\": \"ampbench-net-1\", \"name\": \"small\", \"input\": {\"height\": 8, \"width\": 8, "
    "\"channels\": 2}, \"ops\": ["
    "{\"name\": \"block.0.conv\", \"op\": \"conv2d\", \"out_channels\": 4, \"kernel_size\": 3},"
    "{\"name\": \"block.0.bn\", \"op\": \"batch_norm2d\"},"
    "{\"name\": \"block.1.conv\", \"op\": \"conv2d\", \"out_channels\": 4, \"kernel_size\": 3},"
    "{\"name\": \"relu\", \"op\": \"relu\"},"
    "{\"name\": \"flat\", \"op\": \"flatten\"},"
    "{\"name\": \"ln\", \"op\": \"layer_norm\"},"
    "{\"name\": \"fc\", \"op\": \"linear\", \"out_features\": 3},"
    "{\"name\": \"loss\", \"op\": \"cross_entropy\"}]}";

/* How a level treats weights: h half, f fp32; stored, read by the op. */
static void levels_store_and_read_weights_as_their_frameworks_do(void **state) {
    (void)state;
    static const struct {
        const char *level, *conv, *bn, *ln, *out; /* stored and read */
        bool master;
        const char *scaler;
    } rows[] = {{"torch:autocast", "fh", "ff", "ff", "h", false, "torch"},
                {"torch:half", "hh", "hh", "hh", "h", false, "fixed"},
                {"mindspore:O0", "ff", "ff", "ff", "f", false, "fixed"},
                {"mindspore:O2", "fh", "ff", "ff", "h", false, "mindspore-cell"},
                {"mindspore:O3", "fh", "fh", "fh", "h", false, "fixed"},
                {"mindspore:auto", "fh", "ff", "ff", "h", false, "mindspore-cell"},
                {"deepspeed:fp16", "hh", "hh", "hh", "h", true, "deepspeed"},
                {"megatron:fp16", "hh", "hh", "hh", "h", true, "megatron"},
                {"keras:mixed_float16", "fh", "ff", "fh", "h", false, "keras"}};
    ab_net *net = parsed(small);
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
        ab_policy policy = policy_of(rows[i].level, fp16, NULL);
        ab_plan *plan = planned(net, &policy);
        const char *const names[] = {"block.0.conv", "block.0.bn", "ln"}, *const want[] = {rows[i].conv,
                                                                                           rows[i].bn,
                                                                                           rows[i].ln};
        for (int n = 0; n < 3; n++) {
            const ab_plan_param *param = &plan->param[node_of(plan, names[n])->first_param];
            char found[3] = {plan->tensor[param->stored].format == fp32 ? 'f' : 'h',
                             plan->tensor[param->used].format == fp32 ? 'f' : 'h', '\0'};
            if (strcmp(found, want[n]) != 0)
                fail_msg("%s: %s is %s, expected %s", rows[i].level, names[n], found, want[n]);
            assert_int_equal(param->master != AB_NONE, rows[i].master);
        }
        assert_true((format_of(plan, "block.0.conv.out") == fp32) == (rows[i].out[0] == 'f'));
        assert_ptr_equal(plan->tensor[node_of(plan, "loss")->in[0]].format, fp32);
        assert_string_equal(policy.loss_scale.scaler.kind->name, rows[i].scaler);
        ab_plan_destroy(plan);
    }
    ab_net_free(net);
}

/* apex's fused norms: {input, parameters, output} at a level; NULL: refused. */
static void apexs_norms_have_apexs_formats(void **state) {
    (void)state;
    static const struct {
        const char *level, *op, *formats;
    } rows[] = {{"O0", "fused_layer_norm", "fff"},
                {"O1", "fused_layer_norm", NULL},
                {"O2", "fused_rms_norm", "hhh"},
                {"O3", "fused_layer_norm", "hhh"},
                {"torch:autocast", "fused_rms_norm", "hhh"},
                {"keras:mixed_float16", "fused_layer_norm", "hhh"},
                {"O0", "mixed_fused_layer_norm", "fff"},
                {"O1", "mixed_fused_layer_norm", "hff"},
                {"O1", "mixed_fused_rms_norm", "hff"},
                {"O2", "mixed_fused_layer_norm", "hhh"},
                {"torch:autocast", "mixed_fused_layer_norm", "hhh"}};
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
        char text[2048];
        const char *at = strstr(small, "layer_norm");
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - small), small, rows[i].op,
                 at + strlen("layer_norm"));
        ab_net *net = parsed(text);
        ab_policy policy = policy_of(rows[i].level, fp16, NULL);
        ab_plan *plan = NULL;
        const ab_status status = ab_plan_create(net, &policy, 4, 1, &plan);
        if (!rows[i].formats) {
            assert_int_equal(status, AB_CONFIG);
            assert_non_null(strstr(ab_error_message(), "use mixed_fused_layer_norm"));
        } else {
            assert_int_equal(status, AB_OK);
            const ab_plan_node *node = node_of(plan, "ln");
            const int tensor[] = {node->in[0], plan->param[node->first_param].used, node->out};
            for (int t = 0; t < 3; t++)
                if ((plan->tensor[tensor[t]].format == fp32) != (rows[i].formats[t] == 'f'))
                    fail_msg("%s at %s: tensor %d is not %c", rows[i].op, rows[i].level, t,
                             rows[i].formats[t]);
            ab_plan_destroy(plan);
        }
        ab_net_free(net);
    }
}

/* Running statistics are never copied to half for reading: the copy would be updated and lost. */
static void running_statistics_are_used_where_they_are_stored(void **state) {
    (void)state;
    ab_net *net = parsed(small);
    for (int l = 0; l < ab_level_count(); l++) {
        ab_policy policy = policy_of(ab_level_at(l)->name, fp16, NULL);
        ab_plan *plan = planned(net, &policy);
        int buffers = 0;
        for (int p = 0; p < plan->params; p++) {
            const ab_plan_param *param = &plan->param[p];
            if (net->op[param->net_op].param[param->index].kind != AB_PARAM_BUFFER) continue;
            assert_int_equal(param->used, param->stored);
            buffers++;
        }
        assert_int_equal(buffers, 2);
        ab_plan_destroy(plan);
    }
    ab_net_free(net);
}

static void every_level_says_where_it_comes_from(void **state) {
    (void)state;
    for (int i = 0; i < ab_level_count(); i++) {
        ab_policy policy = policy_of(ab_level_at(i)->name, fp16, NULL);
        assert_true(strlen(ab_level_at(i)->origin) > 3);
        assert_string_equal(policy.level, ab_level_at(i)->name); /* not cut */
    }
}

/* ---- properties ------------------------------------------------------------------------------ */

static void enabled_false_is_plain_fp32(void **state) {
    (void)state;
    ab_net *net = parsed(small);
    for (int l = 0; l < ab_level_count(); l++) {
        if (strncmp(ab_level_at(l)->name, "mindspore:", 10) == 0) continue;
        ab_policy policy = policy_of(ab_level_at(l)->name, fp16, "enabled=False");
        ab_plan *plan = planned(net, &policy);
        for (int t = 0; t < plan->tensors; t++)
            assert_true(!plan->tensor[t].format || plan->tensor[t].format == fp32);
        assert_int_equal(plan->activation_casts + plan->weight_casts, 0);
        assert_false(policy.loss_scale.dynamic);
        ab_plan_destroy(plan);
    }
    ab_net_free(net);
}

static void model_outputs_pass_through_the_format_asked_for(void **state) {
    (void)state;
    ab_net *net = parsed(small);
    ab_policy policy = policy_of("O0", fp16, "cast_model_outputs=half");
    ab_plan *plan = planned(net, &policy);
    assert_int_equal(plan->activation_casts, 1); /* the logits to half, which the loss reads */
    assert_ptr_equal(format_of(plan, "fc.out.fp16"), fp16);
    assert_ptr_equal(plan->tensor[plan->loss[0]].format, fp16);
    ab_plan_destroy(plan);
    static const char *const levels[] = {"O2", "O3"};
    for (size_t i = 0; i < AB_COUNT_OF(levels); i++) {
        policy = policy_of(levels[i], fp16, NULL);
        ab_plan *row = planned(net, &policy);
        policy = policy_of(levels[i], fp16, "cast_model_outputs=half");
        plan = planned(net, &policy);
        assert_int_equal(plan->activation_casts, row->activation_casts - 1);
        assert_ptr_equal(row->tensor[row->loss[0]].format, fp32);
        assert_ptr_equal(plan->tensor[plan->loss[0]].format, fp16);
        assert_ptr_equal(plan->tensor[plan->loss_grad[0]].format, fp16);
        ab_plan_destroy(row);
        ab_plan_destroy(plan);
    }
    policy = policy_of("O1", fp16, "cast_model_outputs=half"); /* the loss is on the fp32 list */
    plan = planned(net, &policy);
    assert_ptr_equal(plan->tensor[plan->loss[0]].format, fp32);
    ab_plan_destroy(plan);
    policy = policy_of("O0", fp16, "cast_model_outputs=fp32");
    plan = planned(net, &policy);
    assert_int_equal(plan->activation_casts, 0);
    ab_plan_destroy(plan);
    policy = policy_of("O2", fp16, "cast_model_outputs=fp32");
    plan = planned(net, &policy);
    ab_policy preset = policy_of("O2", fp16, NULL);
    ab_plan *same = planned(net, &preset);
    assert_int_equal(plan->activation_casts, same->activation_casts);
    ab_plan_destroy(same);
    ab_plan_destroy(plan);
    ab_net_free(net);
}

static void contradictions_are_told_with_the_remedy(void **state) {
    (void)state;
    static const char *const rows[][3] = {
        {"torch:autocast", "keep_batchnorm_fp32=True", "at torch:autocast batch norm follows its input"},
        {"torch:autocast", "master_weights=True", "at torch:autocast the weights are fp32 already"},
        {"torch:autocast", "cast_model_type=half", "casts around functions and keeps the weights in fp32"},
        {"torch:half", "patch_torch_functions=True", "choose --levels O1"},
        {"keras:mixed_float16", "master_weights=True", "the weights are fp32 already"},
        {"mindspore:O2", "master_weights=True", "may override only cast_model_type"},
        {"O2", "cast_model_outputs=fp8", "expected fp32, half"},
        {"O2", "enabled=maybe", "True, False or None"},
        {"O2", "num_loses=2", "unknown property"}};
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
        const ab_level *level;
        ab_policy policy;
        assert_int_equal(ab_level_find(rows[i][0], &level), AB_OK);
        assert_int_equal(ab_policy_resolve(level, fp16, &rows[i][1], 1, &policy), AB_USAGE);
        if (!strstr(ab_error_message(), rows[i][2])) fail_msg("%s", ab_error_message());
    }
}

/* ---- layers with formats of their own -------------------------------------------------------- */

static ab_status layers(const ab_net *net, const char *text, const ab_format **format) {
    ab_layer_format own[8];
    ab_status status = ab_layer_formats(text, net, fp16, own);
    for (int i = 0; i < net->ops; i++) format[i] = own[i].whole;
    return status;
}

static void patterns_match_layers_and_blocks(void **state) {
    (void)state;
    ab_net *net = parsed(small);
    const ab_format *format[8];
    assert_int_equal(layers(net, "block.0.conv=fp32", format), AB_OK);
    assert_true(format[0] == fp32 && !format[1] && !format[2]);
    assert_int_equal(layers(net, "block.*.conv=half", format), AB_OK);
    assert_true(format[0] == fp16 && !format[1] && format[2] == fp16);
    assert_int_equal(layers(net, "block.0=fp16,block.0.bn=fp32", format),
                     AB_OK); /* a block, then a part of it */
    assert_true(format[0] == fp16 && format[1] == fp32 && !format[2]);
    assert_int_equal(layers(net, "block=fp32", format), AB_OK);
    assert_true(format[0] == fp32 && format[2] == fp32 && !format[3]);
    ab_net_free(net);
}

static void a_pattern_that_matches_nothing_is_an_error(void **state) {
    (void)state;
    static const char *const rows[][2] = {{"relo=fp32", "did you mean 'relu'?"},
                                          {"block.*.attn=fp32", "no layer of small matches 'block.*.attn'"},
                                          {"rel=fp32,fc=fp32", "did you mean 'relu'?"},
                                          {"fc=fp8", "expected fp32, half or fp16"},
                                          {"fc=bf16", "what --half says"},
                                          {"fc", "expected LAYER=FORMAT"},
                                          {"=fp32", "expected LAYER=FORMAT"},
                                          {"", "expected LAYER=FORMAT"},
                                          {"fc=fp32,", "expected LAYER=FORMAT"}};
    ab_net *net = parsed(small);
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
        const ab_format *format[8];
        assert_int_equal(layers(net, rows[i][0], format), AB_USAGE);
        if (!strstr(ab_error_message(), rows[i][1])) fail_msg("%s: %s", rows[i][0], ab_error_message());
    }
    ab_net_free(net);
}

static void an_fp32_island_in_a_half_model(void **state) {
    (void)state;
    ab_net *net = parsed(small);
    ab_policy policy = policy_of("O3", fp16, NULL);
    policy.layers = "block.1.conv=fp32";
    ab_plan *plan = planned(net, &policy);
    assert_ptr_equal(format_of(plan, "block.0.conv.weight"), fp16);
    assert_ptr_equal(format_of(plan, "block.1.conv.weight"), fp32);
    assert_ptr_equal(format_of(plan, "block.1.conv.out"), fp32);
    assert_ptr_equal(plan->tensor[node_of(plan, "block.1.conv")->in[0]].format, fp32);
    assert_ptr_equal(format_of(plan, "relu.out"), fp32); /* it follows */
    assert_int_equal(ab_plan_find(plan, "block.1.conv.weight.half"), AB_NONE);
    ab_plan_destroy(plan);
    ab_net_free(net);
}

static void a_half_island_in_an_fp32_model(void **state) {
    (void)state;
    ab_net *net = parsed(small);
    ab_policy policy = policy_of("O0", bf16, NULL);
    policy.layers = "block.1.conv=half";
    ab_plan *plan = planned(net, &policy);
    assert_ptr_equal(format_of(plan, "block.1.conv.weight"), fp32);
    assert_ptr_equal(format_of(plan, "block.1.conv.weight.half"), bf16);
    assert_ptr_equal(format_of(plan, "block.1.conv.weight.half.grad"), bf16);
    assert_ptr_equal(format_of(plan, "block.1.conv.weight.grad"), fp32);
    assert_ptr_equal(format_of(plan, "block.1.conv.out"), bf16);
    assert_int_equal(plan->weight_casts, 2); /* weight and bias */
    ab_plan_destroy(plan);
    ab_net_free(net);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(autocast_on_the_cpu_is_torchs_op_by_op),
        cmocka_unit_test(autocast_on_cuda_has_the_rules_that_torch_ships),
        cmocka_unit_test(levels_store_and_read_weights_as_their_frameworks_do),
        cmocka_unit_test(apexs_norms_have_apexs_formats),
        cmocka_unit_test(running_statistics_are_used_where_they_are_stored),
        cmocka_unit_test(every_level_says_where_it_comes_from),
        cmocka_unit_test(enabled_false_is_plain_fp32),
        cmocka_unit_test(model_outputs_pass_through_the_format_asked_for),
        cmocka_unit_test(contradictions_are_told_with_the_remedy),
        cmocka_unit_test(patterns_match_layers_and_blocks),
        cmocka_unit_test(a_pattern_that_matches_nothing_is_an_error),
        cmocka_unit_test(an_fp32_island_in_a_half_model),
        cmocka_unit_test(a_half_island_in_an_fp32_model),
    };
    return cmocka_run_group_tests(tests, find_formats, NULL);
}
