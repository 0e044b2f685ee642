/* Name map: parsing and matching. */
#include "bench/train/init/init_map.h"

#include "kernels/core/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 200, LINE = 600 };

typedef struct map_line {
    char here[NAME], there[NAME]; /* here "-": ignored */
    int axes, axis[AB_MAX_DIMS];  /* 0: not permuted */
    int number;
    bool used;
} map_line;

struct ab_init_map {
    char path[256];
    int count;
    map_line *line;
};

/* ---- patterns -------------------------------------------------------------------------------- */

/* Whether `name` matches `pattern`; *star and *length: the text matched by the *. */
static bool fits(const char *pattern, const char *name, const char **star, size_t *length) {
    const char *mark = strchr(pattern, '*');
    size_t whole = strlen(name);
    *star = name;
    *length = 0;
    if (!mark) return strcmp(pattern, name) == 0;
    size_t before = (size_t)(mark - pattern), after = strlen(mark + 1);
    if (whole < before + after || strncmp(pattern, name, before) != 0) return false;
    if (strcmp(mark + 1, name + whole - after) != 0) return false;
    *star = name + before;
    *length = whole - before - after;
    return true;
}

static ab_status put(const char *pattern, const char *star, size_t length, char *text, size_t size) {
    const char *mark = strchr(pattern, '*');
    bool fits_there;
    if (mark)
        fits_there = ab_text_fits(text, size, "%.*s%.*s%s", (int)(mark - pattern), pattern, (int)length, star,
                                  mark + 1);
    else
        fits_there = ab_text_fits(text, size, "%s", pattern);
    if (fits_there) return AB_OK;
    return ab_fail(AB_INPUT, "--init-map: '%s' becomes a name of more than %zu characters", pattern,
                   size - 1);
}

/* ---- reading --------------------------------------------------------------------------------- */

static ab_status bad(const ab_init_map *map, int number, const char *expected, const char *found) {
    return ab_fail(AB_INPUT, "--init-map %s:%d: expected %s, found '%s'", map->path, number, expected,
                   ab_text_brief(found, 60));
}

/* "2,3,1,0": each of 0 to n - 1 once. */
static ab_status parse_axes(const ab_init_map *map, map_line *line, const char *text) {
    unsigned seen = 0;
    for (const char *rest = text;; rest++) {
        char *end;
        long axis = strtol(rest, &end, 10);
        if (end == rest || axis < 0 || axis >= AB_MAX_DIMS || line->axes == AB_MAX_DIMS || seen >> axis & 1u)
            return bad(map, line->number, "permute= and axes from 0, each once", text);
        seen |= 1u << axis;
        line->axis[line->axes++] = (int)axis;
        rest = end;
        if (*rest == '\0') break;
        if (*rest != ',') return bad(map, line->number, "axes separated by commas", text);
    }
    if (seen != (1u << line->axes) - 1) return bad(map, line->number, "axes from 0 without a gap", text);
    return AB_OK;
}

static ab_status parse_order(const ab_init_map *map, map_line *line, const char *word) {
    if (strcmp(word, "transpose") == 0) return parse_axes(map, line, "1,0");
    if (strncmp(word, "permute=", 8) == 0) return parse_axes(map, line, word + 8);
    return bad(map, line->number, "transpose or permute=AXES", word);
}

static ab_status check_stars(const ab_init_map *map, const map_line *line) {
    const char *here = strchr(line->here, '*'), *there = strchr(line->there, '*');
    bool twice = (here && strchr(here + 1, '*')) || (there && strchr(there + 1, '*'));
    if (twice) return bad(map, line->number, "one * in a name", twice && here ? line->here : line->there);
    if (strcmp(line->here, "-") != 0 && (here != NULL) != (there != NULL))
        return bad(map, line->number, "a * in both names or in none", line->there);
    return AB_OK;
}

