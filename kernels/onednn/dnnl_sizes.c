/* The memory of oneDNN's passes, estimated from shapes: a plan asks for it without creating primitives, which
 * takes milliseconds each. Weights are assumed to be packed in the library's blocks and scratchpads of its
 * own to be empty; a cell that starts gets the true sizes. */
#include "kernels/ops/product/dnnl_shim.h"

#include "kernels/core/text.h"
#include "kernels/ops/blocks.h"

#include <oneapi/dnnl/dnnl.h>
#include <stdlib.h>

enum { BLOCK = 16 }; /* channels of the library's blocked layouts of weights */

static bool has(dnnl_cpu_isa_t isa) {
    return ((unsigned)dnnl_get_effective_cpu_isa() & (unsigned)isa) == (unsigned)isa;
}

/* How the library multiplies the format: a name that path "auto" takes where it is fast, or NULL. */
static const char *unit_of(const ab_format *format) {
    if (format == &ab_format_fp32) return "jit";
#if DNNL_VERSION_MAJOR >= 3
    if (format == &ab_format_fp16) return has(dnnl_cpu_isa_avx512_core_amx_fp16) ? "amx_fp16" : NULL;
#endif
    if (format != &ab_format_bf16) return NULL;
    if (has(dnnl_cpu_isa_avx512_core_amx)) return "amx";
    return has(dnnl_cpu_isa_avx512_core_bf16) ? "avx512_core_bf16" : NULL;
}

static int64_t blocked(int64_t channels) { return ab_div_up(channels, BLOCK) * BLOCK; }

static size_t weight_bytes(const ab_pass_spec *spec, const ab_format *format) {
    const ab_conv *conv = &spec->conv;
    const int64_t in = conv->window.channels / conv->groups, out = conv->out_channels / conv->groups;
    const int64_t taps = conv->window.kernel[0] * conv->window.kernel[1];
    return ab_aligned(ab_format_bytes(format, conv->groups * blocked(out) * blocked(in) * taps));
}

static void destroy(ab_pass *pass) { free(pass); }

/* A layout of the library's own is filled by this; never called. */
static ab_status pack(ab_pass *pass, const void *weights, void *packed, void *scratch) {
    (void)pass;
    (void)weights;
    (void)packed;
    (void)scratch;
    return ab_fail(AB_INTERNAL, "oneDNN: a pass made for its sizes was run");
}

ab_status ab_dnnl_sizes(const ab_pass_spec *spec, bool matmul, ab_pass **pass) {
    const bool weights = spec->kind == AB_PASS_BACKWARD_WEIGHTS;
    const char *unit = unit_of(spec->operands);
    *pass = NULL;
    if (!unit) return AB_OK;
    ab_pass *p = calloc(1, sizeof *p);
    if (!p) return ab_fail(AB_NO_MEMORY, "cannot allocate the sizes of a oneDNN pass");
    p->destroy = destroy;
    if (weights && !matmul) p->scratch_bytes = weight_bytes(spec, &ab_format_fp32);
    if (!weights) p->packed_bytes = weight_bytes(spec, spec->operands);
    if (p->packed_bytes > 0) p->pack = pack;
    ab_text_show(p->text, sizeof p->text, "%s", unit);
    *pass = p;
    return AB_OK;
}
