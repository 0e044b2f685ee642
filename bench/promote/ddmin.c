/* Delta debugging on lists of integers. */
#include "bench/promote/ddmin.h"

#include <string.h>

ab_status ab_shortest_prefix(const ab_ddmin_test *test, const int *item, int *count) {
    int fails = 0, passes = *count;
    for (int n = 1; n < passes; n *= 2) {
        bool good = false;
        AB_TRY(test->passes(test->context, item, n, &good));
        if (good)
            passes = n;
        else
            fails = n;
    }
    while (passes - fails > 1) {
        const int middle = fails + (passes - fails) / 2;
        bool good = false;
        AB_TRY(test->passes(test->context, item, middle, &good));
        if (good)
            passes = middle;
        else
            fails = middle;
    }
    *count = passes;
    return AB_OK;
}

/* Items without those of [from, to). */
static int without(const int *item, int count, int from, int to, int *rest) {
    int n = 0;
    for (int i = 0; i < count; i++)
        if (i < from || i >= to) rest[n++] = item[i];
    return n;
}

/* Searches the `parts` parts for one that can be removed; *left is the number of remaining items, or -1. */
static ab_status drop_a_part(const ab_ddmin_test *test, const int *item, int count, int parts, int *rest,
                             int *left) {
    *left = -1;
    for (int p = 0; p < parts; p++) {
        const int from = (int)((long)count * p / parts), to = (int)((long)count * (p + 1) / parts);
        const int n = without(item, count, from, to, rest);
        bool good = false;
        AB_TRY(test->passes(test->context, rest, n, &good));
        if (good) {
            *left = n;
            return AB_OK;
        }
    }
    return AB_OK;
}

ab_status ab_ddmin(const ab_ddmin_test *test, int *item, int *count) {
    int rest[AB_DDMIN_ITEMS], parts = 2;
    if (*count > AB_DDMIN_ITEMS)
        return ab_fail(AB_CONFIG, "more than %d layers to choose from", (int)AB_DDMIN_ITEMS);
    while (*count > 0) {
        int left;
        if (parts > *count) parts = *count;
        AB_TRY(drop_a_part(test, item, *count, parts, rest, &left));
        if (left >= 0) {
            memcpy(item, rest, (size_t)left * sizeof *item);
            *count = left;
            parts = parts > 2 ? parts - 1 : 2;
        } else if (parts == *count) {
            break;
        } else {
            parts *= 2;
        }
    }
    return AB_OK;
}
