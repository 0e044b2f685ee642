#!/usr/bin/env python3
"""Reads the fault corpus (bench/corpus): cases, and networks as architectures and variants of them.

    scripts/corpus.py list [PATTERN]       the cases: cause, set, name, text
    scripts/corpus.py show NAME            what a case is, its command line, its network
    scripts/corpus.py expand NAME FOLDER   writes a case's network into FOLDER, prints the command line
    scripts/corpus.py expand all FOLDER    writes every network into FOLDER
    scripts/corpus.py pack NET.json        prints a network as a line of architectures.jsonl
    scripts/corpus.py check                fails if the corpus is not consistent (as tests/cli/corpus.sh does)

Formats are described in bench/corpus/README.md."""

import argparse, difflib, fnmatch, json, pathlib, re, shlex, sys

root = pathlib.Path(__file__).resolve().parent.parent
corpus = root / "bench" / "corpus"
case_columns = ["name", "text", "set", "level", "net", "steps", "options", "layer", "cured"]

# Attributes of an op that are written without their names, in this order.
positional = {
    "linear": ["out_features"],
    "conv2d": ["out_channels", "kernel_size", "stride", "padding"],
    "embedding": ["num_embeddings", "embedding_dim"],
    "reshape": ["shape"],
    "permute": ["dims"],
    "transpose": ["dim0", "dim1"],
    "scale": ["factor"],
    "add": ["value"],
    "mul": ["value"],
    "lstm": ["hidden_size"],
    "rnn": ["hidden_size"],
    "sum": ["dim"],
    "mean": ["dim"],
    "max": ["dim"],
    "select": ["dim", "index"],
    "concat": ["dim"],
    "dropout": ["p"],
    "group_norm": ["num_groups"],
    "max_pool2d": ["kernel_size", "stride"],
    "avg_pool2d": ["kernel_size", "stride"],
    "upsample": ["scale_factor"],
    "scaled_dot_product_attention": ["num_heads"],
}


def fail(text):
    sys.exit("corpus: " + text)


# ---- ops as text --------------------------------------------------------------------------------------


def split_outside_brackets(text, separator):
    """Parts of a text between separators that are in no bracket."""
    parts, depth, begin = [], 0, 0
    for at, char in enumerate(text):
        depth += (char in "([{") - (char in ")]}")
        if depth == 0 and text.startswith(separator, at):
            parts.append(text[begin:at])
            begin = at + len(separator)
    if depth != 0:
        raise ValueError(f"brackets do not match in '{text}'")
    return [part.strip() for part in [*parts, text[begin:]] if part.strip()]


