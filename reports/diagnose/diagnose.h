/* Why a cell does not train as O0 does: verdicts from the record alone. Nothing here trains.
 *
 * A case holds the facts of one cell and of the O0 cell that it is compared with, computed once. A rule reads
 * a case and decides whether its cause explains the symptoms; its evidence names the places in the document.
 * Rules never guess: if the record lacks a field, the verdict reports it as missing and says how to record
 * it. One rule is one file with a const ab_verdict_rule and one line in verdicts.def. */
#ifndef AB_REPORTS_DIAGNOSE_DIAGNOSE_H
#define AB_REPORTS_DIAGNOSE_DIAGNOSE_H

#include "kernels/format/format.h"

#include <cjson/cJSON.h>
#include <stdio.h>

AB_BEGIN_DECLS

enum {
    AB_VERDICT_EVIDENCE = 6,
    AB_VERDICT_TEXT = 280,
    AB_VERDICT_POINTER = 120,
    AB_VERDICT_LAYER = 96,
    AB_VERDICT_OPTIONS = 8, /* words of a remedy as options: names and values in turns */
    AB_VERDICT_RULES = 40   /* at most */
};

/* ---- a case ---------------------------------------------------------------------------------- */

/* A cell's losses: steps with NaN or inf, and how the loss changed. */
typedef struct ab_loss_facts {
    int steps;           /* trained steps */
    int nonfinite;       /* losses that are NaN or inf */
    int first_nonfinite; /* step; -1: none */
    double first, final; /* first loss; mean of the last 20 as in the summary; NAN if not finite */
    double largest;      /* finite one */
    double highest;      /* highest mean of five consecutive losses after the first; 0: no five were finite */
} ab_loss_facts;

typedef struct ab_skip_facts {
    bool dynamic;       /* a scaler changes the scale */
    double first_scale; /* scale at step 0 */
    double last_scale, least_scale, largest_scale;
    int skipped, late, late_steps; /* late: after the first quarter of the run */
    int loss_finite;               /* skipped steps whose loss was finite: the backward pass overflowed */
    double window;                 /* clean steps before a growth */
} ab_skip_facts;

typedef struct ab_case {
    const cJSON *document, *cell,
        *baseline; /* baseline: NULL if there is none; the cell itself if it is O0 */
    int index;     /* in cells[] */
    const ab_format *half;
    ab_loss_facts loss, baseline_loss;
    ab_skip_facts skip;
    double gap, gap_limit; /* loss gap to O0 and what the certificate allows; NAN: not known */
    double skip_cost;      /* decrease of O0's loss over as many last steps as were skipped */
    /* what is wrong */
    bool nonfinite;     /* some losses are NaN or inf */
    bool skipping;      /* skipped more than a fifth of the steps after the first quarter */
    bool behind;        /* gap > gap_limit */
    bool unlearned;     /* O0 itself ended no better than it began, or non-finite */
    bool diverged;      /* O0's losses: some non-finite, or far above the first */
    bool lr_unstable;   /* O0 learns little: updates large relative to its weights, or its loss rose */
    bool stuck;         /* the average of the weights stopped following them and scores worse */
    bool eval_degraded; /* it trains but evaluates badly: running statistics in the half format */
    bool suspect;       /* the gap alone may be noise, but the record shows its cause */
    bool misconfigured; /* the record shows a configuration mistake, with or without symptoms */
    bool sick;          /* any of the above */
    bool undecided;     /* O0 has not learned or the gap may be noise; cause unknown; then sick is false */
} ab_case;

/* Computes the case of cells[index] of a summarised document. AB_INPUT if the half format is unknown. */
AB_MUST_CHECK ab_status ab_case_of(const cJSON *document, int index, ab_case *facts);

/* True if the weights, and the updates stored into them, are in the half format: no fp32 masters. */
bool ab_case_half_weights(const ab_case *facts);

/* The gradient of O0's logits in its probes.tensors, if a single classification loss reads them; else NULL.
 */
const cJSON *ab_case_logits(const ab_case *facts);

/* Number of classes of the data; for next-token prediction the width of O0's logits. 0: neither is known. */
double ab_case_classes(const ab_case *facts);

