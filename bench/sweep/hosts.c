/* Parses files of hosts. */
#define _POSIX_C_SOURCE 200809L
#include "bench/sweep/hosts.h"

#include "kernels/core/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ab_status no_memory(void) { return ab_fail(AB_NO_MEMORY, "--launch: out of memory"); }

static ab_status take_slots(const char *value, int *slots) {
    char *end;
    errno = 0;
    const long number = strtol(value, &end, 10);
    if (end == value || *end || errno || number < 1 || number > AB_HOST_SLOTS_MOST)
        return ab_fail(AB_INPUT, "slots: expected an integer from 1 to %d, found '%s'", AB_HOST_SLOTS_MOST,
                       value);
    *slots = (int)number;
    return AB_OK;
}

static ab_status take_path(const char *key, const char *value, char **path) {
    free(*path);
    if (!value[0]) return ab_fail(AB_INPUT, "%s: expected a path, found nothing", key);
    *path = strdup(value);
    return *path ? AB_OK : no_memory();
}

static ab_status take_word(char *word, ab_host *host) {
    static const char *const keys[] = {"slots", "dir", "ampbench"};
    char *equals = strchr(word, '=');
    if (!equals)
        return ab_fail(AB_INPUT, "expected HOST [slots=N] [dir=PATH] [ampbench=PATH], found '%s'", word);
    *equals = '\0';
    if (strcmp(word, keys[0]) == 0) return take_slots(equals + 1, &host->slots);
    if (strcmp(word, keys[1]) == 0) return take_path(word, equals + 1, &host->folder);
    if (strcmp(word, keys[2]) == 0) return take_path(word, equals + 1, &host->program);
    const char *near = ab_nearest(word, keys, AB_COUNT_OF(keys));
    return ab_fail(AB_INPUT, "expected slots, dir or ampbench, found '%s'%s%s%s", word,
                   near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static ab_status add_host(ab_hosts *hosts, const char *name, ab_host **host) {
    if (name[0] == '-') return ab_fail(AB_INPUT, "expected a host, found '%s'", name);
    if (hosts->count == AB_HOSTS_MOST) return ab_fail(AB_INPUT, "more than %d hosts", AB_HOSTS_MOST);
    ab_host *list = realloc(hosts->host, (size_t)(hosts->count + 1) * sizeof *list);
    if (!list) return no_memory();
    hosts->host = list;
    *host = &list[hosts->count++];
    **host = (ab_host){.name = strdup(name), .slots = 1};
    return (*host)->name ? AB_OK : no_memory();
}

static ab_status take_line(ab_hosts *hosts, char *line) {
    static const char blank[] = " \t\r\n";
    char *rest = NULL, *word;
    ab_host *host = NULL;
    line[strcspn(line, "#")] = '\0';
    if (!(word = strtok_r(line, blank, &rest))) return AB_OK;
    AB_TRY(add_host(hosts, word, &host));
    while ((word = strtok_r(NULL, blank, &rest))) AB_TRY(take_word(word, host));
    return AB_OK;
}

ab_status ab_hosts_read(const char *path, ab_hosts *hosts) {
    char *line = NULL;
    size_t room = 0;
    int number = 0;
    ab_status status = AB_OK;
    *hosts = (ab_hosts){NULL, 0};
    FILE *in = fopen(path, "r");
    if (!in) return ab_fail(AB_INPUT, "--launch ssh: %s: %s", path, strerror(errno));
    while (status == AB_OK && getline(&line, &room, in) >= 0) {
        number++;
        status = take_line(hosts, line);
    }
    if (status == AB_OK && ferror(in)) status = ab_fail(AB_INPUT, "%s", strerror(errno));
    free(line);
    fclose(in);
    if (status != AB_OK) return ab_fail_prefix(status, "--launch ssh: %s:%d", path, number);
    return hosts->count > 0 ? AB_OK : ab_fail(AB_INPUT, "--launch ssh: %s names no host", path);
}

void ab_hosts_clear(ab_hosts *hosts) {
    for (int i = 0; i < hosts->count; i++) {
        free(hosts->host[i].name);
        free(hosts->host[i].folder);
        free(hosts->host[i].program);
    }
    free(hosts->host);
    *hosts = (ab_hosts){NULL, 0};
}
