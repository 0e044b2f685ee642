/* Every optimizer: against what torch's optimizers, or other libraries' formulas in doubles, computed
 * (tests/golden/optimizers.json, made by scripts/golden_optimizers.py), against double-precision oracles
 * written from the formulas, and against the same traces with a mistake in them, which must be told apart. */
#include "bench/train/optim/clip.h"
#include "bench/train/optim/optimizer.h"

#include "kernels/core/parallel.h"
#include "kernels/core/rng.h"
#include "kernels/format/convert.h"
#include "support/json_file.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const ab_optimizer *optimizer_called(const char *name) {
    const ab_optimizer *optimizer = NULL;
    assert_int_equal(ab_optimizer_find(name, &optimizer), AB_OK);
    return optimizer;
}

/* ---- a parameter ----------------------------------------------------------------------------- */

enum { MOST = 70001 };

typedef struct parameter {
    int64_t n;
    ab_tensor weight, grad, slot[AB_OPTIMIZER_STATES], *state[AB_OPTIMIZER_STATES];
} parameter;

static ab_tensor tensor_new(const ab_format *format, int64_t n) {
    void *memory = calloc((size_t)n, sizeof(float));
    assert_non_null(memory);
    return (ab_tensor){
        .data = memory, .shape = {1, {n}}, .format = format, .device = &ab_device_cpu, .id = -1};
}

static parameter *parameter_new(const ab_format *format, int64_t n) {
    parameter *p = calloc(1, sizeof *p);
    assert_non_null(p);
    p->n = n;
    p->weight = tensor_new(format, n);
    p->grad = tensor_new(&ab_format_fp32, n);
    for (int i = 0; i < AB_OPTIMIZER_STATES; i++) {
        p->slot[i] = tensor_new(format, n);
        p->state[i] = &p->slot[i];
    }
    return p;
}

static void parameter_free(parameter *p) {
    free(p->weight.data);
    free(p->grad.data);
    for (int i = 0; i < AB_OPTIMIZER_STATES; i++) free(p->slot[i].data);
    free(p);
}

/* scale * U(-1, 1), exact in fp32; the same numbers as in the generator. */
static void fill(ab_tensor *tensor, uint32_t step, float scale) {
    for (int64_t i = 0; i < ab_tensor_count(tensor); i++) {
        float value = scale * (2.0f * ab_rng_uniform(42, AB_RNG_SAMPLE, step, (uint64_t)i) - 1.0f);
        ab_narrow((char *)tensor->data + ab_format_bytes(tensor->format, i), tensor->format, &value, 1);
    }
}

static double value_at(const ab_tensor *tensor, int64_t i) {
    float value;
    ab_widen(&value, (const char *)tensor->data + ab_format_bytes(tensor->format, i), tensor->format, 1);
    return (double)value;
}

/* The scalar state is one fp32 number. */
static void shape_states(const ab_optimizer *optimizer, parameter *p) {
    for (int i = 0; i < optimizer->states; i++)
        if (optimizer->scalar_states >> i & 1u) {
            p->slot[i].format = &ab_format_fp32;
            p->slot[i].shape = (ab_shape){1, {1}};
        }
}

/* The values, with the norm of all gradients, which are p's. */
static ab_optimizer_config with_norm(const ab_optimizer_config *config, parameter *p) {
    ab_optimizer_config complete = *config;
    ab_tensor *all[] = {&p->grad};
    assert_int_equal(ab_clip_total_norm(all, 1, &ab_format_fp32, &complete.total_norm), AB_OK);
    return complete;
}

static void step(const ab_optimizer *optimizer, const ab_optimizer_config *config, int64_t taken,
                 parameter *p) {
    const ab_optimizer_config complete = with_norm(config, p);
    ab_optimizer_step(optimizer, &complete, taken, &p->weight, &p->grad, p->state);
}

/* ---- traces of torch ------------------------------------------------------------------------- */

