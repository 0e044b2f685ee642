/* A recorded run as words for another run: the options of training and measurement that were given, kept in
 * run.options of the document with the type of each option. They are checked as if a user had typed them.
 * run.argv is for people and is never read. Options that write files are never among the words. */
#ifndef AB_BENCH_RUN_REPLAY_H
#define AB_BENCH_RUN_REPLAY_H

#include "bench/run/config/options.h"

#include <cjson/cJSON.h>

AB_BEGIN_DECLS

/* Words of a command line, the first of them "ampbench"; word[count] is NULL. All owned. */
typedef struct ab_replay {
    char **word;
    int count, room;
} ab_replay;

/* run.options: the given options that workers and resumed runs get (ab_option_is_config), a value each: a
 * flag is true, an integer or a number is a number (an integer above 2^53 - 1 its digits), a list its items,
 * any other its text. NULL: out of memory. */
cJSON *ab_replay_record(const ab_options *options);

/* Whether two texts of an option have the same value: "0.10" and "0.1" for --lr. */
bool ab_replay_same(ab_option_id id, const char *a, const char *b);

typedef enum ab_replay_use {
    AB_REPLAY_TRAINING, /* another run with the same training: no option that writes files */
    AB_REPLAY_RESUME    /* the rest of the same run: its checkpoints too */
} ab_replay_use;

/* Words for the training of a document. AB_INPUT: run.options is missing (older documents) or has a key that
 * is no such option or a value of another type; the message names the field. `replay` needs ab_replay_clear
 * in any case. */
AB_MUST_CHECK ab_status ab_replay_words(const cJSON *document, ab_replay_use use, ab_replay *replay);

/* Appends a copy of `word`. The last of repeated options takes effect. */
AB_MUST_CHECK ab_status ab_replay_add(ab_replay *replay, const char *word);

/* Checks the words as those of a user, without data, and that the network has the recorded digest. Then
 * writes the inputs that they name to `notes` (NULL: not), as one line that begins with `who`: relative paths
 * start at the working directory. */
AB_MUST_CHECK ab_status ab_replay_check(const char *who, const cJSON *document, const ab_replay *replay,
                                        FILE *notes);

/* Frees the words. */
void ab_replay_clear(ab_replay *replay);

AB_END_DECLS

#endif
