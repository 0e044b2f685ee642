/* Opening a data source and fitting it to a net, the order of the samples, and filling a batch. */
#define _POSIX_C_SOURCE 200809L
#include "bench/data/data.h"

#include "bench/data/idx.h"
#include "kernels/core/nearest.h"
#include "kernels/core/rng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { GREYS = 256 };

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
const char *ab_normalize_name(ab_normalize mode) { return normalize_names[mode]; }

ab_status ab_normalize_find(const char *name, ab_normalize *mode) {
    const int count = (int)AB_COUNT_OF(normalize_names);
    for (int i = 0; i < count; i++) {
        if (strcmp(name, normalize_names[i]) != 0) continue;
        *mode = (ab_normalize)i;
        return AB_OK;
    }
    return ab_fail(AB_CONFIG, "--normalize: expected none, unit or standard, found '%s'", name);
}

/* ---- opening ---------------------------------------------------------------------------------------------- */

static ab_status unknown_source(const char *name) {
    const char *names[AB_COUNT_OF(sources)];
    for (size_t i = 0; i < AB_COUNT_OF(sources); i++) names[i] = sources[i]->name;
    const char *near = ab_nearest(name, names, (int)AB_COUNT_OF(names));
    return ab_fail(AB_CONFIG, "--data: expected a data source or a directory, found '%s'%s%s%s", name,
                   near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static ab_status load_directory(ab_data *data, const char *name) {
    struct stat info;
    bool found = stat(name, &info) == 0;
    data->name = "idx";
    if (found && S_ISDIR(info.st_mode)) return ab_idx_load(data, name, 0);
    if (found || strchr(name, '/'))
        return ab_fail(AB_INPUT, "--data %s: expected a directory with IDX files, found %s", name,
                       found ? "a file" : "nothing there");
    return unknown_source(name);
}

static ab_status load(ab_data *data, const char *name, uint64_t seed) {
    for (size_t i = 0; i < AB_COUNT_OF(sources); i++) {
        if (strcmp(name, sources[i]->name) != 0) continue;
        data->name = sources[i]->name;
        return sources[i]->load(data, seed);
    }
    return load_directory(data, name);
}

static ab_status fit(ab_data *data, int64_t height, int64_t width, int64_t channels) {
    const int64_t rows = data->stored_height, columns = data->stored_width;
    if (height < rows || width < columns || channels != data->channels)
        return ab_fail(
            AB_CONFIG,
            "--data %s: its images are %lldx%lldx%lld, the net's input is %lldx%lldx%lld: expected an input "
            "at least as high and wide and with as many channels",
            data->name, (long long)rows, (long long)columns, (long long)data->channels, (long long)height,
            (long long)width, (long long)channels);
    data->height = height;
    data->width = width;
    if (height != rows || width != columns)
        snprintf(data->adapted, sizeof data->adapted, "%lldx%lld zero-padded to %lldx%lld", (long long)rows,
                 (long long)columns, (long long)height, (long long)width);
    return AB_OK;
}

typedef struct grey_sums {
    uint64_t sum, squares; /* exact */
} grey_sums;

/* In parts whose sums fit 32 bits, for the compiler's vectors. */
static grey_sums sum_greys(const uint8_t *pixel, int64_t n) {
    enum { PART = 4096 }; /* 4096 * 255^2 < 2^32 */
    grey_sums total = {0, 0};
    for (int64_t i = 0; i < n; i += PART) {
        const int64_t end = n - i < PART ? n : i + PART;
        uint32_t sum = 0, squares = 0;
        for (int64_t j = i; j < end; j++) sum += pixel[j];
        for (int64_t j = i; j < end; j++) squares += (uint32_t)pixel[j] * pixel[j];
        total.sum += sum;
        total.squares += squares;
    }
    return total;
}

/* Mean and standard deviation of all pixels of the training split as the net sees them: padding is grey 0. */
static ab_status measure(ab_data *data) {
    const ab_images *images = &data->split[AB_SPLIT_TRAIN];
    const double count = (double)(images->count * data->height * data->width * data->channels);
    const grey_sums sums =
        sum_greys(images->pixel, images->count * data->stored_height * data->stored_width * data->channels);
    const double mean = (double)sums.sum / count;
    data->mean = mean / 255.0;
    data->std = sqrt((double)sums.squares / count - mean * mean) / 255.0;
    if (data->std > 0) return AB_OK;
    return ab_fail(AB_INPUT, "%s: expected training images with some contrast, found all pixels equal",
                   data->origin);
}

ab_status ab_data_open(const char *name_or_path, int64_t height, int64_t width, int64_t channels,
                       uint64_t seed, ab_data **data) {
    ab_status status = AB_OK;
    *data = calloc(1, sizeof **data);
    if (!*data) return ab_fail(AB_NO_MEMORY, "cannot allocate a data set");
    AB_TRY_GOTO(load(*data, name_or_path, seed));
    AB_TRY_GOTO(fit(*data, height, width, channels));
    AB_TRY_GOTO(measure(*data));
out:
    if (status != AB_OK) {
        ab_data_close(*data);
        *data = NULL;
    }
    return status;
}

void ab_data_close(ab_data *data) {
    if (!data) return;
    for (int i = 0; i < 2; i++) {
        ab_block_free(&data->split[i].pixels);
        ab_block_free(&data->split[i].labels);
    }
    free(data);
}

/* ---- order ------------------------------------------------------------------------------------------------ */

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

/* Fisher and Yates, from the last place down (Knuth, The Art of Computer Programming 2, algorithm 3.4.2 P). */
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

/* ---- batches ---------------------------------------------------------------------------------------------- */

/* The fp32 value of every grey, each rounded once. */
static void make_values(const ab_data *data, ab_normalize mode, float *value) {
    for (int grey = 0; grey < GREYS; grey++) {
        double x = mode == AB_NORMALIZE_NONE ? grey : grey / 255.0;
        value[grey] = (float)(mode == AB_NORMALIZE_STANDARD ? (x - data->mean) / data->std : x);
    }
}

static float *fill_border(float *out, float value, int64_t n) {
    for (int64_t i = 0; i < n; i++) out[i] = value;
    return out + n;
}

static float *fill_pixels(float *out, const float *value, const uint8_t *pixel, int64_t n) {
    for (int64_t i = 0; i < n; i++) out[i] = value[pixel[i]];
    return out + n;
}

/* One image between its borders: they are grey 0. */
static float *fill_image(const ab_data *data, const float *value, const uint8_t *pixel, float *out) {
    const int64_t top = (data->height - data->stored_height) / 2,
                  bottom = data->height - data->stored_height - top;
    const int64_t left = (data->width - data->stored_width) / 2,
                  right = data->width - data->stored_width - left;
    const int64_t row = data->width * data->channels, stored_row = data->stored_width * data->channels;
    out = fill_border(out, value[0], top * row);
    for (int64_t y = 0; y < data->stored_height; y++) {
        out = fill_border(out, value[0], left * data->channels);
        out = fill_pixels(out, value, pixel + y * stored_row, stored_row);
        out = fill_border(out, value[0], right * data->channels);
    }
    return fill_border(out, value[0], bottom * row);
}

void ab_data_fill(const ab_data *data, ab_split split, ab_normalize mode, const int64_t *index, int64_t n,
                  float *images, int32_t *labels) {
    const ab_images *source = &data->split[split];
    const int64_t bytes = data->stored_height * data->stored_width * data->channels;
    float value[GREYS];
    make_values(data, mode, value);
    for (int64_t i = 0; i < n; i++) {
        images = fill_image(data, value, source->pixel + index[i] * bytes, images);
        labels[i] = source->label[index[i]];
    }
}
