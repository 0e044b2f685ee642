/* Documents from journals. */
#define _GNU_SOURCE
#include "probes/lib/record_text.h"

#include "kernels/core/text.h"
#include "probes/lib/document.h"
#include "probes/lib/handle.h"
#include "probes/lib/journal.h"
#include "probes/lib/json_read.h"
#include "probes/lib/latest.h"
#include "probes/lib/new.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static ab_status read_plain(const char *path, ampprobe *p, bool *found) {
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0),
             before = plain ? uselocale(plain) : (locale_t)0;
    const ab_status status = ab_lib_journal_read(path, p, found);
    if (plain) {
        uselocale(before);
        freelocale(plain);
    }
    return status;
}

/* A probe filled from the journal; NULL in *probe: there is none. */
static ab_status load(const char *path, ampprobe **probe) {
    bool found = false;
    ab_status status = ab_lib_new(path, probe);
    if (status == AB_OK) status = read_plain(path, *probe, &found);
    if (status == AB_OK && found) return AB_OK;
    ab_lib_free(*probe);
    *probe = NULL;
    return status;
}

ab_status ab_lib_record_text(const char *path, char **text) {
    ampprobe *p = NULL;
    size_t size = 0;
    *text = NULL;
    AB_TRY(load(path, &p));
    if (!p) return AB_OK;
    FILE *memory = open_memstream(text, &size);
    if (memory) ab_lib_document_print(p, memory);
    const bool good = memory && !ferror(memory);
    ab_lib_free(p);
    if (memory && fclose(memory) == 0 && good) return AB_OK;
    free(*text);
    *text = NULL;
    return ab_fail(AB_NO_MEMORY, "%s: out of memory", path);
}

/* A member of an object; kind 0: none. */
static ab_lib_json member(const ab_lib_json *object, const char *name) {
    const char *at = NULL;
    ab_lib_json key, value;
    while (object->kind == '{' && ab_lib_json_next(object, &at, &key, &value))
        if (ab_lib_json_is(&key, name)) return value;
    return (ab_lib_json){NULL, 0, 0};
}

/* Of the document's text: whether its run is `id`, and whether that ended well. */
static ab_status read_run(const char *text, const char *id, bool *same, bool *complete) {
    ab_lib_json document;
    AB_TRY(ab_lib_json_check(text, &document));
    const ab_lib_json run = member(&document, "run"), own = member(&run, "id");
    char *name = own.kind == '"' ? ab_lib_json_text(&own) : NULL;
    *same = name && strcmp(name, id) == 0;
    *complete = member(&run, "complete").kind == 't';
    free(name);
    return AB_OK;
}

/* A journal is joined to the document of its own run only. *needed is false if that document is complete. */
static ab_status check_document(const char *path, const char *id, bool *needed) {
    char *text = NULL;
    size_t room = 0;
    bool same = true, complete = false;
    *needed = true;
    FILE *file = fopen(path, "r");
    if (!file) return AB_OK; /* killed before the first document */
    const ssize_t length = getdelim(&text, &room, '\0', file);
    fclose(file);
    const ab_status status = length > 0 ? read_run(text, id, &same, &complete) : AB_OK;
    free(text);
    AB_TRY(status);
    if (!same)
        return ab_fail(AB_INPUT, "%s: %s.steps is the journal of another run; move it away", path, path);
    *needed = !complete;
    return AB_OK;
}

ab_status ab_lib_record_recover(const char *path) {
    ampprobe *p = NULL;
    bool needed = true;
    AB_TRY(ab_lock_check("probe", path));
    AB_TRY(load(path, &p));
    if (!p) return AB_OK;
    ab_status status = check_document(path, p->id, &needed);
    if (status == AB_OK && needed) status = ab_lib_document_write(p);
    char *journal = ab_text_new("%s.steps", path);
    if (status == AB_OK && journal) unlink(journal);
    if (status == AB_OK) ab_lib_latest_end(path);
    free(journal);
    ab_lib_free(p);
    return status;
}
