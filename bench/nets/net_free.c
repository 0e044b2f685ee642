/* Frees a network, whole or as far as it was parsed. */
#include "bench/nets/net_build.h"

#include <stdlib.h>

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
