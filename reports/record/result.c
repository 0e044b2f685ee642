/* Reading, checking and writing result documents. */
#include "reports/record/result.h"

#include "kernels/core/mem.h"
#include "kernels/core/text.h"
#include "kernels/files/outfile.h"
#include "reports/record/cells.h"
#include "reports/record/journal.h"
#include "reports/record/json.h"
#include "reports/record/observed.h"
#include "reports/record/schema.h"
#include "reports/record/text.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 16 };

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct bytes {
    char *data;
    size_t length, room;
} bytes;

static ab_status grow(bytes *text, const char *path) {
    if (text->room - text->length >= CHUNK) return AB_OK;
    size_t room = 2 * text->room + CHUNK;
    char *data = realloc(text->data, room);
    if (!data) return ab_fail(AB_NO_MEMORY, "%s: out of memory while reading", path);
    text->data = data;
    text->room = room;
    return AB_OK;
}

static ab_status read_all(const char *path, bytes *text) {
    ab_status status = AB_OK;
    FILE *file = fopen(path, "rb");
    if (!file) return ab_fail(AB_INPUT, "%s: cannot open: %s", path, strerror(errno));
    do {
        AB_TRY_GOTO(grow(text, path));
        text->length += fread(text->data + text->length, 1, CHUNK, file);
        if (ferror(file)) {
            status = ab_fail(AB_INPUT, "%s: cannot read: %s", path, strerror(errno));
            goto out;
        }
    } while (!feof(file));
out:
    fclose(file);
    return status;
}

static int line_of(const bytes *text, const char *at) {
    int line = 1;
    for (const char *c = text->data; c && c < at; c++) line += *c == '\n';
    return line;
}

static bool is_blank(const char *at, const char *end) {
    while (at < end && strchr(" \t\r\n", *at) && *at) at++;
    return at == end;
}

static ab_status parse(const char *path, const bytes *text, cJSON **document) {
    const char *end = text->data;
    cJSON *tree = cJSON_ParseWithLengthOpts(text->data, text->length, &end, 0);
    if (tree && is_blank(end, text->data + text->length)) {
        *document = tree;
        return AB_OK;
    }
    const char *what = tree ? "text after the end of the document" : "not JSON, or cut short";
    cJSON_Delete(tree);
    return ab_fail(AB_INPUT, "%s: line %d: %s", path, line_of(text, end), what);
}

ab_status ab_json_load(const char *path, cJSON **document) {
    bytes text = {NULL, 0, 0};
    ab_status status = read_all(path, &text);
    if (status == AB_OK) status = parse(path, &text, document);
    free(text.data);
    return status;
}

/* Reads the document and what its run has recorded since. */
static ab_status load_with_journal(const char *path, cJSON **tree) {
    ab_journal_found found = AB_JOURNAL_OTHER;
    ab_status status = AB_OK;
    for (int i = 0; i < 2 && found == AB_JOURNAL_OTHER && status == AB_OK; i++) {
        cJSON_Delete(*tree); /* a journal of another version: the document may just have been replaced */
        *tree = NULL;
        AB_TRY(ab_json_load(path, tree));
        status = ab_journal_replay(path, *tree, &found);
    }
    if (status == AB_OK) status = ab_observed_continue(path, tree);
    if (status == AB_OK) status = ab_observed_expand(*tree);
    const bool placed = status == AB_OK && ab_observed_place_origins(*tree);
    if (status == AB_OK) status = ab_result_check(*tree, path);
    if (status != AB_OK && placed) { /* what a caller of libampprobe says is not checked when written */
        ab_observed_remove_origins(*tree);
        status = ab_result_check(*tree, path);
    }
    if (status == AB_OK && ab_observed_document(*tree)) return ab_result_summarise(*tree);
    if (status != AB_OK || found != AB_JOURNAL_REPLAYED) return status;
    cJSON *determinism = cJSON_GetObjectItemCaseSensitive(*tree, "determinism");
    cJSON_ReplaceItemInObjectCaseSensitive(determinism, "all_cells_deterministic",
                                           ab_cells_deterministic(*tree));
    return ab_result_summarise(*tree);
}

ab_status ab_result_load(const char *path, cJSON **document) {
    cJSON *tree = NULL;
    ab_status status = load_with_journal(path, &tree);
    if (status == AB_OK)
        *document = tree;
    else
        cJSON_Delete(tree);
    return status;
}

/* ---- writing --------------------------------------------------------------------------------- */

