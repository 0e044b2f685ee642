/* Writes the plots' files and runs gnuplot. The files are complete even without gnuplot. */
#define _POSIX_C_SOURCE 200809L /* open, fileno */
#include "reports/plot/plots.h"
#include "kernels/core/text.h"
#include "kernels/files/outfile.h"
#include "kernels/spawn/spawn.h"
#include "reports/plot/plot.h"
#include "reports/record/json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define AB_PLOT(name, heading, text) extern const ab_plot ab_plot_##name;
#include "reports/plot/plots.def"
#undef AB_PLOT

static const ab_plot *const plots[] = {
#define AB_PLOT(name, heading, text) &ab_plot_##name,
#include "reports/plot/plots.def"
#undef AB_PLOT
};

static const ab_plot_words words[] = {
#define AB_PLOT(name, heading, text) {heading, text},
#include "reports/plot/plots.def"
#undef AB_PLOT
};

extern const char ab_embedded_gp_style[];

/* AT_ONCE: processes of gnuplot; GROUP: most pictures that one of them draws. */
enum { FILE_NAME = AB_PLOT_FILE, AT_ONCE = 4, GROUP = 8 };

int ab_plots_count(void) { return (int)AB_COUNT_OF(plots); }
const ab_plot *ab_plots_at(int i) { return plots[i]; }
const ab_plot_words *ab_plots_words(int i) { return &words[i]; }

/* ---- what is drawn --------------------------------------------------------------------------- */

bool ab_plot_is_drawn(const ab_plot *plot, const cJSON *document) {
    return plot->whole || cJSON_GetArraySize(ab_json_at(document, "cells")) <= AB_PLOT_MANY;
}

int ab_plot_drawn_pages(const ab_plot *plot, const cJSON *document) {
    return ab_plot_is_drawn(plot, document) ? ab_plot_pages(plot, document) : 0;
}

int ab_plots_undrawn(const cJSON *document) {
    int count = 0;
    for (size_t i = 0; i < AB_COUNT_OF(plots); i++)
        if (!ab_plot_is_drawn(plots[i], document)) count += ab_plot_pages(plots[i], document);
    return count;
}

const char *ab_plots_undrawn_text(const cJSON *document, char *text) {
    const int count = ab_plots_undrawn(document);
    ab_text_show(text, AB_PLOTS_UNDRAWN,
                 "%d pictures of single cells are not drawn, as there are more than %d cells", count,
                 AB_PLOT_MANY);
    return count > 0 ? text : NULL;
}

/* ---- files ----------------------------------------------------------------------------------- */

char *ab_plot_page_name(const ab_plot *plot, int page, char *name) {
    if (page == 0)
        ab_text_exact(name, FILE_NAME, "%s", plot->name);
    else
        ab_text_exact(name, FILE_NAME, "%s-%d", plot->name, page + 1);
    return name;
}

static char *join_path(const char *folder, const char *name, const char *suffix) {
    size_t size = strlen(folder) + strlen(name) + strlen(suffix) + 2;
    char *path = malloc(size);
    if (path) ab_text_exact(path, size, "%s/%s%s", folder, name, suffix);
    return path;
}

static ab_status open_file(const char *folder, const char *name, const char *suffix, ab_outfile *file) {
    char *path = join_path(folder, name, suffix);
    *file = (ab_outfile){0};
    if (!path) return ab_fail(AB_NO_MEMORY, "out of memory while writing plots");
    ab_status status = ab_outfile_open(path, file);
    free(path);
    return status;
}

static void begin_script(const ab_plot *plot, int page, int pages, FILE *script) {
    char name[FILE_NAME], note[32] = "";
    ab_plot_page_name(plot, page, name);
    if (pages > 1) ab_text_show(note, sizeof note, " (%d of %d)", page + 1, pages);
    fprintf(script,
            "# Draws %s.png from %s.dat: gnuplot %s.gp   (%s.svg: gnuplot -e \"format='svg'\" %s.gp)\n"
            "# Written by ampbench from a result document; the values of this document come first.\n",
            name, name, name, name, name);
    ab_plot_set_text(script, "name", name);
    ab_plot_set_text(script, "page_note", note);
}

/* Removes the image of an earlier run, which would not match the new data. */
static void remove_image(const char *folder, const char *name) {
    char *path = join_path(folder, name, ".png");
    if (path) unlink(path);
    free(path);
}