static cJSON *golden(void) {
    cJSON *document = ab_test_read_json(AB_SOURCE_DIR "/tests/golden/optimizers.json");
    assert_non_null(document);
    return document;
}

static double number(const cJSON *object, const char *key) {
    const cJSON *item = cJSON_GetObjectItem(object, key);
    return cJSON_IsNumber(item) ? item->valuedouble : 0;
}

static void set_keys(const ab_optimizer *optimizer, const cJSON *keys, ab_optimizer_config *config) {
    int set = 0;
    for (int k = 0; k < optimizer->keys; k++) {
        const cJSON *value = cJSON_GetObjectItem(keys, optimizer->key[k].name);
        config->value[k] = !value                  ? optimizer->defaults.value[k]
                           : cJSON_IsNumber(value) ? value->valuedouble
                                                   : cJSON_IsTrue(value);
        set += value != NULL;
    }
    assert_int_equal(set, cJSON_GetArraySize(keys));
}

static const ab_optimizer *optimizer_of(const cJSON *row) {
    return optimizer_called(cJSON_GetStringValue(cJSON_GetObjectItem(row, "optimizer")));
}

static ab_optimizer_config config_of(const cJSON *row) {
    const cJSON *object = cJSON_GetObjectItem(row, "config");
    ab_optimizer_config config = {.lr = number(object, "lr"),
                                  .momentum = number(object, "momentum"),
                                  .dampening = number(object, "dampening"),
                                  .weight_decay = number(object, "weight_decay"),
                                  .beta1 = number(object, "beta1"),
                                  .beta2 = number(object, "beta2"),
                                  .eps = number(object, "eps"),
                                  .alpha = number(object, "alpha"),
                                  .lr_decay = number(object, "lr_decay"),
                                  .trust_coefficient = number(object, "trust_coefficient")};
    set_keys(optimizer_of(row), cJSON_GetObjectItem(object, "keys"), &config);
    return config;
}

/* Largest distance of a weight from the trace, relative to how far the weights have moved. */
static double distance(const cJSON *row, int64_t count) {
    const ab_optimizer *optimizer = optimizer_of(row);
    ab_optimizer_config config = config_of(row);
    parameter *p = parameter_new(&ab_format_fp32, count), *start = parameter_new(&ab_format_fp32, count);
    shape_states(optimizer, p);
    fill(&p->weight, 1000, 0.5f);
    fill(&start->weight, 1000, 0.5f);
    double worst = 0;
    int64_t taken = 0;
    const cJSON *kept = NULL;
    cJSON_ArrayForEach(kept, cJSON_GetObjectItem(row, "weights")) {
        while (taken < atoll(kept->string)) {
            fill(&p->grad, (uint32_t)++taken, 0.25f);
            step(optimizer, &config, taken, p);
        }
        double moved = 0, difference = 0;
        for (int64_t i = 0; i < count; i++) {
            double expected = strtod(cJSON_GetArrayItem(kept, (int)i)->valuestring, NULL);
            moved = fmax(moved, fabs(expected - value_at(&start->weight, i)));
            difference = fmax(difference, fabs(expected - value_at(&p->weight, i)));
        }
        worst = fmax(worst, difference / moved);
    }
    assert_true(taken == 50);
    parameter_free(p);
    parameter_free(start);
    return worst;
}

/* fp32 weights of 0.5 are 6e-8 apart; they move by 1e-2 in a step. */
static const double limit = 3e-5;

static void every_optimizer_follows_its_trace(void **state) {
    (void)state;
    cJSON *document = golden();
    int64_t count = (int64_t)number(document, "count");
    bool found[64] = {false};
    const cJSON *row = NULL;
    cJSON_ArrayForEach(row, cJSON_GetObjectItem(document, "cases")) {
        if (!cJSON_IsNull(cJSON_GetObjectItem(row, "planted"))) continue;
        const char *name = cJSON_GetStringValue(cJSON_GetObjectItem(row, "optimizer"));
        double far = distance(row, count);
        if (far > limit) fail_msg("%s is %g from its trace", name, far);
        for (int i = 0; i < ab_optimizer_count(); i++)
            found[i] |= optimizer_called(name) == ab_optimizer_at(i);
    }
    for (int i = 0; i < ab_optimizer_count(); i++)
        if (!found[i]) fail_msg("there is no trace of %s", ab_optimizer_at(i)->name);
    cJSON_Delete(document);
}

