/* `ampbench list`: the available levels, ops, formats and other names. */
#include "bench/amp/policy.h"
#include "bench/amp/scaler/scaler.h"
#include "bench/cmd/cmd.h"
#include "bench/data/data.h"
#include "bench/nets/net.h"
#include "bench/opdoc/opdoc.h"
#include "bench/train/recipe.h"
#include "kernels/core/show.h"
#include "kernels/core/text.h"
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

static const char *cast_name(ab_cast_model cast) {
    static const char *const names[] = {
        [AB_CAST_none] = "None", [AB_CAST_fp32] = "fp32", [AB_CAST_half] = "half"};
    return names[cast];
}

/* Every level as a row of apex's five properties and of the two that other frameworks have. */
static ab_status list_levels_table(void) {
    static const char *const lists[] = {[AB_LIST_apex] = "apex",
                                        [AB_LIST_torch_cuda] = "torch, CUDA",
                                        [AB_LIST_torch_cpu] = "torch, CPU",
                                        [AB_LIST_mindspore] = "mindspore",
                                        [AB_LIST_none] = "-"};
    static const char line[] = "%-20s  %-15s  %-21s  %-19s  %-14s  %-14s  %-11s  %s\n";
    ab_print(stdout, line, "level", "cast_model_type", "patch_torch_functions", "keep_batchnorm_fp32",
             "master_weights", "loss_scale", "casts of ops", "weights stored");
    for (int i = 0; i < ab_level_count(); i++) {
        const ab_level *level = ab_level_at(i);
        const bool half = level->cast_model_type == AB_CAST_half && !level->weights_read_as_half;
        ab_print(stdout, line, level->name, cast_name(level->cast_model_type),
                 ab_tristate_text(level->patch_torch_functions), ab_tristate_text(level->keep_batchnorm_fp32),
                 ab_tristate_text(level->master_weights), level->loss_scale, lists[level->list],
                 half                                          ? "half"
                 : level->weights_read_as_half                 ? "fp32, read as half"
                 : level->patch_torch_functions == AB_TRI_true ? "fp32, cast a step"
                                                               : "fp32");
    }
    puts("\nThe first five are apex's properties (--set, --levels LEVEL:PROPERTY=VALUE); half is the format "
         "of --half. Casts of ops: "
         "whose lists\nchoose the format of each op (`ampbench list ops`). Loss scales: `ampbench list "
         "scalers`; dynamic is apex's.");
    return AB_OK;
}

static ab_status list_ops(void) {
    for (int i = 0; i < ab_op_count(); i++)
        ab_print(stdout, "  %-16s %s\n", ab_op_at(i)->name, ab_opdoc_class(i));
    return AB_OK;
}

/* What a network's file may say of every op. */
static ab_status list_attributes(void) {
    puts("  every op       name, op, in (names of inputs; default: the op before), init (of its weights), "
         "share, requires_grad (false: its weights are not trained)");
    puts("  every product    accumulate (fp32 or half; default fp32: sums rounded to the half format at "
         "every step)");
    for (int i = 0; i < ab_op_count(); i++) ab_opdoc_attributes(ab_op_at(i), stdout);
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
    for (int i = 0; i < ab_optimizer_count(); i++) {
        const ab_optimizer *optimizer = ab_optimizer_at(i);
        char text[AB_OPTIMIZER_VALUE];
        ab_print(stdout, "  %-17s %s; weight decay %s\n", optimizer->name, optimizer->text,
                 ab_optimizer_decay_name(optimizer, &optimizer->defaults));
        for (int k = 0; k < optimizer->keys; k++)
            ab_print(stdout, k ? ", %s=%s" : "                    keys: %s=%s", optimizer->key[k].name,
                     ab_optimizer_value_text(optimizer, &optimizer->defaults, k, text));
        if (optimizer->keys) ab_print(stdout, "\n");
    }
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

static ab_status list_reference(void) { return ab_opdoc_page(stdout); }

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

/* Other ways to see a kind. */
static const struct {
    const char *kind, *option;
    ab_status (*print)(void);
} views[] = {{"levels", "--table", list_levels_table},
             {"ops", "--attributes", list_attributes},
             {"ops", "--reference", list_reference}};

static ab_status list_view(const char *kind, const char *option) {
    const char *names[AB_COUNT_OF(views)];
    char expected[64] = "";
    int count = 0;
    for (size_t i = 0; i < AB_COUNT_OF(views); i++) {
        if (strcmp(kind, views[i].kind) != 0) continue;
        if (strcmp(option, views[i].option) == 0) return views[i].print();
        ab_text_append(expected, sizeof expected, "%s%s", count ? " or " : "", views[i].option);
        names[count++] = views[i].option;
    }
    const char *near = ab_nearest(option, names, count);
    return ab_fail(AB_USAGE, "list %s: expected %s, found '%s'%s%s%s", kind, count ? expected : "no option",
                   option, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static ab_status find_kind(const char *word, size_t *kind) {
    const char *names[AB_COUNT_OF(kinds)];
    for (size_t i = 0; i < AB_COUNT_OF(kinds); i++) {
        names[i] = kinds[ *kind = i].name;
        if (strcmp(word, names[i]) == 0) return AB_OK;
    }
    const char *near = ab_nearest(word, names, (int)AB_COUNT_OF(names));
    return ab_fail(AB_USAGE,
                   "list: expected nets, data, levels, ops, formats, scalers, optimizers, schedules, faults "
                   "or probes, found '%s'%s%s%s",
                   word, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

ab_status ab_cmd_list(int argc, char **argv) {
    size_t kind;
    if (argc > 1 && ab_is_help(argv[1])) {
        puts("usage: ampbench list "
             "[nets|data|levels|ops|formats|scalers|optimizers|schedules|faults|probes]...\n"
             "       ampbench list ops --attributes|--reference\n"
             "       ampbench list levels --table\n\n"
             "  --table        every level as a row of its properties, every framework's beside apex's\n"
             "  --attributes   what a network's file may say of every op: inputs, attributes, ranges, "
             "defaults\n"
             "  --reference    docs/ops.md: all of `ampbench help OP`, as Markdown");
        return AB_OK;
    }
    for (int i = 1; i < argc && !(argc == 3 && i == 2 && argv[i][0] == '-'); i++)
        AB_TRY(find_kind(argv[i], &kind)); /* before anything is printed */
    if (argc == 3 && argv[2][0] == '-') return list_view(argv[1], argv[2]);
    for (int i = 1; i < argc; i++) {
        AB_TRY(find_kind(argv[i], &kind));
        AB_TRY(kinds[kind].print());
    }
    for (size_t i = 0; i < AB_COUNT_OF(kinds) && argc == 1; i++) {
        ab_print(stdout, i ? "\n%s:\n" : "%s:\n", kinds[i].name);
        AB_TRY(kinds[i].print());
    }
    return AB_OK;
}
