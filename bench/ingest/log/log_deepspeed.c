/* DeepSpeed's ZeRO optimizers: the dynamic loss scaler, with hysteresis. Scales are printed as int(scale), so
 * that one below 1 reads 0. Formats other than fp16 print the line without a scale. */
#include "bench/ingest/log/format.h"

static bool take(const ab_log *log, const ab_log_line *line, ab_log_point *point) {
    (void)log;
    const char *at = ab_log_after(line, "Attempted loss scale:"), *to;
    ab_log_set(point, AB_LOG_overflow, 1);
    if (!at) return ab_log_find(line->text, line->end, "Skipping step") != NULL;
    if (!ab_log_set_number(line, at, AB_LOG_scale_before, point)) return false;
    if ((to = ab_log_find(at, line->end, "reducing to")) != NULL) {
        if (!ab_log_set_number(line, to + sizeof "reducing to" - 1, AB_LOG_scale_after, point)) return false;
    } else if (ab_log_find(at, line->end, "hysteresis is")) {
        ab_log_set(point, AB_LOG_scale_after, point->value[AB_LOG_scale_before]);
    } else
        return false;
    point->error = 1;
    return true;
}

const ab_log_format ab_log_format_deepspeed = {
    .name = "deepspeed",
    .example = "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768",
    .origin = "deepspeed/runtime/fp16/loss_scaler.py, 0.19",
    .mark = "OVERFLOW! Rank",
    .own = true,
    .take = take,
};
