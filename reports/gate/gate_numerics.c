/* The deterministic lanes: results of training, and its cost in bytes and operations. Exact comparison, no
 * statistics. */
#include "kernels/core/text.h"
#include "reports/gate/gate_case.h"
#include "reports/record/json.h"
#include "reports/record/summary.h"
#include "reports/record/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 64 };

static bool equal(const cJSON *a, const cJSON *b) {
    bool none_a = !a || cJSON_IsNull(a), none_b = !b || cJSON_IsNull(b);
    return none_a || none_b ? none_a && none_b : cJSON_Compare(a, b, 1);
}

/* ---- losses ---------------------------------------------------------------------------------- */

static bool within_bound(const cJSON *a, const cJSON *b, double bound) {
    if (!cJSON_IsNumber(a) || !cJSON_IsNumber(b)) return cJSON_IsNull(a) && cJSON_IsNull(b);
    return a->valuedouble == b->valuedouble ||
           fabs(b->valuedouble - a->valuedouble) <= bound * fabs(a->valuedouble);
}

static void loss_text(char *text, const cJSON *loss) {
    if (cJSON_IsNumber(loss))
        ab_text_show(text, NAME, "%.9g", loss->valuedouble);
    else
        ab_text_show(text, NAME, "not finite");
}

/* Reports the first step whose loss is outside the bound, and the number of such steps. */
static void compare_losses(ab_gate_case *c, const cJSON *base, const cJSON *other) {
    const cJSON *a = ab_json_at(base, "loss"), *b = ab_json_at(other, "loss"), *x = a ? a->child : NULL,
                *y = b ? b->child : NULL, *first_a = NULL, *first_b = NULL;
    double bound = c->options->loss_bound;
    int step = 0, first = -1, outside = 0;
    for (; x && y; x = x->next, y = y->next, step++) {
        if (within_bound(x, y, bound)) continue;
        if (outside++ == 0) first = step, first_a = x, first_b = y;
    }
    char left[NAME], right[NAME];
    if (x || y) {
        ab_gate_find(c, "numerics", AB_GATE_BAD, other, "loss", NULL, NULL, "%d losses, the base has %d",
                     cJSON_GetArraySize(b), cJSON_GetArraySize(a));
    } else if (outside > 0) {
        loss_text(left, first_a);
        loss_text(right, first_b);
        ab_gate_find(c, "numerics", AB_GATE_BAD, other, "loss", first_a, first_b,
                     "%d of %d losses differ%s; the first at step %d: %s, was %s", outside, step,
                     bound > 0 ? " by more than the bound" : "", first, right, left);
    } else if (bound == 0 && !equal(ab_json_at(base, "loss_digest"), ab_json_at(other, "loss_digest"))) {
        ab_gate_find(c, "numerics", AB_GATE_BAD, other, "loss_digest", ab_json_at(base, "loss_digest"),
                     ab_json_at(other, "loss_digest"), "the bits of the losses differ");
    }
}

static void compare_test(ab_gate_case *c, const cJSON *base, const cJSON *other) {
    const cJSON *a = ab_json_at(base, "test_loss"), *b = ab_json_at(other, "test_loss");
    if (!equal(ab_json_at(base, "test_count"), ab_json_at(other, "test_count"))) {
        ab_gate_find(c, "numerics", AB_GATE_NOTE, other, "test_loss", NULL, NULL,
                     "not compared: the test sets differ in size");
        return;
    }
    if (within_bound(a, b, c->options->loss_bound) || equal(a, b)) return;
    char left[NAME], right[NAME];
    loss_text(left, a);
    loss_text(right, b);
    ab_gate_find(c, "numerics", AB_GATE_BAD, other, "test_loss", a, b, "test loss is %s, was %s", right,
                 left);
}

/* ---- counts ---------------------------------------------------------------------------------- */

