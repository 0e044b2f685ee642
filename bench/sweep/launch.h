/* A way to reach other machines. Each has one file and one line in launches.def; --launch NAME[:REST]. */
#ifndef AB_BENCH_SWEEP_LAUNCH_H
#define AB_BENCH_SWEEP_LAUNCH_H

#include "bench/run/run.h"

AB_BEGIN_DECLS

typedef struct ab_launch {
    const char *name;
    /* Checks `rest` ("" if there is none) before anything else is done; the rest is as in ab_run_driver. */
    ab_status (*open)(const char *rest, const ab_options *options, const volatile sig_atomic_t *stop,
                      void **context, bool *helps);
    ab_status (*help)(void *context, const ab_options *options); /* NULL: no process helps */
    ab_status (*cells)(void *context, const ab_run_work *work, bool *later);
    void (*close)(void *context, ab_status outcome);
} ab_launch;

#define AB_LAUNCH(id, name) extern const ab_launch ab_launch_##id;
#include "bench/sweep/launches.def"
#undef AB_LAUNCH

AB_END_DECLS

#endif
