/* Data sources: images, text or arrays with targets, as train and test splits in memory, with the same bytes
 * on every run.
 *
 * A source is one file with a const ab_data_source and one line in data.def. ab_data_order returns the
 * samples of a step, ab_data_fill writes them to a batch. */
#ifndef AB_BENCH_DATA_DATA_H
#define AB_BENCH_DATA_DATA_H

#include "bench/data/block.h"
#include "bench/data/shape.h"
#include "kernels/format/format.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

AB_BEGIN_DECLS

typedef enum ab_split { AB_SPLIT_TRAIN, AB_SPLIT_TEST } ab_split;

typedef enum ab_normalize {
    AB_NORMALIZE_NONE,     /* bytes 0..255 unchanged */
    AB_NORMALIZE_UNIT,     /* x / 255 */
    AB_NORMALIZE_STANDARD, /* (x / 255 - mean) / std of the whole training split, padding included */
    AB_NORMALIZE_GIVEN     /* (x / 255 - mean) / std of ab_pixels */
} ab_normalize;

AB_MUST_CHECK ab_status ab_normalize_find(const char *name, ab_normalize *mode); /* none, unit, standard */

enum { AB_PIXEL_CHANNELS = 16, AB_PIXEL_PAD = 1 << 12 };

/* Preprocessing of images as stated by the user, of transforms.Normalize and Pad. */
typedef struct ab_pixels {
    int channels; /* pairs of mean and std: 0: none, 1: of every channel, or one per channel */
    double mean[AB_PIXEL_CHANNELS], std[AB_PIXEL_CHANNELS]; /* of x / 255 */
    bool padded;
    int64_t pad;      /* rows and columns added on each side, if padded */
    bool zero_border; /* the border is 0 after the normalisation; else pixel value 0, normalised */
} ab_pixels;

/* --normalize: a name of ab_normalize_find, or MEAN/STD pairs with commas (*mode: AB_NORMALIZE_GIVEN).
 * --pad: "N" pads with 0 after the normalisation, "N:before" before it. AB_CONFIG otherwise. */
AB_MUST_CHECK ab_status ab_pixels_normalize(const char *text, ab_normalize *mode, ab_pixels *pixels);
AB_MUST_CHECK ab_status ab_pixels_pad(const char *text, ab_pixels *pixels);

/* How a source stores targets. */
typedef enum ab_label_kind {
    AB_LABELS_BYTES,   /* uint8_t class ids */
    AB_LABELS_IDS,     /* int32_t class ids, `labels_per_sample` each */
    AB_LABELS_NUMBERS, /* float, `labels_per_sample` each */
    AB_LABELS_NEXT     /* none: the next token is the target */
} ab_label_kind;

typedef struct ab_images {
    int64_t count; /* samples */
    /* images: bytes, NHWC, count * stored_height * stored_width * channels; tokens: int32_t, count * length
     * and, for AB_LABELS_NEXT, one more; numbers: float; in `pixels` */
    uint8_t *pixel;
    uint8_t *label;          /* type: data->labels; class ids are in [0, classes); in `labels` */
    ab_block pixels, labels; /* owned */
} ab_images;

typedef struct ab_data {
    const char *name;    /* "fashion_mnist", "synthetic", "idx" */
    char origin[4096];   /* directory, or "procedural, seed 1" */
    char adapted[128];   /* how samples were adapted to the net's input, "" if unchanged */
    ab_data_shape shape; /* what ab_data_fill writes */
    ab_label_kind labels;
    int64_t labels_per_sample;           /* 0 is 1 */
    int64_t height, width, channels;     /* of the images that ab_data_fill writes; else 0 */
    int64_t stored_height, stored_width; /* of the images in memory; ab_data_fill pads them */
    int64_t classes;                     /* of class ids; else 0 */
    ab_images split[2];
    double mean,
        std; /* of the training pixels / 255, padding included; population, in double; else 0 and 1 */
    ab_pixels pixels; /* of ab_data_preprocess; else all 0 */
} ab_data;

