"""The probe on a GPU: the run is bit-equal with and without it, its counts are the gradients', and arrays of
CuPy and JAX are counted where they are. Skipped where torch sees no GPU.

Needs the library (AMPPROBE_LIBRARY) and its CUDA plugin (AMPBENCH_PLUGIN_DIR).
"""

import importlib.util
import os
import unittest

# deterministic cuBLAS: it must be set before the first product
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

from recorded import Recorded  # noqa: E402
from settings import Run, ampprobe, equal, inductor, torch  # noqa: E402
from test_record import PROGRAM, ampbench  # noqa: E402


def kinds():
    """Settings of a run, by name."""
    return {
        "fp16": {},
        "bf16": {"half": torch.bfloat16, "scaler": False},
        "fused": {"optimizer": lambda p: torch.optim.AdamW(p, fused=True)},
        "foreach": {"optimizer": lambda p: torch.optim.AdamW(p, foreach=True)},
        "capturable": {"optimizer": lambda p: torch.optim.AdamW(p, capturable=True)},
        "clip": {"clip": "unscaled", "accumulate": 2},
        "aot_eager": {"compiled": "aot_eager"},
        **{name: {"compiled": name} for name in inductor},
    }


@unittest.skipUnless(torch.cuda.is_available(), "torch sees no GPU")
@unittest.skipUnless(os.environ.get("AMPPROBE_LIBRARY"), "AMPPROBE_LIBRARY is not set")
class OnAGpu(Recorded):
    def test_training_is_bit_equal(self):
        for name, options in kinds().items():
            with self.subTest(name):
                plain = Run(probe=False, steps=60, device="cuda", **options)
                again = Run(probe=False, steps=60, device="cuda", **options)
                self.assertTrue(equal(plain, again), "this setting is not deterministic by itself")
                probed = Run(steps=60, attach=self.attach(every=7), device="cuda", **options)
                self.assertIsNone(probed.probe.reason)
                self.assertTrue(equal(plain, probed))
                self.assertEqual(self.read()["probe"]["not_counted"]["device"], 0)

    def test_counts_equal_those_of_the_gradients(self):
        for name in ("fp16", "bf16", "fused", "clip"):
            with self.subTest(name):
                kept, options = [], kinds()[name]
                Run(steps=10, keep=kept, attach=self.attach(every=1), device="cuda", **options)
                rows = self.rows("weight_gradient")
                self.assertEqual(len(rows), len(kept[0]))
                for parameter in kept[0]:
                    values = torch.cat([step[parameter].flatten() for step in kept]).cpu()
                    self.check_row(rows[parameter + ".grad"], values)

    def test_scales_and_skips_are_the_scalers(self):
        run = Run(steps=40, attach=self.attach(), device="cuda")
        cell = self.read()["cells"][0]
        scales = [value for value, steps in cell["scale"] for _ in range(steps)]
        self.assertEqual(scales, run.scales)
        self.assertEqual(cell["skipped_steps"], [i for i, skip in enumerate(run.skips) if skip])
        self.assertEqual([float(x) for x in cell["loss"]], run.losses)

    def test_layers_are_seen_and_counted(self):
        Run(steps=20, attach=self.attach(every=5), device="cuda")
        rows = self.rows("activation", "activations")
        self.assertTrue(rows)
        self.assertTrue(all(row["count"] > 0 for row in rows.values()))

    @unittest.skipUnless(PROGRAM, "AMPBENCH is not set")
    def test_reports_read_it(self):
        Run(steps=40, window=1000, scale=2.0**30, attach=self.attach(every=2), device="cuda")
        for command in (["report", self.path], ["diagnose", self.path]):
            status, text = ampbench(*command)
            self.assertIn(status, (0, 3), text)
        status, text = ampbench("diagnose", "--json", "-", self.path)
        self.assertIn("steps skipped", text)

    def seen(self, array, values):
        model = torch.nn.Linear(2, 2, device="cuda")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        probe = ampprobe.attach(model, optimizer, out=self.path, every=1)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(1, 2, device="cuda")).sum().backward()
            ampprobe.see("shown", array, role="activation")
            optimizer.step()
        probe.close()
        self.assertIsNone(probe.reason)
        row = self.rows("activation", "activations")["shown.out"]
        self.check_row(row, values.cpu().flatten().repeat(row["count"] // values.numel()))

    def test_a_step_that_is_recorded_as_a_graph_is_left_alone(self):
        model = torch.nn.Linear(8, 8, device="cuda")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        inputs = torch.randn(4, 8, device="cuda")
        model(inputs).sum().backward()
        probe = ampprobe.attach(model, optimizer, out=self.path, every=1)
        graph, outputs = torch.cuda.CUDAGraph(), None
        with torch.cuda.graph(graph):
            outputs = model(inputs)
            outputs.sum().backward()
            ampprobe.see("shown", outputs)
            optimizer.step()
        before = model.weight.detach().clone()
        for _ in range(3):
            graph.replay()
        torch.cuda.synchronize()
        self.assertFalse(torch.equal(before, model.weight))
        probe.close()
        self.assertIsNone(probe.reason)

    def test_a_tensor_of_torch_that_is_shown(self):
        values = torch.randn(1000, device="cuda").half()
        self.seen(values, values)

    @unittest.skipUnless(importlib.util.find_spec("cupy"), "CuPy is not installed")
    def test_an_array_of_cupy(self):
        import cupy

        values = torch.randn(1000)
        self.seen(cupy.asarray(values.numpy()), values)

    @unittest.skipUnless(importlib.util.find_spec("jax"), "JAX is not installed")
    def test_an_array_of_jax(self):
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        import jax

        values = torch.randn(1000)
        self.seen(jax.device_put(values.numpy()), values)


if __name__ == "__main__":
    unittest.main()
