/* The list of schemes, their names, and how sums become means. */
#include "kernels/collective/collective.h"

#include "kernels/core/text.h"
#include "kernels/format/convert.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const ab_rounding nearest = {.mode = AB_ROUND_NEAREST_EVEN};

static const ab_collective *const schemes[] = {
#define AB_COLLECTIVE(name) &ab_collective_##name,
#include "kernels/collective/schemes.def"
#undef AB_COLLECTIVE
};

int ab_collective_count(void) { return (int)AB_COUNT_OF(schemes); }
const ab_collective *ab_collective_at(int i) { return schemes[i]; }

/* ---- sums ------------------------------------------------------------------------------------ */

int64_t ab_reduce_scratch(const ab_reduction *reduction, int64_t ranks, int64_t n) {
    return reduction->scheme->arrays ? reduction->scheme->arrays(ranks) * n : 0;
}

void ab_reduce(const ab_reduction *reduction, const ab_reduce_block *block) {
    reduction->scheme->reduce(reduction, block);
}

/* ---- means ----------------------------------------------------------------------------------- */

int64_t ab_reduce_sqrt_factor(int64_t ranks) {
    int64_t factor = 1;
    while (ranks % factor == 0 && ranks / factor > factor) factor *= 2;
    return factor;
}

/* A value becomes value * times / by; one of the two is 1. */
typedef struct scaling {
    float times, by;
} scaling;

static scaling send_scaling(const ab_reduction *reduction, int64_t ranks) {
    float share = (float)(1.0 / (double)ranks);
    switch (reduction->divide) {
    case AB_DIVIDE_PRE:
        return (scaling){share, 1};
    case AB_DIVIDE_SQRT:
        return (scaling){1, (float)ab_reduce_sqrt_factor(ranks)};
    case AB_DIVIDE_FACTOR:
        return (scaling){(float)(1.0 / reduction->factor), 1};
    case AB_DIVIDE_AVERAGE:
        ab_round_array(&share, reduction->wire, &nearest, 1);
        return (scaling){share, 1};
    case AB_DIVIDE_POST:
        break;
    }
    return (scaling){1, 1};
}

static scaling finish_scaling(const ab_reduction *reduction, int64_t ranks) {
    switch (reduction->divide) {
    case AB_DIVIDE_POST:
        return (scaling){(float)(1.0 / (double)ranks), 1};
    case AB_DIVIDE_SQRT:
        return (scaling){1, (float)((double)ranks / (double)ab_reduce_sqrt_factor(ranks))};
    case AB_DIVIDE_FACTOR:
        return (scaling){(float)(reduction->factor / (double)ranks), 1};
    case AB_DIVIDE_PRE:
    case AB_DIVIDE_AVERAGE:
        break;
    }
    return (scaling){1, 1};
}

static void apply(scaling scale, const float *from, float *to, int64_t n) {
    if (scale.by != 1.0F)
        for (int64_t i = 0; i < n; i++) to[i] = from[i] / scale.by;
    else
        for (int64_t i = 0; i < n; i++) to[i] = from[i] * scale.times;
}

void ab_reduce_send(const ab_reduction *reduction, int64_t ranks, const float *from, float *to, int64_t n) {
    apply(send_scaling(reduction, ranks), from, to, n);
    if (!reduction->scheme->sums_wide) ab_round_array(to, reduction->wire, &nearest, n);
}

void ab_reduce_finish(const ab_reduction *reduction, int64_t ranks, float *sum, int64_t n) {
    apply(finish_scaling(reduction, ranks), sum, sum, n);
    ab_round_array(sum, reduction->wire, &nearest, n);
}

/* ---- names ----------------------------------------------------------------------------------- */

enum { NAMES = 16, MOST_GROUP = 1 << 20 };

static ab_status unknown_scheme(const char *text) {
    const char *names[NAMES];
    for (int i = 0; i < (int)AB_COUNT_OF(schemes); i++) names[i] = schemes[i]->name;
    const char *near = ab_nearest(text, names, (int)AB_COUNT_OF(schemes));
    return ab_fail(AB_USAGE,
                   "expected ring, tree, hierarchical:RANKS, rank-order, alltoall or exact, found '%s'%s%s",
                   ab_text_brief(text, 40), near ? "; nearest: " : "", near ? near : "");
}

static ab_status parse_group(const char *name, const char *text, int64_t *group) {
    char *end;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end || value < 1 || value > MOST_GROUP)
        return ab_fail(AB_USAGE, "%s: expected %s:RANKS with 1 to %d ranks in a group, found '%s'", name,
                       name, MOST_GROUP, ab_text_brief(text, 40));
    *group = (int64_t)value;
    return AB_OK;
}

ab_status ab_reduction_parse_scheme(const char *text, ab_reduction *reduction) {
    const char *colon = strchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : strlen(text);
    for (int i = 0; i < (int)AB_COUNT_OF(schemes); i++) {
        const ab_collective *scheme = schemes[i];
        if (strlen(scheme->name) != length || strncmp(scheme->name, text, length) != 0) continue;
        if (scheme->groups != (colon != NULL))
            return ab_fail(AB_USAGE, "%s: expected %s, found '%s'", scheme->name,
                           scheme->groups ? "the ranks of a group, as in hierarchical:8" : "no ':'",
                           ab_text_brief(text, 40));
        reduction->scheme = scheme;
        return colon ? parse_group(scheme->name, colon + 1, &reduction->group) : AB_OK;
    }
    return unknown_scheme(text);
}

static const char *const divides[] = {"pre", "post", "sqrt", NULL, "avg"}; /* by ab_divide */

ab_status ab_reduction_parse_divide(const char *text, ab_reduction *reduction) {
    for (int i = 0; i < (int)AB_COUNT_OF(divides); i++)
        if (divides[i] && strcmp(divides[i], text) == 0) {
            reduction->divide = (ab_divide)i;
            return AB_OK;
        }
    char *end;
    double factor = strtod(text, &end);
    if (end == text || *end || !(factor >= 0x1p-40 && factor <= 0x1p40))
        return ab_fail(AB_USAGE, "expected pre, post, sqrt, avg or a factor, found '%s'",
                       ab_text_brief(text, 40));
    reduction->divide = AB_DIVIDE_FACTOR;
    reduction->factor = factor;
    return AB_OK;
}

const char *ab_reduction_scheme_text(const ab_reduction *reduction, char *text) {
    if (!reduction->scheme->groups)
        return ab_text_exact(text, AB_REDUCTION_TEXT, "%s", reduction->scheme->name);
    return ab_text_exact(text, AB_REDUCTION_TEXT, "%s:%lld", reduction->scheme->name,
                         (long long)reduction->group);
}

const char *ab_reduction_divide_text(const ab_reduction *reduction, char *text) {
    if (divides[reduction->divide])
        return ab_text_exact(text, AB_REDUCTION_TEXT, "%s", divides[reduction->divide]);
    return ab_text_round_trip(text, reduction->factor);
}
