/* Reads text files and cuts tokens into samples; see text.h. */
#define _POSIX_C_SOURCE 200809L
#include "bench/data/text.h"

#include "bench/data/folder.h"
#include "kernels/core/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CLASSES = 256, TEST_EVERY = 10 };
static const int64_t most_bytes = (int64_t)1 << 30;

/* ---- bytes ----------------------------------------------------------------------------------- */

static ab_status append_stream(ab_text *text, FILE *file, const char *path) {
    enum { BLOCK = 1 << 16 };
    char block[BLOCK];
    for (size_t got; (got = fread(block, 1, sizeof block, file)) > 0;) {
        if (text->size + (int64_t)got > most_bytes)
            return ab_fail(AB_INPUT, "--data: expected at most %lld bytes of text, found more at %s",
                           (long long)most_bytes, path);
        int64_t capacity = 1;
        while (capacity < text->size + (int64_t)got) capacity *= 2;
        char *grown = realloc(text->byte, (size_t)capacity);
        if (!grown) return ab_fail(AB_NO_MEMORY, "%s: cannot allocate %lld bytes", path, (long long)capacity);
        text->byte = grown;
        memcpy(text->byte + text->size, block, got);
        text->size += (int64_t)got;
    }
    return ferror(file) ? ab_fail(AB_INPUT, "%s: cannot read the text: %s", path, strerror(errno)) : AB_OK;
}

static ab_status append_file(ab_text *text, const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) return ab_fail(AB_INPUT, "--data: cannot open %s: %s", path, strerror(errno));
    ab_status status = append_stream(text, file, path);
    fclose(file);
    return status;
}

static ab_status add_piece(ab_text *text, int64_t start, ab_split split, int label) {
    if ((text->pieces & (text->pieces - 1)) == 0) {
        size_t count = text->pieces ? 2 * (size_t)text->pieces : 1;
        ab_text_piece *grown = realloc(text->piece, count * sizeof *grown);
        if (!grown) return ab_fail(AB_NO_MEMORY, "--data: cannot list pieces of text");
        text->piece = grown;
    }
    text->piece[text->pieces++] = (ab_text_piece){start, text->size - start, split, (uint8_t)label};
    return AB_OK;
}

/* Where the last tenth begins: at its first white space, so that no word is cut; or at nine tenths exactly if
 * its first half has none, as in genomes and in base64. */
static int64_t last_tenth(const char *byte, int64_t size) {
    const int64_t exact = size / TEST_EVERY * (TEST_EVERY - 1), limit = exact + (size - exact) / 2;
    for (int64_t i = exact; i < limit; i++)
        if (byte[i] && strchr(" \n\t\r", byte[i])) return i;
    return exact;
}

/* One stream, split at its last tenth. */
static ab_status read_stream(const char *path, ab_text *text) {
    ab_names files = {NULL, 0};
    ab_status status = AB_OK;
    if (ab_is_folder(path))
        AB_TRY_GOTO(ab_folder_list(path, false, &files));
    else
        AB_TRY_GOTO(append_file(text, path));
    for (int i = 0; i < files.count; i++) AB_TRY_GOTO(append_file(text, files.name[i]));
    if (text->size == 0) {
        status = ab_fail(AB_INPUT, "--data %s: expected text, found %s", path,
                         files.count || !ab_is_folder(path) ? "no bytes" : "no files");
        goto out;
    }
    const int64_t whole = text->size, cut = last_tenth(text->byte, whole);
    text->size = cut;
    AB_TRY_GOTO(add_piece(text, 0, AB_SPLIT_TRAIN, 0));
    text->size = whole;
    AB_TRY_GOTO(add_piece(text, cut, AB_SPLIT_TEST, 0));
out:
    ab_names_free(&files);
    return status;
}

static ab_status read_class(const char *path, int label, ab_text *text) {
    ab_names files = {NULL, 0};
    ab_status status = ab_folder_list(path, false, &files);
    for (int i = 0; status == AB_OK && i < files.count; i++) {
        int64_t start = text->size;
        status = append_file(text, files.name[i]);
        if (status == AB_OK)
            status = add_piece(text, start, i % TEST_EVERY == TEST_EVERY - 1 ? AB_SPLIT_TEST : AB_SPLIT_TRAIN,
                               label);
    }
    ab_names_free(&files);
    return status;
}

