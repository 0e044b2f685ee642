/* Where frameworks put things when they save a training run. A layout is one file with an
 * ab_checkpoint_layout and one line in layouts.def; moments and parameter groups have the same names in all
 * (those of torch.optim) and need none. */
#ifndef AB_BENCH_CHECKPOINT_LAYOUT_H
#define AB_BENCH_CHECKPOINT_LAYOUT_H

#include "bench/tensorfile/tensorfile.h"

AB_BEGIN_DECLS

/* Patterns are of fnmatch, several are separated by |; those of files are matched with the last part of the
 * path. */
typedef struct ab_checkpoint_layout {
    const char *name, *text;
    const char *mark;    /* a file that only this layout has */
    const char *key;     /* a value or tensor that this file has; NULL: any */
    const char *weights; /* files of weights */
    const char *model;   /* names of weights in them; what the last * stands for is the parameter's name */
    const char *scale, *tracker, *skipped, *steps; /* names of numbers in any file; NULL: it has none */
    bool masters;                                  /* the optimizer keeps fp32 copies of half weights */
} ab_checkpoint_layout;

#define AB_CHECKPOINT_LAYOUT(name) extern const ab_checkpoint_layout ab_checkpoint_layout_##name;
#include "bench/checkpoint/layouts.def"
#undef AB_CHECKPOINT_LAYOUT

/* Whether `text` matches one of the patterns. */
bool ab_checkpoint_matches(const char *patterns, const char *text);

/* The part of `text` that the last * of the matching pattern stands for; NULL: none matches. */
const char *ab_checkpoint_star(const char *patterns, const char *text);

/* The first row whose mark and key are among the files; NULL: none. */
const ab_checkpoint_layout *ab_checkpoint_layout_of(ab_tensorfile *const *file, int files);

AB_END_DECLS

#endif
