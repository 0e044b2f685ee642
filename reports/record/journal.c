#define _POSIX_C_SOURCE 200809L /* fdatasync, getline */
#include "reports/record/journal.h"

#include "kernels/core/log.h"
#include "kernels/files/outfile.h"
#include "reports/record/json.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const set_keys[] = {"status", "reason", "deterministic"};
/* What a cell is: a line of another one is not taken. Lines of parts of a cell say the digest only. */
static const char *const identity_keys[] = {"config_digest", "id"};

static ab_status no_memory(void) { return ab_fail(AB_NO_MEMORY, "journal: out of memory"); }

static char *journal_of(const char *path) { return ab_sibling_path(path, "", ".journal"); }

/* ---- writing --------------------------------------------------------------------------------- */

static ab_status put_line(ab_journal *journal, const cJSON *line) {
    FILE *out = journal->out.stream;
    ab_json_print_line(line, out);
    if (fflush(out) == 0 && !ferror(out) && fdatasync(fileno(out)) == 0) return AB_OK;
    return ab_fail(AB_OUTPUT, "%s: cannot write: %s", journal->out.path, strerror(errno));
}

static cJSON *header_of(const cJSON *document) {
    cJSON *header = cJSON_CreateObject();
    cJSON_AddStringToObject(header, "schema", "ampbench-journal");
    cJSON_AddNumberToObject(header, "version", 1);
    cJSON_AddStringToObject(header, "run", ab_json_text(document, "run.id", ""));
    cJSON_AddNumberToObject(header, "elapsed_s", ab_json_number(document, "run.elapsed_s", (double)NAN));
    return header;
}

ab_status ab_journal_start(ab_journal *journal, const char *path, const cJSON *document) {
    ab_journal_end(journal, NULL);
    char *name = journal_of(path);
    if (!name) return no_memory();
    ab_status status = ab_outfile_replaces(path) ? ab_outfile_open(name, &journal->out) : AB_OK;
    free(name);
    if (status != AB_OK || !journal->out.stream) return status;
    cJSON *header = header_of(document);
    status = header ? put_line(journal, header) : no_memory();
    cJSON_Delete(header);
    if (status == AB_OK) status = ab_outfile_publish(&journal->out);
    return status == AB_OK ? AB_OK : ab_outfile_close(&journal->out, status);
}

static void add_references(cJSON *to, const cJSON *from, const char *const *key, size_t keys) {
    for (size_t i = 0; i < keys; i++) {
        cJSON *value = (cJSON *)(uintptr_t)ab_json_at(from, key[i]);
        if (value) cJSON_AddItemReferenceToObject(to, key[i], value);
    }
}

/* Borrows `cell` and `process`. */
static cJSON *line_of(int index, const cJSON *cell, bool whole, const cJSON *process, double elapsed_s) {
    cJSON *line = cJSON_CreateObject();
    cJSON_AddNumberToObject(line, "cell", index);
    cJSON_AddNumberToObject(line, "elapsed_s", elapsed_s);
    if (whole) {
        cJSON_AddItemReferenceToObject(line, "value", (cJSON *)(uintptr_t)cell);
        return line;
    }
    add_references(line, cell, identity_keys, 1);
    add_references(cJSON_AddObjectToObject(line, "set"), cell, set_keys, AB_COUNT_OF(set_keys));
    if (process) cJSON_AddItemReferenceToObject(line, "process", (cJSON *)(uintptr_t)process);
    return line;
}

ab_status ab_journal_add(ab_journal *journal, int index, const cJSON *cell, bool whole, const cJSON *process,
                         double elapsed_s) {
    if (!journal->out.stream) return AB_OK;
    cJSON *line = line_of(index, cell, whole, process, elapsed_s);
    ab_status status = line ? put_line(journal, line) : no_memory();
    cJSON_Delete(line);
    return status;
}

ab_status ab_journal_print(FILE *out, int index, const cJSON *cell, bool whole, const cJSON *process,
                           double elapsed_s) {
    cJSON *line = line_of(index, cell, whole, process, elapsed_s);
    if (!line) return no_memory();
    ab_json_print_line(line, out);
    cJSON_Delete(line);
    return fflush(out) == 0 && !ferror(out) ? AB_OK
                                            : ab_fail(AB_OUTPUT, "stdout: cannot write: %s", strerror(errno));
}

void ab_journal_end(ab_journal *journal, const char *path) {
    if (journal->out.stream && ab_outfile_close(&journal->out, AB_OK) != AB_OK)
        ab_warn("%s", ab_error_message());
    char *name = path ? journal_of(path) : NULL;
    if (name && ab_outfile_replaces(path)) unlink(name);
    free(name);
}

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct replay {
    cJSON *document;
    ab_journal_cells cells; /* cell: owned */
    int lines;
} replay;

/* A number of a line of the journal, NAN if it is missing. */
static double number_of(const cJSON *line, const char *key) {
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(line, key);
    return cJSON_IsNumber(value) ? value->valuedouble : (double)NAN;
}

/* Takes the member out of the line; NULL if it is missing. */
static cJSON *take(cJSON *line, const char *key) {
    return cJSON_DetachItemFromObjectCaseSensitive(line, key);
}

