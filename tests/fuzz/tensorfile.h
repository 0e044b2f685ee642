/* What the fuzz targets of the tensor file readers share. */
#ifndef AB_TESTS_FUZZ_TENSORFILE_H
#define AB_TESTS_FUZZ_TENSORFILE_H

#include <stddef.h>
#include <stdint.h>

/* Opens the bytes as a file called `path` (its suffix chooses the reader where the first bytes do not), lists
 * it and reads every tensor. Aborts when something that was accepted contradicts itself. */
void fuzz_tensorfile(const char *path, const uint8_t *data, size_t size);

#endif
