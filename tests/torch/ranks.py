"""Trainings on several gloo processes: a program's text is run once a rank; what each printed is JSON."""

import json
import os
import subprocess
import sys
import tempfile
import textwrap

PROGRAM = os.environ.get("AMPBENCH")
HERE = os.path.dirname(os.path.abspath(__file__))

BEGIN = """
import json, os, sys
sys.path.insert(0, {here!r})
from settings import *
import torch.distributed as dist
rank, world, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
dist.init_process_group("gloo", init_method="file://" + folder + "/meet", rank=rank, world_size=world)
"""
END = """
dist.barrier()
print(json.dumps(result))
dist.destroy_process_group()
"""


def run(text, world=2, environment=None):
    """Runs the program on `world` ranks. What `result` was in each, and the documents by name."""
    code = BEGIN.format(here=HERE) + textwrap.dedent(text) + END
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            subprocess.Popen(
                [sys.executable, "-c", code, str(rank), str(world), folder],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=folder,
                env={**os.environ, **(environment or {})},
            )
            for rank in range(world)
        ]
        outputs = [process.communicate() for process in ranks]
        for process, (_, errors) in zip(ranks, outputs):
            assert process.returncode == 0, errors[-3000:]
        documents = {}
        for name in os.listdir(folder):
            if name.endswith(".json"):
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    documents[name] = json.load(file)
        return [json.loads(output.splitlines()[-1]) for output, _ in outputs], documents


def diagnosis(documents):
    """What diagnose says of the records of all ranks: the ids of its verdicts, and its text."""
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for name, document in sorted(documents.items()):
            paths.append(os.path.join(folder, name))
            with open(paths[-1], "w", encoding="utf-8") as file:
                json.dump(document, file)
        out = os.path.join(folder, "diagnosis.json")
        run = subprocess.run(
            [PROGRAM, "diagnose", *paths, "--json", out], check=False, capture_output=True, text=True
        )
        with open(out, encoding="utf-8") as file:
            cell = json.load(file)["cells"][0]
        return [verdict["id"] for verdict in cell["verdicts"]], run.stdout
