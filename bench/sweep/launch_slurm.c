/* Runs parts as the tasks of one Slurm job array, in a folder that all nodes see: DOCUMENT.launch/K for the
 * K-th submission. sbatch waits for the array; meanwhile the tasks' files are read as they grow. Slurm
 * schedules. */
#define _GNU_SOURCE
#include "bench/sweep/child.h"
#include "bench/sweep/launch.h"
#include "bench/sweep/parts.h"

#include "kernels/core/log.h"
#include "kernels/core/show.h"
#include "kernels/core/text.h"
#include "kernels/core/text_path.h"
#include "kernels/files/outfile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    TASKS = 32,
    TASKS_MOST = 1000,
    SUBMISSIONS_MOST = 1000,
    WAIT_MS = 500,
    LATE_TURNS = 20,
    NAME_BYTES = 64
};

typedef struct task {
    char who[24];
    ab_part part;
} task;

/* A file that a task writes: its name says which task and which start of it. */
typedef struct source {
    char name[NAME_BYTES];
    int fd;
    ab_lines lines;
    ab_part part; /* what its lines say; no cells */
    ab_parts *parts;
} source;

typedef struct slurm {
    int tasks;
    bool script;
    char folder[PATH_MAX];       /* DOCUMENT.launch, absolute */
    char current[PATH_MAX + 16]; /* the submission that is read */
    char job[64];
    task *task; /* [given] of the submission */
    int given;
    source *source; /* [sources] of the submission */
    int sources;
} slurm;

static ab_status no_memory(void) { return ab_fail(AB_NO_MEMORY, "--launch: out of memory"); }

/* ---- options --------------------------------------------------------------------------------- */

static ab_status bad_rest(const char *rest) {
    return ab_fail(AB_USAGE, "--launch slurm: expected slurm[:TASKS][:script] with 1 to %d tasks, found '%s'",
                   TASKS_MOST, rest);
}

static ab_status open_slurm(const char *rest, const ab_options *options, const volatile sig_atomic_t *stop,
                            void **context, bool *helps) {
    (void)options, (void)stop, (void)helps;
    slurm *s = *context = calloc(1, sizeof *s);
    if (!s) return no_memory();
    char *end = (char *)(uintptr_t)rest;
    const long tasks = strtol(rest, &end, 10);
    s->tasks = end == rest ? TASKS : (int)tasks;
    if (end > rest && (tasks < 1 || tasks > TASKS_MOST || (*end && *end != ':'))) return bad_rest(rest);
    if (end > rest && *end == ':') end++;
    s->script = strcmp(end, "script") == 0;
    return *end && !s->script ? bad_rest(rest) : AB_OK;
}

static void clear_submission(slurm *s) {
    for (int i = 0; i < s->sources; i++) {
        close(s->source[i].fd);
        ab_lines_clear(&s->source[i].lines);
    }
    for (int i = 0; i < s->given; i++) ab_part_clear(&s->task[i].part);
    free(s->source);
    free(s->task);
    s->source = NULL;
    s->task = NULL;
    s->sources = s->given = 0;
}

static void close_slurm(void *context, ab_status outcome) {
    (void)outcome;
    if (context) clear_submission(context);
    free(context);
}

/* ---- what the tasks write -------------------------------------------------------------------- */

static ab_status take_line(void *context, char *line, size_t n) {
    source *from = context;
    return ab_parts_line(from->parts, &from->part, line, n);
}

/* The task of "part-K.R.jsonl"; -1: not of a task. */
static int task_of(const char *name) {
    int k, r, length = 0;
    return sscanf(name, "part-%d.%d.jsonl%n", &k, &r, &length) == 2 && length == (int)strlen(name) ? k : -1;
}

static bool is_known(const slurm *s, const char *name) {
    for (int i = 0; i < s->sources; i++)
        if (strcmp(s->source[i].name, name) == 0) return true;
    return false;
}

static ab_status add_source(slurm *s, ab_parts *parts, const char *name) {
    char path[PATH_MAX + 400];
    ab_text_exact(path, sizeof path, "%s/%s", s->current, name);
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return AB_OK;
    source *list = realloc(s->source, (size_t)(s->sources + 1) * sizeof *list);
    if (!list) {
        close(fd);
        return no_memory();
    }
    s->source = list;
    list[s->sources] = (source){.fd = fd, .parts = parts, .part = {.machine = -1, .who = "a task"}};
    ab_text_show(list[s->sources++].name, NAME_BYTES, "%s", name);
    return AB_OK;
}

