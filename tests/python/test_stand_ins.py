"""The probe without torch: steps, skips, formats, layouts, failures, on stand-in tensors."""

import os
import subprocess
import sys
import unittest

import stand_ins
from stand_ins import Model, Optimizer, Scaler, Tensor

import ampprobe
from ampprobe import _abi, _layout
from recorder import Recorder


class StandIns(unittest.TestCase):
    def setUp(self):
        self.kept, _abi.Record = _abi.Record, Recorder
        Recorder.plans = staticmethod(lambda step: _abi.PLAN_GRADIENTS)

    def tearDown(self):
        _abi.Record = self.kept

    def test_torch_is_not_imported(self):
        code = "import sys, ampprobe\nassert 'torch' not in sys.modules and 'numpy' not in sys.modules"
        subprocess.run(
            [sys.executable, "-c", code],
            check=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )

    def test_steps_skips_and_scales(self):
        weight, bias = Tensor([1.0, 2.0, 3.0]), Tensor([0.5])
        model, optimizer, scaler = Model(weight=weight, bias=bias), Optimizer([weight, bias]), Scaler(1024.0)
        probe = ampprobe.attach(model, optimizer, scaler=scaler)
        for step in range(4):
            scaler.scale(0.25)
            weight.grad = Tensor([float("inf") if step == 1 else 2.0, -1.0, float(step)])
            bias.grad = None if step == 2 else Tensor([4.0])
            scaler.step(optimizer)
            scaler.update()
        probe.close()
        record = probe.record
        self.assertIsNone(probe.reason)
        self.assertEqual(record.of("scale_before"), [1024.0, 1024.0, 512.0, 512.0])
        self.assertEqual(record.of("scale_after"), [1024.0, 512.0, 512.0, 512.0])
        self.assertEqual(record.of("found_inf"), [0, 1, 0, 0])
        self.assertEqual(record.of("stepped"), [1, 0, 1, 1])
        self.assertEqual(record.of("sum"), [7.0, 6.0, 5.0, 10.0])  # before they were divided
        self.assertEqual(record.of("loss"), [0.25] * 4)
        self.assertEqual([thing["name"] for thing in record.things], ["weight", "bias"])
        self.assertEqual(len(record.checks), 1)
        self.assertFalse(hasattr(Scaler.step, "__wrapped__"))

    def test_gradients_that_are_thrown_away_are_no_step(self):
        """Three of four backward passes before each step, where one is not finite, and a step that is left
        out for that reason."""
        weight = Tensor([1.0, 2.0])
        optimizer = Optimizer([weight])
        probe = ampprobe.attach(Model(weight=weight), optimizer)
        (group,) = probe.groups

        def backward(loss, gradient):
            group.before_zero_grad()
            weight.grad = None
            probe.saw_backward(loss)
            weight.grad = Tensor([gradient, 1.0])
            probe.backward_ran()

        for step in range(4):
            for number in range(4):
                bad = (step, number) in ((1, 2), (2, 3))
                backward(4.0 * step + number, float("inf") if bad else 2.0)
            if step != 2:
                optimizer.step()
        probe.close()
        self.assertIsNone(probe.reason)
        self.assertEqual(probe.record.of("stepped"), [1, 1, 0, 1])
        self.assertEqual(probe.record.of("loss"), [3.0, 7.0, 11.0, 15.0])
        self.assertEqual(probe.record.of("sum")[1:], [3.0, 1.0, 3.0])

    def test_formats(self):
        values = [1.5, -0.25, 4.0]
        for dtype in ("float32", "float16", "bfloat16", "float64"):
            with self.subTest(dtype):
                parameter = Tensor(values, dtype)
                optimizer = Optimizer([parameter])
                probe = ampprobe.attach(Model(w=parameter), optimizer)
                parameter.grad = Tensor(values, dtype)
                optimizer.step()
                probe.close()
                self.assertEqual(probe.record.of("sum"), [5.75])

    def test_dtypes_that_are_not_counted(self):
        found = _layout.view(Tensor([1.0]))
        self.assertIsInstance(found, _layout.View)
        strange = Tensor([1.0])
        strange.dtype = "int8"
        self.assertIsInstance(_layout.view(strange), _layout.Unreadable)
        self.assertIsInstance(_layout.view(object()), _layout.Unreadable)

    def test_see(self):
        parameter = Tensor([1.0])
        probe = ampprobe.attach(Model(w=parameter), Optimizer([parameter]))
        ampprobe.see("hidden", Tensor([1.0, 2.0]))
        probe.see("hidden", Tensor([3.0]), role="activation_gradient")
        self.assertEqual([t["values"] for t in probe.record.tensors], [(1.0, 2.0), (3.0,)])
        probe.see("hidden", 3)
        self.assertIn("hidden: not counted: int has neither data_ptr nor __dlpack__", probe.record.notes)
        probe.close()

    def test_numpy_and_dlpack(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("numpy is not installed")
        parameter = Tensor([1.0])
        probe = ampprobe.attach(Model(w=parameter), Optimizer([parameter]))
        probe.see("a", numpy.arange(6, dtype=numpy.float16).reshape(2, 3)[:, ::2])

        class Exporter:  # an array of another framework: DLPack and nothing else
            def __init__(self, array):
                self.array = array

            def __dlpack__(self, **options):
                return self.array.__dlpack__(**options)

        probe.see("b", Exporter(numpy.arange(4, dtype=numpy.float32)))
        probe.see("c", Exporter(numpy.arange(6, dtype=numpy.float32)[::2]))
        probe.see("d", Exporter(numpy.arange(6)))
        self.assertEqual(
            [t["values"] for t in probe.record.tensors], [(0.0, 2.0, 3.0, 5.0), (0.0, 1.0, 2.0, 3.0)]
        )
        self.assertEqual(
            probe.record.notes,
            ["c: not counted: it is not contiguous", "d: not counted: its DLPack type is 0, 64 bits"],
        )
        try:
            import ml_dtypes
        except ImportError:
            return
        probe.see("e", numpy.array([1.5, 2.5], dtype=ml_dtypes.bfloat16))
        self.assertEqual(probe.record.tensors[-1]["values"], (1.5, 2.5))
        probe.close()

    def test_a_forked_child_writes_nothing(self):
        parameter = Tensor([1.0])
        probe = ampprobe.attach(Model(w=parameter), Optimizer([parameter]))
        child = os.fork()
        if child == 0:
            probe.close()
            os._exit(probe.record.closed)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        probe.close()
        self.assertEqual(probe.record.closed, 1)


if __name__ == "__main__":
    unittest.main()
