"""Steps that show nothing are told to the library together; what is told is what the loop did."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest

import settings
from settings import ampprobe, torch

from ampprobe import _abi, _patches
from recorder import Recorder

FIRST = 4  # steps that are never quiet


def plans(step):
    """Everything at first, gradients now and then."""
    return _abi.PLAN_GRADIENTS if step < FIRST or step % 16 == 0 else 0


class Loop:
    """A small training whose facts are kept by the test itself."""

    def __init__(self, scaled=True, scale=2.0**10, closure=(), **options):
        self.arguments = closure if closure == () else (closure,)
        torch.manual_seed(0)
        self.model = torch.nn.Linear(4, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, **options)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=5, enabled=scaled)
        self.losses, self.befores, self.afters, self.rates, self.skips, self.norms = [], [], [], [], [], []
        self.probe = ampprobe.attach(self.model, self.optimizer, scaler=self.scaler)

    def step(self, bad=False, parts=1, clip=None, schedule=None, early=False, closure=False):
        """One step; `early`: the schedule advances before the scaler's update."""
        self.befores.append(self.scaler.get_scale())
        self.rates.append(self.optimizer.param_groups[0]["lr"])
        self.optimizer.zero_grad()
        total = 0.0
        for _ in range(parts):
            loss = self.model(torch.randn(3, 4)).square().mean()
            total += loss.item()
            self.scaler.scale(loss).backward()
        if bad:
            self.model.weight.grad[0, 0] = float("inf")
        if clip:
            self.scaler.unscale_(self.optimizer)
            norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), clip)
            self.norms.append(norm.item())
        kept = self.model.bias.detach().clone()
        if closure:
            self.optimizer.step(lambda: loss)
        else:
            self.scaler.step(self.optimizer, *self.arguments)
        self.skips.append(int(torch.equal(kept, self.model.bias)))
        if schedule and early:
            schedule.step()
        self.scaler.update()
        if schedule and not early:
            schedule.step()
        self.losses.append(total)
        self.afters.append(self.scaler.get_scale())