ab_status ab_result_write(const cJSON *document, const char *path) {
    ab_outfile out;
    AB_TRY(ab_outfile_open(path, &out));
    ab_json_print(document, out.stream);
    return ab_outfile_close(&out, AB_OK);
}

/* Checks result documents. The shape is validated against the schema itself, so schema and program cannot
 * disagree; this file checks what a schema cannot express. */

enum { NAME_TEXT = 96 };

/* ---- document kind --------------------------------------------------------------------------- */

static ab_status check_identity(const cJSON *document, const char *origin) {
    char found[NAME_TEXT];
    const char *name = ab_json_text(document, "schema", NULL);
    const char *version = ab_json_text(document, "schema_version", NULL);
    if (!name || !version)
        return ab_fail(AB_INPUT, "%s: not a result document: no \"schema\" and \"schema_version\" in it",
                       origin);
    if (strcmp(name, "ampbench-result") != 0)
        return ab_fail(AB_NOT_COMPARABLE, "%s: schema: expected \"ampbench-result\", found \"%s\"", origin,
                       ab_text_clean(found, sizeof found, name));
    if (strncmp(version, "1.", 2) != 0)
        return ab_fail(AB_NOT_COMPARABLE, "%s: schema_version: this program reads 1.x, found \"%s\"", origin,
                       ab_text_clean(found, sizeof found, version));
    return AB_OK;
}

ab_status ab_result_check_shape(const cJSON *document, const char *origin) {
    cJSON *schema = NULL;
    ab_status status;
    AB_TRY_GOTO(check_identity(document, origin));
    AB_TRY_GOTO(ab_schema_result(&schema));
    AB_TRY_GOTO(ab_schema_check(schema, document, false, origin));
out:
    cJSON_Delete(schema);
    return status;
}

/* ---- consistency of values ------------------------------------------------------------------- */

/* Location in the document, for messages. */
typedef struct location {
    const char *origin;
    int cell, tensor; /* tensor -1: the cell itself */
    const char *list; /* of the tensor, in the cell: "probes.tensors" */
} location;

static ab_status unequal(const location *at, const char *what, double found, const char *as,
                         double expected) {
    char tensor[64] = "";
    if (at->tensor >= 0) ab_text_show(tensor, sizeof tensor, ".%s[%d]", at->list, at->tensor);
    return ab_fail(AB_INPUT, "%s: cells[%d]%s: %s is %.17g, but %s is %.17g", at->origin, at->cell, tensor,
                   what, found, as, expected);
}

static ab_status check_equal(const location *at, const char *what, double found, const char *as,
                             double expected) {
    return found == expected ? AB_OK : unequal(at, what, found, as, expected);
}

static double sum_of(const cJSON *array) {
    double sum = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, array) sum += item->valuedouble;
    return sum;
}

static double null_count(const cJSON *array) {
    double count = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, array) count += cJSON_IsNull(item);
    return count;
}

static ab_status check_memory(const location *at, const cJSON *memory) {
    double sum = 0;
    if (!memory) return AB_OK;
    for (int i = 0; i < AB_MEM_CATEGORY_COUNT; i++)
        sum += ab_json_number(memory, ab_mem_category_name((ab_mem_category)i), 0);
    return check_equal(at, "memory_bytes.total", ab_json_number(memory, "total", 0),
                       "the sum of the categories", sum);
}

static ab_status check_scale(const location *at, const cJSON *cell, double steps) {
    double sum = 0;
    const cJSON *run, *runs = ab_json_at(cell, "scale");
    if (!runs) return AB_OK;
    cJSON_ArrayForEach(run, runs) sum += run->child->next->valuedouble;
    return check_equal(at, "the sum of the run lengths in scale", sum, "the number of losses", steps);
}

static ab_status check_own_scales(const location *at, const cJSON *cell, double steps) {
    const cJSON *scaler, *scalers = ab_json_at(cell, "loss_scales");
    cJSON_ArrayForEach(scaler, scalers) AB_TRY(check_scale(at, scaler, steps));
    cJSON_ArrayForEach(scaler, ab_json_at(cell, "layer_scales")) AB_TRY(check_scale(at, scaler, steps));
    return AB_OK;
}

static ab_status check_skips(const location *at, const cJSON *cell, double steps) {
    const cJSON *skip, *skips = ab_json_at(cell, "skipped_steps");
    double last = -1;
    if (!skips) return AB_OK;
    cJSON_ArrayForEach(skip, skips) {
        if (skip->valuedouble <= last || skip->valuedouble >= steps)
            return unequal(at, "a number in skipped_steps", skip->valuedouble,
                           "the one before it (they must rise and stay below the number of losses)", last);
        last = skip->valuedouble;
    }
    if (ab_json_is_true(cell, "skipped_steps_truncated")) return AB_OK;
    return check_equal(at, "the length of skipped_steps", cJSON_GetArraySize(skips), "steps_skipped",
                       ab_json_number(cell, "steps_skipped", cJSON_GetArraySize(skips)));
}

