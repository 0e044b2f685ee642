/* Preprocessing of images as the user states it: --normalize MEAN/STD and --pad, as torchvision's Normalize
 * and Pad. Checks it; fill.c applies it. */
#include "bench/data/data.h"

#include "kernels/core/number.h"
#include "kernels/core/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

ab_status ab_pixels_normalize(const char *text, ab_normalize *mode, ab_pixels *pixels) {
    char *end;
    const char *next = text;
    if (!strchr(text, '/')) return ab_normalize_find(text, mode);
    for (int c = 0; c < AB_PIXEL_CHANNELS; c++) {
        pixels->mean[c] = ab_number_read(next, &end);
        if (end == next || *end != '/') break;
        next = end + 1;
        pixels->std[c] = ab_number_read(next, &end);
        if (end == next || !isfinite(pixels->mean[c]) || !(pixels->std[c] > 0) || !isfinite(pixels->std[c]))
            break;
        pixels->channels = c + 1;
        *mode = AB_NORMALIZE_GIVEN;
        if (*end == '\0') return AB_OK;
        if (*end != ',') break;
        next = end + 1;
    }
    return ab_normalize_find(text, mode);
}

ab_status ab_pixels_pad(const char *text, ab_pixels *pixels) {
    char *end;
    const bool digit = text[0] >= '0' && text[0] <= '9';
    pixels->pad = digit ? strtoll(text, &end, 10) : -1;
    const bool alone = digit && *end == '\0', before = digit && strcmp(end, ":before") == 0;
    pixels->padded = true;
    pixels->zero_border = alone;
    if ((alone || before) && pixels->pad <= AB_PIXEL_PAD) return AB_OK;
    return ab_fail(
        AB_CONFIG,
        "--pad: expected rows and columns to add on each side, N or N:before (the normalisation), such "
        "as 2, at most %d, found '%s'",
        AB_PIXEL_PAD, text);
}

ab_status ab_data_preprocess(ab_data *data, const ab_pixels *pixels) {
    const bool nothing = pixels->channels == 0 && !pixels->padded;
    if (!nothing && !data->stored_height)
        return ab_fail(AB_CONFIG, "--data %s: expected images for %s, found %s", data->name,
                       pixels->padded ? "--pad" : "--normalize MEAN/STD",
                       ab_input_kind_text(data->shape.input));
    if (pixels->channels > 1 && pixels->channels != data->channels)
        return ab_fail(AB_CONFIG,
                       "--normalize: expected one pair MEAN/STD or one for each of %lld "
                       "channels, found %d",
                       (long long)data->channels, pixels->channels);
    const int64_t height = data->stored_height + 2 * pixels->pad,
                  width = data->stored_width + 2 * pixels->pad;
    if (pixels->padded && (height != data->height || width != data->width))
        return ab_fail(AB_CONFIG,
                       "--pad %lld: images of %lldx%lld become %lldx%lld, expected the net's "
                       "input, %lldx%lld",
                       (long long)pixels->pad, (long long)data->stored_height, (long long)data->stored_width,
                       (long long)height, (long long)width, (long long)data->height, (long long)data->width);
    data->pixels = *pixels;
    return AB_OK;
}
