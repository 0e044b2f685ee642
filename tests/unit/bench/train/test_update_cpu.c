/* The optimizer step of the CPU's table (backend.h), which unscales, updates and rounds the model's copy
 * block by block in vector code, against the optimizers' own formulas, one pass after the other: bit for bit
 * at every CPU level, in every storage format. */
#include "bench/train/optim/optimizer.h"
#include "bench/train/update/optim_device.h"
#include "kernels/backend/backend.h"
#include "kernels/core/parallel.h"
#include "kernels/core/rng.h"
#include "kernels/format/convert.h"
#include "kernels/vec/isa.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 5000, STEPS = 3, TENSORS = 5, WEIGHT = 0, GRAD = 1, MODEL = 2, STATE = 3 };

/* Weight, gradient, model's copy and two states, with room for the widest format. */
typedef struct parameter {
    ab_tensor tensor[TENSORS];
    double memory[TENSORS][MOST];
} parameter;

typedef struct storage {
    const ab_format *weight, *grad, *model; /* of weight and states; model NULL: no copy */
    float factor;
} storage;

static void shape_tensors(parameter *p, const storage *s, int64_t n) {
    const ab_format *const format[TENSORS] = {s->weight, s->grad, s->model ? s->model : s->weight, s->weight,
                                              s->weight};
    for (int t = 0; t < TENSORS; t++)
        p->tensor[t] = (ab_tensor){
            .data = p->memory[t], .shape = {1, {n}}, .format = format[t], .device = &ab_device_cpu, .id = -1};
}

static void fill(ab_tensor *tensor, uint32_t step, float scale) {
    static float value[MOST];
    for (int64_t i = 0; i < ab_tensor_count(tensor); i++)
        value[i] = scale * ab_rng_normal(7, AB_RNG_SAMPLE, step, (uint64_t)i);
    for (int64_t i = 5; i < ab_tensor_count(tensor) && step == STEPS; i += 101)
        value[i] = i % 2 ? (float)INFINITY : (float)NAN;
    ab_narrow(tensor->data, tensor->format, value, ab_tensor_count(tensor));
}

/* One pass after the other: unscaled in fp32, updated, rounded. */
static void update_apart(parameter *p, const ab_optimizer *optimizer, const ab_optimizer_config *config,
                         const storage *s, int64_t taken) {
    static float value[MOST];
    const int64_t n = ab_tensor_count(&p->tensor[GRAD]);
    ab_tensor grad = p->tensor[GRAD],
              *state[AB_OPTIMIZER_STATES] = {&p->tensor[STATE], &p->tensor[STATE + 1]};
    ab_widen(value, grad.data, grad.format, n);
    for (int64_t i = 0; i < n; i++) value[i] *= s->factor;
    grad.data = value;
    grad.format = &ab_format_fp32;
    ab_optimizer_step(optimizer, config, taken, &p->tensor[WEIGHT], &grad, state);
    if (!s->model) return;
    ab_widen(value, p->tensor[WEIGHT].data, s->weight, n);
    ab_narrow(p->tensor[MODEL].data, s->model, value, n);
}

static ab_update_item item_of(parameter *p, const ab_optimizer *optimizer, const storage *s) {
    ab_update_item item = {.weight = &p->tensor[WEIGHT],
                           .grad = &p->tensor[GRAD],
                           .factor = s->factor,
                           .model = s->model ? &p->tensor[MODEL] : NULL};
    for (int i = 0; i < optimizer->states; i++) item.state[i] = &p->tensor[STATE + i];
    return item;
}

static void update_at_once(parameter *p, const ab_optimizer *optimizer, const ab_optimizer_config *config,
                           const storage *s, int64_t taken) {
    const ab_update_kind kind = ab_optimizer_device_kind(optimizer);
    const ab_update_row row = ab_optimizer_device_row(kind, config, taken);
    const ab_update_item item = item_of(p, optimizer, s);
    assert_int_equal(ab_backend_cpu.update(&item, 1, (int)kind, &row), AB_OK);
}

static void same_bits(const ab_optimizer *optimizer, const storage *s, int64_t n) {
    static parameter p[2];
    ab_optimizer_config config = optimizer->defaults;
    memset(p, 0, sizeof p);
    config.weight_decay = 0.01;
    for (int k = 0; k < 2; k++) {
        shape_tensors(&p[k], s, n);
        fill(&p[k].tensor[WEIGHT], 0, 1.0f);
    }
    for (int64_t taken = 1; taken <= STEPS; taken++) {
        for (int k = 0; k < 2; k++) fill(&p[k].tensor[GRAD], (uint32_t)taken, 30.0f);
        update_apart(&p[0], optimizer, &config, s, taken);
        update_at_once(&p[1], optimizer, &config, s, taken);
        if (memcmp(p[0].memory, p[1].memory, sizeof p[0].memory) != 0)
            fail_msg("%s, weights %s, gradients %s, %lld values, level %s: step %lld differs",
                     optimizer->name, s->weight->name, s->grad->name, (long long)n, ab_isa_name(ab_isa_get()),
                     (long long)taken);
    }
}

