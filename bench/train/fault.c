/* The list of selectable faults. */
#include "bench/train/fault.h"

#include "kernels/core/rng.h"
#include "kernels/core/text.h"

#include <math.h>
#include <string.h>

static const char *const names[] = {
#define AB_FAULT(id, text) #id,
#include "bench/train/faults.def"
#undef AB_FAULT
};

static const char *const texts[] = {
#define AB_FAULT(id, text) text,
#include "bench/train/faults.def"
#undef AB_FAULT
};

const char *ab_fault_name(int number) { return names[number]; }
const char *ab_fault_text(int number) { return texts[number]; }

ab_status ab_fault_add(const char *name, unsigned *set) {
    if (strcmp(name, "none") == 0) {
        *set = AB_FAULT_NONE;
        return AB_OK;
    }
    for (int i = 0; i < AB_FAULT_COUNT; i++) {
        if (strcmp(name, names[i]) != 0) continue;
        *set |= 1u << i;
        return AB_OK;
    }
    const char *near = ab_nearest(name, names, AB_FAULT_COUNT);
    return ab_fail(AB_USAGE, "--fault: there is no fault '%s'%s%s%s (see `ampbench list faults`)", name,
                   near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

/* Data faults. */

enum { ONE_IN = 1000, DIVIDED_SHARE = 28 };

static void put_nan(float *samples, const int64_t *index, int64_t n, int64_t each) {
    for (int64_t i = 0; i < n; i++)
        if (index[i] % ONE_IN == ONE_IN / 10) samples[i * each + each / 2] = NAN;
}

static void divide_by_zero(float *samples, int64_t n, int64_t each) {
    const int64_t divided = each / DIVIDED_SHARE > 0 ? each / DIVIDED_SHARE : 1;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < divided; j++) samples[i * each + j] = NAN; /* (x - mean) / 0 with x = mean */
}

/* A random label for `element` of a sample. */
static int32_t random_label(uint64_t seed, int64_t sample, int64_t element, int64_t classes) {
    return (int32_t)ab_rng_below(seed, AB_RNG_SYNTHETIC, (uint32_t)sample, (uint64_t)element + (1u << 30),
                                 (uint64_t)classes);
}

static void shuffle(const ab_data *data, uint64_t seed, const int64_t *index, int64_t n, void *targets) {
    const ab_data_shape *shape = &data->shape;
    const int64_t each = ab_shape_count(&shape->y);
    const int64_t tokens = shape->targets == AB_TARGETS_TOKENS ? shape->vocabulary : 0;
    const int64_t classes = tokens ? tokens : data->classes;
    if (shape->targets == AB_TARGETS_VALUES || classes < 2) return;
    for (int64_t i = 0; i < n; i++) {
        if (shape->targets == AB_TARGETS_ONE_HOT) {
            float *row = (float *)targets + i * each;
            memset(row, 0, (size_t)each * sizeof *row);
            row[random_label(seed, index[i], 0, each)] = 1.0f;
            continue;
        }
        for (int64_t j = 0; j < each; j++)
            ((int32_t *)targets)[i * each + j] = random_label(seed, index[i], j, classes);
    }
}

void ab_inject_data_fault(unsigned faults, const ab_data *data, uint64_t seed, const int64_t *index,
                          int64_t n, int64_t each, void *samples, void *targets) {
    const bool numbers = !ab_data_ids_in(&data->shape);
    if (faults & AB_FAULT_nan_inputs && numbers) put_nan(samples, index, n, each);
    if (faults & AB_FAULT_normalize_by_zero && numbers) divide_by_zero(samples, n, each);
    if (faults & AB_FAULT_shuffled_labels) shuffle(data, seed, index, n, targets);
}
