/* `ampbench run`: the main job. */
#include "bench/run/run.h"
#include "bench/cmd/cmd.h"
#include "bench/sweep/sweep.h"

#include <string.h>

ab_status ab_cmd_run(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (!ab_is_help(argv[i])) continue;
        puts("usage: ampbench [run] [OPTION]...\n\n"
             "Trains one network from the same bits on the same batches under several precision levels and "
             "loss scales and\n"
             "reports what each costs and what it breaks.");
        ab_options_help(stdout);
        return AB_OK;
    }
    return ab_run(argc, argv, &ab_sweep_driver);
}
