/* A cell: what a step does and does not change, at every level. The data and the networks are tiny and made
 * here. */
#define _POSIX_C_SOURCE 200809L
#include "bench/train/cell/cell.h"

#include "bench/tensorfile/safetensors.h"
#include "kernels/core/parallel.h"
#include "kernels/core/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/grey_images.h"

enum { SIDE = 8, CLASSES = 3, TRAIN = 24, TEST = 11, BATCH = 8 };

static const ab_format *const fp16 = &ab_format_fp16, *const bf16 = &ab_format_bf16;
static const char *const levels[] = {"O0", "O1", "O2", "O3"};

/* ---- data and networks ----------------------------------------------------------------------- */

static uint8_t train_pixels[TRAIN * SIDE * SIDE], test_pixels[TEST * SIDE * SIDE];
static uint8_t train_labels[TRAIN], test_labels[TEST];
static ab_data data;

static int make_data(void **state) {
    (void)state;
    grey_rows(train_pixels, train_labels, TRAIN, SIDE, CLASSES, 0);
    grey_rows(test_pixels, test_labels, TEST, SIDE, CLASSES, 1);
    const ab_images training = {.count = TRAIN, .pixel = train_pixels, .label = train_labels},
                    test = {.count = TEST, .pixel = test_pixels, .label = test_labels};
    data = grey_images("tiny", SIDE, CLASSES, training, test, 0.35);
    return 0;
}

static const char conv_ops[] =
    "{\"name\": \"conv1\", \"op\": \"conv2d\", \"out_channels\": 5, \"kernel_size\": 3, \"padding\": 1}, "
    "{\"name\": \"bn1\", \"op\": \"batch_norm2d\"}, {\"name\": \"relu1\", \"op\": \"relu\"}, "
    "{\"name\": \"conv2\", \"op\": \"conv2d\", \"out_channels\": 5, \"kernel_size\": 3, \"padding\": 1}, "
    "{\"name\": \"sum\", \"op\": \"add\", \"in\": [\"conv2\", \"relu1\"]}, "
    "{\"name\": \"pool\", \"op\": \"max_pool2d\", \"kernel_size\": 2}, "
    "{\"name\": \"flat\", \"op\": \"flatten\"}, "
    "{\"name\": \"fc\", \"op\": \"linear\", \"out_features\": 3}, {\"name\": \"loss\", \"op\": "
    "\"cross_entropy\"}";

static const char linear_ops[] =
    "{\"name\": \"flat\", \"op\": \"flatten\"}, "
    "{\"name\": \"fc1\", \"op\": \"linear\", \"out_features\": 7}, {\"name\": \"relu1\", \"op\": \"relu\"}, "
    "{\"name\": \"fc2\", \"op\": \"linear\", \"out_features\": 3}, {\"name\": \"loss\", \"op\": "
    "\"cross_entropy\"}";

static const char wide_ops[] =
    "{\"name\": \"flat\", \"op\": \"flatten\"}, "
    "{\"name\": \"fc1\", \"op\": \"linear\", \"out_features\": 101}, {\"name\": \"relu1\", \"op\": "
    "\"relu\"}, "
    "{\"name\": \"fc2\", \"op\": \"linear\", \"out_features\": 3}, {\"name\": \"loss\", \"op\": "
    "\"cross_entropy\"}";

static ab_net *net_of(const char *ops) {
    char text[2048];
    ab_net *net;
    snprintf(text, sizeof text,
             "{\"format\": \"ampbench-net-1\", \"name\": \"tiny\", \"input\": {\"height\": 8, \"width\": 8, "
             "\"channels\": 1}, \"ops\": [%s]}",
             ops);
    if (ab_net_parse(text, strlen(text), "tiny.json", &net) != AB_OK) fail_msg("%s", ab_error_message());
    return net;
}

/* A configuration at a level, with the given overrides; sgd with momentum, in file order. */
static ab_cell_config config_of(const ab_net *net, const char *level, const ab_format *half,
                                const char *set) {
    const ab_level *found = NULL;
    ab_cell_config config = {.net = net,
                             .optim = {.lr = 0.05, .momentum = 0.9},
                             .batch = BATCH,
                             .seed = 1,
                             .data = &data,
                             .normalize = AB_NORMALIZE_STANDARD,
                             .device = &ab_device_cpu};
    assert_int_equal(ab_level_find(level, &found), AB_OK);
    assert_int_equal(ab_policy_resolve(found, half, &set, set ? 1 : 0, &config.policy), AB_OK);
    assert_int_equal(ab_optimizer_find("momentum", &config.optimizer), AB_OK);
    return config;
}

static ab_cell *cell_of(const ab_cell_config *config) {
    ab_cell *cell = NULL;
    if (ab_cell_create(config, &cell) != AB_OK) fail_msg("%s", ab_error_message());
    return cell;
}

static ab_step_result step(ab_cell *cell, ab_observer *observer) {
    ab_step_result result;
    if (ab_cell_step(cell, observer, &result) != AB_OK) fail_msg("%s", ab_error_message());
    return result;
}

/* ---- snapshots ------------------------------------------------------------------------------- */

enum { MOST_VALUES = 8192 };

/* All that a cell keeps between steps: parameters, buffers, masters, optimizer state. */
typedef struct snapshot {
    int64_t count;
    float value[MOST_VALUES];
} snapshot;

static bool is_kept(const ab_plan_tensor *t) {
    return !t->transient && (t->category == AB_MEM_weights || t->category == AB_MEM_master_weights ||
                             t->category == AB_MEM_optimizer_state);
}

static bool is_buffer(const ab_plan_tensor *t) { return strstr(t->name, "running") != NULL; }

/* `buffers`: running statistics too. */
static void take(const ab_cell *cell, bool buffers, snapshot *s) {
    const ab_plan *plan = ab_cell_plan(cell);
    s->count = 0;
    for (int i = 0; i < plan->tensors; i++) {
        ab_shape shape;
        if (!is_kept(&plan->tensor[i]) || (!buffers && is_buffer(&plan->tensor[i]))) continue;
        assert_int_equal(ab_cell_read(cell, plan->tensor[i].name, &shape, NULL), AB_OK);
        assert_true(s->count + ab_shape_count(&shape) <= MOST_VALUES);
        assert_int_equal(ab_cell_read(cell, plan->tensor[i].name, &shape, s->value + s->count), AB_OK);
        s->count += ab_shape_count(&shape);
    }
    assert_true(s->count > 0);
}

