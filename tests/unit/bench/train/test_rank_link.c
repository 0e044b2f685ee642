/* Ranks of one machine exchange through shared memory: every byte arrives, however far one rank is ahead of
 * another, however memory grows, when small exchanges come in between, and when workers follow each other;
 * what does not fit is an error; a rank that waits is blocked, not polling. */
#define _GNU_SOURCE
#include "bench/train/ranks/link.h"

#include "kernels/core/text.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 3, STEPS = 400 };

typedef struct job {
    int memory[RANKS], socket[RANKS];
} job;

static job start_job(void) {
    job j;
    for (int r = 0; r < RANKS; r++) {
        int ends[2];
        j.memory[r] = memfd_create("test-ranks", 0);
        assert_true(j.memory[r] >= 0);
        assert_int_equal(ftruncate(j.memory[r], (off_t)ab_shared_head_bytes(RANKS)), 0);
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
        j.socket[r] = ends[0];
        close(ends[1]);
    }
    return j;
}

static void end_job(const job *j) {
    for (int r = 0; r < RANKS; r++) {
        close(j->memory[r]);
        close(j->socket[r]);
    }
}

/* What a worker of this rank finds in its environment. */
static void open_link(const job *j, int rank) {
    char text[64];
    setenv(AB_LINK_VARIABLE,
           ab_text_exact(text, sizeof text, "%d %d %d %d", j->socket[rank], j->memory[rank], rank, RANKS), 1);
    ab_text_exact(text, sizeof text, "%d %d %d", j->memory[0], j->memory[1], j->memory[2]);
    setenv(AB_LINK_MEMORY_VARIABLE, text, 1);
    if (ab_rank_link_open() != AB_OK) _exit(10);
}

/* A worker that exits with what `run` returns. */
static pid_t start_worker(const job *j, int rank, int (*run)(int rank)) {
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    open_link(j, rank);
    _exit(run(rank));
}

static int exit_of(pid_t pid) {
    int how;
    assert_int_equal(waitpid(pid, &how, 0), pid);
    return WIFEXITED(how) ? WEXITSTATUS(how) : -1;
}

static void all_succeed(const job *j, int (*run)(int rank)) {
    pid_t pid[RANKS];
    for (int r = 0; r < RANKS; r++) pid[r] = start_worker(j, r, run);
    for (int r = 0; r < RANKS; r++) assert_int_equal(exit_of(pid[r]), 0);
}

/* ---- steps as of a training ---------------------------------------------------------------------- */

static unsigned char byte_of(int from, int to, int step, int part, size_t i) {
    return (unsigned char)(from * 151 + to * 59 + step * 31 + part * 7 + (int)(i * 13 % 251));
}

/* Sizes that change, and are 0 now and then. */
static size_t bytes_of(int from, int to, int step, int part) {
    return (size_t)((from * 7 + to * 3 + step + part) % 5) * (size_t)(step % 40 + 1);
}

enum { PARTS = 5, EACH = 256 };

/* Where a rank's bytes of a part for a peer are; those that come are behind all that go. */
static size_t place(int part, int peer) { return (size_t)(part * RANKS + peer) * EACH; }

static int64_t begin_part(unsigned char *memory, int rank, int step, int part) {
    ab_link_part parts[RANKS];
    int64_t ticket = 0;
    for (int r = 0; r < RANKS; r++) {
        const size_t sent = bytes_of(rank, r, step, part);
        for (size_t i = 0; i < sent; i++) memory[place(part, r) + i] = byte_of(rank, r, step, part, i);
        parts[r] = (ab_link_part){(int64_t)place(part, r), (int64_t)sent, (int64_t)place(PARTS + part, r),
                                  (int64_t)bytes_of(r, rank, step, part)};
    }
    return ab_rank_link_begin(parts, RANKS, &ticket) == AB_OK ? ticket : -1;
}

static bool has_arrived(int64_t ticket, int rank, int step, int part) {
    for (int r = 0; r < RANKS; r++) {
        if (r == rank || bytes_of(r, rank, step, part) == 0) continue;
        const unsigned char *got = ab_rank_link_received(ticket, r, place(PARTS + part, r));
        for (size_t i = 0; i < bytes_of(r, rank, step, part); i++)
            if (got[i] != byte_of(r, rank, step, part, i)) return false;
    }
    return true;
}

/* What this rank sends has been left alone. */
static bool is_untouched(const unsigned char *memory, int rank, int step, int part) {
    for (int r = 0; r < RANKS; r++)
        for (size_t i = 0; r != rank && i < bytes_of(rank, r, step, part); i++)
            if (memory[place(part, r) + i] != byte_of(rank, r, step, part, i)) return false;
    return true;
}

/* Small exchanges while others are on their way, as batch norms make them. */
static bool gathers_all(int rank, int step) {
    for (int k = 0; k < step % 3; k++) {
        const size_t n = (size_t)(step % 8 + 1);
        unsigned char mine[8];
        const unsigned char *all;
        memset(mine, rank + step + k, sizeof mine);
        if (ab_rank_link_gather(mine, n, &all) != AB_OK) return false;
        for (int r = 0; r < RANKS; r++)
            for (size_t i = 0; i < n; i++)
                if (all[(size_t)r * n + i] != (unsigned char)(r + step + k)) return false;
    }
    return true;
}

