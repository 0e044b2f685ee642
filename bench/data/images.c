/* The user's images as arrays: a directory with one directory per class, in the order of their names, which
 * hold .npy files of bytes (uint8): one image [height, width, channels] (or [height, width]) or several [n,
 * height, width, channels] per file. Every tenth image of a class is a test sample. Pixels are normalised as
 * in other sources. Decodes no JPEG or PNG: numpy.save("cats/1.npy",
 * numpy.asarray(PIL.Image.open("1.jpg").resize((224, 224)))) makes such a file. */
#include "bench/data/data.h"
#include "bench/data/folder.h"
#include "bench/tensorfile/tensorfile.h"
#include "kernels/core/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CLASSES = 256, TEST_EVERY = 10 };

/* One file of images; opened twice, so that only one file is mapped at a time. */
typedef struct image_file {
    ab_tensorfile *file;
    const ab_tensor_entry *entry;
    int64_t count; /* images */
} image_file;

typedef struct reading {
    ab_data *data;
    const ab_data_request *request;
    bool writes;       /* the second pass writes pixels and labels; the first only counts */
    int64_t number[2]; /* images of each split so far */
} reading;

static ab_status wrong(const reading *r, const char *path, const ab_tensor_entry *entry) {
    char found[AB_TENSORFILE_TEXT], wanted[AB_SHAPE_TEXT];
    return ab_fail(AB_INPUT,
                   "%s: expected bytes (uint8) in the shape of the net's input, %s, or several in one array; "
                   "found %s %s",
                   path, ab_shape_text(&r->request->shape->x, wanted), entry->element->name,
                   ab_tensor_shape_text(entry, found));
}

/* Images with one channel may omit the last dimension. */
static ab_status open_image_file(const reading *r, const char *path, image_file *a) {
    const ab_shape *want = &r->request->shape->x;
    const bool grey = want->dim[2] == 1;
    AB_TRY(ab_tensorfile_open(path, &a->file));
    if (a->file->count != 1)
        return ab_fail(AB_INPUT, "%s: expected a .npy file, found %d arrays", path, a->file->count);
    const ab_tensor_entry *e = a->entry = &a->file->tensor[0];
    if (strcmp(e->element->name, "uint8") != 0 || e->packed || e->fortran || e->stride)
        return wrong(r, path, e);
    const int64_t bytes = ab_shape_count(want);
    for (int several = 0; several < 2; several++) {
        bool fits = e->ndim == several + 3 || (grey && e->ndim == several + 2);
        for (int i = several; fits && i < e->ndim; i++) fits = e->dim[i] == want->dim[i - several];
        if (!fits) continue;
        a->count = several ? e->dim[0] : 1;
        return e->count == a->count * bytes ? ab_tensorfile_check(a->file, e) : wrong(r, path, e);
    }
    return wrong(r, path, e);
}

static void take_image(reading *r, const uint8_t *pixel, int label, int64_t in_class) {
    const ab_split which = in_class % TEST_EVERY == TEST_EVERY - 1 ? AB_SPLIT_TEST : AB_SPLIT_TRAIN;
    const int64_t bytes = ab_shape_count(&r->request->shape->x), n = r->number[which]++;
    if (!r->writes) return;
    ab_images *split = &r->data->split[which];
    memcpy(split->pixel + n * bytes, pixel, (size_t)bytes);
    split->label[n] = (uint8_t)label;
}

static ab_status read_image_file(reading *r, const char *path, int label, int64_t *in_class) {
    image_file a = {NULL, NULL, 0};
    ab_status status = open_image_file(r, path, &a);
    const int64_t bytes = ab_shape_count(&r->request->shape->x);
    for (int64_t i = 0; status == AB_OK && i < a.count; i++)
        take_image(r, a.file->map + a.entry->offset + i * bytes, label, (*in_class)++);
    ab_tensorfile_close(a.file);
    return status;
}

static ab_status read_class(reading *r, const char *path, int label) {
    ab_names files = {NULL, 0};
    int64_t in_class = 0;
    ab_status status = ab_folder_list(path, false, &files);
    for (int i = 0; status == AB_OK && i < files.count; i++)
        status = read_image_file(r, files.name[i], label, &in_class);
    if (status == AB_OK && in_class == 0)
        status = ab_fail(AB_INPUT, "--data: expected .npy files in %s, found none", path);
    ab_names_free(&files);
    return status;
}

static ab_status read_classes(reading *r, const ab_names *folders) {
    for (int i = 0; i < folders->count; i++) AB_TRY(read_class(r, folders->name[i], i));
    return AB_OK;
}

static ab_status make_room(reading *r) {
    const int64_t bytes = ab_shape_count(&r->request->shape->x);
    for (int s = 0; s < 2; s++) {
        ab_images *split = &r->data->split[s];
        if (r->number[s] == 0)
            return ab_fail(AB_INPUT,
                           "--data images:%s: expected %d or more images in a class, found no test sample",
                           r->request->path, (int)TEST_EVERY);
        AB_TRY(ab_block_create(&split->pixels, (size_t)(r->number[s] * bytes), r->request->path));
        AB_TRY(ab_block_create(&split->labels, (size_t)r->number[s], r->request->path));
        split->pixel = split->pixels.bytes;
        split->label = split->labels.bytes;
        split->count = r->number[s];
        r->number[s] = 0;
    }
    r->writes = true;
    return AB_OK;
}

static ab_status load(ab_data *data, const ab_data_request *request) {
    const ab_shape *want = &request->shape->x;
    reading r = {.data = data, .request = request};
    ab_names folders = {NULL, 0};
    if (strlen(request->path) >= AB_FOLDER_PATH) return ab_fail(AB_INPUT, "--data: expected a shorter path");
    ab_status status = ab_folder_list(request->path, true, &folders);
    if (status == AB_OK && (folders.count < 2 || folders.count > MOST_CLASSES))
        status =
            ab_fail(AB_INPUT, "--data images:%s: expected 2 to %d directories, one for each class, found %d",
                    request->path, (int)MOST_CLASSES, folders.count);
    if (status == AB_OK) status = read_classes(&r, &folders);
    if (status == AB_OK) status = make_room(&r);
    if (status == AB_OK) status = read_classes(&r, &folders);
    data->stored_height = want->dim[0];
    data->stored_width = want->dim[1];
    data->channels = want->dim[2];
    data->classes = folders.count;
    ab_text_show(data->origin, sizeof data->origin, "%s", request->path);
    ab_names_free(&folders);
    return status;
}

const ab_data_source ab_data_source_images = {
    .name = "images",
    .text = "images:PATH: a directory for each class with .npy files of bytes, an image or several in each, "
            "in the size the "
            "network asks for",
    .kind = AB_INPUT_IMAGES,
    .reads_path = true,
    .load = load,
};
