/* C source as tokens and functions: enough to find calls and what is assigned to a variable. No
 * preprocessor, no types. For lints. */
#ifndef AB_TESTS_SUPPORT_C_SOURCE_H
#define AB_TESTS_SUPPORT_C_SOURCE_H

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* kind: 'a' identifier, '"' string, '0' number or character, '-' the arrow, else the character itself. */
typedef struct c_token {
    char kind;
    const char *text;
    int length, line;
    unsigned hash; /* of the text */
} c_token;

enum { C_PARAMS = 24 };

typedef struct c_function {
    int name;       /* token */
    int begin, end; /* of the body: tokens behind { and at } */
    bool is_static;
    int params, param[C_PARAMS]; /* tokens of their names */
} c_function;

typedef struct c_source {
    char *path;
    char *text;
    int tokens, functions;
    c_token *token;
    c_function *function;
} c_source;

static inline bool c_is(const c_source *s, int at, const char *text) {
    return at >= 0 && at < s->tokens && s->token[at].kind != '"' &&
           (size_t)s->token[at].length == strlen(text) && memcmp(s->token[at].text, text, strlen(text)) == 0;
}

static inline bool c_same(const c_source *a, int i, const c_source *b, int j) {
    const c_token *x = &a->token[i], *y = &b->token[j];
    return x->hash == y->hash && x->length == y->length && memcmp(x->text, y->text, (size_t)x->length) == 0;
}

/* The token behind a comment or a line of the preprocessor; where `at` is if there is neither. */
static inline const char *c_skip(const char *at, bool line_starts) {
    if (at[0] == '/' && at[1] == '*') {
        const char *end = strstr(at + 2, "*/");
        return end ? end + 2 : at + strlen(at);
    }
    if (at[0] == '/' && at[1] == '/') return at + strcspn(at, "\n");
    if (at[0] == '#' && line_starts) {
        while (*at && *at != '\n') at += at[0] == '\\' && at[1] ? 2 : 1;
    }
    return at;
}

static inline int c_token_length(const char *at, char *kind) {
    int n = 1;
    *kind = *at;
    if (isalpha((unsigned char)*at) || *at == '_') {
        *kind = 'a';
        while (isalnum((unsigned char)at[n]) || at[n] == '_') n++;
    } else if (isdigit((unsigned char)*at)) {
        *kind = '0';
        while (isalnum((unsigned char)at[n]) || at[n] == '.') n++;
    } else if (*at == '"' || *at == '\'') {
        while (at[n] && at[n] != *at) n += at[n] == '\\' && at[n + 1] ? 2 : 1;
        n += at[n] != '\0';
        if (*at == '\'') *kind = '0';
    } else if (at[0] == '-' && at[1] == '>') {
        n = 2;
    }
    return n;
}

static inline void c_tokenize(c_source *s) {
    const char *at = s->text;
    int line = 1;
    bool line_starts = true;
    s->token = calloc(strlen(s->text) + 1, sizeof *s->token);
    while (s->token && *at) {
        const char *next = c_skip(at, line_starts);
        if (next == at && !isspace((unsigned char)*at)) {
            char kind;
            const int n = c_token_length(at, &kind);
            unsigned hash = 2166136261u;
            for (int i = 0; i < n; i++) hash = (hash ^ (unsigned char)at[i]) * 16777619u;
            s->token[s->tokens++] = (c_token){kind, at, n, line, hash};
            next = at + n;
            line_starts = false;
        } else if (next == at) {
            next = at + 1;
        }
        for (; at < next; at++)
            if (*at == '\n') {
                line++;
                line_starts = true;
            }
    }
}

/* The token that closes the bracket at `open`; the last token if none does. */
static inline int c_close(const c_source *s, int open) {
    int depth = 0;
    for (int i = open; i < s->tokens; i++) {
        const char k = s->token[i].kind;
        depth += k == '(' || k == '[' || k == '{';
        depth -= k == ')' || k == ']' || k == '}';
        if (depth == 0) return i;
    }
    return s->tokens - 1;
}

/* The end of the expression that begins at `at`: a comma, semicolon or closing bracket outside of
 * brackets, or `end`. */
static inline int c_expression_end(const c_source *s, int at, int end) {
    while (at < end) {
        const char k = s->token[at].kind;
        if (k == ',' || k == ';' || k == ')' || k == ']' || k == '}') break;
        at = (k == '(' || k == '[' || k == '{' ? c_close(s, at) : at) + 1;
    }
    return at;
}

/* The tokens of argument `index` of the call whose name is at `name`; false if there are fewer. */
static inline bool c_argument(const c_source *s, int name, int index, int *begin, int *end) {
    const int close = c_close(s, name + 1);
    *begin = name + 2;
    for (;; index--) {
        *end = c_expression_end(s, *begin, close);
        if (index == 0 || *end >= close) break;
        *begin = *end + 1;
    }
    return index == 0 && *begin < *end;
}

static inline void c_add_function(c_source *s, int name, int open) {
    c_function *f = &s->function[s->functions++];
    int begin, end, i = name;
    *f = (c_function){.name = name, .begin = open + 1, .end = c_close(s, open)};
    while (i > 0 && s->token[i - 1].kind != ';' && s->token[i - 1].kind != '}')
        f->is_static |= c_is(s, --i, "static");
    while (f->params < C_PARAMS && c_argument(s, name, f->params, &begin, &end)) {
        int last = begin;
        for (int k = begin; k < end; k++) {
            if (s->token[k].kind == '[') break;
            if (s->token[k].kind == 'a') last = k;
        }
        f->param[f->params++] = last;
    }
}

static inline void c_find_functions(c_source *s) {
    s->function = calloc((size_t)s->tokens + 1, sizeof *s->function);
    for (int i = 0; s->function && i < s->tokens; i++) {
        const char k = s->token[i].kind;
        if (k == '{' && i > 1 && s->token[i - 1].kind == ')') {
            int open = i - 1, depth = 0;
            do {
                depth += (s->token[open].kind == ')') - (s->token[open].kind == '(');
                open--;
            } while (depth > 0 && open > 0);
            if (s->token[open].kind == 'a') c_add_function(s, open, i);
        }
        if (k == '{' || k == '(' || k == '[') {
            if (!(k == '{' && i > 0 && s->token[i - 1].kind == '"')) i = c_close(s, i); /* but extern "C" */
        }
    }
}

/* Takes `text` (from malloc) and keeps a copy of `path`. */
static inline void c_read(c_source *s, const char *path, char *text) {
    *s = (c_source){.path = strcpy(malloc(strlen(path) + 1), path), .text = text};
    c_tokenize(s);
    c_find_functions(s);
}

static inline void c_free(c_source *s) {
    free(s->path);
    free(s->text);
    free(s->token);
    free(s->function);
}

/* Parameter number of the identifier at `at` in f; -1: none. */
static inline int c_param(const c_source *s, const c_function *f, int at) {
    for (int i = 0; f && i < f->params; i++)
        if (c_same(s, at, s, f->param[i])) return i;
    return -1;
}

/* The function whose body has the token; NULL outside. */
static inline const c_function *c_function_at(const c_source *s, int at) {
    for (int i = 0; i < s->functions; i++)
        if (s->function[i].begin <= at && at < s->function[i].end) return &s->function[i];
    return NULL;
}

#endif
