/* Reads small files of /proc and /sys; a limit that cannot be read is no limit. Formats: proc(5), cgroups(7),
 * Documentation/admin-guide/cgroup-v1/memory.rst and cgroup-v2.rst of the kernel. */
#define _POSIX_C_SOURCE 200809L

#include "bench/memory/limits.h"

#include "kernels/core/text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { PATH_BYTES = 4096, LINE_BYTES = 8192 };

static const double mib = 1024.0 * 1024.0;

/* ---- files ----------------------------------------------------------------------------------- */

/* Opens root/path; NULL if it is not there or its name is too long. */
static FILE *open_under(const char *root, const char *path) {
    char whole[PATH_BYTES];
    return ab_text_fits(whole, sizeof whole, "%s%s", root, path) ? fopen(whole, "r") : NULL;
}

/* The number after `key` at the start of a line ("MemAvailable: 12 kB", "file 12"), times `unit`; -1 if there
 * is none. */
static int64_t field(const char *root, const char *path, const char *key, int64_t unit) {
    char line[LINE_BYTES];
    const size_t length = strlen(key);
    int64_t value = -1;
    FILE *file = open_under(root, path);
    while (file && value < 0 && fgets(line, sizeof line, file)) {
        if (strncmp(line, key, length) != 0 || !strchr(": \t", line[length])) continue;
        const long long number = strtoll(line + length + strspn(line + length, ": \t"), NULL, 10);
        if (number >= 0 && number <= INT64_MAX / unit) value = number * unit;
    }
    if (file) fclose(file);
    return value;
}

/* The number that is the whole file; -1 for "max" or if there is none. */
static int64_t number_in(const char *root, const char *folder, const char *name) {
    char path[PATH_BYTES], line[64], *end;
    FILE *file = ab_text_fits(path, sizeof path, "%s/%s", folder, name) ? open_under(root, path) : NULL;
    int64_t value = -1;
    if (file && fgets(line, sizeof line, file)) {
        const long long number = strtoll(line, &end, 10);
        if (end != line && number >= 0) value = number;
    }
    if (file) fclose(file);
    return value;
}

/* field() of a file in a folder; 0 if there is none. */
static int64_t field_in(const char *root, const char *folder, const char *name, const char *key) {
    char path[PATH_BYTES];
    if (!ab_text_fits(path, sizeof path, "%s/%s", folder, name)) return 0;
    const int64_t value = field(root, path, key, 1);
    return value > 0 ? value : 0;
}

/* ---- the least ------------------------------------------------------------------------------- */

AB_PRINTF(3, 4)
static void lower(ab_memory_limit *limit, int64_t left, const char *format, ...) {
    va_list args;
    if (left >= limit->left) return;
    limit->left = left > 0 ? left : 0;
    va_start(args, format);
    ab_text_show_args(limit->text, sizeof limit->text, format, args);
    va_end(args);
}

static void of_machine(const char *root, ab_memory_limit *limit) {
    const int64_t available = field(root, "/proc/meminfo", "MemAvailable", 1024);
    if (available >= 0)
        lower(limit, available, "this machine's MemAvailable is %.1f MiB", (double)available / mib);
    if (number_in(root, "/proc/sys/vm", "overcommit_memory") != 2) return;
    const int64_t most = field(root, "/proc/meminfo", "CommitLimit", 1024),
                  used = field(root, "/proc/meminfo", "Committed_AS", 1024);
    if (most >= 0 && used >= 0)
        lower(
            limit, most - used,
            "this machine's CommitLimit is %.1f MiB, %.1f MiB of them are promised (vm.overcommit_memory=2)",
            (double)most / mib, (double)used / mib);
}

/* A new process maps the program and its libraries before it allocates anything. */
static void of_process(const char *root, ab_memory_limit *limit) {
    struct rlimit of;
    const int64_t program = field(root, "/proc/self/status", "VmExe", 1024),
                  libraries = field(root, "/proc/self/status", "VmLib", 1024);
    const int64_t mapped = (program > 0 ? program : 0) + (libraries > 0 ? libraries : 0);
    if (getrlimit(RLIMIT_AS, &of) == 0 && of.rlim_cur < INT64_MAX)
        lower(limit, (int64_t)of.rlim_cur - mapped,
              "RLIMIT_AS (ulimit -v) is %.1f MiB, program and libraries map %.1f MiB",
              (double)of.rlim_cur / mib, (double)mapped / mib);
    if (getrlimit(RLIMIT_DATA, &of) == 0 && of.rlim_cur < INT64_MAX)
        lower(limit, (int64_t)of.rlim_cur, "RLIMIT_DATA (ulimit -d) is %.1f MiB", (double)of.rlim_cur / mib);
}

/* ---- control groups -------------------------------------------------------------------------- */

/* Names of a version's files. */
typedef struct group_files {
    const char *limit, *used, *cache[3], *events;
    bool first; /* version 1 */
} group_files;

