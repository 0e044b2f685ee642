/* `ampbench help`: the commands, a command, a topic, and the manual pages. Texts of topics are files; tables
 * are printed by the program. */
#include "bench/cmd/cmd.h"
#include "bench/help/usage.h"
#include "bench/opdoc/opdoc.h"
#include "kernels/core/show.h"
#include "kernels/core/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct topic {
    const char *name, *table, *text, *body;
} topic;

#define AB_TOPIC(name, table, text) extern const char ab_embedded_topic_##name[];
#include "bench/help/topics.def"
#undef AB_TOPIC

static const topic topics[] = {
#define AB_TOPIC(name, table, text) {#name, table, text, ab_embedded_topic_##name},
#include "bench/help/topics.def"
#undef AB_TOPIC
};

static const char usage[] = "usage: ampbench help [TOPIC|COMMAND|OP]\n"
                            "       ampbench help --man [COMMAND]\n\n"
                            "Explains a topic or an op, or what `ampbench COMMAND --help` says.\n\n"
                            "  --man   the manual page of the program or of a command, as troff for man(1)\n"
                            "  --help  this text\n\n"
                            "Topics:\n";

static void print_topics(void) {
    for (size_t i = 0; i < AB_COUNT_OF(topics); i++)
        ab_print(stdout, "  %-12s %s\n", topics[i].name, topics[i].text);
}

static void print_ops(void) {
    int at = 0;
    for (int i = 0; i < ab_op_count(); i++) {
        if (at + (int)strlen(ab_op_at(i)->name) > 106) at = 0;
        at += at ? ab_print(stdout, " %s", ab_op_at(i)->name)
                 : ab_print(stdout, i ? "\n  %s" : "  %s", ab_op_at(i)->name);
    }
    putchar('\n');
}

static ab_status print_overview(void) {
    puts("ampbench: what do O0, O1, O2 and O3 cost, and what do they break?\n\n"
         "  ampbench --levels O0,O1,O2,O3        train the same network from the same bits under each "
         "level\n\n"
         "Commands (ampbench COMMAND --help says more):");
    for (int i = 0; i < ab_usage_count(); i++)
        ab_print(stdout, "  %-11s %s\n", ab_usage_name(i), ab_usage_text(i));
    puts("\nTopics (ampbench help TOPIC):");
    print_topics();
    puts("\nOps (ampbench help OP):");
    print_ops();
    puts("\nExit status: 0 ok, 1 internal error or a failed cell, 2 usage, configuration, input or memory, 3 "
         "regression, 4 numerics "
         "failed,\n5 inconclusive, 6 not comparable, 130 interrupted.");
    return AB_OK;
}

/* ---- tables under a topic -------------------------------------------------------------------- */

static void print_statuses(void) {
    static const struct {
        const char *text;
        int exit;
    } rows[] = {
#define AB_STATUS(id, text, exit_status) {text, exit_status},
#include "kernels/core/status.def"
#undef AB_STATUS
    };
    for (int value = 0; value <= 130; value++) {
        bool first = true;
        for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
            if (rows[i].exit != value) continue;
            if (first) ab_print(stdout, "  %3d  %s", value, rows[i].text);
            if (!first) ab_print(stdout, ", %s", rows[i].text);
            first = false;
        }
        if (!first) putchar('\n');
    }
}

static int find_command(const char *name) {
    for (int i = 0; i < ab_usage_count(); i++)
        if (strcmp(ab_usage_name(i), name) == 0) return i;
    return -1;
}

static ab_status print_command(int command, const char *const *arguments, int count) {
    char *text;
    AB_TRY(ab_usage_capture(command, arguments, count, &text));
    fputs(text, stdout);
    free(text);
    return AB_OK;
}

static ab_status print_topic(const topic *t) {
    static const char *const attributes[] = {"ops", "--attributes"};
    fputs(t->body, stdout);
    if (t->table[0]) putchar('\n');
    if (strcmp(t->table, "statuses") == 0) print_statuses();
    if (strcmp(t->table, "formats") == 0) return print_command(find_command("formats"), NULL, 0);
    if (strcmp(t->table, "list ops --attributes") == 0)
        return print_command(find_command("list"), attributes, 2);
    const char *kind = strncmp(t->table, "list ", 5) == 0 ? t->table + 5 : NULL;
    return kind ? print_command(find_command("list"), &kind, 1) : AB_OK;
}

/* ---- words ----------------------------------------------------------------------------------- */

static ab_status unknown_word(const char *word) {
    enum { MOST = 256 };
    const char *names[MOST];
    int count = 0;
    for (size_t i = 0; i < AB_COUNT_OF(topics); i++) names[count++] = topics[i].name;
    for (int i = 0; i < ab_usage_count() && count < MOST; i++) names[count++] = ab_usage_name(i);
    for (int i = 0; i < ab_op_count() && count < MOST; i++) names[count++] = ab_op_at(i)->name;
    const char *near = ab_nearest(word, names, count);
    return ab_fail(AB_USAGE, "help: there is no topic, command or op '%s'%s%s%s (see `ampbench help`)",
                   ab_text_brief(word, 60), near ? "; did you mean '" : "", near ? near : "",
                   near ? "'?" : "");
}

static ab_status explain(const char *word) {
    static const char *const arguments[] = {"--help"};
    for (size_t i = 0; i < AB_COUNT_OF(topics);
         i++) /* `formats` is a topic and a command: the topic is more detailed */
        if (strcmp(topics[i].name, word) == 0) return print_topic(&topics[i]);
    int command = find_command(word);
    for (int i = 0; i < ab_op_count() && command < 0; i++)
        if (strcmp(ab_op_at(i)->name, word) == 0) return ab_opdoc_write(i, stdout);
    return command < 0 ? unknown_word(word) : print_command(command, arguments, 1);
}

static ab_status print_manual(int argc, char **argv) {
    int command = argc > 2 ? find_command(argv[2]) : -1;
    if (argc > 3) return ab_fail(AB_USAGE, "help: --man takes at most one command, found '%s' too", argv[3]);
    return argc > 2 && command < 0 ? unknown_word(argv[2]) : ab_man_write(command, stdout);
}

ab_status ab_cmd_help(int argc, char **argv) {
    if (argc < 2) return print_overview();
    if (ab_is_help(argv[1])) {
        fputs(usage, stdout);
        print_topics();
        return AB_OK;
    }
    if (strcmp(argv[1], "--man") == 0) return print_manual(argc, argv);
    if (argv[1][0] == '-')
        return ab_fail(AB_USAGE, "help: unknown option '%s' (see `ampbench help --help`)",
                       ab_text_brief(argv[1], 60));
    if (argc > 2)
        return ab_fail(AB_USAGE, "help: expected one topic, command or op, found '%s' and '%s'", argv[1],
                       argv[2]);
    return explain(argv[1]);
}
