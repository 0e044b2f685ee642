/* oneDNN 2.6 and 3.x as implementation of the passes of product.h.
 *
 * Layouts: activations are plain NHWC; weights use the layout that the implementation prefers, one reorder
 * per params_version (plain weights would select a reference implementation); weight gradients are
 * reordered to torch's layout. Scratchpads are owned by the caller.
 *
 * Selection: the library's own order, except that implementations named "ref" and known to be wrong
 * (library_defects.c) are skipped and that, where the first acceptable one is a "brg" (batch-reduce) kernel,
 * the first "jit" one of the same unit (AMX tiles or vectors) is preferred for forward convolutions of few
 * channels and for backward data (in tiles: strided), where it is faster with few exceptions
 * (docs/performance_changes.md).
 *
 * fp16: 3.x multiplies it in tiles on CPUs with AMX-FP16; with AVX512-FP16 alone it widens in registers, as
 * our own kernels do. Sums are fp32 in either: its x86 code has no fused multiply-add of halves (read
 * in 3.14; not run here for want of such a CPU). 2.6 has no fp16 products. */
#include "kernels/ops/product/dnnl_shim.h"

#include "kernels/ops/product/gemm.h"
#include "kernels/ops/product/pass.h"

#include "kernels/core/text.h"
#include "kernels/ops/blocks.h"

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <oneapi/dnnl/dnnl_debug.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FEW_CHANNELS = 6 };

/* A primitive's arguments: two operands, bias, result, the scratchpad. */
enum { SLOT_A, SLOT_B, SLOT_BIAS, SLOT_RESULT, SLOT_SCRATCH, SLOTS };

typedef struct library_pass {
    ab_pass base;
    dnnl_primitive_t primitive;
    dnnl_stream_t stream; /* one per pass: slices of a batch run concurrently */
    dnnl_exec_arg_t arg[SLOTS];
    int args;
    int place[SLOTS]; /* index into arg, or -1 */
    void *bound[SLOTS];
    dnnl_primitive_t
        reorder;         /* weights into, or weight gradients out of, the primitive's layout; may be NULL */
    dnnl_memory_t plain; /* the torch-layout side of the reorder */
    size_t result_bytes; /* of weight gradients in the primitive's layout, when reordered */
    bool a_is_dout;      /* backward weights of a matrix product: operand A is dout */
    ab_pass_kind kind;
} library_pass;

/* The library's objects; they live until the process ends. */
static dnnl_engine_t engine;
static dnnl_primitive_attr_t user_scratchpad;

/* ---- what 3.0 changed ------------------------------------------------------------------------ */

#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t desc_ref;
#else
typedef const dnnl_memory_desc_t *desc_ref;
#endif

/* The memory descriptors of one primitive; unused ones are zero. */
typedef struct descs {
    dnnl_memory_desc_t slot[SLOT_SCRATCH];
    bool present[SLOT_SCRATCH];
} descs;

typedef struct conv_numbers {
    dnnl_dims_t stride, dilation, padding;
} conv_numbers;

/* Iterator over the library's implementations. */
typedef struct walk {
    dnnl_primitive_desc_t pd; /* the current one; NULL at the end */
#if DNNL_VERSION_MAJOR < 3
    dnnl_primitive_desc_iterator_t iterator;
    union {
        dnnl_convolution_desc_t conv;
        dnnl_matmul_desc_t matmul;
    } op; /* the iterator reads it at every step: must live as long as the walk, which is never copied */
#endif
} walk;

#if DNNL_VERSION_MAJOR >= 3

static dnnl_status_t make_desc(descs *d, int slot, int ndims, const dnnl_dims_t dims, dnnl_data_type_t type,
                               dnnl_format_tag_t tag) {
    d->present[slot] = true;
    return dnnl_memory_desc_create_with_tag(&d->slot[slot], ndims, dims, type, tag);
}

static desc_ref desc_of(const descs *d, int slot) { return d->present[slot] ? d->slot[slot] : NULL; }

