/* Infinities and NaNs in every implementation that the library offers for a product, at every CPU level that
 * it can be held down to: after the check of nonfinite.h a result is non-finite exactly if it reads a
 * non-finite value, and what was right has not changed. With AB_SURVEY set it prints what each implementation
 * does without the check. */
#define _GNU_SOURCE
#include "oracle/op_run.h"

#include "kernels/ops/product/dnnl_shim.h"
#include "kernels/ops/product/nonfinite.h"
#include "oracle/conv.h"

#include <sys/wait.h>
#include <unistd.h>

typedef struct shape_case {
    int64_t n, h, w, c, oc, kh, kw, sh, sw, ph, pw, dh, dw, groups;
    bool bias, matmul;
} shape_case;

/* Channels that fill vectors and tiles and that do not; padding, strides, dilation, groups. */
static const shape_case cases[] = {
    {2, 5, 6, 3, 5, 3, 3, 1, 1, 1, 1, 1, 1, 1, true, false},
    {1, 4, 17, 32, 16, 3, 3, 1, 1, 1, 1, 1, 1, 1, true, false},
    {2, 5, 5, 18, 33, 3, 3, 2, 2, 1, 1, 1, 1, 1, true, false},
    {1, 5, 6, 6, 20, 5, 5, 1, 1, 2, 2, 1, 1, 1, false, false},
    {1, 6, 5, 16, 32, 3, 2, 1, 1, 2, 1, 2, 2, 1, true, false},
    {1, 5, 5, 8, 8, 3, 3, 1, 1, 1, 1, 1, 1, 8, true, false},
    {1, 4, 4, 32, 32, 3, 3, 1, 1, 1, 1, 1, 1, 2, true, false},
    {1, 5, 5, 64, 48, 1, 1, 2, 2, 0, 0, 1, 1, 1, false, false},
    {17, 1, 1, 33, 10, 1, 1, 1, 1, 0, 0, 1, 1, 1, true, true},
    {33, 1, 1, 64, 48, 1, 1, 1, 1, 0, 0, 1, 1, 1, false, true},
};

typedef enum operand { IN, WEIGHT, DOUT, BIAS, OPERANDS } operand;

/* One non-finite value, or all of an operand; `zeros`: what it is multiplied by is zero. */
typedef struct plant {
    operand of;
    int64_t at; /* -1: everywhere */
    double value;
    bool zeros;
} plant;

/* What one implementation did without the check. */
typedef struct survey {
    int64_t plants, spread, lost;
} survey;

/* ---- a product of one implementation --------------------------------------------------------- */

static ab_conv geometry(const shape_case *k, const op_run *r) {
    ab_conv conv = {.window = {.kernel = {k->kh, k->kw},
                               .stride = {k->sh, k->sw},
                               .padding = {k->ph, k->pw},
                               .dilation = {k->dh, k->dw}},
                    .batch = k->n,
                    .out_channels = k->oc,
                    .groups = k->groups};
    ab_window_place(&conv.window, &r->in[0].shape, &r->out.shape);
    return conv;
}

static void open_case(op_run *r, const shape_case *k, op_attrs *attrs, const ab_format *format) {
    const ab_op *op = &ab_op_conv2d;
    const ab_exec exec = {0};
    const ab_shape in = {.ndim = 4, .dim = {k->n, k->h, k->w, k->c}};
    *attrs = op_attrs_default(op);
    op_attrs_set(op, attrs, "out_channels", (double)k->oc, 0);
    op_attrs_set(op, attrs, "kernel_size", (double)k->kh, (double)k->kw);
    op_attrs_set(op, attrs, "stride", (double)k->sh, (double)k->sw);
    op_attrs_set(op, attrs, "padding", (double)k->ph, (double)k->pw);
    op_attrs_set(op, attrs, "dilation", (double)k->dh, (double)k->dw);
    op_attrs_set(op, attrs, "groups", (double)k->groups, 0);
    op_attrs_set(op, attrs, "bias", k->bias, 0);
    op_run_open(r, op, attrs, &in, 1, (op_formats){format, format, NULL}, &exec);
}

static ab_tensor *tensor_of(op_run *r, operand which) {
    if (which == IN) return &r->in[0];
    if (which == DOUT) return &r->dout;
    return &r->param[which == WEIGHT ? 0 : 1];
}

static void set_operands(op_run *r, const plant *p) {
    const operand other = p->of == IN ? WEIGHT : IN;
    op_run_fill_all(r, 7);
    for (int which = IN; p->zeros && which < BIAS; which++)
        if (which == (int)other || (p->of != DOUT && which == DOUT))
            for (int64_t i = 0; i < ab_tensor_count(tensor_of(r, (operand)which)); i++)
                oracle_put(tensor_of(r, (operand)which), i, 0.0);
    ab_tensor *t = tensor_of(r, p->of);
    for (int64_t i = 0; i < ab_tensor_count(t); i++)
        if (p->at < 0 || i == p->at) oracle_put(t, i, p->value);
}

