/* This machine and this build, from an allow-list: nothing else of the environment is recorded. */
#ifndef AB_BENCH_RUN_ENVIRONMENT_H
#define AB_BENCH_RUN_ENVIRONMENT_H

#include "kernels/core/compiler.h"
#include "kernels/core/device.h"
#include "probes/probe.h"
#include "reports/record/build.h"

#include <cjson/cJSON.h>

AB_BEGIN_DECLS

/* "generator" and "environment" of a record; owned by the caller; NULL if out of memory. */
cJSON *ab_environment_generator(void);
cJSON *ab_environment_machine(void);

/* A sentence for where speeds are shown, if this build is slow; NULL otherwise (reports/record/build.h). */
const char *ab_environment_build_warning(char text[AB_BUILD_TEXT]);

/* FNV-1a 64 of the fields of both that must match for two records to be comparable, as 16 hex digits. */
void ab_environment_key(const cJSON *generator, const cJSON *machine, char key[17]);

/* The same without the host's name, and with the threads that train and the device's model and libraries:
 * machines of one class are comparable in speed. */
void ab_environment_class(const cJSON *generator, const cJSON *machine, const ab_device *device, int threads,
                          char text[17]);

/* Sets GOMP_SPINCOUNT=1000 for the workers unless the user chose a waiting policy: spinning libgomp threads
 * cost more on a busy machine than they save on an idle one. */
void ab_environment_prepare_workers(void);

/* What a process reads from its device at run time: libraries, clocks, temperature, limits, free memory,
 * energy. Empty for the CPU, which the environment describes. */

/* The device's energy counter in millijoules since it was started; -1 if it has none. */
int64_t ab_device_energy_mj(const ab_device *device);

/* Writes "device": {facts as texts, "memory_free_bytes", "memory_total_bytes", "energy_per_sample_mj"}, if
 * the device reports any. energy_before: ab_device_energy_mj before the `samples` samples were processed;
 * unknown values are null. */
void ab_device_facts_write(ab_probe_sink *sink, const ab_device *device, int64_t energy_before,
                           int64_t samples);

AB_END_DECLS

#endif