static void drop_descs(descs *d) {
    for (int i = 0; i < SLOT_SCRATCH; i++)
        if (d->present[i]) dnnl_memory_desc_destroy(d->slot[i]);
}

static dnnl_status_t open_conv(walk *w, ab_pass_kind kind, const descs *d, const conv_numbers *n,
                               const_dnnl_primitive_desc_t hint) {
    desc_ref a = desc_of(d, SLOT_A), b = desc_of(d, SLOT_B), result = desc_of(d, SLOT_RESULT);
    const dnnl_alg_kind_t direct = dnnl_convolution_direct;
    if (kind == AB_PASS_FORWARD)
        return dnnl_convolution_forward_primitive_desc_create(
            &w->pd, engine, dnnl_forward_training, direct, a, b, desc_of(d, SLOT_BIAS), result, n->stride,
            n->dilation, n->padding, n->padding, user_scratchpad);
    if (kind == AB_PASS_BACKWARD_DATA)
        return dnnl_convolution_backward_data_primitive_desc_create(&w->pd, engine, direct, result, b, a,
                                                                    n->stride, n->dilation, n->padding,
                                                                    n->padding, hint, user_scratchpad);
    return dnnl_convolution_backward_weights_primitive_desc_create(&w->pd, engine, direct, a, result, NULL, b,
                                                                   n->stride, n->dilation, n->padding,
                                                                   n->padding, hint, user_scratchpad);
}

static dnnl_status_t open_matmul(walk *w, const descs *d) {
    return dnnl_matmul_primitive_desc_create(&w->pd, engine, desc_of(d, SLOT_A), desc_of(d, SLOT_B),
                                             desc_of(d, SLOT_BIAS), desc_of(d, SLOT_RESULT), user_scratchpad);
}

static bool next(walk *w) { return dnnl_primitive_desc_next_impl(w->pd) == dnnl_success; }

static void close_walk(walk *w) {
    if (w->pd) dnnl_primitive_desc_destroy(w->pd);
}

#else

static dnnl_status_t make_desc(descs *d, int slot, int ndims, const dnnl_dims_t dims, dnnl_data_type_t type,
                               dnnl_format_tag_t tag) {
    d->present[slot] = true;
    return dnnl_memory_desc_init_by_tag(&d->slot[slot], ndims, dims, type, tag);
}

static desc_ref desc_of(const descs *d, int slot) { return d->present[slot] ? &d->slot[slot] : NULL; }

static void drop_descs(descs *d) { memset(d, 0, sizeof *d); }

/* `op`: a member of w->op. */
static dnnl_status_t open_walk(walk *w, const_dnnl_op_desc_t op, const_dnnl_primitive_desc_t hint) {
    dnnl_status_t status =
        dnnl_primitive_desc_iterator_create(&w->iterator, op, user_scratchpad, engine, hint);
    if (status == dnnl_success) w->pd = dnnl_primitive_desc_iterator_fetch(w->iterator);
    return status;
}

static dnnl_status_t open_conv(walk *w, ab_pass_kind kind, const descs *d, const conv_numbers *n,
                               const_dnnl_primitive_desc_t hint) {
    desc_ref a = desc_of(d, SLOT_A), b = desc_of(d, SLOT_B), result = desc_of(d, SLOT_RESULT);
    const dnnl_alg_kind_t direct = dnnl_convolution_direct;
    dnnl_convolution_desc_t *op = &w->op.conv;
    dnnl_status_t status;
    if (kind == AB_PASS_FORWARD)
        status = dnnl_dilated_convolution_forward_desc_init(op, dnnl_forward_training, direct, a, b,
                                                            desc_of(d, SLOT_BIAS), result, n->stride,
                                                            n->dilation, n->padding, n->padding);
    else if (kind == AB_PASS_BACKWARD_DATA)
        status = dnnl_dilated_convolution_backward_data_desc_init(op, direct, result, b, a, n->stride,
                                                                  n->dilation, n->padding, n->padding);
    else
        status = dnnl_dilated_convolution_backward_weights_desc_init(
            op, direct, a, result, NULL, b, n->stride, n->dilation, n->padding, n->padding);
    return status == dnnl_success ? open_walk(w, op, hint) : status;
}

