/* What the causes' descriptors are made of: facts they need, symptoms they predict, what refutes them. A
 * rule's own refutations are in its file, those that several share are here. */
#ifndef AB_REPORTS_DIAGNOSE_ATTRIBUTE_CONDITIONS_H
#define AB_REPORTS_DIAGNOSE_ATTRIBUTE_CONDITIONS_H

#include "reports/diagnose/detect/case.h"

AB_BEGIN_DECLS

struct ab_verdict;

/* A fact that must be in the record. */
typedef struct ab_need {
    const char *text; /* what it tells: "whether ..." or "where ..." */
    const char *get;  /* how to record it */
    bool (*there)(const ab_case *c);
    const char *loop; /* how a probe in a loop of the user's own records it */
} ab_need;

extern const ab_need ab_need_o0; /* an O0 cell */
extern const ab_need
    ab_need_origin; /* where the first non-finite value is from; there if all losses are finite */
extern const ab_need ab_need_gradients; /* gradients of the cell, scaled */
extern const ab_need ab_need_unscaled;  /* gradients as the optimizer gets them */
extern const ab_need ab_need_ledger;    /* updates, and those that storing lost */
extern const ab_need ab_need_state;     /* second moments that do not change */
extern const ab_need ab_need_signals;   /* of O0 */
extern const ab_need ab_need_vitals;    /* data, labels, weights */
extern const ab_need ab_need_reduction; /* what a reduction over ranks did; there without ranks too */
extern const ab_need ab_need_replicas;  /* whether ranks have the same weights; there without ranks too */
extern const ab_need ab_need_loop;      /* what a training loop of the user's own does and states */

/* How to record a fact for this record: as ampbench runs, or as a probe watches a loop. */
const char *ab_need_get(const ab_case *c, const ab_need *need);

/* What contradicts a cause. */
typedef struct ab_refutation {
    const char *text; /* why it is not the cause: what the record shows in its place */
    bool (*holds)(const ab_case *c, const struct ab_verdict *verdict);
} ab_refutation;

extern const ab_refutation ab_refuted_o0_fails;     /* O0 does not learn: the fault is not in this cell */
extern const ab_refutation ab_refuted_o0_rises;     /* O0's loss rose */
extern const ab_refutation ab_refuted_o0_learns;    /* O0 learns: the fault is in this cell */
extern const ab_refutation ab_refuted_o0_finite;    /* all of O0's losses are finite */
extern const ab_refutation ab_refuted_bad_start;    /* inputs or initial weights of O0 are not finite */
extern const ab_refutation ab_refuted_no_scale;     /* no loss scale other than 1 */
extern const ab_refutation ab_refuted_one_batch;    /* a step has one micro-batch */
extern const ab_refutation ab_refuted_first_loss;   /* the first loss is not finite, before any gradient */
extern const ab_refutation ab_refuted_wide_weights; /* half weights are not updated: masters or fp32 */

extern const ab_refutation ab_refuted_one_rank;    /* nothing is reduced */
extern const ab_refutation ab_refuted_one_replica; /* all ranks share one copy of the weights */

/* Updates of the cell and of O0 are recorded; the cell's are far smaller, at the same rate (updates_small).
 */
bool ab_updates_are_known(const ab_case *c);
bool ab_updates_are_small(const ab_case *c);

/* How often gradients of the probed steps are unscaled, times a step; NAN if not recorded. */
double ab_times_unscaled(const ab_facts *facts);

/* Symptoms of a case that no other of its symptoms implies, as bits. Non-finite losses imply a bad accuracy
 * and evaluation and steps skipped for them; an O0 that fails implies what this cell has in common with it.
 */
typedef enum ab_symptom {
    AB_SYMPTOM_NONFINITE = 1,
    AB_SYMPTOM_SKIPPING = 2, /* of steps with finite losses */
    AB_SYMPTOM_BEHIND = 4,   /* its loss, or only its accuracy */
    AB_SYMPTOM_BASELINE = 8, /* O0 does not learn, diverges or is unstable */
    AB_SYMPTOM_AVERAGE = 16,
    AB_SYMPTOM_EVALUATION = 32
} ab_symptom;

enum {
    AB_SYMPTOMS = 6,
    AB_SYMPTOMS_OF_CELL = AB_SYMPTOM_NONFINITE | AB_SYMPTOM_SKIPPING | AB_SYMPTOM_BEHIND
};

/* The symptoms of a case, ab_symptom bits. */
unsigned ab_symptoms_of(const ab_case *c);

/* The symptom of bit i in [0, AB_SYMPTOMS), in words. */
const char *ab_symptom_text(int i);

/* O0's losses were finite at first and rose to several times the first before one was NaN or inf. */
bool ab_baseline_jumps(const ab_case *c);

AB_END_DECLS

#endif
