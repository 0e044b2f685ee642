/* A data source as a newcomer would add it: grey images whose brightness is their class. */
#include "bench/data/data.h"

#include <stdio.h>
#include <string.h>

enum { SIDE = 28, CLASSES = 10, COUNT = 256 };

static ab_status fill(ab_images *images) {
    AB_TRY(ab_block_create(&images->pixels, (size_t)COUNT * SIDE * SIDE, "added images"));
    AB_TRY(ab_block_create(&images->labels, COUNT, "added labels"));
    images->pixel = images->pixels.bytes;
    images->label = images->labels.bytes;
    images->count = COUNT;
    for (int i = 0; i < COUNT; i++) {
        images->label[i] = (uint8_t)(i % CLASSES);
        memset(images->pixel + (size_t)i * SIDE * SIDE, 20 * (i % CLASSES), (size_t)SIDE * SIDE);
    }
    return AB_OK;
}

static ab_status load(ab_data *data, const ab_data_request *request) {
    (void)request;
    data->stored_height = data->stored_width = SIDE;
    data->channels = 1;
    data->classes = CLASSES;
    snprintf(data->origin, sizeof data->origin, "brightness");
    AB_TRY(fill(&data->split[AB_SPLIT_TRAIN]));
    return fill(&data->split[AB_SPLIT_TEST]);
}

const ab_data_source ab_data_source_added_data = {
    .name = "added_data", .text = "brightness is the class", .channels = 1, .load = load};