static bool same(const snapshot *a, const snapshot *b) {
    return a->count == b->count && memcmp(a->value, b->value, (size_t)a->count * sizeof *a->value) == 0;
}

static int64_t read_values(const ab_cell *cell, const char *name, float *values, int64_t room) {
    ab_shape shape;
    if (ab_cell_read(cell, name, &shape, NULL) != AB_OK) fail_msg("%s", ab_error_message());
    assert_true(ab_shape_count(&shape) <= room);
    assert_int_equal(ab_cell_read(cell, name, &shape, values), AB_OK);
    return ab_shape_count(&shape);
}

/* ---- sameness -------------------------------------------------------------------------------- */

enum { RUN = 25 };

static void run_losses(const ab_cell_config *config, ab_observer *observer, float *loss, snapshot *end) {
    ab_cell *cell = cell_of(config);
    for (int i = 0; i < RUN; i++) loss[i] = step(cell, observer && i % 3 == 0 ? observer : NULL).loss;
    if (end) take(cell, true, end);
    ab_cell_destroy(cell);
}

static void same_seed_same_bits_and_another_seed_others(void **state) {
    (void)state;
    ab_net *net = net_of(conv_ops);
    for (size_t l = 0; l < AB_COUNT_OF(levels); l++) {
        static snapshot end[2];
        float loss[3][RUN];
        ab_cell_config config = config_of(net, levels[l], fp16, NULL);
        config.shuffled = true;
        run_losses(&config, NULL, loss[0], &end[0]);
        run_losses(&config, NULL, loss[1], &end[1]);
        assert_memory_equal(loss[0], loss[1], sizeof loss[0]);
        assert_true(same(&end[0], &end[1]));
        config.seed = 2;
        run_losses(&config, NULL, loss[2], NULL);
        assert_memory_not_equal(loss[0], loss[2], sizeof loss[0]);
    }
    ab_net_free(net);
}

typedef struct listener {
    ab_observer observer; /* first */
    _Atomic int64_t seen;
} listener;

static void listen_to(ab_observer *self, int id, int thread, const float *values, int64_t n) {
    listener *l = (listener *)(void *)self;
    (void)values;
    if (id < 0) return;
    l->seen += n + (thread < 0);
}

static void probing_changes_no_bit(void **state) {
    (void)state;
    const ab_format *const halves[] = {fp16, bf16};
    ab_net *net = net_of(conv_ops);
    for (size_t l = 0; l < AB_COUNT_OF(levels); l++)
        for (size_t h = 0; h < AB_COUNT_OF(halves); h++) {
            static snapshot end[2];
            float loss[2][RUN];
            listener l2 = {.observer = {.see = listen_to}};
            ab_cell_config config = config_of(net, levels[l], halves[h], NULL);
            run_losses(&config, NULL, loss[0], &end[0]);
            run_losses(&config, &l2.observer, loss[1], &end[1]);
            assert_true(l2.seen > 0);
            assert_memory_equal(loss[0], loss[1], sizeof loss[0]);
            assert_true(same(&end[0], &end[1]));
        }
    ab_net_free(net);
}

/* Work is split by the shapes alone, the library's too. */
static void the_number_of_threads_changes_no_bit(void **state) {
    (void)state;
    static const ab_cpu_path paths[] = {AB_PATH_AUTO, AB_PATH_REFERENCE};
    ab_net *net = net_of(conv_ops);
    for (size_t l = 0; l < AB_COUNT_OF(levels) * AB_COUNT_OF(paths); l++) {
        float loss[3][RUN];
        ab_cell_config config = config_of(net, levels[l % AB_COUNT_OF(levels)], l & 1 ? fp16 : bf16, NULL);
        config.path = paths[l / AB_COUNT_OF(levels)];
        for (int threads = 1; threads <= 3; threads++) {
            assert_int_equal(ab_parallel_start(threads), AB_OK);
            run_losses(&config, NULL, loss[threads - 1], NULL);
        }
        assert_memory_equal(loss[0], loss[1], sizeof loss[0]);
        assert_memory_equal(loss[0], loss[2], sizeof loss[0]);
    }
    ab_parallel_stop();
    ab_net_free(net);
}

/* ---- initial weights ------------------------------------------------------------------------- */

static void initial_weights_depend_on_seed_and_name_alone(void **state) {
    (void)state;
    ab_net *net = net_of(conv_ops);
    ab_cell_config config = config_of(net, "O0", fp16, NULL);
    float first[45], again[45], other[45], second[225];
    ab_cell *cell = cell_of(&config);
    config.batch = 3;
    config.shuffled = true;
    ab_cell *larger = cell_of(&config);
    config.seed = 2;
    ab_cell *seeded = cell_of(&config);
    assert_int_equal(read_values(cell, "conv1.weight", first, 45), 45);
    read_values(larger, "conv1.weight", again, 45);
    read_values(seeded, "conv1.weight", other, 45);
    read_values(cell, "conv2.weight", second, 225);
    assert_memory_equal(first, again, sizeof first);
    int same_as_seeded = 0, same_as_second = 0;
    for (int i = 0; i < 45; i++) {
        same_as_seeded += first[i] == other[i];
        same_as_second += first[i] == second[i] || first[i] / second[i] == first[0] / second[0];
        assert_true(fabsf(first[i]) <= 1.0f / 3.0f); /* torch: U(-1/sqrt(fan in), ...), 9 inputs */
    }
    assert_true(same_as_seeded < 3 && same_as_second < 3);
    ab_cell_destroy(cell);
    ab_cell_destroy(larger);
    ab_cell_destroy(seeded);
    ab_net_free(net);
}

/* ---- gradients ------------------------------------------------------------------------------- */

/* Smooth, with a value that three ops read: what each of them says about it must be summed. */
static const char smooth_ops[] =
    "{\"name\": \"conv1\", \"op\": \"conv2d\", \"out_channels\": 3, \"kernel_size\": 3}, "
    "{\"name\": \"bn1\", \"op\": \"batch_norm2d\"}, "
    "{\"name\": \"conv2\", \"op\": \"conv2d\", \"out_channels\": 3, \"kernel_size\": 1}, "
    "{\"name\": \"sum1\", \"op\": \"add\", \"in\": [\"conv2\", \"bn1\"]}, "
    "{\"name\": \"sum2\", \"op\": \"add\", \"in\": [\"bn1\", \"sum1\"]}, "
    "{\"name\": \"pool\", \"op\": \"avg_pool2d\", \"kernel_size\": 2}, "
    "{\"name\": \"flat\", \"op\": \"flatten\"}, "
    "{\"name\": \"fc\", \"op\": \"linear\", \"out_features\": 3}, {\"name\": \"loss\", \"op\": "
    "\"cross_entropy\"}";

