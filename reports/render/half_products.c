/* Counts the passes of products and says which of them convert. */
#include "reports/render/half_products.h"

#include "kernels/core/text.h"
#include "kernels/ops/traits/op_traits.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <string.h>

enum { NAMED = 3 }; /* products that are listed by name */

static const char *const passes[] = {"forward", "backward_data", "backward_weights"};
static const char *const pass_words[] = {"", " by data", " by weights"};

static bool converts(const char *implementation) { return strncmp(implementation, "convert", 7) == 0; }

/* The implementation of a pass of a half product; NULL if it is none. */
static const char *half_product(const cJSON *op, size_t pass) {
    const char *text = ab_json_text(op, passes[pass], "");
    const bool product = (ab_op_traits(ab_json_text(op, "type", "")) & AB_TRAIT_product) != 0;
    const bool half = converts(text) || strcmp(ab_json_text(op, "format", "fp32"), "fp32") != 0;
    return product && half && text[0] && strcmp(text, "none") != 0 ? text : NULL;
}

typedef struct tally {
    int products, converted;
} tally;

static tally count_products(const cJSON *cell) {
    tally t = {0, 0};
    const cJSON *op;
    cJSON_ArrayForEach(op, ab_json_at(cell, "implementations")) {
        for (size_t pass = 0; pass < AB_COUNT_OF(passes); pass++) {
            const char *text = half_product(op, pass);
            t.products += text != NULL;
            t.converted += text && converts(text);
        }
    }
    return t;
}

/* "fc1 by weights, fc3 by data, ..." */
static void name_converted(const cJSON *cell, char *text, size_t size) {
    int named = 0;
    const cJSON *op;
    cJSON_ArrayForEach(op, ab_json_at(cell, "implementations")) {
        for (size_t pass = 0; pass < AB_COUNT_OF(passes) && named <= NAMED; pass++) {
            const char *found = half_product(op, pass);
            if (!found || !converts(found)) continue;
            char name[48];
            ab_text_clean(name, sizeof name, ab_json_text(op, "op", "?"));
            if (named++ == NAMED)
                ab_text_append(text, size, ", ...");
            else
                ab_text_append(text, size, "%s%s%s", named > 1 ? ", " : "", ab_text_brief(name, 24),
                               pass_words[pass]);
        }
    }
}

bool ab_half_products_text(const cJSON *cell, char *text, size_t size) {
    const tally t = count_products(cell);
    text[0] = '\0';
    if (t.converted == 0) return false;
    if (t.converted == t.products) {
        ab_text_show(text, size,
                     "half products are computed in fp32 and rounded once, with conversions around them; "
                     "these speeds are not those of half hardware");
        return true;
    }
    ab_text_show(text, size, "%d of %d half products %s computed in fp32 and rounded once (", t.converted,
                 t.products, t.converted == 1 ? "is" : "are");
    name_converted(cell, text, size);
    ab_text_append(text, size, "); the others are native");
    return true;
}
