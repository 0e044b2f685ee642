/* Networks: where their text comes from (compiled in or a file) and their life. Parsing is net_parse.c's. */
#define _POSIX_C_SOURCE 200809L /* strerror of errno set by fopen */
#include "bench/nets/net_build.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The bytes of nets/<name>.json and a NUL, from sources that cmake/EmbedNets.cmake generates. */
#define AB_NET(name)                                                                                         \
    extern const unsigned char ab_net_json_##name[];                                                         \
    extern const size_t ab_net_json_##name##_length;
#include "bench/nets/nets.def"
#undef AB_NET

static const struct {
    const char *name;
    const unsigned char *text;
    const size_t *length;
} builtin[] = {
#define AB_NET(name) {#name, ab_net_json_##name, &ab_net_json_##name##_length},
#include "bench/nets/nets.def"
#undef AB_NET
};

int ab_net_builtin_count(void) { return (int)AB_COUNT_OF(builtin); }
const char *ab_net_builtin_name(int i) { return builtin[i].name; }
const char *ab_net_builtin_text(int i) { return (const char *)builtin[i].text; }

static ab_status unknown_net(const char *name) {
    const char *names[AB_COUNT_OF(builtin)];
    char quoted[AB_NET_JSON_TEXT], hint[AB_NET_JSON_TEXT];
    for (size_t i = 0; i < AB_COUNT_OF(builtin); i++) names[i] = builtin[i].name;
    return ab_fail(AB_CONFIG, "unknown network %s: expected a built-in name or a file%s",
                   ab_net_json_quote(name, quoted),
                   ab_net_json_hint(name, names, (int)AB_COUNT_OF(names), hint));
}

/* Whether somebody who typed this meant a file. */
static bool looks_like_path(const char *name) { return strchr(name, '/') || strstr(name, ".json"); }

static ab_status read_stream(FILE *file, const char *path, char *buffer, size_t *length) {
    *length = fread(buffer, 1, AB_NET_JSON_BYTES + 1, file);
    if (ferror(file)) return ab_fail(AB_CONFIG, "%s: cannot read the network: %s", path, strerror(errno));
    return AB_OK;
}

static ab_status load_file(const char *path, ab_net **net) {
    size_t length = 0;
    ab_status status = AB_OK;
    char *buffer = NULL;
    FILE *file = fopen(path, "rb");
    if (!file && errno == ENOENT && !looks_like_path(path)) return unknown_net(path);
    if (!file) return ab_fail(AB_CONFIG, "%s: cannot open the network: %s", path, strerror(errno));
    buffer = malloc(AB_NET_JSON_BYTES + 1);
    if (!buffer) {
        status = ab_fail(AB_NO_MEMORY, "%s: cannot allocate memory for the file", path);
        goto out;
    }
    AB_TRY_GOTO(read_stream(file, path, buffer, &length));
    AB_TRY_GOTO(ab_net_parse(buffer, length, path, net));
out:
    free(buffer);
    fclose(file);
    return status;
}

ab_status ab_net_load(const char *name_or_path, ab_net **net) {
    *net = NULL;
    for (size_t i = 0; i < AB_COUNT_OF(builtin); i++)
        if (strcmp(name_or_path, builtin[i].name) == 0)
            return ab_net_parse(ab_net_builtin_text((int)i), *builtin[i].length, name_or_path, net);
    return load_file(name_or_path, net);
}

void ab_net_free(ab_net *net) {
    if (!net) return;
    for (int i = 0; i < net->ops; i++) {
        ab_net_free_attrs(&net->op[i]);
        free(net->op[i].name);
    }
    free(net->op);
    free(net->name);
    free(net->text);
    free(net->path);
    free(net);
}

int64_t ab_net_parameters(const ab_net *net) {
    int64_t count = 0;
    for (int i = 0; i < net->ops; i++)
        for (int k = 0; k < net->op[i].params; k++)
            if (net->op[i].param[k].kind == AB_PARAM_WEIGHT && net->op[i].shared[k].op < 0)
                count += ab_shape_count(&net->op[i].param[k].shape);
    return count;
}
