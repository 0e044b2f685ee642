/* Writes a batch: images scaled and padded, tokens, numbers, and targets in the net's form. The caller
 * chooses the samples. */
#include "bench/data/data.h"

#include <string.h>

enum { GREYS = 256 };

/* ---- samples --------------------------------------------------------------------------------- */

/* The fp32 value of every pixel byte, each rounded once, and of the border: of all channels, or of each. */
typedef struct pixel_values {
    int64_t channels;
    float pixel[AB_PIXEL_CHANNELS][GREYS], border[AB_PIXEL_CHANNELS];
} pixel_values;

static void make_values(const ab_data *data, ab_normalize mode, pixel_values *value) {
    const bool given = mode == AB_NORMALIZE_GIVEN, moved = given || mode == AB_NORMALIZE_STANDARD;
    value->channels = given ? data->pixels.channels : 1;
    for (int64_t c = 0; c < value->channels; c++) {
        const double mean = given ? data->pixels.mean[c] : data->mean,
                     std = given ? data->pixels.std[c] : data->std;
        for (int grey = 0; grey < GREYS; grey++) {
            const double x = mode == AB_NORMALIZE_NONE ? grey : grey / 255.0;
            value->pixel[c][grey] = (float)(moved ? (x - mean) / std : x);
        }
        value->border[c] = data->pixels.zero_border ? 0.0f : value->pixel[c][0];
    }
}

/* n values, from the first channel on. */
static float *fill_border(float *out, const pixel_values *value, int64_t n) {
    if (value->channels == 1)
        for (int64_t i = 0; i < n; i++) out[i] = value->border[0];
    else
        for (int64_t i = 0; i < n; i++) out[i] = value->border[i % value->channels];
    return out + n;
}

static float *fill_pixels(float *out, const pixel_values *value, const uint8_t *pixel, int64_t n) {
    if (value->channels == 1)
        for (int64_t i = 0; i < n; i++) out[i] = value->pixel[0][pixel[i]];
    else
        for (int64_t i = 0; i < n; i++) out[i] = value->pixel[i % value->channels][pixel[i]];
    return out + n;
}

/* One image with its border. */
static float *fill_image(const ab_data *data, const pixel_values *value, const uint8_t *pixel, float *out) {
    const int64_t top = (data->height - data->stored_height) / 2,
                  bottom = data->height - data->stored_height - top;
    const int64_t left = (data->width - data->stored_width) / 2,
                  right = data->width - data->stored_width - left;
    const int64_t row = data->width * data->channels, stored_row = data->stored_width * data->channels;
    out = fill_border(out, value, top * row);
    for (int64_t y = 0; y < data->stored_height; y++) {
        out = fill_border(out, value, left * data->channels);
        out = fill_pixels(out, value, pixel + y * stored_row, stored_row);
        out = fill_border(out, value, right * data->channels);
    }
    return fill_border(out, value, bottom * row);
}

static void fill_images(const ab_data *data, const ab_images *source, ab_normalize mode, const int64_t *index,
                        int64_t n, float *images) {
    const int64_t bytes = data->stored_height * data->stored_width * data->channels;
    pixel_values value;
    make_values(data, mode, &value);
    for (int64_t i = 0; i < n; i++)
        images = fill_image(data, &value, source->pixel + index[i] * bytes, images);
}

/* Copies elements of four bytes, `each` per sample. */
static void copy_words(const uint8_t *source, int64_t each, const int64_t *index, int64_t n, void *to) {
    const size_t bytes = (size_t)each * 4;
    for (int64_t i = 0; i < n; i++)
        memcpy((char *)to + (size_t)i * bytes, source + (size_t)index[i] * bytes, bytes);
}

/* ---- targets --------------------------------------------------------------------------------- */

static int32_t class_of(const ab_data *data, const ab_images *source, int64_t sample) {
    int32_t id;
    if (data->labels == AB_LABELS_BYTES) return source->label[sample];
    memcpy(&id, source->label + (size_t)sample * sizeof id, sizeof id);
    return id;
}

static void fill_one_hot(const ab_data *data, const ab_images *source, const int64_t *index, int64_t n,
                         float *targets) {
    const int64_t classes = data->shape.y.dim[0];
    memset(targets, 0, (size_t)(n * classes) * sizeof *targets);
    for (int64_t i = 0; i < n; i++) targets[i * classes + class_of(data, source, index[i])] = 1.0f;
}

static void fill_targets(const ab_data *data, const ab_images *source, const int64_t *index, int64_t n,
                         void *targets) {
    const int64_t each = ab_shape_count(&data->shape.y);
    if (data->shape.targets == AB_TARGETS_ONE_HOT)
        fill_one_hot(data, source, index, n, targets);
    else if (data->labels == AB_LABELS_BYTES)
        for (int64_t i = 0; i < n; i++) ((int32_t *)targets)[i] = source->label[index[i]];
    else if (data->labels != AB_LABELS_NEXT)
        copy_words(source->label, each, index, n, targets);
    else /* samples are consecutive windows of one stream */
        copy_words(source->pixel + sizeof(int32_t), each, index, n, targets);
}

void ab_data_fill(const ab_data *data, ab_split split, ab_normalize mode, const int64_t *index, int64_t n,
                  void *samples, void *targets) {
    const ab_images *source = &data->split[split];
    if (samples && data->stored_height)
        fill_images(data, source, mode, index, n, samples);
    else if (samples)
        copy_words(source->pixel, ab_shape_count(&data->shape.x), index, n, samples);
    fill_targets(data, source, index, n, targets);
}
