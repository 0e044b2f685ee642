/* Commands by number, their output, and the options parsed from their help. */
#define _POSIX_C_SOURCE 200809L /* dup2, fileno */
#include "bench/help/usage.h"

#include "kernels/core/text.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_ARGUMENTS = 4 };

static const ab_command *table;
static int rows;

void ab_usage_set_commands(const ab_command *commands, int count) {
    table = commands;
    rows = count;
}

int ab_usage_count(void) { return rows; }
const char *ab_usage_name(int command) { return table[command].name; }
const char *ab_usage_text(int command) { return table[command].text; }

/* ---- capturing ------------------------------------------------------------------------------- */

static char *read_back(FILE *file) {
    long size = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    char *text = size >= 0 ? malloc((size_t)size + 1) : NULL;
    if (!text) return NULL;
    rewind(file);
    text[fread(text, 1, (size_t)size, file)] = '\0';
    return text;
}

static ab_status run_command(int number, const char *const *arguments, int count) {
    char *argv[MAX_ARGUMENTS + 2] = {0};
    ab_status status = AB_OK;
    for (int i = 0; i <= count && status == AB_OK; i++) {
        argv[i] = strdup(i == 0 ? table[number].name : arguments[i - 1]);
        if (!argv[i]) status = ab_fail(AB_NO_MEMORY, "help: out of memory");
    }
    if (status == AB_OK) status = table[number].run(count + 1, argv);
    for (int i = 0; i <= count; i++) free(argv[i]);
    return status;
}

ab_status ab_usage_capture(int number, const char *const *arguments, int count, char **text) {
    FILE *file = tmpfile();
    fflush(stdout);
    int out = dup(STDOUT_FILENO);
    *text = NULL;
    if (!file || out < 0 || dup2(fileno(file), STDOUT_FILENO) < 0) {
        if (file) fclose(file);
        if (out >= 0) close(out);
        return ab_fail(AB_SYSTEM, "help: cannot make a temporary file: %s", strerror(errno));
    }
    ab_status status = run_command(number, arguments, count);
    fflush(stdout);
    dup2(out, STDOUT_FILENO);
    close(out);
    if (status == AB_OK) *text = read_back(file);
    fclose(file);
    if (status == AB_OK && !*text) status = ab_fail(AB_NO_MEMORY, "help: out of memory");
    return status;
}

/* ---- options --------------------------------------------------------------------------------- */

static size_t word_length(const char *text) { return strcspn(text, " "); }

/* An argument follows one space; the text follows two spaces, or an argument in capitals. */
static const char *read_argument(const char *at, ab_usage_option *option) {
    if (at[0] != ' ' || at[1] == ' ' || at[1] == '\0') return at;
    size_t length = word_length(at + 1);
    const char *end = at + 1 + length;
    bool capitals = isupper((unsigned char)at[1]) && length > 0;
    bool apart = (end[0] == ' ' && end[1] == ' ') || end[0] == '\0';
    if (!capitals && !apart) return at;
    ab_text_show(option->argument, sizeof option->argument, "%.*s", (int)length, at + 1);
    return end;
}

int ab_usage_parse(const char *line, ab_usage_option *option) {
    size_t indent = strspn(line, " ");
    memset(option, 0, sizeof *option);
    if (indent < 2 || strncmp(line + indent, "--", 2) != 0) return 0;
    const char *at = line + indent;
    size_t length = strspn(at, "-abcdefghijklmnopqrstuvwxyz0123456789");
    if (length < 3 || (at[length] != ' ' && at[length] != '\0')) return 0;
    ab_text_show(option->name, sizeof option->name, "%.*s", (int)length, at);
    at = read_argument(at + length, option);
    ab_text_show(option->text, sizeof option->text, "%s", at + strspn(at, " "));
    return 1;
}

static void append_text(ab_usage_option *option, const char *line) {
    ab_text_append(option->text, sizeof option->text, " %s", line + strspn(line, " "));
}

static bool is_known(const ab_usage *usage, const char *name) {
    for (int i = 0; i < usage->options; i++)
        if (strcmp(usage->option[i].name, name) == 0) return true;
    return false;
}

static ab_status add_option(ab_usage *usage, const ab_usage_option *option) {
    ab_usage_option *list = realloc(usage->option, ((size_t)usage->options + 1) * sizeof *list);
    if (!list) return ab_fail(AB_NO_MEMORY, "help: out of memory");
    usage->option = list;
    list[usage->options++] = *option;
    return AB_OK;
}

static ab_status find_options(ab_usage *usage, const char *help) {
    char line[1024];
    ab_usage_option option;
    bool last = false; /* the line before belongs to the last option */
    for (const char *at = help; *at; at += strcspn(at, "\n"), at += *at == '\n') {
        ab_text_show(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
        bool is_option = ab_usage_parse(line, &option) != 0;
        if (is_option && !is_known(usage, option.name))
            AB_TRY(add_option(usage, &option));
        else if (!is_option && last && strspn(line, " ") > 12 && usage->options > 0)
            append_text(&usage->option[usage->options - 1], line);
        last = is_option || (last && strspn(line, " ") > 12);
    }
    return AB_OK;
}

static ab_status add_options_of_run(ab_usage *usage) {
    static const char *const arguments[] = {"--help"};
    char *help;
    int run = 0;
    while (strcmp(table[run].name, "run") != 0) run++;
    AB_TRY(ab_usage_capture(run, arguments, 1, &help));
    ab_status status = find_options(usage, help);
    free(help);
    return status;
}

ab_status ab_usage_read(int number, ab_usage *usage) {
    static const char *const arguments[] = {"--help"};
    *usage = (ab_usage){table[number].name, table[number].text, NULL, 0, NULL};
    AB_TRY(ab_usage_capture(number, arguments, 1, &usage->help));
    AB_TRY(find_options(usage, usage->help));
    return strstr(usage->help, "Takes the options of `ampbench run`") ? add_options_of_run(usage) : AB_OK;
}

void ab_usage_clear(ab_usage *usage) {
    free(usage->help);
    free(usage->option);
    usage->help = NULL;
    usage->option = NULL;
}
