/* Early warnings for Adam. Loss spikes are often preceded by a second moment v that is too small for the
 * current gradients: RMS = sqrt(mean(g^2 / v^)) of a parameter is about 1 if v follows the gradients, and
 * large if it lags (Wortsman et al., arXiv 2304.13013; v^ is v / (1 - beta2^t), the gradient of this step
 * included).
 *
 * Also: elements whose stored v did not change although the formula changes it (v is stale: its format has
 * too little precision for beta2), v^ below eps^2 (eps dominates the step), v^ = 0 with a non-zero gradient,
 * and the values of eps and the betas in a half format. RMSprop's average of squares is used as v^ without
 * bias correction. Reports nothing for optimizers without a second moment. */
#include "probes/columns.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The value above which spikes followed in the same paper. */
static const double rms_limit = 2.3;

/* Sums over one block, one run of blocks, one step, or all steps. */
typedef struct signs {
    int64_t n;
    ab_moment_account moment;
} signs;

typedef struct history {
    signs total;
    double rms, rms_max; /* last, largest */
    int64_t rms_max_step, over_limit;
    float rms_column[AB_COLUMNS];
    int64_t first_block;
} history;

typedef struct adam_warning {
    ab_probe_setup setup;
    history *param;
    signs *block;   /* of the current step, reduced in order */
    signs *counted; /* [params], of the current step, where the device counted */
    ab_columns columns;
} adam_warning;

static void destroy(void *state) {
    adam_warning *a = state;
    if (!a) return;
    free(a->param);
    free(a->block);
    free(a->counted);
    free(a);
}

static bool applies(const adam_warning *a) { return a->setup.optimizer.second_moment >= 0; }

static int64_t block_count(const ab_probe_param *param) {
    return (param->count + AB_UPDATE_BLOCK - 1) / AB_UPDATE_BLOCK;
}

static ab_status create(const ab_probe_setup *setup, void **state) {
    adam_warning *a = calloc(1, sizeof *a);
    if (!a) return ab_fail(AB_NO_MEMORY, "probe adam_warning: out of memory");
    size_t blocks = 0;
    a->setup = *setup;
    a->columns.every = setup->every;
    if (!applies(a)) a->setup.params = 0;
    a->param = calloc((size_t)a->setup.params + 1, sizeof *a->param);
    for (int p = 0; p < a->setup.params && a->param; p++) {
        a->param[p].first_block = (int64_t)blocks;
        blocks += (size_t)block_count(&setup->param[p]);
    }
    a->block = calloc(blocks + 1, sizeof *a->block);
    a->counted = calloc((size_t)a->setup.params + 1, sizeof *a->counted);
    if (!a->param || !a->block || !a->counted) {
        destroy(a);
        return ab_fail(AB_NO_MEMORY, "probe adam_warning: out of memory for %d parameters", setup->params);
    }
    *state = a;
    return AB_OK;
}

/* ---- one block ------------------------------------------------------------------------------- */

static void update(void *state, const ab_update_block *block) {
    adam_warning *a = state;
    if (!applies(a)) return;
    const ab_probe_optimizer *optimizer = &a->setup.optimizer;
    int second = optimizer->second_moment;
    const float *old = block->state_before[second], *v = block->state_after[second],
                *kept = block->state_stored[second];
    double correction = 1 - pow(optimizer->beta2, (double)block->taken),
           eps2 = optimizer->eps * optimizer->eps;
    signs sums = {.n = block->n};
    for (int64_t i = 0; i < block->n; i++) {
        double g = (double)block->grad[i] + optimizer->weight_decay * (double)block->before[i];
        double v_hat = (double)v[i] / correction;
        sums.moment.stale += ab_moment_is_stale(optimizer->beta2, (double)old[i], g, (double)kept[i]);
        sums.moment.zero += v_hat == 0 && g != 0;
        sums.moment.below_eps += v_hat > 0 && v_hat < eps2;
        if (!(v_hat > 0) || !(g - g == 0)) continue;
        sums.moment.ratio += g * g / v_hat;
        sums.moment.ratios++;
    }
    a->block[a->param[block->param].first_block + block->first / AB_UPDATE_BLOCK] = sums;
}

/* ---- a step ---------------------------------------------------------------------------------- */

static void add_signs(signs *into, const signs *from) {
    into->n += from->n;
    into->moment.stale += from->moment.stale;
    into->moment.below_eps += from->moment.below_eps;
    into->moment.zero += from->moment.zero;
    into->moment.ratio += from->moment.ratio;
    into->moment.ratios += from->moment.ratios;
}

/* Sums of runs of blocks, in order. */
static signs reduce_blocks(adam_warning *a, int p) {
    signs step = a->counted[p], run = {0};
    const int64_t blocks = block_count(&a->setup.param[p]);
    a->counted[p] = (signs){0};
    for (int64_t b = 0; b < blocks; b++) {
        signs *sums = &a->block[a->param[p].first_block + b];
        add_signs(&run, sums);
        *sums = (signs){0};
        if ((b + 1) % AB_UPDATE_RUN != 0 && b + 1 < blocks) continue;
        add_signs(&step, &run);
        run = (signs){0};
    }
    return step;
}

