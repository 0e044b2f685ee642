/* A checkpoint as a record that `ampbench diagnose` judges. */
#ifndef AB_BENCH_CHECKPOINT_RECORD_H
#define AB_BENCH_CHECKPOINT_RECORD_H

#include "bench/checkpoint/checkpoint.h"

#include <cjson/cJSON.h>

AB_BEGIN_DECLS

/* Surveys `last` and compares it with `first`, an earlier checkpoint of the same run (NULL: there is none).
 * *document is a checked record, owned by the caller. */
AB_MUST_CHECK ab_status ab_checkpoint_record(const ab_checkpoint *first, const ab_checkpoint *last,
                                             cJSON **document);

AB_END_DECLS

#endif
