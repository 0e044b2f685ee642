/* Decides what a step shows, so that the probe stays within its share of the caller's time.
 *
 * Every plain step earns budget * its time, less what steps that show nothing cost: most of it for gradients,
 * which are counted as often as that goes, the rest for steps that show layers. What is done is paid from its
 * account, as it was measured, so an estimate that was wrong is made up for later. Earned and spent are both
 * seconds of the monotonic clock: what another program takes from the processor lengthens both in the same
 * proportion, on average, and the share holds on a busy machine, too.
 *
 * The first steps are looked at whatever they cost: on credit. Layers at steps 0, 1, 3, 7 and 15, from 1024
 * on at the latest when there are four times as many steps; gradients at steps 0 to 3, then with the layers,
 * and from step 16 on when a quarter more steps have gone by since they last were. Such steps grow in number
 * with the logarithm of the steps, and so does what they cost. What they and attaching have cost is owed:
 * while that, all of it, is more than AB_LIB_OWES times the budget of the run so far, gradients that are not
 * paid for wait from step 64 on until there are twice as many steps. Nothing waits in a run that may be sick:
 * if a step of its second half was skipped, or had a loss or gradients that are not finite. A step of t
 * seconds without the probe pays back (AB_LIB_OWES * budget - q) * t, where q is what the probe takes of
 * every step: first steps that cost F are paid after F / (t * (AB_LIB_OWES * budget - q)) steps, of a
 * millisecond about a thousand, of 50 ms about two hundred. */
#ifndef AB_PROBES_LIB_GOVERNOR_H
#define AB_PROBES_LIB_GOVERNOR_H

#include "probes/lib/handle.h"

AB_BEGIN_DECLS

/* Times the budget that may have been spent before something waits; steps of a stage that are looked at as
 * often whatever it costs. */
#define AB_LIB_OWES 2.0
enum { AB_LIB_DEAR_STEPS = 64 };

/* Whether that was spent: `cost` seconds in a run of `run` seconds. */
bool ab_lib_governor_owes(double budget, double cost, double run);

/* No account has anything yet; the first step shows everything. */
void ab_lib_governor_init(ampprobe *p);

/* Another optimizer takes the steps from here on: its first ones are looked at like a run's. Of stages that
 * are short, or many, no more is looked at than of one. */
void ab_lib_governor_stage(ampprobe *p);

/* The step that ended last was skipped, or had values that are not finite. */
void ab_lib_governor_sick(ampprobe *p);

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
