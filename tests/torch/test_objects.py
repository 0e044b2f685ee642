"""The user's objects are as they would be without the probe: pickle, deepcopy, state, schedules, wrappers."""

import copy
import gc
import io
import os
import pickle
import subprocess
import sys
import unittest
import warnings
import weakref

from settings import Run, _abi, ampprobe, mlp, stderr, torch, use_library, use_recorder

try:
    import accelerate
except ImportError:
    accelerate = None
try:
    import lightning
except ImportError:
    lightning = None


def parts(scale=2.0**20):
    torch.manual_seed(0)
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return model, optimizer, torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=5)


def train(model, optimizer, scaler, steps=3):
    for _ in range(steps):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = model(torch.randn(16, 8)).float().square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


class Objects(unittest.TestCase):
    def setUp(self):
        self.opened = use_recorder()

    def test_state_that_comes_back_is_stated(self):
        """Of the scaler and the optimizer of the loop, whether loaded before the first step or later."""
        old = parts(2.0**12)
        train(*old)
        things = parts()
        probe = ampprobe.attach(things[0], things[1], scaler=things[2])
        self.assertEqual(probe.record.facts_stated, [])
        torch.optim.SGD(things[0].parameters(), lr=1).load_state_dict(old[1].state_dict())  # another one
        torch.amp.GradScaler("cpu").load_state_dict(old[2].state_dict())
        self.assertEqual(probe.record.facts_stated, [])
        things[1].load_state_dict(old[1].state_dict())
        things[2].load_state_dict(old[2].state_dict())
        train(*things)
        probe.close()
        self.assertIsNone(probe.reason)
        self.assertEqual(
            probe.record.facts_stated,
            [("resumed_steps", 1.0, "", 0), ("loaded_scale", old[2].get_scale(), "", 0)],
        )
        self.assertEqual(probe.record.of("scale_before")[0], old[2].get_scale())

    def test_nothing_is_set_on_the_objects(self):
        plain, things = parts(), parts()
        train(*plain)
        probe = ampprobe.attach(things[0], things[1], scaler=things[2])
        train(*things)
        for thing, other in zip(things, plain):
            self.assertEqual(set(vars(thing)), set(vars(other)))
        self.assertIs(type(things[2]), torch.amp.GradScaler)
        self.assertNotIn("step", vars(things[1]))
        probe.close()
        self.assertEqual(sum(len(m._forward_hooks) for m in things[0].modules()), 0)
        self.assertEqual(
            len(things[1]._optimizer_step_pre_hooks) + len(things[1]._optimizer_step_post_hooks), 0
        )

    def test_patches_go_with_the_last_probe(self):
        names = ("scale", "unscale_", "step", "update")
        originals = [vars(torch.amp.GradScaler)[name] for name in names]
        backward = torch.autograd.backward
        one, other = parts(), parts()
        first, second = ampprobe.attach(*one[:2]), ampprobe.attach(*other[:2])
        self.assertIsNot(vars(torch.amp.GradScaler)["step"], originals[2])
        first.close()
        self.assertIsNot(vars(torch.amp.GradScaler)["step"], originals[2])
        second.close()
        self.assertEqual([vars(torch.amp.GradScaler)[name] for name in names], originals)
        self.assertIs(torch.autograd.backward, backward)

    def test_pickle_and_torch_save(self):
        model, optimizer, scaler = parts()
        probe = ampprobe.attach(model, optimizer, scaler=scaler)
        train(model, optimizer, scaler)
        for thing in (model, optimizer, scaler):
            pickle.loads(pickle.dumps(thing))
            torch.save(thing, io.BytesIO())
        file = io.BytesIO()
        torch.save({"model": model, "scaler": scaler, "optimizer": optimizer}, file)
        self.assertEqual(pickle.loads(pickle.dumps(scaler)).state_dict(), scaler.state_dict())
        probe.close()

    def test_a_deep_copy_is_not_watched_and_acts_on_itself(self):
        model, optimizer, scaler = parts()
        probe = ampprobe.attach(model, optimizer, scaler=scaler)
        train(model, optimizer, scaler)
        self.assertTrue(probe.layers.on)
        model2, optimizer2, scaler2 = copy.deepcopy((model, optimizer, scaler))
        steps, tensors = len(probe.record.steps), len(probe.record.tensors)
        weights = [p.clone() for p in model.parameters()]
        train(model2, optimizer2, scaler2)
        self.assertEqual(len(probe.record.steps), steps)
        self.assertEqual(len(probe.record.tensors), tensors)
        self.assertTrue(all(torch.equal(a, b) for a, b in zip(weights, model.parameters())))
        train(model, optimizer, scaler)
        self.assertEqual(len(probe.record.steps), steps + 3)
        probe.close()

    def test_schedules_before_and_after(self):
        for first in (True, False):
            with self.subTest(first=first), warnings.catch_warnings():
                warnings.simplefilter("error")
                warnings.filterwarnings("ignore", message=".*lr_scheduler.step\\(\\).* before")
                model, optimizer, scaler = parts(scale=1.0)
                if first:
                    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
                probe = ampprobe.attach(model, optimizer, scaler=scaler)
                if not first:
                    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
                for _ in range(3):
                    train(model, optimizer, scaler, 1)
                    schedule.step()
                self.assertEqual(probe.record.of("lr"), [0.1, 0.05, 0.025])
                probe.close()

    def test_subclass_that_calls_super_is_seen_once(self):
        class Mine(torch.amp.GradScaler):
            def unscale_(self, optimizer):
                return super().unscale_(optimizer)

            def step(self, optimizer, *args, **kwargs):
                return super().step(optimizer, *args, **kwargs)

        model, optimizer, _ = parts()
        scaler = Mine("cpu", init_scale=2.0**20)
        probe = ampprobe.attach(model, optimizer, scaler=scaler)
        train(model, optimizer, scaler, 4)
        probe.close()
        self.assertEqual([len(facts["gradients"]) for facts in probe.record.steps], [1] * 4)

    def test_optimizer_with_grad_scaler_argument(self):
        class Old(torch.optim.SGD):
            _step_supports_amp_scaling = True

            def step(self, closure=None, *, grad_scaler=None):
                assert grad_scaler is not None
                found = grad_scaler._check_inf_per_device(self)
                if not sum(v.item() for v in found.values()):
                    grad_scaler.unscale_(self)
                    return super().step()
                return None

        model, _, scaler = parts()
        optimizer = Old(model.parameters(), lr=0.1)
        probe = ampprobe.attach(model, optimizer, scaler=scaler)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                train(model, optimizer, scaler, 2)
            except RuntimeError:  # torch's own: found_inf was asked for twice
                pass
        self.assertIsNone(probe.reason)
        self.assertIn(1, probe.record.of("found_inf") + [group.found_inf for group in probe.groups])
        probe.close()

    def test_no_reference_keeps_the_model_alive(self):
        model, optimizer, scaler = parts()
        probe = ampprobe.attach(model, optimizer, scaler=scaler)
        train(model, optimizer, scaler)
        gone = [weakref.ref(thing) for thing in (model, optimizer, scaler)]
        del model, optimizer, scaler
        gc.collect()
        self.assertEqual([thing() for thing in gone], [None] * 3)
        probe.close()

    @unittest.skipIf(accelerate is None, "accelerate is not installed")
    def test_what_accelerate_logs_is_stated(self):
        model, optimizer, scaler = parts()
        accelerator = accelerate.Accelerator(cpu=True)
        probe = ampprobe.attach(model, optimizer, scaler=scaler)
        train(model, optimizer, scaler)
        accelerator.log({"loss": 0.5, "lr": 1}, step=3)
        accelerator.log({"accuracy": 1.0})
        accelerator.log({"train_loss": float("nan")})
        probe.close()
        accelerator.log({"loss": 0.25})
        self.assertIsNone(probe.reason)
        self.assertEqual(str(probe.record.facts_stated), str([
            ("logged_loss", 0.5, "", 3), ("logged_loss", float("nan"), "", 3)
        ]))  # fmt: skip

    @unittest.skipIf(accelerate is None, "accelerate is not installed")
    def test_accelerate_before_and_after_prepare(self):
        for first, wrapped in ((True, False), (False, False), (False, True)):
            with self.subTest(first=first, wrapped=wrapped):
                accelerator = accelerate.Accelerator(cpu=True)
                accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20)
                model, inner, _ = parts()
                probe = ampprobe.attach(model, inner) if first else None
                model, optimizer = accelerator.prepare(model, inner)
                optimizer.scaler = accelerator.scaler
                optimizer._accelerate_step_called = False
                optimizer._optimizer_original_step_method = optimizer.optimizer.step
                from accelerate.optimizer import patch_optimizer_step

                optimizer._optimizer_patched_step_method = patch_optimizer_step(
                    optimizer, optimizer.optimizer.step
                )
                if probe is None:
                    probe = ampprobe.attach(model, optimizer if wrapped else optimizer.optimizer)
                skips = []
                for _ in range(6):
                    with torch.autocast("cpu", dtype=torch.float16):
                        loss = model(torch.randn(16, 8)).float().square().mean()
                    accelerator.backward(loss)
                    optimizer.step()
                    skips.append(int(optimizer.step_was_skipped))
                    optimizer.zero_grad()
                self.assertIn(1, skips)
                self.assertIsNone(probe.reason)
                self.assertEqual(probe.record.of("found_inf"), skips)
                pickle.dumps(optimizer.optimizer.state_dict())
                probe.close()

    @unittest.skipIf(accelerate is None, "accelerate is not installed")
    def test_accelerate_accumulates(self):
        """A step of the optimizer that accelerate leaves out for an accumulation is none of the record."""

        def run(probed):
            model, inner, _ = parts()
            accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
            model, optimizer = accelerator.prepare(model, inner)
            probe = ampprobe.attach(model, optimizer) if probed else None
            losses = []
            for _ in range(8):
                with accelerator.accumulate(model):
                    loss = model(torch.randn(16, 8)).square().mean()
                    accelerator.backward(loss)
                    optimizer.step()
                    optimizer.zero_grad()
                losses.append(loss.item())
            return losses, [p.detach().clone() for p in model.parameters()], probe

        plain, probed = run(False), run(True)
        self.assertEqual(plain[0], probed[0])
        self.assertTrue(all(torch.equal(one, other) for one, other in zip(plain[1], probed[1])))
        self.assertIsNone(probed[2].reason)
        probed[2].close()
        self.assertEqual(probed[2].record.of("micro_batches"), [2] * 4)

    @unittest.skipIf(lightning is None, "lightning is not installed")
    def test_lightning(self):
        class Module(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.net = torch.nn.Linear(8, 4)
                self.seen = None

            def training_step(self, batch, _):
                return torch.nn.functional.mse_loss(self.net(batch[0]), batch[1])

            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), lr=0.1)

            def on_train_start(self):
                self.seen = ampprobe.attach(self, self.optimizers())

        torch.manual_seed(0)
        data = torch.utils.data.TensorDataset(torch.randn(24, 8), torch.randn(24, 4))
        module = Module()
        with stderr():
            lightning.Trainer(
                max_epochs=1,
                accelerator="cpu",
                logger=False,
                enable_checkpointing=False,
                enable_progress_bar=False,
                enable_model_summary=False,
            ).fit(module, torch.utils.data.DataLoader(data, batch_size=4))
        module.seen.close()
        record = module.seen.record
        self.assertIsNone(module.seen.reason)
        self.assertEqual(len(record.steps), 6)
        self.assertTrue(all(facts["sum"] > 0 for facts in record.steps))  # not the step before's


