/* Writes facts from the device's table to the record. */
#include "bench/run/device_facts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void catch_energy(void *context, const char *key, const char *text) {
    if (text && strcmp(key, "energy_mj") == 0) *(int64_t *)context = atoll(text);
}

int64_t ab_device_energy_mj(const ab_device *device) {
    int64_t energy = -1;
    if (device->facts) device->facts(catch_energy, &energy);
    return energy;
}

static void write_fact(void *context, const char *key, const char *text) {
    ab_probe_sink *sink = context;
    sink->text(sink, key, text);
}

static void write_memory(ab_probe_sink *sink, const ab_device *device) {
    int64_t left, all;
    if (!device->memory || device->memory(&left, &all) != AB_OK) return;
    sink->integer(sink, "memory_free_bytes", left);
    sink->integer(sink, "memory_total_bytes", all);
}

void ab_device_facts_write(ab_probe_sink *sink, const ab_device *device, int64_t energy_before,
                           int64_t samples) {
    if (!device->facts) return;
    int64_t energy = ab_device_energy_mj(device);
    bool known = energy_before >= 0 && energy >= energy_before && samples > 0;
    sink->begin_object(sink, "device");
    device->facts(write_fact, sink);
    write_memory(sink, device);
    sink->number(sink, "energy_per_sample_mj",
                 known ? (double)(energy - energy_before) / (double)samples : (double)NAN);
    sink->end(sink);
}
