/* Internal to bench/run/config: the groups of options that ab_run_config_create checks, in the order in which
 * it does. Each fills in its part of *config. The checks of an option are in the file of its group in
 * options.def. */
#ifndef AB_BENCH_RUN_CONFIG_CONFIGURE_PARTS_H
#define AB_BENCH_RUN_CONFIG_CONFIGURE_PARTS_H

#include "bench/run/config/config.h"

AB_BEGIN_DECLS

/* configure_compare.c: levels, scales, half formats, limits of dynamic scales. */
AB_MUST_CHECK ab_status ab_configure_compare(const ab_options *options, ab_run_config *config);
/* The same file: --to names layers of the network, also in items that O0 ignores. */
AB_MUST_CHECK ab_status ab_configure_layers(const ab_run_config *config);

/* configure_net_data.c: the network, the name of its data and what happens to images. */
AB_MUST_CHECK ab_status ab_configure_net(const ab_options *options, ab_run_config *config);
/* The same file: what is read and written beside the record. Needs the recipe and the device. */
AB_MUST_CHECK ab_status ab_configure_files(const ab_options *options, ab_run_config *config);
/* The same file: with `opened` the data stays open and the number of steps is known. Without training the
 * data is opened only if an option speaks of its images, and closed again. */
AB_MUST_CHECK ab_status ab_configure_data(const ab_options *options, bool opened, ab_run_config *config);

/* configure_recipe.c: the optimizer, schedule, clipping, averages, faults, batches and seeds. */
AB_MUST_CHECK ab_status ab_configure_recipe(const ab_options *options, ab_run_config *config);
/* configure_ranks.c: several ranks and their reductions. Needs the device, the network and micro-batches. */
AB_MUST_CHECK ab_status ab_configure_ranks(const ab_options *options, ab_run_config *config);

/* configure_measure.c: the device and its arithmetic. */
AB_MUST_CHECK ab_status ab_configure_device(const ab_options *options, ab_run_config *config);
/* The same file: threads, probes, rounds and limits. */
AB_MUST_CHECK ab_status ab_configure_measure(const ab_options *options, ab_run_config *config);

AB_END_DECLS

#endif
