/* What became known of tensors in files: counts, what a cast would do to them, loss-scale advice; and the
 * forms in which it is printed. The structs are plain; who counts fills them (bench/inspect). */
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

/* ---- what was asked -------------------------------------------------------------------------- */

typedef struct ab_inspect_question {
    const ab_format *format[AB_INSPECT_FORMATS]; /* the first is drawn and stands in the table */
    int formats;
    float scale;        /* for the table; any positive normal fp32 number */
    ab_scale_goal goal; /* what a scale must do to be recommended; its ftz is that of all predictions */
} ab_inspect_question;

/* ---- what was found -------------------------------------------------------------------------- */

/* One tensor of a file. All texts are borrowed. */
typedef struct ab_inspect_tensor {
    const char *name;    /* valid UTF-8, may hold control characters */
    const char *path;    /* of its file; any bytes */
    const char *element; /* "fp32" */
    const char *dtype;   /* as the file spells it: "F32", ">f4" */
    int ndim;
    const int64_t *dim; /* borrowed; [ndim] */
    int64_t count;      /* elements */
} ab_inspect_tensor;

typedef struct ab_inspect_count {
    ab_census census;        /* of the values in fp32; `subnormal` in the stored format */
    int64_t load_flushed;    /* zeros among them that are finite non-zero fp64 numbers in the file */
    int64_t load_overflowed; /* infinities among them that are finite in the file */
} ab_inspect_count;

/* Limits of the question's formats at every listed power of two, and at the question's scale. */
typedef struct ab_inspect_limits {
    ab_whatif_limits power[AB_INSPECT_FORMATS][AB_INSPECT_HIGH - AB_INSPECT_LOW + 1];
    ab_whatif_limits scale[AB_INSPECT_FORMATS];
} ab_inspect_limits;

/* What is kept of a tensor. */
typedef struct ab_inspect_row {
    ab_inspect_tensor tensor;
    int64_t zero, nan, inf, nonzero;
    float min_abs, max_abs; /* of the finite non-zero values */
    ab_whatif_range at_scale[AB_INSPECT_FORMATS];
    ab_scale_range advice[AB_INSPECT_FORMATS];
} ab_inspect_row;

typedef struct ab_inspect_result {
    const ab_inspect_question *question; /* borrowed */
    int files;                           /* that were read */
    ab_inspect_limits limits;
    ab_inspect_row *row; /* owned; [rows], at least one when printed */
    int rows;
    ab_inspect_tensor *skipped; /* owned; [skips]: tensors that are no floating-point numbers */
    int skips;
    ab_inspect_count pooled;                    /* all tensors together */
    ab_scale_advice advice[AB_INSPECT_FORMATS]; /* its tensor numbers are rows */
} ab_inspect_result;

/* ---- forms ----------------------------------------------------------------------------------- */

/* JSON, piece by piece as the tensors are counted: begin, every tensor, end. Errors show in ferror(out). */
void ab_inspect_json_begin(FILE *out);
void ab_inspect_json_tensor(FILE *out, const ab_inspect_result *result, int row,
                            const ab_inspect_count *count, const ab_census_totals *totals);
void ab_inspect_json_end(FILE *out, const ab_inspect_result *result);

/* For people: histogram, recommended scales and what decides them, a table of tensors. color: ANSI
 * colours. */
void ab_inspect_print(FILE *out, const ab_inspect_result *result, bool color);

/* Name for people: cleaned, with its file's name in front when there are several. label[AB_INSPECT_TEXT].
 * Returns `label`. */
const char *ab_inspect_label(const ab_inspect_result *result, int row, char *label);

/* Writes the histogram's data and a gnuplot script to `folder`, and the picture if gnuplot is there;
 * `note` receives a static text when it could not be drawn, else NULL. */
AB_MUST_CHECK ab_status ab_inspect_plot(const ab_inspect_result *result, const char *folder,
                                        const char **note);

AB_END_DECLS

#endif
