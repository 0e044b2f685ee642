/* The list of loss scalers, their configuration as text, and common behaviour. */
#include "bench/amp/scaler/scaler.h"

#include "kernels/core/number.h"
#include "kernels/core/text.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AB_SCALER(name) extern const ab_scaler_kind ab_scaler_##name;
#include "bench/amp/scaler/scalers.def"
#undef AB_SCALER

static const ab_scaler_kind *const kinds[] = {
#define AB_SCALER(name) &ab_scaler_##name,
#include "bench/amp/scaler/scalers.def"
#undef AB_SCALER
};

int ab_scaler_count(void) { return (int)AB_COUNT_OF(kinds); }
const ab_scaler_kind *ab_scaler_at(int i) { return kinds[i]; }

ab_status ab_scaler_find(const char *name, const ab_scaler_kind **kind) {
    const char *names[AB_COUNT_OF(kinds)];
    for (size_t i = 0; i < AB_COUNT_OF(kinds); i++) {
        names[i] = kinds[i]->name;
        if (strcmp(name, names[i]) != 0) continue;
        *kind = kinds[i];
        return AB_OK;
    }
    const char *near = ab_nearest(name, names, (int)AB_COUNT_OF(names));
    return ab_fail(AB_USAGE, "unknown loss scaler '%s'%s%s%s", ab_text_brief(name, 40),
                   near ? "; nearest: " : "", near ? near : "", near ? "" : " (see `ampbench list scalers`)");
}

/* ---- configuration --------------------------------------------------------------------------- */

ab_scaler_config ab_scaler_defaults(const ab_scaler_kind *kind) {
    ab_scaler_config config = {.kind = kind};
    for (int i = 0; i < kind->keys; i++) {
        config.value[i] = kind->key[i].fallback;
        if (kind->key[i].integral) config.integral |= 1u << i;
    }
    return config;
}

int ab_scaler_key_index(const ab_scaler_kind *kind, const char *name) {
    for (int i = 0; i < kind->keys; i++) {
        const ab_scaler_key *key = &kind->key[i];
        if (strcmp(name, key->name) == 0 || (key->own && strcmp(name, key->own) == 0)) return i;
    }
    return -1;
}

static ab_status unknown_key(const ab_scaler_kind *kind, const char *word) {
    const char *names[2 * AB_SCALER_KEYS];
    char list[256] = "";
    int count = 0;
    for (int i = 0; i < kind->keys; i++) {
        names[count++] = kind->key[i].name;
        if (kind->key[i].own) names[count++] = kind->key[i].own;
        ab_text_append(list, sizeof list, "%s%s", i ? ", " : "", kind->key[i].name);
    }
    const char *near = ab_nearest(word, names, count);
    return ab_fail(AB_USAGE, "loss scaler %s has no key '%s'%s%s (keys: %s)", kind->name,
                   ab_text_brief(word, 40), near ? "; nearest: " : "", near ? near : "",
                   list[0] ? list : "none");
}

/* Parses a number: 65536, 1e-3, 2^16, 2**16. */
static bool parse_number(const char *text, double *value) {
    char *end;
    *value = ab_number_read(text, &end);
    return end != text && *end == '\0';
}

static bool parse_bool(const char *text, double *value) {
    static const char *const words[2][3] = {{"False", "false", "0"}, {"True", "true", "1"}};
    for (int v = 0; v < 2; v++) {
        for (int i = 0; i < 3; i++) {
            if (strcmp(text, words[v][i]) != 0) continue;
            *value = v;
            return true;
        }
    }
    return false;
}

static bool in_range(const ab_scaler_key *key, double value) {
    if (!isfinite(value)) return false;
    if (key->type == AB_SCALER_INTEGER && value != floor(value)) return false;
    if (key->open && isfinite(key->low) && value <= key->low) return false;
    if (key->open && isfinite(key->high) && value >= key->high) return false;
    return value >= key->low && value <= key->high;
}

/* "a number above 0", "an integer from 1 to 9007199254740992" */
static const char *range_text(const ab_scaler_key *key, char text[96]) {
    const char *what = key->type == AB_SCALER_INTEGER ? "an integer" : "a number";
    bool low = isfinite(key->low), high = isfinite(key->high);
    if (low && high)
        ab_text_show(text, 96, "%s %s %.17g %s %.17g", what, key->open ? "above" : "from", key->low,
                     key->open ? "and below" : "to", key->high);
    else if (low)
        ab_text_show(text, 96, "%s %s %.17g", what, key->open ? "above" : "of at least", key->low);
    else if (high)
        ab_text_show(text, 96, "%s %s %.17g", what, key->open ? "below" : "of at most", key->high);
    else
        ab_text_show(text, 96, "%s", what);
    return text;
}

