/* The gradients of a recorded run, step by step and without the loss scale: bounds of the largest, and
 * histograms of exponents by layer and period. From a result document (of ampbench or of a probe), or from a
 * log, which tells only whether a step overflowed at its scale. */
#ifndef AB_BENCH_REPLAY_GRADIENTS_H
#define AB_BENCH_REPLAY_GRADIENTS_H

#include "bench/ingest/log/log.h"
#include "kernels/format/format.h"
#include "reports/replay/replay_result.h"

AB_BEGIN_DECLS

enum {
    AB_RECORDED_LAYERS = 256,
    AB_RECORDED_PERIODS = 16,
    AB_RECORDED_LOW = -170, /* exponents are LOW .. LOW + EXPONENTS - 1; others count at the ends */
    AB_RECORDED_EXPONENTS = 300,
    AB_RECORDED_STEPS = 1 << 24 /* at most */
};

/* Between which magnitudes the largest gradient of a step lies: [low, high]. */
typedef struct ab_recorded_step {
    double low, high;
    double scale; /* recorded */
    int period;
    bool skipped;
} ab_recorded_step;

/* Sums, a step, of values whose exponent is below AB_RECORDED_LOW + index. */
typedef struct ab_recorded_mass {
    double count[AB_RECORDED_EXPONENTS + 1], energy[AB_RECORDED_EXPONENTS + 1];
} ab_recorded_mass;

typedef struct ab_recorded {
    const ab_format *half;
    ab_recorded_step *step;
    int64_t steps, capacity;
    int periods, layers;
    char (*layer)[AB_REPLAY_NAME]; /* [AB_RECORDED_LAYERS] */
    ab_recorded_mass *mass;        /* [layers][AB_RECORDED_PERIODS] */
    ab_replay_source source;       /* what reports say of it */
} ab_recorded;

/* The gradients of a cell of a checked result document: the cell whose id holds `cell`, or if it is NULL the
 * first at a level below fp32 whose scale may change, else the first that has gradients. half: NULL, or in
 * place of the recorded format. AB_INPUT if there are none; the message says what to run. Freed by the
 * caller, also after a failure. */
AB_MUST_CHECK ab_status ab_recorded_of_document(const cJSON *document, const char *cell,
                                                const ab_format *half, ab_recorded *recorded);

/* The same of a log, up to the first place where steps are counted again. AB_INPUT if it does not count steps
 * or tells no scale. */
AB_MUST_CHECK ab_status ab_recorded_of_log(const ab_log *log, const ab_format *half, ab_recorded *recorded);

/* Adds `count` equal steps. AB_INPUT beyond AB_RECORDED_STEPS. */
AB_MUST_CHECK ab_status ab_recorded_add(ab_recorded *recorded, const ab_recorded_step *step, int64_t count);

/* Frees what it owns. */
void ab_recorded_free(ab_recorded *recorded);

AB_END_DECLS

#endif