class Quiet(unittest.TestCase):
    def setUp(self):
        self.kept, _abi.Record = _abi.Record, Recorder
        Recorder.plans = staticmethod(plans)

    def tearDown(self):
        _abi.Record = self.kept
        Recorder.plans = None

    def check(self, loop, scaled=True):
        """Everything that was told is what the loop did."""
        loop.probe.close()
        self.assertIsNone(loop.probe.reason)
        self.assertIsNone(_patches._quiet)
        record = loop.probe.record
        self.assertEqual(record.of("step"), list(range(len(loop.losses))))
        self.assertEqual(record.of("loss"), loop.losses)
        self.assertEqual(record.of("lr"), loop.rates)
        self.assertEqual(record.of("stepped"), [1 - skipped for skipped in loop.skips])
        if scaled:
            self.assertEqual(record.of("scale_before"), loop.befores)
            self.assertEqual(record.of("scale_after"), loop.afters)
            self.assertEqual(record.of("found_inf"), loop.skips)

    def test_scales_skips_and_losses(self):
        loop, quiet = Loop(), 0
        for number in range(80):
            loop.step(bad=number in (2, 9, 10, 33, 50))
            quiet += loop.probe.quiet.on
        self.assertGreater(quiet, 50)
        self.check(loop)
        checked = [index for index, facts in enumerate(loop.skips) if facts]
        self.assertEqual(len(loop.probe.record.checks), len(checked))  # which overflowed, at every skip

    def test_without_a_scaler(self):
        for options in ({}, {"closure": None}):  # accelerate hands a closure on that is None
            with self.subTest(options):
                loop, quiet = Loop(scaled=False, **options), 0
                for _ in range(40):
                    loop.step()
                    quiet += loop.probe.quiet.on
                self.assertGreater(quiet, 25)
                self.check(loop, scaled=False)

    def test_schedules_before_and_after_the_update(self):
        for early in (False, True):
            with self.subTest(early=early):
                loop = Loop()
                schedule = torch.optim.lr_scheduler.ExponentialLR(loop.optimizer, 0.9)
                for number in range(40):
                    loop.step(bad=number == 22, schedule=schedule, early=early)
                self.check(loop)
                moved = [bool(flags & _abi.SCHEDULE_ON_SKIP) for flags in loop.probe.record.of("flags")]
                self.assertEqual([i for i, found in enumerate(moved) if found], [23])

    def test_clipping(self):
        loop = Loop()
        for _ in range(40):
            loop.step(clip=0.01)
        self.check(loop)
        self.assertEqual(loop.probe.record.of("norm_before_clip"), loop.norms)
        self.assertFalse(any(f & _abi.CLIPPED_SCALED for f in loop.probe.record.of("flags")))

    def test_accumulation(self):
        loop = Loop()
        for _ in range(40):
            loop.step(parts=3)
        self.check(loop)
        self.assertEqual(loop.probe.record.of("micro_batches"), [3] * 40)

    def test_fused_optimizers(self):
        loop = Loop(fused=True)
        for number in range(40):
            loop.step(bad=number in (5, 20))
        self.check(loop)

    def test_a_scale_set_by_hand(self):
        loop = Loop()
        for number in range(40):
            if number % 7 == 6:
                loop.scaler._scale.fill_(64.0)
            loop.step()
        self.check(loop)

    def test_a_loop_that_changes(self):
        """The scaler is left out from some step on: at most two steps are not recorded, and then all are."""
        loop = Loop()
        for _ in range(20):
            loop.step()
        for _ in range(20):
            loop.optimizer.zero_grad()
            loop.model(torch.randn(3, 4)).square().mean().backward()
            loop.optimizer.step()
        loop.probe.close()
        self.assertIsNone(loop.probe.reason)
        self.assertGreaterEqual(len(loop.probe.record.steps), 38)
        self.assertEqual(loop.probe.record.of("found_inf")[-10:], [-1] * 10)

    def test_a_second_probe_ends_it(self):
        loop = Loop()
        for _ in range(10):
            loop.step()
        self.assertTrue(loop.probe.quiet.on)
        other = Loop()
        self.assertFalse(loop.probe.quiet.on)
        for _ in range(10):
            loop.step()
            other.step()
        for one in (loop, other):
            one.probe.close()
            self.assertIsNone(one.probe.reason)
            self.assertEqual(one.probe.record.of("scale_before"), one.befores)

    def test_a_failure_never_reaches_the_loop(self):
        def fails(facts, count):
            raise _abi.ProbeError("no room", _abi.OUTPUT)

        for ends in ("by itself", "by another loop"):
            with self.subTest(ends):
                loop = Loop()
                self.addCleanup(loop.probe.close)
                for _ in range(200):
                    if loop.probe.quiet.steps:  # not handed over
                        break
                    loop.step()
                self.assertTrue(loop.probe.quiet.on)
                loop.probe.record.end_steps = fails
                with settings.stderr() as said:
                    for _ in range(64 if ends == "by itself" else 0):
                        loop.step()
                    loop.model(torch.randn(3, 4)).sum().backward()
                    loop.optimizer.step()  # of no scaled loss
                self.assertIn("no room", said.getvalue())
                self.assertIn("no room", loop.probe.reason)
                self.assertIsNone(_patches._quiet)
                loop.probe.close()

    def test_hooks_of_others_on_the_step(self):
        """Those run while the probe's hook ends the quiet, or fails."""
        for scaled in (True, False):
            with self.subTest(scaled=scaled):
                loop, called = Loop(scaled=scaled), []
                loop.optimizer.register_step_post_hook(lambda *_: called.append("after"))
                loop.optimizer.register_step_pre_hook(lambda *_: called.append("before"))
                for _ in range(40):
                    loop.step()
                self.check(loop, scaled=scaled)
                self.assertEqual(called, ["before", "after"] * 40)
        loop, called = Loop(scaled=False), []
        self.addCleanup(loop.probe.close)
        loop.optimizer.register_step_post_hook(lambda *_: called.append("after"))
        loop.optimizer.register_step_pre_hook(lambda *_: called.append("before"))
        loop.probe.record.step = None  # cannot be called
        with settings.stderr():
            for _ in range(5):
                loop.step()
        self.assertIn("not callable", loop.probe.reason)
        self.assertEqual(called, ["before", "after"] * 5)

    def test_a_class_that_others_patch_meanwhile(self):
        """Their patch stays, and the probe goes on to see every step."""
        kept = {name: getattr(torch.amp.GradScaler, name) for name in ("scale", "step", "update")}
        calls = []

        def wrap(name, inner):
            def outer(scaler, *args):
                calls.append(name)
                return inner(scaler, *args)

            return outer

        loop = Loop()
        try:
            for number in range(60):
                loop.step()
                if number == 20:
                    self.assertTrue(loop.probe.quiet.on)
                    for name in kept:
                        inner = getattr(torch.amp.GradScaler, name)
                        setattr(torch.amp.GradScaler, name, wrap(name, inner))
            self.check(loop)
            for name in kept:
                self.assertEqual(calls.count(name), 39)
                self.assertEqual(getattr(torch.amp.GradScaler, name).__name__, "outer")
        finally:
            for name, function in kept.items():
                setattr(torch.amp.GradScaler, name, function)

    def test_closures_are_never_quiet(self):
        loop = Loop(scaled=False)
        for _ in range(20):
            loop.step(closure=True)
            self.assertFalse(loop.probe.quiet.on)
        self.check(loop, scaled=False)


