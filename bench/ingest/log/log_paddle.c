/* PaddlePaddle's GradScaler. */
#include "bench/ingest/log/format.h"

static bool take(const ab_log *log, const ab_log_line *line, ab_log_point *point) {
    (void)log;
    const char *at = ab_log_after(line, "current scale is:"), *to = ab_log_after(line, "decrease to:"),
               *factor;
    double by = 1, scale;
    if (!at || !to || !ab_log_set_number(line, at, AB_LOG_scale_before, point) ||
        !ab_log_number(line, to, &scale, &factor))
        return false;
    if (factor < line->end && *factor == '*' && !ab_log_number(line, factor + 1, &by, NULL)) return false;
    ab_log_set(point, AB_LOG_scale_after, scale * by);
    ab_log_set(point, AB_LOG_overflow, 1);
    return true;
}

const ab_log_format ab_log_format_paddle = {
    .name = "paddle",
    .example = "Found inf or nan, current scale is: 65536.0, decrease to: 65536.0*0.5",
    .origin = "paddle/amp/grad_scaler.py, 2026",
    .mark = "Found inf or nan",
    .own = true,
    .take = take,
};