def read_value(text):
    """A number, list, true or false; anything else is a string."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def read_initializer(text):
    """normal(0.02) or zeros."""
    match = re.fullmatch(r"(\w+)(?:\((.*)\))?", text)
    if not match:
        raise ValueError(f"expected an initializer such as normal(0.02), found '{text}'")
    return {"kind": match[1], **({"std": json.loads(match[2])} if match[2] else {})}


def put_argument(op, key, text):
    outer, _, inner = key.partition(".")
    if key == "std":
        op.setdefault("init", {})["weight"] = {"kind": "normal", "std": json.loads(text)}
    elif inner:
        op.setdefault(outer, {})[inner] = read_initializer(text) if outer == "init" else text
    else:
        op[key] = read_value(text)


def read_op(text):
    """`name=op(input, number, key=value)` as an op of a network file."""
    match = re.fullmatch(r"([\w.]+)=(\w+)(?:\((.*)\))?", text)
    if not match:
        raise ValueError(f"expected name=op(...), found '{text}'")
    op, inputs, unnamed = {"name": match[1], "op": match[2]}, [], []
    for argument in split_outside_brackets(match[3] or "", ","):
        named = re.fullmatch(r"([A-Za-z_][\w.]*)=(.*)", argument)
        if named:
            put_argument(op, named[1], named[2])
        else:
            (inputs if argument[0].isalpha() else unnamed).append(argument)
    if inputs:
        op["in"] = inputs if len(inputs) > 1 else inputs[0]
    keys = positional.get(op["op"], [])
    if len(unnamed) > len(keys):
        raise ValueError(f"'{text}' has {len(unnamed)} arguments without names, {op['op']} takes {len(keys)}")
    op.update(zip(keys, map(json.loads, unnamed)))
    return op


def repetition(template, index):
    """A template with {i}, {2i+3} and {a|b|c} filled in for one repetition."""

    def fill(match):
        inside = match[1]
        if "|" in inside:
            return inside.split("|")[index]
        linear = re.fullmatch(r"(-?\d*)i([+-]\d+)?", inside)
        if not linear:
            raise ValueError(f"expected {{i}}, {{2i+3}} or {{a|b}}, found '{{{inside}}}'")
        factor = {"": 1, "-": -1}.get(linear[1]) or int(linear[1])
        return str(factor * index + int(linear[2] or 0))

    return re.sub(r"\{([^{}]*)\}", fill, template)


def op_texts(text):
    """The single ops of a text: `3*(a; b)` stands for three times a and b."""
    texts = []
    for part in split_outside_brackets(text, ";"):
        repeated = re.fullmatch(r"(\d+)\*\((.*)\)", part)
        if repeated:
            templates = split_outside_brackets(repeated[2], ";")
            texts += [repetition(t, i) for i in range(int(repeated[1])) for t in templates]
        else:
            texts.append(part)
    return texts


def changed_ops(texts, changes):
    """Ops of an architecture with a variant's changes. `x=op(...)` replaces x or is inserted after the op
    before it in the list, `-x` removes x, `@x` inserts the next one after x (`@` alone: at the front)."""
    texts, at = list(texts), len(texts)

    def place(name):
        found = [i for i, t in enumerate(texts) if t.split("=")[0] == name]
        return found[0] if found else None

    for change in op_texts(changes):
        name = change.lstrip("-@").split("=")[0]
        found = place(name)
        if change == "@":
            at = 0
        elif change[0] in "-@":
            if found is None:
                raise ValueError(f"the architecture has no op '{name}'")
            at = found + (change[0] == "@")
            if change[0] == "-":
                del texts[found]
        elif found is not None:
            texts[found], at = change, found + 1
        else:
            texts.insert(at, change)
            at += 1
    return texts


# ---- ops to text --------------------------------------------------------------------------------------


def write_number(value):
    text = json.dumps(value, separators=(",", ":"))
    return re.sub(r"e([+-])0+", r"e\1", text) if isinstance(value, float) else text


def write_value(value):
    return value if isinstance(value, str) else write_number(value)


def write_dictionary(key, inner):
    """share={...} and init={...} as dotted keys."""
    for name, value in inner.items():
        if key == "init" and name == "weight" and value["kind"] == "normal":
            yield "std=" + write_number(value["std"])
        elif key == "init":
            yield f"init.{name}={value['kind']}" + (
                f"({write_number(value['std'])})" if "std" in value else ""
            )
        else:
            yield f"{key}.{name}={value}"


def write_op(op):
    inputs = op.get("in", [])
    arguments = [inputs] if isinstance(inputs, str) else list(inputs)
    unnamed = []
    for key in positional.get(op["op"], []):
        if key not in op:
            break
        unnamed.append(key)
    arguments += [write_value(op[key]) for key in unnamed]
    for key, value in op.items():
        if key in ("name", "op", "in", *unnamed):
            continue
        arguments += (
            write_dictionary(key, value) if isinstance(value, dict) else [f"{key}={write_value(value)}"]
        )
    return f"{op['name']}={op['op']}" + (f"({','.join(arguments)})" if arguments else "")


def write_input(given):
    if "tokens" in given:
        return f"{given['tokens']} tokens of {given['vocabulary']}"
    return f"{given['height']}x{given['width']}x{given['channels']}"


def read_input(text):
    tokens = re.fullmatch(r"(\d+) tokens of (\d+)", text)
    if tokens:
        return {"tokens": int(tokens[1]), "vocabulary": int(tokens[2])}
    return dict(zip(("height", "width", "channels"), map(int, text.split("x"))))


def write_defaults(defaults):
    return f"{defaults['optimizer']} {write_number(defaults['lr'])} {defaults['batch']}"


def read_defaults(text):
    optimizer, rate, batch = text.split()
    return {"optimizer": optimizer, "lr": json.loads(rate), "batch": int(batch)}


# ---- tables --------------------------------------------------------------------------------------


def read_rows(path):
    """Rows by column. The first line names the columns; rows may lack nulls at the end."""
    columns = None
    for number, line in enumerate(path.read_text().splitlines(), 1):
        try:
            row = json.loads(line)
        except ValueError as wrong:
            fail(f"{path}:{number}: {wrong}")
        if not isinstance(row, list) or (columns and len(row) > len(columns)):
            fail(f"{path}:{number}: expected a list of at most {len(columns or [])} values")
        if columns is None:
            columns = row
        else:
            yield f"{path.relative_to(root)}:{number}", dict(
                zip(columns, row + [None] * (len(columns) - len(row)))
            )


def named_rows(path, key="name"):
    rows = {}
    for place, row in read_rows(path):
        if row[key] in rows:
            fail(f"{place}: duplicate {key} '{row[key]}'")
        rows[row[key]] = {**row, "place": place}
    return rows


def network(name, row):
    """The network file of a row."""
    net = {
        "format": "ampbench-net-1",
        "name": name,
        "text": row["text"],
        "input": read_input(row["input"]),
        "defaults": read_defaults(row["defaults"]),
        **(row["extra"] or {}),
    }
    net["ops"] = [read_op(text) for text in row["texts"]]
    return net


def read_architectures():
    rows = named_rows(corpus / "architectures.jsonl")
    for row in rows.values():
        row["texts"] = op_texts(row["ops"])
    return rows


def variant_of(base, row):
    """The row of an architecture with a variant's changes; null in `extra` removes a key."""
    merged = {key: row[key] or base[key] for key in ("input", "defaults")}
    merged["extra"] = {
        k: v for k, v in {**(base["extra"] or {}), **(row["extra"] or {})}.items() if v is not None
    }
    merged["text"] = f"variant of {base['name']}: {base['text']}"
    merged["texts"] = changed_ops(base["texts"], row["changes"] or "")
    return merged


