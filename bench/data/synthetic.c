/* Procedural images: no files, the same bytes on every machine. A class is one of five positions and one of
 * two directions; a sample is a blurred spot with stripes near that position, shifted, stretched, dimmed and
 * noisy by random numbers of (seed, sample). A linear model reaches an accuracy of about 2/3, a small network
 * about 9/10. It replaces a missing data set and does not represent any real task. */
#include "bench/data/data.h"
#include "bench/data/procedural.h"

#include "kernels/core/rng.h"
#include "kernels/core/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 28, PIXELS = SIDE * SIDE, PLACES = 5, CLASSES = 10, TRAIN = 10000, TEST = 2000 };

typedef struct stripes {
    double x, y;             /* centre of the spot */
    double along_x, along_y; /* direction across the stripes, times stripes per pixel */
    double phase, contrast;
} stripes;

static stripes draw_sample(uint64_t seed, uint32_t sample, uint8_t *label) {
    static const double place[PLACES][2] = {{-4, -4}, {4, -4}, {4, 4}, {-4, 4}, {0, 0}};
    static const double direction[CLASSES / PLACES][2] = {{0.96, 0.28}, {-0.28, 0.96}};
    ab_rng_block a = ab_rng_at(seed, AB_RNG_SYNTHETIC, sample, 0);
    ab_rng_block b = ab_rng_at(seed, AB_RNG_SYNTHETIC, sample, 1);
    int class = (int)((uint64_t)a.word[0] * CLASSES >> 32);
    double per_pixel = ab_between(a.word[1], 0.08, 0.125);
    *label = (uint8_t) class;
    return (stripes){
        .x = (SIDE - 1) / 2.0 + place[class % PLACES][0] + ab_between(b.word[0], -3, 3),
        .y = (SIDE - 1) / 2.0 + place[class % PLACES][1] + ab_between(b.word[1], -3, 3),
        .along_x = direction[class / PLACES][0] * per_pixel,
        .along_y = direction[class / PLACES][1] * per_pixel,
        .phase = ab_between(a.word[2], -0.25, 0.25),
        .contrast = ab_between(a.word[3], 0.6, 1.0),
    };
}

static double larger(double a, double b) { return a > b ? a : b; }

/* Brightness of a row without noise, 0 to 1. Loops over a row have no branches, so that compilers vectorise
 * them. */
static void shade_row(const stripes *s, int row, double value[SIDE]) {
    static const double radius = 15.0;
    const double y = row - s->y;
    for (int column = 0; column < SIDE; column++) {
        double x = column - s->x;
        double inside = larger(1.0 - (x * x + y * y) / (radius * radius), 0);
        double bright = 0.5 + 0.5 * ab_approximate_sine(x * s->along_x + y * s->along_y + s->phase);
        value[column] = s->contrast * inside * inside * bright;
    }
}

/* Noise of a row: differences of two random bytes in units of their standard deviation (triangular, mean 0,
 * exact), two per word. */
static void noise_row(const uint32_t word[SIDE / 2], double value[SIDE]) {
    static const double deviation = 104.5; /* sqrt(2 * (256^2 - 1) / 12) */
    int32_t difference[SIDE];
    for (int i = 0; i < SIDE / 2; i++) {
        difference[2 * i] = (int32_t)(word[i] & 0xFF) - (int32_t)(word[i] >> 8 & 0xFF);
        difference[2 * i + 1] = (int32_t)(word[i] >> 16 & 0xFF) - (int32_t)(word[i] >> 24);
    }
    for (int i = 0; i < SIDE; i++) value[i] = (double)difference[i] / deviation;
}

static void make_sample(uint64_t seed, uint32_t sample, uint8_t *pixel, uint8_t *label) {
    static const double noise_level = 0.15;
    enum { WORDS = 4 }; /* of a random block */
    const stripes s = draw_sample(seed, sample, label);
    uint32_t word[PIXELS / 2];
    for (int i = 0; i < PIXELS / 2; i += WORDS) {
        ab_rng_block block =
            ab_rng_at(seed, AB_RNG_SYNTHETIC, sample, AB_PROCEDURAL_NOISE + (uint64_t)(i / WORDS));
        memcpy(word + i, block.word, sizeof block.word);
    }
    for (int row = 0; row < SIDE; row++) {
        double shade[SIDE], noise[SIDE];
        shade_row(&s, row, shade);
        noise_row(word + row * SIDE / 2, noise);
        for (int i = 0; i < SIDE; i++) {
            int value = (int)(255.0 * (shade[i] + noise_level * noise[i]) + 0.5);
            value = value < 0 ? 0 : value;
            pixel[row * SIDE + i] = (uint8_t)(value > 255 ? 255 : value);
        }
    }
}

static ab_status make_split(ab_images *images, uint64_t seed, uint32_t first, int64_t count) {
    AB_TRY(ab_block_create(&images->pixels, (size_t)count * PIXELS, "synthetic images"));
    AB_TRY(ab_block_create(&images->labels, (size_t)count, "synthetic labels"));
    images->pixel = images->pixels.bytes;
    images->label = images->labels.bytes;
    images->count = count;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < count; i++)
        make_sample(seed, first + (uint32_t)i, images->pixel + i * PIXELS, images->label + i);
    return AB_OK;
}

static ab_status load(ab_data *data, const ab_data_request *request) {
    const uint64_t seed = request->seed;
    data->stored_height = data->stored_width = SIDE;
    data->channels = 1;
    data->classes = CLASSES;
    ab_text_show(data->origin, sizeof data->origin, "procedural, seed %llu", (unsigned long long)seed);
    AB_TRY(make_split(&data->split[AB_SPLIT_TRAIN], seed, 0, TRAIN));
    return make_split(&data->split[AB_SPLIT_TEST], seed, TRAIN, TEST);
}

const ab_data_source ab_data_source_synthetic = {
    .name = "synthetic",
    .text = "procedural: 10,000 + 2,000 striped spots with noise, 28x28 grey, 10 classes, made from the "
            "seed; no files",
    .channels = 1,
    .load = load,
};
