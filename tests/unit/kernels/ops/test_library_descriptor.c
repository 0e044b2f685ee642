/* oneDNN before 3.0 reads the operation descriptor at every step of its iterator. A stand-in in front of the
 * library overwrites the stack below its caller, where a descriptor of a function that has returned would
 * lie, and looks whether the descriptor still is what it was. Inlining hides the mistake from it: it is
 * caught in Debug builds. */
#define _GNU_SOURCE
#include "oracle/op_run.h"

#include "kernels/ops/product/dnnl_shim.h"

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
    const ab_pass_spec spec = {
        .conv = ab_conv_of_linear(8, 24, 16), .bias = true, .operands = &ab_format_fp32};
    step(spec, true);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_convolutions_descriptor_outlives_its_iterator),
        cmocka_unit_test(a_matrix_products_descriptor_outlives_its_iterator),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void) {
    puts("SKIPPED: the library owns its descriptors");
    return 77;
}

#endif
