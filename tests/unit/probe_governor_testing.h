/* A governor without a record, whose clock is what the test says. */
#ifndef AB_TESTS_UNIT_PROBE_GOVERNOR_TESTING_H
#define AB_TESTS_UNIT_PROBE_GOVERNOR_TESTING_H

#include "probes/lib/governor.h"
#include "tests/unit/probe_lib_testing.h"

static const double pl_budget = 0.01;

static inline ampprobe *pl_governed(void) {
    ampprobe *p = calloc(1, sizeof *p);
    assert_non_null(p);
    p->course = calloc(1, sizeof *p->course);
    assert_non_null(p->course);
    p->config.budget = pl_budget;
    ab_lib_governor_init(p);
    return p;
}

static inline void pl_free(ampprobe *p) {
    free(p->course);
    free(p);
}

#endif
