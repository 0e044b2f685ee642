/* A progress bar of tqdm with losses and scales behind it. Its step counts within an epoch, unless none is
 * named. */
#include "bench/ingest/log/pairs.h"

#include <ctype.h>

/* "12/100 [": *step and *of. */
static bool take_count(const ab_log_line *line, const char *bracket, double *step, double *of) {
    const char *at = bracket;
    while (at > line->text && at[-1] == ' ') at--;
    while (at > line->text && isdigit((unsigned char)at[-1])) at--;
    if (at == line->text || at[-1] != '/' || !ab_log_number(line, at, of, NULL)) return false;
    const char *from = --at;
    while (from > line->text && isdigit((unsigned char)from[-1])) from--;
    return from < at && ab_log_number(line, from, step, NULL);
}

static bool take(const ab_log *log, const ab_log_line *line, ab_log_point *point) {
    const unsigned wanted = 1u << AB_LOG_loss | 1u << AB_LOG_scale | 1u << AB_LOG_overflow;
    const char *bracket = ab_log_after(line, "| ");
    double step, of;
    bracket = bracket ? ab_log_find(bracket, line->end, "[") : NULL;
    if (!bracket || !take_count(line, bracket, &step, &of)) return false;
    (void)ab_log_pairs(log, line, point);
    if (!(point->has & wanted)) return false;
    const bool epoch = ab_log_said(point, AB_LOG_epoch);
    if (!ab_log_said(point, AB_LOG_step))
        ab_log_set(point, AB_LOG_step, epoch ? point->value[AB_LOG_epoch] * of + step : step);
    return true;
}

const ab_log_format ab_log_format_progress_bar = {
    .name = "progress-bar",
    .example = "Epoch 3:  45%|####5     | 45/100 [00:12<00:15,  3.20it/s, loss=0.532, scale=65536]",
    .origin = "tqdm 4, PyTorch Lightning",
    .mark = "%|",
    .take = take,
};
