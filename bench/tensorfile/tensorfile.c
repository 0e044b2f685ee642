/* Opens files, lists and finds tensors, for all kinds of tensor file. Readers parse the formats; stream.c
 * reads blocks. */
#define _POSIX_C_SOURCE 200809L

#include "bench/tensorfile/tensorfile.h"
#include "kernels/core/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- tables ---------------------------------------------------------------------------------- */

const ab_element *ab_element_at(ab_element_id id) {
    static const ab_element elements[] = {
#define AB_ELEMENT(id, bits, format) {#id, bits, format},
#include "bench/tensorfile/elements.def"
#undef AB_ELEMENT
    };
    return &elements[id];
}

static const ab_tensor_reader *const readers[] = {
#define AB_TENSOR_READER(name) &ab_tensor_reader_##name,
#include "bench/tensorfile/readers.def"
#undef AB_TENSOR_READER
};

int ab_tensor_reader_count(void) { return (int)AB_COUNT_OF(readers); }

const ab_tensor_reader *ab_tensor_reader_at(int i) { return readers[i]; }

/* ---- text ------------------------------------------------------------------------------------ */

const char *ab_tensor_printable(const char *name, char text[AB_TENSORFILE_TEXT]) {
    size_t n = 0, limit = AB_TENSORFILE_TEXT - 4, length = strlen(name);
    for (; n < length && n < limit; n++) {
        unsigned char c = (unsigned char)name[n];
        bool c1 = c == 0xC2 &&
                  (unsigned char)name[n + 1] < 0xA0; /* U+0080..U+009F: terminals interpret some of them */
        text[n] = (char)(c < 0x20 || c == 0x7F || c1 ? '?' : c);
        if (c1 && n + 1 < limit) text[++n] = '?';
    }
    if (n < length) {
        while (n > 0 && ((unsigned char)name[n] & 0xC0) == 0x80) n--; /* not in the middle of a character */
        memcpy(text + n, "...", 3);
        n += 3;
    }
    text[n] = '\0';
    return text;
}

const char *ab_tensor_shape_text(const ab_tensor_entry *entry, char text[AB_TENSORFILE_TEXT]) {
    return ab_dims_text(entry->dim, entry->ndim, text, AB_TENSORFILE_TEXT);
}

/* ---- entries --------------------------------------------------------------------------------- */

void ab_tensor_entry_clear(ab_tensor_entry *entry) {
    free(entry->name);
    free(entry->dim);
    free(entry->stride);
    memset(entry, 0, sizeof *entry);
}

ab_status ab_tensor_entry_measure(ab_tensor_entry *entry, int64_t item_bits) {
    int64_t count = 1;
    bool fits = true;
    for (int i = 0; i < entry->ndim && fits; i++) {
        fits = entry->dim[i] >= 0 && (entry->dim[i] == 0 || count <= INT64_MAX / entry->dim[i]);
        if (fits) count *= entry->dim[i];
    }
    fits = fits && (item_bits == 0 || count <= (INT64_MAX - 7) / item_bits);
    if (!fits) {
        char name[AB_TENSORFILE_TEXT], shape[AB_TENSORFILE_TEXT];
        return ab_fail(AB_INPUT, "tensor \"%s\": the number of bytes of shape %s does not fit in 63 bits",
                       ab_tensor_printable(entry->name, name), ab_tensor_shape_text(entry, shape));
    }
    entry->count = count;
    entry->bytes = (count * item_bits + 7) / 8;
    return AB_OK;
}

ab_status ab_tensorfile_add(ab_tensorfile *file, const ab_tensor_entry *entry) {
    if (file->count == file->capacity) {
        int capacity = file->capacity ? 2 * file->capacity : 8;
        ab_tensor_entry *grown = realloc(file->tensor, (size_t)capacity * sizeof *grown);
        if (!grown) {
            ab_tensor_entry lost = *entry;
            ab_tensor_entry_clear(&lost);
            return ab_fail(AB_NO_MEMORY, "out of memory for a list of %d tensors", capacity);
        }
        file->tensor = grown;
        file->capacity = capacity;
    }
    file->tensor[file->count++] = *entry;
    return AB_OK;
}

static int by_name(const void *a, const void *b) {
    const char *const *x = a, *const *y = b;
    return strcmp(*x, *y);
}

const char *ab_tensor_duplicate(const char **names, int count) {
    qsort(names, (size_t)count, sizeof *names, by_name);
    for (int i = 1; i < count; i++)
        if (strcmp(names[i - 1], names[i]) == 0) return names[i];
    return NULL;
}

/* ---- open and close -------------------------------------------------------------------------- */

static bool has_suffix(const char *path, const char *suffix) {
    size_t n = strlen(path), m = strlen(suffix);
    return n >= m && strcmp(path + n - m, suffix) == 0;
}

