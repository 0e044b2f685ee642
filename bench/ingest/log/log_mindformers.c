/* MindFormers' callback. Steps are counted within an epoch; here from the start. */
#include "bench/ingest/log/format.h"

/* "word[  3/ 19]" or "word: 3": the number, and the one behind the slash or 0. */
static bool take_count(const ab_log_line *line, const char *word, double *value, double *of) {
    const char *at = ab_log_after(line, word), *after;
    if (!at) return false;
    if (at < line->end && *at == ':') at++;
    if (!ab_log_number(line, at, value, &after)) return false;
    *of = 0;
    if (after < line->end && *after == '/') (void)ab_log_number(line, after + 1, of, NULL);
    return true;
}

static void take_named(const ab_log_line *line, const char *word, ab_log_field field, ab_log_point *point) {
    const char *at = ab_log_after(line, word);
    if (at) (void)ab_log_set_number(line, at, field, point);
}

static bool take(const ab_log *log, const ab_log_line *line, ab_log_point *point) {
    (void)log;
    double epoch = 1, epochs, step, steps;
    if (!take_count(line, "tep:", &step, &steps)) return false;
    if (take_count(line, "poch:", &epoch, &epochs)) ab_log_set(point, AB_LOG_epoch, epoch);
    ab_log_set(point, AB_LOG_step, (epoch - 1) * steps + step);
    take_named(line, ", loss:", AB_LOG_loss, point);
    take_named(line, "| Loss:", AB_LOG_loss, point);
    take_named(line, "lr:", AB_LOG_lr, point);
    take_named(line, "overflow cond:", AB_LOG_overflow, point);
    take_named(line, "loss_scale:", AB_LOG_scale, point);
    take_named(line, "loss scale:", AB_LOG_scale, point);
    take_named(line, "global_norm:", AB_LOG_grad_norm, point);
    return ab_log_said(point, AB_LOG_overflow);
}

const ab_log_format ab_log_format_mindformers = {
    .name = "mindformers",
    .example =
        "{ Epoch:[  1/  2], step:[    1/   19], loss: 10.649, lr: 0.0, overflow cond: False, loss_scale: "
        "65536.0, global_norm: [1.31]}",
    .origin = "mindformers/core/callback/callback.py, 2026",
    .mark = "overflow cond:",
    .own = true,
    .take = take,
};
