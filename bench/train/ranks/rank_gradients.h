/* The gradients of several ranks between their backward passes and the unscaling: kept, then reduced in the
 * order and with the roundings of the named scheme into the tensors that the step goes on with.
 *
 * Simulated ranks: one process computes the ranks one after the other from the same weights. Processes of an
 * MPI job (link.h): each computes one rank. Contributions to an equal share of the elements go to each rank,
 * in the wire format; it adds them as the simulation does, and its sums go to all. So the bits are the same,
 * and each rank sends and receives as much as in a ring. Small gradients go whole to all ranks, and each adds
 * all: ranks wait for each other once in a step. Buckets of gradients are sent as soon as the backward pass
 * has computed them, while it goes on. */
#ifndef AB_BENCH_TRAIN_RANKS_RANK_GRADIENTS_H
#define AB_BENCH_TRAIN_RANKS_RANK_GRADIENTS_H

#include "bench/train/ranks/link.h"
#include "bench/train/ranks/reduction_counts.h"
#include "bench/train/recipe.h"
#include "bench/train/update/gradients.h"

AB_BEGIN_DECLS

/* What one rank adds of a bucket. */
typedef struct ab_rank_share {
    int64_t from, until; /* elements of the flat gradient; from == until: nothing */
    size_t at, end;      /* its bytes, from ab_rank_layout's `own` on */
} ab_rank_share;

/* Gradients that are sent together, as soon as the backward pass has computed them. */
typedef struct ab_rank_bucket {
    int first, last;      /* of the parameters; the last is the first to be ready */
    int node;             /* whose backward pass completes them */
    size_t at, end;       /* bytes, from `own` on */
    size_t other;         /* of its contributions, in those of each other rank */
    ab_rank_share *share; /* [ranks] */
    int64_t ticket;       /* of its transfer */
} ab_rank_bucket;

enum { AB_RANK_BUCKETS = 32 };

/* Where things are in the memory of the link: notes of all ranks; this rank's gradients as they are sent, in
 * which its share becomes the means; both twice, for reductions in turn, so that no rank waits until the
 * others have read the last one's; contributions of other ranks to this rank's shares, where they are not
 * read in the memory of those. Gradients begin at multiples of 64. */
typedef struct ab_rank_layout {
    int rank, ranks;   /* ranks 0: simulated */
    size_t *byte;      /* [items]: of each gradient, from `own` on; owned */
    int *node;         /* [items]: whose backward pass completes it; owned */
    int buckets, sent; /* sent: in the current step */
    bool shares;       /* each rank adds a share; else each adds all */
    ab_rank_bucket bucket[AB_RANK_BUCKETS];
    ab_rank_share *share; /* [buckets][ranks]; owned */
    int turn;             /* 0 or 1: which of both halves is in use */
    int64_t ticket, last; /* of the notes; of the transfer that was begun last */
    int64_t ended[2];     /* of the last transfer of the last reduction in each half */
    size_t note_bytes, notes, own, half, others, other_bytes, bytes;
} ab_rank_layout;

/* Parts of a reduction over processes. */
typedef enum ab_traffic_op {
    AB_TRAFFIC_PACK,      /* gradients into the format of the wire */
    AB_TRAFFIC_NOTES,     /* losses and counts; here a rank waits for slower ones */
    AB_TRAFFIC_SCATTER,   /* contributions to the ranks that add them */
    AB_TRAFFIC_SUM,       /* this rank's share */
    AB_TRAFFIC_GATHER,    /* means to all */
    AB_TRAFFIC_ALLREDUCE, /* the MPI library's, in place of the last three */
    AB_TRAFFIC_UNPACK,    /* means into the gradient tensors */
    AB_TRAFFIC_OPS
} ab_traffic_op;

/* Of this process, over the steps after the first one: ns of time and of processor time, bytes that were sent
 * to others, how often it was blocked (voluntary context switches). */
typedef struct ab_rank_use {
    int64_t ns, processor_ns, blocked;
} ab_rank_use;

typedef struct ab_rank_traffic {
    ab_rank_use since, whole; /* when the first step's reduction ended; from then to the last one's end */
    ab_rank_use op[AB_TRAFFIC_OPS]; /* without `blocked` */
    int64_t steps, bytes[AB_TRAFFIC_OPS];
    int64_t overlapped; /* bytes that were on their way while the backward pass went on */
} ab_rank_traffic;

typedef struct ab_rank_gradients {
    const ab_rank_recipe *recipe;  /* borrowed */
    const ab_gradients *gradients; /* borrowed */
    ab_tensor **tensor;            /* [items]: that are sent and get the means; owned */
    ab_tensor **fresh;             /* [items]: that the backward pass writes; owned */
    float *value; /* [ranks][count]: as sent, in reverse order of the parameters; NULL: ranks are processes */
    float *sum;   /* [count] */
    float *kept;  /* [count]: between the reductions of a step, or the passes of a process, what has
                     accumulated; NULL: one reduction a step of one pass. All three are memory of the cell,
                     among the gradients */
    bool owned;   /* these three are, not the cell's: its memory is a device's */
    int64_t *first;            /* [items]: element of the flat gradient where each begins; owned */
    int64_t count;             /* elements of all gradients */
    const unsigned char **row; /* [ranks]: for ab_rank_part; owned */
    double *loss;              /* [ranks][micro-batches], for the mean; owned */
    int64_t correct, score; /* rows of logits: right ones, all; of this process, after reduce of all ranks */
    ab_rank_layout layout;
    ab_rank_traffic traffic; /* of processes */
    /* What the reduction did, of simulated ranks: overflows of every step, the rest of steps that are
     * counted. */
    bool counts, noted; /* set by the caller before the ranks' passes: a counted step; not a repeated one */
    int64_t counted_steps;
    ab_reduction_counts *count_of; /* [items]; owned; NULL: ranks are processes */
    double *exact; /* [count]: sums of what is not divided; owned; NULL: nothing was counted */
    bool *finite;  /* [count]; owned */
} ab_rank_gradients;

