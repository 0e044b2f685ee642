/* Weights of another framework: other names, other orders of axes, tensors nobody wants; and what is said of
 * a table or a file that does not fit. */
#define _POSIX_C_SOURCE 200809L
#include "bench/train/init/init_map.h"

#include "bench/tensorfile/safetensors.h"
#include "tests/unit/probe_testing.h"

#include <unistd.h>

enum { MOST = 1024, TENSORS = 16 };

static char weights[64], table[64];

static int make_paths(void **state) {
    (void)state;
    snprintf(weights, sizeof weights, "/tmp/ampbench_map_%ld.safetensors", (long)getpid());
    snprintf(table, sizeof table, "/tmp/ampbench_map_%ld.txt", (long)getpid());
    return 0;
}

static int remove_files(void **state) {
    (void)state;
    unlink(weights);
    unlink(table);
    return 0;
}

static void write_table(const char *text) {
    FILE *file = fopen(table, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void read_values(const ab_cell *cell, const char *name, ab_shape *shape, float *values) {
    if (ab_cell_read(cell, name, shape, NULL) != AB_OK) fail_msg("%s", ab_error_message());
    assert_true(ab_shape_count(shape) <= MOST);
    assert_int_equal(ab_cell_read(cell, name, shape, values), AB_OK);
}

/* The cell's weights as another framework would write them: kernels height, width, in, out; matrices in, out.
 */
static void write_foreign(const ab_cell *cell) {
    static const char *const names[][2] = {{"conv1.weight", "backbone/conv1/kernel"},
                                           {"conv1.bias", "backbone/conv1/bias"},
                                           {"conv2.weight", "backbone/conv2/kernel"},
                                           {"conv2.bias", "backbone/conv2/bias"},
                                           {"bn1.weight", "bn1.gamma"},
                                           {"bn1.bias", "bn1.beta"},
                                           {"bn1.running_mean", "bn1.running_mean"},
                                           {"bn1.running_var", "bn1.running_var"},
                                           {"fc.weight", "head/kernel"},
                                           {"fc.bias", "head/bias"}};
    static float values[TENSORS][MOST], moved[TENSORS][MOST];
    ab_safetensor_item items[TENSORS];
    int count = 0;
    for (size_t i = 0; i < AB_COUNT_OF(names); i++, count++) {
        ab_shape s;
        read_values(cell, names[i][0], &s, values[i]);
        items[i] = (ab_safetensor_item){names[i][1], s, values[i], NULL};
        if (s.ndim < 2) continue;
        int64_t inner = s.ndim == 4 ? s.dim[2] * s.dim[3] : 1, in = s.dim[1], out = s.dim[0];
        for (int64_t o = 0; o < out; o++)
            for (int64_t c = 0; c < in; c++)
                for (int64_t k = 0; k < inner; k++)
                    moved[i][(k * in + c) * out + o] = values[i][(o * in + c) * inner + k];
        items[i].data = moved[i];
        items[i].shape =
            s.ndim == 4 ? (ab_shape){4, {s.dim[2], s.dim[3], in, out}} : (ab_shape){2, {in, out}};
    }
    items[count++] = (ab_safetensor_item){"bn1.num_batches_tracked", {1, {1}}, values[0], NULL};
    items[count++] = (ab_safetensor_item){"optimizer/step", {1, {1}}, values[0], NULL};
    assert_int_equal(ab_safetensors_write(weights, items, count, NULL), AB_OK);
}

static const char good_table[] = "# kernels are height, width, in, out there\n"
                                 "conv1.weight backbone/conv1/kernel permute=3,2,0,1\n"
                                 "conv2.weight  backbone/conv2/kernel  permute=3,2,0,1 # the same\n"
                                 "\n"
                                 "conv*.bias backbone/conv*/bias\n"
                                 "bn1.weight bn1.gamma\r\n"
                                 "bn1.bias bn1.beta\n"
                                 "fc.weight head/kernel transpose\n"
                                 "fc.* head/*\n"
                                 "- optimizer/*";

static void another_frameworks_weights_are_read_by_a_table(void **state) {
    (void)state;
    static const char *const names[] = {"conv1.weight", "conv2.weight", "conv2.bias",      "bn1.weight",
                                        "bn1.bias",     "fc.weight",    "bn1.running_var", "fc.bias"};
    ab_net *net = pt_net(pt_ops);
    ab_cell_config config = pt_config(net, "O0", &ab_format_fp16, "sgd", NULL);
    ab_cell *cell = pt_cell(&config);
    write_foreign(cell);
    write_table(good_table);
    config.seed = 99;
    config.init_file = weights;
    config.init_map = table;
    ab_cell *read = pt_cell(&config);
    for (size_t i = 0; i < AB_COUNT_OF(names); i++) {
        ab_shape shape;
        float a[MOST], b[MOST];
        read_values(cell, names[i], &shape, a);
        read_values(read, names[i], &shape, b);
        assert_memory_equal(a, b, (size_t)ab_shape_count(&shape) * sizeof *a);
    }
    ab_cell_destroy(cell);
    ab_cell_destroy(read);
    ab_net_free(net);
}

static void refused(ab_cell_config config, const char *text, const char *message) {
    ab_cell *none = NULL;
    write_table(text);
    config.init_file = weights;
    config.init_map = table;
    assert_int_equal(ab_status_exit(ab_cell_create(&config, &none)), 2);
    assert_null(none);
    if (!strstr(ab_error_message(), message)) fail_msg("%s", ab_error_message());
}

static void what_does_not_fit_is_named(void **state) {
    (void)state;
    ab_net *net = pt_net(pt_ops);
    ab_cell_config config = pt_config(net, "O0", &ab_format_fp16, "sgd", NULL);
    ab_cell *cell = pt_cell(&config);
    write_foreign(cell);
    refused(config, "", "'conv1.weight' is missing");
    refused(config, "", "differ from those of network tiny");
    char text[sizeof good_table + 64];
    snprintf(text, sizeof text, "%.*s", (int)(strlen(good_table) - strlen("- optimizer/*")), good_table);
    refused(config, text, "'optimizer/step' is unknown here");
    snprintf(text, sizeof text, "conv1.weight backbone/conv1/kernel\n%s", good_table);
    refused(config, text, "'backbone/conv1/kernel' is [3, 3, 1, 4] there and [4, 1, 3, 3] here");
    snprintf(text, sizeof text, "%s\nhead.weight x", good_table);
    refused(config, text, ":11: nothing is called 'head.weight'");
    snprintf(text, sizeof text, "fc.bias head/bias transpose\n%s", good_table);
    refused(config, text, ":1: 2 axes are reordered, 'fc.bias' has 1");
    refused(config, "fc.weight\n", ":1: expected HERE THERE");
    refused(config, "\nfc.weight a b c\n", ":2: expected HERE THERE");
    refused(config, "fc.weight head turn\n", "expected transpose or permute=AXES, found 'turn'");
    refused(config, "fc.weight head permute=0,0\n", "each once");
    refused(config, "fc.weight head permute=0,2\n", "without a gap");
    refused(config, "fc.weight head permute=\n", "axes from 0");
    refused(config, "fc.* head\n", "a * in both names or in none");
    refused(config, "fc.** head.**\n", "one * in a name");
    ab_cell_destroy(cell);
    ab_net_free(net);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_frameworks_weights_are_read_by_a_table),
        cmocka_unit_test(what_does_not_fit_is_named),
    };
    return cmocka_run_group_tests(tests, make_paths, remove_files);
}
