/* Restarts, arms and a sign test. */
#include "bench/experiments/arms.h"

#include "bench/experiments/double_cell.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

static const char *const names[] = {"none", "optimisation", "fp32", "rounding", "range", "unclear"};
static const char *const texts[] = {
    "no arm leaves fp32's way",
    "fp32 diverges as well: the optimisation or the data, not the precision",
    "fp32 diverges, fp64 from the same state does not: fp32 itself is too coarse or too short",
    "rounding the weights to nearest loses updates: rounded by chance they train as in fp32",
    "values leave the half format's range: rounding by chance does not help, fp32 does",
    "the arms do not agree enough to tell"};

const char *ab_trouble_name(ab_trouble trouble) { return names[trouble]; }
const char *ab_trouble_text(ab_trouble trouble) { return texts[trouble]; }

/* ---- arithmetic ------------------------------------------------------------------------------ */

/* Mean of the window that ends at step t. */
static double window(const float *loss, int64_t t, int64_t width) {
    double sum = 0;
    for (int64_t i = t - width + 1; i <= t; i++) sum += (double)loss[i];
    return sum / (double)width;
}

static bool is_away(const float *loss, const float *reference, int64_t t, int64_t width) {
    const double here = window(loss, t, width);
    if (!reference) return here > 1.5 * window(loss, width - 1, width);
    const double there = window(reference, t, width), began = window(reference, width - 1, width);
    return here - there > fmax(0.05 * there, 0.02 * began);
}

int64_t ab_arms_time(const float *loss, const float *reference, int64_t steps) {
    const int64_t width = steps < 2 * AB_ARMS_WINDOW ? (steps + 1) / 2 : AB_ARMS_WINDOW;
    int64_t end = 0, time = steps;
    for (; end < steps && isfinite(loss[end]); end++)
        if (reference && !isfinite(reference[end]))
            return ab_arms_time(loss, NULL, steps); /* nothing to compare with */
    if (end < steps) return end;
    for (int64_t t = steps - 1; t >= width - 1 && is_away(loss, reference, t, width); t--) time = t;
    return time;
}

double ab_sign_test(int wins, int losses) {
    const int n = wins + losses;
    double p = 0, term = pow(0.5, n); /* probability of 0 wins */
    for (int k = 0; k <= n; k++) {
        if (k >= wins) p += term;
        term *= (double)(n - k) / (double)(k + 1);
    }
    return p;
}

static double sooner(const ab_arms *arms, int arm, int than) {
    int wins = 0, losses = 0;
    for (int r = 0; r < AB_ARMS_RESTARTS; r++) {
        wins += arms->time[r][arm] < arms->time[r][than];
        losses += arms->time[r][arm] > arms->time[r][than];
    }
    return wins + losses ? ab_sign_test(wins, losses) : 1;
}

static ab_trouble trouble_of(const ab_arms *arms) {
    static const double alpha = 0.05;
    const bool low = arms->p_low_fp32 <= alpha, chance = arms->p_chance_fp32 <= alpha;
    if (2 * arms->left[AB_ARM_FP32] >= AB_ARMS_RESTARTS) return AB_TROUBLE_optimisation;
    if (low && arms->chance && !chance && arms->p_low_chance <= alpha) return AB_TROUBLE_rounding;
    if (low && (chance || !arms->chance)) return AB_TROUBLE_range;
    return arms->left[AB_ARM_FP32] + arms->left[AB_ARM_LOW] == 0 ? AB_TROUBLE_none : AB_TROUBLE_unclear;
}

void ab_arms_judge(ab_arms *arms) {
    for (int a = 0; a < AB_ARMS; a++) {
        arms->left[a] = 0;
        for (int r = 0; r < AB_ARMS_RESTARTS; r++) arms->left[a] += arms->time[r][a] < arms->horizon;
    }
    arms->p_low_fp32 = sooner(arms, AB_ARM_LOW, AB_ARM_FP32);
    arms->p_low_chance = arms->chance ? sooner(arms, AB_ARM_LOW, AB_ARM_CHANCE) : 1;
    arms->p_chance_fp32 = arms->chance ? sooner(arms, AB_ARM_CHANCE, AB_ARM_FP32) : 1;
    arms->trouble = trouble_of(arms);
}

