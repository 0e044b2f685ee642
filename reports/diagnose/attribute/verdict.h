/* Causes: each explains the symptoms of a case or does not, and names the numbers of the record that show it.
 *
 * A rule never guesses: if the record lacks a field, the verdict reports it as missing and says how to record
 * it. It declares the facts it needs, the symptoms it causes and what refutes it (conditions.h). One rule is
 * one file in causes/ with a const ab_verdict_rule and one line in verdicts.def. */
#ifndef AB_REPORTS_DIAGNOSE_ATTRIBUTE_VERDICT_H
#define AB_REPORTS_DIAGNOSE_ATTRIBUTE_VERDICT_H

#include "reports/diagnose/attribute/conditions.h"
#include "reports/diagnose/facts/first_nonfinite.h"
#include "reports/diagnose/remedy/remedy.h"

AB_BEGIN_DECLS

enum {
    AB_VERDICT_EVIDENCE = 6,
    AB_VERDICT_TEXT = 280,
    AB_VERDICT_POINTER = 120,
    AB_VERDICT_LAYER = 96,
    AB_VERDICT_RULES = 64, /* at most */
    AB_RULE_NEEDS = 4,
    AB_RULE_REFUTATIONS = 5
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

/* How the record shows a cause. */
typedef enum ab_proof {
    AB_PROOF_NONE,      /* no cause */
    AB_PROOF_SHOWN,     /* it holds what the cause did, as events or counts */
    AB_PROOF_COMPARED,  /* a number is not what O0 has, or what can be without the cause */
    AB_PROOF_CONSISTENT /* the configuration allows it and the symptoms agree; nothing was counted */
} ab_proof;

typedef enum ab_rank {
    AB_RANK_FIRST,       /* the cause, as far as the record tells */
    AB_RANK_POSSIBLE,    /* not explained by the first: a second cause, or the cause in its place */
    AB_RANK_CONSEQUENCE, /* an earlier cause of this record explains it */
    AB_RANK_NEXT         /* not seen yet, expected once the first is removed */
} ab_rank;

typedef struct ab_verdict {
    const struct ab_verdict_rule *rule;
    char layer[AB_VERDICT_LAYER]; /* printable text; "" if none or not known */
    int evidences;
    ab_evidence evidence[AB_VERDICT_EVIDENCE];
    ab_remedy remedy;
    char missing[AB_VERDICT_TEXT]; /* what the record lacks and how to record it; "" */
    ab_proof proof;
    ab_rank rank; /* set by ab_order_verdicts */
    unsigned
        unexplained; /* symptoms (ab_symptom) that the cause does not predict; set by who asks the rules */
    int since;       /* step of the first event that the cause explains; AB_STEP_UNKNOWN */
    bool own;  /* would be there without any earlier cause: O0 or a ledger of lost updates shows it too */
    bool next; /* not seen yet, expected once the first cause is removed; sorted last */
} ab_verdict;

/* Where in a step a cause acts: the chain of causes. Later parts of the step, and all later steps, may show
 * its consequences. */
typedef enum ab_acts {
    AB_ACTS_DATA,     /* inputs, labels */
    AB_ACTS_WEIGHTS,  /* initial ones */
    AB_ACTS_FORWARD,  /* and the loss */
    AB_ACTS_BACKWARD, /* of the scaled loss */
    AB_ACTS_GRADIENT, /* accumulating, unscaling, skipping, clipping */
    AB_ACTS_STATE,    /* of the optimizer */
    AB_ACTS_UPDATE,   /* its size: rate and decay */
    AB_ACTS_STORE,    /* into the weights */
    AB_ACTS_ASIDE     /* training does not read it: averages, running statistics */
} ab_acts;

typedef struct ab_verdict_rule {
    const char *id; /* stable */
    ab_verdict_family family;
    ab_acts acts;
    const char *text; /* one line of text */
    /* Facts without which the record cannot show the cause; NULL ends the list. */
    const ab_need *needs[AB_RULE_NEEDS];
    unsigned predicts; /* symptoms (ab_symptom) that the cause makes */
    /* What contradicts it: then it is not said, whatever `judge` finds. NULL ends the list. */
    const ab_refutation *refuted_by[AB_RULE_REFUTATIONS];
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

/* The record shows the cause, in this way and since this step, and would show it without any earlier cause:
 * sets proof, own and since. */
void ab_verdict_own(ab_verdict *verdict, ab_proof proof, int since);

/* Adds a line of evidence, printf-style; ignored if there are AB_VERDICT_EVIDENCE already. */
void ab_verdict_add_evidence(ab_verdict *verdict, const char *format, ...) AB_PRINTF(2, 3);
/* Sets the JSON pointer of the last evidence; the format is appended to the case's cell ("/cells/3" +
 * "/loss"). */
void ab_verdict_point(const ab_facts *facts, ab_verdict *verdict, const char *format, ...) AB_PRINTF(3, 4);
/* The same, into the O0 cell. */
void ab_verdict_point_baseline(const ab_facts *facts, ab_verdict *verdict, const char *format, ...)
    AB_PRINTF(3, 4);

/* The same, from the root of the document ("/probe/facts/3"). */
void ab_verdict_point_document(ab_verdict *verdict, const char *format, ...) AB_PRINTF(2, 3);

/* Adds it to a verdict as evidence and sets the layer. */
void ab_say_first_nonfinite(const ab_facts *facts, const ab_first_nonfinite *first, ab_verdict *verdict);

/* Adds to the verdict as evidence that O0 fails. */
void ab_say_baseline_fails(const ab_case *c, ab_verdict *verdict);

/* Writes into text what the record of an unexplained sick cell lacks and the options that record it. */
void ab_missing_evidence(const ab_case *c, char *text, size_t size);

/* Sorts verdicts, causes before their consequences, and ranks them. Returns how many remain. */
int ab_order_verdicts(ab_verdict *verdict, int count);

/* "shown", "compared", "consistent", "none"; "first", "also possible", "consequence", "next". */
const char *ab_proof_name(ab_proof proof);
const char *ab_rank_name(ab_rank rank);

/* The first of a verdict's refutations that holds; NULL: none. */
const ab_refutation *ab_refutation_of(const ab_case *c, const ab_verdict *verdict);

/* A cause that a rule found and that something else of the record contradicts. */
typedef struct ab_ruled_out {
    const ab_verdict_rule *rule;
    const ab_refutation *by;
} ab_ruled_out;

/* The run that tells two causes apart which stay possible: the options of one cause's remedy alone. It makes
 * the cell healthy only if that is the cause. */
typedef struct ab_decision {
    int count;              /* 2 possible causes, or 0: there is nothing to decide or no option does */
    const char *between[2]; /* ids of their rules */
    int healthy_if;         /* index in `between` */
    ab_remedy remedy;
} ab_decision;

/* Fills the remedies of sorted verdicts and the run that decides between the first two, and adds to the first
 * remedy the options for other causes that the record shows. */
void ab_add_remedies(const ab_case *c, ab_verdict *verdict, int count, ab_decision *decision);

AB_END_DECLS

#endif
