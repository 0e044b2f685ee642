/* A run's configuration: the checked values of its options. configure.h makes it, cells.h makes the cells of
 * it. */
#ifndef AB_BENCH_RUN_CONFIG_H
#define AB_BENCH_RUN_CONFIG_H

#include "bench/reference/fp32_reference.h"
#include "bench/run/config/level_options.h"
#include "bench/train/cell/cell.h"

AB_BEGIN_DECLS

enum { AB_MAX_LIST = 32, AB_MAX_SCALES = 256, AB_TIMED_STEPS_AUTO = -1, AB_EVAL_LIMIT_AUTO = -1 };

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
    int64_t timed_steps;  /* of rounds after the first; 0: all, AB_TIMED_STEPS_AUTO: timed_steps.h chooses */
    int64_t rounds, cell_timeout_s, log_every;
    int64_t eval_limit;   /* test samples; 0: all, AB_EVAL_LIMIT_AUTO: ab_run_eval_limit chooses */
    uint64_t probes;      /* bits as in probes/probe.h; 0: none */
    int64_t probe_every;  /* 0: never */
    double probe_budget;  /* largest share of the run time for probing; 0: no governor */
    bool profile;         /* every layer is timed, and the times are kept */
    int64_t shadow_every; /* 0: never */
    ab_reference_kind shadow;
    int floor_draws; /* perturbed baselines of each kind; 0: none */
} ab_run_config;

AB_END_DECLS

#endif
