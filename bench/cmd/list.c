/* `ampbench list`: the available levels, ops, formats and other names. */
#include "bench/amp/policy.h"
#include "bench/amp/scaler/scaler.h"
#include "bench/cmd/cmd.h"
#include "bench/data/data.h"
#include "bench/nets/net.h"
#include "bench/train/recipe.h"
#include "kernels/core/nearest.h"
#include "kernels/core/show.h"
#include "probes/probe.h"

#include <stdio.h>
#include <string.h>

static ab_status list_nets(void) {
    for (int i = 0; i < ab_net_builtin_count(); i++) {
        ab_net *net;
        AB_TRY(ab_net_load(ab_net_builtin_name(i), &net));
        ab_print(stdout, "  %-16s %s (%lld parameters)\n", net->name, net->text,
                 (long long)ab_net_parameters(net));
        ab_net_free(net);
    }
    return AB_OK;
}

static ab_status list_data(void) {
    for (int i = 0; i < ab_data_source_count(); i++)
        ab_print(stdout, "  %-16s %s\n", ab_data_source_at(i)->name, ab_data_source_at(i)->text);
    puts("  DIR              a directory with IDX files (train-images-idx3-ubyte[.gz], ...): MNIST and its "
         "kin");
    return AB_OK;
}

static ab_status list_levels(void) {
    for (int i = 0; i < ab_level_count(); i++)
        ab_print(stdout, "  %-20s %s\n  %-20s %s\n", ab_level_at(i)->name, ab_level_at(i)->text, "",
                 ab_level_at(i)->origin);
    return AB_OK;
}

static ab_status list_ops(void) {
    static const char *const classes[] = {[AB_CLASS_low] = "half at O1",
                                          [AB_CLASS_fp32] = "fp32 at O1",
                                          [AB_CLASS_promote] = "widest input at O1",
                                          [AB_CLASS_follow] = "its input's format at O1",
                                          [AB_CLASS_banned] = "refused at O1 with half inputs"};
    for (int i = 0; i < ab_op_count(); i++)
        ab_print(stdout, "  %-16s %s\n", ab_op_at(i)->name, classes[ab_op_class_at(i)]);
    return AB_OK;
}

static ab_status list_formats(void) {
    for (int i = 0; i < ab_format_count(); i++)
        ab_print(stdout, "  %-16s %s\n", ab_format_at(i)->name, ab_format_at(i)->text);
    return AB_OK;
}

static ab_status list_scalers(void) {
    for (int i = 0; i < ab_scaler_count(); i++)
        ab_print(stdout, "  %-20s %s\n  %-20s %s\n", ab_scaler_at(i)->name, ab_scaler_at(i)->text, "",
                 ab_scaler_at(i)->origin);
    return AB_OK;
}

static ab_status list_optimizers(void) {
    for (int i = 0; i < ab_optimizer_count(); i++)
        ab_print(stdout, "  %-16s %s; weight decay %s\n", ab_optimizer_at(i)->name, ab_optimizer_at(i)->text,
                 ab_decay_name(ab_optimizer_at(i)->decay));
    return AB_OK;
}

static ab_status list_schedules(void) {
    for (int i = 0; i < ab_schedule_count(); i++)
        ab_print(stdout, "  %-16s %s\n  %-16s numbers:%s\n", ab_schedule_at(i)->name, ab_schedule_at(i)->text,
                 "", ab_schedule_at(i)->keys);
    return AB_OK;
}

static ab_status list_faults(void) {
    for (int i = 0; i < AB_FAULT_COUNT; i++)
        ab_print(stdout, "  %-26s %s\n", ab_fault_name(i), ab_fault_text(i));
    return AB_OK;
}

static ab_status list_probes(void) {
    for (int i = 0; i < ab_probe_count(); i++)
        ab_print(stdout, "  %-17s %s%s\n", ab_probe_at(i)->name, ab_probe_at(i)->text,
                 ab_probe_at(i)->standard ? " (default)" : "");
    return AB_OK;
}

static const struct {
    const char *name;
    ab_status (*print)(void);
} kinds[] = {{"nets", list_nets},
             {"data", list_data},
             {"levels", list_levels},
             {"ops", list_ops},
             {"formats", list_formats},
             {"scalers", list_scalers},
             {"optimizers", list_optimizers},
             {"schedules", list_schedules},
             {"faults", list_faults},
             {"probes", list_probes}};

static ab_status list_one(const char *word) {
    const char *names[AB_COUNT_OF(kinds)];
    for (size_t i = 0; i < AB_COUNT_OF(kinds); i++) {
        names[i] = kinds[i].name;
        if (strcmp(word, kinds[i].name) == 0) return kinds[i].print();
    }
    const char *near = ab_nearest(word, names, (int)AB_COUNT_OF(names));
    return ab_fail(AB_USAGE,
                   "list: expected nets, data, levels, ops, formats, scalers, optimizers, schedules, faults "
                   "or probes, found '%s'%s%s%s",
                   word, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

ab_status ab_cmd_list(int argc, char **argv) {
    if (argc > 1 && ab_is_help(argv[1])) {
        puts("usage: ampbench list "
             "[nets|data|levels|ops|formats|scalers|optimizers|schedules|faults|probes]...");
        return AB_OK;
    }
    for (int i = 1; i < argc; i++) AB_TRY(list_one(argv[i]));
    for (size_t i = 0; i < AB_COUNT_OF(kinds) && argc == 1; i++) {
        ab_print(stdout, i ? "\n%s:\n" : "%s:\n", kinds[i].name);
        AB_TRY(kinds[i].print());
    }
    return AB_OK;
}
