/* What a run checks and makes before its first process. */
#include "bench/run/state.h"

#include "bench/memory/limits.h"
#include "bench/run/config/configure.h"
#include "bench/run/config/digest.h"
#include "bench/run/environment.h"
#include "bench/run/record.h"
#include "bench/run/shared_data.h"
#include "build_info.h"
#include "kernels/core/text_path.h"

#include <stdlib.h>
#include <string.h>

/* Checks every file that `option` would write or read. */
static ab_status check_files(const ab_run_state *r, const char *option, const char *pattern, bool written) {
    char path[4096];
    if (r->count > 1 && !strstr(pattern, "%c"))
        return ab_fail(AB_USAGE, "%s: %d cells would %s the same file; put %%c (the cell's id) into '%s'",
                       option, r->count, written ? "write" : "go on from", pattern);
    for (int i = 0; i < r->count; i++) {
        AB_TRY(ab_cell_file(option, pattern, r->cells[i].id, path, sizeof path));
        if (written) AB_TRY(ab_output_check_writable(option, path));
    }
    return AB_OK;
}

/* Each cell is compared with all that is left: those that do not fit side by side run one after the other. */
ab_status ab_run_check_plans(const ab_run_state *r) {
    const bool check = !r->options.given[AB_OPTION_no_memory_check] && !r->driver;
    ab_memory_limit limit;
    ab_memory_limit_of("", r->config.device, &limit);
    for (int i = 0; i < r->count; i++) {
        ab_plan *plan;
        const ab_cell_config settings = ab_cell_config_of(&r->config, &r->cells[i]);
        AB_TRY(ab_cell_compile(&settings, &plan));
        ab_status status = check ? ab_memory_check(&limit, &settings, plan, r->cells[i].id) : AB_OK;
        ab_plan_destroy(plan);
        AB_TRY(status);
    }
    return AB_OK;
}

/* Checks what would otherwise only fail in a worker: plans of all cells, shapes of initial weights. */
static ab_status dry_run(const ab_run_state *r) {
    AB_TRY(ab_run_check_plans(r));
    const char *resumed = r->config.resume_file;
    if (resumed) AB_TRY(check_files(r, "--resume-from", resumed, false));
    for (int i = 0; i < (resumed ? r->count : r->config.init_file ? 1 : 0); i++) {
        ab_cell *cell;
        ab_cell_config settings = ab_cell_config_of(&r->config, &r->cells[i]);
        AB_TRY(ab_cell_create(&settings, &cell));
        ab_status status = ab_cell_continue(&r->config, &r->cells[i], cell);
        ab_cell_destroy(cell);
        if (status != AB_OK) return status;
    }
    return AB_OK;
}

static ab_status check_outputs(ab_run_state *r) {
    const char *json = r->options.text[AB_OPTION_json], *weights = r->options.text[AB_OPTION_save_weights];
    const char *color = r->options.text[AB_OPTION_color];
    if (json && strcmp(json, "-") != 0)
        return ab_fail(AB_USAGE, "--json: expected -, found '%s'; --out FILE names a file", json);
    if (strcmp(color, "auto") != 0 && strcmp(color, "always") != 0 && strcmp(color, "never") != 0)
        return ab_fail(AB_USAGE, "--color: expected auto, always or never, found '%s'", color);
    /* first: it makes the folder that the weights may go to */
    AB_TRY(ab_output_prepare(&r->options, &r->locks));
    if (weights) {
        AB_TRY(check_files(r, "--save-weights", weights, true));
        AB_TRY(ab_output_lock("--save-weights", weights, &r->locks.weights));
    }
    const char *gradients = r->options.text[AB_OPTION_save_gradients];
    if (gradients) AB_TRY(check_files(r, "--save-gradients", gradients, true));
    if (!r->checkpoints[0]) return AB_OK;
    AB_TRY(check_files(r, "--checkpoint", r->checkpoints, true));
    return ab_output_lock("--checkpoint", r->checkpoints, &r->locks.checkpoints);
}

