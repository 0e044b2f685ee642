/* Changes to a run that remove a cause: in words, and as options that `ampbench run` accepts.
 *
 * A cause names the change that it wants. A change knows the run: its level, formats, scaler and options. It
 * adds its options, whose text is made from them, and returns true; or it returns false and leaves the remedy
 * as it is, because it has no effect in this run or `ampbench run` would refuse it. */
#ifndef AB_REPORTS_DIAGNOSE_REMEDY_REMEDY_H
#define AB_REPORTS_DIAGNOSE_REMEDY_REMEDY_H

#include "reports/diagnose/facts/facts.h"

AB_BEGIN_DECLS

enum {
    AB_REMEDY_TEXT = 280,
    AB_REMEDY_OPTIONS = 8 /* words of a remedy as options: names and values in turns */
};

typedef struct ab_remedy {
    char
        text[AB_REMEDY_TEXT]; /* what to add to the command line, and what to change by hand; "" if nothing */
    /* the same for programs: words to append to the run's options; later ones override earlier ones, but --to
     * adds to them */
    char option[AB_REMEDY_OPTIONS][AB_REMEDY_TEXT];
    int options;      /* words used; 0: no option fixes it */
    bool with_others; /* its options may be added to another remedy */
} ab_remedy;

/* ---- building -------------------------------------------------------------------------------- */

/* Adds words that are no options, after what is there. */
void ab_remedy_add_text(ab_remedy *remedy, const char *format, ...) AB_PRINTF(2, 3);

/* Adds an option and its value, to the text too; `note` says there what it does (NULL: nothing). Does nothing
 * if the option is there with this value or if there is no space. */
void ab_remedy_option(ab_remedy *remedy, const char *note, const char *name, const char *format, ...)
    AB_PRINTF(4, 5);

/* Adds the options of `other`, which removes the cause `id`, unless one contradicts an option that is there
 * or `remedy` has no options, which its text would then seem to have. */
void ab_remedy_join(ab_remedy *remedy, const ab_remedy *other, const char *id);

/* ---- loss scale ------------------------------------------------------------------------------ */

/* A scaler that looks for overflows, skips and lowers the scale without a limit. False if it has one. */
bool ab_remedy_checked_scale(const ab_facts *facts, ab_remedy *remedy);

/* A scale near `wanted`, which gradients would not overflow at, as the first one of a scaler that checks.
 * Masters too where the weights are in half: unscaled gradients are stored in their format. False if the
 * run's scaler gets there already. */
bool ab_remedy_higher_scale(const ab_facts *facts, double wanted, ab_remedy *remedy);

/* A window of `steps` clean steps before the scale grows. */
bool ab_remedy_longer_window(const ab_facts *facts, int steps, ab_remedy *remedy);

/* ---- formats --------------------------------------------------------------------------------- */

/* fp32 master weights. False if the weights are in fp32, or have masters, or the level has no such property.
 */
bool ab_remedy_masters(const ab_facts *facts, ab_remedy *remedy);

/* fp32 optimizer state; sums of products; averaged weights; running statistics; batch norm. False where they
 * are in fp32, or the level has no such property. */
bool ab_remedy_wide_state(const ab_facts *facts, ab_remedy *remedy);
bool ab_remedy_wide_sums(const ab_facts *facts, ab_remedy *remedy);
bool ab_remedy_wide_average(const ab_facts *facts, ab_remedy *remedy);
bool ab_remedy_wide_statistics(const ab_facts *facts, ab_remedy *remedy);
bool ab_remedy_wide_batch_norm(const ab_facts *facts, ab_remedy *remedy);

/* bf16, which has fp32's range; with masters where the weights are in half, since it has fewer bits. False if
 * the run is in bf16, sums products in half, or an option or scaler is for fp16 only. */
bool ab_remedy_bf16(const ab_facts *facts, ab_remedy *remedy);

/* Keeps an op in fp32 and those after it up to the next product; bf16 if there are too many for a list. `op`:
 * "" if not known. */
bool ab_remedy_keep_fp32(const ab_facts *facts, const char *op, ab_remedy *remedy);

/* The op's entry in probes.signals of a cell; NULL if it has none. */
const cJSON *ab_signal_of(const cJSON *cell, const char *op);

/* ---- reductions over ranks ------------------------------------------------------------------- */

/* The order and format of the division: an option of this run, or, of a run with a framework's preset, what
 * that framework calls it. */
typedef enum ab_reduction_remedy {
    AB_REDUCTION_BEFORE, /* divide before the sum */
    AB_REDUCTION_AROUND, /* by the root of the ranks before and after it */
    AB_REDUCTION_WIDE    /* reduce in fp32 */
} ab_reduction_remedy;
void ab_remedy_reduction(const ab_facts *facts, ab_reduction_remedy kind, ab_remedy *remedy);

/* ---- training -------------------------------------------------------------------------------- */

/* Another learning rate. False if it is not a positive number. */
bool ab_remedy_rate(const ab_facts *facts, double rate, ab_remedy *remedy);

/* The rate of the first step for all steps. */
bool ab_remedy_constant_rate(const ab_facts *facts, ab_remedy *remedy);

/* Takes back a mistake that --fault made. False if it made none of this name. */
bool ab_remedy_no_fault(const ab_facts *facts, const char *fault, ab_remedy *remedy);

/* `times` as many steps. */
bool ab_remedy_times_steps(const ab_facts *facts, double times, ab_remedy *remedy);

/* Adds steps to a remedy with options after which O0 should learn: the record cannot show that a short run is
 * long enough. */
bool ab_remedy_more_steps(const ab_facts *facts, ab_remedy *remedy);

/* ---- other frameworks ------------------------------------------------------------------------ */

/* Of a record that a probe wrote in PyTorch (probe.framework): replaces the remedy of the cause `id` by the
 * line of PyTorch to change, with the numbers of its options, and takes the options away. `layer`: "" if not
 * known. Leaves all other remedies as they are. */
void ab_remedy_for_framework(const ab_facts *facts, const char *id, const char *layer, ab_remedy *remedy);

AB_END_DECLS

#endif
