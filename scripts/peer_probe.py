"""What ampprobe adds to a step of PyTorch, measured within one process.

Two processes that run the same thing differ by several percent: where their memory lies, which was started
first. So all arms share one process, one model and one optimizer. They take turns in blocks of steps, in a
random order, and what an arm adds is put there before its block and taken away after it. Every step is
measured by itself, in CPU time of its thread, which another program's turns on the processor do not enter
into (PyTorch has one thread here). The first step of a block is left out. What a kind of step takes is the
mean from its 10th to its 50th percentile, as what disturbs a step only makes it longer; intervals (95 %) are
of rounds drawn again with replacement. No number is to be believed while `again` is more than half a percent
from 1: then the machine is too busy. Arms: off (nothing); again (the same); probe (its defaults); anomaly
(autograd's detect_anomaly); histc (a hook as W&B's watch has). Prints:
  plain    steps of an arm / those of off. Of the probe: steps that show nothing
  other    what steps that show gradients or layers, or hand facts over, take more: percent of all time
  first    what attach() and the 16 steps after it take more, in milliseconds: layers are looked at in steps
           0, 1, 3, 7 and 15 of any run. Of a process that has not run the probe before
  run      a run of --steps steps / one without: first ones, and plain and other ones after them (those of its
           first --steps steps, where it came so far: they are most frequent at first)
  long     the same of a run without end
  memory   of the process, more than before attach(), in MiB
Usage: peer_probe.py [--network mlp|gpt|resnet20]... [--eager] [--compile]
       [--arms "again probe anomaly histc"] [--starts N] [--seconds S] [--steps N] [--write]
--network: one of them, may be repeated; default: all. --eager, --compile: only that kind; default: both.
--arms: detect_anomaly and hooks change what torch.compile compiles, so a compiled model has no such arms.
--seconds: of a network of a kind, all starts together; without it 60, or 1200 steps of the network where that
is longer (mlp, gpt: 60 to 80 s; resnet20: 240 s), which is said when a start begins; torch.compile takes a
minute more. Where an arm has fewer than 20 plain steps by then it is measured on, up to four times as long.
--write: puts each network of a kind into docs/measured/probe_cost.json as soon as it is measured, and the
table into docs/pytorch.md; not on a busy machine.
"""

import argparse
import datetime
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time

import probe_costs

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..")
NETS, KINDS = ("mlp", "gpt", "resnet20"), ("eager", "compiled")
EAGER_ONLY = ("anomaly", "histc")
LEAST, PATIENCE = 20, 4  # plain steps of each arm; times as long as was asked for
USUAL_SECONDS, USUAL_STEPS = 60, 1200  # of a network of a kind: what is longer
FIRST = 16
BLOCK_SECONDS = 0.4  # facts are handed over ten times a second
clock = time.thread_time_ns


def mlp(torch):
    net = torch.nn.Sequential(
        torch.nn.Linear(256, 256),
        torch.nn.ReLU(),
        torch.nn.Linear(256, 256),
        torch.nn.ReLU(),
        torch.nn.Linear(256, 128),
        torch.nn.ReLU(),
        torch.nn.Linear(128, 10),
    )
    return net, torch.randn(64, 256), torch.randint(0, 10, (64,))


class Residual:
    """Builders of the two larger networks; classes are made here because torch is imported late."""

    @staticmethod
    def block(torch, width, out, stride):
        class Block(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.c1 = torch.nn.Conv2d(width, out, 3, stride, 1, bias=False)
                self.c2 = torch.nn.Conv2d(out, out, 3, 1, 1, bias=False)
                self.n1, self.n2 = torch.nn.BatchNorm2d(out), torch.nn.BatchNorm2d(out)
                self.short = torch.nn.Conv2d(width, out, 1, stride, bias=False) if width != out else None

            def forward(self, x):
                y = self.n2(self.c2(torch.relu(self.n1(self.c1(x)))))
                return torch.relu(y + (self.short(x) if self.short is not None else x))

        return Block()


def resnet20(torch):
    layers = [torch.nn.Conv2d(3, 16, 3, 1, 1, bias=False), torch.nn.BatchNorm2d(16), torch.nn.ReLU()]
    width = 16
    for out in (16, 32, 64):
        for index in range(3):
            layers.append(Residual.block(torch, width, out, 2 if index == 0 and out != 16 else 1))
            width = out
    net = torch.nn.Sequential(
        *layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(64, 10)
    )
    return net, torch.randn(64, 3, 32, 32), torch.randint(0, 10, (64,))


def gpt(torch):
    layer = torch.nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True, norm_first=True)
    net = torch.nn.Sequential(
        torch.nn.Embedding(256, 128),
        torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False),
        torch.nn.Linear(128, 256),
        torch.nn.Flatten(0, 1),
    )
    tokens = torch.randint(0, 256, (12, 65))
    return net, tokens[:, :-1], tokens[:, 1:].flatten()


