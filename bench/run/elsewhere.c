/* Cells that run elsewhere (bench/sweep). */
#include "bench/run/state.h"

#include "bench/run/config/digest.h"
#include "bench/run/record.h"
#include "kernels/core/text.h"
#include "reports/record/json.h"

#include <string.h>

bool ab_run_is_done(const ab_run_work *work, int cell) {
    const ab_run_state *r = work->run;
    if (strcmp(ab_record_status(r->record.cell[cell]), "failed") == 0) return true;
    for (int round = 0; round < (ab_run_is_timed(r, cell) ? r->config.rounds : 1); round++)
        if (!ab_record_has_round(r->record.cell[cell], round)) return false;
    return true;
}

ab_status ab_run_take_machine(const ab_run_work *work, const char *name, cJSON *line, int *machine) {
    ab_run_state *r = work->run;
    bool added;
    if (strcmp(ab_json_text(line, "run", ""), ab_json_text(r->document, "run.id", "-")) != 0)
        return ab_fail(AB_INPUT, "%s: cells of another run", name);
    AB_TRY(ab_record_machine(r->document, name, line, machine, &added));
    return added ? ab_run_save(r) : AB_OK;
}

ab_status ab_run_take_line(const ab_run_work *work, cJSON *line, int machine, int *cell) {
    ab_run_state *r = work->run;
    if (!ab_journal_take(&r->record, line, cell)) return ab_fail(AB_INPUT, "a part's line is not sound");
    cJSON *taken = r->record.cell[*cell];
    cJSON_DeleteItemFromObjectCaseSensitive(taken, "machine");
    cJSON_AddNumberToObject(taken, "machine", machine);
    return ab_run_keep(r, *cell, true, NULL);
}

ab_status ab_run_give_up(const ab_run_work *work, int cell, const char *reason) {
    ab_run_state *r = work->run;
    ab_record_fail(r->record.cell[cell], reason);
    return ab_run_keep(r, cell, true, NULL);
}

/* Of the build and of what every cell is. */
void ab_run_identify(const ab_run_state *r, char identity[34]) {
    char build[17], cells[17];
    ab_digest digest = ab_digest_start();
    for (int i = 0; i < r->count; i++) digest = ab_digest_add(digest, r->cells[i].digest, 16);
    ab_text_exact(identity, 34, "%s:%s", ab_digest_text((ab_digest){ab_run_build_digest()}, build),
                  ab_digest_text(digest, cells));
}

ab_status ab_run_drive(ab_run_state *r, bool *later) {
    ab_run_work work = {.options = &r->options,
                        .config = &r->config,
                        .document = r->document,
                        .cells = r->count,
                        .words = r->worker_argv + AB_WORKER_ARGS,
                        .stop = &ab_run_stop_requested,
                        .run = r};
    ab_run_identify(r, work.identity);
    ab_status status = r->driver->cells(r->driven, &work, later);
    const ab_status saved = status == AB_OK ? AB_OK : ab_run_save(r);
    if (!ab_run_stop_requested) return status == AB_OK ? saved : status;
    return ab_fail(AB_INTERRUPTED, "interrupted; finish with: ampbench run --resume --out %s",
                   r->options.text[AB_OPTION_out]);
}
