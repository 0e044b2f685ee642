/* Fuzz targets: data sets of the user. Samples and targets of whatever was accepted are drawn. */
#include "tests/fuzz/fuzz.h"

#include "bench/data/data.h"

enum { SIDE = 6, LENGTH = 4, VOCABULARY = 300 };

static const ab_data_shape images = {.x = {3, {SIDE, SIDE, 1}}};
static const ab_data_shape numbers = {
    .input = AB_INPUT_VALUES, .x = {1, {3}}, .targets = AB_TARGETS_VALUES, .y = {1, {2}}};
static const ab_data_shape classes = {
    .input = AB_INPUT_VALUES, .x = {2, {2, 2}}, .targets = AB_TARGETS_ONE_HOT, .y = {1, {5}}};
static const ab_data_shape stream = {.input = AB_INPUT_TOKENS,
                                     .x = {1, {LENGTH}},
                                     .vocabulary = VOCABULARY,
                                     .targets = AB_TARGETS_TOKENS,
                                     .y = {1, {LENGTH}}};
static const ab_data_shape kinds = {.input = AB_INPUT_TOKENS, .x = {1, {LENGTH}}, .vocabulary = VOCABULARY};

static void draw_all(const ab_data *data, ab_split split) {
    const int64_t count = data->split[split].count;
    const int64_t labels = data->labels_per_sample ? data->labels_per_sample : 1;
    float samples[SIDE * SIDE], targets[SIDE * SIDE];
    /* Blocks end at a page's end, so a read behind them need not be seen. */
    if (data->labels != AB_LABELS_NEXT && count > 0)
        fuzz_insist(data->split[split].labels.size >=
                    (size_t)(count * labels) * (data->labels == AB_LABELS_BYTES ? 1 : 4));
    for (int64_t i = 0; i < count && i < 64; i++) {
        const int64_t index = i < 32 ? i : count - 1 - (i - 32);
        ab_data_fill(data, split, (ab_normalize)(i % 3), &index, 1, samples, targets);
    }
}

static void try_data(const char *source, const ab_data_shape *shape) {
    ab_data *data = NULL;
    if (ab_data_open(source, shape, 1, &data) != AB_OK) return;
    fuzz_passed();
    draw_all(data, AB_SPLIT_TRAIN);
    draw_all(data, AB_SPLIT_TEST);
    ab_data_close(data);
}

/* The input's parts become the files of these names. */
static void place(const char *const *names, int count, const uint8_t *data, size_t size) {
    const uint8_t *at = data;
    for (int i = 0; i < count; i++) {
        fuzz_part part = fuzz_next_part(&at, data + size);
        fuzz_file(names[i], part.byte, part.size);
    }
}

void fuzz_idx(const uint8_t *data, size_t size) {
    static const char *const plain[] = {"./set/train-labels-idx1-ubyte", "./set/train-images-idx3-ubyte",
                                        "./set/t10k-labels-idx1-ubyte", "./set/t10k-images-idx3-ubyte"};
    static const char *const packed[] = {
        "./set/train-labels-idx1-ubyte.gz", "./set/train-images-idx3-ubyte.gz",
        "./set/t10k-labels-idx1-ubyte.gz", "./set/t10k-images-idx3-ubyte.gz"};
    const bool gzip = size > 0 && data[size - 1] & 1; /* zlib reads files that are not packed too */
    place(gzip ? packed : plain, 4, data, size);
    try_data("./set", &images);
}

void fuzz_images(const uint8_t *data, size_t size) {
    static const char *const names[] = {"set/cats/1.npy", "set/cats/2.npy", "set/dogs/1.npy"};
    place(names, 3, data, size);
    try_data("images:set", &images);
}

void fuzz_arrays(const uint8_t *data, size_t size) {
    static const char *const names[] = {"set/x.npy", "set/y.npy", "set/x_test.npy", "set/y_test.npy",
                                        "set.npz"};
    static const ab_data_shape *const shapes[] = {&numbers, &classes, &images, &kinds};
    const ab_data_shape *shape = shapes[size ? data[size - 1] % 4 : 0];
    place(names, 5, data, size);
    try_data("arrays:set", shape);
    try_data("arrays:set.npz", shape);
}

/* Four files: a folder of two, and two classes of one each. */
void fuzz_text(const uint8_t *data, size_t size) {
    static const char *const names[] = {"set/a.txt", "set/b.txt", "set/cats/1.txt", "set/dogs/1.txt"};
    place(names, 4, data, size);
    try_data("bytes:set", &stream);
    try_data("words:set", &stream);
    try_data("bytes:set", &kinds);
    try_data("words:set", &kinds);
}
