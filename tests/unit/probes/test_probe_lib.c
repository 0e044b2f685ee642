/* libampprobe through its public functions: counts beside counts made here, steps and skips, bad input,
 * layouts that must not be read, a process that is killed, a fork, a run of many steps in a bounded size. */
#define _GNU_SOURCE
#include "tests/unit/probe_lib_testing.h"

#include "kernels/core/subnormals.h"
#include "kernels/core/text.h"
#include "probes/lib/record_text.h"
#include "reports/diagnose/diagnose.h"
#include "reports/record/observed.h"

#include <fenv.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* ---- counts ---------------------------------------------------------------------------------- */

typedef struct expected {
    int64_t zero, nan, inf, nonzero, flushed, overflowed, exponent[512];
} expected;

/* What storing in fp16 does, by comparing with its limits (IEEE 754, 3.6): half the smallest subnormal,
 * 2^-25, goes to even, 65520 is the first that overflows. */
static void expect(expected *e, double x) {
    const double m = fabs(x);
    e->zero += m == 0;
    e->nan += isnan(x) != 0;
    e->inf += isinf(x) != 0;
    if (m == 0 || !isfinite(x)) return;
    e->nonzero++;
    e->flushed += m <= 0x1p-25;
    e->overflowed += m >= 65520;
    e->exponent[ilogb(m) + 256]++;
}

static void assert_tensor(const cJSON *tensor, const expected *e) {
    const cJSON *count;
    int exponent = (int)ab_json_number(tensor, "exponents.first", 0);
    assert_non_null(tensor);
    assert_int_equal(ab_json_number(tensor, "zero", -1), e->zero);
    assert_int_equal(ab_json_number(tensor, "nan", -1), e->nan);
    assert_int_equal(ab_json_number(tensor, "inf", -1), e->inf);
    assert_int_equal(ab_json_number(tensor, "nonzero", -1), e->nonzero);
    assert_int_equal(ab_json_number(tensor, "flushed", -1), e->flushed);
    assert_int_equal(ab_json_number(tensor, "overflowed", -1), e->overflowed);
    int64_t sum = 0;
    cJSON_ArrayForEach(count, ab_json_at(tensor, "exponents.counts")) {
        assert_int_equal(count->valuedouble, e->exponent[256 + exponent++]);
        sum += (int64_t)count->valuedouble;
    }
    assert_int_equal(sum, e->nonzero);
}

enum { VALUES = 10007 };

static float value_at(int64_t i) {
    if (i % 977 == 0) return i % 2 ? INFINITY : -INFINITY;
    if (i % 1009 == 0) return NAN;
    if (i % 31 == 0) return 0;
    const float x = (float)((i * 2654435761u >> 8) % 65521 + 1) / 65521.0f;
    return ldexpf(i % 2 ? x : -x, (int)(i % 61) - 40);
}

static void gradients_are_counted_as_they_are(void **state) {
    (void)state;
    static float values[VALUES];
    expected e = {0};
    ampprobe *p = pl_open("{\"probe_every\": 1}");
    const int32_t id = pl_parameter(p, "fc1.weight", AMPPROBE_FP32, VALUES);
    for (int64_t i = 0; i < VALUES; i++) expect(&e, (double)(values[i] = value_at(i)));
    ampprobe_tensor t = pl_gradient(id, values, VALUES);
    ampprobe_seen seen = {.size = sizeof seen};
    assert_int_equal(ampprobe_gradients(p, 0, &t, 1, 0, &seen), AMPPROBE_OK);
    assert_int_equal(seen.exact, 1);
    assert_int_equal(seen.nonfinite, e.nan + e.inf);
    assert_int_equal(t.nonfinite, e.nan + e.inf);
    assert_int_equal(seen.counted, VALUES);
    assert_int_equal(seen.first, 0);
    pl_step(p, 0);
    cJSON *document = pl_close(p);
    const cJSON *cell = pl_cell(document);
    assert_tensor(pl_tensor(cell, "probes.tensors", "fc1.weight.grad"), &e);
    assert_string_equal(ab_json_text(pl_tensor(cell, "probes.tensors", "fc1.weight.grad"), "layer", ""),
                        "fc1");
    assert_int_equal(ab_json_number(cell, "steps_skipped", -1),
                     1); /* by the finite check: nobody said otherwise */
    assert_int_equal(cJSON_GetArraySize(ab_json_at(document, "probe.groups")), 1);
    assert_string_equal(
        ab_json_text(cJSON_GetArrayItem(ab_json_at(document, "probe.overflowed"), 0), "name", ""),
        "fc1.weight.grad");
    cJSON_Delete(document);
}

static void stored_halves_and_strides_are_counted(void **state) {
    (void)state;
    static uint16_t half[3 * VALUES], brain[VALUES];
    static double wide[VALUES];
    expected e[3] = {{0}};
    ampprobe *p = pl_open("{\"probe_every\": 1}");
    for (int64_t i = 0; i < VALUES; i++) {
        half[3 * i + 1] = (uint16_t)(i * 7);
        brain[i] = (uint16_t)(i * 5);
        wide[i] = ldexp((double)i, -10);
        expect(&e[0], ab_format_decode(&ab_format_fp16, half[3 * i + 1]));
        expect(&e[1], ab_format_decode(&ab_format_bf16, brain[i]));
        expect(&e[2], wide[i]);
    }
    ampprobe_tensor t[3] = {pl_gradient(pl_parameter(p, "h", AMPPROBE_FP16, VALUES), half + 1, VALUES),
                            pl_gradient(pl_parameter(p, "b", AMPPROBE_BF16, VALUES), brain, VALUES),
                            pl_gradient(pl_parameter(p, "d", AMPPROBE_FP64, VALUES), wide, VALUES)};
    t[0].dtype = AMPPROBE_FP16, t[0].stride = 3, t[0].storage_bytes = (int64_t)sizeof half - 2;
    t[1].dtype = AMPPROBE_BF16, t[1].storage_bytes = sizeof brain;
    t[2].dtype = AMPPROBE_FP64, t[2].storage_bytes = sizeof wide;
    assert_int_equal(ampprobe_gradients(p, 0, t, 3, 0, NULL), AMPPROBE_OK);
    for (int i = 0; i < 3; i++) assert_int_equal(t[i].nonfinite, e[i].nan + e[i].inf);
    for (int i = 0; i < 3; i++) t[i].counted = 0;
    assert_int_equal(ampprobe_gradients(p, 0, t, 3, AMPPROBE_CHECK, NULL), AMPPROBE_OK);
    for (int i = 0; i < 3; i++) assert_int_equal(t[i].nonfinite, e[i].nan + e[i].inf);
    for (int i = 0; i < 3; i++) assert_int_equal(t[i].counted, 0);
    pl_step(p, 0);
    cJSON *document = pl_close(p);
    assert_tensor(pl_tensor(pl_cell(document), "probes.tensors", "h.grad"), &e[0]);
    assert_tensor(pl_tensor(pl_cell(document), "probes.tensors", "b.grad"), &e[1]);
    assert_tensor(pl_tensor(pl_cell(document), "probes.tensors", "d.grad"), &e[2]);
    cJSON_Delete(document);
}

/* A budget of nothing: after the first steps gradients are left out, and a check of all values is still a
 * check of all values. */
