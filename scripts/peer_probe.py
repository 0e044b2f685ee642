"""What ampprobe adds to a step of PyTorch: trainings in processes of their own, which take turns.

Arms: nothing, the probe with its defaults, autograd's detect_anomaly, and a hook as W&B's watch has (histc of
every gradient). Prints, for each network, the median over rounds of time / time without, and its quartiles.
Usage: peer_probe.py [--rounds N] [--nets "mlp gpt resnet20"] [--arms "probe anomaly histc"] [--seconds S]
       [--compile]
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

    def step():
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(forward(inputs), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    for _ in range(3):
        step()
    print("ready", flush=True)
    for line in sys.stdin:
        wall, processor = time.perf_counter(), time.process_time()
        for _ in range(int(line)):
            step()
        print(time.perf_counter() - wall, time.process_time() - processor, flush=True)
    if probe is not None:
        costs = probe.record.costs()
        print("costs", costs["layer_steps"], costs["memory_bytes"], probe.reason, flush=True)
        probe.close()


class Arm:
    """A worker process."""

    def __init__(self, net, arm, compiled):
        command = [sys.executable, "-W", "ignore", __file__, "--worker", net, arm] + ["--compile"] * compiled
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline().strip() != "ready":
            raise SystemExit(f"peer_probe: the {arm} arm of {net} did not start")

    def block(self, steps):
        """Wall and CPU seconds of so many steps."""
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        return [float(word) for word in self.process.stdout.readline().split()]

    def end(self):
        """Ends it; what it printed last."""
        self.process.stdin.close()
        text = self.process.stdout.read().strip()
        self.process.wait()
        return text


def measure(net, names, options):
    """Takes turns; prints a line for each arm."""
    arms = {name: Arm(net, name, options.compile) for name in ["base", *names]}
    steps = max(2, round(options.seconds / (arms["base"].block(10)[0] / 10)))
    order = random.Random(1)
    ratios = {name: ([], []) for name in names}
    times = []
    for _ in range(options.rounds):
        turn = list(arms)
        order.shuffle(turn)
        took = {name: arms[name].block(steps) for name in turn}
        times.append(took["base"][0] / steps)
        for name in names:
            for kind in (0, 1):
                ratios[name][kind].append(took[name][kind] / took["base"][kind])
    print(
        f"{net}: {statistics.median(times) * 1e3:.2f} ms a step, {options.rounds} rounds of {steps} steps"
    )
    for name in names:
        wall, processor = (statistics.quantiles(values, n=4) for values in ratios[name])
        print(
            f"  {name:8s} wall {wall[1]:.3f} ({wall[0]:.3f} to {wall[2]:.3f})   "
            f"CPU time {processor[1]:.3f} ({processor[0]:.3f} to {processor[2]:.3f})",
            flush=True,
        )
    for name, arm in arms.items():
        text = arm.end()
        if text:
            print(f"  {name}: {text}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--nets", default="mlp gpt resnet20")
    parser.add_argument("--arms", default="probe anomaly histc")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--worker", nargs=2)
    options = parser.parse_args()
    if options.worker:
        worker(*options.worker, options.compile)
        return
    for net in options.nets.split():
        measure(net, options.arms.split(), options)


if __name__ == "__main__":
    main()