static ab_status check_tensor(const location *at, const cJSON *tensor) {
    static const char *const columns[] = {"steps.nonzero", "steps.flushed", "steps.overflowed"};
    static const char *const totals[] = {"nonzero", "flushed", "overflowed"};
    double nonzero = ab_json_number(tensor, "nonzero", 0), length = ab_json_number(tensor, "steps.count", 0);
    double parts = ab_json_number(tensor, "flushed", 0) + ab_json_number(tensor, "subnormal", 0) +
                   ab_json_number(tensor, "normal", 0) + ab_json_number(tensor, "overflowed", 0);
    double all = nonzero + ab_json_number(tensor, "zero", 0) + ab_json_number(tensor, "nan", 0) +
                 ab_json_number(tensor, "inf", 0);
    AB_TRY(check_equal(at, "flushed + subnormal + normal + overflowed", parts, "nonzero", nonzero));
    AB_TRY(check_equal(at, "zero + nan + inf + nonzero", all, "count", ab_json_number(tensor, "count", 0)));
    AB_TRY(check_equal(at, "the sum of exponents.counts", sum_of(ab_json_at(tensor, "exponents.counts")),
                       "nonzero", nonzero));
    for (size_t i = 0; i < AB_COUNT_OF(columns); i++) {
        const cJSON *column = ab_json_at(tensor, columns[i]);
        AB_TRY(check_equal(at, columns[i], cJSON_GetArraySize(column), "steps.count", length));
        AB_TRY(check_equal(at, columns[i], sum_of(column), totals[i], ab_json_number(tensor, totals[i], 0)));
    }
    return AB_OK;
}

/* Checks a parameter of the lost-update ledger. */
static ab_status check_ledger(const location *at, const cJSON *param) {
    double nonzero = ab_json_number(param, "update.nonzero", 0),
           lost = ab_json_number(param, "update.lost", 0);
    double length = ab_json_number(param, "steps.count", 0);
    const cJSON *all = ab_json_at(param, "steps.nonzero"), *gone = ab_json_at(param, "steps.lost");
    AB_TRY(check_equal(at, "steps.nonzero", cJSON_GetArraySize(all), "steps.count", length));
    AB_TRY(check_equal(at, "steps.lost", cJSON_GetArraySize(gone), "steps.count", length));
    AB_TRY(check_equal(at, "the sum of steps.nonzero", sum_of(all), "update.nonzero", nonzero));
    AB_TRY(check_equal(at, "the sum of steps.lost", sum_of(gone), "update.lost", lost));
    return lost <= nonzero ? AB_OK : unequal(at, "update.lost", lost, "update.nonzero", nonzero);
}

static ab_status check_subnormals(const location *at, const cJSON *counts) {
    static const char *const columns[] = {"steps.values", "steps.subnormal"};
    static const char *const totals[] = {"values", "subnormal"};
    const double length = ab_json_number(counts, "steps.count", 0);
    for (size_t i = 0; i < AB_COUNT_OF(columns) && counts; i++) {
        const cJSON *column = ab_json_at(counts, columns[i]);
        AB_TRY(check_equal(at, columns[i], cJSON_GetArraySize(column), "steps.count", length));
        AB_TRY(check_equal(at, columns[i], sum_of(column), totals[i], ab_json_number(counts, totals[i], 0)));
    }
    return AB_OK;
}

static ab_status check_list(const char *origin, int cell, const cJSON *holder, const char *list,
                            ab_status (*check)(const location *at, const cJSON *item)) {
    location at = {origin, cell, 0, list};
    const cJSON *item;
    cJSON_ArrayForEach(item, ab_json_at(holder, list)) {
        AB_TRY(check(&at, item));
        at.tensor++;
    }
    return AB_OK;
}

static ab_status check_probes(const char *origin, int index, const cJSON *cell) {
    static const char *const lists[] = {"probes.tensors", "probes.unscaled_gradients", "probes.activations",
                                        "probes.weights", "probes.optimizer_state"};
    for (size_t i = 0; i < AB_COUNT_OF(lists); i++)
        AB_TRY(check_list(origin, index, cell, lists[i], check_tensor));
    const location at = {origin, index, -1, NULL};
    AB_TRY(check_subnormals(&at, ab_json_at(cell, "probes.subnormals")));
    return check_list(origin, index, cell, "probes.lost_updates", check_ledger);
}

