/* Aligns traces by step and tensor and visits them in execution order. */
#include "reports/compare/divergence.h"

#include "kernels/core/show.h"
#include "kernels/core/text.h"
#include "reports/record/cells.h"
#include "reports/record/graph.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT = 500, CLEAN = 256, MAX_PARAMS = 1024 };

static const double safety = 4, limit = 0.5, baseline_roundoff = 0x1p-24;

/* ---- traces ---------------------------------------------------------------------------------- */

static const cJSON *trace_of(const cJSON *cell) { return ab_json_at(cell, "probes.trace"); }

static bool is_traced(const cJSON *cell) {
    const cJSON *steps = ab_json_at(trace_of(cell), "steps");
    return steps && steps->child;
}

static int place_of_step(const cJSON *trace, double step) {
    int i = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, ab_json_at(trace, "steps")) {
        if (item->valuedouble == step) return i;
        i++;
    }
    return -1;
}

/* Both passes may use the same name once; the trace lists tensors in execution order. */
static const cJSON *tensor_of(const cJSON *trace, const cJSON *like) {
    const cJSON *tensor;
    cJSON_ArrayForEach(tensor, ab_json_at(trace, "tensors")) {
        if (strcmp(ab_json_text(tensor, "name", ""), ab_json_text(like, "name", "?")) == 0) return tensor;
    }
    return NULL;
}

static double element(const cJSON *array, int i) {
    const cJSON *item = cJSON_GetArrayItem(array, i);
    return cJSON_IsNumber(item) ? item->valuedouble : 0;
}

/* A traced tensor at one step. */
typedef struct tensor_sample {
    const cJSON *digest;
    double scale; /* factor that its values were multiplied by */
} tensor_sample;

static tensor_sample sample_tensor(const cJSON *trace, const cJSON *like, double step) {
    int place = place_of_step(trace, step);
    const cJSON *tensor = place >= 0 ? tensor_of(trace, like) : NULL;
    bool backward = strcmp(ab_json_text(tensor, "pass", ""), "backward") == 0;
    double scale = backward ? element(ab_json_at(trace, "scales"), place) : 1;
    return (tensor_sample){cJSON_GetArrayItem(ab_json_at(tensor, "digests"), place), scale > 0 ? scale : 1};
}

/* Relative distance; HUGE_VAL if only one of them is finite. *same: the bits are equal. */
static double distance(const tensor_sample *a, const tensor_sample *b, bool *same) {
    const cJSON *pa = ab_json_at(a->digest, "projections"), *pb = ab_json_at(b->digest, "projections");
    int n = cJSON_GetArraySize(pa);
    double sum = 0, norm_a = ab_json_number(a->digest, "norm", 0) / a->scale,
           norm_b = ab_json_number(b->digest, "norm", 0) / b->scale;
    *same = a->scale == b->scale &&
            strcmp(ab_json_text(a->digest, "bits", "a"), ab_json_text(b->digest, "bits", "b")) == 0;
    if (*same) return 0;
    if (ab_json_number(a->digest, "nonfinite", 0) != ab_json_number(b->digest, "nonfinite", 0))
        return HUGE_VAL;
    for (int k = 0; k < n; k++) {
        double d = element(pa, k) / a->scale - element(pb, k) / b->scale;
        sum += d * d;
    }
    double larger = norm_a > norm_b ? norm_a : norm_b;
    return larger > 0 && n > 0 ? sqrt(sum / n) / larger : 0;
}

static double roundoff(const cJSON *cell) {
    static const struct {
        const char *mode;
        double u;
    } rows[] = {{"ieee_fp32", 0x1p-24}, {"tf32", 0x1p-11}, {"fp16", 0x1p-11}, {"bf16", 0x1p-8}};
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++)
        if (strcmp(ab_json_text(cell, "math_mode", ""), rows[i].mode) == 0) return rows[i].u;
    return 0x1p-8;
}

/* ---- what rounding explains ------------------------------------------------------------------ */

typedef struct floor_traces {
    const cJSON *plain, *perturbed; /* O0 and its perturbed baseline; NULL: not recorded */
} floor_traces;

static floor_traces find_noise_floor(const ab_cells *cells) {
    const cJSON *cell;
    cJSON_ArrayForEach(cell, ab_json_at(cells->document, "cells")) {
        if (strcmp(ab_json_text(cell, "twin", ""), "ulp") != 0) continue;
        const cJSON *plain = ab_cells_baseline(cells, cell);
        if (is_traced(cell) && plain && is_traced(plain))
            return (floor_traces){trace_of(plain), trace_of(cell)};
    }
    return (floor_traces){NULL, NULL};
}

