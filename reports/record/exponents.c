/* Sums over histograms of exponents. */
#include "reports/record/exponents.h"

#include "reports/record/json.h"

#include <math.h>

/* Mass of the values whose exponent is below `limit`. */
static ab_exponent_mass mass_below(const cJSON *tensor, double limit) {
    int exponent = (int)ab_json_number(tensor, "exponents.first", 0);
    ab_exponent_mass mass = {0, 0};
    const cJSON *count;
    cJSON_ArrayForEach(count, ab_json_at(tensor, "exponents.counts")) {
        if (exponent < limit) {
            mass.count += count->valuedouble;
            mass.energy += ldexp(count->valuedouble, 2 * exponent);
        }
        exponent++;
    }
    return mass;
}

ab_exponent_mass ab_exponents_all(const cJSON *tensor) { return mass_below(tensor, (double)INFINITY); }

ab_exponent_mass ab_exponents_flushed(const cJSON *tensor, const ab_format *format, double octaves) {
    return mass_below(tensor, log2(ab_format_flush_limit(format)) - octaves);
}