static const group_files version1 = {"memory.limit_in_bytes",
                                     "memory.usage_in_bytes",
                                     {"total_active_file", "total_inactive_file", NULL},
                                     "memory.oom_control",
                                     true};
static const group_files version2 = {"memory.max",
                                     "memory.current",
                                     {"active_file", "inactive_file", "slab_reclaimable"},
                                     "memory.events",
                                     false};

/* A mount of control groups: the group `top` of the hierarchy is at `point`. */
typedef struct mount {
    char top[PATH_BYTES], point[PATH_BYTES];
} mount;

/* Replaces the escapes of mountinfo ("\040" for a space). */
static void unescape(char *text) {
    char *to = text;
    for (const char *from = text; *from; to++) {
        const bool escape = from[0] == '\\' && strspn(from + 1, "01234567") >= 3;
        *to = escape ? (char)((from[1] - '0') * 64 + (from[2] - '0') * 8 + (from[3] - '0')) : *from;
        from += escape ? 4 : 1;
    }
    *to = '\0';
}

/* Whether `word` is in a comma-separated list. */
static bool lists(const char *list, const char *word) {
    const size_t length = strlen(word);
    for (; *list; list += list[0] == ',') {
        const size_t item = strcspn(list, ",\n");
        if (item == length && strncmp(list, word, length) == 0) return true;
        list += item;
        if (*list == '\n') break;
    }
    return false;
}

/* "36 35 98:0 /top /point options [more] - type source options". */
static bool is_mount(char *line, bool first, mount *m) {
    char type[32], options[LINE_BYTES];
    const char *rest = strstr(line, " - ");
    if (!rest || sscanf(line, "%*s %*s %*s %4095s %4095s", m->top, m->point) != 2) return false;
    if (sscanf(rest, " - %31s %*s %8191s", type, options) != 2) return false;
    unescape(m->top);
    unescape(m->point);
    return first ? strcmp(type, "cgroup") == 0 && lists(options, "memory") : strcmp(type, "cgroup2") == 0;
}

static bool find_mount(const char *root, bool first, mount *m) {
    char line[LINE_BYTES];
    bool found = false;
    FILE *file = open_under(root, "/proc/self/mountinfo");
    while (file && !found && fgets(line, sizeof line, file)) found = is_mount(line, first, m);
    if (file) fclose(file);
    return found;
}

/* "4:memory:/group" or "0::/group": the process's group of a version. */
static bool find_group(const char *root, bool first, char group[PATH_BYTES]) {
    char line[LINE_BYTES];
    bool found = false;
    FILE *file = open_under(root, "/proc/self/cgroup");
    while (file && !found && fgets(line, sizeof line, file)) {
        char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path) continue;
        *path++ = '\0';
        path[strcspn(path, "\n")] = '\0';
        controllers++;
        found = (first ? lists(controllers, "memory") : controllers[0] == '\0') &&
                ab_text_fits(group, PATH_BYTES, "%s", path);
    }
    if (file) fclose(file);
    return found;
}

/* The folder of the process's group; the mount's own folder if the group is not below the mount. */
static bool find_folder(const char *root, bool first, mount *m, char folder[PATH_BYTES]) {
    char group[PATH_BYTES];
    if (!find_mount(root, first, m) || !find_group(root, first, group)) return false;
    const size_t top = strcmp(m->top, "/") == 0 ? 0 : strlen(m->top);
    const bool below = strncmp(group, m->top, top) == 0 && (group[top] == '/' || group[top] == '\0') &&
                       !strstr(group, "/..");
    const char *rest = below ? group + top : "";
    return ab_text_fits(folder, PATH_BYTES, "%s%s", m->point, strcmp(rest, "/") == 0 ? "" : rest);
}

static void of_group(const char *root, const char *folder, const group_files *files, ab_memory_limit *limit) {
    const int64_t most = number_in(root, folder, files->limit), used = number_in(root, folder, files->used);
    int64_t cache = 0;
    if (most < 0 || used < 0) return;
    for (size_t i = 0; i < AB_COUNT_OF(files->cache) && files->cache[i]; i++)
        cache += field_in(root, folder, "memory.stat", files->cache[i]);
    const int64_t held = used > cache ? used - cache : 0;
    lower(limit, most - held, "control group %s: %s is %.1f MiB, %.1f MiB are in use without page cache",
          folder, files->limit, (double)most / mib, (double)held / mib);
}

/* The group and its ancestors, up to the mount. */
static void of_groups(const char *root, const group_files *files, ab_memory_limit *limit) {
    mount m;
    char folder[PATH_BYTES];
    if (!find_folder(root, files->first, &m, folder)) return;
    for (const size_t top = strlen(m.point);;) {
        of_group(root, folder, files, limit);
        if (strlen(folder) <= top) return;
        *strrchr(folder, '/') = '\0';
        if (files->first && number_in(root, folder, "memory.use_hierarchy") == 0) return;
    }
}

/* ---- interface ------------------------------------------------------------------------------- */