/* Growth of a perturbation of one ulp in every weight; without a perturbed baseline: a factor of 2 per
 * step. */
static double growth(const floor_traces *f, const cJSON *like, double step) {
    bool same;
    if (!f->plain) return ldexp(1, step < 60 ? (int)step : 60);
    tensor_sample a = sample_tensor(f->plain, like, step), b = sample_tensor(f->perturbed, like, step);
    if (!a.digest || !b.digest) return ldexp(1, step < 60 ? (int)step : 60);
    return distance(&a, &b, &same) / baseline_roundoff;
}

/* A parameter: what rounding explains of its gradient in the last step, and of its value. */
typedef struct param_bound {
    const char *name; /* of the parameter */
    double of_gradient, of_itself;
} param_bound;

/* ---- traversal ------------------------------------------------------------------------------- */

typedef struct walk {
    const cJSON *base, *other; /* cells */
    ab_graph graph;
    floor_traces floor;
    double u, kinks, last_step;                     /* kinks: sum of the distances d in this step */
    int compared, identical, unjudged, ops, params; /* unjudged: the bound is too large there */
    double largest, step, difference, bound;
    const cJSON *tensor; /* the first that diverged */
    param_bound param[MAX_PARAMS];
} walk;

static bool is_backward(const cJSON *tensor) {
    return strcmp(ab_json_text(tensor, "pass", ""), "backward") == 0;
}

/* Returns the slot of a parameter, by its name or that of its gradient; NULL: not in the list. */
static param_bound *param_of(walk *w, const char *name) {
    for (int i = 0; i < w->params; i++) {
        size_t length = strlen(w->param[i].name);
        if (strncmp(name, w->param[i].name, length) != 0) continue;
        if (name[length] == '\0' || strcmp(name + length, ".grad") == 0) return &w->param[i];
    }
    return NULL;
}

/* Every tensor that an op reads, except its inputs, is a parameter. */
static param_bound *add_param(walk *w, const cJSON *tensor) {
    const char *name = ab_json_text(tensor, "name", ""), *dot = strrchr(name, '.');
    param_bound *known = param_of(w, name);
    if (known) return known;
    if (is_backward(tensor) || !dot || strcmp(dot, ".out") == 0 || strcmp(dot, ".in") == 0) return NULL;
    if (w->params == MAX_PARAMS) return NULL;
    w->param[w->params] = (param_bound){.name = name};
    return &w->param[w->params++];
}

/* Relative change of a tensor in the base since the last traced step. */
static double relative_change(const walk *w, const cJSON *tensor, double step) {
    bool same;
    tensor_sample before = sample_tensor(trace_of(w->base), tensor, w->last_step),
                  now = sample_tensor(trace_of(w->base), tensor, step);
    return before.digest && now.digest && w->last_step >= 0 ? distance(&before, &now, &same) : 0;
}

/* Adds the distance of the outputs of a relu or max pool in the backward pass, once. */
static void add_kink(walk *w, const cJSON *tensor, double step) {
    bool same;
    const char *op = ab_json_text(tensor, "op", ""), *type = ab_json_text(tensor, "type", "");
    if (!is_backward(tensor) || !(ab_graph_traits_of(&w->graph, op, type) & AB_TRAIT_kink)) return;
    cJSON *like = cJSON_CreateObject();
    char *name = ab_text_new("%s.out", op);
    cJSON_AddStringToObject(like, "name", name ? name : "");
    free(name);
    tensor_sample a = sample_tensor(trace_of(w->base), like, step),
                  b = sample_tensor(trace_of(w->other), like, step);
    cJSON_Delete(like);
    if (a.digest && b.digest) w->kinks += distance(&a, &b, &same);
}

static double rounding_bound(walk *w, const cJSON *tensor, double step) {
    double grown = growth(&w->floor, tensor, step);
    param_bound *param = add_param(w, tensor);
    double own =
        w->u * (grown > 1 ? grown : 1) * sqrt(1.0 + w->ops) + (is_backward(tensor) ? sqrt(w->kinks) : 0);
    if (param && !is_backward(tensor)) {
        param->of_itself += param->of_gradient * relative_change(w, tensor, step);
        own += param->of_itself;
    }
    if (param && is_backward(tensor)) param->of_gradient = own < 1 ? own : 1;
    return safety * own;
}

