#!/usr/bin/env python3
"""The figures that verdicts compare with thresholds, of every case of the fault corpus, and their margins.

    scripts/corpus_facts.py make FOLDER [--program FILE]   makes bench/corpus/facts.jsonl.xz of records,
                                                           FOLDER/<case>.json or .json.gz, that
                                                           scripts/confusion --keep FOLDER leaves
    scripts/corpus_facts.py margins [FIGURE]               where figures lie in healthy cells and by cause
    scripts/corpus_facts.py show CASE                      all figures of a case
    scripts/corpus_facts.py quantiles                      are thresholds of kind quantile those of the figures?
    scripts/corpus_facts.py calibration                    how often the first cause is right, by what shows it
    scripts/corpus_facts.py jitter FOLDER [--share X]      which first verdicts change if a threshold moves
                                                           (--docs: into docs/diagnose.md)

Figures are worked out of the record as reports/diagnose does, and rounded. They are those of one program,
machine and day, named in the file's first line; they do not follow the rules when these change. Sets of split
"test" are left out of margins, so that nobody fits a threshold to them by accident
(--split test shows them)."""

import argparse, concurrent.futures, datetime, fnmatch, functools, gzip, hashlib, json, lzma, math, pathlib, re, subprocess, sys, tempfile

sys.dont_write_bytecode = True
import corpus

facts_file = corpus.corpus / "facts.jsonl.xz"
last_losses = 20
fine = ("healthy", "undecided")

# Each figure: what it is, and the thresholds of reports/diagnose that it is compared with.
figures = {
    "gap": "final loss behind O0's over what is allowed; behind above 1, far above 2",
    "learned_gap": "of healthy training cells: loss gap less lateness, skips and errors, over what O0 learned; gap_learned",
    "first_shift": "of healthy training cells: difference of the first loss from O0's, a share of it; first_shift",
    "o0_rest": "O0's final loss over its first; learned if below 0.99 (0.95 where weights grew threefold)",
    "o0_rise": "largest mean of five losses of O0 in a row over its first loss; 1.05, 1.2 and 3",
    "nonfinite": "share of losses that are inf or nan; sick above 0",
    "first_nonfinite": "step of the first of them",
    "late_skips": "share of steps skipped after the first quarter; sick above 0.2",
    "scale_first": "log2 of the first loss scale",
    "scale_last": "log2 of the last one",
    "flushed": "largest share of a gradient tensor's non-zero values that the cast flushes; 0.9, 0.5 and 0.1",
    "flushed_energy": "largest share of a gradient tensor's energy that the cast flushes (exponents); 0.1",
    "overflowed": "largest share of a gradient tensor's values beyond the half format; above 0",
    "deficit": "energy that first weight gradients lack beside O0's, a share; 0.3",
    "lost_updates": "share of updates that storing half weights loses; 0.7, 0.6 and 0.5",
    "lost_energy": "share of their energy; 0.1, 0.05 and 0.02",
    "lost_decay": "share of weight decay's terms that are lost; 0.99",
    "frozen_state": "largest share of a parameter's half second moments that are zero or stale; 0.02",
    "stuck_average": "share of differing averages that the next step would not move; most",
    "o0_step": "norm of a step of O0 over that of its first weights; high above 0.1 and 1, low below 3e-5",
    "o0_growth": "size of O0's last weights over that of its first; 2.5 and 3",
    "o0_silent": "largest share of silent units of a relu of O0 at the end; dead from 0.9",
    "o0_signal": "largest output of an op of O0 at the first step over the first op's; exploding above 100",
    "o0_first_gradient": "O0's gradient of the first weight over the largest one's; vanishing below 0.01",
    "labels": "how far class means of O0's inputs differ, over what labels of chance make",
    "origin_step": "step of the first inf or nan made of finite values",
    "origin": "its op, type, pass and cause",
    "verdicts": "what diagnose says, first cause first, with what shows it",
}


shares = (
    "gap",
    "o0_rest",
    "nonfinite",
    "late_skips",
    "flushed",
    "flushed_energy",
    "deficit",
    "lost_updates",
    "lost_energy",
    "lost_decay",
    "frozen_state",
    "stuck_average",
)


