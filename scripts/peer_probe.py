"""What ampprobe adds to a step of PyTorch: trainings in processes of their own, which take turns.

Arms: nothing, nothing again (how far two processes that do the same differ), the probe with its defaults,
autograd's detect_anomaly, and a hook as W&B's watch has (histc of every gradient). All processes are started
anew several times, as where one lies in memory is good for some percent. Prints, for each network:
  steady   time / time without, after the first 16 steps, in turns: median over rounds, and quartiles
  first    what the first 16 steps take more: the probe looks at layers in steps 0, 1, 3, 7 and 15 of any run
  run      time / time without of a run of --steps steps: the first ones and steady ones after them
Usage: peer_probe.py [--rounds N] [--starts N] [--nets "mlp gpt resnet20"] [--seconds S] [--steps N]
       [--arms "again probe anomaly histc"] [--compile] [--table]
"""

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
FIRST = 16


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


def worker(net, arm, compiled):
    """Trains as many steps as a line of stdin says; answers with wall and CPU seconds."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, inputs, labels = {"mlp": mlp, "gpt": gpt, "resnet20": resnet20}[net](torch)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)
    forward = torch.compile(model) if compiled else model
    def step():
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(forward(inputs), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    for _ in range(3):  # torch's own first steps, and torch.compile
        step()
    probe = None
    folder = tempfile.TemporaryDirectory()
    if arm == "probe":
        sys.path.insert(0, os.path.join(HERE, "..", "python"))
        import ampprobe

        probe = ampprobe.attach(model, optimizer, scaler=scaler, out=os.path.join(folder.name, "run.json"))
    if arm == "histc":
        for parameter in model.parameters():
            parameter.register_hook(lambda g: (torch.histc(g, 64), g.min().item(), g.max().item()) and None)
    if arm == "anomaly":
        torch.autograd.set_detect_anomaly(True)

    def took(steps):
        wall, processor = time.perf_counter(), time.process_time()
        for _ in range(steps):
            step()
        return time.perf_counter() - wall, time.process_time() - processor

    print(*took(FIRST), flush=True)
    for line in sys.stdin:
        print(*took(int(line)), flush=True)
    if probe is not None:
        costs = probe.record.costs()
        print("costs", costs["layer_steps"], costs["memory_bytes"], probe.reason, flush=True)
        probe.close()


class Arm:
    """A worker process."""

    def __init__(self, net, arm, compiled):
        command = [sys.executable, "-W", "ignore", __file__, "--worker", net, arm] + ["--compile"] * compiled
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.first = self._answer()
        if len(self.first) != 2:
            raise SystemExit(f"peer_probe: the {arm} arm of {net} did not start")

    def _answer(self):
        return [float(word) for word in self.process.stdout.readline().split()]

    def block(self, steps):
        """Wall and CPU seconds of so many steps."""
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        return self._answer()

    def end(self):
        """Ends it; what it printed last."""
        self.process.stdin.close()
        text = self.process.stdout.read().strip()
        self.process.wait()
        return text


def take_turns(net, names, options, kept):
    """One start of all processes: adds to `kept`; gives what they printed last."""
    arms = {name: Arm(net, name, options.compile) for name in ["base", *names]}
    steps = max(2, round(options.seconds / (arms["base"].block(10)[0] / 10)))
    for name, arm in arms.items():
        kept["first"][name].append(arm.first)
    order = random.Random(len(kept["first"]["base"]))
    for _ in range(options.rounds):
        turn = list(arms)
        order.shuffle(turn)
        took = {name: arms[name].block(steps) for name in turn}
        kept["times"].append(took["base"][0] / steps)
        for name in names:
            kept["ratios"][name].append([mine / base for mine, base in zip(took[name], took["base"])])
    return {name: arm.end() for name, arm in arms.items()}


def row(net, name, kept, options):
    """The numbers of an arm: quartiles of steady ratios of wall and CPU time, seconds of the first steps."""
    wall, processor = (statistics.quantiles(kind, n=4) for kind in zip(*kept["ratios"][name]))
    firsts = zip(kept["first"][name], kept["first"]["base"])
    first = statistics.median([mine[1] - base[1] for mine, base in firsts])
    step = statistics.median(kept["times"])
    run = (first + step * (FIRST + processor[1] * (options.steps - FIRST))) / (step * options.steps)
    if options.table:
        print(
            f"| {net}{', compiled' if options.compile else ''} | {step * 1e3:.2f} ms | {name} "
            f"| {wall[1]:.3f} ({wall[0]:.3f} to {wall[2]:.3f}) "
            f"| {processor[1]:.3f} ({processor[0]:.3f} to {processor[2]:.3f}) "
            f"| {first * 1e3:+.0f} ms | {run:.3f} |"
        )
        return
    print(
        f"  {name:8s} steady: wall {wall[1]:.3f} ({wall[0]:.3f} to {wall[2]:.3f})   "
        f"CPU time {processor[1]:.3f} ({processor[0]:.3f} to {processor[2]:.3f})   "
        f"first: {first * 1e3:+.0f} ms   run: {run:.3f}",
        flush=True,
    )


def measure(net, names, options):
    """Takes turns; prints a line for each arm."""
    kept = {
        "first": {name: [] for name in ["base", *names]},
        "times": [],
        "ratios": {name: [] for name in names},
    }
    for _ in range(options.starts):
        said = take_turns(net, names, options, kept)
    step = statistics.median(kept["times"]) * 1e3
    if not options.table:
        print(f"{net}: {step:.2f} ms a step, {options.starts} starts of {options.rounds} rounds")
    for name in names:
        row(net, name, kept, options)
    for name, text in said.items():
        if text and not options.table:
            print(f"  {name}: {text}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--starts", type=int, default=4)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--nets", default="mlp gpt resnet20")
    parser.add_argument("--arms", default="again probe anomaly histc")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--worker", nargs=2)
    options = parser.parse_args()
    if options.worker:
        worker(*options.worker, options.compile)
        return
    if options.table:
        print("| network | step | arm | steady, wall | steady, CPU time | first 16 steps | run of "
              f"{options.steps} steps |\n|---|---|---|---|---|---|---|")  # fmt: skip
    for net in options.nets.split():
        measure(net, options.arms.split(), options)


if __name__ == "__main__":
    main()
