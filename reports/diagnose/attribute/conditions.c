/* Facts that causes need, symptoms that they predict, and refutations that several of them share. */
#include "reports/diagnose/attribute/conditions.h"

#include "kernels/core/text.h"
#include "reports/diagnose/facts/loop.h"
#include "reports/record/json.h"

#include <math.h>

/* ---- needs ----------------------------------------------------------------------------------- */

static bool has_o0(const ab_case *c) { return c->facts.baseline != NULL; }

static bool has_origin(const ab_case *c) {
    return (!c->nonfinite && c->facts.baseline_loss.nonfinite == 0) ||
           ab_json_at(c->facts.cell, "probes.origin") != NULL;
}

static bool has_gradients(const ab_case *c) { return ab_json_at(c->facts.cell, "probes.tensors") != NULL; }

static bool has_unscaled(const ab_case *c) {
    return ab_json_at(c->facts.cell, "probes.unscaled_gradients") != NULL;
}

static bool has_ledger(const ab_case *c) { return ab_json_at(c->facts.cell, "probes.lost_updates") != NULL; }

static bool has_state(const ab_case *c) {
    return ab_json_at(c->facts.cell, "probes.adam_warning") != NULL ||
           cJSON_GetArraySize(ab_json_at(c->facts.cell, "probes.optimizer_state")) > 0;
}

/* A loop's probe shows outputs of layers in their place. */
static bool has_signals(const ab_case *c) {
    return ab_json_at(c->facts.baseline, ab_is_loop(&c->facts) ? "probes.activations" : "probes.signals") !=
           NULL;
}

static bool has_loop(const ab_case *c) { return ab_is_loop(&c->facts) && ab_loop_document(&c->facts); }

static bool has_vitals(const ab_case *c) { return ab_json_at(c->facts.cell, "vitals") != NULL; }

static bool has_reduction(const ab_case *c) {
    return ab_json_number(c->facts.document, "config.ranks", 1) < 2 || ab_json_at(c->facts.cell, "reduction");
}

static bool one_rank(const ab_case *c, const struct ab_verdict *verdict) {
    (void)verdict;
    return ab_json_number(c->facts.document, "config.ranks", 1) < 2;
}

/* Simulated ranks share one copy of the weights; shards have no copies. */
static bool one_replica(const ab_case *c, const struct ab_verdict *verdict) {
    (void)verdict;
    return !ab_json_at(c->facts.document, "config.mpi") &&
           ab_json_number(c->facts.document, "probe.world", 1) < 2;
}

static bool has_replicas(const ab_case *c) {
    return one_replica(c, NULL) || ab_json_at(c->facts.cell, "replicas");
}

const ab_need ab_need_o0 = {
    "whether fp32 does better", "run with an O0 cell, --levels O0,...", has_o0,
    "train the same loop once in fp32 with the probe and give its record: --baseline FP32.json"};
const ab_need ab_need_origin = {
    "where the first non-finite value was produced", "run with the probe origin (a default one)", has_origin,
    "with probe.step(closure): round a step, which runs it again if it overflows"};
const ab_need ab_need_gradients = {
    "which gradients overflow or are flushed", "run with the probe gradients (a default one)", has_gradients,
    "show gradients before they are unscaled: attach the probe before the first step"};
const ab_need ab_need_reduction = {
    "what the reduction over ranks does to gradients",
    "run with --ranks N in place of mpi, which has the same bits, and a probe (the default ones)",
    has_reduction, "measure it: save gradients of a few micro-batches and give them to `ampbench ranks`"};
const ab_need ab_need_replicas = {
    "whether all ranks have the same weights", "run with --check-ranks K", has_replicas,
    "attach the probe with check_ranks=K on every rank and give the records of all ranks"};
const ab_need ab_need_unscaled = {
    "whether gradients are clipped, or unscaled again, while they carry the scale",
    "run with the probe gradients (a default one)", has_unscaled,
    "show them to the optimizer's probed steps: attach(..., every=1)"};
const ab_need ab_need_ledger = {"whether updates are lost, or how large they are",
                                "run with the probe lost_updates (a default one)", has_ledger,
                                "show weights before and after updates: attach(..., every=1), or more steps"};
const ab_need ab_need_state = {"whether the optimizer's state underflows",
                               "run with the probe adam_warning (a default one)", has_state,
                               "show the optimizer's state: attach(..., every=1), or more steps"};
const ab_need ab_need_signals = {
    "whether signals die or grow on their way", "run with the probe signals (a default one)", has_signals,
    "train the same loop once in fp32 with the probe and give its record: --baseline FP32.json"};
const ab_need ab_need_vitals = {"whether data, labels and weights are sound",
                                "this record is of an earlier version; run again", has_vitals,
                                "check them in the loop: a probe does not see them"};
const ab_need ab_need_loop = {"what the training loop does between its steps",
                              "record the loop itself with libampprobe or ampprobe", has_loop,
                              "attach the probe before the first step"};

const char *ab_need_get(const ab_case *c, const ab_need *need) {
    return ab_is_loop(&c->facts) ? need->loop : need->get;
}

/* ---- refutations ----------------------------------------------------------------------------- */

bool ab_baseline_jumps(const ab_case *c) {
    const ab_loss_facts *o0 = &c->facts.baseline_loss;
    if (ab_is_loop(&c->facts)) return o0->first_nonfinite > 0 && ab_loop_rises(&c->facts);
    return o0->first_nonfinite > 0 && o0->largest > c->facts.limits->far_above * o0->first;
}

