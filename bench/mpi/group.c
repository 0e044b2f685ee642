/* Tasks, comparisons and failures, as messages between the ranks' parents. */
#define _GNU_SOURCE
#include "bench/mpi/group.h"

#include "kernels/core/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { TAG_TASK = AB_RELAY_TAG + 1, TAG_DONE, TAG_FAILURE, TAG_IDENTITY, TAG_ANSWER };

/* ---- failures -------------------------------------------------------------------------------- */

/* A rank's message to all others. */
typedef struct failure {
    int32_t status; /* ab_status */
    char text[AB_GROUP_REASON];
} failure;

/* Fails as another rank does that has said that it failed. */
static ab_status listen(void *context) {
    ab_group *group = context;
    int peer;
    bool waits = false;
    if (group->failed) return ab_fail(group->status, "%s", group->reason);
    AB_TRY(ab_mpi_check(group->mpi, group->mpi->probe(TAG_FAILURE, &peer, &waits), "looking for messages"));
    if (!waits) return AB_OK;
    group->failed = true;
    /* Transfers that were begun never end now; only this message is waited for, as long as that is soon. */
    static failure heard = {.status = AB_SYSTEM};
    if (group->mpi->receive(peer, TAG_FAILURE, &heard, sizeof heard) == 0) {
        bool done = false;
        for (int turn = 0; turn < 200 && !heard.text[0] && group->mpi->test(&done) == 0 && !done; turn++)
            ab_mpi_pause(turn, NULL);
    }
    heard.text[sizeof heard.text - 1] = '\0';
    group->status = (ab_status)heard.status;
    ab_text_show(group->reason, sizeof group->reason, "rank %d: %s", peer,
                 heard.text[0] ? heard.text : "failed without a reason");
    return ab_fail(group->status, "%s", group->reason);
}

void ab_group_fail(ab_group *group, ab_status status, const char *reason) {
    static failure own; /* stays: the message may be read later */
    if (!group->mpi || group->failed || group->ended) return;
    group->failed = true;
    group->status = status;
    own.status = (int32_t)status;
    ab_text_show(own.text, sizeof own.text, "%s", reason);
    ab_text_show(group->reason, sizeof group->reason, "rank %d: %s", group->place.rank, reason);
    for (int r = 0; r < group->place.ranks; r++)
        if (r != group->place.rank) (void)group->mpi->send(r, TAG_FAILURE, &own, sizeof own);
    bool done;
    (void)group->mpi->test(&done);
}

static ab_mpi_limits limits_of(ab_group *group) {
    return (ab_mpi_limits){.stop = group->stop, .check = listen, .context = group};
}

static ab_status wait(ab_group *group) {
    const ab_mpi_limits limits = limits_of(group);
    return ab_mpi_wait(group->mpi, &limits);
}

/* ---- start and end --------------------------------------------------------------------------- */

ab_status ab_group_open(ab_group *group, const volatile sig_atomic_t *stop) {
    const ab_mpi *mpi;
    ab_rank_place place;
    if (!ab_mpi_launcher())
        return ab_fail(AB_USAGE,
                       "%s: no MPI launcher started this process; start it as: mpirun -n 4 ampbench %s ...",
                       group->option, group->option);
    const ab_status opened = ab_mpi_open(&mpi);
    if (opened != AB_OK) return ab_fail_prefix(opened, "%s", group->option);
    group->stop = stop;
    AB_TRY(ab_mpi_check(mpi, mpi->start(&place.rank, &place.ranks, &group->library), "MPI_Init"));
    group->mpi = mpi;
    place.library = group->library;
    group->place = place;
    if (place.ranks > AB_RANKS_MOST)
        return ab_fail(AB_USAGE, "%s: at most %d ranks, found %d", group->option, AB_RANKS_MOST, place.ranks);
    ab_rank_place_set(place);
    const ab_mpi_limits limits = limits_of(group);
    return ab_relay_open(&group->relay, mpi, place,
                         &limits); /* its worker too is told that it is the only rank */
}

/* Until the launcher has read what was written to a pipe, for a second at most. */
static void await_reader(int fd) {
    const struct timespec pause = {.tv_nsec = 1000000};
    struct stat file;
    int unread = 0;
    if (fstat(fd, &file) || !S_ISFIFO(file.st_mode)) return;
    for (int ms = 0; ms < 1000 && ioctl(fd, FIONREAD, &unread) == 0 && unread > 0; ms++)
        nanosleep(&pause, NULL);
}

/* MPICH's launcher drops what it has not read when MPI_Abort reaches it, and what it has read but not yet
 * passed on: a moment for that. */
static void await_output(void) {
    const struct timespec passing_on = {.tv_nsec = 50000000};
    fflush(stdout);
    fflush(stderr);
    await_reader(STDOUT_FILENO);
    await_reader(STDERR_FILENO);
    nanosleep(&passing_on, NULL);
}

