/* What all points of a log come to. */
#include "bench/ingest/log/format.h"

#include <math.h>

static void see_scale(ab_log_totals *t, double scale) {
    if (isnan(t->first_scale)) t->first_scale = t->least_scale = t->largest_scale = scale;
    t->last_scale = scale;
    t->least_scale = fmin(t->least_scale, scale);
    t->largest_scale = fmax(t->largest_scale, scale);
}

static void see_values(ab_log_totals *t, const ab_log_point *point) {
    static const ab_log_field scales[] = {AB_LOG_scale_before, AB_LOG_scale, AB_LOG_scale_after};
    for (size_t i = 0; i < AB_COUNT_OF(scales); i++)
        if (ab_log_said(point, scales[i])) see_scale(t, point->value[scales[i]]);
    if (ab_log_said(point, AB_LOG_loss)) {
        t->losses++;
        t->nonfinite_losses += !isfinite(point->value[AB_LOG_loss]);
    }
    if (ab_log_said(point, AB_LOG_grad_norm)) {
        t->norms++;
        t->nonfinite_norms += !isfinite(point->value[AB_LOG_grad_norm]);
    }
}

ab_log_totals ab_log_total(const ab_log *log) {
    const double nothing = (double)NAN;
    ab_log_totals t = {
        .first_step = nothing, .last_step = nothing, .first_scale = nothing, .last_scale = nothing};
    double skipped = 0, skipped_total = 0;
    t.least_scale = t.largest_scale = nothing;
    for (int i = 0; i < log->points; i++) {
        const ab_log_point *point = &log->point[i];
        if (ab_log_said(point, AB_LOG_step)) {
            if (isnan(t.first_step)) t.first_step = point->value[AB_LOG_step];
            t.last_step = point->value[AB_LOG_step];
        }
        see_values(&t, point);
        t.overflows += ab_log_said(point, AB_LOG_overflow) && point->value[AB_LOG_overflow] == 1;
        if (ab_log_said(point, AB_LOG_skipped)) skipped += point->value[AB_LOG_skipped];
        if (ab_log_said(point, AB_LOG_skipped_total))
            skipped_total = fmax(skipped_total, point->value[AB_LOG_skipped_total]);
    }
    t.skipped = fmax(fmax(skipped, skipped_total), (double)t.overflows);
    return t;
}
