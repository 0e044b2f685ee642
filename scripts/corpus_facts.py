#!/usr/bin/env python3
"""The figures that verdicts compare with thresholds, of every case of the fault corpus, and their margins.

    scripts/corpus_facts.py make FOLDER [--program FILE]   makes bench/corpus/facts.jsonl.xz of records,
                                                           FOLDER/<case>.json or .json.gz, that
                                                           scripts/confusion --keep FOLDER leaves
    scripts/corpus_facts.py margins [FIGURE]               where figures lie in healthy cells and by cause
    scripts/corpus_facts.py show CASE                      all figures of a case
    scripts/corpus_facts.py quantiles                      whether quantile thresholds match the figures
    scripts/corpus_facts.py calibration                    how often the first cause is right, by evidence
    scripts/corpus_facts.py jitter [--docs]                which first verdicts change if a threshold moves
    scripts/corpus_facts.py leave-out [--docs]             which change if quantiles leave a family out
                                                           (--docs: into docs/diagnose.md)

Figures are those that the program's rules compare (`ampbench diagnose --facts`) or worked out of the record,
rounded, and what moved thresholds change. They are those of one program, machine and day, named in the file's
first line; they do not follow the rules when these change. Sets of split "test" are left out of margins, so
that nobody fits a threshold to them by accident (--split test shows them)."""

import argparse, collections, concurrent.futures, functools, gzip, hashlib, json, lzma, math, pathlib, re
import subprocess, sys, tempfile

sys.dont_write_bytecode = True
import corpus

facts_file = corpus.corpus / "facts.jsonl.xz"
last_losses = 20
fine = ("healthy", "undecided")

# Each figure: what it is, and the thresholds of reports/diagnose that it is compared with.
figures = {
    "gap": "final loss behind O0's over what is allowed; behind above 1, far above 2",
    "learned_gap": "of healthy training cells: loss gap less lateness, skips and errors, over what O0 "
                   "learned; gap_learned",
    "first_shift": "of healthy training cells: difference of the first loss from O0's, a share of it; "
                   "first_shift",
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
    "verdict": "what diagnose says first, with what shows it",
    "moved": "what it says if a threshold moves by 5, 10, 25 or 50 percent, the least of them: "
             "THRESHOLD-10=CAUSE",
    "quantile": "what it says if a quantile is lower or higher than this, up to eight times: "
                "THRESHOLD<VALUE=CAUSE",
}