static const ab_tensor *result_of(const op_run *r, ab_pass_kind kind) {
    return kind == AB_PASS_FORWARD ? &r->out : kind == AB_PASS_BACKWARD_DATA ? &r->din[0] : &r->dparam[0];
}

/* Which results are not finite, from the definition; owned by the caller. */
static oracle_sums expect(const shape_case *k, op_run *r, ab_pass_kind kind) {
    const oracle_conv shape = {k->n,
                               k->h,
                               k->w,
                               k->c,
                               k->oc,
                               k->kh,
                               k->kw,
                               k->sh,
                               k->sw,
                               k->ph,
                               k->pw,
                               k->dh,
                               k->dw,
                               k->groups,
                               r->out.shape.dim[1],
                               r->out.shape.dim[2]};
    double *in = oracle_values(&r->in[0]), *weight = oracle_values(&r->param[0]),
           *dout = oracle_values(&r->dout);
    oracle_sums sums[AB_PASSES];
    for (int i = 0; i < AB_PASSES; i++)
        sums[i] = oracle_sums_open(ab_tensor_count(result_of(r, (ab_pass_kind)i)));
    for (int64_t i = 0; k->bias && i < ab_tensor_count(&r->out); i++)
        sums[AB_PASS_FORWARD].sum[i] = oracle_get(&r->param[1], i % k->oc);
    oracle_conv_all(&shape, in, weight, dout, sums[AB_PASS_FORWARD], sums[AB_PASS_BACKWARD_DATA],
                    sums[AB_PASS_BACKWARD_WEIGHTS]);
    for (int i = 0; i < AB_PASSES; i++)
        if (i != (int)kind) oracle_sums_close(&sums[i]);
    free(in);
    free(weight);
    free(dout);
    return sums[kind];
}

static float *aligned(size_t bytes) {
    float *p = aligned_alloc(64, (bytes + 127) / 64 * 64);
    assert_non_null(p);
    return p;
}

static float *run_pass(ab_pass *pass, ab_pass_kind kind, op_run *r, float *bias) {
    float *dst = aligned((size_t)ab_tensor_count(result_of(r, kind)) * sizeof *dst);
    void *scratch = aligned(pass->scratch_bytes), *packed = aligned(pass->packed_bytes);
    ab_pass_args args = {.src = kind == AB_PASS_BACKWARD_DATA ? r->dout.data : r->in[0].data,
                         .weights = r->param[0].data,
                         .bias = bias,
                         .dout = r->dout.data,
                         .dst = dst,
                         .scratch = scratch};
    if (pass->packed_bytes) {
        assert_int_equal(pass->pack(pass, r->param[0].data, packed, scratch), AB_OK);
        args.weights = packed;
    }
    assert_int_equal(pass->run(pass, &args), AB_OK);
    free(scratch);
    free(packed);
    return dst;
}

static float *wide_bias(const shape_case *k, const op_run *r, ab_pass_kind kind) {
    if (!k->bias || kind != AB_PASS_FORWARD) return NULL;
    float *bias = aligned((size_t)k->oc * sizeof *bias);
    for (int64_t i = 0; i < k->oc; i++) bias[i] = (float)oracle_get(&r->param[1], i);
    return bias;
}

typedef struct subject {
    const shape_case *k;
    ab_pass_kind kind;
    ab_pass *pass;
    survey found;
} subject;

/* Results before and after the check. */
static void compare(subject *s, const op_run *r, const float *raw, const float *checked, const double *exact,
                    const plant *p) {
    for (int64_t i = 0; i < ab_tensor_count(result_of(r, s->kind)); i++) {
        const bool reads = !isfinite(exact[i]), was_right = !isfinite(raw[i]) == reads;
        s->found.lost += reads && isfinite(raw[i]);
        s->found.spread += !reads && !isfinite(raw[i]);
        if (!isfinite(checked[i]) != reads || (!reads && fabs((double)checked[i] - exact[i]) > 0.05))
            fail_msg("%s pass %d in %s, case %d, %g at %lld of operand %d%s: result %lld is %g, expected %g",
                     s->pass->text, (int)s->kind, r->in[0].format->name, (int)(s->k - cases), p->value,
                     (long long)p->at, (int)p->of, p->zeros ? " against zeros" : "", (long long)i,
                     (double)checked[i], exact[i]);
        if (was_right && memcmp(&raw[i], &checked[i], sizeof raw[i]) != 0)
            fail_msg("%s: a right result was changed", s->pass->text);
    }
    s->found.plants++;
}

static void try_plant(subject *s, op_run *r, const plant *p) {
    set_operands(r, p);
    oracle_sums exact = expect(s->k, r, s->kind);
    float *bias = wide_bias(s->k, r, s->kind), *checked = run_pass(s->pass, s->kind, r, bias);
    const size_t bytes = (size_t)ab_tensor_count(result_of(r, s->kind)) * sizeof *checked;
    float *raw = aligned(bytes);
    memcpy(raw, checked, bytes);
    const ab_conv conv = geometry(s->k, r);
    const ab_product_data data = {.kind = s->kind,
                                  .conv = &conv,
                                  .in = &r->in[0],
                                  .weights = &r->param[0],
                                  .dout = &r->dout,
                                  .bias = bias,
                                  .weights_finite = p->of != WEIGHT,
                                  .dst = checked};
    ab_repair_product(&data);
    compare(s, r, raw, checked, exact.sum, p);
    oracle_sums_close(&exact);
    free(bias);
    free(raw);
    free(checked);
}

