"""Loops that show their arrays themselves, with the C library, on stand-in tensors."""

import json
import math
import os
import tempfile
import unittest

import stand_ins  # noqa: F401 (puts the package on the path)
from stand_ins import Tensor

import ampprobe

LIBRARY = os.environ.get("AMPPROBE_LIBRARY")


class Names(unittest.TestCase):
    def test_trees_have_names_in_their_order(self):
        tree = {"a": [1, {"b": 2}], "c": (3, None, 4)}
        rows = list(ampprobe._loop.named(tree))
        self.assertEqual(rows, [("a.0", 1), ("a.1.b", 2), ("c.0", 3), ("c.2", 4)])
        self.assertEqual(list(ampprobe._loop.named(5)), [("array", 5)])

    def test_wrong_arguments(self):
        weight = {"w": Tensor([1.0])}
        wrong = [
            (ValueError, "needs parameters", ({},), {}),
            (TypeError, "w is a float, not an array", ({"w": 1.0},), {}),
            (ValueError, "half is 'fp16' or 'bf16', not 'fp8'", (weight,), {"half": "fp8"}),
            (ValueError, "budget is a share", (weight,), {"budget": 2}),
        ]
        for kind, text, positional, named in wrong:
            with self.assertRaisesRegex(kind, text):
                ampprobe.loop(*positional, **named)


@unittest.skipUnless(LIBRARY and os.path.exists(LIBRARY), "AMPPROBE_LIBRARY is not there")
class Loops(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.out = os.path.join(self.folder.name, "run.ampprobe.json")

    def tearDown(self):
        self.folder.cleanup()

    def cell(self):
        with open(self.out, encoding="utf-8") as file:
            return json.load(file)["cells"][0]

    def test_what_the_loop_gives_is_in_the_record(self):
        weight = {"fc": {"w": Tensor([1.0, 2.0])}}
        scale = 8.0
        with ampprobe.loop(weight, out=self.out, every=1) as probe:
            for step in range(6):
                skipped = step == 2
                gradients = {"fc": {"w": Tensor([math.inf if skipped else 4.0, 0.0])}}
                after = scale / 2 if skipped else scale
                probe.step(gradients, loss=6 - step, scale=scale, next_scale=after, skipped=skipped, lr=0.5)
                scale = after
            self.assertIsNone(probe.reason)
        cell = self.cell()
        self.assertEqual(cell["scale"], [[8, 3], [4, 3]])
        self.assertEqual(cell["skipped_steps"], [2])
        self.assertEqual(cell["loss"], [6, 5, 4, 3, 2, 1])
        row = next(row for row in cell["probes"]["tensors"] if row["name"] == "fc.w.grad")
        self.assertEqual(row["count"], 12)

    def test_a_loop_that_does_not_say_skips_where_a_gradient_is_not_finite(self):
        with ampprobe.loop([Tensor([1.0])], out=self.out, every=5) as probe:
            for step in range(20):  # also at steps whose gradients are not counted
                probe.step([Tensor([math.nan if step in (3, 10) else 1.0])], loss=1, scale=2)
        self.assertEqual(self.cell()["skipped_steps"], [3, 10])

    def test_lost_updates(self):
        before, same = Tensor([1.0, 1.0], "float16"), Tensor([1.0, 1.0], "float16")
        with ampprobe.loop({"w": before}, out=self.out, every=1) as probe:
            for _ in range(3):
                self.assertTrue(probe.wants_updates)
                probe.step(
                    {"w": Tensor([1.0, 1.0])}, loss=1, lr=1e-6, weights={"w": before}, updated={"w": same}
                )
            self.assertIsNone(probe.reason)

    def test_what_fails_ends_the_probe_and_not_the_loop(self):
        probe = ampprobe.loop({"w": Tensor([1.0])}, out=self.out)
        probe.step({"w": Tensor([1.0])}, loss="x")
        probe.step({"w": Tensor([1.0])}, loss=1)
        self.assertIn("ValueError", probe.reason)
        probe.close()

    def test_unknown_and_unreadable_arrays_are_told(self):
        strange = Tensor([1.0])
        strange.dtype = "int8"
        with ampprobe.loop({"w": Tensor([1.0])}, out=self.out, every=1) as probe:
            probe.step({"w": strange, "v": Tensor([1.0])}, loss=1)
        with open(self.out, encoding="utf-8") as file:
            warnings = json.load(file)["warnings"]
        self.assertIn("not a parameter that loop() was given: v", warnings)
        self.assertTrue(any(text.startswith("w: not counted") for text in warnings), warnings)


if __name__ == "__main__":
    unittest.main()
