/* The parent's end of a rank's link (bench/train/ranks/link.h): carries what its worker exchanges with ranks
 * of other machines to their parents by MPI, and calls the MPI library's sum. It computes nothing. */
#ifndef AB_BENCH_MPI_RELAY_H
#define AB_BENCH_MPI_RELAY_H

#include "bench/train/ranks/link.h"
#include "kernels/mpi/mpi.h"

AB_BEGIN_DECLS

typedef struct ab_relay {
    const ab_mpi *mpi; /* borrowed */
    ab_rank_place place;
    int socket, worker_socket, memory; /* the last two are inherited by workers */
    unsigned char *map;                /* the memory behind its head */
    size_t mapped;
    int near[AB_RANKS_MOST]; /* memory of ranks of this machine, for workers to read; -1: on another one */
    int pending;             /* requests that were begun and not answered */
    const ab_mpi_limits *limits; /* of the current ab_relay_serve */
} ab_relay;

enum { AB_RELAY_TAG = 1 };

/* Makes socket and memory, opens the memory of the other ranks of this machine, and names all of them them in
 * the environment of later workers. ab_relay_close also after an error. AB_SYSTEM. */
AB_MUST_CHECK ab_status ab_relay_open(ab_relay *relay, const ab_mpi *mpi, ab_rank_place place,
                                      const ab_mpi_limits *limits);
void ab_relay_close(ab_relay *relay);

/* Call when relay->socket is readable: carries out the worker's requests, those too that come meanwhile.
 * Blocks within the limits until all ranks have made theirs. */
AB_MUST_CHECK ab_status ab_relay_serve(ab_relay *relay, const ab_mpi_limits *limits);

AB_END_DECLS

#endif
