/* Which loss scalers reproduce the scales of a log: every dialect is run over them with constants that the
 * log suggests. What the log does not tell, steps that overflowed without changing the scale and counters
 * before its beginning, is chosen so that it fits, if it can be. */
#ifndef AB_BENCH_INGEST_DIALECT_DIALECT_H
#define AB_BENCH_INGEST_DIALECT_DIALECT_H

#include "bench/amp/scaler/scaler.h"
#include "bench/ingest/log/log.h"

AB_BEGIN_DECLS

/* Steps between two places of a log that tell the scale. */
typedef struct ab_scale_span {
    int64_t steps;   /* at least 1 */
    int64_t skipped; /* of these; -1: not known */
    double scale;    /* after them */
    double error;    /* how far the printed scale may be off */
} ab_scale_span;

typedef struct ab_scale_course {
    double first; /* scale before the first span */
    bool fresh;   /* the first span begins with the scaler's first step */
    ab_scale_span *span;
    int spans;
} ab_scale_course;

/* Which steps the number of skips in a line is about: those up to the scale of the line, those from it on
 * (the line tells the scale before its step), or it is not used. */
typedef enum ab_skips_of { AB_SKIPS_BEFORE_SCALE, AB_SKIPS_AFTER_SCALE, AB_SKIPS_UNUSED } ab_skips_of;

/* The course of a log's scales; spans == 0 if it counts no steps or tells no scale. The caller frees span. */
AB_MUST_CHECK ab_status ab_scale_course_of(const ab_log *log, ab_skips_of skips, ab_scale_course *course);

/* AB_DIALECT_WORK: updates of scalers in a search, of which it may take a 1024th more for each span. */
enum { AB_DIALECTS = 64, AB_DIALECT_WORK = 1 << 20 };

typedef struct ab_dialect_fit {
    ab_scaler_config config;        /* the one nearest the defaults */
    double window_low, window_high; /* windows that were tried and fit; 0: it has none */
} ab_dialect_fit;

/* The dialects that reproduce the course, each once: those with their default constants first. Returns how
 * many, at most AB_DIALECTS. A course without a change of the scale fits too much to say: 0. `work`: usually
 * AB_DIALECT_WORK; *cut: some constants were given up for it. */
int ab_dialects_of(const ab_scale_course *course, int64_t work, ab_dialect_fit fit[AB_DIALECTS], bool *cut);

/* Steps of `steps` that the scaler skips by its own rising, if gradients are all of one size: one, or as many
 * as its hysteresis, after every window of clean steps. */
double ab_dialect_skips_expected(const ab_dialect_fit *fit, double steps);

/* The fits of a log's scales as a JSON array of {"dialect", "config", "window": [least, most],
 * "skips_expected"}, owned by the caller; NULL: the log counts no steps, the scale never changes, or the
 * search was given up without a fit. */
AB_MUST_CHECK ab_status ab_dialects_json(const ab_log *log, int64_t work, cJSON **json);

/* Whether one configuration reproduces the course. *work: updates of a scaler that it may take, of which
 * those that it took are subtracted; below 0 it was given up. */
bool ab_dialect_fits(const ab_scale_course *course, const ab_scaler_config *config, int64_t *work);

AB_END_DECLS

#endif