static void traces_with_a_mistake_are_told_apart(void **state) {
    (void)state;
    cJSON *document = golden();
    int64_t count = (int64_t)number(document, "count");
    int mistakes = 0;
    const cJSON *row = NULL;
    cJSON_ArrayForEach(row, cJSON_GetObjectItem(document, "cases")) {
        const char *mistake = cJSON_GetStringValue(cJSON_GetObjectItem(row, "planted"));
        if (!mistake) continue;
        mistakes++;
        double far = distance(row, count);
        if (far < 30 * limit) fail_msg("%s is only %g away", mistake, far);
    }
    assert_int_equal(mistakes, 9);
    cJSON_Delete(document);
}

/* Bit for bit: torch's for-loop optimizers on half tensors. */
static void rounding_after_every_operation_has_torchs_bits(void **state) {
    (void)state;
    cJSON *document = golden();
    const int64_t count = (int64_t)number(document, "count");
    int rows = 0, once = 0;
    const cJSON *row = NULL;
    cJSON_ArrayForEach(row, cJSON_GetObjectItem(document, "by_op")) {
        const char *name = cJSON_GetStringValue(cJSON_GetObjectItem(row, "optimizer"));
        const ab_format *format = NULL;
        assert_int_equal(ab_format_find(cJSON_GetStringValue(cJSON_GetObjectItem(row, "format")), &format),
                         AB_OK);
        ab_optimizer_config config = config_of(row);
        parameter *p = parameter_new(format, count), *fused = parameter_new(format, count);
        free(p->grad.data);
        p->grad = tensor_new(format, count);
        fill(&p->weight, 1000, 0.5f);
        fill(&fused->weight, 1000, 0.5f);
        for (int64_t taken = 1; taken <= 12; taken++) {
            fill(&p->grad, (uint32_t)taken, 0.25f);
            for (int64_t i = 0; i < count; i++) ((float *)fused->grad.data)[i] = (float)value_at(&p->grad, i);
            config.by_op = true;
            step(optimizer_called(name), &config, taken, p);
            config.by_op = false;
            step(optimizer_called(name), &config, taken, fused);
        }
        const cJSON *weights = cJSON_GetObjectItem(row, "weights");
        for (int64_t i = 0; i < count; i++) {
            const double expected = strtod(cJSON_GetArrayItem(weights, (int)i)->valuestring, NULL),
                         found = value_at(&p->weight, i);
            if (found != expected && !(isnan(found) && isnan(expected)))
                fail_msg("%s in %s: weight %d is %a, torch's %a", name, format->name, (int)i, found,
                         expected);
            once += value_at(&fused->weight, i) != expected;
        }
        parameter_free(p);
        parameter_free(fused);
        rows++;
    }
    assert_int_equal(rows, 12);
    assert_true(once > 12); /* rounding once a step gives others */
    cJSON_Delete(document);
}

/* ---- double-precision oracles ---------------------------------------------------------------- */

/* Many elements: blocks, chunks and parts of the norms all come in. */
static double w[MOST], g[MOST], s0[MOST], s1[MOST], d[MOST];

static double norm(const double *x, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
    return sqrt(sum);
}

