"""python -m ampprobe --thorough: the same script several times, each pass for what the one before left open.

1. As it is: the record, its output, its exit status.
2. As it is, with every operation looked at in the steps where the first pass went wrong; ended after them. If
   nothing went wrong: in its first and its last steps, and after them, as what rounding loses is lost late.
3. In fp32, if the first pass used a half format: the baseline, in a record beside the first.
4. In fp32, with every operation looked at where that went wrong.

What passes 2 and 4 found is put into the records of 1 and 3. A script whose runs are not alike (no fixed
seed) is looked at where this run of it goes wrong, if it does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from typing import Any, Optional

_BEFORE = 2  # steps before the one that went wrong: of a sum, the one before and the one that was lost
_AFTER = 1
_START = 1  # last of the first steps of a run in which nothing went wrong
_END = 3  # of its last steps that are looked at
_JOINED = {"times": max, "last_step": max, "least": min, "largest": max}  # of one fact of two passes


def baseline_path(path: str) -> str:
    """Where the record of the fp32 pass is: run.fp32.ampprobe.json of run.ampprobe.json."""
    folder, name = os.path.split(path)
    stem, dot, end = name.partition(".")
    return os.path.join(folder, f"{stem}.fp32{dot}{end}")


def _say(text: str) -> None:
    print(f"ampprobe: {text}", file=sys.stderr, flush=True)


def _read(path: str) -> Optional[dict]:
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def _write(path: str, document: dict) -> None:
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(document, file)
    os.replace(path + ".new", path)


def first_bad_step(document: dict) -> Optional[int]:
    """The first step of a record whose loss is not finite; else the first late skip; else None."""
    cell = document["cells"][0]
    if _made_no_step(document):
        return 0
    stride = int(cell.get("loss_stride", 1))
    for index, loss in enumerate(cell.get("loss", [])):
        if loss is None:
            return index * stride
    steps, skipped = int(cell.get("steps_total", 0)), cell.get("skipped_steps", [])
    late = [step for step in skipped if step >= steps // 4]
    return int(late[0]) if late else None


def _made_no_step(document: dict) -> bool:
    names = {fact["name"] for fact in document.get("probe", {}).get("facts", [])}
    return bool(names & {"passes_without_backward", "passes_without_step"})


def _same(one: dict, other: dict) -> bool:
    """Whether the runs of two records began alike, bit for bit."""
    first, second = (each["cells"][0].get("loss", []) for each in (one, other))
    count = min(len(first), len(second), 3)
    return first[:count] == second[:count] and (count > 0 or first == second)


class Passes:
    """The passes of one command line."""

    def __init__(self, options: list[str], rest: list[str], out: str):
        self.options, self.rest, self.out = options, rest, out
        self.fp32 = baseline_path(out)

    def _command(self, out: str, *more: str) -> list[str]:
        return [sys.executable, "-m", "ampprobe", *self.options, *more, "-o", out, *self.rest]

    def _again(self, out: str, *more: str) -> Optional[dict]:
        """A later pass: its output is not shown, but for what it ended with if there is no record."""
        done = subprocess.run(self._command(out, *more), capture_output=True, text=True, check=False)
        document = _read(out)
        if document is None or not document.get("cells"):
            lines = done.stderr.strip().splitlines()
            _say(f"that pass left no record: {lines[-1] if lines else 'it said nothing'}")
            return None
        return document

    def _look(self, path: str, document: dict, *more: str) -> None:
        """Looks at every operation where a run went wrong, and puts what is found into its record."""
        bad = first_bad_step(document)
        if more and bad is None:
            return
        window = _window(bad, int(document["cells"][0].get("steps_total", 0)))
        with tempfile.TemporaryDirectory() as folder:
            found = self._again(os.path.join(folder, "look.ampprobe.json"), *window, *more)
        if found is None:
            return
        if not _same(document, found):
            _say("its losses are not those of the first run: the script is not repeatable")
        about = found.get("probe", {}).get("about", {})
        mine = document["probe"]["about"]
        if about.get("origin"):
            mine["origin"], mine["graph"] = about["origin"], about.get("graph", {"ops": []})
        _join_facts(document["probe"], found["probe"])
        self.formats = about.get("formats", [])
        if not more and self.formats and document["cells"][0]["level"] in ("O0", "unknown"):
            _is_mixed(document, self.formats)
        _write(path, document)

    def run(self) -> int:
        """All passes; the exit status of the first."""
        status = subprocess.run(self._command(self.out), check=False).returncode
        document = _read(self.out)
        if document is None or not document.get("cells"):
            return status
        self._look(self.out, document)
        if document["cells"][0]["level"] == "O0":
            return status
        _say("again, in fp32")
        baseline = self._again(self.fp32, "--fp32")
        if baseline is not None:
            self._look(self.fp32, baseline, "--fp32")
            document["probe"]["about"]["baseline"] = os.path.basename(self.fp32)
            _write(self.out, document)
        return status


def _window(bad: Optional[int], steps: int) -> tuple:
    """Options of a pass that looks at where a run went wrong, or else at its first and last steps."""
    if bad is not None:
        first, last = max(0, bad - _BEFORE), bad + _AFTER
        _say(f"again, looking at every operation of steps {first} to {last}")
        return ("--look", f"{first}:{last}", "--stop-after", str(last))
    late = steps - _END
    _say(f"again, looking at every operation of steps 0 to {_START} and of the last {_END}")
    return ("--look", f"0:{_START},{late}:" if late > _START + 1 else "0:")


def _is_mixed(document: dict, formats: list[str]) -> None:
    """Layers and weights are in fp32, as the first pass saw, but operations between them are not."""
    cell = document["cells"][0]
    cell["level"], cell["policy"]["patch_torch_functions"] = "mixed", True
    if "fp16" not in formats and "bf16" in formats:
        cell["half_format"] = "bf16"
    parts = cell["id"].split("/")  # model, level, scaler, half format, device
    parts[-4], parts[-2] = cell["level"], cell["half_format"]
    cell["id"] = "/".join(parts)
    document["config"]["levels"] = [cell["level"]]
    document["probe"]["about"]["precision"]["level"] = cell["level"]


def _join_facts(mine: dict, found: dict) -> None:
    """What another pass of the same run stated, where it saw more or saw it earlier."""
    facts = {(fact["name"], fact["place"]): fact for fact in mine.get("facts", [])}
    for fact in found.get("facts", []):
        known = facts.setdefault((fact["name"], fact["place"]), fact)
        if fact["first_step"] < known["first_step"]:
            known.update(first_step=fact["first_step"], first=fact["first"])
        for key, choose in _JOINED.items():
            if known[key] is not None and fact[key] is not None:  # not finite
                known[key] = choose(known[key], fact[key])
    mine["facts"] = list(facts.values())


def run(options: list[str], rest: list[str], out: str) -> int:
    """Runs the passes; the exit status of the first, a signal as a shell says it."""
    status = Passes(options, rest, out).run()
    return status if status >= 0 else 128 - status


def refused(environment: Any) -> Optional[str]:
    """Why several passes cannot be made here."""
    if int(environment.get("WORLD_SIZE", "1") or 1) > 1:
        return "--thorough runs the script several times, which the ranks of a distributed run cannot do"
    return None
