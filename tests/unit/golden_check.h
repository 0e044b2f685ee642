/* The assertion of tests that train beside a golden trace: nothing is further apart than golden_limits_of
 * allows. Include it behind cmocka.h. */
#ifndef AB_TESTS_UNIT_GOLDEN_CHECK_H
#define AB_TESTS_UNIT_GOLDEN_CHECK_H

#include "tests/unit/golden_testing.h"

static void golden_check(const char *path, const cJSON *document) {
    static golden_trace measured, recorded;
    golden_distances distances;
    const cJSON *config = golden_get(document, "config");
    const struct golden_limits *limits =
        golden_limits_of(golden_text(config, "net"), golden_text(config, "level"));
    assert_non_null(limits);
    ab_status status = golden_run(document, &measured, &recorded, &distances);
    golden_free(&measured);
    if (status != AB_OK) fail_msg("%s: %s", path, ab_error_message());
    golden_print(path, &distances);
    if (golden_count_beyond(&distances, limits) > 0) fail_msg("%s: not what PyTorch computed", path);
}

#endif