/* The format of batch norms' running statistics: as configured, or that of a model that is cast as a whole.
 */
const char *ab_case_statistics_format(const ab_case *facts);

/* True if any op runs in the half format. */
bool ab_case_uses_half(const ab_case *facts);

/* Share of a tensor's energy (sum of squares) in values that the cast flushes to zero, from the exponents
 * recorded for a tensor of probes.tensors. An estimate: values are taken to be uniform within a binade. NAN
 * if there are no exponents. */
double ab_case_flushed_energy(const ab_case *facts, const cJSON *tensor);

/* True if there is another cell, O0, that learned: then the fault is in this cell. */
bool ab_case_sound_baseline(const ab_case *facts);

/* What the loss did in the last half of the run. */
typedef enum ab_trend {
    AB_TREND_FALLING,
    AB_TREND_CONVERGED,
    AB_TREND_SKIPPED,   /* flat because all steps were skipped */
    AB_TREND_ROUNDING,  /* flat because updates are lost to rounding */
    AB_TREND_FLUSHED,   /* flat because gradients are flushed */
    AB_TREND_RATE,      /* flat or unstable because of the learning rate */
    AB_TREND_STALLED,   /* flat for another known cause: the first verdict's */
    AB_TREND_UNLEARNED, /* flat, cause unknown */
    AB_TREND_NONFINITE,
    AB_TREND_SHORT /* too few losses */
} ab_trend;
const char *ab_trend_name(ab_trend trend);

/* The first step with a symptom: a NaN or inf loss, a skip after the first quarter of the run, or the step
 * from which the mean gap over 20 steps stays above the limit; -1: none of these. */
int ab_first_symptom(const ab_case *facts);

/* Steps that a scaler skipped and how many are expected. Warm-up, until the scale first rises: one skip per
 * halving from the first scale to the largest that works. Later: one in window + 1. p_value: two-sided test
 * that the skipped steps' losses rank uniformly among those of the 16 steps around each (mean of uniform
 * ranks, normal approximation); NAN below 5 ranked steps. Gradient norms cannot be compared: they are NaN or
 * inf in steps that overflowed. */
typedef struct ab_skip_audit {
    int warm_up, later;
    double expected_warm_up, expected_later;
    bool healthy;
    int ranked;
    double mean_rank, p_value, samples_lost;
    double labels;  /* in skipped steps; 0: not known */
    double label_p; /* p-value of their classes being a random sample of all batches' (stats.h); NAN: not
                       known */
    int label;      /* the class most over-represented in skipped steps; -1: not known */
    double label_share, label_expected; /* share of that class in skipped steps and in all */
} ab_skip_audit;
ab_skip_audit ab_audit_skips(const ab_case *facts);

/* ---- verdicts -------------------------------------------------------------------------------- */

typedef struct ab_evidence {
    char text[AB_VERDICT_TEXT];
    char pointer[AB_VERDICT_POINTER]; /* JSON pointer (RFC 6901) of the number in the document; "" for none */
} ab_evidence;

typedef enum ab_verdict_family {
    AB_FAMILY_HEALTHY,
    AB_FAMILY_PRECISION,     /* not in fp32 */
    AB_FAMILY_CONFIGURATION, /* a mistake in the configuration */
    AB_FAMILY_TRAINING       /* fails in fp32 too */
} ab_verdict_family;

typedef struct ab_verdict {
    const struct ab_verdict_rule *rule;
    char layer[AB_VERDICT_LAYER]; /* printable text; "" if none or not known */
    int evidences;
    ab_evidence evidence[AB_VERDICT_EVIDENCE];
    char remedy[AB_VERDICT_TEXT]; /* what to add to the command line, in words and options */
    /* the same for programs: words to append to the run's options; later ones override earlier ones, but --to
     * adds to them */
    char option[AB_VERDICT_OPTIONS][AB_VERDICT_TEXT];
    int options;                   /* 0: no option fixes it */
    char missing[AB_VERDICT_TEXT]; /* what the record lacks and how to record it; "" */
    double confidence; /* 0..1: how well this cause explains the symptoms; verdicts are sorted by it */
    int since;         /* step of the first evidence; AB_SINCE_UNKNOWN */
    bool own;         /* not a consequence of an earlier cause: O0 or a ledger of lost updates shows it too */
    bool next;        /* not seen yet, expected once the first cause is fixed; sorted last */
    bool with_others; /* its options may be added to another remedy */
} ab_verdict;

