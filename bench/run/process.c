/* Spawns workers, reads their lines, reports how they ended. */
#define _GNU_SOURCE
#include "bench/run/process.h"

#include "bench/memory/limits.h"
#include "bench/timer/timer.h"
#include "kernels/core/process_setup.h"
#include "kernels/core/text.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TICK_MS = 200 };

/* ---- lines ----------------------------------------------------------------------------------- */

static ab_status grow(ab_process *process) {
    const int64_t capacity = process->capacity ? 2 * process->capacity : 1024;
    const size_t scales = (size_t)capacity * (size_t)process->scalers;
    ab_step_event *step = realloc(process->step, (size_t)capacity * sizeof *step);
    if (step) process->step = step;
    double *scale = scales ? realloc(process->scales, scales * sizeof *scale) : NULL;
    if (scale) process->scales = scale;
    uint8_t *overflows = scales ? realloc(process->overflows, (size_t)capacity) : NULL;
    if (overflows) process->overflows = overflows;
    if (!step || (scales && (!scale || !overflows))) return ab_fail(AB_NO_MEMORY, "events: out of memory");
    process->capacity = capacity;
    return AB_OK;
}

/* After the step itself; the number of scalers is that of the start event. */
static ab_status add_scales(ab_process *process, const cJSON *event) {
    const cJSON *list = cJSON_GetObjectItem(event, "scales"), *item = NULL;
    const cJSON *overflows = cJSON_GetObjectItem(event, "overflows");
    if (process->scalers == 0) return AB_OK;
    if (cJSON_GetArraySize(list) != process->scalers || !cJSON_IsNumber(overflows))
        return ab_fail(AB_INTERNAL, "a worker's step event lacks scales or overflows");
    double *to = process->scales + (process->steps - 1) * process->scalers;
    cJSON_ArrayForEach(item, list) *to++ = item->valuedouble;
    process->overflows[process->steps - 1] = (uint8_t)overflows->valueint;
    return AB_OK;
}

static double known(const cJSON *event, const char *key) {
    const cJSON *number = cJSON_GetObjectItem(event, key);
    return cJSON_IsNumber(number) ? number->valuedouble : (double)NAN;
}

static ab_status add_step(ab_process *process, const cJSON *event) {
    if (process->steps == process->capacity) AB_TRY(grow(process));
    const cJSON *bits = cJSON_GetObjectItem(event, "loss_bits"), *scale = cJSON_GetObjectItem(event, "scale");
    const cJSON *time = cJSON_GetObjectItem(event, "time_ns");
    if (!cJSON_IsNumber(bits) || !cJSON_IsNumber(scale) || !cJSON_IsNumber(time))
        return ab_fail(AB_INTERNAL, "a worker's step event lacks loss_bits, scale or time_ns");
    uint32_t word = (uint32_t)bits->valuedouble;
    ab_step_event *step = &process->step[process->steps++];
    memcpy(&step->loss, &word, sizeof step->loss);
    step->scale = scale->valuedouble;
    step->time_ns = (int64_t)time->valuedouble;
    step->lr = known(event, "lr");
    step->gradient_norm = known(event, "gradient_norm");
    step->accuracy = known(event, "accuracy");
    step->skipped = cJSON_IsTrue(cJSON_GetObjectItem(event, "skipped"));
    step->probed = cJSON_IsTrue(cJSON_GetObjectItem(event, "probed"));
    return add_scales(process, event);
}

static void keep(cJSON **slot, cJSON *event) {
    cJSON_Delete(*slot);
    cJSON_DeleteItemFromObject(event, "event");
    *slot = event;
}

static void keep_start(ab_process *process) {
    if (!process->start || process->steps > 0) return;
    process->scalers = cJSON_GetArraySize(cJSON_GetObjectItem(process->start, "loss_scales")) +
                       cJSON_GetArraySize(cJSON_GetObjectItem(process->start, "layer_scales"));
}

static ab_status take_event(ab_process *process, cJSON *event) {
    const struct {
        const char *name;
        cJSON **slot;
    } slots[] = {{"start", &process->start},
                 {"evaluation", &process->evaluation},
                 {"probes", &process->probes},
                 {"shadow", &process->shadow},
                 {"reduction", &process->reduction},
                 {"replicas", &process->replicas},
                 {"profile", &process->profile},
                 {"probe_cost", &process->probe_cost},
                 {"saved_gradients", &process->saved},
                 {"end", &process->end},
                 {"communication", &process->communication},
                 {"rank_samples", &process->rank_samples}};
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItem(event, "event"));
    for (size_t i = 0; name && i < AB_COUNT_OF(slots); i++) {
        if (strcmp(name, slots[i].name) != 0) continue;
        keep(slots[i].slot, event);
        keep_start(process);
        return AB_OK;
    }
    ab_status status = AB_OK;
    if (name && strcmp(name, "step") == 0) {
        status = add_step(process, event);
    } else if (name && strcmp(name, "error") == 0) {
        const char *message = cJSON_GetStringValue(cJSON_GetObjectItem(event, "message"));
        const char *kind = cJSON_GetStringValue(cJSON_GetObjectItem(event, "kind"));
        ab_text_show(process->reason, sizeof process->reason, "%s", message ? message : "unknown error");
        process->short_of_memory = kind && strcmp(kind, ab_status_text(AB_NO_MEMORY)) == 0;
    } else {
        status = ab_fail(AB_INTERNAL, "a worker sent an unknown event");
    }
    cJSON_Delete(event);
    return status;
}

