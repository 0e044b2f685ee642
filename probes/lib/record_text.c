/* Documents from journals. */
#define _GNU_SOURCE
#include "probes/lib/record_text.h"

#include "kernels/core/text.h"
#include "probes/lib/document.h"
#include "probes/lib/handle.h"
#include "probes/lib/journal.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
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

ab_status ab_lib_record_recover(const char *path) {
    ampprobe *p = NULL;
    AB_TRY(ab_lock_check("probe", path));
    AB_TRY(load(path, &p));
    if (!p) return AB_OK;
    ab_status status = ab_lib_document_write(p);
    char *journal = ab_text_new("%s.steps", path);
    if (status == AB_OK && journal) unlink(journal);
    free(journal);
    ab_lib_free(p);
    return status;
}