ab_status ab_scaler_set(ab_scaler_config *config, const char *name, const char *value) {
    const ab_scaler_kind *kind = config->kind;
    int i = ab_scaler_key_index(kind, name);
    if (i < 0) return unknown_key(kind, name);
    const ab_scaler_key *key = &kind->key[i];
    char expected[96];
    double number = 0;
    bool flag = key->type == AB_SCALER_BOOL;
    bool read = flag ? parse_bool(value, &number) : parse_number(value, &number);
    if (!read || !(flag || in_range(key, number)))
        return ab_fail(AB_USAGE, "loss scaler %s: %s: expected %s, found '%s'", kind->name, key->name,
                       flag ? "True or False" : range_text(key, expected), ab_text_brief(value, 40));
    config->value[i] = number;
    config->given |= 1u << i;
    config->integral &= ~(1u << i);
    if (!strpbrk(value, ".eE") && number == floor(number)) config->integral |= 1u << i;
    return AB_OK;
}

/* One "key=value" of `text`, which has `length` characters. */
static ab_status set_pair(ab_scaler_config *config, const char *text, size_t length) {
    char pair[96];
    if (length >= sizeof pair)
        return ab_fail(AB_USAGE,
                       "loss scaler %s: expected key=value of at most %d characters, found '%s...' of %zu",
                       config->kind->name, (int)sizeof pair - 1, ab_text_brief(text, 40), length);
    memcpy(pair, text, length);
    pair[length] = '\0';
    char *equals = strchr(pair, '=');
    if (!equals)
        return ab_fail(AB_USAGE, "loss scaler %s: expected key=value, found '%s'", config->kind->name, pair);
    *equals = '\0';
    return ab_scaler_set(config, pair, equals + 1);
}

ab_status ab_scaler_parse_keys(const ab_scaler_kind *kind, const char *keys, ab_scaler_config *config) {
    *config = ab_scaler_defaults(kind);
    for (const char *rest = keys; rest;) {
        size_t n = strcspn(rest, ",");
        AB_TRY(set_pair(config, rest, n));
        rest = rest[n] ? rest + n + 1 : NULL;
    }
    return kind->check ? kind->check(config) : AB_OK;
}

ab_status ab_scaler_parse(const char *text, ab_scaler_config *config) {
    char name[64];
    size_t length = strcspn(text, ":");
    ab_text_show(name, sizeof name, "%.*s", (int)length, text);
    const ab_scaler_kind *kind = NULL;
    AB_TRY(ab_scaler_find(name, &kind));
    if (!text[length]) return ab_scaler_parse_keys(kind, NULL, config);
    return ab_scaler_parse_keys(kind, text + length + 1, config);
}

static const char *value_text(const ab_scaler_config *config, int i, char text[40]) {
    double value = config->value[i];
    if (config->kind->key[i].type == AB_SCALER_BOOL) return value != 0 ? "True" : "False";
    ab_text_round_trip(text, value);
    bool whole = !strpbrk(text, ".en");
    bool python = config->kind->key[i].type == AB_SCALER_REAL && !(config->integral >> i & 1u);
    if (whole && python) ab_text_exact(text + strlen(text), 40 - strlen(text), ".0");
    return text;
}

const char *ab_scaler_text(const ab_scaler_config *config, char *text) {
    size_t used = strlen(ab_text_exact(text, AB_SCALER_TEXT, "%s", config->kind->name));
    char separator = ':';
    for (int i = 0; i < config->kind->keys; i++) {
        char number[40];
        if (!(config->given >> i & 1u)) continue;
        used += strlen(ab_text_exact(text + used, AB_SCALER_TEXT - used, "%c%s=%s", separator,
                                     config->kind->key[i].name, value_text(config, i, number)));
        separator = ',';
    }
    return text;
}

static void limit(ab_scaler_config *config, const char *key, double value) {
    int i = ab_scaler_key_index(config->kind, key);
    if (value != 0 && i >= 0 && !(config->given >> i & 1u)) config->value[i] = value;
}

ab_scaler_config ab_scaler_limited(const ab_scaler_config *config, double min, double max, double window) {
    ab_scaler_config limited = *config;
    limit(&limited, "min", min);
    limit(&limited, "max", max);
    limit(&limited, "window", window);
    return limited;
}

/* ---- scalers --------------------------------------------------------------------------------- */

void ab_scaler_start(ab_scaler *scaler, const ab_scaler_config *config) {
    memset(scaler, 0, sizeof *scaler);
    scaler->kind = config->kind;
    scaler->config = *config;
    scaler->kind->start(scaler);
}

bool ab_scaler_checks(const ab_scaler *scaler) {
    return !scaler->kind->checks || scaler->kind->checks(scaler);
}

double ab_scaler_divisor(const ab_scaler *scaler) {
    return scaler->kind->divisor ? scaler->kind->divisor(scaler) : scaler->scale;
}

