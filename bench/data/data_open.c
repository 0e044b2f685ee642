/* Opening a data source and fitting it to a net, the order of the samples, and filling a batch. */
#define _POSIX_C_SOURCE 200809L
#include "bench/data/data.h"

#include "bench/data/greys.h"
#include "bench/data/idx.h"
#include "kernels/core/rng.h"
#include "kernels/core/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define AB_DATA(name) extern const ab_data_source ab_data_source_##name;
#include "bench/data/data.def"
#undef AB_DATA

static const ab_data_source *const sources[] = {
#define AB_DATA(name) &ab_data_source_##name,
#include "bench/data/data.def"
#undef AB_DATA
};

static const char *const normalize_names[] = {
    [AB_NORMALIZE_NONE] = "none", [AB_NORMALIZE_UNIT] = "unit", [AB_NORMALIZE_STANDARD] = "standard"};

int ab_data_source_count(void) { return (int)AB_COUNT_OF(sources); }
const ab_data_source *ab_data_source_at(int i) { return sources[i]; }

ab_status ab_normalize_find(const char *name, ab_normalize *mode) {
    const int count = (int)AB_COUNT_OF(normalize_names);
    for (int i = 0; i < count; i++) {
        if (strcmp(name, normalize_names[i]) != 0) continue;
        *mode = (ab_normalize)i;
        return AB_OK;
    }
    return ab_fail(
        AB_CONFIG,
        "--normalize: expected none, unit or standard, or MEAN/STD of the pixels / 255, one pair or "
        "one a channel, such as 0.1307/0.3081, found '%s'",
        name);
}

/* ---- opening --------------------------------------------------------------------------------- */

