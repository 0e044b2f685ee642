/* Why a cell does not train as O0 does: verdicts from the record alone.
 *
 * A case is what the record says of one cell beside the O0 cell it is compared with, worked out once. A rule
 * looks at a case and says whether its cause explains what went wrong, with evidence that names the place in
 * the document. Rules never guess: what the record does not hold is a missing piece of evidence, and the
 * diagnosis says how to get it. One rule is one file with a const ab_verdict_rule and one line in
 * verdicts.def. Nothing here runs anything. */
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

/* Steps at which a cell's losses are not numbers, and how its loss went. */
typedef struct ab_loss_facts {
    int steps;           /* trained */
    int nonfinite;       /* losses */
    int first_nonfinite; /* step; -1: none */
    double first, final; /* first loss; mean of the last 20 as in the summary; NAN if not finite */
    double largest;      /* finite one */
    double highest;      /* mean of five losses in a row after the first; 0 where none are finite */
} ab_loss_facts;

typedef struct ab_skip_facts {
    bool dynamic;       /* the scale is changed by a scaler */
    double first_scale; /* in force at step 0 */
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
    double skip_cost;      /* of it: what O0 would be behind with as many steps fewer as were skipped */
    /* what is wrong */
    bool nonfinite;   /* losses */
    bool skipping;    /* more than a fifth of the steps after the first quarter */
    bool behind;      /* the gap is above the limit */
    bool unlearned;   /* O0 itself ended no better than it began, or not finite */
    bool diverged;    /* O0's losses: some not finite, or far above the first */
    bool lr_unstable; /* O0 learns a little, thrown about by steps that are large beside its weights, or after
                         its loss had risen */
    bool stuck;       /* an average of the weights is kept that cannot follow them, and is worse */
    bool eval_degraded; /* badly, though it trains: its running statistics are kept in the half format */
    bool suspect;       /* the gap alone may be chance, but its cause shows in the record */
    bool misconfigured; /* a mistake of the recipe shows in what was recorded, whatever came of it */
    bool sick;          /* any of these */
    bool undecided; /* O0 has not learned, and no cause is known: the run may be too short. Then not sick */
} ab_case;

/* Works out the case of cells[index] of a summarised document. AB_INPUT if the half format is unknown. */
AB_MUST_CHECK ab_status ab_case_of(const cJSON *document, int index, ab_case *facts);

/* True if the weights, and the updates stored into them, are in the half format: no fp32 masters. */
bool ab_case_half_weights(const ab_case *facts);

/* The gradient of O0's logits in its probes.tensors, if its only loss of classes reads them; NULL without. */
const cJSON *ab_case_logits(const ab_case *facts);

/* Classes of the data; of next tokens the width of O0's logits. 0: neither. */
double ab_case_classes(const ab_case *facts);

/* The format that batch norms keep their running statistics in: asked for, or that of a model that is cast
 * whole. */
const char *ab_case_statistics_format(const ab_case *facts);

/* True if ops run in the half format at all. */
bool ab_case_uses_half(const ab_case *facts);

/* Share of a tensor's energy (sum of squares) in values that the cast flushes to zero, from the exponents
 * recorded for a tensor of probes.tensors. Values with one exponent count as spread evenly over its binade,
 * so this is an estimate. NAN without. */
double ab_case_flushed_energy(const ab_case *facts, const cJSON *tensor);

/* True if there is an O0 cell beside this one, other than it, that trained: then what is wrong is this cell's
 * own. */
bool ab_case_sound_baseline(const ab_case *facts);

/* Where the loss went in the last half of the run. */
typedef enum ab_trend {
    AB_TREND_FALLING,
    AB_TREND_CONVERGED,
    AB_TREND_SKIPPED,   /* flat because all steps were skipped */
    AB_TREND_ROUNDING,  /* flat because updates are lost to rounding */
    AB_TREND_FLUSHED,   /* flat because gradients are flushed */
    AB_TREND_RATE,      /* flat, or thrown about, because of the learning rate */
    AB_TREND_STALLED,   /* flat for another known cause: the first verdict's */
    AB_TREND_UNLEARNED, /* flat, and nothing says why */
    AB_TREND_NONFINITE,
    AB_TREND_SHORT /* too few losses to say */
} ab_trend;
const char *ab_trend_name(ab_trend trend);

/* The step from which on the symptom is there for good or first showed: a loss that is no number, a skip
 * after the first quarter of the run, losses whose mean over 20 steps stays above what is allowed; -1: none
 * of these. */
int ab_first_symptom(const ab_case *facts);

/* What a scaler skipped beside what one is expected to. Warm-up: until the scale first rises; one skip for
 * each halving from the first scale to the largest that works. Steady: one in window + 1. p_value: of the
 * skipped steps' losses being ranked by chance among those of the 16 steps around each (a mean of uniform
 * ranks, normal approximation, two-sided); NAN below 5. Gradient norms cannot be compared: in a step that
 * overflowed they are no numbers. */
typedef struct ab_skip_audit {
    int warm_up, later;
    double expected_warm_up, expected_later;
    bool healthy;
    int ranked;
    double mean_rank, p_value, samples_lost;
    double labels;  /* in skipped steps; 0: not known */
    double label_p; /* of their classes being those of a random sample of all batches' (stats.h); NAN: not
                       known */
    int label;      /* the class with most in skipped steps beside its share of all; -1: not known */
    double label_share, label_expected; /* of that class: its share there, and of all */
} ab_skip_audit;
ab_skip_audit ab_audit_skips(const ab_case *facts);

