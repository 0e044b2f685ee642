/* Optimizers against double-precision oracles written from the formulas of torch.optim.SGD and
 * torch.optim.Adam, and the rule that stored state and weights are rounded once. */
#include "bench/train/optim/optimizer.h"

#include "kernels/core/rng.h"
#include "kernels/format/convert.h"

#include <math.h>
#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N = 257, STEPS = 30 };

static const ab_optimizer *optimizer_called(const char *name) {
    const ab_optimizer *optimizer = NULL;
    assert_int_equal(ab_optimizer_find(name, &optimizer), AB_OK);
    return optimizer;
}

static float some(uint32_t step, int64_t i, float scale) {
    return scale * ab_rng_normal(42, AB_RNG_SAMPLE, step, (uint64_t)i);
}

/* ---- storage --------------------------------------------------------------------------------- */

/* A tensor and its memory. */
typedef struct owned {
    ab_tensor tensor;
    void *memory;
} owned;

static owned make(const ab_format *format, int64_t n) {
    owned o = {.memory = calloc((size_t)n, 8)};
    assert_non_null(o.memory);
    o.tensor = (ab_tensor){
        .data = o.memory, .shape = {1, {n}}, .format = format, .device = &ab_device_cpu, .id = -1};
    return o;
}

/* What an optimizer works on, all in one format but the gradient. */
typedef struct parameter {
    owned weight, grad, slot[AB_OPTIMIZER_STATES];
    ab_tensor *state[AB_OPTIMIZER_STATES];
} parameter;

static parameter *parameter_new(const ab_format *format, const ab_format *grad_format, int64_t n) {
    parameter *p = calloc(1, sizeof *p);
    assert_non_null(p);
    p->weight = make(format, n);
    p->grad = make(grad_format, n);
    for (int i = 0; i < AB_OPTIMIZER_STATES; i++) {
        p->slot[i] = make(format, n);
        p->state[i] = &p->slot[i].tensor;
    }
    return p;
}

static void parameter_free(parameter *p) {
    free(p->weight.memory);
    free(p->grad.memory);
    for (int i = 0; i < AB_OPTIMIZER_STATES; i++) free(p->slot[i].memory);
    free(p);
}

static void put_values(owned *o, const float *values, int64_t n) {
    ab_narrow(o->memory, o->tensor.format, values, n);
}

static float value_at(const owned *o, int64_t i) {
    float value;
    ab_widen(&value, (const char *)o->memory + ab_format_bytes(o->tensor.format, i), o->tensor.format, 1);
    return value;
}

static void step(const char *name, const ab_optimizer_config *config, int64_t taken, parameter *p) {
    ab_optimizer_step(optimizer_called(name), config, taken, &p->weight.tensor, &p->grad.tensor, p->state);
}

/* ---- oracles --------------------------------------------------------------------------------- */

typedef struct oracle {
    double weight, buffer, m, v;
    bool has_buffer;
} oracle;

/* torch.optim.SGD, one element: first step copies the gradient into the buffer, dampening counts from the
 * second on. */
static void sgd_oracle(oracle *o, double grad, const ab_optimizer_config *c, bool nesterov) {
    double d = grad;
    if (c->weight_decay != 0) d += c->weight_decay * o->weight;
    if (c->momentum != 0) {
        o->buffer = o->has_buffer ? c->momentum * o->buffer + (1 - c->dampening) * d : d;
        o->has_buffer = true;
        d = nesterov ? d + c->momentum * o->buffer : o->buffer;
    }
    o->weight -= c->lr * d;
}

/* torch.optim.Adam, amsgrad and maximize off, t counted from 1. */
static void adam_oracle(oracle *o, double grad, const ab_optimizer_config *c, int64_t t) {
    double g = grad + c->weight_decay * o->weight;
    o->m = c->beta1 * o->m + (1 - c->beta1) * g;
    o->v = c->beta2 * o->v + (1 - c->beta2) * g * g;
    double m_hat = o->m / (1 - pow(c->beta1, (double)t)), v_hat = o->v / (1 - pow(c->beta2, (double)t));
    o->weight -= c->lr * m_hat / (sqrt(v_hat) + c->eps);
}

static void oracle_step(const char *name, oracle *o, double grad, const ab_optimizer_config *c, int64_t t) {
    if (strcmp(name, "adam") == 0)
        adam_oracle(o, grad, c, t);
    else
        sgd_oracle(o, grad, c, strcmp(name, "nesterov") == 0);
}