static ab_status find_sources(slurm *s, ab_parts *parts) {
    DIR *listing = opendir(s->current);
    ab_status status = AB_OK;
    for (const struct dirent *entry; listing && status == AB_OK && (entry = readdir(listing));)
        if (task_of(entry->d_name) >= 0 && strlen(entry->d_name) < NAME_BYTES && !is_known(s, entry->d_name))
            status = add_source(s, parts, entry->d_name);
    if (listing) closedir(listing);
    return status;
}

/* Reads what is new in the files of the submission. */
static ab_status read_sources(slurm *s, ab_parts *parts) {
    AB_TRY(find_sources(s, parts));
    for (int i = 0; i < s->sources; i++) {
        source *from = &s->source[i];
        for (bool more = true; more;) AB_TRY(ab_lines_read(&from->lines, from->fd, take_line, from, &more));
    }
    return AB_OK;
}

/* ---- earlier submissions --------------------------------------------------------------------- */

static ab_status place_folder(slurm *s, const ab_run_work *work) {
    const char *out = work->options->text[AB_OPTION_out];
    char path[PATH_MAX];
    AB_TRY(ab_text_path("--out", path, sizeof path, "%s.launch", out));
    if (!ab_outfile_replaces(out))
        return ab_fail(AB_USAGE, "--launch slurm: --out must name a file in a folder that all nodes see");
    AB_TRY(ab_folder_make(path));
    return realpath(path, s->folder) ? AB_OK : ab_fail(AB_OUTPUT, "%s: %s", path, strerror(errno));
}

static bool exists(slurm *s, int submission) {
    struct stat about;
    ab_text_exact(s->current, sizeof s->current, "%s/%d", s->folder, submission);
    return stat(s->current, &about) == 0;
}

/* Takes what tasks of earlier submissions of this run wrote; *next: number of the next submission. */
static ab_status take_earlier(slurm *s, const ab_run_work *work, int *next) {
    ab_parts parts;
    ab_status status = ab_parts_create(work, &parts);
    for (*next = 1; *next < SUBMISSIONS_MOST && status == AB_OK && exists(s, *next); ++*next) {
        status = read_sources(s, &parts);
        clear_submission(s);
    }
    ab_parts_clear(&parts);
    return status;
}

/* ---- submission ------------------------------------------------------------------------------ */

static ab_status give_parts(slurm *s, ab_parts *parts) {
    const int left = ab_parts_left(parts), tasks = left < s->tasks ? left : s->tasks;
    s->task = calloc((size_t)tasks + 1, sizeof *s->task);
    if (!s->task) return no_memory();
    while (s->given < tasks) {
        task *to = &s->task[s->given];
        ab_text_exact(to->who, sizeof to->who, "task %d", s->given);
        AB_TRY(ab_parts_take(parts, ab_parts_left(parts) / (tasks - s->given), to->who, &to->part));
        s->given++;
    }
    return AB_OK;
}

static ab_status write_file(const slurm *s, const char *name, const ab_parts *parts,
                            ab_status (*write)(const slurm *s, const ab_parts *parts, FILE *out)) {
    char path[PATH_MAX + 64];
    ab_outfile out;
    ab_text_exact(path, sizeof path, "%s/%s", s->current, name);
    AB_TRY(ab_outfile_open(path, &out));
    return ab_outfile_close(&out, write(s, parts, out.stream));
}

static ab_status write_parts(const slurm *s, const ab_parts *parts, FILE *out) {
    (void)parts;
    for (int i = 0; i < s->given; i++) {
        char *text = ab_part_text(&s->task[i].part);
        if (!text) return no_memory();
        ab_print(out, "%s\n", text);
        free(text);
    }
    return AB_OK;
}

static void write_head(const slurm *s, FILE *out) {
    char here[PATH_MAX];
    ab_print(
        out,
        "#!/bin/bash\n"
        "# Written by ampbench --launch slurm. Task K of the array runs the cells on line K + 1 of the file\n"
        "# parts and writes what it records to part-K.*.jsonl.\n"
        "#SBATCH --job-name=ampbench\n"
        "#SBATCH --array=0-%d\n"
        "#SBATCH --ntasks=1\n"
        "#SBATCH --output=/dev/null\n"
        "set -eu\n",
        s->given - 1);
    ab_print(out, "folder=");
    ab_print_shell_word(out, s->current);
    ab_print(out, "\ncd ");
    ab_print_shell_word(out, getcwd(here, sizeof here) ? here : ".");
    ab_print(out, "\n"
                  "cells=$(sed -n \"$((SLURM_ARRAY_TASK_ID + 1))p\" \"$folder/parts\")\n"
                  "at=$folder/part-$SLURM_ARRAY_TASK_ID.${SLURM_RESTART_COUNT:-0}\n"
                  "# srun takes this from the job only if it is told so\n"
                  "[ -z \"${SLURM_CPUS_PER_TASK:-}\" ] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK\n"
                  "exec srun --ntasks=1 ");
}

