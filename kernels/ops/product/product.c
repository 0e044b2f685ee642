/* Selects and runs the three products of conv2d and linear; see product.h. */
#include "kernels/ops/product/product.h"

#include "kernels/core/text.h"
#include "kernels/ops/blocks.h"
#include "kernels/ops/product/bf16_unit.h"
#include "kernels/ops/product/nonfinite.h"
#include "kernels/ops/product/pass.h"
#include "kernels/ops/rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One of the three products. */
typedef struct prepared {
    ab_pass *pass;             /* NULL: not wanted */
    const ab_format *operands; /* format the pass reads: fp32 or, if native, the half format */
    bool converts;             /* a tensor of the product is not fp32 */
    void *packed;              /* weights in the pass's layout, in state memory */
    bool fresh;                /* packed is valid */
    uint64_t version;          /* version of the packed parameters */
    char text[AB_PASS_TEXT + 16];
} prepared;

typedef struct product {
    const ab_product_kind *kind;
    prepared of[AB_PASSES];
    prepared wide; /* fp32 copy of half weights in torch's layout, for passes that read plain weights */
    bool keep_wide;
    ab_conv conv;
    prepared weights_checked; /* version of the weights for which weights_finite holds */
    bool weights_finite;
} product;

ab_conv ab_conv_of_linear(int64_t rows, int64_t features, int64_t out_features) {
    return (ab_conv){.window = {.in = {1, 1},
                                .out = {1, 1},
                                .kernel = {1, 1},
                                .stride = {1, 1},
                                .dilation = {1, 1},
                                .channels = features},
                     .batch = rows,
                     .out_channels = out_features,
                     .groups = 1};
}

/* ---- choice ---------------------------------------------------------------------------------- */

/* The half format of both tensors, or NULL. */
static const ab_format *common_half(const ab_tensor *a, const ab_tensor *b) {
    return a->format == b->format && !ab_is_f32(a) ? a->format : NULL;
}

static void drop(ab_pass **pass) {
    if (*pass) (*pass)->destroy(*pass);
    *pass = NULL;
}

/* Whether tiles of 16 rows by 32 halves lose to fp32 vectors: convolutions with fewer input channels than a
 * tile has rows (weight gradients), or with so few at both ends that our own kernels compute them (forward).
 */
static bool tiles_too_wide(const ab_pass_spec *spec) {
    enum { TILE_ROWS = 16, FEW = 4, NARROW = 8 };
    const ab_window *w = &spec->conv.window;
    const int64_t channels = w->channels / spec->conv.groups;
    if (w->kernel[0] * w->kernel[1] == 1) return false;
    if (spec->kind == AB_PASS_BACKWARD_WEIGHTS) return channels < TILE_ROWS;
    return spec->kind == AB_PASS_FORWARD && channels < FEW && spec->conv.out_channels <= NARROW;
}

/* Whether a pass of the library computes halves faster than fp32: in tiles, or in vectors of pairs where
 * those pay. */
static bool accelerated(const ab_pass *pass) {
    const ab_bf16_unit *unit = ab_bf16_unit_get(false);
    if (strstr(pass->text, "amx")) return true;
    return unit && unit == ab_bf16_unit_avx512() && strstr(pass->text, "avx512_core_bf16");
}

/* Native: our own product of bf16 pairs, or the library's primitive for the half type. AUTO uses the latter
 * only where the type is hardware-accelerated and the layer fills the tiles. */
static ab_status try_native(const ab_exec *exec, const ab_product_kind *kind, const ab_pass_spec *spec,
                            ab_pass **pass) {
    if (exec->path != AB_PATH_AUTO && exec->path != AB_PATH_NATIVE) return AB_OK;
    if (kind->bf16) AB_TRY(kind->bf16(spec, pass));
    if (*pass || (exec->path == AB_PATH_AUTO && tiles_too_wide(spec))) return AB_OK;
    AB_TRY(ab_sliced_pass(kind->library, spec, pass));
    if (exec->path == AB_PATH_NATIVE && !*pass && !exec->sizes_only)
        return ab_fail(AB_UNAVAILABLE,
                       "%s: no native %s implementation for this shape on this machine; use the path "
                       "auto or convert",
                       kind->what, spec->operands->name);
    if (exec->path == AB_PATH_AUTO && *pass && !accelerated(*pass)) drop(pass);
    return AB_OK;
}

