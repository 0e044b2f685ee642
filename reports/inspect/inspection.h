/* Inspection of tensors in files: counts, effects of a cast, loss-scale advice, and their output formats.
 * bench/inspect fills the structs. */
#ifndef AB_REPORTS_INSPECT_INSPECTION_H
#define AB_REPORTS_INSPECT_INSPECTION_H

#include "kernels/census/whatif.h"
#include "reports/advise/scale_advice.h"

#include <stdio.h>

AB_BEGIN_DECLS

/* Scales 2^MIN .. 2^MAX are searched for advice, 2^LOW .. 2^HIGH are listed in JSON. AB_INSPECT_TEXT: room
 * for a label. */
enum {
    AB_INSPECT_FORMATS = 8,
    AB_INSPECT_MIN = -60,
    AB_INSPECT_MAX = 60,
    AB_INSPECT_LOW = -24,
    AB_INSPECT_HIGH = 32,
    AB_INSPECT_TEXT = 256
};

/* ---- options --------------------------------------------------------------------------------- */

typedef struct ab_inspect_question {
    const ab_format *format[AB_INSPECT_FORMATS]; /* the first is used for the histogram and the table */
    int formats;
    float scale;        /* for the table; any positive normal fp32 number */
    ab_scale_goal goal; /* criterion for a recommended scale; its ftz applies to all predictions */
} ab_inspect_question;

/* ---- results --------------------------------------------------------------------------------- */

/* One tensor of a file. All texts are borrowed. */
typedef struct ab_inspect_tensor {
    const char *name;    /* valid UTF-8, may hold control characters */
    const char *path;    /* of its file; any bytes */
    const char *element; /* "fp32" */
    const char *dtype;   /* as spelled in the file: "F32", ">f4" */
    int ndim;
    const int64_t *dim; /* borrowed; [ndim] */
    int64_t count;      /* elements */
} ab_inspect_tensor;

typedef struct ab_inspect_count {
    ab_census census;        /* of the values as fp32; `subnormal` in the stored format */
    int64_t load_flushed;    /* of these, zeros that are finite non-zero fp64 numbers in the file */
    int64_t load_overflowed; /* of these, infinities that are finite in the file */
} ab_inspect_count;

/* Limits of the selected formats at every listed power of two and at the selected scale. */
typedef struct ab_inspect_limits {
    ab_whatif_limits power[AB_INSPECT_FORMATS][AB_INSPECT_HIGH - AB_INSPECT_LOW + 1];
    ab_whatif_limits scale[AB_INSPECT_FORMATS];
} ab_inspect_limits;

/* Stored per tensor. */
typedef struct ab_inspect_row {
    ab_inspect_tensor tensor;
    int64_t zero, nan, inf, nonzero;
    float min_abs, max_abs; /* of the finite non-zero values */
    ab_whatif_range at_scale[AB_INSPECT_FORMATS];
    ab_scale_range advice[AB_INSPECT_FORMATS];
} ab_inspect_row;

typedef struct ab_inspect_result {
    const ab_inspect_question *question; /* borrowed */
    int files;                           /* that were named, or found in a folder; a set is one */
    int stored_in;                       /* files that their tensors lie in */
    ab_inspect_limits limits;
    ab_inspect_row *row; /* owned; [rows], at least one when printed */
    int rows;
    ab_inspect_tensor *skipped; /* owned; [skips]: tensors that are not floating-point */
    int skips;
    ab_inspect_count pooled;                    /* all tensors together */
    ab_scale_advice advice[AB_INSPECT_FORMATS]; /* its tensor indices are rows */
} ab_inspect_result;

/* ---- output ---------------------------------------------------------------------------------- */

/* JSON, streamed while tensors are counted: begin, every tensor, end. Errors are reported by ferror(out). */
void ab_inspect_json_begin(FILE *out);
void ab_inspect_json_tensor(FILE *out, const ab_inspect_result *result, int row,
                            const ab_inspect_count *count, const ab_census_totals *totals);
void ab_inspect_json_end(FILE *out, const ab_inspect_result *result);

/* Prints histogram, recommended scales with the tensors that determine them, and a table of tensors.
 * color: ANSI colours. */
void ab_inspect_print(FILE *out, const ab_inspect_result *result, bool color);

/* Display name: cleaned, prefixed with the file name if there are several files. label[AB_INSPECT_TEXT].
 * Returns `label`. */
const char *ab_inspect_label(const ab_inspect_result *result, int row, char *label);

/* Writes the histogram's data and a gnuplot script to `folder`, and the image if gnuplot is available;
 * `note` receives a static text if it could not be drawn, else NULL. */
AB_MUST_CHECK ab_status ab_inspect_plot(const ab_inspect_result *result, const char *folder,
                                        const char **note);

AB_END_DECLS

#endif