static ab_status write_page(const ab_plot *plot, ab_plot_input *in, int page, const char *folder) {
    char name[FILE_NAME];
    ab_outfile data = {0}, script = {0};
    ab_status status;
    ab_plot_page_name(plot, page, name);
    remove_image(folder, name);
    AB_TRY_GOTO(open_file(folder, name, ".dat", &data));
    AB_TRY_GOTO(open_file(folder, name, ".gp", &script));
    begin_script(plot, page, in->pages, script.stream);
    AB_TRY_GOTO(plot->write(in, page, data.stream, script.stream));
    fprintf(script.stream, "\n%s\n%s", ab_embedded_gp_style, plot->drawing);
out:
    status = ab_outfile_close(&data, status);
    return ab_outfile_close(&script, status);
}

/* ---- gnuplot --------------------------------------------------------------------------------- */

/* Starts gnuplot in the folder: messages go to gnuplot.log. */
static ab_status start_gnuplot(const char *folder, char *const *argv, ab_spawned *gnuplot) {
    char *log = join_path(folder, "gnuplot", ".log");
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    const int messages = log ? open(log, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0666) : -1;
    const ab_spawn_request request = {
        .argv = argv, .folder = folder, .in = null, .out = null, .err = messages, .guarded = true};
    ab_status status = null < 0 || messages < 0 ? ab_fail(AB_OUTPUT, "%s: cannot write gnuplot.log", folder)
                                                : ab_spawn(&request, gnuplot);
    if (null >= 0) close(null);
    if (messages >= 0) close(messages);
    free(log);
    return status;
}

static void sweep(const char *folder) {
    char *anything = join_path(folder, "%c", "");
    if (anything) ab_outfile_remove_stale(anything);
    free(anything);
}

/* Pictures that one process of gnuplot draws into NAME.FORMAT, which appear when all are complete: starting
 * it takes as long as drawing one. */
typedef struct drawing {
    int pages;
    char name[GROUP][FILE_NAME];
    ab_outfile picture[GROUP];
    ab_spawned gnuplot;
} drawing;

static ab_status close_pictures(drawing *d, int pages, ab_status status) {
    ab_status closed = status;
    for (int i = 0; i < pages; i++) {
        const ab_status own = ab_outfile_close(&d->picture[i], status);
        if (closed == AB_OK) closed = own;
    }
    return closed;
}

static ab_status open_pictures(const char *folder, const char *format, drawing *d) {
    char suffix[8];
    ab_text_exact(suffix, sizeof suffix, ".%s", format);
    for (int i = 0; i < d->pages; i++) {
        const ab_status status = open_file(folder, d->name[i], suffix, &d->picture[i]);
        if (status != AB_OK) return close_pictures(d, i, status);
    }
    return AB_OK;
}

/* The name that gnuplot, in the folder, writes the picture under. */
static const char *written_name(const ab_outfile *picture) {
    const char *path = picture->temporary ? picture->temporary : picture->path;
    return path + ab_folder_length(path);
}

/* Every script begins with nothing of those before it. */
static ab_status begin_pictures(const char *folder, const char *format, drawing *d) {
    enum { TEXT = 512, WORDS = 4 };
    static char program[] = "gnuplot", defaults[] = "-d", option[] = "-e", anew[] = "reset session";
    char text[GROUP][TEXT], *argv[2 + WORDS * GROUP + 1] = {program, defaults};
    for (int i = 0; i < d->pages; i++) {
        char *const page[WORDS] = {option, anew, option, text[i]};
        if (!ab_text_fits(text[i], TEXT, "format='%s'; to_file='%s'; load '%s.gp'; unset output", format,
                          written_name(&d->picture[i]), d->name[i]))
            return ab_fail(AB_OUTPUT, "%s: expected shorter names of pictures", folder);
        memcpy(argv + 2 + WORDS * i, page, sizeof page);
    }
    return start_gnuplot(folder, argv, &d->gnuplot);
}

/* Starts gnuplot. */
static ab_status begin_drawing(const char *folder, const char *format, drawing *d) {
    d->gnuplot = (ab_spawned){.pid = -1};
    AB_TRY(open_pictures(folder, format, d));
    const ab_status status = begin_pictures(folder, format, d);
    return status == AB_OK ? AB_OK : close_pictures(d, d->pages, status);
}

/* Waits for gnuplot. Whether the pictures are there. */
static bool end_drawing(drawing *d) {
    int state = 0;
    pid_t ended;
    do ended = waitpid(d->gnuplot.pid, &state, 0);
    while (ended < 0 && errno == EINTR);
    ab_spawn_done(&d->gnuplot);
    const bool drawn = ended > 0 && WIFEXITED(state) && WEXITSTATUS(state) == 0;
    return close_pictures(d, d->pages, drawn ? AB_OK : AB_INTERNAL) == AB_OK;
}

static void remove_log(const char *folder) {
    char *path = join_path(folder, "gnuplot", ".log");
    if (path) unlink(path);
    free(path);
}