void ab_group_close(ab_group *group, int exit_status) {
    enum { PATIENCE_S = 60 };
    if (!group->mpi) return;
    if (!group->failed) {
        ab_relay_close(&group->relay);
        (void)group->mpi->finish();
        return;
    } /* else the relay's memory stays: another rank may still read from it */
    bool done;
    for (int k = 0; group->place.rank != 0 && k < PATIENCE_S * 100; k++) { /* until MPI_Abort ends it */
        const struct timespec time = {.tv_nsec = 10000000};
        (void)group->mpi->test(&done); /* the failure's message goes on its way */
        nanosleep(&time, NULL);
    }
    await_output();
    group->mpi->abort(exit_status);
    _exit(exit_status);
}

/* ---- comparison ------------------------------------------------------------------------------ */

typedef struct answer {
    int32_t rank, what; /* the first rank that differs, in what; what 0: none does */
} answer;

enum { SAME, OTHER_OPTIONS, OTHER_BUILD };

static answer compare(const ab_group_identity *all, int ranks) {
    for (int r = 1; r < ranks; r++) {
        if (all[r].build != all[0].build) return (answer){r, OTHER_BUILD};
        if (all[r].options != all[0].options) return (answer){r, OTHER_OPTIONS};
    }
    return (answer){0, SAME};
}

ab_status ab_group_compare(ab_group *group, const ab_group_identity *own) {
    ab_group_identity all[AB_RANKS_MOST] = {*own};
    answer found = {0, SAME};
    const int ranks = group->place.ranks;
    const ab_mpi *mpi = group->mpi;
    if (!mpi || ranks < 2) return AB_OK;
    if (group->place.rank > 0) {
        AB_TRY(ab_mpi_check(mpi, mpi->send(0, TAG_IDENTITY, all, sizeof *all), "sending"));
        AB_TRY(ab_mpi_check(mpi, mpi->receive(0, TAG_ANSWER, &found, sizeof found), "receiving"));
        AB_TRY(wait(group));
        group->ended = found.what != SAME;
        return group->ended ? ab_fail(AB_USAGE, "%s", "") : AB_OK;
    }
    for (int r = 1; r < ranks; r++)
        AB_TRY(ab_mpi_check(mpi, mpi->receive(r, TAG_IDENTITY, &all[r], sizeof all[r]), "receiving"));
    AB_TRY(wait(group));
    found = compare(all, ranks);
    for (int r = 1; r < ranks; r++)
        AB_TRY(ab_mpi_check(mpi, mpi->send(r, TAG_ANSWER, &found, sizeof found), "sending"));
    AB_TRY(wait(group));
    group->ended = found.what != SAME;
    if (!group->ended) return AB_OK;
    return ab_fail(AB_USAGE, "%s: rank %d %s than rank 0; all ranks need the same", group->option, found.rank,
                   found.what == OTHER_BUILD ? "runs another build of ampbench" : "was given other options");
}

/* ---- tasks ----------------------------------------------------------------------------------- */

ab_status ab_group_send_task(ab_group *group, const ab_group_task *task) {
    if (!group->mpi || group->place.ranks < 2) return AB_OK;
    for (int r = 1; r < group->place.ranks; r++)
        AB_TRY(ab_mpi_check(group->mpi, group->mpi->send(r, TAG_TASK, task, sizeof *task), "sending"));
    return wait(group);
}

ab_status ab_group_wait_task(ab_group *group, ab_group_task *task) {
    AB_TRY(ab_mpi_check(group->mpi, group->mpi->receive(0, TAG_TASK, task, sizeof *task), "receiving"));
    return wait(group);
}

ab_status ab_group_done(ab_group *group) {
    char done[AB_RANKS_MOST] = {1};
    const ab_mpi *mpi = group->mpi;
    if (!mpi || group->place.ranks < 2) return AB_OK;
    if (group->place.rank > 0) AB_TRY(ab_mpi_check(mpi, mpi->send(0, TAG_DONE, done, 1), "sending"));
    for (int r = 1; r < group->place.ranks && group->place.rank == 0; r++)
        AB_TRY(ab_mpi_check(mpi, mpi->receive(r, TAG_DONE, &done[r], 1), "receiving"));
    return wait(group);
}

ab_status ab_group_serve(ab_group *group, bool ready, int64_t deadline_ns) {
    const ab_mpi_limits limits = {
        .stop = group->stop, .deadline_ns = deadline_ns, .check = listen, .context = group};
    if (!group->mpi) return AB_OK;
    AB_TRY(listen(group));
    return ready ? ab_relay_serve(&group->relay, &limits) : AB_OK;
}
