"""Layer B: hooks of probed steps see every layer once, change nothing and go away."""

import copy
import dataclasses
import functools
import unittest

from settings import Run, _abi, ampprobe, equal, mlp, torch, use_recorder

FORWARD, BACKWARD = _abi.ACTIVATION, _abi.ACTIVATION_GRADIENT


def every_fifth(step):
    plan = _abi.PLAN_GRADIENTS
    return plan | (_abi.PLAN_LAYERS | _abi.PLAN_UPDATE | _abi.PLAN_STATE if step % 5 == 0 else 0)


def one_step(model, *inputs, call=None, backward=None):
    """One probed step; layer -> (outputs seen, gradients seen), and the recorder."""
    use_recorder()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    probe = ampprobe.attach(model, optimizer)
    output = call(model) if call else model(*inputs)
    (backward or (lambda value: value.float().square().sum().backward()))(output)
    optimizer.step()
    probe.close()
    assert probe.reason is None, probe.reason
    counts = {}
    for item in probe.record.tensors:
        if item["role"] in (FORWARD, BACKWARD):
            forward, grad = counts.get(item["name"], (0, 0))
            counts[item["name"]] = (forward + (item["role"] == FORWARD), grad + (item["role"] == BACKWARD))
    return counts, probe.record, probe


class Layers(unittest.TestCase):
    def test_training_is_bit_equal(self):
        for name, options in {
            "fp16": {},
            "bf16": {"half": torch.bfloat16, "scaler": False},
            "fp32": {"half": None},
            "accumulation": {"accumulate": 3},
        }.items():
            with self.subTest(name):
                use_recorder(every_fifth)
                run = Run(**options)
                self.assertTrue(equal(Run(probe=False, **options), run))
                shown = [bool(flags & _abi.LAYERS_SHOWN) for flags in run.record.of("flags")]
                self.assertEqual(shown, [step % 5 == 0 for step in range(24)])
                self.assertEqual(
                    {u["step"] for u in run.record.updates},
                    {s for s in range(0, 24, 5) if run.record.steps[s]["stepped"]},
                )
                self.assertTrue(all(u["changed"] > 0 for u in run.record.updates))

    def test_level_is_what_ran(self):
        use_recorder()
        self.assertEqual(Run(steps=2).record.settings["level"], "torch:autocast")
        self.assertEqual(Run(steps=2, half=None).record.settings["level"], "O0")
        run = Run(steps=2)
        found = run.record.settings["about"]["precision"]
        self.assertEqual(found["autocast"], {"cpu": "float16"})
        self.assertEqual(found["layer_outputs"]["0"], "float16")

    def test_in_place_operations(self):
        class Net(torch.nn.Module):
            def __init__(self, inplace):
                super().__init__()
                torch.manual_seed(0)
                self.a, self.n = torch.nn.Conv2d(2, 4, 3), torch.nn.BatchNorm2d(4)
                self.r = torch.nn.ReLU(inplace)
                self.inplace = inplace

            def forward(self, x):
                y = self.n(self.a(x))
                if self.inplace:
                    y += 1
                else:
                    y = y + 1
                return self.r(y)

        x = torch.randn(2, 2, 8, 8)
        _, one, _ = one_step(Net(True), x)
        _, other, _ = one_step(Net(False), x)
        sums = [{i["name"]: i["sum"] for i in r.tensors if i["role"] == BACKWARD} for r in (one, other)]
        self.assertEqual(sums[0], sums[1])
        self.assertEqual(set(sums[0]), {"a", "n", "r"})

    def test_module_used_twice_and_containers(self):
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.a = torch.nn.Linear(4, 4)
                self.l = torch.nn.LSTM(4, 3)
                self.e = torch.nn.Embedding(5, 4)

            def forward(self, x):
                return self.l(self.a(self.a(x)) + self.e(torch.tensor([1, 2])))[0]

        counts, _, probe = one_step(Net(), torch.randn(2, 4))
        self.assertEqual(counts["a"], (2, 2))
        self.assertEqual(counts["l"][0], 1)
        self.assertEqual(counts["l#1"][0], 1)
        self.assertEqual(counts["e"], (1, 1))
        self.assertEqual(probe.layers.silent(), [])

    def test_attention_and_silent_layers(self):
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.m = torch.nn.MultiheadAttention(8, 2)
                self.never = torch.nn.Linear(2, 2)

            def forward(self, x):
                return self.m(x, x, x)[0]

        counts, record, _ = one_step(Net(), torch.randn(3, 2, 8))
        self.assertEqual(counts["m"], (1, 1))
        self.assertNotIn("m.out_proj", counts)
        self.assertEqual(record.settings["about"]["silent_layers"], ["m.out_proj", "never"])

    def test_dataclass_output(self):
        @dataclasses.dataclass
        class Result:
            value: object

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.a = torch.nn.Linear(4, 4)

            def forward(self, x):
                return Result(self.a(x))

        counts, _, _ = one_step(Net(), torch.randn(2, 4), backward=lambda r: r.value.sum().backward())
        self.assertEqual(counts, {"a": (1, 1)})

    def test_frozen_first_layer_is_seen_forward_only(self):
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
        model[0].requires_grad_(False)
        counts, _, _ = one_step(model, torch.randn(2, 4))
        self.assertEqual(counts, {"0": (1, 0), "1": (1, 1)})

    def test_activation_checkpointing_counts_forward_once(self):
        for reentrant in (True, False):
            with self.subTest(reentrant=reentrant):
                model = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(3)])

                def call(net, reentrant=reentrant):
                    x = torch.randn(2, 4, requires_grad=True)
                    return torch.utils.checkpoint.checkpoint(net, x, use_reentrant=reentrant)

                counts, _, _ = one_step(model, call=call)
                self.assertEqual(counts, {name: (1, 1) for name in "012"})

    def test_gradient_penalty(self):
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
        x = torch.randn(2, 4, requires_grad=True)

        def backward(output):
            (gradient,) = torch.autograd.grad(output.sum(), x, create_graph=True)
            (output.sum() + gradient.square().sum()).backward()

        counts, _, probe = one_step(model, x, backward=backward)
        self.assertEqual(counts["0"][0], 1)
        self.assertGreaterEqual(counts["0"][1], 2)
        self.assertIsNone(probe.reason)

    def test_expanded_gradients_are_not_read_out_of_bounds(self):
        counts, record, _ = one_step(
            torch.nn.Linear(4, 40), torch.randn(100, 4), backward=lambda output: output.sum().backward()
        )
        self.assertEqual(counts, {"Linear": (1, 1)})
        gradient = [item for item in record.tensors if item["role"] == BACKWARD]
        self.assertEqual(gradient[0]["sum"], 4000.0)

    def test_function_transforms(self):
        model = torch.nn.Linear(4, 4)

        def call(net):
            torch.vmap(net)(torch.randn(3, 2, 4))
            return net(torch.randn(2, 4))

        counts, record, _ = one_step(model, call=call)
        self.assertGreaterEqual(counts["Linear"][0], 1)
        self.assertTrue(any("function transform" in note for note in record.notes))

    def test_script_modules_are_passed_by(self):
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.jit.script(torch.nn.Linear(4, 4)))
        counts, _, _ = one_step(model, torch.randn(2, 4))
        self.assertEqual(counts, {"0": (1, 1)})

    def test_validation_is_not_counted(self):
        model = torch.nn.Sequential(torch.nn.Linear(4, 4))

        def call(net):
            net.eval()
            net(torch.randn(2, 4))
            net.train()
            with torch.no_grad():
                net(torch.randn(2, 4))
            return net(torch.randn(2, 4))

        counts, _, _ = one_step(model, call=call)
        self.assertEqual(counts, {"0": (1, 1)})

    def test_copy_of_a_model_does_not_probe(self):
        use_recorder()
        model = mlp()
        probe = ampprobe.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))
        self.assertTrue(probe.layers.on)
        average = copy.deepcopy(model)
        average(torch.randn(4, 8)).sum().backward()
        self.assertEqual(probe.record.tensors, [])
        probe.close()

    def test_compiled_models(self):
        for before in (True, False):  # attached before torch.compile, or after
            for how in ("wrapper", "method"):
                with self.subTest(before=before, how=how):
                    torch._dynamo.reset()
                    use_recorder()
                    torch.manual_seed(0)
                    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
                    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                    probe = ampprobe.attach(model, optimizer) if before else None
                    compiled = model
                    if how == "wrapper":
                        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
                    else:
                        model.compile(backend="aot_eager", fullgraph=True)
                    if probe is None:
                        probe = ampprobe.attach(compiled, optimizer)
                    for _ in range(3):
                        optimizer.zero_grad()
                        compiled(torch.randn(2, 4)).sum().backward()
                        optimizer.step()
                    probe.close()
                    self.assertIsNone(probe.reason)
                    self.assertEqual(len(probe.record.steps), 3)
                    self.assertEqual([t for t in probe.record.tensors if t["role"] == FORWARD], [])
                    if not before:
                        self.assertTrue(any("compiled" in note for note in probe.record.notes))

    def test_nothing_is_compiled_again(self):
        from torch._dynamo.utils import counters

        use_recorder(plans=lambda step: 15 if step < 3 else _abi.PLAN_GRADIENTS)
        graphs = []
        for probe in (False, True):  # it is attached to the model, and the loop runs what was made of it
            torch._dynamo.reset()
            counters.clear()
            run = Run(probe=probe, steps=8, compiled="aot_eager", scale=2.0**8)
            graphs.append(counters["stats"]["unique_graphs"])
        self.assertGreater(graphs[0], 0)
        self.assertEqual(graphs[0], graphs[1])
        self.assertTrue(any("compiled" in note for note in run.record.notes))

    def test_ranges_of_fp16_under_autocast_in_bf16_are_warned_of(self):
        for half, options, warns in (
            (torch.bfloat16, {}, True),
            (torch.bfloat16, {"half": "bf16"}, False),
            (torch.bfloat16, {"half": "fp16"}, False),  # it is meant
            (torch.float16, {}, False),
        ):
            with self.subTest(half, options=options):
                use_recorder()
                attach = functools.partial(ampprobe.attach, **options)
                run = Run(steps=2, half=half, scaler=False, give_scaler=False, attach=attach)
                self.assertEqual(any('half="bf16"' in note for note in run.record.notes), warns)

    def test_integers_in_half_are_named(self):
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.time = torch.nn.Linear(1, 4)

            def forward(self, x):
                return self.time(x)

        model = Net().bfloat16()
        _, record, _ = one_step(model, torch.arange(1000.0)[:, None].bfloat16())
        self.assertTrue(any(note.startswith("time: its input is torch.bfloat16") for note in record.notes))
        _, record, _ = one_step(Net().bfloat16(), torch.arange(200.0)[:, None].bfloat16())
        self.assertEqual(record.notes, [])


if __name__ == "__main__":
    unittest.main()