/* Loss of the first batch with the weights of `cell`, element `at` of `name` moved by `by`. */
static double loss_beside(const ab_cell *cell, ab_cell_config config, const char *name, int at, float by) {
    enum { MOST_PARAMS = 16, MOST = 256 };
    static float values[MOST_PARAMS][MOST];
    static char names[MOST_PARAMS][AB_PLAN_NAME];
    char path[] = "/tmp/ampbench_cell_XXXXXX";
    ab_safetensor_item items[MOST_PARAMS];
    const ab_plan *plan = ab_cell_plan(cell);
    int fd = mkstemp(path);
    assert_true(fd >= 0 && plan->params <= MOST_PARAMS);
    close(fd);
    for (int p = 0; p < plan->params; p++) {
        const ab_plan_tensor *stored = &plan->tensor[plan->param[p].stored];
        snprintf(names[p], sizeof names[p], "%s", stored->name);
        read_values(cell, names[p], values[p], MOST);
        if (strcmp(names[p], name) == 0) values[p][at] += by;
        items[p] = (ab_safetensor_item){names[p], stored->shape, values[p], NULL};
    }
    assert_int_equal(ab_safetensors_write(path, items, plan->params, NULL), AB_OK);
    config.init_file = path;
    ab_cell *moved = cell_of(&config);
    double loss = (double)step(moved, NULL).loss;
    ab_cell_destroy(moved);
    unlink(path);
    return loss;
}

/* Central differences of the loss over the whole network: the wiring of the backward pass, not only its ops.
 */
static void gradients_are_the_slopes_of_the_loss(void **state) {
    (void)state;
    static const char *const names[] = {"conv1.weight", "conv1.weight", "bn1.weight", "bn1.bias",
                                        "conv2.weight", "conv2.bias",   "fc.weight",  "fc.bias"};
    static const int places[] = {4, 17, 1, 2, 5, 0, 40, 1};
    const float by = 0.005f;
    ab_net *net = net_of(smooth_ops);
    ab_cell_config config = config_of(net, "O0", fp16, NULL);
    ab_cell *start = cell_of(&config), *cell = cell_of(&config);
    step(cell, NULL);
    for (size_t i = 0; i < AB_COUNT_OF(names); i++) {
        char grad_name[64];
        float grad[256];
        snprintf(grad_name, sizeof grad_name, "%s.grad", names[i]);
        read_values(cell, grad_name, grad, 256);
        double up = loss_beside(start, config, names[i], places[i], by);
        double down = loss_beside(start, config, names[i], places[i], -by);
        double slope = (up - down) / (2 * (double)by), found = (double)grad[places[i]];
        if (fabs(slope - found) > 2e-3 * fabs(slope) + 5e-5)
            fail_msg("%s[%d]: gradient %g, slope %g", names[i], places[i], found, slope);
    }
    ab_cell_destroy(start);
    ab_cell_destroy(cell);
    ab_net_free(net);
}

/* What is saved is the gradient that the next step takes, with the loss scale in it and in its own format;
 * the training goes on as if nothing had been saved. */
static void saved_gradients_are_those_of_the_next_step(void **state) {
    (void)state;
    ab_net *net = net_of(smooth_ops);
    for (int l = 0; l < 2; l++) {
        ab_cell_config config = config_of(net, l ? "O2" : "O0", fp16, l ? "loss_scale=64" : NULL);
        char path[] = "/tmp/ampbench_gradients_XXXXXX";
        ab_cell *cell = cell_of(&config), *twin = cell_of(&config);
        ab_tensorfile *file = NULL;
        float saved[256], taken[256];
        const int fd = mkstemp(path);
        assert_true(fd >= 0);
        close(fd);
        step(cell, NULL);
        step(twin, NULL);
        assert_int_equal(ab_cell_save_gradients(cell, path), AB_OK);
        const ab_step_result own = step(cell, NULL), other = step(twin, NULL);
        assert_memory_equal(&own.loss, &other.loss, sizeof own.loss);
        assert_int_equal(ab_safetensors_open(path, &file), AB_OK);
        assert_int_equal(file->count, ab_cell_trained_count(cell));
        for (int i = 0; i < file->count; i++) {
            char name[AB_PLAN_NAME + 8];
            const ab_tensor_entry *entry = &file->tensor[i];
            snprintf(name, sizeof name, "%s.grad", entry->name);
            assert_int_equal(ab_tensorfile_read(file, entry, saved), AB_OK);
            read_values(cell, name, taken, 256);
            for (int64_t k = 0; k < entry->count; k++) assert_true(saved[k] == taken[k] * (l ? 64 : 1));
            if (strstr(entry->name, "fc."))
                assert_ptr_equal(entry->element->format, l ? fp16 : &ab_format_fp32);
        }
        ab_tensorfile_close(file);
        unlink(path);
        ab_cell_destroy(cell);
        ab_cell_destroy(twin);
    }
    ab_net_free(net);
}

/* ---- learning -------------------------------------------------------------------------------- */

static void overfits(const ab_net *net, const char *level, const ab_format *half, const char *set) {
    ab_cell_config config = config_of(net, level, half, set);
    config.data = &data;
    config.batch = TRAIN; /* the same batch at every step */
    ab_cell *cell = cell_of(&config);
    float first = step(cell, NULL).loss, last = first;
    for (int i = 0; i < 80; i++) last = step(cell, NULL).loss;
    if (!(first > 0.5f && last < 0.05f * first))
        fail_msg("%s, %s, %s: loss went from %g to %g", level, half->name, set ? set : "", (double)first,
                 (double)last);
    ab_cell_destroy(cell);
}

static void every_level_overfits_one_batch(void **state) {
    (void)state;
    const ab_format *const halves[] = {fp16, bf16};
    const char *const ops[] = {conv_ops, linear_ops};
    for (size_t n = 0; n < AB_COUNT_OF(ops); n++) {
        ab_net *net = net_of(ops[n]);
        for (size_t h = 0; h < AB_COUNT_OF(halves); h++)
            for (size_t l = 0; l < AB_COUNT_OF(levels); l++) overfits(net, levels[l], halves[h], NULL);
        overfits(net, "O2", fp16, "master_weights=False");
        overfits(net, "O2", fp16, "keep_batchnorm_fp32=False");
        overfits(net, "O3", fp16, "loss_scale=128");
        overfits(net, "O0", fp16, "loss_scale=dynamic");
        overfits(net, "O1", fp16, "patch_torch_functions=False");
        ab_net_free(net);
    }
}

