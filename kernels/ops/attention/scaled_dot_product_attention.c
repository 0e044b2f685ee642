/* scaled_dot_product_attention: softmax(scale q k^T + mask) v per head, as in torch.nn.functional. One op
 * instead of two products and a softmax: probabilities exist only in a thread's scratch, one block of queries
 * at a time. Backward recomputes them from the log-sum of each row (Dao et al. 2022, algorithm 2), the only
 * tensor saved besides the inputs.
 *
 * Inputs: {q, k, v} or {qkv}, then an optional mask. [batch, tokens, features] holds num_heads heads
 * concatenated (q, k and v concatenated in qkv); [batch, heads, tokens, features] is torch's layout. The mask
 * is broadcast to [batch, heads, queries, keys] from the right; an integer mask selects keys (0: masked out),
 * a floating mask is added. A masked-out score becomes -inf or, with mask_value, gets that value added after
 * rounding it to q's format, as in models that build masks by hand. A row with all keys masked out gives 0,
 * as in torch. To probe the logits, use matmul, softmax and matmul instead.
 *
 * fp32 inside; q, k, v, the result and the gradients are rounded once. Where describe says native, q k^T and
 * dout v^T are products of bf16 pairs; the other products have an fp32 operand. No gradient of the mask. */
#include "kernels/format/convert.h"
#include "kernels/ops/attention/attention.h"
#include "kernels/ops/blocks.h"
#include "kernels/vec/vec_math.h"

#include <math.h>
#include <string.h>

typedef struct attention_attrs {
    int64_t heads;
    bool causal;
    double scale, mask_value, dropout;
} attention_attrs;

enum { MAX_HEADS = 1 << 16 };

static const ab_attr attrs_table[] = {
    {"num_heads", AB_ATTR_INT, offsetof(attention_attrs, heads), false, 1, 1, MAX_HEADS,
     "heads that lie side by side in [batch, tokens, features]"},
    {"is_causal", AB_ATTR_BOOL, offsetof(attention_attrs, causal), false, 0, 0, 1,
     "queries see keys up to their own position"},
    {"scale", AB_ATTR_FLOAT, offsetof(attention_attrs, scale), false, 0, 0, 1e6,
     "factor of the products; 0: 1 / sqrt(features of a head)"},
    {"mask_value", AB_ATTR_FLOAT, offsetof(attention_attrs, mask_value), false, 0, -3.5e38, 0,
     "added where the mask or is_causal says no; 0: -inf"},
    {"dropout_p", AB_ATTR_FLOAT, offsetof(attention_attrs, dropout), false, 0, 0, 0.99,
     "share of the probabilities that become 0 in training"},
    {0}};

/* ---- shapes ---------------------------------------------------------------------------------- */

static bool is_packed(int inputs) { return inputs <= 2; }

static ab_status fail_shape(const ab_shape *in, const char *what) {
    char text[AB_SHAPE_TEXT];
    return ab_fail(AB_CONFIG, "scaled_dot_product_attention: %s, found %s", what, ab_shape_text(in, text));
}

/* Batch, heads, tokens, features per head; parts: number of concatenated tensors. */
static void split_shape(const ab_shape *s, int64_t heads, int64_t parts, int64_t dim[4]) {
    bool four = s->ndim == 4;
    dim[0] = s->dim[0];
    dim[1] = four ? s->dim[1] : heads;
    dim[2] = s->dim[s->ndim - 2];
    dim[3] = four ? s->dim[3] : s->dim[2] / parts / heads;
}

static ab_status check_mask(const ab_shape *mask, const int64_t dim[4]) {
    for (int i = 0; i < mask->ndim && mask->ndim <= 4; i++) {
        int64_t wanted = dim[4 - mask->ndim + i];
        if (mask->dim[i] != wanted && mask->dim[i] != 1)
            return fail_shape(mask, "expected a mask that can be broadcast to [batch, heads, queries, keys]");
    }
    return mask->ndim <= 4 ? AB_OK : fail_shape(mask, "expected a mask of at most 4 dimensions");
}

static ab_status infer_packed(const attention_attrs *a, const ab_shape *in, int inputs, ab_shape *out) {
    int64_t dim[4];
    if (in->ndim != 3 || in->dim[2] % (3 * a->heads) != 0)
        return fail_shape(in, "expected q, k and v or [batch, tokens, 3 num_heads features]");
    *out = *in;
    out->dim[2] /= 3;
    split_shape(in, a->heads, 3, dim);
    dim[3] = dim[2]; /* keys */
    return inputs == 2 ? check_mask(&in[1], dim) : AB_OK;
}

