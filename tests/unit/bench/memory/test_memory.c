/* Limits of memory, read from fixtures of /proc and control groups; plans compared with them and with what
 * cells hold. */
#define _POSIX_C_SOURCE 200809L
#include "bench/memory/limits.h"
#include "bench/run/config/cells.h"
#include "bench/run/config/configure.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { PATH = 512, WORDS = 32 };
static const int64_t mib = 1024 * 1024;

/* ---- fixtures -------------------------------------------------------------------------------- */

static char root[] = "/tmp/ampbench-memory.XXXXXX";

static int make_root(void **state) {
    (void)state;
    strcpy(root + strlen(root) - 6, "XXXXXX");
    return mkdtemp(root) ? 0 : 1;
}

static int remove_root(void **state) {
    char command[PATH];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command); // NOLINT(cert-env33-c)
}

/* Writes a file of the fixture, and the folders it is in. */
static void put(const char *path, const char *text) {
    char whole[PATH];
    snprintf(whole, sizeof whole, "%s%s", root, path);
    for (char *slash = strchr(whole + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(whole, 0700);
        *slash = '/';
    }
    FILE *file = fopen(whole, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static int64_t left(void) {
    ab_memory_limit limit;
    ab_memory_limit_find(root, &limit);
    return limit.left;
}

static bool says(const char *text) {
    ab_memory_limit limit;
    ab_memory_limit_find(root, &limit);
    if (strstr(limit.text, text)) return true;
    print_message("no \"%s\" in: %s\n", text, limit.text);
    return false;
}

static void put_machine(void) {
    put("/proc/meminfo", "MemTotal:       8388608 kB\nMemAvailable:    4194304 kB\nSwapFree: 99999999 kB\n"
                         "CommitLimit:     3145728 kB\nCommitted_AS:    1048576 kB\n");
}

/* ---- the machine and the process ------------------------------------------------------------- */

static void without_any_file_there_is_no_limit(void **state) {
    (void)state;
    assert_true(left() == INT64_MAX);
    assert_int_equal(ab_memory_kills(root), 0);
}

static void the_machine_gives_its_available_memory_without_swap(void **state) {
    (void)state;
    put_machine();
    assert_int_equal(left(), 4096 * mib);
    assert_true(says("MemAvailable is 4096.0 MiB"));
}

static void strict_overcommit_limits_what_is_promised(void **state) {
    (void)state;
    put_machine();
    put("/proc/sys/vm/overcommit_memory", "2\n");
    assert_int_equal(left(), 2048 * mib);
    assert_true(says("vm.overcommit_memory=2"));
    put("/proc/sys/vm/overcommit_memory", "0\n");
    assert_int_equal(left(), 4096 * mib);
}

static void resource_limits_count_less_the_program(void **state) {
    (void)state;
    const int of[] = {RLIMIT_AS, RLIMIT_DATA};
    const char *const name[] = {"RLIMIT_AS", "RLIMIT_DATA"};
    put("/proc/self/status", "Name:\tx\nVmExe:\t    1024 kB\nVmLib:\t   3072 kB\n");
    for (int i = 0; i < 2; i++) {
        struct rlimit before, low;
        assert_int_equal(getrlimit(of[i], &before), 0);
        if (before.rlim_cur != RLIM_INFINITY) continue;
        low = before;
        low.rlim_cur = (rlim_t)1 << 50; /* too high to disturb this process */
        assert_int_equal(setrlimit(of[i], &low), 0);
        const int64_t found = left();
        const bool named = says(name[i]);
        assert_int_equal(setrlimit(of[i], &before), 0);
        assert_int_equal(found, ((int64_t)1 << 50) - (i == 0 ? 4 * mib : 0));
        assert_true(named);
    }
}

/* ---- control groups -------------------------------------------------------------------------- */

static void put_version2(const char *top, const char *group) {
    char line[PATH];
    snprintf(line, sizeof line,
             "22 1 0:20 / /proc rw - proc proc rw\n30 23 0:26 %s /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 "
             "cgroup2 rw\n",
             top);
    put("/proc/self/mountinfo", line);
    snprintf(line, sizeof line, "0::%s\n", group);
    put("/proc/self/cgroup", line);
}

static void the_least_of_nested_groups_counts(void **state) {
    (void)state;
    put_machine();
    put_version2("/", "/a/b/c");
    put("/sys/fs/cgroup/a/b/c/memory.max", "max\n");
    put("/sys/fs/cgroup/a/b/c/memory.current", "1048576\n");
    assert_int_equal(left(), 4096 * mib);
    put("/sys/fs/cgroup/a/memory.max", "1073741824\n");
    put("/sys/fs/cgroup/a/memory.current", "536870912\n");
    assert_int_equal(left(), 512 * mib);
    assert_true(says("control group /sys/fs/cgroup/a: memory.max is 1024.0 MiB, 512.0 MiB are in use"));
    put("/sys/fs/cgroup/a/b/memory.max", "268435456\n");
    put("/sys/fs/cgroup/a/b/memory.current", "1048576\n");
    assert_int_equal(left(), 255 * mib);
    assert_true(says("/sys/fs/cgroup/a/b:"));
}

static void page_cache_of_a_group_is_given_back(void **state) {
    (void)state;
    put_version2("/", "/a");
    put("/sys/fs/cgroup/a/memory.max", "1073741824\n");
    put("/sys/fs/cgroup/a/memory.current", "1073741824\n");
    assert_int_equal(left(), 0);
    put("/sys/fs/cgroup/a/memory.stat",
        "anon 1\nfile 900000000\nactive_file 104857600\ninactive_file 209715200\n"
        "slab_reclaimable 10485760\n");
    assert_int_equal(left(), 310 * mib);
}

static void a_group_over_its_limit_leaves_nothing(void **state) {
    (void)state;
    put_version2("/", "/a");
    put("/sys/fs/cgroup/a/memory.max", "1048576\n");
    put("/sys/fs/cgroup/a/memory.current", "2097152\n");
    assert_int_equal(left(), 0);
}

/* A container: the mount shows a group below the top as its own top. */
static void groups_are_found_below_the_mounts_top(void **state) {
    (void)state;
    put_version2("/docker/x", "/docker/x/y");
    put("/sys/fs/cgroup/memory.max", "1073741824\n");
    put("/sys/fs/cgroup/memory.current", "0\n");
    assert_int_equal(left(), 1024 * mib);
    put("/sys/fs/cgroup/y/memory.max", "1048576\n");
    put("/sys/fs/cgroup/y/memory.current", "0\n");
    assert_int_equal(left(), mib);
    put_version2("/", "/../outside"); /* a group that this namespace does not show: the mount's own */
    assert_int_equal(left(), 1024 * mib);
}

static void put_version1(void) {
    put("/proc/self/mountinfo", "35 31 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
                                "36 31 0:32 / /sys/fs/cgroup/my\\040memory rw - cgroup cgroup rw,memory\n"
                                "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
    put("/proc/self/cgroup", "9:name=systemd:/\n4:blkio,memory:/a/b\n1:cpu:/cpu\n0::/\n");
}

static void version_1_counts_ancestors_that_are_hierarchical(void **state) {
    (void)state;
    put_version1();
    put("/sys/fs/cgroup/my memory/a/b/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/my memory/a/b/memory.usage_in_bytes", "4096\n");
    put("/sys/fs/cgroup/my memory/a/memory.limit_in_bytes", "536870912\n");
    put("/sys/fs/cgroup/my memory/a/memory.usage_in_bytes", "268435456\n");
    put("/sys/fs/cgroup/my memory/a/memory.stat", "total_active_file 0\ntotal_inactive_file 134217728\n");
    assert_int_equal(left(), 384 * mib);
    assert_true(says("memory.limit_in_bytes is 512.0 MiB, 128.0 MiB are in use"));
    put("/sys/fs/cgroup/my memory/a/memory.use_hierarchy", "0\n");
    assert_true(left() > 384 * mib);
}

static void kills_are_those_of_the_machine_and_the_group(void **state) {
    (void)state;
    put("/proc/vmstat", "pgfault 5\noom_kill 3\n");
    assert_int_equal(ab_memory_kills(root), 3);
    put_version2("/", "/a");
    put("/sys/fs/cgroup/a/memory.events", "low 0\noom 7\noom_kill 2\n");
    assert_int_equal(ab_memory_kills(root), 5);
}

/* ---- plans ----------------------------------------------------------------------------------- */

typedef struct fixture {
    ab_options options;
    ab_run_config config;
    ab_cell_spec *cell;
    int count;
} fixture;

/* Cells of a command line; words are separated by spaces. */
static fixture cells_of(const char *line, char text[PATH]) {
    fixture f;
    char *words[WORDS], *rest = text;
    int n = 1;
    snprintf(text, PATH, "ampbench %s --device cpu --no-floor", line);
    words[0] = strtok_r(text, " ", &rest);
    while (n < WORDS && (words[n] = strtok_r(NULL, " ", &rest))) n++;
    assert_int_equal(ab_options_parse(n, words, &f.options), AB_OK);
    if (ab_run_config_create(&f.options, false, &f.config) != AB_OK) fail_msg("%s", ab_error_message());
    if (ab_run_cells(&f.config, &f.cell, &f.count) != AB_OK) fail_msg("%s", ab_error_message());
    return f;
}

static void drop(fixture *f) {
    ab_run_cells_free(f->cell, f->count);
    ab_run_config_clear(&f->config);
}

/* Every category but workspace is exact; the estimate of the products' workspace keeps the total near. */
static void compare(const ab_cell_config *settings, const char *id) {
    ab_plan *plan;
    ab_cell *cell;
    int64_t bytes[AB_MEM_CATEGORY_COUNT], total = 0, exact = 0;
    if (ab_cell_planned(settings, &plan, bytes) != AB_OK) fail_msg("%s", ab_error_message());
    if (ab_cell_create(settings, &cell) != AB_OK) fail_msg("%s", ab_error_message());
    if (ab_cell_workspace(settings, plan, &exact) != AB_OK) fail_msg("%s", ab_error_message());
    for (int c = 0; c < AB_MEM_CATEGORY_COUNT; c++) {
        total += bytes[c];
        if (c != AB_MEM_workspace) assert_int_equal(bytes[c], ab_cell_bytes(cell, (ab_mem_category)c));
    }
    if (!settings->recipe.ranks
             .sync_bn) /* its replicas are counted with the states of ops, which they share */
        assert_int_equal(plan->bytes[AB_MEM_workspace] + exact, ab_cell_bytes(cell, AB_MEM_workspace));
    const double ratio = (double)total / (double)ab_cell_bytes_total(cell);
    if (ratio < 0.8 || ratio > 1.25) fail_msg("%s: planned / held: %.3f", id, ratio);
    assert_true(ab_memory_needed(settings, plan) <= ab_cell_bytes_total(cell));
    ab_cell_destroy(cell);
    ab_plan_destroy(plan);
}

static void what_is_planned_is_what_a_cell_holds(void **state) {
    (void)state;
    static const char *const lines[] = {
        "--net lenet5 --half fp16,bf16",
        "--net mlp --optimizer adam --gradient-accumulation-steps 2 --ema 0.9",
        "--net resnet8 --recompute all --levels O0,O2",
        "--net gpt --levels O0,O1 --half bf16",
        "--net lstm_lm --levels O0,O3",
        "--net lenet5 --cpu-path reference --levels O1",
        "--net lenet5 --accumulate half --levels O3",
        "--net mlp --ranks 3 --levels O0,O2",
        "--net resnet8 --ranks 4 --sync-bn torch --levels O0,O1,O2"};
    for (size_t i = 0; i < AB_COUNT_OF(lines); i++) {
        char text[PATH];
        fixture f = cells_of(lines[i], text);
        for (int c = 0; c < f.count; c++) {
            const ab_cell_config settings = ab_cell_config_of(&f.config, &f.cell[c]);
            compare(&settings, f.cell[c].id);
        }
        drop(&f);
    }
}

static void only_what_cannot_fit_is_refused(void **state) {
    (void)state;
    char text[PATH];
    fixture f = cells_of("--net resnet8 --levels O0 --batch 64", text);
    const ab_cell_config settings = ab_cell_config_of(&f.config, &f.cell[0]);
    ab_plan *plan;
    ab_memory_limit limit = {.text = "a limit"};
    assert_int_equal(ab_cell_compile(&settings, &plan), AB_OK);
    limit.left = ab_memory_needed(&settings, plan);
    assert_int_equal(ab_memory_check(&limit, &settings, plan, f.cell[0].id), AB_OK);
    limit.left--;
    assert_int_equal(ab_memory_check(&limit, &settings, plan, f.cell[0].id), AB_NO_MEMORY);
    assert_int_equal(ab_status_exit(AB_NO_MEMORY), 2);
    const char *const expected[] = {"resnet8/O0/1/fp16/cpu/seed1: ", "MiB are left: a limit; ", " (now 64)",
                                    "--recompute all", "--no-memory-check"};
    for (size_t i = 0; i < AB_COUNT_OF(expected); i++)
        if (!strstr(ab_error_message(), expected[i])) fail_msg("%s", ab_error_message());
    limit.left = 1;
    assert_int_equal(ab_memory_check(&limit, &settings, plan, f.cell[0].id), AB_NO_MEMORY);
    assert_non_null(strstr(ab_error_message(), "not even a batch of 1 fits"));
    ab_plan_destroy(plan);
    drop(&f);
}

/* The batch that a refusal names does fit, and the next one does not. */
static void the_batch_of_a_refusal_fits(void **state) {
    (void)state;
    char text[PATH];
    fixture f = cells_of("--net lenet5 --levels O0 --batch 500", text);
    ab_cell_config settings = ab_cell_config_of(&f.config, &f.cell[0]);
    const ab_memory_limit limit = {.left = 3 * mib, .text = "a limit"};
    ab_plan *plan;
    assert_int_equal(ab_cell_compile(&settings, &plan), AB_OK);
    assert_int_equal(ab_memory_check(&limit, &settings, plan, "x"), AB_NO_MEMORY);
    ab_plan_destroy(plan);
    const char *named = strstr(ab_error_message(), "--batch ");
    assert_non_null(named);
    const int64_t batch = atoll(named + strlen("--batch "));
    for (int more = 0; more < 2; more++) {
        int64_t bytes[AB_MEM_CATEGORY_COUNT], total = 0;
        settings.batch = batch + more;
        assert_int_equal(ab_cell_planned(&settings, &plan, bytes), AB_OK);
        for (int c = 0; c < AB_MEM_CATEGORY_COUNT; c++) total += bytes[c];
        assert_int_equal(total > limit.left, more);
        ab_plan_destroy(plan);
    }
    drop(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(without_any_file_there_is_no_limit, make_root, remove_root),
        cmocka_unit_test_setup_teardown(the_machine_gives_its_available_memory_without_swap, make_root,
                                        remove_root),
        cmocka_unit_test_setup_teardown(strict_overcommit_limits_what_is_promised, make_root, remove_root),
        cmocka_unit_test_setup_teardown(resource_limits_count_less_the_program, make_root, remove_root),
        cmocka_unit_test_setup_teardown(the_least_of_nested_groups_counts, make_root, remove_root),
        cmocka_unit_test_setup_teardown(page_cache_of_a_group_is_given_back, make_root, remove_root),
        cmocka_unit_test_setup_teardown(a_group_over_its_limit_leaves_nothing, make_root, remove_root),
        cmocka_unit_test_setup_teardown(groups_are_found_below_the_mounts_top, make_root, remove_root),
        cmocka_unit_test_setup_teardown(version_1_counts_ancestors_that_are_hierarchical, make_root,
                                        remove_root),
        cmocka_unit_test_setup_teardown(kills_are_those_of_the_machine_and_the_group, make_root, remove_root),
        cmocka_unit_test(what_is_planned_is_what_a_cell_holds),
        cmocka_unit_test(only_what_cannot_fit_is_refused),
        cmocka_unit_test(the_batch_of_a_refusal_fits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
