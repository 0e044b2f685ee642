/* The arithmetic that CPU and GPU kernels share (kernels/ops/element.h, formulas.h, step_state.h), run here
 * element by element over the inputs of the CPU's own ops: element-wise results are their bits, sums agree
 * within the bound of their number of terms. What a GPU would do around it (launches, block sums) is not
 * tested here. */
#include "oracle/conv.h"
#include "oracle/op_run.h"

#include "bench/amp/scaler/scaler.h"
#include "bench/train/update/optim_device.h"
#include "kernels/backend/step_state.h"
#include "kernels/format/convert.h"
#include "kernels/ops/formulas.h"
#include "kernels/ops/loss/pointwise_loss.h"

static int type_of(const ab_format *format) {
    return format == &ab_format_fp32   ? AB_ELEMENT_F32
           : format == &ab_format_fp16 ? AB_ELEMENT_F16
                                       : AB_ELEMENT_BF16;
}

static ab_span span_of(const ab_tensor *tensor) { return (ab_span){tensor->data, type_of(tensor->format)}; }

/* ---- stored elements ------------------------------------------------------------------------- */

static void every_half_loads_as_the_cpu_widens_it(void **state) {
    (void)state;
    static const ab_format *const formats[] = {&ab_format_fp16, &ab_format_bf16};
    for (size_t f = 0; f < AB_COUNT_OF(formats); f++)
        for (uint32_t code = 0; code < 0x10000u; code++) {
            uint16_t half[2] = {(uint16_t)code, 0};
            float wide;
            ab_widen(&wide, half, formats[f], 1);
            float loaded = ab_load(half, type_of(formats[f]), 0);
            if (isnan(wide))
                assert_true(isnan(loaded));
            else
                assert_int_equal(ab_bits_of(loaded), ab_bits_of(wide));
        }
}

/* Every exponent with mantissas around the ties of both formats, both signs. */
static void floats_store_as_the_cpu_narrows_them(void **state) {
    (void)state;
    static const uint32_t low[] = {0,        1,        0xfff,    0x1000,   0x1001,  0x1fff,   0x2000,
                                   0x7fff,   0x8000,   0x8001,   0x17fff,  0x18000, 0x7fefff, 0x7ff000,
                                   0x7f7fff, 0x7f8000, 0x7fffff, 0x400000, 0x3000};
    static const ab_format *const formats[] = {&ab_format_fp16, &ab_format_bf16, &ab_format_fp32};
    for (uint32_t exponent = 0; exponent < 256; exponent++)
        for (size_t m = 0; m < AB_COUNT_OF(low); m++)
            for (uint32_t sign = 0; sign < 2; sign++)
                for (size_t f = 0; f < AB_COUNT_OF(formats); f++) {
                    float x = ab_float_of(sign << 31 | exponent << 23 | low[m]);
                    uint32_t stored = 0, expected = 0;
                    ab_store(&stored, type_of(formats[f]), 0, x);
                    ab_narrow(&expected, formats[f], &x, 1);
                    if (stored != expected)
                        fail_msg("%a in %s: %x, expected %x", (double)x, formats[f]->name, stored, expected);
                }
}

/* ---- ops ------------------------------------------------------------------------------------- */

typedef struct image_case {
    const char *op;
    int64_t shape[4], kernel[2], stride[2], padding[2];
    bool count_pad;
} image_case;

static const image_case pools[] = {{"max_pool2d", {2, 6, 7, 3}, {2, 2}, {2, 2}, {0, 0}, true},
                                   {"max_pool2d", {1, 7, 5, 2}, {3, 3}, {2, 1}, {1, 1}, true},
                                   {"avg_pool2d", {2, 6, 7, 3}, {3, 2}, {2, 2}, {1, 1}, true},
                                   {"avg_pool2d", {1, 5, 5, 4}, {3, 3}, {1, 2}, {1, 1}, false}};

/* Values on a coarse grid: equal ones are common, so the choice among them is tested too. */
static void fill_coarsely(const ab_tensor *tensor, uint64_t seed) {
    for (int64_t i = 0; i < ab_tensor_count(tensor); i++)
        oracle_put(tensor, i, floor(4.0 * oracle_random(seed, i)) / 4.0);
}