static ab_status try_fp32(const ab_exec *exec, const ab_product_kind *kind, const ab_pass_spec *spec,
                          ab_pass **pass) {
    if (exec->path != AB_PATH_REFERENCE && kind->own) AB_TRY(kind->own(spec, pass));
    if (exec->path != AB_PATH_REFERENCE && !*pass) AB_TRY(ab_sliced_pass(kind->library, spec, pass));
    return *pass ? AB_OK : ab_reference_pass(spec, pass);
}

/* Makes the pass for `spec`. a and b are the operands, dst receives the result. */
static ab_status choose(const ab_exec *exec, product *p, ab_pass_spec spec, const ab_tensor *a,
                        const ab_tensor *b, const ab_tensor *dst) {
    prepared *q = &p->of[spec.kind];
    const ab_format *half = common_half(a, b);
    bool converts = !ab_is_f32(a) || !ab_is_f32(b) || !ab_is_f32(dst);
    spec.stored = converts;
    if (exec->accumulate_half && !ab_is_f32(dst)) {
        spec.accumulate = dst->format;
        AB_TRY(ab_reference_pass(&spec, &q->pass));
    } else if (half) {
        spec.operands = half;
        spec.native = exec->path == AB_PATH_NATIVE;
        AB_TRY(try_native(exec, p->kind, &spec, &q->pass));
    }
    const char *prefix = q->pass && spec.operands == half ? "native+" : converts ? "convert+" : "";
    if (!q->pass) {
        spec.operands = &ab_format_fp32;
        AB_TRY(try_fp32(exec, p->kind, &spec, &q->pass));
    }
    q->operands = spec.operands;
    q->converts = converts;
    ab_text_show(q->text, sizeof q->text, "%s%s", prefix, q->pass->text);
    return AB_OK;
}

