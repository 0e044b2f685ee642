"""Arms of a comparison of step times, taken in turns: other load on the machine meets all of them alike.

An arm has `step()`, which appends nanoseconds to its list `times`, and `warmup`, the number of steps that do
not count. Used by peer_pytorch.py and peer_jax.py; scripts/bench reads what they print.
"""
import statistics
import sys

SLOW = 4  # times the seconds of an arm: beyond that it ends with its first timed step


def is_done(arm, seconds, max_steps):
    """After max_steps timed steps, or 3 once they took `seconds`. A slow arm takes two steps in all."""
    taken = sum(arm.times) * 1e-9
    if taken > SLOW * seconds:
        arm.warmup = min(arm.warmup, 1)
    timed = arm.times[arm.warmup:]
    if taken > SLOW * seconds and timed:
        return True
    return len(timed) >= max_steps or (len(timed) >= 3 and sum(timed) > seconds * 1e9)


def take_turns(arms, seconds, max_steps):
    """Returns the arms that could be timed; what stopped another is said on stderr."""
    waiting, stopped = list(arms), []
    while waiting:
        for arm in list(waiting):
            try:
                arm.step()
            except (RuntimeError, NotImplementedError) as error:
                print(f"{arm.mode} cannot be timed: {error}", file=sys.stderr)
                stopped.append(arm)
            if arm in stopped or is_done(arm, seconds, max_steps):
                waiting.remove(arm)
    return [arm for arm in arms if arm not in stopped]


def result_of(arm, **about):
    times = arm.times[arm.warmup:]
    return {**about, "warmup_steps": arm.warmup, "step_time_ns": times,
            "median_step_time_ns": statistics.median(times), "first_loss": arm.first_loss}
