/* Tensor files of any framework behind one interface: open, list, find, stream.
 *
 * The file is memory-mapped and read in blocks, so files may be larger than memory; it must not be truncated
 * while open. Allocations are proportional to the header's size, never to a number in the header. Nothing is
 * extracted, executed or unpickled. A kind of file is one .c file with an ab_tensor_reader and one line in
 * readers.def.
 *
 * Every error is AB_INPUT and names the file (and the tensor), what was expected and what was found. */
#ifndef AB_BENCH_TENSORFILE_TENSORFILE_H
#define AB_BENCH_TENSORFILE_TENSORFILE_H

#include "kernels/core/shape.h"
#include "kernels/format/format.h"

AB_BEGIN_DECLS

/* AB_TENSORFILE_BLOCK: elements of one block; AB_TENSORFILE_CHUNKS: most chunks per tensor. Fixed, so that
 * sums by chunks do not depend on the number of threads. */
enum {
    AB_TENSORFILE_MAX_DIMS = 64,
    AB_TENSORFILE_TEXT = 256,
    AB_TENSORFILE_BLOCK = 1 << 18,
    AB_TENSORFILE_CHUNKS = 32
};

/* ---- elements -------------------------------------------------------------------------------- */

typedef struct ab_element {
    const char *name;        /* "fp32", "int64" */
    int bits;                /* of one element; 0: given by the file (strings, records) */
    const ab_format *format; /* NULL: not readable as numbers */
} ab_element;

typedef enum ab_element_id {
#define AB_ELEMENT(id, bits, format) AB_ELEMENT_##id,
#include "bench/tensorfile/elements.def"
#undef AB_ELEMENT
    AB_ELEMENT_COUNT
} ab_element_id;

/* The row of elements.def. */
const ab_element *ab_element_at(ab_element_id id);

/* ---- files and their tensors ----------------------------------------------------------------- */

typedef struct ab_tensor_entry {
    char *name; /* owned; valid UTF-8, may contain control characters: print with ab_tensor_printable */
    const ab_element *element;
    char dtype[16];  /* spelling in the file: "F32", ">f4" */
    int ndim;        /* 0 .. AB_TENSORFILE_MAX_DIMS */
    int64_t *dim;    /* owned; [ndim]; a dim may be 0 */
    int64_t count;   /* elements */
    int64_t bytes;   /* of the elements, unpacked */
    int64_t offset;  /* of the first stored byte in the file; packed tensors: of the packed bytes */
    int64_t packed;  /* compressed bytes, for the reader's unpacker; 0: not compressed */
    bool big_endian; /* byte order of the elements */
    bool fortran;    /* column-major: elements are in that order */
    int64_t skip;    /* packed tensors: unpacked bytes before the first element */
    int64_t *stride; /* owned; [ndim] in elements, of a tensor whose elements are not side by side in the
                        order of its indices; NULL: they are. They are read in the order of the indices */
} ab_tensor_entry;

/* What a file holds beside tensors. */
typedef enum ab_value_kind {
    AB_VALUE_NUMBER, /* also true and false */
    AB_VALUE_TEXT,
    AB_VALUE_CLASS, /* the name of a class or a function: text */
    AB_VALUE_CALL,  /* an object that is no tensor, by the name of its class: text */
    AB_VALUE_SHAPE  /* a torch.Size: dim[ndim] */
} ab_value_kind;

typedef struct ab_tensor_value {
    ab_value_kind kind;
    double number;
    const char *text; /* as in the file, not terminated */
    size_t bytes;
    const int64_t *dim;
    int ndim;
} ab_tensor_value;

/* Called for every value by name; both are borrowed. A failure ends the walk and is returned. */
typedef ab_status (*ab_value_visitor)(void *context, const char *name, const ab_tensor_value *value);

struct ab_tensor_reader;

typedef struct ab_tensorfile {
    char *path;
    const struct ab_tensor_reader *reader;
    const uint8_t *map; /* the whole file; NULL when size is 0 */
    int64_t size;
    void *mapping; /* unmapped by close: `map`, or NULL if the bytes are borrowed */
    int count, capacity;
    ab_tensor_entry *tensor; /* [capacity], count of them in use; in file order */
    ab_tensor_entry *alias;  /* [aliases], further names of bytes that a tensor has: found by name only */
    int aliases;
    char *note;        /* owned; what the file holds that is no tensor, one line of text; or NULL */
    void *reader_data; /* owned by the reader */
} ab_tensorfile;

