/* The governor: accounts for the time of probing. */
#include "bench/run/governor.h"

#include "bench/timer/timer.h"

#include <math.h>

static const double planned = 0.8; /* of the budget; the rest is for what a few steps cannot show */

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

/* 10, 15, 20, 30, 40, 60, ...: few values, so that machines alike choose alike. */
static int64_t next_interval(int64_t every) {
    const bool power = (every / 10 & (every / 10 - 1)) == 0 && every % 10 == 0;
    return power ? every / 2 * 3 : every / 3 * 4;
}

static int64_t probed_steps(int64_t steps, int64_t every) { return (steps + every - 1) / every; }

bool ab_probe_has_choice(int64_t steps) { return probed_steps(steps, 15) >= AB_PROBE_STEPS_LEAST; }

int64_t ab_probe_interval(double budget, int64_t steps, double processes, const ab_probe_cost *cost,
                          int costs) {
    double most = 0; /* cost of a probed step, in steps */
    for (int i = 0; i < costs; i++)
        if (cost[i].step_ns > 0) most = fmax(most, cost[i].probe_ns / cost[i].step_ns);
    int64_t every = 10;
    for (;;) {
        const double share = (double)probed_steps(steps, every) * most / ((double)steps * processes);
        const int64_t next = next_interval(every);
        if (!(share > planned * budget) || probed_steps(steps, next) < AB_PROBE_STEPS_LEAST) return every;
        every = next;
    }
}

void ab_governor_start(ab_governor *governor, int64_t every) { *governor = (ab_governor){.every = every}; }

/* Estimated time of the run so far without probes. */
static double work_ns(const ab_governor *governor) {
    return (double)governor->steps * median(&governor->usual);
}

bool ab_governor_due(const ab_governor *governor) { return governor->steps % governor->every == 0; }

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

/* Compares windows of a few steps: the last one with all threads and the last one with one thread. A trial of
 * one thread starts only after a window with much waiting. A trial lasts one window, and failed trials double
 * the distance to the next, so the cost of trials becomes a small share of the run. */

enum { WINDOW_NS = 20000000, WINDOW_STEPS = 2, FIRST_HOLD = 4, LAST_HOLD = 64 };
static const double gain_worth = 0.97; /* a smaller gain is noise */
static const double much_waiting = 0.05;

void ab_thread_governor_start(ab_thread_governor *governor, int threads) {
    *governor = (ab_thread_governor){.threads = threads, .hold = FIRST_HOLD, .left = 1};
}

static void note(ab_thread_governor *g) {
    double *ns = &g->ns[g->one], now = (double)g->time_ns / (double)g->steps;
    *ns = *ns == 0 || g->trial ? now : 0.5 * (*ns + now);
}

static void end_trial(ab_thread_governor *g) {
    const bool better = g->ns[g->one] < gain_worth * g->ns[!g->one];
    g->trial = false;
    if (better)
        g->hold = FIRST_HOLD;
    else {
        g->one = !g->one;
        g->hold = 2 * g->hold < LAST_HOLD ? 2 * g->hold : LAST_HOLD;
    }
    g->left = g->hold;
}

static void begin_trial(ab_thread_governor *g) {
    g->trial = true;
    g->one = !g->one;
}

static void end_window(ab_thread_governor *g) {
    const bool waits = (double)g->waited_ns > much_waiting * (double)g->time_ns;
    note(g);
    if (g->trial)
        end_trial(g);
    else if (--g->left <= 0 && (g->one || waits))
        begin_trial(g);
    g->steps = g->time_ns = g->waited_ns = 0;
}

int ab_thread_governor_step(ab_thread_governor *governor, int64_t time_ns, int64_t waited_ns) {
    if (governor->threads == 1) return 1;
    governor->steps++;
    governor->time_ns += time_ns;
    governor->waited_ns += waited_ns;
    if (governor->time_ns >= WINDOW_NS && governor->steps >= WINDOW_STEPS) end_window(governor);
    return governor->one ? 1 : governor->threads;
}