static dnnl_status_t open_matmul(walk *w, const descs *d) {
    dnnl_matmul_desc_t *op = &w->op.matmul;
    dnnl_status_t status = dnnl_matmul_desc_init(op, desc_of(d, SLOT_A), desc_of(d, SLOT_B),
                                                 desc_of(d, SLOT_BIAS), desc_of(d, SLOT_RESULT));
    return status == dnnl_success ? open_walk(w, op, NULL) : status;
}

static bool next(walk *w) {
    dnnl_primitive_desc_destroy(w->pd);
    w->pd = NULL;
    if (dnnl_primitive_desc_iterator_next(w->iterator) != dnnl_success) return false;
    w->pd = dnnl_primitive_desc_iterator_fetch(w->iterator);
    return true;
}

static void close_walk(walk *w) {
    if (w->pd) dnnl_primitive_desc_destroy(w->pd);
    if (w->iterator) dnnl_primitive_desc_iterator_destroy(w->iterator);
}

#endif

/* ---- the library's objects ------------------------------------------------------------------- */

static ab_status check(dnnl_status_t status, const char *what) {
    if (status == dnnl_success) return AB_OK;
    return ab_fail(status == dnnl_out_of_memory ? AB_NO_MEMORY : AB_INTERNAL, "oneDNN: %s: %s", what,
                   dnnl_status2str(status));
}

static ab_status start_library(void) {
    if (user_scratchpad) return AB_OK;
    AB_TRY(check(dnnl_engine_create(&engine, dnnl_cpu, 0), "cannot create a CPU engine"));
    AB_TRY(check(dnnl_primitive_attr_create(&user_scratchpad), "cannot create attributes"));
    /* Not what ONEDNN_DEFAULT_FPMATH_MODE says, by which fp32 operands may be rounded to halves. */
    AB_TRY(check(dnnl_primitive_attr_set_fpmath_mode(user_scratchpad, dnnl_fpmath_mode_strict),
                 "cannot set the arithmetic"));
    return check(dnnl_primitive_attr_set_scratchpad_mode(user_scratchpad, dnnl_scratchpad_mode_user),
                 "cannot set the scratchpad mode");
}

static dnnl_data_type_t type_of(const ab_format *format) {
    if (format == &ab_format_fp16) return dnnl_f16;
    return format == &ab_format_bf16 ? dnnl_bf16 : dnnl_f32;
}

static const char *name_of(const_dnnl_primitive_desc_t pd) {
    const char *name = NULL;
    if (dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name) != dnnl_success || !name)
        return "ref";
    return name;
}

static bool begins(const char *text, const char *with) { return strncmp(text, with, strlen(with)) == 0; }

/* Selects an implementation: by the rule at the top, or the n-th in the library's order. */
enum { BY_RULE = -1 };

static dnnl_primitive_desc_t nth(walk *w, int n) {
    dnnl_primitive_desc_t pd = NULL;
    bool more = w->pd != NULL;
    while (more && n-- > 0) more = next(w);
    return more && dnnl_primitive_desc_clone(&pd, w->pd) == dnnl_success ? pd : NULL;
}

/* Which implementation a pass wants. jit, jit_tiles: "jit" rather than "brg", and so among those of AMX. */
typedef struct pass_wish {
    ab_pass_spec spec;
    bool matmul, jit, jit_tiles;
    int which;
} pass_wish;

static bool in_tiles(const char *name) { return strstr(name, "amx") != NULL; }

/* Whether a later implementation may replace this one. */
static bool replaceable(const pass_wish *wish, const char *name) {
    return begins(name, "brg") && (in_tiles(name) ? wish->jit_tiles : wish->jit);
}

