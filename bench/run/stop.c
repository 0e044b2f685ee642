/* Signals that ask a run to stop. */
#define _GNU_SOURCE
#include "bench/run/state.h"

#include <signal.h>

volatile sig_atomic_t ab_run_stop_requested;

static void on_signal(int number) { ab_run_stop_requested = number; }

void ab_run_catch_signals(void) {
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
}
