/* The definition of a census: how one value is counted. */
#include "kernels/census/vec_census.h"

#include <string.h>

enum { INF = 0x7f800000 };

static uint32_t bits_of(float x) {
    uint32_t bits = 0;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

void ab_census_count_value(ab_census *census, float value) {
    uint32_t bits = bits_of(value), magnitude = bits & 0x7fffffffu;
    if (magnitude != 0 && magnitude < INF) {
        ab_census_place place = ab_census_bin(magnitude);
        census->bin[place.row][place.column]++;
        census->subnormal += magnitude < 0x00800000u;
        return;
    }
    census->zero += magnitude == 0;
    census->nan += magnitude > INF;
    census->pos_inf += bits == INF;
    census->neg_inf += magnitude == INF && bits != INF;
}
