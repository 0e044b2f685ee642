/* Requests of a worker, carried out by MPI from memory that both map. */
#define _GNU_SOURCE
#include "bench/mpi/relay.h"

#include "bench/mpi/machine.h"
#include "kernels/core/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/* A socket, and memory that begins with a head of zeros. */
static ab_status make(ab_relay *relay) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) != 0)
        return ab_fail(AB_SYSTEM, "--ranks: cannot make a socket: %s", strerror(errno));
    relay->socket = ends[0];
    relay->worker_socket = ends[1];
    relay->memory = memfd_create("ampbench-ranks", 0);
    if (relay->memory < 0 || ftruncate(relay->memory, (off_t)ab_shared_head_bytes(relay->place.ranks)) != 0)
        return ab_fail(AB_SYSTEM, "--ranks: cannot make shared memory: %s", strerror(errno));
    return AB_OK;
}

static ab_status name_in_environment(const ab_relay *relay) {
    char text[64], near[16 * AB_RANKS_MOST] = "";
    size_t at = 0;
    ab_text_exact(text, sizeof text, "%d %d %d %d", relay->worker_socket, relay->memory, relay->place.rank,
                  relay->place.ranks);
    for (int r = 0; r < relay->place.ranks; r++)
        at += strlen(ab_text_exact(near + at, sizeof near - at, r ? " %d" : "%d", relay->near[r]));
    return setenv(AB_LINK_VARIABLE, text, 1) == 0 && setenv(AB_LINK_MEMORY_VARIABLE, near, 1) == 0
               ? AB_OK
               : ab_fail(AB_NO_MEMORY, "--ranks: no memory");
}

ab_status ab_relay_open(ab_relay *relay, const ab_mpi *mpi, ab_rank_place place,
                        const ab_mpi_limits *limits) {
    *relay = (ab_relay){.mpi = mpi, .place = place, .socket = -1, .worker_socket = -1, .memory = -1};
    for (int r = 0; r < AB_RANKS_MOST; r++) relay->near[r] = -1;
    AB_TRY(make(relay));
    AB_TRY(ab_machine_open(mpi, limits, place, relay->memory, relay->near));
    return name_in_environment(relay);
}

void ab_relay_close(ab_relay *relay) {
    if (!relay->mpi) return;
    if (relay->map) munmap(relay->map, relay->mapped);
    if (relay->socket >= 0) close(relay->socket);
    if (relay->worker_socket >= 0) close(relay->worker_socket);
    if (relay->memory >= 0) close(relay->memory);
    for (int r = 0; r < relay->place.ranks; r++)
        if (relay->near[r] >= 0) close(relay->near[r]);
    unsetenv(AB_LINK_VARIABLE);
    unsetenv(AB_LINK_MEMORY_VARIABLE);
    *relay = (ab_relay){.mpi = NULL};
}

/* A new worker begins with as much memory as the last one left; it may grow. Transfers in it end first. */
static ab_status map_memory(ab_relay *relay, size_t bytes) {
    if (bytes == 0 || bytes == relay->mapped) return AB_OK;
    if (relay->pending > 0) AB_TRY(ab_mpi_wait(relay->mpi, relay->limits));
    if (relay->map) munmap(relay->map, relay->mapped);
    relay->map = NULL;
    relay->mapped = 0;
    const off_t head = (off_t)ab_shared_head_bytes(relay->place.ranks);
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, relay->memory, head);
    if (map == MAP_FAILED) return ab_fail(AB_NO_MEMORY, "--ranks: %s", strerror(errno));
    relay->map = map;
    relay->mapped = bytes;
    return AB_OK;
}

static bool is_inside(const ab_relay *relay, int64_t at, int64_t bytes) {
    const int64_t all = (int64_t)relay->mapped;
    return at >= 0 && bytes >= 0 && at <= all && bytes <= all - at;
}

static ab_status begin_part(ab_relay *relay, int peer, const ab_link_part *part) {
    const ab_mpi *mpi = relay->mpi;
    if (!is_inside(relay, part->send_at, part->send_bytes) ||
        !is_inside(relay, part->receive_at, part->receive_bytes))
        return ab_fail(AB_INTERNAL, "--ranks: a worker's request is outside its memory");
    AB_TRY(ab_mpi_check(
        mpi, mpi->receive(peer, AB_RELAY_TAG, relay->map + part->receive_at, (size_t)part->receive_bytes),
        "receiving"));
    return ab_mpi_check(
        mpi, mpi->send(peer, AB_RELAY_TAG, relay->map + part->send_at, (size_t)part->send_bytes), "sending");
}

/* Peers in turn from the next rank on, so that not all send to rank 0 first. */
static ab_status begin_exchange(ab_relay *relay, const ab_link_request *request) {
    const int ranks = relay->place.ranks;
    for (int k = 1; k < ranks; k++) {
        const int peer = (relay->place.rank + k) % ranks;
        if (relay->near[peer] < 0) AB_TRY(begin_part(relay, peer, &request->part[peer]));
    }
    return AB_OK;
}

static ab_status begin_allreduce(ab_relay *relay, const ab_link_request *request) {
    const int64_t bytes = request->count <= INT32_MAX ? request->count * (int64_t)sizeof(float) : -1;
    if (request->at % (int64_t)sizeof(float) != 0 || !is_inside(relay, request->at, bytes))
        return ab_fail(AB_INTERNAL, "--ranks: a worker's request is outside its memory");
    float *values = (float *)(void *)(relay->map + request->at);
    return ab_mpi_check(relay->mpi, relay->mpi->allreduce(values, (size_t)request->count), "MPI_Allreduce");
}

/* *found: the worker had sent a request, and its transfers are begun. */
static ab_status begin_request(ab_relay *relay, bool *found) {
    ab_link_request request;
    const ssize_t got = recv(relay->socket, &request, sizeof request, MSG_DONTWAIT);
    *found = false;
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return AB_OK;
    if (got != (ssize_t)sizeof request || request.ranks != relay->place.ranks)
        return ab_fail(AB_INTERNAL, "--ranks: a worker sent an unknown request");
    AB_TRY(map_memory(relay, (size_t)request.memory_bytes));
    AB_TRY(request.kind == AB_LINK_ALLREDUCE ? begin_allreduce(relay, &request)
                                             : begin_exchange(relay, &request));
    relay->pending++;
    *found = true;
    return AB_OK;
}

static ab_status begin_all(ab_relay *relay) {
    bool found = true;
    while (found) AB_TRY(begin_request(relay, &found));
    return AB_OK;
}

/* Between tests: what the worker asks for meanwhile is begun too. */
static ab_status check(void *context) {
    ab_relay *relay = context;
    AB_TRY(begin_all(relay));
    return relay->limits->check ? relay->limits->check(relay->limits->context) : AB_OK;
}

ab_status ab_relay_serve(ab_relay *relay, const ab_mpi_limits *limits) {
    ab_mpi_limits own = *limits;
    own.check = check;
    own.context = relay;
    own.wakes = true;
    own.wake = relay->socket;
    relay->limits = limits;
    AB_TRY(begin_all(relay));
    if (relay->pending == 0) return AB_OK;
    AB_TRY(ab_mpi_wait(relay->mpi, &own));
    for (; relay->pending > 0; relay->pending--)
        (void)send(relay->socket, "", 1, MSG_NOSIGNAL); /* a worker that died is noticed by its events */
    return AB_OK;
}
