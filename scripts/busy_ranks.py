#!/usr/bin/env python3
"""scripts/bench ranks: what two ranks of MPI do to each other's speed on a busy machine.

Two processors have a busy loop each. In turns one rank trains on the first, and two ranks train, one on each.
The throughput of a rank among two over that of one alone is printed by library: median and range of rounds.
What a rank among two used in a step is printed too: of processor time all of it, and what packing, sums and
waiting took, and how often it was blocked. Other load on the machine changes these less than throughput.
A scheduler that leaves a processor to the loop for longer than a step lasts slows down any two processes that
meet in every step. So a yardstick runs in the same rounds: two processes that compute as long as a step and
meet twice through a socket, asleep until the other one is there. Ranks that wait by spinning, or for longer
than they must, fall below it. Loops and ranks have sessions of their own, because Linux shares processors
between sessions first.

    scripts/bench ranks [--rounds N] [--net NAME] [--batch N] [--steps N]
"""

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
program = "build/release/ampbench"


LOOP = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL: it ends with the process that started it
while os.getppid() == int(sys.argv[1]):
    for _ in range(10**7):
        pass
"""


def busy_loops(processors):
    """A loop on each processor."""
    loop = [sys.executable, "-c", LOOP, str(os.getpid())]
    return [subprocess.Popen(["taskset", "-c", str(p), *loop], start_new_session=True) for p in processors]


def job(library, ranks, options, out, processors):
    """Trains with one rank a processor: mean and lower decile of steps in ns, processor seconds, what the
    record says of the reduction."""
    command = [f"mpirun.{library}"]
    for rank in range(ranks):
        command += [":"] * (rank > 0) + ["-n", "1", "setsid", "-w", "taskset", "-c", str(processors[rank])]
        command += [program, *options, "--out", out]
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
        cell = json.load(file)["cells"][0]
    times = cell["processes"][0]["step_time_ns"]
    times = times[len(times) // 4 :]
    return statistics.mean(times), sorted(times)[len(times) // 10], spent, cell.get("communication")


def used(communication):
    """Of a step: us of processor time, whole, of packing, sums, the rest of the reduction; times blocked."""
    steps = communication["steps"]
    ops = {op["op"]: op["processor_ns"] / steps / 1000 for op in communication["ops"]}
    whole, pack, add = communication["processor_ns"] / steps / 1000, ops.pop("pack"), ops.pop("sum")
    return whole, pack, add, sum(ops.values()), communication["blocked"] / steps


def computes(seconds):
    """Takes so much processor time."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def walks(link, processor, seconds, steps):
    """A process's steps: computes, then meets the other one twice if there is one; their mean time in s."""
    os.setsid()
    os.sched_setaffinity(0, {processor})
    began = time.monotonic()
    for _ in range(steps):
        computes(seconds)
        for _ in range(2 * bool(link)):
            link.sendall(b"x")
            link.recv(1)
    return (time.monotonic() - began) / steps


def yardstick(processes, seconds, steps, processors):
    """The mean time of a step of `processes` processes."""
    ends = socket.socketpair() if processes == 2 else (None,)
    read, write = os.pipe()
    children = []
    for link, processor in zip(ends, processors):
        child = os.fork()
        if child == 0:
            os.write(write, f"{walks(link, processor, seconds, steps)}\n".encode())
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    os.close(write)
    with os.fdopen(read) as file:
        return statistics.mean(float(line) for line in file)


def a_round(libraries, options, asked, processors, rows):
    """Adds one ratio to each row."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "ranks.json")
        for name in libraries:
            one, quick, one_cpu, _ = job(name, 1, options, out, processors)
            two, _, two_cpu, reduction = job(name, 2, options, out, processors)
            rows[name].append((one / two, two_cpu / one_cpu, *used(reduction)))
    alone, both = (yardstick(n, quick * 1e-9, int(asked.steps), processors) for n in (1, 2))
    rows["yardstick"].append((alone / both, 2))


def main():
    """Prints a row for each library, and the yardstick's."""
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
    rows = {name: [] for name in [*libraries, "yardstick"]}
    loops = busy_loops(processors)
    try:
        for _ in range(asked.rounds):
            a_round(libraries, options, asked, processors, rows)
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    report(rows)


def report(rows):
    """Prints medians, and the range of the throughput."""
    print("           throughput of a rank  processor time  processor us of a rank among two, a step:  times")
    print("library    two over one          two over one    whole   packing  sums    waiting, notes  blocked")
    for name, row in rows.items():
        ratios = [entry[0] for entry in row]
        middle, cost, *rest = (statistics.median(column) for column in zip(*row))
        text = f"{name:10} {middle:.2f} ({min(ratios):.2f} to {max(ratios):.2f})   {cost:.2f}          "
        if rest:
            text += "  {:<6.0f}  {:<8.1f} {:<6.1f}  {:<14.1f}  {:.2f}".format(*rest)
        print(text)


main()