static void samples_say_that_they_are_samples(void **state) {
    (void)state;
    enum { N = 3 * 4096 };
    static float values[N];
    ampprobe *p = pl_open("{\"budget\": 0}");
    const int32_t id = pl_parameter(p, "w", AMPPROBE_FP32, N);
    for (int i = 0; i < N; i++) values[i] = 1;
    values[N - 1] = NAN;
    ampprobe_seen seen = {.size = sizeof seen};
    for (int step = 0; step < 8; step++) {
        ampprobe_tensor t = pl_gradient(id, values, N);
        assert_int_equal(ampprobe_gradients(p, 0, &t, 1, 0, &seen), AMPPROBE_OK);
        assert_int_equal(seen.exact, step < 4);
        assert_int_equal(t.nonfinite, step < 4 ? 1 : -1);
        if (step >= 4) assert_int_equal(t.skipped, AMPPROBE_SKIP_BUDGET);
        assert_int_equal(ampprobe_plan(p, step) & AMPPROBE_PLAN_GRADIENTS,
                         step < 4 ? AMPPROBE_PLAN_GRADIENTS : 0);
        if (step == 6) {
            assert_int_equal(ampprobe_gradients(p, 0, &t, 1, AMPPROBE_FINITE, &seen), AMPPROBE_OK);
            assert_int_equal(seen.exact, 1);
            assert_int_equal(t.nonfinite, 1);
        }
        pl_step(p, step);
    }
    cJSON *document = pl_close(p);
    const cJSON *group = cJSON_GetArrayItem(ab_json_at(document, "probe.groups"), 0);
    assert_int_equal(ab_json_number(pl_tensor(pl_cell(document), "probes.tensors", "w.grad"), "count", 0),
                     4 * N);
    assert_int_equal(ab_json_number(group, "steps_skipped_silently", -1), 4);
    assert_int_equal(ab_json_number(group, "steps_unknown", -1), 4);
    cJSON_Delete(document);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void steps_are_recorded_as_they_were_told(void **state) {
    (void)state;
    ampprobe *p =
        pl_open("{\"model\": \"m\", \"level\": \"torch:autocast\", \"groups\": [{\"optimizer\": \"sgd\", "
                "\"lr\": 0.5, \"momentum\": 0.9}], \"about\": {\"a\": [1, \"x\"]}}");
    static const double scale[] = {4, 2, 2, 4, 4}, after[] = {2, 2, 4, 4, 4};
    static const int inf[] = {1, 0, 0, 0, 0};
    for (int i = 0; i < 5; i++) {
        ampprobe_step_facts f = pl_facts(100 + i);
        f.flags = AMPPROBE_HAS_SCALE | AMPPROBE_HAS_LOSS | AMPPROBE_HAS_LR;
        f.scale_before = scale[i], f.scale_after = after[i], f.found_inf = inf[i];
        f.loss = i == 3 ? (double)NAN : 10 - i, f.lr = 0.25, f.seconds = 0.5;
        assert_int_equal(ampprobe_step(p, &f), AMPPROBE_OK);
    }
    assert_int_equal(ampprobe_set(p, "about", "{\"b\": null}"), AMPPROBE_OK);
    assert_int_equal(ampprobe_note(p, "a note"), AMPPROBE_OK);
    assert_int_equal(ampprobe_note(p, "a note"), AMPPROBE_OK);
    cJSON *document = pl_close(p);
    const cJSON *cell = pl_cell(document);
    assert_string_equal(ab_json_text(cell, "policy.loss_scale", ""), "dynamic");
    assert_int_equal(ab_json_number(cell, "steps_total", 0), 5);
    assert_int_equal(ab_json_number(cell, "steps_skipped", 0), 1);
    assert_int_equal(ab_json_number(cell, "nonfinite_losses", 0), 1);
    assert_true(cJSON_IsNull(cJSON_GetArrayItem(ab_json_at(cell, "loss"), 3)));
    assert_int_equal(cJSON_GetArraySize(ab_json_at(cell, "scale")), 3);
    assert_true(ab_json_number(document, "config.lr", 0) == 0.25);
    assert_string_equal(ab_json_text(document, "config.optimizer", ""), "momentum");
    assert_int_equal(ab_json_number(document, "config.first_step", 0), 100);
    assert_int_equal(cJSON_GetArraySize(ab_json_at(document, "warnings")), 1);
    assert_int_equal(cJSON_GetArraySize(ab_json_at(document, "probe.about")), 2);
    assert_true(ab_json_is_true(document, "run.complete"));
    cJSON_Delete(document);
}

/* Groups have counts of their own; what belongs to another group's parameter waits for its step. */
static void optimizers_have_their_own_steps(void **state) {
    (void)state;
    static const float one[4] = {1, 1, 1, 1};
    ampprobe *p = pl_open("{\"probe_every\": 1}");
    ampprobe_thing b = pl_thing("b.weight", AMPPROBE_FP32, 4);
    const int32_t a = pl_parameter(p, "a.weight", AMPPROBE_FP32, 4);
    int32_t id;
    b.group = 1;
    assert_int_equal(ampprobe_describe(p, &b, 1, &id), AMPPROBE_OK);
    for (int i = 0; i < 3; i++) {
        ampprobe_tensor t[2] = {pl_gradient(a, one, 4), pl_gradient(id, one, 4)};
        assert_int_equal(ampprobe_gradients(p, 0, &t[0], 1, 0, NULL), AMPPROBE_OK);
        assert_int_equal(ampprobe_gradients(p, 1, &t[1], 1, 0, NULL), AMPPROBE_OK);
        pl_step(p, i);
        ampprobe_step_facts f = pl_facts(i);
        f.group = 1, f.stepped = i != 1;
        if (i > 0) assert_int_equal(ampprobe_step(p, &f), AMPPROBE_OK);
    }
    cJSON *document = pl_close(p);
    const cJSON *groups = ab_json_at(document, "probe.groups");
    assert_int_equal(ab_json_number(cJSON_GetArrayItem(groups, 0), "steps", 0), 3);
    assert_int_equal(ab_json_number(cJSON_GetArrayItem(groups, 1), "steps", 0), 2);
    assert_int_equal(ab_json_number(cJSON_GetArrayItem(groups, 1), "steps_skipped", 0), 1);
    assert_int_equal(
        ab_json_number(pl_tensor(pl_cell(document), "probes.tensors", "b.weight.grad"), "count", 0), 12);
    cJSON_Delete(document);
}

/* A group's finite check says nothing of another group's gradients. */
static void a_group_is_skipped_for_its_own_gradients(void **state) {
    (void)state;
    static const float one[4] = {1, 1, 1, 1}, bad[4] = {1, INFINITY, 1, 1};
    ampprobe *p = pl_open("{\"probe_every\": 1}");
    ampprobe_thing b = pl_thing("b.weight", AMPPROBE_FP32, 4);
    const int32_t a = pl_parameter(p, "a.weight", AMPPROBE_FP32, 4);
    int32_t id;
    b.group = 1;
    assert_int_equal(ampprobe_describe(p, &b, 1, &id), AMPPROBE_OK);
    ampprobe_tensor t[2] = {pl_gradient(a, one, 4), pl_gradient(id, bad, 4)};
    assert_int_equal(ampprobe_gradients(p, 0, &t[0], 1, 0, NULL), AMPPROBE_OK);
    assert_int_equal(ampprobe_gradients(p, 1, &t[1], 1, 0, NULL), AMPPROBE_OK);
    for (int group = 0; group < 2; group++) {
        ampprobe_step_facts f = pl_facts(0);
        f.group = group, f.stepped = f.found_inf = -1;
        assert_int_equal(ampprobe_step(p, &f), AMPPROBE_OK);
    }
    cJSON *document = pl_close(p);
    const cJSON *groups = ab_json_at(document, "probe.groups");
    for (int group = 0; group < 2; group++)
        assert_int_equal(ab_json_number(cJSON_GetArrayItem(groups, group), "steps_skipped", -1), group);
    cJSON_Delete(document);
}

/* 1e300 is infinite in fp32, which the census counts fp64 as; the finite check is that of fp64. Traps and
 * flushed subnormals of the caller change nothing, and stay. */
static void the_callers_arithmetic_changes_nothing(void **state) {
    (void)state;
    static const double wide[2] = {1, 1e300};
    static float values[64];
    expected e = {0};
    ampprobe *p = pl_open("{\"probe_every\": 1}");
    for (int i = 0; i < 64; i++) expect(&e, (double)(values[i] = ldexpf(1, -140 - i % 8)));
    ampprobe_tensor t[2] = {pl_gradient(pl_parameter(p, "d", AMPPROBE_FP64, 2), wide, 2),
                            pl_gradient(pl_parameter(p, "f", AMPPROBE_FP32, 64), values, 64)};
    t[0].dtype = AMPPROBE_FP64, t[0].storage_bytes = sizeof wide;
    ampprobe_seen seen = {.size = sizeof seen};
    if (ab_subnormals_can_flush()) ab_subnormals_set(AB_SUBNORMALS_FLUSHED);
    const ab_subnormals mode = ab_subnormals_mode();
#ifdef __GLIBC__
    feenableexcept(FE_INVALID | FE_OVERFLOW | FE_DIVBYZERO);
#endif
    const int status = ampprobe_gradients(p, 0, t, 2, AMPPROBE_ALL, &seen);
    pl_step(p, 0);
#ifdef __GLIBC__
    const int traps = fegetexcept();
    fedisableexcept(FE_ALL_EXCEPT);
    if (traps != -1) assert_int_equal(traps & FE_OVERFLOW, FE_OVERFLOW);
#endif
    assert_int_equal(ab_subnormals_mode(), mode);
    ab_subnormals_set(AB_SUBNORMALS_KEPT);
    assert_int_equal(status, AMPPROBE_OK);
    assert_int_equal(t[0].nonfinite, 0);
    assert_int_equal(seen.exact, 1);
    assert_int_equal(seen.nonfinite, 0);
    cJSON *document = pl_close(p);
    assert_tensor(pl_tensor(pl_cell(document), "probes.tensors", "f.grad"), &e);
    assert_int_equal(ab_json_number(pl_cell(document), "steps_skipped", -1), 0);
    cJSON_Delete(document);
}

static void lost_updates_are_those_of_a_rounded_weight(void **state) {
    (void)state;
    enum { N = 512 }; /* below a sample: every value is in it */
    static uint16_t before[N], after[N];
    static float grad[N];
    int64_t lost = 0, nonzero = 0;
    const ab_rounding nearest = {AB_ROUND_NEAREST_EVEN, false, AB_FTZ_NONE, 0, 0};
    ampprobe *p = pl_open("{\"groups\": [{\"optimizer\": \"sgd\", \"lr\": 0.5, \"weight_decay\": 0}]}");
    const int32_t id = pl_parameter(p, "w", AMPPROBE_BF16, N);
    for (int i = 0; i < N; i++) {
        grad[i] = i % 5 ? ldexpf(1, -(i % 16)) : 0;
        before[i] = (uint16_t)ab_format_encode(&ab_format_bf16, &nearest, 1.0);
        after[i] = (uint16_t)ab_format_encode(&ab_format_bf16, &nearest, 1.0 - 0.5 * (double)grad[i]);
        nonzero += grad[i] != 0;
        lost += grad[i] != 0 && before[i] == after[i];
    }
    assert_true(lost > 0 && lost < nonzero);
    ampprobe_tensor t[2] = {pl_gradient(id, before, N), pl_gradient(id, grad, N)};
    t[0].role = AMPPROBE_WEIGHT, t[0].dtype = AMPPROBE_BF16, t[0].storage_bytes = sizeof before;
    t[1].role = AMPPROBE_UNSCALED_GRADIENT;
    assert_int_equal(ampprobe_before_update(p, 0, t, 1), AMPPROBE_OK);
    t[0].data = after;
    assert_int_equal(ampprobe_after_update(p, 0, t, 2), AMPPROBE_OK);
    pl_step(p, 0);
    cJSON *document = pl_close(p);
    const cJSON *ledger = cJSON_GetArrayItem(ab_json_at(pl_cell(document), "probes.lost_updates"), 0);
    assert_int_equal(ab_json_number(ledger, "update.nonzero", -1), nonzero);
    assert_int_equal(ab_json_number(ledger, "update.lost", -1), lost);
    assert_true(ab_json_number(ledger, "update.energy", 0) > 0);
    assert_string_equal(ab_json_text(ledger, "format", ""), "bf16");
    cJSON_Delete(document);
}

/* Steps at `scale` with their losses; a scale that falls by a thousandth at every skip hardly falls. */
static cJSON *told(uint32_t flags, int found_inf, double scale) {
    ampprobe *p = pl_open("{\"level\": \"torch:autocast\", \"probe_every\": 1}");
    const int32_t id = pl_parameter(p, "w", AMPPROBE_FP32, 2);
    for (int i = 0; i < 40; i++) {
        const float values[2] = {1, found_inf ? INFINITY : 1};
        ampprobe_tensor t = pl_gradient(id, values, 2);
        ampprobe_step_facts f = pl_facts(i);
        f.flags = AMPPROBE_HAS_LOSS | AMPPROBE_HAS_SCALE | flags, f.loss = 2 - 0.01 * i * !found_inf;
        f.scale_before = scale, f.found_inf = found_inf, f.seconds = 1;
        f.scale_after = scale *= found_inf ? 0.999 : 1;
        assert_int_equal(ampprobe_gradients(p, 0, &t, 1, 0, NULL), AMPPROBE_OK);
        assert_int_equal(ampprobe_step(p, &f), AMPPROBE_OK);
    }
    return pl_close(p);
}

/* bf16 weights of 1, updated by `step` of their spacing by sgd. */
static cJSON *updated(float step) {
    uint16_t before[4] = {0x3f80, 0x3f80, 0x3f80, 0x3f80}, after[4];
    ampprobe *p = pl_open("{\"half\": \"bf16\", \"groups\": [{\"optimizer\": \"sgd\", \"lr\": 1}]}");
    const int32_t id = pl_parameter(p, "w", AMPPROBE_BF16, 4);
    for (int i = 0; i < 40; i++) {
        const float d = -step / 128, grad[4] = {d, d, d, d};
        for (int k = 0; k < 4; k++) after[k] = (uint16_t)(0x3f80 + lroundf(step));
        ampprobe_tensor t[2] = {pl_gradient(id, before, 4), pl_gradient(id, grad, 4)};
        ampprobe_step_facts f = pl_facts(i);
        t[0].role = AMPPROBE_WEIGHT, t[0].dtype = AMPPROBE_BF16, t[0].storage_bytes = sizeof before;
        t[1].role = AMPPROBE_UNSCALED_GRADIENT;
        assert_int_equal(ampprobe_before_update(p, 0, t, 2), AMPPROBE_OK);
        t[0].data = after;
        assert_int_equal(ampprobe_after_update(p, 0, t, 2), AMPPROBE_OK);
        f.flags = AMPPROBE_HAS_LOSS, f.loss = 1, f.seconds = 1, f.stepped = 1;
        assert_int_equal(ampprobe_step(p, &f), AMPPROBE_OK);
    }
    return pl_close(p);
}

/* A layer whose fp16 outputs are `size` and infinity, and losses that are NaN. */
static cJSON *overflowed_with(double size, const char *about) {
    const ab_rounding nearest = {AB_ROUND_NEAREST_EVEN, false, AB_FTZ_NONE, 0, 0};
    const uint16_t values[2] = {(uint16_t)ab_format_encode(&ab_format_fp16, &nearest, size), 0x7c00};
    ampprobe *p = pl_open("{\"level\": \"torch:autocast\"}");
    for (int i = 0; i < 40; i++) {
        ampprobe_tensor t = pl_gradient(0, values, 2);
        ampprobe_step_facts f = pl_facts(i);
        t.role = AMPPROBE_ACTIVATION, t.dtype = AMPPROBE_FP16, t.storage_bytes = sizeof values;
        assert_int_equal(ampprobe_see_named(p, "layer", &t), AMPPROBE_OK);
        f.flags = AMPPROBE_HAS_LOSS, f.loss = (double)NAN, f.seconds = 1, f.found_inf = 1;
        assert_int_equal(ampprobe_step(p, &f), AMPPROBE_OK);
    }
    if (about) assert_int_equal(ampprobe_set(p, "about", about), AMPPROBE_OK);
    return pl_close(p);
}

static cJSON *overflowed(double size) { return overflowed_with(size, NULL); }

/* The same of a step that was run again: 7e5 was cast to fp16, which fp32 would have held. `cause` is that of
 * the event. */
static cJSON *run_again(const char *cause) {
    char about[1024];
    ab_text_exact(
        about, sizeof about,
        "{\"origin\": [{\"step\": 0, \"last_step\": 39, \"times\": 40, \"loss_scale\": 1024, "
        "\"ran_again\": true, \"expected\": false, \"op\": \"fc\", \"type\": \"aten._to_copy.default\", "
        "\"pass\": \"forward\", \"by\": \"cast\", \"tensor\": \"out\", \"format\": \"fp16\", \"count\": 64, "
        "\"infinite\": 4, \"nan\": 0, \"read_largest\": 7e5, \"cause\": {\"id\": \"%s\", \"samples\": 64, "
        "\"value\": 7e5, \"unscaled\": 7e5, \"partial\": null, \"limit\": 65504}, \"history\": [], "
        "\"crossing_step\": null, \"flow\": [], \"appeared\": 1, \"propagated\": 0, \"vanished\": 0}]}",
        cause);
    cJSON *document = overflowed_with(10, about);
    assert_int_equal(ab_json_number(pl_cell(document), "probes.origin.nonfinite_steps", 0), 40);
    assert_false(ab_observed_place_origins(document)); /* loading put them there */
    return document;
}

/* `id`: "unknown": sick without a cause; NULL: healthy. */
static void assert_cause(cJSON *document, const char *id) {
    static ab_diagnosis d;
    assert_int_equal(ab_diagnose(document, 0, &d), AB_OK);
    assert_int_equal(d.found.sick, id != NULL);
    if (id && strcmp(id, "unknown") == 0) id = NULL;
    assert_int_equal(d.verdicts, id != NULL);
    if (id) assert_string_equal(d.verdict[0].rule->id, id);
    cJSON_Delete(document);
}

static void causes_that_a_probe_saw_are_named(void **state) {
    (void)state;
    assert_cause(told(0, 0, 1024), NULL);
    assert_cause(told(AMPPROBE_CLIPPED_SCALED | AMPPROBE_HAS_CLIP, 0, 1024), "clip_before_unscale");
    assert_cause(told(0, 1, 0x1p24), "scale_too_high");
    assert_cause(updated(0.01f), "weight_update_lost");
    assert_cause(updated(1), NULL);
    assert_cause(overflowed(60000), "activation_overflow");
    assert_cause(overflowed(10), "unknown");
    assert_cause(run_again("range_overflow"), "activation_overflow");
    assert_cause(run_again("cannot_tell"), "unknown");
}

/* ---- bad input ------------------------------------------------------------------------------- */

#define REFUSED(call)                                                                                        \
    do {                                                                                                     \
        assert_int_equal(call, AMPPROBE_ARGUMENT);                                                           \
        assert_true(ampprobe_error()[0] != '\0');                                                            \
    } while (0)

static void bad_configs_are_refused(void **state) {
    (void)state;
    static const char *const bad[] = {"",
                                      "[]",
                                      "{",
                                      "{\"budget\": 2}",
                                      "{\"budget\": \"x\"}",
                                      "{\"buget\": 0.1}",
                                      "{\"half\": \"fp8\"}",
                                      "{\"steps\": -1}",
                                      "{\"steps\": 1.5}",
                                      "{\"model\": 3}",
                                      "{\"groups\": {}}",
                                      "{\"groups\": [3]}",
                                      "{\"groups\": [{\"lrr\": 1}]}",
                                      "{\"about\": []}",
                                      "{\"model\": \"\xff\"}",
                                      "{\"model\": \"a\nb\"}",
                                      "{\"a\": 01}",
                                      "{} {}",
                                      "{\"model\": \"\\x\"}"};
    char path[PL_PATH];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ampprobe *p = (ampprobe *)state;
        REFUSED(ampprobe_open(pl_path(path), bad[i], &p));
        assert_null(p);
        assert_int_not_equal(access(path, F_OK), 0); /* nothing was written */
    }
    REFUSED(ampprobe_open(pl_path(path), NULL, NULL));
    ampprobe *p;
    REFUSED(ampprobe_open("", NULL, &p));
    assert_int_equal(ampprobe_open("/nowhere/at/all.json", NULL, &p), AMPPROBE_OUTPUT);
    assert_non_null(strstr(ampprobe_error(), "/nowhere/at/all.json"));
    assert_int_equal(ampprobe_open("/dev/null", NULL, &p), AMPPROBE_OUTPUT);
    assert_int_equal(ampprobe_open("-", NULL, &p), AMPPROBE_OUTPUT);
}

