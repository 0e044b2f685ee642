"""Reads and writes golden traces: FOLDER/traces.jsonl has one trace a line, with its name in the key "file".

The path FOLDER/NAME.json means the line with {"file": "NAME.json", ...}."""
import json
import os


def trace_lines(folder):
    """The lines of FOLDER/traces.jsonl by the name that each begins with."""
    path = os.path.join(folder, "traces.jsonl")
    if not os.path.exists(path):
        return {}
    with open(path) as file:
        return {json.loads(line)["file"]: line.rstrip("\n") for line in file}


def committed(path):
    """The trace FOLDER/NAME.json, which is a line of FOLDER/traces.jsonl."""
    document = json.loads(trace_lines(os.path.dirname(path))[os.path.basename(path)])
    document.pop("file")
    return document


def put(path, text):
    """Puts the JSON `text` in as the line of FOLDER/traces.jsonl that stands for FOLDER/NAME.json."""
    folder, name = os.path.split(path)
    lines = trace_lines(folder)
    lines[name] = json.dumps({"file": name})[:-1] + ", " + text.strip()[1:].replace("\n", " ").strip()
    with open(os.path.join(folder, "traces.jsonl"), "w") as file:
        file.writelines(lines[key] + "\n" for key in sorted(lines))
    print(path, len(lines[name]), "bytes")
