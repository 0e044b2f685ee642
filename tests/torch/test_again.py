"""probe.step(closure): a step that overflowed is run again, its cause is named, training is the same."""

import unittest

from settings import _abi, ampprobe, batch, inductor, mlp, torch, use_recorder


def train(probed, compiled=None, spoil=None, scale=2.0**20, steps=12, whole=False, **options):
    torch.manual_seed(0)
    torch._dynamo.reset()
    model = mlp()
    if spoil:
        spoil(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=4)
    forward = torch.compile(model, backend=compiled) if compiled else model
    shown = forward if whole else model
    probe = ampprobe.attach(shown, optimizer, scaler=scaler, **options) if probed else None
    losses = []

    def loss_of(inputs, labels):
        with torch.autocast("cpu", dtype=torch.float16):
            return torch.nn.functional.cross_entropy(forward(inputs).float(), labels)

    def body(inputs, labels):
        optimizer.zero_grad()
        loss = loss_of(inputs, labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())

    for step in range(steps):
        inputs, labels = batch(step)
        if probe is None:
            body(inputs, labels)
        else:
            with probe.step(lambda inputs=inputs, labels=labels: loss_of(inputs, labels)):
                body(inputs, labels)
    if probe is not None:
        probe.close()
    return losses, [v.clone() for v in model.state_dict().values()], scaler.state_dict(), probe


class Again(unittest.TestCase):
    def setUp(self):
        use_recorder()

    def same(self, one, other):
        self.assertEqual(str(one[0]), str(other[0]))
        self.assertTrue(all(torch.equal(a.nan_to_num(5), b.nan_to_num(5)) for a, b in zip(one[1], other[1])))
        self.assertEqual(one[2], other[2])

    def test_training_is_bit_equal(self):
        for compiled in (None, "aot_eager", *inductor):
            with self.subTest(compiled=compiled):
                probed = train(True, compiled, steps=200, reference_every=20)
                self.same(train(False, compiled, steps=200), probed)
                self.assertIsNone(probed[3].reason)
                self.assertEqual([note for note in probed[3].record.notes if "could not" in note], [])
                about = probed[3].record.settings["about"]
                self.assertTrue(about["origin"])
                self.assertTrue(about["reference"])

    def test_layers_of_a_compiled_model_are_shown_beside_the_training(self):
        """In the steps that should show them; of each what an eager training shows."""
        plain, eager = train(False, "aot_eager", steps=5), train(True, steps=5)[3].record
        for whole in (True, False):  # what attach was given: the compiled model, or the one inside
            with self.subTest(whole=whole):
                run = train(True, "aot_eager", steps=5, whole=whole)
                self.same(plain, run)
                self.assertIsNone(run[3].reason)
                shown = [bool(flags & _abi.LAYERS_SHOWN) for flags in run[3].record.of("flags")]
                self.assertEqual(shown, [True] * 5)
                self.assertEqual(run[3].record.of("micro_batches"), [1] * 5)
                names = [
                    {(item["name"], item["role"]): item["count"] for item in found.tensors}
                    for found in (eager, run[3].record)
                ]
                self.assertTrue(names[0])
                self.assertEqual(*names)
                self.assertEqual(run[3].record.settings["about"]["silent_layers"], [])

    def test_what_is_outside_the_model_stays_as_it_is(self):
        """A parameter of the loss, an update inside the backward pass, a buffer that cannot be written."""

        def losses(probed, kind):
            torch.manual_seed(0)
            model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
            if kind == "buffer":
                model.register_buffer("mask", torch.ones(1).expand(8))
            weight = torch.nn.Parameter(torch.ones(()))
            if kind == "hook":

                def update(parameter):
                    with torch.no_grad():
                        parameter -= 0.01 * parameter.grad
                    parameter.grad = None

                model[0].weight.register_post_accumulate_grad_hook(update)
            optimizer = torch.optim.SGD([*model.parameters(), weight], lr=0.05)
            scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40)
            if probed:
                probe = ampprobe.attach(model, optimizer, scaler=scaler, reference_every=1)
            inputs = torch.randn(16, 8)
            found = []
            for _ in range(5):

                def closure():
                    return (weight * model(inputs)).pow(2).mean() - weight

                if probed:
                    context = probe.step(closure)
                    context.__enter__()
                loss = closure()
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update(2.0**10)
                optimizer.zero_grad()
                if probed:
                    context.__exit__(None, None, None)
                found.append(loss.item())
            if probed:
                probe.close()
            return found

        for kind in ("outside", "hook", "buffer"):
            with self.subTest(kind=kind):
                self.assertEqual(str(losses(False, kind)), str(losses(True, kind)))  # NaN is not itself

    def test_overflow_in_the_backward_pass(self):
        found = train(True)[3].record.settings["about"]["origin"][0]
        self.assertEqual((found["step"], found["pass"], found["format"]), (0, "backward", "fp16"))
        self.assertEqual((found["cause"]["id"], found["cause"]["limit"]), ("scale_induced", 65504.0))

    def test_overflow_in_the_forward_pass(self):
        def spoil(model):
            with torch.no_grad():
                model[4].weight.mul_(1e6)

        found = train(True, spoil=spoil)[3].record.settings["about"]["origin"][0]
        self.assertEqual((found["pass"], found["op"], found["step"]), ("forward", "4", 0))
        self.assertEqual(found["cause"]["id"], "range_overflow")
        self.assertGreater(found["infinite"], 0)

    def test_reference_names_what_was_flushed(self):
        rows = train(True, scale=2.0**-12, steps=1, reference_every=1)[3].references[0]["tensors"]
        by_name = {row["name"]: row for row in rows}
        self.assertGreater(by_name["0.weight"]["flushed"], 0)
        self.assertLess(by_name["0.weight"]["cosine"], 0.9999)
        rows = train(True, scale=2.0**10, steps=1, reference_every=1)[3].references[0]["tensors"]
        self.assertTrue(all(row["cosine"] > 0.999 for row in rows if row["cosine"] is not None))
        self.assertEqual({row["flushed"] for row in rows}, {0})

    def test_a_closure_that_fails_is_noted(self):
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        probe = ampprobe.attach(model, optimizer, reference_every=1)

        def bad():
            raise KeyError("gone")

        with probe.step(bad):
            model(torch.ones(1, 2)).sum().backward()
            gradient = model.weight.grad
            optimizer.step()
        self.assertIs(model.weight.grad, gradient)
        self.assertIsNone(probe.reason)
        self.assertTrue(any("could not be run again: KeyError" in note for note in probe.record.notes))
        probe.close()


if __name__ == "__main__":
    unittest.main()