static bool acceptable(const pass_wish *wish, const char *name) {
    const dnnl_version_t *v = dnnl_version();
    return !begins(name, "ref") &&
           !ab_library_defect(&wish->spec, wish->matmul, name, 10000 * v->major + 100 * v->minor + v->patch);
}

/* The implementation to use, or NULL. */
static dnnl_primitive_desc_t pick(walk *w, const pass_wish *wish) {
    dnnl_primitive_desc_t best = NULL;
    bool more = w->pd != NULL;
    if (wish->which != BY_RULE) return nth(w, wish->which);
    while (more) {
        const char *name = name_of(w->pd);
        bool wanted = acceptable(wish, name) &&
                      (!best || (begins(name, "jit") && in_tiles(name) == in_tiles(name_of(best))));
        if (wanted) {
            if (best) dnnl_primitive_desc_destroy(best);
            best = NULL;
            if (dnnl_primitive_desc_clone(&best, w->pd) != dnnl_success) return NULL;
            if (!replaceable(wish, name_of(best))) return best;
        }
        more = next(w);
    }
    return best;
}

static desc_ref arg_desc(const_dnnl_primitive_desc_t pd, int arg) {
    return dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, arg);
}

/* ---- running --------------------------------------------------------------------------------- */

/* Binds an argument to data; the library uses one pointer type for inputs and outputs. */
static void bind_slot(library_pass *p, int slot, void *data) {
    if (p->place[slot] < 0 || p->bound[slot] == data) return;
    dnnl_memory_set_data_handle(p->arg[p->place[slot]].memory, data);
    p->bound[slot] = data;
}

static void bind_input(library_pass *p, int slot, const void *data) {
    union {
        const void *in;
        void *handle;
    } both = {.in = data};
    bind_slot(p, slot, both.handle);
}

/* On the calling thread only: the library's own threads would synchronise at every primitive. */
static ab_status execute(const library_pass *p, dnnl_primitive_t primitive, int args,
                         const dnnl_exec_arg_t *arg) {
    int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    dnnl_status_t status = dnnl_primitive_execute(primitive, p->stream, args, arg);
    if (status == dnnl_success) status = dnnl_stream_wait(p->stream);
    omp_set_num_threads(threads);
    return check(status, "a primitive failed");
}

/* Runs the reorder between plain and the memory of `slot`. */
static ab_status run_reorder(library_pass *p, int slot, const void *plain, bool to_plain) {
    union {
        const void *in;
        void *handle;
    } both = {.in = plain};
    dnnl_memory_t own = p->arg[p->place[slot]].memory;
    dnnl_exec_arg_t arg[] = {{DNNL_ARG_FROM, to_plain ? own : p->plain},
                             {DNNL_ARG_TO, to_plain ? p->plain : own}};
    AB_TRY(check(dnnl_memory_set_data_handle(p->plain, both.handle), "cannot set a data handle"));
    return execute(p, p->reorder, (int)AB_COUNT_OF(arg), arg);
}

static ab_status pack(ab_pass *base, const void *weights, void *packed, void *scratch) {
    library_pass *p = (library_pass *)base;
    (void)scratch;
    bind_slot(p, SLOT_B, packed);
    return run_reorder(p, SLOT_B, weights, false);
}

static ab_status run(ab_pass *base, const ab_pass_args *args) {
    library_pass *p = (library_pass *)base;
    char *scratch = args->scratch;
    bool weights_pass = p->kind == AB_PASS_BACKWARD_WEIGHTS;
    bind_input(p, SLOT_A, p->a_is_dout ? args->dout : args->src);
    bind_input(p, SLOT_B, weights_pass ? (p->a_is_dout ? args->src : args->dout) : args->weights);
    bind_input(p, SLOT_BIAS, args->bias);
    bind_slot(p, SLOT_RESULT, p->result_bytes ? scratch : (char *)args->dst);
    bind_slot(p, SLOT_SCRATCH, scratch + p->result_bytes);
    AB_TRY(execute(p, p->primitive, p->args, p->arg));
    return p->result_bytes ? run_reorder(p, SLOT_RESULT, args->dst, true) : AB_OK;
}

