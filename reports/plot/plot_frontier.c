/* Accuracy against speed, one point per cell, with intervals: the range of the timing rounds and Wilson's
 * 95 % interval of the accuracy (E. B. Wilson 1927). The frontier joins the cells that no other cell beats
 * in both; only certified cells can be on it. Without test accuracies the final loss is plotted instead,
 * with the noise floor as its interval. Of so many cells that they would fill more than MOST_PAGES pages, one
 * page shows those on the frontier of all. */
#include "kernels/core/text.h"
#include "reports/plot/place.h"
#include "reports/plot/plot.h"
#include "reports/record/json.h"
#include "reports/record/summary.h"
#include "reports/record/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PER_PAGE = 40, MOST_PAGES = 10, WIDTH = 1100, HEIGHT = 480, ROW = 20, TITLE = 42 };
enum { PLOT_LEFT = 70, PLOT_RIGHT = WIDTH - 396, PLOT_TOP = 78, BELOW = 58 }; /* pixels */

static double figure(const cJSON *cell, const char *key) {
    return ab_json_number(ab_json_at(cell, "summary"), key, (double)NAN);
}

static bool is_timed(const cJSON *cell) {
    return !ab_plot_is_perturbed_baseline(cell) && isfinite(figure(cell, "samples_per_s"));
}

static bool has_accuracy(const cJSON *cell) {
    return is_timed(cell) && cJSON_IsNumber(ab_json_at(cell, "test_accuracy"));
}

static bool has_loss(const cJSON *cell) { return is_timed(cell) && isfinite(figure(cell, "loss_final")); }

static ab_plot_filter choose(ab_plot_input *in) {
    return ab_plot_page_count(in, has_accuracy, PER_PAGE) > 0 ? has_accuracy : has_loss;
}

static int full_pages(ab_plot_input *in) { return ab_plot_page_count(in, choose(in), PER_PAGE); }

static int pages(ab_plot_input *in) {
    const int full = full_pages(in);
    return full > MOST_PAGES ? 1 : full;
}

/* ---- points ---------------------------------------------------------------------------------- */

typedef struct point {
    double rate, rate_low, rate_high, value, low, high;
    bool certified, on_frontier;
    int color;
} point;

/* Wilson's 95 % interval of a proportion p of n. */
static void wilson(double p, double n, double *low, double *high) {
    const double z = 1.959963984540054;
    double centre = (p + z * z / (2 * n)) / (1 + z * z / n);
    double half = z / (1 + z * z / n) * sqrt(p * (1 - p) / n + z * z / (4 * n * n));
    *low = fmax(centre - half, 0);
    *high = fmin(centre + half, 1);
}

static point point_of(ab_plot_input *in, const cJSON *cell, bool accuracy) {
    double rate = figure(cell, "samples_per_s"), time = figure(cell, "step_time_ns");
    point p = {.rate = rate,
               .rate_low = rate * time / figure(cell, "step_time_ns_high"),
               .rate_high = rate * time / figure(cell, "step_time_ns_low"),
               .certified = ab_json_is_true(cell, "summary.certificate.passed"),
               .color = ab_plot_color(in, cell)};
    if (accuracy) {
        double share = ab_json_number(cell, "test_accuracy", 0);
        wilson(share, fmax(ab_json_number(cell, "test_count", 1), 1), &p.low, &p.high);
        p.value = 100 * share;
        p.low *= 100;
        p.high *= 100;
    } else {
        const ab_floors floors = ab_summary_floors(in->document);
        const double floor = fmax(floors.noise, floors.rounding);
        p.value = figure(cell, "loss_final");
        p.low = p.value - floor;
        p.high = p.value + floor;
    }
    return p;
}

/* At least as good in both and better in one. */
static bool beats(const point *a, const point *b, double sign) {
    double more = sign * (a->value - b->value), faster = a->rate - b->rate;
    return more >= 0 && faster >= 0 && (more > 0 || faster > 0);
}

static void find_frontier(point *p, int count, double sign) {
    for (int i = 0; i < count; i++) {
        p[i].on_frontier = p[i].certified;
        for (int k = 0; k < count; k++)
            if (p[k].certified && beats(&p[k], &p[i], sign)) p[i].on_frontier = false;
    }
}

/* ---- many cells ------------------------------------------------------------------------------ */

/* A certified cell of many. */
typedef struct candidate {
    const cJSON *cell;
    double rate, value; /* value: the larger the better */
} candidate;

/* What one page shows of many cells. */
typedef struct chosen {
    const cJSON *cell[PER_PAGE];
    int count, best, all; /* cells of the page, on the frontier, of the document */
} chosen;

/* The fastest first, of equal ones the best. */
static int compare_candidates(const void *left, const void *right) {
    const candidate *a = left, *b = right;
    if (a->rate != b->rate) return a->rate > b->rate ? -1 : 1;
    if (a->value != b->value) return a->value > b->value ? -1 : 1;
    return 0;
}

