"""The example in JAX: what its record holds is what the loop computed. Skipped where JAX is not installed."""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = "/usr/share/datasets/fashion-mnist"


@unittest.skipUnless(importlib.util.find_spec("jax"), "JAX is not installed")
@unittest.skipUnless(os.path.isdir(DATA), "Fashion-MNIST is not installed")
class JaxLoop(unittest.TestCase):
    def run_example(self, folder, steps, scale):
        out = os.path.join(folder, "run.ampprobe.json")
        example = os.path.join(HERE, "..", "..", "examples", "jax", "mlp.py")
        path = os.path.join(HERE, "..", "..", "python")
        environment = {**os.environ, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu"}
        command = [sys.executable, example, DATA, str(steps), out, str(scale)]
        subprocess.run(command, env=environment, check=True, timeout=120)
        with open(out, encoding="utf-8") as file:
            return out, json.load(file)

    def test_skips_scales_and_counts(self):
        with tempfile.TemporaryDirectory() as folder:
            _, document = self.run_example(folder, 40, 2.0**24)
        cell = document["cells"][0]
        scales = [scale for scale, times in cell["scale"] for _ in range(times)]
        skipped = cell["skipped_steps"]
        self.assertGreater(len(skipped), 0)
        self.assertEqual(scales[0], 2.0**24)
        for step in range(39):  # the loop's own rule
            halved = scales[step] / 2 if step in skipped else scales[step]
            self.assertEqual(scales[step + 1], halved)
        self.assertEqual(len(cell["loss"]), 40)
        self.assertLess(cell["loss"][-1], cell["loss"][0])
        names = {row["name"] for row in cell["probes"]["tensors"]}
        self.assertLessEqual({"fc0.weight.grad", "fc0.bias.grad", "fc1.weight.grad", "fc1.bias.grad"}, names)
        weight = next(r for r in cell["probes"]["tensors"] if r["name"] == "fc0.weight.grad")
        self.assertGreater(weight["count"], 0)  # how many, the time that is left decides
        self.assertEqual(document["probe"]["framework"], "jax")

    def test_diagnose_reads_it(self):
        program = os.environ.get("AMPBENCH")
        if not program:
            self.skipTest("AMPBENCH is not set")
        with tempfile.TemporaryDirectory() as folder:
            out, _ = self.run_example(folder, 200, 2.0**10)
            run = subprocess.run([program, "diagnose", out], capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("healthy", run.stdout)


if __name__ == "__main__":
    unittest.main()
