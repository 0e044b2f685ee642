/* Runs parts in the processes of an MPI job: rank 0 gives parts out and records, each other rank runs one at
 * a time in a process of its own, which never calls MPI. A message is its length and its bytes. */
#define _GNU_SOURCE
#include "bench/sweep/child.h"
#include "bench/sweep/launch.h"
#include "bench/sweep/parts.h"

#include "kernels/core/log.h"
#include "kernels/core/show.h"
#include "kernels/core/text.h"
#include "kernels/mpi/mpi.h"

#include <stdlib.h>
#include <string.h>

enum { TAG_PART = 101, TAG_LINE, TAG_BYTES, TAG_END };

typedef struct rank {
    char name[24];
    int losses;
    bool busy;
    ab_part part;
} rank;

typedef struct job {
    const ab_mpi *mpi;
    const volatile sig_atomic_t *stop;
    int place, ranks;
    rank *rank; /* [ranks]; 0: not used */
    bool ended; /* of a rank that helps: it was told that nothing follows */
} job;

/* ---- messages -------------------------------------------------------------------------------- */

static ab_status wait(const job *j) { return ab_mpi_wait(j->mpi, &(ab_mpi_limits){.stop = j->stop}); }

static ab_status send_bytes(const job *j, int peer, int tag, const void *bytes, uint64_t n) {
    AB_TRY(ab_mpi_check(j->mpi, j->mpi->send(peer, tag, &n, sizeof n), "sending"));
    if (n > 0) AB_TRY(ab_mpi_check(j->mpi, j->mpi->send(peer, TAG_BYTES, bytes, n), "sending"));
    return wait(j);
}

/* *bytes: owned by the caller, followed by a NUL. */
static ab_status receive_bytes(const job *j, int peer, int tag, char **bytes, uint64_t *n) {
    *bytes = NULL;
    AB_TRY(ab_mpi_check(j->mpi, j->mpi->receive(peer, tag, n, sizeof *n), "receiving"));
    AB_TRY(wait(j));
    *bytes = malloc(*n + 1);
    if (!*bytes) return ab_fail(AB_NO_MEMORY, "--launch mpi: out of memory");
    (*bytes)[*n] = '\0';
    if (*n > 0) AB_TRY(ab_mpi_check(j->mpi, j->mpi->receive(peer, TAG_BYTES, *bytes, *n), "receiving"));
    return wait(j);
}

/* ---- start and end --------------------------------------------------------------------------- */

static ab_status open_mpi(const char *rest, const ab_options *options, const volatile sig_atomic_t *stop,
                          void **context, bool *helps) {
    const char *library;
    job *j = *context = calloc(1, sizeof *j);
    (void)options;
    if (!j) return ab_fail(AB_NO_MEMORY, "--launch: out of memory");
    if (rest[0]) return ab_fail(AB_USAGE, "--launch mpi: expected nothing after mpi, found '%s'", rest);
    if (!ab_mpi_launcher())
        return ab_fail(AB_USAGE, "--launch mpi: this is no process of an MPI job; start it as: mpirun -n 5 "
                                 "ampbench --launch mpi ... (or: srun --mpi=pmix)");
    const ab_mpi *mpi;
    const ab_status opened = ab_mpi_open(&mpi);
    if (opened != AB_OK) return ab_fail_prefix(opened, "--launch mpi");
    AB_TRY(ab_mpi_check(mpi, mpi->start(&j->place, &j->ranks, &library), "MPI_Init"));
    j->mpi = mpi;
    j->stop = stop;
    *helps = j->place > 0;
    if (j->ranks < 2)
        return ab_fail(AB_USAGE,
                       "--launch mpi: expected at least 2 processes, of which the first schedules and "
                       "the others run cells; found 1");
    if (*helps) ab_log_set_level(AB_LOG_QUIET);
    j->rank = calloc((size_t)j->ranks, sizeof *j->rank);
    if (!j->rank) return ab_fail(AB_NO_MEMORY, "--launch: out of memory");
    for (int r = 0; r < j->ranks; r++) ab_text_exact(j->rank[r].name, sizeof j->rank[r].name, "rank %d", r);
    return AB_OK;
}

static bool is_idle(const job *j) {
    for (int r = 1; r < j->ranks; r++)
        if (j->rank && j->rank[r].busy) return false;
    return j->rank != NULL;
}

/* Ranks that run something, or that wait for what never comes, are ended with the job. */
static void close_mpi(void *context, ab_status outcome) {
    job *j = context;
    bool finish = j && (j->place > 0 ? j->ended : is_idle(j) && !*j->stop);
    if (!j) return;
    for (int r = 1; j->mpi && j->place == 0 && finish && r < j->ranks; r++)
        finish = send_bytes(j, r, TAG_PART, NULL, 0) == AB_OK;
    if (j->mpi && j->ranks > 1 && !finish) {
        if (j->place == 0 && ab_error_message()[0]) ab_print(stderr, "ampbench: %s\n", ab_error_message());
        fflush(stdout);
        fflush(stderr);
        j->mpi->abort(ab_status_exit(outcome));
    }
    if (j->mpi) (void)j->mpi->finish();
    for (int r = 0; j->rank && r < j->ranks; r++) ab_part_clear(&j->rank[r].part);
    free(j->rank);
    free(j);
}

/* ---- a rank that helps ----------------------------------------------------------------------- */

typedef struct sender {
    const job *job;
} sender;

static ab_status send_line(void *context, char *line, size_t n) {
    const sender *to = context;
    return n > 0 ? send_bytes(to->job, 0, TAG_LINE, line, n) : AB_OK;
}

