/* Completions for three shells. The argument's name in the help determines the values of an option: FILE and
 * DIR are paths; names come from `ampbench list`. */
#include "bench/help/usage.h"

#include "kernels/core/text.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 4096 };

/* Options whose values are names. `kind`: the kind for `ampbench list`; or `words`: the values themselves. */
static const struct {
    const char *option, *kind, *words;
} values[] = {
    {"--levels", "levels", ""},
    {"--level", "levels", ""},
    {"--net", "nets", ""},
    {"--data", "data", ""},
    {"--optimizer", "optimizers", ""},
    {"--schedule", "schedules", ""},
    {"--fault", "faults", ""},
    {"--probes", "probes", "default all"},
    {"--scales", NULL, "default dynamic 1 128 1024 65536"},
    {"--half", NULL, "fp16 bf16"},
    {"--accumulate", NULL, "fp32 half"},
    {"--device", NULL, "auto cpu cuda"},
    {"--color", NULL, "auto always never"},
    {"--order", NULL, "sequential shuffled"},
    {"--normalize", NULL, "standard unit none"},
    {"--cpu-path", NULL, "auto native convert reference"},
    {"--inconclusive", NULL, "pass fail"},
};

static const char topic_words[] = ""
#define AB_TOPIC(name, table, text) #name " "
#include "bench/help/topics.def"
#undef AB_TOPIC
    ;

/* First words of the lines of `ampbench list KIND`, separated by spaces. */
static ab_status list_words(const char *kind, char *words) {
    char *text;
    int list = 0;
    for (int i = 0; i < ab_usage_count(); i++)
        if (strcmp(ab_usage_name(i), "list") == 0) list = i;
    AB_TRY(ab_usage_capture(list, &kind, 1, &text));
    for (const char *at = text; *at; at += strcspn(at, "\n"), at += *at == '\n') {
        size_t indent = strspn(at, " "), length = strcspn(at + indent, " \n");
        bool name = indent == 2 && at[2] >= 'A' &&
                    (at[2] >= 'a' || strcspn(at + 2, "abcdefghijklmnopqrstuvwxyz0123456789") < length);
        const size_t used = strlen(words);
        if (name)
            ab_text_exact(words + used, WORDS - used, "%s%.*s", used ? " " : "", (int)length, at + indent);
    }
    free(text);
    return AB_OK;
}

/* Writes the words that an option takes, "" if unknown, into words[WORDS]. */
static ab_status value_words(const ab_usage_option *option, char *words) {
    words[0] = '\0';
    for (size_t i = 0; i < AB_COUNT_OF(values); i++) {
        if (strcmp(values[i].option, option->name) != 0) continue;
        ab_text_exact(words, WORDS, "%s", values[i].words);
        return values[i].kind ? list_words(values[i].kind, words) : AB_OK;
    }
    return AB_OK;
}

static bool takes_file(const ab_usage_option *option) {
    static const char *const names[] = {"FILE", "DIR", "PROGRAM", "NAME|FILE", "NAME|DIR", "PATH"};
    for (size_t i = 0; i < AB_COUNT_OF(names); i++)
        if (strcmp(option->argument, names[i]) == 0) return true;
    return false;
}

/* Returns the words that a command takes: topics of help, or the choices in its usage line, "ampbench list
 * [a|b]...". words[WORDS]. */
static const char *command_words(const ab_usage *usage, char *words) {
    char start[64];
    ab_text_exact(start, sizeof start, "usage: ampbench %s", usage->command);
    const char *at = usage->help + strlen(start);
    words[0] = '\0';
    if (strcmp(usage->command, "help") == 0) ab_text_exact(words, WORDS, "%s", topic_words);
    if (words[0] || strncmp(usage->help, start, strlen(start)) != 0) return words;
    at += strspn(at, " [");
    size_t length = strcspn(at, " ]\n");
    if (!memchr(at, '|', length) || strspn(at, "abcdefghijklmnopqrstuvwxyz|") < length) return words;
    ab_text_exact(words, WORDS, "%.*s", (int)length, at);
    for (char *c = words; *c; c++)
        if (*c == '|') *c = ' ';
    return words;
}

/* Text between single quotes of a shell (fish: \' and '' in bash and zsh differ, so quotes are left out). */
static void write_plain(FILE *out, const char *text, const char *without) {
    for (; *text; text++)
        if (!strchr("'\\", *text) && !strchr(without, *text)) fputc(*text, out);
}

/* ---- bash ------------------------------------------------------------------------------------ */

