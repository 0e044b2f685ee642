/* Reductions over the ranks of data parallelism: who adds what to what, in which order, and where it rounds.
 *
 * A contribution is one rank's gradient as it is sent: values of the wire format, held in fp32. Every hop
 * adds two values of the wire format in fp32 and rounds once to the wire format; for fp16 and bf16 that
 * equals the correctly rounded sum, because fp32 has at least 2 p + 2 digits (Figueroa, ACM SIGNUM 30(3),
 * 1995). No communication, no threads and no allocation here.
 *
 * A scheme is one file scheme_<name>.c with a const ab_collective and one line in schemes.def. Sources of the
 * orders: NCCL's ring and tree all-reduce; docs/ranks.md says what is simplified. */
#ifndef AB_KERNELS_COLLECTIVE_COLLECTIVE_H
#define AB_KERNELS_COLLECTIVE_COLLECTIVE_H

#include "kernels/format/format.h"

AB_BEGIN_DECLS

/* ---- reductions ------------------------------------------------------------------------------ */

/* How the sum becomes a mean. Products are rounded to the wire format. */
typedef enum ab_divide {
    AB_DIVIDE_PRE,    /* every contribution times fp32(1 / N), before the sum */
    AB_DIVIDE_POST,   /* the sum times fp32(1 / N) */
    AB_DIVIDE_SQRT,   /* contributions over f, the sum over N / f; f: the power of two nearest above sqrt(N)
                       * that divides N so far, as FSDP computes it */
    AB_DIVIDE_FACTOR, /* contributions times fp32(1 / F), the sum times fp32(F / N) */
    AB_DIVIDE_AVERAGE /* contributions times 1 / N rounded to the wire format, as NCCL's ncclAvg */
} ab_divide;

/* What is reduced when gradients of several micro-batches accumulate. */
typedef enum ab_reduce_every {
    AB_REDUCE_STEP,        /* their sum, once a step */
    AB_REDUCE_MICRO_BATCH, /* each micro-batch's own; the means are added up */
    AB_REDUCE_ACCUMULATED, /* after each micro-batch what the gradient's tensor holds: the mean of the earlier
                            * ones, which is reduced again, plus the own gradient of this one */
    AB_REDUCE_STEP_IN_WIRE /* their sum, once a step, each addition rounded to the wire format */
} ab_reduce_every;

typedef struct ab_reduction {
    const struct ab_collective *scheme;
    int64_t group; /* ranks of a group; schemes with groups only */
    const ab_format *wire;
    ab_divide divide;
    double factor; /* of AB_DIVIDE_FACTOR; positive */
} ab_reduction;

/* One block of elements that all ranks reduce in the same order. */
typedef struct ab_reduce_block {
    const float *const *row; /* [ranks]: each rank's contribution, n values of the wire format */
    int64_t ranks, n;
    int64_t start;  /* the rank whose contribution enters a ring first, in [0, ranks) */
    float *sum;     /* [n]: result, before AB_DIVIDE_POST and its like */
    float *scratch; /* [ab_reduce_scratch] */
} ab_reduce_block;

typedef struct ab_collective {
    const char *name, *text;
    bool groups;    /* written NAME:RANKS */
    bool sums_wide; /* contributions are not rounded to the wire format: it holds the result alone */
    /* Arrays of n values that `reduce` needs beside the sum. */
    int64_t (*arrays)(int64_t ranks);
    void (*reduce)(const ab_reduction *reduction, const ab_reduce_block *block); /* NULL: not simulated */
    const char *library; /* "mpi", "nccl": whose own sum it is; NULL: simulated */
} ab_collective;

/* Floats of ab_reduce_block.scratch. */
int64_t ab_reduce_scratch(const ab_reduction *reduction, int64_t ranks, int64_t n);

/* Sums one block over the ranks. */
void ab_reduce(const ab_reduction *reduction, const ab_reduce_block *block);

/* to[i] = from[i] in the wire format, divided there as contributions are: two roundings, which differ from
 * one where quotients are subnormal or N is no power of two (torch's compress hooks, FSDP and DeepSpeed cast,
 * then divide). `to` may be `from`. */
void ab_reduce_send(const ab_reduction *reduction, int64_t ranks, const float *from, float *to, int64_t n);

/* The same for the sum, after ab_reduce, in place. */
void ab_reduce_finish(const ab_reduction *reduction, int64_t ranks, float *sum, int64_t n);

/* FSDP's pre-division factor: f doubles from 1 while it divides N and N / f > f. */
int64_t ab_reduce_sqrt_factor(int64_t ranks);

/* ---- chunks ---------------------------------------------------------------------------------- */

/* A flat gradient is reduced bucket by bucket; a bucket is cut into one chunk for each rank, and the chunk c
 * starts a ring at rank c + 1. */

/* Sums elements [position, position + block->n) of the flat gradient into block->sum, chunk by chunk;
 * block->start is ignored. `bucket`: elements of a bucket, at least 1. `shifted`: room for block->ranks
 * pointers. */
void ab_reduce_range(const ab_reduction *reduction, const ab_reduce_block *block, int64_t position,
                     int64_t bucket, const float **shifted);

/* Elements of a bucket of so many bytes in the wire format; at least 1. */
int64_t ab_reduce_bucket(const ab_reduction *reduction, double bytes);

/* ---- names ----------------------------------------------------------------------------------- */

/* The rows of schemes.def, in order. */
int ab_collective_count(void);
const ab_collective *ab_collective_at(int i);

/* Parses "ring" or "hierarchical:8" into scheme and group. AB_USAGE with the nearest name. */
AB_MUST_CHECK ab_status ab_reduction_parse_scheme(const char *text, ab_reduction *reduction);

/* Parses "pre", "post", "sqrt", "avg" or a factor. AB_USAGE. */
AB_MUST_CHECK ab_status ab_reduction_parse_divide(const char *text, ab_reduction *reduction);

/* Parses "fp32", "fp16", "bf16" or "as-is", for which wire becomes NULL: the caller chooses each tensor's own
 * format. AB_USAGE. */
AB_MUST_CHECK ab_status ab_reduction_parse_wire(const char *text, ab_reduction *reduction);

/* Parses "step", "micro-batch", "accumulated" or "step-in-wire"; the text of one is static. AB_USAGE. */
AB_MUST_CHECK ab_status ab_reduction_parse_every(const char *text, ab_reduce_every *every);
const char *ab_reduction_every_text(ab_reduce_every every);

/* A framework's defaults, by the names of the four parsers above. unsynced: what it does where the user says
 * that all but the last micro-batch are not to be reduced (no_sync). */
typedef struct ab_reduction_preset {
    const char *name, *reduce, *wire, *divide, *every, *unsynced, *text;
} ab_reduction_preset;

/* The rows of presets.def, in order. find: AB_USAGE with the nearest name. */
int ab_reduction_preset_count(void);
const ab_reduction_preset *ab_reduction_preset_at(int i);
AB_MUST_CHECK ab_status ab_reduction_preset_find(const char *name, const ab_reduction_preset **preset);

/* "ring", "hierarchical:8"; "pre", "8". text[AB_REDUCTION_TEXT]; return `text`. */
enum { AB_REDUCTION_TEXT = 48 };
const char *ab_reduction_scheme_text(const ab_reduction *reduction, char *text);
const char *ab_reduction_divide_text(const ab_reduction *reduction, char *text);

#define AB_COLLECTIVE(name) extern const ab_collective ab_collective_##name;
#include "kernels/collective/schemes.def"
#undef AB_COLLECTIVE

AB_END_DECLS

#endif
