/* The device's facts in the record of a process. The device is a table of three functions; no GPU. */
#define _GNU_SOURCE
#include "tests/unit/probe_testing.h"

#include "bench/run/environment.h"

static int64_t energy = 1000;

static void facts(ab_device_fact fact, void *context) {
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)energy);
    fact(context, "gpu", "none");
    fact(context, "nvml", NULL);
    if (energy >= 0) fact(context, "energy_mj", text);
}

static ab_status memory(int64_t *left, int64_t *all) {
    *left = 3;
    *all = 4;
    return AB_OK;
}

static const ab_device device = {.abi = AB_DEVICE_ABI, .name = "test", .facts = facts, .memory = memory};

typedef struct asked {
    const ab_device *device;
    int64_t before, samples;
} asked;

static void write_facts(void *state, ab_probe_sink *sink) {
    const asked *a = state;
    ab_device_facts_write(sink, a->device, a->before, a->samples);
}

static cJSON *report(const ab_device *of, int64_t before, int64_t samples) {
    asked a = {of, before, samples};
    return pt_report(write_facts, &a);
}

static void energy_is_per_sample_and_null_where_it_is_not_counted(void **state) {
    (void)state;
    energy = 1000;
    int64_t before = ab_device_energy_mj(&device);
    energy = 1500;
    cJSON *all = report(&device, before, 100);
    const cJSON *found = pt_get(all, "device");
    assert_string_equal(pt_text(found, "gpu"), "none");
    assert_true(pt_is_null(found, "nvml"));
    assert_true(pt_number(found, "energy_per_sample_mj") == 5.0);
    assert_int_equal(pt_integer(found, "memory_free_bytes"), 3);
    assert_int_equal(pt_integer(found, "memory_total_bytes"), 4);
    cJSON_Delete(all);
    energy = -1;
    assert_int_equal(ab_device_energy_mj(&device), -1);
    all = report(&device, -1, 100);
    assert_true(pt_is_null(pt_get(all, "device"), "energy_per_sample_mj"));
    cJSON_Delete(all);
}

static void the_cpu_has_no_facts(void **state) {
    (void)state;
    cJSON *all = report(&ab_device_cpu, -1, 1);
    assert_null(cJSON_GetObjectItem(all, "device"));
    assert_int_equal(ab_device_energy_mj(&ab_device_cpu), -1);
    cJSON_Delete(all);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(energy_is_per_sample_and_null_where_it_is_not_counted),
        cmocka_unit_test(the_cpu_has_no_facts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
