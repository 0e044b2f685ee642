/* Counting a tensor: every thread has a census of its own, and they are added up in the order of the blocks, so that the
 * sums come out the same on any number of threads. Predictions are left to whatif.h. */
#include "bench/inspect/inspect.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct counting {
    ab_inspect_count *lane; /* one a thread, cleared whenever it has been added to `total` */
    ab_inspect_count *total;
} counting;

static void see(void *context, int lane, const ab_tensor_block *block) {
    ab_inspect_count *count = &((counting *)context)->lane[lane];
    ab_census_add_stored(&count->census, block->data, block->format, block->n);
    count->load_flushed += block->load_flushed;
    count->load_overflowed += block->load_overflowed;
}

static void clear(ab_inspect_count *count) {
    ab_census_clear(&count->census);
    count->load_flushed = count->load_overflowed = 0;
}

void ab_inspect_merge(ab_inspect_count *into, const ab_inspect_count *from) {
    ab_census_merge(&into->census, &from->census);
    into->load_flushed += from->load_flushed;
    into->load_overflowed += from->load_overflowed;
}

static void merge(void *context, int lane) {
    counting *c = context;
    ab_inspect_merge(c->total, &c->lane[lane]);
    clear(&c->lane[lane]);
}

ab_status ab_inspect_tensor(const ab_inspect_pick *pick, int threads, ab_inspect_count *count) {
    clear(count);
    counting c = {.lane = malloc((size_t)threads * sizeof *c.lane), .total = count};
    if (!c.lane) return ab_fail(AB_NO_MEMORY, "out of memory for the counts of %d threads", threads);
    for (int i = 0; i < threads; i++) clear(&c.lane[i]);
    ab_block_visitor visitor = {.context = &c, .lanes = threads, .see = see, .merge = merge};
    ab_status status = ab_tensorfile_stream(pick->file, pick->entry, &visitor);
    free(c.lane);
    return status;
}

ab_status ab_inspect_find_limits(const ab_inspect_request *request, ab_inspect_limits *limits) {
    for (int f = 0; f < request->formats; f++) {
        for (int k = AB_INSPECT_LOW; k <= AB_INSPECT_HIGH; k++)
            AB_TRY(ab_whatif_find_limits(request->format[f], ldexpf(1.0F, k), request->ftz,
                                         &limits->power[f][k - AB_INSPECT_LOW]));
        AB_TRY(ab_whatif_find_limits(request->format[f], request->scale, request->ftz, &limits->scale[f]));
    }
    return AB_OK;
}
