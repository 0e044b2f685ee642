/* The histogram as an image: data and script through reports/plot/plot.h, drawn by plots/inspect.gp. */
#include "kernels/core/text.h"
#include "reports/inspect/inspection.h"
#include "reports/plot/plot.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>
#include <string.h>

enum { WIDTH = 960, HEIGHT = 420, MARGIN_OCTAVES = 4, TITLE = 512 };

extern const char ab_embedded_gp_inspect[];

/* ---- the numbers as a document --------------------------------------------------------------- */

/* log2 of a limit, or a position outside the image if it is never reached. */
static double limit_log2(uint32_t bits, double never) {
    float value = 0;
    memcpy(&value, &bits, sizeof value);
    if (bits == 0) return AB_CENSUS_EMIN - MARGIN_OCTAVES;
    return bits >= AB_WHATIF_NEVER ? never : log2((double)value);
}

static void add_text(cJSON *document, const ab_inspect_result *result) {
    char text[TITLE], scale[AB_TEXT_NUMBER], share[AB_TEXT_NUMBER];
    const char *path = result->row[0].tensor.path, *slash = strrchr(path, '/'),
               *format = result->question->format[0]->name;
    const ab_scale_range *every = &result->advice[0].every;
    const ab_census *census = &result->pooled.census;
    if (result->files == 1)
        ab_text_show(text, sizeof text, "%s", slash ? slash + 1 : path);
    else
        ab_text_show(text, sizeof text, "%d files", result->files);
    cJSON_AddStringToObject(document, "subject", text);
    ab_text_show(text, sizeof text,
                 "%d tensor%s, share of the finite non-zero values per factor of 2; %s %% of all are zeros; "
                 "limits of %s at scale %s",
                 result->rows, result->rows == 1 ? "" : "s",
                 ab_text_percent(share, census->count ? (double)census->zero / (double)census->count : 0),
                 format, ab_text_scale(scale, (double)result->question->scale));
    cJSON_AddStringToObject(document, "detail", text);
    if (ab_scale_feasible(every))
        ab_text_show(text, sizeof text, "loss scales that suit every tensor: 2^%d to 2^%d", every->k_lo,
                     every->k_hi);
    else
        ab_text_show(text, sizeof text, "no loss scale suits every tensor");
    cJSON_AddStringToObject(document, "advice", text);
    cJSON_AddStringToObject(document, "format_name", format);
}

static void add_numbers(cJSON *document, const ab_inspect_result *result) {
    const ab_whatif_limits *limits = &result->limits.scale[0];
    const ab_census *census = &result->pooled.census;
    double flush = limit_log2(limits->kept - 1, AB_CENSUS_EMAX + 1),
           most = limit_log2(limits->overflow, AB_CENSUS_EMAX + 1);
    double low = fmin(flush, ilogbf(census->min_abs)) - MARGIN_OCTAVES,
           high = fmax(most, ilogbf(census->max_abs) + 1);
    int64_t peak = 1;
    for (int e = AB_CENSUS_EMIN; e <= AB_CENSUS_EMAX; e++)
        if (ab_census_at(census, e) > peak) peak = ab_census_at(census, e);
    cJSON_AddNumberToObject(document, "width", WIDTH);
    cJSON_AddNumberToObject(document, "height", HEIGHT);
    cJSON_AddNumberToObject(document, "low", floor(low));
    cJSON_AddNumberToObject(document, "high", ceil(high) + MARGIN_OCTAVES);
    cJSON_AddNumberToObject(document, "flush_limit", flush);
    cJSON_AddNumberToObject(document, "normal_limit", limit_log2(limits->normal, AB_CENSUS_EMAX + 1));
    cJSON_AddNumberToObject(document, "max_limit", most);
    cJSON_AddNumberToObject(document, "top_percent",
                            100.0 * (double)peak / (double)ab_census_nonzero(census));
}

static void add_bins(cJSON *document, const ab_census *census) {
    cJSON *bins = cJSON_AddArrayToObject(document, "percent");
    for (int e = AB_CENSUS_EMIN; e <= AB_CENSUS_EMAX; e++)
        cJSON_AddItemToArray(bins, cJSON_CreateNumber(100.0 * (double)ab_census_at(census, e) /
                                                      (double)ab_census_nonzero(census)));
}

/* ---- the plot -------------------------------------------------------------------------------- */

static int pages(ab_plot_input *in) { return cJSON_GetArraySize(ab_json_at(in->document, "percent")) > 0; }

static ab_status write_plot(ab_plot_input *in, int page, FILE *data, FILE *script) {
    const cJSON *document = in->document;
    (void)page;
    const cJSON *item = NULL;
    int e = AB_CENSUS_EMIN;
    fputs("# exponent  percent\n", data);
    cJSON_ArrayForEach(item, ab_json_at(document, "percent")) {
        fprintf(data, "%d", e++);
        ab_plot_number(data, item->valuedouble);
        fputc('\n', data);
    }
    cJSON_ArrayForEach(item, document) {
        if (cJSON_IsString(item)) ab_plot_set_text(script, item->string, item->valuestring);
        if (cJSON_IsNumber(item)) ab_plot_set_number(script, item->string, item->valuedouble);
    }
    return AB_OK;
}

ab_status ab_inspect_plot(const ab_inspect_result *result, const char *folder, const char **note) {
    static const ab_plot plot = {
        .name = "inspect", .drawing = ab_embedded_gp_inspect, .pages = pages, .write = write_plot};
    int rendered = 0;
    *note = "there is no finite non-zero value to draw";
    if (ab_census_nonzero(&result->pooled.census) == 0) return AB_OK;
    cJSON *document = cJSON_CreateObject();
    add_text(document, result);
    add_numbers(document, result);
    add_bins(document, &result->pooled.census);
    ab_status status = ab_plot_write(&plot, document, folder, &rendered, note);
    cJSON_Delete(document);
    return status;
}
