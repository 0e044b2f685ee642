/* Reads text files of the user and cuts tokens into samples. The sources define the tokens (bytes.c,
 * words.c).
 *
 * Next-token targets: the files of a directory concatenated in the order of their names (or one file); the
 * last tenth is the test split. Class targets: a directory with one directory per class, in the order of
 * their names, and one file per sample; every tenth file is a test sample. Text is not decoded: it is
 * bytes. */
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

/* Reads a file or directory. AB_INPUT names the file, what was expected and what was found. The caller frees
 * `text`. */
AB_MUST_CHECK ab_status ab_text_read(const char *path, bool by_class, ab_text *text);
void ab_text_free(ab_text *text);

/* Tokenises `size` bytes: writes at most `most` tokens and returns the total number; token may be NULL. */
typedef int64_t (*ab_tokenise)(const void *self, const char *byte, int64_t size, int32_t *token,
                               int64_t most);

/* Fills data->split, labels, classes and origin. */
AB_MUST_CHECK ab_status ab_text_cut(ab_data *data, const ab_data_request *request, const ab_text *text,
                                    ab_tokenise tokenise, const void *self);

AB_END_DECLS

#endif
