/* Shadow gradients: sums of known differences; a fp32 that equals an fp32 cell exactly and changes no bit of
 * any cell; and de-censoring that finds exactly the zeros of a known mask. */
#define _POSIX_C_SOURCE 200809L
#include "tests/unit/every_op_testing.h"

#include "bench/reference/fp32_reference.h"
#include "kernels/format/convert.h"
#include "reports/stats/stats.h"

#include <math.h>

/* ---- sums ------------------------------------------------------------------------------------ */

static void planted_differences_are_summed(void **state) {
    (void)state;
    enum { N = 5000 };
    static float reference[N], found[N];
    ab_gradient_error sums = {.count = 0};
    for (int i = 0; i < N; i++) {
        reference[i] = (i % 2 ? 1.0f : -1.0f) * (float)(1 + i % 7);
        found[i] = reference[i] * 8 * (1 - 0x1p-6f); /* scale 8, a sixty-fourth too small */
    }
    ab_gradient_error_add(&sums, reference, found, &ab_format_fp16, 8, N);
    assert_true(fabs(ab_gradient_error_relative(&sums) - 0x1p-6) < 1e-9);
    assert_true(fabs(ab_gradient_error_cosine(&sums) - 1) < 1e-12);
    assert_true(sums.rounding == 0); /* small integers are fp16 numbers */
    assert_int_equal(sums.flushed + sums.vanished + sums.natural_zeros + sums.overflowed, 0);
}

/* fp16 at scale 2^-4: its smallest number is 2^-24, so references below 2^-20 are too small for it. */
static void zeros_are_told_apart(void **state) {
    (void)state;
    const float reference[] = {0, 0x1p-21f, -0x1p-30f, 1, 2, INFINITY, 3, 0};
    const float found[] = {0, 0, 0, 0, INFINITY, 1, 3 * 0x1p-4f, 0x1p-10f};
    ab_gradient_error sums = {.count = 0};
    ab_gradient_error_add(&sums, reference, found, &ab_format_fp16, 0x1p-4, 8);
    assert_int_equal(sums.count, 8);
    assert_int_equal(sums.natural_zeros, 2);
    assert_int_equal(sums.flushed, 2);
    assert_int_equal(sums.vanished, 1);
    assert_int_equal(sums.overflowed, 1);
    assert_int_equal(sums.reference_overflowed, 1);
    assert_true(sums.flushed_energy == 0x1p-42 + 0x1p-60);
    assert_true(sums.energy == 0x1p-42 + 0x1p-60 + 1 + 9);
}

/* What one cast loses, against the scalar definition of the format. */
static void rounding_energy_is_that_of_a_cast(void **state) {
    (void)state;
    enum { N = 3000 };
    static float reference[N], found[N];
    static const ab_rounding nearest = {.mode = AB_ROUND_NEAREST_EVEN};
    double expected = 0;
    for (int i = 0; i < N; i++) {
        reference[i] = ldexpf((float)ab_rng_below(1, AB_RNG_SAMPLE, 0, (uint64_t)i, 1 << 20) - 0x1p19f, -40);
        double scaled = (double)reference[i] * 1024;
        found[i] = (float)ab_format_round(&ab_format_fp16, &nearest, scaled);
        double d = (double)found[i] / 1024 - (double)reference[i];
        expected += d * d;
    }
    ab_gradient_error sums = {.count = 0};
    ab_gradient_error_add(&sums, reference, found, &ab_format_fp16, 1024, N);
    assert_true(expected > 0 && fabs(sums.rounding - expected) <= 1e-12 * expected);
    assert_true(fabs(sums.error - expected) <= 1e-12 * expected); /* nothing but the cast happened */
}

/* ---- references ------------------------------------------------------------------------------ */

static void write_reference(void *state, ab_probe_sink *sink) { ab_fp32_reference_report(state, sink); }

enum { STEPS = 6 };

