/* Environments of other programs. */
#ifndef AB_SPAWN_VARIABLES_H
#define AB_SPAWN_VARIABLES_H

#include "kernels/core/compiler.h"

AB_BEGIN_DECLS

/* This process's environment without the variables whose names begin with `dropped` (NULL: none), and with
 * `added` ("NAME=VALUE", ends with NULL), which replace variables of the same name. Ends with NULL; NULL: out
 * of memory. The caller frees the array only: the texts are those of `added` and of this process. */
AB_MUST_CHECK char **ab_variables_new(const char *dropped, char *const *added);

AB_END_DECLS

#endif
