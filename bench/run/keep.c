/* Keeps what ended: the document and its journal. */
#include "bench/run/state.h"

#include "bench/run/record.h"
#include "bench/timer/timer.h"
#include "reports/record/result.h"

#include <string.h>

static double elapsed_s(const ab_run_state *r) { return (double)(ab_monotonic_ns() - r->started_ns) * 1e-9; }

/* Writes the document as of now and begins its journal. */
ab_status ab_run_save(ab_run_state *r) {
    const int64_t begun = ab_monotonic_ns();
    const char *path = r->options.text[AB_OPTION_out];
    ab_record_finish(r->document, false, 0, elapsed_s(r));
    AB_TRY(ab_result_summarise(r->document));
    AB_TRY(ab_result_write(r->document, path));
    AB_TRY(ab_journal_start(&r->journal, path, r->document));
    r->kept = 0;
    r->saved_ns = ab_monotonic_ns();
    r->saving_ns = r->saved_ns - begun;
    return AB_OK;
}

/* Writes the document for the last time: nothing is left for a journal. */
ab_status ab_run_save_finished(ab_run_state *r, ab_status outcome) {
    ab_record_finish(r->document, true, ab_status_exit(outcome), elapsed_s(r));
    AB_TRY(ab_result_summarise(r->document));
    AB_TRY(ab_result_write(r->document, r->options.text[AB_OPTION_out]));
    ab_journal_end(&r->journal, r->options.text[AB_OPTION_out]);
    return AB_OK;
}

/* The journal keeps every process; the document is written again when that takes at most 1 % of the time
 * since the last. So the time of a run grows with its cells, and small documents are never old. */
ab_status ab_run_keep(ab_run_state *r, int index, bool whole, const cJSON *process) {
    enum { REWRITING_SHARE = 100 };
    if (r->part)
        return ab_journal_print(stdout, r->part[index], r->record.cell[index], whole, process, elapsed_s(r));
    AB_TRY(ab_journal_add(&r->journal, index, r->record.cell[index], whole, process, elapsed_s(r)));
    r->kept++;
    const bool due = ab_monotonic_ns() - r->saved_ns >= REWRITING_SHARE * r->saving_ns;
    return due || ab_run_stop_requested ? ab_run_save(r) : AB_OK;
}