static void lamb_oracle(const ab_optimizer_config *c, int64_t t, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        s0[i] = c->beta1 * s0[i] + (1 - c->beta1) * g[i];
        s1[i] = c->beta2 * s1[i] + (1 - c->beta2) * g[i] * g[i];
        double m = s0[i] / (1 - pow(c->beta1, (double)t)), v = s1[i] / (1 - pow(c->beta2, (double)t));
        d[i] = m / (sqrt(v) + c->eps) + c->weight_decay * w[i];
    }
    double ratio = norm(w, n) / norm(d, n);
    for (int64_t i = 0; i < n; i++) w[i] -= c->lr * ratio * d[i];
}

static void adamw_oracle(const ab_optimizer_config *c, int64_t t, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        s0[i] = c->beta1 * s0[i] + (1 - c->beta1) * g[i];
        s1[i] = c->beta2 * s1[i] + (1 - c->beta2) * g[i] * g[i];
        double m = s0[i] / (1 - pow(c->beta1, (double)t)), v = s1[i] / (1 - pow(c->beta2, (double)t));
        w[i] -= c->lr * (m / (sqrt(v) + c->eps) + c->weight_decay * w[i]);
    }
}

static void lars_step(const ab_optimizer_config *c, int64_t n, double rate) {
    for (int64_t i = 0; i < n; i++) {
        s0[i] = c->momentum * s0[i] + rate * (g[i] + c->weight_decay * w[i]);
        w[i] -= c->lr * s0[i];
    }
}

static double lars_rate(const ab_optimizer_config *c, int64_t n) {
    return c->trust_coefficient * norm(w, n) / (norm(g, n) + c->weight_decay * norm(w, n) + c->eps);
}

static void lars_oracle(const ab_optimizer_config *c, int64_t t, int64_t n) {
    (void)t;
    lars_step(c, n, lars_rate(c, n));
}

static void larc_oracle(const ab_optimizer_config *c, int64_t t, int64_t n) {
    (void)t;
    lars_step(c, n, fmin(lars_rate(c, n), c->lr) / c->lr);
}

static void rmsprop_oracle(const ab_optimizer_config *c, int64_t t, int64_t n) {
    (void)t;
    for (int64_t i = 0; i < n; i++) {
        double x = g[i] + c->weight_decay * w[i];
        s0[i] = c->alpha * s0[i] + (1 - c->alpha) * x * x;
        w[i] -= c->lr * x / (sqrt(s0[i]) + c->eps);
    }
}

static void rmsprop_momentum_oracle(const ab_optimizer_config *c, int64_t t, int64_t n) {
    (void)t;
    for (int64_t i = 0; i < n; i++) {
        double x = g[i] + c->weight_decay * w[i];
        s0[i] = c->alpha * s0[i] + (1 - c->alpha) * x * x;
        s1[i] = c->momentum * s1[i] + x / (sqrt(s0[i]) + c->eps);
        w[i] -= c->lr * s1[i];
    }
}

static void rmsprop_centered_oracle(const ab_optimizer_config *c, int64_t t, int64_t n) {
    (void)t;
    for (int64_t i = 0; i < n; i++) {
        double x = g[i] + c->weight_decay * w[i];
        s0[i] = c->alpha * s0[i] + (1 - c->alpha) * x * x;
        s1[i] = c->alpha * s1[i] + (1 - c->alpha) * x;
        w[i] -= c->lr * x / (sqrt(s0[i] - s1[i] * s1[i]) + c->eps);
    }
}

static void adagrad_oracle(const ab_optimizer_config *c, int64_t t, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        double x = g[i] + c->weight_decay * w[i];
        s0[i] += x * x;
        w[i] -= c->lr / (1 + (double)(t - 1) * c->lr_decay) * x / (sqrt(s0[i]) + c->eps);
    }
}

typedef struct oracle_case {
    const char *name;
    void (*step)(const ab_optimizer_config *c, int64_t t, int64_t n);
    ab_optimizer_config config;
} oracle_case;

