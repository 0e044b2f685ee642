/* The worker's end: exchanges with ranks of this machine, and requests on a socket for all else. */
#define _GNU_SOURCE
#include "bench/train/ranks/link.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static struct link {
    ab_rank_place place;
    int socket, memory;
    unsigned char *map;
    size_t mapped, kept; /* bytes; of them, what ab_rank_link_memory gave */
    ab_shared_link shared;
    uint32_t begun, answered;              /* requests to the parent */
    int64_t small;                         /* ticket of the last small exchange */
    const ab_device_ranks *device;         /* NULL: none */
    int64_t device_begun, device_complete; /* exchanges and sums; tickets are these numbers, negative */
} own = {.socket = -1, .memory = -1};

ab_rank_place ab_rank_place_get(void) { return own.place; }

void ab_rank_place_set(ab_rank_place place) { own.place = place; }

/* What was begun last: an exchange among ranks of this machine in the upper half, a request in the lower. */
static int64_t last_ticket(void) {
    return (int64_t)((uint64_t)ab_shared_begun(&own.shared) << 32 | own.begun);
}

/* The memory of the ranks of this machine, that of no other one without the variable. */
static ab_status open_shared(void) {
    const char *text = getenv(AB_LINK_MEMORY_VARIABLE);
    int file[AB_RANKS_MOST];
    for (int r = 0; r < own.place.ranks; r++) {
        char *end = NULL;
        file[r] = text ? (int)strtol(text, &end, 10) : -1;
        text = end;
    }
    file[own.place.rank] = own.memory;
    AB_TRY(ab_shared_open(&own.shared, own.place.rank, own.place.ranks, file));
    own.small = last_ticket();
    return AB_OK;
}

ab_status ab_rank_link_open(void) {
    const char *text = getenv(AB_LINK_VARIABLE);
    ab_rank_place place = {0, 0, NULL};
    if (!text) return AB_OK;
    if (sscanf(text, "%d %d %d %d", &own.socket, &own.memory, &place.rank, &place.ranks) != 4 ||
        place.ranks > AB_RANKS_MOST)
        return ab_fail(AB_INTERNAL, AB_LINK_VARIABLE ": expected 4 numbers, found '%s'", text);
    own.place = place;
    return open_shared();
}

bool ab_rank_link_is_open(void) { return own.socket >= 0; }

static ab_status wait_for_device(int64_t number) {
    if (number <= own.device_complete) return AB_OK;
    AB_TRY(own.device->wait());
    own.device_complete = own.device_begun;
    return AB_OK;
}

/* The shared memory behind its head, at least `bytes` long. Places change, what others read does not. */
static ab_status map_memory(size_t bytes) {
    const size_t head = own.shared.head_bytes;
    if (bytes <= own.mapped) return AB_OK;
    AB_TRY(wait_for_device(own.device_begun));
    if (own.map) munmap(own.map, own.mapped);
    own.map = NULL;
    own.mapped = 0;
    if (ftruncate(own.memory, (off_t)(head + bytes)) != 0)
        return ab_fail(AB_NO_MEMORY, "--ranks: no memory to share: %s", strerror(errno));
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, own.memory, (off_t)head);
    if (map == MAP_FAILED) return ab_fail(AB_NO_MEMORY, "--ranks: no memory to share: %s", strerror(errno));
    own.map = map;
    own.mapped = bytes;
    return AB_OK;
}

ab_status ab_rank_link_memory(size_t bytes, unsigned char **memory) {
    enum { ALIGNED = 64 };
    const size_t wanted = (bytes + ALIGNED - 1) / ALIGNED * ALIGNED;
    if (wanted > own.kept) { /* into where small exchanges were */
        ab_rank_link_settle(own.small);
        own.kept = wanted;
    }
    AB_TRY(map_memory(own.kept));
    *memory = own.map;
    return AB_OK;
}

/* ---- requests -------------------------------------------------------------------------------- */

static ab_status ask_parent(ab_link_request *request) {
    request->ranks = own.place.ranks;
    request->memory_bytes = (int64_t)own.mapped;
    if (send(own.socket, request, sizeof *request, MSG_NOSIGNAL) != (ssize_t)sizeof *request)
        return ab_fail(AB_SYSTEM, "--ranks: the parent is gone: %s", strerror(errno));
    own.begun++;
    return AB_OK;
}

static ab_status begin_exchange(const ab_link_part part[], int ranks, int64_t *ticket) {
    ab_link_request request = {.kind = AB_LINK_EXCHANGE};
    ab_shared_begin(&own.shared, part, own.mapped);
    memcpy(request.part, part, (size_t)ranks * sizeof *part);
    if (own.shared.elsewhere) AB_TRY(ask_parent(&request));
    *ticket = last_ticket();
    return AB_OK;
}