void ab_arms_judge_double(ab_arms *arms) {
    const int stayed = arms->double_restarts - arms->double_left;
    if (arms->trouble == AB_TROUBLE_optimisation && ab_sign_test(stayed, arms->double_left) <= 0.05)
        arms->trouble = AB_TROUBLE_fp32;
}

/* ---- running --------------------------------------------------------------------------------- */

typedef struct bench {
    const ab_cell_config *config;
    ab_cell *good;
    bool masters; /* the cell has its own master weights: stochastic rounding does not apply to them */
    float *loss[AB_ARMS];
} bench;

static ab_status settings_of(const bench *b, int arm, ab_cell_config *settings) {
    const ab_level *o0;
    *settings = *b->config;
    if (arm == AB_ARM_FP32) {
        AB_TRY(ab_level_find("O0", &o0));
        settings->accumulate_half = false;
        return ab_policy_resolve(o0, b->config->policy.half, NULL, 0, &settings->policy);
    }
    if (arm == AB_ARM_CHANCE && !b->masters) {
        settings->policy.master_weights = AB_TRI_true;
        if (!settings->policy.keep.state_format) settings->policy.keep.state_format = settings->policy.half;
    }
    return AB_OK;
}

/* One arm of one restart: `horizon` steps on other batches. A scaler that gives up ends an arm, as a
 * non-finite loss does. */
static ab_status run_arm(const bench *b, int arm, int restart, int64_t horizon, bool *any) {
    ab_cell_config settings;
    ab_cell *cell = NULL;
    ab_status status = AB_OK;
    AB_TRY(settings_of(b, arm, &settings));
    AB_TRY(ab_cell_create(&settings, &cell));
    AB_TRY_GOTO(ab_cell_copy_state(cell, b->good));
    ab_cell_seek(cell, ab_cell_steps(b->good) + restart * horizon);
    for (int64_t i = 0; i < horizon; i++) b->loss[arm][i] = NAN;
    for (int64_t i = 0; i < horizon; i++) {
        ab_step_result result;
        if (ab_cell_step(cell, NULL, &result) != AB_OK) break;
        b->loss[arm][i] = result.loss;
        if (!isfinite(result.loss)) break;
        if (arm == AB_ARM_CHANCE)
            AB_TRY_GOTO(ab_cell_round_weights(cell, b->config->seed + 1000u * (unsigned)(restart + 1),
                                              !b->masters, any));
    }
out:
    ab_cell_destroy(cell);
    return status;
}

static ab_status run_restart(const bench *b, int restart, ab_arms *arms) {
    for (int a = 0; a < AB_ARMS; a++) {
        bool any = false;
        arms->time[restart][a] = arms->horizon;
        if (a == AB_ARM_CHANCE && !arms->chance) continue;
        AB_TRY(run_arm(b, a, restart, arms->horizon, &any));
        arms->time[restart][a] =
            ab_arms_time(b->loss[a], a == AB_ARM_FP32 ? NULL : b->loss[AB_ARM_FP32], arms->horizon);
    }
    return AB_OK;
}

/* ---- in double ------------------------------------------------------------------------------- */

/* Diverged by the rule for fp32, or if the mean of the last window is above 1.5 times the first loss: the
 * first window may already contain the divergence. */
static bool has_left(const float *loss, int64_t steps) {
    const int64_t width = steps < AB_ARMS_WINDOW ? steps : AB_ARMS_WINDOW;
    if (ab_arms_time(loss, NULL, steps) < steps) return true;
    return window(loss, steps - 1, width) > 1.5 * (double)loss[0];
}

static const double max_double_flops = 5e10; /* floating-point operations of all restarts: about a minute */

