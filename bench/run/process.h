/* Worker processes as seen by their parent: start them, read their events, end them. */
#ifndef AB_BENCH_RUN_PROCESS_H
#define AB_BENCH_RUN_PROCESS_H

#include "kernels/core/status.h"
#include "kernels/files/lines.h"
#include "kernels/spawn/spawn.h"

#include <cjson/cJSON.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

AB_BEGIN_DECLS

typedef struct ab_step_event {
    float loss;
    double scale; /* of the first loss if each loss has its own */
    bool skipped, probed;
    int64_t time_ns;
    double lr, gradient_norm, accuracy; /* NAN: not known */
} ab_step_event;

typedef struct ab_process {
    int64_t steps, capacity;
    ab_step_event *step; /* owned */
    int scalers;         /* number of scales if losses (or layers) have their own; else 0 */
    double *scales;      /* [capacity * scalers]; owned */
    uint8_t *overflows;  /* [capacity]: bit k: a gradient of scaler k's losses was non-finite; owned */
    cJSON *start, *evaluation, *probes, *reduction, *replicas, *saved, *communication, *rank_samples, *shadow,
        *profile, *probe_cost, *end; /* events; owned; NULL: not received */
    char reason[1024];               /* why the process failed; "" if it did not */
    bool interrupted;                /* ended because the parent was asked to stop */
    bool short_of_memory;            /* failed because memory ran out */
} ab_process;

/* A second descriptor that the worker uses while it runs. */
typedef struct ab_process_link {
    int fd; /* -1: none */
    /* Called when fd is readable (`ready`), and periodically. A failure ends the worker, with its message as
     * the reason. deadline_ns: when the worker's time is over; 0: never. */
    ab_status (*serve)(void *context, bool ready, int64_t deadline_ns);
    void *context;
} ab_process_link;

/* Called periodically and after every batch of lines with the process so far. */
typedef struct ab_process_watch {
    void (*tick)(void *context, const ab_process *process);
    void *context;
    int64_t timeout_s;                 /* 0: none */
    const volatile sig_atomic_t *stop; /* non-zero: end the process */
    const ab_process_link *link;       /* NULL: none */
} ab_process_watch;

/* Runs argv (argv[0] is this program; argv ends with NULL) and waits for it. *process is filled in any case
 * and needs ab_process_clear. A failed worker is not an error of this function: process->reason says why it
 * failed. */
AB_MUST_CHECK ab_status ab_process_run(char *const *argv, const ab_process_watch *watch, ab_process *process);
void ab_process_clear(ab_process *process);

/* Several workers at a time. */

enum { AB_PROCESSES_MOST = 16 };

/* A worker that was started; all but `process` is process.c's. */
typedef struct ab_running {
    ab_process process;
    ab_process_watch watch;
    ab_spawned worker; /* pid -1: none, it ended or could not be started */
    ab_lines lines;
    int events;
    int64_t started_ns, kills;
} ab_running;

/* Starts argv as ab_process_run does; argv is not needed any more. Then ab_processes_wait until it names this
 * worker, or ab_running_end. */
void ab_running_start(char *const *argv, const ab_process_watch *watch, ab_running *running);

/* Waits until one of count (1 to AB_PROCESSES_MOST) workers has ended, whose process is then as after
 * ab_process_run: *ended is its index. A failure is that of reading what worker *ended wrote; the others
 * still run. */
AB_MUST_CHECK ab_status ab_processes_wait(ab_running *const *running, int count, int *ended);

/* Ends the worker if it still runs, and frees what is left of it. */
void ab_running_end(ab_running *running);

AB_END_DECLS

#endif
