/* Fashion-MNIST (Xiao, Rasul, Vollgraf 2017): 60,000 + 10,000 images of clothes, 28x28, 10 classes, installed
 * by Debian's package dataset-fashion-mnist. Downloads nothing. */
#include "bench/data/idx.h"

#include <stdlib.h>

static const char package_directory[] = "/usr/share/datasets/fashion-mnist";

enum { CLASSES = 10 };

static ab_status load(ab_data *data, const ab_data_request *request) {
    (void)request;
    const char *variable = getenv("AMPBENCH_DATA_DIR");
    const char *directory = variable && *variable ? variable : package_directory;
    if (!ab_idx_present(directory))
        return ab_fail(
            AB_INPUT,
            "Fashion-MNIST is not in %s: install the package dataset-fashion-mnist, or use --data synthetic "
            "(needs no files) or --data DIR (any directory with MNIST-style IDX files)",
            directory);
    return ab_idx_load(data, directory, CLASSES);
}

const ab_data_source ab_data_source_fashion_mnist = {
    .name = "fashion_mnist",
    .text = "60,000 + 10,000 pictures of clothes, 28x28 grey, from the package dataset-fashion-mnist or "
            "$AMPBENCH_DATA_DIR",
    .channels = 1,
    .load = load,
};
