/* libampprobe with tensors in CUDA memory: the record of a loop is the same as with the same values in host
 * memory, in every format, layout and sample; gradients of plain steps are counted while the loop goes on;
 * what cannot be read is skipped, counted, and said once. */
#define _GNU_SOURCE
#include "gpu/gpu_testing.h"

#include "kernels/format/convert.h"
#include "probes/lib/count.h"
#include "probes/lib/device.h"
#include "tests/unit/probe_lib_testing.h"

#include <dlfcn.h>

enum { N = 3 * 4096 * 3 + 77, STEPS = 12 };

/* ---- a loop, its tensors in either memory ---------------------------------------------------- */

typedef struct loop {
    ampprobe *probe;
    bool on_gpu;
    void *block[64]; /* on the GPU, until the end of the loop */
    int blocks;
} loop;

static loop loop_open(const char *config, bool on_gpu) {
    return (loop){.probe = pl_open(config), .on_gpu = on_gpu};
}

static cJSON *loop_close(loop *l) {
    cJSON *document = pl_close(l->probe);
    for (int i = 0; i < l->blocks; i++) gpu->free(l->block[i]);
    return document;
}

/* The tensor's bytes, copied to the GPU if that is where the loop runs. */
static void place(loop *l, ampprobe_tensor *t, const void *storage, size_t bytes) {
    const size_t offset = (size_t)((const char *)t->data - (const char *)storage);
    if (!l->on_gpu) return;
    void **block = &l->block[l->blocks++];
    assert_true(l->blocks <= 64);
    assert_int_equal(gpu->alloc(bytes, block), AB_OK);
    assert_int_equal(gpu->upload(*block, storage, bytes), AB_OK);
    t->data = (const char *)*block + offset;
    t->device = AMPPROBE_CUDA;
}

/* Records are equal but for times, and for sums of squares, which are taken in another order. */
static bool is_of_time(const char *key) {
    static const char *const keys[] = {"id",
                                       "elapsed_s",
                                       "started_utc",
                                       "finished_utc",
                                       "step_time_ns",
                                       "cost_ns",
                                       "probe_time_ns",
                                       "max_rss_bytes",
                                       "elapsed_ns",
                                       "first_step_ns",
                                       "start_to_first_step_ns",
                                       "cost_share"};
    for (size_t i = 0; key && i < AB_COUNT_OF(keys); i++)
        if (strcmp(key, keys[i]) == 0) return true;
    return false;
}

static void same(const cJSON *here, const cJSON *there, const char *where) {
    if (!here || !there || here->type != there->type) fail_msg("%s: kinds differ", where);
    if (cJSON_IsNumber(here)) {
        const double a = here->valuedouble, b = there->valuedouble;
        if (fabs(a - b) > 2e-6 * fabs(a)) fail_msg("%s: %.17g, on the GPU %.17g", where, a, b);
    }
    if (cJSON_IsString(here) && strcmp(here->valuestring, there->valuestring) != 0)
        fail_msg("%s: %s, on the GPU %s", where, here->valuestring, there->valuestring);
    const cJSON *a = here->child, *b = there->child;
    for (; a && b; a = a->next, b = b->next)
        if (!is_of_time(a->string)) same(a, b, a->string ? a->string : where);
    if (a || b) fail_msg("%s: lengths differ", where);
}

/* Runs a loop in both memories and compares the records. */
static void both(void (*run)(loop *l), const char *config) {
    cJSON *document[2];
    for (int g = 0; g < 2; g++) {
        loop l = loop_open(config, g == 1);
        run(&l);
        document[g] = loop_close(&l);
    }
    same(document[0], document[1], "record");
    for (int g = 0; g < 2; g++) cJSON_Delete(document[g]);
}

