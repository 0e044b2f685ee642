/* Reads /proc, /sys and the build's own constants. */
#define _GNU_SOURCE

#include "bench/run/environment.h"

#include "bench/run/config/digest.h"
#include "build_info.h"
#include "kernels/core/text.h"
#include "kernels/ops/product/library.h"
#include "kernels/vec/isa.h"

#include <math.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#if defined(__GLIBC__)
#include <gnu/libc-version.h>
#endif

static bool spin_count_is_ours;

void ab_environment_prepare_workers(void) {
    if (getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY")) return;
    setenv("GOMP_SPINCOUNT", "1000", 1);
    spin_count_is_ours = true;
}

static void add_text(cJSON *object, const char *key, const char *text) {
    if (text && text[0])
        cJSON_AddStringToObject(object, key, text);
    else
        cJSON_AddNullToObject(object, key);
}

/* Reads the first line of a file without its newline, or "". */
static const char *first_line(const char *path, char *line, int size) {
    FILE *file = fopen(path, "r");
    line[0] = '\0';
    if (!file) return line;
    if (!fgets(line, size, file)) line[0] = '\0';
    fclose(file);
    line[strcspn(line, "\n")] = '\0';
    return line;
}

cJSON *ab_environment_generator(void) {
    cJSON *generator = cJSON_CreateObject();
    cJSON_AddStringToObject(generator, "name", "ampbench");
    cJSON_AddStringToObject(generator, "version", AB_VERSION);
    add_text(generator, "git_sha", AB_GIT_SHA);
    cJSON_AddBoolToObject(generator, "git_dirty", AB_GIT_DIRTY);
    cJSON_AddStringToObject(generator, "build_type", AB_BUILD_TYPE);
    cJSON_AddStringToObject(generator, "compiler", AB_COMPILER);
    cJSON_AddStringToObject(generator, "flags", AB_FLAGS);
    add_text(generator, "onednn_version", ab_dnnl_version());
    return generator;
}

const char *ab_environment_build_warning(char text[AB_BUILD_TEXT]) {
    cJSON *generator = ab_environment_generator();
    const char *warning = ab_build_warning(generator, text);
    cJSON_Delete(generator);
    return warning;
}

/* Value of "key : value" in /proc/cpuinfo for the first processor; "" if absent. */
static const char *cpuinfo(const char *key, char *value, size_t size) {
    FILE *file = fopen("/proc/cpuinfo", "r");
    char *line = NULL;
    size_t capacity = 0, length = strlen(key);
    value[0] = '\0';
    while (file && value[0] == '\0' && getline(&line, &capacity, file) > 0) {
        const char *colon = strchr(line, ':');
        if (!colon || strncmp(line, key, length) != 0 || (line[length] != '\t' && line[length] != ' '))
            continue;
        ab_text_show(value, size, "%s", colon + 1 + (colon[1] == ' '));
        value[strcspn(value, "\n")] = '\0';
    }
    free(line);
    if (file) fclose(file);
    return value;
}

static void add_flags(cJSON *machine) {
    static const char *const wanted[] = {
        "f16c",        "fma",         "avx2",        "bmi2",       "avx512f", "avx512bw",      "avx512vl",
        "avx512_vnni", "avx512_bf16", "avx512_fp16", "avx512vbmi", "gfni",    "avx512_bitalg", "amx_tile",
        "amx_bf16",    "amx_int8",    "avx_vnni",    "sve",        "asimd"};
    char flags[8192];
    cJSON *list = cJSON_AddArrayToObject(machine, "cpu_flags");
    cpuinfo("flags", flags, sizeof flags);
    char *rest = flags;
    for (char *flag; (flag = strtok_r(rest, " ", &rest));)
        for (size_t i = 0; i < AB_COUNT_OF(wanted); i++)
            if (strcmp(flag, wanted[i]) == 0) cJSON_AddItemToArray(list, cJSON_CreateString(flag));
}

static void add_variables(cJSON *machine) {
    static const char *const allowed[] = {"OMP_NUM_THREADS",    "OMP_WAIT_POLICY",  "OMP_PROC_BIND",
                                          "OMP_PLACES",         "GOMP_SPINCOUNT",   "ONEDNN_MAX_CPU_ISA",
                                          "DNNL_MAX_CPU_ISA",   "AMPBENCH_CPU_ISA", "CUDA_VISIBLE_DEVICES",
                                          "AMPBENCH_EXTRA_WORK"};
    cJSON *variables = cJSON_AddObjectToObject(machine, "variables");
    for (size_t i = 0; i < AB_COUNT_OF(allowed); i++) add_text(variables, allowed[i], getenv(allowed[i]));
    bool set = getenv("GOMP_SPINCOUNT") != NULL;
    add_text(variables, "GOMP_SPINCOUNT_set_by", spin_count_is_ours ? "ampbench" : set ? "user" : "");
}

static void add_host(cJSON *machine) {
    struct utsname name;
    char kernel[256] = "", os[256] = "", hash[17];
    if (uname(&name) == 0)
        ab_text_show(kernel, sizeof kernel, "%s %s %s", name.sysname, name.release, name.machine);
    FILE *release = fopen("/etc/os-release", "r");
    char line[256];
    while (release && fgets(line, sizeof line, release))
        if (sscanf(line, "PRETTY_NAME=\"%200[^\"]", os) == 1) break;
    if (release) fclose(release);
    add_text(machine, "os", os);
    add_text(machine, "kernel", kernel);
    ab_digest digest = ab_digest_start();
    digest = ab_digest_add(digest, "ampbench-host:", 14);
    digest = ab_digest_add(digest, name.nodename, strlen(name.nodename));
    cJSON_AddStringToObject(machine, "hostname_hash", ab_digest_text(digest, hash));
}

/* Recorded for information: no loss depends on it (kernels/core/elementary.h). */
static void add_c_library(cJSON *machine) {
    char name[48] = "";
#if defined(__GLIBC__)
    ab_text_show(name, sizeof name, "glibc %s", gnu_get_libc_version());
#endif
    add_text(machine, "c_library", name);
}

static void add_load(cJSON *machine) {
    double load[3];
    cJSON *list = cJSON_AddArrayToObject(machine, "load_average");
    int count = getloadavg(load, 3);
    for (int i = 0; i < count; i++) cJSON_AddItemToArray(list, cJSON_CreateNumber(load[i]));
}

static void add_processor(cJSON *machine) {
    char text[256];
    cpu_set_t set;
    add_text(machine, "cpu_model", cpuinfo("model name", text, sizeof text));
    add_text(machine, "microcode", cpuinfo("microcode", text, sizeof text));
    add_flags(machine);
    cJSON_AddStringToObject(machine, "isa", ab_isa_name(ab_isa_get()));
    cJSON_AddStringToObject(machine, "isa_best", ab_isa_name(ab_isa_best()));
    cJSON_AddNumberToObject(machine, "cores", (double)sysconf(_SC_NPROCESSORS_ONLN));
    cJSON_AddNumberToObject(machine, "affinity",
                            sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0);
    add_text(machine, "governor",
             first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", text, (int)sizeof text));
    add_text(machine, "boost", first_line("/sys/devices/system/cpu/cpufreq/boost", text, (int)sizeof text));
}

cJSON *ab_environment_machine(void) {
    cJSON *machine = cJSON_CreateObject();
    add_host(machine);
    add_c_library(machine);
    add_processor(machine);
    cJSON_AddNumberToObject(machine, "memory_bytes",
                            (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGE_SIZE));
    add_load(machine);
    add_variables(machine);
    cJSON_AddStringToObject(machine, "denormals", "kept"); /* of a run: record.c */
    return machine;
}

/* Adds the text of a field, or its number. */
static ab_digest add_field(ab_digest digest, const cJSON *object, const char *field) {
    char number[32];
    const cJSON *item = cJSON_GetObjectItem(object, field);
    const char *text = cJSON_GetStringValue(item);
    if (!text)
        text = ab_text_exact(number, sizeof number, "%.17g", cJSON_IsNumber(item) ? item->valuedouble : 0.0);
    return ab_digest_add(digest, text, strlen(text) + 1);
}

static ab_digest add_fields(const cJSON *generator, const cJSON *machine, bool host) {
    static const char *const machine_fields[] = {"os", "kernel", "cpu_model", "isa", "cores", "affinity"};
    static const char *const build_fields[] = {"compiler", "flags", "build_type", "onednn_version"};
    ab_digest digest = ab_digest_start();
    for (size_t i = 0; i < AB_COUNT_OF(machine_fields); i++)
        digest = add_field(digest, machine, machine_fields[i]);
    if (host) digest = add_field(digest, machine, "hostname_hash");
    for (size_t i = 0; i < AB_COUNT_OF(build_fields); i++)
        digest = add_field(digest, generator, build_fields[i]);
    return digest;
}

void ab_environment_key(const cJSON *generator, const cJSON *machine, char key[17]) {
    ab_digest_text(add_fields(generator, machine, true), key);
}

static void add_device_fact(void *context, const char *key, const char *text) {
    static const char *const lasting[] = {"gpu",           "driver_version", "cuda_runtime_version",
                                          "cudnn_version", "cublas_version", "gpu_memory_bytes"};
    ab_digest *digest = context;
    for (size_t i = 0; text && i < AB_COUNT_OF(lasting); i++)
        if (strcmp(key, lasting[i]) == 0) *digest = ab_digest_add(*digest, text, strlen(text) + 1);
}

void ab_environment_class(const cJSON *generator, const cJSON *machine, const ab_device *device, int threads,
                          char text[17]) {
    ab_digest digest = add_fields(generator, machine, false);
    digest = ab_digest_add(digest, &threads, sizeof threads);
    if (device->facts) device->facts(add_device_fact, &digest);
    ab_digest_text(digest, text);
}

/* Writes facts from the device's table to the record. */

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
