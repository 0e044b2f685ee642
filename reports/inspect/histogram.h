/* A histogram of magnitudes for the terminal. */
#ifndef AB_REPORTS_INSPECT_HISTOGRAM_H
#define AB_REPORTS_INSPECT_HISTOGRAM_H

#include "kernels/census/whatif.h"

#include <stdio.h>

AB_BEGIN_DECLS

typedef struct ab_inspect_histogram {
    const ab_census *census;        /* both pointers are borrowed */
    const ab_whatif_limits *limits; /* drawn between the lines */
    bool color;                     /* ANSI colours */
} ab_inspect_histogram;

/* Prints one line per power of two; nothing if there is no finite non-zero value. */
void ab_inspect_print_histogram(FILE *out, const ab_inspect_histogram *histogram);

AB_END_DECLS

#endif