/* A rate at which the optimizer gets somewhere in a hundred steps. */
static double useful_rate(const char *optimizer) {
    static const struct {
        const char *name;
        double lr;
    } rates[] = {{"adam", 0.01},
                 {"adamw", 0.01},
                 {"lars", 1.0},
                 {"larc", 0.05},
                 {"rmsprop", 0.01},
                 {"rmsprop_momentum", 0.001},
                 {"rmsprop_centered", 0.01},
                 {"fusedadam", 0.01},
                 {"fusednovograd", 0.1},
                 {"adam_weight_decay", 0.005}};
    for (size_t i = 0; i < AB_COUNT_OF(rates); i++)
        if (strcmp(rates[i].name, optimizer) == 0) return rates[i].lr;
    return 0.05;
}

static void every_optimizer_overfits(void **state) {
    (void)state;
    ab_net *net = net_of(linear_ops);
    for (int k = 0; k < ab_optimizer_count(); k++) {
        ab_cell_config config = config_of(net, "O2", fp16, NULL);
        config.optimizer = ab_optimizer_at(k);
        config.optim = config.optimizer->defaults;
        config.optim.lr = useful_rate(config.optimizer->name);
        config.batch = TRAIN;
        ab_cell *cell = cell_of(&config);
        float first = step(cell, NULL).loss, last = first;
        for (int i = 0; i < 100; i++) last = step(cell, NULL).loss;
        if (!(last < 0.1f * first))
            fail_msg("%s: %g after %g", config.optimizer->name, (double)last, (double)first);
        ab_cell_destroy(cell);
    }
    ab_net_free(net);
}

/* ---- the loss scale -------------------------------------------------------------------------- */

/* Raw pixels make weight gradients far above 1: at 2^16 they leave fp16. */
static ab_cell_config overflowing(const ab_net *net, const char *level) {
    ab_cell_config config = config_of(net, level, fp16, "loss_scale=dynamic");
    config.normalize = AB_NORMALIZE_NONE;
    config.scale_window = 3;
    config.optim.lr = 1e-6;
    return config;
}

static void a_skipped_step_changes_nothing_but_the_scale(void **state) {
    (void)state;
    static const char *const half_levels[] = {"O1", "O2", "O3"}, *const optimizers[] = {"momentum", "adam"};
    ab_net *net = net_of(conv_ops);
    for (size_t l = 0; l < AB_COUNT_OF(half_levels); l++)
        for (size_t o = 0; o < AB_COUNT_OF(optimizers); o++) {
            static snapshot before, after;
            ab_cell_config config = overflowing(net, half_levels[l]);
            assert_int_equal(ab_optimizer_find(optimizers[o], &config.optimizer), AB_OK);
            ab_cell *cell = cell_of(&config);
            take(cell, false, &before);
            ab_step_result result = step(cell, NULL);
            take(cell, false, &after);
            assert_true(result.scale == 65536.0 && result.overflow && result.skipped);
            assert_true(same(&before, &after));
            assert_true(ab_cell_scaler(cell)->scale == 32768.0);
            assert_int_equal(ab_cell_steps(cell), 1);
            ab_cell_destroy(cell);
        }
    ab_net_free(net);
}

/* Adam's bias correction counts steps that were taken: the first one taken moves by lr, however many were
 * skipped before. */
static void skipped_steps_do_not_count_for_the_optimizer(void **state) {
    (void)state;
    ab_net *net = net_of(linear_ops);
    ab_cell_config config = overflowing(net, "O2");
    assert_int_equal(ab_optimizer_find("adam", &config.optimizer), AB_OK);
    config.optim = config.optimizer->defaults;
    config.optim.lr = 0x1p-6;
    ab_cell *cell = cell_of(&config);
    float before[CLASSES], after[CLASSES], grad[CLASSES];
    int skipped = 0;
    assert_int_equal(read_values(cell, "fc2.bias", before, CLASSES), CLASSES);
    while (step(cell, NULL).skipped) assert_true(++skipped < 40);
    assert_true(skipped > 0);
    read_values(cell, "fc2.bias", after, CLASSES);
    read_values(cell, "fc2.bias.grad", grad, CLASSES);
    for (int i = 0; i < CLASSES; i++) {
        float moved = after[i] - before[i];
        assert_true(fabsf(grad[i]) > 1e-4f);
        assert_true(fabsf(moved + copysignf(0x1p-6f, grad[i])) < 1e-4f * 0x1p-6f + 1e-6f);
    }
    ab_cell_destroy(cell);
    ab_net_free(net);
}

/* The trajectory of the scale is the scaler's: half after each overflow, double after three clean steps. */
static void the_scale_follows_the_overflows(void **state) {
    (void)state;
    static const char *const half_levels[] = {"O1", "O2", "O3"};
    ab_net *net = net_of(linear_ops);
    for (size_t l = 0; l < AB_COUNT_OF(half_levels); l++) {
        ab_cell_config config = overflowing(net, half_levels[l]);
        ab_cell *cell = cell_of(&config);
        double expected = 65536.0;
        int clean = 0, skips = 0, growths = 0;
        for (int i = 0; i < 60; i++) {
            ab_step_result result = step(cell, NULL);
            assert_true(result.scale == expected);
            assert_int_equal(result.skipped, result.overflow);
            clean = result.overflow ? 0 : clean + 1;
            if (result.overflow) expected /= 2;
            if (clean == 3) expected *= 2;
            growths += clean == 3;
            if (clean == 3) clean = 0;
            skips += result.skipped;
        }
        assert_true(skips > 3 && growths > 3);
        ab_cell_destroy(cell);
    }
    ab_net_free(net);
}

static void limits_of_the_scale_reach_the_scaler(void **state) {
    (void)state;
    ab_net *net = net_of(linear_ops);
    ab_cell_config config = config_of(net, "O0", fp16, "loss_scale=dynamic");
    config.max_loss_scale = 2048;
    config.min_loss_scale = 16;
    config.scale_window = 1;
    ab_cell *cell = cell_of(&config);
    for (int i = 0; i < 4; i++) assert_true(step(cell, NULL).scale == 2048.0);
    assert_true(ab_cell_scaler(cell)->config.value[2] == 16);
    ab_cell_destroy(cell);
    ab_net_free(net);
}

