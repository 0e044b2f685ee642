/* A run's configuration: the options as typed, the checked values, and the cross product of cells. */
#ifndef AB_BENCH_RUN_CONFIG_H
#define AB_BENCH_RUN_CONFIG_H

#include "bench/reference/fp32_reference.h"
#include "bench/run/level_options.h"
#include "bench/train/cell/cell.h"

AB_BEGIN_DECLS

enum { AB_MAX_LIST = 32, AB_MAX_SCALES = 256 };

typedef struct ab_scale_choice {
    bool preset; /* use the level's own scale */
    char *text;  /* as typed; owned */
    ab_loss_scale scale;
} ab_scale_choice;

typedef struct ab_run_config {
    int levels, scales, halves;
    const ab_level *level[AB_MAX_LIST];
    ab_scale_choice *scale; /* [scales], at most AB_MAX_SCALES; owned */
    const ab_format *half[AB_MAX_LIST];
    ab_level_options own[AB_MAX_LIST]; /* of level[i]: what --levels, --set and --to say of it */
    ab_level_options unnamed;          /* their items that name no level */
    ab_net *net;                       /* owned */
    ab_data *data;                     /* owned; NULL for commands that do not train */
    const char *data_name, *init_file, *init_map;
    const char *resume_file;  /* pattern of checkpoints to resume from, or NULL */
    int64_t first_step;       /* steps done in those checkpoints; `steps` follow them */
    int64_t checkpoint_every; /* 0: never */
    const ab_device *device;
    const char *why_not_gpu;      /* with --device auto: why the CPU was chosen */
    int64_t batch, steps, epochs; /* epochs 0: --steps was given */
    const ab_optimizer *optimizer;
    ab_optimizer_config optim;
    ab_recipe recipe;
    bool ema_half;
    int clip_format;  /* of the norms of clipping: 0 that of the gradients, 1 fp32, 2 half */
    int state_format; /* of the optimizer state: 0 that of the weights, 1 fp32, 2 half */
    double min_loss_scale, max_loss_scale;
    int64_t scale_window;
    uint64_t seed; /* of the data and the order of cells; the first of `seeds` */
    int64_t seeds;
    ab_normalize normalize;
    ab_pixels pixels;
    bool shuffled, accumulate_half;
    ab_cpu_path path;
    bool no_graph, tf32;
    bool flush_denormal; /* training computes with subnormals as zeros */
    int threads;
    int64_t memory_limit; /* bytes; 0: none */
    int64_t rounds, eval_limit, cell_timeout_s, log_every;
    uint64_t probes;      /* bits as in probes/probe.h; 0: none */
    int64_t probe_every;  /* 0: never */
    double probe_budget;  /* largest share of the run time for probing; 0: no governor */
    bool profile;         /* every layer is timed, and the times are kept */
    int64_t shadow_every; /* 0: never */
    ab_reference_kind shadow;
    int floor_draws; /* perturbed baselines of each kind; 0: none */
} ab_run_config;

/* Checks everything that can be checked before training. On success the caller clears *config. With
 * `with_data`, opens the data set. */
AB_MUST_CHECK ab_status ab_run_config_create(const ab_options *options, bool with_data,
                                             ab_run_config *config);
/* The part that needs config->data, for callers that set the data themselves. */
AB_MUST_CHECK ab_status ab_run_config_steps(const ab_options *options, ab_run_config *config);
/* Starts the threads that train, and sets how this thread and they treat subnormals. */
AB_MUST_CHECK ab_status ab_run_config_start(const ab_run_config *config);
void ab_run_config_clear(ab_run_config *config);

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

/* The formats whose products the cells may compute, as ab_machine_limits_measure takes them. */
unsigned ab_run_product_formats(const ab_run_config *config);

AB_END_DECLS

#endif
