"""Cases of the fault corpus as PyTorch programs: the record alone, without an O0, gives their cause."""

import glob
import json
import os
import tempfile
import unittest

import corpus_programs
import test_causes
from settings import torch, use_library

CORPUS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench", "corpus")


def causes():
    """Case -> the cause that its file is named after."""
    found = {}
    for path in glob.glob(os.path.join(CORPUS, "cases", "*.jsonl")):
        with open(path, encoding="utf-8") as file:
            for line in file:
                found[json.loads(line)[0]] = os.path.basename(path)[: -len(".jsonl")]
    return found


@unittest.skipUnless(test_causes.PROGRAM, "AMPBENCH is not set")
class Corpus(unittest.TestCase):
    def test_cases_have_the_cause_of_the_corpus(self):
        use_library()
        planted = causes()
        self.assertGreaterEqual(len(corpus_programs.CASES), 20)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "run.ampprobe.json")
            for name, program in corpus_programs.CASES.items():
                with self.subTest(name):
                    torch.manual_seed(0)
                    program(path)
                    _, cell = test_causes.diagnose(path)
                    self.assertEqual(cell["verdicts"][0]["id"], planted[name], cell["verdicts"])


if __name__ == "__main__":
    unittest.main()
