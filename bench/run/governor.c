/* The governor: accounts for the time of probing. */
#include "bench/run/governor.h"

#include "bench/run/timer.h"

#include <math.h>

static const double planned = 0.8;     /* of the budget */
static const double floor_budgets = 4; /* largest cost of the floor, in budgets */

static void keep(ab_recent *recent, int64_t value) {
    recent->value[recent->next] = value;
    recent->next = (recent->next + 1) % AB_GOVERNOR_RECENT;
    if (recent->count < AB_GOVERNOR_RECENT) recent->count++;
}

static double median(const ab_recent *recent) {
    double values[AB_GOVERNOR_RECENT];
    for (int i = 0; i < recent->count; i++) values[i] = (double)recent->value[i];
    return ab_median(values, recent->count);
}

/* The cost of probing an uninterrupted step. 0 before the first probed step. */
static double lowest_cost(const ab_governor *governor) {
    double lowest = governor->cost.count > 0 ? (double)governor->cost.value[0] : 0;
    for (int i = 1; i < governor->cost.count; i++) lowest = fmin(lowest, (double)governor->cost.value[i]);
    return lowest;
}

/* Steps of the run that are multiples of `apart`. */
static int64_t multiples(const ab_governor *governor, int64_t apart) {
    return (governor->total + apart - 1) / apart;
}

void ab_governor_start(ab_governor *governor, double budget, int64_t every, int64_t steps) {
    *governor = (ab_governor){.budget = budget, .every = every, .total = steps, .apart = every};
    while (multiples(governor, 2 * governor->apart) >= AB_GOVERNOR_FLOOR) governor->apart *= 2;
}

/* Estimated time of the run so far without probes. */
static double work_ns(const ab_governor *governor) {
    return (double)governor->steps * median(&governor->usual);
}

/* Estimated cost of all probing with one more probed step. */
static double cost_after(const ab_governor *governor) {
    return (double)(governor->probed + 1) * median(&governor->cost);
}

/* Whether the next step belongs to the floor. If the floor is too expensive, every other one of its steps is
 * dropped. */
static bool is_floor(const ab_governor *governor) {
    const double cost = lowest_cost(governor), run = (double)governor->total * median(&governor->usual),
                 most = fmax(AB_GOVERNOR_FREE_NS, floor_budgets * governor->budget * run);
    int64_t apart = governor->apart;
    while (apart < governor->total && (double)multiples(governor, apart) * cost > most) apart *= 2;
    return governor->steps % apart == 0;
}

bool ab_governor_due(const ab_governor *governor) {
    if (governor->steps % governor->every != 0) return false;
    if (governor->budget <= 0 || governor->probed == 0) return true;
    if (is_floor(governor)) return true;
    if (governor->usual.count == 0) return false; /* no unprobed step to compare with yet */
    double after = cost_after(governor);
    return after <= planned * governor->budget * (work_ns(governor) + median(&governor->usual));
}

void ab_governor_note(ab_governor *governor, bool probed, int64_t time_ns, int64_t probes_ns) {
    governor->steps++;
    if (!probed) {
        keep(&governor->usual, time_ns);
        return;
    }
    /* Cold caches after a probe cost time outside of it; an undisturbed step can be faster than the median.
     */
    int64_t beyond = governor->usual.count > 0 ? time_ns - (int64_t)median(&governor->usual) : 0;
    keep(&governor->cost, beyond > probes_ns ? beyond : probes_ns);
    governor->probed++;
}

void ab_governor_skip(ab_governor *governor) { governor->steps++; }

int64_t ab_governor_cost_ns(const ab_governor *governor) {
    return (int64_t)((double)governor->probed * median(&governor->cost));
}

double ab_governor_cost_share(const ab_governor *governor) {
    double work = work_ns(governor);
    return work > 0 ? (double)ab_governor_cost_ns(governor) / work : (double)NAN;
}