class Training:
    """A model, its optimizer and a step."""

    def __init__(self, net, compiled):
        import torch

        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.torch = torch
        self.model, inputs, labels = {"mlp": mlp, "gpt": gpt, "resnet20": resnet20}[net](torch)
        self.optimizer = optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.scaler = scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)
        forward = torch.compile(self.model) if compiled else self.model

        def step():
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(forward(inputs), labels)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

        self.step = step

    def times(self, count):
        """Nanoseconds of so many steps, each."""
        step, took = self.step, []
        for _ in range(count):
            began = clock()
            step()
            took.append(clock() - began)
        return took


class Off:
    """Nothing is added."""

    def __init__(self, training):
        self.training = training

    def begin(self):
        """Before a block."""

    def end(self):
        """After it."""

    def times(self, count):
        """Nanoseconds of so many steps, by their kind."""
        return {"plain": self.training.times(count)}


class Anomaly(Off):
    """Autograd's detect_anomaly."""

    def begin(self):
        self.training.torch.autograd.set_detect_anomaly(True)

    def end(self):
        self.training.torch.autograd.set_detect_anomaly(False)


class Histc(Off):
    """A histogram of every gradient, as W&B's watch makes it."""

    def begin(self):
        histc = self.training.torch.histc
        self.hooks = [
            parameter.register_hook(lambda g: (histc(g, 64), g.min().item(), g.max().item()) and None)
            for parameter in self.training.model.parameters()
        ]

    def end(self):
        for hook in self.hooks:
            hook.remove()


class Probed(Off):
    """ampprobe with its defaults, which looks away between its blocks."""

    def __init__(self, training):
        super().__init__(training)
        sys.path.insert(0, os.path.join(HERE, "..", "python"))
        import ampprobe
        from ampprobe import _patches

        plain = statistics.median(training.times(FIRST))
        memory = resident()
        self.patches, self.folder = _patches, tempfile.TemporaryDirectory()
        out = os.path.join(self.folder.name, "run.json")
        began = clock()
        self.probe = ampprobe.attach(training.model, training.optimizer, scaler=training.scaler, out=out)
        took = clock() - began + sum(training.times(FIRST))
        self.first, self.before = took - FIRST * plain, memory
        self.group = self.probe.groups[0]
        self.ends_step, self.probe.record.step = self.probe.record.step, self._step
        self.resumed, self.early = None, []
        from torch.optim import optimizer

        self.everywhere = optimizer._global_optimizer_pre_hooks  # where the probe's hook of all optimizers is
        self.hooks = dict(self.everywhere)
        self.end()

    def _step(self):
        """The first step of a block began with it, not with the end of the step before it."""
        if self.resumed is not None:
            self.probe.record.facts.seconds = time.perf_counter() - self.resumed
            self.resumed = None
        return self.ends_step()

    def begin(self):
        group = self.group
        self.everywhere.update(self.hooks)
        self.patches.register(self.probe)
        self.patches.watch(group, self.training.optimizer)
        self.patches.watch_parameters(group, group.parameters)
        group.watch()
        self.probe.begin_step(group.plan)
        self.resumed = time.perf_counter()

    def end(self):
        self.probe.quiet.end()
        self.probe.layers.end()
        self.group.unwatch()
        self.patches.unregister(self.probe)
        for key in self.hooks:
            self.everywhere.pop(key, None)

    def times(self, count):
        step, group, kinds = self.training.step, self.group, {}
        for _ in range(count):
            plan, ended = group.plan, group.step
            began = clock()
            step()
            took = clock() - began
            kind = f"plan {plan}" if plan else "plain" if group.step == ended else "hands over"
            kinds.setdefault(kind, []).append(took)
            if kind != "plain":
                self.early.append((ended, took))
        return kinds

    def close(self):
        """What it says of itself."""
        costs, memory = self.probe.record.costs(), resident() - self.before
        self.begin()
        self.probe.close()
        said = {"first_ns": self.first, "memory_bytes": memory, "failure": self.probe.reason, "own": costs}
        return {**said, "early": self.early, "steps": self.group.step}


