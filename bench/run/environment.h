/* This machine and this build, from an allow-list: nothing else of the environment is recorded. */
#ifndef AB_BENCH_RUN_ENVIRONMENT_H
#define AB_BENCH_RUN_ENVIRONMENT_H

#include "kernels/core/compiler.h"

#include <cjson/cJSON.h>

AB_BEGIN_DECLS

/* "generator" and "environment" of a record; owned by the caller; NULL if out of memory. */
cJSON *ab_environment_generator(void);
cJSON *ab_environment_machine(void);

/* FNV-1a 64 of the fields of both that must match for two records to be comparable, as 16 hex digits. */
void ab_environment_key(const cJSON *generator, const cJSON *machine, char key[17]);

/* Sets GOMP_SPINCOUNT=1000 for the workers unless the user chose a waiting policy: spinning libgomp threads
 * cost more on a busy machine than they save on an idle one. */
void ab_environment_prepare_workers(void);

AB_END_DECLS

#endif
