/* Rows of the heat maps: what share of a layer's values was lost, over the steps. */
#ifndef AB_REPORTS_PLOT_STRIPS_H
#define AB_REPORTS_PLOT_STRIPS_H

#include "kernels/core/compiler.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdio.h>

AB_BEGIN_DECLS

enum { AB_STRIP_COLUMNS = 256 };

/* Element i is of the `stride` steps from first + i * stride on. */
typedef struct ab_strip {
    double first, stride;
    int columns;
    double nonzero[AB_STRIP_COLUMNS], lost[AB_STRIP_COLUMNS];
} ab_strip;

/* What the strips of a cell hold. */
typedef struct ab_strips {
    double every;           /* probes.every: 0 where it is not known which steps were probed */
    bool any_lost, any_bad; /* something was lost; a probed column has no number other than 0 */
    bool any;
} ab_strips;

/* Of a cell, before its strips were written. */
ab_strips ab_strips_of(const cJSON *cell);

/* Adds the counts `lost_key` of a tensor or parameter (its `steps`). */
void ab_strip_add(ab_strip *strip, const cJSON *steps, const char *lost_key);

/* Writes "row from_step to_step percent" of every probed column; percent is -1 where no value was a number
 * other than 0. Steps that were not probed are left out. `data` may be NULL. */
void ab_strip_write(const ab_strip *strip, int row, ab_strips *all, FILE *data);

/* What stands in place of a map: that nothing was probed, or nothing was lost (`nothing`); "" where the map
 * shows more than one colour. */
const char *ab_strips_sentence(const ab_strips *all, const char *nothing);

/* Whether `layer` of `item` is that of none before it in the list. */
bool ab_is_first_of_layer(const cJSON *list, const cJSON *item);

AB_END_DECLS

#endif
