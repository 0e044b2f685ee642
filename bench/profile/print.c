/* Profiles as tables and as JSON. */
#include "bench/profile/profile.h"

#include "kernels/core/parallel.h"
#include "kernels/core/show.h"
#include "kernels/core/text.h"
#include "kernels/vec/isa.h"

#include <stdio.h>
#include <string.h>

static const double least_share = 0.01; /* of a step, for a line of its own */

/* ---- tables ---------------------------------------------------------------------------------- */

static void print_limits(const ab_machine_limits *limits) {
    printf("limits measured in this process, threads %d: matrix product", ab_parallel_threads());
    for (int i = 0; i < AB_LIMIT_FORMATS; i++)
        if (limits->flops[i] > 0)
            ab_print(stdout, " %s %.4g GFLOP/s", limits->format[i]->name, limits->flops[i] * 1e-9);
    for (int i = 0; i < AB_ELEMENTARY_COUNT; i++)
        ab_print(stdout, "%s %s %.3g G/s", i ? "," : ";", ab_elementary_name((ab_elementary)i),
                 limits->functions[i] * 1e-9);
    ab_print(stdout, ", look-ups by code %.3g G/s; GB/s copying, reading, updating:", limits->lookups * 1e-9);
    for (int i = 0; i < AB_LIMIT_SIZES; i += 3)
        ab_print(stdout, "%s %.3g %.3g %.3g in %g MiB", i ? "," : "", limits->copied[i] * 1e-9,
                 limits->read[i] * 1e-9, limits->updated[i] * 1e-9, ab_machine_limits_size(i) / 0x1p20);
    if (limits->round_trip_ns > 0)
        ab_print(stdout, "; a cache line to another thread and back %.0f ns", limits->round_trip_ns);
    printf("\n");
}

/* A number, or a dash where there is none. */
static void number_or_dash(char text[16], int decimals, const char *unit, double value) {
    if (value > 0)
        ab_text_show(text, 16, "%.*f%s", decimals, value, unit);
    else
        ab_text_show(text, 16, "-");
}

static void print_row(const ab_profile_row *row, double step_ns) {
    char flops[16], bytes[16], intensity[16], share[16], twice[48] = "";
    number_or_dash(flops, 1, "", row->batches * row->flops / row->ns);
    number_or_dash(bytes, 2, "", row->batches * row->bytes / row->ns);
    number_or_dash(intensity, 1, "", row->bytes > 0 ? row->flops / row->bytes : 0);
    number_or_dash(share, 0, " %", 100 * row->limit_ns / row->ns);
    if (row->twice_ns > 0)
        ab_text_show(twice, sizeof twice, " (read twice: %.0f %%)", 100 * row->twice_ns / row->ns);
    ab_print(stdout, "  %-20s %-18s %-8s %9.4f %6.1f %% %9s %8s %8s %9s  %-9s %s%s\n",
             ab_text_brief(row->op, 20), ab_text_brief(row->type, 18), row->pass, row->ns * 1e-6,
             100 * row->ns / step_ns, flops, bytes, intensity, share, row->limit_ns <= 0 ? "-" : row->limit,
             row->run ? row->run : "", twice);
}

static const double busy = 1.25; /* a step above this many times the sum of its parts' medians */

static void print_profile(const ab_profile *profile, bool all) {
    double rest = 0;
    int hidden = 0;
    ab_print(stdout, "\n%s: %.4f ms a step, median of %lld steps%s\n", profile->cell,
             profile->parts_ns * 1e-6, (long long)profile->steps,
             profile->step_ns > busy * profile->parts_ns
                 ? " (sum of the parts' medians; whole steps take longer: the machine is busy)"
                 : "");
    if (profile->nonfinite)
        ab_print(stdout,
                 "  %lld of %lld losses are NaN or inf: these are the times of a training that learns "
                 "nothing\n",
                 (long long)profile->nonfinite, (long long)profile->steps);
    ab_print(stdout, "  %-20s %-18s %-8s %9s %8s %9s %8s %8s %9s  %-9s %s\n", "layer", "op", "pass", "ms",
             "share", "GFLOP/s", "GB/s", "flop/B", "of limit", "limit", "implementation");
    for (int i = 0; i < profile->rows; i++) {
        const ab_profile_row *row = &profile->row[i];
        if (all || row->ns >= least_share * profile->parts_ns) {
            print_row(row, profile->parts_ns);
            continue;
        }
        rest += row->ns;
        hidden++;
    }
    if (hidden)
        ab_print(stdout, "  and %d below 1 %% each: %.4f ms, %.1f %% (--verbose shows them)\n", hidden,
                 rest * 1e-6, 100 * rest / profile->parts_ns);
}