/* Pictures in the making, the oldest first. */
typedef struct drawings {
    const char *folder, *format;
    drawing queue[AT_ONCE];
    int begun, ended, rendered, failed;
    bool missing; /* gnuplot is */
} drawings;

/* What fails in a group is not known: its pictures are then drawn one by one. */
static void draw_each(drawings *all, const drawing *group) {
    for (int i = 0; i < group->pages; i++) {
        drawing one = {.pages = 1};
        ab_text_exact(one.name[0], FILE_NAME, "%s", group->name[i]);
        const bool drawn =
            group->pages > 1 && begin_drawing(all->folder, all->format, &one) == AB_OK && end_drawing(&one);
        *(drawn ? &all->rendered : &all->failed) += 1;
    }
}

static void end_oldest(drawings *all) {
    drawing *d = &all->queue[all->ended++ % AT_ONCE];
    if (end_drawing(d))
        all->rendered += d->pages;
    else
        draw_each(all, d);
}

static void begin_next(drawings *all) {
    drawing *d = &all->queue[all->begun % AT_ONCE];
    if (d->pages == 0 || all->missing) return;
    if (begin_drawing(all->folder, all->format, d) == AB_OK) {
        all->begun++;
        if (all->begun - all->ended == AT_ONCE) end_oldest(all);
    } else {
        all->missing = d->gnuplot.missing;
        if (!all->missing) draw_each(all, d);
    }
    all->queue[all->begun % AT_ONCE].pages = 0;
}

static void add_page(drawings *all, const ab_plot *plot, int page, int group) {
    drawing *d = &all->queue[all->begun % AT_ONCE];
    ab_plot_page_name(plot, page, d->name[d->pages++]);
    if (d->pages == group) begin_next(all);
}

static void draw_all(const ab_plot *const *list, size_t count, const cJSON *document, const char *folder,
                     const char *format, int *rendered, const char **note) {
    drawings all = {.folder = folder, .format = format};
    int total = 0;
    for (size_t i = 0; i < count; i++) total += ab_plot_drawn_pages(list[i], document);
    const int group = total > 2 * GROUP ? GROUP : (total + 1) / 2; /* few pages: in two processes */
    for (size_t i = 0; i < count; i++)
        for (int page = 0, n = ab_plot_drawn_pages(list[i], document); page < n && !all.missing; page++)
            add_page(&all, list[i], page, group);
    begin_next(&all);
    while (all.ended < all.begun) end_oldest(&all);
    *rendered = all.rendered;
    if (all.missing)
        *note = "gnuplot was not found: the data and scripts were written, draw them with gnuplot later";
    else if (all.failed)
        *note = "gnuplot failed on at least one plot: see gnuplot.log beside the plots";
}

/* Scripts that are not drawn are for people, who find theirs among few; a page of HTML keeps none. */
static bool is_written(const ab_plot *plot, const cJSON *document, const char *format) {
    enum { SCRIPTS = 1000 };
    const bool few = cJSON_GetArraySize(ab_json_at(document, "cells")) <= SCRIPTS;
    return ab_plot_is_drawn(plot, document) || (few && strcmp(format, "png") == 0);
}

static ab_status write_pages(const ab_plot *plot, const cJSON *document, const char *folder) {
    ab_plot_input in;
    ab_status status;
    AB_TRY_GOTO(ab_plot_open(plot, document, &in));
    for (int page = 0; page < in.pages; page++) AB_TRY_GOTO(write_page(plot, &in, page, folder));
out:
    ab_plot_close(plot, &in);
    return status;
}

static ab_status write_list(const ab_plot *const *list, size_t count, const cJSON *document,
                            const char *folder, const char *format, int *rendered, const char **note) {
    *rendered = 0;
    *note = NULL;
    AB_TRY(ab_folder_make(folder));
    sweep(folder);
    for (size_t i = 0; i < count; i++)
        if (is_written(list[i], document, format)) AB_TRY(write_pages(list[i], document, folder));
    remove_log(folder);
    draw_all(list, count, document, folder, format, rendered, note);
    if (!*note) remove_log(folder); /* no error: the log holds warnings at most */
    return AB_OK;
}

ab_status ab_plots_write(const cJSON *document, const char *folder, int *rendered, const char **note) {
    return write_list(plots, AB_COUNT_OF(plots), document, folder, "png", rendered, note);
}

ab_status ab_plots_write_svg(const cJSON *document, const char *folder, int *rendered, const char **note) {
    return write_list(plots, AB_COUNT_OF(plots), document, folder, "svg", rendered, note);
}

ab_status ab_plot_write(const ab_plot *plot, const cJSON *document, const char *folder, int *rendered,
                        const char **note) {
    return write_list(&plot, 1, document, folder, "png", rendered, note);
}
