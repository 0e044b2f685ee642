/* Op traits: reports test these instead of op names. Rows of ops.def name the traits of each op; the record
 * stores them with the network's edges (reports/record/graph.h). Does not depend on networks or tensors. */
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

/* Traits of the op called `type` in ops.def; 0 for unknown names. */
ab_traits ab_op_traits(const char *type);

/* Name and meaning of trait number `bit` (0 to AB_TRAIT_COUNT - 1), as in op_traits.def. */
const char *ab_trait_name(int bit);
const char *ab_trait_text(int bit);

/* Returns the trait called `name`; 0 if unknown (a later version's record may have more). */
ab_traits ab_trait_named(const char *name);

AB_END_DECLS

#endif
