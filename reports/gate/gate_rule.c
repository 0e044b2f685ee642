/* The decision rule. It compares numbers computed with + - * / sqrt only, so that a verdict is the same
 * with every compiler. */
#include "reports/gate/gate_rule.h"

#include "kernels/core/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const double clock_limit = 0.01, load_limit = 0.1, wait_limit = 0.02, load_alpha = 0.05,
                    detect_power = 0.9;

ab_gate_rule ab_gate_rule_standard(int rounds) {
    if (rounds > 0)
        return (ab_gate_rule){
            .looks = 1, .look = {rounds}, .alpha = {0.05}, .tolerance = 0.03, .guard = 0.01};
    return (ab_gate_rule){
        .looks = 3, .look = {12, 20, 30}, .alpha = {0.02, 0.02, 0.01}, .tolerance = 0.03, .guard = 0.01};
}

const char *ab_gate_outcome_name(ab_gate_outcome outcome) {
    static const char *const names[] = {"PASS", "FAIL", "INCONCLUSIVE"};
    return names[outcome];
}

/* ---- other explanations ---------------------------------------------------------------------- */

static ab_status judge_clock(const ab_gate_series *s, int n, double alpha, ab_gate_decision *d) {
    ab_ratio clock;
    d->clock = 0;
    if (!s->base_clock || !s->other_clock) return AB_OK;
    AB_TRY(ab_ratio_paired(s->base_clock, s->other_clock, n, alpha, 0, &clock));
    d->clock = clock.ratio;
    return AB_OK;
}

/* Increase of load or wait in the new arm; 0 unless it exceeds the limit and the rounds agree. */
static ab_status judge_shift(const double *base, const double *other, int n, double least, double *shift) {
    double p, found, *difference;
    *shift = 0;
    if (!base || !other) return AB_OK;
    difference = malloc((size_t)n * sizeof *difference);
    if (!difference) return ab_fail(AB_NO_MEMORY, "gate: out of memory");
    for (int i = 0; i < n; i++) difference[i] = other[i] - base[i];
    ab_status status = ab_shift_paired(difference, n, 0, &found, &p);
    if (status == AB_OK && found > least && ab_is_significant(p, load_alpha)) *shift = found;
    free(difference);
    return status;
}

static ab_status judge_shape(const ab_gate_series *s, int n, ab_gate_decision *d) {
    double mode[2], *ratio = malloc((size_t)n * sizeof *ratio);
    if (!ratio) return ab_fail(AB_NO_MEMORY, "gate: out of memory");
    for (int i = 0; i < n; i++) ratio[i] = s->other[i] / s->base[i];
    ab_status status = ab_stats_outliers(ratio, n, &d->outliers);
    if (status == AB_OK) status = ab_stats_bimodal(ratio, n, &d->bimodal, mode);
    free(ratio);
    return status;
}

static int unsteady_processes(const ab_gate_series *s, int n) {
    int sum = 0;
    for (int i = 0; s->unsteady && i < n; i++) sum += s->unsteady[i];
    return sum;
}

/* Number of missing rounds up to the n-th round that has times. */
static int missing_rounds(const ab_gate_series *s, int n) {
    return n < s->rounds && s->round ? s->round[n - 1] - n : s->missing;
}

/* Returns why this series can be neither PASS nor FAIL; NULL if it can. */
static const char *inconclusive_reason(const ab_gate_series *s, int n, bool slower, ab_gate_decision *d,
                                       char *text) {
    const size_t size = AB_GATE_REASON;
    int missing = missing_rounds(s, n);
    if (d->clock > 0 && fabs(d->clock - 1) > clock_limit)
        ab_text_show(text, size,
                     "the clock differed between the arms: the same loop took %+.1f %% in the new one",
                     100 * (d->clock - 1));
    else if (slower && d->load > 0)
        ab_text_show(text, size, "others kept %.2f more processors busy while the new arm ran", d->load);
    else if (slower && d->wait > 0)
        ab_text_show(text, size, "the new arm waited for a processor during %.1f %% more of its time",
                     100 * d->wait);
    else if (d->bimodal)
        ab_text_show(text, size,
                     "the ratios of the rounds fall into two groups: measure on a quieter machine");
    else if (5 * d->outliers > n)
        ab_text_show(text, size, "%d of %d rounds are outliers: measure on a quieter machine", d->outliers,
                     n);
    else if (d->unsteady > n)
        ab_text_show(text, size, "%d of %d processes never got steady: train more steps", d->unsteady, 2 * n);
    else if (5 * missing > n + missing)
        ab_text_show(text, size, "%d of %d rounds lack a time", missing, n + missing);
    else
        return NULL;
    return text;
}

/* ---- one look -------------------------------------------------------------------------------- */

static void tell(const ab_gate_rule *rule, ab_gate_decision *d) {
    double percent = 100 * (d->ratio.ratio - 1), low = 100 * (d->ratio.low - 1),
           high = 100 * (d->ratio.high - 1);
    const char *what = d->outcome == AB_GATE_FAIL ? "slower" : d->win ? "faster" : "time";
    if (d->outcome == AB_GATE_INCONCLUSIVE)
        ab_text_show(d->reason, sizeof d->reason,
                     "%+.1f %% [%+.1f, %+.1f] over %d rounds: cannot tell; a slow-down of %.1f %% would have "
                     "been found",
                     percent, low, high, d->rounds, 100 * d->detectable);
    else
        ab_text_show(d->reason, sizeof d->reason, "%s: %+.1f %% [%+.1f, %+.1f] over %d rounds, limit %.3g %%",
                     what, percent, low, high, d->rounds, 100 * rule->tolerance);
}

