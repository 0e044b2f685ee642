/* The probes of activations, weights, optimizer states and gradients: what a cell shows them is what it
 * stores, and what they count is what a cast of every single value would have done. */
#define _POSIX_C_SOURCE 200809L
#include "tests/unit/probe_testing.h"

#include "kernels/format/convert.h"

#include <math.h>

enum { STEPS = 4, ROOM = 1 << 14 };

/* ---- everything a step shows ----------------------------------------------------------------- */

/* The values of one tensor in one step, in the order they came (one thread). */
typedef struct seen {
    int64_t n;
    float value[ROOM];
} seen;

typedef struct witness {
    ab_observer observer; /* first */
    seen tensor[PT_MOST];
    int probes;
    const ab_probe_kind *kind[4];
    void *state[4];
    const ab_probe_tensor *about;
} witness;

static void see(ab_observer *self, int id, int thread, const float *values, int64_t n) {
    witness *w = (witness *)(void *)self;
    if (id < 0) return;
    seen *to = &w->tensor[id];
    assert_true(to->n + n <= ROOM);
    memcpy(to->value + to->n, values, (size_t)n * sizeof *values);
    to->n += n;
    for (int p = 0; p < w->probes; p++)
        if (w->kind[p]->roles >> w->about[id].role & 1u) w->kind[p]->see(w->state[p], id, thread, values, n);
}

/* ---- what a cast does ------------------------------------------------------------------------ */

typedef struct counts {
    int64_t count, zero, nan, inf, flushed, subnormal, normal, overflowed;
    double max_abs;
} counts;

static void cast_one(counts *c, float value, const ab_format *half) {
    const ab_rounding nearest = {.mode = AB_ROUND_NEAREST_EVEN};
    double stored = fabs(ab_format_round(half, &nearest, (double)value));
    bool nonzero = isfinite(value) && value != 0;
    c->count++;
    c->zero += value == 0;
    c->nan += isnan(value);
    c->inf += isinf(value) != 0;
    c->flushed += nonzero && stored == 0;
    c->subnormal += nonzero && stored > 0 && stored < ldexp(1, half->emin);
    c->normal += nonzero && stored >= ldexp(1, half->emin) && isfinite(stored);
    c->overflowed += nonzero && isinf(stored);
    if (nonzero) c->max_abs = fmax(c->max_abs, fabs((double)value));
}

static const cJSON *entry_of(const cJSON *report, const ab_probe_tensor *about) {
    static const char *const lists[AB_ROLE_COUNT] = {"tensors",     "tensors", "unscaled_gradients",
                                                     "activations", "weights", "optimizer_state"};
    const cJSON *entry = pt_find(pt_get(report, lists[about->role]), "name", about->name);
    assert_string_equal(pt_text(entry, "kind"), ab_probe_role_name(about->role));
    assert_string_equal(pt_text(entry, "layer"), about->layer);
    assert_int_equal(cJSON_IsTrue(pt_get(entry, "cast")), about->cast);
    return entry;
}

static void counts_are(const cJSON *entry, const counts *c, const ab_format *half) {
    assert_int_equal(pt_integer(entry, "count"), c->count);
    assert_int_equal(pt_integer(entry, "zero"), c->zero);
    assert_int_equal(pt_integer(entry, "nan"), c->nan);
    assert_int_equal(pt_integer(entry, "inf"), c->inf);
    assert_int_equal(pt_integer(entry, "flushed"), c->flushed);
    assert_int_equal(pt_integer(entry, "subnormal"), c->subnormal);
    assert_int_equal(pt_integer(entry, "normal"), c->normal);
    assert_int_equal(pt_integer(entry, "overflowed"), c->overflowed);
    if (c->max_abs == 0) {
        assert_true(pt_is_null(entry, "margin_octaves"));
        return;
    }
    double margin = log2(ab_format_overflow_limit(half) / c->max_abs);
    assert_true(fabs(pt_number(entry, "margin_octaves") - margin) <= 1.0 / 16);
    assert_int_equal(pt_number(entry, "margin_octaves") <= 0, c->overflowed > 0);
}