static void compare_tensor(walk *w, const cJSON *tensor, double step) {
    tensor_sample a = sample_tensor(trace_of(w->base), tensor, step),
                  b = sample_tensor(trace_of(w->other), tensor, step);
    bool same;
    if (!a.digest || !b.digest) return;
    add_kink(w, tensor, step);
    double difference = distance(&a, &b, &same), bound = rounding_bound(w, tensor, step);
    w->compared++;
    w->identical += same;
    w->step = step;
    if (same) return;
    if (bound >= limit && difference <= bound) {
        w->unjudged++;
        return;
    }
    if (difference / bound > w->largest) w->largest = difference / bound;
    if (difference <= bound) return;
    w->tensor = tensor;
    w->difference = difference;
    w->bound = bound;
}

static void walk_step(walk *w, double step) {
    const char *last = "";
    const cJSON *tensor;
    w->kinks = 0;
    cJSON_ArrayForEach(tensor, ab_json_at(trace_of(w->other), "tensors")) {
        const char *op = ab_json_text(tensor, "op", "");
        w->ops += strcmp(op, last) != 0;
        last = op;
        compare_tensor(w, tensor, step);
        if (w->tensor) return;
    }
    w->last_step = step;
}

static void explain(const walk *w, char text[TEXT]) {
    const char *calibrated = w->floor.plain ? "" : " (no traced noise floor: the bound is a guess)";
    if (w->compared == 0) {
        ab_text_show(text, TEXT, "nothing to compare: no traced step in common");
    } else if (w->tensor && !isfinite(w->difference)) {
        ab_text_show(text, TEXT,
                     "diverged at step %.0f in %s (%s of %s): values that are finite in one and not in "
                     "the other",
                     w->step, ab_text_brief(ab_json_text(w->tensor, "name", ""), 100),
                     ab_json_text(w->tensor, "pass", ""),
                     ab_text_brief(ab_json_text(w->tensor, "op", ""), 60));
    } else if (w->tensor) {
        ab_text_show(text, TEXT,
                     "diverged at step %.0f in %s (%s of %s): the values differ by %.2g of their size, "
                     "rounding explains at "
                     "most %.2g%s; %d tensors before it agree",
                     w->step, ab_text_brief(ab_json_text(w->tensor, "name", ""), 100),
                     ab_json_text(w->tensor, "pass", ""),
                     ab_text_brief(ab_json_text(w->tensor, "op", ""), 60), w->difference, w->bound,
                     calibrated, w->compared - 1);
    } else if (w->identical == w->compared) {
        ab_text_show(text, TEXT, "identical: all %d tensors of the traced steps have the same bits",
                     w->compared);
    } else {
        char left_out[80] = "";
        if (w->unjudged)
            ab_text_show(left_out, sizeof left_out, "; %d were not judged, there rounding explains anything",
                         w->unjudged);
        ab_text_show(
            text, TEXT,
            "only rounding: %d of %d tensors differ, the largest by %.2g of what rounding explains%s%s",
            w->compared - w->identical, w->compared, w->largest, calibrated, left_out);
    }
}

static void add_entry(cJSON *result, const walk *w) {
    char text[TEXT];
    cJSON *entry = cJSON_CreateObject();
    explain(w, text);
    cJSON_AddStringToObject(entry, "base_cell", ab_json_text(w->base, "id", ""));
    cJSON_AddStringToObject(entry, "cell", ab_json_text(w->other, "id", ""));
    cJSON_AddNumberToObject(entry, "compared", w->compared);
    cJSON_AddNumberToObject(entry, "identical", w->identical);
    cJSON_AddNumberToObject(entry, "unjudged", w->unjudged);
    cJSON_AddBoolToObject(entry, "calibrated", w->floor.plain != NULL);
    cJSON_AddStringToObject(entry, "verdict",
                            w->compared == 0              ? "not_traced"
                            : w->tensor                   ? "diverged"
                            : w->identical == w->compared ? "identical"
                                                          : "rounding");
    cJSON_AddNumberToObject(entry, "largest_share", isfinite(w->largest) ? w->largest : 0);
    if (w->tensor) {
        cJSON_AddNumberToObject(entry, "step", w->step);
        cJSON_AddStringToObject(entry, "tensor", ab_json_text(w->tensor, "name", ""));
        cJSON_AddStringToObject(entry, "op", ab_json_text(w->tensor, "op", ""));
        cJSON_AddStringToObject(entry, "pass", ab_json_text(w->tensor, "pass", ""));
        cJSON_AddItemToObject(entry, "difference",
                              isfinite(w->difference) ? cJSON_CreateNumber(w->difference)
                                                      : cJSON_CreateNull());
        cJSON_AddNumberToObject(entry, "bound", w->bound);
    }
    cJSON_AddStringToObject(entry, "text", text);
    cJSON_AddItemToArray(result, entry);
}

