/* Shared by rnn, lstm and gru: parameters with torch's names, the fp32 arrays of a pass, the products of
 * inputs and states with the weights, and the gradients of weights and biases from the gradients of the sums
 * of all steps. A sum (a pre-activation) is what one gate adds up before its function; the ops implement the
 * step. Internal to kernels/. */
#ifndef AB_KERNELS_OPS_RECURRENT_RECURRENT_H
#define AB_KERNELS_OPS_RECURRENT_RECURRENT_H

#include "kernels/ops/blocks.h"

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

/* ---- a pass ---------------------------------------------------------------------------------- */

/* fp32 arrays in the workspace; those of a group of samples are slices of the batch's. An op's own follow. */
enum {
    AB_R_WEIGHTS_IN, /* copies of the tensors that are not fp32; the others are read in place */
    AB_R_WEIGHTS_HIDDEN,
    AB_R_INPUT,
    AB_R_DOUT,
    AB_R_DIN,
    AB_R_BIAS,   /* two rows, [2, width] */
    AB_R_BEFORE, /* [batch, steps, hidden]: hidden states of the previous step, as stored */
    AB_R_DWEIGHTS_IN,
    AB_R_DWEIGHTS_HIDDEN,
    AB_R_DBIAS,
    AB_R_OWN,
    AB_R_ARRAYS = AB_R_OWN + 5
};

typedef struct ab_recurrence {
    const ab_exec *exec;
    const ab_op_io *io;
    int64_t batch, steps, features, hidden;
    int64_t width;         /* sums of a step: gates x hidden */
    const ab_format *half; /* accumulate_half */
    float *array[AB_R_ARRAYS];
    const float *w_in, *w_hidden, *x, *dout; /* dout: set by backward */
} ab_recurrence;

/* Elements of the op's own arrays: size[i] for array[AB_R_OWN + i], zeros before. */
typedef void (*ab_recurrent_sizes)(const ab_recurrence *r, int64_t *size);

/* Workspace of an op with `gates` sums per hidden element. */
void ab_recurrent_measure(const ab_exec *exec, const ab_op_io *io, int64_t gates, ab_recurrent_sizes own,
                          size_t *workspace_bytes);

/* The arrays placed in the workspace, and weights and input as fp32. */
ab_recurrence ab_recurrent_start(const ab_exec *exec, const ab_op_io *io, int64_t gates,
                                 ab_recurrent_sizes own);

/* Elements of an fp32 copy of the tensor; 0 if it is NULL or already fp32. */
int64_t ab_recurrent_copy(const ab_tensor *tensor);

/* Work per group of samples, on all threads. The argument of `work` is r. */
void ab_recurrent_groups(ab_recurrence *r, ab_work work);

/* Returns the first sample of a group; *count receives the number of samples. */
int64_t ab_recurrent_group(int64_t batch, int64_t group, int64_t *count);

/* AB_R_BIAS begins with bias_ih + bias_hh, or 0 without biases. */
void ab_recurrent_biases(const ab_recurrence *r);

/* c += a w^T: w [columns, inner] contiguous, a [rows, inner]. */
void ab_recurrent_add_product(const ab_recurrence *r, const float *a, int64_t lda, const float *w,
                              int64_t inner, int64_t rows, int64_t columns, float *c, int64_t ldc);

/* c = d w + beta c: d [rows, width] the gradients of sums, w [width, columns] contiguous. */
void ab_recurrent_back_product(const ab_recurrence *r, const float *d, int64_t ldd, const float *w,
                               int64_t columns, int64_t rows, float *c, int64_t ldc, float beta);

/* The stored hidden states of the previous step of a group of samples, into AB_R_BEFORE. */
void ab_recurrent_previous(const ab_recurrence *r, int64_t first, int64_t samples);

/* Gradients of a group's inputs, if wanted, from d [batch, steps, width]. */
void ab_recurrent_input_gradient(const ab_recurrence *r, int64_t first, int64_t samples, const float *d);

/* Gradients of weights and biases, if wanted, from d [batch, steps, width] and the inputs and states before.
 * d_hidden: the same of what the hidden state adds to the sums, with dbias_hidden as scratch; NULL both: d.
 */
void ab_recurrent_weight_gradients(const ab_recurrence *r, const float *d, const float *d_hidden,
                                   float *dbias_hidden, ab_op_io *io);

/* ---- for the record -------------------------------------------------------------------------- */

/* Operations of a forward pass. */
double ab_recurrent_flops(int64_t gates, int64_t hidden, const ab_shape *in);

/* Implementation of the matrix product, for the record. */
const char *ab_recurrent_describe(const ab_op_io *io, const char *pass);

AB_END_DECLS

#endif
