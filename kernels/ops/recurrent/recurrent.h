/* What rnn and lstm share: parameters as torch names them, the sum of the two biases, and the gradients of
 * weights and biases from those of the sums (or gates) of all steps. A step itself is the op's. Internal to
 * kernels/. */
#ifndef AB_KERNELS_OPS_RECURRENT_RECURRENT_H
#define AB_KERNELS_OPS_RECURRENT_RECURRENT_H

#include "kernels/ops/op.h"

AB_BEGIN_DECLS

enum { AB_W_IH, AB_W_HH, AB_B_IH, AB_B_HH, AB_RECURRENT_PARAMS };
enum {
    AB_RECURRENT_HIDDEN = 1 << 20 /* at most */,
    AB_RECURRENT_SAMPLES = 16 /* of a group that a thread takes */
};

/* [batch, steps, features] to [batch, steps, hidden]; `name` is in the message. */
AB_MUST_CHECK ab_status ab_recurrent_infer(const char *name, int64_t hidden, const ab_shape *in,
                                           ab_shape *out);

/* `gates` rows of weights for each element of the hidden state. */
int ab_recurrent_params(int64_t gates, int64_t hidden, bool bias, const ab_shape *in, ab_param_spec *spec);

/* Elements of an fp32 copy; 0 for what is absent or fp32 already. */
int64_t ab_recurrent_copy(const ab_tensor *tensor);

/* Samples of a group: the first and how many. */
int64_t ab_recurrent_group(int64_t batch, int64_t group, int64_t *count);

/* sum[n] = bias_ih + bias_hh, or 0; `other` has room for n too. */
void ab_recurrent_biases(const ab_op_io *io, int64_t n, float *sum, float *other);

typedef struct ab_recurrent_gradients {
    const ab_exec *exec;
    const ab_format *half;                 /* accumulate_half */
    int64_t rows, width, features, hidden; /* rows: batch x steps; width: gates x hidden */
    const float *d;                        /* [rows, width]: gradients of the sums */
    const float *x, *before;               /* [rows, features]; [rows, hidden]: states one step late */
    float *dw_in, *dw_hidden, *dbias;      /* room */
} ab_recurrent_gradients;

/* Gradients of weights and biases, into io->dparam where they are wanted. */
void ab_recurrent_weight_gradients(const ab_recurrent_gradients *g, ab_op_io *io);

/* Which product runs the op, for the record. */
const char *ab_recurrent_describe(const ab_op_io *io, const char *pass);

AB_END_DECLS

#endif
