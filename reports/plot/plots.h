/* All plots of a document, as files. */
#ifndef AB_REPORTS_PLOT_PLOTS_H
#define AB_REPORTS_PLOT_PLOTS_H

#include "kernels/core/status.h"

#include <cjson/cJSON.h>

AB_BEGIN_DECLS

/* Writes data files and gnuplot scripts of all plots into `folder` (created if missing) and renders PNGs
 * when gnuplot is found; of a document with very many cells only those of the run as a whole. *rendered:
 * number of PNGs; 0 without gnuplot (not an error; `note` receives a static text with the reason). */
AB_MUST_CHECK ab_status ab_plots_write(const cJSON *document, const char *folder, int *rendered,
                                       const char **note);

/* Number of pictures that ab_plots_write leaves out because there are very many cells; a sentence on it in
 * text[AB_PLOTS_UNDRAWN], NULL if there are none. */
enum { AB_PLOTS_UNDRAWN = 160 };
int ab_plots_undrawn(const cJSON *document);
const char *ab_plots_undrawn_text(const cJSON *document, char *text);

AB_END_DECLS

#endif
