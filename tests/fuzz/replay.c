/* Runs a fuzz target over the files of folders, in the order of their names: the stored inputs as an ordinary
 * test, for compilers without libFuzzer. Usage: replay TARGET FOLDER... Fails when there is nothing to run.
 */
#define _POSIX_C_SOURCE 200809L

#include "tests/fuzz/fuzz.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void target_function(const uint8_t *data, size_t size);

static target_function *find_target(const char *name) {
#define AB_FUZZ_TARGET(target, mutator, most, text)                                                          \
    if (strcmp(name, #target) == 0) return fuzz_##target;
#include "tests/fuzz/targets.def"
#undef AB_FUZZ_TARGET
    return NULL;
}

/* The input is exactly as long as its block, so that the address sanitizer sees a read past its end. */
static int replay_file(const char *path, target_function *target) {
    FILE *in = fopen(path, "rb");
    if (!in || fseek(in, 0, SEEK_END) != 0) return -1;
    long size = ftell(in);
    rewind(in);
    uint8_t *data = malloc(size > 0 ? (size_t)size : 1);
    int failed = !data || fread(data, 1, (size_t)size, in) != (size_t)size;
    fclose(in);
    fuzz_sandbox(true);
    if (!failed) target(data, (size_t)size);
    fuzz_finish();
    free(data);
    return failed ? -1 : 0;
}

static int visible(const struct dirent *entry) { return entry->d_name[0] != '.'; }

static int replay_folder(const char *folder, target_function *target, int *runs) {
    struct dirent **names = NULL;
    int count = scandir(folder, &names, visible, alphasort), failed = count < 0;
    for (int i = 0; i < count; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]->d_name);
        if (replay_file(path, target) != 0) {
            fprintf(stderr, "cannot read %s\n", path);
            failed = 1;
        }
        ++*runs;
        free(names[i]);
    }
    free(names);
    return failed;
}

/* Targets print to where the program does: to nowhere here. */
static void silence(void) {
    int nowhere = open("/dev/null", O_WRONLY);
    if (nowhere >= 0) dup2(nowhere, STDOUT_FILENO);
    setenv("PATH", "", 1); /* no gnuplot */
}

int main(int argc, char **argv) {
    int runs = 0, failed = 0;
    target_function *target = argc > 1 ? find_target(argv[1]) : NULL;
    if (!target) {
        fprintf(stderr, "usage: replay TARGET FOLDER...: no target %s\n", argc > 1 ? argv[1] : "");
        return 2;
    }
    silence();
    for (int i = 2; i < argc; i++) failed |= replay_folder(argv[i], target, &runs);
    fprintf(stderr, "%d inputs\n", runs);
    return failed || runs == 0;
}
