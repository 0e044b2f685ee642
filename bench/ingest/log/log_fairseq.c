/* fairseq's notes of overflows; its lines of progress are dictionaries or pairs. */
#include "bench/ingest/log/format.h"

static const char floor_mark[] = "Minimum loss scale reached";

static bool take(const ab_log *log, const ab_log_line *line, ab_log_point *point) {
    (void)log;
    static const char *const words[] = {
        "gradient overflow detected, ignoring gradient, setting loss scale to:",
        "overflow detected, setting loss scale to:", "AMP: overflow detected, setting scale to to",
        "AMP: overflow detected, setting scale to"};
    if (ab_log_find(line->text, line->end, floor_mark)) {
        ab_log_set(point, AB_LOG_at_floor, 1);
        return true;
    }
    for (size_t i = 0; i < AB_COUNT_OF(words); i++) {
        const char *at = ab_log_after(line, words[i]);
        if (!at || !ab_log_set_number(line, at, AB_LOG_scale_after, point)) continue;
        ab_log_set(point, AB_LOG_overflow, 1);
        return true;
    }
    return false;
}

const ab_log_format ab_log_format_fairseq = {
    .name = "fairseq",
    .example = "NOTE: gradient overflow detected, ignoring gradient, setting loss scale to: 64.0",
    .origin = "fairseq/trainer.py, fairseq/optim/dynamic_loss_scaler.py, amp_optimizer.py, 2025-09",
    .mark = "overflow detected",
    .other_mark = floor_mark,
    .own = true,
    .take = take,
};
