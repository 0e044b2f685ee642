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
 * has not released, and is ahead of the slowest one by as many. */
enum { SLOTS = 256 };

/* One exchange. */
typedef struct slot {
    int64_t memory_bytes;
    ab_link_part part[]; /* [ranks] */
} slot;

typedef struct ab_shared_head {
    _Atomic uint32_t begun, read; /* exchanges; others wait for them */
    /* What this rank is blocked for: a counter of rank `blocked_by` - 1, until it is `wanted`. 0: nothing. */
    _Alignas(64) _Atomic uint32_t blocked_by;
    _Atomic uint32_t wanted;
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
    return ab_fail(AB_NO_MEMORY, "--ranks: cannot map the memory of a rank: %s", strerror(errno));
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
    link->waited = atomic_load_explicit(&link->own->read, memory_order_relaxed);
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

/* Blocks once. A rank that says what it is blocked for and then looks at the counter, and one that sets the
 * counter and then looks who is blocked: one of the two sees what the other has done. The kernel does not
 * block if the counter has changed meanwhile, and may return early. */
static void block(ab_shared_link *link, int peer, const _Atomic uint32_t *counter, uint32_t wanted) {
    atomic_store_explicit(&link->own->wanted, wanted, memory_order_relaxed);
    atomic_store(&link->own->blocked_by, (uint32_t)peer + 1);
    const uint32_t now = atomic_load(counter);
    if (!has_reached(now, wanted)) (void)syscall(SYS_futex, counter, FUTEX_WAIT, now, NULL, NULL, 0);
    atomic_store_explicit(&link->own->blocked_by, 0, memory_order_relaxed);
}

static void wait_for(ab_shared_link *link, int peer, const _Atomic uint32_t *counter, uint32_t wanted) {
    while (!has_reached(atomic_load_explicit(counter, memory_order_acquire), wanted))
        block(link, peer, counter, wanted);
}

/* Whether a rank is blocked until a counter of this one has this value. */
static bool is_awaited(const ab_shared_link *link, uint32_t value) {
    for (int r = 0; r < link->ranks; r++) {
        if (!link->peer[r].map || atomic_load(&head_of(link, r)->blocked_by) != (uint32_t)link->rank + 1)
            continue;
        if (has_reached(value, atomic_load_explicit(&head_of(link, r)->wanted, memory_order_relaxed)))
            return true;
    }
    return false;
}

static void set(const ab_shared_link *link, _Atomic uint32_t *counter, uint32_t value) {
    atomic_store(counter, value);
    if (is_awaited(link, value)) (void)syscall(SYS_futex, counter, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

uint32_t ab_shared_begun(const ab_shared_link *link) {
    return atomic_load_explicit(&link->own->begun, memory_order_relaxed);
}

/* ---- exchanges --------------------------------------------------------------------------------- */

void ab_shared_settle(ab_shared_link *link, uint32_t exchange) {
    for (int r = 0; r < link->ranks; r++)
        if (link->peer[r].map) wait_for(link, r, &head_of(link, r)->read, exchange);
}

void ab_shared_begin(ab_shared_link *link, const ab_link_part part[], size_t memory_bytes) {
    const uint32_t exchange = ab_shared_begun(link) + 1;
    slot *own = slot_of(link, link->own, exchange);
    ab_shared_settle(link, exchange - SLOTS); /* what is in the slot */
    own->memory_bytes = (int64_t)memory_bytes;
    memcpy(own->part, part, (size_t)link->ranks * sizeof *part);
    set(link, &link->own->begun, exchange);
}

/* What this rank is to receive from a peer in an exchange. */
static int64_t expected(const ab_shared_link *link, uint32_t exchange, int peer) {
    return link->peer[peer].map ? slot_of(link, link->own, exchange)->part[peer].receive_bytes : 0;
}

/* The last of the exchanges up to this one that a peer takes part in, so that this rank is blocked once. */
static void wait_for_peer(ab_shared_link *link, uint32_t exchange, int peer) {
    while (exchange != link->waited && expected(link, exchange, peer) == 0) exchange--;
    if (exchange != link->waited) wait_for(link, peer, &head_of(link, peer)->begun, exchange);
}

static ab_status check_sent(ab_shared_link *link, uint32_t exchange, int peer) {
    const int64_t wanted = expected(link, exchange, peer);
    if (wanted == 0) return AB_OK;
    const slot *theirs = slot_of(link, head_of(link, peer), exchange);
    const ab_link_part sent = theirs->part[link->rank];
    const int64_t all = theirs->memory_bytes;
    if (sent.send_bytes != wanted || sent.send_at < 0 || sent.send_bytes > all - sent.send_at)
        return ab_fail(AB_INTERNAL, "--ranks: rank %d sends %lld bytes, rank %d expects %lld", peer,
                       (long long)sent.send_bytes, link->rank, (long long)wanted);
    return map_peer(link, peer, link->head_bytes + (size_t)all);
}

ab_status ab_shared_wait(ab_shared_link *link, uint32_t exchange) {
    if (has_reached(link->waited, exchange)) return AB_OK;
    for (int r = 0; r < link->ranks; r++) wait_for_peer(link, exchange, r);
    while (link->waited != exchange) {
        link->waited++;
        for (int r = 0; r < link->ranks; r++) AB_TRY(check_sent(link, link->waited, r));
    }
    return AB_OK;
}

const unsigned char *ab_shared_sent(const ab_shared_link *link, uint32_t exchange, int peer) {
    const uint32_t released = atomic_load_explicit(&link->own->read, memory_order_relaxed);
    if (!link->peer[peer].map || has_reached(released, exchange)) return NULL;
    const slot *theirs = slot_of(link, head_of(link, peer), exchange);
    return link->peer[peer].map + link->head_bytes + theirs->part[link->rank].send_at;
}

void ab_shared_release(ab_shared_link *link, uint32_t exchange) {
    if (!has_reached(atomic_load_explicit(&link->own->read, memory_order_relaxed), exchange))
        set(link, &link->own->read, exchange);
}

static void copy_from(const ab_shared_link *link, uint32_t exchange, int peer, unsigned char *memory) {
    const ab_link_part *own = &slot_of(link, link->own, exchange)->part[peer];
    const unsigned char *sent = ab_shared_sent(link, exchange, peer);
    if (sent && own->receive_bytes > 0) memcpy(memory + own->receive_at, sent, (size_t)own->receive_bytes);
}

ab_status ab_shared_read(ab_shared_link *link, uint32_t exchange, unsigned char *memory) {
    uint32_t read = atomic_load_explicit(&link->own->read, memory_order_relaxed);
    AB_TRY(ab_shared_wait(link, exchange));
    if (has_reached(read, exchange)) return AB_OK;
    while (read != exchange) {
        read++;
        for (int k = 1; k < link->ranks; k++) /* not all of the same rank first */
            copy_from(link, read, (link->rank + k) % link->ranks, memory);
    }
    ab_shared_release(link, exchange);
    return AB_OK;
}