static ab_status write_job(const slurm *s, const ab_parts *parts, FILE *out) {
    char program[PATH_MAX] = "";
    if (readlink("/proc/self/exe", program, sizeof program - 1) < 0)
        return ab_fail(AB_SYSTEM, "--launch slurm: cannot find this program: %s", strerror(errno));
    char **words = ab_part_words(parts, &s->task[0].part, program, 1, false);
    if (!words) return no_memory();
    write_head(s, out);
    for (int i = 0; words[i]; i++) {
        if (i > 0) fputc(' ', out);
        if (i == 2) fputs("\"$cells\"", out);
        if (i != 2) ab_print_shell_word(out, words[i]);
    }
    ab_print(out, " \\\n    >\"$at.jsonl\" 2>\"$at.log\" </dev/null\n");
    ab_part_words_free(words);
    return AB_OK;
}

static ab_status take_job(void *context, char *line, size_t n) {
    slurm *s = context;
    if (n > 0 && !s->job[0]) ab_text_show(s->job, sizeof s->job, "%.*s", (int)strcspn(line, "; \t"), line);
    return AB_OK;
}

static void cancel(const slurm *s) {
    static char program[] = "scancel";
    char job[64], reason[AB_PART_REASON], *argv[] = {program, job, NULL};
    ab_child child;
    ab_text_exact(job, sizeof job, "%s", s->job);
    if (!job[0] || ab_child_start(program, argv, &child) != AB_OK) return;
    ab_child_end(&child, reason, sizeof reason);
    if (reason[0]) ab_warn("--launch slurm: scancel %s: %s", job, reason);
}

/* Submits the script and waits for the array. reason: what sbatch says if it fails. */
static ab_status submit(slurm *s, ab_parts *parts, char *reason) {
    static char program[] = "sbatch", parsable[] = "--parsable", wait[] = "--wait";
    char script[PATH_MAX + 32], *argv[] = {program, parsable, wait, script, NULL};
    ab_child child, *children[] = {&child};
    void *contexts[] = {s};
    s->job[0] = '\0';
    ab_text_exact(script, sizeof script, "%s/job.sh", s->current);
    ab_status status = ab_child_start(program, argv, &child);
    if (status != AB_OK) return ab_fail_prefix(status, "--launch slurm");
    while (status == AB_OK && child.open && !*parts->work->stop) {
        status = ab_children_read(children, contexts, 1, WAIT_MS, take_job);
        if (status == AB_OK) status = read_sources(s, parts);
    }
    if (child.open) {
        cancel(s);
        ab_child_kill(&child);
    }
    ab_child_end(&child, reason, AB_PART_REASON);
    return status;
}

static bool all_done(const slurm *s, const ab_run_work *work) {
    for (int i = 0; i < s->given; i++)
        for (int k = 0; k < s->task[i].part.count; k++)
            if (!ab_run_is_done(work, s->task[i].part.cell[k])) return false;
    return true;
}

/* The last line of a task's log of errors. */
static void read_log(const slurm *s, const char *source_name, char *reason) {
    char path[PATH_MAX + 400], line[AB_PART_REASON];
    ab_text_exact(path, sizeof path, "%s/%.*slog", s->current, (int)(strlen(source_name) - strlen("jsonl")),
                  source_name);
    FILE *in = fopen(path, "r");
    while (in && fgets(line, sizeof line, in)) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0]) ab_text_show(reason, AB_PART_REASON, "%s", line);
    }
    if (in) fclose(in);
}