static const oracle_case oracles[] = {
    {"adamw", adamw_oracle, {.lr = 0.01, .beta1 = 0.8, .beta2 = 0.9, .eps = 1e-3, .weight_decay = 0.3}},
    {"lamb", lamb_oracle, {.lr = 0.01, .beta1 = 0.8, .beta2 = 0.9, .eps = 1e-3, .weight_decay = 0.3}},
    {"lars",
     lars_oracle,
     {.lr = 0.7, .momentum = 0.6, .eps = 1e-2, .weight_decay = 0.3, .trust_coefficient = 0.05}},
    {"larc",
     larc_oracle,
     {.lr = 0.01, .momentum = 0.6, .eps = 1e-2, .weight_decay = 0.3, .trust_coefficient = 0.05}},
    {"larc",
     larc_oracle,
     {.lr = 0.7, .momentum = 0.6, .eps = 1e-2, .weight_decay = 0.3, .trust_coefficient = 0.05}},
    {"rmsprop", rmsprop_oracle, {.lr = 0.01, .alpha = 0.8, .eps = 1e-2, .weight_decay = 0.3}},
    {"rmsprop_momentum",
     rmsprop_momentum_oracle,
     {.lr = 0.01, .alpha = 0.8, .eps = 1e-2, .weight_decay = 0.3, .momentum = 0.5}},
    {"rmsprop_centered",
     rmsprop_centered_oracle,
     {.lr = 0.01, .alpha = 0.8, .eps = 1e-1, .weight_decay = 0.3}},
    {"adagrad", adagrad_oracle, {.lr = 0.01, .lr_decay = 0.2, .eps = 1e-2, .weight_decay = 0.3}},
};

static void load(const parameter *p) {
    for (int64_t i = 0; i < p->n; i++) {
        w[i] = value_at(&p->weight, i);
        s0[i] = value_at(&p->slot[0], i);
        s1[i] = value_at(&p->slot[1], i);
    }
}

static void load_grad(const parameter *p) {
    for (int64_t i = 0; i < p->n; i++) g[i] = value_at(&p->grad, i);
}

static void fp32_steps_agree_with_double_precision(void **state) {
    (void)state;
    for (size_t k = 0; k < AB_COUNT_OF(oracles); k++) {
        const oracle_case *c = &oracles[k];
        parameter *p = parameter_new(&ab_format_fp32, 5003);
        fill(&p->weight, 1000, 0.5f);
        load(p);
        for (int64_t t = 1; t <= 8; t++) {
            fill(&p->grad, (uint32_t)t, 0.25f);
            load_grad(p);
            step(optimizer_called(c->name), &c->config, t, p);
            c->step(&c->config, t, p->n);
        }
        double worst = 0;
        for (int64_t i = 0; i < p->n; i++) worst = fmax(worst, fabs(value_at(&p->weight, i) - w[i]));
        if (worst > 1e-6) fail_msg("%s: %g off after 8 steps", c->name, worst);
        parameter_free(p);
    }
}

/* From stored halves: the half next to the exact result. */
static void half_weights_and_states_are_rounded_once(void **state) {
    (void)state;
    for (size_t k = 0; k < AB_COUNT_OF(oracles); k++) {
        const oracle_case *c = &oracles[k];
        parameter *p = parameter_new(&ab_format_fp16, 3001);
        fill(&p->weight, 1000, 0.5f);
        fill(&p->grad, 1, 0.25f);
        load(p);
        load_grad(p);
        step(optimizer_called(c->name), &c->config, 1, p);
        c->step(&c->config, 1, p->n);
        for (int64_t i = 0; i < p->n; i++) {
            double ulp = ldexp(1.0, (w[i] == 0 || ilogb(w[i]) < -14 ? -14 : ilogb(w[i])) - 10);
            assert_true(fabs(value_at(&p->weight, i) - w[i]) <= 0.5 * ulp + 4e-7);
            double state_ulp = ldexp(1.0, (s0[i] == 0 || ilogb(s0[i]) < -14 ? -14 : ilogb(s0[i])) - 10);
            assert_true(fabs(value_at(&p->slot[0], i) - s0[i]) <= 0.5 * state_ulp + 4e-7);
        }
        parameter_free(p);
    }
}

