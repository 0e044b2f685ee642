/* The list of operators. */
#include "kernels/ops/op.h"

#include "kernels/core/text.h"

#include <string.h>

static const ab_op *const ops[] = {
#define AB_OP(name, op_class, traits) &ab_op_##name,
#include "kernels/ops/ops.def"
#undef AB_OP
};

static const ab_op_class classes[] = {
#define AB_OP(name, op_class, traits) AB_CLASS_##op_class,
#include "kernels/ops/ops.def"
#undef AB_OP
};

int ab_op_count(void) { return (int)AB_COUNT_OF(ops); }
const ab_op *ab_op_at(int i) { return ops[i]; }
ab_op_class ab_op_class_at(int i) { return classes[i]; }

ab_status ab_op_find(const char *name, const ab_op **op, int *index) {
    const char *names[AB_COUNT_OF(ops)];
    for (int i = 0; i < ab_op_count(); i++) {
        names[i] = ops[i]->name;
        if (strcmp(names[i], name) != 0) continue;
        *op = ops[i];
        if (index) *index = i;
        return AB_OK;
    }
    const char *nearest = ab_nearest(name, names, ab_op_count());
    return nearest ? ab_fail(AB_CONFIG, "unknown op \"%s\"; did you mean \"%s\"?", name, nearest)
                   : ab_fail(AB_CONFIG, "unknown op \"%s\"; `ampbench list` shows the ops there are", name);
}

unsigned ab_op_needs(const ab_op *op, const void *attrs, int inputs, unsigned wanted) {
    return op->needs ? op->needs(attrs, inputs, wanted) : op->backward_needs;
}

unsigned ab_io_needs(const ab_op *op, const ab_op_io *io) {
    unsigned wanted = 0;
    int inputs = 0;
    for (int i = 0; i < AB_MAX_INPUTS && io->in[i]; i++, inputs++)
        if (io->din[i]) wanted |= 1u << i;
    return ab_op_needs(op, io->attrs, inputs, wanted);
}
