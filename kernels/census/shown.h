/* Counting tensors of another program's training loop where they are, on a GPU: what the CUDA plugin offers
 * to libampprobe. Work is added to the stream that the loop uses, and nothing waits for it until the results
 * are asked for; values are read after what is on the stream already, and before what comes later.
 *
 * Counts are those of census.h for the same values, sums of squares up to their last digits. All functions
 * may be called by any thread, and leave the calling thread's current GPU as it was. */
#ifndef AB_KERNELS_CENSUS_SHOWN_H
#define AB_KERNELS_CENSUS_SHOWN_H

#include "kernels/census/census_counts.h"
#include "kernels/core/layout.h"

AB_BEGIN_DECLS

typedef enum ab_shown_type { AB_SHOWN_F32, AB_SHOWN_F16, AB_SHOWN_BF16, AB_SHOWN_F64 } ab_shown_type;

/* Values of one tensor: `count` of them, `stride` elements apart from `data` on. Nothing is checked but that
 * `data` is in a GPU's memory. */
typedef struct ab_shown_ask {
    const void *data;
    int64_t count, stride;
    int64_t every; /* a census of every so many-th block of AB_CENSUS_BLOCK values; 0: none */
    int64_t turn;  /* from this block on; less than `every` and the number of blocks */
    int32_t type;  /* ab_shown_type; fp64 is counted as fp32 */
    int32_t all;   /* not 0: non-finite values among all of them are counted, too */
} ab_shown_ask;

/* Values in the census of a tensor. */
static inline int64_t ab_shown_counted(const ab_shown_ask *ask) {
    const int64_t block = AB_CENSUS_BLOCK, blocks = (ask->count + block - 1) / block;
    if (ask->every == 0 || blocks == 0) return 0;
    const int64_t taken = (blocks - ask->turn + ask->every - 1) / ask->every;
    const int64_t left = ask->count - (ask->turn + (taken - 1) * ask->every) * block;
    return (taken - 1) * block + (left < block ? left : block);
}

typedef struct ab_shown_answer {
    ab_census census;  /* empty without a census */
    int64_t nonfinite; /* among all values; -1: not asked */
} ab_shown_answer;

typedef struct ab_shown ab_shown; /* tensors that are being counted */

typedef struct ab_shown_ops {
    uint64_t layout; /* ab_shown_layout of the plugin */

    /* The GPU whose memory this is; -1: no GPU's. */
    int (*device_of)(const void *data);

    /* Adds the counting of tensors, all in the memory of this GPU, to the stream, and returns.
     * AB_UNAVAILABLE: the stream is being recorded as a graph. */
    ab_status (*begin)(int device, void *stream, const ab_shown_ask *ask, int count, ab_shown **shown);

    /* Waits for what `begin` has added. *seconds: what it took on the GPU. Of a failure there is no answer.
     */
    ab_status (*wait)(ab_shown *shown, double *seconds);

    /* The counts of tensor i; after `wait`. */
    void (*answer)(const ab_shown *shown, int i, ab_shown_answer *answer);

    /* Gives the memory back, after `wait`. */
    void (*end)(ab_shown *shown);

    /* Values first, first + step, ..., n of them, widened to fp32; waits for the stream. */
    ab_status (*pick)(int device, void *stream, const ab_shown_ask *ask, int64_t first, int64_t step,
                      int64_t n, float *values);
} ab_shown_ops;

/* Every field of these structs, in order (kernels/core/layout.h). */
#define AB_SHOWN_FIELDS(FIRST, FIELD, LAST)                                                                  \
    FIRST(ab_census, count)                                                                                  \
    FIELD(ab_census, count, zero)                                                                            \
    FIELD(ab_census, zero, nan)                                                                              \
    FIELD(ab_census, nan, pos_inf)                                                                           \
    FIELD(ab_census, pos_inf, neg_inf)                                                                       \
    FIELD(ab_census, neg_inf, subnormal)                                                                     \
    FIELD(ab_census, subnormal, min_abs)                                                                     \
    FIELD(ab_census, min_abs, max_abs)                                                                       \
    FIELD(ab_census, max_abs, sum_squares)                                                                   \
    FIELD(ab_census, sum_squares, bin)                                                                       \
    LAST(ab_census, bin)                                                                                     \
    FIRST(ab_shown_ask, data)                                                                                \
    FIELD(ab_shown_ask, data, count)                                                                         \
    FIELD(ab_shown_ask, count, stride)                                                                       \
    FIELD(ab_shown_ask, stride, every)                                                                       \
    FIELD(ab_shown_ask, every, turn)                                                                         \
    FIELD(ab_shown_ask, turn, type)                                                                          \
    FIELD(ab_shown_ask, type, all)                                                                           \
    LAST(ab_shown_ask, all)                                                                                  \
    FIRST(ab_shown_answer, census)                                                                           \
    FIELD(ab_shown_answer, census, nonfinite)                                                                \
    LAST(ab_shown_answer, nonfinite)                                                                         \
    FIRST(ab_shown_ops, layout)                                                                              \
    FIELD(ab_shown_ops, layout, device_of)                                                                   \
    FIELD(ab_shown_ops, device_of, begin)                                                                    \
    FIELD(ab_shown_ops, begin, wait)                                                                         \
    FIELD(ab_shown_ops, wait, answer)                                                                        \
    FIELD(ab_shown_ops, answer, end)                                                                         \
    FIELD(ab_shown_ops, end, pick)                                                                           \
    LAST(ab_shown_ops, pick)

/* Digest of these structs as compiled in the calling file. */
static inline uint64_t ab_shown_layout(void) {
    uint64_t digest = AB_LAYOUT_BEGIN;
    AB_SHOWN_FIELDS(AB_LAYOUT_DIGEST_FIRST, AB_LAYOUT_DIGEST, AB_LAYOUT_DIGEST_LAST)
    return digest;
}

AB_END_DECLS

#endif
