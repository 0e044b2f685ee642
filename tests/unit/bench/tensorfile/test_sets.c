/* Tensors in several files: checkpoints that PyTorch's distributed checkpoint, transformers and DeepSpeed
 * wrote (scripts/golden_distributed.py), beside the whole tensors as these libraries have them; and sets that
 * lie. */
#define _POSIX_C_SOURCE 200809L /* mkdtemp */
#include "bench/tensorfile/assembled.h"
#include "bench/tensorfile/megatron.h"
#include "bench/tensorfile/open_set.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* ---- ranks of Megatron ------------------------------------------------------------------------ */

static float *all_of(const ab_tensorfile *file, const ab_tensor_entry *entry) {
    float *values = calloc((size_t)entry->count + 1, sizeof *values);
    if (ab_tensorfile_read(file, entry, values) != AB_OK) fail_msg("%s", ab_error_message());
    return values;
}

/* The whole weights are those that Megatron's own dist_checkpointing puts together from the same model; the
 * script set the moments to an eighth and the square of them before it saved. */
static void expect_state(const ab_tensorfile *set, const ab_tensorfile *truth, const ab_tensor_entry *want) {
    static const char *const before[] = {"optimizer.fp32.", "optimizer.state.", "optimizer.state."},
                             *const after[] = {"", ".exp_avg", ".exp_avg_sq"};
    float *w = all_of(truth, want);
    for (int i = 0; i < 3; i++) {
        float *have = calloc((size_t)want->count + 1, sizeof *have);
        read_named(set, before[i], want->name, after[i], want, have);
        for (int64_t k = 0; k < want->count; k++) {
            const float expected = i == 0 ? w[k] : i == 1 ? w[k] / 8 : w[k] * w[k];
            if (have[k] != expected)
                fail_msg("%s%s%s: element %lld: %g, expected %g", before[i], want->name, after[i],
                         (long long)k, (double)have[k], (double)expected);
        }
        free(have);
    }
    free(w);
}

static void ranks_of_megatron_are_put_together(void **state) {
    (void)state;
    static const char first[] = GOLDEN "mcore/ranks/iter_0000005/mp_rank_00_000/model_optim_rng.pt";
    expect_same(GOLDEN "mcore/ranks/iter_0000005", GOLDEN "mcore/truth/ranks.safetensors", "model.");
    expect_same(first, GOLDEN "mcore/truth/ranks.safetensors", "model.");
    expect_same(GOLDEN "mcore/tensor/iter_0000005/mp_rank_00/model_optim_rng.pt",
                GOLDEN "mcore/truth/tensor.safetensors", "model.");
    ab_tensorfile *set = opened(GOLDEN "mcore/ranks"),
                  *truth = opened(GOLDEN "mcore/truth/ranks.safetensors");
    assert_int_equal(ab_tensorfile_files(set), 4);
    assert_null(set->note);
    for (int i = 0; i < truth->count; i++) expect_state(set, truth, &truth->tensor[i]);
    ab_tensorfile_close(set);
    ab_tensorfile_close(truth);
}

/* A layer of a tensor that dist_checkpointing stacked. */
static void expect_layer(const ab_tensorfile *set, const ab_tensorfile *truth, const ab_tensor_entry *want,
                         int layer, const char *rest) {
    char name[512];
    const ab_tensor_entry *stacked;
    snprintf(name, sizeof name, "decoder.layers.%s", rest);
    if (ab_tensorfile_find(set, name, &stacked) != AB_OK) fail_msg("%s", ab_error_message());
    assert_int_equal(stacked->dim[0], 4);
    float *all = all_of(set, stacked), *one = all_of(truth, want);
    assert_memory_equal(all + layer * want->count, one, (size_t)want->count * sizeof *one);
    free(all);
    free(one);
}

/* Experts on expert-parallel ranks are counted through them, layers of interleaved stages chunk by chunk; and
 * qkv of fewer groups than ranks is whole again. */
