/* oneDNN before 3.0 reads the operation descriptor at every step of its iterator. A stand-in in front of the
 * library overwrites the stack below its caller, where a descriptor of a function that has returned would
 * lie, and looks whether the descriptor still is what it was. Inlining hides the mistake from it: it is
 * caught in Debug builds. */
#define _GNU_SOURCE
#include "oracle/op_run.h"

#include "kernels/ops/product/dnnl_shim.h"
#include "kernels/ops/product/pass.h"

#ifdef AB_HAVE_DNNL
#include <oneapi/dnnl/dnnl.h>
#endif

#if defined AB_HAVE_DNNL && DNNL_VERSION_MAJOR < 3
#include <dlfcn.h>

enum { STACK = 64 * 1024 };

static struct {
    const unsigned char *descriptor;
    unsigned char copy[sizeof(dnnl_convolution_desc_t)];
    size_t bytes;
    int steps;
} kept;

/* The library's own function of that name. */
static void *library(const char *name) {
    void *function = dlsym(RTLD_NEXT, name);
    assert_non_null(function);
    return function;
}

static __attribute__((noinline)) void overwrite_the_stack(void) {
    volatile unsigned char below[STACK];
    for (size_t i = 0; i < sizeof below; i++) below[i] = 0xa5;
}

dnnl_status_t dnnl_primitive_desc_iterator_create(dnnl_primitive_desc_iterator_t *iterator,
                                                  const_dnnl_op_desc_t descriptor,
                                                  const_dnnl_primitive_attr_t attributes,
                                                  dnnl_engine_t engine, const_dnnl_primitive_desc_t hint) {
    dnnl_status_t (*create)(dnnl_primitive_desc_iterator_t *, const_dnnl_op_desc_t,
                            const_dnnl_primitive_attr_t, dnnl_engine_t, const_dnnl_primitive_desc_t);
    *(void **)&create = library("dnnl_primitive_desc_iterator_create");
    const dnnl_primitive_kind_t kind = *(const dnnl_primitive_kind_t *)descriptor;
    kept.bytes = kind == dnnl_matmul ? sizeof(dnnl_matmul_desc_t) : sizeof(dnnl_convolution_desc_t);
    kept.descriptor = descriptor;
    memcpy(kept.copy, descriptor, kept.bytes);
    return create(iterator, descriptor, attributes, engine, hint);
}

dnnl_status_t dnnl_primitive_desc_iterator_next(dnnl_primitive_desc_iterator_t iterator) {
    dnnl_status_t (*next)(dnnl_primitive_desc_iterator_t);
    *(void **)&next = library("dnnl_primitive_desc_iterator_next");
    overwrite_the_stack();
    if (memcmp(kept.descriptor, kept.copy, kept.bytes) != 0)
        fail_msg("the iterator's descriptor was not kept");
    kept.steps++;
    return next(iterator);
}

/* The second implementation is behind a step. */
static void step(ab_pass_spec spec, bool matmul) {
    for (int kind = 0; kind < AB_PASSES; kind++) {
        ab_pass *pass = NULL;
        spec.kind = (ab_pass_kind)kind;
        kept.steps = 0;
        assert_int_equal(ab_dnnl_nth_pass(&spec, matmul, 1, &pass), AB_OK);
        assert_true(kept.steps > 0);
        if (pass) pass->destroy(pass);
    }
}

static void a_convolutions_descriptor_outlives_its_iterator(void **state) {
    (void)state;
    const ab_pass_spec spec = {.conv = {.window = {.in = {6, 6},
                                                   .out = {6, 6},
                                                   .kernel = {3, 3},
                                                   .stride = {1, 1},
                                                   .padding = {1, 1},
                                                   .dilation = {1, 1},
                                                   .channels = 8},
                                        .batch = 2,
                                        .out_channels = 16,
                                        .groups = 1},
                               .operands = &ab_format_fp32};
    step(spec, false);
}

static void a_matrix_products_descriptor_outlives_its_iterator(void **state) {
    (void)state;
    const ab_pass_spec spec = {.conv = {.window = {.in = {1, 1},
                                                   .out = {1, 1},
                                                   .kernel = {1, 1},
                                                   .stride = {1, 1},
                                                   .dilation = {1, 1},
                                                   .channels = 24},
                                        .batch = 8,
                                        .out_channels = 16,
                                        .groups = 1},
                               .bias = true,
                               .operands = &ab_format_fp32};
    step(spec, true);
}