static void expect(const op_run *r, const ab_tensor *tensor, int64_t i, float value) {
    uint32_t stored = 0, found = 0;
    size_t bytes = tensor->format == &ab_format_fp32 ? 4 : 2;
    ab_store(&stored, type_of(tensor->format), 0, value);
    memcpy(&found, (const char *)tensor->data + (size_t)i * bytes, bytes);
    if (stored != found) fail_msg("%s[%lld]: formula %x, CPU %x", r->op->name, (long long)i, stored, found);
}

static void check_pool(const image_case *c, const op_run *r) {
    ab_window w = {.kernel = {c->kernel[0], c->kernel[1]},
                   .stride = {c->stride[0], c->stride[1]},
                   .padding = {c->padding[0], c->padding[1]},
                   .dilation = {1, 1}};
    ab_window_place(&w, &r->in[0].shape, &r->out.shape);
    ab_span in = span_of(&r->in[0]), dout = span_of(&r->dout);
    bool max = c->op[0] == 'm';
    for (int64_t i = 0; i < ab_tensor_count(&r->out); i++)
        expect(r, &r->out, i, max ? ab_f_max_pool(&w, in, i) : ab_f_avg_pool(&w, c->count_pad, in, i));
    for (int64_t i = 0; i < ab_tensor_count(&r->din[0]); i++)
        expect(r, &r->din[0], i,
               max ? ab_f_max_pool_backward(&w, in, dout, i)
                   : ab_f_avg_pool_backward(&w, c->count_pad, dout, i));
}

static void pools_give_the_cpus_bits(void **state) {
    (void)state;
    int formats;
    const op_formats *format = op_all_formats(&formats);
    for (size_t c = 0; c < AB_COUNT_OF(pools); c++)
        for (int f = 0; f < formats; f++) {
            const ab_op *op;
            op_run r;
            assert_int_equal(ab_op_find(pools[c].op, &op, NULL), AB_OK);
            op_attrs attrs = op_attrs_default(op);
            op_attrs_set(op, &attrs, "kernel_size", (double)pools[c].kernel[0], (double)pools[c].kernel[1]);
            op_attrs_set(op, &attrs, "stride", (double)pools[c].stride[0], (double)pools[c].stride[1]);
            op_attrs_set(op, &attrs, "padding", (double)pools[c].padding[0], (double)pools[c].padding[1]);
            if (pools[c].op[0] == 'a') op_attrs_set(op, &attrs, "count_include_pad", pools[c].count_pad, 0);
            ab_shape in = {4, {pools[c].shape[0], pools[c].shape[1], pools[c].shape[2], pools[c].shape[3]}};
            op_run_open(&r, op, attrs.bytes, &in, 1, format[f], &(ab_exec){.training = true});
            assert_int_equal(op_run_prepare(&r), AB_OK);
            fill_coarsely(&r.in[0], 5);
            op_run_fill(&r.dout, 6);
            op_run_both(&r);
            check_pool(&pools[c], &r);
            op_run_close(&r);
        }
}

static void relu_and_flatten_give_the_cpus_bits(void **state) {
    (void)state;
    int formats;
    const op_formats *format = op_all_formats(&formats);
    static const char *const names[] = {"relu", "flatten"};
    for (int k = 0; k < 2; k++)
        for (int f = 0; f < formats; f++) {
            const ab_op *op;
            op_run r;
            ab_shape in = {4, {2, 3, 5, 7}};
            assert_int_equal(ab_op_find(names[k], &op, NULL), AB_OK);
            op_run_open(&r, op, NULL, &in, 1, format[f], &(ab_exec){.training = true});
            assert_int_equal(op_run_prepare(&r), AB_OK);
            op_run_fill_all(&r, 9);
            op_run_both(&r);
            ab_span x = span_of(&r.in[0]), y = span_of(&r.out), dy = span_of(&r.dout);
            for (int64_t i = 0; i < ab_tensor_count(&r.out); i++) {
                float out = k == 0 ? ab_f_relu(ab_span_at(x, i)) : ab_span_at(x, ab_flatten_source(i, 15, 7));
                float din = k == 0 ? ab_f_relu_backward(ab_span_at(y, i), ab_span_at(dy, i))
                                   : ab_span_at(dy, ab_flatten_source(i, 7, 15));
                expect(&r, &r.out, i, out);
                expect(&r, &r.din[0], i, din);
            }
            op_run_close(&r);
        }
}

