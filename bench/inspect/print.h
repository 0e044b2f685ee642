/* Parts of the form for people that are files of their own. */
#ifndef AB_BENCH_INSPECT_PRINT_H
#define AB_BENCH_INSPECT_PRINT_H

#include "bench/inspect/inspect.h"

AB_BEGIN_DECLS

typedef struct ab_inspect_histogram {
    const ab_census *census;
    const ab_whatif_limits *limits; /* drawn between the lines */
    bool color;
} ab_inspect_histogram;

/* One line a factor of two; nothing when there is no finite non-zero value. */
void ab_inspect_print_histogram(FILE *out, const ab_inspect_histogram *histogram);

AB_END_DECLS

#endif
