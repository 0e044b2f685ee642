/* gru against its definition (oracle/recurrent.h). */
#include "oracle/recurrent.h"

/* The next hidden state of one sample. */
static void step(const recurrent_case *k, double *const *w, const double *x, double *h, double *c) {
    double by_input[3 * RECURRENT_WIDEST], by_state[3 * RECURRENT_WIDEST];
    (void)c;
    const int64_t n = k->hidden;
    for (int64_t g = 0; g < 3 * n; g++) {
        by_input[g] = k->bias ? w[2][g] : 0.0;
        by_state[g] = k->bias ? w[3][g] : 0.0;
        for (int64_t f = 0; f < k->features; f++) by_input[g] += w[0][g * k->features + f] * x[f];
        for (int64_t f = 0; f < n; f++) by_state[g] += w[1][g * n + f] * h[f];
    }
    for (int64_t j = 0; j < n; j++) {
        const double r = sigmoid_of(by_input[j] + by_state[j]),
                     z = sigmoid_of(by_input[n + j] + by_state[n + j]);
        h[j] = (1.0 - z) * tanh(by_input[2 * n + j] + r * by_state[2 * n + j]) + z * h[j];
    }
}

static const recurrent_op tested = {&ab_op_gru, step, 3, 0.06};

int main(void) { return run_recurrent_tests(); }