@functools.cache
def read_thresholds():
    """The rows of thresholds.def by name: value, unit, kind, source."""
    text = (corpus.root / "reports/diagnose/thresholds/thresholds.def").read_text()
    row = re.compile(r'^AB_THRESHOLD\((\w+), ([^,]+), "([^"]*)", (\w+), "([^"]*)"\)$', re.M)
    number = lambda value: float.fromhex(value) if value.startswith("0x") else float(value)
    return {
        name: {"value": number(value), "unit": unit, "kind": kind, "source": source}
        for name, value, unit, kind, source in row.findall(text)
    }


# ---- a record --------------------------------------------------------------------------------------


def at(document, path, default=None):
    for key in path.split("."):
        document = document.get(key) if isinstance(document, dict) else None
    return default if document is None else document


def ratio(a, b):
    return a / b if a is not None and b else None


def mean_of_last(losses, steps):
    used = losses[max(0, steps - last_losses) : max(0, steps)]
    return sum(used) / len(used) if used and None not in used else None


def gap_error(cell, o0):
    """Standard error of the mean difference of the last losses, at most as if both scattered as O0's."""
    a, b = cell["loss"][-last_losses:], o0["loss"][-last_losses:]
    n = len(a)
    if n < 2 or len(cell["loss"]) != len(o0["loss"]) or None in a or None in b:
        return 0
    spread = lambda values: sum(v * v for v in values) - sum(values) ** 2 / n
    variance, most = spread([x - y for x, y in zip(a, b)]) / (n - 1), 2 * spread(b) / (n - 1)
    return math.sqrt(max(0, min(variance, most)) / n)


def learned(document, o0):
    """ab_facts_learned() of a record without edges, but for token data, where log(classes) is not asked."""
    final, first = mean_of_last(o0["loss"], len(o0["loss"])), o0["loss"][0]
    if final is None or first is None:
        return None
    classes = at(document, "data.classes", 0)
    return min(first, math.log(classes) if classes >= 2 else math.inf) - final


def lateness(cell, o0):
    """reports/diagnose/detect/symptoms.c, lateness_of_gap(): what O0 gained in its last steps, and skips."""
    losses, steps = o0["loss"], len(o0["loss"])
    final = mean_of_last(losses, steps)

    def cost(fewer):
        earlier = mean_of_last(losses, steps - fewer)
        return max(0, earlier - final) if earlier is not None else 0

    return cost(int(steps * read_thresholds()["gap_later"]["value"])) + cost(cell["steps_skipped"])


def gap_limit(document, cell, o0):
    """reports/diagnose/detect/symptoms.c, chance_of_gap() and lateness_of_gap()."""
    gained, limits = learned(document, o0), {name: row["value"] for name, row in read_thresholds().items()}
    if gained is None:
        return None
    floor = limits["gap_floors"] * abs(at(document, "noise_floor.loss_gap", 0))
    errors = limits["gap_errors"] * gap_error(cell, o0)
    return max(floor, limits["gap_learned"] * gained) + errors + lateness(cell, o0)


def is_reference(case):
    """Quantiles are taken over these."""
    return (case["cause"], case["split"]) == ("healthy", "train")


def healthy_figures(document, cell, o0):
    """What thresholds of kind quantile are quantiles of."""
    gained, gap, first = learned(document, o0), at(cell, "summary.loss_gap"), cell["loss"][0]
    found = {"learned_gap": None, "first_shift": None}
    if gained and gained > 0 and gap is not None:
        errors = read_thresholds()["gap_errors"]["value"] * gap_error(cell, o0)
        found["learned_gap"] = max(0, (gap - lateness(cell, o0) - errors) / gained)
    if first is not None and o0["loss"][0]:
        found["first_shift"] = abs(first - o0["loss"][0]) / abs(o0["loss"][0])
    return found


def flushed_energy(tensor, limit):
    first, counts = at(tensor, "exponents.first", 0), at(tensor, "exponents.counts", [])
    energy = [(first + i, math.ldexp(count, 2 * (first + i))) for i, count in enumerate(counts)]
    return ratio(sum(e for exponent, e in energy if exponent < limit), sum(e for _, e in energy))


def first_energy(cell):
    """Energy of the first step's weight gradients, without the loss scale; None where not known."""
    probed, total = max(1, at(cell, "probes.steps_probed", 1)), 0
    for tensor in at(cell, "probes.tensors", []):
        if tensor["kind"] != "weight_gradient":
            continue
        nonzero, energy = (at(tensor, "steps." + key, [None])[0] for key in ("nonzero", "energy"))
        if nonzero is None or energy is None or nonzero > 1.5 * tensor["count"] / probed:
            return None
        total += energy
    return total / (cell["scale"][0][0] or 1) ** 2


