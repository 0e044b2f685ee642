"""Layer A on torch: every setting is bit-equal with and without the probe, and what it saw is the truth."""

import math
import unittest

from settings import Run, _abi, ampprobe, equal, inductor, torch, use_recorder


class Steps(unittest.TestCase):
    def setUp(self):
        use_recorder(plans=lambda step: _abi.PLAN_GRADIENTS)

    def check(self, scale_seen=True, skips=True, **options):
        """Runs a setting twice; compares the runs, and the record with what the run itself knows."""
        plain, probed = Run(probe=False, **options), Run(**options)
        self.assertTrue(equal(plain, probed))
        record = probed.record
        self.assertIsNone(probed.probe.reason)
        self.assertEqual(len(record.steps), len(probed.losses))
        self.assertEqual(record.closed, 1)
        if scale_seen:
            self.assertEqual(record.of("scale_before"), probed.scales)
            self.assertEqual(record.of("scale_after")[:-1], probed.scales[1:])
            self.assertEqual(record.of("found_inf"), probed.skips)
            self.assertEqual(record.of("stepped"), [1 - skip for skip in probed.skips])
            self.assertEqual(sum(probed.skips) > 0, skips)
        for seen, true in zip(record.of("loss"), probed.losses):
            self.assertTrue(math.isclose(seen, true, rel_tol=1e-12))
        for seen, true in zip(record.of("sum"), probed.sums):
            self.assertTrue(math.isclose(seen, true, rel_tol=1e-9), (seen, true))
        return probed

    def test_implicit_unscale(self):
        self.check()

    def test_scaler_is_found_when_it_is_not_given(self):
        self.check(give_scaler=False)

    def test_unscale_and_clip(self):
        run = self.check(clip="unscaled")
        self.assertTrue(all(flags & 24 == 24 and not flags & 32 for flags in run.record.of("flags")))
        taken = [facts for facts in run.record.steps if not facts["found_inf"]]
        self.assertTrue(all(facts["norm_after_clip"] <= 0.5 for facts in taken))
        self.assertEqual(run.record.settings["clip_norm"], 0.5)

    def test_clip_before_unscale_is_named(self):
        run = self.check(clip="scaled", give_scaler=False)
        self.assertTrue(all(flags & 32 for flags in run.record.of("flags")))

    def test_accumulation(self):
        run = self.check(accumulate=4)
        self.assertEqual(run.record.settings["accumulation"], 4)

    def test_optimizers(self):
        makers = {
            "adam": lambda p: torch.optim.Adam(p),
            "foreach": lambda p: torch.optim.AdamW(p, foreach=True),
            "fused adam": lambda p: torch.optim.Adam(p, fused=True),
            "fused adamw": lambda p: torch.optim.AdamW(p, fused=True),
            "fused sgd": lambda p: torch.optim.SGD(p, lr=0.05, fused=True),
            "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-3),
        }
        for name, maker in makers.items():
            with self.subTest(name):
                self.check(optimizer=maker)

    def test_fused_with_explicit_unscale(self):
        self.check(optimizer=lambda p: torch.optim.AdamW(p, fused=True), clip="unscaled")

    def test_gradients_kept(self):
        self.check(set_to_none=False)

    def test_bf16_with_and_without_scaler(self):
        self.check(half=torch.bfloat16, skips=False)
        run = self.check(half=torch.bfloat16, scaler=False, scale_seen=False)
        self.assertEqual(set(run.record.of("stepped")), {1})
        self.assertTrue(all(not flags & 1 for flags in run.record.of("flags")))

    def test_clipping_without_scaler_sees_gradients_before_it(self):
        run = self.check(half=torch.bfloat16, scaler=False, scale_seen=False, clip="scaled")
        self.assertTrue(all(flags & 24 == 24 and not flags & 32 for flags in run.record.of("flags")))

    def test_disabled_scaler_is_no_scaler(self):
        self.check(scaler=False, half=torch.bfloat16, clip="unscaled", scale_seen=False)

    def test_closure(self):
        run = self.check(closure=True, scaler=False, half=None, scale_seen=False, steps=8)
        first = run.record.steps[0]
        self.assertGreater(first["sum"], 0)  # at the entry of step there was no gradient yet
        lbfgs = self.check(
            closure=True,
            scaler=False,
            half=None,
            scale_seen=False,
            steps=5,
            optimizer=lambda p: torch.optim.LBFGS(p, max_iter=4),
        )
        self.assertEqual(len(lbfgs.record.steps), 5)

    def test_schedule_that_steps_on_skips_is_named(self):
        def schedule(optimizer):
            return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)

        run = self.check(schedule=schedule)
        flags = run.record.of("flags")
        after_skip = [index + 1 for index, skip in enumerate(run.skips[:-1]) if skip]
        self.assertTrue(after_skip)
        self.assertEqual([i for i, flag in enumerate(flags) if flag & 64], after_skip)
        self.assertEqual(len(set(run.record.of("lr"))), 24)

    def test_compiled_model(self):
        self.check(compiled="aot_eager", steps=12)

    def test_compiled_optimizer_step(self):
        for attach_first in (True, False):
            with self.subTest(attach_first=attach_first):
                torch.manual_seed(0)
                model = torch.nn.Linear(8, 4)
                optimizer = torch.optim.Adam(model.parameters())
                probe = ampprobe.attach(model, optimizer) if attach_first else None
                step = torch.compile(optimizer.step, backend="aot_eager")
                seen = 0
                for index in range(6):
                    if index == 2 and probe is None:
                        probe = ampprobe.attach(model, optimizer)
                    optimizer.zero_grad()
                    model(torch.ones(2, 8)).sum().backward()
                    step()
                    seen += probe is not None
                probe.close()
                self.assertIsNone(probe.reason)
                self.assertEqual(len(probe.record.steps), seen)

    def test_several_optimizers_and_a_shared_scaler(self):
        def train(probed):
            torch.manual_seed(0)
            model = torch.nn.ModuleList([torch.nn.Linear(8, 8), torch.nn.Linear(8, 4)])
            optimizers = [
                torch.optim.SGD(model[0].parameters(), lr=0.1),
                torch.optim.Adam(model[1].parameters()),
            ]
            scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, growth_interval=4)
            probe = ampprobe.attach(model, optimizers, scaler=scaler) if probed else None
            scales = []
            for _ in range(20):
                for optimizer in optimizers:
                    optimizer.zero_grad()
                scaler.scale(model[1](model[0](torch.randn(4, 8))).square().mean() * 16).backward()
                scales.append(scaler.get_scale())
                for optimizer in optimizers:
                    scaler.step(optimizer)
                scaler.update()
            if probe:
                probe.close()
            return model, probe, scales

        plain, _, _ = train(False)
        model, probe, scales = train(True)
        self.assertTrue(all(torch.equal(a, b) for a, b in zip(plain.parameters(), model.parameters())))
        for group in (0, 1):
            self.assertEqual(probe.record.of("scale_before", group), scales)
            self.assertEqual(probe.record.of("step", group), list(range(20)))
        self.assertIn(1, probe.record.of("found_inf", 0))

    def test_steps_that_the_loop_leaves_by_itself(self):
        for scaled in (True, False):
            with self.subTest(scaled=scaled):
                model = torch.nn.Linear(4, 4)
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                scaler = torch.amp.GradScaler("cpu", init_scale=4.0, enabled=scaled)
                probe = ampprobe.attach(model, optimizer)
                for step in range(5):
                    optimizer.zero_grad()
                    factor = float("nan") if step == 2 else 1.0
                    scaler.scale(model(torch.ones(2, 4)).sum() * factor).backward()
                    scaler.unscale_(optimizer)
                    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                    if not norm.isfinite():
                        if scaled:
                            scaler.update()
                        continue
                    scaler.step(optimizer)
                    scaler.update()
                probe.close()
                self.assertIsNone(probe.reason)
                self.assertEqual(probe.record.of("stepped"), [1, 1, 0, 1, 1])

    def test_parameters_added_in_steps_that_show_nothing(self):
        use_recorder(lambda step: _abi.PLAN_GRADIENTS if step % 4 == 0 else 0)
        model = torch.nn.Linear(4, 4)
        added = torch.nn.Parameter(torch.ones(3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        probe = ampprobe.attach(model, optimizer, scaler=scaler)
        for step in range(9):
            if step == 2:
                optimizer.add_param_group({"params": [added]})
            optimizer.zero_grad()
            factor = float("inf") if step == 3 else 1.0
            scaler.scale(model(torch.ones(2, 4)).sum() + (added * factor).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
        probe.close()
        self.assertIsNone(probe.reason)
        shown = [[len(found) for found in step] for step in probe.record.of("gradients")]
        self.assertEqual(shown, [[2], [], [], [], [3], [], [], [], [3]])
        self.assertEqual(probe.record.of("stepped"), [1, 1, 1, 0, 1, 1, 1, 1, 1])
        (overflowed,) = probe.record.checks  # the skipped step names who overflowed, the new one too
        self.assertEqual([bool(entry["nonfinite"]) for entry in overflowed], [False, False, True])

    def test_two_hundred_steps(self):
        """Bit for bit what they are without the probe, in each setting."""
        for name, options in {
            "plain": {},
            "accumulation": {"accumulate": 4},
            "clipping": {"clip": "unscaled"},
            "bf16": {"half": torch.bfloat16, "scaler": False},
            "foreach": {"optimizer": lambda p: torch.optim.AdamW(p, foreach=True)},
            "fused": {"optimizer": lambda p: torch.optim.AdamW(p, fused=True)},
            "compiled": {"compiled": "aot_eager"},
            **{backend: {"compiled": backend} for backend in inductor},
        }.items():
            with self.subTest(name):
                torch._dynamo.reset()
                plain, probed = Run(probe=False, steps=200, **options), Run(steps=200, **options)
                self.assertTrue(equal(plain, probed))
                self.assertIsNone(probed.probe.reason)


if __name__ == "__main__":
    unittest.main()
