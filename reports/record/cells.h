/* The cells of a document, found in a time that does not grow with their number: by index, by what they
 * train, and the O0 cell of each. Compares no measurements. */
#ifndef AB_REPORTS_CELLS_H
#define AB_REPORTS_CELLS_H

#include "kernels/core/status.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

AB_BEGIN_DECLS

/* What a cell is called where its level is meant: the level and what overrides changed of it
 * ("O3:keep_batchnorm_fp32=True"). Every report takes it from here. Borrowed; not cleaned. */
const char *ab_cell_label(const cJSON *cell);

/* Number of texts that this thread has compared so far to sort and to find cells; for tests of its growth. */
int64_t ab_cells_compared(void);

/* An O0 cell; texts are borrowed from the document. */
typedef struct ab_baseline {
    const cJSON *cell;
    const char *model, *device;
    double seed, run; /* run: of_run.index, where several are laid over each other */
    int index;        /* of the cell in the document */
} ab_baseline;

typedef struct ab_baselines {
    ab_baseline *list; /* [count], by model, device, seed, index; owned */
    int count;
} ab_baselines;

/* Whether a perturbed baseline is not the first of its kind: its loss is in the floor, and the table has no
 * row for it. */
bool ab_cell_further_draw(const cJSON *cell);

/* Threads of a cell that ran beside others, so that its times and its memory are not those of the run's
 * threads. 0: it had them to itself. */
int ab_cell_threads_beside(const cJSON *cell);

/* Lists the O0 cells; perturbed baselines are none. The document must outlive the list, unchanged but for
 * summaries. */
AB_MUST_CHECK ab_status ab_baselines_create(const cJSON *document, ab_baselines *baselines);
void ab_baselines_free(ab_baselines *baselines);

/* Index of the O0 cell with which `cell` is compared (ab_cells_baseline says which), or -1. */
int ab_baselines_find(const ab_baselines *baselines, const cJSON *cell);

/* A cell and a text by which it is found; `owned` is the text if this entry allocated it. */
typedef struct ab_cell_key {
    const char *text;
    char *owned;
    int index; /* of the cell in the document */
} ab_cell_key;

/* An index of a document. Every command that looks up cells in a loop makes one, once per document. */
typedef struct ab_cells {
    const cJSON *document;
    const cJSON **cell;                         /* [count], in the order of the document */
    ab_cell_key *by_digest, *by_id, *by_family; /* [count] each, by text, then by index */
    ab_baselines baselines;
    int count;
} ab_cells;

/* Indexes the cells of `document` (NULL: none), which must outlive the index with the same cells; summaries
 * and measurements may change. The caller frees `cells`, also after an error. AB_NO_MEMORY. */
AB_MUST_CHECK ab_status ab_cells_create(const cJSON *document, ab_cells *cells);
void ab_cells_free(ab_cells *cells);

/* Returns the cell that corresponds to `cell` (which may be from another document): the first one with the
 * same config_digest (a digest of the resolved configuration), else the first one with the same id. Documents
 * without digests have ids only; an id also survives changes to the run's configuration. NULL if there is
 * none. Borrowed from the document. */
const cJSON *ab_cells_like(const ab_cells *cells, const cJSON *cell);

/* Index of the first cell with this id, or -1. */
int ab_cells_place(const ab_cells *cells, const char *id);

/* The O0 cell that `cell` is compared with: same run, model, seed and device, and not a perturbed baseline.
 * Among several, one that overrides do not change is preferred, then one with the same half format is
 * preferred, then one with loss scale 1, then the first. NULL if there is none. Borrowed from the document.
 */
const cJSON *ab_cells_baseline(const ab_cells *cells, const cJSON *cell);

/* The cells that have all parts of the id of `cell` but its loss scale: calls `see` with each, in the order
 * of the document, until it returns false. */
void ab_cells_family(const ab_cells *cells, const cJSON *cell,
                     bool (*see)(void *context, const cJSON *member), void *context);

/* ab_cells_like for one look-up. NULL also if memory is short. */
const cJSON *ab_cell_like(const cJSON *document, const cJSON *cell);

/* Whether every cell with more than one process had the same losses in all of them: true, false, or null if
 * no cell has more than one. Owned by the caller. */
cJSON *ab_cells_deterministic(const cJSON *document);

/* Settings of a run (keys of a result's `config`) that two runs must share to be comparable. */

/* Returns true for all keys except: lists that generate cells (cells are matched one by one), the
 * measurement duration, and the scaler's constants, whose effect is judged in the losses and scales. */
bool ab_setting_counts(const char *key);

/* FNV-1a digest of all settings for which ab_setting_counts is true; independent of their order. Null,
 * false and empty values are left out, so that a setting added by a later version changes the digest only
 * where it is used. */
uint64_t ab_settings_digest(const cJSON *config);

/* Steps that the cell trained: as many as it has losses; where losses were not given (a probe in somebody
 * else's loop): steps_total. */
int ab_steps_of_cell(const cJSON *cell);

AB_END_DECLS

#endif
