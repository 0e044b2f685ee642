/* Tensors whose elements lie in other files: the shards of a checkpoint that several processes wrote. A
 * reader of such a set opens the files, and says for every tensor which pieces it is made of; reading puts
 * them together, and where one file has all elements in order it is read there.
 *
 * Nothing is copied but what is read. The files are mapped; they belong to the set. */
#ifndef AB_BENCH_TENSORFILE_ASSEMBLED_H
#define AB_BENCH_TENSORFILE_ASSEMBLED_H

#include "bench/tensorfile/tensorfile.h"

AB_BEGIN_DECLS

/* A box of a tensor: elements [offset, offset + size) in every dimension, which lie in the order of their
 * indices in `entry` of `file`, from its element `first` on. */
typedef struct ab_piece {
    const ab_tensorfile *file;
    const ab_tensor_entry *entry;
    int64_t first;
    int64_t offset[AB_TENSORFILE_MAX_DIMS], size[AB_TENSORFILE_MAX_DIMS];
} ab_piece;

/* Where a tensor's elements are. */
typedef struct ab_assembly {
    int ndim; /* of the boxes; those of the tensor, or 1 for elements in their order */
    int64_t dim[AB_TENSORFILE_MAX_DIMS];
    ab_piece *piece; /* owned */
    int pieces, room;
} ab_assembly;

typedef struct ab_assembled {
    ab_tensorfile **file; /* owned and opened; may be added to by ab_assembled_open */
    int files, file_room;
    int *named; /* owned; those that ab_assembled_open opened, the last one first found */
    int nameds;
    ab_assembly *of; /* entry->offset is the index */
    int count, room;
} ab_assembled;

/* Opens a file of the set, once: `name` lies beside `beside`, and must be no path. *file is borrowed. */
AB_MUST_CHECK ab_status ab_assembled_open(ab_assembled *set, const char *beside, const char *name,
                                          bool mapped, ab_tensorfile **file);

/* Adds a file that is already open to those that the set closes, also after a failure. */
AB_MUST_CHECK ab_status ab_assembled_keep(ab_assembled *set, ab_tensorfile *file);

/* A new tensor of `file`, with the shape dim[ndim]; its pieces are added next. *assembly is valid until the
 * next tensor. */
AB_MUST_CHECK ab_status ab_assembled_add(ab_assembled *set, ab_tensorfile *file, const char *name, int ndim,
                                         const int64_t *dim, ab_assembly **assembly);

/* Adds a piece, of which all but `first` may be left to the caller to set. */
AB_MUST_CHECK ab_status ab_assembly_add(ab_assembly *assembly, const ab_piece *piece);

/* Sets the element type of the last tensor of `file` from its pieces and checks that they are of one type,
 * lie in the tensor and in their entries, and have as many elements. AB_INPUT names the tensor. */
AB_MUST_CHECK ab_status ab_assembled_finish(const ab_assembled *set, ab_tensorfile *file);

/* Makes a file of sets that no file stands for: `data`, which the reader owns, begins with the set, and
 * `build` adds the tensors. Errors name the path. */
AB_MUST_CHECK ab_status ab_assembled_build(const char *path, const ab_tensor_reader *reader, void *data,
                                           ab_status (*build)(void *context, ab_tensorfile *file),
                                           void *context, ab_tensorfile **file);

/* For a reader: its hooks, with the set as file->reader_data. */
bool ab_assembled_elsewhere(const ab_tensorfile *file, const ab_tensor_entry *entry,
                            const ab_tensorfile **other, const ab_tensor_entry **there);
int ab_assembled_files(const ab_tensorfile *file);
AB_MUST_CHECK ab_status ab_assembled_begin(const ab_tensorfile *file, const ab_tensor_entry *entry,
                                           void **state);
AB_MUST_CHECK ab_status ab_assembled_next(void *state, uint8_t *dst, int64_t bytes);
AB_MUST_CHECK ab_status ab_assembled_end(void *state, bool complete);
void ab_assembled_release(ab_tensorfile *file);

AB_END_DECLS

#endif