/* ---- convolution against the double oracle --------------------------------------------------- */

static const oracle_conv convolutions[] = {{2, 7, 6, 3, 4, 3, 3, 1, 1, 1, 1, 1, 1, 1, 0, 0},
                                           {1, 9, 8, 4, 6, 3, 2, 2, 3, 1, 0, 1, 1, 2, 0, 0},
                                           {2, 8, 8, 2, 3, 3, 3, 1, 2, 2, 1, 2, 2, 1, 0, 0},
                                           {3, 1, 1, 5, 4, 1, 1, 1, 1, 0, 0, 1, 1, 1, 0, 0}};

static ab_conv conv_of(const oracle_conv *s) {
    return (ab_conv){.window = {.in = {s->h, s->w},
                                .out = {s->oh, s->ow},
                                .kernel = {s->kh, s->kw},
                                .stride = {s->sh, s->sw},
                                .padding = {s->ph, s->pw},
                                .dilation = {s->dh, s->dw},
                                .channels = s->c},
                     .batch = s->n,
                     .out_channels = s->oc,
                     .groups = s->groups};
}

static void near(const char *what, int64_t i, double found, double exact, double magnitude, int64_t terms) {
    double bound = (double)(terms + 2) * ORACLE_U32 * magnitude;
    if (!(fabs(found - exact) <= bound))
        fail_msg("%s[%lld] is %.9g, expected %.9g within %.3g", what, (long long)i, found, exact, bound);
}

static float *random_floats(int64_t n, uint64_t seed, double **exact) {
    float *values = malloc((size_t)n * sizeof *values);
    *exact = oracle_doubles(n);
    for (int64_t i = 0; i < n; i++) (*exact)[i] = (double)(values[i] = (float)oracle_random(seed, i));
    return values;
}

static void check_conv(oracle_conv s) {
    s.oh = ab_window_out(s.h, s.kh, s.sh, s.ph, s.dh);
    s.ow = ab_window_out(s.w, s.kw, s.sw, s.pw, s.dw);
    ab_conv c = conv_of(&s);
    int64_t ins = s.n * s.h * s.w * s.c, outs = s.n * s.oh * s.ow * s.oc;
    int64_t weights = s.oc * (s.c / s.groups) * s.kh * s.kw, taps = s.kh * s.kw, rows = s.n * s.oh;
    double *exact_in, *exact_weights, *exact_dout;
    float *in = random_floats(ins, 1, &exact_in), *weight = random_floats(weights, 2, &exact_weights),
          *dout = random_floats(outs, 3, &exact_dout);
    oracle_sums out = oracle_sums_open(outs), din = oracle_sums_open(ins),
                dweight = oracle_sums_open(weights);
    oracle_conv_all(&s, exact_in, exact_weights, exact_dout, out, din, dweight);
    ab_span x = {in, AB_ELEMENT_F32}, w = {weight, AB_ELEMENT_F32}, dy = {dout, AB_ELEMENT_F32};
    for (int64_t i = 0; i < outs; i++)
        near("conv", i, (double)ab_f_conv(&c, x, w, i), out.sum[i], out.magnitude[i], taps * s.c);
    for (int64_t i = 0; i < ins; i++)
        near("conv backward data", i, (double)ab_f_conv_backward_data(&c, dy, w, i), din.sum[i],
             din.magnitude[i], taps * s.oc);
    for (int64_t i = 0; i < weights; i++) { /* in two parts, as blocks do */
        double sum = ab_f_conv_backward_weights(&c, x, dy, i, 0, rows / 2) +
                     ab_f_conv_backward_weights(&c, x, dy, i, rows / 2, rows);
        near("conv backward weights", i, sum, dweight.sum[i], dweight.magnitude[i], s.ow);
    }
    oracle_sums_close(&out);
    oracle_sums_close(&din);
    oracle_sums_close(&dweight);
    free(in);
    free(weight);
    free(dout);
    free(exact_in);
    free(exact_weights);
    free(exact_dout);
}