/* ---- verdicts -------------------------------------------------------------------------------- */

typedef struct ab_evidence {
    char text[AB_VERDICT_TEXT];
    char pointer[AB_VERDICT_POINTER]; /* JSON pointer (RFC 6901) of the number in the document; "" for none */
} ab_evidence;

typedef enum ab_verdict_family {
    AB_FAMILY_HEALTHY,
    AB_FAMILY_PRECISION,     /* fp32 would not have it */
    AB_FAMILY_CONFIGURATION, /* a mistake in the recipe */
    AB_FAMILY_TRAINING       /* fails in fp32 too */
} ab_verdict_family;

typedef struct ab_verdict {
    const struct ab_verdict_rule *rule;
    char layer[AB_VERDICT_LAYER]; /* cleaned; "" if none or not known */
    int evidences;
    ab_evidence evidence[AB_VERDICT_EVIDENCE];
    char remedy[AB_VERDICT_TEXT]; /* what to add to the command line, in words and options */
    char option[AB_VERDICT_OPTIONS][AB_VERDICT_TEXT]; /* the same for programs: words to append to the run's
                                                         options, where later ones override earlier; --to
                                                         wants the earlier ones too */
    int options;                                      /* 0: no option can do it */
    char missing[AB_VERDICT_TEXT]; /* what the record lacks to say more, and how to get it; "" */
    double confidence;             /* 0..1: how well this cause explains what is seen; orders verdicts */
    int since;                     /* step of the first evidence; AB_SINCE_UNKNOWN */
    bool own;         /* nothing before can have made it: it is in O0's numbers or a ledger too */
    bool next;        /* not seen yet, but what comes when the first is healed: after all others */
    bool with_others; /* its options disturb no other remedy: they may be added to one */
} ab_verdict;

enum { AB_SINCE_UNKNOWN = -1 };

/* Where in a step a cause acts: what comes later in a step, and all of every later one, may be its
 * consequence. */
typedef enum ab_acts {
    AB_ACTS_BEFORE, /* in data, labels or initial weights */
    AB_ACTS_FORWARD,
    AB_ACTS_BACKWARD,
    AB_ACTS_UPDATE,
    AB_ACTS_ASIDE /* on nothing that training reads: averages, running statistics */
} ab_acts;

typedef struct ab_verdict_rule {
    const char *id; /* stable */
    ab_verdict_family family;
    ab_acts acts;
    const char *text; /* one line for people */
    /* True if the cause is there. Called for sick cases; fills everything but `rule`. */
    bool (*judge)(const ab_case *facts, ab_verdict *verdict);
    /* The same for a cell that nothing is wrong with so far: the mistake itself is in the record, and no
     * sound run could have left it there. NULL: this cause is known by what comes of it. */
    bool (*shows)(const ab_case *facts, ab_verdict *verdict);
} ab_verdict_rule;

/* The rows of verdicts.def, in order: i in [0, count). family: its word in JSON. */
int ab_verdict_rule_count(void);
const ab_verdict_rule *ab_verdict_rule_at(int i);
const char *ab_verdict_family_name(ab_verdict_family family);

/* Adds a line of evidence; `pointer` is a format with the case's cell already in front ("/cells/3" +
 * "/loss"). */
void ab_verdict_say(ab_verdict *verdict, const char *format, ...) AB_PRINTF(2, 3);
/* Adds an option and its value to the remedy. */
void ab_verdict_option(ab_verdict *verdict, const char *name, const char *format, ...) AB_PRINTF(3, 4);
void ab_verdict_point(const ab_case *facts, ab_verdict *verdict, const char *format, ...) AB_PRINTF(3, 4);
/* Evidence in the O0 cell. */
void ab_verdict_point_baseline(const ab_case *facts, ab_verdict *verdict, const char *format, ...)
    AB_PRINTF(3, 4);

typedef struct ab_diagnosis {
    ab_case facts;
    int verdicts; /* best first; 0: healthy, or sick with no known cause */
    ab_verdict verdict[AB_VERDICT_RULES];
    ab_verdict healthy; /* what speaks for it, or what to do to decide; when !facts.sick */
    ab_trend trend;
    ab_skip_audit skips;
} ab_diagnosis;

/* Puts the verdicts in order, causes before what they led to (diagnose_order.c), and adds to the first one's
 * remedy what heals other causes that the record shows beside it. */
void ab_order_verdicts(ab_diagnosis *diagnosis);

/* Of a diagnosis whose verdicts are there. */
ab_trend ab_trend_of(const ab_diagnosis *diagnosis);

/* Judges one cell of a summarised document. */
AB_MUST_CHECK ab_status ab_diagnose(const cJSON *document, int index, ab_diagnosis *diagnosis);

/* Judges the trained cells of a summarised document one after the other, without the twins, and has each
 * diagnosis visited; ends with the visitor's first failure. *sick (NULL: not counted): how many cells are. */
typedef ab_status (*ab_diagnosis_visitor)(const ab_diagnosis *diagnosis, void *argument);
AB_MUST_CHECK ab_status ab_diagnose_each(const cJSON *document, ab_diagnosis_visitor visit, void *argument,
                                         int *sick);

/* The diagnoses of all cells but twins: for people, and as JSON (owned by the caller). *sick: how many cells
 * are. */
AB_MUST_CHECK ab_status ab_diagnose_print(const cJSON *document, FILE *out, int *sick);
AB_MUST_CHECK ab_status ab_diagnose_json(const cJSON *document, cJSON **json, int *sick);

AB_END_DECLS

#endif