/* ---- norms ----------------------------------------------------------------------------------- */

/* The norms are of the whole parameter, also when it is cut into parts, and the same on any number of
 * threads. */
static void norms_cover_the_parameter_on_any_number_of_lanes(void **state) {
    (void)state;
    static const int64_t sizes[] = {1, 1024, 1025, 64 * 1024 + 1, MOST};
    static float first[MOST];
    const oracle_case *lamb = &oracles[1];
    for (size_t s = 0; s < AB_COUNT_OF(sizes); s++)
        for (int threads = 1; threads <= 3; threads++) {
            assert_int_equal(ab_parallel_start(threads), AB_OK);
            parameter *p = parameter_new(&ab_format_fp32, sizes[s]);
            fill(&p->weight, 1000, 0.5f);
            fill(&p->grad, 1, 0.25f);
            load(p);
            load_grad(p);
            step(optimizer_called("lamb"), &lamb->config, 1, p);
            lamb->step(&lamb->config, 1, p->n);
            for (int64_t i = 0; i < p->n; i++) assert_true(fabs(value_at(&p->weight, i) - w[i]) < 2e-7);
            if (threads == 1) memcpy(first, p->weight.data, (size_t)p->n * sizeof *first);
            assert_memory_equal(first, p->weight.data, (size_t)p->n * sizeof *first);
            parameter_free(p);
        }
    ab_parallel_stop();
}

/* apex: no decay, or weights that are all 0, means the plain step. */
static void norms_of_zero_leave_the_plain_step(void **state) {
    (void)state;
    ab_optimizer_config config = oracles[1].config;
    parameter *p = parameter_new(&ab_format_fp32, 3);
    fill(&p->grad, 1, 0.25f);
    config.eps = 1e-12;
    step(optimizer_called("lamb"), &config, 1, p);
    for (int64_t i = 0; i < 3; i++) assert_true(fabs(fabs(value_at(&p->weight, i)) - config.lr) < 1e-7);
    parameter_free(p);
    for (int clipped = 0; clipped < 2; clipped++) {
        p = parameter_new(&ab_format_fp32, 3);
        fill(&p->weight, 1, 1.0f);
        load(p);
        config = oracles[2].config; /* gradient 0: LARC does not decay either */
        step(optimizer_called(clipped ? "larc" : "lars"), &config, 1, p);
        for (int64_t i = 0; i < 3; i++) assert_true(value_at(&p->weight, i) == w[i]);
        parameter_free(p);
    }
}

/* ---- what is said of an update --------------------------------------------------------------- */

typedef struct told {
    const parameter *p;
    double worst;
} told;

/* The terms add up to what the update did to the weight. */
static void see_update(void *context, const ab_update_block *block) {
    told *t = context;
    for (int64_t i = 0; i < block->n; i++) {
        double moved = (double)block->after[i] - (double)block->before[i];
        t->worst = fmax(t->worst, fabs(moved - block->update[i]));
    }
}

static void add_up(const ab_optimizer *optimizer, const ab_optimizer_config *config) {
    parameter *p = parameter_new(&ab_format_fp32, 2050), *q = parameter_new(&ab_format_fp32, 2050);
    told t = {p, 0};
    ab_watch watch = {.context = &t, .update = see_update};
    ab_observer observer = {.see = NULL};
    ab_optimizer_observers observers = {&observer, -1, {-1, -1, -1}, &watch, 0};
    shape_states(optimizer, p);
    shape_states(optimizer, q);
    fill(&p->weight, 1000, 0.5f);
    fill(&q->weight, 1000, 0.5f);
    for (int64_t taken = 1; taken <= 4; taken++) {
        fill(&p->grad, (uint32_t)taken, 0.25f);
        fill(&q->grad, (uint32_t)taken, 0.25f);
        const ab_optimizer_config complete = with_norm(config, p);
        ab_optimizer_step_shown(optimizer, &complete, taken, &p->weight, &p->grad, p->state, &observers);
        step(optimizer, config, taken, q);
    }
    if (t.worst > 1.5e-7) fail_msg("%s: terms are %g off", optimizer->name, t.worst);
    assert_memory_equal(p->weight.data, q->weight.data, 2050 * sizeof(float));
    parameter_free(p);
    parameter_free(q);
}

