/* Greedy: label after label takes the first free place on circles of growing radius around its point. */
#include "reports/plot/place.h"

#include <math.h>
#include <stdbool.h>

enum { ANGLES = 16 };

static bool overlaps(ab_place a, ab_place b, double width, double height) {
    return fabs(a.x - b.x) < width && fabs(a.y - b.y) < height;
}

static bool is_free(ab_place at, const ab_place *point, int points, const ab_place *label, int labels,
                    ab_area area) {
    const double half_width = AB_PLACE_WIDTH / 2.0, half_height = AB_PLACE_HEIGHT / 2.0;
    if (at.x - half_width < area.left || at.x + half_width > area.right || at.y - half_height < area.top ||
        at.y + half_height > area.bottom)
        return false;
    for (int i = 0; i < points; i++)
        if (overlaps(at, point[i], half_width + AB_PLACE_MARK / 2.0, half_height + AB_PLACE_MARK / 2.0))
            return false;
    for (int i = 0; i < labels; i++)
        if (overlaps(at, label[i], AB_PLACE_WIDTH, AB_PLACE_HEIGHT)) return false;
    return true;
}

/* Above to the right first, as readers of such plots expect it. */
static ab_place candidate(ab_place point, double radius, int angle) {
    const double turn = 6.283185307179586 * (angle + 2) / ANGLES;
    return (ab_place){point.x + radius * cos(turn), point.y - radius * sin(turn)};
}

void ab_place_labels(const ab_place *point, int count, ab_area area, ab_place *label) {
    const double farthest = hypot(area.right - area.left, area.bottom - area.top);
    for (int i = 0; i < count; i++) {
        bool placed = false;
        for (double radius = 13; !placed && radius < farthest; radius += 6)
            for (int angle = 0; !placed && angle < ANGLES; angle++) {
                label[i] = candidate(point[i], radius, angle);
                placed = is_free(label[i], point, count, label, i, area);
            }
        if (!placed) label[i] = point[i];
    }
}