/* Losses of a run with a fp32 that looks at every second step; without one if `kind` is negative. */
static cJSON *train(const ab_cell_config *config, int kind, int octaves, float loss[STEPS], float *weights) {
    ab_cell *cell = pt_cell(config);
    ab_fp32_reference *fp32 = NULL;
    ab_shape shape;
    cJSON *report = NULL;
    if (kind >= 0 && ab_fp32_reference_create(config, (ab_reference_kind)kind, octaves, &fp32) != AB_OK)
        fail_msg("%s", ab_error_message());
    for (int i = 0; i < STEPS; i++) {
        ab_step_result result;
        const bool looks = fp32 && i % 2 == 0;
        if (looks && ab_fp32_reference_before(fp32, cell) != AB_OK) fail_msg("%s", ab_error_message());
        assert_int_equal(ab_cell_step(cell, NULL, &result), AB_OK);
        if (looks) assert_int_equal(ab_fp32_reference_after(fp32, cell, &result), AB_OK);
        loss[i] = result.loss;
    }
    if (weights) assert_int_equal(ab_cell_read(cell, "bn.running_mean", &shape, weights), AB_OK);
    if (fp32) report = pt_report(write_reference, fp32);
    ab_fp32_reference_destroy(fp32);
    ab_cell_destroy(cell);
    return report;
}

static void a_twin_changes_no_bit(void **state) {
    (void)state;
    for (size_t n = 0; n < EO_NETS; n++)
        for (size_t l = 0; l < AB_COUNT_OF(pt_levels); l++) {
            if (!eo_runs_at(n, pt_levels[l])) continue;
            ab_net *net = eo_net(n);
            ab_cell_config config = pt_config(net, pt_levels[l], &ab_format_fp16, "momentum", NULL);
            config.data = eo_data(net);
            float loss[3][STEPS], mean[3][4] = {{0}};
            cJSON_Delete(train(&config, -1, 0, loss[0], n == 0 ? mean[0] : NULL));
            for (int kind = 0; kind < 2; kind++) {
                cJSON *report = train(&config, kind, 4, loss[1 + kind], n == 0 ? mean[1 + kind] : NULL);
                assert_int_equal(pt_integer(report, "looks"), STEPS / 2);
                cJSON_Delete(report);
                assert_memory_equal(loss[0], loss[1 + kind], sizeof loss[0]);
                assert_memory_equal(mean[0], mean[1 + kind], sizeof mean[0]);
            }
            ab_net_free(net);
        }
}

/* The same weights, batch and dropout masks: an fp32 cell's fp32 finds no difference at all. */
static void an_fp32_cell_equals_its_twin(void **state) {
    (void)state;
    for (size_t n = 0; n < EO_NETS; n++)
        for (int64_t micro = 1; micro <= 2; micro++) {
            ab_net *net = eo_net(n);
            ab_cell_config config = pt_config(net, "O0", &ab_format_fp16, "momentum", NULL);
            float loss[STEPS];
            int tensors = 0;
            const cJSON *tensor;
            config.data = eo_data(net);
            config.recipe.micro_batches = micro;
            cJSON *report = train(&config, AB_REFERENCE_FP32, 0, loss, NULL);
            cJSON_ArrayForEach(tensor, pt_get(report, "tensors")) {
                const cJSON *error = pt_get(tensor, "relative_error");
                if (cJSON_IsNumber(error) && error->valuedouble != 0)
                    fail_msg("%s %s: %g", pt_text(tensor, "op"), pt_text(tensor, "tensor"),
                             error->valuedouble);
                assert_int_equal(pt_integer(tensor, "flushed"), 0);
                tensors++;
            }
            assert_true(tensors >= 5);
            if (micro == 1) assert_true(pt_number(report, "loss_error") == 0);
            cJSON_Delete(report);
            ab_net_free(net);
        }
}

static void half_gradients_are_off_by_rounding(void **state) {
    (void)state;
    ab_net *net = pt_net(pt_ops);
    ab_cell_config config = pt_config(net, "O2", &ab_format_fp16, "momentum", "loss_scale=1024");
    float loss[STEPS];
    cJSON *report = train(&config, AB_REFERENCE_FP32, 0, loss, NULL);
    const cJSON *tensor;
    cJSON_ArrayForEach(tensor, pt_get(report, "tensors")) {
        const double error = pt_number(tensor, "relative_error");
        if (!strcmp(pt_text(tensor, "op"), "fc") && !strcmp(pt_text(tensor, "tensor"), "bias.grad"))
            assert_true(error > 1e-5 && error < 2e-3);
        if (!strcmp(pt_text(tensor, "op"), "conv1") && !strcmp(pt_text(tensor, "tensor"), "bias.grad"))
            continue; /* the batch norm behind it leaves nothing but rounding errors */
        if (!(error < 0.2)) fail_msg("%s %s: %g", pt_text(tensor, "op"), pt_text(tensor, "tensor"), error);
        assert_true(pt_number(tensor, "rounding_energy_share") < 1e-6);
    }
    cJSON_Delete(report);
    ab_net_free(net);
}

