/* Names and numbers anywhere in a line: "iter 100: loss 2.31, lr 1e-4", "loss=2.31". */
#ifndef AB_BENCH_INGEST_LOG_PAIRS_H
#define AB_BENCH_INGEST_LOG_PAIRS_H

#include "bench/ingest/log/format.h"

AB_BEGIN_DECLS

/* Sets the fields that are named in the line, by one word or two; the first of each. Returns how many. A name
 * behind val, valid, eval, test or dev is none. */
int ab_log_pairs(const ab_log *log, const ab_log_line *line, ab_log_point *point);

AB_END_DECLS

#endif