void ab_memory_limit_find(const char *root, ab_memory_limit *limit) {
    *limit = (ab_memory_limit){.left = INT64_MAX, .text = ""};
    of_machine(root, limit);
    of_groups(root, &version2, limit);
    of_groups(root, &version1, limit);
    of_process(root, limit);
}

static int64_t kills_of(const char *root, const group_files *files) {
    mount m;
    char folder[PATH_BYTES];
    if (!find_folder(root, files->first, &m, folder)) return 0;
    return field_in(root, folder, files->events, "oom_kill");
}

int64_t ab_memory_kills(const char *root) {
    const int64_t machine = field(root, "/proc/vmstat", "oom_kill", 1);
    return (machine > 0 ? machine : 0) + kills_of(root, &version1) + kills_of(root, &version2);
}

/* Compares a plan with a limit; finds the batch that would fit. */

void ab_memory_limit_of(const char *root, const ab_device *device, ab_memory_limit *limit) {
    int64_t left, all;
    if (!device->memory) {
        ab_memory_limit_find(root, limit);
        return;
    }
    *limit = (ab_memory_limit){.left = INT64_MAX, .text = ""};
    if (device->memory(&left, &all) != AB_OK) return;
    limit->left = left;
    ab_text_show(limit->text, sizeof limit->text, "%s has %.1f MiB", device->name, (double)all / mib);
}

static int64_t sum(const int64_t bytes[AB_MEM_CATEGORY_COUNT]) {
    int64_t total = 0;
    for (int c = 0; c < AB_MEM_CATEGORY_COUNT; c++) total += bytes[c];
    return total;
}

static void needed_by_category(const ab_cell_config *config, const ab_plan *plan,
                               int64_t bytes[AB_MEM_CATEGORY_COUNT]) {
    for (int c = 0; c < AB_MEM_CATEGORY_COUNT; c++)
        bytes[c] = plan->bytes[c] + ab_cell_rank_bytes(config, plan, (ab_mem_category)c, 0);
}

int64_t ab_memory_needed(const ab_cell_config *config, const ab_plan *plan) {
    int64_t bytes[AB_MEM_CATEGORY_COUNT];
    needed_by_category(config, plan, bytes);
    return sum(bytes);
}

/* Whether a batch would fit, workspace included. A batch that cannot be planned does not. */
static bool fits(const ab_memory_limit *limit, const ab_cell_config *config, int64_t batch) {
    ab_cell_config settings = *config;
    ab_plan *plan = NULL;
    int64_t bytes[AB_MEM_CATEGORY_COUNT];
    settings.batch = batch;
    settings.init_file = NULL;
    if (ab_cell_planned(&settings, &plan, bytes) != AB_OK) return false;
    ab_plan_destroy(plan);
    return sum(bytes) <= limit->left;
}

/* The largest batch that fits; 0: none. config->batch does not. */
static int64_t fitting_batch(const ab_memory_limit *limit, const ab_cell_config *config) {
    int64_t low = 0, high = config->batch;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (fits(limit, config, middle))
            low = middle;
        else
            high = middle;
    }
    return low;
}

static bool could_recompute(const ab_net *net) {
    for (int i = 0; i < net->ops; i++)
        if (net->op[i].block >= 0 && !net->op[i].recompute) return true;
    return false;
}

static ab_mem_category largest_of(const int64_t bytes[AB_MEM_CATEGORY_COUNT]) {
    int most = 0;
    for (int c = 1; c < AB_MEM_CATEGORY_COUNT; c++)
        if (bytes[c] > bytes[most]) most = c;
    return (ab_mem_category)most;
}

ab_status ab_memory_check(const ab_memory_limit *limit, const ab_cell_config *config, const ab_plan *plan,
                          const char *id) {
    int64_t bytes[AB_MEM_CATEGORY_COUNT];
    needed_by_category(config, plan, bytes);
    const int64_t needed = sum(bytes);
    char remedy[192] =
        "not even a batch of 1 fits: take a smaller network, --optimizer sgd or --optimizer-state half";
    if (needed <= limit->left) return AB_OK;
    const ab_mem_category most = largest_of(bytes);
    const int64_t batch = fitting_batch(limit, config);
    if (batch > 0)
        ab_text_show(remedy, sizeof remedy, "--batch %" PRId64 " fits (now %" PRId64 ")", batch,
                     config->batch);
    if (config->recipe.ranks.count > 1) ab_text_append(remedy, sizeof remedy, ", or fewer --ranks");
    if (could_recompute(config->net)) ab_text_append(remedy, sizeof remedy, ", or try --recompute all");
    return ab_fail(
        AB_NO_MEMORY,
        "%s: the tensors of its plan need %.1f MiB (most: %s, %.1f MiB), %.1f MiB are left: %s; %s; "
        "--no-memory-check starts it all the same",
        id, (double)needed / mib, ab_mem_category_name(most), (double)bytes[most] / mib,
        (double)limit->left / mib, limit->text, remedy);
}