static ab_status take_line(void *context, char *line, size_t n) {
    cJSON *event = cJSON_ParseWithLength(line, n);
    return event ? take_event(context, event) : ab_fail(AB_INTERNAL, "a worker sent a line that is not JSON");
}

/* ---- the process ----------------------------------------------------------------------------- */

static ab_status start(char *const *argv, ab_spawned *worker, int *events) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return ab_fail(AB_SYSTEM, "cannot make a pipe: %s", strerror(errno));
    const ab_spawn_request request = {.program = "/proc/self/exe",
                                      .argv = argv,
                                      .in = AB_SPAWN_INHERIT,
                                      .out = ends[1],
                                      .err = AB_SPAWN_INHERIT,
                                      .default_signals = true};
    ab_status status = ab_spawn(&request, worker);
    close(ends[1]);
    *events = ends[0];
    if (status == AB_OK) return AB_OK;
    close(ends[0]);
    return ab_fail_prefix(status, "a worker");
}

/* Ends the process on a timeout or a stop request, with the reason in process->reason. */
static void enforce(pid_t pid, const ab_process_watch *watch, int64_t started, ab_process *process) {
    int64_t elapsed_s = (ab_monotonic_ns() - started) / 1000000000;
    bool late = watch->timeout_s > 0 && elapsed_s >= watch->timeout_s;
    if (!late && !*watch->stop) return;
    process->interrupted = *watch->stop != 0;
    if (!process->reason[0])
        ab_text_show(process->reason, sizeof process->reason, "%s at step %lld",
                     process->interrupted ? "interrupted" : "longer than --cell-timeout",
                     (long long)process->steps);
    kill(pid, SIGKILL);
}

static void serve_link(pid_t pid, const ab_process_watch *watch, int64_t started, bool ready,
                       ab_process *process) {
    const ab_process_link *link = watch->link;
    const int64_t deadline = watch->timeout_s > 0 ? started + watch->timeout_s * 1000000000 : 0;
    if (!link || *watch->stop || process->reason[0] || link->serve(link->context, ready, deadline) == AB_OK)
        return;
    if (!*watch->stop) ab_text_show(process->reason, sizeof process->reason, "%s", ab_error_message());
    kill(pid, SIGKILL);
}

/* After a wait for its descriptors, which are `readable`. *open: whether it writes on. */
static ab_status attend(ab_running *running, const struct pollfd readable[2], bool *open) {
    const ab_process_watch *watch = &running->watch;
    ab_process *process = &running->process;
    const pid_t pid = running->worker.pid;
    ab_status status = AB_OK;
    if (readable[0].revents)
        status = ab_lines_read(&running->lines, running->events, take_line, process, open);
    serve_link(pid, watch, running->started_ns, readable[1].revents, process);
    enforce(pid, watch, running->started_ns, process);
    watch->tick(watch->context, process);
    return status;
}

/* Libraries do not say that an allocation failed: they go on with a null pointer, or end the program. */
static bool is_likely_memory(int how) {
    char limits[AB_LIMITS_TEXT];
    const int number = WIFSIGNALED(how) ? WTERMSIG(how) : 0;
    return ab_memory_limits(limits) &&
           (!number || number == SIGSEGV || number == SIGBUS || number == SIGABRT);
}

/* Adds what is known of the resources of a process that a signal or a library ended. */
static void add_limits(int how, const struct rusage *usage, ab_process *process) {
    char limits[AB_LIMITS_TEXT], *text = process->reason;
    const size_t size = sizeof process->reason;
    const int number = WIFSIGNALED(how) ? WTERMSIG(how) : 0;
    struct rlimit time;
    if (process->short_of_memory && ab_memory_limits(limits)) ab_text_append(text, size, "; %s", limits);
    if (number == SIGKILL && !process->short_of_memory)
        ab_text_append(text, size, "; the kernel does so when memory runs out");
    if (number == SIGXCPU && getrlimit(RLIMIT_CPU, &time) == 0)
        ab_text_append(text, size, "; processor time limited to %llu s (ulimit -t)",
                       (unsigned long long)time.rlim_cur);
    if (process->short_of_memory || number == SIGKILL)
        ab_text_append(text, size, "; %.1f MiB were resident at most", (double)usage->ru_maxrss / 1024);
}

