/* The journal of a run that has not ended: what has been recorded since its document was last written, one
 * line of JSON a process, synced. So a finished process costs what it adds and not what the document holds.
 *
 * The file is DOCUMENT.journal. Its first line names the version of the document that it continues by run.id
 * and run.elapsed_s, which is new in every version; ab_result_load reads document and journal as one. A torn
 * last line is that of a process that was being recorded at a kill. */
#ifndef AB_REPORTS_RECORD_JOURNAL_H
#define AB_REPORTS_RECORD_JOURNAL_H

#include "kernels/files/outfile.h"

#include <cjson/cJSON.h>

AB_BEGIN_DECLS

typedef struct ab_journal {
    ab_outfile out; /* not open: the document is no file that can be continued */
} ab_journal;

/* Begins the journal of `document`, which has just been written to `path`, in place of an earlier one.
 * Nothing is kept if `path` is standard output, a pipe or a device. */
AB_MUST_CHECK ab_status ab_journal_start(ab_journal *journal, const char *path, const cJSON *document);

/* Adds a line and syncs it. `whole`: `cell` replaces the cell at `index` of the document. Otherwise its keys
 * status, reason and deterministic are set, and `process`, if not NULL, becomes the last of its processes. */
AB_MUST_CHECK ab_status ab_journal_add(ab_journal *journal, int index, const cJSON *cell, bool whole,
                                       const cJSON *process, double elapsed_s);

/* Prints such a line to any stream and flushes it: what a process that runs cells for another one says. */
AB_MUST_CHECK ab_status ab_journal_print(FILE *out, int index, const cJSON *cell, bool whole,
                                         const cJSON *process, double elapsed_s);

/* The cells of a document by index. */
typedef struct ab_journal_cells {
    cJSON *list;  /* the array that holds them */
    cJSON **cell; /* [count] */
    int count;
} ab_journal_cells;

/* Adds one line to the cells and takes it apart; a replaced cell is replaced in cells->cell too. *index:
 * whose line it was. Returns false if the line is not sound, or if the cell of that number has another id or
 * config_digest than the line says. */
AB_MUST_CHECK bool ab_journal_take(const ab_journal_cells *cells, cJSON *line, int *index);

/* Closes the journal; `path` (of the document): also removes its file, since the document holds everything.
 */
void ab_journal_end(ab_journal *journal, const char *path);

/* What a journal had for a document. */
typedef enum ab_journal_found { AB_JOURNAL_NONE, AB_JOURNAL_OTHER, AB_JOURNAL_REPLAYED } ab_journal_found;

/* Adds to the document what its journal beside `path` holds. AB_JOURNAL_OTHER: the journal continues another
 * version of the document and was not used. */
AB_MUST_CHECK ab_status ab_journal_replay(const char *path, cJSON *document, ab_journal_found *found);

AB_END_DECLS

#endif
