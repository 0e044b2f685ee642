/* Which oneDNN is used at run time, and with which arithmetic. A stand-in in front of the library says that
 * it was built for other threads; another remembers the attributes of its primitives. */
#define _GNU_SOURCE
#include "oracle/op_run.h"

#include "kernels/ops/product/dnnl_shim.h"
#include "kernels/ops/product/gemm.h"

#ifdef AB_HAVE_DNNL
#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>
#include <sys/wait.h>
#include <unistd.h>

static dnnl_version_t said; /* instead of the library's own version if major is not 0 */
static dnnl_primitive_attr_t attributes;

static void *library(const char *name) {
    void *function = dlsym(RTLD_NEXT, name);
    assert_non_null(function);
    return function;
}

const dnnl_version_t *dnnl_version(void) {
    const dnnl_version_t *(*version)(void);
    *(void **)&version = library("dnnl_version");
    return said.major ? &said : version();
}

dnnl_status_t dnnl_primitive_attr_set_scratchpad_mode(dnnl_primitive_attr_t attr,
                                                      dnnl_scratchpad_mode_t mode) {
    dnnl_status_t (*set)(dnnl_primitive_attr_t, dnnl_scratchpad_mode_t);
    *(void **)&set = library("dnnl_primitive_attr_set_scratchpad_mode");
    attributes = attr;
    return set(attr, mode);
}

enum { SIDE = 300 }; /* too wide for our own products */

static float a[SIDE * SIDE], b[SIDE * SIDE], c[SIDE * SIDE];

static bool multiplies(void) {
    const ab_gemm gemm = {.rows = SIDE,
                          .columns = SIDE,
                          .inner = SIDE,
                          .alpha = 1,
                          .a = a,
                          .lda = SIDE,
                          .b = b,
                          .ldb = SIDE,
                          .c = c,
                          .ldc = SIDE};
    for (int i = 0; i < SIDE * SIDE; i++) a[i] = b[i] = 1;
    return ab_dnnl_gemm(&gemm);
}

/* How many of the makers make a pass. */
static int passes_made(void) {
    const ab_pass_spec real = {.conv = ab_conv_of_linear(256, 320, 320), .operands = &ab_format_fp32};
    ab_pass_spec sizes = real;
    sizes.sizes_only = true;
    ab_pass *pass[6] = {NULL};
    assert_int_equal(ab_dnnl_conv_pass(&real, &pass[0]), AB_OK);
    assert_int_equal(ab_dnnl_matmul_pass(&real, &pass[1]), AB_OK);
    assert_int_equal(ab_dnnl_conv_pass(&sizes, &pass[2]), AB_OK);
    assert_int_equal(ab_dnnl_matmul_pass(&sizes, &pass[3]), AB_OK);
    assert_int_equal(ab_dnnl_nth_pass(&real, false, 0, &pass[4]), AB_OK);
    assert_int_equal(ab_dnnl_nth_pass(&real, true, 0, &pass[5]), AB_OK);
    int made = 0;
    for (size_t i = 0; i < AB_COUNT_OF(pass); i++) {
        made += pass[i] != NULL;
        if (pass[i]) pass[i]->destroy(pass[i]);
    }
    return made;
}

/* In a process of its own, as the answer is kept. */
static void ask(unsigned runtime, bool usable) {
    int status = -1;
    const pid_t child = fork();
    if (child == 0) {
        said = *dnnl_version();
        said.cpu_runtime = runtime;
        const int made = passes_made();
        const bool all = ab_dnnl_usable() && ab_dnnl_version() && made == 6 && multiplies() && c[0] == SIDE;
        const bool none = !ab_dnnl_usable() && !ab_dnnl_version() && made == 0 && !multiplies() && c[0] == 0;
        _exit(usable ? !all : !none);
    }
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    if (status != 0) fail_msg("runtime %u: %s used", runtime, usable ? "not" : "partly");
}

static void a_library_with_other_threads_is_not_used(void **state) {
    (void)state;
    static const unsigned others[] = {DNNL_RUNTIME_TBB, DNNL_RUNTIME_THREADPOOL, DNNL_RUNTIME_DPCPP, 0};
    for (size_t i = 0; i < AB_COUNT_OF(others); i++) ask(others[i], false);
    ask(DNNL_RUNTIME_SEQ, true);
    ask(DNNL_RUNTIME_OMP, true);
}

static void the_version_is_recorded_as_numbers(void **state) {
    (void)state;
    char expected[32];
    const dnnl_version_t *version = dnnl_version();
    snprintf(expected, sizeof expected, "%d.%d.%d", version->major, version->minor, version->patch);
    assert_string_equal(ab_dnnl_version(), expected);
}

/* Else fp32 operands would be rounded to halves where the CPU has a unit for them. */
static void the_environment_does_not_choose_the_arithmetic(void **state) {
    (void)state;
    dnnl_fpmath_mode_t mode = dnnl_fpmath_mode_any;
    dnnl_primitive_attr_t defaults;
    assert_int_equal(dnnl_primitive_attr_create(&defaults), dnnl_success);
    assert_int_equal(dnnl_primitive_attr_get_fpmath_mode(defaults, &mode), dnnl_success);
    assert_int_equal(mode, dnnl_fpmath_mode_bf16); /* the library has read the variable */
    assert_int_equal(passes_made(), 6);
    assert_int_equal(dnnl_primitive_attr_get_fpmath_mode(attributes, &mode), dnnl_success);
    assert_int_equal(mode, dnnl_fpmath_mode_strict);
    dnnl_primitive_attr_destroy(defaults);
}

int main(void) {
    setenv("ONEDNN_DEFAULT_FPMATH_MODE", "BF16", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_library_with_other_threads_is_not_used),
        cmocka_unit_test(the_version_is_recorded_as_numbers),
        cmocka_unit_test(the_environment_does_not_choose_the_arithmetic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void) {
    puts("SKIPPED: a build without oneDNN");
    return 77;
}

#endif
