/* The procedural images of 28 x 28 that tests of training share: made once by a group's set-up, for that
 * takes longest. */
#ifndef AB_TESTS_UNIT_IMAGES_TESTING_H
#define AB_TESTS_UNIT_IMAGES_TESTING_H

#include "bench/data/data.h"

static ab_data *images;

static int open_images(void **state) {
    (void)state;
    return ab_data_open_images("synthetic", 28, 28, 1, 1, &images) == AB_OK ? 0 : -1;
}

static int close_images(void **state) {
    (void)state;
    ab_data_close(images);
    return 0;
}

#endif
