/* Data sources: labelled images, train and test, in memory, the same bytes on every run.
 *
 * A source is one file with a const ab_data_source and one line in data.def. Nothing here shuffles or batches over time:
 * ab_data_order says which samples a step uses, ab_data_fill writes them. */
#ifndef AB_BENCH_DATA_DATA_H
#define AB_BENCH_DATA_DATA_H

#include "bench/data/block.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

AB_BEGIN_DECLS

typedef enum ab_split { AB_SPLIT_TRAIN, AB_SPLIT_TEST } ab_split;

typedef enum ab_normalize {
    AB_NORMALIZE_NONE, /* bytes 0..255 as they are */
    AB_NORMALIZE_UNIT, /* x / 255 */
    AB_NORMALIZE_STANDARD /* (x / 255 - mean) / std of the whole training split as the net sees it: padding counts */
} ab_normalize;

AB_MUST_CHECK ab_status ab_normalize_find(const char *name, ab_normalize *mode); /* none, unit, standard */
const char *ab_normalize_name(ab_normalize mode);

typedef struct ab_images {
    int64_t count;
    uint8_t *pixel;          /* count * stored_height * stored_width * channels, NHWC; in `pixels` */
    uint8_t *label;          /* count; below the data's classes; in `labels` */
    ab_block pixels, labels; /* owned */
} ab_images;

typedef struct ab_data {
    const char *name;                    /* "fashion_mnist", "synthetic", "idx" */
    char origin[512];                    /* where it came from: directory, or "procedural, seed 1" */
    char adapted[128];                   /* what was done to fit the net's input, "" if nothing */
    int64_t height, width, channels;     /* of the images that ab_data_fill writes */
    int64_t stored_height, stored_width; /* of the images in memory; padded on the way to the net */
    int64_t classes;
    ab_images split[2];
    double mean, std; /* of the training pixels / 255, padding included; population, in double */
} ab_data;

/* Opens what --data names: a source of data.def, or a directory with MNIST-style IDX files (plain or .gz; a directory
 * that has a source's name is given as "./name"). Images are adapted to height x width by centred zero padding, the odd
 * row and column at the bottom and right; anything else is a mismatch and an AB_CONFIG error with both shapes.
 * `seed` matters to procedural sources only. Errors (AB_INPUT) name the file and what was expected and found; when the
 * Fashion-MNIST package is missing the message offers `--data synthetic` and `--data DIR`. */
AB_MUST_CHECK ab_status ab_data_open(const char *name_or_path, int64_t height, int64_t width,
                                     int64_t channels, uint64_t seed, ab_data **data);
void ab_data_close(ab_data *data); /* NULL is a no-op */

typedef struct ab_data_source {
    const char *name, *text;
    /* Fills split[], stored_height, stored_width, channels, classes, origin. What it leaves after an error is freed by
     * the caller. */
    ab_status (*load)(ab_data *data, uint64_t seed);
} ab_data_source;

int ab_data_source_count(void);
const ab_data_source *ab_data_source_at(int i);

/* Which samples step `step` (0-based) uses: index[batch]. An epoch is floor(count / batch) batches, the rest is dropped.
 * shuffled: a permutation that depends on (seed, epoch) alone, by Fisher-Yates; else file order. Steps may be asked for
 * in any order. create fails (AB_CONFIG) when the batch is larger than the data set. */
typedef struct ab_data_order {
    int64_t count, batch;
    bool shuffled;
    uint64_t seed;
    int64_t epoch;        /* of the permutation in hand; -1 before the first */
    int64_t *permutation; /* owned; NULL for file order */
} ab_data_order;

AB_MUST_CHECK ab_status ab_data_order_create(ab_data_order *order, int64_t count, int64_t batch,
                                             bool shuffled, uint64_t seed);
void ab_data_order_destroy(ab_data_order *order);
void ab_data_order_at(ab_data_order *order, int64_t step, int64_t *index);

/* Writes n samples: images {n, height, width, channels} fp32 NHWC and labels {n}. */
void ab_data_fill(const ab_data *data, ab_split split, ab_normalize mode, const int64_t *index, int64_t n,
                  float *images, int32_t *labels);

AB_END_DECLS

#endif
