/* Walks through the tree of a pickle that PyTorch wrote and names what it finds: tensors, numbers, texts, and
 * objects of other kinds. Names are the keys on the way joined by dots, as in a state dict.
 *
 * Only the constructors of tensors and containers that pt_walk.c lists are interpreted; other calls and
 * classes are objects with the name of what would have been called, and the walk goes on into their state.
 * Every container is entered once, so that shared ones and cycles end. */
#ifndef AB_BENCH_TENSORFILE_PT_WALK_H
#define AB_BENCH_TENSORFILE_PT_WALK_H

#include "bench/tensorfile/pickle.h"
#include "bench/tensorfile/tensorfile.h"

AB_BEGIN_DECLS

enum { AB_PT_NAME = 4096 }; /* longest name; what is nested deeper has none */

/* An element type, by the names that PyTorch gives its storages and dtypes. */
typedef struct ab_pt_type {
    const char *storage; /* "FloatStorage"; "none": stored untyped */
    const char *dtype;   /* "float32" */
    const char *shown;   /* spelling of entries, shorter than 16 */
    ab_element_id element;
} ab_pt_type;

typedef struct ab_pt_tensor {
    const ab_pt_type *type;
    const uint8_t *key; /* of the storage, in the file */
    uint32_t key_bytes;
    int64_t stored; /* elements of the storage, by the type */
    int64_t offset; /* of the first element, in elements */
    int64_t view;   /* start of a view of the storage in old files, in elements */
    int ndim;
    int64_t dim[AB_TENSORFILE_MAX_DIMS], stride[AB_TENSORFILE_MAX_DIMS];
} ab_pt_tensor;

typedef struct ab_pt_visitor {
    void *context;
    /* `name` is UTF-8 and valid during the call, as what the others point to. */
    ab_status (*tensor)(void *context, const char *name, const ab_pt_tensor *tensor);
    ab_status (*value)(void *context, const char *name, const ab_tensor_value *value);
} ab_pt_visitor;

/* Whether the node stands for a storage; then its key, size and type (NULL: untyped, counted in bytes) are
 * set in *tensor. */
bool ab_pt_storage(const ab_pickle *tree, uint32_t node, ab_pt_tensor *tensor);

/* Calls the visitor for everything below `root`, in the order of the file; either function may be NULL.
 * AB_INPUT if a tensor's arguments are not a tensor's, AB_NO_MEMORY, or what the visitor returns. */
AB_MUST_CHECK ab_status ab_pt_walk(const ab_pickle *tree, uint32_t root, const ab_pt_visitor *visitor);

AB_END_DECLS

#endif