/* ---- de-censoring ---------------------------------------------------------------------------- */

/* Zeros of what a relu lets through, in the steps that are looked at: its gradient is 0 there and, but for
 * the flush, nowhere else. */
typedef struct mask {
    ab_observer observer; /* first */
    int64_t zeros, elements;
} mask;

static void ignore(ab_observer *self, int id, int thread, const float *values, int64_t n) {
    (void)self, (void)id, (void)thread, (void)values, (void)n;
}

static void count_zeros(void *context, const ab_op_run *run) {
    mask *m = context;
    if (run->backward || strcmp(run->name, "relu") != 0) return;
    for (int64_t i = 0; i < ab_tensor_count(run->io->out); i++) {
        float value;
        ab_widen(&value, (const char *)run->io->out->data + ab_format_bytes(run->io->out->format, i),
                 run->io->out->format, 1);
        m->zeros += value == 0;
        m->elements++;
    }
}

static void decensoring_finds_the_zeros_of_a_known_mask(void **state) {
    (void)state;
    ab_net *net = pt_net("{\"name\": \"flat\", \"op\": \"flatten\"}, "
                         "{\"name\": \"fc1\", \"op\": \"linear\", \"out_features\": 40}, "
                         "{\"name\": \"relu\", \"op\": \"relu\"}, "
                         "{\"name\": \"fc2\", \"op\": \"linear\", \"out_features\": 3}, "
                         "{\"name\": \"loss\", \"op\": \"cross_entropy\"}");
    /* so low that most gradients are flushed, and one that its pass at 2^20 times as much loses nothing of */
    ab_cell_config config = pt_config(net, "O3", &ab_format_fp16, "sgd", "loss_scale=0.0000019073486328125");
    ab_cell *cell = pt_cell(&config);
    ab_fp32_reference *fp32 = NULL;
    mask m = {.observer = {.see = ignore}};
    const ab_watch watch = {.context = &m, .ran = count_zeros};
    assert_int_equal(ab_fp32_reference_create(&config, AB_REFERENCE_DECENSOR, 20, &fp32), AB_OK);
    ab_cell_watch(cell, &watch);
    for (int i = 0; i < 2; i++) {
        ab_step_result result;
        assert_int_equal(ab_fp32_reference_before(fp32, cell), AB_OK);
        assert_int_equal(ab_cell_step(cell, &m.observer, &result), AB_OK);
        assert_int_equal(ab_fp32_reference_after(fp32, cell, &result), AB_OK);
    }
    cJSON *report = pt_report(write_reference, fp32);
    const cJSON *tensor = pt_find(pt_get(report, "tensors"), "op", "relu");
    assert_string_equal(pt_text(tensor, "tensor"), "in0.grad");
    assert_int_equal(pt_integer(tensor, "count"), m.elements);
    assert_int_equal(pt_integer(tensor, "natural_zeros"), m.zeros);
    assert_true(m.zeros > m.elements / 4 && m.zeros < m.elements * 3 / 4);
    assert_true(pt_integer(tensor, "flushed") > (m.elements - m.zeros) / 4);
    cJSON_Delete(report);
    ab_fp32_reference_destroy(fp32);
    ab_cell_destroy(cell);
    ab_net_free(net);
}

/* ---- growth ---------------------------------------------------------------------------------- */

/* One look at which a gradient has grown by `growth`. */
static void look(ab_gradient_error *sums, double growth) {
    const float reference = 1, found = (float)(1 + growth);
    ab_gradient_error_add(sums, &reference, &found, &ab_format_fp32, 1, 1);
    ab_gradient_error_close(sums);
}