def deficit(cell, o0):
    overflowed = any(at(t, "steps.overflowed", [0])[:1] > [0] for t in at(cell, "probes.tensors", []))
    if cell["first_skipped_step"] == 0 or overflowed or cell["loss"][0] is None:
        return None
    own, reference = first_energy(cell), first_energy(o0)
    return 1 - own / reference if own is not None and reference else None


def loss_figures(document, cell, o0):
    losses, own = o0["loss"], cell["loss"]
    rows = [losses[i : i + 5] for i in range(1, len(losses) - 4)]
    highest = max((sum(row) / 5 for row in rows if None not in row), default=None)
    missing = [i for i, x in enumerate(own) if x is None]
    return {
        "gap": ratio(at(cell, "summary.loss_gap"), gap_limit(document, cell, o0)),
        "o0_rest": ratio(mean_of_last(losses, len(losses)), losses[0]),
        "o0_rise": ratio(highest, losses[0]),
        "nonfinite": len(missing) / len(own),
        "first_nonfinite": missing[0] if missing else None,
    }


def scale_figures(cell):
    steps, scales = len(cell["loss"]), [run[0] for run in cell["scale"] if run[0]]
    late = sum(step >= steps // 4 for step in cell["skipped_steps"])
    return {
        "late_skips": late / (steps - steps // 4),
        "scale_first": math.log2(scales[0]) if scales else None,
        "scale_last": math.log2(scales[-1]) if scales else None,
    }


def gradient_figures(cell, o0):
    limit = -134 if cell["half_format"] == "bf16" else -25
    cast = [t for t in at(cell, "probes.tensors", []) if t["cast"] and "gradient" in t["kind"]]
    largest = lambda values: max((v for v in values if v is not None), default=None)
    return {
        "flushed": largest(ratio(t["flushed"], t["nonzero"]) for t in cast),
        "flushed_energy": largest(flushed_energy(t, limit) for t in cast),
        "overflowed": largest(ratio(t["overflowed"], t["count"]) for t in cast),
        "deficit": deficit(cell, o0),
    }


def update_figures(cell):
    ledger = at(cell, "probes.lost_updates", [])
    total = lambda path: sum(at(param, path, 0) for param in ledger)
    state = [
        max(p["zero_share"] or 0, p["stale_share"] or 0)
        for p in at(cell, "probes.adam_warning.params", [])
        if p["state_format"] == cell["half_format"]
    ]
    half = any(param["format"] == cell["half_format"] for param in ledger)
    return {
        "lost_updates": ratio(total("update.lost"), total("update.nonzero")) if half else None,
        "lost_energy": ratio(total("update.lost_energy"), total("update.energy")) if half else None,
        "lost_decay": ratio(total("weight_decay.lost"), total("weight_decay.nonzero")) if half else None,
        "frozen_state": max(state, default=None),
        "stuck_average": ratio(at(cell, "vitals.average.stuck"), at(cell, "vitals.average.differing")),
    }


def baseline_figures(o0):
    first, last = at(o0, "vitals.initial_weights", {}), at(o0, "vitals.final_weights", {})
    energy = sum(at(param, "update.energy", 0) for param in at(o0, "probes.lost_updates", []))
    norm = (first.get("rms") or 0) * math.sqrt(first.get("count") or 0)
    signals = at(o0, "probes.signals", [])
    outputs = [s["rms_first"] for s in signals if s["rms_first"]]
    sizes = [
        math.sqrt(sum(x or 0 for x in at(t, "steps.energy", [])) / t["count"])
        for t in at(o0, "probes.unscaled_gradients", [])
        if ".weight" in t["name"] and t["count"]
    ]
    control = at(o0, "vitals.labels.control_ratio")
    return {
        "o0_step": ratio(math.sqrt(energy / max(1, at(o0, "probes.steps_probed", 1))), norm),
        "o0_growth": ratio(last.get("rms"), first.get("rms")),
        "o0_silent": max((s["silent_last"] or 0 for s in signals if s["type"] == "relu"), default=None),
        "o0_signal": ratio(max(outputs, default=None), outputs[0]) if outputs else None,
        "o0_first_gradient": ratio(sizes[0], max(sizes)) if sizes else None,
        "labels": at(o0, "vitals.labels.between_class_ratio") if control is not None else None,
    }


def rounded(key, value):
    """Shares and the gap to a thousandth, rises to a hundredth, the rest to two digits."""
    if value is None or not math.isfinite(value):
        return None
    if key in shares and abs(value) < 10:
        value = round(value, 3)
    elif key not in ("first_nonfinite", "scale_first", "scale_last"):
        value = round(value, 2) if key == "o0_rise" and value < 10 else float(f"{value:.2g}")
    return int(value) if value == int(value) and abs(value) < 1e6 else value


def figures_of(document, case, verdicts):
    cells = {cell["level"]: cell for cell in document["cells"] if not cell["twin"]}
    cell, o0 = cells[case["level"]], cells["O0"]
    events = at(cell, "probes.origin.events", [])
    origin = events[0] if events else None
    found = {
        **loss_figures(document, cell, o0),
        **scale_figures(cell),
        **gradient_figures(cell, o0),
        **update_figures(cell),
        **baseline_figures(o0),
        **(healthy_figures(document, cell, o0) if is_reference(case) else {}),
    }
    found = {key: rounded(key, found.get(key)) for key in figures if key not in ("origin_step", "origin", "verdicts")}
    found["origin_step"] = origin["step"] if origin else None
    found["origin"] = (
        " ".join(at(origin, path, "-") for path in ("op", "type", "pass", "cause.id")) if origin else None
    )
    found["verdicts"] = "; ".join(f"{v['id']} {v['proof']}" for v in verdicts)
    return found


# ---- the file --------------------------------------------------------------------------------------


def read_record(folder, name):
    for path, opener in ((folder / (name + ".json"), open), (folder / (name + ".json.gz"), gzip.open)):
        if path.exists():
            with opener(path, "rt") as file:
                return json.load(file)
    corpus.fail(f"{folder} has no record of '{name}'")


def diagnosis_of(program, document, *options):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(document, file)
        file.flush()
        said = subprocess.run(
            [program, "diagnose", file.name, "--json", "-", "--exit-zero", *options],
            capture_output=True,
            text=True,
        )
    if said.returncode != 0:
        corpus.fail("diagnose failed: " + said.stderr.strip())
    return json.loads(said.stdout)


def verdicts_of(diagnosis, level):
    return next(c["verdicts"] for c in diagnosis["cells"] if f"/{level}/" in c["cell"])


def make(options):
    folder, cases, columns, head = (
        pathlib.Path(options.folder),
        corpus.read_cases(),
        {key: [] for key in figures},
        None,
    )
    for case in cases.values():
        document = read_record(folder, case["name"])
        found = figures_of(document, case, verdicts_of(diagnosis_of(options.program, document), case["level"]))
        for key, column in columns.items():
            column.append(found[key])
        head = head or {
            "program": document["generator"]["version"],
            "commit": document["generator"]["git_sha"],
            "cpu": document["environment"]["cpu_model"],
            "isa": document["environment"]["isa"],
            "date": document["run"]["started_utc"][:10],
        }
    lines = [head, {"case": codes(cases)}, *({key: column} for key, column in columns.items())]
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    packing = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "lp": 0}]
    facts_file.write_bytes(lzma.compress(text.encode(), filters=packing))
    print(f"{len(cases)} cases, {facts_file.stat().st_size} bytes")


