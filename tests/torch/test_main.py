"""python -m ampprobe: a script that was not changed is recorded, and sees what it would see without."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")

TRAINING = """
    import sys
    import torch
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24, growth_interval=4)
    scales = []
    for step in range(12):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = model(torch.randn(32, 8)).float().square().mean()
        scaler.scale(loss).backward()
        scales.append(scaler.get_scale())
        scaler.step(optimizer)
        scaler.update()
    print(loss.item(), [p.double().sum().item() for p in model.parameters()], scales)
"""

FACTS = """
    import __main__, inspect, os, pickle, sys, warnings
    class Thing: pass
    print(sys.argv, __name__, __file__, sys.path[0], __main__.Thing is Thing, __package__)
    print(__spec__ and __spec__.name, type(__loader__).__name__, __doc__, __builtins__ is not None)
    print(type(pickle.loads(pickle.dumps(Thing()))).__module__, inspect.getsource(Thing).strip())
    print(sorted(name for name in globals() if name.startswith("__")))
"""


@unittest.skipUnless(
    os.environ.get("AMPPROBE_LIBRARY"), "AMPPROBE_LIBRARY is not set: libampprobe was not built"
)
class Main(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = os.path.realpath(folder.name)

    def write(self, text, name="train.py"):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(textwrap.dedent(text))
        return name

    def python(self, *arguments, **environment):
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            env={
                **os.environ,
                "PYTHONPATH": os.path.abspath(os.path.join(ROOT, "python")),
                "PYTHONDONTWRITEBYTECODE": "1",
                **environment,
            },
        )

    def both(self, text, *arguments, name="train.py"):
        """The script as it is, and under the probe."""
        script = self.write(text, name)
        return self.python(script, *arguments), self.python("-m", "ampprobe", script, *arguments)

    def cell(self, name="run.ampprobe.json"):
        with open(os.path.join(self.folder, name), encoding="utf-8") as file:
            return json.load(file)["cells"][0]

    def test_training_is_recorded_and_the_same(self):
        plain, probed = self.both(TRAINING)
        self.assertEqual((probed.returncode, probed.stdout), (0, plain.stdout), probed.stderr)
        self.assertIn("run.ampprobe.json: 12 steps were recorded", probed.stderr)
        cell = self.cell()
        scales = [float(value) for value in plain.stdout.split("[")[-1].strip("]\n").split(",")]
        self.assertEqual([value for value, steps in cell["scale"] for _ in range(steps)], scales)
        self.assertEqual(len(cell["loss"]), 12)
        self.assertEqual(cell["level"], "torch:autocast")
        names = {t["name"] for t in cell["probes"]["tensors"]}
        self.assertIn("0.weight.grad", names)
        self.assertGreater(len(cell["skipped_steps"]), 0)

    def test_options(self):
        script = self.write(TRAINING)
        run = self.python("-m", "ampprobe", "--out=other.json", "--every", "2", "--half", "fp16", script)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(len(self.cell("other.json")["loss"]), 12)
        run = self.python("-m", "ampprobe", "-o", "none.json", script, AMPPROBE="0")
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        self.assertFalse(os.path.exists(os.path.join(self.folder, "none.json")))

    def test_other_ways_to_step(self):
        for name, text in {
            "closure": """
                import torch
                model = torch.nn.Linear(4, 1)
                optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
                x = torch.randn(8, 4)
                def closure():
                    optimizer.zero_grad()
                    loss = model(x).square().mean()
                    loss.backward()
                    return loss
                for _ in range(5): optimizer.step(closure)
                """,
            "gradients by hand": """
                import torch
                model = torch.nn.Linear(4, 1)
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                for _ in range(5):
                    for p in model.parameters(): p.grad = torch.ones_like(p)
                    optimizer.step()
                """,
            "no module": """
                import torch
                weight = torch.ones(4, requires_grad=True)
                optimizer = torch.optim.SGD([weight], lr=0.1)
                for _ in range(5):
                    optimizer.zero_grad()
                    weight.square().sum().backward()
                    optimizer.step()
                """,
            "master weights by hand": """
                import torch
                model = torch.nn.Linear(4, 1).half()
                masters = [p.detach().float().clone() for p in model.parameters()]
                optimizer = torch.optim.SGD(masters, lr=0.1)
                for _ in range(5):
                    model.zero_grad()
                    model(torch.ones(2, 4).half()).float().square().mean().backward()
                    for master, p in zip(masters, model.parameters()): master.grad = p.grad.float()
                    optimizer.step()
                    with torch.no_grad():
                        for master, p in zip(masters, model.parameters()): p.copy_(master)
                """,
            "two optimizers": """
                import torch
                one, other = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
                a, b = torch.optim.SGD(one.parameters(), lr=0.1), torch.optim.Adam(other.parameters())
                for _ in range(5):
                    other(one(torch.ones(2, 4))).sum().backward()
                    a.step(); b.step(); a.zero_grad(); b.zero_grad()
                """,
        }.items():
            with self.subTest(name):
                run = self.python("-m", "ampprobe", self.write(text))
                self.assertEqual(run.returncode, 0, run.stderr)
                self.assertIn("5 steps were recorded", run.stderr)
                cell = self.cell()
                if name != "two optimizers":
                    self.assertEqual(cell["steps_applied"], 5)
                else:
                    names = {t["name"] for t in cell["probes"]["tensors"]}
                    self.assertLess({"model0.weight.grad", "model1.weight.grad"}, names)

    def test_steps_without_a_gradient(self):
        text = "import torch\ntorch.optim.SGD([torch.ones(2)], lr=0.1).step()\n"
        run = self.python("-m", "ampprobe", self.write(text))
        self.assertIn("an optimizer was stepped without a gradient in this process", run.stderr)

    def test_the_script_sees_what_it_would_see(self):
        plain, probed = self.both(FACTS, "--out", "-m", "x")
        self.assertEqual(plain.stdout, probed.stdout)
        self.assertEqual(probed.stderr.count("\n"), 1)
        self.assertIn("no optimizer made a step", probed.stderr)
        self.write("", "package/__init__.py")
        for name in ("package/part.py", "package/__main__.py"):
            self.write(FACTS, name)
        for module in ("package", "package.part"):
            plain, probed = self.python("-m", module, "1"), self.python("-m", "ampprobe", "-m", module, "1")
            self.assertEqual(plain.stdout, probed.stdout)
            self.assertIn("['", probed.stdout)
        plain, probed = self.both("print(__file__, __name__)", name="package2/__main__.py")
        self.assertEqual(
            self.python("package2").stdout, self.python("-m", "ampprobe", "package2").stdout, probed.stderr
        )

    def test_exit_status_and_exceptions(self):
        for text in (
            "raise SystemExit(7)",
            "import sys; sys.exit('a message')",
            "import os; os._exit(3)",
            "def f():\n    raise ValueError('mine')\nf()",
            "import sys\nsys.excepthook = lambda k, e, t: print('own', t.tb_lineno)\nraise KeyError(1)",
            "raise KeyboardInterrupt",
            "x = (",
            "import signal, os; os.kill(os.getpid(), signal.SIGTERM)",
        ):
            with self.subTest(text):
                plain, probed = self.both(text)
                said = [line for line in probed.stderr.splitlines(True) if not line.startswith("ampprobe:")]
                self.assertEqual(probed.returncode, plain.returncode)
                self.assertEqual(probed.stdout, plain.stdout)
                if text != "x = (":
                    self.assertEqual("".join(said), plain.stderr)
        self.assertEqual(probed.returncode, -signal.SIGTERM)

    def test_torch_is_imported_by_the_script(self):
        text = "import sys\nprint('torch' in sys.modules, 'numpy' in sys.modules)\n"
        text += "import torch\nprint(type(torch.__loader__).__name__, vars(torch.__loader__))"
        plain, probed = self.both(text)
        self.assertEqual(plain.stdout, probed.stdout)
        self.assertTrue(plain.stdout.startswith("False False\n"))

    def test_wrong_command_lines(self):
        script = self.write("print('ran')")
        for arguments, text in {
            (): "no script",
            ("--no-such", script): "unknown option --no-such",
            ("--out",): "--out needs a value",
            ("--every", "-1", script): "--every is a whole number from 0",
            ("--budget", "x", script): "--budget is a share from 0 to 1",
            ("--half", "fp8", script): "--half is fp16 or bf16",
            ("--out", "no/such/file.json", script): "there is no folder",
            ("-m",): "-m needs the name of a module",
            ("-m", "no.such.module"): "no module 'no.such.module'",
            ("missing.py",): "cannot open 'missing.py'",
        }.items():
            with self.subTest(arguments):
                run = self.python("-m", "ampprobe", *arguments)
                self.assertEqual((run.returncode, run.stdout), (2, ""))
                self.assertIn(text, run.stderr)
                self.assertEqual(run.stderr.count("\n"), 1)
        run = self.python("-m", "ampprobe", script, AMPPROBE_LIBRARY="/nowhere.so")
        self.assertEqual((run.returncode, run.stdout), (2, ""))
        self.assertIn("libampprobe was not found", run.stderr)

    def test_processes_that_it_starts(self):
        plain, probed = self.both("""
            import multiprocessing as mp
            def work(x): return x * 2
            if __name__ == "__main__":
                for how in ("spawn", "fork"):
                    with mp.get_context(how).Pool(1) as pool: print(pool.map(work, [1, 2]))
            """)
        self.assertEqual((probed.returncode, probed.stdout), (0, plain.stdout), probed.stderr)
        self.assertEqual(plain.stdout, "[2, 4]\n[2, 4]\n")


if __name__ == "__main__":
    unittest.main()
