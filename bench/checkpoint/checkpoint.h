/* A saved training run: the tensor files of a folder, or one file, with weights, moments of the optimizer and
 * the numbers beside them, whichever framework wrote it. Files are mapped, not copied. */
#ifndef AB_BENCH_CHECKPOINT_CHECKPOINT_H
#define AB_BENCH_CHECKPOINT_CHECKPOINT_H

#include "bench/checkpoint/layout.h"

AB_BEGIN_DECLS

enum { AB_CHECKPOINT_GROUPS = 64 };

/* A tensor of one of the files; both are borrowed from the checkpoint. */
typedef struct ab_checkpoint_tensor {
    const ab_tensorfile *file;
    const ab_tensor_entry *entry;
    const char *name; /* of a weight: without the keys above the model */
} ab_checkpoint_tensor;

/* How a weight was found for moments. */
typedef enum ab_checkpoint_pairing {
    AB_CHECKPOINT_UNPAIRED,
    AB_CHECKPOINT_BY_NAME,  /* the optimizer knows its name */
    AB_CHECKPOINT_BY_ORDER, /* there are as many, of the same shapes in turn */
    AB_CHECKPOINT_BY_SHAPE  /* the next of its shape: sizes fit, the parameter may be another like it */
} ab_checkpoint_pairing;

/* Adam's moments of one parameter. */
typedef struct ab_checkpoint_moments {
    ab_checkpoint_tensor first, second; /* m and v */
    int64_t id;                         /* the optimizer's number of the parameter */
    double step;                        /* updates so far; NAN: not saved */
    int group;                          /* -1: not known */
    int weight;                         /* index of the weight; -1: none */
    ab_checkpoint_pairing pairing;
} ab_checkpoint_moments;

/* Hyper-parameters of a parameter group; NAN: not saved. */
typedef struct ab_checkpoint_group {
    double lr, eps, beta1, beta2, weight_decay;
    bool decoupled;
} ab_checkpoint_group;

typedef struct ab_checkpoint {
    const char *path; /* borrowed */
    const ab_checkpoint_layout *layout;
    ab_tensorfile **file;
    int files;
    ab_checkpoint_tensor *weight;
    int weights;
    ab_checkpoint_moments *moments;
    int moment_count;
    ab_checkpoint_group group[AB_CHECKPOINT_GROUPS];
    int groups;
    double scale, tracker, skipped, steps; /* NAN: not saved */
} ab_checkpoint;

/* Whether the path is a folder with tensor files, or a file of torch.save. */
bool ab_checkpoint_recognise(const char *path);

/* Opens the file, or the tensor files of the folder and its folders, as one set. AB_INPUT if there are none.
 * The caller closes it, also after a failure. */
AB_MUST_CHECK ab_status ab_checkpoint_open(const char *path, ab_checkpoint *checkpoint);
void ab_checkpoint_close(ab_checkpoint *checkpoint);

AB_END_DECLS

#endif