/* ---- in cells -------------------------------------------------------------------------------- */

/* Rounded to the format it is stored in, what was shown is what can be read from the cell. */
static void is_stored(const ab_cell *cell, const seen *values, const char *name, bool present) {
    static float stored[ROOM];
    ab_shape shape;
    const ab_plan *plan = ab_cell_plan(cell);
    assert_int_equal(ab_cell_read(cell, name, &shape, stored), AB_OK);
    if (!present) return;
    assert_int_equal(values->n, ab_shape_count(&shape));
    /* masters and their states are fp32; everything else has the format of the plan's tensor */
    const ab_format *format = plan->tensor[ab_plan_find(plan, name)].format;
    if (plan->policy.master_weights == AB_TRI_true) format = &ab_format_fp32;
    const ab_rounding nearest = {.mode = AB_ROUND_NEAREST_EVEN};
    for (int64_t i = 0; i < values->n; i++) {
        double rounded = ab_format_round(format, &nearest, (double)values->value[i]);
        if ((double)stored[i] != rounded && !(isnan(stored[i]) && isnan(rounded)))
            fail_msg("%s[%d]: %.9g stored, %.9g shown", name, (int)i, (double)stored[i], rounded);
    }
}

static void is_what_the_cell_holds(const ab_cell *cell, const ab_observed *about, const seen *values,
                                   bool updated) {
    char name[AB_PLAN_NAME + 16];
    snprintf(name, sizeof name, "%s", about->name);
    if (about->role == AB_ROLE_OPTIMIZER_STATE) {
        char *suffix = strstr(name, ".exp_avg");
        bool second = strcmp(suffix, ".exp_avg_sq") == 0;
        snprintf(suffix, 16, ".state%d", second);
    }
    if (about->role == AB_ROLE_WEIGHT || about->role == AB_ROLE_OPTIMIZER_STATE)
        is_stored(cell, values, name, updated);
    if (about->role == AB_ROLE_UNSCALED_GRADIENT) is_stored(cell, values, name, true);
}

static void cell_is_counted(const ab_net *net, const char *level, const ab_format *half, const char *set) {
    static const char *const names[] = {"gradients", "activations", "weights", "optimizer_state"};
    ab_cell_config config = pt_config(net, level, half, "adam", set);
    ab_cell *cell = pt_cell(&config);
    static ab_probe_tensor about[PT_MOST];
    static counts expected[PT_MOST];
    witness *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->observer.see = see;
    w->about = about;
    memset(expected, 0, sizeof expected);
    const ab_watch watch = {.roles = (1u << AB_ROLE_COUNT) - 1};
    ab_cell_watch(cell, &watch);
    const int count = ab_cell_observed_count(cell);
    assert_in_range(count, 1, PT_MOST);
    for (int i = 0; i < count; i++) {
        const ab_observed *o = ab_cell_observed_at(cell, i);
        about[i] = (ab_probe_tensor){o->name, o->layer, o->role, o->cast};
    }
    const ab_probe_setup setup = {.tensor = about, .tensors = count, .threads = 1, .half = half};
    for (; w->probes < 4; w->probes++) {
        w->kind[w->probes] = pt_probe(names[w->probes]);
        assert_int_equal(w->kind[w->probes]->create(&setup, &w->state[w->probes]), AB_OK);
    }
    for (int k = 0; k < STEPS; k++) {
        ab_step_result result;
        for (int i = 0; i < count; i++) w->tensor[i].n = 0;
        assert_int_equal(ab_cell_step(cell, &w->observer, &result), AB_OK);
        for (int p = 0; p < 4; p++) w->kind[p]->step_end(w->state[p], k);
        for (int i = 0; i < count; i++) {
            const ab_observed *o = ab_cell_observed_at(cell, i);
            is_what_the_cell_holds(cell, o, &w->tensor[i], !result.skipped);
            for (int64_t j = 0; j < w->tensor[i].n; j++) cast_one(&expected[i], w->tensor[i].value[j], half);
        }
    }
    for (int p = 0; p < 4; p++) {
        cJSON *report = pt_report(w->kind[p]->report, w->state[p]);
        for (int i = 0; i < count; i++)
            if (w->kind[p]->roles >> about[i].role & 1u)
                counts_are(entry_of(report, &about[i]), &expected[i], half);
        cJSON_Delete(report);
        w->kind[p]->destroy(w->state[p]);
    }
    free(w);
    ab_cell_destroy(cell);
}

