/* Census and what-if of the tensors in files: what `ampbench inspect` computes, and the forms that it prints.
 *
 * A tensor is counted in one pass and its census is then used and forgotten: what is kept of it is one small row, so
 * memory does not grow with the size of the tensors. Results do not depend on the number of threads. */
#ifndef AB_BENCH_INSPECT_INSPECT_H
#define AB_BENCH_INSPECT_INSPECT_H

#include "bench/tensorfile/tensorfile.h"
#include "kernels/census/whatif.h"
#include "reports/advise/scale_advice.h"

#include <stdio.h>

AB_BEGIN_DECLS

/* Scales 2^MIN .. 2^MAX are searched for advice, 2^LOW .. 2^HIGH are listed in JSON. */
enum {
    AB_INSPECT_FORMATS = 8,
    AB_INSPECT_MIN = -60,
    AB_INSPECT_MAX = 60,
    AB_INSPECT_LOW = -24,
    AB_INSPECT_HIGH = 32
};

/* ---- what to do ------------------------------------------------------------------------------------------ */

typedef struct ab_inspect_request {
    const char **file; /* borrowed, like all texts here */
    int files;
    const char **pattern; /* names to look at, with * and ?; none: all */
    int patterns;
    const ab_format *format[AB_INSPECT_FORMATS];
    int formats;
    float scale;        /* for the table; any positive normal fp32 number */
    ab_scale_goal goal; /* what a scale must do to be recommended; its ftz is that of all predictions */
} ab_inspect_request;

/* ---- which tensors --------------------------------------------------------------------------------------- */

typedef struct ab_inspect_pick {
    const ab_tensorfile *file; /* borrowed */
    const ab_tensor_entry *entry;
} ab_inspect_pick;

/* The tensors asked for: readable ones in pick[0 .. picks), those that are no floating-point numbers in the rest. */
typedef struct ab_inspect_selection {
    ab_tensorfile **file; /* owned */
    int files;
    ab_inspect_pick *pick; /* owned */
    int picks, skipped;
} ab_inspect_selection;

/* Opens the request's files and applies its patterns. AB_INPUT for a bad file or when nothing is left to read, AB_CONFIG
 * with near names for a pattern that matches nothing. The caller frees the selection, also after a failure. */
AB_MUST_CHECK ab_status ab_inspect_select(const ab_inspect_request *request, ab_inspect_selection *selection);
void ab_inspect_selection_free(ab_inspect_selection *selection);

/* ---- counting -------------------------------------------------------------------------------------------- */

typedef struct ab_inspect_count {
    ab_census census;        /* of the values in fp32; `subnormal` in the stored format */
    int64_t load_flushed;    /* zeros among them that are finite non-zero fp64 numbers in the file */
    int64_t load_overflowed; /* infinities among them that are finite in the file */
} ab_inspect_count;

/* Counts one tensor, on the threads of ab_parallel_start. */
AB_MUST_CHECK ab_status ab_inspect_tensor(const ab_inspect_pick *pick, ab_inspect_count *count);

/* into += from. */
void ab_inspect_merge(ab_inspect_count *into, const ab_inspect_count *from);

/* ---- predicting ------------------------------------------------------------------------------------------ */

/* Limits of the request's formats at every listed power of two, and at the request's scale. */
typedef struct ab_inspect_limits {
    ab_whatif_limits power[AB_INSPECT_FORMATS][AB_INSPECT_HIGH - AB_INSPECT_LOW + 1];
    ab_whatif_limits scale[AB_INSPECT_FORMATS];
} ab_inspect_limits;

/* The limits of every format and scale of the request. Errors: those of ab_whatif_limits_of. */
AB_MUST_CHECK ab_status ab_inspect_find_limits(const ab_inspect_request *request, ab_inspect_limits *limits);

/* ---- results --------------------------------------------------------------------------------------------- */

/* What is kept of a tensor. */
typedef struct ab_inspect_row {
    ab_inspect_pick pick;
    int64_t zero, nan, inf, nonzero;
    float min_abs, max_abs;
    ab_whatif_range at_scale[AB_INSPECT_FORMATS];
    ab_scale_range advice[AB_INSPECT_FORMATS];
} ab_inspect_row;

typedef struct ab_inspect_result {
    const ab_inspect_request *request; /* borrowed, like the next */
    const ab_inspect_selection *selection;
    ab_inspect_limits limits;
    ab_inspect_row *row;                        /* owned; [selection->picks] */
    ab_inspect_count pooled;                    /* all tensors together */
    ab_scale_advice advice[AB_INSPECT_FORMATS]; /* its tensor numbers are rows */
} ab_inspect_result;

/* Counts all picks and fills `result`, which the caller frees with ab_inspect_result_free, also after a failure. If `json`
 * is not NULL, the JSON form is written to it on the way. */
AB_MUST_CHECK ab_status ab_inspect_run(const ab_inspect_request *request,
                                       const ab_inspect_selection *selection, FILE *json,
                                       ab_inspect_result *result);
void ab_inspect_result_free(ab_inspect_result *result);

/* ---- forms ----------------------------------------------------------------------------------------------- */

/* JSON, piece by piece as the tensors are counted: begin, every tensor, end. Errors show in ferror(out). */
void ab_inspect_json_begin(FILE *out);
void ab_inspect_json_tensor(FILE *out, const ab_inspect_result *result, int row,
                            const ab_inspect_count *count, const ab_census_totals *totals);
void ab_inspect_json_end(FILE *out, const ab_inspect_result *result);

/* For people: histogram, recommended scales and what decides them, a table of tensors. color: ANSI colours. */
void ab_inspect_print(FILE *out, const ab_inspect_result *result, bool color);

/* Name for people: cleaned, with its file's name in front when there are several. At least AB_TENSORFILE_TEXT bytes. */
const char *ab_inspect_label(const ab_inspect_result *result, int row, char *label);

/* Writes the histogram's data and a gnuplot script to `folder`, and the picture if gnuplot is there; `note` receives a
 * static text when it could not be drawn, else NULL. */
AB_MUST_CHECK ab_status ab_inspect_plot(const ab_inspect_result *result, const char *folder,
                                        const char **note);

AB_END_DECLS

#endif
