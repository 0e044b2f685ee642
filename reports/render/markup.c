/* Escaping, and the SVG filter. gnuplot escapes its texts; the filter treats its output as untrusted all
 * the same. */
#include "reports/render/markup.h"

#include "kernels/core/text.h"
#include "reports/record/text.h"

#include <stdbool.h>
#include <string.h>

static const char *reference_of(char c) {
    switch (c) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    default:
        return NULL;
    }
}

void ab_markup_text(FILE *out, const char *text) {
    char clean[AB_MARKUP_TEXT];
    for (const char *c = ab_text_clean(clean, sizeof clean, text); *c; c++) {
        const char *reference = reference_of(*c);
        if (reference)
            fputs(reference, out);
        else
            fputc(*c, out);
    }
}

/* ---- SVG ------------------------------------------------------------------------------------- */

/* A piece of the source. */
typedef struct piece {
    const char *at;
    size_t length;
} piece;

typedef struct svg_filter {
    FILE *out;
    const char *name, *at, *refused;
} svg_filter;

static bool is(piece p, const char *word) {
    return strlen(word) == p.length && strncmp(p.at, word, p.length) == 0;
}

static bool is_one_of(piece p, const char *const *words) {
    for (; *words; words++)
        if (is(p, *words)) return true;
    return false;
}

static bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

static void skip_blanks(svg_filter *s) {
    while (is_blank(*s->at)) s->at++;
}

static bool is_name_character(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == ':' || c == '-';
}

static piece read_name(svg_filter *s) {
    piece p = {s->at, 0};
    while (is_name_character(s->at[p.length])) p.length++;
    s->at += p.length;
    return p;
}

/* Colours that are mapped to the page's: the neutral ones of plots/style.gp, and those too dark for a dark
 * page. */
static const struct {
    int red, green, blue;
    const char *variable;
} page_colors[] = {{255, 255, 255, "paper"}, {0, 0, 0, "ink"},         {34, 34, 34, "ink"},
                   {51, 51, 51, "ink"},      {102, 102, 102, "soft"},  {136, 136, 136, "soft"},
                   {230, 230, 230, "line"},  {221, 227, 232, "line"},  {0, 114, 178, "blue"},
                   {0, 158, 115, "green"},   {213, 94, 0, "red"},      {160, 106, 0, "amber"},
                   {160, 82, 125, "plum"},   {68, 68, 68, "charcoal"}, {204, 121, 167, "purple"}};

static const char *page_color(piece value) {
    char text[32];
    int red, green, blue;
    if (is(value, "black")) return "ink";
    if (is(value, "#ffffff") || is(value, "#FFFFFF")) return "paper";
    if (value.length >= sizeof text) return NULL;
    memcpy(text, value.at, value.length);
    text[value.length] = '\0';
    if (sscanf(text, "rgb(%d,%d,%d)", &red, &green, &blue) != 3) return NULL;
    for (size_t i = 0; i < AB_COUNT_OF(page_colors); i++)
        if (page_colors[i].red == red && page_colors[i].green == green && page_colors[i].blue == blue)
            return page_colors[i].variable;
    return NULL;
}

/* Attribute values may hold no quote, no angle bracket, no bare ampersand and nothing that could be a URL. */
static bool is_harmless_value(piece value) {
    for (size_t i = 0; i < value.length; i++) {
        unsigned char c = (unsigned char)value.at[i];
        if ((c < 0x20 && !is_blank((char)c)) || strchr("\"'<>&\\:;", c)) return false;
    }
    return true;
}

static void write_value(svg_filter *s, piece attribute, piece value) {
    static const char *const colors[] = {"fill", "stroke", "color", NULL};
    const char *variable = is_one_of(attribute, colors) ? page_color(value) : NULL;
    fprintf(s->out, " %.*s=\"", (int)attribute.length, attribute.at);
    if (variable)
        fprintf(s->out, "var(--%s)", variable);
    else
        for (size_t i = 0; i < value.length; i++) fputc(is_blank(value.at[i]) ? ' ' : value.at[i], s->out);
    fputc('"', s->out);
}