/* What is known of why a task has not done its cells. */
static void explain(const slurm *s, int k, const char *submitted, ab_part *part, char *reason) {
    ab_text_show(reason, AB_PART_REASON, "%s", submitted[0] ? submitted : "the task wrote nothing");
    for (int i = 0; i < s->sources; i++) {
        if (task_of(s->source[i].name) != k) continue;
        part->machine = s->source[i].part.machine;
        ab_text_show(reason, AB_PART_REASON, "ended before its cells were done");
        read_log(s, s->source[i].name, reason);
        if (s->source[i].part.reason[0]) ab_text_show(reason, AB_PART_REASON, "%s", s->source[i].part.reason);
    }
}

/* Files of other machines may be seen late. */
static ab_status read_late(slurm *s, ab_parts *parts, bool well) {
    const struct timespec pause = {.tv_nsec = WAIT_MS * 1000000L};
    AB_TRY(read_sources(s, parts));
    for (int turn = 0; well && turn < LATE_TURNS && !all_done(s, parts->work) && !*parts->work->stop;
         turn++) {
        nanosleep(&pause, NULL);
        AB_TRY(read_sources(s, parts));
    }
    return AB_OK;
}

/* *progress: a task wrote something. */
static ab_status end_parts(slurm *s, ab_parts *parts, const char *submitted, bool *progress) {
    char reason[AB_PART_REASON];
    *progress = s->sources > 0;
    for (int k = 0; k < s->given; k++) {
        explain(s, k, submitted, &s->task[k].part, reason);
        AB_TRY(ab_parts_end(parts, &s->task[k].part, reason, NULL));
    }
    return AB_OK;
}

static ab_status show_script(const slurm *s, const char *out) {
    char path[PATH_MAX + 32], line[4096];
    ab_text_exact(path, sizeof path, "%s/job.sh", s->current);
    FILE *in = fopen(path, "r");
    while (in && fgets(line, sizeof line, in)) fputs(line, stdout);
    if (in) fclose(in);
    ab_print(stderr,
             "written to %s; submit it with sbatch, then: ampbench run --resume --launch slurm --out %s\n",
             path, out);
    return AB_OK;
}

static ab_status write_submission(slurm *s, ab_parts *parts, int number) {
    ab_text_exact(s->current, sizeof s->current, "%s/%d", s->folder, number);
    AB_TRY(ab_folder_make(s->current));
    AB_TRY(give_parts(s, parts));
    AB_TRY(write_file(s, "parts", parts, write_parts));
    return write_file(s, "job.sh", parts, write_job);
}

static ab_status run_submission(slurm *s, ab_parts *parts, bool *progress) {
    char reason[AB_PART_REASON] = "";
    AB_TRY(submit(s, parts, reason));
    AB_TRY(read_late(s, parts, !reason[0]));
    if (*parts->work->stop) return AB_OK;
    AB_TRY(end_parts(s, parts, reason, progress));
    return *progress ? AB_OK : ab_fail(AB_SYSTEM, "--launch slurm: no task began: %s", parts->loss);
}

/* Files of a run that is recorded are not needed any more. */
static void remove_submissions(slurm *s) {
    for (int k = 1; k < SUBMISSIONS_MOST && exists(s, k); k++) {
        char path[PATH_MAX + 400];
        DIR *listing = opendir(s->current);
        for (const struct dirent *entry; listing && (entry = readdir(listing));) {
            ab_text_exact(path, sizeof path, "%s/%s", s->current, entry->d_name);
            if (entry->d_name[0] != '.') unlink(path);
        }
        if (listing) closedir(listing);
        rmdir(s->current);
    }
    rmdir(s->folder);
}

static ab_status submit_all(slurm *s, const ab_run_work *work, int next, bool *later) {
    ab_parts parts;
    ab_status status = ab_parts_create(work, &parts);
    for (bool progress = true; status == AB_OK && ab_parts_left(&parts) > 0 && !*work->stop; next++) {
        AB_TRY_GOTO(write_submission(s, &parts, next));
        *later = s->script;
        status = s->script ? show_script(s, work->options->text[AB_OPTION_out])
                           : run_submission(s, &parts, &progress);
        clear_submission(s);
        if (*later) break;
    }
out:
    ab_parts_clear(&parts);
    return status;
}

static ab_status run_cells(void *context, const ab_run_work *work, bool *later) {
    slurm *s = context;
    int next;
    AB_TRY(place_folder(s, work));
    AB_TRY(take_earlier(s, work, &next));
    AB_TRY(submit_all(s, work, next, later));
    if (!*later && !*work->stop) remove_submissions(s);
    return AB_OK;
}

const ab_launch ab_launch_slurm = {
    .name = "slurm", .open = open_slurm, .cells = run_cells, .close = close_slurm};
