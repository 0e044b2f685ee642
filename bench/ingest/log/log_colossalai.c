/* ColossalAI's DynamicGradScaler, if verbose: overflows and growth. */
#include "bench/ingest/log/format.h"

static bool take(const ab_log *log, const ab_log_line *line, ab_log_point *point) {
    (void)log;
    const char *at = ab_log_after(line, "the loss scale is adjusted to");
    const bool overflow = ab_log_find(line->text, line->end, "Overflow occurs") != NULL;
    if (!at || !ab_log_set_number(line, at, AB_LOG_scale_after, point)) return false;
    ab_log_set(point, AB_LOG_overflow, overflow);
    return overflow || ab_log_find(line->text, line->end, "No overflow for consecutive");
}

const ab_log_format ab_log_format_colossalai = {
    .name = "colossalai",
    .example = "Overflow occurs, the loss scale is adjusted to 32768.0",
    .origin = "colossalai/amp/naive_amp/grad_scaler/dynamic_grad_scaler.py, 2026-04",
    .mark = "the loss scale is adjusted to",
    .own = true,
    .take = take,
};
