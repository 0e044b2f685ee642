"""What ampprobe adds to a step of PyTorch.

Every network of a kind is trained by a few processes after each other; in each of them all arms train one
model in turns, in blocks of 0.05 seconds (scripts/probe_arms.py), and only blocks of one round are compared
(scripts/probe_estimate.py). Intervals (95 %) are of the processes' results, which differ by where their
memory lies. The arm `again` is nothing, a second time: where 1 is not within its interval, or that is wide,
the machine is too busy. Arms: off (nothing); again (the same); probe (its defaults); anomaly (autograd's
detect_anomaly); histc (a hook as W&B's watch has); delay (so many microseconds of work, which are found if
the numbers are right). Prints:
  plain    steps of an arm / those of off and again. Of the probe: steps that show nothing
  other    what steps that show gradients or layers, or hand facts over, take more: percent of all time
  first    what attach() and the 16 steps after it take more, in milliseconds: layers are looked at in steps
           0, 1, 3, 7 and 15 of any run. Of processes that have not run the probe before: their median
  run      a run of --steps steps / one without: first ones, and plain and other ones after them (those of its
           first --steps steps, where it came so far: they are most frequent at first)
  long     the same of a run without end
With --memory it measures nothing but memory, on a machine that may be busy: processes with and without the
probe in turns (scripts/probe_memory.py), both of which give free memory back at once, and prints:
  peak     the most that a process without the probe had in memory: median
  probe    what one with it had more than the one without it before it: median and interval (95 %)
  again    what one without it had more than the one before it, which is not the probe's
Usage: peer_probe.py [--network mlp|gpt|resnet20]... [--eager] [--compile]
       [--arms "again delay probe anomaly histc"] [--delay US] [--starts N] [--seconds S] [--steps N]
       [--memory] [--write]
--network: one of them, may be repeated; default: all. --eager, --compile: only that kind; default: both.
--arms: default all. detect_anomaly and hooks change what torch.compile compiles, so a compiled model has no
such arms, nor has gpt; delay is an arm of the eager mlp, whose steps are short. --delay: 20.
How to check the numbers: `--network mlp --eager --arms "again delay probe"`. Where they are right, 20
microseconds are found as 20 and `again` as 1, each within its interval. A run with the default arms holds
that check: its row `delay` goes into the file and the table.
--seconds: of a network of a kind, all starts together; without it 170 (mlp), 120 (gpt), 170 (resnet20). How
long all of it takes is said when it begins. --starts: 6 eager, 5 compiled; with --memory pairs of processes,
5.
--write: puts each network of a kind into docs/measured/probe_cost.json as soon as it is measured, and the
table into docs/pytorch.md; not on a busy machine. What was written stays when it is interrupted.
"""

import argparse
import datetime
import importlib.metadata
import json
import os
import re
import signal
import statistics
import subprocess
import sys

import probe_arms
import probe_costs
import probe_estimate

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..")
KINDS = ("eager", "compiled")
ARMS = "again delay probe anomaly histc"
EAGER_ONLY = probe_arms.DEAR
SECONDS = {"mlp": 170, "gpt": 120, "resnet20": 170}
STARTS = {"eager": 6, "compiled": 5}
BEGINNING = {"eager": 10, "compiled": 30}  # seconds until a start measures, about
INTERRUPTED = 130
PAIRS, PEAK_STEPS = 5, 40  # of processes whose peaks are compared; their steps
# Both processes give blocks of 64 KiB and more back when they are freed: glibc's own choice of what to keep
# moves the peak of a process without a probe by 9 MiB.
GIVE_BACK = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}


def row_of(name, results, steps):
    """The numbers of an arm."""
    starts = [result["rounds"] for result in results]
    off = probe_estimate.step_ns(starts)
    plain, interval = probe_estimate.plain(starts, name)
    row = {"arm": name, "step_ns": off, "plain": plain, "interval": interval}
    row["wall"] = probe_estimate.plain(starts, name, "wall")[0]
    return {**row, **whole_run(row, results, steps)} if name == "probe" else row


