/* What the table says of half products that are computed in fp32: of each pass, and of products alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "reports/render/half_products.h"

#define OP(name, type, format, forward, data, weights)                                                       \
    "{\"op\": \"" name "\", \"type\": \"" type "\", \"format\": \"" format "\", \"forward\": \"" forward     \
    "\", \"backward_data\": " data ", \"backward_weights\": \"" weights "\"}"

static const char *said(const char *ops) {
    static char text[240];
    char json[2048];
    snprintf(json, sizeof json, "{\"implementations\": [%s]}", ops);
    cJSON *cell = cJSON_Parse(json);
    assert_non_null(cell);
    const bool any = ab_half_products_text(cell, text, sizeof text);
    assert_int_equal(any, text[0] != '\0');
    cJSON_Delete(cell);
    return text;
}

static void all_converted_products_are_said_once(void **state) {
    (void)state;
    assert_non_null(strstr(said(OP("a", "conv2d", "fp16", "convert+jit", "\"none\"", "convert+jit") ", " OP(
                               "b", "linear", "fp16", "convert+brg", "\"convert+brg\"", "convert+gemm")),
                           "half products are computed in fp32 and rounded once, with conversions"));
}

static void single_converted_products_are_named_and_counted(void **state) {
    (void)state;
    assert_string_equal(
        said(OP("conv1", "conv2d", "bf16", "native+jit", "\"none\"", "native+jit") ", " OP(
            "fc1", "linear", "bf16", "native+brg", "\"native+brg\"",
            "convert+gemm") ", " OP("fc3", "linear", "bf16", "native+brg", "\"convert+brg\"", "native+brg")),
        "2 of 8 half products are computed in fp32 and rounded once (fc1 by weights, fc3 by data); the "
        "others "
        "are native");
    assert_string_equal(
        said(OP("fc", "linear", "bf16", "convert+brg", "null", "native+brg")),
        "1 of 2 half products is computed in fp32 and rounded once (fc); the others are native");
}

static void names_beyond_three_are_left_out(void **state) {
    (void)state;
    const char *text = said(OP("a", "linear", "fp16", "convert+x", "\"convert+x\"", "convert+x") ", " OP(
        "b", "linear", "fp16", "convert+x", "\"native+x\"", "native+x"));
    assert_non_null(strstr(text, "4 of 6 half products are"));
    assert_non_null(strstr(text, "(a, a by data, a by weights, ...)"));
}

static void norms_and_fp32_products_are_no_half_products(void **state) {
    (void)state;
    assert_string_equal(
        said(OP("bn", "batch_norm2d", "fp16", "convert+own", "\"convert+own\"",
                "convert+own") ", " OP("fc", "linear", "fp16", "native+brg", "\"native+brg\"", "native+brg")),
        "");
    assert_string_equal(said(OP("fc", "linear", "fp32", "brg", "\"brg\"", "brg")), "");
    assert_string_equal(said(""), "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_converted_products_are_said_once),
        cmocka_unit_test(single_converted_products_are_named_and_counted),
        cmocka_unit_test(names_beyond_three_are_left_out),
        cmocka_unit_test(norms_and_fp32_products_are_no_half_products),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
