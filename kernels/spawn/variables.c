/* Copies the pointers of `environ`. */
#define _GNU_SOURCE
#include "kernels/spawn/variables.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

static size_t count(char *const *list) {
    size_t n = 0;
    while (list[n]) n++;
    return n;
}

static bool is_replaced(const char *variable, char *const *added) {
    const size_t name = strcspn(variable, "=");
    for (; *added; added++)
        if (strncmp(variable, *added, name) == 0 && (*added)[name] == '=') return true;
    return false;
}

char **ab_variables_new(const char *dropped, char *const *added) {
    char **copy = calloc(count(environ) + count(added) + 1, sizeof *copy);
    size_t kept = 0;
    for (size_t i = 0; copy && environ[i]; i++) {
        if (dropped && strncmp(environ[i], dropped, strlen(dropped)) == 0) continue;
        if (!is_replaced(environ[i], added)) copy[kept++] = environ[i];
    }
    if (copy) memcpy(copy + kept, added, count(added) * sizeof *copy);
    return copy;
}