def with_delay(row, options):
    """The row of the planted delay: how long it was, and as how long it was found."""
    low, high = (round((ratio - 1) * row["step_ns"]) for ratio in row["interval"])
    found = round((row["plain"] - 1) * row["step_ns"])
    return {**row, "delay_ns": round(options.delay * 1000), "found_ns": found, "found_interval": [low, high]}


def whole_run(row, results, steps):
    """What a run costs: of the probe only."""
    starts, plain, off = [result["rounds"] for result in results], row["plain"], row["step_ns"]
    probes = [result["probe"] for result in results]
    others = probe_estimate.others(starts, "probe", plain)
    kinds, made = probe_estimate.by_kind(others), probe_estimate.made(starts, "probe")
    other = sum(count * more for count, more in kinds.values()) / made
    first = statistics.median(probe["first_ns"] for probe in probes)
    early = other * (steps - probe_arms.FIRST)
    if all(probe["steps"] >= steps for probe in probes):
        early = sum(more for _, step, more in others if step < steps) / len(probes)
    own = {name: sum(probe["own"][name] for probe in probes) for name in ("probe_seconds", "run_seconds")}
    return {
        "other": other,
        "kinds": kinds,
        "steps": made,
        "first_ns": first,
        "run": 1 + (first / off + (plain - 1) * (steps - probe_arms.FIRST) + early) / steps,
        "long": plain + other,
        "governor": own["probe_seconds"] / own["run_seconds"],
    }


def arms_of(net, kind, options):
    """The arms that a network has of a kind."""
    named = options.arms is not None
    left_out = set() if kind == "eager" and (named or net != "gpt") else set(EAGER_ONLY)
    if not named and (net, kind) != ("mlp", "eager"):
        left_out.add("delay")
    return [name for name in (options.arms or ARMS).split() if name not in left_out]


def starts_of(kind, options):
    """How many processes."""
    return options.starts or STARTS[kind]


def seconds_of(net, options):
    """How long a network of a kind is measured, all starts together."""
    return options.seconds or SECONDS[net]


def start(net, kind, number, options):
    """What one process has measured."""
    count = starts_of(kind, options)
    seconds = seconds_of(net, options) / count
    begins = f"peer_probe: {net}, {kind}: start {number + 1} of {count}: {seconds:.0f} s"
    print(begins, file=sys.stderr, flush=True)
    task = {"net": net, "kind": kind, "names": arms_of(net, kind, options), "seconds": seconds}
    task["options"] = {"start": number, "delay": options.delay}
    command = [sys.executable, "-W", "ignore", __file__, "--worker", json.dumps(task)]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if said.returncode:
        raise SystemExit(f"a process ended with {said.returncode}")
    result = json.loads(said.stdout.splitlines()[-1])
    if result["probe"].get("failure"):
        raise SystemExit(result["probe"]["failure"])
    return result


def measure(net, kind, options):
    """Several processes after each other; rows of the arms."""
    results = [start(net, kind, number, options) for number in range(starts_of(kind, options))]
    where = place_of(results[-1]["torch"])
    rows = [row_of(name, results, options.steps) for name in arms_of(net, kind, options)]
    rows = [with_delay(row, options) if row["arm"] == "delay" else row for row in rows]
    return [{"net": net, "kind": kind, **row, **where} for row in rows]


def place_of(torch):
    """Where and when something was measured."""
    return {"cpu": processor(), "torch": torch, "date": str(datetime.date.today())}


def peak(net, kind, arm):
    """What one process had in memory."""
    script = os.path.join(HERE, "probe_memory.py")
    command = [sys.executable, "-W", "ignore", script, net, kind, arm, str(PEAK_STEPS)]
    where = {**os.environ, **GIVE_BACK}
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env=where)
    if said.returncode:
        raise SystemExit(f"a process ended with {said.returncode}")
    return json.loads(said.stdout.splitlines()[-1])