/* Words of a message: each ends with a NUL. The array is owned. */
static char **split_words(char *bytes, uint64_t n) {
    int count = 0;
    char **words = NULL;
    for (uint64_t i = 0; i < n; i++) count += bytes[i] == '\0';
    words = calloc((size_t)count + 1, sizeof *words);
    for (int i = 0; words && i < count; i++) {
        words[i] = bytes;
        bytes += strlen(bytes) + 1;
    }
    return words;
}

static ab_status run_part(const job *j, char **words, char reason[AB_PART_REASON]) {
    ab_child child, *children[] = {&child};
    sender to = {j};
    void *contexts[] = {&to};
    char sharing[16];
    words[5] = ab_text_exact(sharing, sizeof sharing, "%d", ab_mpi_local_ranks());
    AB_TRY(ab_child_start("/proc/self/exe", words, &child));
    ab_status status = AB_OK;
    while (status == AB_OK && child.open && !*j->stop)
        status = ab_children_read(children, contexts, 1, 200, send_line);
    if (child.open) ab_child_kill(&child);
    ab_child_end(&child, reason, AB_PART_REASON);
    return *j->stop ? AB_INTERRUPTED : status;
}

static ab_status help(void *context, const ab_options *options) {
    job *j = context;
    (void)options;
    for (;;) {
        char *bytes, reason[AB_PART_REASON] = "";
        uint64_t n;
        ab_status status = receive_bytes(j, 0, TAG_PART, &bytes, &n);
        j->ended = status == AB_OK && n == 0;
        char **words = status == AB_OK && n > 0 ? split_words(bytes, n) : NULL;
        if (words) status = run_part(j, words, reason);
        if (words && status == AB_OK) status = send_bytes(j, 0, TAG_LINE, NULL, 0);
        if (words && status == AB_OK) status = send_bytes(j, 0, TAG_END, reason, sizeof reason);
        const bool ends = !words;
        free(words);
        free(bytes);
        if (ends || status != AB_OK) return status;
    }
}

/* ---- rank 0 ---------------------------------------------------------------------------------- */

static ab_status send_part(const job *j, const ab_parts *parts, int to) {
    static char program[] = "ampbench";
    char **words = ab_part_words(parts, &j->rank[to].part, program, 1, true);
    uint64_t n = 0;
    for (int i = 0; words && words[i]; i++) n += strlen(words[i]) + 1;
    char *bytes = words ? malloc(n + 1) : NULL, *at = bytes;
    for (int i = 0; bytes && words[i]; i++) {
        memcpy(at, words[i], strlen(words[i]) + 1);
        at += strlen(words[i]) + 1;
    }
    ab_part_words_free(words);
    ab_status status =
        bytes ? send_bytes(j, to, TAG_PART, bytes, n) : ab_fail(AB_NO_MEMORY, "--launch: out of memory");
    free(bytes);
    return status;
}

static int count_usable(const job *j) {
    int usable = 0;
    for (int r = 1; r < j->ranks; r++) usable += j->rank[r].losses < AB_LOSSES_MOST;
    return usable;
}

static ab_status send_parts(job *j, ab_parts *parts) {
    const int takers = count_usable(j);
    for (int r = 1; r < j->ranks && ab_parts_left(parts) > 0; r++) {
        rank *to = &j->rank[r];
        if (to->busy || to->losses >= AB_LOSSES_MOST) continue;
        AB_TRY(ab_parts_take_share(parts, takers, to->name, &to->part));
        AB_TRY(send_part(j, parts, r));
        to->busy = true;
    }
    return AB_OK;
}

/* One line of a rank, or the end of its part. */
static ab_status take_message(job *j, ab_parts *parts, int peer) {
    rank *from = &j->rank[peer];
    char *bytes, *reason = NULL;
    uint64_t n, size;
    ab_status status = receive_bytes(j, peer, TAG_LINE, &bytes, &n);
    if (status == AB_OK && n > 0) status = ab_parts_line(parts, &from->part, bytes, n);
    if (status == AB_OK && n == 0) {
        status = receive_bytes(j, peer, TAG_END, &reason, &size);
        from->busy = status != AB_OK;
        if (status == AB_OK) status = ab_parts_end(parts, &from->part, reason, &from->losses);
    }
    free(reason);
    free(bytes);
    return status;
}

static ab_status serve(job *j, ab_parts *parts) {
    for (int turn = 0; !*j->stop; turn++) {
        int peer;
        bool waits = false;
        AB_TRY(send_parts(j, parts));
        if (is_idle(j) && ab_parts_left(parts) == 0) return AB_OK;
        if (is_idle(j))
            return ab_fail(AB_SYSTEM, "--launch: no rank is left, %d cells are not done; the last one: %s",
                           ab_parts_left(parts), parts->loss);
        AB_TRY(ab_mpi_check(j->mpi, j->mpi->probe(TAG_LINE, &peer, &waits), "looking for messages"));
        if (waits) AB_TRY(take_message(j, parts, peer));
        if (waits) turn = 0;
        if (!waits) ab_mpi_pause(turn, NULL);
    }
    return AB_OK;
}

static ab_status run_cells(void *context, const ab_run_work *work, bool *later) {
    ab_parts parts;
    (void)later;
    ab_status status = ab_parts_create(work, &parts);
    if (status == AB_OK) status = serve(context, &parts);
    ab_parts_clear(&parts);
    return status;
}

const ab_launch ab_launch_mpi = {
    .name = "mpi", .open = open_mpi, .help = help, .cells = run_cells, .close = close_mpi};