/* A fixed scale is never questioned: the overflow goes into the weights, as with apex. */
static void a_fixed_scale_that_overflows_is_not_skipped(void **state) {
    (void)state;
    ab_net *net = net_of(linear_ops);
    ab_cell_config config = config_of(net, "O3", fp16, "loss_scale=1e30");
    ab_cell *cell = cell_of(&config);
    ab_step_result first = step(cell, NULL), second = step(cell, NULL);
    assert_true(isfinite(first.loss) != 0);
    assert_false(first.skipped || first.overflow);
    assert_true(!isfinite(second.loss));
    assert_true(second.scale == 1e30);
    ab_cell_destroy(cell);
    ab_net_free(net);
}

/* With :skip it is, and the weights stay as they are. */
static void a_fixed_scale_that_skips_loses_the_step_alone(void **state) {
    (void)state;
    ab_net *net = net_of(linear_ops);
    ab_cell_config config = config_of(net, "O3", fp16, "loss_scale=1e30:skip");
    ab_cell *cell = cell_of(&config);
    for (int i = 0; i < 3; i++) {
        const ab_step_result result = step(cell, NULL);
        assert_true(result.skipped && result.overflow && isfinite(result.loss) && result.scale == 1e30);
    }
    ab_cell_destroy(cell);
    ab_net_free(net);
}

/* A power of two only shifts exponents: the gradients are those of scale 1, bit for bit, and so is what is
 * learnt. */
static void a_power_of_two_scale_changes_no_fp32_bit(void **state) {
    (void)state;
    static const char *const scales[] = {NULL, "loss_scale=1024", "loss_scale=0.0078125",
                                         "loss_scale=dynamic"};
    ab_net *net = net_of(conv_ops);
    static snapshot end[2];
    float loss[2][RUN];
    for (size_t s = 0; s < AB_COUNT_OF(scales); s++) {
        ab_cell_config config = config_of(net, "O0", fp16, scales[s]);
        run_losses(&config, NULL, loss[s > 0], &end[s > 0]);
        if (s == 0) continue;
        assert_memory_equal(loss[0], loss[1], sizeof loss[0]);
        assert_true(same(&end[0], &end[1]));
    }
    ab_net_free(net);
}

/* ---- looking inside -------------------------------------------------------------------------- */

static void tensors_are_read_by_name(void **state) {
    (void)state;
    ab_net *net = net_of(conv_ops);
    for (size_t l = 0; l < AB_COUNT_OF(levels); l++) {
        ab_cell_config config = config_of(net, levels[l], fp16, NULL);
        ab_cell *cell = cell_of(&config);
        static const char *const names[] = {
            "conv1.weight", "conv1.bias", "conv1.weight.grad", "bn1.running_var", "fc.bias.grad",
            "bn1.weight",   "input"};
        static const char *const none[] = {"conv1", "conv1.out",    "targets",
                                           "",      "conv9.weight", "fc.out.grad"};
        ab_shape shape;
        step(cell, NULL);
        for (size_t i = 0; i < AB_COUNT_OF(names); i++)
            assert_int_equal(ab_cell_read(cell, names[i], &shape, NULL), AB_OK);
        for (size_t i = 0; i < AB_COUNT_OF(none); i++)
            assert_int_equal(ab_cell_read(cell, none[i], &shape, NULL), AB_CONFIG);
        assert_int_equal(ab_cell_read(cell, "conv1.weight", &shape, NULL), AB_OK);
        assert_int_equal(shape.ndim, 4);
        assert_int_equal(ab_shape_count(&shape), 5 * 1 * 3 * 3);
        ab_cell_destroy(cell);
    }
    ab_net_free(net);
}

/* The gradient that is read is the one that the optimizer got: unscaled. With plain sgd, weight = before - lr
 * * gradient. */
static void gradients_are_read_unscaled(void **state) {
    (void)state;
    static const char *const sets[] = {NULL, "loss_scale=4096"};
    ab_net *net = net_of(conv_ops);
    for (size_t l = 0; l < 3; l++) /* at O3 the stored weight is too coarse for this */
        for (size_t s = 0; s < AB_COUNT_OF(sets); s++) {
            ab_cell_config config = config_of(net, levels[l], bf16, sets[s]);
            assert_int_equal(ab_optimizer_find("sgd", &config.optimizer), AB_OK);
            config.optim = (ab_optimizer_config){.lr = 0.5};
            ab_cell *cell = cell_of(&config);
            float before[225], after[225], grad[225];
            read_values(cell, "conv2.weight", before, 225);
            assert_false(step(cell, NULL).skipped);
            read_values(cell, "conv2.weight", after, 225);
            assert_int_equal(read_values(cell, "conv2.weight.grad", grad, 225), 225);
            for (int i = 0; i < 225; i++)
                assert_true(fabsf(before[i] - 0.5f * grad[i] - after[i]) <=
                            1e-6f * (fabsf(before[i]) + 1e-3f));
            ab_cell_destroy(cell);
        }
    ab_net_free(net);
}

/* An observed step unscales its gradients before the update, others while they update, or when somebody reads
 * them: also after a step that was skipped. */
static void compare_late_with_early(const char *ops, const char *const names[3]) {
    static float a[8192], b[8192];
    ab_net *net = net_of(ops);
    int skips = 0;
    for (size_t l = 0; l < AB_COUNT_OF(levels); l++)
        for (int overflows = 0; overflows < 2; overflows++) {
            ab_cell_config config =
                overflows ? overflowing(net, levels[l]) : config_of(net, levels[l], fp16, "loss_scale=0.3");
            listener l2 = {.observer = {.see = listen_to}};
            ab_cell *late = cell_of(&config), *early = cell_of(&config);
            for (int i = 0; i < 4; i++) {
                const bool skipped = step(late, NULL).skipped;
                const ab_step_result observed = step(early, &l2.observer);
                double norm[2];
                assert_true(observed.skipped == skipped);
                skips += skipped;
                assert_int_equal(ab_cell_gradient_norm(late, &observed, &norm[0]), AB_OK);
                assert_int_equal(ab_cell_gradient_norm(early, &observed, &norm[1]), AB_OK);
                assert_true(isnan(norm[0]) ? isnan(norm[1]) : norm[0] == norm[1]);
                for (size_t n = 0; n < 6 && i % 2 == 0; n++) { /* each is read twice */
                    const int64_t count = read_values(late, names[n / 2], a, 8192);
                    assert_int_equal(read_values(early, names[n / 2], b, 8192), count);
                    for (int64_t k = 0; k < count; k++)
                        assert_true(isnan(a[k]) ? isnan(b[k]) : memcmp(&a[k], &b[k], sizeof a[k]) == 0);
                }
            }
            ab_cell_destroy(late);
            ab_cell_destroy(early);
        }
    assert_true(skips > 0);
    ab_net_free(net);
}