/* ---- set-up ---------------------------------------------------------------------------------- */

static void destroy(ab_pass *base) {
    library_pass *p = (library_pass *)base;
    for (int i = 0; i < p->args; i++) dnnl_memory_destroy(p->arg[i].memory);
    if (p->plain) dnnl_memory_destroy(p->plain);
    if (p->reorder) dnnl_primitive_destroy(p->reorder);
    if (p->primitive) dnnl_primitive_destroy(p->primitive);
    if (p->stream) dnnl_stream_destroy(p->stream);
    free(p);
}

/* The library's argument number of each slot. */
typedef int slot_args[SLOTS];

static ab_status make_arg(library_pass *p, int slot, int arg, const_dnnl_primitive_desc_t pd) {
    desc_ref desc = arg_desc(pd, arg);
    p->place[slot] = -1;
    if (arg == 0 || !desc || dnnl_memory_desc_get_size(desc) == 0) return AB_OK;
    dnnl_exec_arg_t *to = &p->arg[p->args];
    to->arg = arg;
    AB_TRY(check(dnnl_memory_create(&to->memory, desc, engine, DNNL_MEMORY_NONE),
                 "cannot create a memory object"));
    p->place[slot] = p->args++;
    return AB_OK;
}

static ab_status make_reorder(library_pass *p, desc_ref plain, desc_ref own, bool to_plain) {
    dnnl_primitive_desc_t pd = NULL;
    ab_status status = AB_OK;
    AB_TRY_GOTO(check(dnnl_memory_create(&p->plain, plain, engine, DNNL_MEMORY_NONE),
                      "cannot create a memory object"));
    AB_TRY_GOTO(check(dnnl_reorder_primitive_desc_create(&pd, to_plain ? own : plain, engine,
                                                         to_plain ? plain : own, engine, NULL),
                      "cannot describe a reorder"));
    AB_TRY_GOTO(check(dnnl_primitive_create(&p->reorder, pd), "cannot create a reorder"));
out:
    if (pd) dnnl_primitive_desc_destroy(pd);
    return status;
}

/* Everything the chosen implementation needs to run. `plain` describes weights (or their gradient) in torch's
 * layout. */
static ab_status build(library_pass *p, const_dnnl_primitive_desc_t pd, const slot_args arg, desc_ref plain) {
    bool weights_pass = p->kind == AB_PASS_BACKWARD_WEIGHTS;
    int slot = weights_pass ? SLOT_RESULT : SLOT_B;
    desc_ref own = arg_desc(pd, arg[slot]);
    for (int i = 0; i < SLOTS; i++) AB_TRY(make_arg(p, i, arg[i], pd));
    if (!dnnl_memory_desc_equal(plain, own)) {
        AB_TRY(make_reorder(p, plain, own, weights_pass));
        size_t bytes = ab_aligned(dnnl_memory_desc_get_size(own));
        p->result_bytes = weights_pass ? bytes : 0;
        p->base.packed_bytes = weights_pass ? 0 : bytes;
    }
    desc_ref scratch = arg_desc(pd, DNNL_ARG_SCRATCHPAD);
    p->base.scratch_bytes = p->result_bytes + (scratch ? dnnl_memory_desc_get_size(scratch) : 0);
    p->base.pack = p->base.packed_bytes ? pack : NULL;
    ab_text_show(p->base.text, sizeof p->base.text, "%s", name_of(pd));
    AB_TRY(
        check(dnnl_stream_create(&p->stream, engine, dnnl_stream_default_flags), "cannot create a stream"));
    return check(dnnl_primitive_create(&p->primitive, pd), "cannot create a primitive");
}

static ab_status build_pass(const ab_pass_spec *spec, const_dnnl_primitive_desc_t pd, const slot_args arg,
                            desc_ref plain, bool a_is_dout, ab_pass **pass) {
    library_pass *p = calloc(1, sizeof *p);
    if (!p) return ab_fail(AB_NO_MEMORY, "cannot allocate a oneDNN pass");
    p->base.run = run;
    p->base.destroy = destroy;
    p->kind = spec->kind;
    p->a_is_dout = a_is_dout;
    ab_status status = build(p, pd, arg, plain);
    if (status == AB_OK)
        *pass = &p->base;
    else
        destroy(&p->base);
    return status;
}