static ab_status read_classes(const char *path, ab_text *text) {
    ab_names folders = {NULL, 0};
    ab_status status = ab_folder_list(path, true, &folders);
    if (status == AB_OK && (folders.count < 2 || folders.count > MOST_CLASSES))
        status = ab_fail(AB_INPUT, "--data %s: expected 2 to %d directories, one for each class, found %d",
                         path, (int)MOST_CLASSES, folders.count);
    for (int i = 0; status == AB_OK && i < folders.count; i++) status = read_class(folders.name[i], i, text);
    text->classes = folders.count;
    ab_names_free(&folders);
    return status;
}

ab_status ab_text_read(const char *path, bool by_class, ab_text *text) {
    *text = (ab_text){.byte = NULL};
    if (strlen(path) >= AB_FOLDER_PATH)
        return ab_fail(AB_INPUT, "--data: expected a shorter path, found %s", path);
    text->byte = malloc(1); /* so that pieces of empty files are somewhere too */
    if (!text->byte) return ab_fail(AB_NO_MEMORY, "%s: cannot allocate memory", path);
    ab_status status = by_class ? read_classes(path, text) : read_stream(path, text);
    if (status != AB_OK) ab_text_free(text);
    return status;
}

void ab_text_free(ab_text *text) {
    free(text->byte);
    free(text->piece);
    *text = (ab_text){.byte = NULL};
}

/* ---- samples --------------------------------------------------------------------------------- */

typedef struct cutter {
    ab_data *data;
    const ab_data_request *request;
    const ab_text *text;
    ab_tokenise tokenise;
    const void *self;
} cutter;

/* All windows of a stream; the remainder at the end is dropped. */
static ab_status cut_stream(const cutter *c, const ab_text_piece *piece) {
    ab_images *split = &c->data->split[piece->split];
    const int64_t length = c->data->shape.x.dim[0];
    const char *byte = c->text->byte + piece->start;
    const int64_t tokens = c->tokenise(c->self, byte, piece->size, NULL, 0);
    split->count = (tokens - 1) / length;
    if (split->count < 1)
        return ab_fail(AB_INPUT, "--data %s: expected at least %lld tokens in its %s, found %lld",
                       c->request->path, (long long)length + 1,
                       piece->split == AB_SPLIT_TEST ? "last tenth, the test split" : "first nine tenths",
                       (long long)tokens);
    const int64_t most = split->count * length + 1;
    AB_TRY(ab_block_create(&split->pixels, (size_t)most * sizeof(int32_t), c->request->path));
    split->pixel = split->pixels.bytes;
    c->tokenise(c->self, byte, piece->size, (int32_t *)(void *)split->pixel, most);
    return AB_OK;
}

/* The first tokens of each piece of a split; short pieces are padded with zeros. */
static ab_status cut_samples(const cutter *c, ab_split which) {
    ab_images *split = &c->data->split[which];
    const int64_t length = c->data->shape.x.dim[0];
    for (int i = 0; i < c->text->pieces; i++) split->count += c->text->piece[i].split == which;
    if (split->count == 0)
        return ab_fail(AB_INPUT, "--data %s: expected %d or more files in a class, found no test sample",
                       c->request->path, (int)TEST_EVERY);
    AB_TRY(
        ab_block_create(&split->pixels, (size_t)(split->count * length) * sizeof(int32_t), c->request->path));
    AB_TRY(ab_block_create(&split->labels, (size_t)split->count, c->request->path));
    split->pixel = split->pixels.bytes;
    split->label = split->labels.bytes;
    int32_t *token = (int32_t *)(void *)split->pixel;
    uint8_t *label = split->label;
    for (int i = 0; i < c->text->pieces; i++) {
        const ab_text_piece *piece = &c->text->piece[i];
        if (piece->split != which) continue;
        c->tokenise(c->self, c->text->byte + piece->start, piece->size, token, length);
        *label++ = piece->label;
        token += length;
    }
    return AB_OK;
}

ab_status ab_text_cut(ab_data *data, const ab_data_request *request, const ab_text *text,
                      ab_tokenise tokenise, const void *self) {
    const cutter c = {data, request, text, tokenise, self};
    data->classes = text->classes;
    data->labels = text->classes ? AB_LABELS_BYTES : AB_LABELS_NEXT;
    ab_text_show(data->origin, sizeof data->origin, "%s", request->path);
    if (text->classes) {
        AB_TRY(cut_samples(&c, AB_SPLIT_TRAIN));
        return cut_samples(&c, AB_SPLIT_TEST);
    }
    AB_TRY(cut_stream(&c, &text->piece[0]));
    return cut_stream(&c, &text->piece[1]);
}
