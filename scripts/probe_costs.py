"""The table of docs/pytorch.md that says what ampprobe costs, made from docs/measured/probe_cost.json.

Measures nothing: scripts/peer_probe.py does, and puts its rows into that file. A row is of a network, a kind
(eager, compiled) and an arm (again, delay, probe, anomaly, histc), or of a network's memory; one that was
measured again replaces the old one.
Usage: probe_costs.py [--check] [--root DIR]
Writes the table into the page; with --check: says whether it stands there, and writes nothing.
"""

import argparse
import json
import os
import re
import sys

ORDER = ("net", "kind", "arm")
PLACE = re.compile(r"(<!-- costs: .*-->\n)[^\0]*?(<!-- /costs -->)")
HEAD = (
    "| network | step | arm | plain steps (interval) | other steps | first 16 | run of {} steps | long run |"
)


def page_of(root):
    """The page with the table."""
    return os.path.join(root, "docs", "pytorch.md")


def file_of(root):
    """The file with the numbers."""
    return os.path.join(root, "docs", "measured", "probe_cost.json")


def key_of(row):
    """What tells rows apart."""
    return tuple(row[name] for name in ORDER)


def load(root):
    """What was measured so far."""
    if not os.path.exists(file_of(root)):
        return {"steps": 1000, "rows": []}
    with open(file_of(root), encoding="utf-8") as file:
        return json.load(file)


def keep(root, rows, steps):
    """Puts rows into the file; those of other networks, kinds and arms stay, if they are of as long a run."""
    found = load(root)
    old = found["rows"] if found["steps"] == steps else []
    new = {key_of(row): row for row in [*old, *rows]}
    _save(root, {**found, "steps": steps, "rows": list(new.values())})


def keep_memory(root, rows):
    """Puts rows of memory into the file."""
    found = load(root)
    new = {(row["net"], row["kind"]): row for row in [*found.get("memory", []), *rows]}
    _save(root, {**found, "memory": list(new.values())})


def _save(root, document):
    temporary = file_of(root) + ".new"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(document, file, indent=1)
        file.write("\n")
    os.replace(temporary, file_of(root))


def head_of(steps):
    """The first two lines of the table."""
    head = HEAD.format(steps)
    return [head, "|---" * (head.count("|") - 1) + "|"]


def _percent(row, name):
    return f"{row[name] * 100:.2f} %" if name in row else ""


def _delay(row):
    """As what a planted delay was found."""
    if "delay_ns" not in row:
        return ""
    found, low, high = (ns * 1e-3 for ns in (row["found_ns"], *row["found_interval"]))
    return f" of {row['delay_ns'] * 1e-3:g} us, found as {found:.1f} ({low:.1f} to {high:.1f})"


def memory_head():
    """The first two lines of the table of memory."""
    return ["| network | peak | probe (interval) | again (interval) | of the library |", "|---" * 5 + "|"]


def _mib(row, arm):
    low, high = row[f"{arm}_interval"]
    return f"{row[f'{arm}_bytes'] / 2**20:+.1f} MiB ({low / 2**20:+.1f} to {high / 2**20:+.1f})"


def memory_line_of(row):
    """A row of the table of memory."""
    peak, held = (f"{row[name] / 2**20:.1f} MiB" for name in ("peak_bytes", "held_bytes"))
    cells = [f"{row['net']}, {row['kind']}", peak, _mib(row, "probe"), _mib(row, "again"), held]
    return "| " + " | ".join(cells) + " |"


def line_of(row):
    """A row of the table."""
    low, high = row["interval"] if "interval" in row else (None, None)
    plain = f"{row['plain']:.4f}" + (f" ({low:.3f} to {high:.3f})" if low is not None else "")
    cells = [
        f"{row['net']}, {row['kind']}",
        f"{row['step_ns'] * 1e-6:.2f} ms",
        row["arm"] + _delay(row),
        plain,
        _percent(row, "other"),
        f"{row['first_ns'] * 1e-6:+.1f} ms" if "first_ns" in row else "",
        f"{row['run']:.4f}" if "run" in row else "",
        f"{row['long']:.4f}" if "long" in row else "",
    ]
    return "| " + " | ".join(cells) + " |"


def about(rows):
    """Where and when the rows were measured."""
    places = sorted({(row["cpu"], row["torch"], row["date"]) for row in rows})
    return "; ".join(f"{cpu}, PyTorch {torch}, {date}" for cpu, torch, date in places)


def text_of(document):
    """What stands between the marks."""
    rows = document["rows"]
    lines = [about(rows) + ", one thread:", "", *head_of(document["steps"]), *map(line_of, rows)]
    memory = document.get("memory", [])
    if memory:
        lines += ["", about(memory) + ", peak memory of a process:", "", *memory_head()]
        lines += map(memory_line_of, memory)
    return "\n".join(lines) + "\n"


def page_with(page, document):
    """The page's text with the table in its place."""
    text, found = PLACE.subn(lambda mark: mark[1] + text_of(document) + mark[2], page)
    if found != 1:
        raise SystemExit(f"docs/pytorch.md: {found} places for the table of costs, expected 1")
    return text


def put(root, check=False):
    """Writes the table; check: whether it is there."""
    with open(page_of(root), encoding="utf-8") as file:
        page = file.read()
    wanted = page_with(page, load(root))
    if not check and wanted != page:
        with open(page_of(root), "w", encoding="utf-8") as file:
            file.write(wanted)
    return wanted == page


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--root", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    options = parser.parse_args()
    if not put(options.root, options.check) and options.check:
        sys.exit("docs/pytorch.md: its costs are not those of docs/measured/probe_cost.json: "
                 "run scripts/probe_costs.py")


if __name__ == "__main__":
    main()