enum { AB_SINCE_UNKNOWN = -1 };

/* Where in a step a cause acts. Later parts of the step, and all later steps, may show its consequences. */
typedef enum ab_acts {
    AB_ACTS_BEFORE, /* data, labels or initial weights */
    AB_ACTS_FORWARD,
    AB_ACTS_BACKWARD,
    AB_ACTS_UPDATE,
    AB_ACTS_ASIDE /* training does not read it: averages, running statistics */
} ab_acts;

typedef struct ab_verdict_rule {
    const char *id; /* stable */
    ab_verdict_family family;
    ab_acts acts;
    const char *text; /* one line of text */
    /* True if the cause is present. Called for sick cases; fills everything but `rule`. */
    bool (*judge)(const ab_case *facts, ab_verdict *verdict);
    /* The same for a cell without symptoms: the record shows the mistake itself, which no correct run can
     * produce. NULL: this cause is recognised by its symptoms only. */
    bool (*shows)(const ab_case *facts, ab_verdict *verdict);
} ab_verdict_rule;

/* The rows of verdicts.def, in order: i in [0, count). family_name: the family's name in JSON. */
int ab_verdict_rule_count(void);
const ab_verdict_rule *ab_verdict_rule_at(int i);
const char *ab_verdict_family_name(ab_verdict_family family);

/* Adds a line of evidence, printf-style; ignored if there are AB_VERDICT_EVIDENCE already. */
void ab_verdict_say(ab_verdict *verdict, const char *format, ...) AB_PRINTF(2, 3);
/* Adds an option and its value to the remedy; ignored if there is no space for it. */
void ab_verdict_option(ab_verdict *verdict, const char *name, const char *format, ...) AB_PRINTF(3, 4);
/* Sets the JSON pointer of the last evidence; the format is appended to the case's cell ("/cells/3" +
 * "/loss"). */
void ab_verdict_point(const ab_case *facts, ab_verdict *verdict, const char *format, ...) AB_PRINTF(3, 4);
/* The same, into the O0 cell. */
void ab_verdict_point_baseline(const ab_case *facts, ab_verdict *verdict, const char *format, ...)
    AB_PRINTF(3, 4);

typedef struct ab_diagnosis {
    ab_case facts;
    int verdicts; /* most confident first; 0: healthy, or sick with no known cause */
    ab_verdict verdict[AB_VERDICT_RULES];
    ab_verdict healthy; /* if !facts.sick: evidence that it is healthy, or what to run to decide */
    ab_trend trend;
    ab_skip_audit skips;
} ab_diagnosis;

/* Sorts the verdicts, causes before their consequences (diagnose_order.c), and adds to the first remedy the
 * options for other causes that the record shows. */
void ab_order_verdicts(ab_diagnosis *diagnosis);

/* The trend of the loss. The diagnosis must have its verdicts. */
ab_trend ab_trend_of(const ab_diagnosis *diagnosis);

/* Diagnoses cells[index] of a summarised document. */
AB_MUST_CHECK ab_status ab_diagnose(const cJSON *document, int index, ab_diagnosis *diagnosis);

/* Diagnoses the trained cells of a summarised document in order, except perturbed baselines, and calls
 * `visit` for each; stops at the visitor's first failure. *sick (may be NULL): number of sick cells. */
typedef ab_status (*ab_diagnosis_visitor)(const ab_diagnosis *diagnosis, void *argument);
AB_MUST_CHECK ab_status ab_diagnose_each(const cJSON *document, ab_diagnosis_visitor visit, void *argument,
                                         int *sick);

/* The diagnoses of all cells except perturbed baselines, as text and as JSON (owned by the caller). *sick:
 * number of sick cells. */
AB_MUST_CHECK ab_status ab_diagnose_print(const cJSON *document, FILE *out, int *sick);
AB_MUST_CHECK ab_status ab_diagnose_json(const cJSON *document, cJSON **json, int *sick);

AB_END_DECLS

#endif
