/* Which tensors of which files: opening, names with * and ?, and the error if nothing matches. */
#define _POSIX_C_SOURCE 200809L /* fnmatch */

#include "bench/inspect/inspect.h"
#include "kernels/core/nearest.h"
#include "kernels/core/text.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

static bool matches(const char *pattern, const char *name) {
    return strcmp(pattern, name) == 0 || fnmatch(pattern, name, FNM_NOESCAPE) == 0;
}

static bool wanted(const ab_inspect_request *request, const char *name) {
    for (int i = 0; i < request->patterns; i++)
        if (matches(request->pattern[i], name)) return true;
    return request->patterns == 0;
}

static int total(const ab_inspect_selection *s) {
    int count = 0;
    for (int f = 0; f < s->files; f++) count += s->file[f]->count;
    return count;
}

/* ---- a pattern that matches nothing ---------------------------------------------------------- */

/* Writes up to three names similar to `word`, as "; nearest: a, b, c"; removes them from `names`. */
static void list_near(const char *word, const char **names, int count, char *text, size_t size) {
    enum { NEAR_NAMES = 3 };
    text[0] = '\0';
    for (int n = 0; n < NEAR_NAMES; n++) {
        const char *near = ab_nearest(word, names, count);
        if (!near) break;
        char shown[AB_TENSORFILE_TEXT];
        ab_text_append(text, size, "%s%s", n == 0 ? "; nearest: " : ", ", ab_tensor_printable(near, shown));
        for (int i = 0; i < count; i++)
            if (names[i] && strcmp(names[i], near) == 0) names[i] = NULL;
    }
}

static ab_status no_match(const ab_inspect_selection *s, const char *pattern) {
    int count = total(s), n = 0;
    const char **names = malloc((size_t)(count > 0 ? count : 1) * sizeof *names);
    if (!names) return ab_fail(AB_NO_MEMORY, "out of memory for %d names", count);
    for (int f = 0; f < s->files; f++)
        for (int i = 0; i < s->file[f]->count; i++) names[n++] = s->file[f]->tensor[i].name;
    char near[256], shown[AB_TENSORFILE_TEXT]; /* ab_nearest returns names of at most 63 bytes */
    list_near(pattern, names, count, near, sizeof near);
    free(names);
    return ab_fail(AB_CONFIG, "--tensor: no tensor is called \"%s\" among %d%s",
                   ab_tensor_printable(pattern, shown), count, near);
}

static ab_status check_patterns(const ab_inspect_request *request, const ab_inspect_selection *s) {
    for (int p = 0; p < request->patterns; p++) {
        bool found = false;
        for (int f = 0; f < s->files && !found; f++)
            for (int i = 0; i < s->file[f]->count && !found; i++)
                found = matches(request->pattern[p], s->file[f]->tensor[i].name);
        if (!found) return no_match(s, request->pattern[p]);
    }
    return AB_OK;
}

/* ---- the selection --------------------------------------------------------------------------- */

static ab_status open_files(const ab_inspect_request *request, ab_inspect_selection *s) {
    if (request->files < 1) {
        ab_fail(AB_USAGE, "inspect: expected a file");
        return AB_USAGE;
    }
    s->file = calloc((size_t)request->files, sizeof *s->file);
    if (!s->file) {
        ab_fail(AB_NO_MEMORY, "out of memory for %d files", request->files);
        return AB_NO_MEMORY;
    }
    for (int i = 0; i < request->files; i++) {
        ab_tensorfile *file = NULL;
        AB_TRY(ab_tensorfile_open(request->file[i], &file));
        s->file[s->files++] = file;
    }
    return AB_OK;
}

/* Appends the selected tensors that are readable, or those that are not, from index `at` on; returns their
 * number. */
static int pick_some(const ab_inspect_request *request, ab_inspect_selection *s, bool readable, int at) {
    int first = at;
    for (int f = 0; f < s->files; f++)
        for (int i = 0; i < s->file[f]->count; i++) {
            const ab_tensor_entry *entry = &s->file[f]->tensor[i];
            if ((entry->element->format != NULL) == readable && wanted(request, entry->name))
                s->pick[at++] = (ab_inspect_pick){s->file[f], entry};
        }
    return at - first;
}

ab_status ab_inspect_select(const ab_inspect_request *request, ab_inspect_selection *selection) {
    ab_inspect_selection *s = selection;
    *s = (ab_inspect_selection){0};
    AB_TRY(open_files(request, s));
    AB_TRY(check_patterns(request, s));
    int count = total(s);
    s->pick = malloc((size_t)(count > 0 ? count : 1) * sizeof *s->pick);
    if (!s->pick) return ab_fail(AB_NO_MEMORY, "out of memory for %d tensors", count);
    s->picks = pick_some(request, s, true, 0);
    s->skipped = pick_some(request, s, false, s->picks);
    if (s->picks > 0 || s->skipped == 0) return AB_OK; /* a safetensors file may have no tensors */
    char name[AB_TENSORFILE_TEXT];
    return ab_fail(AB_INPUT, "%s: expected floating-point tensors, found only others (\"%s\" is %s)",
                   s->pick[0].file->path, ab_tensor_printable(s->pick[0].entry->name, name),
                   s->pick[0].entry->dtype);
}

void ab_inspect_selection_free(ab_inspect_selection *selection) {
    for (int i = 0; i < selection->files; i++) ab_tensorfile_close(selection->file[i]);
    free(selection->file);
    free(selection->pick);
    *selection = (ab_inspect_selection){0};
}
