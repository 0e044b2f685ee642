/* The fewest layers that must stay fp32: delta debugging (Zeller and Hildebrandt 2002), which finds smaller
 * sets of items that still satisfy a test; the items; the trainings that test a set. */
#ifndef AB_BENCH_PROMOTE_PROMOTE_H
#define AB_BENCH_PROMOTE_PROMOTE_H

#include "bench/amp/layer_formats.h"
#include "bench/amp/plan/plan.h"
#include "kernels/core/status.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

AB_BEGIN_DECLS

enum { AB_DDMIN_ITEMS = 512 };

/* Tests whether a set of items satisfies the condition. Errors end the search. */
typedef struct ab_ddmin_test {
    ab_status (*passes)(void *context, const int *item, int count, bool *passes);
    void *context;
} ab_ddmin_test;

/* Finds the shortest prefix of a ranked list (1, 2, 4, ... items, then bisection) that passes the test, if
 * the test is monotonic in the length; else some prefix that passes. *count: in, the length of the list; out,
 * that of the prefix. The whole list must be known to pass. */
AB_MUST_CHECK ab_status ab_shortest_prefix(const ab_ddmin_test *test, const int *item, int *count);

/* Removes items from a set that passes until no single item can be removed (1-minimal); keeps their order. At
 * most AB_DDMIN_ITEMS items. */
AB_MUST_CHECK ab_status ab_ddmin(const ab_ddmin_test *test, int *item, int *count);

/* The parts of a plan's layers that are in the half format, as items that --to can name: whole layers, and
 * single roles of a layer. Does not train. */

/* A layer that the level computes in the half format, or one role of it. */
typedef struct ab_promote_item {
    char name[AB_PLAN_NAME]; /* "fc1", "fc1:wgrad": its name in --to */
    int net_op, role;        /* an ab_layer_role, or AB_LAYER_ROLES: all of the layer */
    int64_t bytes;           /* additional bytes if it is kept in fp32 */
    double error;            /* from the record: flushed and lost shares, overflow weighted far above both */
} ab_promote_item;

/* Appends the plan's layers that are half in some role, in the order of the plan; bytes are those of output
 * and weights. At most AB_DDMIN_ITEMS items in total, also below. */
void ab_promote_layers(const ab_plan *plan, ab_promote_item *item, int *count);

/* Appends the roles of a layer that are half. */
void ab_promote_roles(const ab_plan *plan, int net_op, ab_promote_item *item, int *count);

/* Trainings of one level with some layers in fp32, each a run in its own process; compares their losses with
 * O0's and ranks layers by a record. Keeps no result files. */

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
/* Trains the level with these items in fp32 from one seed with probes; *record is owned by the caller. */
AB_MUST_CHECK ab_status ab_trial_record(const ab_trial_setup *setup, const int *item, int count,
                                        cJSON **record);
/* Appends to the array `layers` the names of layers whose activations or weights went beyond the half
 * format's range in such a record. */
void ab_trial_infinite(const cJSON *record, cJSON *layers);
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
