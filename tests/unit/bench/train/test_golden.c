/* Training agrees with PyTorch on a small network at every level, and the comparison that says so finds each
 * of eleven planted mistakes. Needs no data package: images and network are in tests/golden. */
#define _POSIX_C_SOURCE 200809L
#include "tests/unit/golden_testing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static const char data[] = "tests/golden/data";

static const struct golden_limits *limits_of(const cJSON *document) {
    const cJSON *config = golden_get(document, "config");
    const struct golden_limits *limits =
        golden_limits_of(golden_text(config, "net"), golden_text(config, "level"));
    assert_non_null(limits);
    return limits;
}

static void run(const cJSON *document, golden_trace *measured, golden_trace *recorded,
                golden_distances *distances) {
    ab_status status = golden_run(document, measured, recorded, distances);
    if (status != AB_OK) fail_msg("%s", ab_error_message());
}

/* ---- honest traces --------------------------------------------------------------------------- */

static void check_honest(const char *path, const cJSON *document) {
    static golden_trace measured, recorded;
    golden_distances distances;
    run(document, &measured, &recorded, &distances);
    golden_free(&measured);
    golden_print(path, &distances);
    if (golden_count_beyond(&distances, limits_of(document)) > 0)
        fail_msg("%s: not what PyTorch computed", path);
}

static void losses_gradients_weights_and_statistics_match_pytorch_at_every_level(void **state) {
    (void)state;
    assert_true(golden_for_each("tests/golden", data, check_honest) >= 14);
}

/* A trace in which the scaled gradients overflow at first: its file must say so, or the skips were not
 * compared. */
static void a_trace_with_skipped_steps_is_among_them(void **state) {
    (void)state;
    static golden_trace recorded;
    cJSON *document = golden_open("tests/golden/mlp-momentum-O2-fp16-none.json");
    assert_non_null(document);
    golden_read(document, &recorded);
    cJSON_Delete(document);
    assert_true(recorded.skipped[0] && recorded.skipped[1] && recorded.skipped[2] && !recorded.skipped[3]);
    assert_true(recorded.scale[3] == 8192.0);
}

/* ---- the same bits --------------------------------------------------------------------------- */

static ab_digest add_weights(ab_digest digest, const ab_cell *cell, const golden_trace *recorded) {
    for (int t = 0; t < recorded->tensors; t++) {
        const golden_tensor *tensor = &recorded->tensor[t];
        if (tensor->precision == 0) continue;
        float *values = golden_values(cell, tensor->name, "", tensor->count);
        assert_non_null(values);
        digest = ab_digest_add(digest, values, (size_t)tensor->count * sizeof *values);
        free(values);
    }
    return digest;
}

static void expect_digest(ab_digest digest, const char *expected) {
    char text[17];
    assert_string_equal(ab_digest_text(digest, text), expected);
}

static void initial_weights_and_images_are_the_bits_that_pytorch_had(void **state) {
    (void)state;
    static golden_trace recorded;
    golden_setup setup;
    cJSON *document = golden_open("tests/golden/tiny-momentum-O0.json");
    assert_non_null(document);
    golden_read(document, &recorded);
    const cJSON *config = golden_get(document, "config"), *about = golden_get(document, "data");
    if (golden_create(config, &setup) != AB_OK) fail_msg("%s", ab_error_message());
    expect_digest(add_weights(ab_digest_start(), setup.cell, &recorded),
                  golden_text(document, "init_digest"));
    size_t batch = (size_t)golden_number(config, "batch");
    const ab_images *train = &setup.data->split[AB_SPLIT_TRAIN];
    size_t pixels = batch * (size_t)(setup.data->height * setup.data->width * setup.data->channels);
    ab_digest digest = ab_digest_add(ab_digest_start(), train->pixel, pixels);
    expect_digest(ab_digest_add(digest, train->label, batch), golden_text(about, "first_batch_digest"));
    assert_true(fabs(setup.data->mean - golden_number(about, "mean")) < 1e-12);
    assert_true(fabs(setup.data->std - golden_number(about, "std")) < 1e-12);
    golden_teardown(&setup);
    cJSON_Delete(document);
}

/* ---- planted mistakes ------------------------------------------------------------------------ */

/* One run, two comparisons with the same limits: it passes against the honest trace and fails against the
 * planted one. */
static void check_planted(const char *path, const cJSON *document) {
    static golden_trace measured, planted, honest;
    golden_distances distances;
    char name[GOLDEN_PATH];
    run(document, &measured, &planted, &distances);
    golden_free(&measured);
    golden_print(path, &distances);
    if (golden_count_beyond(&distances, limits_of(document)) == 0)
        fail_msg("%s: the mistake was not found", path);
    snprintf(name, sizeof name, "tests/golden/%s", golden_text(document, "honest"));
    cJSON *without = golden_open(name);
    assert_non_null(without);
    golden_read(without, &honest);
    cJSON_Delete(without);
    distances = golden_compare(&measured, &honest);
    if (golden_count_beyond(&distances, limits_of(document)) > 0)
        fail_msg("%s: found where none was planted", name);
}

static void every_planted_mistake_is_found(void **state) {
    (void)state;
    assert_int_equal(golden_for_each("tests/golden/planted", data, check_planted), 16);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(initial_weights_and_images_are_the_bits_that_pytorch_had),
        cmocka_unit_test(losses_gradients_weights_and_statistics_match_pytorch_at_every_level),
        cmocka_unit_test(a_trace_with_skipped_steps_is_among_them),
        cmocka_unit_test(every_planted_mistake_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