static void layouts_of_megatron_are_put_together(void **state) {
    (void)state;
    static const char *const names[] = {"experts", "chunks", "groups"};
    static const int ranks[] = {4, 2, 4};
    for (size_t i = 0; i < AB_COUNT_OF(names); i++) {
        char set_path[512], truth_path[512];
        snprintf(set_path, sizeof set_path, GOLDEN "mlayouts/%s/iter_0000005", names[i]);
        snprintf(truth_path, sizeof truth_path, GOLDEN "mlayouts/truth/%s.safetensors", names[i]);
        expect_same(set_path, truth_path, "model.");
        ab_tensorfile *set = opened(set_path);
        assert_int_equal(ab_tensorfile_files(set), ranks[i]);
        assert_null(set->note);
        ab_tensorfile_close(set);
    }
}

static void dist_checkpointing_of_megatron_is_a_set(void **state) {
    (void)state;
    ab_tensorfile *set = opened(GOLDEN "mcore/dist/iter_0000005"),
                  *truth = opened(GOLDEN "mcore/truth/ranks.safetensors");
    int layers = 0;
    for (int i = 0; i < truth->count; i++) {
        const char *name = truth->tensor[i].name;
        int layer, length = 0;
        if (sscanf(name, "decoder.layers.%d.%n", &layer, &length) != 1 || length == 0) continue;
        if (strstr(name, "layernorm")) continue; /* it has another name there */
        expect_layer(set, truth, &truth->tensor[i], layer, name + length);
        layers++;
    }
    assert_int_equal(layers, 4 * 8);
    ab_tensorfile_close(set);
    ab_tensorfile_close(truth);
}

/* Modules with names that are not Megatron's: how they are split is not known. */
static void shards_of_unknown_modules_keep_their_ranks(void **state) {
    (void)state;
    const ab_tensor_entry *entry;
    ab_tensorfile *set = opened(GOLDEN "megatron/iter_0000005");
    assert_int_equal(ab_tensorfile_find(set, "model.decoder.fc1.weight~mp_rank_00", &entry), AB_OK);
    assert_int_equal(ab_tensorfile_find(set, "model.decoder.fc1.weight~mp_rank_01", &entry), AB_OK);
    assert_int_equal(entry->dim[0], 4); /* of 8 rows */
    assert_int_equal(ab_tensorfile_find(set, "model.decoder.fc2.bias", &entry),
                     AB_OK); /* all have the same */
    assert_non_null(set->note);
    assert_non_null(strstr(set->note, "mp_rank_"));
    ab_tensorfile_close(set);
}

static void names_of_megatron_tell_the_split(void **state) {
    (void)state;
    static const struct {
        const char *name;
        ab_megatron_split split;
    } rows[] = {
        {"decoder.layers.0.self_attention.linear_qkv.weight", AB_MEGATRON_ROWS},
        {"decoder.layers.0.self_attention.linear_qkv.layer_norm_weight", AB_MEGATRON_WHOLE},
        {"decoder.layers.0.self_attention.linear_proj.weight", AB_MEGATRON_COLUMNS},
        {"decoder.layers.0.self_attention.linear_proj.bias", AB_MEGATRON_WHOLE},
        {"decoder.layers.0.mlp.experts.local_experts.3.linear_fc1.weight", AB_MEGATRON_FC1},
        {"decoder.layers.0.mlp.shared_experts.linear_fc2.weight", AB_MEGATRON_COLUMNS},
        {"decoder.layers.0.mlp.router.weight", AB_MEGATRON_WHOLE},
        {"language_model.encoder.layers.0.self_attention.query_key_value.bias", AB_MEGATRON_ROWS},
        {"language_model.encoder.layers.0.self_attention.dense.weight", AB_MEGATRON_COLUMNS},
        {"language_model.encoder.layers.0.mlp.dense_h_to_4h.bias", AB_MEGATRON_FC1},
        {"language_model.encoder.layers.0.mlp.dense_4h_to_h.bias", AB_MEGATRON_WHOLE},
        {"embedding.word_embeddings.weight", AB_MEGATRON_ROWS},
        {"embedding.position_embeddings.weight", AB_MEGATRON_WHOLE},
        {"decoder.layers.0.mixer.in_proj.weight", AB_MEGATRON_UNKNOWN},
    };
    char name[256];
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++)
        if (ab_megatron_split_of(rows[i].name) != rows[i].split) fail_msg("%s", rows[i].name);
    assert_true(ab_megatron_fc2_of("a.mlp.linear_fc1.bias", name, sizeof name));
    assert_string_equal(name, "a.mlp.linear_fc2.weight");
    assert_false(ab_megatron_fc2_of("a.mlp.linear_fc2.bias", name, sizeof name));
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