static void compare_count(ab_gate_case *c, const cJSON *base, const cJSON *other, const char *key,
                          const char *what) {
    const cJSON *a = ab_json_at(base, key), *b = ab_json_at(other, key);
    if (equal(a, b)) return;
    ab_gate_find(c, "numerics", AB_GATE_BAD, other, key, a, b, "%s: %.0f, was %.0f", what,
                 cJSON_IsNumber(b) ? b->valuedouble : 0.0, cJSON_IsNumber(a) ? a->valuedouble : 0.0);
}

static void compare_skips(ab_gate_case *c, const cJSON *base, const cJSON *other) {
    const cJSON *a = ab_json_at(base, "skipped_steps"), *b = ab_json_at(other, "skipped_steps");
    compare_count(c, base, other, "nonfinite_losses", "losses that are not finite");
    compare_count(c, base, other, "steps_skipped", "skipped steps");
    if (!equal(ab_json_at(base, "steps_skipped"), ab_json_at(other, "steps_skipped")) || equal(a, b)) return;
    ab_gate_find(c, "numerics", AB_GATE_BAD, other, "skipped_steps", a, b,
                 "as many steps were skipped, but not the same ones");
}

/* The scale in force at a step of a run-length list. */
typedef struct trajectory {
    const cJSON *run; /* [scale, length] */
    double left;
} trajectory;

static trajectory begin(const cJSON *scale) {
    trajectory t = {scale ? scale->child : NULL, 0};
    if (t.run) t.left = t.run->child->next->valuedouble;
    return t;
}

static void advance(trajectory *t, double steps) {
    t->left -= steps;
    if (t->left > 0) return;
    t->run = t->run->next;
    if (t->run) t->left = t->run->child->next->valuedouble;
}

/* `base` and `other` hold the lists; findings are attributed to `cell`. */
static void compare_scale(ab_gate_case *c, const cJSON *cell, const cJSON *base, const cJSON *other) {
    trajectory a = begin(ab_json_at(base, "scale")), b = begin(ab_json_at(other, "scale"));
    double step = 0;
    while (a.run && b.run && a.run->child->valuedouble == b.run->child->valuedouble) {
        double same = a.left < b.left ? a.left : b.left;
        step += same;
        advance(&a, same);
        advance(&b, same);
    }
    if (!a.run && !b.run) return;
    char left[AB_TEXT_NUMBER] = "nothing", right[AB_TEXT_NUMBER] = "nothing";
    if (a.run) ab_text_scale(left, a.run->child->valuedouble);
    if (b.run) ab_text_scale(right, b.run->child->valuedouble);
    ab_gate_find(c, "numerics", AB_GATE_BAD, cell, "scale", a.run ? a.run->child : NULL,
                 b.run ? b.run->child : NULL,
                 "the loss scale takes another way from step %.0f on: %s, was %s", step, right, left);
}

/* Compares all scales if losses have their own; the first is the cell's. */
static void compare_scales(ab_gate_case *c, const cJSON *base, const cJSON *other) {
    const char *many = ab_json_at(base, "layer_scales") ? "layer_scales" : "loss_scales";
    const cJSON *a = ab_json_at(base, many), *b = ab_json_at(other, many);
    if (!a || !b) {
        compare_scale(c, other, base, other);
        return;
    }
    for (a = a->child, b = b->child; a && b; a = a->next, b = b->next) compare_scale(c, other, a, b);
}

/* ---- flushed and non-finite values ----------------------------------------------------------- */

/* Counts are comparable only if the same steps were probed. */
static const char *sampled_alike(const cJSON *base, const cJSON *other) {
    static const char *const keys[] = {"every", "steps_probed", "format"};
    const cJSON *a = ab_json_at(base, "probes"), *b = ab_json_at(other, "probes");
    if (!a || !b) return a || b ? "only one of the runs was probed" : "";
    for (size_t i = 0; i < AB_COUNT_OF(keys); i++)
        if (!equal(ab_json_at(a, keys[i]), ab_json_at(b, keys[i])))
            return "other steps were probed; use --probe-every";
    if (strcmp(ab_json_text(a, "sampling.mode", "fixed"), "governed") == 0 ||
        strcmp(ab_json_text(b, "sampling.mode", "fixed"), "governed") == 0)
        return "which steps were probed was chosen by time; use --probe-every N";
    return NULL;
}

