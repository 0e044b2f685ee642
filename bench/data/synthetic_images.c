/* Procedural images of the net's size and channels: no files, the same bytes on every machine. A class is one
 * of ten combinations of a colour (which channel is bright), a direction and a frequency of stripes; a sample
 * has them under a blurred spot, shifted and dimmed, with noise, by random numbers of (seed, sample). As many
 * training samples as fit 64 MiB, at most 4,096, and a quarter as many test samples. It replaces a missing
 * data set and does not represent any real task. */
#include "bench/data/data.h"
#include "bench/data/procedural.h"

#include "kernels/core/rng.h"
#include "kernels/core/text.h"

#include <math.h>
#include <stdio.h>

enum { CLASSES = 10, MOST = 4096, LEAST = 16 };
static const int64_t most_bytes = (int64_t)64 << 20;

typedef struct size {
    int64_t height, width, channels;
} size;

typedef struct sample {
    double x, y;             /* centre of the spot, in units of the shorter side */
    double along_x, along_y; /* direction across the stripes, times stripes per side */
    double phase, contrast, bright[3];
} sample;

static sample draw_sample(uint64_t seed, uint32_t number, uint8_t *label) {
    static const double direction[5][2] = {{1, 0}, {0.81, 0.59}, {0.31, 0.95}, {-0.31, 0.95}, {-0.81, 0.59}};
    ab_rng_block a = ab_rng_at(seed, AB_RNG_SYNTHETIC, number, 0);
    ab_rng_block b = ab_rng_at(seed, AB_RNG_SYNTHETIC, number, 1);
    const int class = (int)((uint64_t)a.word[0] * CLASSES >> 32);
    const double fine = (class < 5 ? 5.0 : 9.0) * ab_between(a.word[1], 0.9, 1.1);
    sample s = {.x = ab_between(b.word[0], 0.35, 0.65),
                .y = ab_between(b.word[1], 0.35, 0.65),
                .along_x = direction[class % 5][0] * fine,
                .along_y = direction[class % 5][1] * fine,
                .phase = ab_between(a.word[2], -0.25, 0.25),
                .contrast = ab_between(a.word[3], 0.6, 1.0)};
    for (int c = 0; c < 3; c++) s.bright[c] = c == class % 3 ? 1.0 : 0.55;
    *label = (uint8_t) class;
    return s;
}

/* Brightness without noise, 0 to 1; u and v in units of the shorter side. */
static double shade(const sample *s, double u, double v) {
    const double x = u - s->x, y = v - s->y, inside = 1.0 - 2.5 * (x * x + y * y);
    if (inside <= 0) return 0;
    return s->contrast * inside * inside *
           (0.5 + 0.5 * ab_approximate_sine(x * s->along_x + y * s->along_y + s->phase));
}

/* Difference of two random bytes: triangular, mean 0, standard deviation sqrt(2 * (256^2 - 1) / 12) =
 * 104.5. */
static int noise(uint32_t word) { return (int)(word & 0xFF) - (int)(word >> 8 & 0xFF); }

static uint8_t grey(double value) { return (uint8_t)(value <= 0 ? 0 : value >= 255 ? 255 : value + 0.5); }

static void make_sample(uint64_t seed, uint32_t number, const size *z, uint8_t *pixel, uint8_t *label) {
    static const double noise_level = 0.25; /* standard deviation of 26 pixel values */
    const sample s = draw_sample(seed, number, label);
    const double side = (double)(z->height < z->width ? z->height : z->width);
    ab_rng_block block = {{0}}; /* two values per word, eight per block */
    int64_t i = 0;
    for (int64_t row = 0; row < z->height; row++) {
        for (int64_t column = 0; column < z->width; column++) {
            const double light = shade(&s, (double)column / side, (double)row / side);
            for (int64_t c = 0; c < z->channels; c++, i++) {
                if (i % 8 == 0)
                    block = ab_rng_at(seed, AB_RNG_SYNTHETIC, number, AB_PROCEDURAL_NOISE + (uint64_t)i / 8);
                const uint32_t word = block.word[i % 8 / 2] >> (i % 2 * 16);
                const double colour = z->channels == 1 ? 1 : s.bright[c % 3];
                pixel[i] = grey(255.0 * light * colour + noise_level * noise(word));
            }
        }
    }
}

static ab_status make_split(ab_images *images, uint64_t seed, uint32_t first, int64_t count, const size *z) {
    const int64_t bytes = z->height * z->width * z->channels;
    AB_TRY(ab_block_create(&images->pixels, (size_t)(count * bytes), "synthetic images"));
    AB_TRY(ab_block_create(&images->labels, (size_t)count, "synthetic labels"));
    images->pixel = images->pixels.bytes;
    images->label = images->labels.bytes;
    images->count = count;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < count; i++)
        make_sample(seed, first + (uint32_t)i, z, images->pixel + i * bytes, images->label + i);
    return AB_OK;
}

static ab_status load(ab_data *data, const ab_data_request *request) {
    const ab_shape *want = &request->shape->x;
    const size z = {want->dim[0], want->dim[1], want->dim[2]};
    int64_t count = most_bytes / (z.height * z.width * z.channels);
    if (count > MOST) count = MOST;
    if (count < LEAST) count = LEAST;
    data->stored_height = z.height;
    data->stored_width = z.width;
    data->channels = z.channels;
    data->classes = CLASSES;
    ab_text_show(data->origin, sizeof data->origin, "procedural, seed %llu",
                 (unsigned long long)request->seed);
    AB_TRY(make_split(&data->split[AB_SPLIT_TRAIN], request->seed, 0, count, &z));
    return make_split(&data->split[AB_SPLIT_TEST], request->seed, (uint32_t)count, count / 4, &z);
}

const ab_data_source ab_data_source_synthetic_images = {
    .name = "synthetic_images",
    .text = "procedural: coloured stripes with noise in the size the network asks for, 10 classes, made from "
            "the seed "
            "(64 MiB, at most 4,096 + 1,024 images); no files",
    .kind = AB_INPUT_IMAGES,
    .load = load,
};
