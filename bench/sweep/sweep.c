/* Finds the way that --launch names and forwards to it. */
#include "bench/sweep/sweep.h"

#include "bench/sweep/launch.h"
#include "kernels/core/text.h"

#include <stdlib.h>
#include <string.h>

typedef struct sweep {
    const ab_launch *launch;
    void *context;
} sweep;

static const ab_launch *const launches[] = {
#define AB_LAUNCH(id, name) &ab_launch_##id,
#include "bench/sweep/launches.def"
#undef AB_LAUNCH
};

static const char *const names[] = {
#define AB_LAUNCH(id, name) name,
#include "bench/sweep/launches.def"
#undef AB_LAUNCH
};

static ab_status unknown(const char *text) {
    const char *near = ab_nearest(text, names, AB_COUNT_OF(names));
    return ab_fail(AB_USAGE,
                   "--launch: expected ssh:HOSTFILE, mpi or slurm[:TASKS][:script], found '%s'%s%s%s", text,
                   near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static ab_status find(const char *text, const ab_launch **launch, const char **rest) {
    const size_t length = strcspn(text, ":");
    *rest = text[length] ? text + length + 1 : "";
    for (size_t i = 0; i < AB_COUNT_OF(launches); i++) {
        if (strlen(names[i]) != length || strncmp(names[i], text, length) != 0) continue;
        *launch = launches[i];
        return AB_OK;
    }
    return unknown(text);
}

static ab_status open_sweep(const ab_options *options, const volatile sig_atomic_t *stop, void **context,
                            bool *helps) {
    const char *rest;
    sweep *s = calloc(1, sizeof *s);
    *context = s;
    if (!s) return ab_fail(AB_NO_MEMORY, "--launch: out of memory");
    AB_TRY(find(options->text[AB_OPTION_launch], &s->launch, &rest));
    return s->launch->open(rest, options, stop, &s->context, helps);
}

static ab_status help_sweep(void *context, const ab_options *options) {
    const sweep *s = context;
    return s->launch->help(s->context, options);
}

static ab_status run_sweep(void *context, const ab_run_work *work, bool *later) {
    const sweep *s = context;
    return s->launch->cells(s->context, work, later);
}

static void close_sweep(void *context, ab_status outcome) {
    sweep *s = context;
    if (s && s->launch) s->launch->close(s->context, outcome);
    free(s);
}

const ab_run_driver ab_sweep_driver = {open_sweep, help_sweep, run_sweep, close_sweep};