static void bad_calls_are_refused(void **state) {
    (void)state;
    ampprobe *p = pl_open(NULL), *second;
    ampprobe_thing thing = pl_thing("w", AMPPROBE_FP32, 4);
    ampprobe_step_facts f = pl_facts(0);
    ampprobe_seen seen = {.size = 3};
    ampprobe_cost cost = {.size = 3};
    char path[PL_PATH];
    REFUSED(ampprobe_gradients(p, 16, NULL, 0, 0, NULL));
    REFUSED(ampprobe_gradients(p, 0, NULL, 1, 0, NULL));
    REFUSED(ampprobe_gradients(p, 0, NULL, 0, 64, NULL));
    REFUSED(ampprobe_gradients(p, 0, NULL, 0, 0, &seen));
    REFUSED(ampprobe_see_named(p, "", &(ampprobe_tensor){0}));
    REFUSED(ampprobe_set(p, "half", "\"bf16\""));
    REFUSED(ampprobe_set(p, "nothing", "1"));
    REFUSED(ampprobe_set(p, "steps", "one"));
    REFUSED(ampprobe_note(p, NULL));
    REFUSED(ampprobe_spent(p, (double)NAN));
    REFUSED(ampprobe_costs(p, &cost));
    REFUSED(ampprobe_describe(p, &thing, -1, NULL));
    REFUSED(ampprobe_describe(p, NULL, 1, NULL));
    thing.dimensions = 9;
    REFUSED(ampprobe_describe(p, &thing, 1, NULL));
    thing.dimensions = 2, thing.shape[0] = thing.shape[1] = INT64_MAX;
    REFUSED(ampprobe_describe(p, &thing, 1, NULL));
    thing.shape[0] = thing.shape[1] = 1, thing.name = "";
    REFUSED(ampprobe_describe(p, &thing, 1, NULL));
    thing.name = "w", thing.size = 1;
    REFUSED(ampprobe_describe(p, &thing, 1, NULL));
    REFUSED(ampprobe_step(p, NULL));
    f.step = -1;
    REFUSED(ampprobe_step(p, &f));
    f = pl_facts(0), f.found_inf = 2;
    REFUSED(ampprobe_step(p, &f));
    f = pl_facts(0), f.seconds = (double)NAN;
    REFUSED(ampprobe_step(p, &f));
    f = pl_facts(0), f.flags = AMPPROBE_HAS_SCALE, f.scale_before = (double)INFINITY;
    REFUSED(ampprobe_step(p, &f));
    f = pl_facts(0), f.flags = 1u << 31;
    REFUSED(ampprobe_step(p, &f));
    REFUSED(ampprobe_state(NULL));
    REFUSED(ampprobe_recover(""));
    assert_int_equal(ampprobe_open(pl_path(path), NULL, &second), AMPPROBE_OUTPUT); /* one place, one probe */
    assert_int_equal(ampprobe_state(p), AMPPROBE_OK);
    cJSON_Delete(pl_close(p));
    assert_int_equal(ampprobe_close(NULL), AMPPROBE_OK);
    for (int i = -1; i < 9; i++) assert_non_null(ampprobe_status_text(i));
}