static ab_status infer_three(const attention_attrs *a, const ab_shape *in, int inputs, ab_shape *out) {
    int64_t dim[3][4];
    for (int i = 0; i < 3; i++) {
        bool three = in[i].ndim == 3;
        if ((!three && in[i].ndim != 4) || in[i].ndim != in[0].ndim ||
            (three && in[i].dim[2] % a->heads != 0))
            return fail_shape(&in[i], "expected q, k and v as [batch, tokens, num_heads features] or [batch, "
                                      "heads, tokens, features]");
        split_shape(&in[i], a->heads, 1, dim[i]);
    }
    for (int i = 1; i < 3; i++)
        if (dim[i][0] != dim[0][0] || dim[i][1] != dim[0][1])
            return fail_shape(&in[i], "expected k and v with the batch and heads of q");
    if (dim[1][3] != dim[0][3]) return fail_shape(&in[1], "expected k with the features of q");
    if (dim[2][2] != dim[1][2]) return fail_shape(&in[2], "expected v with the tokens of k");
    *out = in[0];
    out->dim[out->ndim - 1] = in[2].dim[in[2].ndim - 1];
    int64_t scores[4] = {dim[0][0], dim[0][1], dim[0][2], dim[1][2]};
    return inputs == 4 ? check_mask(&in[3], scores) : AB_OK;
}

static ab_status infer(const void *attrs, const ab_shape *in, int inputs, ab_shape *out) {
    AB_TRY((is_packed(inputs) ? infer_packed : infer_three)(attrs, in, inputs, out));
    int64_t heads = in->ndim == 4 ? in->dim[1] : ((const attention_attrs *)attrs)->heads;
    int64_t keys = in[is_packed(inputs) ? 0 : 1].dim[in->ndim - 2];
    double scores = (double)in->dim[0] * (double)heads * (double)in->dim[in->ndim - 2] * (double)keys;
    return scores <= 0x1p34 ? AB_OK : fail_shape(in, "expected at most 2^34 products of queries and keys");
}

static int saved(const void *attrs, const ab_shape *in, const ab_shape *out, ab_shape *shape,
                 const ab_format **format) {
    int64_t heads = in->ndim == 4 ? in->dim[1] : ((const attention_attrs *)attrs)->heads;
    shape[0] = (ab_shape){.ndim = 3, .dim = {in->dim[0], heads, out->dim[out->ndim - 2]}};
    format[0] = &ab_format_fp32;
    return 1;
}

/* ---- geometry -------------------------------------------------------------------------------- */

/* View of part `part` of `parts` of a tensor. */
static ab_heads heads_of(const ab_tensor *tensor, int64_t heads, int64_t part, int64_t parts) {
    int64_t dim[4];
    split_shape(&tensor->shape, heads, parts, dim);
    ab_heads h = {.tensor = tensor, .rows = dim[2], .width = dim[3]};
    bool four = tensor->shape.ndim == 4;
    h.row_step = four ? dim[3] : parts * heads * dim[3];
    h.head_step = four ? dim[2] * dim[3] : dim[3];
    h.batch_step = (four ? dim[1] : 1) * dim[2] * h.row_step;
    h.offset = part * heads * dim[3];
    return h;
}

static ab_mask mask_of(const ab_tensor *tensor, int64_t keys) {
    ab_mask m = {.tensor = tensor, .keys = keys};
    int64_t step = 1;
    for (int i = tensor->shape.ndim - 1, axis = 3; i >= 0; i--, axis--) {
        m.step[axis] = tensor->shape.dim[i] == 1 ? 0 : step;
        step *= tensor->shape.dim[i];
    }
    return m;
}

static float mask_value_of(const ab_op_io *io, const attention_attrs *a) {
    float value = a->mask_value == 0.0 ? -INFINITY : (float)a->mask_value;
    static const ab_rounding nearest = {.mode = AB_ROUND_NEAREST_EVEN};
    if (!ab_is_f32(io->in[0])) ab_round_array(&value, io->in[0]->format, &nearest, 1);
    return value;
}

static int inputs_of(const ab_op_io *io) {
    if (!io->in[1]) return 1;
    if (!io->in[2]) return 2;
    return io->in[3] ? 4 : 3;
}

static const char by_pairs[] = "native+own:avx512_bf16";

static ab_attention attention_of(const ab_exec *exec, const ab_op_io *io) {
    const attention_attrs *a = io->attrs;
    int inputs = inputs_of(io);
    int64_t parts = is_packed(inputs) ? 3 : 1, heads = a->heads;
    ab_attention t = {.exec = exec, .batch = io->in[0]->shape.dim[0], .causal = a->causal};
    for (int i = 0; i < 3; i++) {
        int from = parts == 3 ? 0 : i;
        t.in[i] = heads_of(io->in[from], heads, parts == 3 ? i : 0, parts);
        if (io->din[from]) t.din[i] = heads_of(io->din[from], heads, parts == 3 ? i : 0, parts);
    }
    t.out = heads_of(io->out, heads, 0, 1);
    if (io->dout) t.dout = heads_of(io->dout, heads, 0, 1);
    t.heads = io->in[0]->shape.ndim == 4 ? io->in[0]->shape.dim[1] : heads;
    t.scale = a->scale == 0.0 ? (float)(1.0 / sqrt((double)t.in[0].width)) : (float)a->scale;
    t.masked = mask_value_of(io, a);
    if (inputs % 2 == 0) t.mask = mask_of(io->in[inputs - 1], t.in[1].rows);
    t.log_sum = io->saved[0] ? io->saved[0]->data : NULL;
    t.half = exec->accumulate_half && !ab_is_f32(io->out) ? io->out->format : NULL;
    bool drops = exec->training && a->dropout > 0.0;
    t.dropout = (ab_dropout){exec->seed, exec->step, io->instance, 0, (float)(1.0 / (1.0 - a->dropout))};
    t.dropout.threshold = drops ? (uint32_t)ceil(a->dropout * 0x1p24) : 0;
    t.may_drop = a->dropout > 0.0;
    t.pairs = io->state == by_pairs;
    return t;
}

