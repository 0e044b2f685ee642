/* A checker of XML and of pages: tags balance, attributes are quoted, entities are known, ids are unique,
 * every reference finds its id, nothing is loaded from elsewhere and nothing can run. Written against the
 * standards, without a line of the program. Returns NULL or what is wrong. */
#ifndef AB_TESTS_SUPPORT_PAGE_CHECK_H
#define AB_TESTS_SUPPORT_PAGE_CHECK_H

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AB_PAGE_DEPTH = 128, AB_PAGE_IDS = 20000, AB_PAGE_NAME = 96 };

typedef struct ab_page {
    const char *at;
    bool is_page; /* HTML: the rules about elements, ids and addresses apply too */
    char open[AB_PAGE_DEPTH][AB_PAGE_NAME];
    int depth, ids, references;
    char (*id)[AB_PAGE_NAME], (*reference)[AB_PAGE_NAME];
    char wrong[256];
} ab_page;

static inline bool ab_page_wrong(ab_page *p, const char *what) {
    if (!p->wrong[0]) snprintf(p->wrong, sizeof p->wrong, "%s at: %.80s", what, p->at);
    return false;
}

static inline bool ab_page_entity(ab_page *p, const char *at) {
    static const char *const known[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&apos;", "&#39;", "&#34;"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strncmp(at, known[i], strlen(known[i])) == 0) return true;
    return ab_page_wrong(p, "a bare ampersand");
}

static inline void ab_page_keep(char (*list)[AB_PAGE_NAME], int *count, const char *text, size_t length) {
    if (*count < AB_PAGE_IDS) snprintf(list[(*count)++], AB_PAGE_NAME, "%.*s", (int)length, text);
}

/* A list of ids, separated by spaces. */
static inline void ab_page_keep_all(ab_page *p, const char *value, size_t length) {
    for (size_t i = 0; i < length;) {
        size_t word = strcspn(value + i, " \"");
        if (word > length - i) word = length - i;
        ab_page_keep(p->reference, &p->references, value + i, word);
        i += word + 1;
    }
}

static inline bool ab_page_is(const char *text, size_t length, const char *word) {
    return strlen(word) == length && strncmp(text, word, length) == 0;
}

static inline bool ab_page_attribute(ab_page *p, const char *name, size_t n, const char *value,
                                     size_t length) {
    if (!p->is_page) return true;
    if (strncmp(name, "on", 2) == 0 || ab_page_is(name, n, "src") || ab_page_is(name, n, "style") ||
        ab_page_is(name, n, "action") || ab_page_is(name, n, "srcset") || ab_page_is(name, n, "data"))
        return ab_page_wrong(p, "an attribute that loads or runs");
    if (ab_page_is(name, n, "id")) ab_page_keep(p->id, &p->ids, value, length);
    if (ab_page_is(name, n, "aria-labelledby")) ab_page_keep_all(p, value, length);
    if (!ab_page_is(name, n, "href") && !ab_page_is(name, n, "xlink:href")) return true;
    if (value[0] != '#') return ab_page_wrong(p, "a reference to elsewhere");
    ab_page_keep(p->reference, &p->references, value + 1, length - 1);
    return true;
}

static inline bool ab_page_attributes(ab_page *p) {
    for (;;) {
        while (isspace((unsigned char)*p->at)) p->at++;
        if (*p->at == '>' || *p->at == '/' || *p->at == '?') return true;
        const char *name = p->at;
        while (isalnum((unsigned char)*p->at) || strchr(":-_", *p->at ? *p->at : ' ')) p->at++;
        size_t n = (size_t)(p->at - name);
        if (n == 0 || p->at[0] != '=' || p->at[1] != '"')
            return ab_page_wrong(p, "an attribute without quotes");
        const char *value = p->at + 2, *end = strchr(value, '"');
        if (!end) return ab_page_wrong(p, "an attribute without an end");
        for (const char *c = value; c < end; c++) {
            if (*c == '<') return ab_page_wrong(p, "an angle in an attribute");
            if (*c == '&' && !ab_page_entity(p, c)) return false;
        }
        if (!ab_page_attribute(p, name, n, value, (size_t)(end - value))) return false;
        p->at = end + 1;
    }
}

static inline bool ab_page_element(ab_page *p, const char *name) {
    static const char *const elements[] = {
        "html", "head",     "meta",   "title",      "style",   "body",  "a",     "header",  "h1",
        "h2",   "h3",       "p",      "nav",        "ul",      "li",    "main",  "section", "dl",
        "dt",   "dd",       "div",    "table",      "caption", "thead", "tbody", "tr",      "th",
        "td",   "span",     "br",     "figure",     "pre",     "code",  "svg",   "details", "g",
        "path", "summary",  "rect",   "circle",     "polygon", "text",  "tspan", "defs",    "use",
        "line", "polyline", "footer", "figcaption", "h4",      "strong"};
    for (size_t i = 0; i < sizeof elements / sizeof *elements; i++)
        if (strcmp(name, elements[i]) == 0) return true;
    return !p->is_page || ab_page_wrong(p, "an element that the page does not need");
}

static inline bool ab_page_tag(ab_page *p) {
    char name[AB_PAGE_NAME];
    bool closes = p->at[1] == '/', declares = p->at[1] == '?' || p->at[1] == '!';
    p->at += 1 + closes + declares;
    size_t length = 0;
    while (isalnum((unsigned char)p->at[length])) length++;
    if (length == 0 || length >= sizeof name) return ab_page_wrong(p, "an angle that is no tag");
    snprintf(name, sizeof name, "%.*s", (int)length, p->at);
    p->at += length;
    if (declares) {
        p->at = strchr(p->at, '>');
        return p->at ? (p->at++, true) : false;
    }
    if (!ab_page_element(p, name) || !ab_page_attributes(p)) return false;
    bool empty = *p->at == '/';
    p->at += empty;
    if (*p->at++ != '>') return ab_page_wrong(p, "a tag without an end");
    if (closes) {
        if (p->depth == 0 || strcmp(p->open[p->depth - 1], name) != 0)
            return ab_page_wrong(p, "a tag that closes nothing");
        p->depth--;
    } else if (!empty) {
        if (p->depth == AB_PAGE_DEPTH) return ab_page_wrong(p, "too deep");
        snprintf(p->open[p->depth++], AB_PAGE_NAME, "%s", name);
    }
    return true;
}

static inline bool ab_page_references(ab_page *p) {
    for (int i = 0; i < p->ids; i++)
        for (int k = i + 1; k < p->ids; k++)
            if (strcmp(p->id[i], p->id[k]) == 0) {
                p->at = p->id[i];
                return ab_page_wrong(p, "an id twice");
            }
    for (int i = 0; i < p->references; i++) {
        bool found = false;
        for (int k = 0; k < p->ids && !found; k++) found = strcmp(p->reference[i], p->id[k]) == 0;
        p->at = p->reference[i];
        if (!found) return ab_page_wrong(p, "a reference to an id that is not there");
    }
    return true;
}

static inline bool ab_page_text(ab_page *p) {
    unsigned char c = (unsigned char)*p->at;
    if (c < 0x20 && c != '\n' && c != '\t') return ab_page_wrong(p, "a control character");
    if (c == '&' && !ab_page_entity(p, p->at)) return false;
    p->at++;
    return true;
}

/* `wrong` holds 256 bytes. */
static inline const char *ab_page_check(const char *text, bool is_page, char *wrong) {
    static ab_page page;
    static char ids[AB_PAGE_IDS][AB_PAGE_NAME], references[AB_PAGE_IDS][AB_PAGE_NAME];
    memset(&page, 0, sizeof page);
    page.at = text;
    page.is_page = is_page;
    page.id = ids;
    page.reference = references;
    bool fine = true;
    while (fine && *page.at) {
        bool style = is_page && page.depth > 0 && strcmp(page.open[page.depth - 1], "style") == 0;
        if (style && strncmp(page.at, "</style>", 8) != 0)
            page.at++;
        else
            fine = *page.at == '<' ? ab_page_tag(&page) : ab_page_text(&page);
    }
    if (fine && page.depth > 0) fine = ab_page_wrong(&page, "a tag that is not closed");
    if (fine && is_page) fine = ab_page_references(&page);
    snprintf(wrong, 256, "%s", page.wrong);
    return fine ? NULL : wrong;
}

#endif