ab_status ab_rank_link_begin(const ab_link_part part[], int ranks, int64_t *ticket) {
    if (!own.device) return begin_exchange(part, ranks, ticket);
    AB_TRY(own.device->exchange(own.map, own.mapped, part));
    *ticket = -++own.device_begun;
    return AB_OK;
}

ab_status ab_rank_link_begin_sum(const ab_device_sum *what, int64_t *ticket) {
    ab_link_request request = {
        .kind = AB_LINK_ALLREDUCE, .at = (int64_t)what->at, .count = (int64_t)what->count};
    if (own.device) {
        AB_TRY(own.device->sum(own.map, own.mapped, what));
        *ticket = -++own.device_begun;
        return AB_OK;
    }
    AB_TRY(ask_parent(&request));
    *ticket = last_ticket();
    return AB_OK;
}

static ab_status wait_for_parent(uint32_t requests) {
    char answer;
    for (; (int32_t)(requests - own.answered) > 0; own.answered++) {
        ssize_t got;
        while ((got = recv(own.socket, &answer, 1, 0)) < 0 && errno == EINTR) continue;
        if (got != 1) return ab_fail(AB_SYSTEM, "--ranks: the parent does not answer");
    }
    return AB_OK;
}

static uint32_t exchange_of(int64_t ticket) { return (uint32_t)(ticket >> 32); }

ab_status ab_rank_link_wait(int64_t ticket) {
    if (ticket < 0) return wait_for_device(-ticket);
    AB_TRY(ab_shared_wait(&own.shared, exchange_of(ticket)));
    return wait_for_parent((uint32_t)ticket);
}

const unsigned char *ab_rank_link_received(int64_t ticket, int from, size_t at) {
    const unsigned char *sent = ticket < 0 ? NULL : ab_shared_sent(&own.shared, exchange_of(ticket), from);
    return sent ? sent : own.map + at;
}

void ab_rank_link_release(int64_t ticket) {
    if (ticket > 0) ab_shared_release(&own.shared, exchange_of(ticket));
}

void ab_rank_link_settle(int64_t ticket) {
    if (ticket > 0) ab_shared_settle(&own.shared, exchange_of(ticket));
}

/* ---- small exchanges, behind the kept memory --------------------------------------------------- */

/* Releases are in order: what others sent before is copied too, to where it is to be received. */

static ab_status exchange(const ab_link_part part[]) {
    AB_TRY(begin_exchange(part, own.place.ranks, &own.small));
    AB_TRY(ab_shared_read(&own.shared, exchange_of(own.small), own.map));
    return wait_for_parent((uint32_t)own.small);
}

/* Room for `bytes` bytes; others have read what was there. */
static ab_status make_room(size_t bytes) {
    ab_rank_link_settle(own.small);
    return map_memory(own.kept + bytes);
}

ab_status ab_rank_link_gather(const void *own_bytes, size_t bytes, const unsigned char **all) {
    const int ranks = own.place.ranks, rank = own.place.rank;
    const int64_t each = (int64_t)bytes, at = (int64_t)own.kept;
    ab_link_part part[AB_RANKS_MOST] = {{0}};
    AB_TRY(make_room(bytes * (size_t)ranks));
    memcpy(own.map + at + rank * each, own_bytes, bytes);
    for (int r = 0; r < ranks; r++) part[r] = (ab_link_part){at + rank * each, each, at + r * each, each};
    AB_TRY(exchange(part));
    *all = own.map + at;
    return AB_OK;
}

ab_status ab_rank_link_agree(bool *decision) {
    ab_link_part part[AB_RANKS_MOST] = {{0}};
    const int64_t at = (int64_t)own.kept;
    if (!ab_rank_link_is_open()) return AB_OK;
    AB_TRY(make_room(1));
    if (own.place.rank == 0)
        for (int r = 1; r < own.place.ranks; r++) part[r] = (ab_link_part){.send_at = at, .send_bytes = 1};
    else
        part[0] = (ab_link_part){.receive_at = at, .receive_bytes = 1};
    if (own.place.rank == 0) own.map[at] = *decision;
    AB_TRY(exchange(part));
    *decision = own.map[at] != 0;
    return AB_OK;
}

/* The first rank names the group; the others hear the name. */
ab_status ab_rank_link_join(const ab_device_ranks *device) {
    unsigned char id[AB_DEVICE_RANKS_ID] = {0};
    const unsigned char *all;
    const char *version;
    if (!ab_rank_link_is_open() || own.place.ranks < 2) return AB_OK;
    if (own.place.rank == 0) AB_TRY(device->name(id));
    AB_TRY(ab_rank_link_gather(id, sizeof id, &all));
    AB_TRY(device->join(all, own.place.rank, own.place.ranks, &version));
    own.device = device;
    return AB_OK;
}
