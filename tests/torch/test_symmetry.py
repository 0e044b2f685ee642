"""What says nothing of a training changes no diagnosis: names, the order of parameters, threads, the seed,
and the unit of the loss (with the rate and the loss scale in that unit)."""

import os
import tempfile
import unittest

from settings import ampprobe, take_step, torch, use_library
from test_causes import PROGRAM, diagnose

F = torch.nn.functional
STEPS = 60
PLAIN = {"names": ("first", "middle", "last"), "backward": False, "threads": 1, "seed": 0, "unit": 1.0}
VARIANTS = (
    {"names": ("z", "m", "a")},
    {"names": ("norm_weight", "bias", "emb")},
    {"backward": True},
    {"threads": 2},
    {"seed": 17},
    {"unit": 2.0**10},
    {"unit": 2.0**-10},
)


class Net(torch.nn.Module):
    """Three layers under any names."""

    def __init__(self, names):
        super().__init__()
        self.names = names
        for name, (read, made) in zip(names, ((8, 32), (32, 32), (32, 4))):
            setattr(self, name, torch.nn.Linear(read, made))

    def forward(self, inputs):
        first, middle, last = (getattr(self, name) for name in self.names)
        return last(middle(first(inputs).relu()).relu())

    def layer(self, number):
        """A layer by its place."""
        return getattr(self, self.names[number])


def healthy(model, options):
    """Learns."""


def too_fast(model, options):
    """A rate at which the loss becomes NaN."""
    options["lr"] = 300.0


def never_cleared(model, options):
    """No zero_grad."""
    options["clear"] = False


def stored_in_half(model, options):
    """Weights in bf16, and a rate that moves none of them."""
    model.to(torch.bfloat16)
    options.update(lr=1e-4, half=torch.bfloat16, autocast=False)


def cut(model, options):
    """The first layer is asked for values that no gradient comes back from."""
    model.layer(0).register_forward_hook(lambda module, inputs, output: output.detach())


def beyond_fp16(model, options):
    """Outputs of the second layer that fp16 does not hold."""
    with torch.no_grad():
        model.layer(1).weight.mul_(2e5)
        model.layer(2).weight.mul_(5e-6)
    options.update(half=torch.float16)


def record(kind, path, names, backward, threads, seed, unit):
    """One run with this mistake."""
    torch.manual_seed(seed)
    torch.set_num_threads(threads)
    model = Net(names)
    options = {"lr": 0.2, "half": None, "autocast": True, "clear": True}
    kind(model, options)
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters[::-1] if backward else parameters, lr=options["lr"] / unit)
    half, scaler = options["half"], None
    if half is torch.float16:
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10 / unit)
    probe = ampprobe.attach(model, optimizer, scaler=scaler, out=path, every=1)
    for _ in range(STEPS):
        inputs = torch.randn(64, 8)
        labels = inputs[:, :4].argmax(dim=1)
        with torch.autocast("cpu", dtype=half or torch.bfloat16, enabled=bool(half) and options["autocast"]):
            outputs = model(inputs.to(next(model.parameters()).dtype))
        loss = unit * F.cross_entropy(outputs.float(), labels)
        if options["clear"]:
            optimizer.zero_grad()
        take_step(loss, optimizer, scaler)
    probe.close()
    assert probe.reason is None, probe.reason


@unittest.skipUnless(PROGRAM, "AMPBENCH is not set")
class Symmetry(unittest.TestCase):
    def setUp(self):
        use_library()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(torch.set_num_threads, torch.get_num_threads())
        self.path = os.path.join(folder.name, "run.ampprobe.json")

    def answer(self, kind, **how):
        """State, first cause, and the place of its layer in the net."""
        how = {**PLAIN, **how}
        record(kind, self.path, **how)
        _, cell = diagnose(self.path)
        first = cell["verdicts"][0]
        layer = first.get("layer") or ""
        place = how["names"].index(layer.split(".")[0]) if layer else None
        return cell["state"], first["id"], place

    def check(self, kind, cause):
        plain = self.answer(kind)
        self.assertEqual(plain[1], cause)
        for variant in VARIANTS:
            with self.subTest(kind=kind.__name__, **variant):
                self.assertEqual(self.answer(kind, **variant), plain)

    def test_a_healthy_run(self):
        self.check(healthy, "healthy")

    def test_a_rate_that_is_too_high(self):
        self.check(too_fast, "learning_rate_too_high")

    def test_gradients_that_are_not_cleared(self):
        self.check(never_cleared, "gradients_not_cleared")

    def test_weights_in_half(self):
        self.check(stored_in_half, "weight_update_lost")

    def test_an_overflow(self):
        self.check(beyond_fp16, "activation_overflow")


if __name__ == "__main__":
    unittest.main()
