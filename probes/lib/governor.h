/* Decides what a step shows, so that the probe stays within its share of the caller's time.
 *
 * Every plain step earns budget * its time, less what steps that show nothing cost: most of it for gradients,
 * which are counted as often as that goes, the rest for steps that show layers. What is done is paid from its
 * account, as it was measured, so an estimate that was wrong is made up for later. Earned and spent are both
 * seconds of the monotonic clock: what another program takes from the processor lengthens both in the same
 * proportion, on average, and the share holds on a busy machine, too. The first steps are looked at in full,
 * and then gradients are counted, paid for or not, when a quarter more steps have gone by since they last
 * were: such steps grow in number with the logarithm of the steps, and so does what they cost. */
#ifndef AB_PROBES_LIB_GOVERNOR_H
#define AB_PROBES_LIB_GOVERNOR_H

#include "probes/lib/handle.h"

AB_BEGIN_DECLS

/* No account has anything yet; the first step shows everything. */
void ab_lib_governor_init(ampprobe *p);

/* Another optimizer takes the steps from here on: its first ones are looked at like a run's. Of stages that
 * are short, or many, no more is looked at than of one. */
void ab_lib_governor_stage(ampprobe *p);

/* Steps of group 0 that have ended, those that are held for their counts (ending.h) too. */
int64_t ab_lib_ended(const ampprobe *p);

/* Every how many-th block of `values` gradient values is to be counted at this step: 1 or a power of two; 0:
 * none.
 */
int32_t ab_lib_governor_stride(const ampprobe *p, int64_t values);

/* A call for gradients took `seconds` for `counted` values; a call for anything else took `seconds`. */
void ab_lib_governor_gradients(ampprobe *p, double seconds, int64_t counted);
void ab_lib_governor_other(ampprobe *p, double seconds);

/* `seconds` went into a step whose plan was `shown` outside calls that show something: the cost of what it
 * showed. */
void ab_lib_governor_outside(ampprobe *p, double seconds, int shown);

/* The same of the seconds that the caller took, from which what a step with gradients costs is learned. */
void ab_lib_governor_caller(ampprobe *p, double seconds, int shown);

/* A step of group 0 ended that took the caller `seconds` without the probe; `layers`: it showed its layers.
 * Sets what the next step shows. */
void ab_lib_governor_step(ampprobe *p, double seconds, bool layers, bool skipped);

AB_END_DECLS

#endif
