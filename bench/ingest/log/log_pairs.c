/* Lines of names and numbers that no other format takes: "step 100 | loss 2.31 | scale 65536". */
#include "bench/ingest/log/pairs.h"

#include <string.h>

static bool digit(char c) { return c >= '0' && c <= '9'; }

static bool letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

static bool in_word(char c) { return letter(c) || (c >= '-' && c <= '9'); /* - . / and digits */ }

typedef struct word {
    const char *from, *to;
} word;

static bool is_one_of(word w, const char *const *list, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const size_t size = strlen(list[i]);
        if ((size_t)(w.to - w.from) == size && memcmp(w.from, list[i], size) == 0) return true;
    }
    return false;
}

static bool of_no_training(word w) {
    static const char *const names[] = {"val", "valid", "validation", "eval", "test",
                                        "dev", "Val",   "Test",       "Eval"};
    return w.from && is_one_of(w, names, AB_COUNT_OF(names));
}

/* Behind a name: blanks, at most one of : = and blanks. */
static const char *skip_joint(const char *at, const char *end) {
    while (at < end && (*at == ' ' || *at == '\t')) at++;
    if (at < end && (*at == ':' || *at == '=')) at++;
    return at;
}

static ab_log_field field_of(const ab_log *log, word before, word name) {
    const bool joined = before.from && name.from - before.to == 1 && *before.to == ' ';
    if (of_no_training(before)) return AB_LOG_FIELDS;
    if (joined) {
        const ab_log_field field = ab_log_field_of(log, before.from, (size_t)(name.to - before.from));
        if (field < AB_LOG_FIELDS) return field;
    }
    return ab_log_field_of(log, name.from, (size_t)(name.to - name.from));
}

static word next_word(const char *at, const char *end) {
    while (at < end && !letter(*at)) at += at + 1 < end && digit(*at) && letter(at[1]) ? 2 : 1;
    word w = {at, at};
    while (w.to < end && in_word(*w.to)) w.to++;
    return w;
}

int ab_log_pairs(const ab_log *log, const ab_log_line *line, ab_log_point *point) {
    int set = 0;
    word before = {NULL, NULL};
    for (word name = next_word(line->text, line->end); name.from < line->end;
         name = next_word(name.to, line->end)) {
        const ab_log_field field = field_of(log, before, name);
        before = name;
        if (field == AB_LOG_FIELDS || point->has >> field & 1u) continue;
        set += ab_log_set_number(line, skip_joint(name.to, line->end), field, point);
    }
    return set;
}

static bool take(const ab_log *log, const ab_log_line *line, ab_log_point *point) {
    const unsigned wanted = 1u << AB_LOG_loss | 1u << AB_LOG_scale | 1u << AB_LOG_overflow;
    return ab_log_pairs(log, line, point) >= 2 && point->has & wanted;
}

const ab_log_format ab_log_format_pairs = {
    .name = "pairs",
    .example = "step 100 | loss 2.31 | lr 1e-4 | scale 65536",
    .origin = "programs that print names and numbers",
    .mark = "s",
    .take = take,
};
