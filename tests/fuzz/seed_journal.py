#!/usr/bin/env python3
"""Writes seeds of the fuzz target `journal`: journals of real probes, as target_journal.c reads them.

AMPPROBE_LIBRARY names libampprobe. The files are committed as tests/fuzz/corpus_journal.tar.gz. To make them
again:

    tests/fuzz/seed_journal.py corpus/journal
    tar --sort=name --mtime=2026-11-26 --owner=0 --group=0 --numeric-owner -cf - corpus |
        gzip -9n >tests/fuzz/corpus_journal.tar.gz
"""

import ctypes
import struct
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
from ampprobe import _abi  # noqa: E402

HEAD = struct.Struct("=2IQ")
GAP = 16  # zeros that are left out, at least
STEP, VALUES = 8, 176  # the kind of a step's record, and where in it a tensor's values are counted


def runs(data):
    """Bytes of a record that are not zero: what is skipped before them, and them."""
    found, at = [], 0
    while at < len(data):
        begin = at
        while begin < len(data) and data[begin] == 0:
            begin += 1
        end = data.find(b"\0" * GAP, begin)
        end = min(len(data) if end < 0 else end, begin + 65535)
        found.append((begin - at, data[begin:end]))
        at = end
    return found


def packed(journal, torn=0):
    """A journal as an input of the target."""
    out, at = bytearray([torn]), 0
    while at < len(journal):
        kind, length, _ = HEAD.unpack_from(journal, at)
        record = journal[at + HEAD.size : at + HEAD.size + length]
        at += HEAD.size + length
        parts = runs(record)
        assert len(parts) < 256, (kind, len(parts))
        out += bytes([kind, len(parts)])
        for skipped, part in parts:
            out += skipped.to_bytes(3, "little") + len(part).to_bytes(2, "little") + part
    return bytes(out)


def with_too_many(journal):
    """The same with the largest count in every step of the first tensor."""
    changed, at = bytearray(journal), 0
    while at < len(journal):
        kind, length, _ = HEAD.unpack_from(journal, at)
        if kind == STEP and length > VALUES + 8:
            struct.pack_into("=q", changed, at + HEAD.size + VALUES, 2**63 - 1)
        at += HEAD.size + length
    return bytes(changed)


def journal_of(half, steps, scaler, facts, updates):
    """The journal of a probe that was not closed."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/run.json"
        record = _abi.Record(path, {"half": half, "framework": "numpy", "probe_every": 1})
        shape = (2, 4)
        ids = record.describe([{"name": "fc.weight", "dtype": 0, "shape": shape, "flags": _abi.PARAMETER}])
        values = (ctypes.c_float * 8)(*[2.0**-i * (1 - 2 * (i % 2)) for i in range(8)])
        table = _abi.Table(ids, [_abi.WEIGHT_GRADIENT], [0])
        weights = _abi.Table(ids, [_abi.WEIGHT], [0])
        for one in (table, weights):
            one.put(0, ctypes.addressof(values), 8, 32, 0)
        scale = 1024.0
        for step in range(steps):
            bad = scaler and step % 5 == 4
            values[3] = float("inf") if bad else 0.125
            record.gradients(0, table, _abi.FINITE)
            if updates:
                record.before_update(0, weights)
                values[0] += 1e-3
                record.after_update(0, weights)
                record.see_named("head", weights)
            if facts and step == 1:
                record.note("a note")
                record.fact("logged_loss", 0.5, "", step)
            flags = _abi.HAS_LOSS | _abi.HAS_LR | (_abi.HAS_SCALE if scaler else 0)
            after = scale / 2 if bad else scale
            numbers = (scale, after, 1 / (1 + step), 0.1, 0.0, 0.0, 0.0, 1e-3, 1e-5)
            counts = (0, int(bad) if scaler else -1, int(not bad), 1)
            _abi.pack_facts(record.facts, 0, _abi.FACTS_BYTES, flags, step, *counts, *numbers, 0, 0)
            record.step()
            scale = after
        record.library.ampprobe_flush(record.handle)
        journal = Path(path + ".steps").read_bytes()
        record.close()
        return journal


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    whole = journal_of("fp16", 6, True, True, True)
    seeds = {
        "all": packed(whole),
        "torn": packed(whole, 40),
        "too_many": packed(with_too_many(whole)),
        "unscaled": packed(journal_of("bf16", 3, False, False, False)),
        "begun": packed(journal_of("fp16", 0, False, False, False)),
    }
    for name, data in seeds.items():
        print(name, len(data))
        (folder / name).write_bytes(data)


if __name__ == "__main__":
    main()