/* Opens `path` with the reader that recognises its first bytes, else by suffix, and checks all tensor
 * entries. The caller closes *file. */
AB_MUST_CHECK ab_status ab_tensorfile_open(const char *path, ab_tensorfile **file);

/* The same for a file that is already in memory (tests, fuzzing); `bytes` is borrowed until close. `path` is
 * used in messages and for the suffix. */
AB_MUST_CHECK ab_status ab_tensorfile_open_memory(const char *path, const void *bytes, int64_t size,
                                                  ab_tensorfile **file);

/* For readers of sets: a file, or bytes, that a set has a part of; AB_INPUT if it is itself a set. */
AB_MUST_CHECK ab_status ab_tensorfile_open_part(const char *path, ab_tensorfile **file);
AB_MUST_CHECK ab_status ab_tensorfile_open_part_memory(const char *path, const void *bytes, int64_t size,
                                                       ab_tensorfile **file);

/* For sets that no file stands for: a file without bytes, of the reader. The caller adds its tensors. */
AB_MUST_CHECK ab_status ab_tensorfile_new(const char *path, const struct ab_tensor_reader *reader,
                                          ab_tensorfile **file);

/* For readers of sets: maps a file that has no reader. */
AB_MUST_CHECK ab_status ab_tensorfile_map(const char *path, ab_tensorfile **file);

void ab_tensorfile_close(ab_tensorfile *file); /* NULL is a no-op */

/* Finds the tensor called `name`, borrowed from the file; else AB_INPUT with the nearest names. */
AB_MUST_CHECK ab_status ab_tensorfile_find(const ab_tensorfile *file, const char *name,
                                           const ab_tensor_entry **entry);

/* How many files the tensors lie in: of a set, those that it names; else 1. */
int ab_tensorfile_files(const ab_tensorfile *file);

/* Leaves only the tensors below `prefix`, a key of the file, and takes it and its dot off their names. */
void ab_tensorfile_narrow(ab_tensorfile *file, const char *prefix);

/* Calls the visitor for what the file holds beside tensors: nothing, in most kinds of file. */
AB_MUST_CHECK ab_status ab_tensorfile_values(const ab_tensorfile *file, ab_value_visitor visit,
                                             void *context);

/* Reads the whole tensor as fp32 in file order into dst[entry->count]. fp64 is rounded (RNE), other formats
 * are exact. */
AB_MUST_CHECK ab_status ab_tensorfile_read(const ab_tensorfile *file, const ab_tensor_entry *entry,
                                           float *dst);

/* Finds `name`, checks its shape against `shape` (both are in the error) and that it is row-major, and reads
 * it. */
AB_MUST_CHECK ab_status ab_tensorfile_read_as(const ab_tensorfile *file, const char *name,
                                              const ab_shape *shape, float *dst);

/* `name` with control characters replaced and shortened to fit a one-line message; returns `text`. */
const char *ab_tensor_printable(const char *name, char text[AB_TENSORFILE_TEXT]);

/* Shape as "[64, 1, 5, 5]", shortened with "..." to fit; returns `text`. */
const char *ab_tensor_shape_text(const ab_tensor_entry *entry, char text[AB_TENSORFILE_TEXT]);

/* ---- streaming ------------------------------------------------------------------------------- */

typedef struct ab_tensor_block {
    const ab_format
        *format;      /* of `data`: fp32, fp16 or bf16; other types are converted to fp32 (fp64: rounded) */
    const void *data; /* n elements, aligned for their type, in this machine's byte order */
    int64_t first, n; /* elements [first, first + n) of the tensor, in file order */
    int64_t load_flushed;    /* finite non-zero fp64 values that rounding to fp32 made 0 */
    int64_t load_overflowed; /* finite fp64 values that rounding to fp32 made infinite */
} ab_tensor_block;

/* Callback for the blocks of a tensor. A chunk is a run of consecutive blocks that depends only on the
 * tensor's size. see() is called for the blocks of a chunk in order, and concurrently for different chunks.
 * Sums per chunk, added in the order of chunks, are the same for any number of threads. */
