/* A comparison in progress, shared by the files of the gate. Private to reports/gate. */
#ifndef AB_REPORTS_GATE_GATE_CASE_H
#define AB_REPORTS_GATE_GATE_CASE_H

#include "reports/gate/gate.h"
#include "reports/record/cells.h"

AB_BEGIN_DECLS

/* Severity of a finding. Its effect on the verdict also depends on its lane (gate_document.c). */
typedef enum ab_gate_weight {
    AB_GATE_NOTE,
    AB_GATE_WIN,
    AB_GATE_UNSURE,
    AB_GATE_BAD,
    AB_GATE_INCOMPARABLE,
    AB_GATE_BROKEN
} ab_gate_weight;

typedef struct ab_gate_case {
    const ab_gate_options *options;
    ab_gate_side base, other, pinned;
    ab_cells base_cells, other_cells, pinned_cells;
    bool *unsound; /* [other_cells.count]: the cell has a BAD finding in lane `numerics` */
    bool session;  /* base and other were measured in alternating rounds */
    cJSON *differences, *findings, *comparisons, *speedups;
} ab_gate_case;

/* Adds a finding. base and other are copied and may be NULL. */
void ab_gate_find(ab_gate_case *c, const char *lane, ab_gate_weight weight, const cJSON *cell,
                  const char *metric, const cJSON *base, const cJSON *other, const char *format, ...)
    AB_PRINTF(8, 9);
/* Returns whether a cell of `other` has a BAD finding in lane `numerics`. */
bool ab_gate_is_unsound(const ab_gate_case *c, const cJSON *cell);

/* A copy, or null where there is nothing. */
cJSON *ab_gate_copy_or_null(const cJSON *value);

/* Returns whether a field is in --ignore. */
bool ab_gate_ignored(const ab_gate_case *c, const char *field);

/* Compares the fields that must be equal for two documents to be comparable; a difference is a finding in
 * lane `comparable`. */
void ab_gate_match_documents(ab_gate_case *c, ab_gate_side base, ab_gate_side other, bool session);
/* Returns the cell of `in` that `cell`, one of `from`, is compared with: the same id, or the only cell that
 * differs in its loss scale only. */
const cJSON *ab_gate_partner(const cJSON *cell, const ab_cells *from, const ab_cells *in);
/* Reports missing, new, failed and incomparable cells. */
void ab_gate_match_cells(ab_gate_case *c);
/* Returns whether both cells completed with the same mathematics. */
bool ab_gate_cells_agree(const cJSON *base, const cJSON *other);

/* Compare losses, scales, counts, certificates, bytes, casts, ... of two cells. */
void ab_gate_numerics(ab_gate_case *c, const cJSON *base, const cJSON *other);
void ab_gate_work(ab_gate_case *c, const cJSON *base, const cJSON *other);
void ab_gate_speedups(ab_gate_case *c);

/* Compare the times of all cells, and the drift against the pinned document. */
AB_MUST_CHECK ab_status ab_gate_times(ab_gate_case *c);
AB_MUST_CHECK ab_status ab_gate_drift(ab_gate_case *c);

/* Everything recorded that differs besides what was measured: [{"field", "base", "new", "text"}], owned by
 * the caller. */
cJSON *ab_gate_causes(const ab_gate_case *c);
/* A line that says so above the causes of a gate document; NULL: nothing regressed. */
const char *ab_gate_causes_head(const cJSON *gate);
/* That line and the causes. */
void ab_gate_causes_print(const cJSON *gate, FILE *out);

/* Returns whether both documents come from one session. */
bool ab_gate_same_session(const cJSON *a, const cJSON *b);

/* Rounds of two cells measured in alternation: times, clocks and loads of both arms, and the series built
 * from them. */
typedef struct ab_gate_track {
    double *value[2], *clock[2], *load[2], *wait[2], *columns; /* columns owns the memory of the others */
    int *unsteady, *round;
    ab_gate_series series; /* points into the other arrays */
} ab_gate_track;
AB_MUST_CHECK ab_status ab_gate_track_create(const cJSON *base, const cJSON *other, int rounds,
                                             ab_gate_track *track);
void ab_gate_track_free(ab_gate_track *track);

/* Rounds x to `digits` significant digits. Only for numbers that no decision depends on. */
double ab_gate_rounded(double x, int digits);

AB_END_DECLS

#endif