/* The kind that the first bytes, or the name, are of; NULL if of none. */
static const ab_tensor_reader *reader_of_bytes(const ab_tensorfile *file) {
    for (int i = 0; i < ab_tensor_reader_count(); i++)
        if (readers[i]->recognise(file->map, file->size)) return readers[i];
    return NULL;
}

static const ab_tensor_reader *reader_of_name(const ab_tensorfile *file) {
    for (int i = 0; i < ab_tensor_reader_count(); i++)
        if (has_suffix(file->path, readers[i]->suffix)) return readers[i];
    return NULL;
}

/* The same by a suffix that files of other kinds have too. */
static const ab_tensor_reader *reader_of_other_name(const ab_tensorfile *file) {
    const char *suffix = strrchr(file->path, '.');
    char word[16];
    if (!suffix || !ab_text_fits(word, sizeof word, " %s ", suffix)) return NULL;
    for (int i = 0; i < ab_tensor_reader_count(); i++)
        if (readers[i]->also && strstr(readers[i]->also, word)) return readers[i];
    return NULL;
}

/* Bytes decide, but a file that is called one kind and is another was mixed up somewhere. If only the name is
 * of a kind, its list() reports what is wrong with the first bytes. */
static ab_status choose_reader(ab_tensorfile *file) {
    const ab_tensor_reader *bytes = reader_of_bytes(file), *name = reader_of_name(file);
    if (!bytes && !name) name = reader_of_other_name(file);
    if (!bytes && !name)
        return ab_fail(AB_INPUT, "not a tensor file: expected .safetensors, .npy, .npz or .pt");
    if (bytes && name && bytes != name)
        return ab_fail(AB_INPUT, "expected %s, as the name ends in %s, found %s (rename it to *%s)",
                       name->name, name->suffix, bytes->name, bytes->suffix);
    file->reader = bytes ? bytes : name;
    return AB_OK;
}

static ab_status map_file(ab_tensorfile *file) {
    ab_status status = AB_OK;
    struct stat info;
    int handle =
        open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not block the check below */
    if (handle < 0) return ab_fail(AB_INPUT, "cannot open: %s", strerror(errno));
    if (fstat(handle, &info) != 0) {
        status = ab_fail(AB_INPUT, "cannot read: %s", strerror(errno));
        goto out;
    }
    if (!S_ISREG(info.st_mode)) {
        status = ab_fail(AB_INPUT, "expected a regular file, found %s",
                         S_ISDIR(info.st_mode) ? "a directory" : "a device or a pipe");
        goto out;
    }
    file->size = info.st_size;
    if (file->size == 0) goto out;
    void *map = mmap(NULL, (size_t)file->size, PROT_READ, MAP_SHARED, handle, 0);
    if (map == MAP_FAILED) {
        status = ab_fail(AB_INPUT, "cannot map %lld bytes: %s", (long long)file->size, strerror(errno));
        goto out;
    }
    file->map = file->mapping = map;
out:
    close(handle);
    return status;
}

static ab_status create(const char *path, ab_tensorfile **result) {
    ab_tensorfile *file = calloc(1, sizeof *file);
    char *copy = ab_text_new("%s", path);
    if (!file || !copy) {
        free(file);
        free(copy);
        ab_fail(AB_NO_MEMORY, "%s: out of memory", path);
        return AB_NO_MEMORY;
    }
    file->path = copy;
    *result = file;
    return AB_OK;
}

/* Lists the tensors of an opened file (`status`: result of opening) and returns it, or closes it on
 * errors. `sets`: it may be one. */
static ab_status finish_open(ab_tensorfile *file, ab_status status, bool sets, ab_tensorfile **result) {
    if (status == AB_OK) status = choose_reader(file);
    if (status == AB_OK && !sets && file->reader->elsewhere)
        status = ab_fail(AB_INPUT, "expected a file with tensors, found %s", file->reader->name);
    if (status == AB_OK) status = file->reader->list(file);
    if (status == AB_OK) {
        *result = file;
        return AB_OK;
    }
    status = ab_fail_prefix(status, "%s", file->path);
    ab_tensorfile_close(file);
    return status;
}

static ab_status open_file(const char *path, bool sets, ab_tensorfile **file) {
    ab_tensorfile *created = NULL;
    AB_TRY(create(path, &created));
    return finish_open(created, map_file(created), sets, file);
}

static ab_status open_memory(const char *path, const void *bytes, int64_t size, bool sets,
                             ab_tensorfile **file) {
    ab_tensorfile *created = NULL;
    AB_TRY(create(path, &created));
    created->map = bytes;
    created->size = size;
    return finish_open(created, AB_OK, sets, file);
}

