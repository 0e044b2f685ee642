/* Square images of one channel in memory, for tests that train. */
#ifndef AB_TESTS_UNIT_GREY_IMAGES_H
#define AB_TESTS_UNIT_GREY_IMAGES_H

#include "bench/data/data.h"
#include "kernels/core/rng.h"

/* The memory of the images stays the caller's; `mean` of their values / 255 need not be theirs. */
static inline ab_data grey_images(const char *name, int64_t side, int64_t classes, ab_images training,
                                  ab_images test, double mean) {
    return (ab_data){.name = name,
                     .height = side,
                     .width = side,
                     .channels = 1,
                     .stored_height = side,
                     .stored_width = side,
                     .classes = classes,
                     .split = {training, test},
                     .mean = mean,
                     .std = 0.3};
}

/* Noise of `seed`, and labels that have nothing to do with it. */
static inline void grey_noise(uint8_t *pixels, uint8_t *labels, int count, int side, int classes,
                              uint64_t seed) {
    for (int i = 0; i < count * side * side; i++)
        pixels[i] = (uint8_t)ab_rng_below(seed, AB_RNG_SYNTHETIC, 0, (uint64_t)i, 256);
    for (int n = 0; n < count; n++) labels[n] = (uint8_t)(n % classes);
}

/* Each class lights up its own three rows; noise everywhere. step: of the random numbers. */
static inline void grey_rows(uint8_t *pixels, uint8_t *labels, int count, int side, int classes,
                             uint32_t step) {
    for (int n = 0; n < count; n++) {
        labels[n] = (uint8_t)(n % classes);
        for (int i = 0; i < side * side; i++) {
            const int at = n * side * side + i;
            const uint64_t noise = ab_rng_below(3, AB_RNG_SYNTHETIC, step, (uint64_t)at, 80);
            pixels[at] = (uint8_t)(noise + (i / side / 3 == labels[n] ? 150 : 0));
        }
    }
}

#endif
