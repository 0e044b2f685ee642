/* The gradients probe against a brute-force cast of the very values it was shown, by the scalar definition of
 * the format. */
#define _POSIX_C_SOURCE 200809L
#include "bench/run/json_lines.h"
#include "bench/train/cell/cell.h"
#include "kernels/core/parallel.h"
#include "kernels/core/rng.h"
#include "probes/probe.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/grey_images.h"

#include <cjson/cJSON.h>

enum { TENSORS = 3, THREADS = 2, COLUMNS = 128, EXPONENT_MIN = -149, EXPONENTS = 277 };

/* ---- brute force ----------------------------------------------------------------------------- */

/* What a tensor's report must say. */
typedef struct counts {
    int64_t count, zero, nan, inf, nonzero, flushed, subnormal, normal, overflowed;
    double min_abs, max_abs;
    int64_t exponent[EXPONENTS];
} counts;

static void count_value(counts *c, float value, const ab_format *half) {
    const ab_rounding nearest = {.mode = AB_ROUND_NEAREST_EVEN};
    double magnitude = fabs((double)value), stored = fabs(ab_format_round(half, &nearest, (double)value));
    c->count++;
    if (isnan(value))
        c->nan++;
    else if (isinf(value))
        c->inf++;
    else if (magnitude == 0)
        c->zero++;
    else {
        c->nonzero++;
        c->flushed += stored == 0;
        c->subnormal += stored > 0 && stored < ldexp(1.0, half->emin);
        c->normal += stored >= ldexp(1.0, half->emin) && !isinf(stored);
        c->overflowed += isinf(stored) != 0;
        c->exponent[ilogb(magnitude) - EXPONENT_MIN]++;
        if (c->min_abs == 0 || magnitude < c->min_abs) c->min_abs = magnitude;
        if (magnitude > c->max_abs) c->max_abs = magnitude;
    }
}

/* ---- the probe and its report ---------------------------------------------------------------- */

static const ab_probe_kind *gradients(void) {
    for (int i = 0; i < ab_probe_count(); i++)
        if (strcmp(ab_probe_at(i)->name, "gradients") == 0) return ab_probe_at(i);
    fail_msg("no probe called gradients");
    return NULL;
}

static const ab_probe_tensor tensors[TENSORS] = {
    {"conv1.weight.grad", "conv1", AB_ROLE_WEIGHT_GRADIENT, true},
    {"conv1.out.grad", "conv1", AB_ROLE_ACTIVATION_GRADIENT, true},
    {"bn1.weight.grad", "bn1", AB_ROLE_WEIGHT_GRADIENT, false},
};

static void *probe_new(const ab_format *half) {
    const ab_probe_setup setup = {.tensor = tensors, .tensors = TENSORS, .threads = THREADS, .half = half};
    void *probe = NULL;
    assert_int_equal(gradients()->create(&setup, &probe), AB_OK);
    return probe;
}

/* The report as a tree. The caller deletes it. */
static cJSON *report_of(void *probe) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    ab_json_line line;
    ab_json_line_begin(&line, out, "probes");
    gradients()->report(probe, &line.sink);
    ab_json_line_end(&line);
    fclose(out);
    cJSON *document = cJSON_Parse(text);
    assert_non_null(document);
    free(text);
    return document;
}

static const cJSON *get(const cJSON *object, const char *key) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!item) fail_msg("the report lacks %s", key);
    return item;
}

static int64_t integer(const cJSON *object, const char *key) {
    const cJSON *item = get(object, key);
    assert_true(cJSON_IsNumber(item));
    return (int64_t)item->valuedouble;
}

static const cJSON *tensor_at(const cJSON *document, int i) {
    const cJSON *list = get(document, "tensors");
    assert_true(i < cJSON_GetArraySize(list));
    return cJSON_GetArrayItem(list, i);
}

static int64_t sum_of(const cJSON *list) {
    const cJSON *item = NULL;
    int64_t sum = 0;
    cJSON_ArrayForEach(item, list) sum += (int64_t)item->valuedouble;
    return sum;
}

static void extreme_is(const cJSON *tensor, const char *key, double expected) {
    const cJSON *item = get(tensor, key);
    if (expected == 0)
        assert_true(cJSON_IsNull(item));
    else
        assert_true(item->valuedouble == expected);
}

