"""Programs with one mistake each: ampbench names it first from the record, and nothing of the twin."""

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

    def test_of_the_twin_nothing_is_named(self):
        """It is healthy, or undecided: the labels of some are drawn by chance, and no loss falls."""
        for program in programs.PROGRAMS:
            with self.subTest(program.__name__):
                _, cell = self.record(program, True)
                self.assertEqual([v["id"] for v in cell["verdicts"]], [cell["state"]], cell)
                self.assertIn(cell["state"], ("healthy", "undecided"))
                self.assertIn(cell["symptoms"], (None, "no known cause; the loss did not fall"))

    def test_gradients_that_the_loop_puts_there_itself_are_no_sum(self):
        """Those of master weights are copied."""

        def masters(model, optimizer, number):
            for parameter, master in zip(model.parameters(), optimizer.param_groups[0]["params"]):
                if master.grad is None or number % 2:
                    master.grad = parameter.grad.float()
                else:
                    master.grad.copy_(parameter.grad)
                parameter.grad = None

        model = programs.net(dtype=torch.bfloat16)
        copies = [torch.nn.Parameter(parameter.detach().float()) for parameter in model.parameters()]
        model.masters = torch.nn.ParameterList(copies)
        optimizer = torch.optim.SGD(copies, lr=0.05)
        probe = programs.ampprobe.attach(model, optimizer, out=self.path, every=1)
        for number in range(40):
            inputs, labels = programs.samples(number)
            loss = torch.nn.functional.cross_entropy(model[:3](inputs.bfloat16()).float(), labels)
            loss.backward()
            masters(model[:3], optimizer, number)
            optimizer.step()
            with torch.no_grad():
                for parameter, master in zip(model[:3].parameters(), copies):
                    parameter.copy_(master)
        probe.close()
        self.assertIsNone(probe.reason)
        with open(self.path, encoding="utf-8") as file:
            facts = json.load(file)["probe"].get("facts", [])
        self.assertNotIn("gradients_not_cleared", [fact["name"] for fact in facts])


if __name__ == "__main__":
    unittest.main()
