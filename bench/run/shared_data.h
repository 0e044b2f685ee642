/* A loaded data set handed from the parent to its workers through an anonymous file, so that sixty thousand
 * images are unpacked once per run and not once per cell. */
#ifndef AB_BENCH_RUN_SHARED_DATA_H
#define AB_BENCH_RUN_SHARED_DATA_H

#include "bench/data/data.h"

AB_BEGIN_DECLS

/* Describes `data` in an anonymous file that survives exec, as its blocks do. *fd is the caller's to close.
 */
AB_MUST_CHECK ab_status ab_shared_data_create(const ab_data *data, int *fd);

/* Maps it read-only. The mapping lives until the process ends; do not pass *data to ab_data_close. */
AB_MUST_CHECK ab_status ab_shared_data_map(int fd, ab_data *data);

AB_END_DECLS

#endif
