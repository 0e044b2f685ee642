/* What probes count on a GPU: reductions of tensors are the host's, count for count and bit for bit; a
 * training whose probes count there reports the same, to the digit, as the same training whose probes get
 * copies; and a probed step copies counts to the host, not tensors. */
#define _GNU_SOURCE
#include "gpu/gpu_testing.h"

#include "kernels/backend/extremes.h"
#include "kernels/backend/row_sums.h"
#include "kernels/format/convert.h"
#include "tests/unit/probe_testing.h"

#include <dlfcn.h>

enum { N = 100003 };

static const ab_format *const formats[] = {&ab_format_fp32, &ab_format_fp16, &ab_format_bf16};

/* ---- one tensor ------------------------------------------------------------------------------ */

/* A tensor in both memories. */
typedef struct pair {
    ab_tensor here, there;
} pair;

static pair pair_of(const ab_format *format, ab_shape shape, const float *values) {
    pair p = {{.shape = shape, .format = format, .device = &ab_device_cpu, .id = -1}, {.data = NULL}};
    const size_t bytes = ab_format_bytes(format, ab_shape_count(&shape));
    p.there = p.here;
    p.there.device = gpu;
    p.here.data = malloc(bytes);
    assert_non_null(p.here.data);
    ab_narrow(p.here.data, format, values, ab_shape_count(&shape));
    assert_int_equal(gpu->alloc(bytes, &p.there.data), AB_OK);
    assert_int_equal(ab_tensor_upload(&p.there, p.here.data), AB_OK);
    return p;
}

static void free_pair(pair *p) {
    free(p->here.data);
    gpu->free(p->there.data);
}

/* Mostly finite; from `ill` on every 1000th is not. */
static void fill(float *values, int64_t n, int64_t ill) {
    for (int64_t i = 0; i < n; i++) {
        values[i] = (float)(oracle_random(5, i) * (i % 7 == 0 ? 0.0 : 100.0));
        if (i >= ill && (i - ill) % 1000 == 0)
            values[i] = i % 3 == 0 ? NAN : i % 3 == 1 ? INFINITY : -INFINITY;
    }
}

static void same_extremes(const pair *p) {
    const ab_tensor_extremes here = ab_extremes_of(&p->here), there = ab_extremes_of(&p->there);
    int64_t place[2][256];
    assert_memory_equal(&here, &there, sizeof here);
    const int found[2] = {ab_extremes_places(&p->here, place[0], 256),
                          ab_extremes_places(&p->there, place[1], 256)};
    assert_int_equal(found[0], found[1]);
    assert_memory_equal(place[0], place[1], (size_t)found[0] * sizeof place[0][0]);
    assert_int_equal(ab_extremes_places(&p->there, place[1], 1), found[0] > 0);
}

static void extremes_and_places_are_the_hosts(void **state) {
    (void)state;
    static float values[N];
    static const int64_t sizes[] = {1, 31, 257, 4096, N};
    for (size_t f = 0; f < AB_COUNT_OF(formats); f++)
        for (size_t s = 0; s < AB_COUNT_OF(sizes); s++)
            for (int64_t ill = 0; ill <= sizes[s]; ill += sizes[s] / 2 + 1) {
                fill(values, sizes[s], ill);
                pair p = pair_of(formats[f], (ab_shape){1, {sizes[s]}}, values);
                same_extremes(&p);
                free_pair(&p);
            }
}

static void several_tensors_are_reduced_at_once(void **state) {
    (void)state;
    enum { COUNT = 70 };
    static float values[300];
    pair p[COUNT];
    const ab_tensor *tensor[2][COUNT];
    ab_tensor_extremes found[2][COUNT];
    for (int i = 0; i < COUNT; i++) {
        fill(values, 300, i % 2 ? 300 : i);
        p[i] = pair_of(formats[i % 3], (ab_shape){1, {200 + i}}, values);
        tensor[0][i] = &p[i].here;
        tensor[1][i] = &p[i].there;
    }
    ab_extremes_of_all(tensor[0], COUNT, found[0]);
    ab_extremes_of_all(tensor[1], COUNT, found[1]);
    assert_memory_equal(found[0], found[1], sizeof found[0]);
    for (int i = 0; i < COUNT; i++) free_pair(&p[i]);
}

