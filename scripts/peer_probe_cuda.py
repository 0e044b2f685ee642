"""What ampprobe costs a PyTorch loop on a GPU: two copies of a network train in turns, one of them probed.

Usage: peer_probe_cuda.py [SECONDS], with AMPPROBE_LIBRARY set; prints JSON. Blocks of STEPS steps alternate
for SECONDS per row (default 12); the GPU is waited for at their ends. The ratio is the sum of the probed
blocks' times over that of the plain ones; its error is the standard error over pairs of blocks. Rows that are
not probed show what the method itself shows. The probe starts with the first block, so that its first, denser
probed steps are in the ratio.
"""

import json
import math
import os
import statistics
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))

import torch  # noqa: E402

import ampprobe  # noqa: E402

STEPS = 20


def mlp():
    sizes = [784, 1024, 1024, 1024, 10]
    layers = []
    for width, following in zip(sizes, sizes[1:]):
        layers += [torch.nn.Linear(width, following), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1]), torch.randn(256, 784), torch.randint(0, 10, (256,))


class Transformer(torch.nn.Module):
    """A decoder of nanoGPT's small size."""

    def __init__(self):
        vocabulary, width, heads, layers, length = 256, 384, 6, 6, 256
        super().__init__()
        self.token = torch.nn.Embedding(vocabulary, width)
        self.place = torch.nn.Parameter(torch.zeros(length, width))
        layer = torch.nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.body = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = torch.nn.Linear(width, vocabulary)
        mask = torch.nn.Transformer.generate_square_subsequent_mask(length)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, ids):
        seen = self.body(self.token(ids) + self.place, mask=self.mask, is_causal=True)
        return self.head(seen).flatten(0, 1)


def transformer():
    ids = torch.randint(0, 256, (16, 256))
    return Transformer(), ids, ids.roll(-1, 1).flatten()


class Loop:
    """A training with GradScaler, as in PyTorch's own example."""

    def __init__(self, make, out=None):
        torch.manual_seed(1)
        model, inputs, targets = make()
        self.model = model.cuda()
        self.inputs, self.targets = inputs.cuda(), targets.cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4)
        self.scaler = torch.amp.GradScaler("cuda")
        self.probe = ampprobe.attach(self.model, self.optimizer, scaler=self.scaler, out=out) if out else None

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.float16):
            outputs = self.model(self.inputs)
            loss = torch.nn.functional.cross_entropy(outputs.float(), self.targets)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def block(self):
        began = time.perf_counter()
        for _ in range(STEPS):
            self.step()
        torch.cuda.synchronize()
        return time.perf_counter() - began


def compare(make, seconds, probed):
    with tempfile.TemporaryDirectory() as folder:
        warm = Loop(make)
        for _ in range(3):
            warm.block()
        out = os.path.join(folder, "run.ampprobe.json")
        loops = Loop(make), Loop(make, out if probed else None)
        for loop in loops:
            loop.step()
        torch.cuda.synchronize()
        times = [[], []]
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or len(times[0]) < 3:
            for which in (0, 1) if len(times[0]) % 2 == 0 else (1, 0):
                times[which].append(loops[which].block())
        found = {"network": make.__name__, "probed": probed, "steps": len(times[0]) * STEPS}
        if probed:
            loops[1].probe.close()
            with open(out, encoding="utf-8") as file:
                document = json.load(file)
            found["steps_probed"] = document["cells"][0]["probes"]["steps_probed"]
            found["not_counted"] = document["probe"]["not_counted"]
            found["reason"] = loops[1].probe.reason
    ratios = [b / a for a, b in zip(*times)]
    found["step_us"] = 1e6 * statistics.median(times[0]) / STEPS
    found["ratio"] = sum(times[1]) / sum(times[0])
    found["median_ratio"] = statistics.median(ratios)
    found["standard_error"] = statistics.stdev(ratios) / math.sqrt(len(ratios))
    return found


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 12
    if not torch.cuda.is_available():
        print("skipped: torch sees no GPU", file=sys.stderr)
        return 77
    rows = [compare(make, seconds, probed) for make in (mlp, transformer) for probed in (False, True)]
    about = {"torch": torch.__version__, "gpu": torch.cuda.get_device_name(), "block": STEPS, "rows": rows}
    json.dump(about, sys.stdout, indent=1)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