static bool reads(ab_pass_kind kind, operand which, bool bias) {
    static const unsigned read[AB_PASSES] = {[AB_PASS_FORWARD] = 1u << IN | 1u << WEIGHT | 1u << BIAS,
                                             [AB_PASS_BACKWARD_DATA] = 1u << WEIGHT | 1u << DOUT,
                                             [AB_PASS_BACKWARD_WEIGHTS] = 1u << IN | 1u << DOUT};
    return (read[kind] >> which & 1u) && (which != BIAS || bias);
}

/* First, last and middle values, the last channel of a pixel, everything; alone and against zeros. */
static void try_plants(subject *s, op_run *r) {
    for (int which = IN; which < OPERANDS; which++) {
        if (!reads(s->kind, (operand)which, s->k->bias)) continue;
        const ab_tensor *t = tensor_of(r, (operand)which);
        const int64_t n = ab_tensor_count(t), last = t->shape.dim[t->shape.ndim - 1];
        const plant plants[] = {{(operand)which, 0, (double)INFINITY, false},
                                {(operand)which, n - 1, (double)NAN, false},
                                {(operand)which, n / 2, -(double)INFINITY, false},
                                {(operand)which, last - 1, (double)INFINITY, false},
                                {(operand)which, n / 3, (double)INFINITY, true},
                                {(operand)which, n / 2 + 1 < n ? n / 2 + 1 : 0, (double)NAN, true},
                                {(operand)which, -1, (double)NAN, false}};
        for (size_t i = 0; i < AB_COUNT_OF(plants); i++)
            if (which != BIAS || !plants[i].zeros) try_plant(s, r, &plants[i]);
    }
}

/* ---- all implementations --------------------------------------------------------------------- */

static void report(const subject *s, const ab_format *format, const char *level) {
    if (getenv("AB_SURVEY"))
        printf("survey: %-18s %-5s case %2d pass %d %-40s plants %2lld spread %5lld lost %5lld\n",
               level ? level : "all", format->name, (int)(s->k - cases), (int)s->kind, s->pass->text,
               (long long)s->found.plants, (long long)s->found.spread, (long long)s->found.lost);
}

static int try_implementations(const shape_case *k, const ab_format *format, ab_pass_kind kind) {
    op_attrs attrs;
    op_run r;
    int n = 0;
    open_case(&r, k, &attrs, format);
    const ab_pass_spec spec = {.kind = kind, .conv = geometry(k, &r), .bias = k->bias, .operands = format};
    for (;; n++) {
        subject s = {.k = k, .kind = kind};
        assert_int_equal(ab_dnnl_nth_pass(&spec, k->matmul, n, &s.pass), AB_OK);
        if (!s.pass) break;
        if (strncmp(s.pass->text, "ref", 3) != 0) try_plants(&s, &r); /* those are never taken */
        report(&s, format, getenv("ONEDNN_MAX_CPU_ISA"));
        s.pass->destroy(s.pass);
    }
    op_run_close(&r);
    return n;
}

static void every_implementation_is_corrected(void **state) {
    (void)state;
    static const ab_format *const formats[] = {&ab_format_fp32, &ab_format_bf16, &ab_format_fp16};
    int tried = 0;
    if (!ab_dnnl_usable()) skip();
    for (size_t k = 0; k < AB_COUNT_OF(cases); k++)
        for (size_t f = 0; f < AB_COUNT_OF(formats); f++)
            for (int kind = 0; kind < AB_PASSES; kind++)
                tried += try_implementations(&cases[k], formats[f], (ab_pass_kind)kind);
    assert_true(tried >= (int)AB_COUNT_OF(cases) * AB_PASSES); /* at least one each in fp32 */
}

/* This program again, with the library held down to a level; what the machine lacks is not raised to. */
static int run_at(const char *level) {
    int status = -1;
    const pid_t child = fork();
    if (child == 0) {
        char name[] = "test_library_nonfinite", *const arguments[] = {name, NULL};
        setenv("ONEDNN_MAX_CPU_ISA", level, 1);
        execv("/proc/self/exe", arguments);
        _exit(127);
    }
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    return status;
}

static void so_is_every_implementation_of_older_machines(void **state) {
    (void)state;
    static const char *const levels[] = {"AVX512_CORE_BF16", "AVX512_CORE", "AVX2", "SSE41"};
    if (!ab_dnnl_usable() || getenv("ONEDNN_MAX_CPU_ISA")) skip();
    for (size_t i = 0; i < AB_COUNT_OF(levels); i++)
        if (run_at(levels[i]) != 0) fail_msg("held down to %s", levels[i]);
}

int main(void) {
    /* A primitive that is cached is offered again in the place of every other. */
    setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "0", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_implementation_is_corrected),
        cmocka_unit_test(so_is_every_implementation_of_older_machines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