texts = ("origin", "verdict", "moved", "quantile")
shares = (
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
    text = re.sub(r",\n    ", ", ", re.sub(r'"\n    "', "", text))  # rows may take several lines
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


def is_reference(case):
    """Quantiles are taken over these."""
    return (case["cause"], case["split"]) == ("healthy", "train")


def gap_figures(facts):
    """The loss gap beside what reports/diagnose/detect allows, and what the quantiles are quantiles of."""
    limits = {name: row["value"] for name, row in read_thresholds().items()}
    gap, gained = facts["gap"], facts["o0_learned"]
    if gap is None or gained is None:
        return {"first_shift": facts["first_shift"]}
    rest = limits["gap_errors"] * facts["gap_error"] + facts["gap_lateness"]
    chance = max(facts["noise_floor"] or 0, facts["rounding_floor"] or 0, limits["gap_learned"] * gained)
    return {
        "gap": ratio(gap, chance + rest),
        "learned_gap": max(0, (gap - rest) / gained) if gained > 0 else None,
        "first_shift": facts["first_shift"],
    }


def loss_figures(cell, o0):
    losses, own = o0["loss"], cell["loss"]
    rows = [losses[i : i + 5] for i in range(1, len(losses) - 4)]
    highest = max((sum(row) / 5 for row in rows if None not in row), default=None)
    missing = [i for i, x in enumerate(own) if x is None]
    return {
        "o0_rest": ratio(mean_of_last(losses, len(losses)), losses[0]),
        "o0_rise": ratio(highest, losses[0]),
        "nonfinite": len(missing) / len(own),
        "first_nonfinite": missing[0] if missing else None,
    }


def scale_figures(facts, cell):
    scales = [run[0] for run in cell["scale"] if run[0]]
    return {
        "late_skips": facts["late_skips"],
        "scale_first": math.log2(scales[0]) if scales else None,
        "scale_last": math.log2(scales[-1]) if scales else None,
    }


def gradient_figures(facts, cell):
    cast = [t for t in at(cell, "probes.tensors", []) if t["cast"] and "gradient" in t["kind"]]
    largest = lambda values: max((v for v in values if v is not None), default=None)
    return {
        "flushed": largest(ratio(t["flushed"], t["nonzero"]) for t in cast),
        "flushed_energy": facts["flushed_energy"],
        "overflowed": largest(ratio(t["overflowed"], t["count"]) for t in cast),
        "deficit": facts["gradient_deficit"],
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


def baseline_figures(facts, o0):
    signals = at(o0, "probes.signals", [])
    outputs = [s["rms_first"] for s in signals if s["rms_first"]]
    sizes = [
        math.sqrt(sum(x or 0 for x in at(t, "steps.energy", [])) / t["count"])
        for t in at(o0, "probes.unscaled_gradients", [])
        if ".weight" in t["name"] and t["count"]
    ]
    control = at(o0, "vitals.labels.control_ratio")
    return {
        "o0_step": facts["relative_update"],
        "o0_growth": facts["weight_growth"],
        "o0_silent": max((s["silent_last"] or 0 for s in signals if s["type"] == "relu"), default=None),
        "o0_signal": ratio(max(outputs, default=None), outputs[0]) if outputs else None,
        "o0_first_gradient": ratio(sizes[0], max(sizes)) if sizes else None,
        "labels": at(o0, "vitals.labels.between_class_ratio") if control is not None else None,
    }


def rounded(key, value):
    """Shares to 0.001, rises to 0.01, figures compared with distant numbers to one digit, others to two."""
    if value is None or not math.isfinite(value):
        return None
    if key in shares and abs(value) < 10:
        value = round(value, 3)
    elif key not in ("first_nonfinite", "scale_first", "scale_last", "origin_step"):
        digits = 1 if key in ("o0_signal", "o0_first_gradient", "labels") else 2
        value = round(value, 2) if key == "o0_rise" and value < 10 else float(f"{value:.{digits}g}")
    return int(value) if value == int(value) and abs(value) < 1e6 else value


def figures_of(document, case, diagnosis):
    cells = {cell["level"]: cell for cell in document["cells"] if not cell["twin"]}
    cell, o0 = cells[case["level"]], cells["O0"]
    facts, events = facts_of(diagnosis, case["level"]), at(cell, "probes.origin.events", [])
    origin = events[0] if events else None
    found = {
        **gap_figures(facts),
        **loss_figures(cell, o0),
        **scale_figures(facts, cell),
        **gradient_figures(facts, cell),
        **update_figures(cell),
        **baseline_figures(facts_of(diagnosis, "O0"), o0),
        "origin_step": origin["step"] if origin else None,
    }
    if not is_reference(case):
        found.update({figure: None for figure, _ in quantile_of.values()})
    found = {key: rounded(key, found.get(key)) for key in figures if key not in texts}
    found["origin"] = (
        " ".join(at(origin, path, "-") for path in ("op", "type", "pass", "cause.id")) if origin else None
    )
    first = verdicts_of(diagnosis, case["level"])[0]
    return {**found, "verdict": f"{first['id']} {first['proof']}"}


# ---- the file --------------------------------------------------------------------------------------


def read_record(folder, name):
    for path, opener in ((folder / (name + ".json"), open), (folder / (name + ".json.gz"), gzip.open)):
        if path.exists():
            with opener(path, "rt") as file:
                return json.load(file)
    corpus.fail(f"{folder} has no record of '{name}'")


def diagnosis_of(program, record, *options):
    said = subprocess.run(
        [program, "diagnose", record, "--json", "-", "--exit-zero", *options], capture_output=True, text=True
    )
    if said.returncode != 0:
        corpus.fail("diagnose failed: " + said.stderr.strip())
    return json.loads(said.stdout)


def of_level(cells, level):
    """Those whose names have the level, perhaps with overrides behind it."""
    name = re.compile(f"/{re.escape(level)}(:[^/]*)?/")
    return [cell for cell in cells if name.search(cell["cell"])]


def verdicts_of(diagnosis, level):
    return of_level(diagnosis["cells"], level)[0]["verdicts"]


def facts_of(diagnosis, level):
    cell = of_level(diagnosis["facts"], level)[0]
    return {fact["name"]: fact["value"] for fact in cell["facts"]}


percents = (5, 10, 25, 50)


def moved_by_percents(options, record, case):
    """THRESHOLD-10=CAUSE: what is said first if the threshold is lower (+: higher) by 10 percent, the least
    of the percents that change it; what the largest does not change is taken as steady."""
    numbers, found = read_thresholds(), {}
    for percent in reversed(percents):
        diagnosis = diagnosis_of(options.program, record, "--jitter", str(percent / 100))
        here = of_level(diagnosis["jitter"], case["level"])
        for item in here:
            name = item["threshold"] + ("-" if item["value"] < numbers[item["threshold"]]["value"] else "+")
            found[name] = f"{name}{percent}={item['id']}"
        if not here:
            break
    return " ".join(found.values()) or None


def moved_quantiles(options, record, case, first):
    """THRESHOLD<VALUE=CAUSE: what is said first if a quantile is lower than the value (>: higher)."""
    found = []

    def said(name, value):
        diagnosis = diagnosis_of(options.program, record, "--threshold", f"{name}={value!r}")
        return verdicts_of(diagnosis, case["level"])[0]["id"]

    for name in quantile_of:
        committed = read_thresholds()[name]["value"]
        for sign, factor in (("<", 1 / 8), (">", 8)):
            near, far = committed, committed * factor
            if (other := said(name, far)) == first:
                continue
            for _ in range(7):
                middle = math.sqrt(near * far)
                here = said(name, middle)
                near, far, other = (middle, far, other) if here == first else (near, middle, here)
            found.append(f"{name}{sign}{math.sqrt(near * far):.2g}={other}")
    return " ".join(found) or None


def examined(options, case):
    """The case's figures, and of which program and machine its record is."""
    document = read_record(pathlib.Path(options.folder), case["name"])
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(document, file)
        file.flush()
        found = figures_of(document, case, diagnosis_of(options.program, file.name, "--facts"))
        found["moved"] = moved_by_percents(options, file.name, case)
        found["quantile"] = moved_quantiles(options, file.name, case, said_first(found))
    return found, {
        "program": document["generator"]["version"],
        "commit": document["generator"]["git_sha"],
        "cpu": document["environment"]["cpu_model"],
        "isa": document["environment"]["isa"],
        "date": document["run"]["started_utc"][:10],
    }


def make(options):
    cases, columns = corpus.read_cases(), {key: [] for key in figures}
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for found, head in pool.map(lambda case: examined(options, case), cases.values()):
            for key, column in columns.items():
                column.append(found[key])
    write_facts(head, cases, columns)


def write_facts(head, names, columns):
    lines = [head, {"case": codes(names)}, *({key: column} for key, column in columns.items())]
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    packing = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "lp": 0}]
    facts_file.write_bytes(lzma.compress(text.encode(), filters=packing))
    print(f"{len(names)} cases, {facts_file.stat().st_size} bytes")


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
    numeric = [key for key in figures if key not in texts]
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


