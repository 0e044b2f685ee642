#include "probes/lib/notes.h"

#include "kernels/core/text.h"
#include "probes/lib/journal.h"

#include <string.h>

ab_status ab_lib_note(ampprobe *p, const char *text) {
    for (int64_t i = 0; i < p->notes && i < AB_LIB_NOTES; i++)
        if (strcmp(p->note[i], text) == 0) return AB_OK;
    if (p->notes < AB_LIB_NOTES) {
        p->note[p->notes] = ab_text_new("%s", text);
        if (!p->note[p->notes]) return ab_fail(AB_NO_MEMORY, "out of memory for a note");
    }
    p->notes++;
    return ab_lib_journal_note(p, text);
}
