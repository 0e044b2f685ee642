/* What --levels, --set and --to say about one entry of --levels. An entry is a level, with overrides of its
 * own behind a colon: "O3", "O3:keep_batchnorm_fp32=True,loss_scale=128". Of --set and --to,
 * "O2:keep_batchnorm_fp32=False" or "O2:fc1=fp32" act on the level that they name; without a name they act on
 * every level but O0, the fp32 reference. */
#ifndef AB_BENCH_RUN_LEVEL_OPTIONS_H
#define AB_BENCH_RUN_LEVEL_OPTIONS_H

#include "bench/amp/policy.h"
#include "bench/run/config/options.h"

AB_BEGIN_DECLS

/* The items for one entry, without the level's name. */
typedef struct ab_level_options {
    char *entry;                       /* as typed in --levels; owned */
    char *parts;                       /* what own[] points into; owned */
    const char *own[AB_MAX_OVERRIDES]; /* the entry's own overrides */
    int owns;
    bool own_scale;                         /* one of them is the loss scale, which --scales does not cross */
    const char *override[AB_MAX_OVERRIDES]; /* of --set, in order; borrowed */
    int overrides;
    char *layers; /* of --to; owned; NULL: none */
    char *named;  /* items that name the level, e.g. "loss_scale=128, to fc1=half"; owned; NULL: none */
} ab_level_options;

/* Splits the entry's own overrides: a word that is no property belongs to the loss scale before it
 * ("loss_scale=deepspeed:init=65536,window=500"). AB_USAGE. */
AB_MUST_CHECK ab_status ab_level_options_split(ab_level_options *own);

/* Selects the items for `level`; NULL: those that name no level. The
 * entry and its overrides stay. The caller frees *own with
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