static void gradients_unscaled_late_are_those_unscaled_early(void **state) {
    static const char *const of_conv[] = {"conv1.weight.grad", "conv2.weight.grad", "fc.bias.grad"};
    static const char *const of_linear[] = {"fc1.weight.grad", "fc1.bias.grad", "fc2.weight.grad"};
    (void)state;
    compare_late_with_early(conv_ops, of_conv);
    compare_late_with_early(wide_ops, of_linear); /* at O1 halves are widened in place, 1024 at a time */
}

static void half_weights_are_the_rounded_masters(void **state) {
    (void)state;
    ab_net *net = net_of(conv_ops);
    ab_cell_config config = config_of(net, "O2", fp16, NULL);
    ab_cell *cell = cell_of(&config);
    const ab_rounding nearest = {.mode = AB_ROUND_NEAREST_EVEN};
    for (int i = 0; i < 5; i++) step(cell, NULL);
    const ab_plan *plan = ab_cell_plan(cell);
    int masters = 0, differ = 0;
    for (int p = 0; p < plan->params; p++) {
        const ab_plan_param *param = &plan->param[p];
        if (param->master == AB_NONE) continue;
        static float master[1024];
        int64_t n = read_values(cell, plan->tensor[param->master].name, master, 1024);
        for (int64_t i = 0; i < n; i++)
            differ += (double)master[i] != ab_format_round(fp16, &nearest, (double)master[i]);
        masters++;
    }
    assert_int_equal(masters, 6); /* two of each layer, none of the batch norm */
    assert_true(differ > 100);    /* masters hold what fp16 cannot */
    ab_cell_destroy(cell);
    ab_net_free(net);
}

/* Every gradient has one number; the names are those that ab_cell_read knows, whatever the level. */
static void observed_gradients_have_names_that_do_not_depend_on_the_level(void **state) {
    (void)state;
    static const char *const weights[] = {"conv1.weight.grad", "conv1.bias.grad",   "bn1.weight.grad",
                                          "bn1.bias.grad",     "conv2.weight.grad", "conv2.bias.grad",
                                          "fc.weight.grad",    "fc.bias.grad"};
    ab_net *net = net_of(conv_ops);
    for (size_t l = 0; l < AB_COUNT_OF(levels); l++) {
        ab_cell_config config = config_of(net, levels[l], fp16, NULL);
        ab_cell *cell = cell_of(&config);
        int found = 0, activations = 0;
        for (int i = 0; i < ab_cell_observed_count(cell); i++) {
            const ab_observed *about = ab_cell_observed_at(cell, i);
            assert_non_null(about->layer);
            activations += about->role == AB_ROLE_ACTIVATION_GRADIENT;
            for (int j = 0; j < i; j++)
                assert_string_not_equal(about->name, ab_cell_observed_at(cell, j)->name);
            for (size_t w = 0; w < AB_COUNT_OF(weights); w++) {
                if (about->role != AB_ROLE_WEIGHT_GRADIENT || strcmp(about->name, weights[w]) != 0) continue;
                bool batch_norm = strncmp(about->name, "bn1", 3) == 0;
                bool cast = strcmp(levels[l], "O0") != 0 && !(batch_norm && strcmp(levels[l], "O3") != 0);
                assert_int_equal(about->cast, cast);
                found++;
            }
        }
        assert_int_equal(found, AB_COUNT_OF(weights));
        assert_int_equal(activations, 8); /* outputs but the loss */
        ab_cell_destroy(cell);
    }
    ab_net_free(net);
}

/* ---- files ----------------------------------------------------------------------------------- */

static void weights_survive_a_file(void **state) {
    (void)state;
    char path[] = "/tmp/ampbench_cell_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    ab_net *net = net_of(conv_ops);
    for (size_t l = 0; l < AB_COUNT_OF(levels); l++) {
        static const char *const names[] = {"conv1.weight",     "conv2.bias",      "bn1.weight", "bn1.bias",
                                            "bn1.running_mean", "bn1.running_var", "fc.weight"};
        ab_cell_config config = config_of(net, levels[l], fp16, NULL);
        assert_int_equal(ab_optimizer_find("sgd", &config.optimizer), AB_OK);
        config.optim = (ab_optimizer_config){.lr = 0.05};
        config.batch = TRAIN;
        ab_cell *cell = cell_of(&config);
        for (int i = 0; i < 4; i++) step(cell, NULL);
        assert_int_equal(ab_cell_save(cell, path), AB_OK);
        config.init_file = path;
        ab_cell *again = cell_of(&config);
        bool rounded =
            strcmp(levels[l], "O2") == 0; /* masters come back through the half model, as with apex */
        for (size_t i = 0; i < AB_COUNT_OF(names); i++) {
            float a[512], b[512];
            int64_t n = read_values(cell, names[i], a, 512);
            assert_int_equal(read_values(again, names[i], b, 512), n);
            for (int64_t k = 0; k < n; k++)
                assert_true(rounded ? fabsf(a[k] - b[k]) <= 0x1p-11f * fabsf(a[k]) + 0x1p-24f : a[k] == b[k]);
        }
        /* fresh copies of all weights give the loss of a cell that has stepped: nothing stale in caches */
        float continued = step(cell, NULL).loss, resumed = step(again, NULL).loss;
        assert_memory_equal(&continued, &resumed, sizeof resumed);
        ab_cell_destroy(cell);
        ab_cell_destroy(again);
    }
    unlink(path);
    ab_net_free(net);
}

static void a_file_of_another_network_is_refused(void **state) {
    (void)state;
    char path[] = "/tmp/ampbench_cell_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    ab_net *conv = net_of(conv_ops), *linear = net_of(linear_ops);
    ab_cell_config config = config_of(conv, "O0", fp16, NULL);
    ab_cell *cell = cell_of(&config), *none = NULL;
    assert_int_equal(ab_cell_save(cell, path), AB_OK);
    ab_cell_destroy(cell);
    config = config_of(linear, "O0", fp16, NULL);
    config.init_file = path;
    assert_int_equal(ab_status_exit(ab_cell_create(&config, &none)), 2);
    assert_null(none);
    assert_non_null(strstr(ab_error_message(), path));
    config.init_file = "/nonexistent/weights.safetensors";
    assert_int_equal(ab_status_exit(ab_cell_create(&config, &none)), 2);
    assert_non_null(strstr(ab_error_message(), "/nonexistent/weights.safetensors"));
    unlink(path);
    ab_net_free(conv);
    ab_net_free(linear);
}

