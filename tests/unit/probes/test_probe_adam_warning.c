/* Adam's early warnings on second moments whose state is known. */
#define _POSIX_C_SOURCE 200809L
#include "tests/unit/probe_testing.h"

#include "kernels/format/convert.h"

#include <math.h>

enum { N = 1500 };

static const ab_probe_kind *warning(void) { return pt_probe("adam_warning"); }

/* A parameter trained by Adam on gradients that the test chooses. */
typedef struct subject {
    const ab_format *format;
    void *weight, *grad, *m, *v, *probe;
    const ab_optimizer *adam;
    ab_optimizer_config config;
    ab_probe_param about;
    int64_t taken;
} subject;

static void hear(void *context, const ab_update_block *block) { warning()->update(context, block); }

static void ignore(ab_observer *self, int id, int thread, const float *values, int64_t n) {
    (void)self, (void)id, (void)thread, (void)values, (void)n;
}

static subject *subject_new(const ab_format *format, double eps) {
    subject *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->format = format;
    s->weight = calloc(N, 4);
    s->grad = calloc(N, 4);
    s->m = calloc(N, 4);
    s->v = calloc(N, 4);
    assert_true(s->weight && s->grad && s->m && s->v);
    assert_int_equal(ab_optimizer_find("adam", &s->adam), AB_OK);
    s->config = s->adam->defaults;
    s->config.eps = eps;
    s->about = (ab_probe_param){"w", "layer", N, 0, format, format};
    const ab_probe_setup setup = {.threads = 1,
                                  .half = &ab_format_bf16,
                                  .param = &s->about,
                                  .params = 1,
                                  .optimizer = {.lr = s->config.lr,
                                                .beta1 = s->config.beta1,
                                                .beta2 = s->config.beta2,
                                                .eps = s->config.eps,
                                                .second_moment = s->adam->second_moment}};
    assert_int_equal(warning()->create(&setup, &s->probe), AB_OK);
    return s;
}

static void step(subject *s, const float *grad, int64_t number) {
    const ab_shape shape = {1, {N}};
    ab_tensor weight = {s->weight, shape, s->format, &ab_device_cpu, -1},
              g = {s->grad, shape, &ab_format_fp32, &ab_device_cpu, -1};
    ab_tensor m = weight, v = weight, *state[] = {&m, &v, NULL};
    m.data = s->m;
    v.data = s->v;
    memcpy(s->grad, grad, N * sizeof *grad);
    ab_observer nobody = {.see = ignore};
    const ab_watch watch = {.context = s->probe, .update = hear};
    const ab_optimizer_observers audience = {&nobody, -1, {-1, -1, -1}, &watch, 0};
    ab_optimizer_step_shown(s->adam, &s->config, ++s->taken, &weight, &g, state, &audience);
    warning()->step_end(s->probe, number);
}

static void subject_free(subject *s) {
    warning()->destroy(s->probe);
    free(s->weight);
    free(s->grad);
    free(s->m);
    free(s->v);
    free(s);
}

static void fill(float *grad, float scale, uint32_t seed) {
    for (uint64_t i = 0; i < N; i++) grad[i] = scale * ab_rng_normal(seed, AB_RNG_SAMPLE, 0, i);
}

static const cJSON *only(const cJSON *report) {
    return cJSON_GetArrayItem(pt_get(pt_get(report, "adam_warning"), "params"), 0);
}

static void about(double found, double expected, double slack) {
    if (!(fabs(found - expected) <= slack)) fail_msg("found %.6f, expected %.6f", found, expected);
}

/* In the first step v^ is g^2 itself. */
static void the_first_rms_is_one(void **state) {
    (void)state;
    float grad[N];
    fill(grad, 0.1f, 1);
    subject *s = subject_new(&ab_format_fp32, 1e-8);
    step(s, grad, 0);
    cJSON *report = pt_report(warning()->report, s->probe);
    about(pt_number(only(report), "rms"), 1, 1e-4);
    about(pt_number(only(report), "stale_share"), 0, 0);
    about(pt_number(only(report), "zero_share"), 0, 0);
    about(pt_number(only(report), "below_eps_share"), 0, 0);
    assert_true(cJSON_IsTrue(pt_get(pt_get(report, "adam_warning"), "applies")));
    cJSON_Delete(report);
    subject_free(s);
}

/* Gradients of constant size for 200 steps, then ten times as large: v follows by 1 part in 1000 a step, so
 * that the RMS leaps to sqrt(100 / (1 + 99 * share of the new gradient in v^)) in that very step. */
static void a_leap_of_the_gradients_is_seen_in_the_same_step(void **state) {
    (void)state;
    enum { LEAP = 200 };
    float grad[N];
    subject *s = subject_new(&ab_format_fp32, 1e-8);
    for (int i = 0; i < N; i++) grad[i] = i % 2 ? 0.01f : -0.01f;
    for (int k = 0; k < LEAP; k++) step(s, grad, k);
    for (int i = 0; i < N; i++) grad[i] *= 10;
    step(s, grad, LEAP);
    cJSON *report = pt_report(warning()->report, s->probe);
    double fresh = 0.001 / (1 - pow(0.999, LEAP + 1)); /* weight of the newest gradient in v^ */
    about(pt_number(only(report), "rms"), sqrt(100 / (1 + 99 * fresh)), 1e-3);
    assert_true(pt_number(only(report), "rms_max") == pt_number(only(report), "rms"));
    assert_int_equal(pt_integer(only(report), "rms_max_step"), LEAP);
    assert_int_equal(pt_integer(only(report), "steps_over_limit"), 1);
    const cJSON *column = pt_get(pt_get(only(report), "steps"), "rms_max");
    int last = cJSON_GetArraySize(column) - 1;
    about(cJSON_GetArrayItem(column, last - 1)->valuedouble, 1, 1e-3);
    assert_true(cJSON_GetArrayItem(column, last)->valuedouble > 2.3);
    cJSON_Delete(report);
    subject_free(s);
}

