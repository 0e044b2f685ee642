/* Exchanges and sums of several processes with a GPU each, through NCCL: every byte arrives where it is meant
 * for, sums of whole numbers are exact, and an average is the sum over the number of ranks. Needs two GPUs
 * and NCCL, else it is skipped; on the emulation it has them. */
#define _GNU_SOURCE
#include "kernels/core/device_ranks.h"
#include "kernels/core/plugin.h"
#include "kernels/core/text.h"

#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 2, BYTES = 1 << 20, PIECE = 30000, VALUES = 5000 };

enum { PASSED = 0, FAILED = 1, UNAVAILABLE = 77 };

/* Memory that all ranks map: the group's name, and whether it is there. */
static struct {
    _Atomic int named; /* 1: yes; -1: there is no NCCL */
    unsigned char id[AB_DEVICE_RANKS_ID];
} * meeting;

static int fails(const char *what) {
    printf("%s: %s\n", what, ab_error_message());
    fflush(stdout);
    return FAILED;
}

static unsigned char byte_of(int from, int to, int round, size_t i) {
    return (unsigned char)(from * 151 + to * 59 + round * 31 + (int)(i % 251));
}

/* Two exchanges on their way at once, of different lengths. */
static int exchange_bytes(const ab_device_ranks *device, int rank) {
    static unsigned char memory[BYTES];
    const int peer = 1 - rank;
    for (int round = 0; round < 2; round++) {
        const size_t at = (size_t)round * 4 * PIECE, sent = PIECE - (size_t)(rank * 1000 + round),
                     received = PIECE - (size_t)(peer * 1000 + round);
        ab_link_part part[RANKS] = {{0}};
        part[peer] = (ab_link_part){(int64_t)at, (int64_t)sent, (int64_t)(at + 2 * PIECE), (int64_t)received};
        for (size_t i = 0; i < sent; i++) memory[at + i] = byte_of(rank, peer, round, i);
        if (device->exchange(memory, sizeof memory, part) != AB_OK) return fails("exchange");
    }
    if (device->wait() != AB_OK) return fails("wait");
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < PIECE - (size_t)(peer * 1000 + round); i++)
            if (memory[(size_t)round * 4 * PIECE + 2 * PIECE + i] != byte_of(peer, rank, round, i))
                return fails("an exchanged byte");
    return PASSED;
}

static int sum_values(const ab_device_ranks *device, int rank) {
    static float value[VALUES];
    for (int average = 0; average < 2; average++) {
        const ab_device_sum what = {
            .at = 100 * sizeof *value, .count = VALUES - 200, .average = average != 0};
        for (int i = 0; i < VALUES; i++) value[i] = (float)(i * (rank + 1));
        if (device->sum((unsigned char *)value, sizeof value, &what) != AB_OK) return fails("sum");
        if (device->wait() != AB_OK) return fails("wait");
        for (int i = 0; i < VALUES; i++) {
            const bool inside = i >= 100 && i < VALUES - 100;
            const float wanted = inside ? (float)(i * 3) / (average ? 2 : 1) : (float)(i * (rank + 1));
            if (value[i] != wanted) return fails("a summed value");
        }
    }
    return PASSED;
}

static ab_status meet(const ab_device_ranks *device, int rank) {
    const char *version;
    if (rank == 0) meeting->named = device->name(meeting->id) == AB_OK ? 1 : -1;
    while (meeting->named == 0) usleep(1000);
    if (meeting->named < 0) return rank == 0 ? AB_UNAVAILABLE : ab_fail(AB_UNAVAILABLE, "rank 0 has no NCCL");
    AB_TRY(device->join(meeting->id, rank, RANKS, &version));
    printf("rank %d: %s\n", rank, version);
    return AB_OK;
}

static int run_rank(int rank) {
    const ab_device *device;
    if (ab_cuda_open(rank, &device) != AB_OK || !device->ranks) return fails("a device");
    const ab_status met = meet(device->ranks, rank);
    if (met != AB_OK) return met == AB_UNAVAILABLE ? (fails("skipped"), UNAVAILABLE) : fails("joining");
    const int exchanged = exchange_bytes(device->ranks, rank);
    return exchanged == PASSED ? sum_values(device->ranks, rank) : exchanged;
}

static int exit_of(pid_t pid) {
    int how;
    return waitpid(pid, &how, 0) == pid && WIFEXITED(how) ? WEXITSTATUS(how) : FAILED;
}

/* No GPU is opened before the fork: a CUDA context does not survive one. */
int main(void) {
    int devices = 0, worst = PASSED;
    pid_t pid[RANKS];
    if (ab_cuda_driver_check("libcuda.so.1", &devices) != AB_OK || devices < RANKS) {
        printf("SKIPPED: %d GPUs, %d are needed %s\n", devices, RANKS, devices ? "" : ab_error_message());
        return UNAVAILABLE;
    }
    meeting = mmap(NULL, sizeof *meeting, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (meeting == MAP_FAILED) return FAILED;
    fflush(stdout);
    for (int r = 0; r < RANKS; r++) {
        pid[r] = fork();
        if (pid[r] > 0) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        const int outcome = run_rank(r);
        fflush(stdout);
        _exit(outcome);
    }
    for (int r = 0; r < RANKS; r++) {
        const int outcome = exit_of(pid[r]);
        if (outcome > worst) worst = outcome;
        if (outcome == FAILED) return FAILED;
    }
    return worst;
}