def agrees(found, committed):
    """Whether a quantile to one digit is the committed one."""
    return abs(found - committed) <= 0.5 * 10 ** math.floor(math.log10(committed)) * (1 + 1e-9)


def check_quantiles(_options):
    """Refuses thresholds of kind quantile that are not those of the healthy training cells, to one digit."""
    _, facts = read_facts()
    cases = corpus.read_cases().items()
    names = [name for name, case in cases if is_reference(case)]
    rows = {name: row for name, row in read_thresholds().items() if row["kind"] == "quantile"}
    if set(rows) != set(quantile_of):
        corpus.fail(f"thresholds.def has the quantiles {sorted(rows)}, scripts/corpus_facts.py "
                    f"{sorted(quantile_of)}")
    wrong = []
    for name, (figure, share) in quantile_of.items():
        values = [facts[n][figure] for n in names if n in facts and facts[n][figure] is not None]
        found, committed = nearest_rank(values, share), rows[name]["value"]
        above = sum(value > committed for value in values)
        print(
            f"{name}: the {share} quantile of {len(values)} healthy training cells is {found:.2g}; "
            f"{committed:g} is committed, {above} cells ({above / len(values):.1%}) are above it"
        )
        if not agrees(found, committed) or not rows[name]["source"].startswith(f"{share} of healthy"):
            wrong.append(name)
    if wrong:
        corpus.fail("thresholds.def does not have the value or the share that the corpus gives: "
                    f"{', '.join(wrong)}")


