/* Tensors in several files: checkpoints that PyTorch's distributed checkpoint, transformers and DeepSpeed
 * wrote (scripts/golden_distributed.py), beside the whole tensors as these libraries have them; and sets that
 * lie. */
#include "bench/tensorfile/assembled.h"
#include "bench/tensorfile/open_set.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define GOLDEN AB_DISTRIBUTED_DIR "/"

static ab_tensorfile *opened(const char *path) {
    ab_tensorfile *file = NULL;
    if (ab_tensorfile_open_set(path, &file) != AB_OK) fail_msg("%s", ab_error_message());
    return file;
}

/* Every tensor of the truth is in the set, under prefix + name, with its shape, type and values. */
static void expect_same(const char *set_path, const char *truth_path, const char *prefix) {
    ab_tensorfile *set = opened(set_path), *truth = opened(truth_path);
    assert_true(truth->count > 0);
    for (int i = 0; i < truth->count; i++) {
        const ab_tensor_entry *want = &truth->tensor[i], *have;
        char name[512];
        snprintf(name, sizeof name, "%s%s", prefix, want->name);
        if (ab_tensorfile_find(set, name, &have) != AB_OK) fail_msg("%s", ab_error_message());
        assert_int_equal(have->ndim, want->ndim);
        for (int d = 0; d < want->ndim; d++) assert_int_equal(have->dim[d], want->dim[d]);
        assert_ptr_equal(have->element, want->element);
        float *a = calloc((size_t)want->count + 1, sizeof *a),
              *b = calloc((size_t)want->count + 1, sizeof *b);
        if (ab_tensorfile_read(set, have, a) != AB_OK) fail_msg("%s", ab_error_message());
        if (ab_tensorfile_read(truth, want, b) != AB_OK) fail_msg("%s", ab_error_message());
        for (int64_t k = 0; k < want->count; k++)
            if (a[k] != b[k])
                fail_msg("%s: element %lld: %g, expected %g", name, (long long)k, (double)a[k], (double)b[k]);
        free(a);
        free(b);
    }
    ab_tensorfile_close(set);
    ab_tensorfile_close(truth);
}

static void boxes_of_a_distributed_checkpoint_are_put_together(void **state) {
    (void)state;
    expect_same(GOLDEN "dcp", GOLDEN "truth/dcp.safetensors", "");
    expect_same(GOLDEN "dcp/.metadata", GOLDEN "truth/dcp.safetensors", "");
    expect_same(GOLDEN "dcp_one", GOLDEN "truth/dcp.safetensors", "");
}

static void shards_are_found_by_their_index(void **state) {
    (void)state;
    expect_same(GOLDEN "sharded", GOLDEN "truth/sharded.safetensors", "");
    expect_same(GOLDEN "sharded_bin", GOLDEN "truth/sharded.safetensors", "");
    expect_same(GOLDEN "sharded_bin/pytorch_model.bin.index.json", GOLDEN "truth/sharded.safetensors", "");
}

/* ---- partitions of ZeRO ----------------------------------------------------------------------- */

static void read_named(const ab_tensorfile *file, const char *before, const char *name, const char *after,
                       const ab_tensor_entry *like, float *values) {
    char whole[512];
    const ab_tensor_entry *entry;
    snprintf(whole, sizeof whole, "%s%s%s", before, name, after);
    if (ab_tensorfile_find(file, whole, &entry) != AB_OK) fail_msg("%s", ab_error_message());
    assert_int_equal(entry->ndim, like->ndim);
    for (int d = 0; d < like->ndim; d++) assert_int_equal(entry->dim[d], like->dim[d]);
    assert_string_equal(entry->element->name, "fp32");
    if (ab_tensorfile_read(file, entry, values) != AB_OK) fail_msg("%s", ab_error_message());
}

/* The weights are those that DeepSpeed's own zero_to_fp32 puts together; the script set the moments to an
 * eighth and the square of them before it saved. */
static void expect_zero(const char *set_path, const char *truth_path, const char *masters) {
    enum { MOST = 64 };
    ab_tensorfile *set = opened(set_path), *truth = opened(truth_path);
    assert_int_equal(truth->count, 6);
    for (int i = 0; i < truth->count; i++) {
        const ab_tensor_entry *want = &truth->tensor[i];
        float w[MOST], fp32[MOST], m[MOST], v[MOST];
        assert_true(want->count <= MOST);
        assert_int_equal(ab_tensorfile_read(truth, want, w), AB_OK);
        read_named(set, masters, want->name, "", want, fp32);
        read_named(set, "optimizer.state.", want->name, ".exp_avg", want, m);
        read_named(set, "optimizer.state.", want->name, ".exp_avg_sq", want, v);
        for (int64_t k = 0; k < want->count; k++)
            if (fp32[k] != w[k] || m[k] != w[k] / 8 || v[k] != w[k] * w[k])
                fail_msg("%s: element %lld: %g, %g, %g, expected %g", want->name, (long long)k,
                         (double)fp32[k], (double)m[k], (double)v[k], (double)w[k]);
    }
    ab_tensorfile_close(set);
    ab_tensorfile_close(truth);
}

static void partitions_of_zero_are_put_together(void **state) {
    (void)state;
    expect_zero(GOLDEN "zero1/global_step3/mp_rank_00_model_states.pt", GOLDEN "truth/zero1.safetensors",
                "optimizer.fp32.");
    expect_zero(GOLDEN "zero2", GOLDEN "truth/zero2.safetensors", "optimizer.fp32.");
    expect_zero(GOLDEN "zero3", GOLDEN "truth/zero3.safetensors", "module.");
}

