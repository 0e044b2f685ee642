/* Opens and closes the output of a document. */
#include "reports/record/output.h"

#include <string.h>

FILE *ab_output_open(const char *path) { return strcmp(path, "-") == 0 ? stdout : fopen(path, "wb"); }

bool ab_output_close(FILE *out) {
    bool failed = ferror(out) != 0;
    if (out != stdout) failed = fclose(out) != 0 || failed;
    return !failed;
}