/* beta2 = 0.999 moves v by a thousandth at most when gradients vanish; bf16 has spacings of 1/256: v never
 * forgets. fp32 does. */
static void a_second_moment_that_cannot_move_is_stale(void **state) {
    (void)state;
    static const struct {
        const ab_format *format;
        double stale;
    } cases[] = {{&ab_format_bf16, 1}, {&ab_format_fp32, 0}};
    for (size_t c = 0; c < AB_COUNT_OF(cases); c++) {
        float grad[N], zero[N] = {0};
        fill(grad, 1, 2);
        subject *s = subject_new(cases[c].format, 1e-8);
        for (int i = 0; i < N; i++) grad[i] = 1.5f + 0.2f * (float)(i % 7);
        step(s, grad, 0); /* v moves: half of what counts */
        for (int k = 1; k <= 9; k++) step(s, zero, k);
        cJSON *report = pt_report(warning()->report, s->probe);
        about(pt_number(only(report), "stale_share"), 0.9 * cases[c].stale, 1e-9);
        cJSON_Delete(report);
        subject_free(s);
    }
}

static void second_moments_below_eps_squared_are_counted(void **state) {
    (void)state;
    float grad[N];
    for (int i = 0; i < N; i++) grad[i] = i % 4 == 0 ? 1e-6f : i % 4 == 1 ? 0 : i % 4 == 2 ? 1e-25f : 1e-3f;
    subject *s = subject_new(&ab_format_fp32, 1e-4);
    step(s, grad, 0);
    cJSON *report = pt_report(warning()->report, s->probe);
    about(pt_number(only(report), "below_eps_share"), 0.25, 1e-9); /* 1e-6; 0 is nothing */
    about(pt_number(only(report), "zero_share"), 0.25, 1e-9);      /* (1e-25)^2 is 0 in fp32 */
    cJSON_Delete(report);
    subject_free(s);
}

/* ---- constants ------------------------------------------------------------------------------- */

static bool lost(const cJSON *report, const char *name, double stored) {
    const cJSON *constant = pt_find(pt_get(pt_get(report, "adam_warning"), "constants"), "name", name);
    about(pt_number(constant, "stored"), stored, 1e-12);
    return cJSON_IsTrue(pt_get(constant, "lost"));
}

static cJSON *constants_in(const ab_format *half, double beta2, double eps, int second_moment) {
    const ab_probe_setup setup = {
        .threads = 1,
        .half = half,
        .optimizer = {.beta1 = 0.9, .beta2 = beta2, .eps = eps, .second_moment = second_moment}};
    void *probe = NULL;
    assert_int_equal(warning()->create(&setup, &probe), AB_OK);
    cJSON *report = pt_report(warning()->report, probe);
    warning()->destroy(probe);
    return report;
}

static void constants_that_a_half_format_loses_are_named(void **state) {
    (void)state;
    cJSON *report = constants_in(&ab_format_fp16, 0.999, 1e-8, 1);
    assert_true(lost(report, "eps", 0));
    assert_false(lost(report, "beta2", 0.9990234375));
    assert_false(lost(report, "beta1", 0.89990234375));
    cJSON_Delete(report);
    report = constants_in(&ab_format_bf16, 0.999, 1e-8, 1);
    assert_true(lost(report, "beta2", 1));
    assert_false(lost(report, "beta1", 0.8984375));
    assert_int_equal(lost(report, "eps", 1.0011717677116394e-08), false);
    cJSON_Delete(report);
    report = constants_in(&ab_format_fp16, 0.9999, 1e-3, 1);
    assert_true(lost(report, "beta2", 1));
    cJSON_Delete(report);
}

static void other_optimizers_have_nothing_to_warn_of(void **state) {
    (void)state;
    cJSON *report = constants_in(&ab_format_fp16, 0, 0, -1);
    const cJSON *adam = pt_get(report, "adam_warning");
    assert_false(cJSON_IsTrue(pt_get(adam, "applies")));
    assert_int_equal(cJSON_GetArraySize(pt_get(adam, "constants")), 0);
    assert_int_equal(cJSON_GetArraySize(pt_get(adam, "params")), 0);
    cJSON_Delete(report);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_rms_is_one),
        cmocka_unit_test(a_leap_of_the_gradients_is_seen_in_the_same_step),
        cmocka_unit_test(a_second_moment_that_cannot_move_is_stale),
        cmocka_unit_test(second_moments_below_eps_squared_are_counted),
        cmocka_unit_test(constants_that_a_half_format_loses_are_named),
        cmocka_unit_test(other_optimizers_have_nothing_to_warn_of),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
