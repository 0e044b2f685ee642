/* The command line of a run as text: one table (options.def) to parse, document and forward the options.
 * configure.h makes checked values of the texts. */
#ifndef AB_BENCH_RUN_OPTIONS_H
#define AB_BENCH_RUN_OPTIONS_H

#include "kernels/core/status.h"

#include <stdbool.h>
#include <stdio.h>

AB_BEGIN_DECLS

typedef enum ab_option_id {
#define AB_OPTION(id, argument, fallback, trait, group, text) AB_OPTION_##id,
#include "bench/run/config/options.def"
#undef AB_OPTION
    AB_OPTION_COUNT
} ab_option_id;

enum { AB_MAX_OVERRIDES = 16 };

typedef struct ab_options {
    const char
        *text[AB_OPTION_COUNT];  /* borrowed from argv or static; flags: "" when given; NULL: not given */
    bool given[AB_OPTION_COUNT]; /* on the command line, not by default */
    const char *override[AB_MAX_OVERRIDES]; /* of --set */
    int overrides;
} ab_options;

/* Parses argv[1..argc). AB_USAGE: the message names the option, what was expected, and the nearest valid
 * name. */
AB_MUST_CHECK ab_status ab_options_parse(int argc, char *const *argv, ab_options *options);

/* Writes "--save-weights" for AB_OPTION_save_weights into text[AB_OPTION_NAME]; returns text. */
enum { AB_OPTION_NAME = 40 };
const char *ab_option_name(ab_option_id id, char *text);
bool ab_option_is_flag(ab_option_id id);

/* What an option is for: its column in options.def. Workers and resumed runs get the first four, runs that
 * repeat a recorded training (bench/run/replay.h) the first three. */
typedef enum ab_option_trait {
    AB_OPTION_TRAIT_training,       /* defines what is trained */
    AB_OPTION_TRAIT_training_input, /* the same; names something that is read */
    AB_OPTION_TRAIT_measurement,    /* how a training is run and observed; its bits are the same */
    AB_OPTION_TRAIT_checkpoints,    /* writes checkpoints */
    AB_OPTION_TRAIT_output,         /* names or chooses files that are written */
    AB_OPTION_TRAIT_session         /* how this invocation is watched and shown */
} ab_option_trait;

/* The trait of an option. */
ab_option_trait ab_option_trait_of(ab_option_id id);

/* Whether workers and resumed runs get the option. */
bool ab_option_is_config(ab_option_id id);

/* The type of an option's value, from its argument in options.def. */
typedef enum ab_option_kind {
    AB_OPTION_FLAG,
    AB_OPTION_INTEGER,
    AB_OPTION_NUMBER,
    AB_OPTION_LIST,
    AB_OPTION_TEXT
} ab_option_kind;

/* The type of an option. */
ab_option_kind ab_option_kind_of(ab_option_id id);

/* The key of an option in run.options of a document: "save_weights". Static storage. */
const char *ab_option_key(ab_option_id id);
bool ab_option_of_key(const char *key, ab_option_id *id); /* false: there is none */

/* The given options that are part of the configuration, as words for another process: writes at most
 * AB_OPTIONS_WORDS to argv and returns how many. The words are borrowed; a later call does not overwrite the
 * names. */
enum { AB_OPTIONS_WORDS = 2 * (AB_OPTION_COUNT + AB_MAX_OVERRIDES) };
int ab_options_words(const ab_options *options, char **argv);

/* Prints the options by group with their defaults. */
void ab_options_help(FILE *out);

AB_END_DECLS

#endif
