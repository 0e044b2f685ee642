/* What probes count of an optimizer step, as counts of runs of elements: computed where the weights are, so
 * that no weight, gradient or state is copied for them. Definitions and the order of the sums; the probes
 * (probes/lost_updates.c, adam_warning.c, subnormals.c, origin) say what the counts mean and compute the same
 * from values that the host updates.
 *
 * An update is cut into blocks of AB_UPDATE_BLOCK elements; a run is AB_UPDATE_RUN blocks. Sums of a block:
 * element i in lane i % AB_UPDATE_LANES in ascending order, the lanes in order; `ratio` without lanes. Sums
 * of a run: its blocks in order. */
#ifndef AB_KERNELS_BACKEND_UPDATE_COUNTS_H
#define AB_KERNELS_BACKEND_UPDATE_COUNTS_H

#include "kernels/core/compiler.h"

#include <stdbool.h>
#include <stdint.h>

AB_BEGIN_DECLS

/* Terms of a weight update. The first three add up to the update; eps is the change due to eps (the update
 * minus the update without eps). */
typedef enum ab_update_term {
    AB_TERM_GRADIENT,
    AB_TERM_WEIGHT_DECAY,
    AB_TERM_MOMENTUM,
    AB_TERM_EPS,
    AB_TERM_COUNT
} ab_update_term;

enum {
    AB_UPDATE_BLOCK = 1024,
    AB_UPDATE_RUN = 64,
    AB_UPDATE_LANES = 8,
    AB_UPDATE_MAX_STATES = 3,
    AB_CAUSE_TOTAL = AB_TERM_COUNT, /* the whole update, after its terms */
    AB_UPDATE_CAUSES
};

/* Histogram of |update| in half spacings of the weight: bins of 1/8 octave, from 2^-32 to 2^32. */
enum {
    AB_RATIO_BITS = 3,
    AB_RATIO_OCTAVES = 64,
    AB_RATIOS = AB_RATIO_OCTAVES << AB_RATIO_BITS,
    AB_RATIO_SHIFT = 23 - AB_RATIO_BITS,
    AB_RATIO_BASE = (127 - AB_RATIO_OCTAVES / 2) << AB_RATIO_BITS
};

/* Histogram of |weight| / |update| by octave, of updates and of lost ones. */
enum { AB_SIZES = 96, AB_SIZE_FIRST = -32 };

/* Parameters of at least AB_RATIO_LARGE elements: every AB_RATIO_STRIDE-th is in the histograms. */
enum { AB_RATIO_LARGE = 8192, AB_RATIO_STRIDE = 8 };

/* Of one cause: updates that are not 0, those that are lost, and their sums of squares. */
typedef struct ab_update_account {
    int64_t nonzero, lost;
    double energy, lost_energy;
} ab_update_account;

/* Of a second moment v: elements whose stored v did not change although the formula changes it, with v^ below
 * eps^2, with v^ = 0 and a gradient; the sum of g^2 / v^ over `ratios` elements. */
typedef struct ab_moment_account {
    int64_t stale, below_eps, zero, ratios;
    double ratio;
} ab_moment_account;

/* Sums of a block or of a run. */
typedef struct ab_update_sums {
    ab_update_account cause[AB_UPDATE_CAUSES];
    double moved; /* stored change times computed change */
    ab_moment_account moment;
    int64_t subnormal[2 + AB_UPDATE_MAX_STATES]; /* in fp32: weights, gradients, states, before the update */
    int64_t ill; /* index of the first element that became non-finite from finite values; -1: none */
    float before, grad, after, stored; /* of that element */
} ab_update_sums;

struct ab_census;

/* What to count, and the constants that it is counted with. */
typedef struct ab_update_question {
    unsigned terms;                        /* bit t: the update has term t */
    int second_moment;                     /* index of the state that averages squares; -1: none */
    double beta2, correction, eps2, decay; /* of the second moment: 1 - beta2^t, eps^2, weight decay */
    bool rows;                             /* the largest gradient of each row is wanted */
} ab_update_question;

