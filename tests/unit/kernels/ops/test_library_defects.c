/* Which implementations of the library are passed over for which shapes; the shapes beside them are not. */
#include "oracle/op_run.h"

#include "kernels/ops/product/pass.h"

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
    {"brg_conv_fwd:avx10_1_512_amx_fp16", AB_PASS_FORWARD, 1, 9, 64, 8, 2, 3, 1, 30702, false, true},
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(defects_are_known_by_shape_and_version)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
