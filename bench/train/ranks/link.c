/* The worker's end: requests on a socket, bytes in shared memory. */
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
    size_t mapped;
} own = {.socket = -1, .memory = -1};

ab_rank_place ab_rank_place_get(void) { return own.place; }

void ab_rank_place_set(ab_rank_place place) { own.place = place; }

ab_status ab_rank_link_open(void) {
    const char *text = getenv(AB_LINK_VARIABLE);
    ab_rank_place place = {0, 0, NULL};
    if (!text) return AB_OK;
    if (sscanf(text, "%d %d %d %d", &own.socket, &own.memory, &place.rank, &place.ranks) != 4 ||
        place.ranks > AB_RANKS_MOST)
        return ab_fail(AB_INTERNAL, AB_LINK_VARIABLE ": expected 4 numbers, found '%s'", text);
    own.place = place;
    return AB_OK;
}

bool ab_rank_link_is_open(void) { return own.socket >= 0; }

ab_status ab_rank_link_memory(size_t bytes, unsigned char **memory) {
    *memory = own.map;
    if (bytes <= own.mapped) return AB_OK;
    if (own.map) munmap(own.map, own.mapped);
    own.map = NULL;
    own.mapped = 0;
    if (ftruncate(own.memory, (off_t)bytes) != 0)
        return ab_fail(AB_NO_MEMORY, "--ranks mpi: no memory to share: %s", strerror(errno));
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, own.memory, 0);
    if (map == MAP_FAILED)
        return ab_fail(AB_NO_MEMORY, "--ranks mpi: no memory to share: %s", strerror(errno));
    own.map = *memory = map;
    own.mapped = bytes;
    return AB_OK;
}

/* Sends the request and waits for the answer. */
static ab_status ask(ab_link_request *request) {
    char answer;
    ssize_t got;
    request->ranks = own.place.ranks;
    request->memory_bytes = (int64_t)own.mapped;
    if (send(own.socket, request, sizeof *request, MSG_NOSIGNAL) != (ssize_t)sizeof *request)
        return ab_fail(AB_SYSTEM, "--ranks mpi: the parent is gone: %s", strerror(errno));
    while ((got = recv(own.socket, &answer, 1, 0)) < 0 && errno == EINTR) continue;
    return got == 1 ? AB_OK : ab_fail(AB_SYSTEM, "--ranks mpi: the parent does not answer");
}

ab_status ab_rank_link_exchange(const ab_link_part part[], int ranks) {
    ab_link_request request = {.kind = AB_LINK_EXCHANGE};
    memcpy(request.part, part, (size_t)ranks * sizeof *part);
    return ask(&request);
}

ab_status ab_rank_link_gather(const void *own_bytes, size_t bytes, const unsigned char **all) {
    const int ranks = own.place.ranks, rank = own.place.rank;
    const int64_t each = (int64_t)bytes;
    ab_link_part part[AB_RANKS_MOST] = {{0}};
    unsigned char *memory;
    AB_TRY(ab_rank_link_memory(bytes * (size_t)ranks, &memory));
    memcpy(memory + rank * each, own_bytes, bytes);
    for (int r = 0; r < ranks; r++) part[r] = (ab_link_part){rank * each, each, r * each, each};
    AB_TRY(ab_rank_link_exchange(part, ranks));
    *all = memory;
    return AB_OK;
}

ab_status ab_rank_link_allreduce(size_t at, size_t count) {
    return ask(&(ab_link_request){.kind = AB_LINK_ALLREDUCE, .at = (int64_t)at, .count = (int64_t)count});
}

ab_status ab_rank_link_agree(bool *decision) {
    ab_link_part part[AB_RANKS_MOST] = {{0}};
    unsigned char *memory;
    if (!ab_rank_link_is_open()) return AB_OK;
    AB_TRY(ab_rank_link_memory(1, &memory));
    if (own.place.rank == 0)
        for (int r = 1; r < own.place.ranks; r++) part[r] = (ab_link_part){.send_bytes = 1};
    else
        part[0] = (ab_link_part){.receive_bytes = 1};
    if (own.place.rank == 0) memory[0] = *decision;
    AB_TRY(ab_rank_link_exchange(part, own.place.ranks));
    *decision = memory[0] != 0;
    return AB_OK;
}
