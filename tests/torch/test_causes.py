"""Programs with one mistake each: ampbench names it first from the record, and calls the twin healthy."""

import json
import os
import subprocess
import tempfile
import unittest

import programs
from settings import torch, use_library

PROGRAM = os.environ.get("AMPBENCH")


def diagnose(path):
    """Exit status and diagnosis of a record."""
    run = subprocess.run(
        [PROGRAM, "diagnose", "--json", "-", path], check=False, capture_output=True, text=True
    )
    text = run.stdout[run.stdout.index("{") :] if "{" in run.stdout else ""
    if not text:
        raise AssertionError(run.stdout + run.stderr)
    return run.returncode, json.JSONDecoder().raw_decode(text)[0]["cells"][0]


@unittest.skipUnless(PROGRAM, "AMPBENCH is not set")
class Causes(unittest.TestCase):
    def setUp(self):
        use_library()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "run.ampprobe.json")

    def record(self, program, twin):
        torch.manual_seed(0)
        program(twin, self.path)
        return diagnose(self.path)

    def test_the_mistake_is_named_first(self):
        for program, cause in programs.PROGRAMS.items():
            with self.subTest(program.__name__):
                _, cell = self.record(program, False)
                verdicts = cell["verdicts"]
                self.assertTrue(verdicts, cell)
                self.assertEqual(verdicts[0]["id"], cause, verdicts)
                self.assertTrue(verdicts[0]["evidence"])
                self.assertNotIn("--", verdicts[0]["remedy"])

    def test_the_twin_is_healthy(self):
        for program in programs.PROGRAMS:
            with self.subTest(program.__name__):
                _, cell = self.record(program, True)
                self.assertEqual([v["id"] for v in cell["verdicts"]], ["healthy"], cell)


if __name__ == "__main__":
    unittest.main()
