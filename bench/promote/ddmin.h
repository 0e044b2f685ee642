/* Delta debugging (Zeller and Hildebrandt 2002): finds smaller sets of items that still satisfy a test.
 * Independent of the meaning of the items. */
#ifndef AB_BENCH_PROMOTE_DDMIN_H
#define AB_BENCH_PROMOTE_DDMIN_H

#include "kernels/core/status.h"

#include <stdbool.h>

AB_BEGIN_DECLS

enum { AB_DDMIN_ITEMS = 512 };

/* Tests whether a set of items satisfies the condition. Errors end the search. */
typedef struct ab_ddmin_test {
    ab_status (*passes)(void *context, const int *item, int count, bool *passes);
    void *context;
} ab_ddmin_test;

/* Finds the shortest prefix of a ranked list (1, 2, 4, ... items, then bisection) that passes the test, if
 * the test is monotonic in the length; else some prefix that passes. *count: in, the length of the list; out,
 * that of the prefix. The whole list must be known to pass. */
AB_MUST_CHECK ab_status ab_shortest_prefix(const ab_ddmin_test *test, const int *item, int *count);

/* Removes items from a set that passes until no single item can be removed (1-minimal); keeps their order. At
 * most AB_DDMIN_ITEMS items. */
AB_MUST_CHECK ab_status ab_ddmin(const ab_ddmin_test *test, int *item, int *count);

AB_END_DECLS

#endif
