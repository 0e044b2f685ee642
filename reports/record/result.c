/* Reading and writing result documents. check.c validates them. */
#define _XOPEN_SOURCE 700 /* realpath, fdopen, fsync */
#include "reports/record/result.h"

#include "reports/record/json.h"
#include "reports/record/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

ab_status ab_result_load(const char *path, cJSON **document) {
    cJSON *tree = NULL;
    AB_TRY(ab_json_load(path, &tree));
    ab_status status = ab_result_check(tree, path);
    if (status == AB_OK)
        *document = tree;
    else
        cJSON_Delete(tree);
    return status;
}

/* ---- writing --------------------------------------------------------------------------------- */

static ab_status write_failed(const char *path) {
    return ab_fail(AB_OUTPUT, "%s: cannot write: %s", path, strerror(errno));
}

/* For targets that a rename cannot replace: standard output, pipes, devices. */
static ab_status write_stream(const cJSON *document, const char *path, FILE *out) {
    ab_json_print(document, out);
    return fflush(out) == 0 && !ferror(out) ? AB_OK : write_failed(path);
}

static ab_status write_in_place(const cJSON *document, const char *path) {
    FILE *out = fopen(path, "wb");
    if (!out) return write_failed(path);
    ab_status status = write_stream(document, path, out);
    if (fclose(out) != 0 && status == AB_OK) status = write_failed(path);
    return status;
}

/* Fixed name, so that killed processes leave at most one stale file; O_EXCL after unlink, so that a
 * planted symlink is not followed. */
static ab_status write_temporary(const cJSON *document, const char *temporary) {
    FILE *out = NULL;
    ab_status status = AB_OK;
    unlink(temporary);
    int file = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file < 0) return write_failed(temporary);
    out = fdopen(file, "wb");
    if (!out) {
        status = write_failed(temporary);
        close(file);
        goto out;
    }
    status = write_stream(document, temporary, out);
    if (status == AB_OK && fsync(file) != 0) status = write_failed(temporary);
    if (fclose(out) != 0 && status == AB_OK) status = write_failed(temporary);
out:
    if (status != AB_OK) unlink(temporary);
    return status;
}

/* Makes a rename in the folder of `path` durable. Some file systems do not support this; that is not an
 * error. */
static void sync_folder(char *path) {
    char *slash = strrchr(path, '/');
    if (slash) slash[slash == path] = '\0';
    int folder = open(slash ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return;
    fsync(folder);
    close(folder);
}

static ab_status replace(const cJSON *document, char *target) {
    size_t length = strlen(target);
    char *temporary = malloc(length + sizeof ".tmp");
    if (!temporary) return ab_fail(AB_NO_MEMORY, "%s: out of memory while writing", target);
    memcpy(temporary, target, length);
    memcpy(temporary + length, ".tmp", sizeof ".tmp");
    ab_status status = write_temporary(document, temporary);
    if (status == AB_OK && rename(temporary, target) != 0) {
        status = write_failed(target);
        unlink(temporary);
    }
    if (status == AB_OK) sync_folder(target);
    free(temporary);
    return status;
}

ab_status ab_result_write(const cJSON *document, const char *path) {
    struct stat info;
    if (strcmp(path, "-") == 0) return write_stream(document, "standard output", stdout);
    bool exists = stat(path, &info) == 0;
    if (exists && !S_ISREG(info.st_mode)) return write_in_place(document, path);
    char *target =
        exists ? realpath(path, NULL) : strdup(path); /* replaces the link's target, not the link */
    if (!target) return write_failed(path);
    ab_status status = replace(document, target);
    free(target);
    return status;
}