/* Whether what is said of a cell is of this one. Earlier versions did not say all of this. */
static bool is_of(const cJSON *cell, const cJSON *said) {
    for (size_t i = 0; i < AB_COUNT_OF(identity_keys); i++) {
        const char *own = ab_json_text(cell, identity_keys[i], NULL),
                   *other = ab_json_text(said, identity_keys[i], NULL);
        if (own && other && strcmp(own, other) != 0) return false;
    }
    return true;
}

/* Another machine's cell has no summary, which compares cells; until it is made anew the old one stays. */
static bool replay_whole(const ab_journal_cells *cells, int index, cJSON *value) {
    if (!cJSON_IsObject(value) || !is_of(cells->cell[index], value)) {
        cJSON_Delete(value);
        return false;
    }
    cJSON *summary = cJSON_HasObjectItem(value, "summary") ? NULL : take(cells->cell[index], "summary");
    if (summary) cJSON_AddItemToObject(value, "summary", summary);
    cJSON_ReplaceItemViaPointer(cells->list, cells->cell[index], value);
    cells->cell[index] = value;
    return true;
}

static bool replay_part(cJSON *cell, cJSON *line) {
    const bool own = is_of(cell, line);
    cJSON *set = take(line, "set"), *process = take(line, "process");
    cJSON *processes = cJSON_GetObjectItemCaseSensitive(cell, "processes");
    const bool sound = own && cJSON_IsObject(set) && (!process || cJSON_IsArray(processes));
    for (size_t i = 0; sound && i < AB_COUNT_OF(set_keys); i++) {
        cJSON *value = take(set, set_keys[i]);
        if (value) ab_json_put(cell, set_keys[i], value);
    }
    if (sound && process)
        cJSON_AddItemToArray(processes, process);
    else
        cJSON_Delete(process);
    cJSON_Delete(set);
    return sound;
}

bool ab_journal_take(const ab_journal_cells *cells, cJSON *line, int *index) {
    const double number = number_of(line, "cell");
    if (!(number >= 0 && number < cells->count) || number != floor(number)) return false;
    *index = (int)number;
    cJSON *value = take(line, "value");
    return value ? replay_whole(cells, *index, value) : replay_part(cells->cell[*index], line);
}

static bool replay_line(replay *r, cJSON *line) {
    int index;
    if (!ab_journal_take(&r->cells, line, &index)) return false;
    cJSON *run = cJSON_GetObjectItemCaseSensitive(r->document, "run"), *elapsed = take(line, "elapsed_s");
    if (run && cJSON_IsNumber(elapsed))
        ab_json_put(run, "elapsed_s", elapsed);
    else
        cJSON_Delete(elapsed);
    r->lines++;
    return true;
}

/* Reads the next line as JSON; NULL at the end, and *torn if there is something that is no whole line. */
static cJSON *next_line(FILE *in, char **text, size_t *room, bool *torn) {
    const ssize_t length = getline(text, room, in);
    *torn = length > 0;
    if (length <= 0 || (*text)[length - 1] != '\n') return NULL;
    cJSON *line = cJSON_ParseWithLength(*text, (size_t)length);
    *torn = line == NULL;
    return line;
}

static bool continues(const cJSON *header, const cJSON *document) {
    return strcmp(ab_json_text(header, "schema", ""), "ampbench-journal") == 0 &&
           number_of(header, "version") == 1 &&
           strcmp(ab_json_text(header, "run", ""), ab_json_text(document, "run.id", "-")) == 0 &&
           number_of(header, "elapsed_s") == ab_json_number(document, "run.elapsed_s", (double)NAN);
}

static ab_status list_cells(replay *r) {
    cJSON *cell;
    ab_journal_cells *cells = &r->cells;
    cells->list = cJSON_GetObjectItemCaseSensitive(r->document, "cells");
    cells->cell = calloc((size_t)cJSON_GetArraySize(cells->list) + 1, sizeof *cells->cell);
    if (!cells->cell) return no_memory();
    cJSON_ArrayForEach(cell, cells->list) cells->cell[cells->count++] = cell;
    return AB_OK;
}

static void replay_lines(FILE *in, const char *name, replay *r, ab_journal_found *found) {
    char *text = NULL;
    size_t room = 0;
    bool torn = false, sound = true;
    cJSON *line = next_line(in, &text, &room, &torn);
    *found = continues(line, r->document) ? AB_JOURNAL_REPLAYED : AB_JOURNAL_OTHER;
    cJSON_Delete(line);
    while (*found == AB_JOURNAL_REPLAYED && sound && (line = next_line(in, &text, &room, &torn))) {
        sound = replay_line(r, line);
        cJSON_Delete(line);
    }
    if (*found == AB_JOURNAL_REPLAYED && (!sound || (torn && fgetc(in) != EOF)))
        ab_warn("%s: damaged after %d records; the rest is not used", name, r->lines);
    free(text);
}

ab_status ab_journal_replay(const char *path, cJSON *document, ab_journal_found *found) {
    *found = AB_JOURNAL_NONE;
    char *name = journal_of(path);
    if (!name) return no_memory();
    FILE *in = fopen(name, "rb");
    replay r = {.document = document};
    ab_status status = in ? list_cells(&r) : AB_OK;
    if (in && status == AB_OK) replay_lines(in, name, &r, found);
    if (*found == AB_JOURNAL_REPLAYED && r.lines == 0) *found = AB_JOURNAL_NONE;
    if (in) fclose(in);
    free(r.cells.cell);
    free(name);
    return status;
}
