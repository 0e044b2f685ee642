/* Arrays of numbers as samples: an .npz (or .safetensors) with x and y and optional x_test and y_test; or a
 * directory with x.npy, y.npy, ... The first dimension counts samples; without test arrays the last tenth of
 * the samples is the test split.
 *
 * x is used unscaled for every kind of input: numbers as fp32, token ids as int32, images as numbers.
 * Integers in y are class ids, other numbers are values. */
#define _POSIX_C_SOURCE 200809L
#include "bench/data/data.h"
#include "bench/tensorfile/tensorfile.h"
#include "kernels/core/text.h"
#include "kernels/core/text_path.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { TEST_PART = 10, PATH_BYTES = 1024 };

/* One array: fp32 or int32 elements. */
typedef struct array {
    ab_shape shape;
    bool ids;
    int32_t *word; /* owned; bits of fp32 or int32 */
} array;

/* ---- reading --------------------------------------------------------------------------------- */

static bool is_integer(const ab_tensor_entry *entry) {
    return strstr(entry->element->name, "int") != NULL || strcmp(entry->element->name, "bool") == 0;
}

/* Element i of little- or big-endian integers of `size` bytes. */
static int64_t integer_at(const uint8_t *bytes, int64_t i, int size, bool big_endian, bool is_signed) {
    uint64_t value = 0;
    for (int k = 0; k < size; k++)
        value |= (uint64_t)bytes[i * size + (big_endian ? size - 1 - k : k)] << 8 * k;
    if (is_signed && size < 8 && value >> (8 * size - 1)) value |= ~(uint64_t)0 << 8 * size;
    return (int64_t)value;
}

static ab_status convert_integers(const ab_tensorfile *file, const ab_tensor_entry *entry,
                                  const uint8_t *bytes, int32_t *out) {
    const bool is_signed = entry->element->name[0] == 'i';
    char name[AB_TENSORFILE_TEXT];
    for (int64_t i = 0; i < entry->count; i++) {
        int64_t value = integer_at(bytes, i, entry->element->bits / 8, entry->big_endian, is_signed);
        if (value < INT32_MIN || value > INT32_MAX)
            return ab_fail(AB_INPUT, "%s: %s: expected ids that 32 bits hold, found %lld", file->path,
                           ab_tensor_printable(entry->name, name), (long long)value);
        out[i] = (int32_t)value;
    }
    return AB_OK;
}

static ab_status unpack(const ab_tensorfile *file, const ab_tensor_entry *entry, uint8_t *bytes) {
    void *state = NULL;
    AB_TRY(file->reader->unpack_begin(file, entry, &state));
    ab_status status = file->reader->unpack(state, bytes, entry->bytes);
    ab_status end = file->reader->unpack_end(state, status == AB_OK);
    if (status == AB_OK) status = end;
    return status == AB_OK ? AB_OK : ab_fail_prefix(status, "%s", file->path);
}

static ab_status read_integers(const ab_tensorfile *file, const ab_tensor_entry *entry, int32_t *out) {
    AB_TRY(ab_tensorfile_check(file, entry));
    if (!entry->packed) return convert_integers(file, entry, file->map + entry->offset, out);
    uint8_t *bytes = malloc((size_t)entry->bytes);
    if (!bytes)
        return ab_fail(AB_NO_MEMORY, "%s: cannot unpack %lld bytes", file->path, (long long)entry->bytes);
    ab_status status = unpack(file, entry, bytes);
    if (status == AB_OK) status = convert_integers(file, entry, bytes, out);
    free(bytes);
    return status;
}

static ab_status check_entry(const ab_tensorfile *file, const ab_tensor_entry *entry) {
    char name[AB_TENSORFILE_TEXT], shape[AB_TENSORFILE_TEXT];
    if (entry->ndim >= 1 && entry->ndim <= AB_MAX_DIMS && entry->count > 0 &&
        (!entry->fortran || entry->ndim < 2) && !(entry->stride && is_integer(entry)))
        return AB_OK;
    return ab_fail(AB_INPUT,
                   "%s: %s: expected a row-major array of 1 to %d dimensions, samples first, found %s%s",
                   file->path, ab_tensor_printable(entry->name, name), (int)AB_MAX_DIMS,
                   ab_tensor_shape_text(entry, shape),
                   entry->fortran  ? " in column-major order"
                   : entry->stride ? " in another order"
                                   : "");
}

