/* Text: windows of a stream with the next token as the target, or samples with a class. */
#include "bench/data/data.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static ab_data_shape text_shape(int64_t length, int64_t vocabulary, ab_target_kind targets) {
    ab_data_shape shape = {
        .input = AB_INPUT_TOKENS, .x = {1, {length}}, .vocabulary = vocabulary, .targets = targets};
    if (targets == AB_TARGETS_TOKENS) shape.y = shape.x;
    return shape;
}

static ab_data *open_text(const char *name, const ab_data_shape *shape, uint64_t seed) {
    ab_data *data = NULL;
    if (ab_data_open(name, shape, seed, &data) != AB_OK) fail_msg("%s", ab_error_message());
    return data;
}

static void targets_are_the_next_tokens_across_windows(void **state) {
    (void)state;
    enum { LENGTH = 37 };
    ab_data_shape shape = text_shape(LENGTH, 256, AB_TARGETS_TOKENS);
    ab_data *data = open_text("synthetic_text", &shape, 1);
    int32_t x[3 * LENGTH], y[3 * LENGTH];
    const int64_t index[] = {5, 6, data->split[AB_SPLIT_TRAIN].count - 1};
    ab_data_fill(data, AB_SPLIT_TRAIN, AB_NORMALIZE_UNIT, index, 3, x, y);
    for (int i = 0; i + 1 < LENGTH; i++) {
        assert_int_equal(y[i], x[i + 1]);
        assert_int_equal(y[2 * LENGTH + i], x[2 * LENGTH + i + 1]);
    }
    assert_int_equal(y[LENGTH - 1], x[LENGTH]); /* the first token of the next window */
    ab_data_close(data);
}

static void tokens_stay_below_the_vocabulary(void **state) {
    (void)state;
    static const int64_t vocabularies[] = {2, 5, 27, 100, 128, 256, 1023, 1024, 50257};
    for (size_t v = 0; v < AB_COUNT_OF(vocabularies); v++) {
        ab_data_shape shape = text_shape(64, vocabularies[v], AB_TARGETS_TOKENS);
        ab_data *data = open_text("synthetic_text", &shape, 1);
        int32_t x[64], y[64], largest = 0;
        for (int64_t i = 0; i < 100; i++) {
            ab_data_fill(data, AB_SPLIT_TEST, AB_NORMALIZE_UNIT, &i, 1, x, y);
            for (int k = 0; k < 64; k++) {
                assert_true(x[k] >= 0 && x[k] < vocabularies[v] && y[k] >= 0 && y[k] < vocabularies[v]);
                largest = x[k] > largest ? x[k] : largest;
            }
        }
        assert_true(largest > 0);
        ab_data_close(data);
    }
}

/* Bits a word under the best model of word pairs, and under none (word frequencies): what there is to learn.
 */
static void there_is_something_to_learn_and_an_end_to_it(void **state) {
    (void)state;
    enum { WORDS = 513, LENGTH = 64, SAMPLES = 4096 };
    ab_data_shape shape = text_shape(LENGTH, 2048, AB_TARGETS_CLASSES);
    shape.classes = 1; /* one topic: a pair model is exact */
    ab_data *data = open_text("synthetic_text", &shape, 1);
    double *pair = calloc((size_t)WORDS * WORDS, sizeof *pair), single[WORDS] = {0}, from[WORDS] = {0};
    double pairs = 0, bits_pair = 0, bits_single = 0;
    assert_non_null(pair);
    for (int64_t i = 0; i < SAMPLES; i++) {
        int32_t x[LENGTH], label;
        ab_data_fill(data, AB_SPLIT_TRAIN, AB_NORMALIZE_UNIT, &i, 1, x, &label);
        for (int k = 0; k + 1 < LENGTH; k++, pairs++) {
            pair[x[k] * WORDS + x[k + 1]]++;
            from[x[k]]++;
            single[x[k + 1]]++;
        }
    }
    for (int a = 0; a < WORDS; a++) {
        if (single[a] > 0) bits_single -= single[a] / pairs * log2(single[a] / pairs);
        for (int b = 0; b < WORDS; b++)
            if (pair[a * WORDS + b] > 0)
                bits_pair -= pair[a * WORDS + b] / pairs * log2(pair[a * WORDS + b] / from[a]);
    }
    assert_true(bits_pair > 1.6 && bits_pair < 1.8);
    assert_true(bits_single > 4.0);
    free(pair);
    ab_data_close(data);
}

static void classes_follow_the_net_and_are_balanced(void **state) {
    (void)state;
    static const int64_t asked[] = {2, 3, 8, 100}, given[] = {2, 3, 8, 8};
    for (size_t i = 0; i < AB_COUNT_OF(asked); i++) {
        ab_data_shape shape = text_shape(16, 256, AB_TARGETS_CLASSES);
        shape.classes = asked[i];
        ab_data *data = open_text("synthetic_text", &shape, 7);
        int64_t count[8] = {0}, samples = data->split[AB_SPLIT_TRAIN].count;
        assert_int_equal(data->classes, given[i]);
        for (int64_t k = 0; k < samples; k++) {
            int32_t x[16], label;
            ab_data_fill(data, AB_SPLIT_TRAIN, AB_NORMALIZE_UNIT, &k, 1, x, &label);
            assert_in_range(label, 0, given[i] - 1);
            count[label]++;
        }
        for (int64_t c = 0; c < given[i]; c++)
            assert_true(fabs((double)count[c] - (double)samples / (double)given[i]) <
                        5 * sqrt((double)samples));
        ab_data_close(data);
    }
}

static void the_seed_changes_the_text_and_nothing_else_does(void **state) {
    (void)state;
    ab_data_shape shape = text_shape(32, 256, AB_TARGETS_TOKENS);
    ab_data *a = open_text("synthetic_text", &shape, 1), *b = open_text("synthetic_text", &shape, 1),
            *c = open_text("synthetic_text", &shape, 2);
    const size_t bytes = (size_t)(a->split[0].count * 32 + 1) * 4;
    assert_memory_equal(a->split[0].pixel, b->split[0].pixel, bytes);
    assert_memory_not_equal(a->split[0].pixel, c->split[0].pixel, bytes);
    assert_memory_not_equal(a->split[0].pixel, a->split[1].pixel, 32 * 4);
    ab_data_close(a);
    ab_data_close(b);
    ab_data_close(c);
}

static void sources_of_another_kind_are_refused_with_a_suggestion(void **state) {
    (void)state;
    ab_data *data = NULL;
    ab_data_shape text = text_shape(32, 256, AB_TARGETS_TOKENS);
    assert_int_equal(ab_data_open("synthetic", &text, 1, &data), AB_CONFIG);
    assert_non_null(
        strstr(ab_error_message(), "it holds images, the net's input is tokens; try --data synthetic_text"));
    assert_int_equal(ab_data_open_images("synthetic_text", 28, 28, 1, 1, &data), AB_CONFIG);
    assert_non_null(
        strstr(ab_error_message(), "it holds tokens, the net's input is images; try --data fashion_mnist"));
    assert_string_equal(ab_data_default(&text), "synthetic_text");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(targets_are_the_next_tokens_across_windows),
        cmocka_unit_test(tokens_stay_below_the_vocabulary),
        cmocka_unit_test(there_is_something_to_learn_and_an_end_to_it),
        cmocka_unit_test(classes_follow_the_net_and_are_balanced),
        cmocka_unit_test(the_seed_changes_the_text_and_nothing_else_does),
        cmocka_unit_test(sources_of_another_kind_are_refused_with_a_suggestion),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
