"""Without a closure: the hooks of a probed step name the layer that made the first non-finite value."""

import json
import os
import tempfile
import unittest

from settings import _abi, ampprobe, torch, use_library, use_recorder

HALF = torch.float16


def net(*more):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), *more, torch.nn.Linear(16, 1))


def train(model, steps=1, scale=2.0**10, half=HALF, scaler=True, loss_of=None, inputs=None, **options):
    """A training without a closure; its probe, which is closed, and the probe's origin events."""
    torch.manual_seed(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, enabled=scaler)
    probe = ampprobe.attach(model, optimizer, scaler=scaler, **options)
    for _ in range(steps):
        x = torch.randn(32, 8) if inputs is None else inputs
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=half, enabled=half is not None):
            loss = (loss_of or (lambda y: y.float().square().mean()))(model(x))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    probe.close()
    assert probe.reason is None, probe.reason
    return probe, probe.origins


def layers_at(*steps):
    return lambda step: _abi.PLAN_GRADIENTS | (_abi.PLAN_LAYERS if step in steps else 0)


class Origin(unittest.TestCase):
    def setUp(self):
        use_recorder()

    def one(self, found, says="probe.step(closure)", **expected):
        self.assertEqual(len(found[1]), 1, found[1])
        event = found[1][0]
        self.assertEqual({key: event[key] for key in expected}, expected)
        self.assertFalse(event["ran_again"])
        note = [note for note in found[0].record.notes if note.startswith("first non-finite value")]
        self.assertEqual(len(note), 1)
        self.assertIn(says, note[0])
        return event

    def test_inputs_beyond_the_format(self):
        found = train(net(), inputs=torch.full((32, 8), 7e5))
        event = self.one(found, op="0", type="Linear", by="cast", tensor="out", format="fp16", step=0)
        self.assertEqual(event["pass"], "forward")
        self.assertEqual((event["cause"]["id"], event["read_largest"]), ("range_overflow", 7e5))

    def test_a_product_beyond_the_format(self):
        model = net()
        with torch.no_grad():
            model[0].weight.mul_(3e5)
        self.one(train(model), op="0", type="Linear", by="weight_cast", step=0)
        model = net(torch.nn.Linear(16, 16))
        with torch.no_grad():
            model[2].weight.fill_(6e4)
        event = self.one(train(model, inputs=torch.full((32, 8), 3.0)), op="2", type="Linear", by="op")
        self.assertEqual(event["cause"]["id"], "range_overflow")  # in double
        self.assertGreater(event["cause"]["value"], 65504)
        self.assertEqual(event["count"], 32 * 16)

    def test_weights_that_are_not_finite(self):
        model = net()
        with torch.no_grad():
            model[2].weight[0, 0] = float("nan")
        event = self.one(train(model, half=None), op="2", format="fp32")
        self.assertEqual(event["cause"]["id"], "bad_weights")

    def test_backward_of_a_layer(self):
        # The gradient of the ReLU's output is 6e4 times a weight of 8: made by the last layer.
        model = net()
        with torch.no_grad():
            model[2].weight.fill_(8.0)
        found = train(model, scale=2.0**15, loss_of=lambda y: y.float().sum())
        event = self.one(found, op="2", type="Linear", tensor="in0.grad", format="fp16")
        self.assertEqual((event["pass"], event["loss_scale"]), ("backward", 2.0**15))

    def test_backward_of_the_loss(self):
        event = self.one(train(net(), scale=2.0**30), op="loss", type=None, tensor=None)
        self.assertEqual(event["pass"], "backward")

    def test_a_loss_that_is_not_a_number(self):
        event = self.one(train(net(), loss_of=lambda y: (y.float() * 0 - 1).log().mean()), op="loss")
        self.assertEqual(event["pass"], "forward")

    def test_a_parameters_gradient_alone(self):
        # All gradients of outputs are finite; the sum over rows that the bias' gradient is, is not.
        found = train(net(), scale=2.0**13, loss_of=lambda y: y.float().sum())
        event = self.one(found, op="2", format="fp32")
        self.assertIn(event["tensor"], ("bias.grad", "weight.grad"))

    def test_an_operation_outside_the_modules(self):
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)

            def forward(self, x):
                return self.b(self.a(x) * float("inf"))

        probe, origins = train(Net())
        self.assertEqual(origins, [])
        self.assertTrue(any("b read it, and no layer before it" in note for note in probe.record.notes))

    def test_masks_and_healthy_steps_say_nothing(self):
        class Mask(torch.nn.Module):
            def forward(self, x):
                return torch.zeros_like(x).masked_fill(x > 0, float("-inf"))

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.mask, self.b = torch.nn.Linear(8, 8), Mask(), torch.nn.Linear(8, 1)

            def forward(self, x):
                x = self.a(x)
                return self.b(x + self.mask(x).exp())

        for half in (HALF, None):
            probe, origins = train(Net(), steps=3, half=half)
            self.assertEqual((origins, probe.record.notes), ([], []))

    def test_the_step_after_a_skip_names_it(self):
        # The second step only is looked at, which overflows as the first one did: every operation of it.
        use_recorder(layers_at(1))
        found = train(net(), steps=3, inputs=torch.full((32, 8), 7e5))
        says = "cast in 0 at test_origin.py"
        self.one(found, says, op="0", step=1, last_step=1, times=1)
        use_recorder(layers_at(1, 2))
        found = train(net(), steps=3, inputs=torch.full((32, 8), 7e5))
        self.one(found, says, step=1, last_step=2, times=2)

    def test_without_a_scaler(self):
        model = net()
        with torch.no_grad():
            model[0].weight.fill_(1.0)
        found = train(model, half=torch.bfloat16, scaler=False, inputs=torch.full((32, 8), 1e38))
        self.one(found, op="0", type="Linear", format="bf16", by="op")

    def test_second_micro_batch(self):
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        probe = ampprobe.attach(model, optimizer)
        for factor in (1.0, 1e38):
            (model(torch.ones(4, 8)).mean() * factor * factor).backward()
        optimizer.step()
        probe.close()
        self.assertEqual([event["op"] for event in probe.origins], ["loss"])

    def test_the_librarys_record(self):
        """The C library finds the value and keeps the event; `ampbench diagnose` reads it."""
        if not os.environ.get("AMPPROBE_LIBRARY"):
            self.skipTest("no library")
        use_library()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "run.json")
            train(net(), steps=30, inputs=torch.full((32, 8), 7e5), out=path)
            with open(path, encoding="utf-8") as file:
                event = json.load(file)["probe"]["about"]["origin"][0]
            self.assertEqual(
                (event["op"], event["by"], event["cause"]["id"]), ("0", "cast", "range_overflow")
            )
            if os.environ.get("AMPBENCH"):
                import subprocess

                said = subprocess.run(
                    [os.environ["AMPBENCH"], "diagnose", path], capture_output=True, text=True
                )
                self.assertIn("activation_overflow", said.stdout)
                self.assertIn("0 (Linear) is the first op to produce a non-finite value", said.stdout)


if __name__ == "__main__":
    unittest.main()