ARMS = {"off": Off, "again": Off, "anomaly": Anomaly, "histc": Histc, "probe": Probed}


def resident():
    """Bytes of this process in memory."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def may_go_on(rounds, arms, passed, seconds):
    """Whether there is another round: time is left, or an arm has few plain steps and patience is left."""
    if passed < seconds or len(rounds) < 2:
        return True
    enough = all(len(together(rounds, name)["plain"]) >= LEAST for name in arms)
    return not enough and passed < PATIENCE * seconds


def seconds_of(asked, step, starts):
    """How long a start lasts whose network takes so long a step."""
    return (asked or max(USUAL_SECONDS, USUAL_STEPS * step)) / starts


def worker(net, kind, names, asked, starts, seed):
    """Lets the arms take turns for so long; prints the times of every block."""
    import torch

    training = Training(net, kind == "compiled")
    training.times(3 + FIRST)  # torch's own first steps, and torch.compile
    arms = {name: ARMS[name](training) for name in ["off", *names]}
    step = statistics.median(training.times(8)) * 1e-9
    count = max(5, round(BLOCK_SECONDS / step))
    seconds = seconds_of(asked, step, starts)
    begins = f"peer_probe: {net}, {kind}: start {seed + 1} of {starts}: {seconds:.0f} s"
    print(begins, file=sys.stderr, flush=True)
    turns, rounds, began = random.Random(seed), [], time.monotonic()
    while may_go_on(rounds, arms, time.monotonic() - began, seconds):
        order, row = list(arms), {}
        turns.shuffle(order)
        for name in order:
            arms[name].begin()
            arms[name].times(1)
            row[name] = arms[name].times(count)
            arms[name].end()
        rounds.append(row)
    said = arms["probe"].close() if "probe" in arms else {}
    print(json.dumps({"torch": torch.__version__, "rounds": rounds, "probe": said}))


def typical(values):
    """Mean of the steps that were disturbed least; of a few: their median."""
    if len(values) < 10:
        return statistics.median(values)
    return statistics.mean(sorted(values)[len(values) // 10 : len(values) // 2])


def together(rounds, name):
    """The times of an arm in these rounds, by kind. Long steps, each handed over by itself, are plain."""
    kinds = {"plain": []}
    for turn in rounds:
        for kind, times in turn[name].items():
            kinds.setdefault(kind, []).extend(times)
    if len(kinds.get("hands over", ())) > len(kinds["plain"]):
        kinds["plain"] += kinds.pop("hands over")
    return kinds


def plain_ratio(rounds, name):
    """A plain step of an arm / one without anything."""
    return typical(together(rounds, name)["plain"]) / typical(together(rounds, "off")["plain"])


def interval(rounds, name):
    """Of the ratio, from 100 drawings of as many rounds."""
    draw = random.Random(0)
    ratios = sorted(plain_ratio(draw.choices(rounds, k=len(rounds)), name) for _ in range(100))
    return [ratios[2], ratios[97]]


def check_length(rounds, name):
    """Refuses a row that is too short to say anything."""
    for arm in ("off", name):
        count = len(together(rounds, arm)["plain"])
        if count < LEAST:
            raise SystemExit(f"--seconds is too short: {arm} has {count} plain steps, expected {LEAST}")


def early_share(probes, plain, steps):
    """What steps that are not plain take more than those, of all time of the first `steps` steps after the
    first 16; `plain`: nanoseconds of a plain step. None: too few steps were made."""
    if any(probe["steps"] < steps for probe in probes):
        return None
    more = [took - plain for probe in probes for step, took in probe["early"] if step < steps]
    return sum(more) / (len(probes) * (steps - FIRST) * plain)


def row_of(name, results, steps):
    """The numbers of an arm."""
    rounds = [turn for result in results for turn in result["rounds"]]
    check_length(rounds, name)
    off, kinds = typical(together(rounds, "off")["plain"]), together(rounds, name)
    plain = plain_ratio(rounds, name)
    row = {"arm": name, "step_ns": off, "plain": plain, "interval": interval(rounds, name)}
    if name != "probe":
        return row
    probes = [result["probe"] for result in results]
    others = {kind: times for kind, times in kinds.items() if kind != "plain"}
    more = sum(len(times) * (typical(times) - plain * off) for times in others.values())
    other = more / (sum(map(len, kinds.values())) * off)
    first = statistics.median([probe["first_ns"] for probe in probes])
    early = early_share(probes, plain * off, steps)
    early = other if early is None else early
    return {
        **row,
        "other": other,
        "kinds": {kind: [len(times), typical(times) / off] for kind, times in sorted(kinds.items())},
        "first_ns": first,
        "run": 1 + (first / off + (plain - 1 + early) * (steps - FIRST)) / steps,
        "long": plain + other,
        "memory_bytes": max(probe["memory_bytes"] for probe in probes),
        "governor": sum(probe["own"]["probe_seconds"] for probe in probes)
        / sum(probe["own"]["run_seconds"] for probe in probes),
    }


def arms_of(kind, options):
    """The arms that a kind has."""
    return [name for name in options.arms.split() if kind == "eager" or name not in EAGER_ONLY]


def measure(net, kind, options):
    """Several processes after each other; rows of the arms."""
    results, names = [], arms_of(kind, options)
    for start in range(options.starts):
        arguments = [net, kind, " ".join(names), str(options.seconds or 0), str(options.starts), str(start)]
        command = [sys.executable, "-W", "ignore", __file__, "--worker", *arguments]
        said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if said.returncode:
            raise SystemExit(f"a process ended with {said.returncode}")
        results.append(json.loads(said.stdout.splitlines()[-1]))
        failure = results[-1]["probe"].get("failure")
        if failure:
            raise SystemExit(failure)
    where = {"cpu": processor(), "torch": results[-1]["torch"], "date": str(datetime.date.today())}
    return [{"net": net, "kind": kind, **row_of(name, results, options.steps), **where} for name in names]


def processor():
    """The name of the CPU."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        found = re.search(r"^model name\s*: (.*)", file.read(), re.M)
    return found[1] if found else "unknown"