ENDED = """
import os, signal, sys
import settings
import torch, ampprobe
path, steps, scaled, how = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "scaled", sys.argv[4]
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=scaled)
probe = ampprobe.attach(model, optimizer, scaler=scaler, out=path)

def train(count):
    for step in range(count):
        optimizer.zero_grad()
        loss = model(torch.randn(3, 4)).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        print(loss.item(), flush=True)

train(steps)
if how == "forked":
    assert probe.quiet.on
    child = os.fork()
    if child == 0:
        train(9)
        os._exit(0)
    os.waitpid(child, 0)
os.kill(os.getpid(), signal.SIGKILL)
"""


class Killed(unittest.TestCase):
    def run_and_recover(self, steps, scaled, how):
        """The losses that the loop printed, and those of the record that it left."""
        settings.use_library()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "run.ampprobe.json")
            here = os.pathsep.join([os.path.dirname(os.path.abspath(__file__)), *sys.path])
            done = subprocess.run(
                [sys.executable, "-c", ENDED, path, str(steps), scaled, how],
                env={**os.environ, "PYTHONPATH": here},
                stdout=subprocess.PIPE,
                text=True,
                check=False,
            )
            self.assertEqual(done.returncode, -signal.SIGKILL)
            self.assertEqual(_abi.library().ampprobe_recover(path.encode()), _abi.OK)
            self.assertEqual([name for name in os.listdir(folder) if name[0] != "."], ["run.ampprobe.json"])
            with open(path, encoding="utf-8") as file:
                cell = json.load(file)["cells"][0]
            return [float(line) for line in done.stdout.split()], cell["loss"]

    def test_a_killed_loop_leaves_every_step_that_it_ended(self):
        for steps, scaled in ((2, "plain"), (61, "scaled"), (300, "plain")):
            with self.subTest(steps=steps, scaled=scaled):
                printed, kept = self.run_and_recover(steps, scaled, "alone")
                self.assertEqual(len(kept), steps)
                for one, other in zip(printed, kept):
                    self.assertAlmostEqual(one, other, places=5)

    def test_steps_of_a_child_are_not_its_parents(self):
        printed, kept = self.run_and_recover(61, "scaled", "forked")
        self.assertEqual((len(printed), len(kept)), (70, 61))


if __name__ == "__main__":
    unittest.main()
