/* What --set and --to say about one level. "O2:keep_batchnorm_fp32=False" or "O2:fc1=fp32" act on the level
 * that they name; without a name they act on every level but O0, the fp32 reference. */
#ifndef AB_BENCH_RUN_LEVEL_OPTIONS_H
#define AB_BENCH_RUN_LEVEL_OPTIONS_H

#include "bench/amp/policy.h"
#include "bench/run/options.h"

AB_BEGIN_DECLS

/* The items for one level, without the level's name. */
typedef struct ab_level_options {
    const char *override[AB_MAX_OVERRIDES]; /* of --set, in order; borrowed */
    int overrides;
    char *layers; /* of --to; owned; NULL: none */
    char *named;  /* items that name the level, e.g. "loss_scale=128, to fc1=half"; owned; NULL: none */
} ab_level_options;

/* Selects the items for `level`; NULL: those that name no level. The caller frees *own with
 * ab_level_options_free, after an error too. AB_NO_MEMORY. */
AB_MUST_CHECK ab_status ab_level_options_select(const ab_options *options, const ab_level *level,
                                                ab_level_options *own);
void ab_level_options_free(ab_level_options *own);

/* Writes a warning of options without effect: items that name a level not in the run, and in a run of O0
 * alone what O0 ignores. "" if there are none. */
void ab_level_options_unused(const ab_options *options, const ab_level *const *level, int levels, char *text,
                             size_t size);

AB_END_DECLS

#endif