static ab_status bash_values(FILE *out, const ab_usage *usage) {
    char words[WORDS];
    for (int i = 0; i < usage->options; i++) {
        const ab_usage_option *option = &usage->option[i];
        if (!option->argument[0]) continue;
        AB_TRY(value_words(option, words));
        fprintf(out, "        %s:%s) known=1 words='%s' paths=%d ;;\n", usage->command, option->name, words,
                takes_file(option));
    }
    return AB_OK;
}

static void bash_options(FILE *out, const ab_usage *usage) {
    fprintf(out, "        %s) words='", usage->command);
    for (int i = 0; i < usage->options; i++) fprintf(out, "%s ", usage->option[i].name);
    fputs("--help' ;;\n", out);
}

static const char bash_head[] =
    "# bash completion for ampbench, made by `ampbench completion bash`\n"
    "_ampbench() {\n"
    "    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command=run words='' "
    "paths=0 prefix='' known=0 i\n"
    "    [[ $previous == '=' ]] && previous=${COMP_WORDS[COMP_CWORD - 2]}\n"
    "    [[ $current == '=' ]] && previous=${COMP_WORDS[COMP_CWORD - 1]} current=''\n"
    "    [[ $COMP_CWORD -gt 1 && ${COMP_WORDS[1]} != -* ]] && command=${COMP_WORDS[1]}\n";

static const char bash_tail[] =
    "    if [[ -n $words && $current == *,* && $current != -* ]]; then\n"
    "        prefix=${current%,*},\n"
    "        current=${current##*,}\n"
    "    fi\n"
    "    COMPREPLY=($(compgen -W \"$words\" -P \"$prefix\" -- \"$current\"))\n"
    "    if [[ $paths == 1 ]]; then\n"
    "        compopt -o filenames 2>/dev/null\n"
    "        while IFS= read -r i; do COMPREPLY+=(\"$i\"); done < <(compgen -f -- \"$current\")\n"
    "    fi\n"
    "    if declare -F __ltrim_colon_completions >/dev/null; then __ltrim_colon_completions "
    "\"$prefix$current\"; fi\n"
    "}\n"
    "complete -F _ampbench ampbench\n";

static void bash_words(FILE *out, const ab_usage *usages) {
    char words[WORDS];
    fputs("    if [[ $known == 0 ]]; then\n"
          "        if [[ $COMP_CWORD -eq 1 && $current != -* ]]; then\n            words='",
          out);
    for (int i = 0; i < ab_usage_count(); i++) fprintf(out, "%s ", ab_usage_name(i));
    fputs("'\n        elif [[ $current != -* ]]; then\n            case $command in\n", out);
    for (int i = 0; i < ab_usage_count(); i++)
        if (command_words(&usages[i], words)[0])
            fprintf(out, "            %s) words='%s' ;;\n", usages[i].command, words);
    fputs("            *) paths=1 ;;\n            esac\n        else\n            case $command in\n", out);
}

static ab_status write_bash(FILE *out, const ab_usage *usages) {
    fputs(bash_head, out);
    fputs("    case $command:$previous in\n", out);
    for (int i = 0; i < ab_usage_count(); i++) AB_TRY(bash_values(out, &usages[i]));
    fputs("    esac\n", out);
    bash_words(out, usages);
    for (int i = 0; i < ab_usage_count(); i++) bash_options(out, &usages[i]);
    fputs("            esac\n        fi\n    fi\n", out);
    fputs(bash_tail, out);
    return AB_OK;
}

/* ---- zsh ------------------------------------------------------------------------------------- */

static ab_status zsh_option(FILE *out, const ab_usage_option *option) {
    char words[WORDS];
    fprintf(out, "            '*%s%s[", option->name, option->argument[0] ? "=" : "");
    write_plain(out, option->text, "[]:");
    fputc(']', out);
    if (option->argument[0]) {
        AB_TRY(value_words(option, words));
        fputc(':', out);
        write_plain(out, option->argument, "[]:");
        if (words[0] && !takes_file(option)) {
            fputs(":_values -s , name", out);
            for (char *word = strtok(words, " "); word; word = strtok(NULL, " ")) {
                fputc(' ', out);
                for (; *word; word++) fprintf(out, *word == ':' ? "\\\\\\:" : "%c", *word);
            }
        } else {
            fputs(takes_file(option) ? ":_files" : ": ", out);
        }
    }
    fputs("' \\\n", out);
    return AB_OK;
}

