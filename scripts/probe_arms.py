"""What is compared when the cost of ampprobe is measured: networks, and arms that train them in turns.

All arms share one process, one model and one optimizer, as two processes that run the same thing differ by
several percent. What an arm adds is put there before its block of steps and taken away after it. Both ways
set the two functions of GradScaler that the probe replaces, also where nothing is added, so that Python's
caches are in the same state. The first steps of a block are left out. Every step is measured by itself, in
CPU time of its thread, which other programs' turns on the processor do not enter into, and in time on the
clock (PyTorch has one thread here).
"""

import os
import random
import statistics
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
FIRST = 16
WARM = 24  # steps before anything is measured
LEFT_OUT = 3  # steps at the beginning of a block, where they are short
BLOCK_SECONDS, SHORT_SECONDS = 0.05, 0.01  # of a block; a step shorter than this is disturbed by the change
PATIENCE = 64  # steps that a block of the probe may go on, until it shows nothing
GRADIENTS = 8  # ampprobe.h: AMPPROBE_PLAN_GRADIENTS
clock = time.thread_time_ns
wall = time.perf_counter_ns


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


NETS = {"mlp": mlp, "gpt": gpt, "resnet20": resnet20}


class Training:
    """A model, its optimizer and a step."""

    def __init__(self, net, compiled):
        import torch

        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.torch = torch
        self.model, inputs, labels = NETS[net](torch)
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
        self.times(WARM)  # torch's own first steps, and torch.compile
        self.seconds = statistics.median(self.times(8)) * 1e-9
        self.left_out, self.count = 0, max(1, round(BLOCK_SECONDS / self.seconds))
        if self.seconds < SHORT_SECONDS:
            self.left_out = LEFT_OUT

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

    def __init__(self, training, options):
        self.training = training

    def begin(self):
        """Before a block."""
        scaler = self.training.torch.amp.GradScaler
        scaler.scale, scaler.update = scaler.__dict__["scale"], scaler.__dict__["update"]

    def end(self):
        """After it."""

    def add(self):
        """What is run in a step that belongs to no function of torch."""

    def kind(self):
        """What the next step is: None for a plain one."""

    def ended(self, kind):
        """Kind and number of the step that has just ended; `kind`: as which it began."""
        return kind, 0

    def may_end(self):
        """Whether a block may end here."""
        return True

    def block(self):
        """The times of a block of steps."""
        step, add, found = self.training.step, self.add, {"plain": [], "wall": [], "other": []}
        number, count = -1, self.training.left_out + self.training.count
        while (number := number + 1) < count or not self.may_end():
            if number == count + PATIENCE:
                raise SystemExit("the probe's steps are never quiet")
            kind, started, began = self.kind(), wall(), clock()
            step()
            add()
            took, passed = clock() - began, wall() - started
            kind, at = self.ended(kind)
            if kind is not None:
                found["other"].append((kind, at, took))
            elif number >= self.training.left_out:
                found["plain"].append(took)
                found["wall"].append(passed)
        return found


class Delay(Off):
    """So many microseconds of work, to see whether they are found."""

    def __init__(self, training, options):
        super().__init__(training, options)
        self.nanoseconds = options["delay"] * 1000

    def add(self):
        until = clock() + self.nanoseconds
        while clock() < until:
            pass


class Anomaly(Off):
    """Autograd's detect_anomaly."""

    def begin(self):
        super().begin()
        self.training.torch.autograd.set_detect_anomaly(True)

    def end(self):
        self.training.torch.autograd.set_detect_anomaly(False)


class Histc(Off):
    """A histogram of every gradient, as W&B's watch makes it."""

    def begin(self):
        super().begin()
        histc = self.training.torch.histc
        self.hooks = [
            parameter.register_hook(lambda g: (histc(g, 64), g.min().item(), g.max().item()) and None)
            for parameter in self.training.model.parameters()
        ]

    def end(self):
        for hook in self.hooks:
            hook.remove()


