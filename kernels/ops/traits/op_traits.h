/* Traits of ops: what reports ask of an op instead of its name. Rows of ops.def name the traits of each
 * op, the record carries them beside the network's edges (reports/record/graph.h). Nothing here reads a
 * network or a tensor. */
#ifndef AB_KERNELS_OPS_TRAITS_OP_TRAITS_H
#define AB_KERNELS_OPS_TRAITS_OP_TRAITS_H

#include "kernels/core/status.h"

AB_BEGIN_DECLS

enum {
#define AB_OP_TRAIT(name, text) AB_TRAIT_BIT_##name,
#include "kernels/ops/traits/op_traits.def"
#undef AB_OP_TRAIT
    AB_TRAIT_COUNT
};

enum {
#define AB_OP_TRAIT(name, text) AB_TRAIT_##name = 1 << AB_TRAIT_BIT_##name,
#include "kernels/ops/traits/op_traits.def"
#undef AB_OP_TRAIT
};

/* A set of AB_TRAIT_*. */
typedef unsigned ab_traits;

/* The traits of the op that ops.def calls `type`; 0 for any other text. */
ab_traits ab_op_traits(const char *type);

/* Name and meaning of trait number `bit` (0 to AB_TRAIT_COUNT - 1), as in op_traits.def. */
const char *ab_trait_name(int bit);
const char *ab_trait_text(int bit);

/* The trait called `name`; 0 if there is none (a record of a later version may have more). */
ab_traits ab_trait_named(const char *name);

AB_END_DECLS

#endif
