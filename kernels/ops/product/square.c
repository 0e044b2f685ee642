/* A linear layer's forward pass by the library. */
#include "kernels/ops/product/square.h"

#include "kernels/core/device.h"
#include "kernels/format/convert.h"
#include "kernels/ops/product/dnnl_shim.h"

#include <stdlib.h>

struct ab_square {
    ab_pass *pass;
    void *src, *packed, *scratch;
    float *dst;
    bool nonfinite;
};

float ab_square_element(int64_t i) { return (float)(i % 17 - 8) / 64.0f; }

ab_status ab_square_matrix(int64_t side, const ab_format *format, void **matrix) {
    const int64_t n = side * side;
    float *values = malloc((size_t)n * sizeof *values);
    *matrix = NULL;
    if (!values) return ab_fail(AB_NO_MEMORY, "product of squares: out of memory");
    ab_status status = ab_device_cpu.alloc(ab_format_bytes(format, n), matrix);
    for (int64_t i = 0; i < n && status == AB_OK; i++) values[i] = ab_square_element(i);
    if (status == AB_OK) ab_narrow(*matrix, format, values, n);
    free(values);
    return status;
}

static ab_status make_pass(int64_t side, const ab_format *format, ab_pass **pass) {
    const ab_pass_spec spec = {
        .kind = AB_PASS_FORWARD, .conv = ab_conv_of_linear(side, side, side), .operands = format};
    return ab_sliced_pass(ab_dnnl_matmul_pass, &spec, pass);
}

static ab_status fill(ab_square *s, int64_t side, const ab_format *format) {
    ab_pass *pass = s->pass;
    void *dst = NULL;
    AB_TRY(ab_square_matrix(side, format, &s->src));
    AB_TRY(ab_device_cpu.alloc((size_t)(side * side) * sizeof(float), &dst));
    s->dst = dst;
    AB_TRY(ab_device_cpu.alloc(pass->packed_bytes, &s->packed));
    AB_TRY(ab_device_cpu.alloc(pass->scratch_bytes, &s->scratch));
    return pass->packed_bytes ? pass->pack(pass, s->src, s->packed, s->scratch) : AB_OK;
}

ab_status ab_square_open(int64_t side, const ab_format *format, ab_square **square) {
    ab_square *s = calloc(1, sizeof *s);
    *square = NULL;
    if (!s) return ab_fail(AB_NO_MEMORY, "product of squares: out of memory");
    ab_status status = make_pass(side, format, &s->pass);
    if (status == AB_OK && s->pass) status = fill(s, side, format);
    if (status == AB_OK && s->pass)
        *square = s;
    else
        ab_square_close(s);
    return status;
}

ab_status ab_square_run(ab_square *s) {
    const ab_pass_args args = {.src = s->src,
                               .weights = s->pass->packed_bytes ? s->packed : s->src,
                               .dst = s->dst,
                               .scratch = s->scratch,
                               .nonfinite = &s->nonfinite};
    return s->pass->run(s->pass, &args);
}

const float *ab_square_result(const ab_square *s) { return s->dst; }

void ab_square_close(ab_square *s) {
    if (!s) return;
    if (s->pass) s->pass->destroy(s->pass);
    void *blocks[] = {s->src, s->packed, s->scratch, s->dst};
    for (size_t i = 0; i < AB_COUNT_OF(blocks); i++) free(blocks[i]);
    free(s);
}