static void sums_over_rows_are_the_hosts_bits(void **state) {
    (void)state;
    static float values[N];
    static const struct {
        int64_t there, units, rows;
    } cases[] = {{1000, 100, 81}, {24, 4096, 24}, {77, 33, 77}, {N, 1, 8192}, {3, 10, 2}};
    for (size_t f = 0; f < AB_COUNT_OF(formats); f++)
        for (size_t c = 0; c < AB_COUNT_OF(cases); c++) {
            const ab_shape shape = {2, {cases[c].there, cases[c].units}};
            fill(values, ab_shape_count(&shape), c % 2 ? N : 500);
            for (int64_t i = 0; c == 2 && i < ab_shape_count(&shape); i += 33)
                values[i] = 0; /* a silent unit */
            pair p = pair_of(formats[f], shape, values);
            const ab_row_sums here = ab_row_sums_of(&p.here, cases[c].rows),
                              there = ab_row_sums_of(&p.there, cases[c].rows);
            assert_memory_equal(&here, &there, sizeof here);
            assert_true(c != 2 || here.silent >= 1);
            free_pair(&p);
        }
}

/* Norms are sums in double in another order than the host's, rounded to the gradients' format. */
static void clipping_is_the_hosts(void **state) {
    (void)state;
    enum { COUNT = 3 };
    static float values[N];
    static const int64_t sizes[COUNT] = {5, 4097, N};
    for (size_t f = 0; f < AB_COUNT_OF(formats); f++) {
        pair p[COUNT];
        ab_tensor *here[COUNT], *there[COUNT];
        double norm[2];
        const ab_clip_config clip = {.norm = 3, .value = 0.02};
        for (int i = 0; i < COUNT; i++) {
            for (int64_t k = 0; k < sizes[i]; k++) values[k] = (float)(oracle_random(9, k) * 0.1);
            p[i] = pair_of(formats[f], (ab_shape){1, {sizes[i]}}, values);
            here[i] = &p[i].here;
            there[i] = &p[i].there;
        }
        assert_int_equal(ab_clip(&clip, here, COUNT, &norm[0]), AB_OK);
        assert_int_equal(ab_backend_of(gpu)->reductions->clip(there, COUNT, 3, 0.02, &norm[1]), AB_OK);
        const double unit = formats[f] == &ab_format_fp32 ? 0x1p-22 : 0x1p-7;
        assert_true(norm[0] > 3 && fabs(norm[1] / norm[0] - 1) <= unit);
        for (int i = 0; i < COUNT; i++) {
            ab_tensor found = gpu_result(there[i]);
            for (int64_t k = 0; k < sizes[i]; k++)
                assert_true(fabs(oracle_get(&found, k) - oracle_get(here[i], k)) <= 0.02 * unit);
            free(found.data);
            free_pair(&p[i]);
        }
    }
}

/* ---- a training ------------------------------------------------------------------------------ */

/* The GPU without reductions: probes get copies. */
static ab_backend copying;
static ab_device copying_device;

/* Report of a short training, without what took time. */
static char *report_of(const ab_device *device, const char *level, const char *optimizer, const char *set,
                       const char *ops, uint64_t chosen, double decay) {
    ab_net *net = pt_net(ops);
    ab_cell_config config = pt_config(net, level, &ab_format_fp16, optimizer, set);
    config.device = device;
    config.optim.weight_decay = decay;
    ab_cell *cell = pt_cell(&config);
    pt_probing probing;
    pt_start(&probing, chosen, cell, &config, &ab_format_fp16);
    for (int i = 0; i < 2; i++) pt_step(&probing, cell); /* the second finds states of the first */
    cJSON *report = pt_set_report(&probing);
    cJSON_DeleteItemFromObject(report, "costs");
    char *text = cJSON_Print(report);
    cJSON_Delete(report);
    ab_probe_set_destroy(probing.set);
    ab_cell_destroy(cell);
    ab_net_free(net);
    return text;
}