def codes(names):
    """A few digits of a digest for each name, as many as it takes to tell them apart."""
    for digits in range(4, 41):
        found = [hashlib.sha1(name.encode()).hexdigest()[:digits] for name in names]
        if len(set(found)) == len(found):
            return found
    return corpus.fail("two cases have one name")


def read_facts():
    """The first line, and the figures of every case that has them, by name."""
    head, *lines = map(json.loads, lzma.decompress(facts_file.read_bytes()).decode().splitlines())
    columns = {key: column for line in lines for key, column in line.items()}
    digits, facts = len(columns["case"][0]), {}
    names = {hashlib.sha1(name.encode()).hexdigest()[:digits]: name for name in corpus.read_cases()}
    for i, code in enumerate(columns["case"]):
        if code in names:
            facts[names[code]] = {key: columns[key][i] for key in figures}
    return head, facts


# ---- the command --------------------------------------------------------------------------------------


def quantiles(values):
    values = sorted(values)
    pick = lambda share: f"{values[round(share * (len(values) - 1))]:.3g}"
    return [str(len(values)), *(pick(share) for share in (0, 0.05, 0.5, 0.95, 1))]


def print_margins(key, facts, cases):
    print(
        f"\n{key}: {figures[key]}\n  {'cause':36} {'cells':>6} {'least':>9} {'5 %':>9} {'median':>9}"
        f" {'95 %':>9} {'largest':>9}"
    )
    by_cause = {}
    for name, found in facts.items():
        if name in cases and found[key] is not None:
            by_cause.setdefault(cases[name]["cause"], []).append(found[key])
    for cause in sorted(by_cause, key=lambda cause: (cause not in ("healthy", "undecided"), cause)):
        cells, *rest = quantiles(by_cause[cause])
        print(f"  {cause:36} {cells:>6} " + " ".join(f"{value:>9}" for value in rest))