/* Repeats in fp64 the steps of fp32 until it left. A step that is too expensive ends the arm as refused. */
static ab_status run_double(const bench *b, int restart, int64_t steps, ab_arms *arms) {
    ab_cell_config settings;
    ab_cell *guide = NULL;
    ab_double *made = NULL;
    ab_status status = AB_OK;
    float *loss = b->loss[AB_ARM_LOW];
    AB_TRY(settings_of(b, AB_ARM_FP32, &settings));
    AB_TRY(ab_cell_create(&settings, &guide));
    AB_TRY_GOTO(ab_cell_copy_state(guide, b->good));
    ab_cell_seek(guide, ab_cell_steps(b->good) + restart * arms->horizon);
    arms->double_refused = ab_double_refusal(&settings, ab_cell_plan(guide));
    if (!arms->double_refused &&
        ab_cell_plan(guide)->flops * (double)(steps * AB_ARMS_DOUBLE) > max_double_flops)
        arms->double_refused = "it would take too long";
    if (arms->double_refused) goto out;
    AB_TRY_GOTO(ab_double_create(guide, &settings, &made));
    for (int64_t i = 0; i < steps; i++) loss[i] = NAN;
    for (int64_t i = 0; i < steps && (i == 0 || isfinite(loss[i - 1])); i++) {
        double value = 0;
        AB_TRY_GOTO(ab_double_step(made, &value));
        loss[i] = (float)fmax(-(double)FLT_MAX, fmin(value, (double)FLT_MAX));
        if (!isfinite(value)) loss[i] = NAN;
    }
    arms->double_restarts++;
    arms->double_left += has_left(loss, steps);
out:
    ab_double_destroy(made);
    ab_cell_destroy(guide);
    return status;
}

/* Where fp32 diverges, checks whether fp64 does: the first restarts that left soon enough to be repeated. */
static ab_status check_double(const bench *b, ab_arms *arms) {
    if (arms->trouble != AB_TROUBLE_optimisation) return AB_OK;
    for (int r = 0; r < AB_ARMS_RESTARTS && arms->double_restarts < AB_ARMS_DOUBLE && !arms->double_refused;
         r++) {
        const int64_t until = arms->time[r][AB_ARM_FP32] + AB_ARMS_WINDOW;
        if (arms->time[r][AB_ARM_FP32] == arms->horizon || until > AB_ARMS_DOUBLE_STEPS) continue;
        AB_TRY(run_double(b, r, until < arms->horizon ? until : arms->horizon, arms));
    }
    if (arms->double_restarts == 0 && !arms->double_refused)
        arms->double_refused = "fp32 left too late to be followed";
    ab_arms_judge_double(arms);
    return AB_OK;
}

/* Whether the cell stores weights in a half format. */
static bool stores_half(const ab_plan *plan) {
    for (int p = 0; p < plan->params; p++)
        if (plan->param[p].grad != AB_NONE && plan->tensor[plan->param[p].stored].format != &ab_format_fp32)
            return true;
    return false;
}

static bool has_masters(const ab_plan *plan) {
    for (int p = 0; p < plan->params; p++)
        if (plan->param[p].master != AB_NONE) return true;
    return false;
}

/* Trains to the good state: a sixteenth of the run before the first non-finite loss; the start of the run if
 * there is none. */
static ab_status find_good(bench *b, int64_t first_bad, int64_t steps, ab_arms *arms) {
    enum { LEAST = 20, MOST = 300 };
    const int64_t margin = steps / 16 + 1;
    arms->start = first_bad > margin ? first_bad - margin : 0;
    arms->horizon = steps - arms->start < LEAST  ? LEAST
                    : steps - arms->start > MOST ? MOST
                                                 : steps - arms->start;
    AB_TRY(ab_cell_create(b->config, &b->good));
    arms->chance = stores_half(ab_cell_plan(b->good));
    b->masters = has_masters(ab_cell_plan(b->good));
    for (int64_t i = 0; i < arms->start; i++) {
        ab_step_result result;
        AB_TRY(ab_cell_step(b->good, NULL, &result));
    }
    return AB_OK;
}

ab_status ab_arms_run(const ab_cell_config *config, int64_t first_bad, int64_t steps, ab_arms *arms) {
    bench b = {.config = config};
    ab_status status = AB_OK;
    *arms = (ab_arms){.start = 0};
    AB_TRY_GOTO(find_good(&b, first_bad, steps, arms));
    for (int a = 0; a < AB_ARMS; a++) {
        b.loss[a] = malloc((size_t)arms->horizon * sizeof(float));
        if (!b.loss[a]) AB_TRY_GOTO(ab_fail(AB_NO_MEMORY, "diagnose: out of memory"));
    }
    for (int r = 0; r < AB_ARMS_RESTARTS; r++) AB_TRY_GOTO(run_restart(&b, r, arms));
    ab_arms_judge(arms);
    AB_TRY_GOTO(check_double(&b, arms));
out:
    for (int a = 0; a < AB_ARMS; a++) free(b.loss[a]);
    ab_cell_destroy(b.good);
    return status;
}
