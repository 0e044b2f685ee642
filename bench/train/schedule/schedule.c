/* The list of schedules, their configuration as text, and the warm-up that all but one_cycle share. */
#include "bench/train/schedule/schedule.h"

#include "kernels/core/number.h"
#include "kernels/core/text.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AB_SCHEDULE(name) extern const ab_schedule ab_schedule_##name;
#include "bench/train/schedule/schedules.def"
#undef AB_SCHEDULE

static const ab_schedule *const schedules[] = {
#define AB_SCHEDULE(name) &ab_schedule_##name,
#include "bench/train/schedule/schedules.def"
#undef AB_SCHEDULE
};

int ab_schedule_count(void) { return (int)AB_COUNT_OF(schedules); }
const ab_schedule *ab_schedule_at(int i) { return schedules[i]; }

/* ---- text ------------------------------------------------------------------------------------ */

typedef struct key_row {
    const char *name;
    size_t offset;
    bool integer;
    double low, high;
} key_row;

#define ROW(name, integer, low, high)                                                                        \
    { #name, offsetof(ab_schedule_config, name), integer, low, high }
static const key_row keys[] = {
    ROW(total, true, 1, 1e12),
    ROW(warmup, true, 0, 1e12),
    ROW(warmup_start, false, 0, 1),
    ROW(warmup_shift, true, 0, 1),
    ROW(step_size, true, 1, 1e12),
    ROW(gamma, false, 0, 1e9),
    ROW(final, false, 0, 1e9),
    ROW(power, false, 0, 1e3),
    ROW(pct_start, false, 0, 1),
    ROW(div_factor, false, 1e-9, 1e9),
    ROW(final_div_factor, false, 1e-9, 1e12),
    ROW(base_momentum, false, 0, 1),
    ROW(max_momentum, false, 0, 1),
};
#undef ROW

static bool reads(const ab_schedule *schedule, const char *key) {
    char padded[64];
    ab_text_exact(padded, sizeof padded, " %s ", key);
    return strstr(schedule->keys, padded) != NULL;
}

static ab_status find(const char *name, const ab_schedule **schedule) {
    const char *names[AB_COUNT_OF(schedules)];
    char list[128] = "";
    for (size_t i = 0; i < AB_COUNT_OF(schedules); i++) {
        names[i] = schedules[i]->name;
        ab_text_append(list, sizeof list, "%s%s", i ? ", " : "", names[i]);
        if (strcmp(name, names[i]) != 0) continue;
        *schedule = schedules[i];
        return AB_OK;
    }
    const char *near = ab_nearest(name, names, (int)AB_COUNT_OF(names));
    return ab_fail(AB_USAGE, "--schedule: expected one of %s, found '%s'%s%s%s", list, name,
                   near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static ab_status unknown_key(const ab_schedule *schedule, const char *key) {
    const char *names[AB_COUNT_OF(keys)];
    char list[256] = "";
    int count = 0;
    for (size_t i = 0; i < AB_COUNT_OF(keys); i++) {
        if (!reads(schedule, keys[i].name)) continue;
        ab_text_append(list, sizeof list, "%s%s", count ? ", " : "", keys[i].name);
        names[count++] = keys[i].name;
    }
    const char *near = ab_nearest(key, names, count);
    return ab_fail(AB_USAGE, "--schedule %s: expected one of %s, found '%s'%s%s%s", schedule->name, list, key,
                   near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static ab_status set_key(const ab_schedule *schedule, const char *key, const char *value,
                         ab_schedule_config *config) {
    for (size_t i = 0; i < AB_COUNT_OF(keys); i++) {
        if (strcmp(keys[i].name, key) != 0 || !reads(schedule, key)) continue;
        char *end;
        double number = ab_number_read(value, &end);
        bool whole =
            !keys[i].integer || (number >= -1e15 && number <= 1e15 && (double)(int64_t)number == number);
        if (end == value || *end != '\0' || !(number >= keys[i].low) || !(number <= keys[i].high) || !whole)
            return ab_fail(AB_USAGE, "--schedule %s: %s: expected %s from %.9g to %.9g, found '%s'",
                           schedule->name, key, keys[i].integer ? "an integer" : "a number", keys[i].low,
                           keys[i].high, value);
        char *field = (char *)config + keys[i].offset;
        const int64_t integer = keys[i].integer ? (int64_t)number : 0;
        if (keys[i].integer)
            memcpy(field, &integer, sizeof integer);
        else
            memcpy(field, &number, sizeof number);
        return AB_OK;
    }
    return unknown_key(schedule, key);
}

static ab_status set_keys(const ab_schedule *schedule, char *text, ab_schedule_config *config) {
    char *rest = text;
    while (rest) {
        char *key = rest, *comma = strchr(rest, ',');
        if (comma) *comma = '\0';
        rest = comma ? comma + 1 : NULL;
        char *equals = strchr(key, '=');
        if (!equals || equals == key)
            return ab_fail(AB_USAGE, "--schedule %s: expected KEY=VALUE, found '%s'", schedule->name, key);
        *equals = '\0';
        AB_TRY(set_key(schedule, key, equals + 1, config));
    }
    return AB_OK;
}

ab_status ab_schedule_parse(const char *text, const ab_schedule **schedule, ab_schedule_config *config) {
    char copy[512];
    if (strlen(text) >= sizeof copy)
        return ab_fail(AB_USAGE, "--schedule: too long: '%s...'", ab_text_brief(text, 40));
    ab_text_exact(copy, sizeof copy, "%s", text);
    char *colon = strchr(copy, ':');
    if (colon) *colon = '\0';
    AB_TRY(find(copy, schedule));
    *config = (ab_schedule_config){.step_size = 0,
                                   .gamma = 0.1,
                                   .power = 1,
                                   .pct_start = 0.3,
                                   .div_factor = 25,
                                   .final_div_factor = 1e4,
                                   .base_momentum = 0.85,
                                   .max_momentum = 0.95};
    if (colon) AB_TRY(set_keys(*schedule, colon + 1, config));
    if (reads(*schedule, "step_size") && config->step_size == 0)
        return ab_fail(AB_USAGE, "--schedule %s: say how often: %s:step_size=N", (*schedule)->name,
                       (*schedule)->name);
    if (config->warmup == 0 && (config->warmup_start > 0 || config->warmup_shift > 0))
        return ab_fail(AB_USAGE, "--schedule %s: %s needs steps to warm up: %s:warmup=N", (*schedule)->name,
                       config->warmup_shift > 0 ? "warmup_shift" : "warmup_start", (*schedule)->name);
    return AB_OK;
}

ab_status ab_schedule_check(const ab_schedule *schedule, const ab_schedule_config *config) {
    if (reads(schedule, "total") && config->warmup >= config->total)
        return ab_fail(AB_USAGE, "--schedule %s: warmup %lld leaves nothing of the total of %lld steps",
                       schedule->name, (long long)config->warmup, (long long)config->total);
    return AB_OK;
}

/* ---- rates ----------------------------------------------------------------------------------- */

ab_schedule_point ab_schedule_rate(const ab_schedule *schedule, const ab_schedule_config *config,
                                   int64_t advanced) {
    if (advanced < config->warmup) {
        double risen = (double)(advanced + config->warmup_shift) / (double)config->warmup;
        double share = config->warmup_start + (1.0 - config->warmup_start) * risen;
        return (ab_schedule_point){config->lr * share, -1};
    }
    int64_t total = config->total - config->warmup;
    return schedule->at(config, advanced - config->warmup, total > 0 ? total : 1);
}