# ---- calibration -------------------------------------------------------------------------------------


def calibration(options):
    """How often the first cause of a sick cell is right, by what shows it and by the split of its case."""
    _, facts = read_facts()
    said, cases = {}, corpus.read_cases()
    for name, found in facts.items():
        first, _, proof = found["verdict"].partition(" ")
        if first not in (*fine, "unknown"):
            said.setdefault((proof, cases[name]["split"]), []).append(first == cases[name]["cause"])
    lines = ["| shown how | training cases right | test cases right |", "|---|---|---|"]
    for proof in ("shown", "compared", "consistent"):
        right = [said.get((proof, split), []) for split in ("train", "test")]
        lines.append(f"| {proof} | " + " | ".join(f"{sum(r)} of {len(r)}" for r in right) + " |")
    text = "\n".join(lines)
    print(text)
    if options.docs:
        corpus.put_between_marks("docs/diagnose.md", "calibration",
                                 "scripts/corpus_facts.py calibration --docs", text)


# ---- jitter ------------------------------------------------------------------------------------------


def moves_of(found):
    """Of a case: (threshold, direction, percent, cause); of thresholds that are there no longer nothing."""
    moves, rows = re.findall(r"(\w+)([-+])(\d+)=(\w+)", found["moved"] or ""), read_thresholds()
    return [(name, way, int(percent), cause) for name, way, percent, cause in moves if name in rows]


def said_first(found):
    return found["verdict"].partition(" ")[0]


def jitter_rows(options, facts, cases):
    """Of each threshold: changes downwards and upwards, right ones lost and won, healthy ones called sick."""
    rows, steady = {}, 0
    for name, found in facts.items():
        case, first = cases[name], said_first(found)
        moved = [move for move in moves_of(found) if move[2] <= options.percent]
        steady += not moved
        for threshold, way, _, cause in moved:
            row = rows.setdefault(threshold, {"-": 0, "+": 0, "lost": 0, "won": 0, "alarms": []})
            row[way] += 1
            row["lost"] += first == case["cause"] != cause
            row["won"] += first != case["cause"] == cause
            if case["cause"] in fine and first in fine and cause not in fine:
                row["alarms"].append(name if case["split"] == "train" else "a test case")
    return rows, steady


def nearest_moves(facts):
    """How many verdicts are how near to a threshold."""
    least = [min((move[2] for move in moves_of(found)), default=100) for found in facts.values()]
    counts = [(percent, sum(n <= percent for n in least)) for percent in percents]
    parts = [f"{count} ({100 * count / len(facts):.1f} %) by {percent} %" for percent, count in counts]
    what = "Records of which some threshold, moved alone, changes what is said first: "
    return what + ", ".join(parts) + "."


