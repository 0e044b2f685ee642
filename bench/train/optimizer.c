/* The list of optimizers, and the loop that brings stored tensors to their fp32 formulas block by block. */
#include "bench/train/optimizer.h"

#include "kernels/convert.h"
#include "kernels/core/nearest.h"
#include "kernels/core/parallel.h"

#include <string.h>

enum { BLOCK = 1024, BLOCKS_PER_CHUNK = 32 };

#define AB_OPTIMIZER(name, file) extern const ab_optimizer ab_optimizer_##name;
#include "bench/train/optimizers.def"
#undef AB_OPTIMIZER

static const ab_optimizer *const optimizers[] = {
#define AB_OPTIMIZER(name, file) &ab_optimizer_##name,
#include "bench/train/optimizers.def"
#undef AB_OPTIMIZER
};

int ab_optimizer_count(void) { return (int)AB_COUNT_OF(optimizers); }
const ab_optimizer *ab_optimizer_at(int i) { return optimizers[i]; }

ab_status ab_optimizer_find(const char *name, const ab_optimizer **optimizer) {
    const char *names[AB_COUNT_OF(optimizers)];
    for (size_t i = 0; i < AB_COUNT_OF(optimizers); i++) {
        names[i] = optimizers[i]->name;
        if (strcmp(name, names[i]) != 0) continue;
        *optimizer = optimizers[i];
        return AB_OK;
    }
    const char *near = ab_nearest(name, names, (int)AB_COUNT_OF(names));
    return ab_fail(AB_USAGE, "--optimizer: expected sgd, momentum, nesterov or adam, found '%s'%s%s%s", name,
                   near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static char *element(const ab_tensor *tensor, int64_t i) {
    return (char *)tensor->data + ab_format_bytes(tensor->format, i);
}

typedef struct update_args {
    const ab_optimizer *optimizer;
    const ab_optimizer_config *config;
    int64_t taken;
    ab_tensor *weight;
    const ab_tensor *grad;
    ab_tensor *const *state;
} update_args;

static void update_block(const update_args *u, int64_t first, int64_t n) {
    float weight[BLOCK], grad[BLOCK], values[AB_OPTIMIZER_STATES][BLOCK];
    float *state[AB_OPTIMIZER_STATES] = {values[0], values[1], values[2]};
    ab_widen(weight, element(u->weight, first), u->weight->format, n);
    ab_widen(grad, element(u->grad, first), u->grad->format, n);
    for (int i = 0; i < u->optimizer->states; i++)
        ab_widen(state[i], element(u->state[i], first), u->state[i]->format, n);
    u->optimizer->update(u->config, u->taken, weight, grad, state, n);
    for (int i = 0; i < u->optimizer->states; i++)
        ab_narrow(element(u->state[i], first), u->state[i]->format, state[i], n);
    ab_narrow(element(u->weight, first), u->weight->format, weight, n);
}

static void update_chunk(void *argument, int64_t chunk, int lane) {
    const update_args *u = argument;
    (void)lane;
    int64_t count = ab_tensor_count(u->weight), first = chunk * BLOCK * BLOCKS_PER_CHUNK;
    for (int b = 0; b < BLOCKS_PER_CHUNK && first < count; b++, first += BLOCK)
        update_block(u, first, count - first < BLOCK ? count - first : BLOCK);
}

void ab_optimizer_step(const ab_optimizer *optimizer, const ab_optimizer_config *config, int64_t taken,
                       ab_tensor *weight, const ab_tensor *grad, ab_tensor *const *state) {
    update_args args = {optimizer, config, taken, weight, grad, state};
    int64_t chunk = (int64_t)BLOCK * BLOCKS_PER_CHUNK;
    ab_parallel_for((ab_tensor_count(weight) + chunk - 1) / chunk, update_chunk, &args);
}
