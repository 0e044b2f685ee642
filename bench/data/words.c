/* Text as words: a token is a word, a number or a punctuation mark. The most frequent tokens of the training
 * text get the ids from 2 on, up to the net's vocabulary; 1 is unknown, 0 pads short samples. Case-sensitive;
 * bytes beyond ASCII are letters. */
#include "bench/data/text.h"

#include <stdlib.h>
#include <string.h>

enum { OTHER = 1, FIRST = 2, SMALLEST = 1 << 12 };

typedef struct word {
    const char *byte; /* NULL: empty slot */
    int64_t size, count, first;
    int32_t id; /* 0: not in the vocabulary */
} word;

/* Hash table with open addressing; the number of slots is a power of two. */
typedef struct dictionary {
    word *place;
    int64_t places, words;
} dictionary;

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (unsigned char)c >= 128 || c == '\'';
}

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

/* Finds the next word at or after `at` and returns its size, 0 at the end. */
static int64_t next_word(const char *byte, int64_t size, int64_t *at) {
    while (*at < size && is_space(byte[*at])) ++*at;
    int64_t end = *at;
    while (end < size && is_letter(byte[end])) end++;
    return end > *at ? end - *at : *at < size;
}

static word *find(const dictionary *d, const char *byte, int64_t size) {
    uint64_t hash = 14695981039346656037u;
    for (int64_t i = 0; i < size; i++) hash = (hash ^ (uint8_t)byte[i]) * 1099511628211u;
    for (int64_t at = (int64_t)(hash & (uint64_t)(d->places - 1));; at = (at + 1) & (d->places - 1)) {
        word *w = &d->place[at];
        if (!w->byte || (w->size == size && memcmp(w->byte, byte, (size_t)size) == 0)) return w;
    }
}

static ab_status grow(dictionary *d) {
    dictionary larger = {.places = d->places ? 2 * d->places : SMALLEST, .words = d->words};
    larger.place = calloc((size_t)larger.places, sizeof *larger.place);
    if (!larger.place) return ab_fail(AB_NO_MEMORY, "--data: cannot list words");
    for (int64_t i = 0; i < d->places; i++)
        if (d->place[i].byte) *find(&larger, d->place[i].byte, d->place[i].size) = d->place[i];
    free(d->place);
    *d = larger;
    return AB_OK;
}

static ab_status count_words(dictionary *d, const char *byte, int64_t size) {
    for (int64_t at = 0, n; (n = next_word(byte, size, &at)) > 0; at += n) {
        if (2 * (d->words + 1) > d->places) AB_TRY(grow(d));
        word *w = find(d, byte + at, n);
        if (!w->byte) *w = (word){.byte = byte + at, .size = n, .first = d->words++};
        w->count++;
    }
    return AB_OK;
}

/* Most frequent words first; ties by first occurrence. */
static int compare_words(const void *a, const void *b) {
    const word *left = *(word *const *)a, *right = *(word *const *)b;
    if (left->count != right->count) return left->count > right->count ? -1 : 1;
    return left->first < right->first ? -1 : left->first > right->first;
}

static ab_status number_words(dictionary *d, int64_t vocabulary) {
    word **list = malloc((size_t)(d->words + 1) * sizeof *list);
    if (!list) return ab_fail(AB_NO_MEMORY, "--data: cannot list words");
    int64_t count = 0;
    for (int64_t i = 0; i < d->places; i++)
        if (d->place[i].byte) list[count++] = &d->place[i];
    qsort(list, (size_t)count, sizeof(word *), compare_words);
    for (int64_t i = 0; i < count && i + FIRST < vocabulary; i++) list[i]->id = (int32_t)(i + FIRST);
    free(list);
    return AB_OK;
}

static int64_t tokenise(const void *self, const char *byte, int64_t size, int32_t *token, int64_t most) {
    const dictionary *d = self;
    int64_t count = 0;
    for (int64_t at = 0, n; (n = next_word(byte, size, &at)) > 0; at += n, count++) {
        if (!token || count >= most) continue;
        const word *w = find(d, byte + at, n);
        token[count] = w->byte && w->id ? w->id : OTHER;
    }
    return count;
}

static ab_status cut(ab_data *data, const ab_data_request *request, const ab_text *text) {
    dictionary d = {.place = NULL};
    ab_status status = grow(&d);
    for (int i = 0; i < text->pieces && status == AB_OK; i++)
        if (text->piece[i].split == AB_SPLIT_TRAIN)
            status = count_words(&d, text->byte + text->piece[i].start, text->piece[i].size);
    if (status == AB_OK) status = number_words(&d, request->shape->vocabulary);
    if (status == AB_OK) status = ab_text_cut(data, request, text, tokenise, &d);
    free(d.place);
    return status;
}

static ab_status load(ab_data *data, const ab_data_request *request) {
    ab_text text;
    if (request->shape->vocabulary <= FIRST)
        return ab_fail(AB_CONFIG,
                       "--data words:%s: expected a net with a vocabulary of 3 or more, found %lld",
                       request->path, (long long)request->shape->vocabulary);
    AB_TRY(ab_text_read(request->path, request->shape->targets != AB_TARGETS_TOKENS, &text));
    ab_status status = cut(data, request, &text);
    ab_text_free(&text);
    return status;
}

const ab_data_source ab_data_source_words = {
    .name = "words",
    .text = "words:PATH: a file or directory of text, a token is one of its most frequent words or marks",
    .kind = AB_INPUT_TOKENS,
    .reads_path = true,
    .load = load,
};
