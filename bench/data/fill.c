/* Writes a batch: images scaled and padded, tokens, numbers, and targets in the net's form. The caller
 * chooses the samples. */
#include "bench/data/data.h"

#include "kernels/core/parallel.h"
#include "kernels/format/convert.h"
#include "kernels/vec/vec_lookup.h"

#include <math.h>
#include <string.h>

/* CHUNK: pixels of a thread; FRAME: most bytes of an image that is framed before it is looked up. */
enum { GREYS = AB_LOOKUP, MOST_BYTES = 4, CHUNK = 1 << 13, FRAME = 1 << 13 };

/* ---- samples --------------------------------------------------------------------------------- */

/* The stored value of every pixel byte, rounded once, or once more to a half format, and of the border: of
 * all channels, or of each. */
typedef struct pixel_values {
    int64_t channels, bytes; /* bytes of a value */
    char pixel[AB_PIXEL_CHANNELS][GREYS * MOST_BYTES], border[AB_PIXEL_CHANNELS][MOST_BYTES];
    bool dark;             /* the border is zero bytes */
    ab_lookup_table table; /* of the only channel */
} pixel_values;

static int64_t channels_of(const ab_data *data, ab_normalize mode) {
    return mode == AB_NORMALIZE_GIVEN ? data->pixels.channels : 1;
}

/* The fp32 values of a channel's pixel bytes, each rounded once, and of its border. */
static float values_of(const ab_data *data, ab_normalize mode, int64_t channel, float value[GREYS]) {
    const bool given = mode == AB_NORMALIZE_GIVEN, moved = given || mode == AB_NORMALIZE_STANDARD;
    const double mean = given ? data->pixels.mean[channel] : data->mean,
                 std = given ? data->pixels.std[channel] : data->std;
    for (int grey = 0; grey < GREYS; grey++) {
        const double x = mode == AB_NORMALIZE_NONE ? grey : grey / 255.0;
        value[grey] = (float)(moved ? (x - mean) / std : x);
    }
    return data->pixels.zero_border ? 0.0f : value[0];
}

static void store(void *to, const float *values, const ab_format *half, int64_t n) {
    if (half)
        ab_narrow(to, half, values, n);
    else
        memcpy(to, values, (size_t)n * sizeof *values);
}

static void make_values(const ab_data *data, ab_normalize mode, const ab_format *half, pixel_values *value) {
    static const char zero[MOST_BYTES];
    float greys[GREYS];
    value->channels = channels_of(data, mode);
    value->bytes = half ? 2 : 4;
    for (int64_t c = 0; c < value->channels; c++) {
        const float border = values_of(data, mode, c, greys);
        store(value->pixel[c], greys, half, GREYS);
        store(value->border[c], &border, half, 1);
    }
    value->dark = value->channels == 1 && memcmp(value->border[0], zero, (size_t)value->bytes) == 0;
    if (value->channels == 1) ab_vec_lookup_get()->prepare(&value->table, value->pixel[0], (int)value->bytes);
}

/* n values, from the first channel on. */
static char *fill_border(char *out, const pixel_values *value, int64_t n) {
    const size_t bytes = (size_t)value->bytes;
    if (value->dark)
        memset(out, 0, (size_t)n * bytes);
    else
        for (int64_t i = 0; i < n; i++)
            memcpy(out + (size_t)i * bytes, value->border[i % value->channels], bytes);
    return out + (size_t)n * bytes;
}

static char *fill_pixels(char *out, const pixel_values *value, const uint8_t *pixel, int64_t n) {
    const size_t bytes = (size_t)value->bytes;
    if (value->channels == 1)
        ab_vec_lookup_get()->look_up(out, &value->table, pixel, n);
    else
        for (int64_t i = 0; i < n; i++)
            memcpy(out + (size_t)i * bytes, value->pixel[i % value->channels] + pixel[i] * bytes, bytes);
    return out + (size_t)n * bytes;
}

