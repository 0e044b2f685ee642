/* One op of the reference, and the page of all. */
#include "bench/opdoc/opdoc.h"

#include "kernels/core/show.h"
#include "kernels/core/text.h"

#include <stdlib.h>
#include <string.h>

enum { BATCH = 4 };

static int index_in(const ab_net *net, int row) {
    int i = 0;
    while (net->op[i].op_row != row) i++;
    return i;
}

/* Shapes in the example, for a batch of 4. */
static ab_status write_shapes(int row, const ab_net *net, FILE *out) {
    char text[AB_SHAPE_TEXT];
    const int i = index_in(net, row);
    const ab_net_op *op = &net->op[i];
    ab_shape *shape = calloc((size_t)net->ops, sizeof *shape);
    ab_status status = shape ? ab_net_infer(net, BATCH, shape) : ab_fail(AB_NO_MEMORY, "ops: out of memory");
    for (int k = 0; k < op->inputs && status == AB_OK; k++) {
        const ab_shape in = op->input[k] >= 0              ? shape[op->input[k]]
                            : op->input[k] == AB_NET_INPUT ? ab_net_input_shape(net, BATCH)
                                                           : ab_net_targets_shape(net, BATCH);
        ab_print(out, "    %-18s %s\n", k ? "" : "inputs", ab_shape_text(&in, text));
    }
    for (int k = 0; k < op->params && status == AB_OK; k++)
        ab_print(out, "    %-18s %s%s\n", op->param[k].name, ab_shape_text(&op->param[k].shape, text),
                 op->param[k].kind == AB_PARAM_BUFFER ? ", not trained" : "");
    if (status == AB_OK) ab_print(out, "    %-18s %s\n", "output", ab_shape_text(&shape[i], text));
    free(shape);
    return status;
}

static void write_indented(const char *text, FILE *out) {
    for (const char *line = text; *line;) {
        const int length = (int)strcspn(line, "\n");
        ab_print(out, "    %.*s\n", length, line);
        line += length + (line[length] == '\n');
    }
}

static ab_status write_example(int row, FILE *out) {
    char *text;
    ab_net *net = NULL;
    if (ab_opdoc_example(row, &text) != AB_OK) return AB_OK; /* its attributes have no defaults */
    ab_status status = ab_net_parse(text, strlen(text), ab_op_at(row)->name, &net);
    if (status == AB_OK) {
        ab_print(out, "\nFormats (half format fp16):\n\n");
        status = ab_opdoc_formats(row, net, out);
    }
    if (status == AB_OK) {
        ab_print(out, "\nExample, and its shapes with a batch of %d:\n\n", BATCH);
        write_indented(text, out);
        ab_print(out, "\n");
        status = write_shapes(row, net, out);
    }
    ab_net_free(net);
    free(text);
    return status;
}

/* What a GPU computes of it (kernels/cuda/cuda_ops.def). */
static void write_device(const ab_op *op, FILE *out) {
    static const struct {
        const char *op, *attributes;
    } rows[] = {
#define AB_CUDA_OP(name, attributes) {#name, " " attributes " "},
#include "kernels/cuda/cuda_ops.def"
#undef AB_CUDA_OP
    };
    size_t i = 0;
    while (i < AB_COUNT_OF(rows) && strcmp(rows[i].op, op->name) != 0) i++;
    if (i == AB_COUNT_OF(rows)) {
        ab_print(out, "On a GPU the host computes it.\n");
        return;
    }
    ab_print(out, "On a GPU it has a kernel");
    bool without = false;
    for (const ab_attr *attr = op->attrs; attr && attr->name; attr++) {
        char padded[64];
        ab_text_exact(padded, sizeof padded, " %s ", attr->name);
        if (strstr(rows[i].attributes, padded)) continue;
        ab_print(out, "%s%s", without ? ", " : "; the host computes it with ", attr->name);
        without = true;
    }
    ab_print(out, ".\n");
}

ab_status ab_opdoc_write(int row, FILE *out) {
    const ab_op *op = ab_op_at(row);
    char inputs[AB_OPDOC_TEXT], *text, *shapes;
    ab_opdoc_inputs(op, inputs, sizeof inputs);
    AB_TRY(ab_opdoc_sentences(row, &text, &shapes));
    if (text[0]) ab_print(out, "%s\n", text);
    ab_print(out, "%s; %s. ", inputs, ab_opdoc_class(row));
    write_device(op, out);
    if (shapes[0]) ab_opdoc_wrap(out, "Shapes: ", 8, shapes);
    free(text);
    free(shapes);
    if (op->attrs && op->attrs->name) {
        ab_print(out, "\nAttributes:\n\n");
        ab_opdoc_attribute_list(op, out);
    }
    return write_example(row, out);
}

ab_status ab_opdoc_page(FILE *out) {
    ab_print(out,
             "<!-- made by `ampbench list ops --reference` -->\n# Ops\n\nWhat a network's file may name, "
             "as `ampbench help OP` prints it. Every op computes in fp32 from its inputs and\nrounds its "
             "output once to the format below. Images are [N, H, W, C], N is the batch. Every op also "
             "takes\n`name`, `in`, `init`, `share` and `requires_grad`, every product `accumulate` "
             "([networks.md](networks.md)).\n");
    for (int i = 0; i < ab_op_count(); i++) {
        ab_print(out, "\n## %s\n\n", ab_op_at(i)->name);
        AB_TRY(ab_opdoc_write(i, out));
    }
    return AB_OK;
}
