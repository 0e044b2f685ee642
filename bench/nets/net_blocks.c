/* Blocks of a network, and which of them are recomputed for the backward pass (Chen et al. 2016, "Training
 * deep nets with sublinear memory cost"). A block is a run of ops whose names agree up to the last part, the
 * final one excluded, that ends in a digit: "h0" has h0.norm1 and h0.mlp.fc1, "stage1.0" has
 * stage1.0.conv1. */
#define _POSIX_C_SOURCE 200809L
#include "bench/nets/net_build.h"

#include <fnmatch.h>
#include <string.h>

enum { BLOCK_NAME = 65, MOST_NAMES = 4096 };

/* "h0" of "h0.mlp.fc1"; "" if the op is in no block. */
static const char *block_of(const char *op, char name[BLOCK_NAME]) {
    size_t end = 0;
    for (const char *dot = strchr(op, '.'); dot; dot = strchr(dot + 1, '.'))
        if (dot > op && dot[-1] >= '0' && dot[-1] <= '9') end = (size_t)(dot - op);
    memcpy(name, op, end < BLOCK_NAME ? end : 0);
    name[end < BLOCK_NAME ? end : 0] = '\0';
    return name;
}

void ab_net_find_blocks(ab_net *net) {
    char name[BLOCK_NAME], before[BLOCK_NAME] = "";
    int blocks = -1;
    for (int i = 0; i < net->ops; i++) {
        block_of(net->op[i].name, name);
        if (name[0] && strcmp(name, before) != 0) blocks++;
        net->op[i].block = name[0] ? blocks : -1;
        memcpy(before, name, sizeof before);
    }
}

/* Marks the blocks that match a pattern; returns the number of their ops. */
static int mark(ab_net *net, const char *pattern) {
    char name[BLOCK_NAME];
    int marked = 0;
    for (int i = 0; i < net->ops; i++) {
        if (net->op[i].block < 0 || fnmatch(pattern, block_of(net->op[i].name, name), 0) != 0) continue;
        net->op[i].recompute = true;
        marked++;
    }
    return marked;
}

static ab_status no_such_block(const ab_net *net, const char *pattern) {
    static char names[MOST_NAMES][BLOCK_NAME];
    const char *list[MOST_NAMES];
    char quoted[AB_NET_JSON_TEXT], hint[AB_NET_JSON_TEXT];
    int count = 0;
    for (int i = 0; i < net->ops; i++) {
        if (net->op[i].block < count || count == MOST_NAMES) continue;
        list[count] = block_of(net->op[i].name, names[count]);
        count++;
    }
    if (count == 0)
        return ab_fail(AB_CONFIG, "recompute: network %s has no blocks (names such as block0.conv)",
                       net->name);
    return ab_fail(AB_CONFIG, "recompute: no block of network %s is called %s; there are \"%s\" to \"%s\"%s",
                   net->name, ab_net_json_quote(pattern, quoted), list[0], list[count - 1],
                   ab_net_json_hint(pattern, list, count, hint));
}

ab_status ab_net_recompute(ab_net *net, const char *patterns) {
    for (int i = 0; i < net->ops; i++) net->op[i].recompute = false;
    if (strcmp(patterns, "none") == 0) return AB_OK;
    while (*patterns) {
        char pattern[BLOCK_NAME];
        size_t length = strcspn(patterns, ",");
        if (length == 0 || length >= sizeof pattern)
            return ab_fail(AB_CONFIG, "recompute: expected names of blocks, all or none, found '%s'",
                           patterns);
        memcpy(pattern, patterns, length);
        pattern[length] = '\0';
        if (!mark(net, strcmp(pattern, "all") == 0 ? "*" : pattern)) return no_such_block(net, pattern);
        patterns += length + (patterns[length] == ',');
    }
    return AB_OK;
}
