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
  memory   of the process, more than before attach(), in MiB
Usage: peer_probe.py [--network mlp|gpt|resnet20]... [--eager] [--compile]
       [--arms "again delay probe anomaly histc"] [--delay US] [--starts N] [--seconds S] [--steps N]
       [--write]
--network: one of them, may be repeated; default: all. --eager, --compile: only that kind; default: both.
--arms: default all but delay. detect_anomaly and hooks change what torch.compile compiles, so a compiled
model has no such arms. --delay: 20.
--seconds: of a network of a kind, all starts together; without it 150 (mlp, gpt), 200 (resnet20). How
long all of it takes is said when it begins. --starts: 6 eager, 5 compiled.
--write: puts each network of a kind into docs/measured/probe_cost.json as soon as it is measured, and the
table into docs/pytorch.md; not on a busy machine. What was written stays when it is interrupted.
"""

import argparse
import datetime
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
EAGER_ONLY = probe_arms.DEAR
SECONDS = {"mlp": 150, "gpt": 150, "resnet20": 200}
STARTS = {"eager": 6, "compiled": 5}
BEGINNING = {"eager": 10, "compiled": 30}  # seconds until a start measures, about
INTERRUPTED = 130


def row_of(name, results, steps):
    """The numbers of an arm."""
    starts = [result["rounds"] for result in results]
    off = probe_estimate.step_ns(starts)
    plain, interval = probe_estimate.plain(starts, name)
    row = {"arm": name, "step_ns": off, "plain": plain, "interval": interval}
    row["wall"] = probe_estimate.plain(starts, name, "wall")[0]
    return {**row, **whole_run(row, results, steps)} if name == "probe" else row


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
        "memory_bytes": max(probe["memory_bytes"] for probe in probes),
        "governor": own["probe_seconds"] / own["run_seconds"],
    }


def arms_of(kind, options):
    """The arms that a kind has."""
    return [name for name in options.arms.split() if kind == "eager" or name not in EAGER_ONLY]


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
    task = {"net": net, "kind": kind, "names": arms_of(kind, options), "seconds": seconds}
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
    where = {"cpu": processor(), "torch": results[-1]["torch"], "date": str(datetime.date.today())}
    names = arms_of(kind, options)
    return [{"net": net, "kind": kind, **row_of(name, results, options.steps), **where} for name in names]


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
    whole = sum(
        seconds_of(net, options) + starts_of(kind, options) * BEGINNING[kind] for net, kind in chosen(options)
    )
    return max(1, round(whole / 60))


def found_delay(row, options):
    """In words, whether a delay of known size was found."""
    found, low, high = ((ratio - 1) * row["step_ns"] * 1e-3 for ratio in (row["plain"], *row["interval"]))
    return f"a delay of {options.delay:g} us was found as {found:.1f} ({low:.1f} to {high:.1f})"


def measure_all(options):
    """Prints the rows of each network of each kind when they are there; whether all could be measured."""
    good = True
    for net, kind in chosen(options):
        try:
            found = measure(net, kind, options)
        except (SystemExit, ValueError) as error:  # the others are measured all the same
            print(f"peer_probe: {net}, {kind}: {error}", file=sys.stderr, flush=True)
            good = False
            continue
        print(*map(probe_costs.line_of, found), sep="\n", flush=True)
        for row in found:
            if row["arm"] == "delay":
                print(found_delay(row, options), flush=True)
        if options.write:
            probe_costs.keep(ROOT, [row for row in found if row["arm"] != "delay"], options.steps)
            probe_costs.put(ROOT)
    return good


def options_of():
    parser = argparse.ArgumentParser()
    parser.add_argument("--network", action="append", choices=probe_arms.NETS)
    for kind, option in zip(KINDS, ("--eager", "--compile")):
        parser.add_argument(option, dest="kinds", action="append_const", const=kind)
    parser.add_argument("--arms", default="again probe anomaly histc")
    parser.add_argument("--delay", type=float, default=20)
    parser.add_argument("--starts", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--steps", type=int, default=1000)
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
    print(*probe_costs.head_of(options.steps), sep="\n")
    try:
        good = measure_all(options)
    except KeyboardInterrupt:
        print("peer_probe: interrupted; the rows above are kept", file=sys.stderr)
        sys.exit(INTERRUPTED)
    if not good:
        sys.exit(1)


if __name__ == "__main__":
    main()
