/* Finds the launcher and its plugin, and waits. */
#define _GNU_SOURCE
#include "kernels/mpi/mpi.h"

#include "kernels/core/plugin.h"
#include "kernels/core/text.h"

#include <dlfcn.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- the plugin ------------------------------------------------------------------------------ */

const char *ab_mpi_launcher(void) {
    if (getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMIX_RANK")) return "openmpi";
    if (getenv("PMI_RANK") || getenv("PMI_FD")) return "mpich";
    return NULL;
}

/* The first of these variables that is a number above 0, or `otherwise`. */
static int variable(const char *const names[], size_t count, int otherwise) {
    for (size_t i = 0; i < count; i++) {
        const char *text = getenv(names[i]);
        if (text && atoi(text) > 0) return atoi(text);
    }
    return otherwise;
}

int ab_mpi_launched_rank(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};
    return variable(names, AB_COUNT_OF(names), 0);
}

int ab_mpi_local_rank(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"};
    return variable(names, AB_COUNT_OF(names), 0);
}

int ab_mpi_local_ranks(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"};
    return variable(names, AB_COUNT_OF(names), 1);
}

static const char *title(const char *launcher) {
    return strcmp(launcher, "mpich") == 0 ? "MPICH" : "Open MPI";
}

/* MPI's own components look for symbols of the library: they must be global. */
static ab_status load(const char *path, const ab_mpi **mpi) {
    ab_mpi_entry entry;
    void *handle = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!handle) return ab_fail(AB_UNAVAILABLE, "no MPI library (%s)", dlerror());
    void *symbol = dlsym(handle, AB_MPI_ENTRY);
    if (!symbol) return ab_fail(AB_UNAVAILABLE, "%s has no function %s", path, AB_MPI_ENTRY);
    memcpy(&entry, &symbol, sizeof entry);
    *mpi = entry();
    if ((*mpi)->abi == AB_MPI_ABI) return AB_OK;
    return ab_fail(AB_UNAVAILABLE, "%s was built for another version of ampbench", path);
}

ab_status ab_mpi_open(const ab_mpi **mpi) {
    const char *launcher = ab_mpi_launcher(), *path;
    char file[64];
    if (!launcher) return ab_fail(AB_USAGE, "no MPI launcher started this process");
    ab_text_exact(file, sizeof file, "libampbench_mpi_%s.so", launcher);
    if (ab_plugin_find(file, "no plugin for this MPI", &path) != AB_OK)
        return ab_fail_prefix(AB_UNAVAILABLE, "the launcher is that of %s", title(launcher));
    return load(path, mpi);
}

ab_status ab_mpi_check(const ab_mpi *mpi, int code, const char *what) {
    return code == 0 ? AB_OK : ab_fail(AB_SYSTEM, "MPI: %s: %s", what, mpi->describe(code));
}

/* ---- waiting --------------------------------------------------------------------------------- */

void ab_mpi_pause(int turn, const ab_mpi_limits *limits) {
    enum { FIRST_NS = 20000, LAST_NS = 500000, EACH = 16 };
    const int doubled = turn / EACH;
    const long ns = doubled >= 5 ? LAST_NS : (long)FIRST_NS << doubled;
    const struct timespec time = {.tv_nsec = ns};
    struct pollfd wake = {.fd = limits && limits->wakes ? limits->wake : -1, .events = POLLIN};
    (void)ppoll(&wake, 1, &time, NULL);
}

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

ab_status ab_mpi_wait(const ab_mpi *mpi, const ab_mpi_limits *limits) {
    for (int turn = 0;; turn += turn < 1000) {
        bool done = false;
        AB_TRY(ab_mpi_check(mpi, mpi->test(&done), "a transfer"));
        if (done) return AB_OK;
        if (limits->stop && *limits->stop) return ab_fail(AB_INTERRUPTED, "interrupted");
        if (limits->deadline_ns && now_ns() > limits->deadline_ns)
            return ab_fail(AB_SYSTEM, "the other ranks did not answer in time");
        if (limits->check) AB_TRY(limits->check(limits->context));
        ab_mpi_pause(turn, limits);
    }
}