/* `ranks` must be all zero. Does nothing if recipe->count is below 2. Errors: AB_NO_MEMORY; AB_USAGE if a
 * gradient's format cannot be sent. ab_rank_gradients_fini frees it, also after an error. */
AB_MUST_CHECK ab_status ab_rank_gradients_init(ab_rank_gradients *ranks, const ab_rank_recipe *recipe,
                                               const ab_gradients *gradients);
void ab_rank_gradients_fini(ab_rank_gradients *ranks);

/* Bytes that ab_rank_gradients_init adds to a category for simulated ranks, for plans. */
int64_t ab_rank_gradients_bytes(const ab_plan *plan, const ab_recipe *recipe, ab_mem_category category);

/* Call during the last backward pass of a rank that is a process, after each node: sends what is complete. */
AB_MUST_CHECK ab_status ab_rank_gradients_passed(ab_rank_gradients *ranks, int node);

/* Whether each micro-batch's gradient is computed by itself. */
bool ab_rank_batches_are_apart(const ab_rank_recipe *recipe);

/* Whether the gradients of micro-batches are added in the format of the wire: by ab_rank_gradients_add. */
bool ab_rank_gradients_in_wire(const ab_rank_gradients *ranks);

/* Call after each backward pass of a rank if so. */
AB_MUST_CHECK ab_status ab_rank_gradients_add(ab_rank_gradients *ranks, int64_t rank);

/* Whether every micro-batch's backward pass is followed by a reduction. */
bool ab_rank_gradients_every_batch(const ab_rank_gradients *ranks);

/* Whether the current reduction is the step's last one. */
bool ab_rank_gradients_end_step(const ab_rank_gradients *ranks);

/* Call before each pass of a rank: a simulated one begins with what all ranks have accumulated. */
AB_MUST_CHECK ab_status ab_rank_gradients_begin(ab_rank_gradients *ranks);

/* Call after a rank's last backward pass, or after each one: keeps its gradients as they are sent. */
AB_MUST_CHECK ab_status ab_rank_gradients_keep(ab_rank_gradients *ranks, int64_t rank);

/* Call after the last rank, with losses and scores of the ranks of this process: writes the mean over ranks
 * into the gradient tensors; losses and scores are then those of all ranks. */
AB_MUST_CHECK ab_status ab_rank_gradients_reduce(ab_rank_gradients *ranks);

/* Call after each of several reductions in a step, with position->micro of the micro-batch: gradients that
 * the masters do not sum (ab_gradients_sum) become what has accumulated so far. */
AB_MUST_CHECK ab_status ab_rank_gradients_accumulate(ab_rank_gradients *ranks);

/* ---- for the files of this folder ------------------------------------------------------------ */

/* Whether every micro-batch's gradients are reduced, or added in the format of the wire. */
bool ab_rank_reduces_every_batch(const ab_rank_recipe *recipe, int64_t micro_batches);
bool ab_rank_adds_in_wire(const ab_rank_recipe *recipe, int64_t micro_batches);

/* The reduction of one gradient: "as-is" is its own format. */
ab_reduction ab_rank_reduction_of(const ab_rank_gradients *ranks, int item);

/* What is reduced at once: elements [from, from + count) of the flat gradient, all of gradient `item`. */
typedef struct ab_rank_part {
    int item;
    int64_t from, count;
    const unsigned char *const *row; /* [ranks]: each rank's contributions */
    const ab_format *sent, *result;  /* formats of contributions and means */
    unsigned char *means;            /* may be a row */
} ab_rank_part;

/* Sums and divides a part. AB_NO_MEMORY. */
AB_MUST_CHECK ab_status ab_rank_reduce_part(const ab_rank_gradients *ranks, const ab_rank_part *part);

/* The format that contributions are sent in: schemes that add wide ones send fp32. */
const ab_format *ab_rank_sent_format(const ab_rank_gradients *ranks, int item);

/* Over processes: where things are (exchange_layout.c). */
AB_MUST_CHECK ab_status ab_rank_layout_init(ab_rank_gradients *ranks, size_t note_bytes);
void ab_rank_layout_fini(ab_rank_layout *layout);
/* The byte of an element of the flat gradient, from `own` on. */
size_t ab_rank_byte_of(const ab_rank_gradients *ranks, int64_t element);
/* Where rank r's contributions to this rank's share of a bucket are to be received: aligned as at r. */
size_t ab_rank_contribution_of(const ab_rank_layout *layout, const ab_rank_bucket *bucket, int r);
/* Goes on to the other half of the memory. */
void ab_rank_layout_turn(ab_rank_layout *layout);

/* Over processes (exchange.c). */
AB_MUST_CHECK ab_status ab_rank_exchange_init(ab_rank_gradients *ranks);
AB_MUST_CHECK ab_status ab_rank_exchange_keep(ab_rank_gradients *ranks);
AB_MUST_CHECK ab_status ab_rank_exchange_reduce(ab_rank_gradients *ranks);

AB_END_DECLS

#endif
