/* Mapped heads, counters that only their rank writes, futexes on them. */
#define _GNU_SOURCE
#include "bench/train/ranks/shared_link.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Exchanges that are described at once. A rank has begun at most two for each bucket, and one more, that it
 * has not read, and is ahead of the slowest one by as many. */
enum { SLOTS = 256 };

/* One exchange. */
typedef struct slot {
    int64_t memory_bytes;
    ab_link_part part[]; /* [ranks] */
} slot;

typedef struct ab_shared_head {
    _Atomic uint32_t begun, read; /* exchanges; others wait for them */
    _Alignas(64) unsigned char slots[];
} ab_shared_head;

static size_t slot_bytes(int ranks) { return sizeof(slot) + (size_t)ranks * sizeof(ab_link_part); }

size_t ab_shared_head_bytes(int ranks) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE),
                 bytes = sizeof(ab_shared_head) + SLOTS * slot_bytes(ranks);
    return (bytes + page - 1) / page * page;
}

static slot *slot_of(const ab_shared_link *link, const ab_shared_head *head, uint32_t exchange) {
    const size_t at = exchange % SLOTS * slot_bytes(link->ranks);
    return (slot *)(uintptr_t)(head->slots + at);
}

static const ab_shared_head *head_of(const ab_shared_link *link, int peer) {
    return (const ab_shared_head *)(const void *)link->peer[peer].map;
}

/* ---- opening ----------------------------------------------------------------------------------- */

static ab_status no_memory(void) {
    return ab_fail(AB_NO_MEMORY, "--ranks mpi: cannot map the memory of a rank: %s", strerror(errno));
}

/* At least `bytes` of a peer's memory. */
static ab_status map_peer(ab_shared_link *link, int peer, size_t bytes) {
    struct ab_shared_peer *p = &link->peer[peer];
    if (bytes <= p->mapped) return AB_OK;
    void *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, p->file, 0);
    if (map == MAP_FAILED) return no_memory();
    if (p->map) munmap((void *)(uintptr_t)p->map, p->mapped);
    p->map = map;
    p->mapped = bytes;
    return AB_OK;
}

ab_status ab_shared_open(ab_shared_link *link, int rank, int ranks, const int file[]) {
    *link = (ab_shared_link){.rank = rank, .ranks = ranks, .head_bytes = ab_shared_head_bytes(ranks)};
    for (int r = 0; r < ranks; r++) link->peer[r].file = r == rank ? -1 : file[r];
    void *map = mmap(NULL, link->head_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file[rank], 0);
    if (map == MAP_FAILED) return no_memory();
    link->own = map;
    for (int r = 0; r < ranks; r++) {
        link->elsewhere |= r != rank && file[r] < 0;
        if (link->peer[r].file >= 0) AB_TRY(map_peer(link, r, link->head_bytes));
    }
    return AB_OK;
}

void ab_shared_close(ab_shared_link *link) {
    if (link->own) munmap(link->own, link->head_bytes);
    for (int r = 0; r < link->ranks; r++)
        if (link->peer[r].map) munmap((void *)(uintptr_t)link->peer[r].map, link->peer[r].mapped);
    *link = (ab_shared_link){.own = NULL};
}

/* ---- counters ---------------------------------------------------------------------------------- */

/* Counters wrap. */
static bool has_reached(uint32_t counter, uint32_t wanted) { return (int32_t)(counter - wanted) >= 0; }

/* The kernel does not block if the counter has changed meanwhile, and may return early. */
static void wait_for(const _Atomic uint32_t *counter, uint32_t wanted) {
    for (;;) {
        const uint32_t now = atomic_load_explicit(counter, memory_order_acquire);
        if (has_reached(now, wanted)) return;
        (void)syscall(SYS_futex, counter, FUTEX_WAIT, now, NULL, NULL, 0);
    }
}

static void set(_Atomic uint32_t *counter, uint32_t value) {
    atomic_store_explicit(counter, value, memory_order_release);
    (void)syscall(SYS_futex, counter, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

uint32_t ab_shared_begun(const ab_shared_link *link) {
    return atomic_load_explicit(&link->own->begun, memory_order_relaxed);
}

/* ---- exchanges --------------------------------------------------------------------------------- */

void ab_shared_settle(ab_shared_link *link, uint32_t exchange) {
    for (int r = 0; r < link->ranks; r++)
        if (link->peer[r].map) wait_for(&head_of(link, r)->read, exchange);
}

void ab_shared_begin(ab_shared_link *link, const ab_link_part part[], size_t memory_bytes) {
    const uint32_t exchange = ab_shared_begun(link) + 1;
    slot *own = slot_of(link, link->own, exchange);
    ab_shared_settle(link, exchange - SLOTS); /* what is in the slot */
    own->memory_bytes = (int64_t)memory_bytes;
    memcpy(own->part, part, (size_t)link->ranks * sizeof *part);
    set(&link->own->begun, exchange);
}

/* What a peer sends in one exchange. */
static ab_status read_from(ab_shared_link *link, int peer, uint32_t exchange, const ab_link_part *part,
                           unsigned char *memory) {
    if (!link->peer[peer].map || part->receive_bytes == 0) return AB_OK;
    wait_for(&head_of(link, peer)->begun, exchange);
    const slot *theirs = slot_of(link, head_of(link, peer), exchange);
    const ab_link_part sent = theirs->part[link->rank];
    const int64_t all = theirs->memory_bytes;
    if (sent.send_bytes != part->receive_bytes || sent.send_at < 0 || sent.send_bytes > all - sent.send_at)
        return ab_fail(AB_INTERNAL, "--ranks mpi: rank %d sends %lld bytes, rank %d expects %lld", peer,
                       (long long)sent.send_bytes, link->rank, (long long)part->receive_bytes);
    AB_TRY(map_peer(link, peer, link->head_bytes + (size_t)all));
    memcpy(memory + part->receive_at, link->peer[peer].map + link->head_bytes + sent.send_at,
           (size_t)sent.send_bytes);
    return AB_OK;
}

ab_status ab_shared_read(ab_shared_link *link, uint32_t exchange, unsigned char *memory) {
    uint32_t read = atomic_load_explicit(&link->own->read, memory_order_relaxed);
    while (!has_reached(read, exchange)) {
        const slot *own = slot_of(link, link->own, ++read);
        for (int k = 1; k < link->ranks; k++) { /* not all of the same rank first */
            const int peer = (link->rank + k) % link->ranks;
            AB_TRY(read_from(link, peer, read, &own->part[peer], memory));
        }
        set(&link->own->read, read);
    }
    return AB_OK;
}