static void updates_have_the_bits_of_separate_passes(void **state) {
    (void)state;
    static const storage stored[] = {{&ab_format_fp32, &ab_format_fp32, NULL, 1.0f},
                                     {&ab_format_fp32, &ab_format_fp32, &ab_format_fp16, 0x1p-10f},
                                     {&ab_format_fp32, &ab_format_fp16, &ab_format_fp16, 0.3f},
                                     {&ab_format_fp32, &ab_format_bf16, &ab_format_bf16, 0x1p-4f},
                                     {&ab_format_fp32, &ab_format_fp16, NULL, 0x1p-3f},
                                     {&ab_format_fp32, &ab_format_bf16, NULL, 0.3f},
                                     {&ab_format_fp16, &ab_format_fp16, NULL, 1.0f},
                                     {&ab_format_bf16, &ab_format_bf16, NULL, 0.7f},
                                     {&ab_format_fp64, &ab_format_fp16, &ab_format_bf16, 0.3f},
                                     {&ab_format_fp32, &ab_format_fp64, &ab_format_fp64, 0.3f}};
    static const int64_t counts[] = {1, 17, 63, 64, 2047, 2048, MOST};
    int tried = 0;
    for (int isa = AB_ISA_PLAIN; isa <= (int)ab_isa_best(); isa++) {
        assert_int_equal(ab_isa_force((ab_isa)isa), AB_OK);
        for (int i = 0; i < ab_optimizer_count(); i++) {
            const ab_optimizer *optimizer = ab_optimizer_at(i);
            if (ab_optimizer_device_kind(optimizer) == AB_UPDATE_NONE || optimizer->measure) continue;
            for (size_t f = 0; f < AB_COUNT_OF(stored); f++)
                for (size_t c = 0; c < AB_COUNT_OF(counts); c++) same_bits(optimizer, &stored[f], counts[c]);
            tried++;
        }
    }
    assert_int_equal(ab_isa_force(ab_isa_best()), AB_OK);
    assert_int_equal(tried, 9 * ((int)ab_isa_best() + 1));
}

/* More parameters than one loop over blocks takes, small ones between large ones, on several
 * threads. */
static void parameters_are_updated_together_as_one_by_one(void **state) {
    (void)state;
    enum { PARAMETERS = 150 };
    static const int64_t counts[] = {1, MOST, 2048, 3, 2049, 4096};
    static const storage s = {&ab_format_fp32, &ab_format_fp16, &ab_format_fp16, 0.3f};
    const ab_optimizer *optimizer;
    assert_int_equal(ab_optimizer_find("adamw", &optimizer), AB_OK);
    const ab_update_kind kind = ab_optimizer_device_kind(optimizer);
    const ab_update_row row = ab_optimizer_device_row(kind, &optimizer->defaults, 1);
    parameter *apart = calloc(PARAMETERS, sizeof *apart), *together = calloc(PARAMETERS, sizeof *together);
    ab_update_item item[PARAMETERS];
    assert_true(apart && together);
    for (uint32_t i = 0; i < PARAMETERS; i++) {
        parameter *const pair[] = {&apart[i], &together[i]};
        for (int k = 0; k < 2; k++) {
            shape_tensors(pair[k], &s, counts[i % AB_COUNT_OF(counts)]);
            fill(&pair[k]->tensor[WEIGHT], 2 * i, 1.0f);
            fill(&pair[k]->tensor[GRAD], 2 * i + 1, 30.0f);
        }
        update_apart(&apart[i], optimizer, &optimizer->defaults, &s, 1);
        item[i] = item_of(&together[i], optimizer, &s);
    }
    assert_int_equal(ab_parallel_start(3), AB_OK);
    assert_int_equal(ab_backend_cpu.update(item, PARAMETERS, (int)kind, &row), AB_OK);
    ab_parallel_stop();
    for (int i = 0; i < PARAMETERS; i++)
        assert_memory_equal(apart[i].memory, together[i].memory, sizeof apart[i].memory);
    free(apart);
    free(together);
}

/* Norms of the whole parameter come first: the host's own loop. */
static void a_step_that_needs_norms_is_left_to_the_host(void **state) {
    (void)state;
    static const ab_update_kind kinds[] = {AB_UPDATE_LAMB, AB_UPDATE_LARS, AB_UPDATE_LARC};
    static float value[3][4] = {{1, 2, 3, 4}, {1, 1, 1, 1}, {0}};
    const ab_update_row row = {.value = {1, 1, 1, 1}};
    ab_tensor tensor[3];
    for (int t = 0; t < 3; t++)
        tensor[t] = (ab_tensor){.data = value[t],
                                .shape = {1, {4}},
                                .format = &ab_format_fp32,
                                .device = &ab_device_cpu,
                                .id = -1};
    const ab_update_item item = {
        .weight = &tensor[0], .grad = &tensor[1], .factor = 1, .state = {&tensor[2]}};
    for (size_t k = 0; k < AB_COUNT_OF(kinds); k++)
        assert_int_equal(ab_backend_cpu.update(&item, 1, (int)kinds[k], &row), AB_UNAVAILABLE);
    for (int i = 0; i < 4; i++) assert_true(value[0][i] == (float)(i + 1) && value[2][i] == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(updates_have_the_bits_of_separate_passes),
        cmocka_unit_test(parameters_are_updated_together_as_one_by_one),
        cmocka_unit_test(a_step_that_needs_norms_is_left_to_the_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