static void convolutions_agree_with_the_double_oracle(void **state) {
    (void)state;
    for (size_t i = 0; i < AB_COUNT_OF(convolutions); i++) check_conv(convolutions[i]);
}

static void weights_come_back_from_the_librarys_layout(void **state) {
    (void)state;
    enum { OUT = 3, IN = 5, TAPS = 4, N = OUT * IN * TAPS };
    int packed[N];
    for (int i = 0; i < N; i++) packed[i] = (int)ab_krsc_source(i, IN, TAPS);
    for (int o = 0; o < OUT; o++)
        for (int k = 0; k < IN; k++)
            for (int t = 0; t < TAPS; t++)
                assert_int_equal(packed[(o * TAPS + t) * IN + k], (o * IN + k) * TAPS + t);
    for (int i = 0; i < N; i++) assert_int_equal(packed[ab_krsc_source(i, TAPS, IN)], i);
}

/* ---- batch norm ------------------------------------------------------------------------------ */

static void batch_norm_normalises_as_the_cpu_does(void **state) {
    (void)state;
    enum { ROWS = 60, CHANNELS = 3 };
    const ab_op *op;
    op_run r;
    ab_shape in = {4, {3, 4, 5, CHANNELS}};
    assert_int_equal(ab_op_find("batch_norm2d", &op, NULL), AB_OK);
    op_attrs attrs = op_attrs_default(op);
    op_run_open(&r, op, attrs.bytes, &in, 1, (op_formats){&ab_format_fp32, &ab_format_fp32, NULL},
                &(ab_exec){.training = true});
    assert_int_equal(op_run_prepare(&r), AB_OK);
    op_run_fill_all(&r, 4);
    op_run_both(&r);
    for (int64_t i = 0; i < ROWS * CHANNELS; i++) {
        int64_t c = i % CHANNELS;
        float mean = (float)oracle_get(&r.saved_tensor[0], c),
              invstd = (float)oracle_get(&r.saved_tensor[1], c);
        float gamma = (float)oracle_get(&r.param[0], c), beta = (float)oracle_get(&r.param[1], c);
        expect(&r, &r.out, i, ab_f_bn_apply((float)oracle_get(&r.in[0], i), mean, invstd * gamma, beta));
    }
    op_run_close(&r);
}

/* ---- activations ----------------------------------------------------------------------------- */

/* Against double. */
static void activations_are_the_double_formulas(void **state) {
    (void)state;
    for (int i = -2000; i <= 2000; i++) {
        const double x = i * 0.01, u = 1.5957691216057308 * (x + 0.044715 * x * x * x);
        const double phi = 0.5 * erfc(-x / sqrt(2.0)), density = exp(-0.5 * x * x) / sqrt(6.283185307179586);
        const double s = 1 / (1 + exp(-x)), t = 1 / (1 + exp(-u));
        const double inner = 1.5957691216057308 * (1 + 3 * 0.044715 * x * x);
        const struct {
            float found;
            double exact, size; /* size: sum of the magnitudes of its terms */
        } rows[] = {
            {ab_f_sigmoid((float)x), s, s},
            {ab_f_silu((float)x), x * s, fabs(x * s)},
            {ab_f_silu_slope((float)x), s + x * s * (1 - s), s + fabs(x) * s * (1 - s)},
            {ab_f_gelu((float)x), x * phi, fabs(x * phi)},
            {ab_f_gelu_slope((float)x), phi + x * density, phi + fabs(x) * density},
            {ab_f_gelu_tanh((float)x), x * t, fabs(x * t)},
            {ab_f_gelu_tanh_slope((float)x), t + x * t * (1 - t) * inner, t + fabs(x) * t * (1 - t) * inner}};
        for (size_t k = 0; k < AB_COUNT_OF(rows); k++) {
            /* an exponential multiplies the relative error of its argument by the argument */
            double bound = 0x1p-22 * rows[k].size * (8 + fabs(u) + x * x) + 0x1p-140;
            if (!(fabs((double)rows[k].found - rows[k].exact) <= bound))
                fail_msg("row %zu at %g: %.9g, expected %.9g within %.3g", k, x, (double)rows[k].found,
                         rows[k].exact, bound);
        }
    }
}