static void the_twin_differs_by_one_ulp_in_every_weight_and_in_nothing_else(void **state) {
    (void)state;
    ab_net *net = net_of(conv_ops);
    ab_cell_config config = config_of(net, "O0", fp16, NULL);
    ab_cell *cell = cell_of(&config);
    config.perturbation = AB_PERTURB_ULP;
    ab_cell *twin = cell_of(&config);
    const ab_plan *plan = ab_cell_plan(cell);
    int up = 0, down = 0;
    for (int p = 0; p < plan->params; p++) {
        const ab_plan_param *param = &plan->param[p];
        static float a[1024], b[1024];
        int64_t n = read_values(cell, plan->tensor[param->stored].name, a, 1024);
        read_values(twin, plan->tensor[param->stored].name, b, 1024);
        for (int64_t i = 0; i < n; i++) {
            if (param->grad == AB_NONE) {
                assert_true(a[i] == b[i]); /* running statistics */
                continue;
            }
            assert_true(b[i] == nextafterf(a[i], INFINITY) || b[i] == nextafterf(a[i], -INFINITY));
            up += b[i] > a[i];
            down += b[i] < a[i];
        }
    }
    assert_true(up > 150 && down > 150);
    ab_cell_destroy(cell);
    ab_cell_destroy(twin);
    ab_net_free(net);
}

/* Every draw moves other weights up; the same draw the same ones. */
static void draws_of_a_perturbation_differ(void **state) {
    (void)state;
    static const ab_perturbation kinds[] = {AB_PERTURB_ULP, AB_PERTURB_ROUNDING};
    ab_net *net = net_of(conv_ops);
    for (size_t k = 0; k < AB_COUNT_OF(kinds); k++) {
        static float drawn[3][1024];
        int64_t n = 0, differ = 0;
        for (int draw = 0; draw < 3; draw++) {
            ab_cell_config config = config_of(net, "O0", fp16, NULL);
            config.perturbation = kinds[k];
            config.draw = draw % 2; /* the third is the first again */
            ab_cell *cell = cell_of(&config);
            const ab_plan *plan = ab_cell_plan(cell);
            n = read_values(cell, plan->tensor[plan->param[0].stored].name, drawn[draw], 1024);
            ab_cell_destroy(cell);
        }
        for (int64_t i = 0; i < n; i++) {
            differ += drawn[0][i] != drawn[1][i];
            assert_true(drawn[0][i] == drawn[2][i]);
        }
        assert_true(n > 8 && differ > n / 4);
    }
    ab_net_free(net);
}

/* Largest and mean size of how far a weight is moved, in spacings of the half format at its size. */
typedef struct moved {
    double largest, mean;
    int up, down, count;
} moved;

static moved moved_weights(const ab_net *net, const ab_format *half) {
    ab_cell_config config = config_of(net, "O0", half, NULL);
    ab_cell *cell = cell_of(&config);
    config.perturbation = AB_PERTURB_ROUNDING;
    ab_cell *twin = cell_of(&config);
    const ab_plan *plan = ab_cell_plan(cell);
    moved m = {0};
    for (int p = 0; p < plan->params; p++) {
        const ab_plan_param *param = &plan->param[p];
        static float a[1024], b[1024];
        int64_t n = read_values(cell, plan->tensor[param->stored].name, a, 1024);
        read_values(twin, plan->tensor[param->stored].name, b, 1024);
        for (int64_t i = 0; i < n; i++) {
            if (param->grad == AB_NONE || a[i] == 0) {
                assert_true(a[i] == b[i]); /* running statistics; rounding moves no zero */
                continue;
            }
            const double binade = fmax(floor(log2(fabs((double)a[i]))), half->emin),
                         spacing = exp2(binade - (half->precision - 1)),
                         by = ((double)b[i] - (double)a[i]) / spacing;
            m.largest = fmax(m.largest, fabs(by));
            m.mean += fabs(by);
            m.up += by > 0;
            m.down += by < 0;
            m.count++;
        }
    }
    m.mean /= m.count;
    ab_cell_destroy(cell);
    ab_cell_destroy(twin);
    return m;
}

/* Uniformly within half a spacing: a quarter of it on average, as rounding errors are. */
static void the_rounding_twin_is_moved_as_rounding_moves_weights(void **state) {
    (void)state;
    ab_net *net = net_of(conv_ops);
    const ab_format *const halves[] = {&ab_format_fp16, &ab_format_bf16};
    for (int h = 0; h < 2; h++) {
        const moved m = moved_weights(net, halves[h]);
        assert_true(m.count > 300);
        assert_true(m.largest > 0.48 && m.largest < 0.502); /* fp32 rounds the sum */
        assert_true(m.mean > 0.22 && m.mean < 0.28);
        assert_true(m.up > m.count / 3 && m.down > m.count / 3);
    }
    ab_net_free(net);
}

/* ---- evaluation ------------------------------------------------------------------------------ */

/* Class scores of one test image in double: fc2(relu(fc1(x))). */
static void scores_of(const ab_cell *cell, int image, double score[CLASSES]) {
    static float w1[7 * 64], b1[7], w2[CLASSES * 7], b2[CLASSES];
    read_values(cell, "fc1.weight", w1, 7 * 64);
    read_values(cell, "fc1.bias", b1, 7);
    read_values(cell, "fc2.weight", w2, CLASSES * 7);
    read_values(cell, "fc2.bias", b2, CLASSES);
    double hidden[7];
    for (int h = 0; h < 7; h++) {
        hidden[h] = (double)b1[h];
        for (int i = 0; i < 64; i++) {
            double x = ((double)test_pixels[image * 64 + i] / 255 - data.mean) / data.std;
            hidden[h] += x * (double)w1[h * 64 + i];
        }
        if (hidden[h] < 0) hidden[h] = 0;
    }
    for (int c = 0; c < CLASSES; c++) {
        score[c] = (double)b2[c];
        for (int h = 0; h < 7; h++) score[c] += hidden[h] * (double)w2[c * 7 + h];
    }
}

