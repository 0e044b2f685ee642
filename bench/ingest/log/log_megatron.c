/* Megatron-LM's line every log_interval iterations: names and values between bars. A loss that is NaN is left
 * out of it. */
#define _GNU_SOURCE /* memrchr */

#include "bench/ingest/log/format.h"

#include <string.h>

/* "name: value" in [from, to). */
static void take_pair(const ab_log *log, const ab_log_line *line, const char *from, const char *to,
                      ab_log_point *point) {
    const char *colon = memchr(from, ':', (size_t)(to - from));
    while (from < to && *from == ' ') from++;
    if (!colon || colon <= from) return;
    const ab_log_field field = ab_log_field_of(log, from, (size_t)(colon - from));
    const ab_log_line part = {from, to, line->cut && to == line->end};
    if (field < AB_LOG_FIELDS) (void)ab_log_set_number(&part, colon + 1, field, point);
}

static bool take(const ab_log *log, const ab_log_line *line, ab_log_point *point) {
    const char *at = ab_log_after(line, " iteration "), *bar;
    if (!at || !ab_log_set_number(line, at, AB_LOG_step, point)) return false;
    while ((bar = memchr(at, '|', (size_t)(line->end - at))) != NULL) {
        at = bar + 1;
        const char *to = memchr(at, '|', (size_t)(line->end - at));
        take_pair(log, line, at, to ? to : line->end, point);
    }
    return point->has & (1u << AB_LOG_samples | 1u << AB_LOG_scale | 1u << AB_LOG_skipped);
}

const ab_log_format ab_log_format_megatron = {
    .name = "megatron",
    .example =
        " iteration      100/    1000 | consumed samples:        12800 | lm loss: 2.233609E+00 | loss scale: "
        "65536.0 | grad norm: 1.389 | number of skipped iterations:   1 | number of nan iterations:   0 |",
    .origin = "Megatron-LM, megatron/training/training.py, training_log, 2026-08",
    .mark = " iteration ",
    .own = true,
    .take = take,
};
