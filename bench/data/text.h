/* Text from files that the user names: reading them, and cutting tokens into samples. What a token is, the
 * sources say (bytes.c, words.c).
 *
 * For next tokens: the files of a directory one behind the other in the order of their names (or one file);
 * the last tenth is the test split. For classes: a directory of directories, one for each class in the order
 * of their names, one sample a file; every tenth file is a test sample. Nothing is decoded: text is bytes. */
#ifndef AB_BENCH_DATA_TEXT_H
#define AB_BENCH_DATA_TEXT_H

#include "bench/data/data.h"

AB_BEGIN_DECLS

/* A piece of text: a split of a stream or a sample. */
typedef struct ab_text_piece {
    int64_t start, size; /* bytes of ab_text.byte */
    ab_split split;
    uint8_t label;
} ab_text_piece;

typedef struct ab_text {
    char *byte; /* owned */
    int64_t size;
    int pieces;
    ab_text_piece *piece; /* owned */
    int64_t classes;      /* 0 for streams */
} ab_text;

/* Reads what `path` names. AB_INPUT names the file, what was expected and what was found. */
AB_MUST_CHECK ab_status ab_text_read(const char *path, bool by_class, ab_text *text);
void ab_text_free(ab_text *text);

/* Tokens of a piece: writes at most `most` and returns how many there are in all; token may be NULL. */
typedef int64_t (*ab_tokenise)(const void *self, const char *byte, int64_t size, int32_t *token,
                               int64_t most);

/* Fills data->split, labels, classes and origin. */
AB_MUST_CHECK ab_status ab_text_cut(ab_data *data, const ab_data_request *request, const ab_text *text,
                                    ab_tokenise tokenise, const void *self);

AB_END_DECLS

#endif
