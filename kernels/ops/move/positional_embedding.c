/* positional_embedding: adds a trained row to each position of [batch, tokens, features]. With class_token, a
 * trained token is first prepended, as in vision transformers (Dosovitskiy et al. 2021). Sums over the batch
 * are fp32, in order. */
#include "kernels/ops/blocks.h"

#include <string.h>

typedef struct position_attrs {
    int64_t num_embeddings;
    bool class_token;
} position_attrs;

enum { MAX_POSITIONS = 1 << 24 };

static const ab_attr attrs_table[] = {{"num_embeddings", AB_ATTR_INT,
                                       offsetof(position_attrs, num_embeddings), false, 0, 0, MAX_POSITIONS,
                                       "rows of the table; 0: as many as there are positions"},
                                      {"class_token", AB_ATTR_BOOL, offsetof(position_attrs, class_token),
                                       false, 0, 0, 1, "put a trained token before the others"},
                                      {0}};

static ab_status infer(const void *attrs, const ab_shape *in, int inputs, ab_shape *out) {
    const position_attrs *a = attrs;
    char text[AB_SHAPE_TEXT];
    (void)inputs;
    if (in->ndim != 3)
        return ab_fail(AB_CONFIG, "positional_embedding expects [batch, tokens, features], found %s",
                       ab_shape_text(in, text));
    *out = *in;
    out->dim[1] += a->class_token;
    if (a->num_embeddings && out->dim[1] > a->num_embeddings)
        return ab_fail(AB_CONFIG,
                       "positional_embedding: %lld positions of input %s need as many rows, found %lld",
                       (long long)out->dim[1], ab_shape_text(in, text), (long long)a->num_embeddings);
    return AB_OK;
}

static int64_t table_rows(const position_attrs *a, const ab_shape *in) {
    return a->num_embeddings ? a->num_embeddings : in->dim[1] + a->class_token;
}

static int params(const void *attrs, const ab_shape *in, ab_param_spec *spec) {
    const position_attrs *a = attrs;
    spec[0] = (ab_param_spec){
        "weight", AB_PARAM_WEIGHT, {.ndim = 2, .dim = {table_rows(a, in), in->dim[2]}}, AB_INIT_NORMAL, 0.02};
    spec[1] = (ab_param_spec){
        "class_token", AB_PARAM_WEIGHT, {.ndim = 1, .dim = {in->dim[2]}}, AB_INIT_NORMAL, 0.02};
    return a->class_token ? 2 : 1;
}

/* Three rows per thread. */
static size_t thread_bytes(int64_t dim) { return 3 * ab_floats_bytes(dim); }

static ab_status prepare(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes, size_t *state_bytes) {
    (void)exec;
    *workspace_bytes = (size_t)ab_parallel_threads() * thread_bytes(io->in[0]->shape.dim[2]);
    *state_bytes = 0;
    return AB_OK;
}

/* A pass over the positions of all images. */
typedef struct pass {
    const ab_exec *exec;
    const ab_op_io *io;
    int64_t batch, tokens, dim, extra, rows; /* tokens of the input; extra: 1 with a class token */
} pass;

static pass start(const ab_exec *exec, const ab_op_io *io) {
    const position_attrs *a = io->attrs;
    const ab_shape *in = &io->in[0]->shape;
    return (pass){exec, io, in->dim[0], in->dim[1], in->dim[2], a->class_token, table_rows(a, in)};
}

static float *thread_row(const pass *p, int thread, size_t i) {
    char *memory = (char *)p->exec->workspace + (size_t)thread * thread_bytes(p->dim);
    return (float *)(void *)(memory + i * ab_floats_bytes(p->dim));
}

static void run(pass *p, ab_work work, int64_t chunks) {
    bool fits = ab_threads_fit(p->exec, 0, thread_bytes(p->dim));
    ab_for_chunks(fits ? p->batch * p->tokens * p->dim : 0, chunks, work, p);
}

static int64_t out_row(const pass *p, int64_t image, int64_t position) {
    return (image * (p->tokens + p->extra) + position) * p->dim;
}

static const float *token_of(const pass *p, int64_t image, int64_t position, float *buffer) {
    if (position < p->extra) return ab_read(p->io->param[1], 0, p->dim, buffer);
    return ab_read(p->io->in[0], (image * p->tokens + position - p->extra) * p->dim, p->dim, buffer);
}

static void add_position(void *argument, int64_t position, int thread) {
    const pass *p = argument;
    const float *row = ab_read(p->io->param[0], position * p->dim, p->dim, thread_row(p, thread, 0));
    for (int64_t image = 0; image < p->batch; image++) {
        int64_t at = out_row(p, image, position);
        const float *token = token_of(p, image, position, thread_row(p, thread, 1));
        float *out = ab_target(p->io->out, at, thread_row(p, thread, 2));
        for (int64_t c = 0; c < p->dim; c++) out[c] = token[c] + row[c];
        ab_emit(p->exec, p->io->out, at, out, p->dim);
    }
}

static ab_status forward(const ab_exec *exec, ab_op_io *io) {
    pass p = start(exec, io);
    run(&p, add_position, p.tokens + p.extra);
    return AB_OK;
}

/* One position of the table: sums its gradient over the images and writes the gradients of its tokens. */
static void position_gradient(void *argument, int64_t position, int thread) {
    const pass *p = argument;
    const ab_op_io *io = p->io;
    float *sum = thread_row(p, thread, 0);
    memset(sum, 0, (size_t)p->dim * sizeof *sum);
    for (int64_t image = 0; image < p->batch && position < p->tokens + p->extra; image++) {
        const float *dout = ab_read(io->dout, out_row(p, image, position), p->dim, thread_row(p, thread, 1));
        for (int64_t c = 0; c < p->dim; c++) sum[c] += dout[c];
        if (io->din[0] && position >= p->extra)
            ab_emit(p->exec, io->din[0], (image * p->tokens + position - p->extra) * p->dim, dout, p->dim);
    }
    if (io->dparam[0]) ab_emit(p->exec, io->dparam[0], position * p->dim, sum, p->dim);
    if (position < p->extra && io->dparam[1]) ab_emit(p->exec, io->dparam[1], 0, sum, p->dim);
}

static ab_status backward(const ab_exec *exec, ab_op_io *io) {
    pass p = start(exec, io);
    run(&p, position_gradient, p.rows);
    return AB_OK;
}

static double flops(const void *attrs, const ab_shape *in, const ab_shape *out) {
    (void)attrs;
    (void)in;
    return (double)ab_shape_count(out);
}

const ab_op ab_op_positional_embedding = {.name = "positional_embedding",
                                          .inputs = 1,
                                          .attrs_bytes = sizeof(position_attrs),
                                          .attrs = attrs_table,
                                          .infer = infer,
                                          .params = params,
                                          .prepare = prepare,
                                          .forward = forward,
                                          .backward = backward,
                                          .flops = flops,
                                          .describe = ab_describe_own};
