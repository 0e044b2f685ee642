"""The wheel: built, named by what it needs, installed into a clean environment, its library found there."""

import importlib.util
import os
import subprocess
import sys
import unittest

ROOT = os.environ.get("AMPBENCH_SOURCE", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
TOOLS = all(importlib.util.find_spec(name) for name in ("scikit_build_core", "auditwheel"))


@unittest.skipUnless(
    os.environ.get("AMPPROBE_LIBRARY"), "AMPPROBE_LIBRARY is not set: libampprobe was not built"
)
@unittest.skipUnless(TOOLS, "scikit-build-core and auditwheel are not installed")
class Wheel(unittest.TestCase):
    def test_clean_environment(self):
        run = subprocess.run(
            [os.path.join(ROOT, "scripts", "wheel"), sys.executable],
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertRegex(
            run.stdout, r"^ampprobe-[0-9.]+-py3-none-manylinux_2_[0-9]+_\w+\.whl: library [0-9.]+\n$"
        )


if __name__ == "__main__":
    unittest.main()