/* The counts of one parameter. */
typedef struct ab_update_counts {
    int64_t count; /* elements */
    double lr;     /* set by the caller */
    unsigned terms;
    int64_t runs;
    ab_update_sums *run;       /* [runs] */
    uint32_t ratio[AB_RATIOS]; /* of the elements in the histograms */
    int64_t size[AB_SIZES], size_lost[AB_SIZES];
    int64_t rows;      /* of a weight with two or more dimensions, where wanted; else 0 */
    uint32_t *largest; /* [rows]: bits of the largest finite magnitude of the row's gradients; 0: none */
    /* Censuses of the weight and the states after the update, before they are stored; NULL: not wanted. */
    struct ab_census *weight, *state[AB_UPDATE_MAX_STATES];
} ab_update_counts;

/* Number of runs of a parameter of `count` elements. */
static inline AB_HOST_DEVICE int64_t ab_update_runs(int64_t count) {
    const int64_t run = (int64_t)AB_UPDATE_BLOCK * AB_UPDATE_RUN;
    return (count + run - 1) / run;
}

/* into += from, `ill` of the first that has one. */
static inline AB_HOST_DEVICE void ab_update_sums_add(ab_update_sums *into, const ab_update_sums *from) {
    for (int c = 0; c < AB_UPDATE_CAUSES; c++) {
        into->cause[c].nonzero += from->cause[c].nonzero;
        into->cause[c].lost += from->cause[c].lost;
        into->cause[c].energy += from->cause[c].energy;
        into->cause[c].lost_energy += from->cause[c].lost_energy;
    }
    into->moved += from->moved;
    into->moment.stale += from->moment.stale;
    into->moment.below_eps += from->moment.below_eps;
    into->moment.zero += from->moment.zero;
    into->moment.ratios += from->moment.ratios;
    into->moment.ratio += from->moment.ratio;
    for (int i = 0; i < 2 + AB_UPDATE_MAX_STATES; i++) into->subnormal[i] += from->subnormal[i];
    if (into->ill >= 0 || from->ill < 0) return;
    into->ill = from->ill;
    into->before = from->before;
    into->grad = from->grad;
    into->after = from->after;
    into->stored = from->stored;
}

/* ---- one element, as probes count it ----------------------------------------------------------- */

/* 0 in place of inf and NaN. */
static inline AB_HOST_DEVICE double ab_finite_or_zero(double x) { return x - x == 0 ? x : 0; }

/* Whether v did not change although the formula changes it by more than the rounding error in double. */
static inline AB_HOST_DEVICE bool ab_moment_is_stale(double beta2, double old, double g, double kept) {
    const double move = (1 - beta2) * (g * g - old);
    return kept == old && (move < 0 ? -move : move) > 0x1p-40 * old;
}

/* Bin of |update| / half spacing at the weight, from the bits of the weight and of the update in fp32.
 * precision, smallest: of the weight's format, and its least exponent plus 127. Dividing by a power of two is
 * a subtraction of exponents. */
static inline AB_HOST_DEVICE int ab_ratio_bin(uint32_t weight, uint32_t update, int precision, int smallest) {
    int exponent = (int)(weight >> 23 & 0xFFu);
    exponent = exponent > smallest ? exponent : smallest;
    const int size = (int)((update & 0x7FFFFFFFu) >> AB_RATIO_SHIFT);
    const int bin = size - (exponent - 127 - precision) * (1 << AB_RATIO_BITS) - AB_RATIO_BASE;
    return bin < 0 ? 0 : bin < AB_RATIOS ? bin : AB_RATIOS - 1;
}

/* Bin of a ratio |weight| / |update| from its bits. */
static inline AB_HOST_DEVICE int ab_size_bin(uint64_t ratio) {
    const int bin = (int)(ratio >> 52) - 1023 - AB_SIZE_FIRST;
    return bin < 0 ? 0 : bin < AB_SIZES ? bin : AB_SIZES - 1;
}

AB_END_DECLS

#endif
