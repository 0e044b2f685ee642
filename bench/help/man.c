/* Manual pages from the commands' help: paragraphs, headings and options are distinguished by their
 * indentation. */
#include "bench/help/usage.h"

#include "build_info.h"
#include "kernels/core/text.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Escapes for man(7): backslashes, and dots and quotes at the start of a line, are special; a bare dash is a
 * hyphen. */
static void write_text(FILE *out, const char *text, bool starts_line) {
    if (starts_line && (text[0] == '.' || text[0] == '\'')) fputs("\\&", out);
    for (; *text; text++) {
        if (*text == '\\')
            fputs("\\e", out);
        else if (*text == '-')
            fputs("\\-", out);
        else
            fputc(*text, out);
    }
}

static void write_line(FILE *out, const char *text) {
    write_text(out, text, true);
    fputc('\n', out);
}

static void write_capitals(FILE *out, const char *text) {
    for (; *text; text++) fputc(toupper((unsigned char)*text), out);
}

/* No date: the page is reproducible. */
static void write_title(FILE *out, const char *suffix, const char *text) {
    fputs(".\\\" Made by `ampbench help --man` from the program's own help.\n.TH AMPBENCH", out);
    write_capitals(out, suffix);
    fputs(" 1 \"\" \"ampbench " AB_VERSION "\" \"User Commands\"\n.SH NAME\nampbench", out);
    write_text(out, suffix, false);
    fputs(" \\- ", out);
    write_line(out, text);
}

/* The last section of every page. */
static void write_copyright(FILE *out) {
    fputs(".SH COPYRIGHT\n" AB_COPYRIGHT ".\n", out);
    write_line(out, "License: " AB_LICENSE " (Apache License, Version 2.0).");
}

/* ---- a command ------------------------------------------------------------------------------- */

typedef enum mode { SYNOPSIS, PROSE, OPTION, LITERAL } mode;

typedef struct page {
    FILE *out;
    mode mode;
} page;

static void enter(page *p, mode next) {
    if (p->mode == LITERAL && next != LITERAL) fputs(".fi\n.RE\n", p->out);
    if (p->mode != LITERAL && next == LITERAL) fputs(".RS 4\n.nf\n", p->out);
    p->mode = next;
}

static void write_option(page *p, const ab_usage_option *option) {
    enter(p, OPTION);
    fputs(".TP\n.B ", p->out);
    write_text(p->out, option->name, false);
    if (option->argument[0]) {
        fputs("\\fR \\fI", p->out);
        write_text(p->out, option->argument, false);
        fputs("\\fR", p->out);
    }
    fputc('\n', p->out);
    write_line(p->out, option->text);
}

static bool is_heading(const char *line, const char *next) {
    size_t length = strlen(line);
    return length > 1 && length < 60 && line[length - 1] == ':' && strncmp(next, "  ", 2) == 0;
}

/* `next`: the following line, to distinguish headings from sentences that end with a colon. */
static void write_help_line(page *p, const char *line, const char *next) {
    ab_usage_option option;
    size_t indent = strspn(line, " ");
    if (p->mode == SYNOPSIS && line[0]) {
        write_line(p->out, strncmp(line, "usage: ", 7) == 0 ? line + 7 : line + indent);
    } else if (!line[0]) {
        if (p->mode == SYNOPSIS) fputs(".fi\n.SH DESCRIPTION\n", p->out);
        enter(p, PROSE);
        fputs(".PP\n", p->out);
    } else if (ab_usage_parse(line, &option)) {
        write_option(p, &option);
    } else if (p->mode == OPTION && indent > 12) {
        write_line(p->out, line + indent);
    } else if (indent >= 2) {
        enter(p, LITERAL);
        write_line(p->out, line);
    } else if (is_heading(line, next)) {
        enter(p, PROSE);
        fprintf(p->out, ".SS \"%.*s\"\n", (int)strlen(line) - 1, line);
    } else {
        enter(p, PROSE);
        write_line(p->out, line);
    }
}

static ab_status write_command(int command, FILE *out) {
    ab_usage usage;
    char suffix[40], line[1024];
    page p = {out, SYNOPSIS};
    ab_status status = ab_usage_read(command, &usage);
    if (status == AB_OK) {
        ab_text_show(suffix, sizeof suffix, "-%s", usage.command);
        write_title(out, suffix, usage.text);
        fputs(".SH SYNOPSIS\n.nf\n", out);
        for (const char *at = usage.help; *at;) {
            size_t length = strcspn(at, "\n");
            ab_text_show(line, sizeof line, "%.*s", (int)length, at);
            at += length + (at[length] == '\n');
            write_help_line(&p, line, at);
        }
        if (p.mode == SYNOPSIS) fputs(".fi\n", out);
        enter(&p, PROSE);
        fputs(".SH SEE ALSO\n.BR ampbench (1)\n", out);
        write_copyright(out);
    }
    ab_usage_clear(&usage);
    return status;
}

/* ---- the program ----------------------------------------------------------------------------- */

static void write_commands(FILE *out) {
    fputs(".SH COMMANDS\n", out);
    for (int i = 0; i < ab_usage_count(); i++) {
        fprintf(out, ".TP\n.BR ampbench\\-%s (1)\n", ab_usage_name(i));
        write_line(out, ab_usage_text(i));
    }
}

static int find_command(const char *name) {
    for (int i = 0; i < ab_usage_count(); i++)
        if (strcmp(ab_usage_name(i), name) == 0) return i;
    return 0;
}

/* Topics of `ampbench help`, as they are printed. */
static ab_status write_topic(const char *topic, const char *heading, FILE *out) {
    char *text, line[1024];
    AB_TRY(ab_usage_capture(find_command("help"), &topic, 1, &text));
    fprintf(out, ".SH \"%s\"\n.nf\n", heading);
    for (const char *at = text; *at;) {
        size_t length = strcspn(at, "\n");
        ab_text_show(line, sizeof line, "%.*s", (int)length, at);
        write_line(out, line);
        at += length + (at[length] == '\n');
    }
    fputs(".fi\n", out);
    free(text);
    return AB_OK;
}

static ab_status write_program(FILE *out) {
    write_title(out, "", "what do O0, O1, O2 and O3 cost, and what do they break?");
    fputs(".SH SYNOPSIS\n.nf\nampbench \\-\\-levels O0,O1,O2,O3 [OPTION]...\nampbench COMMAND "
          "[ARGUMENT]...\n.fi\n"
          ".SH DESCRIPTION\nTrains the same network from the same bits on the same batches under several "
          "mixed\\-precision "
          "levels and loss scales, and says what each costs and what it breaks: speed, memory, loss against "
          "fp32 beside a "
          "measured noise floor, skipped steps, and which gradients the half format flushed to zero or "
          "overflowed.\n.PP\n"
          "Options without a command are those of\n.BR ampbench\\-run (1).\n",
          out);
    write_commands(out);
    AB_TRY(write_topic("levels", "LEVELS", out));
    AB_TRY(write_topic("scales", "LOSS SCALES", out));
    AB_TRY(write_topic("exit", "EXIT STATUS", out));
    AB_TRY(write_topic("files", "FILES", out));
    AB_TRY(write_topic("environment", "ENVIRONMENT", out));
    write_copyright(out);
    return AB_OK;
}

ab_status ab_man_write(int command, FILE *out) {
    return command < 0 ? write_program(out) : write_command(command, out);
}
