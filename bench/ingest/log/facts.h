/* What a log proves of a run, computed once from its points. Judges nothing: reports/diagnose compares. */
#ifndef AB_BENCH_INGEST_LOG_FACTS_H
#define AB_BENCH_INGEST_LOG_FACTS_H

#include "bench/ingest/log/log.h"

AB_BEGIN_DECLS

/* Lines are 0 and numbers NAN where there is nothing. */
typedef struct ab_log_facts {
    double skips_at_end; /* steps skipped after the last sign of a step that was taken */
    double skips_in_a_row;
    double floor_skips; /* of those at the end: at the least scale, which did not fall */
    int64_t skips_line;
    double
        runaway_scale; /* the scale at the end, if no overflow came since it was `runaway_from`; else NAN */
    double runaway_from;
    int64_t runaway_line;
    double hidden_nans; /* lines with a loss of exactly 0 and a gradient norm that is NaN */
    int64_t hidden_line;
    double nonfinite_losses; /* printed as NaN or inf, or counted by the log */
    int64_t nonfinite_line;
    double resets, reset_from, reset_to, reset_step; /* the first time that the scale jumped at a resume */
    int64_t reset_line;
    double skipped_intervals,
        rate_moved; /* lines of which every step was skipped; of these, the rate changed */
    int64_t rate_line;
    double spike, spike_before; /* largest loss over the median of the 16 before; 1: the scale fell first */
    int64_t spike_line;
    double skipped;                  /* counted by the log, or told by the falls of the scale */
    double steps;                    /* spanned by the log, as far as it counts */
    double skips_later, steps_later; /* from where the scale first rises up to a resume; 0 if it never does */
} ab_log_facts;

/* The facts of a log that was read. */
ab_log_facts ab_log_facts_of(const ab_log *log);

/* Bounds of the largest gradient at an overflow: it overflowed at scale `high_scale` (so it is at least
 * limit / high_scale), and not at half of that, where the next step was taken. */
typedef struct ab_log_bracket {
    int64_t line;
    double step;      /* NAN: not known */
    double low, high; /* of the magnitude; high is INFINITY if no step was taken at the scale below */
} ab_log_bracket;

/* Writes at most `most` brackets; returns how many there are. limit: the least magnitude that overflows. */
int ab_log_brackets(const ab_log *log, double limit, ab_log_bracket *bracket, int most);

AB_END_DECLS

#endif