/* Derivatives from the output, or where no other name is. */
static float tanh_slope(float y) { return (1.0f - y) * (1.0f + y); }
static float sigmoid_slope(float y) { return y * (1.0f - y); }
static float exp_slope(float y) { return y; }
static float log_slope(float x) { return 1.0f / x; }

/* The gradient of bce and of bce_with_logits summed, so that no mean hides a bit; 1 is the gradient of the
 * loss. */
static void same_loss_terms(const void *argument) {
    static const struct {
        const ab_op *op;
        float (*by[2])(float, float);
    } loss[] = {{&ab_op_bce, {ab_bce_by_x, ab_bce_by_t}},
                {&ab_op_bce_with_logits, {ab_bce_with_logits_by_x, ab_bce_with_logits_by_t}}};
    (void)argument;
    for (size_t k = 0; k < AB_COUNT_OF(loss); k++) {
        op_run r;
        ab_shape in[] = {{1, {1031}}, {1, {1031}}};
        op_attrs attrs = op_attrs_default(loss[k].op);
        op_attrs_set(loss[k].op, &attrs, "reduction", 1, 0);
        op_run_open(&r, loss[k].op, attrs.bytes, in, 2, (op_formats){&ab_format_fp32, &ab_format_fp32, NULL},
                    &(ab_exec){.training = true});
        op_run_fill_all(&r, 8);
        float *x = r.in[0].data, *t = r.in[1].data;
        for (int i = 0; i < 1031; i++) x[i] = k == 0 ? fabsf(x[i]) : 30.0f * x[i];
        *(float *)r.dout.data = 1.0f;
        assert_int_equal(op_run_prepare(&r), AB_OK);
        op_run_both(&r);
        for (int which = 0; which < 2; which++)
            for (int64_t i = 0; i < 1031; i++)
                assert_int_equal(ab_bits_of(((float *)r.din[which].data)[i]),
                                 ab_bits_of(loss[k].by[which](x[i], t[i])));
        op_run_close(&r);
    }
}

/* Ops of one number, by the formula of its value and of its slope from what backward reads. */
static const struct {
    const char *op;
    double approximate; /* of gelu */
    float (*value)(float);
    float (*slope)(float);
    bool reads_out;
} pointwise[] = {{"gelu", 0, ab_f_gelu, ab_f_gelu_slope, false},
                 {"gelu", 1, ab_f_gelu_tanh, ab_f_gelu_tanh_slope, false},
                 {"silu", 0, ab_f_silu, ab_f_silu_slope, false},
                 {"tanh", 0, ab_tanhf, tanh_slope, true},
                 {"sigmoid", 0, ab_f_sigmoid, sigmoid_slope, true},
                 {"exp", 0, ab_expf, exp_slope, true},
                 {"log", 0, ab_logf, log_slope, false}};

