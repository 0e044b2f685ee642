/* Runs parts by ssh: one connection a part, as many at once as the hosts have slots. A host that cannot be
 * reached, or that lost two parts, gets no more of them. */
#define _GNU_SOURCE
#include "bench/sweep/child.h"
#include "bench/sweep/hosts.h"
#include "bench/sweep/launch.h"
#include "bench/sweep/parts.h"

#include "kernels/core/text.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WAIT_MS = 200 };

typedef struct slot {
    const ab_host *host;
    int *losses; /* of its host; AB_LOSSES_MOST: it gets no more parts */
    bool busy;
    ab_child child;
    ab_part part;
    ab_parts *parts; /* of the sweep, for lines */
} slot;

typedef struct ssh {
    ab_hosts hosts;
    int *losses; /* [hosts.count] */
    slot *slot;  /* [slots] */
    int slots;
    char folder[PATH_MAX], program[PATH_MAX];
} ssh;

static ab_status list_slots(ssh *s) {
    for (int h = 0; h < s->hosts.count; h++) s->slots += s->hosts.host[h].slots;
    s->losses = calloc((size_t)s->hosts.count, sizeof *s->losses);
    s->slot = calloc((size_t)s->slots, sizeof *s->slot);
    if (!s->losses || !s->slot) return ab_fail(AB_NO_MEMORY, "--launch: out of memory");
    int n = 0;
    for (int k = 0, found = 1; found; k++) { /* the first slots of all hosts first */
        found = 0;
        for (int h = 0; h < s->hosts.count; h++) {
            if (k >= s->hosts.host[h].slots) continue;
            s->slot[n++] = (slot){.host = &s->hosts.host[h], .losses = &s->losses[h]};
            found = 1;
        }
    }
    return AB_OK;
}

static ab_status open_ssh(const char *rest, const ab_options *options, const volatile sig_atomic_t *stop,
                          void **context, bool *helps) {
    (void)options, (void)stop, (void)helps;
    ssh *s = *context = calloc(1, sizeof *s);
    if (!s) return ab_fail(AB_NO_MEMORY, "--launch: out of memory");
    if (!rest[0])
        return ab_fail(AB_USAGE, "--launch ssh: expected ssh:HOSTFILE, a file with a host on each line");
    AB_TRY(ab_hosts_read(rest, &s->hosts));
    const ssize_t length = readlink("/proc/self/exe", s->program, sizeof s->program - 1);
    if (length < 0 || !getcwd(s->folder, sizeof s->folder))
        return ab_fail(AB_SYSTEM, "--launch ssh: cannot find this program or folder: %s", strerror(errno));
    return list_slots(s);
}

static void close_ssh(void *context, ab_status outcome) {
    (void)outcome;
    ssh *s = context;
    if (!s) return;
    ab_hosts_clear(&s->hosts);
    free(s->losses);
    free(s->slot);
    free(s);
}

/* "cd FOLDER && exec PROGRAM part ...": one text, which the shell of the other machine takes apart. */
static char *remote_command(const ssh *s, const slot *to) {
    char *folder[] = {to->host->folder ? to->host->folder : (char *)(uintptr_t)s->folder, NULL};
    char *command = NULL, *line = NULL, *where = ab_shell_line(folder);
    char **words = ab_part_words(to->parts, &to->part, to->host->program ? to->host->program : s->program,
                                 to->host->slots, true);
    if (words) line = ab_shell_line(words);
    if (where && line) command = ab_text_new("cd %s && exec %s", where, line);
    ab_part_words_free(words);
    free(where);
    free(line);
    return command;
}

static ab_status start_part(ssh *s, slot *to, ab_parts *parts, int takers) {
    static char options[][32] = {"-T",
                                 "-o",
                                 "BatchMode=yes",
                                 "-o",
                                 "ConnectTimeout=15",
                                 "-o",
                                 "ServerAliveInterval=15",
                                 "-o",
                                 "ServerAliveCountMax=3",
                                 "--"};
    enum { OPTIONS = AB_COUNT_OF(options) };
    static char program[] = "ssh";
    char *argv[OPTIONS + 4] = {program};
    to->parts = parts;
    AB_TRY(ab_parts_take_share(parts, takers, to->host->name, &to->part));
    char *command = remote_command(s, to);
    if (!command) return ab_fail(AB_NO_MEMORY, "--launch: out of memory");
    for (int i = 0; i < OPTIONS; i++) argv[1 + i] = options[i];
    argv[OPTIONS + 1] = to->host->name;
    argv[OPTIONS + 2] = command;
    ab_status status = ab_child_start("ssh", argv, &to->child);
    free(command);
    to->busy = status == AB_OK;
    return status == AB_OK ? AB_OK : ab_fail_prefix(status, "--launch ssh");
}