class BadInput(unittest.TestCase):
    def setUp(self):
        use_recorder()

    def refuses(self, kind, text, *args, **kwargs):
        with self.assertRaises(kind) as caught:
            ampprobe.attach(*args, **kwargs)
        self.assertIn(text, str(caught.exception))
        self.assertNotIn("\n", str(caught.exception))

    def test_one_sentence_before_the_first_step(self):
        model, optimizer, scaler = parts()
        self.refuses(ValueError, "no parameters", torch.nn.ReLU(), optimizer)
        self.refuses(TypeError, "not a torch.nn.Module", 3, optimizer)
        self.refuses(TypeError, "not a torch.optim.Optimizer", model, model)
        self.refuses(ValueError, "none of the model's parameters", torch.nn.Linear(2, 2), optimizer)
        self.refuses(TypeError, "not a torch.amp.GradScaler", model, optimizer, scaler=optimizer)
        self.refuses(ValueError, "half is", model, optimizer, half="fp8")
        self.refuses(ValueError, "budget is a share", model, optimizer, budget=2)
        probe = ampprobe.attach(model, optimizer)
        self.refuses(ValueError, "watched by another probe", model, optimizer)
        probe.close()

    def test_library_that_is_none_or_another(self):
        use_library()
        mine = os.environ.get("AMPPROBE_LIBRARY")
        libraries = [("/nowhere/libampprobe.so", "was not found"), (None, "no function ampprobe_abi")]
        for path, text in [*libraries, *([(mine, "this Python package needs 0")] if mine else [])]:
            code = (
                "import torch, ampprobe\n"
                f"if {path == mine}: ampprobe._abi.ABI = 0\n"
                "m = torch.nn.Linear(2, 2)\n"
                "ampprobe.attach(m, torch.optim.SGD(m.parameters(), lr=1))"
            )
            path = path or torch._C.__file__
            run = subprocess.run(
                [sys.executable, "-c", code],
                capture_output=True,
                text=True,
                check=False,
                env={**os.environ, "AMPPROBE_LIBRARY": path, "PYTHONPATH": os.pathsep.join(sys.path)},
            )
            self.assertIn(text, run.stderr)
            self.assertIn("RuntimeError: ampprobe.attach: ", run.stderr)

    def test_switched_off(self):
        os.environ["AMPPROBE"] = "0"
        try:
            model, optimizer, scaler = parts()
            with ampprobe.attach(model, optimizer, scaler=scaler) as probe:
                train(model, optimizer, scaler)
                probe.loss(1.0)
                with probe.step(lambda: None):
                    pass
            self.assertTrue(probe.off)
            self.assertFalse(hasattr(torch.amp.GradScaler.step, "__wrapped__"))
        finally:
            del os.environ["AMPPROBE"]

    def test_a_probe_that_fails_turns_itself_off_once(self):
        opened = use_recorder()
        for method in ("gradients", "step", "see", "before_update", "after_update", "describe", "set"):
            with self.subTest(method):
                model, optimizer, scaler = parts()
                probe = ampprobe.attach(model, optimizer, scaler=scaler)
                plain = Run(probe=False, steps=6)

                def broken(*_, **__):
                    raise OSError("the disk is full")

                setattr(opened[-1], method, broken)
                with stderr() as printed:
                    train(model, optimizer, scaler, 6)
                    optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(2))]})
                    train(model, optimizer, scaler, 2)
                    probe.close()
                self.assertEqual(len(plain.losses), 6)
                if method == "set" and not probe.reason:
                    continue
                self.assertEqual(printed.getvalue().count("the probe turned itself off"), 1)
                self.assertIn("OSError: the disk is full", probe.reason)
                self.assertEqual(opened[-1].closed, 1)

    def test_exception_of_the_user_passes(self):
        model, optimizer, scaler = parts()
        probe = ampprobe.attach(model, optimizer, scaler=scaler)

        def bad(*_):
            raise KeyError("mine")

        optimizer.register_step_pre_hook(bad)
        optimizer.zero_grad()
        scaler.scale(model(torch.randn(4, 8)).sum()).backward()
        with self.assertRaises(KeyError):
            scaler.step(optimizer)
        self.assertIsNone(probe.reason)
        probe.close()


if __name__ == "__main__":
    unittest.main()
