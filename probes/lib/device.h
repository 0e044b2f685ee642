/* Tensors in CUDA memory: the plugin that counts them (kernels/census/shown.h), opened when the first one is
 * shown, and the tensors that a GPU is counting. libampprobe itself links to nothing of CUDA. */
#ifndef AB_PROBES_LIB_DEVICE_H
#define AB_PROBES_LIB_DEVICE_H

#include "kernels/census/census_counts.h"
#include "probes/lib/handle.h"

AB_BEGIN_DECLS

/* Tensors of one call that are counted together, on one GPU and stream. */
typedef struct ab_lib_flight {
    struct ab_shown *shown; /* NULL: the GPU refused */
    ab_lib_call call;
    int32_t count;
    ampprobe_tensor *tensor; /* owned copies */
    int32_t *place;          /* owned: of each in the caller's array */
} ab_lib_flight;

/* Why tensors in CUDA memory cannot be counted, static storage; NULL: they can. */
const char *ab_lib_device_missing(void);

/* Whether a readable tensor's values are in a GPU's memory. */
bool ab_lib_device_has(const ampprobe_tensor *tensor);

/* Begins to count the readable tensors of a call that are in CUDA memory, `every` and `turn` as of
 * ab_lib_census, and returns: *list (owned, NULL if there are none) of *flights. A tensor that is being
 * counted has its `counted`; one that cannot be is skipped, with the reason as the thread's last message.
 * *exact: non-finite values of all those counted will be known. */
AB_MUST_CHECK ab_status ab_lib_device_begin(const ab_lib_call *call, int32_t every, int64_t turn,
                                            ampprobe_tensor *tensors, int32_t count, ab_lib_flight **list,
                                            int32_t *flights, bool *exact);

/* Waits for the counts. *seconds: what they took on the GPU. */
AB_MUST_CHECK ab_status ab_lib_device_wait(ab_lib_flight *flight, double *seconds);

/* The counts of tensor i, after `wait`: its `counted` and `nonfinite`, and the census. */
void ab_lib_device_answer(const ab_lib_flight *flight, int32_t i, ampprobe_tensor *tensor, ab_census *census);

/* Frees a flight; `own`: in the process that began it, after `wait`. */
void ab_lib_device_end(ab_lib_flight *flight, bool own);

/* ab_lib_pick of a tensor in CUDA memory; waits. */
AB_MUST_CHECK ab_status ab_lib_device_pick(const ampprobe_tensor *tensor, int64_t first, int64_t step,
                                           int64_t n, float *values);

AB_END_DECLS

#endif