static void same_as_the_formula(const void *argument) {
    const size_t k = *(const size_t *)argument;
    const ab_op *op;
    op_run r;
    ab_shape shape = {1, {2099}};
    assert_int_equal(ab_op_find(pointwise[k].op, &op, NULL), AB_OK);
    op_attrs attrs = op_attrs_default(op);
    if (strcmp(op->name, "gelu") == 0) op_attrs_set(op, &attrs, "approximate", pointwise[k].approximate, 0);
    op_run_open(&r, op, attrs.bytes, &shape, 1, (op_formats){&ab_format_fp32, &ab_format_fp32, NULL},
                &(ab_exec){.training = true});
    op_run_fill_all(&r, 3);
    float *x = r.in[0].data, *y = r.out.data, *dy = r.dout.data;
    for (int i = 0; i < 2048; i++) x[i] = ab_float_of((uint32_t)i << 21 | (uint32_t)i * 1009u);
    for (int i = 2048; i < 2099; i++) x[i] = ldexpf(x[i], i % 5);
    assert_int_equal(op_run_prepare(&r), AB_OK);
    op_run_both(&r);
    for (int64_t i = 0; i < 2099; i++) {
        float out = pointwise[k].value(x[i]),
              din = dy[i] * pointwise[k].slope(pointwise[k].reads_out ? y[i] : x[i]);
        const float found[] = {y[i], ((float *)r.din[0].data)[i]}, expected[] = {out, din};
        for (int n = 0; n < 2; n++)
            if (isnan(expected[n]) ? !isnan(found[n]) : ab_bits_of(found[n]) != ab_bits_of(expected[n]))
                fail_msg("%s, %s at %a: %a, formula %a", op->name, n ? "gradient" : "value", (double)x[i],
                         (double)found[n], (double)expected[n]);
    }
    op_run_close(&r);
}

static void ops_of_one_number_have_the_formulas_bits_at_every_level(void **state) {
    (void)state;
    for (size_t k = 0; k < AB_COUNT_OF(pointwise); k++) op_each_machine(same_as_the_formula, &k);
}

static void losses_have_the_formulas_bits_at_every_level(void **state) {
    (void)state;
    op_each_machine(same_loss_terms, NULL);
}

/* ---- the list of CUDA ops -------------------------------------------------------------------- */

/* An op that learns an attribute goes back to the host on every GPU until its row names it. */
static void cuda_ops_know_every_attribute_of_their_op(void **state) {
    (void)state;
    static const struct {
        const char *op, *attributes;
    } rows[] = {
#define AB_CUDA_OP(name, attributes) {#name, attributes},
#include "kernels/cuda/cuda_ops.def"
#undef AB_CUDA_OP
    };
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
        const ab_op *op;
        char list[256], wanted[64];
        if (ab_op_find(rows[i].op, &op, NULL) != AB_OK) fail_msg("%s", ab_error_message());
        snprintf(list, sizeof list, " %s ", rows[i].attributes);
        for (const ab_attr *a = op->attrs; a && a->name; a++) {
            snprintf(wanted, sizeof wanted, " %s ", a->name);
            if (!strstr(list, wanted))
                fail_msg("%s has '%s', which its CUDA kernel does not know", op->name, a->name);
        }
    }
}

/* ---- decisions ------------------------------------------------------------------------------- */

/* Both machines from the same text, over the same overflows. */
static void follow(const char *text, ab_scale_rule rule, uint64_t seed) {
    ab_scaler_config config;
    ab_scaler scaler;
    assert_int_equal(ab_scaler_parse(text, &config), AB_OK);
    ab_scaler_start(&scaler, &config);
    ab_step_state state = {.scale = scaler.scale};
    int64_t taken = 0;
    for (int64_t i = 0; i < 2000; i++) {
        bool found = oracle_random(seed, i) > 0.8;
        state.found = found;
        ab_step_decide(&rule, &state);
        const ab_scaler_seen seen = {.overflow = found && ab_scaler_checks(&scaler)};
        const ab_scaler_outcome outcome = ab_scaler_update(&scaler, &seen);
        if (outcome.fault) break; /* a scale of 0: the host ends the run */
        taken += !outcome.skip;
        assert_int_equal(state.skip, outcome.skip);
        assert_true(state.scale == scaler.scale);
        assert_true((double)state.unskipped == scaler.state[0]);
        assert_int_equal(state.taken, taken);
        assert_int_equal(state.step, i + 1);
    }
    assert_true(taken > 100);
}

static void the_devices_scale_follows_the_scalers(void **state) {
    (void)state;
    follow("fixed:init=128", (ab_scale_rule){.window = 2000}, 1);
    follow("apex:window=3", (ab_scale_rule){.dynamic = true, .max_scale = 0x1p24, .window = 3}, 2);
    follow("apex:window=2,max=131072,min=4096",
           (ab_scale_rule){.dynamic = true, .max_scale = 131072.0, .min_scale = 4096, .window = 2}, 3);
    follow("apex:window=5,init=1,min=2",
           (ab_scale_rule){.dynamic = true, .max_scale = 0x1p24, .min_scale = 2, .window = 5}, 4);
}

