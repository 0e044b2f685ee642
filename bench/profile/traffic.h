/* What the passes of a step read and write, by how far back the step last touched it (reuse.h). Exact over
 * the plan's layout of memory; libraries' and ops' workspace is not in it. */
#ifndef AB_BENCH_PROFILE_TRAFFIC_H
#define AB_BENCH_PROFILE_TRAFFIC_H

#include "bench/profile/limits.h"
#include "bench/profile/work.h"

AB_BEGIN_DECLS

/* The operands of a step of a plan. node, part: call `visit` for those of a pass of node n, and of a part
 * (ab_timed_pass and ab_timed_part of step_times.h). of: theirs. */
typedef struct ab_step_operands {
    const ab_plan *plan;
    void (*node)(const void *of, int n, int pass, ab_work_operand visit, void *context);
    void (*part)(const void *of, int part, ab_work_operand visit, void *context);
    const void *of;
} ab_step_operands;

/* *traffic: of pass p of node n at [n * AB_TIMED_PASSES + p], then of the parts; the caller frees it, also
 * after an error. AB_NO_MEMORY. */
AB_MUST_CHECK ab_status ab_step_traffic(const ab_step_operands *step, ab_traffic **traffic);

AB_END_DECLS

#endif