/* One image with its border. */
static char *fill_image(const ab_data *data, const pixel_values *value, const uint8_t *pixel, char *out) {
    const int64_t top = (data->height - data->stored_height) / 2,
                  bottom = data->height - data->stored_height - top;
    const int64_t left = (data->width - data->stored_width) / 2,
                  right = data->width - data->stored_width - left;
    const int64_t row = data->width * data->channels, stored_row = data->stored_width * data->channels;
    if (row == stored_row) return fill_pixels(out, value, pixel, data->stored_height * row);
    out = fill_border(out, value, top * row);
    for (int64_t y = 0; y < data->stored_height; y++) {
        out = fill_border(out, value, left * data->channels);
        out = fill_pixels(out, value, pixel + y * stored_row, stored_row);
        out = fill_border(out, value, right * data->channels);
    }
    return fill_border(out, value, bottom * row);
}

/* One image in a border that is black before the normalisation, too: `bytes` are a whole image whose border
 * is 0, so that one look-up does. */
static char *fill_framed(const ab_data *data, const pixel_values *value, const uint8_t *pixel, uint8_t *bytes,
                         char *out) {
    const int64_t top = (data->height - data->stored_height) / 2,
                  left = (data->width - data->stored_width) / 2;
    const size_t row = (size_t)(data->stored_width * data->channels);
    for (int64_t y = 0; y < data->stored_height; y++)
        memcpy(bytes + ((top + y) * data->width + left) * data->channels, pixel + (size_t)y * row, row);
    return fill_pixels(out, value, bytes, data->height * data->width * data->channels);
}

typedef struct image_job {
    const ab_data *data;
    const pixel_values *value;
    const uint8_t *pixel;
    const int64_t *index;
    int64_t n, chunk; /* images */
    char *images;
} image_job;

static void fill_chunk(void *argument, int64_t k, int thread) {
    const image_job *job = argument;
    const ab_data *data = job->data;
    const int64_t stored = data->stored_height * data->stored_width * data->channels, first = k * job->chunk,
                  end = first + job->chunk < job->n ? first + job->chunk : job->n;
    const int64_t size = data->height * data->width * data->channels;
    char *out = job->images + first * size * job->value->bytes;
    uint8_t frame[FRAME];
    const bool framed =
        job->value->channels == 1 && !data->pixels.zero_border && size <= FRAME && size > stored;
    (void)thread;
    if (framed) memset(frame, 0, (size_t)size);
    for (int64_t i = first; i < end; i++) {
        const uint8_t *pixel = job->pixel + job->index[i] * stored;
        out = framed ? fill_framed(data, job->value, pixel, frame, out)
                     : fill_image(data, job->value, pixel, out);
    }
}

static void fill_images(const ab_data *data, const ab_images *source, const pixel_values *value,
                        const int64_t *index, int64_t n, void *images) {
    image_job job = {data, value, source->pixel, index, n, n, images};
    const int64_t chunks = n * data->height * data->width * data->channels / CHUNK + 1;
    job.chunk = (n + chunks - 1) / chunks;
    if (job.chunk > 0) ab_parallel_for((n + job.chunk - 1) / job.chunk, fill_chunk, &job);
}

bool ab_data_is_finite(const ab_data *data, ab_normalize mode) {
    bool finite = data->stored_height > 0;
    for (int64_t c = 0; finite && c < channels_of(data, mode); c++) {
        float greys[GREYS];
        (void)values_of(data, mode, c, greys);
        for (int grey = 0; grey < GREYS; grey++) finite = finite && isfinite(greys[grey]);
    }
    return finite;
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
    pixel_values value;
    if (samples && data->stored_height) {
        make_values(data, mode, NULL, &value);
        fill_images(data, source, &value, index, n, samples);
    } else if (samples)
        copy_words(source->pixel, ab_shape_count(&data->shape.x), index, n, samples);
    fill_targets(data, source, index, n, targets);
}

void ab_data_fill_half(const ab_data *data, ab_split split, ab_normalize mode, const ab_format *half,
                       const int64_t *index, int64_t n, uint16_t *samples, void *targets) {
    const ab_images *source = &data->split[split];
    pixel_values value;
    make_values(data, mode, half, &value);
    fill_images(data, source, &value, index, n, samples);
    fill_targets(data, source, index, n, targets);
}
