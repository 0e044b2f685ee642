/* Messages between the processes of an MPI job, through a table of functions that a plugin exports.
 *
 * The program does not link to MPI: libampbench_mpi_openmpi.so or libampbench_mpi_mpich.so, whichever fits
 * the launcher, is opened at run time (plugin/mpi_plugin.c). No thread of ours waits by spinning: ab_mpi_wait
 * sleeps between tests. No arithmetic on messages except MPI's own sum of `allreduce`. */
#ifndef AB_KERNELS_MPI_MPI_H
#define AB_KERNELS_MPI_MPI_H

#include "kernels/core/status.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

AB_BEGIN_DECLS

enum { AB_MPI_ABI = 1 }; /* increment when ab_mpi changes */

/* Functions return 0 or MPI's error code. One thread may call them, the one that called `start`. */
typedef struct ab_mpi {
    int abi; /* AB_MPI_ABI */
    /* Initialises MPI. *rank in [0, *ranks). library: first line of the library's version, static. */
    int (*start)(int *rank, int *ranks, const char **library);
    /* Ends MPI; all ranks must call it. */
    int (*finish)(void);
    /* Ends all processes of the job with this exit status, this one too. */
    void (*abort)(int exit_status);
    /* Begin a transfer of n bytes. The memory must stay until `test` says that all are done. */
    int (*send)(int peer, int tag, const void *bytes, size_t n);
    int (*receive)(int peer, int tag, void *bytes, size_t n);
    /* Begins the sum over all ranks of n floats, in place, in the library's own order. n < 2^31. */
    int (*allreduce)(float *values, size_t n);
    /* *done: all transfers that were begun are complete. */
    int (*test)(bool *done);
    /* Whether a message with this tag waits; *peer: from whom. */
    int (*probe)(int tag, int *peer, bool *waits);
    const char *(*describe)(int code); /* MPI's text; static, until the next call */
} ab_mpi;

/* The function that a plugin exports. */
typedef const ab_mpi *(*ab_mpi_entry)(void);
#define AB_MPI_ENTRY "ab_mpi_v1"

/* Which library's launcher started this process, from its environment: "openmpi", "mpich", NULL: none. */
const char *ab_mpi_launcher(void);

/* The number that a launcher gave this process, from its environment; 0 without one. */
int ab_mpi_launched_rank(void);

/* This process's number among those of the job on this machine, from its environment; 0 without one. */
int ab_mpi_local_rank(void);

/* Processes of the job on this machine, as the launcher says; at least 1. */
int ab_mpi_local_ranks(void);

/* Opens the plugin that fits the launcher. AB_USAGE without a launcher, AB_UNAVAILABLE with the reason: no
 * plugin, no MPI library; messages name no option, the caller does. A loaded object stays open until the
 * process ends. */
AB_MUST_CHECK ab_status ab_mpi_open(const ab_mpi **mpi);

/* AB_SYSTEM with MPI's text if `code` is not 0; `what` says what was tried. */
AB_MUST_CHECK ab_status ab_mpi_check(const ab_mpi *mpi, int code, const char *what);

/* What ends a wait. */
typedef struct ab_mpi_limits {
    const volatile sig_atomic_t *stop; /* non-zero: AB_INTERRUPTED; NULL: none */
    int64_t deadline_ns;               /* CLOCK_MONOTONIC: AB_SYSTEM; 0: none */
    /* Called between tests; a failure ends the wait. NULL: none. */
    ab_status (*check)(void *context);
    void *context;
    bool wakes; /* a pause ends early when `wake` is readable */
    int wake;
} ab_mpi_limits;

/* Sleeps: 20 us, then longer up to 0.5 ms. `turn` counts from 0. limits->wake ends it; NULL: nothing does. */
void ab_mpi_pause(int turn, const ab_mpi_limits *limits);

/* Waits until all transfers that were begun are complete. */
AB_MUST_CHECK ab_status ab_mpi_wait(const ab_mpi *mpi, const ab_mpi_limits *limits);

AB_END_DECLS

#endif
