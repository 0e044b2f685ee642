/* Sums over rows on the host: rows of a device are copied one by one where it has no reductions. */
#include "kernels/backend/row_sums.h"

#include "kernels/backend/backend.h"
#include "kernels/ops/blocks.h"

#include <math.h>
#include <string.h>

typedef struct row {
    float value[AB_ROW_UNITS];
    bool heard[AB_ROW_UNITS];
} row;

static double in_order(const double lane[AB_ROW_LANES]) {
    double sum = 0;
    for (int l = 0; l < AB_ROW_LANES; l++) sum += lane[l];
    return sum;
}

/* Returns the row's sum of squares. */
static double add_row(row *r, int64_t units, ab_row_sums *sums) {
    double lane[AB_ROW_LANES] = {0};
    for (int64_t j = 0; j < units; j++) {
        const double x = (double)r->value[j];
        sums->zero += x == 0;
        r->heard[j] = r->heard[j] || x != 0;
        if (!isfinite(x)) continue;
        sums->finite++;
        lane[j % AB_ROW_LANES] += x * x;
        sums->largest = fmax(sums->largest, fabs(x));
    }
    return in_order(lane);
}

static ab_status read_row(const ab_tensor *tensor, int64_t first, int64_t units, float *value) {
    ab_tensor one = *tensor;
    one.data = ab_element(tensor, first);
    one.shape = (ab_shape){1, {units}};
    return ab_tensor_read(&one, value);
}

static ab_status sum_rows(const ab_tensor *tensor, int64_t rows, ab_row_sums *sums) {
    const int64_t units = tensor->shape.dim[tensor->shape.ndim - 1], there = ab_tensor_count(tensor) / units;
    double lane[AB_ROW_LANES] = {0};
    row r;
    memset(r.heard, 0, sizeof r.heard);
    for (int64_t i = 0; i < rows; i++) {
        AB_TRY(read_row(tensor, i * there / rows * units, units, r.value));
        lane[i % AB_ROW_LANES] += add_row(&r, units, sums);
    }
    sums->squares = in_order(lane);
    for (int64_t j = 0; j < units; j++) sums->silent += !r.heard[j];
    return AB_OK;
}

ab_row_sums ab_row_sums_of(const ab_tensor *tensor, int64_t rows) {
    const ab_reductions *own = ab_backend_of(tensor->device)->reductions;
    ab_row_sums sums = {.finite = 0};
    if (own && own->row_sums(tensor, rows, &sums) == AB_OK) return sums;
    sums = (ab_row_sums){.finite = 0};
    if (sum_rows(tensor, rows, &sums) != AB_OK) sums = (ab_row_sums){.finite = 0};
    return sums;
}