static ab_status unknown_source(const char *name) {
    const char *names[AB_COUNT_OF(sources)];
    for (size_t i = 0; i < AB_COUNT_OF(sources); i++) names[i] = sources[i]->name;
    char word[64];
    ab_text_show(word, sizeof word, "%.*s", (int)strcspn(name, ":"), name);
    const char *near = ab_nearest(word, names, (int)AB_COUNT_OF(names));
    return ab_fail(AB_CONFIG, "--data: expected a data source or a directory, found '%s'%s%s%s", name,
                   near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

const char *ab_input_kind_text(ab_input_kind kind) {
    static const char *const texts[] = {
        [AB_INPUT_IMAGES] = "images", [AB_INPUT_VALUES] = "numbers", [AB_INPUT_TOKENS] = "tokens"};
    return texts[kind];
}

static bool channels_fit(const ab_data_source *source, const ab_data_shape *shape) {
    return shape->input != AB_INPUT_IMAGES || source->channels == 0 || source->channels == shape->x.dim[2];
}

const char *ab_data_default(const ab_data_shape *shape) {
    for (size_t i = 0; i < AB_COUNT_OF(sources); i++)
        if (sources[i]->kind == shape->input && !sources[i]->reads_path && channels_fit(sources[i], shape))
            return sources[i]->name;
    return NULL;
}

static ab_status wrong_kind(const char *name, ab_input_kind found, const ab_data_shape *shape) {
    const char *other = ab_data_default(shape);
    return ab_fail(AB_CONFIG, "--data %s: it holds %s, the net's input is %s; try --data %s", name,
                   ab_input_kind_text(found), ab_input_kind_text(shape->input),
                   other ? other : "arrays:PATH");
}

static ab_status check_directory(const char *name, const ab_data_request *request) {
    struct stat info;
    bool found = stat(name, &info) == 0;
    if (found && request->shape->input == AB_INPUT_TOKENS)
        return ab_fail(AB_CONFIG, "--data %s: say how to read the text: bytes:%s or words:%s", name, name,
                       name);
    if (found && request->shape->input == AB_INPUT_VALUES)
        return ab_fail(AB_CONFIG, "--data %s: say what it is: arrays:%s", name, name);
    if (found && S_ISDIR(info.st_mode)) return AB_OK;
    if (found || (strchr(name, '/') && !strchr(name, ':')))
        return ab_fail(AB_INPUT, "--data %s: expected a directory with IDX files, found %s", name,
                       found ? "a file" : "nothing there");
    return unknown_source(name);
}

static ab_status load_directory(ab_data *data, const char *name, const ab_data_request *request) {
    data->name = "idx";
    AB_TRY(check_directory(name, request));
    return ab_idx_load(data, name, 0);
}

/* Whether `name` is the source's name, or its name, a colon and a path. */
static bool is_called(const ab_data_source *source, const char *name, const char **path) {
    size_t length = strlen(source->name);
    *path = NULL;
    if (strncmp(name, source->name, length) != 0) return false;
    if (name[length] == ':') *path = name + length + 1;
    return name[length] == '\0' || name[length] == ':';
}

/* Whether the source can be asked so, for an input of this kind. */
static ab_status check_source(const ab_data_source *source, const char *name,
                              const ab_data_request *request) {
    if (source->reads_path && (!request->path || !*request->path))
        return ab_fail(AB_CONFIG, "--data %s: expected %s:PATH, found no path", name, source->name);
    if (!source->reads_path && request->path)
        return ab_fail(AB_CONFIG, "--data %s: the source %s reads no path", name, source->name);
    bool arrays = source->kind == AB_INPUT_VALUES && source->reads_path; /* may hold anything */
    if (source->kind != request->shape->input && !arrays)
        return wrong_kind(name, source->kind, request->shape);
    return AB_OK;
}

static ab_status load_source(ab_data *data, const ab_data_source *source, const char *name,
                             const ab_data_request *request) {
    data->name = source->name;
    AB_TRY(check_source(source, name, request));
    return source->load(data, request);
}

static ab_status load(ab_data *data, const char *name, const ab_data_shape *shape, uint64_t seed) {
    ab_data_request request = {.shape = shape, .seed = seed};
    for (size_t i = 0; i < AB_COUNT_OF(sources); i++)
        if (is_called(sources[i], name, &request.path)) return load_source(data, sources[i], name, &request);
    return load_directory(data, name, &request);
}

ab_status ab_data_check(const char *name_or_path, const ab_data_shape *shape) {
    ab_data_request request = {.shape = shape};
    for (size_t i = 0; i < AB_COUNT_OF(sources); i++)
        if (is_called(sources[i], name_or_path, &request.path))
            return check_source(sources[i], name_or_path, &request);
    return check_directory(name_or_path, &request);
}

static ab_status fit(ab_data *data) {
    const int64_t rows = data->stored_height, columns = data->stored_width;
    const ab_shape *want = &data->shape.x;
    const int64_t height = want->dim[0], width = want->dim[1], channels = want->dim[2];
    if (height < rows || width < columns || channels != data->channels)
        return ab_fail(
            AB_CONFIG,
            "--data %s: its images are %lldx%lldx%lld, the net's input is %lldx%lldx%lld: expected an input "
            "at least as high and wide and with as many channels (--data synthetic_images has every size)",
            data->name, (long long)rows, (long long)columns, (long long)data->channels, (long long)height,
            (long long)width, (long long)channels);
    data->height = height;
    data->width = width;
    if (height != rows || width != columns)
        ab_text_show(data->adapted, sizeof data->adapted, "%lldx%lld zero-padded to %lldx%lld",
                     (long long)rows, (long long)columns, (long long)height, (long long)width);
    return AB_OK;
}

/* Mean and standard deviation of all pixels of the training split, padding (0) included. */
static ab_status measure(ab_data *data) {
    const ab_images *images = &data->split[AB_SPLIT_TRAIN];
    const double count = (double)(images->count * data->height * data->width * data->channels);
    const int64_t bytes = images->count * data->stored_height * data->stored_width * data->channels;
    const ab_grey_sums sums = ab_block_greys(&images->pixels, images->pixel, bytes);
    const double mean = (double)sums.sum / count;
    data->mean = mean / 255.0;
    data->std = sqrt((double)sums.squares / count - mean * mean) / 255.0;
    if (data->std > 0) return AB_OK;
    return ab_fail(AB_INPUT, "%s: expected training images with some contrast, found all pixels equal",
                   data->origin);
}

static ab_status check_targets(const ab_data *data, const char *name) {
    static const char *const found[] = {[AB_LABELS_BYTES] = "a class id a sample",
                                        [AB_LABELS_IDS] = "class ids",
                                        [AB_LABELS_NUMBERS] = "numbers",
                                        [AB_LABELS_NEXT] = "the next tokens"};
    const ab_target_kind want = data->shape.targets;
    const int64_t each = data->labels_per_sample ? data->labels_per_sample : 1;
    bool ids = data->labels == AB_LABELS_BYTES || data->labels == AB_LABELS_IDS, fits = false;
    if (want == AB_TARGETS_CLASSES) fits = ids && each == ab_shape_count(&data->shape.y);
    if (want == AB_TARGETS_ONE_HOT) fits = ids && each == 1 && data->classes <= data->shape.y.dim[0];
    if (want == AB_TARGETS_TOKENS) fits = data->labels == AB_LABELS_NEXT;
    if (want == AB_TARGETS_VALUES)
        fits = data->labels == AB_LABELS_NUMBERS && each == ab_shape_count(&data->shape.y);
    static const char *const wanted[] = {[AB_TARGETS_CLASSES] = "class ids",
                                         [AB_TARGETS_ONE_HOT] = "one-hot classes",
                                         [AB_TARGETS_TOKENS] = "the next tokens",
                                         [AB_TARGETS_VALUES] = "numbers"};
    char text[AB_SHAPE_TEXT];
    if (fits) return AB_OK;
    return ab_fail(AB_CONFIG, "--data %s: its targets are %s (%lld a sample), the net's are %s %s a sample",
                   name, found[data->labels], (long long)each, wanted[want],
                   ab_shape_text(&data->shape.y, text));
}

static ab_status open_data(ab_data *data, const char *name, uint64_t seed) {
    data->std = 1;
    AB_TRY(load(data, name, &data->shape, seed));
    if (data->shape.input == AB_INPUT_IMAGES && data->stored_height) {
        AB_TRY(fit(data));
        AB_TRY(measure(data));
    }
    return check_targets(data, name);
}

ab_status ab_data_open(const char *name_or_path, const ab_data_shape *shape, uint64_t seed, ab_data **data) {
    *data = calloc(1, sizeof **data);
    if (!*data) return ab_fail(AB_NO_MEMORY, "cannot allocate a data set");
    (*data)->shape = *shape;
    ab_status status = open_data(*data, name_or_path, seed);
    if (status != AB_OK) {
        ab_data_close(*data);
        *data = NULL;
    }
    return status;
}

ab_status ab_data_open_images(const char *name_or_path, int64_t height, int64_t width, int64_t channels,
                              uint64_t seed, ab_data **data) {
    const ab_data_shape shape = {.x = {.ndim = 3, .dim = {height, width, channels}}};
    return ab_data_open(name_or_path, &shape, seed, data);
}

void ab_data_close(ab_data *data) {
    if (!data) return;
    for (int i = 0; i < 2; i++) {
        ab_block_free(&data->split[i].pixels);
        ab_block_free(&data->split[i].labels);
    }
    free(data);
}

/* ---- order ----------------------------------------------------------------------------------- */

ab_status ab_data_order_create(ab_data_order *order, int64_t count, int64_t batch, bool shuffled,
                               uint64_t seed) {
    *order = (ab_data_order){.count = count, .batch = batch, .shuffled = shuffled, .seed = seed, .epoch = -1};
    if (batch < 1 || batch > count)
        return ab_fail(AB_CONFIG, "--batch: expected 1 to %lld, the size of the training set, found %lld",
                       (long long)count, (long long)batch);
    if (!shuffled) return AB_OK;
    order->permutation = malloc((size_t)count * sizeof *order->permutation);
    return order->permutation
               ? AB_OK
               : ab_fail(AB_NO_MEMORY, "cannot allocate the order of %lld samples", (long long)count);
}

void ab_data_order_destroy(ab_data_order *order) {
    free(order->permutation);
    order->permutation = NULL;
}

/* Fisher-Yates shuffle from the last element down (Knuth, The Art of Computer Programming 2, algorithm 3.4.2
 * P). */
static void shuffle(ab_data_order *order, int64_t epoch) {
    int64_t *permutation = order->permutation;
    for (int64_t i = 0; i < order->count; i++) permutation[i] = i;
    for (int64_t i = order->count - 1; i > 0; i--) {
        uint64_t index = (uint64_t)i;
        int64_t other = (int64_t)ab_rng_below(order->seed, AB_RNG_ORDER, (uint32_t)epoch, index, index + 1);
        int64_t held = permutation[i];
        permutation[i] = permutation[other];
        permutation[other] = held;
    }
    order->epoch = epoch;
}

void ab_data_order_at(ab_data_order *order, int64_t step, int64_t *index) {
    const int64_t batches = order->count / order->batch;
    const int64_t epoch = step / batches, first = step % batches * order->batch;
    if (order->shuffled && order->epoch != epoch) shuffle(order, epoch);
    for (int64_t i = 0; i < order->batch; i++)
        index[i] = order->shuffled ? order->permutation[first + i] : first + i;
}