/* ---- optimizers ------------------------------------------------------------------------------ */

enum { UPDATED = 500, UPDATES = 5 };

/* The factor that norms give, by the optimizer's own code and by the device's. */
static void same_trust(const ab_optimizer *optimizer, ab_optimizer_config *config, int64_t taken, int kind,
                       const float *weight, const float *grad, const float (*state)[UPDATED],
                       ab_update_row *row) {
    ab_optimizer_sums here = {0, 0, 0}, there = {0, 0, 0};
    float copy[AB_OPTIMIZER_STATES][UPDATED], *copies[AB_OPTIMIZER_STATES];
    for (int s = 0; s < AB_OPTIMIZER_STATES; s++) {
        memcpy(copy[s], state[s], sizeof copy[s]);
        copies[s] = copy[s];
    }
    optimizer->measure(config, taken, weight, grad, copies, UPDATED, &here);
    for (int i = 0; i < UPDATED; i++) {
        float held[AB_OPTIMIZER_STATES];
        for (int s = 0; s < AB_OPTIMIZER_STATES; s++) held[s] = state[s][i];
        double other = (double)ab_f_norm_term(kind, row->value, grad[i], weight[i], held);
        there.weight += (double)weight[i] * (double)weight[i];
        there.other += other * other;
    }
    config->trust = optimizer->trust(config, &here);
    double trust = ab_f_trust(kind, row, there.weight, there.other);
    assert_memory_equal(&trust, &config->trust, sizeof trust);
    ab_f_set_trust(kind, row, trust);
}

/* What each term adds to the weights, by the optimizer's own code and by the device's. */
static void same_terms(const ab_optimizer *optimizer, const ab_optimizer_config *config, int64_t taken,
                       int kind, const ab_update_row *row, const ab_optimizer_values *before) {
    double here[AB_TERM_COUNT][UPDATED];
    double *const term[AB_TERM_COUNT] = {here[0], here[1], here[2], here[3]};
    const unsigned terms = optimizer->terms(config, taken, before, term, UPDATED);
    assert_int_equal(ab_optimizer_term_set(optimizer, config, taken), terms);
    for (int i = 0; i < UPDATED; i++) {
        double there[AB_TERM_COUNT];
        float held[AB_OPTIMIZER_STATES];
        for (int s = 0; s < AB_OPTIMIZER_STATES; s++) held[s] = before->state[s][i];
        ab_f_terms(kind, row->value, before->grad[i], before->weight[i], held, there);
        for (int t = 0; t < AB_TERM_COUNT; t++)
            if (terms >> t & 1u && memcmp(&here[t][i], &there[t], sizeof(double)) != 0)
                fail_msg("%s: term %d of step %lld is %a, on the device %a", optimizer->name, t,
                         (long long)taken, here[t][i], there[t]);
    }
}

static void same_updates(const ab_optimizer *optimizer, ab_optimizer_config config, bool zero) {
    float weight[2][UPDATED], grad[UPDATED], state[2][AB_OPTIMIZER_STATES][UPDATED] = {{{0}}};
    float *states[AB_OPTIMIZER_STATES];
    ab_update_kind kind = ab_optimizer_device_kind(optimizer);
    assert_int_equal(ab_f_needs_norms((int)kind), optimizer->measure != NULL);
    for (int s = 0; s < AB_OPTIMIZER_STATES; s++) states[s] = state[0][s];
    for (int i = 0; i < UPDATED; i++) weight[0][i] = weight[1][i] = zero ? 0 : (float)oracle_random(1, i);
    for (int64_t taken = 1; taken <= UPDATES; taken++) {
        for (int i = 0; i < UPDATED; i++) grad[i] = (float)(oracle_random((uint64_t)taken + 1, i) * 0.01);
        ab_update_row row = ab_optimizer_device_row(kind, &config, taken);
        ab_optimizer_correct(&config, taken);
        if (optimizer->measure)
            same_trust(optimizer, &config, taken, (int)kind, weight[0], grad,
                       (const float(*)[UPDATED])state[0], &row);
        else
            same_terms(optimizer, &config, taken, (int)kind, &row,
                       &(ab_optimizer_values){weight[0], grad, {states[0], states[1], states[2]}});
        optimizer->update(&config, taken, weight[0], grad, states, UPDATED);
        for (int i = 0; i < UPDATED; i++) {
            float held[AB_OPTIMIZER_STATES];
            for (int s = 0; s < AB_OPTIMIZER_STATES; s++) held[s] = state[1][s][i];
            ab_f_update((int)kind, row.value, grad[i], &weight[1][i], held);
            for (int s = 0; s < AB_OPTIMIZER_STATES; s++) state[1][s][i] = held[s];
        }
        assert_memory_equal(weight[0], weight[1], sizeof weight[0]);
        assert_memory_equal(state[0], state[1], sizeof state[0]);
    }
}