/* Descriptions that claim more than there is: pages without access show that nothing is read. */
static void nothing_is_read_that_is_not_there(void **state) {
    (void)state;
    char *wall = mmap(NULL, 1 << 16, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(wall != MAP_FAILED);
    ampprobe *p = pl_open(NULL);
    const int32_t id = pl_parameter(p, "w", AMPPROBE_FP32, 4096);
    const ampprobe_tensor base = pl_gradient(id, wall, 4096);
    struct {
        int32_t reason;
        ampprobe_tensor t;
    } cases[19];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) cases[i].t = base;
    cases[0].reason = AMPPROBE_SKIP_EMPTY, cases[0].t.data = NULL;
    cases[1].reason = AMPPROBE_SKIP_EMPTY, cases[1].t.count = 0;
    cases[2].reason = AMPPROBE_SKIP_EMPTY, cases[2].t.count = -5;
    cases[3].reason = AMPPROBE_SKIP_DTYPE, cases[3].t.dtype = AMPPROBE_OTHER;
    cases[4].reason = AMPPROBE_SKIP_DTYPE, cases[4].t.dtype = -1;
    cases[5].reason = AMPPROBE_SKIP_DEVICE, cases[5].t.device = AMPPROBE_CUDA;
    cases[6].reason = AMPPROBE_SKIP_LAYOUT, cases[6].t.stride = 0;
    cases[7].reason = AMPPROBE_SKIP_LAYOUT, cases[7].t.storage_bytes = 4;
    cases[8].reason = AMPPROBE_SKIP_LAYOUT, cases[8].t.storage_bytes = -4;
    cases[9].reason = AMPPROBE_SKIP_LAYOUT, cases[9].t.stride = 2;
    cases[10].reason = AMPPROBE_SKIP_LAYOUT, cases[10].t.stride = INT64_MAX;
    cases[11].reason = AMPPROBE_SKIP_LAYOUT, cases[11].t.stride = INT64_MIN;
    cases[12].reason = AMPPROBE_SKIP_LAYOUT, cases[12].t.count = INT64_MAX;
    cases[13].reason = AMPPROBE_SKIP_ALIGN, cases[13].t.data = wall + 1;
    cases[14].reason = AMPPROBE_SKIP_ID, cases[14].t.id = 7;
    cases[15].reason = AMPPROBE_SKIP_ID, cases[15].t.id = -1;
    cases[16].reason = AMPPROBE_SKIP_ID, cases[16].t.role = AMPPROBE_ACTIVATION;
    cases[17].reason = AMPPROBE_SKIP_ID, cases[17].t.role = 77;
    cases[18].reason = AMPPROBE_SKIP_ID, cases[18].t.role = AMPPROBE_WEIGHT;
    ampprobe_seen seen = {.size = sizeof seen};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ampprobe_tensor t = cases[i].t;
        assert_int_equal(ampprobe_gradients(p, 0, &t, 1, AMPPROBE_ALL, &seen), AMPPROBE_OK);
        if (t.skipped != cases[i].reason) fail_msg("case %d: skipped for %d", (int)i, t.skipped);
        assert_int_equal(seen.exact, cases[i].reason == AMPPROBE_SKIP_EMPTY);
        assert_int_equal(t.nonfinite, -1);
        t = cases[i].t, t.role = t.role == AMPPROBE_WEIGHT_GRADIENT ? AMPPROBE_WEIGHT : t.role;
        if (cases[i].t.role != AMPPROBE_WEIGHT)
            assert_int_equal(ampprobe_before_update(p, 0, &t, 1), AMPPROBE_OK);
        if (cases[i].t.role != AMPPROBE_WEIGHT)
            assert_int_equal(ampprobe_after_update(p, 0, &t, 1), AMPPROBE_OK);
    }
    pl_step(p, 0);
    cJSON *document = pl_close(p);
    assert_int_equal(ab_json_number(document, "probe.not_counted.layout", -1), 7);
    assert_int_equal(ab_json_number(document, "probe.not_counted.device", -1), 1);
    assert_int_equal(ab_json_number(document, "probe.not_counted.dtype", -1), 2);
    cJSON_Delete(document);
    munmap(wall, 1 << 16);
}

