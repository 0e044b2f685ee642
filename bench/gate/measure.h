/* Measuring builds against each other: every arm is a program that is run as `PROGRAM run ...`; in each round
 * every arm runs every cell once, alternating, each time in a fresh process. The result is one document per
 * arm. */
#ifndef AB_BENCH_GATE_MEASURE_H
#define AB_BENCH_GATE_MEASURE_H

#include "reports/gate/gate.h"

#include <stdint.h>

AB_BEGIN_DECLS

enum { AB_GATE_ARMS = 8 };

typedef struct ab_gate_arm {
    const char *name, *program; /* borrowed */
    int64_t extra_work;         /* loops added to every step (self-test); 0: none */
    cJSON *document;            /* out; owned by the caller */
} ab_gate_arm;

typedef struct ab_gate_plan {
    ab_gate_arm arm[AB_GATE_ARMS]; /* arm 0 is the base, arm 1 the candidate */
    int arms;
    char *const *run_options; /* for `PROGRAM run`; ends with NULL */
    int fixed_rounds;         /* 0: check after 12, 20 and 30 rounds and stop once all times are decided */
    bool same_program;        /* self-test: one full run serves all arms */
    uint64_t seed;            /* of the order */
    const char *folder;       /* for files of the arms; must exist */
    bool quiet;
    const ab_gate_options *options;
} ab_gate_plan;

/* Rejects run options that the gate sets itself. */
AB_MUST_CHECK ab_status ab_gate_check_run_options(char *const *run_options);

/* One full run (probes, noise floor, evaluation) of every arm: its document, summarised. */
AB_MUST_CHECK ab_status ab_gate_run_arms(ab_gate_plan *plan);
/* Runs the rounds and adds them to the documents. Must be called after ab_gate_run_arms. */
AB_MUST_CHECK ab_status ab_gate_measure(ab_gate_plan *plan);
void ab_gate_plan_clear(ab_gate_plan *plan);

/* Builds the commit `ref` of the repository that the working directory is in, into folder/<sha>;
 * program[size] names the program. A commit that is already built there is not rebuilt. */
AB_MUST_CHECK ab_status ab_gate_build_ref(const char *ref, const char *folder, char *program, size_t size);

AB_END_DECLS

#endif