def jitter_table(options):
    most, cases, numbers = 20, corpus.read_cases(), read_thresholds()
    head, facts = read_facts()
    rows, steady = jitter_rows(options, facts, cases)
    right = sum(said_first(found) == cases[name]["cause"] for name, found in facts.items())
    moved = [name for name, row in numbers.items() if row["kind"] != "derived"]
    changes = sum(row["-"] + row["+"] for row in rows.values())
    lines = [
        f"{head['date']}: {len(facts)} records of the corpus, {right} with the right cause first. Of the "
        f"{len(moved)} policies and quantiles, moved one at a time by {options.percent} %, "
        f"{len(moved) - len(rows)} "
        f"change nothing; {steady} records ({100 * steady / len(facts):.1f} %) say the same whichever is "
        "moved. The mean "
        f"threshold changes {50 * changes / len(moved) / len(facts):.2f} % of what is said first (cause, "
        "layer, options). "
        + nearest_moves(facts),
        "",
        f"| threshold | kind | value | -{options.percent} % | +{options.percent} % | right causes lost, won "
        "| "
        "healthy called sick |",
        "|---|---|---|---|---|---|---|",
    ]
    worst = sorted(rows, key=lambda name: (-rows[name]["-"] - rows[name]["+"], name))
    for name in worst[:most]:
        row, number = rows[name], numbers[name]
        alarms = ", ".join(f"`{alarm}`" if alarm in cases else alarm for alarm in row["alarms"])
        lines.append(
            f"| `{name}` | {number['kind']} | {number['value']:g} | {row['-']} | {row['+']} | "
            f"{row['lost']}, {row['won']} | {alarms or '-'} |"
        )
    total = {key: sum(rows[name][key] for name in worst) for key in ("-", "+", "lost", "won")}
    lines.append(
        f"| all {len(moved)} |  |  | {total['-']} | {total['+']} | {total['lost']}, {total['won']} | "
        f"{sum(len(row['alarms']) for row in rows.values())} |"
    )
    return "\n".join(lines)


def show_table(options, mark, text):
    print(text)
    if options.docs:
        corpus.put_between_marks("docs/diagnose.md", mark, f"scripts/corpus_facts.py {mark} --docs", text)


def jitter(options):
    show_table(options, "jitter", jitter_table(options))


# ---- leaving families out ------------------------------------------------------------------------------

cause_families = {
    "range of the half format": "activation_overflow attention_logit_overflow reduction_overflow "
                                "exp_log_in_half "
    "norm_statistics_in_half weight_overflow clip_norm_overflow",
    "loss scale": "scale_too_high scaler_window_too_short gradient_underflow",
    "precision of the half format": "weight_update_lost weight_decay_lost accumulator_in_half "
    "batch_norm_statistics_in_half optimizer_state_underflow ema_in_half",
    "handling of gradients": "clip_before_unscale gradients_left_scaled unscale_order_in_accumulation "
    "accumulation_not_averaged",
    "reduction over ranks": "reduced_in_half allreduce_overflow allreduce_underflow ranks_out_of_step "
    "ranks_weighted_alike",
    "optimisation": "learning_rate_too_high learning_rate_too_low exploding_signal vanishing_gradient "
                    "dead_activation",
    "data": "label_corruption nonfinite_data data_normalization_division_by_zero math_singularity "
    "nonfinite_initial_weight",
}


def network_family(net):
    """What kind of network it is, by its ops."""
    ops = {op["op"] for op in net["ops"]}
    kinds = {
        "recurrent": ops & {"lstm", "rnn", "gru"},
        "attention": ops & {"scaled_dot_product_attention"} or ops >= {"matmul", "softmax"},
        "reconstruction": not ops & {"cross_entropy"} and ops & {"mse", "bce", "bce_with_logits"},
        "convolutional": ops & {"conv2d"},
        "other, of tokens": ops & {"embedding"},
    }
    return next((kind for kind, here in kinds.items() if here), "other, of images")


def families():
    """(kind, name, the cases judged, the cases left out of the quantiles) of every family. Quantiles are of
    healthy cells: a family of causes takes those of the networks with it on which one of them is planted."""
    cases, networks, members = corpus.read_cases(), corpus.read_networks(), collections.defaultdict(set)
    for name, case in cases.items():
        built_in = corpus.root / "bench" / "nets" / (case["net"] + ".json")
        net = networks.get(case["net"]) or json.loads(built_in.read_text())
        members[network_family(net)].add(name)
    found = [("networks", family, names, names) for family, names in sorted(members.items())]
    for family, causes in cause_families.items():
        names = {name for name, case in cases.items() if case["cause"] in causes.split()}
        nets = {cases[name]["net"] for name in names}
        found.append(("causes", family, names, {name for name, case in cases.items() if case["net"] in nets}))
    return found