/* ---- the op ---------------------------------------------------------------------------------- */

/* For describe: who computes the products, and whether operands are widened. by_pairs: see attention.h. */
static const char *text_of(const ab_exec *exec, const ab_op_io *io, const ab_attention *t) {
    const bool wide = ab_is_f32(io->in[0]) && ab_is_f32(io->out);
    const ab_gemm scores = ab_attention_product(t);
    if (ab_attention_pairs(t)) return by_pairs;
    return ab_gemm_text(&scores, exec->path, t->half, !wide);
}

static ab_status prepare(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes, size_t *state_bytes) {
    int inputs = inputs_of(io);
    for (int i = 0; i < (is_packed(inputs) ? 1 : 3); i++)
        if (!io->in[i]->format)
            return ab_fail(AB_CONFIG, "scaled_dot_product_attention: input %d holds ids, expected numbers",
                           i);
    if (inputs % 2 == 0 && io->din[inputs - 1])
        return ab_fail(AB_CONFIG,
                       "scaled_dot_product_attention gives its mask no gradient; write it with matmul, "
                       "add and softmax to train a mask");
    ab_attention t = attention_of(exec, io);
    union {
        const char *text;
        void *state;
    } describes = {.text = text_of(exec, io, &t)};
    io->state = describes.state; /* constant text: nothing to release */
    *workspace_bytes = (size_t)ab_parallel_threads() * ab_attention_thread_bytes(&t);
    *state_bytes = 0;
    return AB_OK;
}

static ab_status forward(const ab_exec *exec, ab_op_io *io) {
    ab_attention t = attention_of(exec, io);
    ab_attention_forward(&t);
    return AB_OK;
}

static ab_status backward(const ab_exec *exec, ab_op_io *io) {
    ab_attention t = attention_of(exec, io);
    if (io->din[0] || io->din[1] || io->din[2]) ab_attention_backward(&t);
    return AB_OK;
}

/* Pairs of a query and a key that it may see. Uses in's tokens as the number of keys, since flops does not
 * see the shape of k. With a finite mask_value queries see every key. */
static double visible_pairs(const attention_attrs *a, const ab_shape *in, const ab_shape *out) {
    int64_t dim[4];
    split_shape(out, a->heads, 1, dim);
    const double heads = (double)(dim[0] * dim[1]), queries = (double)dim[2],
                 keys = (double)in->dim[in->ndim - 2];
    return heads * (a->causal && a->mask_value == 0.0 ? queries * (queries + 1) / 2 : queries * keys);
}

/* One product of the scores' size, of vectors as wide as those of v. */
static double product_flops(const attention_attrs *a, const ab_shape *in, const ab_shape *out) {
    int64_t dim[4];
    split_shape(out, a->heads, 1, dim);
    return 2.0 * (double)dim[3] * visible_pairs(a, in, out);
}

enum { FORWARD_PRODUCTS = 2, BACKWARD_PRODUCTS = 5 /* the scores again */ };

static double flops(const void *attrs, const ab_shape *in, const ab_shape *out) {
    return FORWARD_PRODUCTS * product_flops(attrs, in, out);
}

/* Probabilities and the gradients of scores are fp32: P v; P^T dout, dS k, dS^T q. */
static double wide_flops(const void *attrs, const ab_shape *in, const ab_shape *out, bool backward) {
    return (backward ? 3 : 1) * product_flops(attrs, in, out);
}

/* Backward computes the probabilities again. */
static void elementary(const void *attrs, const ab_shape *in, const ab_shape *out, bool backward,
                       double count[AB_ELEMENTARY_COUNT]) {
    (void)backward;
    count[AB_ELEMENTARY_EXP] += visible_pairs(attrs, in, out);
}

static const char *describe(const ab_op_io *io, const char *pass) {
    (void)pass;
    return io->state;
}

const ab_op ab_op_scaled_dot_product_attention = {.name = "scaled_dot_product_attention",
                                                  .inputs = 1,
                                                  .optional_inputs = 3,
                                                  .maybe_integer = 1u << 1 | 1u << 3,
                                                  .attrs_bytes = sizeof(attention_attrs),
                                                  .attrs = attrs_table,
                                                  .infer = infer,
                                                  .saved = saved,
                                                  .backward_needs = 15u,
                                                  .prepare = prepare,
                                                  .forward = forward,
                                                  .backward = backward,
                                                  .flops = flops,
                                                  .backward_ratio =
                                                      (double)BACKWARD_PRODUCTS / FORWARD_PRODUCTS,
                                                  .wide_flops = wide_flops,
                                                  .elementary = elementary,
                                                  .describe = describe};
