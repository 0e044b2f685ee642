/* Squares in blocks that are widened in cache, on one thread. */
#include "kernels/backend/squares.h"

#include "kernels/ops/blocks.h"
#include "kernels/vec/vec_ops.h"

double ab_squares_of(const ab_tensor *tensor, float factor) {
    double lane[AB_SQUARE_LANES] = {0}, sum = 0;
    float buffer[AB_BLOCK];
    const int64_t count = ab_tensor_count(tensor);
    for (int64_t first = 0; first < count; first += AB_BLOCK) {
        const int64_t n = ab_min64(AB_BLOCK, count - first);
        ab_vec_ops_get()->squares(lane, ab_read(tensor, first, n, buffer), factor, n);
    }
    for (int k = 0; k < AB_SQUARE_LANES; k++) sum += lane[k];
    return sum;
}
