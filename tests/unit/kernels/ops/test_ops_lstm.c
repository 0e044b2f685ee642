/* lstm against its definition (oracle/recurrent.h). */
#include "oracle/recurrent.h"

/* The next hidden and cell state of one sample. */
static void step(const recurrent_case *k, double *const *w, const double *x, double *h, double *c) {
    double gate[4 * RECURRENT_WIDEST];
    for (int64_t g = 0; g < 4 * k->hidden; g++) {
        gate[g] = k->bias ? w[2][g] + w[3][g] : 0.0;
        for (int64_t f = 0; f < k->features; f++) gate[g] += w[0][g * k->features + f] * x[f];
        for (int64_t f = 0; f < k->hidden; f++) gate[g] += w[1][g * k->hidden + f] * h[f];
    }
    for (int64_t j = 0; j < k->hidden; j++) {
        double i = sigmoid_of(gate[j]), f = sigmoid_of(gate[k->hidden + j]),
               g = tanh(gate[2 * k->hidden + j]);
        c[j] = f * c[j] + i * g;
        h[j] = sigmoid_of(gate[3 * k->hidden + j]) * tanh(c[j]);
    }
}

static const recurrent_op tested = {&ab_op_lstm, step, 4, 0.02};

int main(void) { return run_recurrent_tests(); }