/* ---- convolution ----------------------------------------------------------------------------- */

static const slot_args conv_args[AB_PASSES] = {
    [AB_PASS_FORWARD] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD},
    [AB_PASS_BACKWARD_DATA] = {DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, 0, DNNL_ARG_DIFF_SRC,
                               DNNL_ARG_SCRATCHPAD},
    [AB_PASS_BACKWARD_WEIGHTS] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, 0, DNNL_ARG_DIFF_WEIGHTS,
                                  DNNL_ARG_SCRATCHPAD}};

static conv_numbers numbers_of(const ab_window *w) {
    conv_numbers n = {{0}, {0}, {0}};
    for (int i = 0; i < 2; i++) {
        n.stride[i] = w->stride[i];
        n.dilation[i] = w->dilation[i] - 1; /* the library counts the gaps */
        n.padding[i] = w->padding[i];
    }
    return n;
}

static dnnl_status_t image_desc(descs *d, int slot, const ab_conv *conv, bool output, dnnl_data_type_t type) {
    const int64_t *size = output ? conv->window.out : conv->window.in;
    dnnl_dims_t dims = {conv->batch, output ? conv->out_channels : conv->window.channels, size[0], size[1]};
    return make_desc(d, slot, 4, dims, type, dnnl_nhwc);
}

static dnnl_status_t weights_desc(descs *d, int slot, const ab_conv *conv, dnnl_data_type_t type,
                                  bool plain) {
    int64_t in = conv->window.channels / conv->groups, out = conv->out_channels / conv->groups;
    const int64_t *kernel = conv->window.kernel;
    dnnl_dims_t grouped = {conv->groups, out, in, kernel[0], kernel[1]},
                dense = {out, in, kernel[0], kernel[1]};
    if (conv->groups > 1)
        return make_desc(d, slot, 5, grouped, type, plain ? dnnl_goihw : dnnl_format_tag_any);
    return make_desc(d, slot, 4, dense, type, plain ? dnnl_oihw : dnnl_format_tag_any);
}

/* Descriptors of a pass: operands in `type`, bias and result fp32. */
static dnnl_status_t conv_descs(const ab_pass_spec *spec, ab_pass_kind kind, descs *d) {
    const ab_conv *conv = &spec->conv;
    dnnl_data_type_t type = type_of(spec->operands);
    dnnl_dims_t channels = {conv->out_channels};
    dnnl_status_t status = image_desc(d, SLOT_A, conv, kind == AB_PASS_BACKWARD_DATA, type);
    if (status == dnnl_success)
        status = kind == AB_PASS_BACKWARD_WEIGHTS ? image_desc(d, SLOT_B, conv, true, type)
                                                  : weights_desc(d, SLOT_B, conv, type, false);
    if (status == dnnl_success)
        status = kind == AB_PASS_BACKWARD_WEIGHTS
                     ? weights_desc(d, SLOT_RESULT, conv, dnnl_f32, false)
                     : image_desc(d, SLOT_RESULT, conv, kind == AB_PASS_FORWARD, dnnl_f32);
    if (status == dnnl_success && kind == AB_PASS_FORWARD && spec->bias)
        status = make_desc(d, SLOT_BIAS, 1, channels, dnnl_f32, dnnl_a);
    return status;
}