static void write_attribute(svg_filter *s, piece attribute, piece value) {
    static const char *const kept[] = {"x",
                                       "y",
                                       "width",
                                       "height",
                                       "cx",
                                       "cy",
                                       "r",
                                       "dx",
                                       "dy",
                                       "d",
                                       "points",
                                       "transform",
                                       "viewBox",
                                       "fill",
                                       "fill-opacity",
                                       "fill-rule",
                                       "stroke",
                                       "stroke-width",
                                       "stroke-opacity",
                                       "stroke-linecap",
                                       "stroke-linejoin",
                                       "stroke-dasharray",
                                       "color",
                                       "opacity",
                                       "text-anchor",
                                       "font-size",
                                       "font-weight",
                                       "font-style",
                                       "shape-rendering",
                                       NULL};
    static const char *const dropped[] = {"class", "font-family", "xmlns", "xmlns:xlink", "xml:space", NULL};
    if (is_one_of(attribute, dropped)) return;
    if (is(attribute, "id") && is_harmless_value(value))
        fprintf(s->out, " id=\"%s-%.*s\"", s->name, (int)value.length, value.at);
    else if (is(attribute, "xlink:href") && value.length > 1 && value.at[0] == '#' &&
             is_harmless_value(value))
        fprintf(s->out, " href=\"#%s-%.*s\"", s->name, (int)value.length - 1, value.at + 1);
    else if (is_one_of(attribute, kept) && is_harmless_value(value))
        write_value(s, attribute, value);
    else
        s->refused = "an attribute that no plot has";
}

static void copy_attribute(svg_filter *s) {
    piece attribute = read_name(s);
    skip_blanks(s);
    if (attribute.length == 0 || *s->at != '=') {
        s->refused = "a tag without an end";
        return;
    }
    s->at++;
    skip_blanks(s);
    const char quote = *s->at, *end = quote == '"' || quote == '\'' ? strchr(s->at + 1, quote) : NULL;
    if (!end) {
        s->refused = "an attribute without a value";
        return;
    }
    write_attribute(s, attribute, (piece){s->at + 1, (size_t)(end - s->at - 1)});
    s->at = end + 1;
}

/* Skips to the end of the element just opened; it must not contain an element of the same name. */
static void skip_element(svg_filter *s, piece element) {
    char end[24];
    ab_text_show(end, sizeof end, "</%.*s>", (int)element.length, element.at);
    const char *found = strstr(s->at, end);
    if (found)
        s->at = found + strlen(end);
    else
        s->refused = "an element without an end";
}

/* Copies a tag; called after "<". */
static void copy_tag(svg_filter *s) {
    static const char *const kept[] = {"svg",  "g",    "path",  "rect", "circle", "polygon", "polyline",
                                       "line", "text", "tspan", "defs", "use",    NULL};
    static const char *const dropped[] = {"title", "desc", "filter",
                                          NULL}; /* tool tips; boxes that are never drawn */
    bool closes = *s->at == '/';
    s->at += closes;
    piece element = read_name(s);
    if (!closes && is_one_of(element, dropped)) {
        skip_element(s, element);
        return;
    }
    if (!is_one_of(element, kept)) {
        s->refused = "an element that no plot has";
        return;
    }
    fprintf(s->out, closes ? "</%.*s" : "<%.*s", (int)element.length, element.at);
    if (!closes && is(element, "svg"))
        fprintf(s->out, " class=\"plot\" role=\"img\" aria-labelledby=\"%s-title\"", s->name);
    for (skip_blanks(s); !s->refused && *s->at && *s->at != '>' && *s->at != '/'; skip_blanks(s))
        copy_attribute(s);
    if (*s->at == '/') fputc(*s->at++, s->out);
    if (!s->refused && *s->at != '>') s->refused = "a tag without an end";
    if (!s->refused) fputc(*s->at++, s->out);
}

/* Copies text between tags: gnuplot's character references are kept, a bare ampersand becomes one. */
static void copy_text(svg_filter *s) {
    static const char *const references[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&apos;"};
    if (*s->at == '&') {
        bool known = false;
        for (size_t i = 0; i < AB_COUNT_OF(references); i++)
            known |= strncmp(s->at, references[i], strlen(references[i])) == 0;
        fputs(known ? "&" : "&amp;", s->out);
    } else if (*s->at == '>') {
        fputs("&gt;", s->out);
    } else if (*s->at != '\t') {
        fputc(*s->at, s->out);
    }
    s->at++;
}

const char *ab_markup_svg(FILE *out, const char *svg, const char *name) {
    svg_filter s = {out, name, strstr(svg, "<svg"), NULL};
    if (!s.at) return "no picture";
    while (*s.at && !s.refused) {
        if (strncmp(s.at, "<!--", 4) == 0) {
            const char *end = strstr(s.at, "-->");
            if (!end) return "a comment without an end";
            s.at = end + 3;
        } else if (*s.at == '<') {
            s.at++;
            copy_tag(&s);
        } else {
            copy_text(&s);
        }
    }
    return s.refused;
}
