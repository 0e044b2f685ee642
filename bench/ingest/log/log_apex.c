/* apex.amp prints a line for each skipped step and no other. */
#include "bench/ingest/log/format.h"

static bool take(const ab_log *log, const ab_log_line *line, ab_log_point *point) {
    (void)log;
    const char *at = ab_log_after(line, "reducing loss scale to");
    if (!at || !ab_log_set_number(line, at, AB_LOG_scale_after, point)) return false;
    ab_log_set(point, AB_LOG_overflow, 1);
    return true;
}

const ab_log_format ab_log_format_apex = {
    .name = "apex",
    .example = "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 32768.0",
    .origin = "apex/amp/handle.py, before its removal in 2025",
    .mark = "Gradient overflow.",
    .own = true,
    .take = take,
};