/* The implementation to use for one pass, or NULL. */
static dnnl_primitive_desc_t find_conv(const ab_pass_spec *spec, ab_pass_kind kind,
                                       const_dnnl_primitive_desc_t hint, int which) {
    const ab_window *w = &spec->conv.window;
    const bool few = kind == AB_PASS_FORWARD && w->channels / spec->conv.groups <= FEW_CHANNELS;
    const bool data = kind == AB_PASS_BACKWARD_DATA, strided = w->stride[0] > 1 || w->stride[1] > 1;
    conv_numbers n = numbers_of(w);
    descs d = {0};
    walk list = {0};
    pass_wish wish = {
        .spec = *spec, .jit = few || data, .jit_tiles = few || (data && strided), .which = which};
    wish.spec.kind = kind;
    dnnl_primitive_desc_t pd = NULL;
    if (conv_descs(spec, kind, &d) == dnnl_success && open_conv(&list, kind, &d, &n, hint) == dnnl_success)
        pd = pick(&list, &wish);
    close_walk(&list);
    drop_descs(&d);
    return pd;
}

/* fp16 and bf16 "brg" kernels multiply channels in pairs; for an odd number they multiply a neighbouring
 * value by zero, so inf there becomes NaN here. */
static bool spreads_infinities(const ab_pass_spec *spec, const_dnnl_primitive_desc_t pd) {
    int64_t summed = spec->kind == AB_PASS_FORWARD ? spec->conv.window.channels : spec->conv.out_channels;
    return spec->operands != &ab_format_fp32 && summed / spec->conv.groups % 2 != 0 &&
           begins(name_of(pd), "brg");
}

static ab_status make_conv(const ab_pass_spec *spec, int which, ab_pass **pass) {
    *pass = NULL;
    AB_TRY(start_library());
    bool backward = spec->kind != AB_PASS_FORWARD, weights_pass = spec->kind == AB_PASS_BACKWARD_WEIGHTS;
    descs plain = {0};
    ab_status status = AB_OK;
    dnnl_primitive_desc_t pd = NULL, hint = backward ? find_conv(spec, AB_PASS_FORWARD, NULL, BY_RULE) : NULL;
    if (backward && !hint) return AB_OK;
    pd = find_conv(spec, spec->kind, hint, which);
    if (!pd || (which == BY_RULE && spreads_infinities(spec, pd))) goto out;
    AB_TRY_GOTO(check(
        weights_desc(&plain, SLOT_B, &spec->conv, weights_pass ? dnnl_f32 : type_of(spec->operands), true),
        "cannot describe weights"));
    status = build_pass(spec, pd, conv_args[spec->kind], desc_of(&plain, SLOT_B), false, pass);
out:
    drop_descs(&plain);
    if (pd) dnnl_primitive_desc_destroy(pd);
    if (hint) dnnl_primitive_desc_destroy(hint);
    return status;
}

/* ---- matrix product -------------------------------------------------------------------------- */

/* A row-major matrix or, with `transposed`, the transpose of one. */
static dnnl_status_t matrix_desc(descs *d, int slot, int64_t rows, int64_t columns, dnnl_data_type_t type,
                                 dnnl_format_tag_t tag) {
    dnnl_dims_t dims = {rows, columns};
    return make_desc(d, slot, 2, dims, type, tag);
}

/* forward            out  [n, o] = in [n, i] W^T [i, o] + bias
 * backward data      din  [n, i] = dout [n, o] W [o, i]
 * backward weights   dW   [o, i] = dout^T [o, n] in [n, i] */
