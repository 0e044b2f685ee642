/* Trainings of one level with some layers in fp32, each a run in its own process; compares their losses with
 * O0's and ranks layers by a record. Keeps no result files. */
#ifndef AB_BENCH_PROMOTE_TRIAL_H
#define AB_BENCH_PROMOTE_TRIAL_H

#include "bench/promote/roles.h"

#include <cjson/cJSON.h>
#include <stdint.h>

AB_BEGIN_DECLS

enum { AB_TRIAL_SEEDS = 32, AB_TRIAL_WORDS = (AB_PLAN_NAME + 8) * AB_DDMIN_ITEMS };

typedef struct ab_trial_setup {
    char *const *words; /* options of `ampbench run` that the user gave */
    int word_count;
    const char *level;
    int64_t first_seed;
    int seeds;
    const ab_net *net;
    const ab_promote_item *item; /* candidates for fp32 */
    int items;
    bool quiet;
} ab_trial_setup;

/* Final losses per seed; non-finite where training failed. */
typedef struct ab_trial_losses {
    double final[AB_TRIAL_SEEDS];
} ab_trial_losses;

/* Trains O0 and the unmodified level. */
AB_MUST_CHECK ab_status ab_trial_base(const ab_trial_setup *setup, ab_trial_losses *o0,
                                      ab_trial_losses *level);
/* Trains the level with these items in fp32. */
AB_MUST_CHECK ab_status ab_trial_run(const ab_trial_setup *setup, const int *item, int count,
                                     ab_trial_losses *losses);
/* Trains the level from one seed with probes; *record is owned by the caller. */
AB_MUST_CHECK ab_status ab_trial_record(const ab_trial_setup *setup, cJSON **record);
/* Sets the error of items from such a record. */
void ab_trial_rank(const cJSON *record, const ab_net *net, ab_promote_item *item, int count);

/* Writes the value of --to for these items: "conv1=fp32,fc2:wgrad=fp32". */
void ab_trial_words(const ab_trial_setup *setup, const int *item, int count, char words[AB_TRIAL_WORDS]);

/* Largest minus smallest final loss. */
double ab_trial_range(const ab_trial_losses *losses, int seeds);
/* Mean over the seeds of a minus b; INFINITY if one of a is not finite. */
double ab_trial_gap(const ab_trial_losses *a, const ab_trial_losses *b, int seeds);

AB_END_DECLS

#endif