static void compare_cells(cJSON *result, ab_graph graph, const cJSON *base, const cJSON *other,
                          floor_traces floor) {
    double coarser = roundoff(base) > roundoff(other) ? roundoff(base) : roundoff(other);
    static _Thread_local walk w; /* static: its list of parameters is too large for the stack */
    w = (walk){.base = base, .other = other, .graph = graph, .floor = floor, .u = coarser, .last_step = -1};
    const cJSON *step;
    cJSON_ArrayForEach(step, ab_json_at(trace_of(other), "steps")) {
        walk_step(&w, step->valuedouble);
        if (w.tensor) break;
    }
    add_entry(result, &w);
}

/* ---- matching cells -------------------------------------------------------------------------- */

static bool is_candidate(const cJSON *cell) {
    return is_traced(cell) && !cJSON_IsString(ab_json_at(cell, "twin"));
}

/* The same cell, else the only traced cell, else an O0 cell of the same seed. */
static const cJSON *partner(const ab_cells *cells, const cJSON *cell) {
    const cJSON *other, *only = NULL, *o0 = NULL;
    int count = 0;
    const cJSON *same = ab_cells_like(cells, cell);
    if (same && is_candidate(same)) return same;
    cJSON_ArrayForEach(other, ab_json_at(cells->document, "cells")) {
        if (!is_candidate(other)) continue;
        only = other;
        count++;
        if (strcmp(ab_json_text(other, "level", ""), "O0") == 0 &&
            ab_json_number(other, "seed", -1) == ab_json_number(cell, "seed", -2))
            o0 = other;
    }
    return count == 1 ? only : o0;
}

/* other: of another document; its document is NULL if the cells of `base` are compared with their O0. */
static void compare_all(cJSON *result, const ab_cells *base, const ab_cells *other) {
    const cJSON *cell, *document = other->document ? other->document : base->document;
    floor_traces floor = find_noise_floor(base);
    if (!floor.plain && other->document) floor = find_noise_floor(other);
    cJSON_ArrayForEach(cell, ab_json_at(document, "cells")) {
        if (!is_candidate(cell)) continue;
        const cJSON *reference = other->document ? partner(base, cell) : ab_cells_baseline(base, cell);
        if (reference && reference != cell && is_traced(reference))
            compare_cells(result, ab_graph_of(document, NULL), reference, cell, floor);
    }
}

ab_status ab_divergence(const cJSON *base, const cJSON *other, cJSON **result) {
    ab_cells bases, others = {.count = 0};
    cJSON *list = cJSON_CreateArray();
    *result = NULL;
    ab_status status = ab_cells_create(base, &bases);
    if (status == AB_OK) status = ab_cells_create(other, &others);
    if (status == AB_OK) compare_all(list, &bases, &others);
    ab_cells_free(&bases);
    ab_cells_free(&others);
    if (status != AB_OK) {
        cJSON_Delete(list);
        return status;
    }
    *result = list;
    if (list && list->child) return AB_OK;
    cJSON_Delete(list);
    *result = NULL;
    return ab_fail(
        AB_INPUT,
        "compare: --trace: no two cells with traces to compare: run both with `ampbench run --trace`");
}

void ab_divergence_print(const cJSON *result, FILE *out) {
    const cJSON *entry;
    cJSON_ArrayForEach(entry, result) {
        char cell[CLEAN], base[CLEAN], text[TEXT];
        ab_text_clean(cell, sizeof cell, ab_json_text(entry, "cell", ""));
        ab_text_clean(base, sizeof base, ab_json_text(entry, "base_cell", ""));
        ab_print(out, "%s against %s\n  %s\n", cell, base,
                 ab_text_clean(text, sizeof text, ab_json_text(entry, "text", "")));
    }
}
