/* The list of selectable faults. */
#include "bench/train/fault.h"

#include "kernels/core/nearest.h"

#include <string.h>

static const char *const names[] = {
#define AB_FAULT(id, text) #id,
#include "bench/train/faults.def"
#undef AB_FAULT
};

static const char *const texts[] = {
#define AB_FAULT(id, text) text,
#include "bench/train/faults.def"
#undef AB_FAULT
};

const char *ab_fault_name(int number) { return names[number]; }
const char *ab_fault_text(int number) { return texts[number]; }

ab_status ab_fault_add(const char *name, unsigned *set) {
    if (strcmp(name, "none") == 0) {
        *set = AB_FAULT_NONE;
        return AB_OK;
    }
    for (int i = 0; i < AB_FAULT_COUNT; i++) {
        if (strcmp(name, names[i]) != 0) continue;
        *set |= 1u << i;
        return AB_OK;
    }
    const char *near = ab_nearest(name, names, AB_FAULT_COUNT);
    return ab_fail(AB_USAGE, "--fault: there is no fault '%s'%s%s%s (see `ampbench list faults`)", name,
                   near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}