static dnnl_status_t matmul_descs(const ab_pass_spec *spec, descs *d, descs *plain) {
    int64_t n = spec->conv.batch, i = spec->conv.window.channels, o = spec->conv.out_channels;
    dnnl_data_type_t type = type_of(spec->operands);
    const dnnl_format_tag_t any = dnnl_format_tag_any;
    const struct {
        int64_t rows, inner, columns;
        dnnl_format_tag_t a, b, plain_b;
    } product[AB_PASSES] = {[AB_PASS_FORWARD] = {n, i, o, dnnl_ab, any, dnnl_ba},
                            [AB_PASS_BACKWARD_DATA] = {n, o, i, dnnl_ab, any, dnnl_ab},
                            [AB_PASS_BACKWARD_WEIGHTS] = {o, n, i, dnnl_ba, dnnl_ab, dnnl_ab}},
      *p = &product[spec->kind];
    dnnl_status_t status = matrix_desc(d, SLOT_A, p->rows, p->inner, type, p->a);
    if (status == dnnl_success) status = matrix_desc(d, SLOT_B, p->inner, p->columns, type, p->b);
    if (status == dnnl_success) status = matrix_desc(plain, SLOT_B, p->inner, p->columns, type, p->plain_b);
    if (status == dnnl_success) status = matrix_desc(d, SLOT_RESULT, p->rows, p->columns, dnnl_f32, dnnl_ab);
    if (status == dnnl_success)
        status = matrix_desc(plain, SLOT_RESULT, p->rows, p->columns, dnnl_f32, dnnl_ab);
    if (status == dnnl_success && spec->kind == AB_PASS_FORWARD && spec->bias)
        status = matrix_desc(d, SLOT_BIAS, 1, p->columns, dnnl_f32, dnnl_ab);
    return status;
}

static ab_status make_matmul(const ab_pass_spec *spec, int which, ab_pass **pass) {
    static const slot_args args = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST,
                                   DNNL_ARG_SCRATCHPAD};
    bool weights_pass = spec->kind == AB_PASS_BACKWARD_WEIGHTS;
    descs d = {0}, plain = {0};
    walk list = {0};
    const pass_wish wish = {.spec = *spec, .matmul = true, .which = which};
    dnnl_primitive_desc_t pd = NULL;
    ab_status status;
    *pass = NULL;
    AB_TRY_GOTO(start_library());
    if (matmul_descs(spec, &d, &plain) == dnnl_success && open_matmul(&list, &d) == dnnl_success)
        pd = pick(&list, &wish);
    if (pd)
        status = build_pass(spec, pd, args, desc_of(&plain, weights_pass ? SLOT_RESULT : SLOT_B),
                            weights_pass, pass);
out:
    if (pd) dnnl_primitive_desc_destroy(pd);
    close_walk(&list);
    drop_descs(&d);
    drop_descs(&plain);
    return status;
}

/* ---- one thread ------------------------------------------------------------------------------ */

/* The library fixes the number of threads of a primitive at its creation. */
static ab_status make_for_one_thread(ab_status (*make)(const ab_pass_spec *, int, ab_pass **),
                                     const ab_pass_spec *spec, int which, ab_pass **pass) {
    int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    ab_status status = make(spec, which, pass);
    omp_set_num_threads(threads);
    return status;
}

ab_status ab_dnnl_conv_pass(const ab_pass_spec *spec, ab_pass **pass) {
    *pass = NULL;
    if (!ab_dnnl_usable()) return AB_OK;
    if (spec->sizes_only) return ab_dnnl_sizes(spec, false, pass);
    return make_for_one_thread(make_conv, spec, BY_RULE, pass);
}

ab_status ab_dnnl_matmul_pass(const ab_pass_spec *spec, ab_pass **pass) {
    *pass = NULL;
    if (!ab_dnnl_usable()) return AB_OK;
    if (spec->sizes_only) return ab_dnnl_sizes(spec, true, pass);
    return make_for_one_thread(make_matmul, spec, BY_RULE, pass);
}

ab_status ab_dnnl_nth_pass(const ab_pass_spec *spec, bool matmul, int n, ab_pass **pass) {
    *pass = NULL;
    if (!ab_dnnl_usable()) return AB_OK;
    return make_for_one_thread(matmul ? make_matmul : make_conv, spec, n, pass);
}

/* ---- one matrix product ---------------------------------------------------------------------- */

bool ab_dnnl_gemm(const ab_gemm *g) {
    if (!ab_dnnl_usable()) return false;
    int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    dnnl_status_t status =
        dnnl_sgemm(g->transpose_a ? 'T' : 'N', g->transpose_b ? 'T' : 'N', g->rows, g->columns, g->inner,
                   g->alpha, g->a, g->lda, g->b, g->ldb, g->beta, g->c, g->ldc);
    omp_set_num_threads(threads);
    return status == dnnl_success;
}