static ab_status check_steps(const location *at, const cJSON *cell) {
    const cJSON *losses = ab_json_at(cell, "loss");
    if (!losses) return AB_OK;
    double steps = cJSON_GetArraySize(losses), nulls = null_count(losses);
    double applied = ab_json_number(cell, "steps_applied", 0) + ab_json_number(cell, "steps_skipped", 0);
    AB_TRY(check_equal(at, "nonfinite_losses", ab_json_number(cell, "nonfinite_losses", nulls),
                       "the number of nulls in loss", nulls));
    AB_TRY(check_scale(at, cell, steps));
    AB_TRY(check_own_scales(at, cell, steps));
    AB_TRY(check_skips(at, cell, steps));
    if (strcmp(ab_json_text(cell, "status", ""), "ok") != 0) return AB_OK;
    AB_TRY(check_equal(at, "the number of losses", steps, "steps_total",
                       ab_json_number(cell, "steps_total", 0)));
    return check_equal(at, "steps_applied + steps_skipped", applied, "steps_total", steps);
}

static ab_status check_cells(const cJSON *cells, const char *origin) {
    location at = {origin, 0, -1, NULL};
    const cJSON *cell;
    cJSON_ArrayForEach(cell, cells) {
        AB_TRY(check_steps(&at, cell));
        AB_TRY(check_memory(&at, ab_json_at(cell, "memory_bytes")));
        AB_TRY(check_probes(origin, at.cell, cell));
        at.cell++;
    }
    return AB_OK;
}

static int compare_texts(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Checks that no two cells have the same value of the optional key `key`. */
static ab_status check_distinct(const cJSON *cells, const char *key, const char *what, const char *origin) {
    char clean[NAME_TEXT];
    const cJSON *cell;
    ab_status status = AB_OK;
    size_t count = 0;
    const char **texts = calloc((size_t)cJSON_GetArraySize(cells) + 1, sizeof *texts);
    if (!texts) return ab_fail(AB_NO_MEMORY, "%s: out of memory", origin);
    cJSON_ArrayForEach(cell, cells) {
        texts[count] = ab_json_text(cell, key, NULL);
        count += texts[count] != NULL;
    }
    qsort(texts, count, sizeof *texts, compare_texts);
    for (size_t i = 1; i < count && status == AB_OK; i++)
        if (strcmp(texts[i - 1], texts[i]) == 0)
            status = ab_fail(AB_INPUT, "%s: cells: two cells have the %s \"%s\"", origin, what,
                             ab_text_clean(clean, sizeof clean, texts[i]));
    free(texts);
    return status;
}

/* Ids and digests must be unique per cell. */
static ab_status check_ids(const cJSON *cells, const char *origin) {
    AB_TRY(check_distinct(cells, "id", "id", origin));
    return check_distinct(cells, "config_digest", "config_digest", origin);
}

static ab_status check_order(const cJSON *order, int cells, const char *origin) {
    const cJSON *round, *index;
    cJSON_ArrayForEach(round, order) {
        cJSON_ArrayForEach(index, round) {
            if (index->valuedouble >= cells)
                return ab_fail(
                    AB_INPUT,
                    "%s: design.order: expected indices below %d (the number of cells), found %.17g", origin,
                    cells, index->valuedouble);
        }
    }
    return AB_OK;
}

static ab_status check_machines(const cJSON *document, const char *origin) {
    const int count = cJSON_GetArraySize(ab_json_at(document, "machines"));
    const cJSON *cell;
    int i = 0;
    cJSON_ArrayForEach(cell, ab_json_at(document, "cells")) {
        const double machine = ab_json_number(cell, "machine", -1);
        if (machine >= count)
            return ab_fail(AB_INPUT, "%s: cells[%d].machine: expected a number below %d, found %g", origin, i,
                           count, machine);
        i++;
    }
    return AB_OK;
}

ab_status ab_result_check_sums(const cJSON *document, const char *origin) {
    const cJSON *cells = ab_json_at(document, "cells");
    AB_TRY(check_ids(cells, origin));
    AB_TRY(check_machines(document, origin));
    AB_TRY(check_order(ab_json_at(document, "design.order"), cJSON_GetArraySize(cells), origin));
    return check_cells(cells, origin);
}

ab_status ab_result_check(const cJSON *document, const char *origin) {
    AB_TRY(ab_result_check_shape(document, origin));
    return ab_result_check_sums(document, origin);
}