static const double eps16 = 0x1p-10, allowed16 = 0x1p-12;

static void growth_is_told_by_its_looks(void **state) {
    (void)state;
    ab_gradient_error sums = {.count = 0};
    assert_true(isnan(ab_gradient_error_bias(&sums, eps16).z));
    look(&sums, -0x1p-8);
    assert_true(isnan(ab_gradient_error_bias(&sums, eps16).z)); /* no spread yet */
    look(&sums, -0x1p-7);
    const ab_gradient_bias bias = ab_gradient_error_bias(&sums, eps16);
    const double squares = 0x1p-16 + 0x1p-14; /* a quarter of d^2 is growth, too, and allowed */
    assert_true(fabs(bias.growth - (-0x1.8p-8 + squares / 8)) < 1e-9);
    assert_true(fabs(bias.allowed - (allowed16 + squares / 8)) < 1e-9);
    ab_gradient_error none = {.count = 0};
    for (int i = 0; i < 9; i++) look(&none, i % 2 ? 0x1p-14 : 0);
    assert_true(ab_gradient_error_bias(&none, eps16).z == 0); /* less than what is allowed */
}

/* P(N > z), and where it is p. */
static double upper(double z) { return 0.5 * erfc(z / sqrt(2)); }

/* The deviate's tail is that of Student's t, which reports/stats.c computes in another way. */
static void the_deviate_has_the_tail_of_students_t(void **state) {
    (void)state;
    for (int looks = 3; looks <= 20; looks++)
        for (double size = 1; size < 30; size *= 1.3) {
            ab_gradient_error sums = {.count = 0};
            double mean = 0, squares = 0;
            for (int i = 0; i < looks; i++) {
                const double growth = 64 * allowed16 + size * allowed16 * (i % 3 - 1) * 8;
                mean += growth / looks;
                squares += growth * growth;
                look(&sums, growth);
            }
            const ab_gradient_bias bias = ab_gradient_error_bias(&sums, eps16);
            const double sd = sqrt((squares - looks * mean * mean) / (looks - 1));
            const double t = (bias.growth - bias.allowed) / (sd / sqrt(looks)),
                         p = ab_student_tail(looks - 1, t);
            if (p < 1e-7) continue;
            const double ratio = upper(bias.z) / p;
            if (!(ratio > 0.6 && ratio < 1.6))
                fail_msg("%d looks, t %g: z %g, p off by %g", looks, t, bias.z, ratio);
        }
}

/* Looks whose growth is normal around what is just allowed: the deviate exceeds its points as often as a
 * normal one. */
static void the_deviate_is_calibrated(void **state) {
    enum { TENSORS = 4000 };
    static const int looks[] = {4, 8, 12};
    (void)state;
    for (size_t l = 0; l < AB_COUNT_OF(looks); l++) {
        int beyond5 = 0, beyond1 = 0;
        for (int i = 0; i < TENSORS; i++) {
            ab_gradient_error sums = {.count = 0};
            for (int k = 0; k < looks[l]; k++)
                look(&sums, allowed16 + 0x1p-13 * (double)ab_rng_normal(3, AB_RNG_SAMPLE, (uint32_t)l,
                                                                        (uint64_t)(i * 16 + k)));
            const double z = ab_gradient_error_bias(&sums, eps16).z;
            beyond5 += z > 1.6449;
            beyond1 += z > 2.3263;
        }
        const double share5 = (double)beyond5 / TENSORS, share1 = (double)beyond1 / TENSORS;
        /* four standard deviations of a share of 4000 */
        if (fabs(share5 - 0.05) > 0.014 || fabs(share1 - 0.01) > 0.0063)
            fail_msg("%d looks: %.4f beyond 5 %%, %.4f beyond 1 %%", looks[l], share5, share1);
    }
}