/* `kills`: processes that the kernel has killed for memory meanwhile. */
static void explain_end(int how, const struct rusage *usage, int64_t kills, ab_process *process) {
    const long long step = (long long)process->steps;
    const size_t size = sizeof process->reason;
    if (process->reason[0] || (WIFEXITED(how) && WEXITSTATUS(how) == 0 && process->end)) return;
    const bool killed = WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL && kills > 0;
    process->short_of_memory = killed || is_likely_memory(how);
    ab_text_show(process->reason, size, "%s",
                 killed                     ? "the kernel ran out of memory: "
                 : process->short_of_memory ? "out of memory, most likely in a library: "
                                            : "");
    if (WIFSIGNALED(how))
        ab_text_append(process->reason, size, "killed by signal %d (%s) at step %lld", WTERMSIG(how),
                       strsignal(WTERMSIG(how)), step);
    else
        ab_text_append(process->reason, size, "ended with status %d at step %lld", WEXITSTATUS(how), step);
    add_limits(how, usage, process);
}

void ab_running_start(char *const *argv, const ab_process_watch *watch, ab_running *running) {
    *running = (ab_running){.watch = *watch, .worker = {.pid = -1, .lifeline = -1}, .events = -1};
    running->kills = ab_memory_kills("");
    running->started_ns = ab_monotonic_ns();
    if (start(argv, &running->worker, &running->events) == AB_OK) return;
    running->worker.pid = -1;
    ab_text_show(running->process.reason, sizeof running->process.reason, "%s", ab_error_message());
}

/* Waits for the end of a worker that writes no more. */
static void finish(ab_running *running, int *how, struct rusage *usage) {
    close(running->events);
    while (wait4(running->worker.pid, how, 0, usage) < 0 && errno == EINTR) continue;
    ab_spawn_done(&running->worker);
    running->worker.pid = -1;
    ab_lines_clear(&running->lines);
}

static void finish_and_explain(ab_running *running) {
    struct rusage usage = {.ru_maxrss = 0};
    int how = 0;
    finish(running, &how, &usage);
    explain_end(how, &usage, ab_memory_kills("") - running->kills, &running->process);
}

/* The first worker that could not be started; -1: none. */
static int not_started(ab_running *const *running, int count) {
    for (int i = 0; i < count; i++)
        if (running[i]->worker.pid < 0) return i;
    return -1;
}

/* Waits until a worker has written something, at most until the next look at its time. readable[2 * count] */
static void wait_for_any(ab_running *const *running, int count, struct pollfd *readable) {
    for (int i = 0; i < count; i++) {
        const ab_process_link *link = running[i]->watch.link;
        readable[2 * i] = (struct pollfd){.fd = running[i]->events, .events = POLLIN};
        readable[2 * i + 1] = (struct pollfd){.fd = link ? link->fd : -1, .events = POLLIN};
    }
    if (poll(readable, 2 * (nfds_t)count, TICK_MS) > 0) return;
    for (int i = 0; i < 2 * count; i++) readable[i].revents = 0;
}

ab_status ab_processes_wait(ab_running *const *running, int count, int *ended) {
    *ended = not_started(running, count);
    while (*ended < 0) {
        struct pollfd readable[2 * AB_PROCESSES_MOST];
        wait_for_any(running, count, readable);
        for (int i = 0; i < count && *ended < 0; i++) {
            bool open = true;
            const ab_status status = attend(running[i], readable + 2 * i, &open);
            if (status != AB_OK) kill(running[i]->worker.pid, SIGKILL);
            if (status == AB_OK && open) continue;
            finish_and_explain(running[i]);
            *ended = i;
            AB_TRY(status);
        }
    }
    return AB_OK;
}

void ab_running_end(ab_running *running) {
    struct rusage usage;
    int how;
    if (running->worker.pid > 0) {
        kill(running->worker.pid, SIGKILL);
        finish(running, &how, &usage);
    }
    ab_process_clear(&running->process);
}

ab_status ab_process_run(char *const *argv, const ab_process_watch *watch, ab_process *process) {
    ab_running running, *const one = &running;
    int ended;
    ab_running_start(argv, watch, &running);
    const ab_status status = ab_processes_wait(&one, 1, &ended);
    *process = running.process;
    return status;
}

void ab_process_clear(ab_process *process) {
    free(process->step);
    free(process->scales);
    free(process->overflows);
    cJSON_Delete(process->start);
    cJSON_Delete(process->evaluation);
    cJSON_Delete(process->probes);
    cJSON_Delete(process->shadow);
    cJSON_Delete(process->reduction);
    cJSON_Delete(process->replicas);
    cJSON_Delete(process->rank_samples);
    cJSON_Delete(process->communication);
    cJSON_Delete(process->saved);
    cJSON_Delete(process->profile);
    cJSON_Delete(process->probe_cost);
    cJSON_Delete(process->end);
    memset(process, 0, sizeof *process);
}