/* Time relative to the first cell's; "void" where either trains with losses that are no numbers. */
static void ratio_text(const ab_profile *profile, const ab_profile *first, char text[16]) {
    if (profile->nonfinite || first->nonfinite)
        ab_text_exact(text, 16, "void");
    else
        ab_text_show(text, 16, "%.2fx", profile->parts_ns / first->parts_ns);
}

static void print_summary(const ab_profile *profile, int count) {
    char ratio[16];
    ab_print(stdout, "\n  %-40s %9s %8s %9s %8s %10s %11s %8s\n", "cell", "ms", "of first", "ops", "casts",
             "optimizer", "statistics", "other");
    for (int i = 0; i < count; i++) {
        const ab_profile *p = &profile[i];
        ratio_text(p, profile, ratio);
        ab_print(stdout, "  %-40s %9.4f %8s", p->cell, p->parts_ns * 1e-6, ratio);
        static const int width[AB_PROFILE_KINDS] = {7, 6, 8, 9, 6};
        for (int k = 0; k < AB_PROFILE_KINDS; k++)
            ab_print(stdout, " %*.1f %%", width[k],
                     100 * ab_profile_time_of(p, (ab_profile_kind)k) / p->parts_ns);
        printf("\n");
    }
    puts(
        "\nstatistics: of the data, in the first hundred steps of a training only; void: losses that are NaN "
        "or inf\n"
        "GB/s: every operand read or written once, which is the least there is; a cache may serve it\n"
        "of limit: the time that the machine's own limit would take, of the time taken: for products the\n"
        "rate of square ones of 256 or 512, for exp, tanh, erf and look-ups their rate in cache (attention: "
        "both),\n"
        "for the rest the rates above, of as many bytes as the step touched since it last touched these "
        "(counted\n"
        "over the plan's memory; caches shared with other machines hold less); read twice: the same with "
        "what "
        "a\nbatch norm sums before it can write anything, and has to read again");
}

