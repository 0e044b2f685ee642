/* Runs a fuzz target over the files of folders, in the order of their names: the seed corpus as an ordinary
 * test, for compilers without libFuzzer. Usage: replay FOLDER... Fails when there is nothing to run. */
#define _POSIX_C_SOURCE 200809L

#include "tests/fuzz/fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

/* The input is exactly as long as its block, so that the address sanitizer sees a read past its end. */
static int replay_file(const char *path) {
    FILE *in = fopen(path, "rb");
    if (!in || fseek(in, 0, SEEK_END) != 0) return -1;
    long size = ftell(in);
    rewind(in);
    uint8_t *data = malloc(size > 0 ? (size_t)size : 1);
    int failed = !data || fread(data, 1, (size_t)size, in) != (size_t)size;
    fclose(in);
    if (!failed) LLVMFuzzerTestOneInput(data, (size_t)size);
    free(data);
    return failed ? -1 : 0;
}

static int visible(const struct dirent *entry) { return entry->d_name[0] != '.'; }

static int replay_folder(const char *folder, int *runs) {
    struct dirent **names = NULL;
    int count = scandir(folder, &names, visible, alphasort), failed = count < 0;
    for (int i = 0; i < count; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]->d_name);
        if (replay_file(path) != 0) {
            fprintf(stderr, "cannot read %s\n", path);
            failed = 1;
        }
        ++*runs;
        free(names[i]);
    }
    free(names);
    return failed;
}

int main(int argc, char **argv) {
    int runs = 0, failed = 0;
    for (int i = 1; i < argc; i++) failed |= replay_folder(argv[i], &runs);
    printf("%d inputs\n", runs);
    return failed || runs == 0;
}