static ab_status read_entry(const ab_tensorfile *file, const ab_tensor_entry *entry, array *a) {
    AB_TRY(check_entry(file, entry));
    a->shape.ndim = entry->ndim;
    for (int i = 0; i < entry->ndim; i++) a->shape.dim[i] = entry->dim[i];
    a->ids = is_integer(entry);
    a->word = malloc((size_t)entry->count * sizeof *a->word);
    if (!a->word)
        return ab_fail(AB_NO_MEMORY, "%s: cannot allocate %lld elements", file->path,
                       (long long)entry->count);
    return a->ids ? read_integers(file, entry, a->word)
                  : ab_tensorfile_read(file, entry, (float *)(void *)a->word);
}

/* "x" of the file, or the only array of a directory's x.npy. */
static ab_status read_array(const char *path, const char *name, bool folder, bool required, array *a) {
    char inside[PATH_BYTES];
    struct stat about;
    AB_TRY(ab_text_path("--data", inside, sizeof inside, folder ? "%s/%s.npy" : "%s", path, name));
    if (folder && !required && stat(inside, &about) != 0) return AB_OK;
    ab_tensorfile *file = NULL;
    const ab_tensor_entry *entry = NULL;
    AB_TRY(ab_tensorfile_open(inside, &file));
    ab_status status = AB_OK;
    for (int i = 0; i < file->count && !entry; i++)
        if (folder || strcmp(file->tensor[i].name, name) == 0) entry = &file->tensor[i];
    if (!entry && required) status = ab_tensorfile_find(file, name, &entry);
    if (status == AB_OK && entry) status = read_entry(file, entry, a);
    ab_tensorfile_close(file);
    return status;
}

/* ---- matching the net ------------------------------------------------------------------------ */

static int64_t each(const array *a) { return ab_shape_count(&a->shape) / a->shape.dim[0]; }

/* Images with one channel may omit the last dimension. */
static ab_status check_sample(const ab_data *data, const ab_data_request *request, const array *x) {
    const ab_shape *want = &data->shape.x;
    bool fits =
        x->shape.ndim - 1 == want->ndim || (x->shape.ndim == want->ndim && want->dim[want->ndim - 1] == 1);
    for (int i = 1; fits && i < x->shape.ndim; i++) fits = x->shape.dim[i] == want->dim[i - 1];
    char found[AB_SHAPE_TEXT], wanted[AB_SHAPE_TEXT];
    if (!fits)
        return ab_fail(AB_CONFIG, "--data arrays:%s: x is %s, the net's input is [samples] + %s",
                       request->path, ab_shape_text(&x->shape, found), ab_shape_text(want, wanted));
    for (int64_t i = 0; data->shape.input == AB_INPUT_TOKENS && x->ids && i < ab_shape_count(&x->shape); i++)
        if (x->word[i] < 0 || x->word[i] >= data->shape.vocabulary)
            return ab_fail(
                AB_INPUT, "--data arrays:%s: expected token ids below the net's vocabulary of %lld, found %d",
                request->path, (long long)data->shape.vocabulary, (int)x->word[i]);
    if (data->shape.input != AB_INPUT_TOKENS || x->ids) return AB_OK;
    return ab_fail(AB_CONFIG, "--data arrays:%s: x holds numbers, the net's input is token ids",
                   request->path);
}

static void to_numbers(array *a) {
    for (int64_t i = 0; a->ids && i < ab_shape_count(&a->shape); i++) {
        float value = (float)a->word[i];
        memcpy(&a->word[i], &value, sizeof value);
    }
    a->ids = false;
}

static int64_t classes_in(const array *y) {
    int32_t largest = 0;
    for (int64_t i = 0; i < ab_shape_count(&y->shape); i++)
        largest = y->word[i] > largest ? y->word[i] : largest;
    return (int64_t)largest + 1;
}

/* Copies samples [first, end) of x and y to a split. */
static ab_status keep(ab_data *data, ab_split which, const array *x, const array *y, int64_t first,
                      int64_t end) {
    ab_images *split = &data->split[which];
    const size_t of_x = (size_t)each(x) * 4, of_y = y->word ? (size_t)each(y) * 4 : 4,
                 n = (size_t)(end - first);
    split->count = end - first;
    AB_TRY(ab_block_create(&split->pixels, of_x * n, "arrays"));
    AB_TRY(ab_block_create(&split->labels, of_y * n, "arrays")); /* zero if there is no y */
    split->pixel = split->pixels.bytes;
    split->label = split->labels.bytes;
    memcpy(split->pixel, (const char *)x->word + of_x * (size_t)first, of_x * n);
    if (y->word) memcpy(split->label, (const char *)y->word + of_y * (size_t)first, of_y * n);
    return AB_OK;
}

