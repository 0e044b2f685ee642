/* Smaller sets that still do: delta debugging (Zeller and Hildebrandt 2002). Knows nothing of what the items
 * are. */
#ifndef AB_BENCH_PROMOTE_DDMIN_H
#define AB_BENCH_PROMOTE_DDMIN_H

#include "kernels/core/status.h"

#include <stdbool.h>

AB_BEGIN_DECLS

enum { AB_DDMIN_ITEMS = 512 };

/* Whether a set of items does. Errors end the search. */
typedef struct ab_ddmin_test {
    ab_status (*does)(void *context, const int *item, int count, bool *does);
    void *context;
} ab_ddmin_test;

/* The shortest beginning of a ranked list (1, 2, 4, ... items, then halving) that does, if longer ones do
 * when shorter ones do; else some beginning that does. *count is the length of the list and becomes that of
 * the beginning; the whole list is known to do. */
AB_MUST_CHECK ab_status ab_shortest_prefix(const ab_ddmin_test *test, const int *item, int *count);

/* Takes items away from a set that does until no single one can go (1-minimal); their order stays. At most
 * AB_DDMIN_ITEMS. */
AB_MUST_CHECK ab_status ab_ddmin(const ab_ddmin_test *test, int *item, int *count);

AB_END_DECLS

#endif
