/* The optimizer step on the CPU: every block of a parameter is read, unscaled, updated and stored, and its
 * copy in the model's format rounded, while it is in cache. */
#include "kernels/backend/update_cpu.h"

#include "kernels/backend/vec_update.h"
#include "kernels/format/convert.h"
#include "kernels/ops/blocks.h"
#include "kernels/vec/isa.h"

AB_BY_ISA(ab_vec_update, ab_vec_update)

typedef struct update_job {
    const ab_update_item *item;
    void (*run)(const float *c, const ab_update_span *span);
    const float *constant;
    int states;
} update_job;

/* fp32 room for one block of tensors that are stored in other formats. */
typedef struct block_room {
    float weight[AB_BLOCK], grad[AB_BLOCK], state[AB_UPDATE_VALUES - 1][AB_BLOCK];
} block_room;

/* Values of a block to update: the tensor's own, or widened to `room`. */
static float *take(const ab_tensor *tensor, int64_t first, int64_t n, float *room) {
    ab_read(tensor, first, n, room);
    return ab_target(tensor, first, room);
}

static void put(const ab_tensor *tensor, int64_t first, int64_t n, const float *values) {
    if (!ab_is_f32(tensor)) ab_narrow(ab_element(tensor, first), tensor->format, values, n);
}

static void update_block(void *argument, int64_t block, int thread) {
    const update_job *job = argument;
    const ab_update_item *item = job->item;
    const int64_t first = block * AB_BLOCK, n = ab_min64(AB_BLOCK, ab_tensor_count(item->weight) - first);
    block_room room;
    (void)thread;
    ab_update_span span = {.weight = take(item->weight, first, n, room.weight),
                           .grad = ab_read(item->grad, first, n, room.grad),
                           .factor = item->factor,
                           .n = n};
    for (int i = 0; i < job->states; i++) span.state[i] = take(item->state[i], first, n, room.state[i]);
    job->run(job->constant, &span);
    for (int i = 0; i < job->states; i++) put(item->state[i], first, n, span.state[i]);
    put(item->weight, first, n, span.weight);
    if (item->model) ab_narrow(ab_element(item->model, first), item->model->format, span.weight, n);
}

static int states_of(const ab_update_item *item) {
    int states = 0;
    while (states < AB_UPDATE_VALUES - 1 && item->state[states]) states++;
    return states;
}

static bool updates(int kind) {
    return kind >= 0 && kind <= AB_UPDATE_LARC && ab_vec_update_get()->run[kind];
}

ab_status ab_cpu_update(const ab_update_item *item, int items, int kind, const ab_update_row *row) {
    if (!updates(kind)) return AB_UNAVAILABLE;
    for (int i = 0; i < items; i++) {
        update_job job = {&item[i], ab_vec_update_get()->run[kind], row->value, states_of(&item[i])};
        const int64_t count = ab_tensor_count(item[i].weight);
        ab_for_chunks(count, ab_div_up(count, AB_BLOCK), update_block, &job);
    }
    return AB_OK;
}
