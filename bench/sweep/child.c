/* Pipes to a command, polled together with others. */
#define _GNU_SOURCE
#include "bench/sweep/child.h"

#include "kernels/core/text.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void close_all(const int *fd, int n) {
    for (int i = 0; i < n; i++)
        if (fd[i] >= 0) close(fd[i]);
}

ab_status ab_child_start(const char *program, char *const *argv, ab_child *child) {
    int fd[6] = {-1, -1, -1, -1, -1, -1}; /* in, out, err: the reading end and the writing end of each */
    *child = (ab_child){.in = -1, .out = -1, .err = -1};
    for (int i = 0; i < 3; i++) {
        if (pipe2(fd + 2 * i, O_CLOEXEC) == 0) continue;
        close_all(fd, 6);
        return ab_fail(AB_SYSTEM, "cannot make a pipe: %s", strerror(errno));
    }
    const ab_spawn_request request = {
        .program = program, .argv = argv, .in = fd[0], .out = fd[3], .err = fd[5], .default_signals = true};
    ab_status status = ab_spawn(&request, &child->process);
    const int theirs[] = {fd[0], fd[3], fd[5]}, ours[] = {fd[1], fd[2], fd[4]};
    close_all(theirs, 3);
    if (status != AB_OK) {
        close_all(ours, 3);
        return status;
    }
    child->in = fd[1];
    child->out = fd[2];
    child->err = fd[4];
    child->open = true;
    return AB_OK;
}

static ab_status keep_last(void *context, char *line, size_t n) {
    ab_child *child = context;
    if (n > 0 && line[strspn(line, " \t\r")]) ab_text_show(child->last, sizeof child->last, "%s", line);
    return AB_OK;
}

static ab_status read_errors(ab_child *child) {
    bool open = true;
    AB_TRY(ab_lines_read(&child->errors, child->err, keep_last, child, &open));
    if (open) return AB_OK;
    close(child->err);
    child->err = -1;
    return AB_OK;
}

ab_status ab_children_read(ab_child *const *child, void *const *context, int count, int milliseconds,
                           ab_line_taker take) {
    struct pollfd *ready = calloc((size_t)(2 * count) + 1, sizeof *ready);
    ab_status status = AB_OK;
    if (!ready) return ab_fail(AB_NO_MEMORY, "--launch: out of memory");
    for (int i = 0; i < 2 * count; i++) {
        const ab_child *of = child[i / 2];
        const int fd = !of || !of->open ? -1 : i % 2 ? of->err : of->out;
        ready[i] = (struct pollfd){.fd = fd, .events = POLLIN};
    }
    if (poll(ready, 2 * (nfds_t)count, milliseconds) > 0)
        for (int i = 0; i < 2 * count && status == AB_OK; i++) {
            ab_child *of = child[i / 2];
            if (!of || !ready[i].revents) continue;
            status =
                i % 2 ? read_errors(of) : ab_lines_read(&of->lines, of->out, take, context[i / 2], &of->open);
        }
    free(ready);
    return status;
}

static void explain(int how, const char *last, char *reason, size_t size) {
    reason[0] = '\0';
    if (WIFEXITED(how) && WEXITSTATUS(how) == 0) return;
    if (WIFSIGNALED(how))
        ab_text_show(reason, size, "killed by signal %d (%s)", WTERMSIG(how), strsignal(WTERMSIG(how)));
    else
        ab_text_show(reason, size, "ended with status %d", WEXITSTATUS(how));
    if (last[0]) ab_text_append(reason, size, ": %s", last);
}

void ab_child_end(ab_child *child, char *reason, size_t size) {
    int how = 0;
    close_all(&child->in, 1); /* whoever waits for more input ends */
    while (waitpid(child->process.pid, &how, 0) < 0 && errno == EINTR) continue;
    if (child->err >= 0) { /* what it said last may not have been read; nobody else may hold the pipe open */
        (void)fcntl(child->err, F_SETFL, O_NONBLOCK);
        (void)read_errors(child);
    }
    if (child->errors.used > 0 && child->errors.used < child->errors.capacity) { /* a line without an end */
        child->errors.bytes[child->errors.used] = '\0';
        (void)keep_last(child, child->errors.bytes, child->errors.used);
    }
    explain(how, child->last, reason, size);
    close_all(&child->out, 1);
    close_all(&child->err, 1);
    ab_spawn_done(&child->process);
    ab_lines_clear(&child->lines);
    ab_lines_clear(&child->errors);
}

void ab_child_kill(ab_child *child) { kill(child->process.pid, SIGKILL); }
