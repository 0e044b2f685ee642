/* Names of another framework's weights: a table that says which tensor of a file a parameter is read from.
 *
 * A line is "HERE THERE [transpose | permute=2,3,1,0]": the parameter HERE is the tensor THERE, its axes
 * reordered: axis d here is axis permute[d] there. One * in each stands for the same text. "- THERE" says
 * that such tensors are not wanted. # begins a comment. The first line that fits decides; a parameter that no
 * line fits has the same name there. Tensors called
 * *.num_batches_tracked (torch's counters) are never wanted. */
#ifndef AB_BENCH_TRAIN_INIT_INIT_MAP_H
#define AB_BENCH_TRAIN_INIT_INIT_MAP_H

#include "kernels/core/shape.h"
#include "kernels/core/status.h"

#include <stdbool.h>
#include <stddef.h>

AB_BEGIN_DECLS

typedef struct ab_init_map ab_init_map;

/* AB_INPUT names file:line. NULL path: the table without lines. */
AB_MUST_CHECK ab_status ab_init_map_load(const char *path, ab_init_map **map);
void ab_init_map_free(ab_init_map *map); /* NULL is a no-op */

/* Where the parameter `here` of `ndim` axes is read from; *axis: how axes are reordered (borrowed), NULL:
 * they are not. AB_INPUT if its line reorders another number of axes. */
AB_MUST_CHECK ab_status ab_init_map_find(ab_init_map *map, const char *here, int ndim, char *there,
                                         size_t size, const int **axis);

/* A tensor that nobody asks for need not be an error. */
bool ab_init_map_ignores(ab_init_map *map, const char *there);

/* AB_INPUT names a line that has fitted nothing so far. */
AB_MUST_CHECK ab_status ab_init_map_check_used(const ab_init_map *map);

AB_END_DECLS

#endif
