/* What the plots' layouts share: rows of a key, ends of axes, filters of cells. */
#include "kernels/core/text.h"
#include "reports/plot/plot.h"
#include "reports/record/cells.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_WIDTH = 1000, KEY_LETTER = 8, KEY_SAMPLE = 60 };

/* ---- keys ------------------------------------------------------------------------------------ */

int ab_plot_key_rows(int longest, int count) {
    const int fit = KEY_WIDTH / (KEY_LETTER * longest + KEY_SAMPLE);
    const int rows = fit > 1 ? (count + fit - 1) / fit : count;
    return rows > 1 ? rows : 1;
}

/* ---- axes ------------------------------------------------------------------------------------ */

static int compare_peaks(const void *x, const void *y) {
    const double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

void ab_plot_share_tops(double *peak, int count) {
    double sorted[AB_PLOT_PANELS], shared = 0;
    if (count == 0) return;
    memcpy(sorted, peak, (size_t)count * sizeof *peak);
    qsort(sorted, (size_t)count, sizeof *sorted, compare_peaks);
    const double limit = 2 * sorted[(count - 1) / 2];
    for (int i = 0; i < count; i++)
        if (peak[i] <= limit) shared = fmax(shared, peak[i]);
    for (int i = 0; i < count; i++)
        if (peak[i] <= limit) peak[i] = shared;
}

/* ---- cells ----------------------------------------------------------------------------------- */

bool ab_plot_is_perturbed_baseline(const cJSON *cell) { return cJSON_IsString(ab_json_at(cell, "twin")); }

bool ab_plot_is_trained(const cJSON *cell) {
    return !ab_plot_is_perturbed_baseline(cell) && ab_steps_of_cell(cell) > 0;
}

double ab_plot_fixed_scale(const cJSON *cell, bool *skips) {
    char *end = NULL;
    const cJSON *scale = ab_json_at(cell, "policy.loss_scale");
    const char *text = cJSON_GetStringValue(scale);
    *skips = false;
    if (cJSON_IsNumber(scale)) return scale->valuedouble > 0 ? scale->valuedouble : (double)NAN;
    if (!text) return (double)NAN;
    const double value = strtod(text, &end);
    *skips = end != text && strcmp(end, ":skip") == 0;
    return *skips && value > 0 && isfinite(value) ? value : (double)NAN;
}
