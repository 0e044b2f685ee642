/* Loss scalers as state machines: given whether this step's scaled gradients held a non-finite value, what is the next
 * scale, and is the step skipped? A dialect is one file with a const ab_scaler_kind and one line in scalers.def. */
#ifndef AB_BENCH_AMP_SCALER_H
#define AB_BENCH_AMP_SCALER_H

#include "kernels/core/status.h"

#include <stdbool.h>
#include <stdint.h>

AB_BEGIN_DECLS

typedef struct ab_scaler_config {
    double init;      /* first scale; 0: the dialect's default */
    double min_scale; /* floor of a backoff; 0: none */
    double max_scale; /* cap of growth and of the first scale */
    int64_t window;   /* clean steps before a growth */
} ab_scaler_config;

typedef struct ab_scaler {
    const struct ab_scaler_kind *kind;
    ab_scaler_config config;
    double scale;
    int64_t unskipped; /* clean steps since the last change */
} ab_scaler;

typedef struct ab_scaler_kind {
    const char *name, *text;
    bool checks; /* looks at the gradients at all */
    ab_scaler_config defaults;
    void (*start)(ab_scaler *scaler);
    /* Returns true if the step must be skipped. AB status is not needed: no dialect here can fail. */
    bool (*update)(ab_scaler *scaler, bool overflow);
} ab_scaler_kind;

int ab_scaler_count(void);
const ab_scaler_kind *ab_scaler_at(int i);
AB_MUST_CHECK ab_status ab_scaler_find(const char *name, const ab_scaler_kind **kind);

/* Starts a machine; zero fields of `config` take the dialect's defaults. */
void ab_scaler_start(ab_scaler *scaler, const ab_scaler_kind *kind, ab_scaler_config config);

AB_END_DECLS

#endif
