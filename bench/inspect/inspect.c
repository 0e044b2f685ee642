/* For each tensor: count, predict, keep a row, discard the census. */
#define _POSIX_C_SOURCE 200809L /* fnmatch */
#include "bench/inspect/inspect.h"

#include "bench/tensorfile/folder.h"
#include "bench/tensorfile/open_set.h"
#include "kernels/core/text.h"

#include <assert.h>
#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

ab_status ab_inspect_find_limits(const ab_inspect_question *question, ab_inspect_limits *limits) {
    ab_ftz ftz = question->goal.ftz;
    for (int f = 0; f < question->formats; f++) {
        for (int k = AB_INSPECT_LOW; k <= AB_INSPECT_HIGH; k++)
            AB_TRY(ab_whatif_find_limits(question->format[f], ldexpf(1.0F, k), ftz,
                                         &limits->power[f][k - AB_INSPECT_LOW]));
        AB_TRY(ab_whatif_find_limits(question->format[f], question->scale, ftz, &limits->scale[f]));
    }
    return AB_OK;
}

/* Fills the row and narrows the advice by this tensor. */
static ab_status predict(ab_inspect_result *result, int i, const ab_inspect_count *count,
                         const ab_census_totals *totals) {
    const ab_inspect_question *question = result->question;
    const ab_census *census = &count->census;
    ab_inspect_row *row = &result->row[i];
    row->zero = census->zero;
    row->nan = census->nan;
    row->inf = census->pos_inf + census->neg_inf;
    row->nonzero = ab_census_nonzero(census);
    row->min_abs = census->min_abs;
    row->max_abs = census->max_abs;
    for (int f = 0; f < question->formats; f++) {
        ab_whatif_evaluate(census, totals, &result->limits.scale[f], &row->at_scale[f]);
        AB_TRY(ab_scale_range_of(census, question->format[f], &question->goal, &row->advice[f]));
        ab_scale_advice_add(&result->advice[f], i, &row->advice[f]);
    }
    return AB_OK;
}

static ab_inspect_tensor describe(const ab_inspect_pick *pick) {
    const ab_tensor_entry *entry = pick->entry;
    return (ab_inspect_tensor){.name = entry->name,
                               .path = pick->file->path,
                               .element = entry->element->name,
                               .dtype = entry->dtype,
                               .ndim = entry->ndim,
                               .dim = entry->dim,
                               .count = entry->count};
}

static ab_status count_all(const ab_inspect_selection *selection, ab_inspect_result *result, FILE *json) {
    ab_inspect_count *count = malloc(sizeof *count);
    if (!count) return ab_fail(AB_NO_MEMORY, "out of memory for counts");
    ab_status status = AB_OK;
    for (int i = 0; i < result->rows && status == AB_OK; i++) {
        ab_census_totals totals;
        status = ab_inspect_tensor_count(&selection->pick[i], count);
        if (status != AB_OK) break;
        ab_census_total(&count->census, &totals);
        status = predict(result, i, count, &totals);
        ab_inspect_merge(&result->pooled, count);
        if (json) ab_inspect_json_tensor(json, result, i, count, &totals);
    }
    free(count);
    return status;
}

/* Fills the names of all tensors before counting. */
static ab_status begin(const ab_inspect_request *request, const ab_inspect_selection *selection,
                       ab_inspect_result *result) {
    memset(result, 0, sizeof *result);
    result->question = &request->question;
    result->files = selection->files;
    for (int f = 0; f < selection->files; f++) result->stored_in += ab_tensorfile_files(selection->file[f]);
    result->rows = selection->picks;
    result->skips = selection->skipped;
    ab_census_clear(&result->pooled.census);
    AB_TRY(ab_inspect_find_limits(result->question, &result->limits));
    result->row = calloc((size_t)result->rows + 1, sizeof *result->row);
    result->skipped = calloc((size_t)result->skips + 1, sizeof *result->skipped);
    if (!result->row || !result->skipped)
        return ab_fail(AB_NO_MEMORY, "out of memory for %d rows", selection->picks);
    for (int i = 0; i < result->rows; i++) result->row[i].tensor = describe(&selection->pick[i]);
    for (int i = 0; i < result->skips; i++) result->skipped[i] = describe(&selection->pick[result->rows + i]);
    return AB_OK;
}

ab_status ab_inspect_run(const ab_inspect_request *request, const ab_inspect_selection *selection, FILE *json,
                         ab_inspect_result *result) {
    const ab_inspect_question *question = &request->question;
    AB_TRY(begin(request, selection, result));
    for (int f = 0; f < question->formats; f++) ab_scale_advice_begin(&result->advice[f], &question->goal);
    if (json) ab_inspect_json_begin(json);
    AB_TRY(count_all(selection, result, json));
    for (int f = 0; f < question->formats; f++)
        AB_TRY(ab_scale_advice_finish(&result->advice[f], &result->pooled.census, question->format[f],
                                      &question->goal));
    if (json) ab_inspect_json_end(json, result);
    return AB_OK;
}

void ab_inspect_result_free(ab_inspect_result *result) {
    free(result->row);
    free(result->skipped);
    memset(result, 0, sizeof *result);
}

/* Counting a tensor: every chunk of its blocks has its own census; these are summed in the order of the
 * chunks, so that the sums do not depend on the number of threads. Predictions are computed by whatif.h. */

static void add_block(void *context, int chunk, const ab_tensor_block *block) {
    ab_inspect_count *count = (ab_inspect_count *)context + chunk;
    ab_census_add_stored(&count->census, block->data, block->format, block->n);
    count->load_flushed += block->load_flushed;
    count->load_overflowed += block->load_overflowed;
}

