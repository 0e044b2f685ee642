#!/usr/bin/env python3
"""scripts/bench cells: how the time of every command that reads a document grows with its cells.

A sweep of many seeds is planned as a Slurm job (`--launch slurm:script`). The cells of its first seeds are
really trained; their records stand in for those of the other seeds, in the files that the job's tasks would
have written. `--resume` merges them, so each document is made by the program's own way. Then every command
reads a document of each size. Printed: processor seconds, the least of some rounds, and the exponent of the
cells to which they grow: a fit of all sizes, and of the two largest alone, where a quadratic part shows
first. An exponent above 1.2 is marked, and the exit status is 1.

Three sweeps: many seeds of eleven loss scales; the same with a learning rate at which no cell trains, so that
all are diagnosed; many loss scales of eight seeds. Pictures are not drawn.

    scripts/bench cells [--sizes "1250 2500 5000 10000"] [--rounds N] [--only WORD,...]
                        [--sweeps "seeds sick scales"] [--keep DIR]
"""

import argparse
import itertools
import json
import math
import os
import shlex
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
program = os.path.abspath("build/release/ampbench")
LIMIT = 1.2
LEVELS = ["--levels", "O0,O1,O2,O3,torch:autocast"]
TRAINING = "--net net.json --data synthetic --steps 12 --probe-every 2 --rounds 1".split()
TRAINING += "--eval-limit 64 --no-plots --quiet".split()
NET = {
    "format": "ampbench-net-1",
    "name": "small",
    "text": "One linear layer",
    "input": {"height": 28, "width": 28, "channels": 1},
    "ops": [
        {"name": "flatten", "op": "flatten"},
        {"name": "fc", "op": "linear", "out_features": 10},
        {"name": "loss", "op": "cross_entropy"},
    ],
}
TRAINED_SEEDS, SEED_CELLS, SCALE_SEEDS, SCALE_CELLS, TASKS = 2, 44, 8, 40, 32


def scales(count):
    """So many loss scales, spread over powers of two."""
    return ",".join(repr(2 ** (24 * i / count)) for i in range(count))


