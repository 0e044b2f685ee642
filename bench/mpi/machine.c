/* Ranks tell each other where their memory is (machine, process, descriptor), open it through /proc, and tell
 * each other what they could open. */
#define _GNU_SOURCE
#include "bench/mpi/machine.h"

#include "kernels/core/text.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TAG_WHERE = 32, TAG_OPENED }; /* beside those of group.c and relay.h */

/* Where a rank's memory is. */
typedef struct where {
    char machine[128]; /* the start of the kernel and the namespace of process numbers; empty: unknown */
    int64_t process, file, device, node;
} where;

static void add_file(char *text, size_t size, const char *path) {
    const size_t used = strlen(text);
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t got = file < 0 ? 0 : read(file, text + used, size - used - 1);
    text[used + (got > 0 ? (size_t)got : 0)] = '\0';
    if (file >= 0) close(file);
}

static where own_place(int memory) {
    where own = {.process = getpid(), .file = memory};
    const char *named = getenv(AB_MACHINE_VARIABLE);
    struct stat about, space;
    if (fstat(memory, &about) != 0 || stat("/proc/self/ns/pid", &space) != 0) return own;
    own.device = (int64_t)about.st_dev;
    own.node = (int64_t)about.st_ino;
    ab_text_show(own.machine, sizeof own.machine, "%s %llu ", named ? named : "",
                 (unsigned long long)space.st_ino);
    add_file(own.machine, sizeof own.machine, "/proc/sys/kernel/random/boot_id");
    return own;
}

/* -1: not this machine, not allowed, or another file than the one meant. */
static int open_memory(const where *own, const where *theirs) {
    char path[64];
    struct stat about;
    if (!own->machine[0] || strcmp(own->machine, theirs->machine) != 0) return -1;
    ab_text_exact(path, sizeof path, "/proc/%lld/fd/%lld", (long long)theirs->process,
                  (long long)theirs->file);
    const int file = open(path, O_RDONLY);
    if (file < 0) return -1;
    if (fstat(file, &about) == 0 && (int64_t)about.st_dev == theirs->device &&
        (int64_t)about.st_ino == theirs->node)
        return file;
    close(file);
    return -1;
}

/* own[r] to every rank r (or the same to all: each 0), theirs[r] from it. */
static ab_status swap(const ab_mpi *mpi, const ab_mpi_limits *limits, ab_rank_place place, int tag,
                      const void *own, size_t each, void *theirs, size_t bytes) {
    for (int r = 0; r < place.ranks; r++) {
        if (r == place.rank) continue;
        void *to = (unsigned char *)theirs + (size_t)r * bytes;
        const void *from = (const unsigned char *)own + (size_t)r * each;
        AB_TRY(ab_mpi_check(mpi, mpi->receive(r, tag, to, bytes), "receiving"));
        AB_TRY(ab_mpi_check(mpi, mpi->send(r, tag, from, bytes), "sending"));
    }
    return ab_mpi_wait(mpi, limits);
}

ab_status ab_machine_open(const ab_mpi *mpi, const ab_mpi_limits *limits, ab_rank_place place, int memory,
                          int near[]) {
    const where own = own_place(memory);
    where all[AB_RANKS_MOST];
    char opened[AB_RANKS_MOST], by_them[AB_RANKS_MOST] = {0};
    if (place.ranks < 2) return AB_OK;
    AB_TRY(swap(mpi, limits, place, TAG_WHERE, &own, 0, all, sizeof own));
    for (int r = 0; r < place.ranks; r++) {
        if (r != place.rank) near[r] = open_memory(&own, &all[r]);
        opened[r] = near[r] >= 0;
    }
    AB_TRY(swap(mpi, limits, place, TAG_OPENED, opened, 1, by_them, 1));
    for (int r = 0; r < place.ranks; r++) {
        if (near[r] < 0 || by_them[r]) continue;
        close(near[r]);
        near[r] = -1;
    }
    return AB_OK;
}
