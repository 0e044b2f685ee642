/* The cells of a run: every combination of its levels, scales, half formats and seeds, and the noise floors.
 */
#ifndef AB_BENCH_RUN_CELLS_H
#define AB_BENCH_RUN_CELLS_H

#include "bench/run/config/config.h"

AB_BEGIN_DECLS

/* One cell of the cross product. */
typedef struct ab_cell_spec {
    char *id;        /* for display: "lenet5/O2/dynamic/fp16/cpu/seed1", "lenet5/O0/1/fp16/cpu/seed1/ulp" or
                      * "/rounding"; the second part is policy.label; owned */
    int64_t place;   /* among all combinations, for ab_run_cell_at */
    char digest[17]; /* identity: ab_cell_digest of the resolved configuration */
    const ab_level *level;
    const ab_level_options *own; /* of its entry in --levels; borrowed */
    ab_policy policy;
    const ab_format *half;
    ab_perturbation perturbation; /* a perturbed baseline: O0 from moved weights */
    int draw;                     /* of several perturbed baselines of a kind, from 0 */
    uint64_t seed;
} ab_cell_spec;

/* All cells in the order of the table: for each half format, each level, each scale; then the noise floors. A
 * cell whose policy repeats an earlier one (default and an equal explicit scale) is left out. *cells is owned
 * by the caller (ab_run_cells_free). */
AB_MUST_CHECK ab_status ab_run_cells(const ab_run_config *config, ab_cell_spec **cells, int *count);
/* Writes which options of dynamic loss scales are given though no cell has one; "" if none is. */
void ab_run_unused_scaling(const ab_options *options, const ab_cell_spec *cells, int count, char *text,
                           size_t size);
/* The one cell at a place, in a time that does not grow with their number. The caller frees cell->id.
 * AB_INTERNAL if it has another id. */
AB_MUST_CHECK ab_status ab_run_cell_at(const ab_run_config *config, int64_t place, const char *id,
                                       ab_cell_spec *cell);
void ab_run_cells_free(ab_cell_spec *cells, int count); /* NULL is a no-op */

/* Writes 16 hex digits into digest[17]: a digest of everything that changes what the cell computes, after
 * defaults, overrides and options were resolved: network, policy, loss scaler, optimizer, recipe, data,
 * batch, steps, seed, formats, device. Two spellings of one configuration have one digest; threads, probes,
 * rounds and output paths are not included. The digests of one build are comparable; a later build may
 * resolve more. */
AB_MUST_CHECK ab_status ab_cell_digest(const ab_run_config *config, const ab_cell_spec *cell,
                                       char digest[17]);

/* Writes `pattern` with %c replaced by the cell's id, slashes turned into dashes, into path[size]. AB_USAGE
 * if that is too long; `option` is named in the error. */
AB_MUST_CHECK ab_status ab_cell_file(const char *option, const char *pattern, const char *id, char *path,
                                     size_t size);

/* Resumes from the cell's checkpoint if the configuration names one. */
AB_MUST_CHECK ab_status ab_cell_continue(const ab_run_config *config, const ab_cell_spec *spec,
                                         ab_cell *cell);

/* The settings for ab_cell_create. */
ab_cell_config ab_cell_config_of(const ab_run_config *config, const ab_cell_spec *spec);

AB_END_DECLS

#endif
