/* From the options as typed to a checked configuration. */
#ifndef AB_BENCH_RUN_CONFIGURE_H
#define AB_BENCH_RUN_CONFIGURE_H

#include "bench/run/config/config.h"
#include "bench/run/config/options.h"

AB_BEGIN_DECLS

/* Checks everything that can be checked before training. On success the caller clears *config. With
 * `with_data`, opens the data set. */
AB_MUST_CHECK ab_status ab_run_config_create(const ab_options *options, bool with_data,
                                             ab_run_config *config);
/* The part that needs config->data, for callers that set the data themselves. */
AB_MUST_CHECK ab_status ab_run_config_steps(const ab_options *options, ab_run_config *config);
/* Starts the threads that train, and sets how this thread and they treat subnormals. */
AB_MUST_CHECK ab_status ab_run_config_start(const ab_run_config *config);
void ab_run_config_clear(ab_run_config *config);

/* Samples that a step trains on, by all its micro-batches. */
int64_t ab_run_step_samples(const ab_run_config *config);

/* Test samples to evaluate, 0 for all: --eval-limit; without it no more than the steps train on, so that a
 * short run does not mostly evaluate. A forward pass is about a third of a step: at most a third is added. */
int64_t ab_run_eval_limit(const ab_run_config *config);

/* The formats whose products the cells may compute, as ab_machine_limits_measure takes them. */
unsigned ab_run_product_formats(const ab_run_config *config);

/* --ranks nccl; that or --ranks mpi. */
bool ab_ranks_use_gpus(const ab_options *options);
bool ab_ranks_are_processes(const ab_options *options);

AB_END_DECLS

#endif
