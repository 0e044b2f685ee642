/* Changes to a run that remove a cause: in words, and as options that `ampbench run` accepts. */
#ifndef AB_REPORTS_DIAGNOSE_REMEDY_REMEDY_H
#define AB_REPORTS_DIAGNOSE_REMEDY_REMEDY_H

#include "reports/diagnose/facts/facts.h"

AB_BEGIN_DECLS

enum {
    AB_REMEDY_TEXT = 280,
    AB_REMEDY_OPTIONS = 8 /* words of a remedy as options: names and values in turns */
};

typedef struct ab_remedy {
    char text[AB_REMEDY_TEXT]; /* what to add to the command line, in words and options; "" if nothing */
    /* the same for programs: words to append to the run's options; later ones override earlier ones, but --to
     * adds to them */
    char option[AB_REMEDY_OPTIONS][AB_REMEDY_TEXT];
    int options;      /* words used; 0: no option fixes it */
    bool with_others; /* its options may be added to another remedy */
} ab_remedy;

/* Adds an option and its value; ignored if there is no space for it. */
void ab_remedy_option(ab_remedy *remedy, const char *name, const char *format, ...) AB_PRINTF(3, 4);

/* Adds --steps to a remedy after which O0 should learn: the record cannot show that a short run is long
 * enough. */
void ab_remedy_more_steps(const ab_facts *facts, ab_remedy *remedy);

/* Keeps an op in fp32 and those after it up to the next product; --half bf16 if there are too many. `op`: ""
 * if not known. */
void ab_remedy_keep_fp32(const ab_facts *facts, const char *op, ab_remedy *remedy);

/* The op's entry in probes.signals of a cell; NULL if it has none. */
const cJSON *ab_signal_of(const cJSON *cell, const char *op);

AB_END_DECLS

#endif