static void counted(void *state, int param, const ab_update_counts *counts) {
    adam_warning *a = state;
    if (!applies(a)) return;
    signs step = {.n = counts->count};
    for (int64_t r = 0; r < counts->runs; r++) add_signs(&step, &(signs){.moment = counts->run[r].moment});
    a->counted[param] = step;
}

static void add_rms(history *param, double rms, int64_t step, int column) {
    param->rms = rms;
    param->over_limit += rms > rms_limit;
    param->rms_column[column] = fmaxf(param->rms_column[column], (float)rms);
    if (rms <= param->rms_max) return;
    param->rms_max = rms;
    param->rms_max_step = step;
}

static void step_end(void *state, int64_t step) {
    adam_warning *a = state;
    int halvings, column = ab_columns_at(&a->columns, step, &halvings);
    for (int p = 0; p < a->setup.params; p++) {
        history *param = &a->param[p];
        ab_columns_halve_max(param->rms_column, halvings);
        signs sums = reduce_blocks(a, p);
        add_signs(&param->total, &sums);
        const ab_moment_account *moment = &sums.moment;
        if (moment->ratios > 0) add_rms(param, sqrt(moment->ratio / (double)moment->ratios), step, column);
    }
}

/* ---- report ---------------------------------------------------------------------------------- */

static double share(int64_t part, int64_t whole) {
    return whole > 0 ? (double)part / (double)whole : (double)NAN;
}

static void report_param(const adam_warning *a, int p, ab_probe_sink *sink) {
    const history *param = &a->param[p];
    bool any = param->total.moment.ratios > 0;
    sink->begin_object(sink, NULL);
    sink->text(sink, "name", a->setup.param[p].name);
    sink->text(sink, "layer", a->setup.param[p].layer);
    sink->text(sink, "state_format", a->setup.param[p].state_format->name);
    sink->number(sink, "rms", any ? param->rms : (double)NAN);
    sink->number(sink, "rms_max", any ? param->rms_max : (double)NAN);
    sink->integer(sink, "rms_max_step", param->rms_max_step);
    sink->integer(sink, "steps_over_limit", param->over_limit);
    sink->number(sink, "stale_share", share(param->total.moment.stale, param->total.n));
    sink->number(sink, "below_eps_share", share(param->total.moment.below_eps, param->total.n));
    sink->number(sink, "zero_share", share(param->total.moment.zero, param->total.n));
    sink->begin_object(sink, "steps");
    ab_columns_report(&a->columns, sink);
    sink->begin_array(sink, "rms_max");
    for (int i = 0; i < a->columns.count; i++) sink->number(sink, NULL, (double)param->rms_column[i]);
    sink->end(sink);
    sink->end(sink);
    sink->end(sink);
}

/* One hyper-parameter rounded to the format. eps is lost if it becomes 0, a beta if it becomes 1: its average
 * never decays. */
static void report_constant(const ab_format *format, const char *name, double value, double lost_as,
                            ab_probe_sink *sink) {
    const ab_rounding nearest = {.mode = AB_ROUND_NEAREST_EVEN};
    double stored = ab_format_round(format, &nearest, value);
    sink->begin_object(sink, NULL);
    sink->text(sink, "format", format->name);
    sink->text(sink, "name", name);
    sink->number(sink, "value", value);
    sink->number(sink, "stored", stored);
    sink->boolean(sink, "lost", stored == lost_as && value != lost_as);
    sink->end(sink);
}

static void report_constants(const adam_warning *a, ab_probe_sink *sink) {
    const ab_probe_optimizer *optimizer = &a->setup.optimizer;
    sink->begin_array(sink, "constants");
    if (applies(a)) {
        report_constant(a->setup.half, "eps", optimizer->eps, 0, sink);
        if (optimizer->beta1 > 0) report_constant(a->setup.half, "beta1", optimizer->beta1, 1, sink);
        report_constant(a->setup.half, "beta2", optimizer->beta2, 1, sink);
    }
    sink->end(sink);
}

static void report(void *state, ab_probe_sink *sink) {
    const adam_warning *a = state;
    sink->begin_object(sink, "adam_warning");
    sink->boolean(sink, "applies", applies(a));
    sink->number(sink, "rms_limit", rms_limit);
    report_constants(a, sink);
    sink->begin_array(sink, "params");
    for (int p = 0; p < a->setup.params; p++) report_param(a, p, sink);
    sink->end(sink);
    sink->end(sink);
}

extern const ab_probe_kind ab_probe_adam_warning;
const ab_probe_kind ab_probe_adam_warning = {
    .name = "adam_warning",
    .text = "Adam's second moment: too small, stale, below eps^2; constants a half format loses",
    .standard = true,
    .create = create,
    .destroy = destroy,
    .update = update,
    .counted = counted,
    .step_end = step_end,
    .report = report,
};