static void terms_add_up_to_the_update(void **state) {
    (void)state;
    cJSON *document = golden();
    const cJSON *row = NULL;
    for (size_t k = 0; k < AB_COUNT_OF(oracles); k++)
        add_up(optimizer_called(oracles[k].name), &oracles[k].config);
    cJSON_ArrayForEach(row, cJSON_GetObjectItem(document, "cases")) {
        const ab_optimizer_config config = config_of(row);
        if (optimizer_of(row)->keys) add_up(optimizer_of(row), &config);
    }
    cJSON_Delete(document);
}

/* ---- keys ------------------------------------------------------------------------------------ */

static void refused(const char *text, const char *message) {
    const ab_optimizer *optimizer = NULL;
    ab_optimizer_config config;
    assert_int_equal(ab_optimizer_parse(text, &optimizer, &config), AB_USAGE);
    if (!strstr(ab_error_message(), message)) fail_msg("%s: %s", text, ab_error_message());
}

static void keys_are_read_and_checked(void **state) {
    (void)state;
    const ab_optimizer *optimizer = NULL;
    ab_optimizer_config config;
    char text[AB_OPTIMIZER_VALUE];
    assert_int_equal(ab_optimizer_parse("fusedlamb:use_nvlamb=True,max_grad_norm=2.5", &optimizer, &config),
                     AB_OK);
    assert_true(config.value[0] == 2.5 && config.value[1] == 1 && config.value[2] == 1);
    assert_true(config.weight_decay == 0.01);
    assert_string_equal(ab_optimizer_value_text(optimizer, &config, 0, text), "2.5");
    assert_string_equal(ab_optimizer_value_text(optimizer, &config, 1, text), "True");
    assert_string_equal(ab_optimizer_decay_name(optimizer, &config), "decoupled");
    assert_int_equal(ab_optimizer_parse("fusedadam:adam_w_mode=False", &optimizer, &config), AB_OK);
    assert_string_equal(ab_optimizer_decay_name(optimizer, &config), "L2");
    assert_int_equal(ab_optimizer_parse("fusedsgd:wd_after_momentum=True", &optimizer, &config), AB_OK);
    assert_string_equal(ab_optimizer_decay_name(optimizer, &config), "decoupled");
    refused("fusedadam:adam_mode=True", "did you mean 'adam_w_mode'?");
    refused("fusedadam:adam_w_mode=1", "expected True or False, found '1'");
    refused("fusedadam:adam_w_mode", "expected KEY=VALUE, found 'adam_w_mode'");
    refused("fusedlamb:max_grad_norm=0", "expected a number from 1.17549435e-38 to 1e+30, found '0'");
    refused("fusednovograd:norm_type=1", "expected 0 or 2, found '1'");
    refused("adam:adam_w_mode=True", "it has no keys of its own");
    refused("fusedadm", "did you mean 'fusedadam'?");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_optimizer_follows_its_trace),
        cmocka_unit_test(traces_with_a_mistake_are_told_apart),
        cmocka_unit_test(rounding_after_every_operation_has_torchs_bits),
        cmocka_unit_test(fp32_steps_agree_with_double_precision),
        cmocka_unit_test(half_weights_and_states_are_rounded_once),
        cmocka_unit_test(norms_cover_the_parameter_on_any_number_of_lanes),
        cmocka_unit_test(norms_of_zero_leave_the_plain_step),
        cmocka_unit_test(terms_add_up_to_the_update),
        cmocka_unit_test(keys_are_read_and_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
