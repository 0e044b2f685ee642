/* apex/amp/frontend.py and handle.py before their removal in 2025. */
#include "bench/amp/apex_lines.h"

#include "kernels/core/show.h"
#include "kernels/core/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool ab_apex_prints(const ab_policy *policy) {
    return policy->verbosity > 0 && policy->enabled && !strchr(policy->level, ':');
}

/* As Python writes a float: the shortest text that reads back as the number, with a point or an exponent. */
static const char *float_text(double value, char text[40]) {
    for (int digits = 1; digits <= 17; digits++)
        if (strtod(ab_text_exact(text, 40, "%.*g", digits, value), NULL) == value) break;
    if (fabs(value) >= 1 && fabs(value) < 1e16 && value == floor(value))
        ab_text_exact(text, 40, "%.1f", value);
    return text;
}

static const char *scale_text(const ab_loss_scale *scale, char text[AB_SCALER_TEXT]) {
    if (scale->dynamic) return ab_loss_scale_text(scale, text);
    char number[40];
    return ab_text_exact(text, AB_SCALER_TEXT, "%s", float_text(scale->value, number));
}

static const char *dtype_text(const ab_policy *policy) {
    static const char *const names[][2] = {
        {"fp32", "torch.float32"}, {"fp16", "torch.float16"}, {"bf16", "torch.bfloat16"}};
    const char *format = ab_policy_cast_text(policy);
    for (size_t i = 0; format && i < AB_COUNT_OF(names); i++)
        if (strcmp(format, names[i][0]) == 0) return names[i][1];
    return "None";
}

static void print_options(const ab_policy *policy, FILE *out) {
    char scale[AB_SCALER_TEXT];
    const char *const rows[][2] = {
        {"enabled", policy->enabled ? "True" : "False"},
        {"opt_level", policy->level},
        {"cast_model_type", dtype_text(policy)},
        {"patch_torch_functions", policy->patch_torch_functions ? "True" : "False"},
        {"keep_batchnorm_fp32", ab_tristate_text(policy->keep_batchnorm_fp32)},
        {"master_weights", ab_tristate_text(policy->master_weights)},
        {"loss_scale", scale_text(&policy->loss_scale, scale)}};
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) ab_print(out, "%-22s : %s\n", rows[i][0], rows[i][1]);
}

ab_status ab_apex_print_properties(const ab_policy *policy, FILE *out) {
    static const char *const brief[] = {
        "O0:  Pure FP32 training.",
        "O1:  Insert automatic casts around Pytorch functions and Tensor methods.",
        "O2:  FP16 training with FP32 batchnorm and FP32 master weights.", "O3:  Pure FP16 training."};
    const ab_level *level;
    ab_policy preset;
    AB_TRY(ab_level_find(policy->level, &level));
    AB_TRY(ab_policy_resolve(level, policy->half, NULL, 0, &preset));
    for (size_t i = 0; i < AB_COUNT_OF(brief); i++)
        if (strncmp(brief[i], level->name, 2) == 0)
            ab_print(out, "Selected optimization level %s\n", brief[i]);
    if (strcmp(level->name, "O3") != 0) fputc('\n', out); /* the text of O3 alone ends without one */
    ab_print(out, "Defaults for this optimization level are:\n");
    print_options(&preset, out);
    ab_print(out, "Processing user overrides (additional kwargs that are not None)...\n"
                  "After processing overrides, optimization options are:\n");
    print_options(policy, out);
    return AB_OK;
}

void ab_apex_print_skip(int loss_id, double scale, FILE *out) {
    char text[40];
    ab_print(out, "Gradient overflow.  Skipping step, loss scaler %d reducing loss scale to %s\n", loss_id,
             float_text(scale, text));
}