static ab_status take_line(void *context, char *line, size_t n) {
    slot *from = context;
    return ab_parts_line(from->parts, &from->part, line, n);
}

static ab_status end_part(slot *from) {
    char reason[AB_PART_REASON];
    ab_child_end(&from->child, reason, sizeof reason);
    from->busy = false;
    return ab_parts_end(from->parts, &from->part, reason, from->losses);
}

static int count_usable(const ssh *s) {
    int usable = 0;
    for (int i = 0; i < s->slots; i++) usable += *s->slot[i].losses < AB_LOSSES_MOST;
    return usable;
}

static ab_status start_parts(ssh *s, ab_parts *parts) {
    const int takers = count_usable(s);
    for (int i = 0; i < s->slots && ab_parts_left(parts) > 0; i++)
        if (!s->slot[i].busy && *s->slot[i].losses < AB_LOSSES_MOST)
            AB_TRY(start_part(s, &s->slot[i], parts, takers));
    return AB_OK;
}

static ab_status read_parts(ssh *s, ab_child **child, void **context, int *running) {
    *running = 0;
    for (int i = 0; i < s->slots; i++) {
        child[i] = s->slot[i].busy ? &s->slot[i].child : NULL;
        context[i] = &s->slot[i];
        *running += s->slot[i].busy;
    }
    if (*running == 0) return AB_OK;
    AB_TRY(ab_children_read(child, context, s->slots, WAIT_MS, take_line));
    for (int i = 0; i < s->slots; i++)
        if (child[i] && child[i]->open && s->slot[i].part.reason[0]) ab_child_kill(child[i]);
    for (int i = 0; i < s->slots; i++)
        if (child[i] && !child[i]->open) AB_TRY(end_part(&s->slot[i]));
    return AB_OK;
}

/* The parts at other machines end as their input does. */
static void stop_all(ssh *s) {
    char reason[AB_PART_REASON];
    for (int i = 0; i < s->slots; i++) {
        if (!s->slot[i].busy) continue;
        ab_child_kill(&s->slot[i].child);
        ab_child_end(&s->slot[i].child, reason, sizeof reason);
        s->slot[i].busy = false;
    }
    for (int i = 0; i < s->slots; i++) ab_part_clear(&s->slot[i].part);
}

static ab_status serve(ssh *s, ab_parts *parts, ab_child **child, void **context) {
    for (int running = 1; !*parts->work->stop;) {
        AB_TRY(start_parts(s, parts));
        AB_TRY(read_parts(s, child, context, &running));
        if (running > 0) continue;
        if (ab_parts_left(parts) == 0) return AB_OK;
        if (count_usable(s) == 0)
            return ab_fail(AB_SYSTEM, "--launch: no host is left, %d cells are not done; the last one: %s",
                           ab_parts_left(parts), parts->loss);
    }
    return AB_OK;
}

static ab_status run_cells(void *context, const ab_run_work *work, bool *later) {
    (void)later;
    ssh *s = context;
    ab_parts parts;
    ab_child **child = calloc((size_t)s->slots, sizeof *child);
    void **whose = calloc((size_t)s->slots, sizeof *whose);
    ab_status status = ab_parts_create(work, &parts);
    if (status == AB_OK && (!child || !whose)) status = ab_fail(AB_NO_MEMORY, "--launch: out of memory");
    if (status == AB_OK) status = serve(s, &parts, child, whose);
    stop_all(s);
    ab_parts_clear(&parts);
    free(child);
    free(whose);
    return status;
}

const ab_launch ab_launch_ssh = {.name = "ssh", .open = open_ssh, .cells = run_cells, .close = close_ssh};
