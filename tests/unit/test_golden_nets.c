/* Training of the larger networks agrees with PyTorch: attention with causal masks and dropout, embeddings, LSTMs; adamw and lamb
 * with clipping, accumulation and schedules. Needs no data package: texts and images are in tests/golden. */
#define _POSIX_C_SOURCE 200809L
#include "tests/unit/golden_testing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void check(const char *path, const cJSON *document) {
    static golden_trace measured, recorded;
    golden_distances distances;
    const cJSON *config = golden_get(document, "config");
    const struct golden_limits *limits =
        golden_limits_of(golden_text(config, "net"), golden_text(config, "level"));
    assert_non_null(limits);
    ab_status status = golden_run(document, &measured, &recorded, &distances);
    if (status != AB_OK) fail_msg("%s", ab_error_message());
    golden_free(&measured);
    golden_print(path, &distances);
    if (golden_count_beyond(&distances, limits) > 0) fail_msg("%s: not what PyTorch computed", path);
}

static void language_models_match_pytorch(void **state) {
    (void)state;
    assert_int_equal(golden_for_each("tests/golden/nets", "bytes:tests/golden/text/stream.txt", check), 7);
}

static void a_classifier_with_dropout_matches_pytorch(void **state) {
    (void)state;
    assert_int_equal(golden_for_each("tests/golden/nets", "bytes:tests/golden/text/classes", check), 4);
}

static void a_vision_transformer_matches_pytorch(void **state) {
    (void)state;
    assert_int_equal(golden_for_each("tests/golden/nets", "tests/golden/data", check), 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(language_models_match_pytorch),
        cmocka_unit_test(a_classifier_with_dropout_matches_pytorch),
        cmocka_unit_test(a_vision_transformer_matches_pytorch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
