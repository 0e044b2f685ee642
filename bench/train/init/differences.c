/* Differences between the tensors of a file and a network. */
#include "bench/train/init/differences.h"

#include "kernels/core/text.h"

#include <stdio.h>
#include <string.h>

enum { SHOWN = 6 };

void ab_differ(ab_differences *found, const char *name, const char *how) {
    char shown[AB_TENSORFILE_TEXT];
    if (found->count++ < SHOWN)
        ab_text_append(found->text, sizeof found->text, "%s'%s' %s", found->text[0] ? ", " : "",
                       ab_text_brief(ab_tensor_printable(name, shown), 60), how);
}

const ab_tensor_entry *ab_entry_of(const ab_tensorfile *file, const char *name) {
    for (int i = 0; i < file->count; i++)
        if (strcmp(file->tensor[i].name, name) == 0) return &file->tensor[i];
    return NULL;
}

static bool same_shape(const ab_tensor_entry *entry, const ab_shape *shape, const int *axis) {
    if (entry->ndim != shape->ndim) return false;
    for (int d = 0; d < shape->ndim; d++)
        if (entry->dim[axis ? axis[d] : d] != shape->dim[d]) return false;
    return true;
}

void ab_differ_from(ab_differences *found, const ab_tensorfile *file, const char *name, const ab_shape *shape,
                    const int *axis) {
    char there[AB_TENSORFILE_TEXT], here[AB_SHAPE_TEXT], how[AB_TENSORFILE_TEXT];
    const ab_tensor_entry *entry = ab_entry_of(file, name);
    if (!entry) {
        ab_differ(found, name, "is missing");
    } else if (!same_shape(entry, shape, axis)) {
        ab_text_show(how, sizeof how, "is %s there%s and %s here",
                     ab_text_brief(ab_tensor_shape_text(entry, there), 80),
                     axis ? " before its axes are permuted" : "",
                     ab_text_brief(ab_shape_text(shape, here), 80));
        ab_differ(found, name, how);
    }
}

ab_status ab_differences_status(const ab_differences *found, const char *net) {
    if (found->count == 0) return AB_OK;
    return ab_fail(AB_INPUT, "tensors differ from those of network %s: %s%s", net, found->text,
                   found->count > SHOWN ? ", ..." : "");
}