class Probed(Off):
    """ampprobe with its defaults, which stands still between its blocks.

    Short steps are left while they show nothing. The functions that it has replaced and that a step calls,
    and hooks on optimizers, are then taken away. What else it has put in place is not run by these steps.
    Of long steps, of which a block has one, every one or second is handed over or shows gradients: that is
    part of a plain one. How long the first step of a block took is told, as it began with the block."""

    CALLED = ("zero_grad", "scale", "backward", "unscale_", "step", "update")

    def __init__(self, training, options):
        super().__init__(training, options)
        sys.path.insert(0, os.path.join(HERE, "..", "python"))
        import ampprobe
        from ampprobe import _patches
        from torch.optim import optimizer

        plain = statistics.median(training.times(FIRST))
        self.folder = tempfile.TemporaryDirectory()
        out = os.path.join(self.folder.name, "run.json")
        began = clock()
        self.probe = ampprobe.attach(training.model, training.optimizer, scaler=training.scaler, out=out)
        took = clock() - began + sum(training.times(FIRST))
        self.first = took - FIRST * plain
        self.group, self.patches = self.probe.groups[0], _patches
        own = training.optimizer
        kinds = (own._optimizer_step_pre_hooks, own._optimizer_step_post_hooks)
        self.places = (*kinds, optimizer._global_optimizer_pre_hooks)
        self.alone, self.resumed = training.count == 1, None
        self.ends_step, self.probe.record.step = self.probe.record.step, self._step
        self.block()
        self.end()

    def _step(self):
        """In place of the record's function, which measures from the step before."""
        if self.resumed is not None:
            self.probe.record.facts.seconds = time.perf_counter() - self.resumed
            self.resumed = None
        return self.ends_step()

    def shows_layers(self):
        """Whether the next step does."""
        return bool(self.group.plan & ~GRADIENTS)

    def may_end(self):
        return self.probe.quiet.on or (self.alone and not self.shows_layers())

    def end(self):
        module = self.training.torch.nn.Module
        called = [patch for patch in self.patches._made if patch.name in self.CALLED]
        self.stood = [
            (patch, patch.stands)
            for patch in called
            if patch.owner is not module and patch.stands is not patch.original
        ]
        for patch, _ in self.stood:
            patch.put(patch.original)
        self.hooks = [dict(place) for place in self.places]
        for place in self.places:
            place.clear()
        self.left = time.perf_counter()

    def begin(self):
        for place, hooks in zip(self.places, self.hooks):
            place.update(hooks)
        for patch, function in self.stood:
            patch.put(function)
        now, quiet = time.perf_counter(), self.probe.quiet
        quiet.ended += now - self.left
        quiet.due += now - self.left
        self.resumed = None if quiet.on else now

    def kind(self):
        self.known = self.group.step
        is_plain = not self.shows_layers() if self.alone else not self.group.plan
        return None if is_plain else f"plan {self.group.plan}"

    def ended(self, kind):
        hands_over = kind is None and self.group.step != self.known and not self.alone
        return "hands over" if hands_over else kind, self.known

    def close(self):
        """What it says of itself."""
        costs, steps = self.probe.record.costs(), self.group.step
        self.begin()
        self.probe.close()
        return {"first_ns": self.first, "failure": self.probe.reason, "own": costs, "steps": steps}


ARMS = {"off": Off, "again": Off, "delay": Delay, "probe": Probed, "anomaly": Anomaly, "histc": Histc}
DEAR = ("anomaly", "histc")  # take turns after the others, for a part of the time
DEAR_SHARE = 0.12


def take_turns(arms, seconds, turns):
    """Rounds of a block of each, in random order, for so long; at least two, for an interval."""
    rounds, began = [], time.monotonic()
    while time.monotonic() - began < seconds or len(rounds) < 2:
        order, row = list(arms), {}
        turns.shuffle(order)
        for name in order:
            arms[name].begin()
            row[name] = arms[name].block()
            arms[name].end()
        rounds.append(row)
    return rounds


def measure(net, kind, names, seconds, options):
    """One start: the times of every block, and what the probe says of itself."""
    import torch

    training, turns = Training(net, kind == "compiled"), random.Random(options["start"])
    arms = {name: ARMS[name](training, options) for name in ["off", *names]}
    dear = {name: arm for name, arm in arms.items() if name in ("off", *DEAR)}
    usual = {name: arm for name, arm in arms.items() if name not in DEAR}
    share = DEAR_SHARE if len(dear) > 1 else 0
    rounds = take_turns(usual, seconds * (1 - share), turns)
    probe = arms.get("probe")
    if share:
        rounds += take_turns(dear, seconds * share, turns)
    said = probe.close() if probe else {}
    return {"torch": torch.__version__, "rounds": rounds, "probe": said}
