/* Counting a tensor: every chunk of its blocks has its own census; these are summed in the order of the
 * chunks, so that the sums do not depend on the number of threads. Predictions are computed by whatif.h. */
#include "bench/inspect/inspect.h"

#include <stdlib.h>
#include <string.h>

static void add_block(void *context, int chunk, const ab_tensor_block *block) {
    ab_inspect_count *count = (ab_inspect_count *)context + chunk;
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

ab_status ab_inspect_tensor_count(const ab_inspect_pick *pick, ab_inspect_count *count) {
    int chunks = ab_tensorfile_chunks(pick->entry);
    ab_inspect_count *chunk = malloc((size_t)(chunks > 0 ? chunks : 1) * sizeof *chunk);
    if (!chunk) return ab_fail(AB_NO_MEMORY, "out of memory for counts");
    for (int i = 0; i < chunks; i++) clear(&chunk[i]);
    ab_block_visitor visitor = {.context = chunk, .see = add_block};
    ab_status status = ab_tensorfile_stream(pick->file, pick->entry, &visitor);
    clear(count);
    for (int i = 0; i < chunks; i++) ab_inspect_merge(count, &chunk[i]);
    free(chunk);
    return status;
}
