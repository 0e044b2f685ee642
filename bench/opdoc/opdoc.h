/* The reference of ops: what an op computes, its inputs, attributes and shapes, its formats at every level,
 * and a network that has it. Attributes are the op's own tables, formats and shapes come from the plans of
 * the example. Sentences and examples are in reference.json; an op that is not there gets an example of its
 * own making. */
#ifndef AB_BENCH_OPDOC_OPDOC_H
#define AB_BENCH_OPDOC_OPDOC_H

#include "bench/nets/net.h"

#include <stdio.h>

AB_BEGIN_DECLS

enum { AB_OPDOC_TEXT = 400 };

/* What apex's lists do with op number `row` of ops.def: "half at O1". */
const char *ab_opdoc_class(int row);

/* Writes "2 inputs, 1 more optional" to text[size]. */
void ab_opdoc_inputs(const ab_op *op, char *text, size_t size);

/* Prints an op's inputs and attributes: a line each; and the attributes alone, wrapped. */
void ab_opdoc_attributes(const ab_op *op, FILE *out);
void ab_opdoc_attribute_list(const ab_op *op, FILE *out);

/* Prints `head`, padded to `indent` columns, and the words of `text`; later lines begin below the first one's
 * text. */
void ab_opdoc_wrap(FILE *out, const char *head, int indent, const char *text);

/* What reference.json says of op number `row`, owned by the caller (free); "" without an entry. */
AB_MUST_CHECK ab_status ab_opdoc_sentences(int row, char **text, char **shapes);

/* A whole network file with op number `row`, a line an op; the caller frees *text. AB_CONFIG if the op needs
 * an entry in reference.json: its attributes have no defaults. */
AB_MUST_CHECK ab_status ab_opdoc_example(int row, char **text);

/* Prints a table of the op's formats in the example's plans, levels with the same formats in one row. */
AB_MUST_CHECK ab_status ab_opdoc_formats(int row, const ab_net *net, FILE *out);

/* Prints one op, and docs/ops.md. */
AB_MUST_CHECK ab_status ab_opdoc_write(int row, FILE *out);
AB_MUST_CHECK ab_status ab_opdoc_page(FILE *out);

AB_END_DECLS

#endif
