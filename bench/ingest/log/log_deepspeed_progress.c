/* DeepSpeed's line every steps_per_print steps. */
#include "bench/ingest/log/format.h"

static bool take(const ab_log *log, const ab_log_line *line, ab_log_point *point) {
    (void)log;
    const char *step = ab_log_after(line, "step="), *skipped = ab_log_after(line, "skipped="),
               *lr = ab_log_after(line, "lr=");
    if (!step || !skipped || !lr || !ab_log_set_number(line, step, AB_LOG_step, point)) return false;
    (void)ab_log_set_number(line, lr, AB_LOG_lr, point);
    return ab_log_set_number(line, skipped, AB_LOG_skipped_total, point);
}

const ab_log_format ab_log_format_deepspeed_progress = {
    .name = "deepspeed-progress",
    .example = "step=10, skipped=2, lr=[0.001], mom=[(0.9, 0.999)]",
    .origin = "deepspeed/runtime/engine.py, 0.19",
    .mark = "skipped=",
    .own = true,
    .take = take,
};
