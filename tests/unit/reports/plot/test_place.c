/* Labels of points: none covers another or a mark, all are inside, each is near its point where there is
 * room.
 */
#include "reports/plot/place.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static const ab_area area = {70, 770, 78, 422};

static bool overlap(ab_place a, ab_place b, double width, double height) {
    return fabs(a.x - b.x) < width - 1e-9 && fabs(a.y - b.y) < height - 1e-9;
}

static void expect_clear(const ab_place *point, int count) {
    ab_place label[AB_PLACE_MOST];
    ab_place_labels(point, count, area, label);
    for (int i = 0; i < count; i++) {
        assert_true(label[i].x - AB_PLACE_WIDTH / 2.0 >= area.left &&
                    label[i].x + AB_PLACE_WIDTH / 2.0 <= area.right);
        assert_true(label[i].y - AB_PLACE_HEIGHT / 2.0 >= area.top &&
                    label[i].y + AB_PLACE_HEIGHT / 2.0 <= area.bottom);
        for (int k = 0; k < count; k++) {
            assert_false(overlap(label[i], point[k], (AB_PLACE_WIDTH + AB_PLACE_MARK) / 2.0,
                                 (AB_PLACE_HEIGHT + AB_PLACE_MARK) / 2.0));
            assert_false(k != i && overlap(label[i], label[k], AB_PLACE_WIDTH, AB_PLACE_HEIGHT));
        }
    }
}

static void test_equal_points_have_separate_labels(void **state) {
    (void)state;
    ab_place point[40];
    for (int i = 0; i < 40; i++) point[i] = (ab_place){400, 200};
    expect_clear(point, 40);
    for (int i = 0; i < 40; i++) point[i] = (ab_place){70, 422}; /* in a corner */
    expect_clear(point, 40);
}

static void test_crowds_and_rows_have_separate_labels(void **state) {
    (void)state;
    ab_place point[AB_PLACE_MOST];
    uint32_t random = 1;
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 40; i++) {
            random = random * 1664525u + 1013904223u;
            point[i].x = 300 + (random >> 16) % 90;
            random = random * 1664525u + 1013904223u;
            point[i].y = 200 + (random >> 16) % 60;
        }
        expect_clear(point, 40);
    }
    for (int i = 0; i < 40; i++) point[i] = (ab_place){100 + 4 * i, 250};
    expect_clear(point, 40);
}

static void test_a_lone_point_has_its_label_at_its_side(void **state) {
    (void)state;
    const ab_place point = {400, 200};
    ab_place label;
    ab_place_labels(&point, 1, area, &label);
    assert_true(hypot(label.x - point.x, label.y - point.y) < 25);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_points_have_separate_labels),
        cmocka_unit_test(test_crowds_and_rows_have_separate_labels),
        cmocka_unit_test(test_a_lone_point_has_its_label_at_its_side),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
