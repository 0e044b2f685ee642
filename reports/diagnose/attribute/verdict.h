/* Causes: each explains the symptoms of a case or does not, and names the numbers of the record that show it.
 *
 * A rule never guesses: if the record lacks a field, the verdict reports it as missing and says how to record
 * it. One rule is one file in causes/ with a const ab_verdict_rule and one line in verdicts.def. */
#ifndef AB_REPORTS_DIAGNOSE_ATTRIBUTE_VERDICT_H
#define AB_REPORTS_DIAGNOSE_ATTRIBUTE_VERDICT_H

#include "reports/diagnose/detect/case.h"
#include "reports/diagnose/facts/first_nonfinite.h"
#include "reports/diagnose/remedy/remedy.h"

AB_BEGIN_DECLS

enum {
    AB_VERDICT_EVIDENCE = 6,
    AB_VERDICT_TEXT = 280,
    AB_VERDICT_POINTER = 120,
    AB_VERDICT_LAYER = 96,
    AB_VERDICT_RULES = 40 /* at most */
};

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
    ab_remedy remedy;
    char missing[AB_VERDICT_TEXT]; /* what the record lacks and how to record it; "" */
    double confidence; /* 0..1: how well this cause explains the symptoms; verdicts are sorted by it */
    int since;         /* step of the first evidence; AB_STEP_UNKNOWN */
    bool own;    /* not a consequence of an earlier cause: O0 or a ledger of lost updates shows it too */
    bool effect; /* may be a consequence of an earlier cause of the same record */
    bool next;   /* not seen yet, expected once the first cause is fixed; sorted last */
} ab_verdict;

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
    bool (*judge)(const ab_case *c, ab_verdict *verdict);
    /* The same for a cell without symptoms: the record shows the mistake itself, which no correct run can
     * produce. NULL: this cause is recognised by its symptoms only. */
    bool (*shows)(const ab_case *c, ab_verdict *verdict);
    /* The change that removes the cause, called once the order of the verdicts is known. */
    void (*remedy)(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy);
} ab_verdict_rule;

/* The rows of verdicts.def, in order: i in [0, count). family_name: the family's name in JSON. */
int ab_verdict_rule_count(void);
const ab_verdict_rule *ab_verdict_rule_at(int i);
const char *ab_verdict_family_name(ab_verdict_family family);

/* Adds a line of evidence, printf-style; ignored if there are AB_VERDICT_EVIDENCE already. */
void ab_verdict_say(ab_verdict *verdict, const char *format, ...) AB_PRINTF(2, 3);
/* Sets the JSON pointer of the last evidence; the format is appended to the case's cell ("/cells/3" +
 * "/loss"). */
void ab_verdict_point(const ab_facts *facts, ab_verdict *verdict, const char *format, ...) AB_PRINTF(3, 4);
/* The same, into the O0 cell. */
void ab_verdict_point_baseline(const ab_facts *facts, ab_verdict *verdict, const char *format, ...)
    AB_PRINTF(3, 4);

/* Adds it to a verdict as evidence and sets the layer. */
void ab_say_first_nonfinite(const ab_facts *facts, const ab_first_nonfinite *first, ab_verdict *verdict);

/* Adds to the verdict as evidence that O0 fails. */
void ab_say_baseline_fails(const ab_case *c, ab_verdict *verdict);

/* Writes into text what the record of an unexplained sick cell lacks and the options that record it. */
void ab_missing_evidence(const ab_case *c, char *text, size_t size);

/* Sorts verdicts, causes before their consequences. Returns how many remain. */
int ab_order_verdicts(const ab_thresholds *limits, ab_verdict *verdict, int count);

/* Fills the remedies of sorted verdicts, and adds to the first the options for other causes that the record
 * shows. */
void ab_add_remedies(const ab_case *c, ab_verdict *verdict, int count);

AB_END_DECLS

#endif