/* ---- ends of processes ----------------------------------------------------------------------- */

static int32_t begin_of(ampprobe *p) { return pl_parameter(p, "w", AMPPROBE_FP32, 64); }

/* A step with 64 values of `size`. */
static void one_step(ampprobe *p, int32_t id, int64_t step, float size) {
    float values[64];
    for (int i = 0; i < 64; i++) values[i] = size;
    ampprobe_tensor t = pl_gradient(id, values, 64);
    assert_int_equal(ampprobe_gradients(p, 0, &t, 1, 0, NULL), AMPPROBE_OK);
    ampprobe_step_facts f = pl_facts(step);
    f.flags = AMPPROBE_HAS_LOSS, f.loss = (double)step, f.seconds = 1;
    assert_int_equal(ampprobe_step(p, &f), AMPPROBE_OK);
}

/* The facts of a probe's document that was read. */
static const cJSON *fact_at(const cJSON *document, int i) {
    return cJSON_GetArrayItem(ab_json_at(document, "probe.facts"), i);
}

static void facts_are_kept_by_name_and_place(void **state) {
    (void)state;
    ampprobe *p = pl_open(NULL);
    char name[80] = "";
    REFUSED(ampprobe_fact(p, NULL, NULL, 0, 1));
    REFUSED(ampprobe_fact(p, "", NULL, 0, 1));
    REFUSED(ampprobe_fact(p, "Big", NULL, 0, 1));
    REFUSED(ampprobe_fact(p, "a fact", NULL, 0, 1));
    REFUSED(ampprobe_fact(p, "a", NULL, -1, 1));
    memset(name, 'a', 64);
    REFUSED(ampprobe_fact(p, name, NULL, 0, 1));
    assert_int_equal(ampprobe_fact(p, "resumed_steps", NULL, 7, 300), AMPPROBE_OK);
    static const double values[] = {4, -2, 9, (double)NAN, (double)INFINITY, 3};
    for (int i = 0; i < 6; i++)
        assert_int_equal(ampprobe_fact(p, "ids", "wte", 10 + i, values[i]), AMPPROBE_OK);
    assert_int_equal(ampprobe_fact(p, "ids", "wpe", 10, (double)NAN), AMPPROBE_OK);
    for (int i = 0; i < 300; i++) {
        snprintf(name, sizeof name, "layer%d", i);
        assert_int_equal(ampprobe_fact(p, "many", name, i, i), AMPPROBE_OK);
    }
    cJSON *document = pl_close(p);
    const cJSON *ids = fact_at(document, 1);
    assert_string_equal(ab_json_text(fact_at(document, 0), "name", ""), "resumed_steps");
    assert_string_equal(ab_json_text(fact_at(document, 0), "place", "?"), "");
    assert_int_equal(ab_json_number(fact_at(document, 0), "first_step", 0), 7);
    assert_string_equal(ab_json_text(ids, "place", "?"), "wte");
    assert_int_equal(ab_json_number(ids, "times", 0), 6);
    assert_int_equal(ab_json_number(ids, "first_step", 0), 10);
    assert_int_equal(ab_json_number(ids, "last_step", 0), 15);
    assert_true(ab_json_number(ids, "first", 0) == 4 && ab_json_number(ids, "last", 0) == 3);
    assert_true(ab_json_number(ids, "least", 0) == -2 && ab_json_number(ids, "largest", 0) == 9);
    assert_true(cJSON_IsNull(ab_json_at(fact_at(document, 2), "largest")));
    assert_int_equal(cJSON_GetArraySize(ab_json_at(document, "probe.facts")), 256);
    assert_int_equal(ab_json_number(document, "probe.facts_left_out", 0), 3 + 300 - 256);
    cJSON_Delete(document);
}

static const cJSON *first_cell(const cJSON *document) {
    return cJSON_GetArrayItem(ab_json_at(document, "cells"), 0);
}

/* Steps handed over together are those handed over one by one, in the document and in the journal. */
static void many_steps_in_one_call(void **state) {
    (void)state;
    enum { STEPS = 40 };
    ampprobe *one = pl_open("{\"budget\": 0}"), *together;
    char first[PL_PATH], path[PL_PATH + 8];
    ampprobe_step_facts f[STEPS];
    snprintf(path, sizeof path, "%s.together", pl_path(first));
    assert_int_equal(ampprobe_open(path, "{\"budget\": 0}", &together), AMPPROBE_OK);
    for (int i = 0; i < STEPS; i++) {
        f[i] = pl_facts(i);
        f[i].flags = AMPPROBE_HAS_LOSS | AMPPROBE_HAS_SCALE, f[i].loss = 1.0 / (i + 1), f[i].seconds = 0.25;
        f[i].found_inf = i % 7 == 3, f[i].stepped = !f[i].found_inf;
        f[i].scale_before = 1024, f[i].scale_after = f[i].found_inf ? 512 : 1024;
        ampprobe_step_facts same = f[i];
        assert_int_equal(ampprobe_step(one, &same), AMPPROBE_OK);
    }
    REFUSED(ampprobe_steps(together, NULL, 1));
    REFUSED(ampprobe_steps(together, f, -1));
    f[9].size = 3; /* one that is wrong: none is taken */
    REFUSED(ampprobe_steps(together, f, STEPS));
    f[9].size = sizeof f[9];
    assert_int_equal(ampprobe_steps(together, f, 15), AMPPROBE_OK);
    assert_int_equal(ampprobe_steps(together, f + 15, STEPS - 15), AMPPROBE_OK);
    cJSON *journal = NULL, *expected_document = pl_close(one);
    assert_int_equal(ab_result_load(path, &journal), AB_OK); /* the document as opened, and the journal */
    assert_int_equal(ampprobe_close(together), AMPPROBE_OK);
    cJSON *document = NULL;
    assert_int_equal(ab_result_load(path, &document), AB_OK);
    static const char *const parts[] = {"loss", "scale", "skipped_steps"};
    for (size_t i = 0; i < AB_COUNT_OF(parts); i++) {
        const cJSON *expected_part = ab_json_at(first_cell(expected_document), parts[i]);
        assert_non_null(expected_part);
        assert_true(cJSON_Compare(ab_json_at(first_cell(document), parts[i]), expected_part, true));
        assert_true(cJSON_Compare(ab_json_at(first_cell(journal), parts[i]), expected_part, true));
    }
    cJSON_Delete(expected_document);
    cJSON_Delete(document);
    cJSON_Delete(journal);
    unlink(path);
}