/* A rank's file of a new folder, from `size` bytes. */
static void write_rank(const char *folder, const char *rank, const char *bytes, size_t size) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, rank);
    assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
    snprintf(path, sizeof path, "%s/%s/model_optim_rng.pt", folder, rank);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static void remove_rank(const char *folder, const char *rank) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s/model_optim_rng.pt", folder, rank);
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof path, "%s/%s", folder, rank);
    assert_int_equal(rmdir(path), 0);
}

/* Opens the ranks of the folder and reads all that they list; false: refused. */
static bool ranks_survive(const char *folder, bool *noted) {
    ab_tensorfile *file = NULL;
    if (ab_tensorfile_open_set(folder, &file) != AB_OK) return false;
    bool good = true;
    *noted = file->note != NULL;
    for (int i = 0; i < file->count; i++) {
        const ab_tensor_entry *e = &file->tensor[i];
        if (!e->element->format || e->count > 1 << 16) continue;
        float *values = calloc((size_t)e->count + 1, sizeof *values);
        good = ab_tensorfile_read(file, e, values) == AB_OK && good;
        free(values);
    }
    ab_tensorfile_close(file);
    return good;
}

/* The ranks of two models, a rank that is cut, and ranks with bytes of others. */
static void ranks_that_disagree_are_kept_apart_or_refused(void **state) {
    (void)state;
    static const char *const ranks[] = {"mp_rank_00", "mp_rank_01"};
    char folder[] = "/tmp/ampbench-ranks-XXXXXX";
    size_t size, other_size;
    bool noted;
    char *bytes = read_all(GOLDEN "mcore/tensor/iter_0000005/mp_rank_00/model_optim_rng.pt", &size),
         *other = read_all(GOLDEN "mcore/ranks/iter_0000005/mp_rank_01_001/model_optim_rng.pt", &other_size);
    assert_non_null(mkdtemp(folder));
    write_rank(folder, ranks[0], bytes, size);
    write_rank(folder, ranks[1], other, other_size);
    assert_true(ranks_survive(folder, &noted));
    assert_true(noted);
    write_rank(folder, ranks[1], bytes, size / 2);
    assert_false(ranks_survive(folder, &noted));
    for (size_t i = 0; i < size; i += 13) { /* nothing that it says leads outside */
        const char old = bytes[i];
        bytes[i] = (char)(old ^ (1 << i % 8));
        write_rank(folder, ranks[1], bytes, size);
        bytes[i] = old;
        (void)ranks_survive(folder, &noted);
    }
    write_rank(folder, ranks[1], bytes, size);
    assert_true(ranks_survive(folder, &noted));
    for (size_t i = 0; i < AB_COUNT_OF(ranks); i++) remove_rank(folder, ranks[i]);
    assert_int_equal(rmdir(folder), 0);
    free(bytes);
    free(other);
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
        cmocka_unit_test(ranks_of_megatron_are_put_together),
        cmocka_unit_test(layouts_of_megatron_are_put_together),
        cmocka_unit_test(dist_checkpointing_of_megatron_is_a_set),
        cmocka_unit_test(shards_of_unknown_modules_keep_their_ranks),
        cmocka_unit_test(names_of_megatron_tell_the_split),
        cmocka_unit_test(objects_beside_tensors_are_values),
        cmocka_unit_test(no_byte_of_the_metadata_leads_outside),
        cmocka_unit_test(ranks_that_disagree_are_kept_apart_or_refused),
        cmocka_unit_test(indices_that_lie_are_refused),
        cmocka_unit_test(a_folder_without_a_set_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