static void the_devices_updates_are_the_optimizers_bits(void **state) {
    (void)state;
    int formulas = 0;
    for (int i = 0; i < ab_optimizer_count(); i++) {
        const ab_optimizer *optimizer = ab_optimizer_at(i);
        ab_optimizer_config config = optimizer->defaults;
        if (ab_optimizer_device_kind(optimizer) == AB_UPDATE_NONE) continue; /* the host updates on copies */
        formulas++;
        same_updates(optimizer, config, false);
        same_updates(optimizer, config, true);
        config.weight_decay = 0.01;
        if (optimizer->knobs & AB_KNOB_DAMPENING) config.dampening = 0.25;
        if (optimizer->knobs & AB_KNOB_LR_DECAY) config.lr_decay = 0.1;
        config.lr = 0.037;
        same_updates(optimizer, config, false);
    }
    assert_int_equal(formulas, 12);
}

static void doubles_round_once_to_every_type(void **state) {
    (void)state;
    static const ab_format *const formats[] = {&ab_format_fp32, &ab_format_fp16, &ab_format_bf16};
    const ab_rounding nearest = {.mode = AB_ROUND_NEAREST_EVEN};
    for (size_t f = 0; f < AB_COUNT_OF(formats); f++)
        for (int i = 0; i < 40000; i++) {
            /* numbers a little beside ties of the format, where rounding twice goes wrong */
            double tie = 1.0 + ((double)(i % 97) + 0.5) * ldexp(1.0, 1 - formats[f]->precision);
            double beside = (double)(i % 5 - 2) * ldexp(1.0, -40 - i % 12);
            double x = ldexp(tie + beside, i % 60 - 30) * (i % 2 ? 1 : -1);
            if (i == 0) x = (double)INFINITY;
            if (i == 1) x = 1e300;
            assert_true(ab_f_rounded(x, type_of(formats[f])) == ab_format_round(formats[f], &nearest, x));
        }
    assert_true(isnan(ab_f_rounded((double)NAN, AB_ELEMENT_F16)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half_loads_as_the_cpu_widens_it),
        cmocka_unit_test(floats_store_as_the_cpu_narrows_them),
        cmocka_unit_test(pools_give_the_cpus_bits),
        cmocka_unit_test(relu_and_flatten_give_the_cpus_bits),
        cmocka_unit_test(convolutions_agree_with_the_double_oracle),
        cmocka_unit_test(weights_come_back_from_the_librarys_layout),
        cmocka_unit_test(batch_norm_normalises_as_the_cpu_does),
        cmocka_unit_test(activations_are_the_double_formulas),
        cmocka_unit_test(ops_of_one_number_have_the_formulas_bits_at_every_level),
        cmocka_unit_test(losses_have_the_formulas_bits_at_every_level),
        cmocka_unit_test(cuda_ops_know_every_attribute_of_their_op),
        cmocka_unit_test(the_devices_scale_follows_the_scalers),
        cmocka_unit_test(the_devices_updates_are_the_optimizers_bits),
        cmocka_unit_test(doubles_round_once_to_every_type)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