static void clear(ab_inspect_count *count) {
    ab_census_clear(&count->census);
    count->load_flushed = count->load_overflowed = 0;
}

void ab_inspect_merge(ab_inspect_count *into, const ab_inspect_count *from) {
    ab_census_merge(&into->census, &from->census);
    into->load_flushed += from->load_flushed;
    into->load_overflowed += from->load_overflowed;
}

ab_status ab_inspect_tensor_count(const ab_inspect_pick *pick, ab_inspect_count *count) {
    int chunks = ab_tensorfile_chunks(pick->entry);
    ab_inspect_count *chunk = malloc((size_t)(chunks > 0 ? chunks : 1) * sizeof *chunk);
    if (!chunk) return ab_fail(AB_NO_MEMORY, "out of memory for counts");
    for (int i = 0; i < chunks; i++) clear(&chunk[i]);
    ab_block_visitor visitor = {.context = chunk, .see = add_block};
    ab_status status = ab_tensorfile_stream(pick->file, pick->entry, &visitor);
    clear(count);
    for (int i = 0; i < chunks; i++) ab_inspect_merge(count, &chunk[i]);
    free(chunk);
    return status;
}

/* Which tensors of which files: opening, names with * and ?, and the error if nothing matches. */

static bool matches(const char *pattern, const char *name) {
    return strcmp(pattern, name) == 0 || fnmatch(pattern, name, FNM_NOESCAPE) == 0;
}

static bool wanted(const ab_inspect_request *request, const char *name) {
    for (int i = 0; i < request->patterns; i++)
        if (matches(request->pattern[i], name)) return true;
    return request->patterns == 0;
}

/* Whether a pattern is this very name: what shares its bytes with another tensor must be asked for. */
static bool named(const ab_inspect_request *request, const char *name) {
    for (int i = 0; i < request->patterns; i++)
        if (strcmp(request->pattern[i], name) == 0) return true;
    return false;
}

/* Tensors, then aliases. */
static const ab_tensor_entry *entry_at(const ab_tensorfile *file, int i) {
    return i < file->count ? &file->tensor[i] : &file->alias[i - file->count];
}

static int total(const ab_inspect_selection *s) {
    int count = 0;
    for (int f = 0; f < s->files; f++) count += s->file[f]->count + s->file[f]->aliases;
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
        for (int i = 0; i < s->file[f]->count + s->file[f]->aliases; i++)
            names[n++] = entry_at(s->file[f], i)->name;
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
            for (int i = 0; i < s->file[f]->count + s->file[f]->aliases && !found; i++)
                found = i < s->file[f]->count
                            ? matches(request->pattern[p], s->file[f]->tensor[i].name)
                            : strcmp(request->pattern[p], entry_at(s->file[f], i)->name) == 0;
        if (!found) return no_match(s, request->pattern[p]);
    }
    return AB_OK;
}

/* ---- the selection --------------------------------------------------------------------------- */

/* Folders stand for the tensor files in them. */
static ab_status list_files(const ab_inspect_request *request, ab_tensor_paths *paths) {
    for (int i = 0; i < request->files; i++) {
        const int before = paths->count;
        AB_TRY(ab_tensor_paths_add(request->file[i], paths));
        if (paths->count == before)
            return ab_fail(AB_INPUT, "%s: expected tensor files in the folder, found none", request->file[i]);
    }
    return AB_OK;
}

static ab_status open_paths(const ab_tensor_paths *paths, ab_inspect_selection *s) {
    s->file = calloc((size_t)paths->count, sizeof *s->file);
    if (!s->file) return ab_fail(AB_NO_MEMORY, "out of memory for %d files", paths->count);
    for (int i = 0; i < paths->count; i++) {
        ab_tensorfile *file = NULL;
        AB_TRY(ab_tensorfile_open_set(paths->path[i], &file));
        s->file[s->files++] = file;
    }
    return AB_OK;
}

static ab_status open_files(const ab_inspect_request *request, ab_inspect_selection *s) {
    if (request->files < 1) {
        ab_fail(AB_USAGE, "inspect: expected a file");
        return AB_USAGE;
    }
    ab_tensor_paths paths = {NULL, 0};
    ab_status status = list_files(request, &paths);
    if (status == AB_OK) status = open_paths(&paths, s);
    ab_tensor_paths_free(&paths);
    return status;
}

/* Appends the selected tensors that are readable, or those that are not, from index `at` on; returns their
 * number. */
static int pick_some(const ab_inspect_request *request, ab_inspect_selection *s, bool readable, int at) {
    int first = at;
    for (int f = 0; f < s->files; f++)
        for (int i = 0; i < s->file[f]->count + s->file[f]->aliases; i++) {
            const ab_tensor_entry *entry = entry_at(s->file[f], i);
            const bool asked =
                i < s->file[f]->count ? wanted(request, entry->name) : named(request, entry->name);
            if (asked && (entry->element->format != NULL) == readable)
                s->pick[at++] = (ab_inspect_pick){s->file[f], entry};
        }
    return at - first;
}

/* Files without tensors are fine, but not those that hold something else. */
static ab_status check_notes(const ab_inspect_selection *s) {
    for (int f = 0; f < s->files; f++) {
        const ab_tensorfile *file = s->file[f];
        assert(file);
        if (file->count == 0 && file->note) return ab_fail(AB_INPUT, "%s: %s", file->path, file->note);
    }
    return AB_OK;
}

ab_status ab_inspect_select(const ab_inspect_request *request, ab_inspect_selection *selection) {
    ab_inspect_selection *s = selection;
    *s = (ab_inspect_selection){0};
    AB_TRY(open_files(request, s));
    AB_TRY(check_notes(s));
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