void ab_profile_print(const ab_net *net, int64_t batch, const ab_machine_limits *limits,
                      const ab_profile *profile, int count, bool all) {
    ab_print(stdout, "profile of %s, batch %lld, instruction set %s\n", net->name, (long long)batch,
             ab_isa_name(ab_isa_get()));
    print_limits(limits);
    for (int i = 0; i < count; i++) print_profile(&profile[i], all);
    if (count) print_summary(profile, count);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void add_rate(cJSON *rates, int size, double rate) {
    cJSON *item = cJSON_CreateObject();
    cJSON_AddNumberToObject(item, "working_set_bytes", ab_machine_limits_size(size));
    cJSON_AddNumberToObject(item, "bytes_per_s", rate);
    cJSON_AddItemToArray(rates, item);
}

cJSON *ab_machine_limits_json(const ab_machine_limits *limits) {
    cJSON *all = cJSON_CreateObject(), *flops = cJSON_AddObjectToObject(all, "product_flops_per_s"),
          *copies = cJSON_AddArrayToObject(all, "copy"), *reads = cJSON_AddArrayToObject(all, "read"),
          *updates = cJSON_AddArrayToObject(all, "update");
    for (int i = 0; i < AB_LIMIT_FORMATS; i++)
        if (limits->flops[i] > 0) cJSON_AddNumberToObject(flops, limits->format[i]->name, limits->flops[i]);
    cJSON *functions = cJSON_AddObjectToObject(all, "function_values_per_s");
    for (int i = 0; i < AB_ELEMENTARY_COUNT; i++)
        cJSON_AddNumberToObject(functions, ab_elementary_name((ab_elementary)i), limits->functions[i]);
    cJSON_AddNumberToObject(functions, "look-up", limits->lookups);
    for (int i = 0; i < AB_LIMIT_SIZES; i++) {
        add_rate(copies, i, limits->copied[i]);
        add_rate(reads, i, limits->read[i]);
        add_rate(updates, i, limits->updated[i]);
    }
    if (limits->round_trip_ns > 0)
        cJSON_AddNumberToObject(all, "thread_round_trip_ns", limits->round_trip_ns);
    return all;
}

static cJSON *row_json(const ab_profile_row *row) {
    static const char *const kinds[AB_PROFILE_KINDS] = {"op", "cast", "optimizer", "statistics", "other"};
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "layer", row->op);
    cJSON_AddStringToObject(json, "op", row->type);
    cJSON_AddStringToObject(json, "pass", row->pass);
    cJSON_AddStringToObject(json, "kind", kinds[row->kind]);
    if (row->run) cJSON_AddStringToObject(json, "implementation", row->run);
    cJSON_AddNumberToObject(json, "time_ns", row->ns);
    cJSON_AddNumberToObject(json, "flops", row->batches * row->flops);
    cJSON_AddNumberToObject(json, "bytes", row->batches * row->bytes);
    if (row->again_bytes > 0)
        cJSON_AddNumberToObject(json, "bytes_read_twice", row->batches * row->again_bytes);
    if (row->product) cJSON_AddStringToObject(json, "product_format", row->product->name);
    if (row->limit_ns > 0) {
        cJSON_AddNumberToObject(json, "limit_ns", row->limit_ns);
        cJSON_AddStringToObject(json, "limit", row->limit);
    }
    if (row->twice_ns > 0) cJSON_AddNumberToObject(json, "limit_read_twice_ns", row->twice_ns);
    return json;
}

void ab_profile_add_json(cJSON *object, const ab_profile *profile) {
    cJSON_AddNumberToObject(object, "steps", (double)profile->steps);
    cJSON_AddNumberToObject(object, "nonfinite_losses", (double)profile->nonfinite);
    cJSON_AddNumberToObject(object, "step_time_ns", profile->step_ns);
    cJSON_AddNumberToObject(object, "parts_time_ns", profile->parts_ns);
    cJSON *rows = cJSON_AddArrayToObject(object, "rows");
    for (int r = 0; r < profile->rows; r++) cJSON_AddItemToArray(rows, row_json(&profile->row[r]));
}

cJSON *ab_profile_json(const ab_net *net, int64_t batch, const ab_machine_limits *limits,
                       const ab_profile *profile, int count) {
    cJSON *document = cJSON_CreateObject();
    cJSON_AddStringToObject(document, "format", "ampbench-profile-1");
    cJSON_AddStringToObject(document, "network", net->name);
    cJSON_AddNumberToObject(document, "batch", (double)batch);
    cJSON_AddNumberToObject(document, "threads", ab_parallel_threads());
    cJSON_AddStringToObject(document, "isa", ab_isa_name(ab_isa_get()));
    cJSON_AddItemToObject(document, "limits", ab_machine_limits_json(limits));
    cJSON *cells = cJSON_AddArrayToObject(document, "cells");
    for (int i = 0; i < count; i++) {
        cJSON *cell = cJSON_CreateObject();
        cJSON_AddStringToObject(cell, "id", profile[i].cell);
        cJSON_AddStringToObject(cell, "level", profile[i].level);
        cJSON_AddStringToObject(cell, "half", profile[i].half);
        ab_profile_add_json(cell, &profile[i]);
        cJSON_AddItemToArray(cells, cell);
    }
    return document;
}
