/* The advice from a log as text and JSON. */
#include "reports/advise/advise_log.h"

#include "kernels/core/show.h"
#include "kernels/core/text.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <inttypes.h>
#include <math.h>

static void print_scales(const ab_advise_log *a, FILE *out) {
    char scale[AB_TEXT_NUMBER];
    ab_print(out, "%-12s %10s %10s  %16s %10s\n", "scale", "steps", "overflows", "share %, 95 %", "fit %");
    for (int i = 0; i < a->scales; i++) {
        const ab_advise_scale *s = &a->scale[i];
        ab_print(out, "%-12s %10" PRId64 " %10" PRId64 "  %7.3g ..%6.3g", ab_text_scale(scale, s->scale),
                 s->steps, s->overflows, 100 * s->share_low, 100 * s->share_high);
        if (isnan(s->expected))
            ab_print(out, " %10s\n", "-");
        else
            ab_print(out, " %10.3g\n", 100 * s->expected);
    }
}

static void print_fit(const ab_advise_log *a, FILE *out) {
    ab_print(out,
             "\nlargest gradient of a step, a normal distribution of its logarithm fitted to %" PRId64
             " intervals: middle 2^%.2f,\nspread %.2f octaves, drift %+.2f octaves per 1000 steps\n",
             a->steps, a->middle, a->spread, a->drift);
    ab_print(out, "at most 2^%d: %.2g %% of the steps overflow there by the fit (%.2g %% may)\n", a->k_hi,
             100 * a->share, 100 * a->alpha);
}

static void print_unfitted(const ab_advise_log *a, FILE *out) {
    ab_print(out,
             "\nno step overflowed: the highest scale, 2^%d, does in at most %.2g %% of the steps (95 %%)\n",
             a->k_hi, 100 * a->share);
    if (!a->known)
        ab_print(out,
                 "whether that is within %.2g %% so few steps do not tell; a higher scale was not tried\n",
                 100 * a->alpha);
}

void ab_advise_log_print(const ab_advise_log *a, const char *path, FILE *out) {
    char scale[AB_TEXT_NUMBER];
    ab_print(out, "%s: %" PRId64 " steps, %" PRId64 " overflows; from the loss scales alone\n\n", path,
             a->steps, a->overflows);
    print_scales(a, out);
    if (a->fitted)
        print_fit(a, out);
    else
        print_unfitted(a, out);
    if (a->asked > 0 && a->fitted)
        ab_print(out, "%s: %.2g %% of the steps overflow by the fit\n", ab_text_scale(scale, a->asked),
                 100 * a->asked_share);
    fputs(
        "how low a scale may be is not in a log, as it does not tell what is flushed: record the gradients\n"
        "(ampprobe, or ampbench's own runs) and ask `ampbench advise` of the record\n",
        out);
}

static cJSON *scale_json(const ab_advise_scale *s) {
    cJSON *object = cJSON_CreateObject();
    ab_json_add_number(object, "scale", s->scale);
    cJSON_AddNumberToObject(object, "steps", (double)s->steps);
    cJSON_AddNumberToObject(object, "overflows", (double)s->overflows);
    ab_json_add_number(object, "share_low", s->share_low);
    ab_json_add_number(object, "share_high", s->share_high);
    ab_json_add_number(object, "share_fitted", s->expected);
    return object;
}

cJSON *ab_advise_log_json(const ab_advise_log *a, const char *path) {
    cJSON *object = cJSON_CreateObject(), *scales;
    const double none = (double)NAN;
    cJSON_AddStringToObject(object, "schema", "ampbench-log-advice");
    cJSON_AddStringToObject(object, "schema_version", "1.0");
    cJSON_AddStringToObject(object, "path", path);
    cJSON_AddNumberToObject(object, "steps", (double)a->steps);
    cJSON_AddNumberToObject(object, "overflows", (double)a->overflows);
    scales = cJSON_AddArrayToObject(object, "scales");
    for (int i = 0; i < a->scales; i++) cJSON_AddItemToArray(scales, scale_json(&a->scale[i]));
    ab_json_add_number(object, "largest_gradient_octaves", a->fitted ? a->middle : none);
    ab_json_add_number(object, "spread_octaves", a->fitted ? a->spread : none);
    ab_json_add_number(object, "drift_octaves_per_1000_steps", a->fitted ? a->drift : none);
    ab_json_add_number(object, "overflow_allowed", a->alpha);
    ab_json_add_number(object, "highest_log2", a->k_hi);
    ab_json_add_number(object, "overflow_share", a->share);
    cJSON_AddBoolToObject(object, "known", a->known);
    ab_json_add_number(object, "asked_scale", a->asked > 0 ? a->asked : none);
    ab_json_add_number(object, "asked_overflow_share", a->asked > 0 ? a->asked_share : none);
    return object;
}
