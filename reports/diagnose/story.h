/* Cells of one run whose diagnosis says the same, as neighbours in a sweep do: it is told once. */
#ifndef AB_REPORTS_DIAGNOSE_STORY_H
#define AB_REPORTS_DIAGNOSE_STORY_H

#include "reports/diagnose/diagnose.h"

AB_BEGIN_DECLS

/* The stories that were told, each with the first cell that had it. Free with ab_stories_free. */
typedef struct ab_stories {
    cJSON *told; /* {story: id of a cell}; owned */
} ab_stories;

/* Also of stories in which nothing was told. */
void ab_stories_free(ab_stories *stories);

/* *first: the id of the first cell whose causes, their ranks and proofs, remedies and decisions are those of
 * the sick cell `d`; NULL if it is the first itself, or one whose skipped steps have to be told. Borrowed
 * from `stories`, which starts as {NULL}. */
AB_MUST_CHECK ab_status ab_stories_find(ab_stories *stories, const ab_diagnosis *d, const char **first);

/* "scale_too_high in fc3, batch_norm_statistics_in_half": the causes of a cell; text[AB_VERDICT_TEXT]. */
const char *ab_story_causes(const ab_diagnosis *d, char *text);

AB_END_DECLS

#endif