/* Facts of a run that was killed: those of the snapshot and those since. */
static void state_and_be_killed(const char *path) {
    ampprobe *p;
    if (ampprobe_open(path, "{\"probe_every\": 1}", &p) != AMPPROBE_OK) _exit(1);
    const int32_t id = begin_of(p);
    for (int i = 0; i < 4; i++) {
        if (ampprobe_fact(p, "ids", "wte", i, i) != AMPPROBE_OK) _exit(1);
        one_step(p, id, i, 1);
    }
    kill(getpid(), SIGKILL);
    _exit(1);
}

static void a_killed_run_keeps_its_facts(void **state) {
    (void)state;
    char path[PL_PATH];
    int how;
    const pid_t child = fork();
    if (child == 0) state_and_be_killed(pl_path(path));
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
    cJSON *document = NULL;
    assert_int_equal(ampprobe_recover(pl_path(path)), AMPPROBE_OK);
    assert_int_equal(ab_result_load(path, &document), AB_OK);
    assert_int_equal(ab_json_number(fact_at(document, 0), "times", 0), 4);
    assert_true(ab_json_number(fact_at(document, 0), "largest", 0) == 3);
    cJSON_Delete(document);
    unlink(path);
}

static void run_and_be_killed(const char *path, int steps) {
    ampprobe *p;
    if (ampprobe_open(path, "{\"probe_every\": 1}", &p) != AMPPROBE_OK) _exit(1);
    const int32_t id = begin_of(p);
    for (int i = 0; i < steps; i++) one_step(p, id, i, i % 2 ? 2 : 1);
    float values[64] = {0};
    ampprobe_tensor t = pl_gradient(id, values, 64);
    (void)ampprobe_gradients(p, 0, &t, 1, 0, NULL); /* of a step that does not end */
    kill(getpid(), SIGKILL);
    _exit(1);
}

static void a_killed_run_is_read_to_its_last_step(void **state) {
    (void)state;
    enum { STEPS = 37 };
    char path[PL_PATH], journal[PL_PATH + 8];
    int how;
    const pid_t child = fork();
    if (child == 0) run_and_be_killed(pl_path(path), STEPS);
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
    snprintf(journal, sizeof journal, "%s.steps", pl_path(path));
    assert_int_equal(truncate(journal, pl_size(journal) + 5), 0); /* torn: something of a next record */
    for (int turn = 0; turn < 2; turn++) {
        cJSON *document = NULL;
        assert_int_equal(ab_result_load(path, &document), AB_OK);
        const cJSON *cell = pl_cell(document), *tensor = pl_tensor(cell, "probes.tensors", "w.grad");
        assert_int_equal(ab_json_number(cell, "steps_total", 0), STEPS);
        assert_int_equal(cJSON_GetArraySize(ab_json_at(cell, "loss")), STEPS);
        assert_int_equal(ab_json_number(tensor, "count", 0), STEPS * 64);
        assert_int_equal(ab_json_number(tensor, "zero", -1), 0);
        assert_false(ab_json_is_true(document, "run.complete"));
        cJSON_Delete(document);
        assert_int_equal(access(journal, F_OK), turn == 0 ? 0 : -1); /* reading changes no file */
        if (turn == 0) assert_int_equal(ampprobe_recover(path), AMPPROBE_OK);
    }
    unlink(path);
}

enum { HANDED = 11, WRITTEN = 5, ROOM = 16 };

/* Hands some steps over and writes others into memory that outlives the process; the last has no seconds. */
static void write_and_be_killed(const char *path) {
    ampprobe *p;
    ampprobe_step_facts *room;
    if (ampprobe_open(path, NULL, &p) != AMPPROBE_OK) _exit(1);
    if (ampprobe_latest(p, ROOM, &room) != AMPPROBE_OK) _exit(2);
    if (!room) _exit(77);
    for (int i = 0; i < HANDED + WRITTEN + 1; i++) {
        ampprobe_step_facts *f = &room[i < HANDED ? i : i - HANDED];
        *f = pl_facts(i);
        f->flags = AMPPROBE_HAS_LOSS, f->loss = i, f->stepped = 1;
        f->seconds = i < HANDED + WRITTEN ? 0.5 : 0;
        if (i == HANDED - 1 && ampprobe_steps(p, room, HANDED) != AMPPROBE_OK) _exit(3);
    }
    kill(getpid(), SIGKILL);
    _exit(4);
}

static void expect_losses(const char *path, int count) {
    cJSON *document = NULL;
    assert_int_equal(ab_result_load(path, &document), AB_OK);
    const cJSON *losses = ab_json_at(pl_cell(document), "loss");
    assert_int_equal(cJSON_GetArraySize(losses), count);
    for (int i = 0; i < count; i++) assert_true(cJSON_GetArrayItem(losses, i)->valuedouble == i);
    cJSON_Delete(document);
}

static void flip(const char *path, long at) {
    FILE *file = fopen(path, "rb+");
    assert_non_null(file);
    fseek(file, at, SEEK_SET);
    const int byte = fgetc(file);
    fseek(file, at, SEEK_SET);
    fputc(byte ^ 0xff, file);
    fclose(file);
}

/* Steps that were written and never handed over are read, each once; a damaged file of them is no danger. */
static void a_killed_run_keeps_steps_that_were_not_handed_over(void **state) {
    (void)state;
    char path[PL_PATH], latest[PL_PATH + 8];
    int how;
    const pid_t child = fork();
    if (child == 0) write_and_be_killed(pl_path(path));
    assert_int_equal(waitpid(child, &how, 0), child);
    if (WIFEXITED(how) && WEXITSTATUS(how) == 77) skip();
    assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
    snprintf(latest, sizeof latest, "%s.latest", pl_path(path));
    expect_losses(path, HANDED + WRITTEN);
    const long head = (long)(pl_size(latest) - ROOM * (int64_t)sizeof(ampprobe_step_facts));
    for (long at = 0; at < head + 2 * (long)sizeof(ampprobe_step_facts);
         at += 5) { /* whatever byte is wrong */
        cJSON *document = NULL;
        flip(latest, at);
        assert_int_equal(ab_result_load(path, &document), AB_OK);
        const int losses = cJSON_GetArraySize(ab_json_at(pl_cell(document), "loss"));
        assert_in_range(losses, HANDED, HANDED + WRITTEN);
        cJSON_Delete(document);
        flip(latest, at);
    }
    assert_int_equal(ampprobe_recover(path), AMPPROBE_OK);
    expect_losses(path, HANDED + WRITTEN);
    assert_int_equal(access(latest, F_OK), -1);
    unlink(path);
}

