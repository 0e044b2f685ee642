/* The stages that turn a parsed network file into an ab_net, in order: net_parse.c reads the document and the
 * inputs of every op, net_attrs.c its attributes, net_infer.c its shapes and parameters, net_init.c the
 * initialisation. Private to bench/nets. */
#ifndef AB_BENCH_NETS_NET_BUILD_H
#define AB_BENCH_NETS_NET_BUILD_H

#include "bench/nets/net.h"
#include "bench/nets/net_json.h"

AB_BEGIN_DECLS

/* Allocates op->attrs (freed by ab_net_free) and fills it from the op's object by the table op->op->attrs:
 * given values are checked for type and range, others get torch's defaults. Unknown keys are errors. */
AB_MUST_CHECK ab_status ab_net_read_attrs(const ab_net_json_place *place, const cJSON *object, ab_net_op *op);
void ab_net_free_attrs(ab_net_op *op);

/* Infers shapes for the default batch and gets every op's parameters, with torch's initialisation. */
AB_MUST_CHECK ab_status ab_net_make_params(ab_net *net);

/* Reads every op's "share". ops: the array. */
AB_MUST_CHECK ab_status ab_net_read_share(const cJSON *ops, ab_net *net);

/* Reads every op's "requires_grad", after "share". ops: the array. */
AB_MUST_CHECK ab_status ab_net_read_trained(const cJSON *ops, ab_net *net);

/* Applies the file's initialisation: the document's "init", then each op's own. ops: the array. */
AB_MUST_CHECK ab_status ab_net_read_init(const cJSON *document, const cJSON *ops, ab_net *net);

/* Numbers the blocks by the names of the ops. */
void ab_net_find_blocks(ab_net *net);

AB_END_DECLS

#endif
