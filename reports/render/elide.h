/* Short forms of a column's texts that still tell them apart. */
#ifndef AB_REPORTS_RENDER_ELIDE_H
#define AB_REPORTS_RENDER_ELIDE_H

#include "kernels/core/status.h"

AB_BEGIN_DECLS

/* Shortens text[0..count), cleaned (reports/record/text.h), with "..", all at the same place and to one
 * width: the least from `width` to `most` columns at which texts that differ still do, `most` where there is
 * none. */
AB_MUST_CHECK ab_status ab_elide_distinct(char *const *text, int count, int width, int most);

AB_END_DECLS

#endif