static ab_status choose_all(const ab_exec *exec, const ab_op_io *io, product *p, const ab_conv *conv) {
    ab_pass_spec spec = {.conv = *conv,
                         .bias = io->param[1] != NULL,
                         .operands = &ab_format_fp32,
                         .sizes_only = exec->sizes_only};
    spec.kind = AB_PASS_FORWARD;
    AB_TRY(choose(exec, p, spec, io->in[0], io->param[0], io->out));
    spec.kind = AB_PASS_BACKWARD_DATA;
    if (io->din[0]) AB_TRY(choose(exec, p, spec, io->dout, io->param[0], io->din[0]));
    spec.kind = AB_PASS_BACKWARD_WEIGHTS;
    const ab_tensor *made = io->dparam[0] ? io->dparam[0] : io->dparam[1];
    if (made) AB_TRY(choose(exec, p, spec, io->dout, io->in[0], made));
    return AB_OK;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Allocates 64-byte aligned pieces of `base`; with base NULL only counts bytes. */
typedef struct cursor {
    char *base;
    size_t used;
} cursor;

static void *take(cursor *c, size_t bytes) {
    void *piece = c->base && bytes ? c->base + c->used : NULL;
    c->used += ab_aligned(bytes);
    return piece;
}

/* An fp32 copy of the tensor, or NULL if the pass reads it as stored. */
static float *take_copy(cursor *c, const prepared *q, const ab_tensor *tensor) {
    bool as_stored = q->operands == tensor->format || ab_is_f32(tensor);
    return take(c, as_stored ? 0 : ab_floats_bytes(ab_tensor_count(tensor)));
}

/* Where fp32 results for `tensor` go: the tensor itself if it is fp32. An unwanted result (NULL) still needs
 * a buffer. */
static float *take_result(cursor *c, const ab_tensor *tensor, const ab_tensor *shaped) {
    return take(c, tensor && ab_is_f32(tensor) ? 0 : ab_floats_bytes(ab_tensor_count(shaped)));
}

/* Buffer to widen half weights before packing. */
static float *take_plain(cursor *c, const product *p, const prepared *q, const ab_tensor *weights) {
    return p->keep_wide ? NULL : take_copy(c, q, weights);
}

typedef struct buffers {
    float *src, *dout, *dst, *bias, *plain;
    void *scratch;
} buffers;

static buffers forward_buffers(const product *p, const ab_op_io *io, cursor *c) {
    const prepared *q = &p->of[AB_PASS_FORWARD];
    buffers b = {.src = take_copy(c, q, io->in[0]), .dst = take_result(c, io->out, io->out)};
    if (io->param[1]) b.bias = take_result(c, io->param[1], io->param[1]);
    b.plain = take_plain(c, p, q, io->param[0]);
    b.scratch = take(c, q->pass->scratch_bytes);
    return b;
}

static buffers data_buffers(const product *p, const ab_op_io *io, cursor *c) {
    const prepared *q = &p->of[AB_PASS_BACKWARD_DATA];
    buffers b = {.dst = take_result(c, io->din[0], io->din[0]), .plain = take_plain(c, p, q, io->param[0])};
    b.scratch = take(c, q->pass->scratch_bytes);
    return b;
}

static buffers weight_buffers(const product *p, const ab_op_io *io, cursor *c) {
    const prepared *q = &p->of[AB_PASS_BACKWARD_WEIGHTS];
    buffers b = {.src = take_copy(c, q, io->in[0]), .dst = take_result(c, io->dparam[0], io->param[0])};
    if (io->param[1]) b.bias = take_result(c, io->dparam[1], io->param[1]);
    size_t sums = io->param[1] && !q->pass->sums_bias ? ab_rows_sum_bytes(io->dout) : 0;
    b.scratch = take(c, q->pass->scratch_bytes > sums ? q->pass->scratch_bytes : sums);
    return b;
}

/* Memory for an fp32 copy of dout, shared by both backward passes. */
static float *take_dout(const product *p, const ab_op_io *io, cursor *c) {
    static const ab_pass_kind kinds[] = {AB_PASS_BACKWARD_DATA, AB_PASS_BACKWARD_WEIGHTS};
    for (size_t i = 0; i < AB_COUNT_OF(kinds); i++)
        if (p->of[kinds[i]].pass && p->of[kinds[i]].operands != io->dout->format)
            return take_copy(c, &p->of[kinds[i]], io->dout);
    return NULL;
}

static size_t workspace_needed(const product *p, const ab_op_io *io) {
    cursor forward = {0}, data = {0}, weights = {0};
    forward_buffers(p, io, &forward);
    if (p->of[AB_PASS_BACKWARD_DATA].pass) {
        take_dout(p, io, &data);
        data_buffers(p, io, &data);
    }
    if (p->of[AB_PASS_BACKWARD_WEIGHTS].pass) {
        take_dout(p, io, &weights);
        weight_buffers(p, io, &weights);
    }
    size_t backward = data.used > weights.used ? data.used : weights.used;
    return forward.used > backward ? forward.used : backward;
}

/* Half weights that a pass reads as plain fp32 are widened once per version, not per use. */
static bool needs_wide(const product *p, const ab_tensor *weights) {
    for (int k = AB_PASS_FORWARD; k <= AB_PASS_BACKWARD_DATA; k++) {
        const prepared *q = &p->of[k];
        if (q->pass && q->pass->packed_bytes == 0 && !q->pass->takes_stored_weights &&
            q->operands != weights->format)
            return true;
    }
    return false;
}

static void place_state(product *p, const ab_op_io *io, cursor *c) {
    if (p->keep_wide) p->wide.packed = take(c, ab_floats_bytes(ab_tensor_count(io->param[0])));
    for (int k = AB_PASS_FORWARD; k <= AB_PASS_BACKWARD_DATA; k++)
        if (p->of[k].pass) p->of[k].packed = take(c, p->of[k].pass->packed_bytes);
}

ab_status ab_product_prepare(const ab_exec *exec, ab_op_io *io, const ab_product_kind *kind,
                             const ab_conv *conv, size_t *workspace_bytes, size_t *state_bytes) {
    product *p = calloc(1, sizeof *p);
    if (!p) return ab_fail(AB_NO_MEMORY, "%s: cannot allocate its state", kind->what);
    p->kind = kind;
    p->conv = *conv;
    io->state = p;
    ab_status status = choose_all(exec, io, p, conv);
    if (status != AB_OK) {
        ab_product_release(io);
        return status;
    }
    p->keep_wide = needs_wide(p, io->param[0]);
    cursor state = {0};
    place_state(p, io, &state);
    *workspace_bytes = workspace_needed(p, io);
    *state_bytes = state.used;
    return AB_OK;
}

void ab_product_bind(ab_op_io *io, void *state_memory) {
    cursor state = {.base = state_memory};
    place_state(io->state, io, &state);
}

void ab_product_release(ab_op_io *io) {
    product *p = io->state;
    if (!p) return;
    for (int k = 0; k < AB_PASSES; k++) drop(&p->of[k].pass);
    free(p);
    io->state = NULL;
}

/* ---- running --------------------------------------------------------------------------------- */

/* The tensor in the format the pass reads. */
static const void *operand(const prepared *q, const ab_tensor *tensor, float *copy) {
    return q->operands == tensor->format ? tensor->data : ab_view_f32(tensor, copy);
}

static bool stale(const prepared *q, uint64_t version) { return !q->fresh || q->version != version; }

static void freshen(prepared *q, uint64_t version) {
    q->fresh = true;
    q->version = version;
}

/* Weights in torch's layout in the format the pass reads. */
static const void *plain_weights(product *p, const prepared *q, const ab_op_io *io, float *temporary) {
    const ab_tensor *weights = io->param[0];
    if (q->operands == weights->format || !p->keep_wide) return operand(q, weights, temporary);
    if (stale(&p->wide, io->params_version)) {
        ab_view_f32(weights, p->wide.packed);
        freshen(&p->wide, io->params_version);
    }
    return p->wide.packed;
}

/* Weights for the pass, repacked if the parameters have changed. */
static ab_status pass_weights(product *p, prepared *q, const ab_op_io *io, const buffers *b,
                              const void **weights) {
    *weights = q->packed;
    if (q->pass->packed_bytes == 0) {
        *weights = plain_weights(p, q, io, b->plain);
    } else if (stale(q, io->params_version)) {
        AB_TRY(q->pass->pack(q->pass, plain_weights(p, q, io, b->plain), q->packed, b->scratch));
        freshen(q, io->params_version);
    }
    return AB_OK;
}

/* Checked once per version. */
static bool weights_finite(product *p, const ab_op_io *io) {
    const ab_tensor *weights = io->param[0];
    if (stale(&p->weights_checked, io->params_version)) {
        p->weights_finite = ab_array_finite(weights->data, weights->format, ab_tensor_count(weights));
        freshen(&p->weights_checked, io->params_version);
    }
    return p->weights_finite;
}

/* Runs the pass and, if an operand is not finite, checks the result (nonfinite.h). */
static ab_status run_checked(product *p, ab_pass_kind kind, const ab_op_io *io, ab_pass_args *args) {
    ab_pass *pass = p->of[kind].pass;
    const bool reads_weights = kind != AB_PASS_BACKWARD_WEIGHTS;
    bool nonfinite = false;
    args->nonfinite = &nonfinite;
    AB_TRY(pass->run(pass, args));
    if (pass->keeps_nonfinite) return AB_OK;
    ab_product_data data = {.kind = kind,
                            .conv = &p->conv,
                            .in = io->in[0],
                            .weights = io->param[0],
                            .dout = io->dout,
                            .bias = args->bias,
                            .weights_finite = reads_weights && weights_finite(p, io),
                            .dst = args->dst};
    const bool bias = !args->bias || ab_values_finite(args->bias, &ab_format_fp32, p->conv.out_channels);
    if (nonfinite || (reads_weights && !data.weights_finite) || !bias) ab_repair_product(&data);
    return AB_OK;
}

/* Whether weights, where the pass reads them, and bias are finite. */
static bool constants_finite(product *p, const ab_op_io *io, const float *bias, bool reads_weights) {
    return (!reads_weights || weights_finite(p, io)) &&
           (!bias || ab_values_finite(bias, &ab_format_fp32, p->conv.out_channels));
}

/* Runs the pass on tensors as stored. *done is false, and what it wrote does not count, if the result would
 * need a check (an operand is not finite) or is to be observed before it is rounded. */
static ab_status run_stored(product *p, ab_pass_kind kind, const ab_op_io *io, const buffers *b,
                            ab_pass_args args, const ab_pass_stored *stored, bool *done) {
    prepared *q = &p->of[kind];
    const bool reads_weights = kind != AB_PASS_BACKWARD_WEIGHTS;
    bool nonfinite = false;
    *done = false;
    if (!q->converts || !q->pass->takes_stored || stored->exec->observer) return AB_OK;
    if (!q->pass->keeps_nonfinite && !constants_finite(p, io, args.bias, reads_weights)) return AB_OK;
    if (reads_weights && !q->pass->takes_stored_weights) AB_TRY(pass_weights(p, q, io, b, &args.weights));
    args.stored = stored;
    args.nonfinite = &nonfinite;
    AB_TRY(q->pass->run(q->pass, &args));
    *done = !nonfinite;
    return AB_OK;
}

ab_status ab_product_forward(const ab_exec *exec, ab_op_io *io) {
    product *p = io->state;
    prepared *q = &p->of[AB_PASS_FORWARD];
    cursor c = {.base = exec->workspace};
    buffers b = forward_buffers(p, io, &c);
    const ab_pass_stored stored = {.exec = exec, .src = io->in[0], .weights = io->param[0], .dst = io->out};
    ab_pass_args args = {.bias = io->param[1] ? ab_view_f32(io->param[1], b.bias) : NULL,
                         .dst = ab_target(io->out, 0, b.dst),
                         .scratch = b.scratch};
    bool done;
    AB_TRY(run_stored(p, AB_PASS_FORWARD, io, &b, args, &stored, &done));
    if (done) return AB_OK;
    AB_TRY(pass_weights(p, q, io, &b, &args.weights));
    args.src = operand(q, io->in[0], b.src);
    AB_TRY(run_checked(p, AB_PASS_FORWARD, io, &args));
    ab_emit_all(exec, io->out, args.dst);
    return AB_OK;
}

/* dout for passes that read it in fp32; widened when the first of them does. */
typedef struct dout_copy {
    float *values;
    bool filled;
} dout_copy;

static const void *dout_operand(const prepared *q, const ab_op_io *io, dout_copy *copy) {
    if (q->operands == io->dout->format) return io->dout->data;
    if (!copy->filled) ab_view_f32(io->dout, copy->values);
    copy->filled = true;
    return copy->values;
}

static ab_status backward_data(const ab_exec *exec, ab_op_io *io, dout_copy *dout, cursor c) {
    product *p = io->state;
    prepared *q = &p->of[AB_PASS_BACKWARD_DATA];
    buffers b = data_buffers(p, io, &c);
    const ab_pass_stored stored = {.exec = exec, .src = io->dout, .weights = io->param[0], .dst = io->din[0]};
    ab_pass_args args = {.dst = ab_target(io->din[0], 0, b.dst), .scratch = b.scratch};
    bool done;
    AB_TRY(run_stored(p, AB_PASS_BACKWARD_DATA, io, &b, args, &stored, &done));
    if (done) return AB_OK;
    AB_TRY(pass_weights(p, q, io, &b, &args.weights));
    args.src = dout_operand(q, io, dout);
    AB_TRY(run_checked(p, AB_PASS_BACKWARD_DATA, io, &args));
    ab_emit_all(exec, io->din[0], args.dst);
    return AB_OK;
}

static float *result_place(const ab_tensor *tensor, float *buffer) {
    return tensor ? ab_target(tensor, 0, buffer) : buffer;
}

static ab_status backward_weights(const ab_exec *exec, ab_op_io *io, dout_copy *dout, cursor c) {
    product *p = io->state;
    prepared *q = &p->of[AB_PASS_BACKWARD_WEIGHTS];
    buffers b = weight_buffers(p, io, &c);
    const ab_pass_stored stored = {.exec = exec, .src = io->in[0], .dout = io->dout, .dst = io->dparam[0]};
    ab_pass_args args = {.dst = result_place(io->dparam[0], b.dst),
                         .dbias = io->param[1] ? result_place(io->dparam[1], b.bias) : NULL,
                         .scratch = b.scratch};
    bool done;
    AB_TRY(run_stored(p, AB_PASS_BACKWARD_WEIGHTS, io, &b, args, &stored, &done));
    if (!done) {
        args.src = operand(q, io->in[0], b.src);
        args.dout = dout_operand(q, io, dout);
        AB_TRY(run_checked(p, AB_PASS_BACKWARD_WEIGHTS, io, &args));
    }
    if (io->dparam[0] && !(done && q->pass->rounds_weights)) ab_emit_all(exec, io->dparam[0], args.dst);
    if (io->dparam[1]) {
        if (!q->pass->sums_bias) ab_rows_sum(io->dout, args.dbias, b.scratch);
        ab_emit_all(exec, io->dparam[1], args.dbias);
    }
    return AB_OK;
}

ab_status ab_product_backward(const ab_exec *exec, ab_op_io *io) {
    const product *p = io->state;
    cursor c = {.base = exec->workspace};
    dout_copy dout = {.values = take_dout(p, io, &c)};
    if (p->of[AB_PASS_BACKWARD_DATA].pass && io->din[0]) AB_TRY(backward_data(exec, io, &dout, c));
    const bool weights = io->dparam[0] || io->dparam[1];
    if (p->of[AB_PASS_BACKWARD_WEIGHTS].pass && weights) AB_TRY(backward_weights(exec, io, &dout, c));
    return AB_OK;
}

const char *ab_product_describe(const ab_op_io *io, const char *pass) {
    static const char *const names[AB_PASSES] = {[AB_PASS_FORWARD] = "forward",
                                                 [AB_PASS_BACKWARD_DATA] = "backward_data",
                                                 [AB_PASS_BACKWARD_WEIGHTS] = "backward_weights"};
    const product *p = io->state;
    for (int k = 0; k < AB_PASSES; k++)
        if (strcmp(pass, names[k]) == 0 && p->of[k].pass) return p->of[k].text;
    return "none";
}
