/* Places for the labels of points in a picture. */
#ifndef AB_REPORTS_PLOT_PLACE_H
#define AB_REPORTS_PLOT_PLACE_H

#include "kernels/core/compiler.h"

AB_BEGIN_DECLS

enum { AB_PLACE_WIDTH = 18, AB_PLACE_HEIGHT = 13, AB_PLACE_MARK = 9, AB_PLACE_MOST = 64 };

/* Pixels; y grows downwards. */
typedef struct ab_place {
    double x, y;
} ab_place;

typedef struct ab_area {
    double left, right, top, bottom;
} ab_area;

/* Centres of labels of AB_PLACE_WIDTH x AB_PLACE_HEIGHT pixels, each as near to its point as it can be
 * without covering another label or a mark, of AB_PLACE_MARK pixels, inside the area. At most AB_PLACE_MOST
 * points, in an area of at least 400 x 300 pixels. */
void ab_place_labels(const ab_place *point, int count, ab_area area, ab_place *label);

AB_END_DECLS

#endif
