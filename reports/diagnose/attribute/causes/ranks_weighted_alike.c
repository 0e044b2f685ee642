/* Ranks with different numbers of samples in a step, as with the last batch of an epoch, each with its mean
 * loss and the same weight: the mean over ranks is not that over all samples. The record holds samples and
 * weights; somebody's own loop states the ratio of the numbers (rank_samples_ratio). */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/verdict.h"
#include "reports/diagnose/facts/loop.h"
#include "reports/record/json.h"

#include <math.h>

/* How many times as much as another the most weighted sample counts; 1: all the same. */
static double unfairness(const cJSON *ranks) {
    double least = (double)INFINITY, most = 0;
    const cJSON *rank;
    cJSON_ArrayForEach(rank, ranks) {
        const double each = ab_json_number(rank, "weight", 0) / fmax(1, ab_json_number(rank, "samples", 0));
        least = fmin(least, each);
        most = fmax(most, each);
    }
    return most > 0 ? most / least : 1;
}

static bool judge(const ab_case *c, ab_verdict *verdict) {
    const cJSON *ranks = ab_json_at(c->facts.cell, "rank_samples");
    const ab_stated stated = ab_stated_of(&c->facts, "rank_samples_ratio");
    const double ratio = ranks ? unfairness(ranks) : stated.known ? stated.largest : 1;
    if (!(ratio >= c->facts.limits->unequal_targets)) return false;
    ab_verdict_own(verdict, AB_PROOF_SHOWN, ranks ? 0 : stated.first_step);
    ab_verdict_add_evidence(
        verdict,
        "ranks of a step have different numbers of samples and their mean losses the same "
        "weight: a sample of the smallest batch counts %.3g times",
        ratio);
    if (ranks)
        ab_verdict_point(&c->facts, verdict, "/rank_samples");
    else
        ab_verdict_point_document(verdict, "/probe/facts/%d/largest", stated.index);
    return true;
}

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    (void)c;
    (void)verdict;
    ab_remedy_add_text(remedy,
                       "give all ranks as many samples (DataLoader and DistributedSampler drop_last=True, "
                       "DeepSpeed dataloader_drop_last, Trainer dataloader_drop_last=True, accelerate "
                       "even_batches=True), or multiply a rank's loss by world size x its samples / all "
                       "samples");
}

static bool has_one_rank(const ab_case *c, const ab_verdict *verdict) {
    (void)verdict;
    return ab_json_number(c->facts.document, "config.ranks", 1) < 2 &&
           ab_json_number(c->facts.document, "probe.world", 1) < 2;
}

/* Ranks of a run without the option have as many samples. */
static bool has_samples(const ab_case *c) {
    return !ab_is_loop(&c->facts) || has_one_rank(c, NULL) ||
           ab_stated_of(&c->facts, "rank_samples_ratio").known;
}

static const ab_need need_samples = {"whether all ranks have as many samples", "run with --ranks N",
                                     has_samples,
                                     "state it: probe.fact(\"rank_samples_ratio\", most / fewest)"};
static const ab_refutation refuted_one_rank = {"there is one rank", has_one_rank};

const ab_verdict_rule ab_verdict_rule_ranks_weighted_alike = {
    .id = "ranks_weighted_alike",
    .family = AB_FAMILY_TRAINING,
    .acts = AB_ACTS_GRADIENT,
    .text = "ranks with different numbers of samples have the same weight",
    .needs = {&need_samples},
    .predicts = AB_SYMPTOM_BASELINE | AB_SYMPTOM_BEHIND,
    .refuted_by = {&refuted_one_rank},
    .judge = judge,
    .shows = judge,
    .remedy = remedy,
};