def said_with(found, values):
    """What is said first with other quantiles; each is taken by itself."""
    for name, sign, value, cause in re.findall(r"(\w+)([<>])([-+.e\d]+)=(\w+)", found["quantile"] or ""):
        if (values[name] < float(value)) if sign == "<" else (values[name] > float(value)):
            return cause
    return said_first(found)


def quantiles_without(facts, reference, names):
    """How many healthy training cells there are but these, and their quantiles to one digit, as in
    thresholds.def: those committed, where the test would take them."""
    found, rest = {}, [name for name in reference if name not in names]
    for threshold, (figure, share) in quantile_of.items():
        values = [facts[name][figure] for name in rest if facts[name][figure] is not None]
        value, committed = nearest_rank(values, share), read_thresholds()[threshold]["value"]
        found[threshold] = committed if agrees(value, committed) else float(f"{value:.1g}")
    return len(rest), found


def leave_out_table():
    head, facts = read_facts()
    cases, lines, judged, different = corpus.read_cases(), [], 0, 0
    reference = [name for name in facts if is_reference(cases[name])]
    for kind, family, names, without in families():
        left, values = quantiles_without(facts, reference, without)
        names = [name for name in names if name in facts]
        if not names:  # no case of the corpus plants one of these causes
            continue
        said = [(cases[name]["cause"], said_first(facts[name]), said_with(facts[name], values))
                for name in names]
        differ = sum(before != after for _, before, after in said)
        lost = sum(before == cause != after for cause, before, after in said)
        won = sum(after == cause != before for cause, before, after in said)
        judged, different = judged + len(names), different + differ
        numbers = " | ".join(f"{value:g}" for value in values.values())
        lines.append(
            f"| {kind}: {family} | {left} | {numbers} | {len(names)} | {differ} "
            f"({100 * differ / len(names):.1f} %) | "
            f"{lost}, {won} |"
        )
    committed = " | ".join(f"{read_thresholds()[name]['value']:g}" for name in quantile_of)
    head = [
        f"{head['date']}: {len(facts)} records of the corpus.",
        "",
        f"| left out | healthy cells left | {' | '.join(f'`{name}`' for name in quantile_of)} | cases judged "
        "| "
        "verdicts that differ | right causes lost, won |",
        "|---|---|" + "---|" * len(quantile_of) + "---|---|---|",
        f"| nothing | {len(reference)} | {committed} | {len(facts)} | - | - |",
    ]
    share = f"{different} ({100 * different / judged:.1f} %)"
    tail = f"| all | {'| ' * len(quantile_of)} | {judged} | {share} |  |"
    return "\n".join([*head, *lines, tail])


def leave_out(options):
    show_table(options, "leave-out", leave_out_table())


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    making = commands.add_parser("make")
    making.add_argument("folder")
    making.add_argument("--program", default=corpus.root / "build" / "release" / "ampbench")
    making.add_argument("--jobs", type=int, default=2)
    looking = commands.add_parser("margins")
    looking.add_argument("figure", nargs="?")
    looking.add_argument("--split", choices=["train", "test"], default="train")
    showing = commands.add_parser("show")
    showing.add_argument("case")
    moving, leaving = commands.add_parser("jitter"), commands.add_parser("leave-out")
    moving.add_argument("--percent", type=int, choices=percents, default=25)
    for sub in (moving, leaving):
        sub.add_argument("--docs", action="store_true")
    checking, trusting = commands.add_parser("quantiles"), commands.add_parser("calibration")
    trusting.add_argument("--docs", action="store_true")
    works = ((checking, check_quantiles), (trusting, calibration), (making, make), (looking, margins),
             (showing, show))
    for sub, work in (*works, (moving, jitter), (leaving, leave_out)):
        sub.set_defaults(work=work)
    options = parser.parse_args()
    options.work(options)


if __name__ == "__main__":
    main()
