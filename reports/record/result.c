/* Reading and writing result documents. check.c validates them. */
#include "reports/record/result.h"

#include "kernels/files/outfile.h"
#include "reports/record/cells.h"
#include "reports/record/journal.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 16 };

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct bytes {
    char *data;
    size_t length, room;
} bytes;

static ab_status grow(bytes *text, const char *path) {
    if (text->room - text->length >= CHUNK) return AB_OK;
    size_t room = 2 * text->room + CHUNK;
    char *data = realloc(text->data, room);
    if (!data) return ab_fail(AB_NO_MEMORY, "%s: out of memory while reading", path);
    text->data = data;
    text->room = room;
    return AB_OK;
}

static ab_status read_all(const char *path, bytes *text) {
    ab_status status = AB_OK;
    FILE *file = fopen(path, "rb");
    if (!file) return ab_fail(AB_INPUT, "%s: cannot open: %s", path, strerror(errno));
    do {
        AB_TRY_GOTO(grow(text, path));
        text->length += fread(text->data + text->length, 1, CHUNK, file);
        if (ferror(file)) {
            status = ab_fail(AB_INPUT, "%s: cannot read: %s", path, strerror(errno));
            goto out;
        }
    } while (!feof(file));
out:
    fclose(file);
    return status;
}

static int line_of(const bytes *text, const char *at) {
    int line = 1;
    for (const char *c = text->data; c && c < at; c++) line += *c == '\n';
    return line;
}

static bool is_blank(const char *at, const char *end) {
    while (at < end && strchr(" \t\r\n", *at) && *at) at++;
    return at == end;
}

static ab_status parse(const char *path, const bytes *text, cJSON **document) {
    const char *end = text->data;
    cJSON *tree = cJSON_ParseWithLengthOpts(text->data, text->length, &end, 0);
    if (tree && is_blank(end, text->data + text->length)) {
        *document = tree;
        return AB_OK;
    }
    const char *what = tree ? "text after the end of the document" : "not JSON, or cut short";
    cJSON_Delete(tree);
    return ab_fail(AB_INPUT, "%s: line %d: %s", path, line_of(text, end), what);
}

ab_status ab_json_load(const char *path, cJSON **document) {
    bytes text = {NULL, 0, 0};
    ab_status status = read_all(path, &text);
    if (status == AB_OK) status = parse(path, &text, document);
    free(text.data);
    return status;
}

/* Reads the document and what its run has recorded since. */
static ab_status load_with_journal(const char *path, cJSON **tree) {
    ab_journal_found found = AB_JOURNAL_OTHER;
    ab_status status = AB_OK;
    for (int i = 0; i < 2 && found == AB_JOURNAL_OTHER && status == AB_OK; i++) {
        cJSON_Delete(*tree); /* a journal of another version: the document may just have been replaced */
        *tree = NULL;
        AB_TRY(ab_json_load(path, tree));
        status = ab_journal_replay(path, *tree, &found);
    }
    if (status == AB_OK) status = ab_result_check(*tree, path);
    if (status != AB_OK || found != AB_JOURNAL_REPLAYED) return status;
    cJSON *determinism = cJSON_GetObjectItemCaseSensitive(*tree, "determinism");
    cJSON_ReplaceItemInObjectCaseSensitive(determinism, "all_cells_deterministic",
                                           ab_cells_deterministic(*tree));
    return ab_result_summarise(*tree);
}

ab_status ab_result_load(const char *path, cJSON **document) {
    cJSON *tree = NULL;
    ab_status status = load_with_journal(path, &tree);
    if (status == AB_OK)
        *document = tree;
    else
        cJSON_Delete(tree);
    return status;
}

/* ---- writing --------------------------------------------------------------------------------- */

ab_status ab_result_write(const cJSON *document, const char *path) {
    ab_outfile out;
    AB_TRY(ab_outfile_open(path, &out));
    ab_json_print(document, out.stream);
    return ab_outfile_close(&out, AB_OK);
}