/* d->ratio and p_holm are those of this look. Returns true if decided. */
static bool judge(const ab_gate_rule *rule, const ab_gate_series *s, int family, ab_gate_decision *d) {
    char text[AB_GATE_REASON];
    bool slower = ab_is_significant(d->p_holm, d->alpha) && d->ratio.ratio > 1 + rule->tolerance;
    bool within = d->ratio.high < 1 + rule->tolerance;
    d->detectable =
        ab_detectable(&d->ratio, d->alpha, d->alpha / family, d->guard, rule->tolerance, detect_power);
    d->outcome = slower ? AB_GATE_FAIL : within ? AB_GATE_PASS : AB_GATE_INCONCLUSIVE;
    d->win =
        within && ab_is_significant(d->ratio.p_below, d->alpha) && d->ratio.ratio * (1 + rule->tolerance) < 1;
    if (!ab_is_significant(d->ratio.p_least * family, d->alpha)) {
        d->outcome = AB_GATE_INCONCLUSIVE;
        ab_text_show(
            d->reason, sizeof d->reason,
            "%d round%s cannot reach alpha %.3g with %d metric%s: their smallest p is %.3g; at least %d "
            "rounds "
            "are needed",
            d->rounds, d->rounds == 1 ? "" : "s", d->alpha, family, family == 1 ? "" : "s", d->ratio.p_least,
            ab_pairs_needed(d->alpha / family));
        return false;
    }
    tell(rule, d);
    const char *why = inconclusive_reason(s, d->rounds, slower, d, text);
    if (!why) return d->outcome != AB_GATE_INCONCLUSIVE;
    d->outcome = AB_GATE_INCONCLUSIVE;
    d->win = false;
    ab_text_show(d->reason, sizeof d->reason, "%s", why);
    return false;
}

/* Half the half-width of the interval, on a logarithmic scale: that of a ratio is sqrt(high / low). Rounds
 * on a busy machine are not independent, so an interval at alpha misses more often than alpha;
 * docs/decisions gives the rate. */
static double noise_of(const ab_ratio *ratio) {
    return ratio->low > 0 ? sqrt(sqrt(ratio->high / ratio->low)) - 1 : 0;
}

static ab_status measure_ratio(const ab_gate_rule *rule, const ab_gate_series *s, ab_gate_decision *d) {
    d->guard = rule->guard;
    AB_TRY(ab_ratio_paired(s->base, s->other, d->rounds, d->alpha, d->guard, &d->ratio));
    double noise = noise_of(&d->ratio);
    if (!(noise > d->guard)) return AB_OK;
    d->guard = noise;
    return ab_ratio_paired(s->base, s->other, d->rounds, d->alpha, d->guard, &d->ratio);
}

static ab_status measure(const ab_gate_rule *rule, int l, const ab_gate_series *s, int n,
                         ab_gate_decision *d) {
    d->rounds = n;
    d->alpha = rule->alpha[l];
    AB_TRY(measure_ratio(rule, s, d));
    d->unsteady = unsteady_processes(s, n);
    AB_TRY(judge_clock(s, n, d->alpha, d));
    AB_TRY(judge_shift(s->base_load, s->other_load, n, load_limit, &d->load));
    AB_TRY(judge_shift(s->base_wait, s->other_wait, n, wait_limit, &d->wait));
    return judge_shape(s, n, d);
}

/* Judges all undecided series that have enough rounds for this look, and at the first look also those with
 * fewer rounds. */
static ab_status look(const ab_gate_rule *rule, int l, const ab_gate_series *series, int count,
                      ab_gate_decision *now, double *p, bool *decided, ab_gate_decision *decision) {
    double *adjusted = p + count;
    for (int i = 0; i < count; i++) {
        int n = series[i].rounds < rule->look[l] ? series[i].rounds : rule->look[l];
        now[i] = (ab_gate_decision){.outcome = AB_GATE_INCONCLUSIVE};
        p[i] = 1;
        if (n == 0) continue;
        AB_TRY(measure(rule, l, &series[i], n, &now[i]));
        p[i] = now[i].ratio.p_above;
    }
    AB_TRY(ab_holm(p, count, adjusted));
    for (int i = 0; i < count; i++) {
        bool late = l > 0 && series[i].rounds < rule->look[l];
        if (decided[i] || late || now[i].rounds == 0) continue;
        now[i].p_holm = adjusted[i];
        decided[i] = judge(rule, &series[i], count, &now[i]);
        decision[i] = now[i];
    }
    return AB_OK;
}

ab_status ab_gate_decide(const ab_gate_rule *rule, const ab_gate_series *series, int count,
                         ab_gate_decision *decision) {
    ab_status status = AB_OK;
    if (count == 0) return AB_OK;
    ab_gate_decision *now = calloc((size_t)count, sizeof *now);
    double *p = calloc(2 * (size_t)count, sizeof *p);
    bool *decided = calloc((size_t)count, sizeof *decided);
    if (!now || !p || !decided) {
        status = ab_fail(AB_NO_MEMORY, "gate: out of memory");
        goto out;
    }
    for (int i = 0; i < count; i++)
        decision[i] = (ab_gate_decision){.outcome = AB_GATE_INCONCLUSIVE,
                                         .guard = rule->guard,
                                         .reason = "no round has times of both arms"};
    for (int l = 0; l < rule->looks; l++)
        AB_TRY_GOTO(look(rule, l, series, count, now, p, decided, decision));
out:
    free(now);
    free(p);
    free(decided);
    return status;
}