static void exponents_are(const cJSON *tensor, const counts *c) {
    const cJSON *exponents = get(tensor, "exponents"), *list = get(exponents, "counts");
    int64_t first = integer(exponents, "first");
    assert_int_equal(sum_of(list), c->nonzero);
    for (int e = 0; e < EXPONENTS; e++) {
        int64_t at = EXPONENT_MIN + e - first;
        const cJSON *item =
            at >= 0 && at < cJSON_GetArraySize(list) ? cJSON_GetArrayItem(list, (int)at) : NULL;
        assert_int_equal(item ? (int64_t)item->valuedouble : 0, c->exponent[e]);
    }
}

static void report_is(const cJSON *tensor, const counts *c) {
    assert_int_equal(integer(tensor, "count"), c->count);
    assert_int_equal(integer(tensor, "zero"), c->zero);
    assert_int_equal(integer(tensor, "nan"), c->nan);
    assert_int_equal(integer(tensor, "inf"), c->inf);
    assert_int_equal(integer(tensor, "nonzero"), c->nonzero);
    assert_int_equal(integer(tensor, "flushed"), c->flushed);
    assert_int_equal(integer(tensor, "subnormal"), c->subnormal);
    assert_int_equal(integer(tensor, "normal"), c->normal);
    assert_int_equal(integer(tensor, "overflowed"), c->overflowed);
    assert_int_equal(c->flushed + c->subnormal + c->normal + c->overflowed, c->nonzero);
    assert_int_equal(c->zero + c->nan + c->inf + c->nonzero, c->count);
    extreme_is(tensor, "min_abs", c->min_abs);
    extreme_is(tensor, "max_abs", c->max_abs);
    exponents_are(tensor, c);
    const cJSON *steps = get(tensor, "steps");
    assert_int_equal(sum_of(get(steps, "nonzero")), c->nonzero);
    assert_int_equal(sum_of(get(steps, "flushed")), c->flushed);
    assert_int_equal(sum_of(get(steps, "overflowed")), c->overflowed);
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Any bits at all for a third of the values; magnitudes around the edges of fp16 for the rest. */
static float wild(uint32_t step, uint64_t i) {
    ab_rng_block block = ab_rng_at(9, AB_RNG_SAMPLE, step, i);
    float value;
    memcpy(&value, &block.word[0], sizeof value);
    if (block.word[1] % 3 == 0) return value;
    return ldexpf(ab_rng_normal(9, AB_RNG_INIT, step, i), (int)(block.word[2] % 48) - 30);
}

static const float edges[] = {0.0f,
                              -0.0f,
                              0x1p-24f,
                              0x1p-25f,
                              0x1.000002p-25f,
                              0x1p-14f,
                              0x1.ffcp-15f,
                              0x1.ffep-15f,
                              65504.0f,
                              65519.996f,
                              65520.0f,
                              -65520.0f,
                              0x1p-149f,
                              -0x1p-126f,
                              INFINITY,
                              -INFINITY,
                              NAN,
                              3.4028235e38f,
                              0x1.fffffep-26f,
                              0x1.8p-24f,
                              0x1.7ep127f,
                              0x1.fffffcp-127f,
                              0x1p-133f,
                              0x1p-134f};

static void values_are_counted_as_a_cast_would_treat_them(void **state) {
    (void)state;
    enum { N = 20000 };
    static float values[N];
    const ab_format *const halves[] = {&ab_format_fp16, &ab_format_bf16};
    for (size_t h = 0; h < AB_COUNT_OF(halves); h++) {
        static counts expected[TENSORS];
        memset(expected, 0, sizeof expected);
        void *probe = probe_new(halves[h]);
        for (int t = 0; t < 2; t++) { /* the third tensor is never seen */
            for (int i = 0; i < N; i++) {
                bool edge = i < (int)AB_COUNT_OF(edges);
                values[i] = edge ? edges[i] : wild((uint32_t)t, (uint64_t)i);
                count_value(&expected[t], values[i], halves[h]);
            }
            for (int part = 0; part < 8; part++) /* in parts, on both threads */
                gradients()->see(probe, t, part % THREADS, values + part * (N / 8), N / 8);
        }
        gradients()->step_end(probe, 0);
        cJSON *document = report_of(probe);
        assert_int_equal(integer(document, "steps_probed"), 1);
        assert_string_equal(get(document, "format")->valuestring, halves[h]->name);
        for (int t = 0; t < TENSORS; t++) report_is(tensor_at(document, t), &expected[t]);
        cJSON_Delete(document);
        gradients()->destroy(probe);
    }
}

static void tensors_are_described(void **state) {
    (void)state;
    void *probe = probe_new(&ab_format_fp16);
    cJSON *document = report_of(probe); /* before any step: empty, but whole */
    assert_int_equal(integer(document, "steps_probed"), 0);
    assert_int_equal(cJSON_GetArraySize(get(document, "tensors")), TENSORS);
    static const char *const kinds[TENSORS] = {"weight_gradient", "activation_gradient", "weight_gradient"};
    const counts nothing = {0};
    for (int t = 0; t < TENSORS; t++) {
        const cJSON *tensor = tensor_at(document, t);
        assert_string_equal(get(tensor, "name")->valuestring, tensors[t].name);
        assert_string_equal(get(tensor, "layer")->valuestring, tensors[t].layer);
        assert_string_equal(get(tensor, "kind")->valuestring, kinds[t]);
        assert_int_equal(cJSON_IsTrue(get(tensor, "cast")), tensors[t].cast);
        report_is(tensor, &nothing);
    }
    cJSON_Delete(document);
    gradients()->destroy(probe);
    gradients()->destroy(NULL);
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Step k of a run probed every `every` steps shows k + 1 flushed values, one overflowed and one normal. */
static cJSON *run_steps(int64_t steps, int64_t every) {
    void *probe = probe_new(&ab_format_fp16);
    for (int64_t k = 0; k < steps; k++) {
        for (int64_t i = 0; i <= k; i++) gradients()->see(probe, 0, (int)(i % THREADS), (float[]){1e-9f}, 1);
        gradients()->see(probe, 0, 1, (float[]){1e6f, -1.0f, 0.0f}, 3);
        gradients()->step_end(probe, k * every);
    }
    cJSON *document = report_of(probe);
    gradients()->destroy(probe);
    return document;
}

/* Columns stay at 128 or fewer: each holds `merged` probed steps, the last one the rest. */
static void columns_are(int64_t steps, int64_t every, int64_t merged) {
    cJSON *document = run_steps(steps, every);
    const cJSON *report = get(tensor_at(document, 0), "steps");
    int64_t columns = (steps + merged - 1) / merged;
    assert_true(columns <= COLUMNS);
    assert_int_equal(integer(document, "steps_probed"), steps);
    assert_int_equal(integer(report, "first"), 0);
    assert_int_equal(integer(report, "count"), columns);
    if (steps > 1) assert_int_equal(integer(report, "stride"), every * merged);
    assert_int_equal(cJSON_GetArraySize(get(report, "flushed")), columns);
    for (int64_t c = 0; c < columns; c++) {
        int64_t flushed = 0, seen = 0;
        for (int64_t k = c * merged; k < (c + 1) * merged && k < steps; k++) {
            flushed += k + 1;
            seen++;
        }
        assert_int_equal(cJSON_GetArrayItem(get(report, "flushed"), (int)c)->valuedouble, flushed);
        assert_int_equal(cJSON_GetArrayItem(get(report, "overflowed"), (int)c)->valuedouble, seen);
        assert_int_equal(cJSON_GetArrayItem(get(report, "nonzero"), (int)c)->valuedouble, flushed + 2 * seen);
    }
    assert_int_equal(integer(tensor_at(document, 0), "flushed"), steps * (steps + 1) / 2);
    cJSON_Delete(document);
}

static void a_column_is_a_probed_step_until_128(void **state) {
    (void)state;
    columns_are(1, 1, 1);
    columns_are(2, 10, 1);
    columns_are(94, 10, 1);
    columns_are(128, 1, 1);
}

static void beyond_128_neighbours_are_merged(void **state) {
    (void)state;
    columns_are(129, 10, 2);
    columns_are(200, 7, 2);
    columns_are(256, 1, 2);
    columns_are(257, 1, 4);
    columns_are(1000, 10, 8);
}

/* ---- in a cell ------------------------------------------------------------------------------- */

/* Shows the probe and the brute force the same values. */
typedef struct both {
    ab_observer observer; /* first */
    void *probe;
    counts *expected;
    const ab_format *half;
} both;

static void see_both(ab_observer *self, int id, int thread, const float *values, int64_t n) {
    both *b = (both *)(void *)self;
    if (id < 0) return;
    gradients()->see(b->probe, id, thread, values, n);
#pragma omp critical
    for (int64_t i = 0; i < n; i++) count_value(&b->expected[id], values[i], b->half);
}

enum { SIDE = 8, SAMPLES = 16 };

static ab_data tiny_data(uint8_t *pixels, uint8_t *labels) {
    grey_noise(pixels, labels, SAMPLES, SIDE, 3, 2);
    ab_images images = {.count = SAMPLES, .pixel = pixels, .label = labels};
    return grey_images("tiny", SIDE, 3, images, images, 0.5);
}

static const char net_text[] =
    "{\"format\": \"ampbench-net-1\", \"name\": \"tiny\", \"input\": {\"height\": 8, \"width\": 8, "
    "\"channels\": 1}, "
    "\"ops\": [{\"name\": \"conv\", \"op\": \"conv2d\", \"out_channels\": 3, \"kernel_size\": 3}, "
    "{\"name\": \"bn\", \"op\": \"batch_norm2d\"}, {\"name\": \"relu\", \"op\": \"relu\"}, "
    "{\"name\": \"flat\", \"op\": \"flatten\"}, {\"name\": \"fc\", \"op\": \"linear\", \"out_features\": 3}, "
    "{\"name\": \"loss\", \"op\": \"cross_entropy\"}]}";

static void cell_is_counted(const ab_net *net, const ab_data *data, const char *level, const char *set) {
    const ab_level *found = NULL;
    ab_cell *cell;
    ab_cell_config config = {.net = net,
                             .optim = {.lr = 0.01},
                             .batch = 8,
                             .seed = 1,
                             .data = data,
                             .normalize = AB_NORMALIZE_STANDARD,
                             .device = &ab_device_cpu};
    assert_int_equal(ab_level_find(level, &found), AB_OK);
    assert_int_equal(ab_policy_resolve(found, &ab_format_fp16, &set, 1, &config.policy), AB_OK);
    assert_int_equal(ab_optimizer_find("sgd", &config.optimizer), AB_OK);
    assert_int_equal(ab_cell_create(&config, &cell), AB_OK);
    enum { MOST = 32 };
    static ab_probe_tensor about[MOST];
    static counts expected[MOST];
    int count = ab_cell_observed_count(cell);
    assert_in_range(count, 1, MOST);
    memset(expected, 0, sizeof expected);
    for (int i = 0; i < count; i++) {
        const ab_observed *o = ab_cell_observed_at(cell, i);
        about[i] = (ab_probe_tensor){o->name, o->layer, AB_ROLE_WEIGHT_GRADIENT, o->cast};
    }
    both b = {.observer = {.see = see_both}, .expected = expected, .half = &ab_format_fp16};
    const ab_probe_setup setup = {
        .tensor = about, .tensors = count, .threads = ab_parallel_threads(), .half = &ab_format_fp16};
    assert_int_equal(gradients()->create(&setup, &b.probe), AB_OK);
    for (int k = 0; k < 6; k++) {
        ab_step_result result;
        assert_int_equal(ab_cell_step(cell, k % 2 == 0 ? &b.observer : NULL, &result), AB_OK);
        if (k % 2 == 0) gradients()->step_end(b.probe, k);
    }
    cJSON *document = report_of(b.probe);
    int64_t values = 0, flushed = 0, overflowed = 0;
    for (int i = 0; i < count; i++) {
        report_is(tensor_at(document, i), &expected[i]);
        assert_true(expected[i].count > 0); /* nothing that has a number goes unseen */
        values += expected[i].count;
        flushed += expected[i].flushed;
        overflowed += expected[i].overflowed;
    }
    assert_true(values > 1000);
    if (strcmp(set, "loss_scale=1e-6") == 0) assert_true(flushed > 0);
    if (strcmp(set, "loss_scale=1e8") == 0) assert_true(overflowed > 0);
    cJSON_Delete(document);
    gradients()->destroy(b.probe);
    ab_cell_destroy(cell);
}

static void gradients_of_a_cell_are_counted_as_they_are_before_the_cast(void **state) {
    (void)state;
    static const char *const levels[] = {"O0", "O1", "O2", "O3"};
    static const char *const sets[] = {"loss_scale=None", "loss_scale=1e-6", "loss_scale=1e8"};
    static uint8_t pixels[SAMPLES * SIDE * SIDE], labels[SAMPLES];
    ab_data data = tiny_data(pixels, labels);
    ab_net *net;
    assert_int_equal(ab_net_parse(net_text, strlen(net_text), "tiny.json", &net), AB_OK);
    for (size_t l = 0; l < AB_COUNT_OF(levels); l++)
        for (size_t s = 0; s < AB_COUNT_OF(sets); s++) cell_is_counted(net, &data, levels[l], sets[s]);
    ab_net_free(net);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_counted_as_a_cast_would_treat_them),
        cmocka_unit_test(tensors_are_described),
        cmocka_unit_test(a_column_is_a_probed_step_until_128),
        cmocka_unit_test(beyond_128_neighbours_are_merged),
        cmocka_unit_test(gradients_of_a_cell_are_counted_as_they_are_before_the_cast),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
