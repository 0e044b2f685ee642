/* Why a cell does not train as O0 does: verdicts from the record alone.
 *
 * A case is what the record says of one cell beside the O0 cell it is compared with, worked out once. A rule looks at a case and
 * says whether its cause explains what went wrong, with evidence that names the place in the document. Rules never
 * guess: what the record does not hold is a missing piece of evidence, and the diagnosis says how to get it.
 * One rule is one file with a const ab_verdict_rule and one line in verdicts.def. Nothing here runs anything. */
#ifndef AB_REPORTS_DIAGNOSE_H
#define AB_REPORTS_DIAGNOSE_H

#include "kernels/format.h"

#include <cjson/cJSON.h>
#include <stdio.h>

AB_BEGIN_DECLS

enum {
    AB_VERDICT_EVIDENCE = 6,
    AB_VERDICT_TEXT = 280,
    AB_VERDICT_POINTER = 120,
    AB_VERDICT_LAYER = 96,
    AB_VERDICT_RULES = 40 /* at most */
};

/* ---- a case ---------------------------------------------------------------------------------------------- */

/* Steps at which a cell's losses are not numbers, and how its loss went. */
typedef struct ab_loss_facts {
    int steps;           /* trained */
    int nonfinite;       /* losses */
    int first_nonfinite; /* step; -1: none */
    double first, final; /* first loss; mean of the last 20 as in the summary; NAN if not finite */
    double largest;      /* finite one */
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
    /* what is wrong */
    bool nonfinite; /* losses */
    bool skipping;  /* more than a fifth of the steps after the first quarter */
    bool behind;    /* the gap is above the limit */
    bool unlearned; /* O0 itself ended no better than it began, or not finite */
    bool sick;      /* any of these */
} ab_case;

/* Works out the case of cells[index] of a summarised document. AB_INPUT if the half format is unknown. */
AB_MUST_CHECK ab_status ab_case_of(const cJSON *document, int index, ab_case *facts);

/* True if the weights, and the updates stored into them, are in the half format: no fp32 masters. */
bool ab_case_half_weights(const ab_case *facts);

/* True if ops run in the half format at all. */
bool ab_case_uses_half(const ab_case *facts);

/* True if the run's recipe says that it makes this mistake (config.faults; bench/train/faults.def). */
bool ab_case_fault(const ab_case *facts, const char *name);

/* Share of a tensor's energy (sum of squares) in values that the cast flushes to zero, from the exponents recorded for a
 * tensor of probes.tensors. Values with one exponent count as spread evenly over its binade, so this is an estimate. NAN without. */
double ab_case_flushed_energy(const ab_case *facts, const cJSON *tensor);

/* ---- verdicts -------------------------------------------------------------------------------------------- */

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
    char remedy[AB_VERDICT_TEXT];  /* what to add to the command line, in words and options */
    char missing[AB_VERDICT_TEXT]; /* what the record lacks to say more, and how to get it; "" */
    double confidence;             /* 0..1: how well this cause explains what is seen; orders verdicts */
} ab_verdict;

typedef struct ab_verdict_rule {
    const char *id; /* stable */
    ab_verdict_family family;
    const char *text; /* one line for people */
    /* True if the cause is there. Called only for sick cases; fills everything but `rule`. */
    bool (*judge)(const ab_case *facts, ab_verdict *verdict);
} ab_verdict_rule;

int ab_verdict_rule_count(void);
const ab_verdict_rule *ab_verdict_rule_at(int i);
const char *ab_verdict_family_name(ab_verdict_family family);

/* Adds a line of evidence; `pointer` is a format with the case's cell already in front ("/cells/3" + "/loss"). */
void ab_verdict_say(ab_verdict *verdict, const char *format, ...) AB_PRINTF(2, 3);
void ab_verdict_point(const ab_case *facts, ab_verdict *verdict, const char *format, ...) AB_PRINTF(3, 4);

typedef struct ab_diagnosis {
    ab_case facts;
    int verdicts; /* best first; 0: healthy, or sick with no known cause */
    ab_verdict verdict[AB_VERDICT_RULES];
    ab_verdict healthy; /* what speaks for it; when !facts.sick */
} ab_diagnosis;

/* Judges one cell of a summarised document. */
AB_MUST_CHECK ab_status ab_diagnose(const cJSON *document, int index, ab_diagnosis *diagnosis);

/* The diagnoses of all cells but twins: for people, and as JSON (owned by the caller). *sick: how many cells are. */
AB_MUST_CHECK ab_status ab_diagnose_print(const cJSON *document, FILE *out, int *sick);
AB_MUST_CHECK ab_status ab_diagnose_json(const cJSON *document, cJSON **json, int *sick);

AB_END_DECLS

#endif