/* `text`: a word that the report has, or NULL. */
static void compare(const char *level, const char *optimizer, const char *set, double decay,
                    const char *text) {
    const char *ops = pt_ops;
    char *there = report_of(gpu, level, optimizer, set, ops, ab_probes_standard(), decay);
    char *copied = report_of(&copying_device, level, optimizer, set, ops, ab_probes_standard(), decay);
    if (strcmp(there, copied) != 0) {
        size_t at = 0;
        while (there[at] == copied[at]) at++;
        at = at > 300 ? at - 300 : 0;
        fail_msg("%s %s:\n%.600s\n--- with copies:\n%.600s", level, optimizer, there + at, copied + at);
    }
    if (text) assert_non_null(strstr(there, text));
    free(there);
    free(copied);
}

static void probes_report_the_same_as_with_copies(void **state) {
    (void)state;
    static const char *const optimizers[] = {"sgd",    "momentum", "nesterov",         "adam",
                                             "adamw",  "rmsprop",  "rmsprop_momentum", "rmsprop_centered",
                                             "adagrad"};
    for (size_t l = 0; l < AB_COUNT_OF(pt_levels); l++)
        compare(pt_levels[l], l % 2 ? "adamw" : "momentum", NULL, 0.01, NULL);
    for (size_t o = 0; o < AB_COUNT_OF(optimizers); o++)
        compare("O3", optimizers[o], NULL, o % 2 ? 0.0 : 0.01, NULL);
}

/* Probes that are not on by default, and count on the device too. */
static uint64_t more_probes(void) {
    static const char *const names[] = {"activations", "weights", "optimizer_state", "rows",
                                        "accumulator_audit"};
    uint64_t set = ab_probes_standard();
    for (size_t i = 0; i < AB_COUNT_OF(names); i++) {
        int probe;
        assert_int_equal(ab_probe_find(names[i], &probe), AB_OK);
        set |= (uint64_t)1 << probe;
    }
    return set;
}

/* Equal but for sums of squares of what the host counts in copies, which it adds in another order. */
static void nearly_same(const cJSON *a, const cJSON *b, const char *where) {
    if (!a || !b || a->type != b->type) fail_msg("%s: kinds differ", where);
    const double error = strcmp(where, "energy") == 0 ? 2e-6 * fabs(a->valuedouble) : 0;
    if (cJSON_IsNumber(a) && fabs(a->valuedouble - b->valuedouble) > error)
        fail_msg("%s: %.17g, with copies %.17g", where, a->valuedouble, b->valuedouble);
    if (cJSON_IsString(a)) assert_string_equal(a->valuestring, b->valuestring);
    const cJSON *x = a->child, *y = b->child;
    for (; x && y; x = x->next, y = y->next) nearly_same(x, y, x->string ? x->string : where);
    if (x || y) fail_msg("%s: lengths differ", where);
}

static void weights_and_states_are_counted_before_they_are_stored(void **state) {
    (void)state;
    static const char *const optimizers[] = {"adamw", "momentum", "sgd", "rmsprop_centered"};
    for (size_t i = 0; i < 2 * AB_COUNT_OF(optimizers); i++) {
        cJSON *report[2];
        for (int g = 0; g < 2; g++) {
            char *text = report_of(g ? &copying_device : gpu, i % 2 ? "O3" : "O2", optimizers[i / 2], NULL,
                                   pt_ops, more_probes(), 0.01);
            assert_non_null(strstr(text, "\"rows\""));
            assert_non_null(strstr(text, "\"weight\""));
            report[g] = cJSON_Parse(text);
            free(text);
        }
        nearly_same(report[0], report[1], "report");
        for (int g = 0; g < 2; g++) cJSON_Delete(report[g]);
    }
}

