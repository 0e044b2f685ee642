/* Files of the tests, read without any check. */
#ifndef AB_TESTS_SUPPORT_JSON_FILE_H
#define AB_TESTS_SUPPORT_JSON_FILE_H

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>

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

#endif