/* Moves those that no other one beats to the front: each is better than all faster ones, or as good as the
 * one before in both. */
static int keep_best(candidate *c, int count) {
    int kept = 0;
    qsort(c, (size_t)count, sizeof *c, compare_candidates);
    for (int i = 0; i < count; i++)
        if (kept == 0 || c[i].value > c[kept - 1].value || compare_candidates(&c[i], &c[kept - 1]) == 0)
            c[kept++] = c[i];
    return kept;
}

static int list_candidates(ab_plot_input *in, candidate *c, int *all) {
    const ab_plot_filter accept = choose(in);
    const cJSON *cell[PER_PAGE];
    int kept = 0;
    for (int page = 0, n; page < full_pages(in); page++, *all += n) {
        n = ab_plot_cells(in, accept, page, PER_PAGE, cell);
        for (int i = 0; i < n; i++) {
            const point p = point_of(in, cell[i], accept == has_accuracy);
            if (p.certified)
                c[kept++] = (candidate){cell[i], p.rate, accept == has_accuracy ? p.value : -p.value};
        }
    }
    return kept;
}

/* Where there is one, evenly spaced cells of the frontier of all cells, else the first cells. */
static ab_status prepare(ab_plot_input *in) {
    const int full = full_pages(in);
    if (full <= MOST_PAGES) return AB_OK;
    candidate *c = malloc((size_t)full * PER_PAGE * sizeof *c);
    chosen *found = in->prepared = calloc(1, sizeof *found);
    if (c && found) {
        found->best = keep_best(c, list_candidates(in, c, &found->all));
        found->count = found->best < PER_PAGE ? found->best : PER_PAGE;
        for (int i = 0; i < found->count; i++)
            found->cell[i] = c[found->count > 1 ? i * (found->best - 1) / (found->count - 1) : 0].cell;
        if (found->count == 0) found->count = ab_plot_cells(in, choose(in), 0, PER_PAGE, found->cell);
    }
    const bool failed = !c || !found;
    free(c);
    return failed ? ab_fail(AB_NO_MEMORY, "out of memory while writing plots") : AB_OK;
}

static int page_cells(ab_plot_input *in, int page, const cJSON *cell[PER_PAGE]) {
    const chosen *many = in->prepared;
    if (!many) return ab_plot_cells(in, choose(in), page, PER_PAGE, cell);
    memcpy(cell, many->cell, sizeof many->cell);
    return many->count;
}

/* "; the 12 of 10000 cells that no other one beats" */
static void add_choice(const ab_plot_input *in, char text[AB_PLOT_LABEL]) {
    const chosen *many = in->prepared;
    if (!many) return;
    if (many->best > many->count)
        ab_text_append(text, AB_PLOT_LABEL, "; %d of those %d of %d cells that no other one beats",
                       many->count, many->best, many->all);
    else if (many->best > 0)
        ab_text_append(text, AB_PLOT_LABEL, "; the %d of %d cells that no other one beats", many->best,
                       many->all);
    else
        ab_text_append(text, AB_PLOT_LABEL, "; the first %d of %d cells, all void", many->count, many->all);
}

/* ---- page ------------------------------------------------------------------------------------ */

/* Writes a block of the data: the points for which certified == `certified`; or the frontier, in order of
 * speed. */
static void write_points(const point *p, int count, bool certified, FILE *data) {
    int written = 0;
    fprintf(data, "# %s\n# row  rate  lowest  highest  value  low  high  color\n",
            certified ? "certified" : "void");
    for (int i = 0; i < count; i++) {
        if (p[i].certified != certified) continue;
        const double numbers[] = {p[i].rate, p[i].rate_low, p[i].rate_high, p[i].value, p[i].low, p[i].high};
        fprintf(data, "%d", i + 1);
        for (size_t k = 0; k < AB_COUNT_OF(numbers); k++) ab_plot_number(data, numbers[k]);
        fprintf(data, " %d\n", p[i].color);
        written++;
    }
    if (written == 0) fputs("0 ? ? ? ? ? ? 0\n", data); /* an empty block would shift the next ones */
    fputs("\n\n", data);
}

static void write_frontier(const point *p, int count, FILE *data) {
    double last = -1;
    int written = 0;
    fputs("# frontier, by speed\n# rate  value\n", data);
    for (;;) {
        const point *next = NULL;
        for (int i = 0; i < count; i++)
            if (p[i].on_frontier && p[i].rate > last && (!next || p[i].rate < next->rate)) next = &p[i];
        if (!next) break;
        ab_plot_number(data, next->rate);
        ab_plot_number(data, next->value);
        fputc('\n', data);
        last = next->rate;
        written++;
    }
    if (written == 0) fputs("? ?\n", data);
    fputs("\n\n", data);
}

