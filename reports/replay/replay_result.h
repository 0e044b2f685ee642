/* Loss scalers run over the gradients of a run that was recorded: what each would have skipped and flushed,
 * and the output forms. bench/replay fills the structs. */
#ifndef AB_REPORTS_REPLAY_REPLAY_RESULT_H
#define AB_REPORTS_REPLAY_REPLAY_RESULT_H

#include "kernels/core/status.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

AB_BEGIN_DECLS

enum { AB_REPLAY_ROWS = 256, AB_REPLAY_TEXT = 512, AB_REPLAY_NAME = 96 };

/* One scaler over all steps, at one end of what is known of the largest gradients. Shares are of the steps
 * that were taken; NAN: the source tells no gradients. */
typedef struct ab_replay_outcome {
    int64_t skipped;      /* steps without an update */
    int64_t wasted;       /* of these, before the first step that was taken */
    int64_t unseen;       /* steps taken although a gradient overflowed: inf or NaN in the weights */
    int64_t agreed;       /* steps until the first whose decision is not the recorded one */
    int64_t differing;    /* steps with another decision than the recorded one */
    int64_t beyond;       /* steps after the last gradient that was recorded: it is used again */
    double final_scale;   /* after the last step */
    double mean_octaves;  /* mean of log2 of the scale, over the steps taken */
    double flushed;       /* of the non-zero gradient values: became 0 */
    double energy;        /* of their sum of squares: lost by that */
    int worst;            /* layer that lost the largest share of its sum of squares; -1: none lost any */
    double worst_flushed; /* of its values */
    double worst_energy;  /* of its sum of squares */
    const char *fault;    /* where the original would stop or go wrong: its name; NULL: nowhere */
    bool stops;           /* it raises an exception there */
    int64_t fault_step;
} ab_replay_outcome;

typedef struct ab_replay_row {
    char scaler[AB_REPLAY_TEXT];   /* "torch:window=500" */
    char dialect[AB_REPLAY_NAME];  /* "torch" */
    ab_replay_outcome least, most; /* with the smallest and the largest gradients that are possible */
    bool best;                     /* no other row skips and flushes less */
} ab_replay_row;

/* What was recorded. */
typedef struct ab_replay_source {
    const char *path, *kind; /* "record" or "log"; borrowed */
    char cell[AB_REPLAY_TEXT], half[AB_REPLAY_NAME];
    int64_t steps, skipped;
    int64_t bounded;                 /* steps whose largest gradient is not known to an eighth of an octave */
    int64_t stride;                  /* steps that share one largest gradient: of the largest among them */
    bool has_gradients;              /* histograms, not the largest alone */
    double first_scale, final_scale; /* recorded */
    int layers;
    char (*layer)[AB_REPLAY_NAME]; /* borrowed */
} ab_replay_source;

typedef struct ab_replay_result {
    ab_replay_source source;
    ab_replay_outcome recorded;
    ab_replay_row row[AB_REPLAY_ROWS];
    int rows;
} ab_replay_result;

/* Sets `best` of every row. */
void ab_replay_judge(ab_replay_result *result);

/* ---- output ---------------------------------------------------------------------------------- */

/* The document (reports/schema/replay-1.schema.json), owned by the caller. NULL: out of memory. */
AB_MUST_CHECK cJSON *ab_replay_document(const ab_replay_result *result);

/* Prints the table, and how far it is exact. */
void ab_replay_print(FILE *out, const ab_replay_result *result);

/* Draws skips against flushes (of a log: against the mean scale) into `folder`; `note` gets a static text if
 * it could not be drawn, else NULL. */
AB_MUST_CHECK ab_status ab_replay_plot(const cJSON *document, const char *folder, const char **note);

AB_END_DECLS

#endif