static const cJSON *tensor_of(const cJSON *tensors, const cJSON *like) {
    const cJSON *tensor;
    cJSON_ArrayForEach(tensor, tensors) {
        if (equal(ab_json_at(tensor, "name"), ab_json_at(like, "name"))) return tensor;
    }
    return NULL;
}

static void compare_tensor(ab_gate_case *c, const cJSON *cell, const cJSON *base, const cJSON *other) {
    static const char *const keys[] = {"nan", "inf", "zero", "overflowed", "flushed"};
    const char *name = ab_json_text(other, "name", "?");
    size_t count = ab_json_is_true(other, "cast")
                       ? 5
                       : 3; /* predicted counts of a cast that was not made are not events */
    for (size_t i = 0; i < count; i++) {
        const cJSON *a = ab_json_at(base, keys[i]), *b = ab_json_at(other, keys[i]);
        if (equal(a, b)) continue;
        ab_gate_find(c, "numerics", AB_GATE_BAD, cell, keys[i], a, b, "%s: %.0f values %s, was %.0f",
                     ab_text_brief(name, 64), cJSON_IsNumber(b) ? b->valuedouble : 0.0, keys[i],
                     cJSON_IsNumber(a) ? a->valuedouble : 0.0);
        return; /* one finding per tensor: the others follow from it */
    }
}

static void compare_tensors(ab_gate_case *c, const cJSON *base, const cJSON *other) {
    const char *why = sampled_alike(base, other);
    const cJSON *tensor, *theirs = ab_json_at(base, "probes.tensors");
    if (why) {
        if (*why)
            ab_gate_find(c, "numerics", AB_GATE_NOTE, other, "flushed", NULL, NULL, "counts not compared: %s",
                         why);
        return;
    }
    cJSON_ArrayForEach(tensor, ab_json_at(other, "probes.tensors")) {
        const cJSON *before = tensor_of(theirs, tensor);
        if (before) compare_tensor(c, other, before, tensor);
    }
}

/* ---- certificates ---------------------------------------------------------------------------- */

/* Broken training fails regardless of the base. A loss gap that the base also had was accepted by its
 * author. */
static void check_certificate(ab_gate_case *c, const cJSON *base, const cJSON *other) {
    const cJSON *reasons = ab_json_at(other, "summary.certificate.reasons");
    double total = ab_json_number(other, "steps_total", 0),
           applied = ab_json_number(other, "steps_applied", 0);
    bool broke = ab_json_number(other, "nonfinite_losses", 0) > 0 || applied < 0.95 * total;
    const bool open = cJSON_IsFalse(ab_json_at(other, "summary.baseline_learned"));
    bool passed_before = ab_json_is_true(base, "summary.certificate.passed");
    if (ab_json_is_true(other, "summary.certificate.passed") || cJSON_IsString(ab_json_at(other, "twin")))
        return;
    const char *reason = cJSON_GetStringValue(cJSON_GetArrayItem(reasons, 0));
    ab_gate_find(c, "numerics", broke || passed_before || (!base && !open) ? AB_GATE_BAD : AB_GATE_NOTE,
                 other, "certificate", NULL, NULL,
                 open ? "no certificate: %s" : "no certificate, its speed-up is void: %s",
                 ab_text_brief(reason ? reason : "not computed", 180));
}

void ab_gate_numerics(ab_gate_case *c, const cJSON *base, const cJSON *other) {
    check_certificate(c, base, other);
    if (cJSON_IsFalse(ab_json_at(other, "deterministic")))
        ab_gate_find(c, "numerics", AB_GATE_BAD, other, "deterministic", NULL, NULL,
                     "its losses differed between rounds of the same bits");
    if (!base) return;
    compare_losses(c, base, other);
    compare_skips(c, base, other);
    compare_scales(c, base, other);
    compare_test(c, base, other);
    compare_tensors(c, base, other);
}

