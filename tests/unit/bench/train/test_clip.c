/* Clipping against what torch's clip_grad_norm_ and clip_grad_value_ did to the same gradients
 * (tests/golden/clipping.json, made by scripts/golden_optimizers.py), and against a double-precision norm. */
#include "bench/train/optim/clip.h"

#include "kernels/core/parallel.h"
#include "kernels/core/rng.h"
#include "kernels/format/convert.h"
#include "support/json_file.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static ab_tensor grad_new(const ab_format *format, int64_t n, uint32_t step, double scale) {
    ab_tensor grad = {.data = calloc((size_t)n, sizeof(float)),
                      .shape = {1, {n}},
                      .format = format,
                      .device = &ab_device_cpu,
                      .id = -1};
    assert_non_null(grad.data);
    for (int64_t i = 0; i < n; i++) {
        float value = (float)scale * (2.0f * ab_rng_uniform(42, AB_RNG_SAMPLE, step, (uint64_t)i) - 1.0f);
        ab_narrow((char *)grad.data + ab_format_bytes(format, i), format, &value, 1);
    }
    return grad;
}

static double value_at(const ab_tensor *tensor, int64_t i) {
    float value;
    ab_widen(&value, (const char *)tensor->data + ab_format_bytes(tensor->format, i), tensor->format, 1);
    return (double)value;
}

static double number(const cJSON *object, const char *key) {
    return cJSON_GetObjectItem(object, key)->valuedouble;
}

/* Relative room: a rounding or two of the format. */
static void agrees(int row, double found, const char *text, double room) {
    double expected = strtod(text, NULL);
    if (isinf(expected) && isinf(found)) return;
    if (!(fabs(found - expected) <= room * fabs(expected) + 1e-12))
        fail_msg("case %d: %.9g, expected %.9g", row, found, expected);
}

static void gradients_are_clipped_as_torch_does(void **state) {
    (void)state;
    enum { TENSORS = 3 };
    static const int64_t sizes[TENSORS] = {33, 7, 5};
    cJSON *document = ab_test_read_json(AB_SOURCE_DIR "/tests/golden/clipping.json");
    assert_non_null(document);
    int rows = 0;
    const cJSON *row = NULL;
    cJSON_ArrayForEach(row, cJSON_GetObjectItem(document, "cases")) {
        const ab_format *format = NULL;
        ab_tensor grad[TENSORS], *list[TENSORS];
        double total, room;
        assert_int_equal(ab_format_find(cJSON_GetStringValue(cJSON_GetObjectItem(row, "format")), &format),
                         AB_OK);
        room = format == &ab_format_fp32 ? 3e-7 : 1e-3;
        for (int t = 0; t < TENSORS; t++) {
            grad[t] = grad_new(format, sizes[t], (uint32_t)(2000 + t), number(row, "scale"));
            list[t] = &grad[t];
        }
        ab_clip_config config = {.norm = number(row, "norm"), .value = number(row, "value")};
        assert_int_equal(ab_clip(&config, list, TENSORS, &total), AB_OK);
        agrees(rows, total, cJSON_GetStringValue(cJSON_GetObjectItem(row, "total")), room);
        for (int t = 0; t < TENSORS; t++) {
            const cJSON *expected = cJSON_GetArrayItem(cJSON_GetObjectItem(row, "grads"), t);
            for (int64_t i = 0; i < sizes[t]; i++)
                agrees(rows, value_at(&grad[t], i), cJSON_GetArrayItem(expected, (int)i)->valuestring, room);
            free(grad[t].data);
        }
        rows++;
    }
    assert_int_equal(rows, 8);
    cJSON_Delete(document);
}

/* Whatever the size and the threads: the norm is of all elements, and afterwards it is the limit. */
static void the_norm_covers_all_elements_on_any_number_of_lanes(void **state) {
    (void)state;
    static const int64_t sizes[] = {1, 4096, 4097, 300001};
    for (size_t s = 0; s < AB_COUNT_OF(sizes); s++)
        for (int threads = 1; threads <= 3; threads++) {
            double first = 0, total = 0, sum = 0, after = 0;
            assert_int_equal(ab_parallel_start(threads), AB_OK);
            ab_tensor grad = grad_new(&ab_format_fp32, sizes[s], 7, 1.0), *list[] = {&grad};
            for (int64_t i = 0; i < sizes[s]; i++) sum += value_at(&grad, i) * value_at(&grad, i);
            assert_int_equal(ab_clip(&(ab_clip_config){.norm = 0.01}, list, 1, &total), AB_OK);
            if (threads == 1) first = total;
            assert_true(threads > 1 || total == first);
            assert_true(fabs(total - sqrt(sum)) <= 1e-7 * total);
            for (int64_t i = 0; i < sizes[s]; i++) after += value_at(&grad, i) * value_at(&grad, i);
            assert_true(fabs(sqrt(after) - 0.01) <= 1e-3 * 0.01);
            free(grad.data);
        }
    ab_parallel_stop();
}

/* Norm 4.6e4 * sqrt(33 / 3) of fp32 gradients: infinite in fp16, and then every gradient is 0; of fp16
 * gradients in fp32: finite. */
static void the_norm_has_the_format_that_is_asked_for(void **state) {
    (void)state;
    static const ab_format *const of_gradients[] = {&ab_format_fp32, &ab_format_fp16}, *const of_norm[] = {
                                                                                           &ab_format_fp16,
                                                                                           &ab_format_fp32};
    for (int k = 0; k < 2; k++)
        for (int own = 0; own < 2; own++) {
            ab_tensor grad = grad_new(of_gradients[k], 33, 2000, 4.6e4), *list[] = {&grad};
            const ab_clip_config config = {.norm = 1, .format = own ? NULL : of_norm[k]};
            double total, sum = 0, after = 0;
            for (int64_t i = 0; i < 33; i++) sum += value_at(&grad, i) * value_at(&grad, i);
            assert_true(sqrt(sum) > 65520);
            assert_int_equal(ab_clip(&config, list, 1, &total), AB_OK);
            for (int64_t i = 0; i < 33; i++) after += value_at(&grad, i) * value_at(&grad, i);
            if ((own ? of_gradients : of_norm)[k] == &ab_format_fp16)
                assert_true(isinf(total) && after == 0);
            else
                assert_true(fabs(total / sqrt(sum) - 1) < 1e-6 && fabs(sqrt(after) - 1) < 1e-2);
            free(grad.data);
        }
}

static void without_limits_nothing_is_touched(void **state) {
    (void)state;
    ab_tensor grad = grad_new(&ab_format_fp16, 100, 7, 1.0), *list[] = {&grad};
    uint16_t before[100];
    double total;
    memcpy(before, grad.data, sizeof before);
    assert_int_equal(ab_clip(&(ab_clip_config){0}, list, 1, &total), AB_OK);
    assert_memory_equal(before, grad.data, sizeof before);
    assert_int_equal(ab_clip(&(ab_clip_config){.norm = 1e9, .value = 1e9}, list, 1, &total), AB_OK);
    assert_memory_equal(before, grad.data, sizeof before);
    free(grad.data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_clipped_as_torch_does),
        cmocka_unit_test(the_norm_covers_all_elements_on_any_number_of_lanes),
        cmocka_unit_test(the_norm_has_the_format_that_is_asked_for),
        cmocka_unit_test(without_limits_nothing_is_touched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