def read_networks():
    """All networks of the corpus by name, as `ampbench --net FILE` reads them."""
    architectures, variants = read_architectures(), named_rows(corpus / "variants.jsonl")
    rows = dict(architectures)
    for name, row in variants.items():
        if name in rows:
            fail(f"{row['place']}: duplicate name '{name}'")
        if row["architecture"] not in architectures:
            fail(f"{row['place']}: no architecture '{row['architecture']}'")
        try:
            rows[name] = variant_of(architectures[row["architecture"]], row)
        except ValueError as wrong:
            fail(f"{row['place']}: {wrong}")
    return {name: network(name, row) for name, row in rows.items()}


# Data that a network of the corpus is trained on unless its case names others. Tokens: the program's default.
usual_data = {"28x28x1": "synthetic", "16x16x3": "synthetic_images"}


def read_options(text):
    """`lr=0.1 seed=4` by name."""
    return dict(item.split("=", 1) for item in (text or "").split())


def read_cases():
    """All cases by name, as rows with `cause` and `split`, by cause and then in the order of the files."""
    sets, cases = named_rows(corpus / "sets.jsonl", "set"), {}
    for path in sorted((corpus / "cases").glob("*.jsonl")):
        for name, row in named_rows(path).items():
            if name in cases:
                fail(f"{row['place']}: duplicate name '{name}'")
            if row["set"] not in sets:
                fail(f"{row['place']}: no set '{row['set']}'")
            cases[name] = {**row, "cause": path.stem, "split": sets[row["set"]]["split"]}
    return cases


