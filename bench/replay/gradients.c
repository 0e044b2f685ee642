/* Steps of a recorded run, wherever they come from. */
#include "bench/replay/gradients.h"

#include <stdlib.h>

ab_status ab_recorded_add(ab_recorded *recorded, const ab_recorded_step *step, int64_t count) {
    if (count > AB_RECORDED_STEPS - recorded->steps)
        return ab_fail(AB_INPUT, "scaler: expected at most %d recorded steps", AB_RECORDED_STEPS);
    if (recorded->steps + count > recorded->capacity) {
        const int64_t capacity = 2 * (recorded->steps + count);
        ab_recorded_step *grown = realloc(recorded->step, (size_t)capacity * sizeof *grown);
        if (!grown) return ab_fail(AB_NO_MEMORY, "scaler: out of memory for the recorded steps");
        recorded->step = grown;
        recorded->capacity = capacity;
    }
    while (count-- > 0) recorded->step[recorded->steps++] = *step;
    return AB_OK;
}

void ab_recorded_free(ab_recorded *recorded) {
    free(recorded->step);
    free(recorded->layer);
    free(recorded->mass);
    *recorded = (ab_recorded){.steps = 0};
}