def measure_all(options):
    """Prints the rows of each network of each kind when they are there; whether all could be measured."""
    good = True
    for net in options.network or NETS:
        for kind in options.kinds or KINDS:
            try:
                found = measure(net, kind, options)
            except SystemExit as error:  # the others are measured all the same
                print(f"peer_probe: {net}, {kind}: {error}", file=sys.stderr, flush=True)
                good = False
                continue
            print(*map(probe_costs.line_of, found), sep="\n", flush=True)
            if options.write:
                probe_costs.keep(ROOT, found, options.steps)
                probe_costs.put(ROOT)
    return good


def options_of():
    parser = argparse.ArgumentParser()
    parser.add_argument("--network", action="append", choices=NETS)
    for kind, option in zip(KINDS, ("--eager", "--compile")):
        parser.add_argument(option, dest="kinds", action="append_const", const=kind)
    parser.add_argument("--arms", default="again probe anomaly histc")
    parser.add_argument("--starts", type=int, default=2)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--worker", nargs=6)
    return parser.parse_args()


def main():
    options = options_of()
    if options.worker:
        net, kind, names, seconds, starts, seed = options.worker
        worker(net, kind, names.split(), float(seconds), int(starts), int(seed))
        return
    print(*probe_costs.head_of(options.steps), sep="\n")
    if not measure_all(options):
        sys.exit(1)


if __name__ == "__main__":
    main()
