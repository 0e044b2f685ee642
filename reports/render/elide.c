/* Short forms of texts. */
#include "reports/render/elide.h"

#include "kernels/core/text.h"
#include "reports/record/text.h"

#include <stdlib.h>
#include <string.h>

enum { TEXT = 96 }; /* bytes of a short form: up to 4 for each column of `most` */

typedef struct form {
    char text[TEXT];
} form;

static int compare(const void *one, const void *other) {
    return strcmp(*(const char *const *)one, *(const char *const *)other);
}
static int compare_forms(const void *one, const void *other) {
    return strcmp(((const form *)one)->text, ((const form *)other)->text);
}

/* Sorts text[0..count) and leaves out repeated ones; how many are left. */
static int unique(const char **text, int count) {
    int left = 0;
    qsort(text, (size_t)count, sizeof *text, compare);
    for (int i = 0; i < count; i++)
        if (left == 0 || strcmp(text[left - 1], text[i]) != 0) text[left++] = text[i];
    return left;
}

/* Whether different texts stay different with so many columns before and after the "..". `room`: [count]. */
static bool are_distinct(const char *const *text, int count, int head, int tail, form *room) {
    char whole[512];
    for (int i = 0; i < count; i++) {
        ab_text_show(whole, sizeof whole, "%s", text[i]);
        ab_text_elide_to(whole, head, tail);
        ab_text_show(room[i].text, TEXT, "%s", whole);
    }
    qsort(room, (size_t)count, sizeof *room, compare_forms);
    for (int i = 1; i < count; i++)
        if (strcmp(room[i - 1].text, room[i].text) == 0) return false;
    return true;
}

/* The columns before the ".." of forms of this width that differ, the most even split first; -1: there are
 * none. */
static int head_for(const char *const *text, int count, int width, form *room) {
    const int kept = width - 2;
    for (int off = 0; off < kept / 2; off++) {
        const int heads[2] = {kept / 2 + off, kept / 2 - off};
        for (int i = 0; i < 2; i++)
            if (are_distinct(text, count, heads[i], kept - heads[i], room)) return heads[i];
    }
    return -1;
}

ab_status ab_elide_distinct(char *const *text, int count, int width, int most) {
    int head = (width - 2) / 2;
    if (count == 0) return AB_OK;
    const char **sorted = malloc((size_t)count * sizeof *sorted);
    form *room = malloc((size_t)count * sizeof *room);
    const bool enough = sorted && room;
    if (enough) {
        for (int i = 0; i < count; i++) sorted[i] = text[i];
        const int different = unique(sorted, count);
        while ((head = head_for(sorted, different, width, room)) < 0 && width < most) width++;
        if (head < 0) head = (width - 2) / 2;
    }
    free(room);
    free(sorted);
    for (int i = 0; enough && i < count; i++) ab_text_elide_to(text[i], head, width - 2 - head);
    return enough ? AB_OK : ab_fail(AB_NO_MEMORY, "out of memory while laying out the table");
}