def margins(options):
    head, facts = read_facts()
    cases = {name: case for name, case in corpus.read_cases().items() if case["split"] == options.split}
    numeric = [key for key in figures if key not in ("origin", "verdicts")]
    if options.figure and options.figure not in numeric:
        corpus.fail(f"no figure '{options.figure}'; there are {', '.join(numeric)}")
    print(", ".join(f"{key} {value}" for key, value in head.items()) + f"; {options.split} cases")
    for key in [options.figure] if options.figure else numeric:
        print_margins(key, facts, cases)


def show(options):
    _, facts = read_facts()
    for key, value in corpus.case_named(facts, options.case).items():
        if value is not None:
            print(f"{key:18} {value!s:12} {figures[key]}")


# ---- quantiles ---------------------------------------------------------------------------------------

# Thresholds of kind quantile: the figure and the quantile, which their source states too.
quantile_of = {"gap_learned": ("learned_gap", 0.995), "first_shift": ("first_shift", 0.99)}


def nearest_rank(values, share):
    return sorted(values)[math.ceil(share * len(values)) - 1]


def check_quantiles(_options):
    """Refuses thresholds of kind quantile that are not those of the healthy training cells, to one digit."""
    _, facts = read_facts()
    cases = corpus.read_cases().items()
    names = [name for name, case in cases if is_reference(case)]
    rows = {name: row for name, row in read_thresholds().items() if row["kind"] == "quantile"}
    if set(rows) != set(quantile_of):
        corpus.fail(f"thresholds.def has the quantiles {sorted(rows)}, scripts/corpus_facts.py {sorted(quantile_of)}")
    wrong = []
    for name, (figure, share) in quantile_of.items():
        values = [facts[n][figure] for n in names if n in facts and facts[n][figure] is not None]
        found, committed = nearest_rank(values, share), rows[name]["value"]
        above = sum(value > committed for value in values)
        print(
            f"{name}: the {share} quantile of {len(values)} healthy training cells is {found:.2g}; "
            f"{committed:g} is committed, {above} cells ({above / len(values):.1%}) are above it"
        )
        rounding = 0.5 * 10 ** math.floor(math.log10(committed)) * (1 + 1e-9)
        if abs(found - committed) > rounding or not rows[name]["source"].startswith(f"{share} of healthy"):
            wrong.append(name)
    if wrong:
        corpus.fail(f"thresholds.def does not have the value or the share that the corpus gives: {', '.join(wrong)}")


# ---- calibration -------------------------------------------------------------------------------------


def calibration(options):
    """How often the first cause of a sick cell is right, by what shows it and by the split of its case."""
    _, facts = read_facts()
    said, cases = {}, corpus.read_cases()
    for name, found in facts.items():
        first, _, proof = found["verdicts"].split("; ")[0].partition(" ")
        if first not in (*fine, "unknown"):
            said.setdefault((proof, cases[name]["split"]), []).append(first == cases[name]["cause"])
    lines = ["| shown how | training cases right | test cases right |", "|---|---|---|"]
    for proof in ("shown", "compared", "consistent"):
        right = [said.get((proof, split), []) for split in ("train", "test")]
        lines.append(f"| {proof} | " + " | ".join(f"{sum(r)} of {len(r)}" for r in right) + " |")
    text = "\n".join(lines)
    print(text)
    if options.docs:
        corpus.put_between_marks("docs/diagnose.md", "calibration", "scripts/corpus_facts.py calibration --docs", text)


# ---- jitter ------------------------------------------------------------------------------------------


def judged_again(options, case):
    """What is said of the cell first, and what with a threshold moved: (threshold, value, cause, layer)."""
    document = read_record(pathlib.Path(options.folder), case["name"])
    diagnosis = diagnosis_of(options.program, document, "--jitter", str(options.share))
    first = verdicts_of(diagnosis, case["level"])[0]["id"]
    here = [item for item in diagnosis["jitter"] if f"/{case['level']}/" in item["cell"]]
    return first, [(item["threshold"], item["value"], item["id"]) for item in here]


