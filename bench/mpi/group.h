/* The ranks of an MPI job as one run: rank 0 schedules the cells and writes the record; the others start a
 * worker for each cell that it names. Knows nothing of cells beyond their number.
 *
 * A rank that fails tells all others its number and reason, and every wait ends with it. Then no more
 * transfers are made, and ab_group_close ends the job with MPI_Abort once rank 0 has saved what there is. */
#ifndef AB_BENCH_MPI_GROUP_H
#define AB_BENCH_MPI_GROUP_H

#include "bench/mpi/relay.h"

AB_BEGIN_DECLS

enum { AB_GROUP_REASON = 512 };

typedef struct ab_group {
    const ab_mpi *mpi;  /* NULL: no MPI job; all functions do nothing */
    const char *option; /* "--ranks mpi", which messages name; borrowed */
    const char *library;
    ab_rank_place place;
    ab_relay relay;
    const volatile sig_atomic_t *stop;
    bool ended; /* all ranks know that the run is over: MPI ends as usual */
    bool failed;
    ab_status status;             /* of that failure */
    char reason[AB_GROUP_REASON]; /* of the first failure that was heard of: "rank 2: ..." */
} ab_group;

/* What a rank must share with rank 0 to compute the same. */
typedef struct ab_group_identity {
    uint64_t options, build; /* digests */
} ab_group_identity;

/* One worker's task, as rank 0 names it. cell < 0: no more. */
typedef struct ab_group_task {
    int64_t cell, kind, every, steps;
} ab_group_task;

/* Opens the plugin, starts MPI and the relay, sets this process's place. `group` must be all zero but for
 * `option`. Errors: those of ab_mpi_open; AB_USAGE without a launcher or for more than AB_RANKS_MOST ranks.
 * ab_group_close also after an error. */
AB_MUST_CHECK ab_status ab_group_open(ab_group *group, const volatile sig_atomic_t *stop);

/* All ranks call it: AB_USAGE on every rank if one differs from rank 0. Only rank 0 has a message. */
AB_MUST_CHECK ab_status ab_group_compare(ab_group *group, const ab_group_identity *own);

/* Rank 0: sends the task to all others. */
AB_MUST_CHECK ab_status ab_group_send_task(ab_group *group, const ab_group_task *task);
/* Other ranks: waits for the next task. AB_SYSTEM with the reason if a rank failed. */
AB_MUST_CHECK ab_status ab_group_wait_task(ab_group *group, ab_group_task *task);

/* Other ranks: the task is done. Rank 0: waits until all are done. */
AB_MUST_CHECK ab_status ab_group_done(ab_group *group);

/* Serves this rank's worker if its link is readable, and looks whether another rank failed. deadline_ns as in
 * ab_mpi_limits. */
AB_MUST_CHECK ab_status ab_group_serve(ab_group *group, bool ready, int64_t deadline_ns);

/* This rank failed with `status`, as the others then do: tells them, unless a failure is known already. */
void ab_group_fail(ab_group *group, ab_status status, const char *reason);

/* Ends MPI. After a failure rank 0 ends the job with `exit_status` and does not return; other ranks wait for
 * that and do not return either. */
void ab_group_close(ab_group *group, int exit_status);

AB_END_DECLS

#endif
