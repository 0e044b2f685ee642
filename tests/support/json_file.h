/* Files of the tests, read without any check. */
#ifndef AB_TESTS_SUPPORT_JSON_FILE_H
#define AB_TESTS_SUPPORT_JSON_FILE_H

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* All bytes and a NUL; NULL if the file cannot be read. The caller frees. */
static inline char *ab_test_read(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    fseek(file, 0, SEEK_END);
    long length = ftell(file);
    rewind(file);
    char *text = length < 0 ? NULL : (char *)calloc(1, (size_t)length + 1);
    if (text && fread(text, 1, (size_t)length, file) != (size_t)length) {
        free(text);
        text = NULL;
    }
    fclose(file);
    return text;
}

/* The caller deletes; NULL if there is no such file or it is not JSON. */
static inline cJSON *ab_test_read_json(const char *path) {
    char *text = ab_test_read(path);
    cJSON *tree = text ? cJSON_Parse(text) : NULL;
    free(text);
    return tree;
}

/* The line of a file of JSON lines that begins with {"file": "NAME", parsed; NULL if there is none. The
 * caller deletes. */
static inline cJSON *ab_test_read_json_line(const char *path, const char *name) {
    static const char key[] = "{\"file\": \"";
    const size_t length = strlen(name);
    char *text = ab_test_read(path);
    cJSON *tree = NULL;
    for (char *line = text ? strtok(text, "\n") : NULL; line && !tree; line = strtok(NULL, "\n")) {
        const char *at = line + sizeof key - 1;
        if (strncmp(line, key, sizeof key - 1) == 0 && strncmp(at, name, length) == 0 &&
            strncmp(at + length, "\",", 2) == 0)
            tree = cJSON_Parse(line);
    }
    free(text);
    return tree;
}

#endif