static void what_a_cell_shows_is_counted_as_a_cast_would_treat_it(void **state) {
    (void)state;
    static const char *const sets[] = {"loss_scale=None", "loss_scale=1e-6", "loss_scale=1e8",
                                       "loss_scale=dynamic"};
    ab_net *net = pt_net(pt_ops);
    for (size_t l = 0; l < AB_COUNT_OF(pt_levels); l++)
        for (size_t s = 0; s < AB_COUNT_OF(sets); s++)
            cell_is_counted(net, pt_levels[l], s % 2 ? &ab_format_bf16 : &ab_format_fp16, sets[s]);
    cell_is_counted(net, "O3", &ab_format_fp16, "loss_scale=1e8");
    ab_net_free(net);
}

/* Names and layers do not depend on the level, and no value is shown twice under a role. */
static void tensors_have_the_same_names_at_every_level(void **state) {
    (void)state;
    ab_net *net = pt_net(pt_ops);
    char first[PT_MOST][AB_PLAN_NAME];
    int count = 0;
    for (size_t l = 0; l < AB_COUNT_OF(pt_levels); l++) {
        ab_cell_config config = pt_config(net, pt_levels[l], &ab_format_fp16, "adam", NULL);
        ab_cell *cell = pt_cell(&config);
        const ab_watch watch = {.roles = (1u << AB_ROLE_COUNT) - 1};
        ab_cell_watch(cell, &watch);
        if (l == 0) count = ab_cell_observed_count(cell);
        assert_int_equal(ab_cell_observed_count(cell), count);
        for (int i = 0; i < count; i++) {
            const ab_observed *about = ab_cell_observed_at(cell, i);
            bool found = l == 0;
            if (l == 0) snprintf(first[i], sizeof first[i], "%d%.80s", (int)about->role, about->name);
            for (int j = 0; j < count && !found; j++) {
                char name[AB_PLAN_NAME];
                snprintf(name, sizeof name, "%d%.80s", (int)about->role, about->name);
                found = strcmp(first[j], name) == 0;
            }
            assert_true(found);
            for (int j = 0; j < i; j++)
                assert_true(ab_cell_observed_at(cell, j)->role != about->role ||
                            strcmp(ab_cell_observed_at(cell, j)->name, about->name) != 0);
        }
        ab_cell_destroy(cell);
    }
    ab_net_free(net);
}

/* ---- known answers --------------------------------------------------------------------------- */

static const ab_probe_tensor one[] = {{"a.out", "a", AB_ROLE_ACTIVATION, true}};

static cJSON *report_of(const ab_format *half, const float (*step)[2], int steps, int64_t total) {
    const ab_probe_kind *kind = pt_probe("activations");
    const ab_probe_setup setup = {.tensor = one, .tensors = 1, .threads = 1, .half = half, .steps = total};
    void *probe = NULL;
    assert_int_equal(kind->create(&setup, &probe), AB_OK);
    for (int k = 0; k < steps; k++) {
        kind->see(probe, 0, 0, step[k], 2);
        kind->step_end(probe, 10 * k);
    }
    cJSON *report = pt_report(kind->report, probe);
    kind->destroy(probe);
    return report;
}

static void the_margin_is_in_octaves_below_the_first_value_that_overflows(void **state) {
    (void)state;
    /* 65520 / 16 = 4095; 65520 / 65520 = 1; twice that */
    static const float step[][2] = {{4095.0f, 1.0f}, {0.0f, 0.0f}, {65520.0f, 1.0f}, {131040.0f, 1.0f}};
    static const double margin[] = {4, 0, 0, -1};
    cJSON *report = report_of(&ab_format_fp16, step, 4, 0);
    const cJSON *tensor = pt_find(pt_get(report, "activations"), "name", "a.out");
    assert_true(pt_number(tensor, "margin_octaves") == -1);
    const cJSON *list = pt_get(pt_get(tensor, "steps"), "margin_octaves");
    assert_int_equal(cJSON_GetArraySize(list), 4);
    for (int i = 0; i < 4; i++) {
        const cJSON *item = cJSON_GetArrayItem(list, i);
        if (i == 1)
            assert_true(cJSON_IsNull(item));
        else
            assert_true(item->valuedouble == margin[i]);
    }
    cJSON_Delete(report);
}

