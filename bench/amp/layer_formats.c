/* Reading overrides of layers. */
#define _POSIX_C_SOURCE 200809L /* fnmatch */
#include "bench/amp/layer_formats.h"

#include "kernels/core/nearest.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ITEM = 128 };

/* The whole name, or the name of a block that it is in. */
static bool matches(const char *pattern, const char *name) {
    char block[ITEM];
    if (fnmatch(pattern, name, FNM_NOESCAPE) == 0) return true;
    for (size_t n = 0; name[n] && n < sizeof block; n++) {
        if (name[n] != '.') continue;
        snprintf(block, sizeof block, "%.*s", (int)n, name);
        if (fnmatch(pattern, block, FNM_NOESCAPE) == 0) return true;
    }
    return false;
}

/* The nearest name to a pattern that matches nothing, and the first few there are. */
static ab_status no_match(const char *pattern, const ab_net *net) {
    enum { SHOWN = 6 };
    const char **names = calloc((size_t)net->ops + 1, sizeof *names);
    char list[256] = "", plain[ITEM];
    size_t kept = 0;
    for (const char *p = pattern; *p && kept + 1 < sizeof plain; p++)
        if (*p != '*' && *p != '?') plain[kept++] = *p;
    plain[kept] = '\0';
    for (int i = 0; names && i < net->ops; i++) {
        size_t used = strlen(list);
        names[i] = net->op[i].name;
        if (i < SHOWN) snprintf(list + used, sizeof list - used, "%s%.30s", i ? ", " : "", names[i]);
    }
    const char *near = names ? ab_nearest(plain, names, net->ops) : NULL;
    ab_status status = ab_fail(AB_USAGE, "--to: no layer of %s matches '%s'%s%s%s (its layers: %s%s)",
                               net->name, pattern, near ? "; did you mean '" : "", near ? near : "",
                               near ? "'?" : "", list, net->ops > SHOWN ? ", ..." : "");
    free(names);
    return status;
}

static ab_status find_format(const char *pattern, const char *name, const ab_format *half,
                             const ab_format **format) {
    bool is_half = strcmp(name, "half") == 0 || strcmp(name, half->name) == 0;
    if (!is_half && strcmp(name, "fp32") != 0)
        return ab_fail(AB_USAGE, "--to %s=%s: expected fp32, half or %s (what --half says), found '%s'",
                       pattern, name, half->name, name);
    *format = is_half ? half : &ab_format_fp32;
    return AB_OK;
}

static ab_status take(const char *item, const ab_net *net, const ab_format *half, const ab_format **format) {
    char pattern[ITEM];
    const char *equals = strrchr(item, '=');
    if (!equals || equals == item)
        return ab_fail(AB_USAGE, "--to: expected LAYER=FORMAT such as conv1=fp32, found '%s'", item);
    snprintf(pattern, sizeof pattern, "%.*s", (int)(equals - item), item);
    const ab_format *wanted = NULL;
    AB_TRY(find_format(pattern, equals + 1, half, &wanted));
    bool found = false;
    for (int i = 0; i < net->ops; i++) {
        if (!matches(pattern, net->op[i].name)) continue;
        format[i] = wanted;
        found = true;
    }
    return found ? AB_OK : no_match(pattern, net);
}

ab_status ab_layer_formats(const char *text, const ab_net *net, const ab_format *half,
                           const ab_format **format) {
    for (int i = 0; i < net->ops; i++) format[i] = NULL;
    while (text) {
        char item[ITEM];
        size_t length = strcspn(text, ",");
        if (length >= sizeof item) return ab_fail(AB_USAGE, "--to: '%.40s...' is too long", text);
        snprintf(item, sizeof item, "%.*s", (int)length, text);
        AB_TRY(take(item, net, half, format));
        text = text[length] ? text + length + 1 : NULL;
    }
    return AB_OK;
}
