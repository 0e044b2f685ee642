/* The rows of needs.def; what a run has is found by config.c. */
#include "bench/run/config/needs.h"

#include <stddef.h>

static const struct {
    ab_option_id id;
    size_t need; /* offset of a bool */
    const char *missing;
} rows[] = {
#define AB_NEEDS(id, need, missing) {AB_OPTION_##id, offsetof(ab_run_has, need), missing},
#include "bench/run/config/needs.def"
#undef AB_NEEDS
};

static bool is_met(const ab_run_has *has, size_t need) {
    return *(const bool *)(const void *)((const char *)has + need);
}

ab_status ab_needs_check(const ab_options *options, const ab_run_has *has) {
    char name[AB_OPTION_NAME];
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++)
        if (options->given[rows[i].id] && !is_met(has, rows[i].need))
            return ab_fail(AB_USAGE, "%s: %s", ab_option_name(rows[i].id, name), rows[i].missing);
    return AB_OK;
}
