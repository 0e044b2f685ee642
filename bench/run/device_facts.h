/* What a process reads from its device at run time: libraries, clocks, temperature, limits, free memory,
 * energy. Empty for the CPU, which the environment describes. */
#ifndef AB_BENCH_RUN_DEVICE_FACTS_H
#define AB_BENCH_RUN_DEVICE_FACTS_H

#include "kernels/core/device.h"
#include "probes/probe.h"

AB_BEGIN_DECLS

/* The device's energy counter in millijoules since it was started; -1 if it has none. */
int64_t ab_device_energy_mj(const ab_device *device);

/* Writes "device": {facts as texts, "memory_free_bytes", "memory_total_bytes", "energy_per_sample_mj"}, if
 * the device reports any. energy_before: ab_device_energy_mj before the `samples` samples were processed;
 * unknown values are null. */
void ab_device_facts_write(ab_probe_sink *sink, const ab_device *device, int64_t energy_before,
                           int64_t samples);

AB_END_DECLS

#endif