/* Which implementations of the library are passed over for which shapes; the shapes beside them are not. */

typedef struct defect_case {
    const char *name;
    ab_pass_kind kind;
    int64_t batch, width, channels, out, kernel, stride, dilation;
    int version;
    bool matmul, wrong;
} defect_case;

static const char amx_jit[] = "jit:avx512_core_amx_bf16", amx_brg[] = "brg:avx512_core_amx_bf16",
                  amx_conv[] = "brgconv:avx512_core_amx_bf16";

static const defect_case cases[] = {
    {amx_brg, AB_PASS_FORWARD, 8, 1, 63, 8, 1, 1, 1, 20603, true, true},
    {amx_brg, AB_PASS_FORWARD, 8, 1, 63, 8, 1, 1, 1, 30100, true, false},
    {amx_brg, AB_PASS_FORWARD, 8, 1, 31, 8, 1, 1, 1, 20603, true, false},
    {amx_brg, AB_PASS_FORWARD, 63, 1, 64, 8, 1, 1, 1, 20603, true, false},
    {amx_brg, AB_PASS_BACKWARD_DATA, 8, 1, 8, 95, 1, 1, 1, 20603, true, true},
    {amx_brg, AB_PASS_BACKWARD_WEIGHTS, 127, 1, 8, 8, 1, 1, 1, 30000, true, true},
    {"brg:avx512_core_bf16", AB_PASS_BACKWARD_WEIGHTS, 127, 1, 8, 8, 1, 1, 1, 20603, true, false},
    {amx_jit, AB_PASS_BACKWARD_WEIGHTS, 1, 9, 33, 8, 3, 1, 2, 20603, false, true},
    {amx_jit, AB_PASS_BACKWARD_WEIGHTS, 1, 9, 33, 8, 3, 1, 2, 30700, false, true},
    {amx_jit, AB_PASS_BACKWARD_WEIGHTS, 1, 9, 32, 8, 3, 1, 2, 20603, false, false},
    {amx_jit, AB_PASS_BACKWARD_WEIGHTS, 1, 9, 33, 8, 3, 1, 1, 20603, false, false},
    {amx_jit, AB_PASS_FORWARD, 1, 9, 33, 8, 3, 1, 2, 20603, false, false},
    {amx_jit, AB_PASS_BACKWARD_WEIGHTS, 1, 2, 16, 8, 3, 3, 1, 20603, false, true},
    {amx_jit, AB_PASS_BACKWARD_WEIGHTS, 1, 3, 16, 8, 3, 3, 1, 20603, false, false},
    {"jit_bf16:avx512_core_bf16", AB_PASS_BACKWARD_WEIGHTS, 1, 2, 16, 8, 3, 3, 1, 20603, false, true},
    {amx_conv, AB_PASS_FORWARD, 1, 9, 64, 8, 2, 3, 1, 20603, false, true},
    {amx_conv, AB_PASS_FORWARD, 1, 9, 64, 8, 2, 3, 2, 20603, false, false},
    {amx_conv, AB_PASS_FORWARD, 1, 9, 64, 8, 3, 3, 1, 20603, false, false},
    {"brgconv_1x1:avx512_core_amx_bf16", AB_PASS_FORWARD, 1, 9, 64, 8, 1, 2, 1, 20603, false, false},
    {"brgconv:avx512_core", AB_PASS_FORWARD, 1, 9, 64, 8, 2, 3, 1, 20603, false, false},
};

static void defects_are_known_by_shape_and_version(void **state) {
    (void)state;
    for (size_t i = 0; i < AB_COUNT_OF(cases); i++) {
        const defect_case *k = &cases[i];
        const ab_pass_spec spec = {.kind = k->kind,
                                   .operands = &ab_format_bf16,
                                   .conv = {.window = {.in = {k->width, k->width},
                                                       .channels = k->channels,
                                                       .kernel = {k->kernel, k->kernel},
                                                       .stride = {k->stride, k->stride},
                                                       .dilation = {k->dilation, k->dilation}},
                                            .batch = k->batch,
                                            .out_channels = k->out,
                                            .groups = 1}};
        const char *defect = ab_library_defect(&spec, k->matmul, k->name, k->version);
        if (!defect != !k->wrong) fail_msg("case %zu: %s, found: %s", i, k->name, defect ? defect : "right");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_convolutions_descriptor_outlives_its_iterator),
        cmocka_unit_test(a_matrix_products_descriptor_outlives_its_iterator),
        cmocka_unit_test(defects_are_known_by_shape_and_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