static double update_energy(const cJSON *cell) {
    const cJSON *param;
    double energy = 0;
    cJSON_ArrayForEach(param, ab_json_at(cell, "probes.lost_updates")) energy +=
        ab_json_number(param, "update.energy", 0);
    return energy;
}

bool ab_updates_are_known(const ab_case *c) {
    return c->facts.baseline != c->facts.cell && update_energy(c->facts.cell) > 0 &&
           update_energy(c->facts.baseline) > 0;
}

bool ab_updates_are_small(const ab_case *c) {
    return sqrt(update_energy(c->facts.cell)) <
           c->facts.limits->updates_small * sqrt(update_energy(c->facts.baseline));
}

double ab_times_unscaled(const ab_facts *facts) {
    const double micro = ab_json_number(facts->document, "config.gradient_accumulation_steps", 1);
    return ab_tensor_sums_of(facts->cell, "unscaled_gradients", "", true).values * micro /
           ab_tensor_sums_of(facts->cell, "tensors", "weight_gradient", true).values;
}

static bool o0_learns(const ab_case *c, const struct ab_verdict *verdict) {
    (void)verdict;
    return !ab_baseline_fails(c);
}

static bool o0_finite(const ab_case *c, const struct ab_verdict *verdict) {
    (void)verdict;
    return c->facts.baseline_loss.nonfinite == 0;
}

static bool bad_start(const ab_case *c, const struct ab_verdict *verdict) {
    (void)verdict;
    return ab_json_number(c->facts.baseline, "vitals.nonfinite_inputs.batches", 0) > 0 ||
           ab_json_number(c->facts.baseline, "vitals.initial_weights.nonfinite", 0) > 0;
}

/* An O0 that has only not learned yet does not explain what this cell lacks beside it. */
static bool o0_fails(const ab_case *c, const struct ab_verdict *verdict) {
    (void)verdict;
    return c->unlearned && (c->diverged || !c->behind);
}

static bool o0_rises(const ab_case *c, const struct ab_verdict *verdict) {
    (void)verdict;
    return c->diverged;
}

static bool no_scale(const ab_case *c, const struct ab_verdict *verdict) {
    (void)verdict;
    return c->facts.skip.largest_scale <= 1;
}

static bool one_batch(const ab_case *c, const struct ab_verdict *verdict) {
    (void)verdict;
    return ab_json_number(c->facts.document, "config.gradient_accumulation_steps", 1) < 2;
}

static bool first_loss(const ab_case *c, const struct ab_verdict *verdict) {
    (void)verdict;
    return c->facts.loss.first_nonfinite == 0;
}

static bool wide_weights(const ab_case *c, const struct ab_verdict *verdict) {
    (void)verdict;
    return !ab_facts_half_weights(&c->facts);
}

const ab_refutation ab_refuted_o0_fails = {"O0 does not learn either, and this cell is not behind it",
                                           o0_fails};
const ab_refutation ab_refuted_o0_rises = {"O0's loss rises to several times its first, or to NaN or inf",
                                           o0_rises};
const ab_refutation ab_refuted_o0_learns = {"O0 learns", o0_learns};
const ab_refutation ab_refuted_o0_finite = {"all of O0's losses are finite", o0_finite};
const ab_refutation ab_refuted_bad_start = {"inputs or initial weights are not finite", bad_start};
const ab_refutation ab_refuted_no_scale = {"the loss is not scaled", no_scale};
const ab_refutation ab_refuted_one_rank = {"there is one rank: nothing is reduced", one_rank};
const ab_refutation ab_refuted_one_replica = {"all ranks share one copy of the weights", one_replica};
const ab_refutation ab_refuted_one_batch = {"a step has one micro-batch", one_batch};
const ab_refutation ab_refuted_first_loss = {"the first loss is NaN or inf, before there is a gradient",
                                             first_loss};
const ab_refutation ab_refuted_wide_weights = {"updates are stored in fp32", wide_weights};

/* ---- symptoms -------------------------------------------------------------------------------- */

const char *ab_symptom_text(int i) {
    static const char *const texts[AB_SYMPTOMS] = {
        "losses that are NaN or inf",          "steps skipped with finite losses",
        "a loss or accuracy behind O0's",      "an O0 that fails too",
        "averaged weights that do not follow", "an evaluation far worse than training"};
    return texts[i];
}

/* Most of the skipped steps had finite losses: skipping is no consequence of losses that are not. */
static bool skips_finite_losses(const ab_case *c) {
    return c->skipping && 2 * c->facts.skip.loss_finite > c->facts.skip.skipped;
}

unsigned ab_symptoms_of(const ab_case *c) {
    const bool baseline = c->unlearned || c->diverged || c->lr_unstable;
    if (baseline) return AB_SYMPTOM_BASELINE | (c->nonfinite && !c->diverged ? AB_SYMPTOM_NONFINITE : 0U);
    const unsigned skipping = skips_finite_losses(c) ? AB_SYMPTOM_SKIPPING : 0U;
    if (c->nonfinite) return AB_SYMPTOM_NONFINITE | skipping;
    return skipping | (c->behind || c->inaccurate ? AB_SYMPTOM_BEHIND : 0U) |
           (c->stuck ? AB_SYMPTOM_AVERAGE : 0U) | (c->eval_degraded ? AB_SYMPTOM_EVALUATION : 0U);
}
