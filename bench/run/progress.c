/* Progress lines. */
#define _GNU_SOURCE
#include "bench/run/progress.h"

#include "bench/timer/timer.h"
#include "kernels/core/show.h"
#include "reports/record/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const int64_t redraw_ns = 200000000, line_ns = 10000000000;

void ab_progress_start(ab_progress *progress, bool quiet, int processes, int64_t batch, const char *build) {
    const char *ci = getenv("CI");
    *progress = (ab_progress){.quiet = quiet,
                              .terminal = isatty(STDERR_FILENO) && !(ci && ci[0]),
                              .started_ns = ab_monotonic_ns(),
                              .processes = processes,
                              .batch = batch,
                              .build = build};
}

void ab_progress_process(ab_progress *progress, const char *cell, int64_t steps) {
    progress->cell = cell;
    progress->steps = steps;
    progress->process_started_ns = ab_monotonic_ns();
    progress->shown_ns = progress->terminal ? 0 : progress->process_started_ns;
}

void ab_progress_clear_line(ab_progress *progress) {
    if (!progress->terminal || progress->quiet) return;
    fputs("\r\033[K", stderr);
    progress->shown_ns = 0;
}

static void show(ab_progress *progress, int64_t step, const ab_progress_now *at, int64_t now) {
    double in_process = (double)(now - progress->process_started_ns) * 1e-9;
    double part = progress->steps ? (double)step / (double)progress->steps : 0;
    double share = ((double)progress->done + part) / (double)progress->processes;
    double elapsed = (double)(now - progress->started_ns) * 1e-9;
    char scale[AB_TEXT_NUMBER];
    if (progress->terminal) fputs("\r\033[K", stderr);
    ab_print(stderr, "[%d/%d] %s  step %lld/%lld", progress->done + 1, progress->processes, progress->cell,
             (long long)step, (long long)progress->steps);
    if (step > 0) ab_print(stderr, "  loss %.4g  scale %s", at->loss, ab_text_scale(scale, at->scale));
    if (at->skipped > 0) fprintf(stderr, "  %lld skipped", (long long)at->skipped);
    if (step > 0) fprintf(stderr, "  %.0f samples/s", (double)(step * progress->batch) / in_process);
    if (step > 0 && progress->build[0]) ab_print(stderr, " (%s)", progress->build);
    if (share > 0) fprintf(stderr, "  about %.0f s left", elapsed / share - elapsed);
    fputs(progress->terminal ? "" : "\n", stderr);
    fflush(stderr);
}

void ab_progress_step(ab_progress *progress, int64_t step, ab_progress_now at) {
    int64_t now = ab_monotonic_ns();
    if (progress->quiet || now - progress->shown_ns < (progress->terminal ? redraw_ns : line_ns)) return;
    progress->shown_ns = now;
    show(progress, step, &at, now);
}

void ab_progress_process_done(ab_progress *progress, const char *reason) {
    progress->done++;
    if (progress->terminal && !progress->quiet) fputs("\r\033[K", stderr);
    if (reason[0])
        ab_print(stderr, "ampbench: %s: %s\n", progress->cell, reason);
    else if (!progress->quiet && !progress->terminal)
        ab_print(stderr, "[%d/%d] %s  done in %.1f s\n", progress->done, progress->processes, progress->cell,
                 (double)(ab_monotonic_ns() - progress->process_started_ns) * 1e-9);
}

void ab_progress_end(ab_progress *progress) {
    if (!progress->quiet)
        fprintf(stderr, "%d runs of cells in %.1f s\n", progress->done,
                (double)(ab_monotonic_ns() - progress->started_ns) * 1e-9);
}
