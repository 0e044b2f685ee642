/* Training of the larger networks agrees with PyTorch: attention with causal masks and dropout, embeddings,
 * LSTMs, autoencoders, a U-Net and ResNet-50; adamw and lamb with clipping, accumulation and schedules. Needs
 * no data package: texts and images are in tests/golden. */
#define _POSIX_C_SOURCE 200809L

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/golden_check.h"

static char unpacked[] = "bytes:/tmp/ampbench_golden_nets_XXXXXX";

/* Writes the files packed in classes.txt: its lines are "<class>/<file>", a tab and a line of that file. */
static int unpack_classes(void **state) {
    (void)state;
    char *text = ab_test_read(AB_SOURCE_DIR "/tests/golden/text/classes.txt"), *rest = text;
    if (!text || !mkdtemp(strchr(unpacked, '/'))) return -1;
    char path[GOLDEN_PATH];
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *tab = strchr(line, '\t');
        *tab = 0;
        snprintf(path, sizeof path, "%s/%.*s", strchr(unpacked, '/'), (int)strcspn(line, "/"), line);
        mkdir(path, 0700);
        snprintf(path, sizeof path, "%s/%s", strchr(unpacked, '/'), line);
        FILE *file = fopen(path, "a");
        if (!file || fprintf(file, "%s\n", tab + 1) < 0 || fclose(file) != 0) return -1;
    }
    free(text);
    golden_unpacked = unpacked;
    return 0;
}

static int remove_unpacked(void **state) {
    (void)state;
    char command[GOLDEN_PATH];
    snprintf(command, sizeof command, "rm -r %s", strchr(unpacked, '/'));
    return system(command);
}

static void language_models_match_pytorch(void **state) {
    (void)state;
    assert_int_equal(golden_for_each("tests/golden/nets", "bytes:tests/golden/text/stream.txt", golden_check),
                     7);
}

static void a_classifier_with_dropout_matches_pytorch(void **state) {
    (void)state;
    assert_int_equal(golden_for_each("tests/golden/nets", golden_packed, golden_check), 4);
}

/* vit_tiny, autoencoder and unet_small. */
static void networks_of_small_images_match_pytorch(void **state) {
    (void)state;
    assert_int_equal(golden_for_each("tests/golden/nets", "tests/golden/data", golden_check), 8);
}

static void resnet50_matches_pytorch(void **state) {
    (void)state;
    assert_int_equal(golden_for_each("tests/golden/nets", "arrays:tests/golden/colours.npz", golden_check),
                     1);
}

/* The traces' network is the built-in one, but for the size of its images and its classes. */
static void the_traced_resnet50_is_the_built_in_one(void **state) {
    (void)state;
    char path[GOLDEN_PATH];
    ab_net *small = NULL, *built_in = NULL;
    assert_int_equal(ab_net_load(golden_resolve("tests/golden/resnet50_64.json", path), &small), AB_OK);
    assert_int_equal(ab_net_load("resnet50", &built_in), AB_OK);
    assert_int_equal(small->ops, built_in->ops);
    for (int i = 0; i < small->ops; i++) {
        assert_string_equal(small->op[i].name, built_in->op[i].name);
        assert_ptr_equal(small->op[i].op, built_in->op[i].op);
        assert_memory_equal(small->op[i].input, built_in->op[i].input,
                            sizeof(int) * (size_t)small->op[i].inputs);
        for (int p = 0; p < small->op[i].params && strcmp(small->op[i].name, "fc") != 0; p++)
            assert_true(ab_shape_equal(&small->op[i].param[p].shape, &built_in->op[i].param[p].shape));
    }
    ab_net_free(small);
    ab_net_free(built_in);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(language_models_match_pytorch),
        cmocka_unit_test(a_classifier_with_dropout_matches_pytorch),
        cmocka_unit_test(networks_of_small_images_match_pytorch),
        cmocka_unit_test(resnet50_matches_pytorch),
        cmocka_unit_test(the_traced_resnet50_is_the_built_in_one),
    };
    return cmocka_run_group_tests(tests, unpack_classes, remove_unpacked);
}
