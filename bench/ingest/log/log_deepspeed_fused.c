/* DeepSpeed's fp16 optimizers without ZeRO: skipped steps, and growth where they are verbose. */
#include "bench/ingest/log/format.h"

static bool take_change(const ab_log_line *line, ab_log_point *point) {
    const char *at = ab_log_after(line, "dynamic loss scale from"), *to;
    if (!at || !ab_log_set_number(line, at, AB_LOG_scale_before, point)) return false;
    to = ab_log_find(at, line->end, " to ");
    if (!to || !ab_log_set_number(line, to + 4, AB_LOG_scale_after, point)) return false;
    ab_log_set(point, AB_LOG_overflow, ab_log_find(line->text, at, "Reducing") ? 1 : 0);
    return true;
}

static bool take(const ab_log *log, const ab_log_line *line, ab_log_point *point) {
    (void)log;
    const char *at = ab_log_after(line, "Attempted loss scale:"), *to;
    if (ab_log_find(line->text, line->end, "cannot decrease scale anymore")) {
        ab_log_set(point, AB_LOG_at_floor, 1);
        return true;
    }
    if (!at) return take_change(line, point);
    to = ab_log_find(at, line->end, "reducing to");
    if (!to || !ab_log_set_number(line, at, AB_LOG_scale_before, point) ||
        !ab_log_set_number(line, to + sizeof "reducing to" - 1, AB_LOG_scale_after, point))
        return false;
    ab_log_set(point, AB_LOG_overflow, 1);
    return true;
}

const ab_log_format ab_log_format_deepspeed_fused = {
    .name = "deepspeed-fused",
    .example =
        "[deepspeed] fp16 dynamic loss scale overflow! Skipping step. Attempted loss scale: 4294967296.0, "
        "reducing to 2147483648.0",
    .origin = "deepspeed/runtime/fp16/fused_optimizer.py, unfused_optimizer.py, 0.19",
    .mark = "oss scale",
    .own = true,
    .take = take,
};
