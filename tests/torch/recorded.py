"""What tests of the library's record share: a folder, a probe that writes into it, and its rows."""

import json
import os
import tempfile
import unittest

from settings import ampprobe, torch, use_library


def exponents(values):
    """floor(log2|x|) of the finite values that are not zero -> how many."""
    finite = values[values.isfinite() & (values != 0)]
    powers, counts = (torch.frexp(finite.double())[1] - 1).unique(return_counts=True)
    return dict(zip(powers.tolist(), counts.tolist()))


class Recorded(unittest.TestCase):
    """A test whose probes use the library and write self.path."""

    def setUp(self):
        use_library()
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, "run.ampprobe.json")

    def attach(self, **more):
        """ampprobe.attach with self.path and these options."""

        def start(model, optimizer, **options):
            return ampprobe.attach(model, optimizer, out=self.path, **options, **more)

        return start

    def read(self):
        """The record."""
        with open(self.path, encoding="utf-8") as file:
            return json.load(file)

    def rows(self, kind, key="tensors"):
        """The record's tensors of a kind, by name."""
        return {t["name"]: t for t in self.read()["cells"][0]["probes"][key] if t["kind"] == kind}

    def check_row(self, row, values):
        """The counts of a tensor are those of these values, which are on the host."""
        self.assertEqual(row["count"], values.numel())
        self.assertEqual(row["nan"], int(values.isnan().sum()))
        self.assertEqual(row["inf"], int(values.isinf().sum()))
        self.assertEqual(row["zero"], int((values == 0).sum()))
        first = row["exponents"]["first"]
        seen = {first + i: n for i, n in enumerate(row["exponents"]["counts"]) if n}
        self.assertEqual(seen, exponents(values))
