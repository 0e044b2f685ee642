"""The library's record of runs on PyTorch: its counts are the gradients', its scales GradScaler's.

Needs the library (AMPPROBE_LIBRARY), and the program (AMPBENCH) for the verdicts; skips what it has not.
"""

import json
import os
import signal
import subprocess
import sys
import unittest

from recorded import Recorded
from settings import Run, ampprobe, batch, equal, mlp, torch

PROGRAM = os.environ.get("AMPBENCH", "")
HERE = os.path.dirname(os.path.abspath(__file__))


def ampbench(*arguments):
    """Runs the program; its exit status and what it printed."""
    run = subprocess.run(
        [PROGRAM, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NO_COLOR": "1"},
    )
    return run.returncode, run.stdout + run.stderr


@unittest.skipUnless(
    os.environ.get("AMPPROBE_LIBRARY"), "AMPPROBE_LIBRARY is not set: libampprobe was not built"
)
class Records(Recorded):
    def sources(self, loop):
        """What a loop's record says of where its numbers come from: quantity and text -> steps."""
        torch.manual_seed(3)
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        with ampprobe.attach(model, optimizer, out=self.path) as probe:
            for step in range(12):
                optimizer.zero_grad()
                loop(optimizer, lambda: model(torch.ones(4, 8)).float().square().mean(), probe)
        found = self.read()["probe"]["sources"]
        return {(row["quantity"], row["from"]): row["steps"] for row in found}

    def test_sources_are_those_of_the_loop(self):
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)

        def scaled(optimizer, loss, probe):
            scaler.scale(loss()).backward()
            scaler.step(optimizer)
            scaler.update()

        def plain(optimizer, loss, probe):
            loss().backward()
            optimizer.step()

        def closed(optimizer, loss, probe):
            def closure():
                with torch.no_grad():
                    value = loss()
                for group in optimizer.param_groups:
                    for parameter in group["params"]:
                        parameter.grad = torch.ones_like(parameter)
                return value

            optimizer.step(closure)

        check, call = "the caller's finite check (found_inf)", "whether the optimizer made the step"
        for loop, loss, decided in (
            (scaled, "GradScaler.scale", check),
            (plain, "torch.autograd.backward", call),
            (closed, "the optimizer's closure", call),
        ):
            with self.subTest(loop.__name__):
                found = self.sources(loop)
                self.assertEqual([key for key in found if key[0] == "loss"], [("loss", loss)])
                self.assertEqual([key for key in found if key[0] == "skipped"], [("skipped", decided)])
                self.assertEqual(found["loss", loss], 12)
                self.assertEqual(found["skipped", decided], 12)
                self.assertEqual(any(key[0] == "scale" for key in found), loop is scaled)
                text = "times" if loop is scaled else "without"
                self.assertTrue(any(text in key[1] for key in found if key[0] == "gradients"))

    def test_counts_equal_those_of_the_gradients(self):
        for name, options in {
            "fp16": {},
            "bf16": {"half": torch.bfloat16, "scaler": False},
            "half weights": {"half": None, "scaler": False, "model": lambda: mlp().bfloat16()},
        }.items():
            with self.subTest(name):
                if name == "half weights":
                    options["attach"] = self.attach(every=1)
                    torch.set_default_dtype(torch.bfloat16)
                kept = []
                try:
                    Run(steps=10, keep=kept, **{"attach": self.attach(every=1), **options})
                finally:
                    torch.set_default_dtype(torch.float32)
                entries = self.rows("weight_gradient")
                self.assertEqual(len(entries), len(kept[0]))
                for parameter in kept[0]:
                    values = torch.cat([step[parameter].flatten() for step in kept])
                    self.check_row(entries[parameter + ".grad"], values)

    def test_scales_and_skips_are_the_scalers(self):
        run = Run(steps=40, attach=self.attach())
        cell = self.read()["cells"][0]
        scales = [value for value, steps in cell["scale"] for _ in range(steps)]
        self.assertEqual(scales, run.scales)
        self.assertEqual(cell["skipped_steps"], [i for i, skip in enumerate(run.skips) if skip])
        self.assertEqual(cell["steps_applied"] + cell["steps_skipped"], 40)
        self.assertEqual([float(x) for x in cell["loss"]], run.losses)

    def test_training_is_bit_equal(self):
        for name, options in {
            "fp16": {},
            "adamw": {"optimizer": lambda p: torch.optim.AdamW(p, fused=True)},
            "clip": {"clip": "unscaled", "accumulate": 2},
            "compiled": {"compiled": "aot_eager"},
        }.items():
            with self.subTest(name):
                self.assertTrue(
                    equal(
                        Run(probe=False, steps=60, **options),
                        Run(steps=60, attach=self.attach(every=7), **options),
                    )
                )

    def test_a_killed_run_keeps_its_steps(self):
        code = (
            f"import sys; sys.path.insert(0, {HERE!r})\n"
            "from settings import *\n"
            f"run = Run(steps=12, attach=lambda m, o, **k: ampprobe.attach(m, o, out={self.path!r}, **k))\n"
        )
        # The probe is not closed: the process is killed when the 12th step has ended.
        code = code.replace(
            "run = Run", "ampprobe.Probe.close = lambda self: os.kill(os.getpid(), 9)\nrun = Run"
        )
        run = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True)
        self.assertEqual(run.returncode, -signal.SIGKILL)
        if PROGRAM:
            status, text = ampbench("report", self.path)
            self.assertEqual(status, 0, text)
            status, text = ampbench("diagnose", "--json", "-", self.path)
            self.assertIn("of 12 steps skipped", text)

    @unittest.skipUnless(PROGRAM, "AMPBENCH is not set")
    def test_reports_read_it(self):
        Run(steps=40, window=1000, attach=self.attach(every=2))
        for command in (
            ["report", self.path],
            ["diagnose", self.path],
            ["report", self.path, "--markdown", self.path + ".md"],
        ):
            status, text = ampbench(*command)
            self.assertIn(status, (0, 4, 5), (command, text))
        # The first overflows lowered the scale: gradients are taken without it.
        status, text = ampbench("advise", self.path)
        self.assertEqual(status, 0, text)
        self.assertIn("every step's gradients were divided by its own, which", text)

    def test_an_unwritable_path_is_refused_at_attach(self):
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with self.assertRaises(OSError) as caught:
            ampprobe.attach(model, optimizer, out=os.path.join(self.folder.name, "no", "such", "folder.json"))
        self.assertIn("no/such", str(caught.exception))
        self.assertFalse(hasattr(torch.amp.GradScaler.step, "__wrapped__"))

    def test_two_ranks_write_two_records(self):
        code = f"""
import os, sys
sys.path.insert(0, {HERE!r})
from settings import *
import torch.distributed as dist
meet = "file://{self.folder.name}/meet"
dist.init_process_group("gloo", init_method=meet, rank=int(sys.argv[1]), world_size=2)
def train(probed):
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.ReLU(inplace=True), torch.nn.Linear(16, 4)))
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20, growth_interval=4)
    probe = ampprobe.attach(model, optimizer, scaler=scaler, out={self.path!r}, every=4) if probed else None
    for step in range(200):
        optimizer.zero_grad()
        x, y = batch(step * 2 + dist.get_rank())
        with torch.autocast("cpu", dtype=torch.float16):
            loss = torch.nn.functional.cross_entropy(model(x).float(), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    if probe: probe.close(); assert probe.reason is None
    return [p.clone() for p in model.parameters()]
one, other = train(False), train(True)
assert all(torch.equal(a, b) for a, b in zip(one, other))
dist.barrier()
"""
        runs = [
            subprocess.Popen([sys.executable, "-c", code, str(rank)], stderr=subprocess.PIPE, text=True)
            for rank in range(2)
        ]
        for run in runs:
            self.assertEqual(run.wait(), 0, run.stderr.read())
            run.stderr.close()
        cells = []
        for rank in range(2):
            with open(
                os.path.join(self.folder.name, f"run.rank{rank}.ampprobe.json"), encoding="utf-8"
            ) as file:
                document = json.load(file)
            self.assertEqual((document["probe"]["rank"], document["probe"]["world"]), (rank, 2))
            cells.append(document["cells"][0])
        self.assertEqual(cells[0]["skipped_steps"], cells[1]["skipped_steps"])
        self.assertEqual(cells[0]["scale"], cells[1]["scale"])
        names = [t["name"] for t in cells[0]["probes"]["tensors"]]
        self.assertIn("0.weight.grad", names)  # without DDP's "module."


if __name__ == "__main__":
    unittest.main()
