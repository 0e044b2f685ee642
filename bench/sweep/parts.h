/* What is left to do of a sweep, and what came of it. A part is some cells that one machine runs. Knows no
 * way to a machine. */
#ifndef AB_BENCH_SWEEP_PARTS_H
#define AB_BENCH_SWEEP_PARTS_H

#include "bench/run/run.h"

AB_BEGIN_DECLS

enum { AB_PART_REASON = 512, AB_PART_ATTEMPTS = 3, AB_LOSSES_MOST = 2 };

typedef struct ab_part {
    int *cell, count;            /* in increasing order; cell: owned */
    int machine;                 /* of the document; -1: not heard of yet */
    const char *who;             /* who runs it, for messages; borrowed */
    char reason[AB_PART_REASON]; /* what it says of its failure; "": nothing */
} ab_part;

typedef struct ab_parts {
    const ab_run_work *work;
    int *queue; /* cells that nobody runs: queue[head .. tail); owned */
    int head, tail, room;
    unsigned char *attempts;   /* [cells]: how often a cell was given to somebody; owned */
    char loss[AB_PART_REASON]; /* the last part that was lost: by whom, why */
} ab_parts;

/* Lists the cells that are not done. ab_parts_clear in any case. */
AB_MUST_CHECK ab_status ab_parts_create(const ab_run_work *work, ab_parts *parts);
void ab_parts_clear(ab_parts *parts);

/* Number of cells that nobody runs. */
int ab_parts_left(const ab_parts *parts);

/* Takes at most `most` cells for `who`. */
AB_MUST_CHECK ab_status ab_parts_take(ab_parts *parts, int most, const char *who, ab_part *part);
/* The same for one of `takers` who come again: large parts first, so that little is said, single cells last,
 * so that all end together. */
AB_MUST_CHECK ab_status ab_parts_take_share(ab_parts *parts, int takers, const char *who, ab_part *part);

/* The cells of a part as text, "0-9,14"; owned by the caller. NULL: out of memory. */
char *ab_part_text(const ab_part *part);

/* Takes a line that the part's process wrote. A line that is none of ours (a greeting of the machine) is not
 * an error. */
AB_MUST_CHECK ab_status ab_parts_line(ab_parts *parts, ab_part *part, char *line, size_t n);

/* The part has ended, for `reason` ("": as it should), and is cleared. Cells that are not done are to be run
 * again, which is said on stderr and in the document; one that was tried AB_PART_ATTEMPTS times fails.
 * *losses, of who ran it (NULL: not counted): one more; AB_LOSSES_MOST, which ends its use, if nothing was
 * heard of it. */
AB_MUST_CHECK ab_status ab_parts_end(ab_parts *parts, ab_part *part, const char *reason, int *losses);

/* Frees a part's memory. */
void ab_part_clear(ab_part *part);

/* What a machine is given to run a part, as words: program, "part", ... ; ends with NULL. The array and its
 * first AB_PART_ARGS + 1 words are owned (ab_part_words_free). `sharing`: see ab_run_part. NULL: out of
 * memory. */
char **ab_part_words(const ab_parts *parts, const ab_part *part, const char *program, int sharing,
                     bool watch);
void ab_part_words_free(char **words);

/* Words for a POSIX shell, each in single quotes, separated by spaces; owned by the caller. NULL: out of
 * memory. */
char *ab_shell_line(char *const *words);

AB_END_DECLS

#endif
