/* Facts of a record that was read from a training log (log.facts), for the causes that only logs show. */
#ifndef AB_REPORTS_DIAGNOSE_ATTRIBUTE_LOG_FACTS_H
#define AB_REPORTS_DIAGNOSE_ATTRIBUTE_LOG_FACTS_H

#include "reports/diagnose/attribute/conditions.h"
#include "reports/diagnose/attribute/verdict.h"

AB_BEGIN_DECLS

/* What the rules for logs compare; 0 or NAN where the log does not tell or the record is none of a log. */
typedef struct ab_log_view {
    const cJSON *facts; /* NULL: the record is not of a log */
    double steps, skipped, skips_at_end, floor_skips, runaway_scale, runaway_from, hidden_nans,
        nonfinite_losses, resets, reset_from, reset_to, skipped_intervals, rate_moved, first_scale,
        last_scale, lines;
    const char *scaler; /* of those that have the log's scales, the one that skips most; NULL: none */
    double later, later_expected; /* skips after the scale first rose; what the scaler skips by itself */
} ab_log_view;

/* The view of the record of a case. */
ab_log_view ab_log_view_of(const ab_case *c);

extern const ab_need ab_need_log; /* a training log */

/* The log's losses are finite, none is hidden, and no step was skipped. */
extern const ab_refutation ab_refuted_log_sound;
extern const ab_refutation ab_refuted_log_came_down; /* the last scale is below the one in question */

/* Sets the pointer of the last evidence: a fact of the log. */
void ab_verdict_point_log(ab_verdict *verdict, const char *fact);

/* The fact `name`, the number of a line; 0: none. */
int ab_log_line_of(const ab_log_view *view, const char *name);

AB_END_DECLS

#endif
