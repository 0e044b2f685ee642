/* Traits of ops, from the columns of ops.def. */
#include "kernels/ops/traits/op_traits.h"

#include <string.h>

/* The short names that ops.def uses. */
enum {
    no_trait = 0,
#define AB_OP_TRAIT(name, text) name = AB_TRAIT_##name,
#include "kernels/ops/traits/op_traits.def"
#undef AB_OP_TRAIT
};

static const struct {
    const char *type;
    ab_traits traits;
} rows[] = {
#define AB_OP(name, op_class, traits) {#name, traits},
#include "kernels/ops/ops.def"
#undef AB_OP
};

static const struct {
    const char *name, *text;
} known[] = {
#define AB_OP_TRAIT(name, text) {#name, text},
#include "kernels/ops/traits/op_traits.def"
#undef AB_OP_TRAIT
};

ab_traits ab_op_traits(const char *type) {
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++)
        if (strcmp(rows[i].type, type) == 0) return rows[i].traits;
    return 0;
}

const char *ab_trait_name(int bit) { return known[bit].name; }
const char *ab_trait_text(int bit) { return known[bit].text; }

ab_traits ab_trait_named(const char *name) {
    for (int i = 0; i < AB_TRAIT_COUNT; i++)
        if (strcmp(known[i].name, name) == 0) return 1u << i;
    return 0;
}