static float value_at(int64_t i, int64_t step) {
    if (step % 5 == 3 && i == 4096 * 2 + 5) return i % 2 ? INFINITY : NAN;
    if (i % 31 == 0) return 0;
    const float x = (float)(((i + step) * 2654435761u >> 8) % 65521 + 1) / 65521.0f;
    return ldexpf(i % 2 ? x : -x, (int)((i + 7 * step) % 61) - 40);
}

/* ---- layouts and formats --------------------------------------------------------------------- */

static const struct {
    int32_t dtype;
    int64_t stride, first;
} layouts[] = {{AMPPROBE_FP32, 1, 0},  {AMPPROBE_FP16, 1, 0}, {AMPPROBE_BF16, 1, 0}, {AMPPROBE_FP64, 1, 0},
               {AMPPROBE_FP32, 3, 2},  {AMPPROBE_FP16, 2, 1}, {AMPPROBE_BF16, 5, 3}, {AMPPROBE_FP64, 2, 1},
               {AMPPROBE_FP32, -2, 0}, {AMPPROBE_FP16, 1, 1}, {AMPPROBE_FP32, 1, 3}, {AMPPROBE_BF16, -1, 0}};
static const int32_t counts[] = {1, 31, 4096, N};

static void store(void *to, int32_t dtype, int64_t at, float value) {
    static const ab_format *const formats[] = {&ab_format_fp32, &ab_format_fp16, &ab_format_bf16};
    if (dtype == AMPPROBE_FP64)
        ((double *)to)[at] = (double)value;
    else
        ab_narrow((char *)to + at * (int64_t)formats[dtype]->storage_bytes, formats[dtype], &value, 1);
}

/* Shows a tensor of a layout once. */
static void show_layout(loop *l, size_t which, int32_t count, uint32_t flags) {
    static const int64_t size[] = {4, 2, 2, 8};
    const int32_t dtype = layouts[which].dtype;
    const int64_t stride = layouts[which].stride, step = stride < 0 ? -stride : stride,
                  bytes = ((count - 1) * step + 1 + layouts[which].first) * size[dtype];
    char name[64], *storage = calloc(1, (size_t)bytes);
    const int64_t start = stride < 0 ? (count - 1) * step : layouts[which].first;
    assert_non_null(storage);
    snprintf(name, sizeof name, "tensor%zu.%d", which, count);
    for (int64_t i = 0; i < count; i++) store(storage, dtype, start + i * stride, value_at(i, 3));
    ampprobe_tensor t = {.id = pl_parameter(l->probe, name, dtype, count),
                         .role = AMPPROBE_WEIGHT_GRADIENT,
                         .dtype = dtype,
                         .data = storage + start * size[dtype],
                         .count = count,
                         .stride = stride,
                         .storage_bytes = bytes - (stride < 0 ? 0 : layouts[which].first * size[dtype])};
    place(l, &t, storage, (size_t)bytes);
    assert_int_equal(ampprobe_gradients(l->probe, 0, &t, 1, flags, NULL), AMPPROBE_OK);
    assert_int_equal(t.skipped, AMPPROBE_COUNTED);
    free(storage);
}

static void show_all_layouts(loop *l) {
    for (size_t which = 0; which < AB_COUNT_OF(layouts); which++)
        for (size_t c = 0; c < AB_COUNT_OF(counts); c++) show_layout(l, which, counts[c], AMPPROBE_ALL);
    pl_step(l->probe, 0);
}

static void every_format_and_layout_is_counted_as_on_the_host(void **state) {
    (void)state;
    both(show_all_layouts, "{\"probe_every\": 1}");
}