static void evaluation_is_accuracy_and_mean_cross_entropy(void **state) {
    (void)state;
    ab_net *net = net_of(linear_ops);
    ab_cell_config config = config_of(net, "O0", fp16, NULL);
    ab_cell *cell = cell_of(&config);
    for (int i = 0; i < 3; i++) step(cell, NULL);
    static const int64_t limits[] = {0, 1, 8, 10, 11, 1000};
    for (size_t l = 0; l < AB_COUNT_OF(limits); l++) {
        int64_t count = limits[l] > 0 && limits[l] < TEST ? limits[l] : TEST, correct = 0;
        double loss = 0;
        for (int n = 0; n < count; n++) {
            double score[CLASSES], sum = 0;
            int best = 0;
            scores_of(cell, n, score);
            for (int c = 0; c < CLASSES; c++) {
                sum += exp(score[c]);
                if (score[c] > score[best]) best = c;
            }
            loss += (log(sum) - score[test_labels[n]]) / (double)count;
            correct += best == test_labels[n];
        }
        ab_eval_result result;
        assert_int_equal(ab_cell_evaluate(cell, AB_SPLIT_TEST, limits[l], &result), AB_OK);
        assert_int_equal(result.count, count);
        assert_int_equal(result.correct, correct);
        assert_true(fabs(result.loss - loss) < 1e-5);
    }
    ab_cell_destroy(cell);
    ab_net_free(net);
}

static void evaluation_leaves_no_trace_in_training(void **state) {
    (void)state;
    ab_net *net = net_of(conv_ops);
    for (size_t l = 0; l < AB_COUNT_OF(levels); l++) {
        static snapshot before, after;
        ab_cell_config config = config_of(net, levels[l], fp16, NULL);
        ab_cell *plain = cell_of(&config), *evaluated = cell_of(&config);
        for (int i = 0; i < 10; i++) {
            ab_eval_result result;
            take(evaluated, true, &before);
            assert_int_equal(ab_cell_evaluate(evaluated, AB_SPLIT_TEST, 0, &result), AB_OK);
            take(evaluated, true, &after);
            assert_true(same(&before, &after));
            float a = step(plain, NULL).loss, b = step(evaluated, NULL).loss;
            assert_memory_equal(&a, &b, sizeof a);
        }
        ab_cell_destroy(plain);
        ab_cell_destroy(evaluated);
    }
    ab_net_free(net);
}

/* What was learnt shows on images never trained on; batch norm uses its running statistics there. */
static void a_trained_cell_is_right_about_the_test_set(void **state) {
    (void)state;
    ab_net *net = net_of(conv_ops);
    for (size_t l = 0; l < AB_COUNT_OF(levels); l++) {
        ab_cell_config config = config_of(net, levels[l], fp16, NULL);
        ab_cell *cell = cell_of(&config);
        ab_eval_result result;
        for (int i = 0; i < 90; i++) step(cell, NULL);
        assert_int_equal(ab_cell_evaluate(cell, AB_SPLIT_TEST, 0, &result), AB_OK);
        assert_int_equal(result.correct, TEST);
        assert_true(result.loss < 0.2);
        ab_cell_destroy(cell);
    }
    ab_net_free(net);
}

/* ---- errors ---------------------------------------------------------------------------------- */

static void what_does_not_fit_is_refused_whole(void **state) {
    (void)state;
    ab_net *net = net_of(conv_ops);
    ab_cell_config config = config_of(net, "O2", fp16, NULL);
    ab_cell *cell = cell_of(&config), *none = NULL;
    int64_t total = ab_cell_bytes_total(cell);
    ab_cell_destroy(cell);
    config.memory_limit = total;
    ab_cell_destroy(cell_of(&config));
    for (int64_t limit = total - 1; limit > 0; limit -= 5003) {
        config.memory_limit = limit;
        assert_int_equal(ab_cell_create(&config, &none), AB_NO_MEMORY);
        assert_null(none);
    }
    assert_non_null(strstr(ab_error_message(), "of the limit of"));
    config.memory_limit = 0;
    config.batch = TRAIN + 1;
    assert_int_equal(ab_status_exit(ab_cell_create(&config, &none)), 2);
    ab_cell_destroy(NULL);
    ab_net_free(net);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_seed_same_bits_and_another_seed_others),
        cmocka_unit_test(probing_changes_no_bit),
        cmocka_unit_test(the_number_of_threads_changes_no_bit),
        cmocka_unit_test(initial_weights_depend_on_seed_and_name_alone),
        cmocka_unit_test(gradients_are_the_slopes_of_the_loss),
        cmocka_unit_test(saved_gradients_are_those_of_the_next_step),
        cmocka_unit_test(every_level_overfits_one_batch),
        cmocka_unit_test(every_optimizer_overfits),
        cmocka_unit_test(a_skipped_step_changes_nothing_but_the_scale),
        cmocka_unit_test(skipped_steps_do_not_count_for_the_optimizer),
        cmocka_unit_test(the_scale_follows_the_overflows),
        cmocka_unit_test(limits_of_the_scale_reach_the_scaler),
        cmocka_unit_test(a_fixed_scale_that_overflows_is_not_skipped),
        cmocka_unit_test(a_fixed_scale_that_skips_loses_the_step_alone),
        cmocka_unit_test(a_power_of_two_scale_changes_no_fp32_bit),
        cmocka_unit_test(tensors_are_read_by_name),
        cmocka_unit_test(gradients_are_read_unscaled),
        cmocka_unit_test(gradients_unscaled_late_are_those_unscaled_early),
        cmocka_unit_test(half_weights_are_the_rounded_masters),
        cmocka_unit_test(observed_gradients_have_names_that_do_not_depend_on_the_level),
        cmocka_unit_test(weights_survive_a_file),
        cmocka_unit_test(a_file_of_another_network_is_refused),
        cmocka_unit_test(the_twin_differs_by_one_ulp_in_every_weight_and_in_nothing_else),
        cmocka_unit_test(draws_of_a_perturbation_differ),
        cmocka_unit_test(the_rounding_twin_is_moved_as_rounding_moves_weights),
        cmocka_unit_test(evaluation_is_accuracy_and_mean_cross_entropy),
        cmocka_unit_test(evaluation_leaves_no_trace_in_training),
        cmocka_unit_test(a_trained_cell_is_right_about_the_test_set),
        cmocka_unit_test(what_does_not_fit_is_refused_whole),
    };
    return cmocka_run_group_tests(tests, make_data, NULL);
}
