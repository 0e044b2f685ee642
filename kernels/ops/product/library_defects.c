/* Known defects of oneDNN. */
#include "kernels/ops/product/pass.h"

#include <string.h>

/* One pass and one implementation. */
typedef struct candidate {
    const ab_pass_spec *spec;
    bool matmul, amx;
    const char *name;
    int version;
} candidate;

static bool begins(const char *text, const char *with) { return strncmp(text, with, strlen(with)) == 0; }

static int64_t inner_of(const ab_pass_spec *spec) {
    const ab_conv *conv = &spec->conv;
    if (spec->kind == AB_PASS_BACKWARD_WEIGHTS) return conv->batch;
    return spec->kind == AB_PASS_FORWARD ? conv->window.channels : conv->out_channels;
}

/* The last block of the inner dimension is rounded up to a full one, and the tiles stay configured for the
 * full blocks of rows and columns: SIGILL where these are not full (oneDNN issue 1661, mended in 3.1). */
static bool tiles_not_configured(const candidate *c) {
    const int64_t inner = inner_of(c->spec);
    return c->matmul && c->amx && c->version < 30100 && inner > 32 && inner % 32 == 31;
}

/* With a partial block of input channels the step to the next kernel row adds the dilation twice. Seen in the
 * sources of all versions up to 3.7. */
static bool dilated_twice(const candidate *c) {
    const ab_window *w = &c->spec->conv.window;
    return !c->matmul && c->amx && c->spec->kind == AB_PASS_BACKWARD_WEIGHTS && begins(c->name, "jit") &&
           w->dilation[0] > 1 && w->channels / c->spec->conv.groups % 16 != 0;
}

/* Pixels of a row fewer than the stride: the result depends on what the scratchpad held before (observed; the
 * cause in the library is not known). */
static bool reads_scratch(const candidate *c) {
    const ab_window *w = &c->spec->conv.window;
    return !c->matmul && c->spec->operands != &ab_format_fp32 && c->spec->kind == AB_PASS_BACKWARD_WEIGHTS &&
           begins(c->name, "jit") && w->in[1] < w->stride[1];
}

/* Strides that leave out pixels: wrong results and crashes (observed in 2.6.3; the cause in the library is
 * not known). Later versions call it brg_conv_fwd; they were not run in tiles. */
static bool skips_pixels(const candidate *c) {
    const ab_window *w = &c->spec->conv.window;
    const bool direct = begins(c->name, "brgconv:") || begins(c->name, "brg_conv_fwd:");
    if (c->matmul || !c->amx || c->spec->kind != AB_PASS_FORWARD || !direct) return false;
    for (int axis = 0; axis < 2; axis++)
        if (w->stride[axis] > (w->kernel[axis] - 1) * w->dilation[axis] + 1) return true;
    return false;
}

const char *ab_library_defect(const ab_pass_spec *spec, bool matmul, const char *name, int version) {
    static const struct {
        bool (*has)(const candidate *);
        const char *what;
    } defects[] = {{tiles_not_configured, "tiles configured for another block"},
                   {dilated_twice, "dilation counted twice"},
                   {reads_scratch, "reads unwritten scratch memory"},
                   {skips_pixels, "wrong for strides beyond the kernel"}};
    const candidate c = {spec, matmul, strstr(name, "amx") != NULL, name, version};
    for (size_t i = 0; i < AB_COUNT_OF(defects); i++)
        if (defects[i].has(&c)) return defects[i].what;
    return NULL;
}