typedef struct ab_block_visitor {
    void *context;
    void (*see)(void *context, int chunk, const ab_tensor_block *block);
} ab_block_visitor;

/* Number of chunks of `entry`. */
int ab_tensorfile_chunks(const ab_tensor_entry *entry);

/* Calls `visitor` for every block of `entry`, on the threads of ab_parallel_start. AB_INPUT if its element
 * type has no format or packed data is damaged; AB_NO_MEMORY. Allocates at most 20 bytes *
 * AB_TENSORFILE_BLOCK per thread. */
AB_MUST_CHECK ab_status ab_tensorfile_stream(const ab_tensorfile *file, const ab_tensor_entry *entry,
                                             const ab_block_visitor *visitor);

/* Checks the checksum of a tensor's stored bytes, if the kind of file has one. Reading and streaming do so;
 * for who reads file->map. Packed tensors are checked as they are unpacked. AB_INPUT, with the file's name.
 */
AB_MUST_CHECK ab_status ab_tensorfile_check(const ab_tensorfile *file, const ab_tensor_entry *entry);

/* ---- readers --------------------------------------------------------------------------------- */

typedef struct ab_tensor_reader {
    const char *name, *suffix; /* "npy", ".npy" */
    const char *also; /* other suffixes that files of other kinds have too: " .bin .ckpt "; or NULL */
    const char *text; /* one line of help */
    bool (*recognise)(const uint8_t *bytes, int64_t size);
    /* Fills file->tensor and file->count with ab_tensorfile_add; messages need not name the file. */
    ab_status (*list)(ab_tensorfile *file);
    /* Checks the stored bytes of a tensor that is not packed, before they are read; NULL: nothing to check.
     */
    ab_status (*check)(const ab_tensorfile *file, const ab_tensor_entry *entry);
    /* Of a set, whose tensors lie in other files: the file and entry that have all elements of a tensor;
     * false: several have them, and they are unpacked. NULL: the kind is no set. */
    bool (*elsewhere)(const ab_tensorfile *file, const ab_tensor_entry *entry, const ab_tensorfile **other,
                      const ab_tensor_entry **there);
    /* Of a set, how many files its tensors lie in; NULL: in this one. */
    int (*files)(const ab_tensorfile *file);
    /* Unpacking, NULL if the kind has no packed tensors: begin, then fill dst in order, then end, which
     * checks that the data was complete. end frees `state` also after a failure. */
    ab_status (*unpack_begin)(const ab_tensorfile *file, const ab_tensor_entry *entry, void **state);
    ab_status (*unpack)(void *state, uint8_t *dst, int64_t bytes);
    ab_status (*unpack_end)(void *state, bool complete);
    /* ab_tensorfile_values; NULL: none. */
    ab_status (*values)(const ab_tensorfile *file, ab_value_visitor visit, void *context);
    void (*release)(ab_tensorfile *file); /* frees reader_data; may be NULL */
} ab_tensor_reader;

#define AB_TENSOR_READER(name) extern const ab_tensor_reader ab_tensor_reader_##name;
#include "bench/tensorfile/readers.def"
#undef AB_TENSOR_READER

/* The rows of readers.def, in order: i in [0, count). */
int ab_tensor_reader_count(void);
const ab_tensor_reader *ab_tensor_reader_at(int i);

/* For readers: appends `entry` without checks; the file takes ownership of its pointers, also on failure. */
AB_MUST_CHECK ab_status ab_tensorfile_add(ab_tensorfile *file, const ab_tensor_entry *entry);

/* For readers: the first name that occurs twice among names[count], or NULL. Sorts them. */
const char *ab_tensor_duplicate(const char **names, int count);

/* For readers that walk through a file: releases mapped pages of the stretch that [from, to) has left, to
 * keep the resident set small. Pages that are needed again are mapped again. */
void ab_tensorfile_release(const ab_tensorfile *file, int64_t from, int64_t to);

/* For readers: frees what an entry that was not added owns. */
void ab_tensor_entry_clear(ab_tensor_entry *entry);

/* For readers: computes entry->count and entry->bytes (`item_bits` per element) from its dims; AB_INPUT if a
 * dim is negative or the product overflows. */
AB_MUST_CHECK ab_status ab_tensor_entry_measure(ab_tensor_entry *entry, int64_t item_bits);

AB_END_DECLS

#endif