/* Several exchanges on their way at once, with small ones in between or without. */
static int one_step(int rank, int step, int64_t *last) {
    const size_t bytes = place(2 * PARTS, 0) + (size_t)step * 100; /* grows */
    int64_t ticket[PARTS];
    unsigned char *memory;
    bool decision = rank == 0 && step % 3 == 0;
    ab_rank_link_settle(*last);
    for (int part = 0; part < PARTS; part++) {
        if (ab_rank_link_memory(bytes, &memory) != AB_OK) return 1;
        ticket[part] = begin_part(memory, rank, step, part);
        if (part == PARTS / 2 && !gathers_all(rank, step)) return 2;
    }
    if (ab_rank_link_memory(bytes, &memory) != AB_OK) return 3;
    for (int part = 0; part < PARTS; part++) {
        if (ab_rank_link_wait(ticket[part]) != AB_OK || !has_arrived(ticket[part], rank, step, part))
            return 4;
        if (!is_untouched(memory, rank, step, part)) return 5;
    }
    ab_rank_link_release(ticket[PARTS - 1]);
    if (step % 4 != 0 && (ab_rank_link_agree(&decision) != AB_OK || decision != (step % 3 == 0))) return 6;
    *last = ticket[PARTS - 1];
    return 0;
}

static int train(int rank) {
    int64_t last = 0;
    for (int step = 0; step < STEPS; step++) {
        const int failed = one_step(rank, step, &last);
        if (failed) return failed;
    }
    return 0;
}

/* One rank is stopped now and then, so that the others are as far ahead as they can be. */
static int train_with_pauses(int rank) {
    int64_t last = 0;
    for (int step = 0; step < STEPS / 4; step++) {
        if (step % RANKS == rank) usleep(300);
        const int failed = one_step(rank, step, &last);
        if (failed) return failed;
    }
    return 0;
}

static void every_byte_arrives(void **state) {
    const job j = start_job();
    (void)state;
    all_succeed(&j, train);
    all_succeed(&j, train_with_pauses); /* the next workers, in the same memory */
    all_succeed(&j, train);
    end_job(&j);
}

/* ---- mistakes ------------------------------------------------------------------------------------ */

/* Rank 1 sends a byte less than rank 0 expects. */
static int exchange_too_little(int rank) {
    ab_link_part part[RANKS] = {{0}};
    int64_t ticket;
    unsigned char *memory;
    if (ab_rank_link_memory(64, &memory) != AB_OK) return 1;
    if (rank == 1) part[0] = (ab_link_part){.send_bytes = 7};
    if (rank == 0) part[1] = (ab_link_part){.receive_bytes = 8};
    if (ab_rank_link_begin(part, RANKS, &ticket) != AB_OK) return 2;
    const ab_status status = ab_rank_link_wait(ticket);
    if (rank != 0) return status == AB_OK ? 0 : 3;
    return status == AB_INTERNAL && strstr(ab_error_message(), "rank 1 sends 7 bytes, rank 0 expects 8") ? 0
                                                                                                         : 4;
}

/* Rank 1 sends what is behind its memory. */
static int exchange_outside(int rank) {
    ab_link_part part[RANKS] = {{0}};
    int64_t ticket;
    unsigned char *memory;
    if (ab_rank_link_memory(64, &memory) != AB_OK) return 1;
    if (rank == 1) part[0] = (ab_link_part){.send_at = 60, .send_bytes = 8};
    if (rank == 0) part[1] = (ab_link_part){.receive_bytes = 8};
    if (ab_rank_link_begin(part, RANKS, &ticket) != AB_OK) return 2;
    return (ab_rank_link_wait(ticket) == AB_INTERNAL) == (rank == 0) ? 0 : 3;
}

static void what_does_not_fit_is_refused(void **state) {
    int (*const run[])(int rank) = {exchange_too_little, exchange_outside};
    (void)state;
    for (size_t i = 0; i < AB_COUNT_OF(run); i++) {
        const job j = start_job();
        all_succeed(&j, run[i]);
        end_job(&j);
    }
}

/* ---- waiting ------------------------------------------------------------------------------------- */

static int gather_once(int rank) {
    const unsigned char *all;
    const unsigned char own = (unsigned char)rank;
    return ab_rank_link_gather(&own, 1, &all) == AB_OK && all[1] == 1 ? 0 : 1;
}

/* How often a process has begun to wait; -1: it is not blocked. */
static long waits_of(pid_t pid) {
    char path[64], line[256], state = '?';
    long waits = -1;
    FILE *file = fopen(ab_text_exact(path, sizeof path, "/proc/%d/status", (int)pid), "r");
    while (file && fgets(line, sizeof line, file)) {
        (void)sscanf(line, "State: %c", &state);
        (void)sscanf(line, "voluntary_ctxt_switches: %ld", &waits);
    }
    if (file) fclose(file);
    return state == 'S' ? waits : -1;
}

/* Rank 2 does not come for a while: the others wait once, whatever the time that passes. */
static void a_rank_that_waits_is_blocked(void **state) {
    const job j = start_job();
    pid_t pid[RANKS];
    (void)state;
    for (int r = 0; r < RANKS - 1; r++) pid[r] = start_worker(&j, r, gather_once);
    long before = -1, after = -2;
    while (before < 0 || before != after) { /* until it has come to its wait */
        before = waits_of(pid[0]);
        usleep(20000);
        after = waits_of(pid[0]);
    }
    usleep(100000);
    assert_int_equal(waits_of(pid[0]), before);
    pid[RANKS - 1] = start_worker(&j, RANKS - 1, gather_once);
    for (int r = 0; r < RANKS; r++) assert_int_equal(exit_of(pid[r]), 0);
    end_job(&j);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_byte_arrives),
                                       cmocka_unit_test(what_does_not_fit_is_refused),
                                       cmocka_unit_test(a_rank_that_waits_is_blocked)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