/* Of the axes, in their units. */
typedef struct range {
    double left, right, bottom, top;
} range;

static range find_range(const point *p, int count) {
    double left = (double)INFINITY, right = 0, bottom = (double)INFINITY, top = (double)-INFINITY;
    for (int i = 0; i < count; i++) {
        left = fmin(left, fmin(p[i].rate_low, p[i].rate));
        right = fmax(right, fmax(p[i].rate_high, p[i].rate));
        bottom = fmin(bottom, p[i].low);
        top = fmax(top, p[i].high);
    }
    double x = right - left > 0 ? 0.08 * (right - left) : fmax(0.1 * right, 1);
    double y = top - bottom > 0 ? 0.08 * (top - bottom) : 1;
    return (range){fmax(left - x, 0), right + x, bottom - y, top + y};
}

/* Losses are better downwards: their axis is turned round. */
static void write_numbers(const point *p, int count, range r, bool accuracy, double height, FILE *data) {
    const ab_area area = {PLOT_LEFT, PLOT_RIGHT, PLOT_TOP, height - BELOW};
    const double wide = (r.right - r.left) / (area.right - area.left),
                 high = (r.top - r.bottom) / (area.bottom - area.top);
    ab_place at[PER_PAGE], label[PER_PAGE];
    for (int i = 0; i < count; i++) {
        at[i].x = area.left + (p[i].rate - r.left) / wide;
        at[i].y = accuracy ? area.bottom - (p[i].value - r.bottom) / high
                           : area.top + (p[i].value - r.bottom) / high;
    }
    ab_place_labels(at, count, area, label);
    fputs("# numbers\n# rate  value  rate_of_number  value_of_number  row  color\n", data);
    for (int i = 0; i < count; i++)
        fprintf(data, "%.9g %.9g %.9g %.9g %d %d\n", p[i].rate, p[i].value,
                r.left + (label[i].x - area.left) * wide,
                accuracy ? r.bottom + (area.bottom - label[i].y) * high
                         : r.bottom + (label[i].y - area.top) * high,
                i + 1, p[i].color);
}

static void write_variables(ab_plot_input *in, range r, bool accuracy, int count, double height,
                            FILE *script) {
    char text[AB_PLOT_LABEL];
    const struct {
        const char *name;
        double value;
    } number[] = {{"accuracy", accuracy},     {"rows", count},        {"width", WIDTH},
                  {"height", height},         {"left", r.left},       {"right", r.right},
                  {"bottom", r.bottom},       {"top", r.top},         {"plot_left", PLOT_LEFT},
                  {"plot_right", PLOT_RIGHT}, {"plot_top", PLOT_TOP}, {"plot_bottom", height - BELOW}};
    ab_plot_subject(in->document, text);
    add_choice(in, text);
    ab_plot_set_text(script, "subject", text);
    ab_plot_set_build(script, in->document);
    for (size_t i = 0; i < AB_COUNT_OF(number); i++)
        ab_plot_set_number(script, number[i].name, number[i].value);
}

static void write_list(ab_plot_input *in, const cJSON *const *cell, const point *p, int count, FILE *script) {
    char text[AB_PLOT_LABEL], line[AB_PLOT_LABEL + 16];
    fprintf(script, "array cell[%d]\narray tone[%d]\narray color_of[%d]\n", count, count, count);
    for (int i = 0; i < count; i++) {
        ab_plot_title(in, cell[i], TITLE, text);
        ab_text_show(line, sizeof line, "%d  %s%s", i + 1, text, p[i].certified ? "" : " (void)");
        fprintf(script, "cell[%d] = ", i + 1);
        ab_plot_quote(script, line);
        fprintf(script, "; tone[%d] = %d; ", i + 1, p[i].certified);
        ab_plot_set_color(script, i + 1, in, cell[i]);
    }
}

static ab_status write_plot(ab_plot_input *in, int page, FILE *data, FILE *script) {
    const cJSON *cell[PER_PAGE];
    point p[PER_PAGE];
    ab_plot_filter accept = choose(in);
    bool accuracy = accept == has_accuracy;
    int count = page_cells(in, page, cell);
    const double height = fmax(HEIGHT, 160 + ROW * count);
    for (int i = 0; i < count; i++) p[i] = point_of(in, cell[i], accuracy);
    find_frontier(p, count, accuracy ? 1 : -1);
    const range r = find_range(p, count);
    write_variables(in, r, accuracy, count, height, script);
    write_list(in, cell, p, count, script);
    write_points(p, count, true, data);
    write_points(p, count, false, data);
    write_frontier(p, count, data);
    write_numbers(p, count, r, accuracy, height, data);
    return AB_OK;
}

extern const char ab_embedded_gp_frontier[];
extern const ab_plot ab_plot_frontier;
const ab_plot ab_plot_frontier = {"frontier", ab_embedded_gp_frontier, pages, write_plot, true, prepare,
                                  free};