/* The fault of this scale that is common to all dialects, or NULL. */
static const ab_scaler_fault *fault_of(const ab_scaler *scaler) {
    static const ab_scaler_fault zero = {
        "scale_zero", "the scale has been halved to 0: gradients are 0 and unscaling divides by 0", false};
    static const ab_scaler_fault infinite = {
        "scale_inf", "the scale has grown to infinity: every gradient overflows from here on", false};
    static const ab_scaler_fault nan = {"scale_nan", "the scale is NaN", false};
    static const ab_scaler_fault negative = {
        "scale_negative", "the scale is below 0: the optimizer climbs instead of descending", false};
    static const ab_scaler_fault tiny = {"inverse_inf",
                                         "the scale is so small that 1/scale is infinite in fp32: finite "
                                         "gradients become infinite and the step is taken",
                                         false};
    double scale = scaler->scale;
    if (isnan(scale)) return &nan;
    if (scale == 0) return &zero;
    if (isinf(scale)) return &infinite;
    if (scale < 0) return &negative;
    return scaler->kind->fp32 && !(1 / scale <= (double)FLT_MAX) ? &tiny : NULL;
}

ab_scaler_outcome ab_scaler_update(ab_scaler *scaler, const ab_scaler_seen *seen) {
    ab_scaler_outcome outcome = scaler->kind->update(scaler, seen);
    if (!outcome.fault) outcome.fault = fault_of(scaler);
    return outcome;
}

static bool same(double a, double b) { return a == b || (isnan(a) && isnan(b)); }

bool ab_scaler_same(const ab_scaler *a, const ab_scaler *b) {
    bool equal = same(a->scale, b->scale);
    for (int i = 0; i < AB_SCALER_STATES; i++) equal = equal && same(a->state[i], b->state[i]);
    return equal;
}

bool ab_scaler_alike(const ab_scaler *a, const ab_scaler *b) {
    bool alike = same(a->scale, b->scale);
    for (int i = 0; i < AB_SCALER_STATES; i++) {
        const bool phase = a->kind->phases >> i & 1u;
        alike = alike && (same(a->state[i], b->state[i]) ||
                          (phase && fmod(a->state[i] - b->state[i], a->config.value[a->kind->window]) == 0));
    }
    return alike;
}

/* Adds n to the counters. */
static void count_steps(ab_scaler *scaler, int64_t n) {
    for (int i = 0; i < scaler->kind->states; i++)
        if (scaler->kind->counters >> i & 1u) scaler->state[i] += (double)n;
}

/* Takes the clean steps that only count. If the step after them, which ends a window, only counts too (the
 * scale is at its cap, or infinite), so do all others: counters have an effect at the ends of windows only.
 */
static int64_t forward_clean(ab_scaler *scaler, const ab_scaler_seen *seen, int64_t most) {
    if (!scaler->kind->steps_until_change) return 0;
    int64_t steps = scaler->kind->steps_until_change(scaler);
    if (steps < 0) steps = 0;
    if (steps < most) {
        ab_scaler counted = *scaler, updated;
        count_steps(&counted, steps);
        updated = counted;
        const ab_scaler_outcome outcome = ab_scaler_update(&updated, seen);
        count_steps(&counted, 1);
        if (ab_scaler_same(&counted, &updated) && !(outcome.fault && outcome.fault->raises)) steps = most;
    }
    if (steps > most) steps = most;
    count_steps(scaler, steps);
    return steps;
}

/* Takes the overflowed steps that all change the states by the same amounts and nothing else. */
static int64_t forward_overflows(ab_scaler *scaler, const ab_scaler_seen *seen, int64_t most) {
    int64_t steps = scaler->kind->overflows_until_change ? scaler->kind->overflows_until_change(scaler) : 0;
    if (steps > most) steps = most;
    if (steps <= 0) return 0;
    const ab_scaler now = *scaler;
    ab_scaler next = now;
    scaler->kind->update(&next, seen);
    for (int i = 0; i < scaler->kind->states; i++)
        if (!same(now.state[i], next.state[i]))
            scaler->state[i] += (double)steps * (next.state[i] - now.state[i]);
    return steps;
}

int64_t ab_scaler_fast_forward(ab_scaler *scaler, const ab_scaler *before, const ab_scaler_seen *seen,
                               int64_t most) {
    if (ab_scaler_same(scaler, before))
        return most; /* the last step changed nothing, so further ones do not either */
    return seen->overflow ? forward_overflows(scaler, seen, most) : forward_clean(scaler, seen, most);
}

/* ---- state ----------------------------------------------------------------------------------- */

int ab_scaler_state_count(const ab_scaler_kind *kind) { return 1 + kind->states; }

const char *ab_scaler_state_name(const ab_scaler_kind *kind, int i) {
    return i == 0 ? "scale" : kind->state[i - 1];
}

double ab_scaler_state(const ab_scaler *scaler, int i) {
    return i == 0 ? scaler->scale : scaler->state[i - 1];
}

ab_status ab_scaler_set_state(ab_scaler *scaler, const char *name, double value) {
    for (int i = 0; i < ab_scaler_state_count(scaler->kind); i++) {
        if (strcmp(name, ab_scaler_state_name(scaler->kind, i)) != 0) continue;
        *(i == 0 ? &scaler->scale : &scaler->state[i - 1]) = value;
        return AB_OK;
    }
    return ab_fail(AB_INPUT, "loss scaler %s has no state '%s'", scaler->kind->name, ab_text_brief(name, 40));
}