/* Opens the argument of --data for a net with samples and targets of `shape`: a source of data.def
 * ("bytes:PATH" if it reads a path), or a path alone: a directory with MNIST-style IDX files (plain or .gz;
 * write "./name" if the directory has a source's name). Images are adapted to height x width by centred zero
 * padding, the odd row and column at the bottom and right; anything else is a mismatch and an AB_CONFIG error
 * with both shapes. `seed` is used by procedural sources only. The caller closes *data. Errors (AB_INPUT)
 * name the file and what was expected and found; when the Fashion-MNIST package is missing the message offers
 * `--data synthetic` and `--data DIR`. */
AB_MUST_CHECK ab_status ab_data_open(const char *name_or_path, const ab_data_shape *shape, uint64_t seed,
                                     ab_data **data);
/* Whether ab_data_open knows the source, and it suits the shape: reads nothing but names. */
AB_MUST_CHECK ab_status ab_data_check(const char *name_or_path, const ab_data_shape *shape);
/* ab_data_open for images with one class id each. */
AB_MUST_CHECK ab_status ab_data_open_images(const char *name_or_path, int64_t height, int64_t width,
                                            int64_t channels, uint64_t seed, ab_data **data);
void ab_data_close(ab_data *data); /* NULL is a no-op */

/* Sets the preprocessing of `data`. AB_CONFIG unless it holds images, whose channels and, with the padding,
 * size fit. */
AB_MUST_CHECK ab_status ab_data_preprocess(ab_data *data, const ab_pixels *pixels);

/* Arguments of a source. */
typedef struct ab_data_request {
    const ab_data_shape *shape;
    const char *path; /* of a source that reads one */
    uint64_t seed;
} ab_data_request;

typedef struct ab_data_source {
    const char *name, *text;
    ab_input_kind kind;
    bool reads_path;  /* --data NAME:PATH */
    int64_t channels; /* of its images; 0: those of the net's input */
    /* Fills split[], origin, labels, classes; of images stored_height, stored_width and channels. After an
     * error the caller frees what was filled. */
    ab_status (*load)(ab_data *data, const ab_data_request *request);
} ab_data_source;

/* The rows of data.def, in order: i in [0, count). */
int ab_data_source_count(void);
const ab_data_source *ab_data_source_at(int i);

/* The source used without --data: the first row of data.def with the net's kind of input and number of
 * channels that needs no path, or NULL. */
const char *ab_data_default(const ab_data_shape *shape);

/* The order of samples. An epoch has floor(count / batch) batches; the remainder is dropped. shuffled: a
 * Fisher-Yates permutation that depends only on (seed, epoch); else file order. Steps may be queried in any
 * order. */
typedef struct ab_data_order {
    int64_t count, batch;
    bool shuffled;
    uint64_t seed;
    int64_t epoch;        /* of `permutation`; -1: none yet */
    int64_t *permutation; /* owned; NULL for file order */
} ab_data_order;

/* create: AB_CONFIG if the batch is larger than the data set. at: writes the samples of a step (0-based) to
 * index[batch]. */
AB_MUST_CHECK ab_status ab_data_order_create(ab_data_order *order, int64_t count, int64_t batch,
                                             bool shuffled, uint64_t seed);
void ab_data_order_destroy(ab_data_order *order);
void ab_data_order_at(ab_data_order *order, int64_t step, int64_t *index);

/* Writes n samples (NULL: none) and their targets, shaped and typed by data->shape: fp32 numbers or int32
 * ids. `mode` applies to images. */
void ab_data_fill(const ab_data *data, ab_split split, ab_normalize mode, const int64_t *index, int64_t n,
                  void *samples, void *targets);

/* The same for images, their values rounded once more to `half`, which has 16 bits: the bits of a cast. */
void ab_data_fill_half(const ab_data *data, ab_split split, ab_normalize mode, const ab_format *half,
                       const int64_t *index, int64_t n, uint16_t *samples, void *targets);

/* Whether every sample is known to be finite in fp32 without being read: images are. */
bool ab_data_is_finite(const ab_data *data, ab_normalize mode);

AB_END_DECLS

#endif