/* "ampbench worker <task> <configuration options>". Words of the task are set by set_task. */
ab_status ab_run_build_words(ab_run_state *r) {
    enum { FILES = 3 }; /* an option and a path each */
    const size_t most = AB_WORKER_ARGS + AB_OPTIONS_WORDS + 2 * FILES + 1;
    r->worker_argv = calloc(most, sizeof *r->worker_argv);
    if (!r->worker_argv) return ab_fail(AB_NO_MEMORY, "run: out of memory");
    r->words = AB_WORKER_ARGS + ab_options_words(&r->options, r->worker_argv + AB_WORKER_ARGS);
    return AB_OK;
}

/* Checkpoints are written to the document's folder unless --checkpoint names a path. */
static ab_status place_checkpoints(ab_run_state *r) {
    const char *given = r->options.text[AB_OPTION_checkpoint], *out = r->options.text[AB_OPTION_out];
    const char *slash = strrchr(out, '/');
    if (given && r->config.checkpoint_every == 0)
        return ab_fail(AB_USAGE, "--checkpoint: say how often with --checkpoint-every N");
    if (r->config.checkpoint_every > 0)
        AB_TRY(ab_text_path(given ? "--checkpoint" : "--out", r->checkpoints, sizeof r->checkpoints, "%.*s%s",
                            slash && !given ? (int)(slash + 1 - out) : 0, out,
                            given ? given : "checkpoint-%c.safetensors"));
    const char *from = r->config.resume_file;
    if (from && strcmp(from, r->checkpoints) == 0)
        return ab_fail(
            AB_USAGE,
            "--checkpoint would overwrite the files that --resume-from %s reads; give it another name", from);
    return AB_OK;
}

/* Looking a cell up by its number in the document takes a walk through the cells before it. */
ab_status ab_run_list_cells(ab_run_state *r) {
    cJSON *cell;
    ab_journal_cells *record = &r->record;
    record->list = cJSON_GetObjectItem(r->document, "cells");
    record->cell = calloc((size_t)r->count + 1, sizeof *record->cell);
    if (!record->cell) return ab_fail(AB_NO_MEMORY, "run: out of memory");
    cJSON_ArrayForEach(cell, record->list) {
        if (record->count < r->count) record->cell[record->count++] = cell;
    }
    return AB_OK;
}

uint64_t ab_run_build_digest(void) {
    static const char text[] = AB_VERSION " " AB_GIT_SHA " " AB_FLAGS;
    return ab_digest_add(ab_digest_start(), text, sizeof text).state;
}

/* What the others must share with rank 0: the build, and the options of the configuration. */
ab_status ab_run_compare_ranks(ab_run_state *r) {
    ab_digest options = ab_digest_start();
    for (int i = AB_WORKER_ARGS; r->worker_argv[i]; i++)
        options = ab_digest_add(options, r->worker_argv[i], strlen(r->worker_argv[i]) + 1);
    return ab_group_compare(&r->group, &(ab_group_identity){options.state, ab_run_build_digest()});
}

ab_status ab_run_prepare(ab_run_state *r, int argc, char *const *argv) {
    AB_TRY(ab_run_config_create(&r->options, true, &r->config));
    AB_TRY(place_checkpoints(r));
    AB_TRY(ab_run_cells(&r->config, &r->cells, &r->count));
    AB_TRY(dry_run(r));
    AB_TRY(check_outputs(r));
    AB_TRY(ab_run_draw_order(r));
    ab_environment_prepare_workers();
    AB_TRY(ab_run_build_words(r));
    AB_TRY(ab_run_compare_ranks(r));
    AB_TRY(ab_shared_data_create(r->config.data, &r->data_fd));
    if (r->document)
        AB_TRY(ab_resume_check(r->document, &r->config, &r->options, r->cells, r->count));
    else
        AB_TRY(ab_record_create(&r->config, &r->options, argc, argv, r->cells, r->count, r->order,
                                &r->document));
    return ab_run_list_cells(r);
}