static void room_is_given_once(void **state) {
    (void)state;
    ampprobe *p = pl_open(NULL);
    ampprobe_step_facts *room;
    REFUSED(ampprobe_latest(p, 0, &room));
    REFUSED(ampprobe_latest(p, 4097, &room));
    REFUSED(ampprobe_latest(p, 4, NULL));
    assert_int_equal(ampprobe_latest(p, 4, &room), AMPPROBE_OK);
    if (room) REFUSED(ampprobe_latest(p, 4, &room));
    cJSON_Delete(pl_close(p));
    char path[PL_PATH], latest[PL_PATH + 8];
    snprintf(latest, sizeof latest, "%s.latest", pl_path(path));
    assert_int_equal(access(latest, F_OK), -1);
}

/* A document that another run has finished is no place for an old journal. */
static void a_journal_of_another_run_is_not_joined(void **state) {
    (void)state;
    char path[PL_PATH], journal[PL_PATH + 8], kept[PL_PATH + 8];
    cJSON *document = NULL;
    int how;
    const pid_t child = fork();
    if (child == 0) run_and_be_killed(pl_path(path), 5);
    assert_int_equal(waitpid(child, &how, 0), child);
    snprintf(journal, sizeof journal, "%s.steps", pl_path(path));
    snprintf(kept, sizeof kept, "%s.kept", path);
    assert_int_equal(rename(journal, kept), 0);
    ampprobe *p = pl_open("{\"probe_every\": 1}");
    for (int i = 0; i < 9; i++) pl_step(p, i);
    assert_int_equal(ampprobe_close(p), AMPPROBE_OK);
    assert_int_equal(rename(kept, journal), 0);
    assert_int_equal(ampprobe_recover(path), AMPPROBE_INPUT);
    assert_int_equal(unlink(journal), 0);
    assert_int_equal(ab_result_load(path, &document), AB_OK);
    assert_int_equal(ab_json_number(pl_cell(document), "steps_total", 0), 9);
    assert_true(ab_json_is_true(document, "run.complete"));
    cJSON_Delete(document);
    unlink(path);
}

/* Any byte changed, any length: an error or fewer steps, never a crash. */
static void a_damaged_journal_is_no_danger(void **state) {
    (void)state;
    char path[PL_PATH], journal[PL_PATH + 8];
    int how;
    const pid_t child = fork();
    if (child == 0) run_and_be_killed(pl_path(path), 3);
    assert_int_equal(waitpid(child, &how, 0), child);
    snprintf(journal, sizeof journal, "%s.steps", pl_path(path));
    const int64_t size = pl_size(journal);
    for (int64_t i = 0; i < 120; i++) {
        const int64_t at = i < 60 ? i * 2 : size - 1 - (i - 60) * 7;
        FILE *file = fopen(journal, "rb+");
        assert_non_null(file);
        assert_int_equal(fseek(file, (long)at, SEEK_SET), 0);
        const int old = fgetc(file);
        fseek(file, (long)at, SEEK_SET);
        fputc(old ^ 0x55, file);
        fclose(file);
        char *text = NULL;
        const ab_status status = ab_lib_record_text(path, &text);
        assert_true(status == AB_INPUT || (status == AB_OK && text));
        free(text);
        cJSON *document = NULL;
        if (i == 0) assert_int_equal(ab_result_load(path, &document), AB_OK); /* the document as it is */
        cJSON_Delete(document);
        file = fopen(journal, "rb+");
        fseek(file, (long)at, SEEK_SET);
        fputc(old, file);
        fclose(file);
    }
    assert_int_equal(ampprobe_recover(path), AMPPROBE_OK);
    unlink(path);
}

