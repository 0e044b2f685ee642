/* A loaded data set passed from the parent to its workers through an anonymous file, so that sixty thousand
 * images are unpacked once per run instead of once per cell. */
#ifndef AB_BENCH_RUN_SHARED_DATA_H
#define AB_BENCH_RUN_SHARED_DATA_H

#include "bench/data/data.h"

AB_BEGIN_DECLS

/* Describes `data` in an anonymous file that survives exec, as its blocks do. The caller closes *fd. */
AB_MUST_CHECK ab_status ab_shared_data_create(const ab_data *data, int *fd);

/* Maps it read-only. The mapping remains until the process ends; *data must not be passed to ab_data_close.
 */
AB_MUST_CHECK ab_status ab_shared_data_map(int fd, ab_data *data);

AB_END_DECLS

#endif
