/* The queue of cells, the lines of parts, their words. */
#include "bench/sweep/parts.h"

#include "bench/run/record.h"
#include "kernels/core/log.h"
#include "kernels/core/text.h"
#include "reports/record/json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static ab_status no_memory(void) { return ab_fail(AB_NO_MEMORY, "--launch: out of memory"); }

/* ---- queue ----------------------------------------------------------------------------------- */

ab_status ab_parts_create(const ab_run_work *work, ab_parts *parts) {
    const int n = work->cells;
    *parts = (ab_parts){.work = work, .room = n};
    parts->queue = calloc((size_t)n + 1, sizeof *parts->queue);
    parts->attempts = calloc((size_t)n + 1, 1);
    if (!parts->queue || !parts->attempts) return no_memory();
    for (int i = 0; i < n; i++)
        if (!ab_run_is_done(work, i)) parts->queue[parts->tail++] = i;
    return AB_OK;
}

void ab_parts_clear(ab_parts *parts) {
    free(parts->queue);
    free(parts->attempts);
    *parts = (ab_parts){.work = NULL};
}

int ab_parts_left(const ab_parts *parts) { return parts->tail - parts->head; }

static int compare_ints(const void *a, const void *b) {
    const int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

ab_status ab_parts_take(ab_parts *parts, int most, const char *who, ab_part *part) {
    const int left = ab_parts_left(parts), count = most < left ? most : left;
    *part = (ab_part){.count = count, .machine = -1, .who = who};
    part->cell = calloc((size_t)count + 1, sizeof *part->cell);
    if (!part->cell) return no_memory();
    memcpy(part->cell, parts->queue + parts->head, (size_t)count * sizeof *part->cell);
    parts->head += count;
    for (int i = 0; i < count; i++) parts->attempts[part->cell[i]]++;
    qsort(part->cell, (size_t)count, sizeof *part->cell, compare_ints);
    return AB_OK;
}

ab_status ab_parts_take_share(ab_parts *parts, int takers, const char *who, ab_part *part) {
    enum { PART_MOST = 64 };
    const int share = ab_parts_left(parts) / (2 * takers);
    return ab_parts_take(parts, share < 1 ? 1 : share > PART_MOST ? PART_MOST : share, who, part);
}

/* Each cell is in the queue at most once: the room is enough when what was taken is dropped. */
static void put_back(ab_parts *parts, int cell) {
    if (parts->tail == parts->room) {
        memmove(parts->queue, parts->queue + parts->head,
                (size_t)ab_parts_left(parts) * sizeof *parts->queue);
        parts->tail -= parts->head;
        parts->head = 0;
    }
    parts->queue[parts->tail++] = cell;
}

static ab_status end_cell(ab_parts *parts, int cell, const char *who, const char *reason, int *left) {
    if (ab_run_is_done(parts->work, cell)) return AB_OK;
    ++*left;
    if (parts->attempts[cell] < AB_PART_ATTEMPTS) {
        put_back(parts, cell);
        return AB_OK;
    }
    char text[AB_PART_REASON];
    ab_text_show(text, sizeof text, "lost with its machine %d times, the last time %s: %s", AB_PART_ATTEMPTS,
                 who, ab_text_brief(reason, 300));
    return ab_run_give_up(parts->work, cell, text);
}

/* A machine that said nothing cannot be reached, or is not what it should be. */
static void note_loss(ab_parts *parts, const ab_part *part, const char *reason, int *losses) {
    char text[AB_PART_REASON + 100];
    if (losses) *losses = part->machine >= 0 ? *losses + 1 : AB_LOSSES_MOST;
    ab_text_show(parts->loss, sizeof parts->loss, "%s: %s", part->who, ab_text_brief(reason, 400));
    ab_text_show(text, sizeof text, "--launch: %s; its cells are run again%s", parts->loss,
                 losses && *losses >= AB_LOSSES_MOST ? ", elsewhere" : "");
    ab_warn("%s", text);
    ab_record_warn(parts->work->document, text);
}

ab_status ab_parts_end(ab_parts *parts, ab_part *part, const char *reason, int *losses) {
    const char *why = part->reason[0] ? part->reason
                      : reason[0]     ? reason
                                      : "ended before its cells were done";
    ab_status status = AB_OK;
    int left = 0;
    for (int i = 0; i < part->count && status == AB_OK; i++)
        status = end_cell(parts, part->cell[i], part->who, why, &left);
    if (left > 0) note_loss(parts, part, why, losses);
    ab_part_clear(part);
    return status;
}

void ab_part_clear(ab_part *part) {
    free(part->cell);
    *part = (ab_part){.machine = -1};
}

char *ab_part_text(const ab_part *part) {
    enum { NUMBERS = 26 };
    const size_t size = (size_t)part->count * NUMBERS + 1;
    char *text = calloc(size, 1);
    for (int i = 0, next; text && i < part->count; i = next) {
        for (next = i + 1; next < part->count && part->cell[next] == part->cell[next - 1] + 1;) next++;
        ab_text_append(text, size, next > i + 1 ? "%s%d-%d" : "%s%d", i ? "," : "", part->cell[i],
                       part->cell[next - 1]);
    }
    return text;
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* A member of a part's line; NULL if it is missing. */
static const cJSON *member(const cJSON *line, const char *key) {
    return cJSON_GetObjectItemCaseSensitive(line, key);
}

static ab_status take_record(ab_parts *parts, ab_part *part, cJSON *line) {
    int cell;
    const char *error = cJSON_GetStringValue(member(line, "error")),
               *node = cJSON_GetStringValue(member(line, "name"));
    const cJSON *of = member(line, "cell");
    if (strcmp(ab_json_text(line, "schema", ""), "ampbench-part") == 0)
        return ab_run_take_machine(parts->work, node ? node : part->who, line, &part->machine);
    if (error) ab_text_show(part->reason, sizeof part->reason, "%s", error);
    if (error || part->machine < 0 || !cJSON_IsNumber(of)) return AB_OK;
    const double number = of->valuedouble;
    if (number >= 0 && number < parts->work->cells && ab_run_is_done(parts->work, (int)number)) return AB_OK;
    return ab_run_take_line(parts->work, line, part->machine, &cell);
}

/* A line that does not hold is the part's failure, not the run's. */
ab_status ab_parts_line(ab_parts *parts, ab_part *part, char *line, size_t n) {
    cJSON *record = n > 0 && line[0] == '{' ? cJSON_ParseWithLength(line, n) : NULL;
    if (!record || part->reason[0]) {
        cJSON_Delete(record);
        return AB_OK;
    }
    ab_status status = take_record(parts, part, record);
    cJSON_Delete(record);
    if (status != AB_INPUT) return status;
    ab_text_show(part->reason, sizeof part->reason, "%s", ab_error_message());
    return AB_OK;
}

/* ---- words ----------------------------------------------------------------------------------- */

static const char *const watch_words[] = {"-", "watch"};

static bool fill_fixed(const ab_parts *parts, const ab_part *part, const char *program, int sharing,
                       bool watch, char **words) {
    const ab_run_work *work = parts->work;
    words[0] = ab_text_new("%s", program);
    words[1] = ab_text_new("part");
    words[2] = ab_part_text(part);
    words[3] = ab_text_new("%s", work->identity);
    words[4] = ab_text_new("%" PRId64, work->config->probe_every);
    words[5] = ab_text_new("%d", sharing);
    words[6] = ab_text_new("%s", ab_json_text(work->document, "run.id", ""));
    words[7] = ab_text_new("%s", watch_words[watch]);
    for (int i = 0; i <= AB_PART_ARGS; i++)
        if (!words[i]) return false;
    return true;
}

/* Options of the session that the machine needs too; they follow those of the configuration. */
static int add_session(const ab_options *options, char **words) {
    static char timeout[] = "--cell-timeout", check[] = "--no-memory-check";
    int n = 0;
    if (options->given[AB_OPTION_cell_timeout]) {
        words[n++] = timeout;
        words[n++] = (char *)(uintptr_t)options->text[AB_OPTION_cell_timeout];
    }
    if (options->given[AB_OPTION_no_memory_check]) words[n++] = check;
    return n;
}

char **ab_part_words(const ab_parts *parts, const ab_part *part, const char *program, int sharing,
                     bool watch) {
    enum { SESSION_WORDS = 3 };
    int n = 0;
    while (parts->work->words[n]) n++;
    char **words = calloc((size_t)n + AB_PART_ARGS + 1 + SESSION_WORDS + 1, sizeof *words);
    if (!words) return NULL;
    if (!fill_fixed(parts, part, program, sharing, watch, words)) {
        ab_part_words_free(words);
        return NULL;
    }
    memcpy(words + AB_PART_ARGS + 1, parts->work->words, (size_t)n * sizeof *words);
    add_session(parts->work->options, words + AB_PART_ARGS + 1 + n);
    return words;
}

void ab_part_words_free(char **words) {
    for (int i = 0; words && i <= AB_PART_ARGS; i++) free(words[i]);
    free(words);
}

static char *quote(char *to, const char *word) {
    static const char escape[] = {'\'', '\\', '\''}; /* ends the quotes; the last of them begins others */
    *to++ = '\'';
    for (; *word; word++) {
        if (*word == '\'') {
            memcpy(to, escape, sizeof escape);
            to += sizeof escape;
        }
        *to++ = *word;
    }
    *to++ = '\'';
    return to;
}

char *ab_shell_line(char *const *words) {
    size_t size = 1;
    for (int i = 0; words[i]; i++) size += 4 * strlen(words[i]) + 3;
    char *line = malloc(size), *to = line;
    for (int i = 0; line && words[i]; i++) {
        if (i > 0) *to++ = ' ';
        to = quote(to, words[i]);
    }
    if (line) *to = '\0';
    return line;
}
