/* The lists of schemes and presets, and the names of reductions. */
#include "kernels/collective/collective.h"

#include "kernels/core/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const ab_collective *const schemes[] = {
#define AB_COLLECTIVE(name) &ab_collective_##name,
#include "kernels/collective/schemes.def"
#undef AB_COLLECTIVE
};

int ab_collective_count(void) { return (int)AB_COUNT_OF(schemes); }
const ab_collective *ab_collective_at(int i) { return schemes[i]; }

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

ab_status ab_reduction_parse_wire(const char *text, ab_reduction *reduction) {
    const ab_format *format = NULL;
    reduction->wire = NULL;
    if (strcmp(text, "as-is") == 0) return AB_OK;
    if (ab_format_find(text, &format) == AB_OK &&
        (format == &ab_format_fp32 || format == &ab_format_fp16 || format == &ab_format_bf16)) {
        reduction->wire = format;
        return AB_OK;
    }
    return ab_fail(AB_USAGE, "expected fp32, fp16, bf16 or as-is, found '%s'", ab_text_brief(text, 40));
}

static const char *const everies[] = {"step", "micro-batch", "accumulated",
                                      "step-in-wire"}; /* by ab_reduce_every */

ab_status ab_reduction_parse_every(const char *text, ab_reduce_every *every) {
    for (int i = 0; i < (int)AB_COUNT_OF(everies); i++)
        if (strcmp(everies[i], text) == 0) {
            *every = (ab_reduce_every)i;
            return AB_OK;
        }
    return ab_fail(AB_USAGE, "expected step, micro-batch, accumulated or step-in-wire, found '%s'",
                   ab_text_brief(text, 40));
}

const char *ab_reduction_every_text(ab_reduce_every every) { return everies[every]; }

/* ---- presets --------------------------------------------------------------------------------- */

static const ab_reduction_preset presets[] = {
#define AB_REDUCTION_PRESET(id, name, reduce, wire, divide, every, unsynced, text)                           \
    {name, reduce, wire, divide, every, unsynced, text},
#include "kernels/collective/presets.def"
#undef AB_REDUCTION_PRESET
};

int ab_reduction_preset_count(void) { return (int)AB_COUNT_OF(presets); }
const ab_reduction_preset *ab_reduction_preset_at(int i) { return &presets[i]; }

ab_status ab_reduction_preset_find(const char *name, const ab_reduction_preset **preset) {
    const char *names[AB_COUNT_OF(presets)];
    for (int i = 0; i < (int)AB_COUNT_OF(presets); i++) {
        *preset = &presets[i];
        if (strcmp(presets[i].name, name) == 0) return AB_OK;
        names[i] = presets[i].name;
    }
    const char *near = ab_nearest(name, names, (int)AB_COUNT_OF(presets));
    return ab_fail(AB_USAGE, "expected one of those that `ampbench ranks --help` lists, found '%s'%s%s",
                   ab_text_brief(name, 40), near ? "; nearest: " : "", near ? near : "");
}