/* Every so many-th block, from a block on that moves along. */
static void samples_are_those_of_the_host(void **state) {
    (void)state;
    static const int32_t every[] = {1, 2, 3, 4, 64};
    static float values[N];
    const ab_lib_call call = {.gradients = true};
    loop l = {.on_gpu = true};
    for (int64_t i = 0; i < N; i++) values[i] = value_at(i, 3);
    for (size_t e = 0; e < AB_COUNT_OF(every); e++)
        for (int64_t turn = 0; turn < 12; turn++) {
            ampprobe_tensor here[2] = {pl_gradient(0, values, N), pl_gradient(1, values + 1, 4096)};
            ampprobe_tensor there[2] = {here[0], here[1]};
            ab_lib_flight *list;
            int32_t flights;
            bool exact;
            double seconds;
            if (l.blocks == 0) place(&l, &there[0], values, sizeof values);
            for (int i = 0; i < 2; i++) {
                there[i].data = (const float *)l.block[0] + i;
                there[i].device = AMPPROBE_CUDA;
            }
            assert_int_equal(ab_lib_device_begin(&call, every[e], turn, there, 2, &list, &flights, &exact),
                             AB_OK);
            assert_int_equal(flights, 1);
            assert_int_equal(ab_lib_device_wait(&list[0], &seconds), AB_OK);
            for (int i = 0; i < 2; i++) {
                ab_census own, found;
                ab_census_clear(&own);
                assert_int_equal(ab_lib_census(&here[i], every[e], turn, &own), there[i].counted);
                ab_lib_device_answer(&list[0], i, &there[i], &found);
                assert_true(fabs(found.sum_squares - own.sum_squares) <= 2e-6 * own.sum_squares);
                found.sum_squares = own.sum_squares;
                assert_memory_equal(&own, &found, sizeof own);
            }
            ab_lib_device_end(&list[0], true);
            free(list);
        }
    for (int i = 0; i < l.blocks; i++) gpu->free(l.block[i]);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static long long no_count(void) { return 0; }

/* A function of the emulation; what a GPU does not tell. */
static long long (*of_emulation(const char *name))(void) {
    char path[4096];
    long long (*count)(void) = no_count;
    const char *folder = getenv("AMPBENCH_PLUGIN_DIR");
    snprintf(path, sizeof path, "%s/libampbench_cuda.so", folder ? folder : "");
    void *plugin = dlopen(path, RTLD_NOW | RTLD_NOLOAD), *symbol = plugin ? dlsym(plugin, name) : NULL;
    if (symbol) memcpy(&count, &symbol, sizeof count);
    return count;
}

/* The first step is looked at closely, the others are plain: without a budget there are no layers. */
static void run_steps(loop *l, int32_t groups, uint32_t flags, bool unknown) {
    static float values[N];
    long long (*waiting)(void) = of_emulation("emulated_waiting");
    int32_t id[2] = {pl_parameter(l->probe, "fc1.weight", AMPPROBE_FP32, N),
                     pl_parameter(l->probe, "fc2.weight", AMPPROBE_FP32, 501)};
    for (int64_t step = 0; step < STEPS; step++) {
        for (int64_t i = 0; i < N; i++) values[i] = value_at(i, step);
        for (int32_t g = 0; g < groups; g++) {
            ampprobe_tensor t = pl_gradient(id[g], values + g, g ? 501 : N);
            ampprobe_seen seen = {.size = sizeof seen};
            place(l, &t, values, sizeof values);
            assert_int_equal(ampprobe_gradients(l->probe, g, &t, 1, flags, &seen), AMPPROBE_OK);
            assert_int_equal(seen.tensors, 1);
            if (l->on_gpu && step > 0) {
                assert_true(seen.exact == 0 && t.nonfinite == -1);
                assert_true(waiting == no_count || waiting() > 0);
            }
        }
        for (int32_t g = 0; g < groups; g++) {
            ampprobe_step_facts f = pl_facts(step);
            f.group = g;
            f.seconds = 1e-3;
            f.flags = AMPPROBE_HAS_SCALE | AMPPROBE_HAS_LOSS;
            f.scale_before = f.scale_after = ldexp(1, (int)(10 + step / 4));
            f.loss = 1.0 / (double)(step + 1);
            if (!unknown) f.stepped = step % 5 != 3;
            assert_int_equal(ampprobe_step(l->probe, &f), AMPPROBE_OK);
            assert_true(!l->on_gpu || step == 0 || waiting == no_count || waiting() > 0);
        }
    }
}

static void run_sure(loop *l) { run_steps(l, 1, AMPPROBE_ALL, false); }
static void run_unsure(loop *l) { run_steps(l, 1, AMPPROBE_ALL, true); }
static void run_groups(loop *l) { run_steps(l, 2, AMPPROBE_ALL, true); }
static void run_sampled(loop *l) { run_steps(l, 1, AMPPROBE_FINITE, true); }

static void a_plain_step_does_not_wait_and_is_recorded_as_on_the_host(void **state) {
    (void)state;
    both(run_sure, "{\"budget\": 0}");
    both(run_unsure, "{\"budget\": 0}"); /* whether it was skipped, only the counts say */
    both(run_groups, "{\"budget\": 0}");
    both(run_sampled, "{\"budget\": 0}");
}

/* What is left for later is in the record that is written now. */
static void a_flush_has_every_step(void **state) {
    (void)state;
    char path[PL_PATH];
    cJSON *document;
    loop l = loop_open("{\"budget\": 0}", true);
    run_steps(&l, 1, AMPPROBE_ALL, true);
    assert_int_equal(ampprobe_flush(l.probe), AMPPROBE_OK);
    assert_int_equal(ab_result_load(pl_path(path), &document), AB_OK);
    assert_int_equal(ab_json_number(pl_cell(document), "steps_total", -1), STEPS);
    cJSON_Delete(document);
    cJSON_Delete(loop_close(&l));
}

/* ---- updates --------------------------------------------------------------------------------- */

static void run_updates(loop *l) {
    enum { COUNT = 3001 };
    static float weight[COUNT], grad[COUNT];
    const int32_t id = pl_parameter(l->probe, "fc1.weight", AMPPROBE_FP32, COUNT);
    for (int step = 0; step < 3; step++) {
        for (int i = 0; i < COUNT; i++) {
            weight[i] = 1 + (float)i;
            grad[i] = ldexpf(1, -(i % 40));
        }
        ampprobe_tensor t[2] = {pl_gradient(id, weight, COUNT), pl_gradient(id, grad, COUNT)};
        t[0].role = AMPPROBE_WEIGHT;
        t[1].role = AMPPROBE_UNSCALED_GRADIENT;
        ampprobe_tensor before = t[0];
        place(l, &before, weight, sizeof weight);
        assert_int_equal(ampprobe_before_update(l->probe, 0, &before, 1), AMPPROBE_OK);
        for (int i = 0; i < COUNT; i++) weight[i] -= 0.1f * grad[i];
        place(l, &t[0], weight, sizeof weight);
        place(l, &t[1], grad, sizeof grad);
        assert_int_equal(ampprobe_after_update(l->probe, 0, t, 2), AMPPROBE_OK);
        pl_step(l->probe, step);
    }
}

static void lost_updates_are_the_hosts(void **state) {
    (void)state;
    both(run_updates, "{\"probe_every\": 1, \"groups\": [{\"optimizer\": \"sgd\", \"lr\": 0.1}]}");
}

/* ---- what is not read ------------------------------------------------------------------------ */

static void assert_warning(const cJSON *document, const char *text) {
    const cJSON *line;
    cJSON_ArrayForEach(line, ab_json_at(document, "warnings")) {
        if (strstr(line->valuestring, text)) return;
    }
    fail_msg("no warning says: %s", text);
}

static void what_cannot_be_read_is_skipped(void **state) {
    (void)state;
    static float values[64];
    loop l = loop_open(NULL, true);
    const int32_t id = pl_parameter(l.probe, "w", AMPPROBE_FP32, 64);
    const ampprobe_tensor host = pl_gradient(id, values, 64);
    ampprobe_tensor good = host;
    place(&l, &good, values, sizeof values);
    ampprobe_tensor t[] = {good, good, good, host, good};
    t[1].count = 65; /* beyond the storage */
    t[2].stride = 0; /* expanded */
    t[3].device = AMPPROBE_CUDA;
    t[4].data = (const char *)good.data + 2;
    ampprobe_seen seen = {.size = sizeof seen};
    assert_int_equal(ampprobe_gradients(l.probe, 0, t, 5, AMPPROBE_ALL, &seen), AMPPROBE_OK);
    assert_true(seen.tensors == 1 && seen.skipped == 4 && seen.exact == 0);
    assert_int_equal(t[0].skipped, AMPPROBE_COUNTED);
    assert_int_equal(t[1].skipped, AMPPROBE_SKIP_LAYOUT);
    assert_int_equal(t[2].skipped, AMPPROBE_SKIP_LAYOUT);
    assert_int_equal(t[3].skipped, AMPPROBE_SKIP_DEVICE);
    assert_int_equal(t[4].skipped, AMPPROBE_SKIP_ALIGN);
    pl_step(l.probe, 0);
    cJSON *document = loop_close(&l);
    assert_warning(document, "their address is not in a GPU's memory");
    cJSON_Delete(document);
}

/* ---- a program that records graphs ---------------------------------------------------------------- */

/* The stream that is being recorded; only the emulation can tell. */
static void *recorded_stream(void) {
    char path[4096];
    const char *folder = getenv("AMPBENCH_PLUGIN_DIR");
    if (!folder || !gpu_is_emulated()) return NULL;
    (void)snprintf(path, sizeof path, "%s/libampbench_cuda.so", folder);
    void *plugin = dlopen(path, RTLD_NOW);
    void *(*ask)(void) = NULL;
    if (plugin) *(void **)&ask = dlsym(plugin, "emulated_recorded_stream");
    return ask ? ask() : NULL;
}

/* The stream is recorded: nothing of the probe's becomes part of the graph. Else another one is: the tensor
 * is counted, and the recording goes on. */
static void check_recording(bool its_own) {
    static float values[64];
    const ab_resident_ops *resident = ab_backend_of(gpu)->resident;
    ab_graph *graph = NULL;
    loop l = loop_open(NULL, true);
    ampprobe_tensor t = pl_gradient(pl_parameter(l.probe, "w", AMPPROBE_FP32, 64), values, 64);
    place(&l, &t, values, sizeof values);
    assert_int_equal(resident->record_begin(), AB_OK);
    if (its_own) t.stream = recorded_stream();
    assert_int_equal(ampprobe_gradients(l.probe, 0, &t, 1, AMPPROBE_ALL, NULL), AMPPROBE_OK);
    assert_int_equal(resident->record_end(&graph), AB_OK);
    resident->graph_destroy(graph);
    assert_int_equal(t.skipped, its_own ? AMPPROBE_SKIP_DEVICE : AMPPROBE_COUNTED);
    pl_step(l.probe, 0);
    cJSON *document = loop_close(&l);
    if (its_own) assert_warning(document, "is being recorded as a CUDA graph");
    cJSON_Delete(document);
}

static void a_stream_that_is_recorded_is_left_alone(void **state) {
    (void)state;
    if (gpu_is_emulated()) check_recording(true);
    check_recording(false);
}

int main(void) {
    gpu_or_skip();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format_and_layout_is_counted_as_on_the_host),
        cmocka_unit_test(samples_are_those_of_the_host),
        cmocka_unit_test(a_plain_step_does_not_wait_and_is_recorded_as_on_the_host),
        cmocka_unit_test(a_flush_has_every_step),
        cmocka_unit_test(lost_updates_are_the_hosts),
        cmocka_unit_test(what_cannot_be_read_is_skipped),
        cmocka_unit_test(a_stream_that_is_recorded_is_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
