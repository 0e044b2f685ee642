/* Exchanges between the ranks of one machine, without MPI: each rank maps the memory of the others and reads
 * what is for it there. A rank that waits is blocked in the kernel (a futex) until the other one has begun or
 * read the exchange: it takes no processor time, and it goes on as soon as the bytes are there. Ranks that do
 * not wait make no system call.
 *
 * A rank's memory is a file without a name that its parent keeps open: it outlives a worker that ends or
 * dies, and nothing of it is left when the job has ended. It begins with a head that the others read; the
 * bytes that are exchanged follow. Exchanges are numbered through the whole job, by every rank alike. */
#ifndef AB_BENCH_TRAIN_RANKS_SHARED_LINK_H
#define AB_BENCH_TRAIN_RANKS_SHARED_LINK_H

#include "kernels/core/device_ranks.h"

AB_BEGIN_DECLS

enum { AB_RANKS_MOST = 64 };

struct ab_shared_head;

typedef struct ab_shared_link {
    int rank, ranks;
    struct ab_shared_head *own;
    size_t head_bytes;
    uint32_t waited; /* exchanges: what others send in them is there */
    bool elsewhere;  /* there are ranks on other machines */
    struct ab_shared_peer {
        int file; /* -1: this rank, or one on another machine */
        const unsigned char *map;
        size_t mapped;
    } peer[AB_RANKS_MOST];
} ab_shared_link;

/* Bytes of the head of a rank's memory, whole pages. The memory must be all zero before its first use. */
size_t ab_shared_head_bytes(int ranks);

/* Maps the heads. file[ranks]: memory of every rank, of this one for writing; -1: on another machine. `link`
 * must be all zero. AB_NO_MEMORY. ab_shared_close also after an error. */
AB_MUST_CHECK ab_status ab_shared_open(ab_shared_link *link, int rank, int ranks, const int file[]);
void ab_shared_close(ab_shared_link *link);

/* Begins an exchange: what this rank sends is there from now on, and must stay until ab_shared_settle. Parts
 * with ranks on other machines are left alone. memory_bytes: how much follows the head. */
void ab_shared_begin(ab_shared_link *link, const ab_link_part part[], size_t memory_bytes);

/* The exchange that was begun last. */
uint32_t ab_shared_begun(const ab_shared_link *link);

/* Returns when what other ranks send in all exchanges up to this one is there. AB_INTERNAL if they send
 * another number of bytes than expected, AB_NO_MEMORY. */
AB_MUST_CHECK ab_status ab_shared_wait(ab_shared_link *link, uint32_t exchange);

/* What a rank sends in an exchange that was waited for, in its own memory: valid until the next wait. NULL if
 * it has been copied (ab_shared_read) or if the rank is on another machine. */
const unsigned char *ab_shared_sent(const ab_shared_link *link, uint32_t exchange, int peer);

/* This rank needs no more of what others sent in exchanges up to this one, which were waited for. */
void ab_shared_release(ab_shared_link *link, uint32_t exchange);

/* Waits, copies what other ranks send in all exchanges up to this one and that is not released into `memory`,
 * which follows the own head, and releases it. Errors: those of ab_shared_wait. */
AB_MUST_CHECK ab_status ab_shared_read(ab_shared_link *link, uint32_t exchange, unsigned char *memory);

/* Waits until all other ranks have released what this one sent in exchanges up to this one. */
void ab_shared_settle(ab_shared_link *link, uint32_t exchange);

AB_END_DECLS

#endif