static ab_status write_zsh(FILE *out, const ab_usage *usages) {
    fputs(
        "#compdef ampbench\n# zsh completion for ampbench, made by `ampbench completion zsh`\n_ampbench() {\n"
        "    local -a commands\n    commands=(\n",
        out);
    for (int i = 0; i < ab_usage_count(); i++) {
        fprintf(out, "        '%s:", ab_usage_name(i));
        write_plain(out, ab_usage_text(i), ":");
        fputs("'\n", out);
    }
    fputs("    )\n    local command=run\n    if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then\n"
          "        _describe command commands\n        return\n    fi\n"
          "    if [[ $words[2] != -* ]]; then\n        command=$words[2]\n        shift words\n        (( "
          "CURRENT-- ))\n    fi\n"
          "    case $command in\n",
          out);
    for (int i = 0; i < ab_usage_count(); i++) {
        char words[WORDS];
        command_words(&usages[i], words);
        fprintf(out, "        %s) _arguments \\\n", ab_usage_name(i));
        for (int k = 0; k < usages[i].options; k++) AB_TRY(zsh_option(out, &usages[i].option[k]));
        if (words[0])
            fprintf(out, "            '*:name:(%s)' ;;\n", words);
        else
            fputs("            '*:file:_files' ;;\n", out);
    }
    fputs("    esac\n}\n_ampbench \"$@\"\n", out);
    return AB_OK;
}

/* ---- fish ------------------------------------------------------------------------------------ */

static ab_status fish_option(FILE *out, const char *command, const ab_usage_option *option) {
    char words[WORDS];
    bool is_run = strcmp(command, "run") == 0;
    fprintf(out, "complete -c ampbench -n '%s%s' -l %s",
            is_run ? "__ampbench_runs" : "__fish_seen_subcommand_from ", is_run ? "" : command,
            option->name + 2);
    if (option->argument[0]) {
        AB_TRY(value_words(option, words));
        fputs(takes_file(option) ? " -r -F" : " -x", out);
        if (words[0]) fprintf(out, " -a '%s'", words);
    }
    fputs(" -d '", out);
    write_plain(out, option->text, "");
    fputs("'\n", out);
    return AB_OK;
}

static ab_status write_fish(FILE *out, const ab_usage *usages) {
    fputs("# fish completion for ampbench, made by `ampbench completion fish`\nset -l commands", out);
    for (int i = 0; i < ab_usage_count(); i++) fprintf(out, " %s", ab_usage_name(i));
    fputs("\nfunction __ampbench_runs\n    set -l words (commandline -opc)\n"
          "    test (count $words) -lt 2; or test \"$words[2]\" = run; or string match -q -- '-*' "
          "\"$words[2]\"\nend\n",
          out);
    for (int i = 0; i < ab_usage_count(); i++) {
        char words[WORDS];
        command_words(&usages[i], words);
        fprintf(out, "complete -c ampbench -n \"not __fish_seen_subcommand_from $commands\" -f -a %s -d '",
                ab_usage_name(i));
        write_plain(out, ab_usage_text(i), "");
        fputs("'\n", out);
        if (words[0])
            fprintf(out, "complete -c ampbench -n '__fish_seen_subcommand_from %s' -f -a '%s'\n",
                    ab_usage_name(i), words);
        for (int k = 0; k < usages[i].options; k++)
            AB_TRY(fish_option(out, ab_usage_name(i), &usages[i].option[k]));
    }
    return AB_OK;
}

/* ---- all ------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    ab_status (*write)(FILE *out, const ab_usage *usages);
} shells[] = {{"bash", write_bash}, {"zsh", write_zsh}, {"fish", write_fish}};

static ab_status write_shell(const char *shell, FILE *out, const ab_usage *usages) {
    const char *names[AB_COUNT_OF(shells)];
    for (size_t i = 0; i < AB_COUNT_OF(shells); i++) {
        names[i] = shells[i].name;
        if (strcmp(shells[i].name, shell) == 0) return shells[i].write(out, usages);
    }
    const char *near = ab_nearest(shell, names, (int)AB_COUNT_OF(names));
    return ab_fail(AB_USAGE, "completion: expected bash, zsh or fish, found '%s'%s%s%s",
                   ab_text_brief(shell, 60), near ? "; did you mean '" : "", near ? near : "",
                   near ? "'?" : "");
}

ab_status ab_completion_write(const char *shell, FILE *out) {
    ab_usage *usages = calloc((size_t)ab_usage_count(), sizeof *usages);
    ab_status status = usages ? AB_OK : ab_fail(AB_NO_MEMORY, "completion: out of memory");
    for (int i = 0; i < ab_usage_count() && status == AB_OK; i++) status = ab_usage_read(i, &usages[i]);
    if (status == AB_OK) status = write_shell(shell, out, usages);
    for (int i = 0; usages && i < ab_usage_count(); i++) ab_usage_clear(&usages[i]);
    free(usages);
    return status;
}