/* A scale beyond fp16's range: every step overflows, and the first op is named with its cause. */
static void an_overflow_is_explained_as_with_copies(void **state) {
    (void)state;
    compare("O3", "sgd", "loss_scale=1048576", 0, "\"scale_induced\"");
    compare("O2", "adamw", "loss_scale=1048576", 0, "\"scale_induced\"");
}

/* ---- what is copied -------------------------------------------------------------------------- */

static long long no_count(void) { return 0; }

static long long (*downloaded_bytes(void))(void) {
    char path[4096];
    long long (*count)(void) = no_count;
    const char *folder = getenv("AMPBENCH_PLUGIN_DIR");
    snprintf(path, sizeof path, "%s/libampbench_cuda.so", folder ? folder : "");
    void *plugin = dlopen(path, RTLD_NOW | RTLD_NOLOAD), *symbol = NULL;
    if (plugin) symbol = dlsym(plugin, "emulated_downloaded");
    if (symbol) memcpy(&count, &symbol, sizeof count);
    return count;
}

/* Bytes that a probed step copies to the host. */
static long long bytes_of_step(const ab_device *device, const char *ops, uint64_t probes,
                               int64_t *weight_bytes) {
    long long (*count)(void) = downloaded_bytes();
    ab_net *net = pt_net(ops);
    ab_cell_config config = pt_config(net, "O2", &ab_format_fp16, "adam", NULL);
    config.device = device;
    config.recipe.clip.norm = 1; /* gradients are clipped where they are, too */
    ab_cell *cell = pt_cell(&config);
    pt_probing probing;
    pt_start(&probing, probes, cell, &config, &ab_format_fp16);
    pt_step(&probing, cell);
    const long long before = count();
    pt_step(&probing, cell);
    const long long bytes = count() - before;
    *weight_bytes = probing.param[0].count * 2;
    ab_probe_set_destroy(probing.set);
    ab_cell_destroy(cell);
    ab_net_free(net);
    return bytes;
}

/* Less than the smallest copy of the one large weight; the copying device shows what that would be. */
static void a_probed_step_copies_counts_not_tensors(void **state) {
    (void)state;
    static const char ops[] = "{\"name\": \"flat\", \"op\": \"flatten\"}, "
                              "{\"name\": \"fc1\", \"op\": \"linear\", \"out_features\": 4096}, {\"name\": "
                              "\"act\", \"op\": \"relu\"}, "
                              "{\"name\": \"fc2\", \"op\": \"linear\", \"out_features\": 3}, "
                              "{\"name\": \"loss\", \"op\": \"cross_entropy\"}";
    int64_t weight;
    if (downloaded_bytes() == no_count) skip(); /* only the emulation counts copies */
    const uint64_t sets[] = {ab_probes_standard(), more_probes()};
    for (size_t i = 0; i < AB_COUNT_OF(sets); i++) {
        const long long bytes = bytes_of_step(gpu, ops, sets[i], &weight),
                        copied = bytes_of_step(&copying_device, ops, sets[i], &weight);
        printf("a probed step copies %lld bytes to the host, with copies of tensors %lld\n", bytes, copied);
        assert_true(bytes > 0 &&
                    bytes < (i == 0 ? weight : 2 * weight)); /* a census is 29 kB, of each state */
        assert_true(copied > 4 * weight);
    }
}

int main(void) {
    gpu_or_skip();
    copying = *ab_backend_of(gpu);
    copying.reductions = NULL;
    copying_device = *gpu;
    copying_device.backend = &copying;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(extremes_and_places_are_the_hosts),
        cmocka_unit_test(several_tensors_are_reduced_at_once),
        cmocka_unit_test(sums_over_rows_are_the_hosts_bits),
        cmocka_unit_test(clipping_is_the_hosts),
        cmocka_unit_test(probes_report_the_same_as_with_copies),
        cmocka_unit_test(weights_and_states_are_counted_before_they_are_stored),
        cmocka_unit_test(an_overflow_is_explained_as_with_copies),
        cmocka_unit_test(a_probed_step_copies_counts_not_tensors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