static ab_status check_pair(const ab_data_request *request, const char *suffix, const array *x,
                            const array *y) {
    if (!y->word || y->shape.dim[0] == x->shape.dim[0]) return AB_OK;
    return ab_fail(AB_INPUT, "--data arrays:%s: x%s has %lld samples, y%s has %lld", request->path, suffix,
                   (long long)x->shape.dim[0], suffix, (long long)y->shape.dim[0]);
}

/* Class ids become positions of ones: they must be 0 or more. Their largest is compared with the net's
 * classes later. */
static ab_status check_one_hot(const ab_data *data, const ab_data_request *request, const array *y) {
    if (data->shape.targets != AB_TARGETS_ONE_HOT || !y->word || !y->ids) return AB_OK;
    for (int64_t i = 0; i < ab_shape_count(&y->shape); i++)
        if (y->word[i] < 0)
            return ab_fail(AB_INPUT, "--data arrays:%s: expected class ids of 0 or more, found %d",
                           request->path, (int)y->word[i]);
    return AB_OK;
}

/* Both splits are read by one description: the targets of the test must be of the kind of those of the
 * training. */
static ab_status check_alike(const ab_data_request *request, const array *y, const array *y_test) {
    if (!y->word == !y_test->word && (!y->word || (y->ids == y_test->ids && each(y) == each(y_test))))
        return AB_OK;
    return ab_fail(AB_INPUT, "--data arrays:%s: y_test and y differ in their type or in the numbers a sample",
                   request->path);
}

/* Checks that x holds numbers where the net's input is numbers. */
static ab_status adapt(ab_data *data, const ab_data_request *request, array *x, array *y) {
    AB_TRY(check_sample(data, request, x));
    AB_TRY(check_one_hot(data, request, y));
    if (data->shape.input != AB_INPUT_TOKENS) to_numbers(x);
    if (data->shape.targets == AB_TARGETS_VALUES && y->word) to_numbers(y);
    data->labels = !y->word || y->ids ? AB_LABELS_IDS : AB_LABELS_NUMBERS;
    data->labels_per_sample = y->word ? each(y) : 1;
    int64_t classes = data->labels == AB_LABELS_IDS && y->word ? classes_in(y) : 0;
    if (classes > data->classes) data->classes = classes;
    return AB_OK;
}

enum { X, Y, X_TEST, Y_TEST, ARRAYS };

static ab_status split_up(ab_data *data, const ab_data_request *request, array *a) {
    const int64_t n = a[X].shape.dim[0], train = a[X_TEST].word ? n : n - (n + TEST_PART - 1) / TEST_PART;
    AB_TRY(check_pair(request, "", &a[X], &a[Y]));
    AB_TRY(check_pair(request, "_test", &a[X_TEST], &a[Y_TEST]));
    if (train < 1)
        return ab_fail(AB_INPUT, "--data arrays:%s: expected 2 or more samples, found %lld", request->path,
                       (long long)n);
    AB_TRY(adapt(data, request, &a[X], &a[Y]));
    if (a[X_TEST].word) {
        AB_TRY(adapt(data, request, &a[X_TEST], &a[Y_TEST]));
        AB_TRY(check_alike(request, &a[Y], &a[Y_TEST]));
    }
    AB_TRY(keep(data, AB_SPLIT_TRAIN, &a[X], &a[Y], 0, train));
    if (!a[X_TEST].word) return keep(data, AB_SPLIT_TEST, &a[X], &a[Y], train, n);
    return keep(data, AB_SPLIT_TEST, &a[X_TEST], &a[Y_TEST], 0, a[X_TEST].shape.dim[0]);
}

static ab_status load(ab_data *data, const ab_data_request *request) {
    static const char *const names[ARRAYS] = {"x", "y", "x_test", "y_test"};
    array a[ARRAYS] = {{.word = NULL}};
    struct stat about;
    const bool folder = stat(request->path, &about) == 0 && S_ISDIR(about.st_mode);
    ab_status status = AB_OK;
    if (strlen(request->path) + 16 >= PATH_BYTES) return ab_fail(AB_INPUT, "--data: expected a shorter path");
    for (int i = 0; i < ARRAYS && status == AB_OK; i++)
        status = read_array(request->path, names[i], folder,
                            i == X || (i == Y_TEST && a[X_TEST].word && a[Y].word), &a[i]);
    ab_text_show(data->origin, sizeof data->origin, "%s", request->path);
    if (status == AB_OK) status = split_up(data, request, a);
    for (int i = 0; i < ARRAYS; i++) free(a[i].word);
    return status;
}

const ab_data_source ab_data_source_arrays = {
    .name = "arrays",
    .text = "arrays:PATH: x and y (x_test, y_test) of an .npz file, or of a directory with x.npy and y.npy",
    .kind = AB_INPUT_VALUES,
    .reads_path = true,
    .load = load,
};