typedef struct wanted {
    const char *name;
    double number;
    int seen;
} wanted;

static ab_status see(void *context, const char *name, const ab_tensor_value *value) {
    wanted *w = context;
    if (strcmp(name, w->name) != 0) return AB_OK;
    w->seen++;
    if (value->kind != AB_VALUE_NUMBER || value->number != w->number) fail_msg("%s: %g", name, value->number);
    return AB_OK;
}

static void objects_beside_tensors_are_values(void **state) {
    (void)state;
    static const wanted rows[] = {{"scaler.scale", 1024, 0},
                                  {"scaler._growth_tracker", 3, 0},
                                  {"steps", 7, 0},
                                  {"optimizer.param_groups.0.lr", 0.125, 0},
                                  {"optimizer.param_groups.0.betas.1", 0.75, 0}};
    ab_tensorfile *set = opened(GOLDEN "dcp");
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
        wanted w = rows[i];
        assert_int_equal(ab_tensorfile_values(set, see, &w), AB_OK);
        if (w.seen != 1) fail_msg("%s: seen %d times", w.name, w.seen);
    }
    ab_tensorfile_close(set);
}

/* ---- sets that lie ---------------------------------------------------------------------------- */

static char *read_all(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    char *bytes = malloc(1 << 20);
    *size = fread(bytes, 1, 1 << 20, file);
    fclose(file);
    return bytes;
}

/* Opens bytes under a path in the golden folder; reads every tensor that it lists. */
static bool survives(const char *path, const char *bytes, size_t size) {
    ab_tensorfile *file = NULL;
    if (ab_tensorfile_open_memory(path, bytes, (int64_t)size, &file) != AB_OK) return false;
    bool good = true;
    for (int i = 0; i < file->count; i++) {
        const ab_tensor_entry *e = &file->tensor[i];
        if (e->count > 1 << 16 || !e->element->format) continue;
        float *values = calloc((size_t)e->count + 1, sizeof *values);
        good = ab_tensorfile_read(file, e, values) == AB_OK && good;
        free(values);
    }
    ab_tensorfile_close(file);
    return good;
}

static void no_byte_of_the_metadata_leads_outside(void **state) {
    (void)state;
    size_t size;
    char *bytes = read_all(GOLDEN "dcp/.metadata", &size);
    assert_true(survives(GOLDEN "dcp/.metadata", bytes, size));
    for (size_t n = 0; n < size; n += 3) assert_false(survives(GOLDEN "dcp/.metadata", bytes, n));
    int refused = 0;
    for (size_t i = 0; i < size; i++) {
        const char old = bytes[i];
        bytes[i] = (char)(old ^ (1 << i % 8));
        refused += !survives(GOLDEN "dcp/.metadata", bytes, size);
        bytes[i] = old;
    }
    assert_true(refused > 100);
    free(bytes);
}

static void expect_refused(const char *name, const char *text, const char *message) {
    char path[512];
    ab_tensorfile *file = NULL;
    snprintf(path, sizeof path, GOLDEN "sharded_bin/%s", name);
    if (ab_tensorfile_open_memory(path, text, (int64_t)strlen(text), &file) == AB_OK)
        fail_msg("%s was taken", text);
    if (!strstr(ab_error_message(), message)) fail_msg("'%s' is not in '%s'", message, ab_error_message());
}

static void indices_that_lie_are_refused(void **state) {
    (void)state;
    static const char name[] = "a.index.json", shard[] = "pytorch_model-00001-of-00002.bin";
    char text[512];
    expect_refused(name, "{\"weight_map\": {\"x\": \"absent.bin\"}}", "absent.bin: cannot open");
    expect_refused(name, "{\"weight_map\": {\"x\": \"../sharded/model.safetensors\"}}", "a file beside it");
    expect_refused(name, "{\"weight_map\": {\"x\": \"\"}}", "a file beside it");
    expect_refused(name, "{\"weight_map\": {\"x\": \"pytorch_model.bin.index.json\"}}",
                   "expected a file with tensors");
    snprintf(text, sizeof text, "{\"weight_map\": {\"nothing\": \"%s\"}}", shard);
    expect_refused(name, text, "expected a tensor \"nothing\"");
    expect_refused(name, "{\"metadata\": {}}", "weight_map");
    snprintf(text, sizeof text,
             "{\"weight_map\": {\"transformer.h.0.attn.c_attn.bias\": \"%s\", "
             "\"transformer.h.0.attn.c_attn.bias\": \"%s\"}}",
             shard, shard);
    expect_refused(name, text, "twice");
}

static void a_folder_without_a_set_is_refused(void **state) {
    (void)state;
    ab_tensorfile *file = NULL;
    assert_int_equal(ab_tensorfile_open_set(GOLDEN "truth", &file), AB_INPUT);
    assert_non_null(strstr(ab_error_message(), "tensor files"));
    assert_int_equal(ab_tensorfile_open_set(GOLDEN "absent", &file), AB_INPUT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(boxes_of_a_distributed_checkpoint_are_put_together),
        cmocka_unit_test(shards_are_found_by_their_index),
        cmocka_unit_test(partitions_of_zero_are_put_together),
        cmocka_unit_test(objects_beside_tensors_are_values),
        cmocka_unit_test(no_byte_of_the_metadata_leads_outside),
        cmocka_unit_test(indices_that_lie_are_refused),
        cmocka_unit_test(a_folder_without_a_set_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
