/* Text inside HTML and XML. Everything that comes from a document goes through here, so that none of it can
 * be markup. */
#ifndef AB_REPORTS_RENDER_MARKUP_H
#define AB_REPORTS_RENDER_MARKUP_H

#include "kernels/core/compiler.h"

#include <stdio.h>

AB_BEGIN_DECLS

enum { AB_MARKUP_TEXT = 4096 };

/* Writes `text` cleaned (text.h; cut after AB_MARKUP_TEXT - 1 bytes), with & < > " ' as character references:
 * safe between tags and inside quoted attributes, and free of bytes that XML 1.0 forbids. */
void ab_markup_text(FILE *out, const char *text);

/* Copies the one <svg> element in `svg`, gnuplot's output, into a page: elements and attributes that are not
 * on a short list are refused, tool tips and fonts are left out, every id is prefixed with `name` (letters,
 * digits, dashes), and the neutral colours become the page's (style.css), so that a dark page shows a dark
 * picture. The element is an image for readers of screens, named by the page's element `name`-title. Returns
 * NULL or, when it refused, what it found; `out` may then hold a part. */
const char *ab_markup_svg(FILE *out, const char *svg, const char *name);

AB_END_DECLS

#endif