/* Takes one unit in the last place of every other half gradient: on average what truncation takes. */
static void shorten(void *context, const ab_op_run *run) {
    (void)context;
    for (int slot = 0; run->backward && slot < AB_MAX_INPUTS + AB_MAX_PARAMS; slot++) {
        const ab_tensor *tensor =
            slot < AB_MAX_INPUTS ? run->io->din[slot] : run->io->dparam[slot - AB_MAX_INPUTS];
        if (!tensor || !tensor->format || tensor->format == &ab_format_fp32) continue;
        uint16_t *bits = tensor->data;
        for (int64_t i = 0; i < ab_tensor_count(tensor); i++)
            if ((i * 2654435761 >> 7) % 2 && bits[i] & 0x7fff) bits[i]--;
    }
}

typedef struct tally {
    int tensors, beyond3, shrinking;
} tally;

/* Deviates of a cell of `seed` whose gradients are rounded honestly or, `planted`, shortened. */
static void tally_of(const char *level, const ab_format *half, uint64_t seed, bool planted, tally *t) {
    ab_net *net = pt_net(pt_ops);
    ab_cell_config config = pt_config(net, level, half, "momentum", "loss_scale=1024");
    config.seed = seed;
    ab_cell *cell = pt_cell(&config);
    ab_fp32_reference *fp32 = NULL;
    mask m = {.observer = {.see = ignore}};
    const ab_watch watch = {.ran = shorten};
    if (planted) ab_cell_watch(cell, &watch);
    assert_int_equal(ab_fp32_reference_create(&config, AB_REFERENCE_FP32, 0, &fp32), AB_OK);
    for (int i = 0; i < 24; i++) {
        ab_step_result result;
        if (i % 2 == 0) assert_int_equal(ab_fp32_reference_before(fp32, cell), AB_OK);
        assert_int_equal(ab_cell_step(cell, planted ? &m.observer : NULL, &result), AB_OK);
        if (i % 2 == 0) assert_int_equal(ab_fp32_reference_after(fp32, cell, &result), AB_OK);
    }
    cJSON *report = pt_report(write_reference, fp32);
    const cJSON *tensor;
    cJSON_ArrayForEach(tensor, pt_get(report, "tensors")) {
        const double z = pt_number(tensor, "bias_z");
        t->tensors++;
        t->beyond3 += fabs(z) > 3;
        t->shrinking += z < -3;
    }
    cJSON_Delete(report);
    ab_fp32_reference_destroy(fp32);
    ab_cell_destroy(cell);
    ab_net_free(net);
}

static void honest_rounding_has_no_bias_and_shortening_has(void **state) {
    (void)state;
    tally honest = {0}, planted = {0};
    for (uint64_t seed = 1; seed <= 4; seed++)
        for (int h = 0; h < 2; h++) {
            tally_of("O2", h ? &ab_format_bf16 : &ab_format_fp16, seed, false, &honest);
            tally_of("O2", h ? &ab_format_bf16 : &ab_format_fp16, seed, true, &planted);
        }
    assert_true(honest.beyond3 * 100 <= honest.tensors);
    assert_true(planted.shrinking * 3 > planted.tensors);
}

static void losses_with_their_own_scales_are_refused(void **state) {
    (void)state;
    ab_net *net = pt_net(pt_ops);
    ab_cell_config config = pt_config(net, "O2", &ab_format_fp16, "sgd", NULL);
    ab_fp32_reference *fp32 = NULL;
    config.policy.num_losses = 2;
    assert_int_equal(ab_fp32_reference_create(&config, AB_REFERENCE_FP32, 0, &fp32), AB_CONFIG);
    assert_non_null(strstr(ab_error_message(), "--shadow-every"));
    ab_net_free(net);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(planted_differences_are_summed),
        cmocka_unit_test(zeros_are_told_apart),
        cmocka_unit_test(rounding_energy_is_that_of_a_cast),
        cmocka_unit_test(a_twin_changes_no_bit),
        cmocka_unit_test(an_fp32_cell_equals_its_twin),
        cmocka_unit_test(half_gradients_are_off_by_rounding),
        cmocka_unit_test(decensoring_finds_the_zeros_of_a_known_mask),
        cmocka_unit_test(growth_is_told_by_its_looks),
        cmocka_unit_test(the_deviate_has_the_tail_of_students_t),
        cmocka_unit_test(the_deviate_is_calibrated),
        cmocka_unit_test(honest_rounding_has_no_bias_and_shortening_has),
        cmocka_unit_test(losses_with_their_own_scales_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