static void a_child_writes_nothing(void **state) {
    (void)state;
    int how;
    ampprobe *p = pl_open("{\"probe_every\": 1}");
    const int32_t id = begin_of(p);
    one_step(p, id, 0, 1);
    const pid_t child = fork();
    if (child == 0) {
        ampprobe_step_facts f = pl_facts(1);
        ampprobe_tensor t = pl_gradient(id, &f, 1);
        bool good = ampprobe_step(p, &f) == AMPPROBE_FORKED && ampprobe_state(p) == AMPPROBE_FORKED &&
                    ampprobe_gradients(p, 0, &t, 1, 0, NULL) == AMPPROBE_FORKED && ampprobe_plan(p, 1) == 0 &&
                    ampprobe_close(p) == AMPPROBE_FORKED;
        _exit(good ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    one_step(p, id, 1, 1);
    cJSON *document = pl_close(p);
    assert_int_equal(ab_json_number(pl_cell(document), "steps_total", 0), 2);
    cJSON_Delete(document);
}

/* A limit of the file's size stands for a full disk: the probe turns itself off, and the signal that such a
 * write would send does not end the process. */
static void a_full_disk_turns_the_probe_off(void **state) {
    (void)state;
    int how;
    const pid_t child = fork();
    if (child == 0) {
        struct rlimit limit;
        ampprobe *p = pl_open("{\"probe_every\": 1}");
        char path[PL_PATH], journal[PL_PATH + 8];
        const int32_t id = begin_of(p);
        snprintf(journal, sizeof journal, "%s.steps", pl_path(path));
        getrlimit(RLIMIT_FSIZE, &limit);
        limit.rlim_cur = (rlim_t)pl_size(journal) + 1000;
        setrlimit(RLIMIT_FSIZE, &limit);
        int status = AMPPROBE_OK;
        for (int i = 0; i < 100 && status == AMPPROBE_OK; i++) {
            float one = 1;
            ampprobe_step_facts f = pl_facts(i);
            ampprobe_tensor t = pl_gradient(id, &one, 1);
            if (ampprobe_gradients(p, 0, &t, 1, 0, NULL) != AMPPROBE_OK) break;
            status = ampprobe_step(p, &f);
        }
        const bool off = status == AMPPROBE_OUTPUT && ampprobe_state(p) == AMPPROBE_OFF &&
                         strstr(ampprobe_error(), "cannot write") && ampprobe_plan(p, 0) == 0;
        const bool closed = ampprobe_close(p) == AMPPROBE_OFF;
        _exit(off && closed ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    cJSON *document = NULL;
    char path[PL_PATH];
    assert_int_equal(ab_result_load(pl_path(path), &document), AB_OK); /* what was written before is read */
    assert_true(ab_json_number(pl_cell(document), "steps_total", 0) > 0);
    cJSON_Delete(document);
    assert_int_equal(ampprobe_recover(path), AMPPROBE_OK);
    unlink(path);
}

/* ---- many steps ------------------------------------------------------------------------------ */

/* The rate of step i is i, so that means over four steps are 4 k + 1.5; the last element has what is left. */
static void rates_are_kept_as_means_over_as_many_steps_as_need_be(void **state) {
    enum { STEPS = 3001, STRIDE = 4 };
    (void)state;
    ampprobe *p = pl_open(NULL);
    for (int i = 0; i < STEPS; i++) {
        ampprobe_step_facts f = pl_facts(i);
        f.flags |= i == 8 ? 0 : AMPPROBE_HAS_LR;
        f.lr = i;
        assert_int_equal(ampprobe_step(p, &f), AMPPROBE_OK);
    }
    cJSON *document = pl_close(p);
    const cJSON *rates = ab_json_at(document, "probe.learning_rate.mean");
    assert_int_equal(ab_json_number(document, "probe.learning_rate.stride", 0), STRIDE);
    assert_int_equal(cJSON_GetArraySize(rates), STEPS / STRIDE + 1);
    for (int k = 0; k < STEPS / STRIDE; k++) {
        const double mean = cJSON_GetArrayItem(rates, k)->valuedouble;
        assert_true(mean == (k == 2 ? 10 : 4 * k + 1.5));
    }
    assert_true(cJSON_GetArrayItem(rates, STEPS / STRIDE)->valuedouble == STEPS - 1);
    cJSON_Delete(document);
}

static void many_steps_need_no_more_room(void **state) {
    (void)state;
    enum { STEPS = 250000 };
    char path[PL_PATH], journal[PL_PATH + 8];
    ampprobe_cost first = {.size = sizeof first}, last = {.size = sizeof last};
    ampprobe *p = pl_open("{\"probe_every\": 7}");
    const int32_t id = begin_of(p);
    int64_t most = 0;
    snprintf(journal, sizeof journal, "%s.steps", pl_path(path));
    for (int64_t i = 0; i < STEPS; i++) {
        float values[4] = {1, 2, 4, 8};
        ampprobe_tensor t = pl_gradient(id, values, 4);
        ampprobe_step_facts f = pl_facts(i);
        f.flags = AMPPROBE_HAS_LOSS | AMPPROBE_HAS_SCALE, f.seconds = 1e-3, f.loss = 1,
        f.found_inf = i % 3 == 0;
        f.scale_before = 1 + (double)(i % 2), f.scale_after = 1 + (double)((i + 1) % 2);
        (void)ampprobe_gradients(p, 0, &t, 1, 0, NULL);
        if (ampprobe_step(p, &f) != AMPPROBE_OK) fail_msg("%s", ampprobe_error());
        if (i == 100) (void)ampprobe_costs(p, &first);
        if (i % 1000 == 0 && pl_size(journal) > most) most = pl_size(journal);
    }
    (void)ampprobe_costs(p, &last);
    assert_true(last.memory_bytes <= first.memory_bytes + 4096 && last.memory_bytes < 2 << 20);
    assert_true(most < 12 << 20);
    cJSON *document = pl_close(p); /* loss_stride is expanded: the check counts losses and scales */
    const cJSON *cell = pl_cell(document);
    assert_int_equal(cJSON_GetArraySize(ab_json_at(cell, "loss")), STEPS);
    assert_int_equal(ab_json_number(cell, "steps_skipped", 0), (STEPS + 2) / 3);
    assert_true(ab_json_is_true(cell, "skipped_steps_truncated"));
    assert_int_equal(ab_json_number(pl_tensor(cell, "probes.tensors", "w.grad"), "count", 0),
                     (STEPS + 6) / 7 * 4);
    cJSON_Delete(document);
}

/* The steps of a source whose text begins so; -1: there is none. */
static int64_t source_steps(const cJSON *document, const char *quantity, const char *from) {
    const cJSON *source;
    cJSON_ArrayForEach(source, ab_json_at(document, "probe.sources")) {
        if (strcmp(ab_json_text(source, "quantity", ""), quantity) == 0 &&
            strncmp(ab_json_text(source, "from", ""), from, strlen(from)) == 0)
            return (int64_t)ab_json_number(source, "steps", 0);
    }
    return -1;
}

static void sources_are_those_of_every_step(void **state) {
    float values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    ampprobe *p = pl_open(NULL);
    const int32_t id = begin_of(p);
    (void)state;
    for (int i = 0; i < 10; i++) {
        ampprobe_tensor t = pl_gradient(id, values, 8);
        ampprobe_step_facts f = pl_facts(i);
        f.found_inf = i < 4 ? 0 : -1, f.stepped = i < 7 ? 1 : -1;
        f.flags = (i < 3 ? AMPPROBE_HAS_SCALE : 0u) | (i < 6 ? AMPPROBE_HAS_LOSS : 0u) |
                  (i < 5 ? AMPPROBE_HAS_LR : 0u);
        f.scale_before = f.scale_after = 2, f.loss = 1, f.lr = 0.5, f.seconds = 0.5;
        if (i < 8) assert_int_equal(ampprobe_gradients(p, 0, &t, 1, AMPPROBE_ALL, NULL), AMPPROBE_OK);
        assert_int_equal(ampprobe_step(p, &f), AMPPROBE_OK);
    }
    cJSON *document = pl_close(p);
    assert_int_equal(source_steps(document, "loss", "the caller"), 6);
    assert_int_equal(source_steps(document, "scale", "the loss scaler"), 3);
    assert_int_equal(source_steps(document, "learning_rate", ""), 5);
    assert_int_equal(source_steps(document, "skipped", "the caller's finite check"), 4);
    assert_int_equal(source_steps(document, "skipped", "whether the optimizer"), 3);
    assert_int_equal(source_steps(document, "skipped", "the probe's own"), 1);
    assert_int_equal(source_steps(document, "skipped", "not known"), 2);
    assert_int_equal(
        source_steps(document, "gradients",
                     "parameters' gradients before they are unscaled, some times the loss scale: all"),
        8);
    assert_int_equal(source_steps(document, "layers", ""), -1);
    assert_int_equal(source_steps(document, "weights", ""), -1);
    cJSON_Delete(document);
}

static void a_source_is_what_the_caller_named(void **state) {
    ampprobe *p = pl_open("{\"loss_from\": \"closure\"}");
    ampprobe_step_facts f = pl_facts(0);
    (void)state;
    f.flags = AMPPROBE_HAS_LOSS, f.loss = 1, f.seconds = 0.5;
    assert_int_equal(ampprobe_step(p, &f), AMPPROBE_OK);
    assert_int_equal(ampprobe_set(p, "loss_from", "\"scale, closure\""), AMPPROBE_OK);
    cJSON *document = pl_close(p);
    assert_int_equal(source_steps(document, "loss", "scale, closure"), 1);
    assert_int_equal(source_steps(document, "scale", ""), -1);
    cJSON_Delete(document);
}

/* What the probe holds more after a tensor of one value was shown in a role. */
static int64_t room_of(ampprobe *p, int32_t id, int32_t role) {
    float value = 1;
    ampprobe_cost before = {.size = sizeof before}, after = {.size = sizeof after};
    ampprobe_tensor t = pl_gradient(id, &value, 1);
    t.role = role;
    assert_int_equal(ampprobe_costs(p, &before), AMPPROBE_OK);
    assert_int_equal(ampprobe_see(p, &t, 1, 0, NULL), AMPPROBE_OK);
    assert_int_equal(ampprobe_costs(p, &after), AMPPROBE_OK);
    return after.memory_bytes - before.memory_bytes;
}

static void weights_and_states_take_no_room_for_what_only_gradients_have(void **state) {
    ampprobe *p = pl_open(NULL);
    const int32_t id = begin_of(p);
    (void)state;
    const int64_t gradient = room_of(p, id, AMPPROBE_WEIGHT_GRADIENT);
    assert_in_range(gradient, 24 << 10, 34 << 10);
    assert_in_range(room_of(p, id, AMPPROBE_WEIGHT), 1, 12 << 10);
    assert_in_range(room_of(p, id, AMPPROBE_OPTIMIZER_STATE), 1, 12 << 10);
    assert_int_equal(room_of(p, id, AMPPROBE_WEIGHT_GRADIENT), 0);
    cJSON_Delete(pl_close(p));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_counted_as_they_are),
        cmocka_unit_test(a_group_is_skipped_for_its_own_gradients),
        cmocka_unit_test(the_callers_arithmetic_changes_nothing),
        cmocka_unit_test(stored_halves_and_strides_are_counted),
        cmocka_unit_test(samples_say_that_they_are_samples),
        cmocka_unit_test(steps_are_recorded_as_they_were_told),
        cmocka_unit_test(optimizers_have_their_own_steps),
        cmocka_unit_test(lost_updates_are_those_of_a_rounded_weight),
        cmocka_unit_test(causes_that_a_probe_saw_are_named),
        cmocka_unit_test(bad_configs_are_refused),
        cmocka_unit_test(bad_calls_are_refused),
        cmocka_unit_test(nothing_is_read_that_is_not_there),
        cmocka_unit_test(a_killed_run_is_read_to_its_last_step),
        cmocka_unit_test(a_killed_run_keeps_steps_that_were_not_handed_over),
        cmocka_unit_test(room_is_given_once),
        cmocka_unit_test(a_journal_of_another_run_is_not_joined),
        cmocka_unit_test(a_damaged_journal_is_no_danger),
        cmocka_unit_test(many_steps_in_one_call),
        cmocka_unit_test(facts_are_kept_by_name_and_place),
        cmocka_unit_test(a_killed_run_keeps_its_facts),
        cmocka_unit_test(a_child_writes_nothing),
        cmocka_unit_test(a_full_disk_turns_the_probe_off),
        cmocka_unit_test(rates_are_kept_as_means_over_as_many_steps_as_need_be),
        cmocka_unit_test(many_steps_need_no_more_room),
        cmocka_unit_test(sources_are_those_of_every_step),
        cmocka_unit_test(a_source_is_what_the_caller_named),
        cmocka_unit_test(weights_and_states_take_no_room_for_what_only_gradients_have),
    };
    ab_observed_set_newer(ab_lib_record_text);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
