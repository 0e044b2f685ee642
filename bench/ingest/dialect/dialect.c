/* Candidates: every dialect that follows overflows alone, with constants that the course suggests. */
#include "bench/ingest/dialect/dialect.h"

#include "bench/ingest/log/facts.h"

#include <math.h>
#include <stdlib.h>

enum { WINDOWS = 24, HYSTERESES = 4 };

/* A course, and the updates that its dialect has left. */
typedef struct search {
    const ab_scale_course *course;
    int64_t left;
    bool cut;
} search;

typedef struct candidates {
    double window[WINDOWS];
    int windows;
} candidates;

static void add_window(candidates *c, double window) {
    for (int i = 0; i < c->windows; i++)
        if (c->window[i] == window) return;
    if (window >= 1 && c->windows < WINDOWS) c->window[c->windows++] = window;
}

static double steps_of(const ab_scale_course *course) {
    double steps = 0;
    for (int i = 0; i < course->spans; i++) steps += (double)course->span[i].steps;
    return steps;
}

/* Steps between changes of the scale of which the second is a growth, and one less and more: windows count
 * from the last change. Usual windows too. */
static candidates windows_of(const ab_scale_course *course) {
    static const double usual[] = {2000, 1000, 500, 400, 256, 200, 128, 100};
    candidates c = {.windows = 0};
    double last = course->first, since = 0;
    bool any = false;
    for (int i = 0; i < course->spans && c.windows < WINDOWS - (int)AB_COUNT_OF(usual); i++) {
        const ab_scale_span *span = &course->span[i];
        since += (double)span->steps;
        if (span->scale == last && span->skipped <= 0) continue;
        if (span->scale > last && (any || course->fresh))
            for (double shift = 0; shift < 2 + (double)span->steps && shift < 12; shift++)
                add_window(&c, since - shift);
        any = true;
        last = span->scale;
        since = 0;
    }
    for (size_t i = 0; i < AB_COUNT_OF(usual); i++) /* longer ones are all alike: they never end */
        if (usual[i] <= steps_of(course)) add_window(&c, usual[i]);
    return c;
}

static void set_key(ab_scaler_config *config, const char *name, double value) {
    const int key = ab_scaler_key_index(config->kind, name);
    if (key < 0 || config->value[key] == value) return;
    config->value[key] = value;
    config->given |= 1u << key;
    if (value == floor(value)) config->integral |= 1u << key;
}

static bool has_key(const ab_scaler_kind *kind, const char *name) {
    return ab_scaler_key_index(kind, name) >= 0;
}

static double least_of(const ab_scale_course *course) {
    double least = course->first;
    for (int i = 0; i < course->spans; i++) least = fmin(least, course->span[i].scale);
    return least;
}

static double largest_of(const ab_scale_course *course) {
    double most = course->first;
    for (int i = 0; i < course->spans; i++) most = fmax(most, course->span[i].scale);
    return most;
}

/* A step was skipped and left the scale where it is the least. */
static bool shows_floor(const ab_scale_course *course) {
    const double least = least_of(course);
    double last = course->first;
    for (int i = 0; i < course->spans; i++) {
        if (course->span[i].skipped > 0 && last == least && course->span[i].scale == least) return true;
        last = course->span[i].scale;
    }
    return false;
}

/* Steps at the largest scale, which a scaler without a cap would have left. */
static bool shows_cap(const ab_scale_course *course, double window) {
    const double most = largest_of(course);
    int64_t steps = 0;
    for (int i = 0; i < course->spans; i++) {
        steps =
            course->span[i].scale == most && course->span[i].skipped <= 0 ? steps + course->span[i].steps : 0;
        if ((double)steps > window) return true;
    }
    return false;
}

/* Constants that take half of what is left are given up. */
static bool fits(search *s, const ab_scaler_config *config) {
    int64_t work = s->left / 2;
    const int64_t before = work;
    const bool found = ab_dialect_fits(s->course, config, &work);
    s->cut = s->cut || work < 0;
    s->left -= before - work;
    return found;
}

static bool fits_with(search *s, ab_scaler_config *config, const char *key, double value) {
    ab_scaler_config limited = *config;
    if (!has_key(config->kind, key)) return false;
    set_key(&limited, key, value);
    if (!fits(s, &limited)) return false;
    *config = limited;
    return true;
}

/* With a floor or a cap at an extreme of the course, where it shows one, if the defaults do not fit. */
static bool fits_limited(search *s, ab_scaler_config *config) {
    const ab_scale_course *course = s->course;
    const int floor_key = ab_scaler_key_index(config->kind, "min"),
              cap_key = ab_scaler_key_index(config->kind, "max"),
              window = ab_scaler_key_index(config->kind, "window");
    if (fits(s, config)) return true;
    if (floor_key >= 0 && (least_of(course) < config->value[floor_key] || shows_floor(course)) &&
        fits_with(s, config, "min", least_of(course)))
        return true;
    return cap_key >= 0 &&
           (largest_of(course) > config->value[cap_key] || shows_cap(course, config->value[window])) &&
           fits_with(s, config, "max", largest_of(course));
}

static bool fits_hysteresis(search *s, ab_scaler_config *config) {
    if (fits_limited(s, config)) return true;
    for (int h = 1; h <= HYSTERESES && has_key(config->kind, "hysteresis"); h++) {
        ab_scaler_config other = *config;
        set_key(&other, "hysteresis", h);
        if (!fits_limited(s, &other)) continue;
        *config = other;
        return true;
    }
    return false;
}