static void the_interval_of_the_flushed_share_says_what_sampling_leaves_open(void **state) {
    (void)state;
    static const float step[][2] = {{1e-9f, 1.0f}, {1e-9f, 1.0f}, {1e-9f, 1.0f}};
    static const struct {
        int64_t total;
        bool exact;
    } cases[] = {{3, true}, {30, false}};
    for (size_t c = 0; c < AB_COUNT_OF(cases); c++) {
        cJSON *report = report_of(&ab_format_fp16, step, 3, cases[c].total);
        const cJSON *tensor = pt_find(pt_get(report, "activations"), "name", "a.out");
        const cJSON *interval = pt_get(tensor, "flushed_interval");
        double low = cJSON_GetArrayItem(interval, 0)->valuedouble;
        double high = cJSON_GetArrayItem(interval, 1)->valuedouble;
        assert_int_equal(low == 0.5 && high == 0.5, cases[c].exact);
        assert_true(low <= 0.5 && high >= 0.5 && low >= 0 && high <= 1);
        cJSON_Delete(report);
    }
}

/* Small calls are gathered before they are counted; what waits at the end of a step belongs to it. */
static void small_and_large_calls_count_alike(void **state) {
    (void)state;
    enum { N = 100000 };
    static float values[N];
    for (int i = 0; i < N; i++)
        values[i] = ldexpf(ab_rng_normal(4, AB_RNG_SAMPLE, 0, (uint64_t)i), i % 60 - 40);
    const ab_probe_tensor two[] = {{"a.out", "a", AB_ROLE_ACTIVATION, true},
                                   {"b.out", "b", AB_ROLE_ACTIVATION, true}};
    const ab_probe_kind *kind = pt_probe("activations");
    const ab_probe_setup setup = {.tensor = two, .tensors = 2, .threads = 1, .half = &ab_format_fp16};
    cJSON *report[2];
    for (int small = 0; small < 2; small++) {
        void *probe = NULL;
        assert_int_equal(kind->create(&setup, &probe), AB_OK);
        for (int64_t step = 0; step < 2; step++) {
            for (int64_t at = 0, n; at < N; at += n) {
                n = small ? 1 + at % 700 : N;
                n = N - at < n ? N - at : n;
                kind->see(probe, (int)(at / 7000 % 2) * small, 0, values + at, n);
            }
            kind->step_end(probe, step);
        }
        report[small] = pt_report(kind->report, probe);
        kind->destroy(probe);
    }
    static const char *const keys[] = {"count", "zero", "flushed", "subnormal", "normal", "overflowed"};
    for (size_t k = 0; k < AB_COUNT_OF(keys); k++) {
        int64_t sum[2] = {0, 0};
        for (int r = 0; r < 2; r++)
            for (int t = 0; t < 2; t++)
                sum[r] += pt_integer(cJSON_GetArrayItem(pt_get(report[r], "activations"), t), keys[k]);
        assert_int_equal(sum[0], sum[1]);
    }
    assert_true(pt_integer(cJSON_GetArrayItem(pt_get(report[1], "activations"), 1), "count") > N / 2);
    cJSON_Delete(report[0]);
    cJSON_Delete(report[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_cell_shows_is_counted_as_a_cast_would_treat_it),
        cmocka_unit_test(tensors_have_the_same_names_at_every_level),
        cmocka_unit_test(the_margin_is_in_octaves_below_the_first_value_that_overflows),
        cmocka_unit_test(the_interval_of_the_flushed_share_says_what_sampling_leaves_open),
        cmocka_unit_test(small_and_large_calls_count_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
