/* Memory that is a file, and reading of it. */
#define _GNU_SOURCE
#include "probes/lib/latest.h"

#include "kernels/core/text.h"
#include "probes/lib/steps.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <unistd.h>

typedef struct ab_lib_latest {
    char magic[16];
    char id[24];           /* of the run */
    uint32_t order, size;  /* 0x01020304 in the writer's byte order; of ampprobe_step_facts */
    int64_t count, before; /* room; steps taken by the probe before the first one */
    int64_t reserved[7];
    ampprobe_step_facts facts[];
} latest;

static const char magic[16] = "ampprobe latest";
static const uint32_t order = 0x01020304u;

static size_t size_of(int64_t count) { return sizeof(latest) + (size_t)count * sizeof(ampprobe_step_facts); }

static int64_t taken(const ampprobe *p) {
    int64_t steps = 0;
    for (int32_t i = 0; i < p->course->groups; i++) steps += p->course->group[i].steps;
    return steps;
}

/* ---- making ---------------------------------------------------------------------------------- */

/* File systems that write a page where it was: a store to a page that was written once needs no room. */
static bool writes_in_place(int file) {
    static const uint32_t known[] = {0xEF53 /* ext4 */, 0x58465342 /* xfs */, 0x01021994 /* tmpfs */,
                                     0x794C7630 /* overlay */, 0x6969 /* nfs */};
    struct statfs about;
    if (fstatfs(file, &about) != 0) return false;
    for (size_t i = 0; i < AB_COUNT_OF(known); i++)
        if ((uint32_t)about.f_type == known[i]) return true;
    return false;
}

static bool may_be_written(size_t size) {
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || size <= limit.rlim_cur;
}

/* The file's bytes as memory; NULL: not here. */
static latest *map(FILE *stream, const latest *whole, size_t size) {
    if (!writes_in_place(fileno(stream)) || fwrite(whole, size, 1, stream) != 1 || fflush(stream) != 0)
        return NULL;
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(stream), 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static latest *make(const char *path, const latest *whole, size_t size) {
    ab_outfile file;
    if (!may_be_written(size) || ab_outfile_open(path, &file) != AB_OK) return NULL;
    file.unsynced = true; /* a machine that stops loses it; a process does not */
    latest *memory = map(file.stream, whole, size);
    const ab_status status =
        ab_outfile_close(&file, memory ? AB_OK : ab_fail(AB_OUTPUT, "%s: no such memory", path));
    if (status == AB_OK) return memory;
    if (memory) munmap(memory, size);
    return NULL;
}

ampprobe_step_facts *ab_lib_latest_make(ampprobe *p, int32_t count) {
    const size_t size = size_of(count);
    char *path = ab_text_new("%s.latest", p->path);
    latest *whole = calloc(1, size);
    if (path && whole) {
        memcpy(whole->magic, magic, sizeof magic);
        memcpy(whole->id, p->id, sizeof p->id);
        whole->order = order;
        whole->size = sizeof(ampprobe_step_facts);
        whole->count = count;
        whole->before = taken(p);
        p->latest = make(path, whole, size);
        p->latest_bytes = p->latest ? size : 0;
    }
    free(whole);
    free(path);
    return p->latest ? p->latest->facts : NULL;
}

void ab_lib_latest_taken(ampprobe *p, ampprobe_step_facts *facts, int32_t count) {
    latest *l = p->latest;
    if (!l) return;
    if (facts >= l->facts && facts + count <= l->facts + l->count)
        for (int32_t i = 0; i < count; i++) facts[i].seconds = 0;
    l->before = taken(p);
}

void ab_lib_latest_end(const char *path) {
    char *name = ab_text_new("%s.latest", path);
    if (name) unlink(name);
    free(name);
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool is_head_good(const latest *head, const ampprobe *p) {
    return memcmp(head->magic, magic, sizeof magic) == 0 && head->order == order &&
           head->size == sizeof(ampprobe_step_facts) && head->count > 0 &&
           head->count <= AB_LIB_MOST_LATEST && memcmp(head->id, p->id, sizeof p->id) == 0;
}

static void add(ampprobe *p, const ampprobe_step_facts *facts) {
    const ab_lib_step step = {
        .facts = *facts, .seconds = facts->seconds, .probe_seconds = p->course->probe_seconds};
    ab_lib_fold_step(p, &step);
}

/* Reads steps until one is not complete. Those that the journal has are left out. Of a run that goes on, the
 * journal may have been read before the probe took steps that are no longer here: then none is read. */
static void read_steps(FILE *file, const latest *head, ampprobe *p) {
    const int64_t known = taken(p) - head->before;
    ampprobe_step_facts facts;
    for (int64_t i = 0; known >= 0 && i < head->count; i++) {
        if (fread(&facts, sizeof facts, 1, file) != 1) return;
        if (i < known) continue;
        if (!(facts.seconds > 0) || ab_lib_step_wrong(&facts)) return;
        add(p, &facts);
    }
}

void ab_lib_latest_read(const char *path, ampprobe *p) {
    latest head;
    char *name = ab_text_new("%s.latest", path);
    FILE *file = name ? fopen(name, "rb") : NULL;
    free(name);
    if (!file) return;
    if (fread(&head, sizeof head, 1, file) == 1 && is_head_good(&head, p)) read_steps(file, &head, p);
    fclose(file);
}
