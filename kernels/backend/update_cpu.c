/* The optimizer step on the CPU: every block of a parameter is read, unscaled, updated and stored, and its
 * copy in the model's format rounded, while it is in cache. */
#include "kernels/backend/update_cpu.h"

#include "kernels/backend/vec_update.h"
#include "kernels/format/convert.h"
#include "kernels/format/halves.h"
#include "kernels/format/stored.h"
#include "kernels/ops/blocks.h"
#include "kernels/vec/isa.h"

AB_BY_ISA(ab_vec_update, ab_vec_update)

enum { MOST_ITEMS = 64 };

typedef struct update_job {
    const ab_update_item *item;    /* at most MOST_ITEMS */
    int64_t first[MOST_ITEMS + 1]; /* number of each item's first block; of all blocks */
    void (*run)(const float *c, const ab_update_span *span);
    const float *constant;
} update_job;

/* fp32 room for one block of tensors in formats that the formulas do not read. */
typedef struct block_room {
    float weight[AB_BLOCK], grad[AB_BLOCK], state[AB_UPDATE_VALUES - 1][AB_BLOCK];
} block_room;

static ab_update_operand widened(const ab_tensor *tensor, int64_t first, int64_t n, float *room) {
    ab_widen(room, ab_element(tensor, first), tensor->format, n);
    return (ab_update_operand){room, AB_STORED_FP32};
}

/* A block in place, or widened to `room`. */
static ab_update_operand take(const ab_tensor *tensor, int64_t first, int64_t n, float *room) {
    if (!ab_is_half(tensor->format) && !ab_is_f32(tensor)) return widened(tensor, first, n, room);
    return (ab_update_operand){ab_element(tensor, first), ab_container_of(tensor->format)};
}

/* Stores a block that was widened to `room`. */
static void put(const ab_tensor *tensor, int64_t first, int64_t n, const ab_update_operand *from,
                const float *room) {
    if (from->data == room) ab_narrow(ab_element(tensor, first), tensor->format, room, n);
}

/* The new weight as it is before it is stored, where a model's copy in another format is rounded from it. */
static ab_update_operand take_weight(const ab_update_item *item, int64_t first, int64_t n, float *room) {
    const bool copied = item->model && !ab_is_half(item->model->format);
    return copied && ab_is_half(item->weight->format) ? widened(item->weight, first, n, room)
                                                      : take(item->weight, first, n, room);
}

static int states_of(const ab_update_item *item) {
    int states = 0;
    while (states < AB_UPDATE_VALUES - 1 && item->state[states]) states++;
    return states;
}

static void update_block(const update_job *job, const ab_update_item *item, int64_t block) {
    const int64_t first = block * AB_BLOCK, n = ab_min64(AB_BLOCK, ab_tensor_count(item->weight) - first);
    const ab_tensor *half_model = item->model && ab_is_half(item->model->format) ? item->model : NULL;
    const ab_tensor *other_model = half_model ? NULL : item->model;
    const int states = states_of(item);
    block_room room;
    ab_update_span span = {.weight = take_weight(item, first, n, room.weight),
                           .grad = take(item->grad, first, n, room.grad),
                           .factor = item->factor,
                           .n = n};
    if (half_model) span.model = take(half_model, first, n, NULL);
    for (int i = 0; i < states; i++) span.state[i] = take(item->state[i], first, n, room.state[i]);
    job->run(job->constant, &span);
    for (int i = 0; i < states; i++) put(item->state[i], first, n, &span.state[i], room.state[i]);
    put(item->weight, first, n, &span.weight, room.weight);
    if (other_model) ab_narrow(ab_element(other_model, first), other_model->format, span.weight.data, n);
}

/* `chunk` counts the blocks of all items, one item after the other. */
static void update_chunk(void *argument, int64_t chunk, int thread) {
    const update_job *job = argument;
    int i = 0;
    (void)thread;
    while (chunk >= job->first[i + 1]) i++;
    update_block(job, &job->item[i], chunk - job->first[i]);
}

/* All items in one loop: many are so small that a loop of their own would be run by one thread. */
static void update_items(update_job *job, const ab_update_item *item, int items) {
    int64_t values = 0;
    job->item = item;
    job->first[0] = 0;
    for (int i = 0; i < items; i++) {
        const int64_t count = ab_tensor_count(item[i].weight);
        values += count * (2 + states_of(&item[i]));
        job->first[i + 1] = job->first[i] + ab_div_up(count, AB_BLOCK);
    }
    ab_for_chunks(values, job->first[items], update_chunk, job);
}

static bool updates(int kind) {
    return kind >= 0 && kind <= AB_UPDATE_LARC && ab_vec_update_get()->run[kind];
}

ab_status ab_cpu_update(const ab_update_item *item, int items, int kind, const ab_update_row *row) {
    if (!updates(kind)) return AB_UNAVAILABLE;
    update_job job = {.run = ab_vec_update_get()->run[kind], .constant = row->value};
    for (int i = 0; i < items; i += MOST_ITEMS)
        update_items(&job, item + i, (int)ab_min64(MOST_ITEMS, items - i));
    return AB_OK;
}
