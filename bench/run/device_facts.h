/* What a process learns of its device while it runs: libraries, clocks, temperature, limits, memory left,
 * energy. Nothing for the CPU, which the environment describes. */
#ifndef AB_BENCH_RUN_DEVICE_FACTS_H
#define AB_BENCH_RUN_DEVICE_FACTS_H

#include "kernels/core/device.h"
#include "probes/probe.h"

AB_BEGIN_DECLS

/* Millijoules that the device has counted since it was started; -1: it does not count. */
int64_t ab_device_energy_mj(const ab_device *device);

/* Writes "device": {facts as texts, "memory_free_bytes", "memory_total_bytes", "energy_per_sample_mj"}, if
 * the device tells facts. energy_before: of ab_device_energy_mj when `samples` samples were still to come;
 * null where it is not known. */
void ab_device_facts_write(ab_probe_sink *sink, const ab_device *device, int64_t energy_before,
                           int64_t samples);

AB_END_DECLS

#endif
