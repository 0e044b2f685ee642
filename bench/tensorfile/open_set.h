/* Opens a file or a folder as one set of tensors. */
#ifndef AB_BENCH_TENSORFILE_OPEN_SET_H
#define AB_BENCH_TENSORFILE_OPEN_SET_H

#include "bench/tensorfile/tensorfile.h"

AB_BEGIN_DECLS

/* As ab_tensorfile_open; of the model states of DeepSpeed's ZeRO with the partitions beside them (zero.h); of
 * a folder its .metadata (torch.distributed.checkpoint), its index of shards (*.index.json), or else the only
 * tensor file in it. AB_INPUT if there is none of these. */
AB_MUST_CHECK ab_status ab_tensorfile_open_set(const char *path, ab_tensorfile **file);

AB_END_DECLS

#endif