def jitter_rows(options, cases):
    """Of each threshold: changes downwards and upwards, right ones lost and won, healthy ones called sick."""
    numbers, rows, steady, right = read_thresholds(), {}, 0, 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for case, (first, moved) in zip(cases, pool.map(lambda case: judged_again(options, case), cases)):
            steady += not moved
            right += first == case["cause"]
            for name, value, found in moved:
                row = rows.setdefault(name, {"down": 0, "up": 0, "lost": 0, "won": 0, "alarms": []})
                row["down" if value < numbers[name]["value"] else "up"] += 1
                row["lost"] += first == case["cause"] != found
                row["won"] += first != case["cause"] == found
                if case["cause"] in fine and first in fine and found not in fine:
                    row["alarms"].append(case["name"] if case["split"] == "train" else "a test case")
    return numbers, rows, steady, right


def jitter_table(options, cases):
    most = 20
    numbers, rows, steady, right = jitter_rows(options, cases)
    moved = [name for name, row in numbers.items() if row["kind"] != "derived"]
    percent, lines = f"{100 * options.share:g} %", []
    lines.append(
        f"{datetime.date.today()}: {len(cases)} records of the corpus, {right} with the right cause first. Of the "
        f"{len(moved)} policies and quantiles, moved one at a time by {percent}, {len(moved) - len(rows)} change "
        f"nothing; {steady} records ({100 * steady / len(cases):.1f} %) say the same whichever is moved. The mean "
        f"threshold changes {50 * sum(r['down'] + r['up'] for r in rows.values()) / len(moved) / len(cases):.2f} % of "
        f"what is said first (cause, layer, options)."
    )
    lines += ["", f"| threshold | kind | value | -{percent} | +{percent} | right causes lost, won | healthy called sick |"]
    lines.append("|---|---|---|---|---|---|---|")
    worst = sorted(rows, key=lambda name: (-rows[name]["down"] - rows[name]["up"], name))
    for name in worst[:most]:
        row, number = rows[name], numbers[name]
        alarms = ", ".join(f"`{alarm}`" if alarm in corpus.read_cases() else alarm for alarm in row["alarms"])
        lines.append(
            f"| `{name}` | {number['kind']} | {number['value']:g} | {row['down']} | {row['up']} | "
            f"{row['lost']}, {row['won']} | {alarms or '-'} |"
        )
    total = {key: sum(rows[name][key] for name in worst) for key in ("down", "up", "lost", "won")}
    lines.append(
        f"| all {len(moved)} |  |  | {total['down']} | {total['up']} | {total['lost']}, {total['won']} | "
        f"{sum(len(row['alarms']) for row in rows.values())} |"
    )
    return "\n".join(lines)


def jitter(options):
    cases = [c for c in corpus.read_cases().values() if fnmatch.fnmatch(c["name"], options.only)]
    text = jitter_table(options, cases)
    print(text)
    if options.docs:
        corpus.put_between_marks("docs/diagnose.md", "jitter", "scripts/corpus_facts.py jitter --docs", text)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    making = commands.add_parser("make")
    making.add_argument("folder")
    making.add_argument("--program", default=corpus.root / "build" / "release" / "ampbench")
    looking = commands.add_parser("margins")
    looking.add_argument("figure", nargs="?")
    looking.add_argument("--split", choices=["train", "test"], default="train")
    showing = commands.add_parser("show")
    showing.add_argument("case")
    moving = commands.add_parser("jitter")
    moving.add_argument("folder")
    moving.add_argument("--program", default=corpus.root / "build" / "release" / "ampbench")
    moving.add_argument("--share", type=float, default=0.25)
    moving.add_argument("--only", default="*", help="cases whose name matches this pattern")
    moving.add_argument("--jobs", type=int, default=2)
    moving.add_argument("--docs", action="store_true")
    checking, trusting = commands.add_parser("quantiles"), commands.add_parser("calibration")
    trusting.add_argument("--docs", action="store_true")
    for sub, work in ((checking, check_quantiles), (trusting, calibration), (making, make), (looking, margins), (showing, show), (moving, jitter)):
        sub.set_defaults(work=work)
    options = parser.parse_args()
    options.work(options)


if __name__ == "__main__":
    main()