/* ---- work ------------------------------------------------------------------------------------ */

static void compare_values(ab_gate_case *c, const cJSON *other, const char *path, const cJSON *a,
                           const cJSON *b, const char *what, double tolerance) {
    if (!cJSON_IsNumber(a) || !cJSON_IsNumber(b) || a->valuedouble == b->valuedouble) return;
    double before = a->valuedouble, now = b->valuedouble;
    ab_gate_weight weight = now < before                      ? AB_GATE_WIN
                            : now <= before * (1 + tolerance) ? AB_GATE_NOTE
                                                              : AB_GATE_BAD;
    char share[NAME] = "";
    if (before > 0) ab_text_show(share, sizeof share, " (%+.2f %%)", 100 * (now / before - 1));
    ab_gate_find(c, "work", weight, other, path, a, b, "%s: %.0f, was %.0f%s", what, now, before, share);
}

static void compare_amount(ab_gate_case *c, const cJSON *base, const cJSON *other, const char *path,
                           const char *what) {
    compare_values(c, other, path, ab_json_at(base, path), ab_json_at(other, path), what, 0);
}

void ab_gate_work(ab_gate_case *c, const cJSON *base, const cJSON *other) {
    const cJSON *item, *before = ab_json_at(base, "memory_bytes"), *now = ab_json_at(other, "memory_bytes");
    if (ab_cell_threads_beside(base) != ab_cell_threads_beside(other)) now = NULL; /* other workspace */
    cJSON_ArrayForEach(item, now) {
        char what[NAME], *path = ab_text_new("memory_bytes.%s", item->string);
        ab_text_show(what, sizeof what, "bytes of %s",
                     ab_text_brief(strcmp(item->string, "total") == 0 ? "everything" : item->string, 40));
        if (path)
            compare_values(c, other, path, ab_json_at(before, item->string), item, what,
                           c->options->memory_tolerance);
        free(path);
    }
    compare_amount(c, base, other, "casts_per_step", "casts a step");
    compare_amount(c, base, other, "flops_per_step", "FLOPs a step");
    compare_amount(c, base, other, "kernel_launches_per_step", "kernel launches a step");
}

/* ---- speed-ups ------------------------------------------------------------------------------- */

static void add_speedup(ab_gate_case *c, const cJSON *cell, const cJSON *o0) {
    const cJSON *ratio = ab_json_at(cell, "summary.ratio_samples_to_o0");
    const char *why = cJSON_IsNumber(ratio)         ? NULL
                      : ab_gate_is_unsound(c, cell) ? "the numerics failed"
                                                    : "not computed";
    if (cJSON_IsNumber(ratio) && (ab_gate_is_unsound(c, cell) || ab_gate_is_unsound(c, o0)))
        why = "the numerics failed";
    cJSON *entry = cJSON_CreateObject();
    cJSON_AddStringToObject(entry, "cell", ab_json_text(cell, "id", ""));
    cJSON_AddStringToObject(entry, "math_mode", ab_json_text(cell, "math_mode", ""));
    cJSON_AddStringToObject(entry, "o0_math_mode", ab_json_text(o0, "math_mode", ""));
    cJSON_AddItemToObject(entry, "ratio", why ? cJSON_CreateNull() : cJSON_CreateNumber(ratio->valuedouble));
    if (why)
        cJSON_AddStringToObject(entry, "ratio_reason",
                                ab_json_text(cell, "summary.ratio_samples_to_o0_reason", why));
    cJSON_AddItemToArray(c->speedups, entry);
}

void ab_gate_speedups(ab_gate_case *c) {
    const cJSON *cell;
    cJSON_ArrayForEach(cell, ab_json_at(c->other.document, "cells")) {
        const cJSON *o0 = ab_cells_baseline(&c->other_cells, cell);
        if (o0 == cell || cJSON_IsString(ab_json_at(cell, "twin"))) continue;
        add_speedup(c, cell, o0);
    }
}