static bool changes(const ab_scale_course *course) {
    for (int i = 0; i < course->spans; i++)
        if (course->span[i].scale != course->first) return true;
    return false;
}

/* The first window that fits, and the least and largest. */
static bool try_windows(search *s, const ab_scaler_kind *kind, const candidates *c, ab_dialect_fit *fit) {
    bool found = false;
    const bool windowed = has_key(kind, "window");
    ab_scaler_config config = ab_scaler_defaults(kind);
    const int key = ab_scaler_key_index(kind, "window");
    for (int i = -1; i < (windowed ? c->windows : 0); i++) {
        config = ab_scaler_defaults(kind);
        set_key(&config, has_key(kind, "init") ? "init" : "max", s->course->first); /* max: it begins there */
        if (i >= 0 && config.value[key] == c->window[i]) continue;
        if (i >= 0) set_key(&config, "window", c->window[i]);
        if (!fits_hysteresis(s, &config)) continue;
        const double window = windowed ? config.value[key] : 0;
        if (!found) *fit = (ab_dialect_fit){config, window, window};
        fit->window_low = fmin(fit->window_low, window);
        fit->window_high = fmax(fit->window_high, window);
        found = true;
    }
    return found;
}

/* Follows overflows alone, and changes. */
static bool is_searched(const ab_scaler_kind *kind) { return !kind->sees && has_key(kind, "window"); }

/* What of the work is left for each of the dialects that are left. */
static int64_t share_of(int64_t work, int from) {
    int kinds = 0;
    for (int i = from; i < ab_scaler_count(); i++) kinds += is_searched(ab_scaler_at(i));
    return kinds > 0 ? work / kinds : 0;
}

int ab_dialects_of(const ab_scale_course *course, int64_t work, ab_dialect_fit fit[AB_DIALECTS], bool *cut) {
    const candidates c = windows_of(course);
    work += work / 1024 * course->spans;
    int found = 0;
    *cut = false;
    if (!changes(course) || !(least_of(course) > 0)) return 0; /* a loss scale is positive */
    for (int i = 0; i < ab_scaler_count() && found < AB_DIALECTS; i++) {
        if (!is_searched(ab_scaler_at(i))) continue;
        search s = {.course = course, .left = share_of(work, i)};
        work -= s.left;
        found += try_windows(&s, ab_scaler_at(i), &c, &fit[found]);
        work += s.left > 0 ? s.left : 0;
        *cut = *cut || s.cut;
    }
    return found;
}

static double key_of(const ab_scaler_config *config, const char *name, double fallback) {
    const int key = ab_scaler_key_index(config->kind, name);
    return key >= 0 ? config->value[key] : fallback;
}

double ab_dialect_skips_expected(const ab_dialect_fit *fit, double steps) {
    const double skips = fmax(key_of(&fit->config, "hysteresis", 1), 1),
                 window = key_of(&fit->config, "window", 0);
    return window >= 1 ? steps * skips / (window + skips) : 0;
}

/* later: steps after the scale first rose; NAN: not known */
static cJSON *fit_json(const ab_dialect_fit *fit, double later) {
    char text[AB_SCALER_TEXT];
    cJSON *object = cJSON_CreateObject(), *window = cJSON_CreateArray();
    cJSON_AddStringToObject(object, "dialect", fit->config.kind->name);
    cJSON_AddStringToObject(object, "config", ab_scaler_text(&fit->config, text));
    cJSON_AddItemToArray(window, cJSON_CreateNumber(fit->window_low));
    cJSON_AddItemToArray(window, cJSON_CreateNumber(fit->window_high));
    cJSON_AddItemToObject(object, "window", window);
    cJSON_AddItemToObject(object, "skips_expected",
                          isfinite(later) ? cJSON_CreateNumber(ab_dialect_skips_expected(fit, later))
                                          : cJSON_CreateNull());
    return object;
}

/* *changing: the scale changes. *cut: stays or becomes true. */
static ab_status fits_of(const ab_log *log, ab_skips_of skips, int64_t work, ab_dialect_fit *fit, int *found,
                         bool *changing, bool *cut) {
    ab_scale_course course;
    bool given_up;
    AB_TRY(ab_scale_course_of(log, skips, &course));
    *changing = changes(&course);
    *found = ab_dialects_of(&course, work, fit, &given_up);
    *cut = *cut || given_up;
    free(course.span);
    return AB_OK;
}

ab_status ab_dialects_json(const ab_log *log, int64_t work, cJSON **json) {
    static const ab_skips_of ways[] = {AB_SKIPS_BEFORE_SCALE, AB_SKIPS_AFTER_SCALE, AB_SKIPS_UNUSED};
    ab_status status = AB_OK;
    ab_dialect_fit *fit = calloc(AB_DIALECTS, sizeof *fit);
    int found = 0;
    bool changing = false, cut = false;
    *json = NULL;
    if (!fit) return ab_fail(AB_NO_MEMORY, "log: out of memory");
    for (size_t i = 0; i < AB_COUNT_OF(ways) && found == 0 && status == AB_OK; i++)
        status = fits_of(log, ways[i], work, fit, &found, &changing, &cut);
    if (status == AB_OK && changing && (found > 0 || !cut)) {
        const ab_log_facts facts = ab_log_facts_of(log);
        *json = cJSON_CreateArray();
        for (int i = 0; i < found; i++) cJSON_AddItemToArray(*json, fit_json(&fit[i], facts.steps_later));
    }
    free(fit);
    return status;
}
