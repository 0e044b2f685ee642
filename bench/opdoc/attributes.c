/* Inputs and attributes of an op as text, from the op's own tables. */
#include "bench/opdoc/opdoc.h"

#include "kernels/core/show.h"
#include "kernels/core/text.h"

#include <string.h>

const char *ab_opdoc_class(int row) {
    static const char *const classes[] = {[AB_CLASS_low] = "half at O1",
                                          [AB_CLASS_fp32] = "fp32 at O1",
                                          [AB_CLASS_promote] = "widest input at O1",
                                          [AB_CLASS_follow] = "its input's format at O1",
                                          [AB_CLASS_banned] = "refused at O1 with half inputs"};
    return classes[ab_op_class_at(row)];
}

static void add_range(const ab_attr *attr, char *text, size_t size) {
    static const double unlimited = 1e30;
    if (attr->low > -unlimited) ab_text_append(text, size, " from %.9g", attr->low);
    if (attr->high < unlimited) ab_text_append(text, size, " to %.9g", attr->high);
}

/* A default outside the range stands for what the attribute's text says. */
static void add_default(const ab_attr *attr, char *text, size_t size) {
    const bool list = attr->kind == AB_ATTR_FLOATS || attr->kind == AB_ATTR_INTS;
    if (attr->required)
        ab_text_append(text, size, ", required");
    else if (attr->kind == AB_ATTR_BOOL)
        ab_text_append(text, size, ", default %s", attr->fallback != 0 ? "true" : "false");
    else if (list || !(attr->fallback >= attr->low && attr->fallback <= attr->high))
        ab_text_append(text, size, ", optional");
    else
        ab_text_append(text, size, ", default %.9g", attr->fallback);
}

/* "one of none|tanh, default none": the names are the attribute's text. */
static void choice_text(const ab_attr *attr, char *text, size_t size) {
    const char *name = attr->text;
    for (int i = 0; i < (int)attr->fallback && strchr(name, '|'); i++) name = strchr(name, '|') + 1;
    ab_text_show(text, size, "one of %s, default %.*s", attr->text, (int)strcspn(name, "|"), name);
}

/* "integer from 1 to 8, default 1: step of the kernel". */
static void attribute_text(const ab_attr *attr, char *text, size_t size) {
    static const char *const values[] = {[AB_ATTR_INT] = "integer",
                                         [AB_ATTR_PAIR] = "integer or [height, width]",
                                         [AB_ATTR_FLOAT] = "number",
                                         [AB_ATTR_BOOL] = "true or false",
                                         [AB_ATTR_FLOATS] = "array of numbers",
                                         [AB_ATTR_INTS] = "integer or array of integers"};
    if (attr->kind == AB_ATTR_CHOICE) {
        choice_text(attr, text, size);
        return;
    }
    ab_text_show(text, size, "%s", values[attr->kind]);
    if (attr->kind != AB_ATTR_BOOL) add_range(attr, text, size);
    add_default(attr, text, size);
    ab_text_append(text, size, ": %s", attr->text);
}

void ab_opdoc_inputs(const ab_op *op, char *text, size_t size) {
    if (op->inputs < 0)
        ab_text_show(text, size, "2 or more inputs");
    else
        ab_text_show(text, size, "%d input%s", op->inputs, op->inputs == 1 ? "" : "s");
    if (op->optional_inputs) ab_text_append(text, size, ", %d more optional", op->optional_inputs);
    if (op->is_loss) ab_text_append(text, size, "; the last is \"targets\" unless given");
    for (int i = 0; i < AB_MAX_INPUTS; i++)
        if (op->integer_inputs >> i & 1u) ab_text_append(text, size, "; input %d: ids", i + 1);
}

void ab_opdoc_attributes(const ab_op *op, FILE *out) {
    char text[AB_OPDOC_TEXT];
    ab_opdoc_inputs(op, text, sizeof text);
    ab_print(out, "  %s: %s\n", op->name, text);
    for (const ab_attr *attr = op->attrs; attr && attr->name; attr++) {
        attribute_text(attr, text, sizeof text);
        ab_print(out, "    %-18s %s\n", attr->name, text);
    }
}

void ab_opdoc_wrap(FILE *out, const char *head, int indent, const char *text) {
    enum { COLUMNS = 110 };
    int at = ab_print(out, "%-*s", indent, head);
    bool first = true;
    for (const char *word = text; *word;) {
        const int length = (int)strcspn(word, " ");
        if (!first && at + 1 + length > COLUMNS) {
            at = ab_print(out, "\n%-*s", indent, "") - 1;
            first = true;
        }
        at += ab_print(out, first ? "%.*s" : " %.*s", length, word);
        first = false;
        word += length;
        word += *word == ' ';
    }
    ab_print(out, "\n");
}

void ab_opdoc_attribute_list(const ab_op *op, FILE *out) {
    char text[AB_OPDOC_TEXT], head[64];
    for (const ab_attr *attr = op->attrs; attr && attr->name; attr++) {
        attribute_text(attr, text, sizeof text);
        ab_text_exact(head, sizeof head, "    %-18s ", attr->name);
        ab_opdoc_wrap(out, head, 23, text);
    }
}
