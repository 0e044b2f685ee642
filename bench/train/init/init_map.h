/* Maps parameter names to the tensor names of another framework's weight file.
 *
 * A line is "HERE THERE [transpose | permute=2,3,1,0]": the parameter HERE is the tensor THERE, its axes
 * reordered: axis d here is axis permute[d] there. One * in each matches the same text. "- THERE" ignores
 * such tensors. # starts a comment. The first matching line wins; a parameter without a matching line has the
 * same name in the file. Tensors named *.num_batches_tracked (torch's counters) are always ignored. */
#ifndef AB_BENCH_TRAIN_INIT_INIT_MAP_H
#define AB_BENCH_TRAIN_INIT_INIT_MAP_H

#include "kernels/core/shape.h"
#include "kernels/core/status.h"

#include <stdbool.h>
#include <stddef.h>

AB_BEGIN_DECLS

typedef struct ab_init_map ab_init_map;

/* Reads the table; NULL path: an empty table. *map is owned by the caller. AB_INPUT names file:line. */
AB_MUST_CHECK ab_status ab_init_map_load(const char *path, ab_init_map **map);
void ab_init_map_free(ab_init_map *map); /* NULL is a no-op */

/* Writes to `there` (`size` bytes) the tensor that parameter `here` with `ndim` axes is read from; *axis: the
 * permutation (borrowed), NULL: none. AB_INPUT if its line permutes a different number of axes. */
AB_MUST_CHECK ab_status ab_init_map_find(ab_init_map *map, const char *here, int ndim, char *there,
                                         size_t size, const int **axis);

/* Whether a tensor of the file that no parameter uses is ignored instead of being an error. */
bool ab_init_map_ignores(ab_init_map *map, const char *there);

/* AB_INPUT names a line that has matched nothing so far. */
AB_MUST_CHECK ab_status ab_init_map_check_used(const ab_init_map *map);

AB_END_DECLS

#endif
