/* The rows of facts.def: each a quantity with unit, step and place. Decides nothing. */
#ifndef AB_REPORTS_DIAGNOSE_FACTS_FACTS_LIST_H
#define AB_REPORTS_DIAGNOSE_FACTS_FACTS_LIST_H

#include "reports/diagnose/facts/facts.h"

AB_BEGIN_DECLS

enum { AB_FACT_PLACE = 120 };

/* A quantity of a cell. value: NAN if the record does not hold it; step: AB_STEP_UNKNOWN if it is of no
 * single step; place: JSON pointer relative to the cell, "" if it is computed from several. */
typedef struct ab_fact {
    double value;
    int step;
    char place[AB_FACT_PLACE];
} ab_fact;

typedef struct ab_fact_row {
    const char *name, *unit, *text;
    const char *threshold; /* its name; "none": no single one */
    ab_fact (*get)(const ab_facts *facts);
} ab_fact_row;

/* The rows of facts.def, in order: i in [0, count). */
int ab_fact_count(void);
const ab_fact_row *ab_fact_at(int i);

/* The value of a row's threshold; NAN: none. */
double ab_fact_limit(const ab_fact_row *row, ab_thresholds limits);

AB_END_DECLS

#endif
