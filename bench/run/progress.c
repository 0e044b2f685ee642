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

void ab_progress_process(ab_progress *progress, ab_progress_run *run, const char *cell, int64_t steps) {
    *run = (ab_progress_run){
        .number = ++progress->started, .cell = cell, .steps = steps, .started_ns = ab_monotonic_ns()};
    run->shown_ns = run->started_ns;
    progress->shown_ns = 0;
}

void ab_progress_clear_line(ab_progress *progress) {
    if (!progress->terminal || progress->quiet) return;
    fputs("\r\033[K", stderr);
    progress->shown_ns = 0;
}

static void show(const ab_progress *progress, const ab_progress_run *run, int64_t step,
                 const ab_progress_now *at, int64_t now) {
    double in_process = (double)(now - run->started_ns) * 1e-9;
    double share = ((double)progress->done + progress->parts) / (double)progress->processes;
    double elapsed = (double)(now - progress->started_ns) * 1e-9;
    const int beside = progress->started - progress->done - 1;
    char scale[AB_TEXT_NUMBER];
    if (progress->terminal) fputs("\r\033[K", stderr);
    ab_print(stderr, "[%d/%d] %s  step %lld/%lld", run->number, progress->processes, run->cell,
             (long long)step, (long long)run->steps);
    if (step > 0) ab_print(stderr, "  loss %.4g  scale %s", at->loss, ab_text_scale(scale, at->scale));
    if (at->skipped > 0) fprintf(stderr, "  %lld skipped", (long long)at->skipped);
    if (step > 0) fprintf(stderr, "  %.0f samples/s", (double)(step * progress->batch) / in_process);
    if (step > 0 && progress->build[0]) ab_print(stderr, " (%s)", progress->build);
    if (beside > 0) fprintf(stderr, "  %d more beside it", beside);
    if (share > 0) fprintf(stderr, "  about %.0f s left", elapsed / share - elapsed);
    fputs(progress->terminal ? "" : "\n", stderr);
    fflush(stderr);
}

/* Whether a line is due; a terminal has one line, that of the first process. */
static bool is_due(ab_progress *progress, ab_progress_run *run, int64_t now) {
    int64_t *shown_ns = progress->terminal ? &progress->shown_ns : &run->shown_ns;
    if (progress->quiet) return false;
    if (progress->terminal && progress->shown == 0) progress->shown = run->number;
    if (progress->terminal && progress->shown != run->number) return false;
    if (now - *shown_ns < (progress->terminal ? redraw_ns : line_ns)) return false;
    *shown_ns = now;
    return true;
}

void ab_progress_step(ab_progress *progress, ab_progress_run *run, int64_t step, ab_progress_now at) {
    const int64_t now = ab_monotonic_ns();
    const double part = run->steps ? (double)step / (double)run->steps : 0;
    progress->parts += part - run->part;
    run->part = part;
    if (is_due(progress, run, now)) show(progress, run, step, &at, now);
}

void ab_progress_process_done(ab_progress *progress, ab_progress_run *run, const char *reason) {
    progress->done++;
    progress->parts -= run->part;
    if (progress->shown == run->number) progress->shown = 0;
    if (progress->terminal && !progress->quiet) fputs("\r\033[K", stderr);
    if (reason[0])
        ab_print(stderr, "ampbench: %s: %s\n", run->cell, reason);
    else if (!progress->quiet && !progress->terminal)
        ab_print(stderr, "[%d/%d] %s  done in %.1f s\n", progress->done, progress->processes, run->cell,
                 (double)(ab_monotonic_ns() - run->started_ns) * 1e-9);
}

void ab_progress_end(ab_progress *progress) {
    if (!progress->quiet)
        fprintf(stderr, "%d runs of cells in %.1f s\n", progress->done,
                (double)(ab_monotonic_ns() - progress->started_ns) * 1e-9);
}
