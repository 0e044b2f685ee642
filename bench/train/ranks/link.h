/* A cell's process as one rank of an MPI job: bytes that all ranks exchange.
 *
 * Ranks of one machine read each other's memory (shared_link.h). What goes to other machines, and the MPI
 * library's own sum, is carried by the parent, which alone calls MPI (bench/mpi/relay.h): a worker that
 * crashes or runs out of memory does not take MPI down with it. Requests go to the parent through a socket.
 * With --ranks nccl gradients go through the ranks' GPUs (kernels/core/device_ranks.h), the rest as before.
 * Without a link (no AMPBENCH_RANK_LINK in the environment) there is one rank, or simulated ones. */
#ifndef AB_BENCH_TRAIN_RANKS_LINK_H
#define AB_BENCH_TRAIN_RANKS_LINK_H

#include "bench/train/ranks/shared_link.h"

AB_BEGIN_DECLS

/* ---- this process's place -------------------------------------------------------------------- */

typedef struct ab_rank_place {
    int rank, ranks;     /* ranks 0: not a process of an MPI job */
    const char *library; /* "Open MPI v4.1.4"; static; NULL: not known here */
} ab_rank_place;

/* Of this process: set by the parent that starts MPI or by ab_rank_link_open; before that, all 0. */
ab_rank_place ab_rank_place_get(void);
void ab_rank_place_set(ab_rank_place place);

/* ---- the protocol ---------------------------------------------------------------------------- */

typedef enum ab_link_kind { AB_LINK_EXCHANGE = 1, AB_LINK_ALLREDUCE = 2 } ab_link_kind;

/* One packet from worker to parent, which answers each with one byte once the transfers that it knows of are
 * done. A worker may send several before it waits; all ranks send the same ones in the same order. */
typedef struct ab_link_request {
    int32_t kind, ranks;
    int64_t memory_bytes; /* the shared memory, behind its head, is now this large */
    int64_t at, count;    /* AB_LINK_ALLREDUCE: floats */
    ab_link_part part[AB_RANKS_MOST];
} ab_link_request;

/* The worker's end, in its environment: "socket memory rank ranks". */
#define AB_LINK_VARIABLE "AMPBENCH_RANK_LINK"
/* Memory of every rank: descriptors; -1: this rank's, or on another machine. Missing: all are. */
#define AB_LINK_MEMORY_VARIABLE "AMPBENCH_RANK_MEMORY"

/* ---- the worker's end ------------------------------------------------------------------------ */

/* Opens the link that the environment names, and sets this process's place. Nothing without one. */
AB_MUST_CHECK ab_status ab_rank_link_open(void);
bool ab_rank_link_is_open(void);

/* The first `bytes` bytes of the shared memory, which no other function here uses; valid until the next call
 * of one. AB_NO_MEMORY. */
AB_MUST_CHECK ab_status ab_rank_link_memory(size_t bytes, unsigned char **memory);

/* Exchanges and sums go through this device from now on; small exchanges do not. All ranks call it. Errors:
 * those of the device's library. */
AB_MUST_CHECK ab_status ab_rank_link_join(const struct ab_device_ranks *device);

/* Begins an exchange, which goes on while the caller computes; *ticket is for ab_rank_link_wait. Every rank r
 * calls it with parts that fit: part[q].send_bytes of r are part[r].receive_bytes of q. The own part is
 * ignored. Bytes that go must not be touched before ab_rank_link_settle. */
AB_MUST_CHECK ab_status ab_rank_link_begin(const ab_link_part part[], int ranks, int64_t *ticket);

/* Begins a library's own sum over ranks, in place: the device's, else MPI's in fp32. */
AB_MUST_CHECK ab_status ab_rank_link_begin_sum(const ab_device_sum *what, int64_t *ticket);

/* Returns when all bytes of what was begun with this ticket, and before it, are there: ab_rank_link_received.
 */
AB_MUST_CHECK ab_status ab_rank_link_wait(int64_t ticket);

/* What a rank sent with a ticket that was waited for, and was to be received at this byte: there, or still in
 * the other rank's memory. Valid until the next call that waits, at most until ab_rank_link_release. */
const unsigned char *ab_rank_link_received(int64_t ticket, int from, size_t at);

/* What came with this ticket, and before it, is not needed any more. The caller has waited for the ticket. */
void ab_rank_link_release(int64_t ticket);

/* Returns when the other ranks have released what this one sent with this ticket, and before it. The caller
 * has waited for the ticket; 0: nothing was sent. */
void ab_rank_link_settle(int64_t ticket);

/* `bytes` bytes of every rank, in the order of the ranks; valid until the shared memory is used again. All
 * ranks call it with the same number. */
AB_MUST_CHECK ab_status ab_rank_link_gather(const void *own, size_t bytes, const unsigned char **all);

/* Rank 0's value of *decision, on every rank; all ranks must call it. Without a link it stays. */
AB_MUST_CHECK ab_status ab_rank_link_agree(bool *decision);

AB_END_DECLS

#endif
