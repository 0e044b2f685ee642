/* Text in HTML and XML. All text of a document is escaped here, so that none of it is parsed as markup. */
#ifndef AB_REPORTS_RENDER_MARKUP_H
#define AB_REPORTS_RENDER_MARKUP_H

#include "kernels/core/compiler.h"

#include <stdio.h>

AB_BEGIN_DECLS

enum { AB_MARKUP_TEXT = 4096 };

/* Writes `text` cleaned (text.h; truncated after AB_MARKUP_TEXT - 1 bytes), with & < > " ' as character
 * references: safe between tags and inside quoted attributes, and free of bytes that XML 1.0 forbids. */
void ab_markup_text(FILE *out, const char *text);

/* Copies the single <svg> element of `svg`, gnuplot's output, into a page. Elements and attributes outside
 * an allowlist are rejected, tool tips and fonts are dropped, every id is prefixed with `name` (letters,
 * digits, dashes), and neutral colours are mapped to the page's (html.css), so that figures follow the
 * dark mode. Screen readers see an image labelled by the page's element `name`-title. Returns NULL, or
 * what was rejected; `out` may then hold a part. */
const char *ab_markup_svg(FILE *out, const char *svg, const char *name);

AB_END_DECLS

#endif
