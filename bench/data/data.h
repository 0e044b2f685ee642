/* Data sources: images, text or arrays with their targets, train and test, in memory, the same bytes on every
 * run.
 *
 * A source is one file with a const ab_data_source and one line in data.def. Nothing here shuffles or batches
 * over time: ab_data_order says which samples a step uses, ab_data_fill writes them. */
#ifndef AB_BENCH_DATA_DATA_H
#define AB_BENCH_DATA_DATA_H

#include "bench/data/block.h"
#include "bench/data/shape.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

AB_BEGIN_DECLS

typedef enum ab_split { AB_SPLIT_TRAIN, AB_SPLIT_TEST } ab_split;

typedef enum ab_normalize {
    AB_NORMALIZE_NONE,    /* bytes 0..255 as they are */
    AB_NORMALIZE_UNIT,    /* x / 255 */
    AB_NORMALIZE_STANDARD /* (x / 255 - mean) / std of the whole training split as the net sees it: padding
                             counts */
} ab_normalize;

AB_MUST_CHECK ab_status ab_normalize_find(const char *name, ab_normalize *mode); /* none, unit, standard */

/* How a source keeps targets. */
typedef enum ab_label_kind {
    AB_LABELS_BYTES,   /* uint8_t class ids */
    AB_LABELS_IDS,     /* int32_t class ids, `labels_per_sample` each */
    AB_LABELS_NUMBERS, /* float, `labels_per_sample` each */
    AB_LABELS_NEXT     /* none: the next token is the target */
} ab_label_kind;

typedef struct ab_images {
    int64_t count; /* samples */
    uint8_t
        *pixel;     /* images: bytes, NHWC, count * stored_height * stored_width * channels; tokens: int32_t,
                                count * length and, for AB_LABELS_NEXT, one more; numbers: float; in `pixels` */
    uint8_t *label; /* as data->labels says; class ids are below the data's classes; in `labels` */
    ab_block pixels, labels; /* owned */
} ab_images;

typedef struct ab_data {
    const char *name;    /* "fashion_mnist", "synthetic", "idx" */
    char origin[4096];   /* where it came from: directory, or "procedural, seed 1" */
    char adapted[128];   /* what was done to fit the net's input, "" if nothing */
    ab_data_shape shape; /* what ab_data_fill writes */
    ab_label_kind labels;
    int64_t labels_per_sample;           /* 0 is 1 */
    int64_t height, width, channels;     /* of the images that ab_data_fill writes; else 0 */
    int64_t stored_height, stored_width; /* of the images in memory; padded on the way to the net */
    int64_t classes;                     /* of class ids; else 0 */
    ab_images split[2];
    double mean,
        std; /* of the training pixels / 255, padding included; population, in double; else 0 and 1 */
} ab_data;

/* Opens what --data names for a net that wants `shape`: a source of data.def, those that read a path as
 * "bytes:PATH", or a path alone: a directory with MNIST-style IDX files (plain or .gz; one that has a
 * source's name is given as "./name"). Images are adapted to height x width by centred zero padding, the odd
 * row and column at the bottom and right; anything else is a mismatch and an AB_CONFIG error with both
 * shapes. `seed` matters to procedural sources only. Errors (AB_INPUT) name the file and what was expected
 * and found; when the Fashion-MNIST package is missing the message offers `--data synthetic` and `--data
 * DIR`. */
AB_MUST_CHECK ab_status ab_data_open(const char *name_or_path, const ab_data_shape *shape, uint64_t seed,
                                     ab_data **data);
/* The same for images with one class id each. */
AB_MUST_CHECK ab_status ab_data_open_images(const char *name_or_path, int64_t height, int64_t width,
                                            int64_t channels, uint64_t seed, ab_data **data);
void ab_data_close(ab_data *data); /* NULL is a no-op */

/* What a source is asked for. */
typedef struct ab_data_request {
    const ab_data_shape *shape;
    const char *path; /* of a source that reads one */
    uint64_t seed;
} ab_data_request;

typedef struct ab_data_source {
    const char *name, *text;
    ab_input_kind kind;
    bool reads_path;  /* --data NAME:PATH */
    int64_t channels; /* of its images; 0: what the net wants */
    /* Fills split[], origin, labels, classes; of images stored_height, stored_width and channels. What it
     * leaves after an error is freed by the caller. */
    ab_status (*load)(ab_data *data, const ab_data_request *request);
} ab_data_source;

/* The rows of data.def, in order: i in [0, count). */
int ab_data_source_count(void);
const ab_data_source *ab_data_source_at(int i);

/* The source that is used when --data is not given: the first row of data.def that has what the net wants,
 * images of as many channels, and needs no path, or NULL. */
const char *ab_data_default(const ab_data_shape *shape);

/* Which samples step `step` (0-based) uses: index[batch]. An epoch is floor(count / batch) batches, the rest
 * is dropped. shuffled: a permutation that depends on (seed, epoch) alone, by Fisher-Yates; else file order.
 * Steps may be asked for in any order. create fails (AB_CONFIG) when the batch is larger than the data set.
 */
typedef struct ab_data_order {
    int64_t count, batch;
    bool shuffled;
    uint64_t seed;
    int64_t epoch;        /* of the permutation in hand; -1 before the first */
    int64_t *permutation; /* owned; NULL for file order */
} ab_data_order;

/* create: AB_CONFIG as said above. at: the samples of a step into index[batch]. */
AB_MUST_CHECK ab_status ab_data_order_create(ab_data_order *order, int64_t count, int64_t batch,
                                             bool shuffled, uint64_t seed);
void ab_data_order_destroy(ab_data_order *order);
void ab_data_order_at(ab_data_order *order, int64_t step, int64_t *index);

/* Writes n samples and their targets as data->shape says: fp32 numbers or int32 ids. `mode` is for images. */
void ab_data_fill(const ab_data *data, ab_split split, ab_normalize mode, const int64_t *index, int64_t n,
                  void *samples, void *targets);

AB_END_DECLS

#endif