def seeds(n):
    """Options of so many cells of many seeds."""
    return ["--scales", "default,2^0..2^9", "--seeds", str(n // SEED_CELLS)]


SWEEPS = {
    "seeds": seeds,
    "sick": lambda n: [*seeds(n), "--lr", "1e9"],
    "scales": lambda n: ["--scales", scales(n // SCALE_CELLS), "--seeds", str(SCALE_SEEDS)],
}


def run(argv, folder, allowed=(0,)):
    """Runs a command; its processor seconds, those of its children included."""
    with open(os.path.join(folder, "stdout"), "wb") as out, open(os.path.join(folder, "stderr"), "wb") as err:
        alone = {**os.environ, "PATH": folder}  # without gnuplot, whose time is that of its pictures
        child = subprocess.Popen(argv, stdout=out, stderr=err, cwd=folder, env=alone)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode not in allowed:
        with open(os.path.join(folder, "stderr"), encoding="utf-8") as err:
            sys.exit(f"bench cells: {shlex.join(argv)[:400]}: {child.returncode}: {err.read().strip()}")
    return usage.ru_utime + usage.ru_stime


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def records(text):
    """The lines of a part: its machine, and the record of each cell."""
    lines = [json.loads(line) for line in text.splitlines()]
    return lines[0], {line["cell"]: line for line in lines[1:] if "cell" in line}


def kind(cell):
    """What a record of another seed has to share with a cell to stand in for it."""
    return cell["level"], cell["scale_policy"], cell["twin"], cell.get("draw")


def train(folder, options):
    """The records of a small sweep, by kind of cell."""
    command = plan(folder, "small", options)
    document = load(os.path.join(folder, "small.json"))
    command[command.index("part") + 1] = f"0-{len(document['cells']) - 1}"
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    found = {}
    for index, record in records(done.stdout)[1].items():
        found.setdefault(kind(document["cells"][index]), []).append(record)
    return records(done.stdout)[0], found


def planned(name, options):
    how = ["--launch", f"slurm:{TASKS}:script", "--out", name + ".json"]
    return [program, *LEVELS, *options, *TRAINING, *how]


def plan(folder, name, options):
    """Plans a sweep; the words of the command that each task would run."""
    for old in (name + ".json", name + ".json.launch"):
        path = os.path.join(folder, old)
        (shutil.rmtree if os.path.isdir(path) else os.unlink)(path) if os.path.exists(path) else None
    run(planned(name, options), folder)
    with open(os.path.join(folder, name + ".json.launch", "1", "job.sh"), encoding="utf-8") as file:
        words = shlex.split(file.read().split("exec srun --ntasks=1 ")[1].split("\n")[0].rstrip("\\"))
    return words


def write_tasks(folder, name, machine, trained):
    """The files that the tasks of a planned sweep would have written."""
    document = load(os.path.join(folder, name + ".json"))
    turn = {key: itertools.cycle(found) for key, found in trained.items()}
    count = len(document["cells"])
    for task in range(TASKS):
        path = os.path.join(folder, name + ".json.launch", "1", f"part-{task}.0.jsonl")
        with open(path, "w", encoding="utf-8") as file:
            file.write(json.dumps({**machine, "run": document["run"]["id"]}) + "\n")
            for index in range(count * task // TASKS, count * (task + 1) // TASKS):
                key = kind(document["cells"][index])
                some = turn[key if key in turn else nearest(key, trained)]
                line = standing_in(next(some), document["cells"][index], index)
                file.write(json.dumps(line) + "\n")
    return count


def standing_in(record, cell, index):
    """A record as that of another cell: what names the cell is its own, what was measured is the record's."""
    own = {key: cell[key] for key in ("id", "config_digest", "seed", "scale_policy", "policy")}
    return {**record, "cell": index, "value": {**record["value"], **own}}


def power(scale):
    """The power of two of a fixed loss scale; 16 for one that moves."""
    try:
        return math.log2(float(scale))
    except ValueError:
        return 16


def nearest(key, trained):
    """The kind of trained cell of the same level whose loss scale is next to that of a cell."""
    of_level = [k for k in trained if (k[0], *k[2:]) == (key[0], *key[2:])]
    return min(of_level, key=lambda k: abs(power(k[1]) - power(key[1])))


def readers(folder):
    """Every command that reads a whole document, by name: its arguments, the statuses that it may have."""
    html, csv = os.path.join(folder, "page.html"), os.path.join(folder, "cells.csv")
    return {
        "report": (["report", "D"], (0,)),
        "report csv": (["report", "D", "--csv", csv], (0,)),
        "report markdown": (["report", "D", "--format", "markdown"], (0,)),
        "report junit": (["report", "D", "--format", "junit"], (0,)),
        "report github": (["report", "D", "--format", "github"], (0,)),
        "report html": (["report", "D", "--html", html], (0,)),
        "report plots": (["report", "D", "--plots", os.path.join(folder, "plots")], (0,)),
        "report some cells": (["report", "D", "--cells", "*/O2/*"], (0,)),
        "report of two": (["report", "D", "E"], (0,)),
        "diagnose": (["diagnose", "D"], (0, 4)),
        "diagnose json": (["diagnose", "D", "--json", "-"], (0, 4)),
        "advise": (["advise", "D"], (0, 4, 5)),
        "inspect": (["inspect", "D"], (0,)),
        "compare": (["compare", "D"], (0, 3, 4, 5)),
        "gate": (["gate", "D", "E"], (0, 3, 4, 5)),
        "history": (["history", "D", "E"], (0, 3, 4, 5)),
        "scaler replay": (["scaler", "--replay", "D", "torch", "apex"], (0,)),
    }


def timed(folder, name, chosen, rounds):
    """The least processor seconds of each chosen reader for a document."""
    document = os.path.join(folder, name + ".json")
    files = {"D": document, "E": os.path.join(folder, "copy.json")}
    with open(files["E"], "w", encoding="utf-8") as file:
        run_id = load(document)["run"]["id"]
        with open(document, encoding="utf-8") as lines:
            file.writelines(line.replace(f'"{run_id}"', '"another run"') for line in lines)
    seconds = {}
    for what, (words, allowed) in readers(folder).items():
        if not any(word in what for word in chosen):
            continue
        argv = [program, *(files.get(word, word) for word in words)]
        seconds[what] = min(run(argv, folder, allowed) for _ in range(rounds))
    return seconds


def exponent(points):
    """Slope of the least squares line through the logarithms."""
    xs, ys = ([math.log(p[i]) for p in points] for i in (0, 1))
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((a - x) * (b - y) for a, b in zip(xs, ys)) / sum((a - x) ** 2 for a in xs)


def measure(folder, sweep, size, trained, chosen, rounds):
    """Seconds of planning, of merging and of the readers, for one document; how many cells it has."""
    options, name, seconds = SWEEPS[sweep](size), f"{sweep}{size}", {}
    plan(folder, name, options)
    count = write_tasks(folder, name, *trained)
    if "plan" in chosen or "" in chosen:
        os.mkdir(os.path.join(folder, "again"))
        seconds["plan"] = run(planned("again/again", options), folder)
        shutil.rmtree(os.path.join(folder, "again"))
    resume = ["run", "--resume", "--launch", "slurm", "--no-plots", "--quiet", "--out", name + ".json"]
    merge = run([program, *resume], folder)
    if "merge" in chosen or "" in chosen:
        seconds["merge"] = merge
    statuses = {cell["status"] for cell in load(os.path.join(folder, name + ".json"))["cells"]}
    if statuses != {"ok"}:
        sys.exit(f"bench cells: cells that are not ok after merging: {statuses}")
    seconds.update(timed(folder, name, chosen, rounds))
    return count, seconds


def print_rows(sweep, points):
    """Whether every exponent is within the limit."""
    counts = [str(p[0]) for p in next(iter(points.values()))]
    head = "".join(f"{c:>9}" for c in counts)
    print(f"\n{'many ' + sweep + ', cells':20}{head}   exponent  at the end")
    good = True
    for what, row in points.items():
        whole, end = exponent(row), exponent(row[-2:])
        mark = "" if max(whole, end) <= LIMIT else f"   above {LIMIT}"
        good = good and not mark
        cells = "".join(f"{p[1]:9.2f}" for p in row)
        print(f"{what:20}{cells}   {whole:8.2f}  {end:10.2f}{mark}", flush=True)
    return good


def main():
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--sizes", default="1250 2500 5000 10000")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="words in the names of the commands to time")
    parser.add_argument("--sweeps", default=" ".join(SWEEPS))
    parser.add_argument("--keep", help="a folder for the documents, kept")
    args = parser.parse_args()
    if args.keep:
        os.makedirs(args.keep, exist_ok=True)
    work = tempfile.mkdtemp(dir=args.keep)
    good = True
    with open(os.path.join(work, "net.json"), "w", encoding="utf-8") as file:
        json.dump(NET, file)
    try:
        for sweep in args.sweeps.split():
            points = {}
            small = SWEEPS["sick" if sweep == "sick" else "seeds"](SEED_CELLS * TRAINED_SEEDS)
            trained = train(work, small)
            for size in map(int, args.sizes.split()):
                print(f"bench: many {sweep}, {size} cells", file=sys.stderr)
                count, seconds = measure(work, sweep, size, trained, args.only.split(","), args.rounds)
                for what, value in seconds.items():
                    points.setdefault(what, []).append((count, value))
            good = print_rows(sweep, points) and good
    finally:
        if not args.keep:
            shutil.rmtree(work)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