ab_status ab_tensorfile_open(const char *path, ab_tensorfile **file) { return open_file(path, true, file); }

ab_status ab_tensorfile_open_part(const char *path, ab_tensorfile **file) {
    return open_file(path, false, file);
}

ab_status ab_tensorfile_open_memory(const char *path, const void *bytes, int64_t size, ab_tensorfile **file) {
    return open_memory(path, bytes, size, true, file);
}

ab_status ab_tensorfile_open_part_memory(const char *path, const void *bytes, int64_t size,
                                         ab_tensorfile **file) {
    return open_memory(path, bytes, size, false, file);
}

ab_status ab_tensorfile_new(const char *path, const ab_tensor_reader *reader, ab_tensorfile **file) {
    AB_TRY(create(path, file));
    (*file)->reader = reader;
    return AB_OK;
}

ab_status ab_tensorfile_map(const char *path, ab_tensorfile **file) {
    ab_tensorfile *created = NULL;
    AB_TRY(create(path, &created));
    const ab_status status = map_file(created);
    if (status == AB_OK)
        *file = created;
    else
        ab_tensorfile_close(created);
    return status == AB_OK ? AB_OK : ab_fail_prefix(status, "%s", path);
}

void ab_tensorfile_close(ab_tensorfile *file) {
    if (!file) return;
    if (file->reader && file->reader->release) file->reader->release(file);
    for (int i = 0; i < file->count; i++) ab_tensor_entry_clear(&file->tensor[i]);
    for (int i = 0; i < file->aliases; i++) ab_tensor_entry_clear(&file->alias[i]);
    free(file->tensor);
    free(file->alias);
    free(file->note);
    if (file->mapping) munmap(file->mapping, (size_t)file->size);
    free(file->path);
    free(file);
}

ab_status ab_tensorfile_check(const ab_tensorfile *file, const ab_tensor_entry *entry) {
    if (entry->packed || !file->reader->check) return AB_OK;
    const ab_status status = file->reader->check(file, entry);
    return status == AB_OK ? AB_OK : ab_fail_prefix(status, "%s", file->path);
}

static int narrow(ab_tensor_entry *entry, int count, const char *prefix) {
    const size_t length = strlen(prefix);
    int kept = 0;
    for (int i = 0; i < count; i++) {
        char *name = entry[i].name;
        if (strncmp(name, prefix, length) == 0 && name[length] == '.') {
            memmove(name, name + length + 1, strlen(name + length + 1) + 1);
            entry[kept++] = entry[i];
        } else {
            ab_tensor_entry_clear(&entry[i]);
        }
    }
    return kept;
}

void ab_tensorfile_narrow(ab_tensorfile *file, const char *prefix) {
    file->count = narrow(file->tensor, file->count, prefix);
    file->aliases = narrow(file->alias, file->aliases, prefix);
}

int ab_tensorfile_files(const ab_tensorfile *file) {
    return file->reader->files ? file->reader->files(file) : 1;
}

ab_status ab_tensorfile_values(const ab_tensorfile *file, ab_value_visitor visit, void *context) {
    return file->reader->values ? file->reader->values(file, visit, context) : AB_OK;
}

/* ---- find ------------------------------------------------------------------------------------ */

/* Always fails with AB_INPUT; composes the message. */
static ab_status no_such_tensor(const ab_tensorfile *file, const char *name) {
    char wanted[AB_TENSORFILE_TEXT], nearest[AB_TENSORFILE_TEXT];
    const char **names = malloc((size_t)(file->count > 0 ? file->count : 1) * sizeof *names);
    for (int i = 0; i < file->count && names; i++) names[i] = file->tensor[i].name;
    const char *near = names ? ab_nearest(name, names, file->count) : NULL;
    free(names);
    ab_tensor_printable(name, wanted);
    if (near)
        ab_fail(AB_INPUT, "%s: expected a tensor \"%s\", found none; nearest is \"%s\"", file->path, wanted,
                ab_tensor_printable(near, nearest));
    else
        ab_fail(AB_INPUT, "%s: expected a tensor \"%s\", found none of that name among %d", file->path,
                wanted, file->count);
    return AB_INPUT;
}

ab_status ab_tensorfile_find(const ab_tensorfile *file, const char *name, const ab_tensor_entry **entry) {
    for (int i = 0; i < file->count; i++)
        if (strcmp(file->tensor[i].name, name) == 0) {
            *entry = &file->tensor[i];
            return AB_OK;
        }
    for (int i = 0; i < file->aliases; i++)
        if (strcmp(file->alias[i].name, name) == 0) {
            *entry = &file->alias[i];
            return AB_OK;
        }
    return no_such_tensor(file, name);
}