static ab_status parse_line(ab_init_map *map, char *text, int number) {
    char *word[4] = {NULL}, *save = text;
    int words = 0;
    text[strcspn(text, "#\r\n")] = '\0';
    while (words < 4 && *(save += strspn(save, " \t")) != '\0') {
        word[words++] = save;
        save += strcspn(save, " \t");
        if (*save) *save++ = '\0';
    }
    if (words == 0) return AB_OK;
    if (words == 1 || words > 3)
        return bad(map, number, "HERE THERE [transpose | permute=AXES]", word[words - 1]);
    if (strlen(word[0]) >= NAME || strlen(word[1]) >= NAME) return bad(map, number, "shorter names", word[0]);
    map_line *lines = realloc(map->line, (size_t)(map->count + 1) * sizeof *lines);
    if (!lines) return ab_fail(AB_NO_MEMORY, "--init-map: out of memory");
    map->line = lines;
    map_line *line = &lines[map->count++];
    *line = (map_line){.number = number};
    ab_text_exact(line->here, NAME, "%s", word[0]);
    ab_text_exact(line->there, NAME, "%s", word[1]);
    if (words == 3) AB_TRY(parse_order(map, line, word[2]));
    return check_stars(map, line);
}

static ab_status read_lines(ab_init_map *map, FILE *file) {
    char text[LINE];
    for (int number = 1; fgets(text, sizeof text, file); number++) {
        if (strlen(text) == LINE - 1) return bad(map, number, "shorter lines", text);
        AB_TRY(parse_line(map, text, number));
    }
    if (ferror(file)) return ab_fail(AB_INPUT, "--init-map %s: cannot be read", map->path);
    return AB_OK;
}

ab_status ab_init_map_load(const char *path, ab_init_map **result) {
    ab_init_map *map = calloc(1, sizeof *map);
    *result = map;
    if (!map) return ab_fail(AB_NO_MEMORY, "--init-map: out of memory");
    if (!path) return AB_OK;
    ab_text_show(map->path, sizeof map->path, "%s", path);
    FILE *file = fopen(path, "r");
    ab_status status =
        file ? read_lines(map, file) : ab_fail(AB_INPUT, "--init-map %s: cannot be opened", path);
    if (file) fclose(file);
    if (status == AB_OK) return AB_OK;
    ab_init_map_free(map);
    *result = NULL;
    return status;
}

void ab_init_map_free(ab_init_map *map) {
    if (!map) return;
    free(map->line);
    free(map);
}

/* ---- queries --------------------------------------------------------------------------------- */

ab_status ab_init_map_find(ab_init_map *map, const char *here, int ndim, char *there, size_t size,
                           const int **axis) {
    *axis = NULL;
    ab_text_exact(there, size, "%s", here);
    for (int i = 0; i < map->count; i++) {
        map_line *line = &map->line[i];
        const char *star;
        size_t length;
        if (strcmp(line->here, "-") == 0 || !fits(line->here, here, &star, &length)) continue;
        AB_TRY(put(line->there, star, length, there, size));
        line->used = true;
        if (line->axes == 0) return AB_OK;
        *axis = line->axis;
        if (line->axes == ndim) return AB_OK;
        return ab_fail(AB_INPUT, "--init-map %s:%d: %d axes are reordered, '%s' has %d", map->path,
                       line->number, line->axes, here, ndim);
    }
    return AB_OK;
}

bool ab_init_map_ignores(ab_init_map *map, const char *there) {
    const char *star;
    size_t length;
    if (fits("*.num_batches_tracked", there, &star, &length)) return true;
    for (int i = 0; i < map->count; i++) {
        if (strcmp(map->line[i].here, "-") != 0 || !fits(map->line[i].there, there, &star, &length)) continue;
        return map->line[i].used = true;
    }
    return false;
}

ab_status ab_init_map_check_used(const ab_init_map *map) {
    for (int i = 0; i < map->count; i++)
        if (!map->line[i].used)
            return ab_fail(AB_INPUT, "--init-map %s:%d: nothing is called '%s'", map->path,
                           map->line[i].number,
                           strcmp(map->line[i].here, "-") == 0 ? map->line[i].there : map->line[i].here);
    return AB_OK;
}
