"""What an arm adds to a step, from the times of short blocks of steps that took turns. Pure arithmetic.

A round holds one block of every arm; a block the times of its steps, in order: {"plain": [ns, ...], "wall":
[ns, ...], "other": [[kind, step, ns], ...]}. What disturbs a machine for longer than a round (its clock rate,
its neighbours) is the same in all blocks of the round, so only they are compared, as logarithms of ratios.
What lasts as long as a process (where its memory lies) differs from start to start: an interval is of the
starts' own results (Student's t, 95 %), and with one start of its rounds.

Memory is of pairs of processes: medians, with the interval of ranks that holds a median in 95 % of cases.
"""

import math
import statistics

BASES = ("off", "again")  # nothing is added; `again` is compared with `off`, all others with both
T95 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)  # of 1 to 9 degrees of freedom


def middle(values, low=0.1, high=0.9):
    """Mean of what lies between two quantiles; of a few: their median."""
    if len(values) < 5:
        return statistics.median(values)
    ranked = sorted(values)
    return statistics.mean(ranked[int(low * len(values)) : math.ceil(high * len(values))])


def ratio_of(turn, name, clock):
    """Logarithm of an arm's plain step / one without anything, in one round. None: no plain step was made."""
    bases = [base for base in BASES if base in turn and base != name]
    blocks = [turn[arm][clock] for arm in (name, *(bases if name != "again" else ["off"]))]
    if not all(blocks):
        return None
    own, *others = [math.log(middle(block)) for block in blocks]
    return own - statistics.mean(others)


def ratios_of(rounds, name, clock):
    """That of every round in which the arm took part."""
    found = [ratio_of(turn, name, clock) for turn in rounds if name in turn]
    return [ratio for ratio in found if ratio is not None]


def spread(values):
    """Half the interval of their mean."""
    if len(values) < 2:
        return math.inf
    factor = T95[len(values) - 2] if len(values) - 2 < len(T95) else 2.0
    return factor * statistics.stdev(values) / math.sqrt(len(values))


def plain(starts, name, clock="plain"):
    """A plain step of an arm / one without anything, and its interval; `starts`: the rounds of each."""
    rounds = [ratios_of(start, name, clock) for start in starts]
    if not all(rounds):
        raise ValueError(f"{name} has a start without plain steps")
    values = [middle(ratios) for ratios in rounds]
    half = spread(values if len(values) > 1 else rounds[0])
    mean = statistics.mean(values)
    return math.exp(mean), [math.exp(mean - half), math.exp(mean + half)]


def median_of(values):
    """A median, and the ranks between which it lies in at least 95 % of cases, whatever the distribution; of
    fewer than six values the least and the most, which hold it in fewer."""
    ranked, count, out, tail = sorted(values), len(values), 0, 0.0
    while out < (count - 1) // 2 and (tail := tail + math.comb(count, out) / 2**count) <= 0.025:
        out += 1
    low = max(0, out - 1)
    return statistics.median(ranked), [ranked[low], ranked[count - 1 - low]]


def peaks(without, probed):
    """What a probe adds to peaks of processes that were run in turns, and what the next process without one
    adds to the one before: median and interval of each."""
    again = [later - earlier for earlier, later in zip(without, without[1:])]
    return {
        "probe": median_of([more - less for less, more in zip(without, probed)]),
        "again": median_of(again or [0]),
    }


def step_ns(starts, name="off"):
    """What a plain step takes."""
    return statistics.median(
        middle(turn[name]["plain"]) for start in starts for turn in start if turn.get(name, {}).get("plain")
    )


def others(starts, name, plain_ratio):
    """Steps that are not plain: kind, number in the run, and what they take more than a plain step of this
    arm, in steps without anything."""
    found = []
    for turn in (turn for start in starts for turn in start if name in turn):
        off = middle(turn["off"]["plain"])
        found += [(kind, step, took / off - plain_ratio) for kind, step, took in turn[name]["other"]]
    return found


def by_kind(rows):
    """Of each kind how many steps, and what one takes more."""
    kinds = {}
    for kind, _, more in rows:
        kinds.setdefault(kind, []).append(more)
    return {kind: [len(more), middle(more)] for kind, more in sorted(kinds.items())}


def made(starts, name):
    """How many steps an arm has made in its blocks."""
    blocks = [turn[name] for start in starts for turn in start if name in turn]
    return sum(len(block["plain"]) + len(block["other"]) for block in blocks)
