/* Which process of a cell runs when. */
#include "bench/run/state.h"

#include "bench/run/record.h"
#include "kernels/core/rng.h"

#include <stdlib.h>
#include <string.h>

/* Only the losses of the noise floor and of further seeds are used: one round is enough. */
bool ab_run_is_timed(const ab_run_state *r, int cell) {
    return !r->cells[cell].perturbation && r->cells[cell].seed == r->config.seed;
}

/* Each round runs every timed cell once, in a random order per round. */
ab_status ab_run_draw_order(ab_run_state *r) {
    int n = r->count;
    r->order = calloc((size_t)(r->config.rounds * n), sizeof *r->order);
    if (!r->order) return ab_fail(AB_NO_MEMORY, "run: out of memory");
    for (int64_t round = 0; round < r->config.rounds; round++) {
        int *order = r->order + round * n;
        for (int i = 0; i < n; i++) order[i] = i;
        for (int i = n - 1; i > 0 && round > 0; i--) { /* the first round runs in the table's order */
            int j = (int)ab_rng_below(r->config.seed, AB_RNG_DESIGN, (uint32_t)round, (uint64_t)i,
                                      (uint64_t)i + 1);
            int swapped = order[i];
            order[i] = order[j];
            order[j] = swapped;
        }
        for (int i = 0; i < n; i++)
            if (round > 0 && !ab_run_is_timed(r, order[i])) order[i] = -1;
    }
    return AB_OK;
}

bool ab_run_is_due(const ab_run_state *r, int round, int position) {
    int index = r->order[round * r->count + position];
    return index >= 0 && !ab_record_has_round(r->record.cell[index], round) &&
           strcmp(ab_record_status(r->record.cell[index]), "failed") != 0;
}

int ab_run_count_due(const ab_run_state *r) {
    int due = 0;
    for (int round = 0; round < r->config.rounds; round++)
        for (int p = 0; p < r->count; p++) due += ab_run_is_due(r, round, p);
    return due;
}
