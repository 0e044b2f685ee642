#!/usr/bin/env python3
"""scripts/bench ranks: what two ranks of MPI do to each other's speed on a busy machine.

Two processors have a busy loop each. In turns one rank trains on the first, and two ranks train, one on each.
The speed of a rank among two over that of one alone is printed by MPI library: median and range of rounds.
Ranks that wait by spinning, or that give their time away while they wait, fall far below 1.

    scripts/bench ranks [--rounds N] [--net NAME] [--batch N] [--steps N]
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
program = "build/release/ampbench"


def busy_loops(processors):
    """A loop on each processor."""
    loop = "while True:\n    pass"
    return [subprocess.Popen(["taskset", "-c", str(p), sys.executable, "-c", loop]) for p in processors]


def job(library, ranks, options, out, processors):
    """Trains with one rank a processor; the median time of a step in ns, and processor seconds of all."""
    command = [f"mpirun.{library}"]
    for rank in range(ranks):
        command += [":"] * (rank > 0) + ["-n", "1", "taskset", "-c", str(processors[rank]), program]
        command += [*options, "--out", out]
    settings = {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMPI_MCA_hwloc_base_binding_policy": "none",
        "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
    }
    before = os.times()
    whole = {**os.environ, **settings}
    done = subprocess.run(command, env=whole, capture_output=True, text=True, check=False)
    after = os.times()
    if done.returncode:
        sys.exit(f"bench ranks: {' '.join(command)}: {done.stderr.strip()}")
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    with open(out, encoding="utf-8") as file:
        times = json.load(file)["cells"][0]["processes"][0]["step_time_ns"]
    return statistics.median(times[len(times) // 4 :]), spent


def main():
    """Prints a row for each library."""
    about = "two ranks of MPI beside one, on busy processors"
    parser = argparse.ArgumentParser(prog="scripts/bench ranks", description=about)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--net", default="lenet5")
    parser.add_argument("--batch", default="64")
    parser.add_argument("--steps", default="100")
    asked = parser.parse_args()
    libraries = [name for name in ("mpich", "openmpi") if shutil.which(f"mpirun.{name}")]
    processors = sorted(os.sched_getaffinity(0))[:2]
    if not libraries or len(processors) < 2:
        sys.exit("bench ranks: needs mpirun.mpich or mpirun.openmpi, and two processors")
    options = f"--ranks mpi --levels O0 --net {asked.net} --data synthetic --rounds 1".split()
    options += f"--batch {asked.batch} --steps {asked.steps} --threads 1 --no-floor".split()
    options += "--eval-limit 4 --quiet --no-plots --probe-every 0".split()
    ratios = {name: [] for name in libraries}
    costs = {name: [] for name in libraries}
    loops = busy_loops(processors)
    try:
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(asked.rounds):
                for name in libraries:
                    out = os.path.join(folder, "ranks.json")
                    one, one_cpu = job(name, 1, options, out, processors)
                    two, two_cpu = job(name, 2, options, out, processors)
                    ratios[name].append(one / two)
                    costs[name].append(two_cpu / one_cpu)
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    print("library   speed of a rank, two over one    processor time of both over that of one")
    for name in libraries:
        low, high = min(ratios[name]), max(ratios[name])
        print(
            f"{name:9} {statistics.median(ratios[name]):.2f} ({low:.2f} to {high:.2f})"
            f"              {statistics.median(costs[name]):.2f}"
        )


main()
