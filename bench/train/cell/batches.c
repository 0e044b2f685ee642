/* Fills batches. */
#include "bench/train/cell/batches.h"

#include "bench/train/fault.h"

#include <stdlib.h>

static ab_status no_memory(void) { return ab_fail(AB_NO_MEMORY, "cell: out of memory"); }

ab_status ab_batches_init(ab_batches *b) {
    const ab_plan *plan = b->memory->plan;
    const bool host = b->memory->backend->host_memory;
    const ab_tensor *tensor = b->memory->tensor;
    b->index = calloc((size_t)plan->batch, sizeof *b->index);
    b->samples = host ? tensor[plan->input].data : calloc(1, (size_t)plan->tensor[plan->input].bytes);
    b->targets = host ? tensor[plan->targets].data : calloc(1, (size_t)plan->tensor[plan->targets].bytes);
    if (!b->index || (!host && (!b->samples || !b->targets))) return no_memory();
    if (!b->data) return AB_OK;
    b->finite = !(b->faults & AB_FAULTS_OF_DATA) && ab_data_is_finite(b->data, b->normalize);
    return ab_data_order_create(&b->order, b->data->split[AB_SPLIT_TRAIN].count, plan->batch, b->shuffled,
                                b->seed);
}

void ab_batches_fini(ab_batches *b) {
    if (b->memory && b->memory->backend && !b->memory->backend->host_memory) {
        free(b->samples);
        free(b->targets);
    }
    ab_data_order_destroy(&b->order);
    free(b->index);
    *b = (ab_batches){.index = NULL};
}

void ab_batches_choose(ab_batches *b, int64_t number) { ab_data_order_at(&b->order, number, b->index); }

void ab_batches_choose_range(ab_batches *b, int64_t first, int64_t n) {
    for (int64_t i = 0; i < b->memory->plan->batch; i++) b->index[i] = i < n ? first + i : first;
}

void ab_batches_choose_spread(ab_batches *b, int64_t first, int64_t step) {
    for (int64_t i = 0; i < b->memory->plan->batch; i++) b->index[i] = first + i * step;
}

static int64_t inputs_of_sample(const ab_data *data) {
    return data->stored_height ? data->height * data->width * data->channels : ab_shape_count(&data->shape.x);
}

void ab_batches_write(ab_batches *b, ab_split split, void *samples, void *targets) {
    const ab_data *data = b->data;
    const int64_t n = b->memory->plan->batch, each = inputs_of_sample(data);
    const unsigned faults = split == AB_SPLIT_TRAIN ? b->faults & AB_FAULTS_OF_DATA : 0;
    ab_data_fill(data, split, b->normalize, b->index, n, samples, targets);
    if (faults) ab_inject_data_fault(faults, data, b->seed, b->index, n, each, samples, targets);
}

bool ab_batches_are_counted(const ab_batches *b) {
    return !b->finite || ab_always_on_compares_labels(b->stats, &b->data->shape);
}

ab_status ab_batches_count(ab_batches *b, int64_t step, const void *samples, const void *targets) {
    return ab_always_on_batch(b->stats, &b->data->shape, step, b->index,
                              ab_batches_are_counted(b) ? samples : NULL, targets, b->memory->plan->batch,
                              inputs_of_sample(b->data));
}

static ab_status load(ab_batches *b, ab_split split) {
    const ab_plan *plan = b->memory->plan;
    ab_batches_write(b, split, b->samples, b->targets);
    if (b->memory->backend->host_memory) return AB_OK;
    AB_TRY(ab_tensor_upload(&b->memory->tensor[plan->input], b->samples));
    return ab_tensor_upload(&b->memory->tensor[plan->targets], b->targets);
}

ab_status ab_batches_load(ab_batches *b, ab_walk *walk, ab_split split, bool read) {
    const ab_tensor *half = read || !b->finite ? NULL : ab_walk_cast_input(walk);
    walk->input_is_cast = half != NULL;
    if (!half) return load(b, split);
    ab_data_fill_half(b->data, split, b->normalize, half->format, b->index, b->memory->plan->batch,
                      half->data, b->targets);
    return AB_OK;
}

ab_status ab_batches_load_targets(ab_batches *b, ab_walk *walk) {
    walk->input_is_cast = false;
    if (b->faults & AB_FAULTS_OF_DATA) return load(b, AB_SPLIT_TRAIN);
    ab_data_fill(b->data, AB_SPLIT_TRAIN, b->normalize, b->index, b->memory->plan->batch, NULL, b->targets);
    if (b->memory->backend->host_memory) return AB_OK;
    return ab_tensor_upload(&b->memory->tensor[b->memory->plan->targets], b->targets);
}