/* STEPS steps in fp32 against the oracle; the error is in units of the sum of all moves, the most that
 * rounding can touch. */
static void agrees_with_oracle(const char *name, const ab_optimizer_config *config, float grad_scale) {
    parameter *p = parameter_new(&ab_format_fp32, &ab_format_fp32, N);
    static oracle o[N];
    static double moved[N];
    float values[N];
    for (int64_t i = 0; i < N; i++) {
        values[i] = some(1000, i, 0.5f);
        o[i] = (oracle){.weight = (double)values[i]};
        moved[i] = fabs((double)values[i]);
    }
    put_values(&p->weight, values, N);
    for (int64_t t = 1; t <= STEPS; t++) {
        for (int64_t i = 0; i < N; i++) values[i] = some((uint32_t)t, i, grad_scale);
        put_values(&p->grad, values, N);
        step(name, config, t, p);
        for (int64_t i = 0; i < N; i++) {
            double before = o[i].weight;
            oracle_step(name, &o[i], (double)values[i], config, t);
            moved[i] += fabs(o[i].weight - before);
            double error = fabs((double)value_at(&p->weight, i) - o[i].weight);
            if (error > 4e-6 * moved[i])
                fail_msg("%s, step %d, element %d: %.9g, expected %.9g", name, (int)t, (int)i,
                         (double)value_at(&p->weight, i), o[i].weight);
        }
    }
    parameter_free(p);
}

static void sgd_is_torchs(void **state) {
    (void)state;
    agrees_with_oracle("sgd", &(ab_optimizer_config){.lr = 0.1}, 0.3f);
    agrees_with_oracle("sgd", &(ab_optimizer_config){.lr = 0.05, .weight_decay = 0.1}, 0.3f);
}

static void momentum_is_torchs(void **state) {
    (void)state;
    agrees_with_oracle("momentum", &(ab_optimizer_config){.lr = 0.01, .momentum = 0.9}, 0.3f);
    agrees_with_oracle("momentum", &(ab_optimizer_config){.lr = 0.01, .momentum = 0.9, .weight_decay = 0.05},
                       0.3f);
    agrees_with_oracle("momentum", &(ab_optimizer_config){.lr = 0.02, .momentum = 0.7, .dampening = 0.5},
                       0.3f);
}

static void nesterov_is_torchs(void **state) {
    (void)state;
    agrees_with_oracle("nesterov", &(ab_optimizer_config){.lr = 0.01, .momentum = 0.9}, 0.3f);
    agrees_with_oracle("nesterov", &(ab_optimizer_config){.lr = 0.01, .momentum = 0.5, .weight_decay = 0.1},
                       0.3f);
}

/* An eps of the size of the gradients tells eps outside the root from eps inside it; few steps tell the bias
 * corrections. */
