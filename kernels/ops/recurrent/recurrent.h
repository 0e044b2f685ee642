/* Shared by rnn, lstm and gru: parameters with torch's names, the sum of the two biases, and the gradients of
 * weights and biases from the pre-activation (or gate) gradients of all steps. The ops implement the step.
 * Internal to kernels/. */
#ifndef AB_KERNELS_OPS_RECURRENT_RECURRENT_H
#define AB_KERNELS_OPS_RECURRENT_RECURRENT_H

#include "kernels/ops/op.h"

AB_BEGIN_DECLS

enum { AB_W_IH, AB_W_HH, AB_B_IH, AB_B_HH, AB_RECURRENT_PARAMS };
enum {
    AB_RECURRENT_HIDDEN = 1 << 20 /* maximum hidden size */,
    AB_RECURRENT_SAMPLES = 16 /* samples per group; a thread processes one group at a time */
};

/* [batch, steps, features] to [batch, steps, hidden]; `name` is used in error messages. */
AB_MUST_CHECK ab_status ab_recurrent_infer(const char *name, int64_t hidden, const ab_shape *in,
                                           ab_shape *out);

/* Parameters with `gates` rows of weights per hidden element. */
int ab_recurrent_params(int64_t gates, int64_t hidden, bool bias, const ab_shape *in, ab_param_spec *spec);

/* Elements of an fp32 copy of the tensor; 0 if it is NULL or already fp32. */
int64_t ab_recurrent_copy(const ab_tensor *tensor);

/* Returns the first sample of a group; *count receives the number of samples. */
int64_t ab_recurrent_group(int64_t batch, int64_t group, int64_t *count);

/* sum[n] = bias_ih + bias_hh, or 0 without biases; `other` is a scratch array of n elements. */
void ab_recurrent_biases(const ab_op_io *io, int64_t n, float *sum, float *other);

/* before[i], [steps, hidden] for each sample of the batch: the stored hidden states of the previous step,
 * those of a group of samples. */
void ab_recurrent_previous(const ab_op_io *io, int64_t first, int64_t samples, float *before);

typedef struct ab_recurrent_gradients {
    const ab_exec *exec;
    const ab_format *half;                 /* accumulate_half */
    int64_t rows, width, features, hidden; /* rows: batch x steps; width: gates x hidden */
    const float *d;                        /* [rows, width]: pre-activation gradients */
    const float *d_hidden;                 /* the same of what the hidden state adds to them; NULL: d */
    const float *x, *before; /* [rows, features]; [rows, hidden]: hidden states of the previous step */
    float *dw_in, *dw_hidden, *dbias; /* scratch */
    float *dbias_hidden;              /* scratch, with d_hidden; NULL without */
} ab_recurrent_gradients;

/* Gradients of weights and biases, written to io->dparam if wanted. */
void ab_recurrent_weight_gradients(const ab_recurrent_gradients *g, ab_op_io *io);

/* Implementation of the matrix product, for the record. */
const char *ab_recurrent_describe(const ab_op_io *io, const char *pass);

AB_END_DECLS

#endif
