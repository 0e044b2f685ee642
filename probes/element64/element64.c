/* The list of fp64 references. */
#include "probes/element64/element64.h"

static const ab_element64_kind *const kinds[] = {
#define AB_REFERENCE_ELEMENT(id) &ab_element64_##id,
#include "probes/element64/element64.def"
#undef AB_REFERENCE_ELEMENT
};

static int one_by_one(const ab_element64_kind *kind, const ab_op_run *run, int wrote, const int64_t *place,
                      int n, ab_element64 *result) {
    for (int i = 0; i < n; i++)
        if (!(run->backward ? kind->backward(run, wrote, place[i], &result[i])
                            : kind->forward(run, place[i], &result[i])))
            return i;
    return n;
}

int ab_elements64_of(const ab_op_run *run, int wrote, const int64_t *place, int n, ab_element64 *result) {
    for (int i = 0; i < n; i++) result[i] = (ab_element64){.value = 0};
    for (size_t k = 0; k < AB_COUNT_OF(kinds); k++) {
        if (kinds[k]->op != run->op) continue;
        if (!kinds[k]->several) return one_by_one(kinds[k], run, wrote, place, n, result);
        return kinds[k]->several(run, wrote, place, n, result) ? n : 0;
    }
    return 0;
}

bool ab_element64_of(const ab_op_run *run, int wrote, int64_t i, ab_element64 *result) {
    return ab_elements64_of(run, wrote, &i, 1, result) == 1;
}
