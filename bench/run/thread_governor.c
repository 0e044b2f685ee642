/* Compares windows of a few steps: the last one with all threads and the last one with one thread. A trial of
 * one thread starts only after a window with much waiting. A trial lasts one window, and failed trials double
 * the distance to the next, so the cost of trials becomes a small share of the run. */
#include "bench/run/thread_governor.h"

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
