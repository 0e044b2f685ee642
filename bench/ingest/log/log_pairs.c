/* Lines of names and numbers that no other format takes: "step 100 | loss 2.31 | scale 65536". */
#include "bench/ingest/log/pairs.h"

#include <string.h>

/* Kinds of signs: digits and letters, both in words; others that are in words but begin none. */
enum { O = 0, W = 1, D = 2 | W, L = 4 | W, DIGIT = 2, LETTER = 4 };

static const unsigned char kind_of[256] = {
    O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, /* controls */
    O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, /* controls */
    O, O, O, O, O, O, O, O, O, O, O, O, O, W, W, W, /*  !"#$%&'()*+,-./ */
    D, D, D, D, D, D, D, D, D, D, O, O, O, O, O, O, /* 0123456789:;<=>? */
    O, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, /* @ABCDEFGHIJKLMNO */
    L, L, L, L, L, L, L, L, L, L, L, O, O, O, O, L, /* PQRSTUVWXYZ[\]^_ */
    O, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, /* `abcdefghijklmno */
    L, L, L, L, L, L, L, L, L, L, L, O, O, O, O, O, /* pqrstuvwxyz{|}~  */
};

static bool is(const char *at, int kind) { return kind_of[(unsigned char)*at] & kind; }

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
    while (at < end && !is(at, LETTER)) at += is(at, DIGIT) && at + 1 < end && is(at + 1, LETTER) ? 2 : 1;
    word w = {at, at};
    while (w.to < end && is(w.to, W)) w.to++;
    return w;
}

int ab_log_pairs(const ab_log *log, const ab_log_line *line, ab_log_point *point) {
    int set = 0;
    word before = {NULL, NULL};
    const char *at = line->text;
    for (word name = next_word(at, line->end); name.from < line->end; name = next_word(at, line->end)) {
        const ab_log_field field = field_of(log, before, name);
        before = name;
        at = name.to;
        if (field == AB_LOG_FIELDS || ab_log_said(point, field)) continue;
        if (!ab_log_take_number(line, skip_joint(at, line->end), field, point, &at)) continue;
        at--; /* the last digit: a letter behind it begins no word */
        set++;
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
    .mark = "",
    .take = take,
};