def command(options, networks, folder):
    """Options as arguments of a command line; a network of the corpus becomes a file in the folder."""
    words = []
    for key, value in options.items():
        words += [
            "--" + key,
            str(folder / (value + ".json")) if key == "net" and value in networks else value,
        ]
    return words


def run_options(case, networks):
    """A case's options by name: network, data, steps, its own, levels."""
    options = {"net": case["net"]}
    if case["net"] in networks:
        usual = usual_data.get(write_input(networks[case["net"]]["input"]))
        options.update({"data": usual} if usual else {})
    options.update({"steps": str(case["steps"])} if case["steps"] else {})
    return {**options, **read_options(case["options"]), "levels": "O0," + case["level"]}


def expand_case(case, networks, folder):
    """What scripts/confusion runs: options of `ampbench run`, options that apply the remedy, the cell."""
    expanded = {key: case[key] for key in ("name", "text", "cause", "layer", "set", "split")}
    expanded["cell"] = case["level"] + "/"
    expanded["run"] = command(run_options(case, networks), networks, folder)
    if case["cured"]:
        expanded["cured"] = command(read_options(case["cured"]), networks, folder)
    return expanded


def nets_of(case):
    return [net for net in (case["net"], read_options(case["cured"]).get("net")) if net]


def write_networks(networks, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name, net in networks.items():
        ops = ",\n    ".join(json.dumps(op) for op in net["ops"])
        head = json.dumps({k: v for k, v in net.items() if k != "ops"}, indent=2)
        (folder / (name + ".json")).write_text(head[:-2] + f',\n  "ops": [\n    {ops}\n  ]\n}}\n')


def put_between_marks(file, mark, maker, text):
    """Replaces the text of a page between the marks <!-- MARK: made by MAKER --> and <!-- /MARK -->."""
    path, begin, end = root / file, f"<!-- {mark}: made by {maker} -->\n", f"<!-- /{mark} -->"
    old = path.read_text()
    if begin not in old or end not in old:
        fail(f"{file} has no place for the table of {mark}")
    head, rest = old.split(begin)
    path.write_text(head + begin + text + "\n" + end + rest.split(end, 1)[1])


# ---- the command --------------------------------------------------------------------------------------


def case_named(cases, name):
    if name not in cases:
        near = difflib.get_close_matches(name, cases, 1)
        fail(f"no case '{name}'" + (f"; did you mean '{near[0]}'?" if near else ""))
    return cases[name]


def list_cases(options):
    for case in read_cases().values():
        if fnmatch.fnmatch(case["name"], options.pattern):
            print(f"{case['cause']:36} {case['set']:4} {case['name']:36} {case['text']}")


def show(options):
    networks = read_networks()
    case = case_named(read_cases(), options.name)
    expanded = expand_case(case, networks, pathlib.Path("FOLDER"))
    print(
        f"{case['name']}: {case['text']}\n"
        f"cause {case['cause']}, layer {case['layer'] or 'none'}, set {case['set']}"
    )
    print("ampbench run " + shlex.join(expanded["run"]))
    if "cured" in expanded:
        print("remedy by hand: " + shlex.join(expanded["cured"]))
    for name in nets_of(case):
        if name in networks:
            print(json.dumps(networks[name], indent=2))


def expand(options):
    networks, folder = read_networks(), pathlib.Path(options.folder)
    if options.name == "all":
        write_networks(networks, folder)
        return
    case = case_named(read_cases(), options.name)
    write_networks({name: networks[name] for name in nets_of(case) if name in networks}, folder)
    print("ampbench run " + shlex.join(expand_case(case, networks, folder)["run"]))


def pack(options):
    net = json.loads(pathlib.Path(options.file).read_text())
    extra = {key: net[key] for key in ("targets", "init", "losses") if key in net}
    texts = [write_op(op) for op in net["ops"]]
    if [read_op(text) for text in texts] != net["ops"]:
        fail(f"{options.file}: an attribute that a line cannot hold")
    row = [
        net["name"],
        net["text"],
        write_input(net["input"]),
        write_defaults(net["defaults"]),
        ";".join(texts),
    ]
    print(json.dumps(row + ([extra] if extra else []), separators=(",", ":"), ensure_ascii=False))


def check_case(case, networks, built_in):
    for net in nets_of(case):
        if net not in networks and net not in built_in:
            fail(f"{case['place']}: no network '{net}'")
    if case["level"] not in ("O1", "O2", "O3"):
        fail(f"{case['place']}: expected level O1, O2 or O3, found '{case['level']}'")
    if (
        not re.fullmatch(r"[a-z0-9_.]+", case["name"])
        or not case["text"]
        or not isinstance(case["steps"], (int, type(None)))
    ):
        fail(f"{case['place']}: expected a name in lower case, a text and steps")
    layers = {op["name"] for op in networks.get(case["net"], {"ops": []})["ops"]}
    if case["layer"] and layers and case["layer"] not in layers:
        fail(f"{case['place']}: network '{case['net']}' has no layer '{case['layer']}'")
    expand_case(case, networks, pathlib.Path("FOLDER"))


def check_causes():
    verdicts = root / "reports" / "diagnose" / "attribute" / "verdicts.def"
    known = re.findall(r"^AB_VERDICT\((\w+)\)", verdicts.read_text(), re.M)
    for path in (corpus / "cases").iterdir():
        if path.stem not in (*known, "healthy", "undecided"):
            fail(f"{path.relative_to(root)}: unknown cause '{path.stem}'")
        if path.read_text().split("\n", 1)[0] != json.dumps(case_columns, separators=(",", ":")):
            fail(f"{path.relative_to(root)}:1: expected the columns {', '.join(case_columns)}")


def check_size(cases):
    """Limits of size: fewer than 60 files, and 250 bytes a case."""
    files = [path for path in corpus.rglob("*") if path.is_file()]
    size, most = sum(path.stat().st_size for path in files), 250 * len(cases)
    if len(files) >= 60 or size > most:
        fail(f"{len(files)} files with {size} bytes, expected less than 60 and at most {most}")
    return f"{len(files)} files, {size} bytes"


def check(_options):
    """Fails if the corpus does not expand, has unused networks or is too large."""
    networks, cases = read_networks(), read_cases()
    built_in = {path.stem for path in (root / "bench" / "nets").glob("*.json")}
    check_causes()
    for case in cases.values():
        check_case(case, networks, built_in)
    used = {net for case in cases.values() for net in nets_of(case)}
    used |= {
        row["architecture"] for name, row in named_rows(corpus / "variants.jsonl").items() if name in used
    }
    for unused in sorted(set(networks) - used):
        fail(f"no case uses network '{unused}'")
    for name in sorted(set(networks) & built_in):
        fail(f"network '{name}' has the name of a built-in one")
    print(f"{len(cases)} cases, {len(networks)} networks, {check_size(cases)}")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, work, *arguments in (
        ("list", list_cases, "?pattern"),
        ("show", show, "name"),
        ("expand", expand, "name", "folder"),
        ("pack", pack, "file"),
        ("check", check),
    ):
        sub = commands.add_parser(name)
        sub.set_defaults(work=work)
        for argument in arguments:
            sub.add_argument(
                argument.lstrip("?"), **({"nargs": "?", "default": "*"} if argument[0] == "?" else {})
            )
    options = parser.parse_args()
    options.work(options)


if __name__ == "__main__":
    main()