static void adam_is_torchs(void **state) {
    (void)state;
    ab_optimizer_config config = {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
    agrees_with_oracle("adam", &config, 0.3f);
    config.weight_decay = 0.1;
    agrees_with_oracle("adam", &config, 0.3f);
    config.eps = 1e-3;
    agrees_with_oracle("adam", &config, 1e-3f);
    config.beta1 = 0.5;
    config.beta2 = 0.9;
    agrees_with_oracle("adam", &config, 10.0f);
}

/* The first Adam step moves by lr towards -sign(g), whatever the size of g: (1 - b)/(1 - b^1) = 1. */
static void adams_first_step_is_lr(void **state) {
    (void)state;
    const ab_optimizer_config config = {.lr = 0.25, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-12};
    parameter *p = parameter_new(&ab_format_fp32, &ab_format_fp32, 3);
    put_values(&p->grad, (float[]){1e-3f, -1.0f, 1e3f}, 3);
    step("adam", &config, 1, p);
    assert_true(fabsf(value_at(&p->weight, 0) + 0.25f) < 1e-6f);
    assert_true(fabsf(value_at(&p->weight, 1) - 0.25f) < 1e-6f);
    assert_true(fabsf(value_at(&p->weight, 2) + 0.25f) < 1e-6f);
    parameter_free(p);
}

static void a_zero_gradient_moves_nothing(void **state) {
    (void)state;
    for (int k = 0; k < ab_optimizer_count(); k++) {
        const ab_optimizer *optimizer = ab_optimizer_at(k);
        ab_optimizer_config config = optimizer->defaults;
        config.weight_decay = 0;
        parameter *p = parameter_new(&ab_format_fp32, &ab_format_fp32, 2);
        put_values(&p->weight, (float[]){1.5f, -0.0f}, 2);
        for (int64_t t = 1; t <= 3; t++) step(optimizer->name, &config, t, p);
        assert_true(value_at(&p->weight, 0) == 1.5f);
        assert_true(value_at(&p->weight, 1) == 0.0f);
        parameter_free(p);
    }
}

/* ---- half storage ---------------------------------------------------------------------------- */

/* fp16 numbers next to 1 are 2^-11 (below) and 2^-10 (above) apart. */
static void a_stored_weight_is_rounded_once_to_nearest_even(void **state) {
    (void)state;
    const ab_optimizer_config config = {.lr = 1};
    parameter *p = parameter_new(&ab_format_fp16, &ab_format_fp32, 4);
    put_values(&p->weight, (float[]){1, 1, 1, 1}, 4);
    put_values(&p->grad, (float[]){0x1p-12f, 0x1.8p-12f, 0x1.4p-11f, -0x1p-11f}, 4);
    step("sgd", &config, 1, p);
    assert_true(value_at(&p->weight, 0) == 1.0f); /* 1 - 2^-12 is a tie: even */
    assert_true(value_at(&p->weight, 1) == 1.0f - 0x1p-11f);
    assert_true(value_at(&p->weight, 2) == 1.0f - 0x1p-11f);
    assert_true(value_at(&p->weight, 3) == 1.0f); /* 1 + 2^-11 is a tie: even */
    parameter_free(p);
}

/* buffer = 1 + 2^-11 is stored as 1; the weight is moved by the unrounded buffer. */
static void the_weight_moves_by_the_unrounded_state(void **state) {
    (void)state;
    const ab_optimizer_config config = {.lr = 1, .momentum = 1};
    parameter *p = parameter_new(&ab_format_fp16, &ab_format_fp32, 1);
    put_values(&p->weight, (float[]){1}, 1);
    put_values(&p->slot[0], (float[]){1}, 1);
    put_values(&p->grad, (float[]){0x1p-11f}, 1);
    step("momentum", &config, 2, p);
    assert_true(value_at(&p->slot[0], 0) == 1.0f);
    assert_true(value_at(&p->weight, 0) == -0x1p-11f);
    parameter_free(p);
}

/* One step from stored halves: the result is the half nearest to the exact one. A second rounding, or one in
 * between, would be off by up to a whole unit in the last place for some of the elements. */
static void rounds_once(const char *name, const ab_format *format) {
    const ab_optimizer_config config = {
        .lr = 0.013, .momentum = 0.9, .weight_decay = 0.01, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-6};
    enum { MANY = 4000 };
    parameter *p = parameter_new(format, format, MANY);
    static float weight[MANY], grad[MANY];
    for (int64_t i = 0; i < MANY; i++) {
        weight[i] = some(2000, i, 1.0f);
        grad[i] = some(2001, i, 1.0f);
    }
    put_values(&p->weight, weight, MANY);
    put_values(&p->grad, grad, MANY);
    for (int64_t i = 0; i < MANY; i++) weight[i] = value_at(&p->weight, i), grad[i] = value_at(&p->grad, i);
    ab_optimizer_config used = config;
    if (strcmp(name, "sgd") == 0) used.momentum = 0;
    step(name, &used, 1, p);
    for (int64_t i = 0; i < MANY; i++) {
        oracle o = {.weight = (double)weight[i]};
        oracle_step(name, &o, (double)grad[i], &used, 1);
        double got = (double)value_at(&p->weight, i);
        int exponent = ilogb(o.weight) < format->emin ? format->emin : ilogb(o.weight);
        double ulp = ldexp(1.0, exponent - format->precision + 1);
        double fp32_noise = 4e-7 * (fabs((double)weight[i]) + fabs(o.weight - (double)weight[i]));
        assert_true(fabs(got - o.weight) <= 0.5 * ulp + fp32_noise);
    }
    parameter_free(p);
}

static void half_weights_are_rounded_once(void **state) {
    (void)state;
    static const char *const names[] = {"sgd", "momentum", "nesterov", "adam"};
    for (size_t k = 0; k < AB_COUNT_OF(names); k++) {
        rounds_once(names[k], &ab_format_fp16);
        rounds_once(names[k], &ab_format_bf16);
    }
}

/* ---- size and threads ------------------------------------------------------------------------ */

static void fill_case(parameter *p, int64_t n) {
    float *values = malloc((size_t)n * sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < n; i++) values[i] = some(1, i, 1.0f);
    put_values(&p->weight, values, n);
    for (int64_t i = 0; i < n; i++) values[i] = some(2, i, 1.0f);
    put_values(&p->grad, values, n);
    free(values);
}

/* An element's result does not depend on how many others there are, nor on the threads. */
static void results_do_not_depend_on_size_or_threads(void **state) {
    (void)state;
    static const int64_t sizes[] = {1, 1023, 1024, 1025, 5000, (1 << 16) + 77};
    const ab_optimizer *adam = optimizer_called("adam");
    int threads = omp_get_max_threads();
    parameter *largest = parameter_new(&ab_format_fp16, &ab_format_fp32, sizes[AB_COUNT_OF(sizes) - 1]);
    fill_case(largest, sizes[AB_COUNT_OF(sizes) - 1]);
    omp_set_num_threads(1);
    step("adam", &adam->defaults, 1, largest);
    omp_set_num_threads(3);
    for (size_t s = 0; s < AB_COUNT_OF(sizes); s++) {
        parameter *p = parameter_new(&ab_format_fp16, &ab_format_fp32, sizes[s]);
        fill_case(p, sizes[s]);
        step("adam", &adam->defaults, 1, p);
        assert_memory_equal(p->weight.memory, largest->weight.memory,
                            ab_format_bytes(&ab_format_fp16, sizes[s]));
        assert_memory_equal(p->slot[1].memory, largest->slot[1].memory,
                            ab_format_bytes(&ab_format_fp16, sizes[s]));
        parameter_free(p);
    }
    omp_set_num_threads(threads);
    parameter_free(largest);
}

/* ---- the list -------------------------------------------------------------------------------- */

static void optimizers_are_found_and_have_torchs_defaults(void **state) {
    (void)state;
    static const char *const names[] = {"sgd",
                                        "momentum",
                                        "nesterov",
                                        "adam",
                                        "adamw",
                                        "lamb",
                                        "lars",
                                        "larc",
                                        "rmsprop",
                                        "rmsprop_momentum",
                                        "rmsprop_centered",
                                        "adagrad",
                                        "fusedadam",
                                        "fusedadagrad",
                                        "fusedsgd",
                                        "fusedlamb",
                                        "fusednovograd",
                                        "adam_weight_decay",
                                        "keras_momentum",
                                        "keras_nesterov"};
    static const int states[] = {0, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 1, 2, 1, 1, 2, 2, 2, 1, 1};
    static const char decays[] = " adamw lamb fusedlamb fusedadam fusednovograd adam_weight_decay "
                                 "keras_momentum keras_nesterov ";
    assert_int_equal(ab_optimizer_count(), AB_COUNT_OF(names));
    for (size_t i = 0; i < AB_COUNT_OF(names); i++) {
        const ab_optimizer *optimizer = optimizer_called(names[i]);
        assert_ptr_equal(optimizer, ab_optimizer_at((int)i));
        assert_int_equal(optimizer->states, states[i]);
        char padded[64];
        snprintf(padded, sizeof padded, " %s ", names[i]);
        assert_int_equal(optimizer->decay == AB_DECAY_DECOUPLED, strstr(decays, padded) != NULL);
        const bool decays_by_default = strcmp(names[i], "adamw") == 0 || strstr(names[i], "lamb") != NULL;
        assert_true(optimizer->defaults.weight_decay == (decays_by_default ? 0.01 : 0));
    }
    const ab_optimizer *adam = optimizer_called("adam"), *none = NULL;
    assert_true(adam->defaults.lr == 1e-3 && adam->defaults.eps == 1e-8);
    assert_true(adam->defaults.beta1 == 0.9 && adam->defaults.beta2 == 0.999);
    assert_int_equal(ab_optimizer_find("adm", &none), AB_USAGE);
    assert_non_null(strstr(ab_error_message(), "did you mean 'adam'"));
    assert_int_equal(ab_optimizer_find("", &none), AB_USAGE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sgd_is_torchs),
        cmocka_unit_test(momentum_is_torchs),
        cmocka_unit_test(nesterov_is_torchs),
        cmocka_unit_test(adam_is_torchs),
        cmocka_unit_test(adams_first_step_is_lr),
        cmocka_unit_test(a_zero_gradient_moves_nothing),
        cmocka_unit_test(a_stored_weight_is_rounded_once_to_nearest_even),
        cmocka_unit_test(the_weight_moves_by_the_unrounded_state),
        cmocka_unit_test(half_weights_are_rounded_once),
        cmocka_unit_test(results_do_not_depend_on_size_or_threads),
        cmocka_unit_test(optimizers_are_found_and_have_torchs_defaults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
