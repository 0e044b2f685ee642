/* The parts of a plan's layers that are in the half format, as items that --to can name: whole layers, and
 * single roles of a layer. Does not train. */
#ifndef AB_BENCH_PROMOTE_ROLES_H
#define AB_BENCH_PROMOTE_ROLES_H

#include "bench/amp/layer_formats.h"
#include "bench/amp/plan/plan.h"
#include "bench/promote/ddmin.h"

AB_BEGIN_DECLS

/* A layer that the level computes in the half format, or one role of it. */
typedef struct ab_promote_item {
    char name[AB_PLAN_NAME]; /* "fc1", "fc1:wgrad": its name in --to */
    int net_op, role;        /* an ab_layer_role, or AB_LAYER_ROLES: all of the layer */
    int64_t bytes;           /* additional bytes if it is kept in fp32 */
    double error;            /* from the record: flushed and lost shares, overflow weighted far above both */
} ab_promote_item;

/* Appends the plan's layers that are half in some role, in the order of the plan; bytes are those of output
 * and weights. At most AB_DDMIN_ITEMS items in total, also below. */
void ab_promote_layers(const ab_plan *plan, ab_promote_item *item, int *count);

/* Appends the roles of a layer that are half. */
void ab_promote_roles(const ab_plan *plan, int net_op, ab_promote_item *item, int *count);

AB_END_DECLS

#endif