def measure_memory(net, kind, options):
    """Pairs of processes, each in the other order than the one before; the row of their peaks."""
    pairs, held = {"off": [], "probe": []}, 0
    warm = 1 if kind == "compiled" else 0  # the first ones fill the compiler's cache, and are left out
    for number in range(-warm, options.starts or PAIRS):
        print(f"peer_probe: {net}, {kind}: pair {number + 1}", file=sys.stderr, flush=True)
        for arm in ("off", "probe") if number % 2 else ("probe", "off"):
            said = peak(net, kind, arm)
            if number >= 0:
                pairs[arm].append(said["peak_bytes"])
            held = max(held, said["held_bytes"])
    found = probe_estimate.peaks(pairs["off"], pairs["probe"])
    row = {"net": net, "kind": kind, "peak_bytes": statistics.median(pairs["off"]), "held_bytes": held}
    for arm, (median, interval) in found.items():
        row.update({f"{arm}_bytes": median, f"{arm}_interval": interval})
    return [{**row, "pairs": len(pairs["off"]), **place_of(importlib.metadata.version("torch"))}]


def processor():
    """The name of the CPU."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        found = re.search(r"^model name\s*: (.*)", file.read(), re.M)
    return found[1] if found else "unknown"


def chosen(options):
    """Networks and kinds that are measured."""
    nets, kinds = options.network or probe_arms.NETS, options.kinds or KINDS
    return [(net, kind) for net in nets for kind in kinds]


def minutes_of(options):
    """How long all of it takes, about."""
    if options.memory:
        pairs = 2 * ((options.starts or PAIRS) + 1)
        return max(1, round(sum(pairs * BEGINNING[kind] for _, kind in chosen(options)) / 60))
    whole = sum(
        seconds_of(net, options) + starts_of(kind, options) * BEGINNING[kind] for net, kind in chosen(options)
    )
    return max(1, round(whole / 60))


def measure_all(options):
    """Prints the rows of each network of each kind when they are there; whether all could be measured."""
    good = True
    for net, kind in chosen(options):
        try:
            found = (measure_memory if options.memory else measure)(net, kind, options)
        except (SystemExit, ValueError) as error:  # the others are measured all the same
            print(f"peer_probe: {net}, {kind}: {error}", file=sys.stderr, flush=True)
            good = False
            continue
        line_of = probe_costs.memory_line_of if options.memory else probe_costs.line_of
        print(*map(line_of, found), sep="\n", flush=True)
        if options.write and options.memory:
            probe_costs.keep_memory(ROOT, found)
        elif options.write:
            probe_costs.keep(ROOT, found, options.steps)
        if options.write:
            probe_costs.put(ROOT)
    return good


def options_of():
    parser = argparse.ArgumentParser()
    parser.add_argument("--network", action="append", choices=probe_arms.NETS)
    for kind, option in zip(KINDS, ("--eager", "--compile")):
        parser.add_argument(option, dest="kinds", action="append_const", const=kind)
    parser.add_argument("--arms")
    parser.add_argument("--delay", type=float, default=20)
    parser.add_argument("--starts", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--worker")
    return parser.parse_args()


def stopped(number, _):
    """A signal that ends a program ends it as Ctrl-C does."""
    raise KeyboardInterrupt(number)


def main():
    options = options_of()
    if options.worker:
        print(json.dumps(probe_arms.measure(**json.loads(options.worker))))
        return
    signal.signal(signal.SIGTERM, stopped)
    print(f"peer_probe: about {minutes_of(options)} minutes", file=sys.stderr, flush=True)
    head = probe_costs.memory_head() if options.memory else probe_costs.head_of(options.steps)
    print(*head, sep="\n")
    try:
        good = measure_all(options)
    except KeyboardInterrupt:
        print("peer_probe: interrupted; the rows above are kept", file=sys.stderr)
        sys.exit(INTERRUPTED)
    if not good:
        sys.exit(1)


if __name__ == "__main__":
    main()
